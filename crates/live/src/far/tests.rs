//! Each half of a link by itself: what it passes on, and what it refuses.

use std::sync::Arc;

use farside_card::interface::{
    CommandEntry, CompletionEntry, DmaAddr, Entry, Extent, ExtentArg, ExtentList, FaultHead,
    FaultRecord, FaultWants, Operation, RING_COUNT, RingHeader, RingKind, Status, register,
    ring_bytes,
};
use farside_linux::shared::SharedMemory;
use farside_types::{Access, Asid, FaultId, JobId, PageNo, PageRange, PeId, Rights};

use super::mirror::{Mirror, Nonsense};
use super::rings::{RingRegisters, Rings};
use super::shadow::{CardBroken, Refusal, Shadow};
use super::wire::{ATTACHED_MAX, Entries, Item};

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
    Item { ring: RingKind::Command, entry, attached: Vec::new() }
}

fn entries(items: Vec<Item>) -> Entries {
    Entries { consumed: [0; RING_COUNT], wants_room: false, items }
}

/// A list of one extent that maps a frame of this kind.
fn map_by_list(dst: DmaAddr, address: u64) -> Item {
    let extent = Extent { page: 5, count: 1, src: DmaAddr::Bus(0), dst };
    let list = ExtentArg::List(ExtentList { address, count: 1 });
    let bytes = extent.to_words().into_iter().flat_map(u64::to_le_bytes).collect();
    Item { attached: bytes, ..command(Operation::Map(list, Rights::Read)) }
}

#[test]
fn lists_travel_with_their_command_and_lie_where_it_says() {
    let (near, far) = (memory(), memory());
    let mut mirror = Mirror::new(Arc::clone(&near), BUS, &registers()).unwrap();
    let mut shadow = Shadow::new(Arc::clone(&far), BUS, &registers()).unwrap();
    let item = map_by_list(DmaAddr::Own(3), LISTS + 32);
    near.write(LISTS + 32 - BUS, &item.attached).unwrap();
    let rings = Rings::new(near, BUS, &registers()).unwrap();
    rings.put(RingKind::Command, 0, &item.entry);
    rings.set_word(RingKind::Command, RingHeader::PRODUCER, 1);
    let message = mirror.poll(1).unwrap();
    assert_eq!(message.items, std::slice::from_ref(&item));
    shadow.arrived(message).unwrap();
    let mut bytes = [0; 32];
    far.read(LISTS + 32 - BUS, &mut bytes).unwrap();
    assert_eq!(bytes[..], item.attached);
    let card = Rings::new(far, BUS, &registers()).unwrap();
    assert_eq!(card.entry(RingKind::Command, 0), item.entry);
    assert_eq!(card.word(RingKind::Command, RingHeader::PRODUCER), 1);
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
    shadow.arrived(mirror.poll(1).unwrap()).unwrap();
    // The card says that it has written more than there is room for.
    far.write(LISTS + 64 - BUS, &[7; 16]).unwrap();
    let card = Rings::new(far, BUS, &registers()).unwrap();
    card.set_word(RingKind::Command, RingHeader::CONSUMER, 1);
    let plain = CompletionEntry::plain(1, Status::KernelFailed);
    card.put(RingKind::Completion, 0, &CompletionEntry { message_bytes: 16, ..plain }.to_entry());
    card.set_word(RingKind::Completion, RingHeader::PRODUCER, 1);
    let mut message = shadow.poll().unwrap().unwrap();
    assert_eq!(message.items[0].attached, [7; 8]);
    // Nor is the end beside the card believed.
    message.items[0].attached = vec![9; 64];
    mirror.arrived(&message).unwrap();
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
    let wrong_ring = Item { ring: RingKind::Fault, ..command(Operation::Nop) };
    let long = ATTACHED_MAX as u64 / 32 + 1;
    let long = Item { attached: vec![0; 32 * long as usize], ..unmap(LISTS, long as u32) };
    let with_list = |item: Item| Item { attached: vec![1; 32], ..item };
    let kernel = command(Operation::Kernel { address: BUS + MEMORY - 4, bytes: 8 });
    let copy = command(Operation::Copy(ExtentArg::Inline(own(0))));
    let cases = [
        (garbage, Refusal::NoCommand),
        (wrong_ring, Refusal::OwnRing),
        (inline(host), Refusal::Beyond),
        (map_by_list(DmaAddr::Bus(9), LISTS), Refusal::Beyond),
        (with_list(unmap(LISTS, 1)), Refusal::Beyond),
        (copy, Refusal::Beyond),
        (command(Operation::LinkCancel { transfer: 1, from: 0 }), Refusal::Beyond),
        (unmap(LISTS, 1), Refusal::List),
        (with_list(unmap(LISTS, 2)), Refusal::List),
        (with_list(command(Operation::Nop)), Refusal::List),
        (with_list(unmap(BUS, 1)), Refusal::List),
        (with_list(unmap(0, 1)), Refusal::List),
        (with_list(unmap(BUS + MEMORY - 24, 1)), Refusal::List),
        (with_list(unmap(u64::MAX - 7, 1)), Refusal::List),
        (Item { attached: vec![0; 8], ..kernel }, Refusal::List),
        (long, Refusal::List),
        (launch(BUS + 8), Refusal::List),
        (launch(BUS + MEMORY - 4), Refusal::List),
    ];
    for (item, refusal) in cases {
        let far = memory();
        let mut shadow = Shadow::new(Arc::clone(&far), BUS, &registers()).unwrap();
        let before = everything(&far);
        // Nor what is in the same message.
        let items = vec![command(Operation::Nop), item.clone()];
        assert_eq!(shadow.arrived(entries(items)), Err(refusal), "{item:?}");
        assert!(everything(&far) == before, "{item:?} has reached the card");
    }
    let (far, many) = (memory(), vec![command(Operation::Nop); ENTRIES as usize + 1]);
    let mut shadow = Shadow::new(Arc::clone(&far), BUS, &registers()).unwrap();
    assert_eq!(shadow.arrived(entries(many)), Err(Refusal::NoRoom));
    let taken = Entries { consumed: [0, 1, 0, 0], ..Entries::default() };
    assert_eq!(shadow.arrived(taken), Err(Refusal::Consumed));
    // An honest one is taken.
    assert!(shadow.arrived(entries(vec![inline(own(1))])).is_ok());
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
    let item = |ring| Item { ring, entry: done(1), attached: Vec::new() };
    let full = vec![item(RingKind::Notice); ENTRIES as usize + 1];
    let cases = [
        (entries(vec![item(RingKind::Command)]), Nonsense::OwnRing),
        (entries(full), Nonsense::NoRoom(RingKind::Notice)),
        (Entries { consumed: [1, 0, 0, 0], ..Entries::default() }, Nonsense::Consumed),
        (Entries { consumed: [u32::MAX, 0, 0, 0], ..Entries::default() }, Nonsense::Consumed),
    ];
    for (message, nonsense) in cases {
        let mut mirror = Mirror::new(memory(), BUS, &registers()).unwrap();
        assert_eq!(mirror.arrived(&message), Err(nonsense));
    }
}

#[test]
fn completions_that_raise_no_interrupt_are_looked_for_until_they_come() {
    let far = memory();
    let mut shadow = Shadow::new(Arc::clone(&far), BUS, &registers()).unwrap();
    let card = Rings::new(far, BUS, &registers()).unwrap();
    shadow.arrived(entries(vec![command(Operation::Nop)])).unwrap();
    assert!(!shadow.expects_quiet_news());
    let quiet = CommandEntry { tag: 2, asid: Asid(0), operation: Operation::Nop };
    let quiet = Item { entry: quiet.to_quiet_entry(), ..command(Operation::Nop) };
    shadow.arrived(entries(vec![quiet])).unwrap();
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
    let mut consumed = [0; RING_COUNT];
    for entry in records {
        card.put(RingKind::Fault, written, &entry);
        written += 1;
        if written == 6 {
            card.set_word(RingKind::Fault, RingHeader::PRODUCER, written);
            sent.extend(shadow.poll().unwrap().unwrap().items);
        }
    }
    card.set_word(RingKind::Fault, RingHeader::PRODUCER, written);
    let wish = shadow.poll().unwrap().unwrap();
    assert!(wish.items.is_empty() && wish.wants_room, "{wish:?}");
    assert!(shadow.may_sleep(), "it waits for room, and is told of it");
    consumed[RingKind::Fault.index()] = 1;
    shadow.arrived(Entries { consumed, ..Entries::default() }).unwrap();
    sent.extend(shadow.poll().unwrap().unwrap().items);
    assert_eq!(sent.len(), 9);
    assert_eq!(sent[6].entry, group);
}
