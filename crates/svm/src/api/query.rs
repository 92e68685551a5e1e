//! What a program may ask about its memory.

use std::sync::Arc;

use farside_types::{
    AgentSet, CardId, FrameNo, MemoryId, MemorySet, PageNo, PageRange, Reason, Time, VirtAddr,
};
use serde::{Deserialize, Serialize};

use crate::placement::PageMode;
use crate::tables::page::flag;
use crate::{Driver, PageState, Stats};

/// An allocation's number; never used twice.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct ObjectId(pub u32);

/// All the driver knows of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageView {
    /// The state.
    pub state: PageState,
    /// Where it is; `None` for pages that are nowhere.
    pub owner: Option<MemoryId>,
    /// The frame there. For the host: the page's index in the arena.
    pub frame: FrameNo,
    /// Memories with a valid copy.
    pub copies: MemorySet,
    /// Agents that have it mapped.
    pub mappers: AgentSet,
    /// Agents that may write it.
    pub writers: AgentSet,
    /// Whether the program pinned it.
    pub pinned: bool,
}

/// A part of a range whose pages are in the same place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// The pages.
    pub range: PageRange,
    /// Their state.
    pub state: PageState,
    /// Where they are; `None` for fresh, lost and unallocated ones.
    pub owner: Option<MemoryId>,
    /// Memories with a valid copy.
    pub copies: MemorySet,
    /// Why they came there last, if the history still knows.
    pub reason: Option<Reason>,
}

/// One move, as the history keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// When it was finished.
    pub at: Time,
    /// The pages.
    pub range: PageRange,
    /// Source; `None` if the pages were fresh.
    pub from: Option<MemoryId>,
    /// Destination.
    pub to: MemoryId,
    /// Why.
    pub reason: Reason,
}

/// An allocation, for reports and for error messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectView {
    /// Its number.
    pub id: ObjectId,
    /// Its name; may be empty.
    pub name: Arc<str>,
    /// Its pages.
    pub range: PageRange,
    /// Bytes asked for.
    pub bytes: u64,
    /// Pages moved within it so far, for whatever reason; those filled with zeros as well.
    pub pages_moved: u64,
    /// Those of them that came from another memory because somebody touched them, or a neighbour.
    pub pages_fetched: u64,
    /// Pages of it that left a full card, with a copy or without.
    pub pages_evicted: u64,
}

/// The allocation next to an address, for the message about a wild one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nearest {
    /// The allocation.
    pub object: ObjectView,
    /// Bytes from the allocation to the address: negative before it, 0 inside, positive past it.
    pub distance: i128,
}

/// A range that agents fought over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fight {
    /// The page.
    pub page: PageNo,
    /// Those who fought.
    pub agents: AgentSet,
    /// Times a fault on it had to wait.
    pub throttles: u32,
    /// Times it was pinned.
    pub pins: u32,
    /// Times that it showed that its whole allocation is fought over, which was settled then.
    pub settled: u32,
}

impl Driver {
    /// A copy that was counted as a round trip to a card was none: its bytes had come before they were wanted.
    pub fn came_along(&mut self) {
        self.stats.awaited_trips = self.stats.awaited_trips.saturating_sub(1);
        self.stats.posted_commands += 1;
    }

    /// All that is known of one page.
    pub fn page(&self, page: PageNo) -> PageView {
        let entry = self.table.get(page);
        let copies = entry.directory.copies();
        let owner = (!copies.is_empty()).then(|| entry.owner());
        PageView {
            state: entry.state,
            owner,
            frame: owner.map_or(FrameNo(0), |memory| self.frame_at(page, entry, memory)),
            copies,
            mappers: entry.directory.mappers(),
            writers: entry.directory.writers(),
            pinned: entry.has(flag::PINNED),
        }
    }

    /// Where the program wants a page to stay by its latest pin; nothing if it has none.
    pub fn pinned_at(&self, page: PageNo) -> Option<MemoryId> {
        self.pins.iter().rev().find(|pin| pin.range.contains(page)).map(|pin| pin.at)
    }

    /// Where the parts of a range are: merged, in ascending order.
    pub fn locate(&self, range: PageRange) -> Vec<Located> {
        let mut parts: Vec<Located> = Vec::new();
        // An adopted slice may be of three allocations: its edges are others than its inner pages.
        let mut left = self.known(range);
        while !left.is_empty() {
            self.locate_known(left, &mut parts);
            let behind = range.end().0.saturating_sub(left.end().0);
            left = self.known(PageRange::new(left.end(), behind));
        }
        for part in &mut parts {
            let newest = self.history.of(part.range).next_back();
            part.reason = newest.filter(|m| Some(m.to) == part.owner).map(|m| m.reason);
        }
        parts
    }

    /// Appends the parts of a range that can be in the space.
    fn locate_known(&self, range: PageRange, parts: &mut Vec<Located>) {
        let mut page = range.start;
        while page < range.end() {
            let view = self.page(page);
            // Where nobody has touched a block its pages are all alike.
            let left = PageRange::new(page, range.end().0 - page.0);
            let alike = PageRange::new(page, self.table.untouched_pages(left).max(1));
            page = alike.end();
            if let Some(last) = parts.last_mut() {
                let same =
                    (last.state, last.owner, last.copies) == (view.state, view.owner, view.copies);
                if same {
                    last.range.count += alike.count;
                    continue;
                }
            }
            parts.push(Located {
                range: alike,
                state: view.state,
                owner: view.owner,
                copies: view.copies,
                reason: None,
            });
        }
    }

    /// The parts of an allocation whose bytes are gone with a card.
    pub fn lost(&self, range: PageRange) -> Vec<PageRange> {
        let parts = self.locate(range).into_iter();
        parts.filter(|part| part.state == PageState::Lost).map(|part| part.range).collect()
    }

    /// The part of a range that can be in the space: in the arena, or in the adopted allocation that it
    /// begins in.
    pub(crate) fn known(&self, range: PageRange) -> PageRange {
        let arena = range.intersection(self.config.arena);
        if !arena.is_empty() {
            return arena;
        }
        let object = self.space.holding(range.start);
        object.map_or(PageRange::new(range.start, 0), |object| range.intersection(object.range))
    }

    /// The merged ranges that have a valid copy on `card`.
    pub fn resident_ranges(&self, card: CardId) -> impl Iterator<Item = PageRange> {
        self.cards[card.0 as usize].residency.iter()
    }

    /// The moves that touched `range`, oldest first, as far back as the history reaches.
    pub fn history(&self, range: PageRange) -> Vec<Moved> {
        self.history.of(range).copied().collect()
    }

    /// Every allocation, ascending.
    pub fn objects(&self) -> Vec<ObjectView> {
        let alive = self.space.objects().filter(|object| !self.lingering.contains(&object.range));
        alive.map(|object| object.view()).collect()
    }

    /// The ranges that the program has pinned at a memory, as often as it has.
    pub fn pins_at(&self, memory: MemoryId) -> Vec<PageRange> {
        let ready = self.pins.iter().filter(|pin| pin.at == memory && pin.ready);
        ready.map(|pin| pin.range).collect()
    }

    /// The allocation nearest to `addr`, for the message about a wild address.
    pub fn nearest(&self, addr: VirtAddr) -> Option<Nearest> {
        let object = self.space.nearest(addr)?.view();
        let first = i128::from(object.range.start.addr().0);
        let past = first + i128::from(object.range.bytes());
        let at = i128::from(addr.0);
        let distance = if at < first {
            at - first
        } else if at < past {
            0
        } else {
            at - past + 1
        };
        Some(Nearest { object, distance })
    }

    /// Pages that agents fought over, worst first.
    pub fn fights(&self) -> Vec<Fight> {
        self.history.fights()
    }

    /// How `page` is placed now: one of the three ways of GRIT.
    pub fn page_mode(&self, page: PageNo) -> PageMode {
        self.placement.mode(page)
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Frames of `card` that are free.
    pub fn free_frames(&self, card: CardId) -> u32 {
        self.cards[card.0 as usize].frames.free()
    }

    /// Frames of `card` that are out of use until it is reset.
    pub fn quarantined_frames(&self, card: CardId) -> u32 {
        self.cards[card.0 as usize].frames.quarantined()
    }

    /// Bytes of all tables.
    pub fn table_bytes(&self) -> usize {
        let cards: usize = self
            .cards
            .iter()
            .map(|card| {
                card.frames.bytes()
                    + card.residency.bytes()
                    + card.replicas.len() * size_of::<(u32, FrameNo)>()
            })
            .sum();
        self.table.bytes() + self.space.bytes() + self.history.bytes() + cards
    }
}
