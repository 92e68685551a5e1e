//! Each half of a link by itself: what it passes on, and what it refuses.

use std::sync::Arc;

use farside_card::interface::{
    CommandEntry, CompletionEntry, DmaAddr, Entry, Extent, ExtentArg, ExtentList, FaultHead,
    FaultRecord, FaultWants, Operation, RingHeader, RingKind, Status, register, ring_bytes,
};
use farside_link::Frame;
use farside_link::frame::Ring;
use farside_linux::shared::SharedMemory;
use farside_types::{Access, Asid, FaultId, JobId, PageNo, PageRange, PeId, Rights};

use super::entries::{ATTACHED_MAX, Attached, Item, News, Run};
use super::mirror::{Mirror, Nonsense};
use super::rings::{RingRegisters, Rings};
use super::shadow::{CardBroken, Refusal, Shadow};

pub(super) const BUS: u64 = 1 << 32;
/// Entries of each ring.
pub(super) const ENTRIES: u32 = 8;
/// Where lists and messages are: behind the rings.
const LISTS: u64 = BUS + 16 * 4096;
const MEMORY: u64 = 32 * 4096;

pub(super) fn registers() -> RingRegisters {
    let mut registers = RingRegisters::default();
    let mut base = BUS;
    for kind in RingKind::ALL {
        registers.note(register::ring(kind) + register::RING_BASE, base);
        registers.note(register::ring(kind) + register::RING_ENTRIES, ENTRIES.into());
        base += ring_bytes(ENTRIES).next_multiple_of(4096);
    }
    registers
}

pub(super) fn memory() -> Arc<SharedMemory> {
    Arc::new(SharedMemory::new(MEMORY).unwrap())
}

pub(super) fn nop(tag: u64) -> Entry {
    CommandEntry { tag, asid: Asid(0), operation: Operation::Nop }.to_entry()
}

pub(super) fn done(tag: u64) -> Entry {
    CompletionEntry::plain(tag, Status::Ok).to_entry()
}

fn command(operation: Operation) -> Item {
    let entry = CommandEntry { tag: 1, asid: Asid(0), operation }.to_entry();
    Item { entry, attached: None }
}

fn run(ring: RingKind, first: u32, items: Vec<Item>) -> Run {
    Run { ring, first, items }
}

fn commands(items: Vec<Item>) -> Run {
    run(RingKind::Command, 0, items)
}

/// A list of one extent that maps a frame of this kind.
fn map_by_list(dst: DmaAddr, address: u64) -> Item {
    let extent = Extent { page: 5, count: 1, src: DmaAddr::Bus(0), dst };
    let list = ExtentArg::List(ExtentList { address, count: 1 });
    let bytes = extent.to_words().into_iter().flat_map(u64::to_le_bytes).collect();
    Item { attached: Some((address, bytes)), ..command(Operation::Map(list, Rights::Read)) }
}

/// A frame as it comes.
fn came(frame: &Frame<Vec<u8>>) -> Frame<&[u8]> {
    frame.clone().map(|_| &frame.data().expect("it has some")[..])
}

/// What is told, as frames, and given to whoever takes frames.
pub(super) fn carry<E: std::fmt::Debug>(
    news: News,
    mut take: impl FnMut(&Frame<&[u8]>) -> Result<Option<bool>, E>,
) -> Result<bool, E> {
    let mut frames = Vec::new();
    news.post(|frame| frames.push(frame));
    let mut wakes = false;
    for frame in frames {
        wakes |= take(&came(&frame))?.expect("it is about rings");
    }
    Ok(wakes)
}

#[test]
fn lists_travel_with_their_command_and_lie_where_it_says() {
    let (near, far) = (memory(), memory());
    let mut mirror = Mirror::new(Arc::clone(&near), BUS, &registers()).unwrap();
    let mut shadow = Shadow::new(Arc::clone(&far), BUS, &registers()).unwrap();
    let item = map_by_list(DmaAddr::Own(3), LISTS + 32);
    let (_, list) = item.attached.clone().unwrap();
    near.write(LISTS + 32 - BUS, &list).unwrap();
    let rings = Rings::new(near, BUS, &registers()).unwrap();
    rings.put(RingKind::Command, 0, &item.entry);
    rings.set_word(RingKind::Command, RingHeader::PRODUCER, 1);
    let news = mirror.poll(1).unwrap();
    assert_eq!(news.runs, [commands(vec![item.clone()])]);
    carry(news, |frame| shadow.frame(frame)).unwrap();
    let mut bytes = [0; 32];
    far.read(LISTS + 32 - BUS, &mut bytes).unwrap();
    assert_eq!(bytes[..], list);
    let card = Rings::new(far, BUS, &registers()).unwrap();
    assert_eq!(card.entry(RingKind::Command, 0), item.entry);
    assert_eq!(card.word(RingKind::Command, RingHeader::PRODUCER), 1);
}

/// Frames that are no entries, or not the next, or refer to what did not come: at either end.
#[test]
fn frames_that_do_not_fit_the_rings_are_refused() {
    let item = map_by_list(DmaAddr::Own(3), LISTS);
    let (address, list) = item.attached.clone().unwrap();
    let entry: Vec<u8> = item.entry.iter().flat_map(|word| word.to_le_bytes()).collect();
    let entries =
        |first, data: &[u8]| Frame::RingEntries { ring: Ring::Command, first, data: data.to_vec() };
    let list = |address| Frame::DmaWrite { address, data: list.clone() };
    let cases = [
        (vec![list(address), entries(1, &entry)], Refusal::Order),
        (vec![list(address), entries(0, &entry[..60])], Refusal::List),
        (vec![list(address), entries(0, &[])], Refusal::List),
        (vec![entries(0, &entry)], Refusal::List),
        (vec![list(address + 32), entries(0, &entry)], Refusal::List),
        (vec![list(address), list(address), entries(0, &entry)], Refusal::List),
        (vec![list(address); 1025], Refusal::List),
        (vec![Frame::DmaWrite { address, data: vec![0; ATTACHED_MAX + 1] }], Refusal::List),
        (vec![Frame::RingWaits { ring: Ring::Fault }], Refusal::OwnRing),
        (vec![Frame::RingConsumed { ring: Ring::Command, index: 0 }], Refusal::Consumed),
        (vec![Frame::RingConsumed { ring: Ring::Fault, index: 1 }], Refusal::Consumed),
    ];
    for (frames, refusal) in cases {
        let far = memory();
        let before = everything(&far);
        let mut shadow = Shadow::new(Arc::clone(&far), BUS, &registers()).unwrap();
        let mut outcome = Ok(());
        for frame in &frames {
            outcome = outcome.and_then(|()| shadow.frame(&came(frame)).map(drop));
        }
        assert_eq!(outcome, Err(refusal), "{frames:?}");
        assert!(everything(&far) == before, "{frames:?} have reached the card");
    }
    // An honest one is taken, and what is about something else is left to others.
    let mut shadow = Shadow::new(memory(), BUS, &registers()).unwrap();
    for frame in [list(address), entries(0, &entry)] {
        shadow.frame(&came(&frame)).unwrap();
    }
    assert_eq!(shadow.frame(&Frame::Return), Ok(None));
}

#[test]
fn pieces_that_no_entry_refers_to_are_refused_however_they_come() {
    let mut attached = Attached::default();
    assert!(attached.came(LISTS, &[1; 8]) && attached.came(LISTS + 8, &[2; 8]));
    let entry: Vec<u8> = nop(1).iter().flat_map(|word| word.to_le_bytes()).collect();
    let refers = |_: &Entry| Some(LISTS);
    assert_eq!(attached.run(Ring::Command, 0, &entry, refers), None);
    // What was refused is not there for the next.
    assert!(attached.came(LISTS, &[3; 8]));
    let run = attached.run(Ring::Command, 0, &entry, refers).unwrap();
    assert_eq!(run.items[0].attached, Some((LISTS, vec![3; 8])));
}

#[test]
fn a_kernels_message_comes_with_its_completion_and_never_beside_its_buffer() {
    let (near, far) = (memory(), memory());
    let mut mirror = Mirror::new(Arc::clone(&near), BUS, &registers()).unwrap();
    let mut shadow = Shadow::new(Arc::clone(&far), BUS, &registers()).unwrap();
    let rings = Rings::new(Arc::clone(&near), BUS, &registers()).unwrap();
    let launch = Operation::Launch {
        job: JobId(1),
        kernel: 0,
        pe: None,
        args: ExtentList { address: LISTS, count: 0 },
        message: ExtentList { address: LISTS + 64, count: 8 },
    };
    rings.put(RingKind::Command, 0, &command(launch).entry);
    rings.set_word(RingKind::Command, RingHeader::PRODUCER, 1);
    carry(mirror.poll(1).unwrap(), |frame| shadow.frame(frame)).unwrap();
    assert!(shadow.is_open(1) && !shadow.is_open(2) && shadow.ended().is_empty());
    // The card says that it has written more than there is room for.
    far.write(LISTS + 64 - BUS, &[7; 16]).unwrap();
    let card = Rings::new(far, BUS, &registers()).unwrap();
    card.set_word(RingKind::Command, RingHeader::CONSUMER, 1);
    let plain = CompletionEntry::plain(1, Status::KernelFailed);
    card.put(RingKind::Completion, 0, &CompletionEntry { message_bytes: 16, ..plain }.to_entry());
    card.set_word(RingKind::Completion, RingHeader::PRODUCER, 1);
    let mut news = shadow.poll().unwrap().unwrap();
    // What is to be read behind it can be read now, once.
    assert!(!shadow.is_open(1) && shadow.ended() == [1] && shadow.ended().is_empty());
    let attached = &mut news.runs[0].items[0].attached;
    assert_eq!(attached.as_ref().unwrap(), &(LISTS + 64, vec![7; 8]));
    // Nor is the end beside the card believed.
    *attached = Some((LISTS + 64, vec![9; 64]));
    carry(news, |frame| mirror.frame(frame)).unwrap();
    let mut bytes = [0; 16];
    near.read(LISTS + 64 - BUS, &mut bytes).unwrap();
    assert_eq!(bytes, [9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn what_a_program_may_not_send_is_refused_and_none_of_it_reaches_the_card() {
    let own = |page| Extent { page, count: 1, src: DmaAddr::Bus(0), dst: DmaAddr::Own(1) };
    let host = Extent { dst: DmaAddr::Bus(7), ..own(1) };
    let inline = |extent| command(Operation::Map(ExtentArg::Inline(extent), Rights::Read));
    let list = |address, count| ExtentArg::List(ExtentList { address, count });
    let unmap = |address, count| command(Operation::Unmap(list(address, count)));
    let launch = |address| {
        let args = ExtentList { address: LISTS, count: 0 };
        let message = ExtentList { address, count: 8 };
        command(Operation::Launch { job: JobId(1), kernel: 0, pe: None, args, message })
    };
    let garbage = Item { entry: [u64::MAX; 8], ..command(Operation::Nop) };
    let long = ATTACHED_MAX as u64 / 32 + 1;
    let long =
        Item { attached: Some((LISTS, vec![0; 32 * long as usize])), ..unmap(LISTS, long as u32) };
    let with_list = |at: u64, item: Item| Item { attached: Some((at, vec![1; 32])), ..item };
    let kernel = command(Operation::Kernel { address: BUS + MEMORY - 4, bytes: 8 });
    let copy = command(Operation::Copy(ExtentArg::Inline(own(0))));
    let cases = [
        (garbage, Refusal::NoCommand),
        (inline(host), Refusal::Beyond),
        (map_by_list(DmaAddr::Bus(9), LISTS), Refusal::Beyond),
        (with_list(LISTS, unmap(LISTS, 1)), Refusal::Beyond),
        (copy, Refusal::Beyond),
        (command(Operation::LinkCancel { transfer: 1, from: 0 }), Refusal::Beyond),
        (unmap(LISTS, 1), Refusal::List),
        (with_list(LISTS, unmap(LISTS, 2)), Refusal::List),
        (with_list(LISTS + 32, unmap(LISTS, 1)), Refusal::List),
        (with_list(LISTS, command(Operation::Nop)), Refusal::List),
        (with_list(BUS, unmap(BUS, 1)), Refusal::List),
        (with_list(0, unmap(0, 1)), Refusal::List),
        (with_list(BUS + MEMORY - 24, unmap(BUS + MEMORY - 24, 1)), Refusal::List),
        (with_list(u64::MAX - 7, unmap(u64::MAX - 7, 1)), Refusal::List),
        (Item { attached: Some((BUS + MEMORY - 4, vec![0; 8])), ..kernel }, Refusal::List),
        (long, Refusal::List),
        (launch(BUS + 8), Refusal::List),
        (launch(BUS + MEMORY - 4), Refusal::List),
    ];
    for (item, refusal) in cases {
        let far = memory();
        let mut shadow = Shadow::new(Arc::clone(&far), BUS, &registers()).unwrap();
        let before = everything(&far);
        // Nor what is in the same frame.
        let items = vec![command(Operation::Nop), item.clone()];
        assert_eq!(shadow.arrived(&commands(items)), Err(refusal), "{item:?}");
        assert!(everything(&far) == before, "{item:?} has reached the card");
    }
    let (far, many) = (memory(), vec![command(Operation::Nop); ENTRIES as usize + 1]);
    let mut shadow = Shadow::new(Arc::clone(&far), BUS, &registers()).unwrap();
    assert_eq!(shadow.arrived(&commands(many)), Err(Refusal::NoRoom));
    let faults = run(RingKind::Fault, 0, vec![command(Operation::Nop)]);
    assert_eq!(shadow.arrived(&faults), Err(Refusal::OwnRing));
    assert_eq!(shadow.consumed(RingKind::Completion, 1), Err(Refusal::Consumed));
    // An honest one is taken.
    assert!(shadow.arrived(&commands(vec![inline(own(1))])).is_ok());
}

/// Negative control: without the checks the same bytes lie in the card's ring.
#[test]
fn control_an_entry_that_is_not_checked_reaches_the_card() {
    let far = memory();
    let before = everything(&far);
    let rings = Rings::new(Arc::clone(&far), BUS, &registers()).unwrap();
    rings.put(RingKind::Command, 0, &[u64::MAX; 8]);
    assert!(everything(&far) != before);
}

fn everything(memory: &SharedMemory) -> Vec<u8> {
    let mut bytes = vec![0; memory.bytes() as usize];
    memory.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn indices_that_no_card_can_have_are_noticed() {
    let cases = [
        (RingKind::Command, RingHeader::CONSUMER, 1),
        (RingKind::Command, RingHeader::CONSUMER, u32::MAX),
        (RingKind::Completion, RingHeader::PRODUCER, ENTRIES + 1),
        (RingKind::Fault, RingHeader::PRODUCER, u32::MAX),
        (RingKind::Notice, RingHeader::PRODUCER, 1 << 31),
    ];
    for (kind, word, value) in cases {
        let far = memory();
        let mut shadow = Shadow::new(Arc::clone(&far), BUS, &registers()).unwrap();
        Rings::new(far, BUS, &registers()).unwrap().set_word(kind, word, value);
        assert_eq!(shadow.poll(), Err(CardBroken(kind)), "{kind:?} {value:#x}");
    }
}

#[test]
fn what_the_other_end_may_not_send_is_noticed_beside_the_program() {
    let item = || Item { entry: done(1), attached: None };
    let full = vec![item(); ENTRIES as usize + 1];
    let cases = [
        (run(RingKind::Command, 0, vec![item()]), Nonsense::OwnRing),
        (run(RingKind::Notice, 0, full), Nonsense::NoRoom(RingKind::Notice)),
        (run(RingKind::Notice, 1, vec![item()]), Nonsense::Malformed),
    ];
    for (run, nonsense) in cases {
        let mut mirror = Mirror::new(memory(), BUS, &registers()).unwrap();
        assert_eq!(mirror.arrived(&run), Err(nonsense));
    }
    for (kind, index) in
        [(RingKind::Command, 1), (RingKind::Command, u32::MAX), (RingKind::Fault, 0)]
    {
        let mut mirror = Mirror::new(memory(), BUS, &registers()).unwrap();
        assert_eq!(mirror.consumed(kind, index), Err(Nonsense::Consumed));
    }
}

#[test]
fn completions_that_raise_no_interrupt_are_looked_for_until_they_come() {
    let far = memory();
    let mut shadow = Shadow::new(Arc::clone(&far), BUS, &registers()).unwrap();
    let card = Rings::new(far, BUS, &registers()).unwrap();
    shadow.arrived(&commands(vec![command(Operation::Nop)])).unwrap();
    assert!(!shadow.expects_quiet_news());
    let quiet = CommandEntry { tag: 2, asid: Asid(0), operation: Operation::Nop };
    let quiet = Item { entry: quiet.to_quiet_entry(), ..command(Operation::Nop) };
    shadow.arrived(&run(RingKind::Command, 1, vec![quiet])).unwrap();
    assert!(shadow.expects_quiet_news());
    for (index, tag) in [(0, 1), (1, 2)] {
        card.put(RingKind::Completion, index, &done(tag));
        card.set_word(RingKind::Completion, RingHeader::PRODUCER, index + 1);
        assert!(shadow.poll().unwrap().is_some());
        assert_eq!(shadow.expects_quiet_news(), tag == 1);
    }
}

#[test]
fn the_records_of_a_group_of_faults_travel_together() {
    let far = memory();
    let mut shadow = Shadow::new(Arc::clone(&far), BUS, &registers()).unwrap();
    let card = Rings::new(far, BUS, &registers()).unwrap();
    let head = |id, wants| {
        FaultRecord::Head(FaultHead { id, asid: Asid(0), pe: PeId(0), job: JobId(0), wants })
            .to_entry()
    };
    let range = Some((PageRange::new(PageNo(1), 1), Access::Read));
    let single = head(FaultId(1), FaultWants::Page(PageNo(1), Access::Read));
    let group = head(FaultId(2), FaultWants::Group { ranges: 6 });
    let ranges = FaultRecord::Ranges(FaultId(2), [range; 3]).to_entry();
    // Six single faults, of which the program takes none, and then a group for which there is no room.
    let records = [single; 6].into_iter().chain([group, ranges]).chain([ranges]);
    let mut written = 0;
    let mut sent = Vec::new();
    let items = |news: News| news.runs.into_iter().flat_map(|run| run.items);
    for entry in records {
        card.put(RingKind::Fault, written, &entry);
        written += 1;
        if written == 6 {
            card.set_word(RingKind::Fault, RingHeader::PRODUCER, written);
            sent.extend(items(shadow.poll().unwrap().unwrap()));
        }
    }
    card.set_word(RingKind::Fault, RingHeader::PRODUCER, written);
    let wish = shadow.poll().unwrap().unwrap();
    assert!(wish.runs.is_empty() && wish.waits == Some(RingKind::Fault), "{wish:?}");
    assert_eq!(shadow.poll().unwrap(), None, "it is said once");
    assert!(shadow.may_sleep(), "it waits for room, and is told of it");
    shadow.consumed(RingKind::Fault, 1).unwrap();
    sent.extend(items(shadow.poll().unwrap().unwrap()));
    assert_eq!(sent.len(), 9);
    assert_eq!(sent[6].entry, group);
}
