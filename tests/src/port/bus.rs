//! The bus of a function: the driver's memory with the rings in it, windows onto other memories, and
//! the interrupt. What the function takes out of the command ring is noted on the way.

use std::ops::Range;

use farside_card::interface::{
    CommandEntry, ENTRY_BYTES, EXTENT_BYTES, Entry, Extent, ExtentArg, FaultArg, Operation,
    RingHeader, RingKind, entry_from_bytes, entry_to_bytes, register, ring_bytes,
};
use farside_card::{Bus, BusError};
use farside_linux::shared::SharedMemory;
use farside_types::{FaultId, PageNo, Rights};

use super::mutation::{Broken, RingMutation};

/// A command that the function has taken, with its lists.
#[derive(Clone, Debug)]
pub(super) enum Taken {
    Map(Vec<Extent>, Rights),
    Protect(Vec<Extent>, Rights),
    Unmap(Vec<Extent>),
    Answers(Vec<FaultId>),
    /// One of these, which the function was made to refuse.
    Refused(Box<Taken>),
    Other,
    Nonsense(Entry),
}

/// A command that the card refuses when it comes to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// By its first page.
    Map(PageNo),
    Protect(PageNo),
    Unmap(PageNo),
    /// By its first fault, as the card calls it.
    Answers(FaultId),
}

impl Taken {
    /// What it would be refused as.
    fn refusal(&self) -> Option<Refusal> {
        let first = |extents: &[Extent]| extents.first().map(|extent| PageNo(extent.page));
        match self {
            Taken::Map(extents, _) => first(extents).map(Refusal::Map),
            Taken::Protect(extents, _) => first(extents).map(Refusal::Protect),
            Taken::Unmap(extents) => first(extents).map(Refusal::Unmap),
            Taken::Answers(ids) => ids.first().copied().map(Refusal::Answers),
            Taken::Refused(_) | Taken::Other | Taken::Nonsense(_) => None,
        }
    }
}

/// The entry as one of an operation that no card knows: it is refused, under its own tag.
fn unknown(entry: &Entry) -> Entry {
    let mut entry = *entry;
    entry[1] |= 0xffff;
    entry
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct FarBus {
    /// The driver's memory and its bus address.
    memory: Option<(u64, SharedMemory)>,
    /// The driver's command ring, as its registers say: base, entries.
    commands: (u64, u32),
    /// Other bus addresses that can be reached. Their bytes are the harness's.
    pub(super) windows: Vec<Range<u64>>,
    pub(super) taken: Vec<Taken>,
    /// What is to be refused.
    pub(super) refusals: Vec<Refusal>,
    /// Something was, in this life.
    pub(super) has_refused: bool,
    pub(super) interrupt: bool,
    pub(super) broken: Broken,
    /// Entries that are written late.
    held: Vec<(u64, Vec<u8>)>,
}

impl FarBus {
    /// The bus of a fresh function.
    pub(super) fn new(broken: Broken) -> FarBus {
        FarBus { broken, ..FarBus::default() }
    }

    /// The driver shares its memory.
    pub(super) fn share(&mut self, bus: u64, memory: SharedMemory) {
        self.memory = Some((bus, memory));
        self.held.clear();
        self.refusals.clear();
        self.has_refused = false;
    }

    /// Notes where the command ring is.
    pub(super) fn note_register(&mut self, offset: u64, from: &[u8]) {
        let ring = register::ring(RingKind::Command);
        if offset == ring + register::RING_BASE {
            self.commands.0 = from.try_into().map_or(0, u64::from_le_bytes);
        } else if offset == ring + register::RING_ENTRIES {
            self.commands.1 = from.try_into().map_or(0, u32::from_le_bytes);
        }
    }

    /// Writes what was held back.
    pub(super) fn write_held(&mut self) {
        for (address, bytes) in std::mem::take(&mut self.held) {
            let _ = self.put(address, &bytes);
        }
    }

    fn at(&self, address: u64) -> Result<(&SharedMemory, u64), BusError> {
        let (bus, memory) = self.memory.as_ref().ok_or(BusError { address })?;
        Ok((memory, address.checked_sub(*bus).ok_or(BusError { address })?))
    }

    fn put(&self, address: u64, from: &[u8]) -> Result<(), BusError> {
        let (memory, offset) = self.at(address)?;
        memory.write(offset, from).ok_or(BusError { address })
    }

    fn get(&self, address: u64, into: &mut [u8]) -> Result<(), BusError> {
        let (memory, offset) = self.at(address)?;
        memory.read(offset, into).ok_or(BusError { address })
    }

    /// Whether an address is that of an entry of the command ring.
    fn is_command(&self, address: u64, bytes: usize) -> bool {
        let (base, entries) = self.commands;
        bytes as u64 == ENTRY_BYTES
            && address >= base + RingHeader::BYTES
            && address < base + ring_bytes(entries)
    }

    fn note(&self, entry: &Entry) -> Taken {
        // Whether its completion is quiet makes no difference to what it does.
        let Ok(command) = CommandEntry::from_entry(entry) else { return Taken::Nonsense(*entry) };
        let known = match command.operation {
            Operation::Map(pages, rights) => {
                self.extents(pages).map(|pages| Taken::Map(pages, rights))
            }
            Operation::Protect(pages, rights) => {
                self.extents(pages).map(|pages| Taken::Protect(pages, rights))
            }
            Operation::Unmap(pages) | Operation::UnmapTelling(pages, _) => {
                self.extents(pages).map(Taken::Unmap)
            }
            Operation::Resume(faults) | Operation::Cancel(faults, _) => {
                self.ids(faults).map(Taken::Answers)
            }
            Operation::Kernel { .. }
            | Operation::Launch { .. }
            | Operation::Abort(_)
            | Operation::Accessed(..)
            | Operation::Copy(_)
            | Operation::Fill(..) => Some(Taken::Other),
            _ => None,
        };
        known.unwrap_or(Taken::Nonsense(*entry))
    }

    fn words(&self, address: u64, count: usize) -> Option<Vec<u64>> {
        let mut bytes = vec![0; count * 8];
        self.get(address, &mut bytes).ok()?;
        let word = |chunk: &[u8]| chunk.try_into().map_or(0, u64::from_le_bytes);
        Some(bytes.chunks_exact(8).map(word).collect())
    }

    fn extents(&self, pages: ExtentArg) -> Option<Vec<Extent>> {
        let list = match pages {
            ExtentArg::Inline(extent) => return Some(vec![extent]),
            ExtentArg::List(list) => list,
        };
        let words = self.words(list.address, list.count as usize * EXTENT_BYTES as usize / 8)?;
        let extent = |words: &[u64]| Extent::from_words(words.try_into().ok()?, 0).ok();
        words.chunks_exact(4).map(extent).collect()
    }

    fn ids(&self, faults: FaultArg) -> Option<Vec<FaultId>> {
        match faults {
            FaultArg::One(id) => Some(vec![id]),
            FaultArg::List(list) => {
                let words = self.words(list.address, list.count as usize)?;
                Some(words.into_iter().map(FaultId).collect())
            }
            // This driver names each fault.
            FaultArg::Range(_) => None,
        }
    }
}

impl Bus for FarBus {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.get(address, into)?;
        if self.is_command(address, into.len()) {
            if let Ok(bytes) = (&*into).try_into() {
                let entry = entry_from_bytes(bytes);
                let mut taken = self.note(&entry);
                let refusal = taken.refusal();
                let meant = self.refusals.iter().position(|&meant| Some(meant) == refusal);
                if let Some(at) = meant {
                    self.refusals.swap_remove(at);
                    self.has_refused = true;
                    into.copy_from_slice(&entry_to_bytes(&unknown(&entry)));
                    taken = Taken::Refused(Box::new(taken));
                }
                self.taken.push(taken);
            }
        }
        Ok(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), BusError> {
        if self.broken.now(RingMutation::PublishBeforeEntry) {
            self.held.push((address, from.to_vec()));
            return Ok(());
        }
        self.put(address, from)
    }

    fn load(&mut self, address: u64) -> Result<u32, BusError> {
        let (memory, offset) = self.at(address)?;
        memory.load(offset).ok_or(BusError { address })
    }

    fn store(&mut self, address: u64, value: u32) -> Result<(), BusError> {
        let (memory, offset) = self.at(address)?;
        memory.store(offset, value).ok_or(BusError { address })
    }

    fn fence(&mut self) {
        // One thread plays both sides; `wake_ups.rs` of the card tries every order of their steps.
    }

    fn reaches(&mut self, address: u64, bytes: u64, _write: bool) -> bool {
        let Some(end) = address.checked_add(bytes) else { return false };
        let own = self.memory.as_ref().map(|(bus, memory)| *bus..bus + memory.bytes());
        let inside = |window: &Range<u64>| window.start <= address && end <= window.end;
        own.iter().any(inside) || self.windows.iter().any(inside)
    }

    fn interrupt(&mut self, _vector: u16) {
        if !self.broken.now(RingMutation::ForgetInterrupt) {
            self.interrupt = true;
        }
    }
}
