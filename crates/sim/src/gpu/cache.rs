//! A cache: set associative, least recently used goes first, lines of 64 bytes.
//!
//! Tags are lines of the workload, not of frames: whatever changes a page's frame flushes it. A
//! tag carries the cache's epoch, so that emptying the cache is one addition.

use farside_types::Time;

use crate::state::state;
use crate::workload::Line;

/// A cache's tags, and when each line has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// Sets of `ways` tags: epoch and line.
    tags: Box<[u64]>,
    /// Beside each tag: the time at which the line is there, and whether it is dirty (lowest bit).
    lines: Box<[u64]>,
    /// Beside each tag: when it was used last, in uses of the cache.
    used: Box<[u64]>,
    uses: u64,
    /// Where the line is that was looked up or taken in last.
    last: usize,
    ways: usize,
    set_mask: u32,
    epoch: u64,
    dirty: u32,
}

state!(Cache {
    values: uses, last, epoch, dirty;
    fixed: tags, lines, used;
    made: ways, set_mask;
});

const DIRTY: u64 = 1;

impl Cache {
    /// Of `bytes` bytes in sets of `ways`; the specification has checked that sets are a power of
    /// two.
    pub(crate) fn new(bytes: u32, ways: u32) -> Cache {
        let entries = (bytes / crate::workload::LINE_BYTES as u32) as usize;
        Cache {
            tags: vec![0; entries].into(),
            lines: vec![0; entries].into(),
            used: vec![0; entries].into(),
            uses: 0,
            last: 0,
            ways: ways as usize,
            set_mask: entries as u32 / ways - 1,
            epoch: 1 << 32,
            dirty: 0,
        }
    }

    fn set(&self, line: Line) -> std::ops::Range<usize> {
        // Lines of one column of a large matrix share their low bits; hardware hashes, too.
        let hash = line.0 ^ (line.0 >> 7) ^ (line.0 >> 15);
        let start = (hash & self.set_mask) as usize * self.ways;
        start..start + self.ways
    }

    /// When `line`, if it is held or on its way, is there. It becomes the most recently used.
    #[inline]
    pub(crate) fn lookup(&mut self, line: Line) -> Option<Time> {
        let set = self.set(line);
        let tag = self.epoch | u64::from(line.0);
        let way = self.tags[set.clone()].iter().position(|&held| held == tag)?;
        self.touch(set.start + way);
        Some(Time(self.lines[self.last] >> 1))
    }

    #[inline]
    fn touch(&mut self, at: usize) {
        self.uses += 1;
        self.used[at] = self.uses;
        self.last = at;
    }

    /// Takes `line`, which it does not hold, in; it is there at `ready`. Returns the line that has
    /// to be written back for it.
    #[inline]
    pub(crate) fn insert(&mut self, line: Line, ready: Time) -> Option<Line> {
        let set = self.set(line);
        let mut oldest = set.start;
        for at in set {
            if self.used[at] < self.used[oldest] {
                oldest = at;
            }
        }
        let (old_tag, old) = (self.tags[oldest], self.lines[oldest]);
        self.tags[oldest] = self.epoch | u64::from(line.0);
        self.lines[oldest] = ready.0 << 1;
        self.touch(oldest);
        let live = old_tag >> 32 == self.epoch >> 32;
        if live && old & DIRTY != 0 {
            self.dirty -= 1;
            return Some(Line(old_tag as u32));
        }
        None
    }

    /// Marks the line that was looked up or taken in last, `line`, as dirty.
    pub(crate) fn mark_dirty(&mut self, line: Line) {
        debug_assert_eq!(self.tags[self.last], self.epoch | u64::from(line.0));
        if self.lines[self.last] & DIRTY == 0 {
            self.lines[self.last] |= DIRTY;
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
        for (tag, line) in self.tags.iter_mut().zip(&self.lines) {
            if *tag & !u64::from(count - 1) == page {
                *tag = 0;
                dirty += (*line & DIRTY) as u32;
            }
        }
        self.dirty -= dirty;
        dirty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
