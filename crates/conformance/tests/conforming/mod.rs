//! A card in this process as a target of the conformance suite: memory, copies and kernels played
//! step by step, and flaws that can be put into it.

mod kernels;

use std::time::Duration;

use farside_card::interface::{
    DmaAddr, ENTRY_BYTES, Entry, Extent, FLAG_QUIET, Opcode, RingHeader, RingKind, entry_address,
    entry_from_bytes, entry_to_bytes, pci, register,
};
use farside_card::window::{AllocatorConfig, WindowGeometry};
use farside_card::{
    Action, Bus, BusError, Card, CardMutation, Function, FunctionConfig, Geometry, Location,
    TransferFailed, WindowAction, WindowConfig,
};
use farside_conformance::Target;
use farside_types::{CardId, CommandId};
use kernels::{NAMES, Runner};

const BASE: u64 = 0x1_0000_0000;
const BUS_BYTES: usize = 4 << 20;
const FRAMES: u32 = 64;
const PAGE: usize = 4096;

/// The frames of the last memory of [`window`].
const LAST_MEMORY: u64 = register::memory(1) + register::MEMORY_FRAMES;

/// A window of 128 pages; its second memory has most of the frames.
fn window() -> WindowConfig {
    let geometry = WindowGeometry::new(12, &[3, 4], 28).unwrap();
    let config = AllocatorConfig {
        geometry,
        base: 1 << 40,
        memories: vec![90, 600],
        tables: 0,
        ready_tables: 2,
    };
    WindowConfig::new(config, 4).unwrap()
}

/// Something that is broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// Now and then a completion is written with another one's tag.
    CompletionLost,
    /// Frames beyond the memory are taken.
    FrameNotChecked,
    /// What a kernel holds is not waited for.
    DrainNotAwaited,
    /// Invalidations complete and do nothing.
    UnmapIgnored,
    /// Reading the errors clears them.
    ErrorClearedByRead,
    /// No interrupt is signalled.
    InterruptMissing,
    /// An interrupt for every ring that is written, asked for or not.
    InterruptNotSuppressed,
    /// Quiet commands are as loud as others.
    QuietIgnored,
    /// The card does not say that it sleeps.
    SleepNotSaid,
    /// The card does not say that it waits for room.
    WaitNotSaid,
    /// Every address space is the first.
    AsidIgnored,
    /// Read-only mappings can be written.
    RightsIgnored,
    /// A copy ends after its first extent.
    CopyTooShort,
    /// A fill clears, whatever its word.
    FillIgnoresWord,
    /// A list is carried out up to the extent that is wrong.
    RefusedInPart,
    /// A fault record is overwritten now and then.
    FaultLost,
    /// A completion is written after a reset.
    WritesAfterReset,
    /// A reset leaves the card as it was.
    ResetKeepsCard,
    /// Aborted jobs go on.
    AbortIgnored,
    /// Registers that are locked can be written.
    NotLocked,
    /// It is something else.
    OtherMagic,
    /// What is no register reads as zeros.
    HolesReadZeros,
    /// Indices begin at 0, whatever the headers say.
    HeadersIgnored,
    /// Indices that cannot be are taken for others.
    NonsenseIgnored,
    /// Rings cannot be disabled.
    DisableIgnored,
    /// Names of kernels are compared by their first letters.
    NamesCutShort,
    /// It says that it has tables.
    TablesOnlySaid,
    /// Completions have no bits of pages.
    BitsLost,
    /// Frees complete, and what was freed stays in use.
    FreesIgnored,
    /// Every allocation is from the first memory.
    MemoryIgnored,
    /// A memory has more frames than the window counts.
    MemoryTooLarge,
}

impl Flaw {
    pub(crate) const ALL: [Flaw; 31] = [
        Flaw::CompletionLost,
        Flaw::FrameNotChecked,
        Flaw::DrainNotAwaited,
        Flaw::UnmapIgnored,
        Flaw::ErrorClearedByRead,
        Flaw::InterruptMissing,
        Flaw::InterruptNotSuppressed,
        Flaw::QuietIgnored,
        Flaw::SleepNotSaid,
        Flaw::WaitNotSaid,
        Flaw::AsidIgnored,
        Flaw::RightsIgnored,
        Flaw::CopyTooShort,
        Flaw::FillIgnoresWord,
        Flaw::RefusedInPart,
        Flaw::FaultLost,
        Flaw::WritesAfterReset,
        Flaw::ResetKeepsCard,
        Flaw::AbortIgnored,
        Flaw::NotLocked,
        Flaw::OtherMagic,
        Flaw::HolesReadZeros,
        Flaw::HeadersIgnored,
        Flaw::NonsenseIgnored,
        Flaw::DisableIgnored,
        Flaw::NamesCutShort,
        Flaw::TablesOnlySaid,
        Flaw::BitsLost,
        Flaw::FreesIgnored,
        Flaw::MemoryIgnored,
        Flaw::MemoryTooLarge,
    ];
}

/// Where the rings lie, for the flaws that meddle with them.
#[derive(Clone, Copy, Default)]
struct RingPlace {
    base: u64,
    entries: u32,
}

/// The driver's memory and interrupts.
pub(crate) struct Wires {
    bytes: Vec<u8>,
    interrupts: Vec<u16>,
    rings: [RingPlace; 4],
    flaw: Option<Flaw>,
    /// Completions and faults written so far.
    written: [u32; 4],
}

impl Wires {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
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

    /// The ring whose entries, and not its header, hold this address.
    fn ring_of(&self, address: u64) -> Option<RingKind> {
        RingKind::ALL.into_iter().find(|kind| {
            let RingPlace { base, entries } = self.rings[kind.index()];
            let first = entry_address(base, entries.max(1), 0);
            entries > 0 && (first..first + u64::from(entries) * ENTRY_BYTES).contains(&address)
        })
    }

    /// An index that is not further from the other side's than its ring is long.
    fn sensible(&self, address: u64, value: u32) -> u32 {
        for (kind, ring) in RingKind::ALL.into_iter().zip(self.rings) {
            let word = |offset| {
                let span = self.span(ring.base + offset, 4).ok()?;
                Some(u32::from_le_bytes(self.bytes[span].try_into().ok()?))
            };
            let (own, other) = match kind {
                RingKind::Command => (RingHeader::PRODUCER, RingHeader::CONSUMER),
                _ => (RingHeader::CONSUMER, RingHeader::PRODUCER),
            };
            if address == ring.base + own && ring.entries > 0 {
                let other = word(other).unwrap_or(value);
                let apart = match kind {
                    RingKind::Command => value.wrapping_sub(other),
                    _ => other.wrapping_sub(value),
                };
                return if apart > ring.entries { other } else { value };
            }
        }
        value
    }

    /// What a flaw makes of a command on its way to the card.
    fn meddle(&self, entry: &mut Entry) {
        let opcode = Opcode::from_code(entry[1] as u16);
        let shifts = matches!(opcode, Some(Opcode::Unmap | Opcode::UnmapAll));
        if self.has(Flaw::UnmapIgnored) && shifts {
            *entry = [entry[0], Opcode::Nop as u64, 0, 0, 0, 0, 0, 0];
        }
        if self.has(Flaw::FreesIgnored) && opcode == Some(Opcode::Free) {
            *entry = [entry[0], Opcode::Nop as u64, 0, 0, 0, 0, 0, 0];
        }
        if self.has(Flaw::MemoryIgnored) && opcode == Some(Opcode::Alloc) {
            entry[3] = 0;
        }
        if self.has(Flaw::QuietIgnored) {
            entry[1] &= !(u64::from(FLAG_QUIET) << 16);
        }
        if self.has(Flaw::AsidIgnored) {
            entry[1] &= !(0xffff << 32);
        }
        if self.has(Flaw::NamesCutShort) && opcode == Some(Opcode::Kernel) && entry[3] == 12 {
            entry[3] = 11;
        }
        if self.has(Flaw::RightsIgnored) && opcode == Some(Opcode::Map) && entry[6] == 1 {
            entry[6] = 3;
        }
    }
}

impl Bus for Wires {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), BusError> {
        let span = self.span(address, into.len())?;
        into.copy_from_slice(&self.bytes[span]);
        if self.ring_of(address) == Some(RingKind::Command) {
            if let Ok(bytes) = <&[u8; 64]>::try_from(&*into) {
                let mut entry = entry_from_bytes(bytes);
                self.meddle(&mut entry);
                into.copy_from_slice(&entry_to_bytes(&entry));
            }
        }
        Ok(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), BusError> {
        let span = self.span(address, from.len())?;
        if let Some(kind) = self.ring_of(address) {
            self.written[kind.index()] += 1;
            let seventh = self.written[kind.index()] % 7 == 0;
            let lost = match kind {
                RingKind::Completion => self.has(Flaw::CompletionLost),
                RingKind::Fault => self.has(Flaw::FaultLost),
                _ => false,
            };
            if seventh && lost {
                return Ok(());
            }
        }
        self.bytes[span.clone()].copy_from_slice(from);
        if self.has(Flaw::BitsLost) && self.ring_of(address) == Some(RingKind::Completion) {
            self.bytes[span][5 * 8..].fill(0);
        }
        Ok(())
    }

    fn load(&mut self, address: u64) -> Result<u32, BusError> {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.bytes[self.span(address, 4)?]);
        let value = u32::from_le_bytes(bytes);
        if self.has(Flaw::NonsenseIgnored) {
            return Ok(self.sensible(address, value));
        }
        let sleeps = |ring: &RingPlace| ring.base + RingHeader::CONSUMER_SLEEPS == address;
        if self.has(Flaw::InterruptNotSuppressed) && self.rings.iter().any(sleeps) {
            return Ok(1);
        }
        Ok(value)
    }

    fn store(&mut self, address: u64, value: u32) -> Result<(), BusError> {
        let word = |offset| self.rings.iter().any(|ring| ring.base + offset == address);
        let unsaid = (self.has(Flaw::SleepNotSaid) && word(RingHeader::CONSUMER_SLEEPS))
            || (self.has(Flaw::WaitNotSaid) && word(RingHeader::PRODUCER_WAITS));
        if !unsaid {
            let span = self.span(address, 4)?;
            self.bytes[span].copy_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }

    fn fence(&mut self) {}

    fn reaches(&mut self, address: u64, bytes: u64, _write: bool) -> bool {
        usize::try_from(bytes).is_ok_and(|bytes| self.span(address, bytes).is_ok())
    }

    fn interrupt(&mut self, vector: u16) {
        if !self.has(Flaw::InterruptMissing) {
            self.interrupts.push(vector);
        }
    }
}

/// A copy or a fill that is to be made.
enum Order {
    Copy(CommandId, Vec<Extent>),
    Fill(CommandId, Vec<Extent>, u64),
}

/// The card.
pub(crate) struct Model {
    card: Card,
    function: Function,
    wires: Wires,
    memory: Vec<u8>,
    allocated: usize,
    runners: Vec<Runner>,
    orders: Vec<Order>,
    /// Whether the function may have something to do: it is not looked at while it sleeps.
    awake: bool,
    /// How many pauses after its doorbell it begins to act on it, and how many it still lets pass.
    latency: u32,
    late_for: u32,
}

impl Model {
    pub(crate) fn new(flaw: Option<Flaw>) -> Model {
        let table_pages = if flaw == Some(Flaw::TablesOnlySaid) { 0 } else { 24 };
        Model::with(flaw, &NAMES, register::CAP_DMA_BUS_TO_BUS, table_pages, Some(window()))
    }

    /// One that is reached late, as by messages on a busy machine.
    pub(crate) fn late() -> Model {
        Model { latency: 80, ..Model::new(None) }
    }

    /// One whose card breaks a rule of its tables.
    pub(crate) fn mutated(mutation: CardMutation) -> Model {
        let mut model = Model::new(None);
        model.card.mutate(mutation);
        model
    }

    /// One of before there were tables.
    pub(crate) fn without_tables() -> Model {
        Model::with(None, &NAMES, register::CAP_DMA_BUS_TO_BUS, 0, Some(window()))
    }

    /// One of before there was a window.
    pub(crate) fn without_window() -> Model {
        let table_pages = Geometry::TABLES_FOR_MEMORY;
        Model::with(None, &NAMES, register::CAP_DMA_BUS_TO_BUS, table_pages, None)
    }

    /// One that has no kernel, and no capability that it need not have.
    pub(crate) fn bare() -> Model {
        Model::with(None, &[], 0, 0, None)
    }

    fn with(
        flaw: Option<Flaw>,
        names: &[&str],
        capabilities: u64,
        table_pages: u32,
        window: Option<WindowConfig>,
    ) -> Model {
        let unchecked = u32::from(flaw == Some(Flaw::FrameNotChecked)) * FRAMES;
        let geometry =
            Geometry { dma_pages_max: 32, dma_commands_max: 4, table_pages, ..Geometry::default() };
        let config = FunctionConfig {
            card: 0,
            function: 1,
            generation: 5,
            asids: 4,
            jobs_max: 6,
            kernels: names.iter().map(|&name| name.to_owned()).collect(),
            capabilities,
        };
        let mut function = Function::new(config);
        if let Some(window) = window {
            function = function.with_window(&window);
        }
        Model {
            card: Card::new(CardId(0), FRAMES + unchecked, geometry).unwrap(),
            function,
            wires: Wires {
                bytes: vec![0; BUS_BYTES],
                interrupts: Vec::new(),
                rings: Default::default(),
                flaw,
                written: [0; 4],
            },
            memory: vec![0; (FRAMES + unchecked) as usize * PAGE],
            allocated: 0,
            runners: Vec::new(),
            orders: Vec::new(),
            awake: true,
            latency: 0,
            late_for: 0,
        }
    }

    /// Carries out what the function asks for.
    fn act(&mut self) {
        while let Some(action) = self.function.poll_action() {
            match action {
                Action::Start { pe, job, asid, kernel, args } => {
                    let holds_nothing = self.wires.has(Flaw::DrainNotAwaited);
                    self.runners.push(Runner::new(pe, job, asid, kernel, args, holds_nothing));
                }
                Action::Stop { job } => {
                    if !self.wires.has(Flaw::AbortIgnored) {
                        self.runners.iter_mut().filter(|r| r.job == job).for_each(Runner::stop);
                    }
                }
                Action::Answer(answer) => {
                    let waits = self.runners.iter_mut().find(|r| r.job == answer.job);
                    if let Some(runner) = waits {
                        runner.answer(answer.outcome);
                    }
                }
                Action::Copy { id, extents } => self.orders.push(Order::Copy(id, extents)),
                Action::Fill { id, extents, pattern } => {
                    self.orders.push(Order::Fill(id, extents, pattern));
                }
                // They are carried out at once, in pieces that are short enough.
                Action::StopCopies => {}
                Action::LinkReceive { .. }
                | Action::LinkSend { .. }
                | Action::LinkCancel { .. }
                | Action::StopLinks => unreachable!("this card has no link"),
                Action::Reset => self.reset(),
            }
        }
        // Nobody holds a translation of the window.
        while let Some(action) = self.function.poll_window_action() {
            if let WindowAction::Invalidate { wait: Some(wait), .. } = action {
                self.function.window_invalidated(&mut self.card, &mut self.wires, wait);
            }
        }
    }

    fn reset(&mut self) {
        let before = self.card.clone();
        self.function.reset_done(&mut self.card);
        if self.wires.has(Flaw::ResetKeepsCard) {
            self.card = before;
        }
        if self.wires.has(Flaw::WritesAfterReset) {
            let ring = self.wires.rings[RingKind::Completion.index()];
            let address = ring.base + RingHeader::PRODUCER;
            if let Ok(index) = self.wires.load(address) {
                let _ = self.wires.store(address, index + 1);
            }
        }
        self.wires.rings = Default::default();
    }

    /// Everything gets on by one step.
    fn step(&mut self) {
        if self.wires.has(Flaw::RefusedInPart) {
            self.do_in_part();
        }
        if !self.orders.is_empty() {
            let order = self.orders.remove(0);
            self.move_pages(order);
            self.awake = true;
        }
        for index in 0..self.runners.len() {
            let mut runner = std::mem::replace(&mut self.runners[index], Runner::idle());
            let moved =
                runner.step(&mut self.card, &mut self.function, &mut self.wires, &mut self.memory);
            self.runners[index] = runner;
            self.awake |= moved;
            self.act();
        }
        self.runners.retain(|runner| !runner.is_over());
        if self.awake {
            self.awake = !self.function.prepare_to_sleep(&mut self.card, &mut self.wires);
            if self.awake {
                self.function.process(&mut self.card, &mut self.wires);
            }
        }
        self.act();
    }

    fn move_pages(&mut self, order: Order) {
        let (id, result) = match order {
            Order::Copy(id, mut extents) => {
                if self.wires.has(Flaw::CopyTooShort) {
                    extents.truncate(1);
                }
                let pages = |extent: Extent| (0..extent.count).map(move |index| (extent, index));
                let result = extents.into_iter().flat_map(pages).try_for_each(|(extent, index)| {
                    let page = self.page(extent.src, index)?.to_vec();
                    self.page(extent.dst, index)?.copy_from_slice(&page);
                    Some(())
                });
                (id, result)
            }
            Order::Fill(id, extents, pattern) => {
                let word = if self.wires.has(Flaw::FillIgnoresWord) { 0 } else { pattern };
                let page: Vec<u8> = word.to_le_bytes().repeat(PAGE / 8);
                let pages = |extent: Extent| (0..extent.count).map(move |index| (extent, index));
                let result = extents.into_iter().flat_map(pages).try_for_each(|(extent, index)| {
                    self.page(extent.dst, index)?.copy_from_slice(&page);
                    Some(())
                });
                (id, result)
            }
        };
        let result = result.ok_or(TransferFailed { pages_done: 0 });
        self.function.copied(&mut self.card, &mut self.wires, id, result);
        self.act();
    }

    fn page(&mut self, place: DmaAddr, index: u32) -> Option<&mut [u8]> {
        let location = match place {
            DmaAddr::Own(frame) => Location::new(self.card.memory(), frame_no(frame + index)),
            DmaAddr::Bus(page) => {
                Location::new(farside_types::MemoryId::HOST, frame_no(page + index))
            }
        };
        page_of(location, &mut self.wires, &mut self.memory)
    }

    /// Notes where a ring is, for the flaws.
    fn note_ring(&mut self, offset: u64, value: u64) {
        // Rings that make no sense are nowhere.
        if value > 1 << 40 {
            return;
        }
        for kind in RingKind::ALL {
            let ring = &mut self.wires.rings[kind.index()];
            match offset.checked_sub(register::ring(kind)) {
                Some(register::RING_BASE) => ring.base = value,
                Some(register::RING_ENTRIES) => ring.entries = value as u32,
                _ => {}
            }
        }
    }

    fn write_register(&mut self, offset: u64, from: &[u8]) {
        let locked = (register::RINGS..register::COUNTERS).contains(&offset)
            && self.read32(register::STATUS) & register::STATUS_ENABLED != 0;
        if locked && self.wires.has(Flaw::NotLocked) {
            return;
        }
        let control = if offset == register::CONTROL { from.first() } else { None };
        if control == Some(&0) && self.wires.has(Flaw::DisableIgnored) {
            return;
        }
        if control == Some(&1) && self.wires.has(Flaw::HeadersIgnored) {
            for base in self.wires.rings.map(|ring| ring.base) {
                for word in [RingHeader::PRODUCER, RingHeader::CONSUMER] {
                    // A ring that is nowhere has no header.
                    let _ = self.wires.store(base + word, 0);
                }
            }
        }
        self.function.write_register(&mut self.card, &mut self.wires, offset, from);
        self.awake |= [register::DOORBELL, register::CONTROL].contains(&offset);
        self.act();
    }

    /// Fills the first extent of each list of fills, as a card that does not check first would.
    fn do_in_part(&mut self) {
        let ring = self.wires.rings[RingKind::Command.index()];
        let Ok(index) = self.wires.load(ring.base + RingHeader::PRODUCER) else {
            return;
        };
        let at = entry_address(ring.base, ring.entries.max(1), index.wrapping_sub(1));
        let mut bytes = [0; 64];
        if self.wires.read(at, &mut bytes).is_err() {
            return;
        }
        let entry = entry_from_bytes(&bytes);
        if entry[1] == Opcode::Fill as u64 | 1 << 16 {
            let mut first = [0; 32];
            if self.wires.read(entry[2], &mut first).is_ok() {
                let frame = u64::from_le_bytes(first[24..].try_into().unwrap()) as u32;
                if let Some(page) = self.page(DmaAddr::Own(frame), 0) {
                    page.fill(0);
                }
            }
        }
    }
}

fn frame_no(frame: u32) -> farside_types::FrameNo {
    farside_types::FrameNo(frame)
}

/// The bytes of a page.
pub(crate) fn page_of<'a>(
    location: Location,
    wires: &'a mut Wires,
    memory: &'a mut [u8],
) -> Option<&'a mut [u8]> {
    if location.memory.is_host() {
        let span = wires.span(u64::from(location.frame.0) * PAGE as u64, PAGE).ok()?;
        return Some(&mut wires.bytes[span]);
    }
    memory.get_mut(location.frame.byte_offset()..)?.get_mut(..PAGE)
}

impl Target for Model {
    fn read32(&mut self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.function.read_register(&self.card, offset, &mut bytes);
        let value = u32::from_le_bytes(bytes);
        match offset {
            register::FRAMES => value.min(FRAMES),
            register::MAGIC if self.wires.has(Flaw::OtherMagic) => !value,
            LAST_MEMORY if self.wires.has(Flaw::MemoryTooLarge) => value + 1,
            _ if value == u32::MAX && self.wires.has(Flaw::HolesReadZeros) => 0,
            _ => value,
        }
    }

    fn read64(&mut self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.function.read_register(&self.card, offset, &mut bytes);
        let value = u64::from_le_bytes(bytes);
        if offset == register::CAPABILITIES && self.wires.has(Flaw::TablesOnlySaid) {
            return value | register::CAP_TABLES;
        }
        if offset == register::ERRORS && self.wires.has(Flaw::ErrorClearedByRead) {
            self.write_register(offset, &value.to_le_bytes());
        }
        value
    }

    fn write32(&mut self, offset: u64, value: u32) {
        self.note_ring(offset, value.into());
        if offset == register::DOORBELL && self.latency > 0 {
            self.late_for = self.latency;
            return;
        }
        self.write_register(offset, &value.to_le_bytes());
    }

    fn write64(&mut self, offset: u64, value: u64) {
        self.note_ring(offset, value);
        self.write_register(offset, &value.to_le_bytes());
    }

    fn allocate(&mut self, bytes: usize) -> u64 {
        let at = self.allocated;
        self.allocated += bytes.next_multiple_of(PAGE).max(PAGE);
        assert!(self.allocated <= BUS_BYTES, "a check takes a few MiB at most");
        BASE + at as u64
    }

    fn release(&mut self) {
        self.allocated = 0;
        self.wires.bytes.fill(0);
    }

    fn unreachable(&mut self) -> u64 {
        BASE + BUS_BYTES as u64 + 16 * PAGE as u64
    }

    fn read(&mut self, address: u64, into: &mut [u8]) {
        let span = self.wires.span(address, into.len()).unwrap();
        into.copy_from_slice(&self.wires.bytes[span]);
    }

    fn write(&mut self, address: u64, from: &[u8]) {
        let span = self.wires.span(address, from.len()).unwrap();
        self.wires.bytes[span].copy_from_slice(from);
    }

    fn load(&mut self, address: u64) -> u32 {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn store(&mut self, address: u64, value: u32) {
        self.write(address, &value.to_le_bytes());
    }

    fn fence(&mut self) {}

    fn read_frames(&mut self, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.memory[offset as usize..][..into.len()]);
    }

    fn write_frames(&mut self, offset: u64, from: &[u8]) {
        self.memory[offset as usize..][..from.len()].copy_from_slice(from);
    }

    fn wait(&mut self, vector: u16, limit: Duration) -> bool {
        assert!(vector < pci::VECTORS);
        // A step is taken as a millisecond.
        for _ in 0..limit.as_millis().clamp(1, 100) {
            if let Some(at) = self.wires.interrupts.iter().position(|&known| known == vector) {
                self.wires.interrupts.remove(at);
                return true;
            }
            self.pause();
        }
        false
    }

    fn pause(&mut self) {
        if self.late_for > 0 {
            self.late_for -= 1;
            if self.late_for > 0 {
                return;
            }
            self.write_register(register::DOORBELL, &1u32.to_le_bytes());
        }
        self.step();
    }
}
