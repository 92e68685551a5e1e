//! The entry of one page: its total state, where it is, and who has it mapped.

use farside_types::{AgentId, AgentSet, FrameNo, MemoryId, MemorySet, Rights, Span, Time};
use serde::{Deserialize, Serialize};

use crate::migration::chains::ChainId;

/// The total state of a page (driver rule 1). Every page of the arena has exactly one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum PageState {
    /// No allocation holds it.
    #[default]
    Unallocated,
    /// Allocated and never written: has no bytes anywhere, moves by zero fill.
    Fresh,
    /// The host has the only valid copy.
    Host,
    /// One card has the only valid copy.
    Card,
    /// Two or more memories have clean copies; nobody may write.
    Replicated,
    /// A chain holds it; nobody may write.
    Moving,
    /// Its only copy was on a card that is gone.
    Lost,
    /// Freed; becomes `Unallocated` when everything in flight is done.
    Tombstone,
}

/// Who holds a page, in one word: agents that map it, those that may write, memories with a valid
/// copy, marks of adopted memory and of a page on loan, and four bits that count recent moves.
///
/// `mappers` bits 0-19, `writers` 20-39, `copies` 40-57, `adopted` 58, `lent` 59, `bounces` 60-63.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Directory(u64);

const FIELD: u64 = (1 << 20) - 1;
const COPIES: u64 = (1 << 18) - 1;
const ADOPTED: u64 = 1 << 58;
const LENT: u64 = 1 << 59;

impl Directory {
    pub(crate) fn mappers(self) -> AgentSet {
        AgentSet((self.0 & FIELD) as u32)
    }

    pub(crate) fn writers(self) -> AgentSet {
        AgentSet((self.0 >> 20 & FIELD) as u32)
    }

    pub(crate) fn copies(self) -> MemorySet {
        MemorySet((self.0 >> 40 & COPIES) as u32)
    }

    /// Mappers, writers and copies alone.
    pub(crate) fn mapping(self) -> u64 {
        self.0 & !(0xf << 60 | LENT)
    }

    /// Whether the page is of memory that the program had and has given to the space, and moves
    /// ([`crate::Request::Adopt`]): the CPU alone maps it on the host.
    pub(crate) fn is_adopted(self) -> bool {
        self.0 & ADOPTED != 0
    }

    /// Of a page that the CPU has, adopted, and whether it moves.
    pub(crate) fn adopted(moves: bool) -> Directory {
        let mut directory = Directory(if moves { ADOPTED } else { 0 });
        directory.map(AgentId::CPU, Rights::ReadWrite);
        directory.set_copies(MemorySet::only(MemoryId::HOST));
        directory
    }

    /// Whether the page is on loan to the card that has it: the host's frame has the bytes that it had when it
    /// came, in nobody's map. While a chain holds the page: its card has told that it did not write it
    /// (`crate::migration::shadow`).
    pub(crate) fn is_lent(self) -> bool {
        self.0 & LENT != 0
    }

    pub(crate) fn set_lent(&mut self, lent: bool) {
        self.0 = if lent { self.0 | LENT } else { self.0 & !LENT };
    }

    pub(crate) fn bounces(self) -> u8 {
        (self.0 >> 60) as u8
    }

    pub(crate) fn set_copies(&mut self, copies: MemorySet) {
        self.0 = self.0 & !(COPIES << 40) | u64::from(copies.0) << 40;
    }

    pub(crate) fn set_bounces(&mut self, bounces: u8) {
        self.0 = self.0 & !(0xf << 60) | u64::from(bounces.min(15)) << 60;
    }

    /// Enters `agent` with exactly `rights`.
    pub(crate) fn map(&mut self, agent: AgentId, rights: Rights) {
        let bit = 1u64 << agent.0;
        self.0 = (self.0 | bit) & !(bit << 20);
        if rights == Rights::ReadWrite {
            self.0 |= bit << 20;
        }
    }

    /// Without copies, and with those agents of the set that map the page, for reading.
    pub(crate) fn only(self, agents: AgentSet) -> Directory {
        Directory(u64::from(self.mappers().and(agents).0))
    }

    /// Strikes every agent of the set out.
    pub(crate) fn unmap(&mut self, agents: AgentSet) {
        let bits = u64::from(agents.0);
        self.0 &= !(bits | bits << 20);
    }

    /// Takes the right to write from every agent of the set.
    pub(crate) fn protect(&mut self, agents: AgentSet) {
        self.0 &= !(u64::from(agents.0) << 20);
    }
}

/// Marks of a page.
pub(crate) mod flag {
    /// Advised: mostly read.
    pub(crate) const READ_MOSTLY: u16 = 1 << 0;
    /// Pinned by the program where it is.
    pub(crate) const PINNED: u16 = 1 << 1;
    /// Pinned for a while because agents fought over it.
    pub(crate) const THRASH_PINNED: u16 = 1 << 2;
    /// Used since the eviction hand passed.
    pub(crate) const REFERENCED: u16 = 1 << 3;
    /// Cards may only read it.
    pub(crate) const READ_ONLY: u16 = 1 << 4;
    /// The host's frame is allocated: it has, or had, bytes.
    pub(crate) const HOST_BACKED: u16 = 1 << 5;
    /// The allocation has a preferred location or agents that keep a mapping.
    pub(crate) const HINTED: u16 = 1 << 6;
    /// A copy to the host timed out and may still arrive: the host frame is out of use until the
    /// card is reset.
    pub(crate) const HOST_UNSAFE: u16 = 1 << 8;
    /// The CPU's entry is poisoned.
    pub(crate) const POISONED: u16 = 1 << 9;
    /// Its bytes are gone for good.
    pub(crate) const LOST: u16 = 1 << 11;
    /// Entered in the plan that is being made.
    pub(crate) const PLANNED: u16 = 1 << 10;
    /// A card that runs has lost it to another agent since it was last handed on.
    pub(crate) const TAKEN: u16 = 1 << 12;
    /// A card that runs has lost it to the host, or to another card that uses it there: all who fight over it
    /// reach it on the host.
    pub(crate) const COMMON: u16 = 1 << 13;
    /// Its eviction failed once.
    pub(crate) const EVICTION_FAILED: u16 = 1 << 14;
    /// Its eviction failed twice: it is no victim again until it has moved, or somebody was refused.
    pub(crate) const STAYS: u16 = 1 << 15;
    /// Being freed: nobody gets it any more.
    pub(crate) const DOOMED: u16 = 1 << 7;
}

/// The page table's entry, 24 bytes.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct PageEntry {
    pub(crate) directory: Directory,
    /// The frame in `owner`'s memory, where that is a card.
    pub(crate) frame: FrameNo,
    /// The chain that holds the page while it is `Moving`; [`ChainId::NONE`] otherwise.
    pub(crate) chain: ChainId,
    /// When it came to where it is, in microseconds, wrapping.
    pub(crate) moved_at: u32,
    pub(crate) flags: u16,
    pub(crate) state: PageState,
    /// The memory whose frame `frame` names and from which copies are made.
    pub(crate) owner: u8,
}

const _: () = assert!(size_of::<PageEntry>() == 24);

impl PageEntry {
    pub(crate) fn owner(&self) -> MemoryId {
        MemoryId(self.owner)
    }

    /// Whether the same holds for both pages, frames and times apart.
    pub(crate) fn is_like(&self, other: &PageEntry) -> bool {
        let of = |entry: &PageEntry| (entry.directory, entry.flags, entry.state, entry.owner);
        of(self) == of(other)
    }

    /// Whether what holds for the page may not hold for the next that is like it: it has frames that
    /// its entry does not name, or waits for what is known of pages singly.
    pub(crate) fn is_alone(&self) -> bool {
        let elsewhere = self.directory.copies().without(MemoryId::HOST).without(self.owner());
        !elsewhere.is_empty() || self.has(flag::POISONED) || self.state == PageState::Moving
    }

    /// Whether this page is like the page `behind` places before it, in a frame as far behind that
    /// page's, where it is on a card.
    pub(crate) fn continues(&self, first: &PageEntry, behind: u32) -> bool {
        let next = self.owner().is_host() || self.frame.0 == first.frame.0.wrapping_add(behind);
        next && self.is_like(first)
    }

    /// Whether both pages are in the same memories and mapped by the same agents with the same
    /// rights.
    pub(crate) fn is_mapped_like(&self, other: &PageEntry) -> bool {
        let of = |entry: &PageEntry| (entry.directory.mapping(), entry.state, entry.owner);
        of(self) == of(other)
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn set(&mut self, flag: u16, on: bool) {
        if on { self.flags |= flag } else { self.flags &= !flag }
    }

    /// The state that the copies say, for a page that no chain holds.
    pub(crate) fn settled_state(&self) -> PageState {
        let copies = self.directory.copies();
        match (copies.len(), copies.contains(MemoryId::HOST)) {
            (0, _) if self.has(flag::LOST) => PageState::Lost,
            (0, _) => PageState::Fresh,
            (1, true) => PageState::Host,
            (1, false) => PageState::Card,
            _ => PageState::Replicated,
        }
    }

    pub(crate) fn stamp(&mut self, now: Time) {
        self.moved_at = micros(now);
    }

    /// For how long it was elsewhere, in microseconds, if it has bytes and has ever moved.
    pub(crate) fn away(&self, now: Time) -> Option<u32> {
        let known = self.moved_at != 0 && !self.directory.copies().is_empty();
        known.then(|| micros(now).wrapping_sub(self.moved_at))
    }

    /// Time since it came to where it is.
    pub(crate) fn residency(&self, now: Time) -> Span {
        Span::from_micros(u64::from(micros(now).wrapping_sub(self.moved_at)))
    }
}

/// Microseconds, wrapping after 71 minutes.
pub(crate) fn micros(time: Time) -> u32 {
    (time.0 / 1_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_fields_do_not_touch_each_other() {
        let mut word = Directory::default();
        let far = AgentId(16);
        word.map(AgentId::CPU, Rights::Read);
        word.map(far, Rights::ReadWrite);
        word.set_copies(MemorySet::only(MemoryId(16)));
        word.set_bounces(99);
        word.set_lent(true);
        assert!(!word.is_adopted());
        assert_eq!(word.mappers().len(), 2);
        assert_eq!(word.writers(), AgentSet::only(far));
        assert_eq!(word.copies(), MemorySet::only(MemoryId(16)));
        assert!(word.is_lent());
        word.set_lent(false);
        assert_eq!((word.bounces(), word.is_lent(), word.copies().len()), (15, false, 1));
        word.protect(AgentSet::only(far));
        assert!(word.writers().is_empty());
        word.unmap(word.mappers());
        assert!(word.mappers().is_empty());
        assert_eq!(word.copies().len(), 1);
        let mut word = Directory::adopted(true);
        assert_eq!(word.writers(), AgentSet::only(AgentId::CPU));
        word.set_copies(MemorySet::only(MemoryId(16)));
        word.unmap(word.mappers());
        assert!(word.is_adopted() && !word.is_lent());
        assert_eq!(word.copies(), MemorySet::only(MemoryId(16)));
    }
}
