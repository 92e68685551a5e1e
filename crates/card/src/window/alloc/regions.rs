//! Regions: the pages of one leaf table each, and who has them.

use std::collections::{BTreeMap, BTreeSet};

use farside_types::Rights;

use super::bits::Bits;
use super::room_tree::RoomTree;
use super::tables::Table;

/// What the pages of a region of a large allocation have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// Nothing: no page was touched.
    Nothing,
    /// A table of its own.
    Table(Table),
    /// An aligned run of frames, from this one on: its word of the directory maps it.
    Run(u32),
}

/// Who has a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Region {
    /// Nobody.
    Empty,
    /// Small allocations, with so many pages together.
    Shared { table: Table, used: u64 },
    /// A large allocation, so many regions after its first.
    Large { after: u64, part: Part },
    /// Nobody any more; an invalidation has to end before it is empty. Without an end: it is quarantined.
    Retiring { table: Option<Table> },
}

/// A large allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Large {
    pub(super) pages: u64,
    pub(super) memory: u8,
    pub(super) rights: Rights,
}

/// The state of every region.
#[derive(Clone, Debug)]
pub(super) struct Regions {
    states: Vec<Region>,
    /// Those that are not empty.
    taken: Bits,
    /// Of shared ones: the longest row of free pages.
    rooms: RoomTree,
    /// By their first region.
    large: BTreeMap<u64, Large>,
    /// Those where a word could not be written: when nobody has them any more, they are quarantined.
    tainted: BTreeSet<u64>,
}

impl Regions {
    pub(super) fn new(regions: u64) -> Regions {
        Regions {
            states: vec![Region::Empty; regions as usize],
            taken: Bits::new(regions),
            rooms: RoomTree::new(regions as usize),
            large: BTreeMap::new(),
            tainted: BTreeSet::new(),
        }
    }

    pub(super) fn state(&self, region: u64) -> Region {
        self.states[region as usize]
    }

    /// A region's new state; of shared ones `room` is the longest row of free pages.
    pub(super) fn set(&mut self, region: u64, state: Region, room: u64) {
        self.states[region as usize] = state;
        match state {
            Region::Empty => self.taken.clear(region, 1),
            _ => self.taken.set(region, 1),
        }
        let shared = matches!(state, Region::Shared { .. });
        self.rooms.set(region as usize, if shared { room } else { 0 });
    }

    /// The room in a region, if it is shared.
    pub(super) fn room(&self, region: u64) -> u64 {
        self.rooms.get(region as usize)
    }

    /// Pages in use of a shared region.
    pub(super) fn used(&self, region: u64) -> Option<u64> {
        match self.state(region) {
            Region::Shared { used, .. } => Some(used),
            _ => None,
        }
    }

    /// Nothing more is given out of a region.
    pub(super) fn fill(&mut self, region: u64) {
        self.rooms.set(region as usize, 0);
    }

    /// The first shared region with a row of `pages` free ones.
    pub(super) fn with_room(&self, pages: u64) -> Option<u64> {
        self.rooms.first(pages).map(|region| region as u64)
    }

    /// The first of `count` empty regions, one after the other.
    pub(super) fn empty_row(&self, count: u64) -> Option<u64> {
        self.taken.find(count, 0, 0)
    }

    /// Whether nobody has a page.
    pub(super) fn are_unused(&self) -> bool {
        let unused =
            |state: &Region| matches!(state, Region::Empty | Region::Shared { used: 0, .. });
        self.states.iter().all(unused)
    }

    /// Whether `count` regions from `first` on are there, and empty.
    pub(super) fn are_empty(&self, first: u64, count: u64) -> bool {
        self.taken.is_clear(first, count)
    }

    pub(super) fn large(&self, first: u64) -> Option<Large> {
        self.large.get(&first).copied()
    }

    pub(super) fn set_large(&mut self, first: u64, large: Option<Large>) {
        match large {
            Some(large) => self.large.insert(first, large),
            None => self.large.remove(&first),
        };
    }

    pub(super) fn taint(&mut self, region: u64) {
        self.tainted.insert(region);
    }

    pub(super) fn is_tainted(&self, region: u64) -> bool {
        self.tainted.contains(&region)
    }

    /// What the pages of a large allocation's region have.
    pub(super) fn part(&self, region: u64) -> Part {
        match self.state(region) {
            Region::Large { part, .. } => part,
            _ => Part::Nothing,
        }
    }

    pub(super) fn set_part(&mut self, region: u64, new: Part) {
        if let Region::Large { part, .. } = &mut self.states[region as usize] {
            *part = new;
        }
    }

    /// Of whoever has a table for a region's words, this table.
    pub(super) fn table(&self, region: u64) -> Option<Table> {
        match self.state(region) {
            Region::Shared { table, .. } => Some(table),
            Region::Large { part: Part::Table(table), .. } => Some(table),
            _ => None,
        }
    }
}
