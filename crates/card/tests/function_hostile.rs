//! A driver that writes anything: nothing panics, every command gets one completion, what is refused
//! was not done, and small rings change nothing but the time it takes.

mod rig;

use std::collections::{BTreeMap, VecDeque};

use farside_card::interface::{
    BitsBuffer, CommandEntry, DmaAddr, Entry, FaultArg, Opcode, Operation, RingHeader, RingKind,
    Status, entry_to_bytes, register,
};
use farside_card::{
    Action, Bus, Card, Geometry, JobEnd, Need, Outcome, Raised, TransferFailed, WindowAction,
    WindowWait,
};
use farside_types::{Access, Asid, CommandId, FaultId, JobId, PageNo, PageRange, PeId, Rights};
use proptest::prelude::*;
use rig::{ASID, BASE, FRAMES, Rig, pages, pages_at};

/// A small card, whose state can be compared as text.
const SMALL: Geometry = {
    let mut geometry = SIZES;
    geometry.l2_entries = 8;
    geometry.l1_entries = 4;
    geometry
};
const SIZES: Geometry = Geometry {
    pes: 3,
    l1_shared: false,
    l1_entries: 32,
    l2_entries: 1024,
    l2_ways: 4,
    flexible_entries: 4,
    flexible_pages_max: 32768,
    flexible_pages_min: 64,
    fault_entries: 48,
    group_ranges_max: 64,
    counter_group: farside_card::CounterGroup::Kib64,
    counter_threshold: 4,
    counter_groups_max: 64,
    dma_commands_max: 2,
    dma_pages_max: 64,
    table_pages: 6,
};

fn rig() -> Rig {
    let mut rig = Rig::sized(SMALL, [16, 16, 16, 16], 0, 64 << 10);
    // Something to be read as lists, names and arguments.
    for (index, word) in (0..512u64).map(|index| (index, index % 7)) {
        rig.bus.put(rig.free + index * 8, &word.to_le_bytes());
    }
    rig
}

/// Operands near which mistakes are made.
fn operand() -> impl Strategy<Value = u64> {
    let own = 1u64 << 63;
    let last = u64::from(FRAMES) - 1;
    let edges = [own, own | last, own | (last + 1), BASE, BASE >> 12, BASE + 0x7000];
    let more = [u64::MAX, 1 << 48, (1 << 48) - 2, 1 << 32, own | 5, (BASE >> 12) + 5];
    prop_oneof![
        4 => 0u64..6,
        3 => prop::sample::select([edges, more].concat()),
        1 => any::<u64>()
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    let code = prop_oneof![
        9 => prop::sample::select(Opcode::ALL.to_vec()).prop_map(|opcode| opcode as u64),
        1 => any::<u16>().prop_map(u64::from)
    ];
    let flags = prop_oneof![3 => Just(0u64), 2 => Just(1), 1 => 0u64..5];
    (prop::array::uniform6(operand()), code, flags, 0u64..6).prop_map(
        |([a, b, c, d, e, f], code, flags, asid)| {
            [0, code | flags << 16 | asid << 32, a, b, c, d, e, f]
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Push(Entry),
    Doorbell,
    Take(u32),
    TakeFaults(u32),
    Raise(u16, u64, bool),
    Access(u16, u64),
    EndAccess,
    EndJob,
    Copied(bool),
    Sleep,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => entry().prop_map(Step::Push),
        3 => Just(Step::Doorbell),
        2 => (0u32..9).prop_map(Step::Take),
        1 => (0u32..9).prop_map(Step::TakeFaults),
        2 => (0u16..4, 0u64..8, any::<bool>()).prop_map(|(pe, page, g)| Step::Raise(pe, page, g)),
        1 => (0u16..4, 0u64..8).prop_map(|(pe, page)| Step::Access(pe, page)),
        1 => Just(Step::EndAccess),
        1 => Just(Step::EndJob),
        1 => any::<bool>().prop_map(Step::Copied),
        1 => Just(Step::Sleep),
    ]
}

/// The embedder's end: what the function asked for and has not been answered.
#[derive(Default)]
struct Embedder {
    jobs: Vec<(PeId, JobId)>,
    transfers: Vec<CommandId>,
    links: Vec<CommandId>,
    grants: Vec<farside_card::AccessId>,
    waits: Vec<WindowWait>,
}

impl Embedder {
    fn poll(&mut self, rig: &mut Rig) {
        for action in rig.actions() {
            match action {
                Action::Start { pe, job, .. } => self.jobs.push((pe, job)),
                Action::Copy { id, extents } | Action::Fill { id, extents, .. } => {
                    let pages: u64 = extents.iter().map(|extent| u64::from(extent.count)).sum();
                    assert!(pages <= 64, "more pages than a command may have");
                    self.transfers.push(id);
                    assert!(self.transfers.len() <= 2, "more than are under way at once");
                }
                Action::LinkReceive { id, .. }
                | Action::LinkSend { id, .. }
                | Action::LinkCancel { id, .. } => self.links.push(id),
                Action::Answer(answer) => {
                    if let Outcome::Granted(grant) = answer.outcome {
                        self.grants.push(grant.access);
                    }
                }
                Action::Stop { job } => assert!(self.jobs.iter().any(|&(_, known)| known == job)),
                Action::StopCopies | Action::StopLinks | Action::Reset => {}
            }
        }
        for action in rig.window_actions() {
            match action {
                WindowAction::Invalidate { wait, .. } => self.waits.extend(wait),
                WindowAction::Allocated { .. } => panic!("no kernel allocates"),
            }
        }
    }

    fn end_access(&mut self, rig: &mut Rig) {
        if let Some(access) = self.grants.pop() {
            let drained = rig.card.end(access);
            rig.function.drained(&mut rig.card, &mut rig.bus, &drained);
        }
    }

    fn end_job(&mut self, rig: &mut Rig) {
        if let Some((_, job)) = self.jobs.pop() {
            let end = JobEnd::returned(1);
            rig.function.job_ended(&mut rig.card, &mut rig.bus, job, &end);
        }
    }

    fn invalidated(&mut self, rig: &mut Rig) {
        if let Some(wait) = self.waits.pop() {
            rig.function.window_invalidated(&mut rig.card, &mut rig.bus, wait);
        }
    }

    fn copied(&mut self, rig: &mut Rig, well: bool) {
        let result = if well { Ok(()) } else { Err(TransferFailed { pages_done: 1 }) };
        if let Some(id) = self.transfers.pop() {
            rig.function.copied(&mut rig.card, &mut rig.bus, id, result);
        }
        if let Some(id) = self.links.pop() {
            rig.function.linked(&mut rig.card, &mut rig.bus, id, Status::Ok, 1);
        }
    }

    fn raise(&mut self, rig: &mut Rig, pe: u16, page: u64, group: bool) {
        let Some(&(pe, job)) = self.jobs.iter().find(|(known, _)| known.0 == pe) else {
            return;
        };
        let need = if group {
            let range = PageRange::new(PageNo(page), 2);
            Need::Group([(range, Access::Write), (range, Access::Read)].into())
        } else {
            Need::Page(PageNo(page), Access::Write)
        };
        if rig.function.wants(job) {
            // It may stand in a fault or hold memory already; then it does not fault.
            let _ = rig.card.raise(pe, job, ASID, need);
        }
        rig.publish();
    }
}

fn room(rig: &Rig) -> bool {
    let ring = rig.rings[RingKind::Command.index()];
    ring.index.wrapping_sub(rig.bus.word(ring.base + RingHeader::CONSUMER)) < ring.entries
}

/// Takes completions, each of which must be for a command that has none yet.
fn take(rig: &mut Rig, most: u32, open: &mut BTreeMap<u64, Entry>) {
    for entry in rig.take_at_most(RingKind::Completion, most) {
        assert!(
            open.remove(&entry[0]).is_some(),
            "tag {} completed twice or never began",
            entry[0]
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_command_gets_one_completion(steps in prop::collection::vec(step(), 1..80)) {
        let mut rig = rig();
        let mut embedder = Embedder::default();
        let mut open = BTreeMap::new();
        for (tag, step) in (1..).zip(steps) {
            match step {
                Step::Push(mut entry) if room(&rig) => {
                    entry[0] = tag;
                    open.insert(tag, entry);
                    rig.push(&entry);
                }
                Step::Push(_) | Step::Doorbell => rig.doorbell(),
                Step::Take(most) => take(&mut rig, most, &mut open),
                Step::TakeFaults(most) => {
                    rig.take_at_most(RingKind::Fault, most);
                }
                Step::Raise(pe, page, group) => embedder.raise(&mut rig, pe, page, group),
                Step::Access(pe, page) => {
                    let needs = [(PageRange::page(PageNo(page)), Access::Read)];
                    if let Ok(grant) = rig.card.acquire(PeId(pe), ASID, &needs) {
                        embedder.grants.push(grant.access);
                    }
                }
                Step::EndAccess => {
                    embedder.end_access(&mut rig);
                    embedder.invalidated(&mut rig);
                }
                Step::EndJob => embedder.end_job(&mut rig),
                Step::Copied(well) => embedder.copied(&mut rig, well),
                Step::Sleep => drop(rig.sleeps()),
            }
            embedder.poll(&mut rig);
        }
        prop_assert_eq!(rig.read32(register::STATUS) & register::STATUS_FAILED, 0);
        for _ in 0..1000 {
            rig.doorbell();
            embedder.poll(&mut rig);
            embedder.end_access(&mut rig);
            embedder.end_job(&mut rig);
            embedder.copied(&mut rig, true);
            embedder.invalidated(&mut rig);
            rig.take(RingKind::Fault);
            take(&mut rig, u32::MAX, &mut open);
        }
        prop_assert!(open.is_empty(), "no completion for {open:x?}");
        prop_assert!(rig.function.is_quiet(&rig.card));
        prop_assert!(rig.sleeps());
    }

    #[test]
    fn what_is_refused_was_not_done(entries in prop::collection::vec(entry(), 1..20)) {
        let mut rig = rig();
        for (tag, mut entry) in (1..).zip(entries) {
            entry[0] = tag;
            let refused = rig.counter("commands_refused");
            let before = format!("{:?}", rig.card);
            rig.push(&entry);
            rig.doorbell();
            let actions = rig.actions();
            if rig.counter("commands_refused") > refused {
                prop_assert_eq!(&actions, &[], "{:x?}", entry);
                prop_assert_eq!(format!("{:?}", rig.card), before, "{:x?}", entry);
                let completions = rig.completions();
                prop_assert_eq!(completions.len(), 1);
                prop_assert_ne!(completions[0].status, Status::Ok);
            }
            rig.completions();
        }
    }

    #[test]
    fn nothing_that_a_driver_writes_panics(
        writes in prop::collection::vec((0u8..5, operand(), any::<u32>(), entry()), 1..60),
    ) {
        let mut rig = rig();
        for (kind, word, value, entry) in writes {
            match kind {
                0 => {
                    let ring = rig.rings[value as usize % 4];
                    let header = [0x00, 0x04, 0x40, 0x44][value as usize / 4 % 4];
                    rig.bus.set_word(ring.base + header, word as u32);
                }
                1 => rig.write32(word % 0x1100, value),
                2 => rig.write64((word % 0x1100) & !7, word),
                3 => {
                    let ring = rig.rings[0];
                    let at = ring.base + RingHeader::BYTES + u64::from(value % 16) * 64;
                    rig.bus.write(at, &entry_to_bytes(&entry)).unwrap();
                }
                _ => rig.write32(register::CONTROL, value & 3),
            }
            rig.doorbell();
            rig.sleeps();
            for action in rig.actions() {
                match action {
                    Action::Reset => rig.function.reset_done(&mut rig.card),
                    Action::Start { job, .. } => {
                        let end = JobEnd::returned(0);
                        rig.function.job_ended(&mut rig.card, &mut rig.bus, job, &end);
                    }
                    _ => {}
                }
            }
        }
    }
}

/// What happens in both runs of the comparison, in the same order.
#[derive(Clone, Debug)]
enum Event {
    Command(u8),
    Fault(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => (0u8..9).prop_map(Event::Command),
        1 => (0usize..40).prop_map(Event::Fault),
    ];
    prop::collection::vec(event, 1..120)
}

fn operation(which: u8) -> (Asid, Operation) {
    match which {
        0 => (Asid(0), Operation::Nop),
        1 => (ASID, Operation::Map(pages_at(1, 1, DmaAddr::Own(1)), Rights::Read)),
        2 => (ASID, Operation::Map(pages_at(1, 1, DmaAddr::Own(FRAMES)), Rights::Read)),
        3 => (ASID, Operation::Unmap(pages(1, 9))),
        5 => (ASID, Operation::MapWritten(pages_at(0, 3, DmaAddr::Own(3)), Rights::ReadWrite)),
        6 => (ASID, Operation::Accessed(pages(0, 300), None)),
        7 => (ASID, Operation::UnmapTelling(pages(1, 2), BitsBuffer { address: 8, bytes: 64 })),
        4 => (Asid(0), Operation::Resume(FaultArg::One(FaultId(u64::MAX)))),
        _ => (Asid(0), Operation::Barrier),
    }
}

/// A rig whose processing elements all run a job.
fn running(entries: [u32; 4], index: u32) -> Rig {
    let geometry = Geometry { pes: 40, ..SIZES };
    let mut rig = Rig::with_rings(geometry, entries, index);
    for pe in 0..40 {
        rig.card.launch(PeId(pe), JobId(pe.into())).unwrap();
    }
    rig
}

/// The `nth` processing element faults, if it does not stand already: for one page, or for a group
/// of up to 40 ranges.
fn fault(card: &mut Card, nth: usize) {
    let (pe, page) = (PeId(nth as u16), PageNo(100 * nth as u64));
    let need = match nth % 3 {
        0 => Need::Page(page, Access::Read),
        _ => Need::Group(
            (0..=nth as u64)
                .map(|index| (PageRange::new(page.offset(2 * index), 1), Access::Write))
                .collect(),
        ),
    };
    if card.pes().status(pe).unwrap() == farside_card::PeState::Running(JobId(nth as u64)) {
        assert!(matches!(card.raise(pe, JobId(nth as u64), ASID, need), Ok(Raised::Queued(_))));
    }
}

/// What the card wrote, with rings that are never full.
fn reference(events: &[Event]) -> [Vec<Entry>; 2] {
    let mut rig = running([1024, 1024, 1024, 8], 0);
    for event in events {
        match event {
            Event::Command(which) => {
                let (asid, operation) = operation(*which);
                rig.submit(asid, operation);
                rig.doorbell();
            }
            Event::Fault(nth) => {
                fault(&mut rig.card, *nth);
                rig.publish();
            }
        }
    }
    [rig.take(RingKind::Completion), rig.take(RingKind::Fault)]
}

/// A driver that follows the protocol to the letter: it signals only when it must.
struct Careful {
    rig: Rig,
    /// Whether the card is awake; it sleeps only when it may.
    awake: bool,
    waiting: VecDeque<Entry>,
    seen: [Vec<Entry>; 2],
}

impl Careful {
    fn card(&mut self) {
        while self.awake {
            self.awake = !self.rig.sleeps();
            if self.awake {
                self.rig.function.process(&mut self.rig.card, &mut self.rig.bus);
            }
        }
    }

    fn word(&self, kind: RingKind, word: u64) -> u32 {
        self.rig.bus.word(self.rig.rings[kind.index()].base + word)
    }

    fn give(&mut self) {
        while room(&self.rig) {
            let Some(entry) = self.waiting.pop_front() else {
                return;
            };
            self.rig.push(&entry);
            self.awake |= self.word(RingKind::Command, RingHeader::CONSUMER_SLEEPS) == 1;
        }
    }

    fn take(&mut self, which: usize, most: u32) {
        let kind = [RingKind::Completion, RingKind::Fault][which];
        let mut entries = self.rig.take_at_most(kind, most);
        if !entries.is_empty() {
            self.awake |= self.word(kind, RingHeader::PRODUCER_WAITS) == 1;
        }
        self.seen[which].append(&mut entries);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn small_rings_change_nothing_but_the_time(
        events in events(),
        takes in prop::collection::vec((0usize..2, 0u32..6), 1..40),
        index: u32,
    ) {
        let expected = reference(&events);
        let rig = running([8, 8, 16, 8], index);
        let mut run = Careful {
            rig, awake: true, waiting: VecDeque::new(), seen: Default::default(),
        };
        let mut takes = takes.into_iter().cycle();
        for (tag, event) in (1..).zip(&events) {
            match event {
                Event::Command(which) => {
                    let (asid, operation) = operation(*which);
                    let tag = 1 + events[..tag - 1]
                        .iter()
                        .filter(|event| matches!(event, Event::Command(_)))
                        .count() as u64;
                    run.waiting.push_back(CommandEntry { tag, asid, operation }.to_entry());
                    run.give();
                }
                Event::Fault(nth) => {
                    fault(&mut run.rig.card, *nth);
                    run.rig.publish();
                    run.awake = true;
                }
            }
            run.card();
            if let Some((which, most)) = takes.next() {
                run.take(which, most);
            }
            run.card();
        }
        // Everything comes without any other event than room being made.
        for _ in 0..2000 {
            run.give();
            run.card();
            for which in [0, 1] {
                run.take(which, 1);
                run.card();
            }
        }
        prop_assert_eq!(&run.seen[0], &expected[0], "completions");
        prop_assert_eq!(&run.seen[1], &expected[1], "fault records");
    }
}
