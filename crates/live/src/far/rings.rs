//! The four rings in memory, as one end of a link has them.

use std::sync::Arc;

use farside_card::interface::{
    ENTRIES_MAX, ENTRIES_MIN, ENTRY_BYTES, Entry, RING_COUNT, RingHeader, RingKind,
    entry_from_bytes, entry_to_bytes, register, ring_bytes,
};
use farside_linux::shared::SharedMemory;

/// Where the driver has put the rings: what it has written to their registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingRegisters {
    bases: [u64; RING_COUNT],
    entries: [u32; RING_COUNT],
}

impl RingRegisters {
    /// A register was written.
    pub(crate) fn note(&mut self, offset: u64, value: u64) {
        for kind in RingKind::ALL {
            let first = register::ring(kind);
            if offset == first + register::RING_BASE {
                self.bases[kind.index()] = value;
            } else if offset == first + register::RING_ENTRIES {
                self.entries[kind.index()] = value as u32;
            }
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Rings {
    memory: Arc<SharedMemory>,
    /// Bus address of its first byte.
    bus: u64,
    places: [Place; RING_COUNT],
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// Where in the memory.
    offset: u64,
    entries: u32,
}

impl Rings {
    /// The rings of these registers, in memory that begins at a bus address; `None` if they are no rings,
    /// or not all within.
    pub(super) fn new(
        memory: Arc<SharedMemory>,
        bus: u64,
        registers: &RingRegisters,
    ) -> Option<Rings> {
        let mut places = [Place { offset: 0, entries: 0 }; RING_COUNT];
        for (place, (&base, &entries)) in
            places.iter_mut().zip(registers.bases.iter().zip(&registers.entries))
        {
            let offset = base.checked_sub(bus)?;
            let is_ring = (ENTRIES_MIN..=ENTRIES_MAX).contains(&entries)
                && entries.is_power_of_two()
                && offset % 64 == 0;
            let end = offset.checked_add(ring_bytes(entries))?;
            if !is_ring || end > memory.bytes() {
                return None;
            }
            *place = Place { offset, entries };
        }
        Some(Rings { memory, bus, places })
    }

    /// Entries of a ring.
    pub(super) fn entries(&self, kind: RingKind) -> u32 {
        self.places[kind.index()].entries
    }

    /// A word of a ring's header. Acquires.
    pub(super) fn word(&self, kind: RingKind, word: u64) -> u32 {
        // It was checked that all of the ring is within.
        self.memory.load(self.places[kind.index()].offset + word).unwrap_or_default()
    }

    /// Writes it. Releases.
    pub(super) fn set_word(&self, kind: RingKind, word: u64, value: u32) {
        let written = self.memory.store(self.places[kind.index()].offset + word, value);
        debug_assert!(written.is_some(), "a ring lies within its memory");
    }

    fn slot(&self, kind: RingKind, index: u32) -> u64 {
        let place = self.places[kind.index()];
        place.offset + RingHeader::BYTES + u64::from(index % place.entries) * ENTRY_BYTES
    }

    /// An entry by its free-running index.
    pub(super) fn entry(&self, kind: RingKind, index: u32) -> Entry {
        let mut bytes = [0; ENTRY_BYTES as usize];
        let read = self.memory.read(self.slot(kind, index), &mut bytes);
        debug_assert!(read.is_some(), "a ring lies within its memory");
        entry_from_bytes(&bytes)
    }

    /// Writes an entry where nobody looks yet.
    pub(super) fn put(&self, kind: RingKind, index: u32, entry: &Entry) {
        let written = self.memory.write(self.slot(kind, index), &entry_to_bytes(entry));
        debug_assert!(written.is_some(), "a ring lies within its memory");
    }

    /// Whether these bytes lie behind the rings, where lists and messages are.
    pub(super) fn holds(&self, address: u64, bytes: u64) -> bool {
        let first = self.places.iter().map(|place| place.offset + ring_bytes(place.entries)).max();
        let Some(offset) = address.checked_sub(self.bus) else { return false };
        let end = offset.checked_add(bytes);
        first.is_some_and(|first| offset >= first)
            && end.is_some_and(|end| end <= self.memory.bytes())
    }

    /// Reads what an entry refers to; `None` if it is not there.
    pub(super) fn read(&self, address: u64, bytes: usize) -> Option<Vec<u8>> {
        if !self.holds(address, bytes as u64) {
            return None;
        }
        let mut data = vec![0; bytes];
        self.memory.read(address - self.bus, &mut data)?;
        Some(data)
    }

    /// Writes it.
    pub(super) fn write(&self, address: u64, data: &[u8]) -> Option<()> {
        if !self.holds(address, data.len() as u64) {
            return None;
        }
        self.memory.write(address - self.bus, data)
    }
}
