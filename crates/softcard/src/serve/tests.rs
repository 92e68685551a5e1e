//! One life of a function without a process around it: what its mends do by themselves.

use std::sync::Arc;

use farside_card::interface::{
    CommandEntry, Extent, ExtentArg, ExtentList, Operation, RingHeader, RingKind, entry_address,
    entry_to_bytes, register, ring_bytes,
};
use farside_card::interface::{DmaAddr, EXTENTS_MAX};
use farside_linux::card_memory::CardMemory;
use farside_linux::shared::SharedMemory;
use farside_types::{Asid, JobId, PAGE_SIZE};
use farside_vfio_user::DmaMap;
use farside_vfio_user::unix::Interrupts;
use rustix::event::EventfdFlags;

use super::CardConfig;
use super::device::config_space;
use super::leased_function::{LeasedFunction, OWN};
use crate::card::Embedder;
use crate::job::Job;
use crate::kernel::KernelContext;

/// Frames of the function.
const FRAMES: u32 = 4096;
/// Bus address of the rings, and of the lists behind them.
const RINGS: u64 = 1 << 32;
/// Entries of each ring.
const ENTRIES: u32 = 256;

/// A function, with a client that shares memory and gives commands.
pub(super) struct Fixture {
    pub(super) leased: Arc<LeasedFunction>,
    rings: SharedMemory,
    produced: u32,
}

impl Fixture {
    pub(super) fn new() -> Fixture {
        Fixture::of(CardConfig::new("/nonexistent"))
    }

    /// One that is served so, but for its frames.
    pub(super) fn of(config: CardConfig) -> Fixture {
        let config = CardConfig { frames: FRAMES, ..config };
        let memory = CardMemory::new(config.all_frames()).unwrap();
        let wake = rustix::event::eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let interrupts = Interrupts::new(&config_space(config.all_frames()).describe());
        let leased = LeasedFunction::new(&config, 0, 1, memory, wake, interrupts).unwrap();
        let rings = SharedMemory::new(8 << 20).unwrap();
        let fixture = Fixture { leased, rings, produced: 0 };
        fixture.share(RINGS, &fixture.rings, 0, fixture.rings.bytes(), true);
        fixture
    }

    /// Shares a part of a memory at a bus address.
    pub(super) fn share(
        &self,
        address: u64,
        memory: &SharedMemory,
        offset: u64,
        size: u64,
        writable: bool,
    ) {
        let fd = Some(memory.file().try_clone_to_owned().unwrap());
        let map = DmaMap { address, size, readable: true, writable, fd, offset };
        self.leased.map(map).unwrap();
    }

    fn write_register(&self, offset: u64, bytes: &[u8]) {
        self.leased.with(|function, card, bus| function.write_register(card, bus, offset, bytes));
    }

    /// Sets the rings of commands and completions up.
    pub(super) fn enable(&self) {
        for (kind, at) in [(RingKind::Command, 0), (RingKind::Completion, ring_bytes(ENTRIES))] {
            let ring = register::ring(kind);
            self.write_register(ring + register::RING_BASE, &(RINGS + at).to_le_bytes());
            self.write_register(ring + register::RING_ENTRIES, &ENTRIES.to_le_bytes());
        }
        self.write_register(register::CONTROL, &register::CONTROL_ENABLE.to_le_bytes());
    }

    pub(super) fn push(&mut self, operation: Operation) {
        let tag = u64::from(self.produced) + 1;
        let entry = CommandEntry { tag, asid: Asid(0), operation }.to_entry();
        let at = entry_address(0, ENTRIES, self.produced);
        self.rings.write(at, &entry_to_bytes(&entry)).unwrap();
        self.produced += 1;
        self.rings.store(RingHeader::PRODUCER, self.produced).unwrap();
    }

    /// Commands that have been completed.
    pub(super) fn completed(&self) -> u32 {
        self.rings.load(ring_bytes(ENTRIES) + RingHeader::PRODUCER).unwrap()
    }
}

/// A kernel comes to its end just when it is given up, which is told of later: nothing waits for it.
#[test]
fn a_kernel_that_ends_while_it_is_given_up_keeps_no_reset_from_its_end() {
    let fixture = Fixture::new();
    fixture.enable();
    let body = Box::new(|_: &mut KernelContext| Ok(()));
    let job = Job::new(JobId(1), (OWN, Asid(0)), "late".into(), Vec::new(), None, body);
    let card = &fixture.leased.card;
    job.end_with(&*fixture.leased, card, Ok(()));
    fixture.leased.job_given_up(card, &job, true);
    fixture.write_register(register::CONTROL, &register::CONTROL_RESET.to_le_bytes());
    let mut status = [0; 4];
    fixture.leased.with(|function, card, _| {
        function.read_register(card, register::STATUS, &mut status);
    });
    assert_eq!(u32::from_le_bytes(status) & register::STATUS_RESETTING, 0);
}

#[test]
fn a_ring_full_of_much_work_is_taken_in_pieces_and_all_of_it_in_the_end() {
    const COMMANDS: u32 = 100;
    let mut fixture = Fixture::new();
    fixture.enable();
    // As long as a list may be.
    let nowhere = DmaAddr::Bus(0);
    let extent = Extent { page: 1, count: 1, src: nowhere, dst: nowhere };
    let words = std::iter::repeat_n(extent, EXTENTS_MAX as usize).flat_map(Extent::to_words);
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    let at = (2 * ring_bytes(ENTRIES)).next_multiple_of(PAGE_SIZE as u64);
    fixture.rings.write(at, &bytes).unwrap();
    let list = ExtentList { address: RINGS + at, count: EXTENTS_MAX as u32 };
    for _ in 0..COMMANDS {
        fixture.push(Operation::Unmap(ExtentArg::List(list)));
    }
    fixture.leased.serve_doorbell();
    let first = fixture.completed();
    assert!((1..COMMANDS / 2).contains(&first), "{first} commands in one go");
    // The function's thread has looked after its client in between.
    let mut pieces = 1;
    while fixture.leased.take_more() {
        fixture.leased.serve_doorbell();
        pieces += 1;
    }
    assert_eq!(fixture.completed(), COMMANDS);
    assert!(pieces > 4, "{pieces} pieces");
}
