//! A driver's end of a function: memory on a bus, rings in it, and what the card did.

#![allow(dead_code)]

use std::sync::Arc;

use farside_card::interface::{
    CommandEntry, CompletionEntry, DmaAddr, Entry, Extent, ExtentArg, ExtentList, FaultRecord,
    NoticeRecord, Operation, RingHeader, RingKind, Status, entry_address, entry_from_bytes,
    entry_to_bytes, register, ring_bytes,
};
use farside_card::window::{AllocatorConfig, WindowGeometry};
use farside_card::{
    Action, Bus, BusError, Card, Function, FunctionConfig, Geometry, JobEnd, WindowAction,
    WindowConfig,
};
use farside_types::{Asid, CardId, JobId, PeId};

/// First bus address of the driver's memory.
pub(crate) const BASE: u64 = 0x1_0000_0000;
/// Frames of the card's memory.
pub(crate) const FRAMES: u32 = 1 << 21;
/// Address space of most tests.
pub(crate) const ASID: Asid = Asid(1);

/// The driver's memory as the card sees it.
#[derive(Clone)]
pub(crate) struct Memory {
    pub(crate) bytes: Vec<u8>,
    pub(crate) interrupts: Vec<u16>,
    /// Fences, loads and stores, so that a test can count them.
    pub(crate) fences: usize,
    /// Bus addresses beyond the memory that can be reached too, but hold nothing: (first, end).
    pub(crate) windows: Vec<(u64, u64)>,
}

impl Memory {
    pub(crate) fn new(bytes: usize) -> Memory {
        let (interrupts, windows) = (Vec::new(), Vec::new());
        Memory { bytes: vec![0; bytes], interrupts, fences: 0, windows }
    }

    fn span(&self, address: u64, bytes: usize) -> Result<std::ops::Range<usize>, BusError> {
        let error = BusError { address };
        let start = address.checked_sub(BASE).ok_or(error)?;
        let end = start.checked_add(bytes as u64).ok_or(error)?;
        if end > self.bytes.len() as u64 {
            return Err(error);
        }
        Ok(start as usize..end as usize)
    }

    pub(crate) fn word(&self, address: u64) -> u32 {
        let span = self.span(address, 4).unwrap();
        u32::from_le_bytes(self.bytes[span].try_into().unwrap())
    }

    pub(crate) fn set_word(&mut self, address: u64, value: u32) {
        let span = self.span(address, 4).unwrap();
        self.bytes[span].copy_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn put(&mut self, address: u64, from: &[u8]) {
        let span = self.span(address, from.len()).unwrap();
        self.bytes[span].copy_from_slice(from);
    }

    pub(crate) fn get(&self, address: u64, bytes: usize) -> &[u8] {
        &self.bytes[self.span(address, bytes).unwrap()]
    }
}

impl Bus for Memory {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), BusError> {
        let span = self.span(address, into.len())?;
        into.copy_from_slice(&self.bytes[span]);
        Ok(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), BusError> {
        let span = self.span(address, from.len())?;
        self.bytes[span].copy_from_slice(from);
        Ok(())
    }

    fn load(&mut self, address: u64) -> Result<u32, BusError> {
        assert_eq!(address % 4, 0, "the function loads aligned words");
        self.span(address, 4)?;
        Ok(self.word(address))
    }

    fn store(&mut self, address: u64, value: u32) -> Result<(), BusError> {
        assert_eq!(address % 4, 0, "the function stores aligned words");
        self.span(address, 4)?;
        self.set_word(address, value);
        Ok(())
    }

    fn fence(&mut self) {
        self.fences += 1;
    }

    fn reaches(&mut self, address: u64, bytes: u64, _write: bool) -> bool {
        let Some(end) = address.checked_add(bytes) else {
            return false;
        };
        let inside = |&(first, beyond): &(u64, u64)| first <= address && end <= beyond;
        self.windows.iter().any(inside) || inside(&(BASE, BASE + self.bytes.len() as u64))
    }

    fn interrupt(&mut self, vector: u16) {
        self.interrupts.push(vector);
    }
}

/// A ring as the driver holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriverRing {
    pub(crate) base: u64,
    pub(crate) entries: u32,
    pub(crate) index: u32,
}

/// A card, its function and a driver's rings.
#[derive(Clone)]
pub(crate) struct Rig {
    pub(crate) card: Card,
    pub(crate) function: Function,
    pub(crate) bus: Memory,
    pub(crate) rings: [DriverRing; 4],
    /// Where the driver's memory behind the rings begins.
    pub(crate) free: u64,
    next_tag: u64,
}

/// A window of 64 MiB, and memory for 8 MiB of it.
pub(crate) fn window() -> WindowConfig {
    let geometry = WindowGeometry::new(12, &[5, 9], 40).unwrap();
    let memories = vec![1024, 1024];
    let config = AllocatorConfig { geometry, base: 1 << 40, memories, tables: 0, ready_tables: 1 };
    WindowConfig::new(config, 4).unwrap()
}

pub(crate) fn config() -> FunctionConfig {
    FunctionConfig {
        card: 3,
        function: 2,
        generation: 77,
        asids: 4,
        jobs_max: 4,
        kernels: Arc::from(["first", "second"].map(String::from)),
        capabilities: register::CAP_DMA_BUS_TO_BUS | register::CAP_LINK,
    }
}

impl Rig {
    /// An enabled function whose rings have these numbers of entries and start at an index.
    pub(crate) fn with_rings(geometry: Geometry, entries: [u32; 4], index: u32) -> Rig {
        Rig::sized(geometry, entries, index, 8 << 20)
    }

    /// [`Rig::with_rings`] with this much of the driver's memory, in bytes.
    pub(crate) fn sized(geometry: Geometry, entries: [u32; 4], index: u32, bytes: usize) -> Rig {
        let card = Card::new(CardId(0), FRAMES, geometry).unwrap();
        let mut bus = Memory::new(bytes);
        let mut free = BASE;
        let rings = entries.map(|entries| {
            let ring = DriverRing { base: free, entries, index };
            free += ring_bytes(entries).next_multiple_of(4096);
            for word in [RingHeader::PRODUCER, RingHeader::CONSUMER] {
                bus.set_word(ring.base + word, index);
            }
            ring
        });
        let function = Function::new(config()).with_window(&window());
        let mut rig = Rig { card, function, bus, rings, free, next_tag: 1 };
        rig.set_up_rings();
        rig.write32(register::CONTROL, register::CONTROL_ENABLE);
        assert_eq!(rig.read32(register::STATUS) & register::STATUS_ENABLED, 1);
        rig
    }

    /// Four rings of 64 entries.
    pub(crate) fn new() -> Rig {
        Rig::with_rings(Geometry::default(), [64, 64, 128, 64], 0)
    }

    pub(crate) fn set_up_rings(&mut self) {
        for kind in RingKind::ALL {
            let ring = self.rings[kind.index()];
            let at = register::ring(kind);
            self.write64(at + register::RING_BASE, ring.base);
            self.write32(at + register::RING_ENTRIES, ring.entries);
            let vector = kind.index().saturating_sub(1) as u32;
            self.write32(at + register::RING_VECTOR, vector);
        }
    }

    pub(crate) fn write32(&mut self, offset: u64, value: u32) {
        let bytes = value.to_le_bytes();
        self.function.write_register(&mut self.card, &mut self.bus, offset, &bytes);
    }

    pub(crate) fn write64(&mut self, offset: u64, value: u64) {
        let bytes = value.to_le_bytes();
        self.function.write_register(&mut self.card, &mut self.bus, offset, &bytes);
    }

    pub(crate) fn read32(&self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.function.read_register(&self.card, offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    pub(crate) fn read64(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.function.read_register(&self.card, offset, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let index = register::COUNTER_NAMES.iter().position(|&known| known == name).unwrap();
        self.read64(register::counter(index))
    }

    /// Puts an entry into the command ring, without a doorbell.
    pub(crate) fn push(&mut self, entry: &Entry) {
        let ring = &mut self.rings[RingKind::Command.index()];
        let consumer = self.bus.word(ring.base + RingHeader::CONSUMER);
        assert!(ring.index.wrapping_sub(consumer) < ring.entries, "the command ring is full");
        let at = entry_address(ring.base, ring.entries, ring.index);
        ring.index = ring.index.wrapping_add(1);
        let (base, index) = (ring.base, ring.index);
        self.bus.put(at, &entry_to_bytes(entry));
        self.bus.set_word(base + RingHeader::PRODUCER, index);
    }

    /// A command with a tag of its own, put into the ring.
    pub(crate) fn submit(&mut self, asid: Asid, operation: Operation) -> u64 {
        let tag = self.next_tag;
        self.next_tag += 1;
        self.push(&CommandEntry { tag, asid, operation }.to_entry());
        tag
    }

    pub(crate) fn doorbell(&mut self) {
        self.write32(register::DOORBELL, 0);
    }

    /// What the card wrote to one of its rings, taken out.
    pub(crate) fn take(&mut self, kind: RingKind) -> Vec<Entry> {
        self.take_at_most(kind, u32::MAX)
    }

    pub(crate) fn take_at_most(&mut self, kind: RingKind, most: u32) -> Vec<Entry> {
        let ring = &mut self.rings[kind.index()];
        let producer = self.bus.word(ring.base + RingHeader::PRODUCER);
        let mut entries = Vec::new();
        while ring.index != producer && (entries.len() as u32) < most {
            let at = entry_address(ring.base, ring.entries, ring.index);
            entries.push(entry_from_bytes(self.bus.get(at, 64).try_into().unwrap()));
            ring.index = ring.index.wrapping_add(1);
        }
        self.bus.set_word(ring.base + RingHeader::CONSUMER, ring.index);
        entries
    }

    /// Launches a job on a processing element; it has begun.
    pub(crate) fn launch_on(&mut self, pe: PeId, job: JobId) {
        let none = ExtentList { address: 0, count: 0 };
        let (pe, args, message) = (Some(pe), none, none);
        self.submit(ASID, Operation::Launch { job, kernel: 0, pe, args, message });
        self.doorbell();
        let begun = self.actions();
        assert!(
            matches!(begun[..], [Action::Start { job: begun, .. }] if begun == job),
            "{begun:?}"
        );
    }

    /// A job is over.
    pub(crate) fn end(&mut self, job: JobId, end: &JobEnd) {
        self.function.job_ended(&mut self.card, &mut self.bus, job, end);
    }

    /// What the embedder must do for the window.
    pub(crate) fn window_actions(&mut self) -> Vec<WindowAction> {
        std::iter::from_fn(|| self.function.poll_window_action()).collect()
    }

    pub(crate) fn completions(&mut self) -> Vec<CompletionEntry> {
        let entries = self.take(RingKind::Completion);
        entries.iter().map(|entry| CompletionEntry::from_entry(entry).unwrap()).collect()
    }

    pub(crate) fn faults(&mut self) -> Vec<FaultRecord> {
        let entries = self.take(RingKind::Fault);
        entries.iter().map(|entry| FaultRecord::from_entry(entry).unwrap()).collect()
    }

    pub(crate) fn notices(&mut self) -> Vec<NoticeRecord> {
        let entries = self.take(RingKind::Notice);
        entries.iter().map(|entry| NoticeRecord::from_entry(entry).unwrap()).collect()
    }

    /// One command, carried out: its completion, which must be there at once.
    pub(crate) fn run(&mut self, asid: Asid, operation: Operation) -> CompletionEntry {
        let tag = self.submit(asid, operation);
        self.doorbell();
        let completions = self.completions();
        assert_eq!(completions.len(), 1, "one completion: {completions:?}");
        assert_eq!(completions[0].tag, tag);
        completions[0]
    }

    /// [`Rig::run`], which must end well.
    pub(crate) fn ok(&mut self, asid: Asid, operation: Operation) -> CompletionEntry {
        let completion = self.run(asid, operation);
        assert_eq!(completion.status, Status::Ok, "{completion:?}");
        completion
    }

    pub(crate) fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.function.poll_action()).collect()
    }

    pub(crate) fn publish(&mut self) {
        self.function.publish(&mut self.card, &mut self.bus);
    }

    pub(crate) fn sleeps(&mut self) -> bool {
        self.function.prepare_to_sleep(&mut self.card, &mut self.bus)
    }
}

/// Pages of an address space alone.
pub(crate) fn pages(page: u64, count: u32) -> ExtentArg {
    let nowhere = DmaAddr::Bus(0);
    ExtentArg::Inline(Extent { page, count, src: nowhere, dst: nowhere })
}

/// Pages and where they go.
pub(crate) fn pages_at(page: u64, count: u32, dst: DmaAddr) -> ExtentArg {
    ExtentArg::Inline(Extent { page, count, src: DmaAddr::Bus(0), dst })
}

/// Pages from one place to another.
pub(crate) fn moved(count: u32, src: DmaAddr, dst: DmaAddr) -> ExtentArg {
    ExtentArg::Inline(Extent { page: 0, count, src, dst })
}
