//! A cache: set associative, least recently used goes first, lines of 64 bytes.
//!
//! Tags are lines of the workload, not of frames: whatever changes a page's frame flushes it. A
//! tag carries the cache's epoch, so that emptying the cache is one addition. A set lies in one
//! piece, in the order of use: this is where a simulation spends its memory accesses.

use farside_types::Time;
use serde::{Deserialize, Serialize};

use crate::state::state;
use farside_workloads::Line;

/// A cache's tags, and when each line has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// Sets of `ways` entries, each from the most to the least recently used.
    entries: Box<[Entry]>,
    /// The set of the line that was looked up or taken in last; the line is its first.
    last: usize,
    ways: usize,
    set_mask: u32,
    epoch: u64,
    dirty: u32,
}

state!(Cache {
    values: last, epoch, dirty;
    fixed: entries;
    made: ways, set_mask;
});

/// A place for a line.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Entry {
    /// Epoch and line.
    tag: u64,
    /// The time at which the line is there, and whether it is dirty (lowest bit).
    state: u64,
}

const DIRTY: u64 = 1;

impl Cache {
    /// Of `bytes` bytes in sets of `ways`; the specification has checked that sets are a power of
    /// two.
    pub(crate) fn new(bytes: u32, ways: u32) -> Cache {
        let entries = (bytes / farside_workloads::LINE_BYTES as u32) as usize;
        Cache {
            entries: vec![Entry::default(); entries].into(),
            last: 0,
            ways: ways as usize,
            set_mask: entries as u32 / ways - 1,
            epoch: 1 << 32,
            dirty: 0,
        }
    }

    /// Where the set of `line` begins.
    #[inline]
    fn start(&self, line: Line) -> usize {
        // Lines of one column of a large matrix share their low bits; hardware hashes, too.
        let hash = line.0 ^ (line.0 >> 7) ^ (line.0 >> 15);
        (hash & self.set_mask) as usize * self.ways
    }

    /// When `line`, if it is held or on its way, is there. It becomes the most recently used.
    #[inline]
    pub(crate) fn lookup(&mut self, line: Line) -> Option<Time> {
        let start = self.start(line);
        let set = &mut self.entries[start..start + self.ways];
        let tag = self.epoch | u64::from(line.0);
        if set[0].tag == tag {
            self.last = start;
            return Some(Time(set[0].state >> 1));
        }
        let way = set.iter().position(|held| held.tag == tag)?;
        let held = set[way];
        set.copy_within(..way, 1);
        set[0] = held;
        self.last = start;
        Some(Time(held.state >> 1))
    }

    /// Has the processor that simulates fetch the sets of `lines`, which are looked up next: all at once takes as long
    /// as one of them alone.
    #[inline]
    pub(crate) fn fetch(&self, lines: &[Line]) {
        let tags = lines.iter().map(|&line| self.entries[self.start(line)].tag);
        std::hint::black_box(tags.fold(0, |all, tag| all ^ tag));
    }

    /// Takes `line`, which it does not hold, in; it is there at `ready`. Returns the line that has
    /// to be written back for it.
    #[inline]
    pub(crate) fn insert(&mut self, line: Line, ready: Time) -> Option<Line> {
        let start = self.start(line);
        let set = &mut self.entries[start..start + self.ways];
        let old = set[self.ways - 1];
        set.copy_within(..self.ways - 1, 1);
        set[0] = Entry { tag: self.epoch | u64::from(line.0), state: ready.0 << 1 };
        self.last = start;
        let live = old.tag >> 32 == self.epoch >> 32;
        if live && old.state & DIRTY != 0 {
            self.dirty -= 1;
            return Some(Line(old.tag as u32));
        }
        None
    }

    /// Marks the line that was looked up or taken in last, `line`, as dirty.
    pub(crate) fn mark_dirty(&mut self, line: Line) {
        let held = &mut self.entries[self.last];
        debug_assert_eq!(held.tag, self.epoch | u64::from(line.0));
        if held.state & DIRTY == 0 {
            held.state |= DIRTY;
            self.dirty += 1;
        }
    }

    /// Empties it and returns how many lines were dirty.
    pub(crate) fn flush(&mut self) -> u32 {
        self.epoch += 1 << 32;
        std::mem::take(&mut self.dirty)
    }

    /// Drops the lines from `first` on, `count` of them (a power of two that `first` is aligned
    /// to), and returns how many were dirty.
    pub(crate) fn flush_page(&mut self, first: Line, count: u32) -> u32 {
        let page = (self.epoch | u64::from(first.0)) & !u64::from(count - 1);
        let mut dirty = 0;
        for held in &mut self.entries {
            if held.tag & !u64::from(count - 1) == page {
                held.tag = 0;
                dirty += (held.state & DIRTY) as u32;
            }
        }
        self.dirty -= dirty;
        dirty
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cache() -> Cache {
        Cache::new(256, 4)
    }

    #[test]
    fn the_least_recently_used_goes_first_and_is_written_back_if_dirty() {
        let mut cache = cache();
        for line in 0..4 {
            assert_eq!(cache.insert(Line(line), Time(u64::from(line))), None);
        }
        cache.lookup(Line(1)).unwrap();
        cache.mark_dirty(Line(1));
        assert_eq!(cache.lookup(Line(0)), Some(Time(0)));
        assert_eq!(cache.insert(Line(4), Time(9)), None, "2 was clean");
        assert_eq!(cache.lookup(Line(2)), None);
        assert_eq!(cache.insert(Line(5), Time(9)), None, "3 was clean");
        assert_eq!(cache.insert(Line(6), Time(9)), Some(Line(1)));
    }

    #[test]
    fn a_flush_empties_it_and_counts_what_was_dirty() {
        let mut cache = cache();
        cache.insert(Line(7), Time(1));
        cache.mark_dirty(Line(7));
        cache.mark_dirty(Line(7));
        cache.insert(Line(8), Time(1));
        assert_eq!(cache.flush(), 1);
        assert_eq!((cache.lookup(Line(7)), cache.lookup(Line(8))), (None, None));
        assert_eq!(cache.flush(), 0);
        assert!((0..8).all(|line| cache.insert(Line(line), Time(1)).is_none()));
    }

    #[test]
    fn the_lines_of_a_page_go_alone() {
        let mut cache = Cache::new(4096, 4);
        cache.insert(Line(64), Time(1));
        cache.mark_dirty(Line(64));
        cache.insert(Line(127), Time(1));
        cache.insert(Line(128), Time(1));
        assert_eq!(cache.flush_page(Line(64), 64), 1);
        assert_eq!((cache.lookup(Line(64)), cache.lookup(Line(127))), (None, None));
        assert!(cache.lookup(Line(128)).is_some());
    }

    proptest! {
        /// Against a list per set, kept in order of use.
        #[test]
        fn behaves_like_a_list(
            ways in prop_oneof![1u32..=9, Just(16)],
            steps in prop::collection::vec((0u8..4, 0u32..48), 0..300),
        ) {
            let mut cache = Cache::new(2 * ways * farside_workloads::LINE_BYTES as u32, ways);
            let mut lists = [const { Vec::<(u32, u64, bool)>::new() }; 2];
            for (at, (step, line)) in (1..).zip(steps) {
                let list = &mut lists[line as usize % 2];
                let held = list.iter().position(|held| held.0 == line).map(|way| list.remove(way));
                let found = cache.lookup(Line(line)).map(|at| at.0);
                prop_assert_eq!(found, held.map(|held| held.1));
                list.splice(..0, held);
                match (step, held) {
                    (0, Some(_)) => {
                        cache.mark_dirty(Line(line));
                        list[0].2 = true;
                    }
                    (0 | 1, None) => {
                        let gone = if list.len() == ways as usize { list.pop() } else { None };
                        let back = gone.filter(|gone| gone.2).map(|gone| Line(gone.0));
                        prop_assert_eq!(cache.insert(Line(line), Time(at)), back);
                        list.insert(0, (line, at, false));
                    }
                    _ => {}
                }
            }
            let dirty = lists.iter().flatten().filter(|held| held.2).count();
            prop_assert_eq!(cache.flush() as usize, dirty);
        }
    }
}
