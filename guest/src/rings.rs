//! A driver's side of the command and completion rings, in memory that the card reaches.

use std::sync::atomic::{Ordering, fence};

use farside_card::interface::{
    CommandEntry, CompletionEntry, ENTRY_WORDS, Entry, Operation, RingHeader, RingKind,
    entry_address, register,
};
use farside_types::{Asid, PAGE_SIZE};

use crate::Failure;
use crate::memory::Mapping;
use crate::registers::Registers;
use crate::wait::{expect, wait_for};

const ENTRIES: u32 = 16;
const KINDS: [RingKind; 4] = RingKind::ALL;

/// Pages of the memory that the rings take, one each: a header and 16 entries.
pub(crate) const RING_PAGES: usize = KINDS.len();

/// The rings of one function, at the beginning of a memory.
pub(crate) struct Rings {
    submitted: u32,
    taken: u32,
}

impl Rings {
    /// Clears the rings and tells the card, which is disabled, where they are: at bus address
    /// `bus`, where `memory` begins. Ring `i` raises interrupt `i`, less one, as the command ring
    /// has none.
    pub(crate) fn new(registers: &dyn Registers, memory: &Mapping, bus: u64) -> Rings {
        for offset in (0..RING_PAGES * PAGE_SIZE).step_by(8) {
            memory.write(offset, 0u64);
        }
        for kind in KINDS {
            let first = register::ring(kind);
            let base = bus + (kind.index() * PAGE_SIZE) as u64;
            registers.write_u64((first + register::RING_BASE) as usize, base);
            registers.write_u32((first + register::RING_ENTRIES) as usize, ENTRIES);
            registers.write_u32((first + register::RING_VECTOR) as usize, vector(kind));
        }
        Rings { submitted: 0, taken: 0 }
    }

    /// Puts a command in the ring and rings the doorbell. One at a time, so there is room.
    pub(crate) fn submit(
        &mut self,
        registers: &dyn Registers,
        memory: &Mapping,
        tag: u64,
        operation: Operation,
    ) {
        let entry = CommandEntry { tag, asid: Asid(0), operation }.to_entry();
        let at = slot(RingKind::Command, self.submitted);
        for (index, word) in entry.into_iter().enumerate() {
            memory.write(at + 8 * index, word.to_le());
        }
        // The entry is there before the index says so.
        fence(Ordering::SeqCst);
        self.submitted = self.submitted.wrapping_add(1);
        memory.write(header(RingKind::Command, RingHeader::PRODUCER), self.submitted.to_le());
        registers.write_u32(register::DOORBELL as usize, 1);
    }

    /// Waits for the next completion, which must be that of `tag`.
    pub(crate) fn completion(
        &mut self,
        memory: &Mapping,
        tag: u64,
    ) -> Result<CompletionEntry, Failure> {
        wait_for("the completion", || (self.produced(memory) != self.taken).then_some(()))?;
        fence(Ordering::SeqCst);
        let at = slot(RingKind::Completion, self.taken);
        let mut entry: Entry = [0; ENTRY_WORDS];
        for (index, word) in entry.iter_mut().enumerate() {
            *word = u64::from_le(memory.read(at + 8 * index));
        }
        self.taken = self.taken.wrapping_add(1);
        memory.write(header(RingKind::Completion, RingHeader::CONSUMER), self.taken.to_le());
        let completion = CompletionEntry::from_entry(&entry)?;
        expect("the completion's tag", completion.tag, tag)?;
        Ok(completion)
    }

    /// Says whether the driver sleeps and wants an interrupt for the next completion.
    pub(crate) fn set_sleeping(memory: &Mapping, sleeping: bool) {
        let word = u32::from(sleeping).to_le();
        memory.write(header(RingKind::Completion, RingHeader::CONSUMER_SLEEPS), word);
        fence(Ordering::SeqCst);
    }

    fn produced(&self, memory: &Mapping) -> u32 {
        u32::from_le(memory.read(header(RingKind::Completion, RingHeader::PRODUCER)))
    }
}

/// The interrupt vector of a ring that the card writes; the command ring has no use for one.
pub(crate) fn vector(kind: RingKind) -> u32 {
    kind.index().saturating_sub(1) as u32
}

fn header(kind: RingKind, word: u64) -> usize {
    kind.index() * PAGE_SIZE + word as usize
}

fn slot(kind: RingKind, index: u32) -> usize {
    entry_address((kind.index() * PAGE_SIZE) as u64, ENTRIES, index) as usize
}
