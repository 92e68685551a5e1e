//! Page table walks: the queue, the walkers and the page walk cache that a GPU's compute units
//! share.

use farside_types::{Span, Time};

use super::tlb::Tlb;
use crate::Spec;
use crate::state::state;

/// Bits of a page number that a level of the page table resolves.
const LEVEL_BITS: u32 = 9;

/// A fixed number of walkers; a walk takes the one that is free first, in the order of the queue.
#[derive(Clone, Debug)]
pub(crate) struct Walkers {
    free_at: Vec<Time>,
    /// Entries of the upper levels that were read lately.
    cache: Tlb,
    /// When the latest walks left the queue; as many as the queue has entries.
    left_queue: Vec<Time>,
    next: usize,
    levels: u32,
    level: Span,
}

state!(Walkers {
    values: next;
    fixed: free_at, left_queue;
    parts: cache;
    made: levels, level;
});

/// A walk that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    /// When the queue takes it: later than asked for if the queue is full.
    pub(crate) queued: Time,
    /// When a walker begins with it.
    pub(crate) begun: Time,
    /// When it ends.
    pub(crate) end: Time,
    /// Levels of the page table that the walk cache did not know.
    pub(crate) levels: u32,
}

impl Walkers {
    pub(crate) fn new(spec: &Spec) -> Walkers {
        let walk = &spec.walk;
        // A page of 2 MiB is found a level higher.
        let levels = walk.levels as u32 - u32::from(spec.page.bytes > 4_096);
        Walkers {
            free_at: vec![Time::ZERO; walk.walkers as usize],
            cache: Tlb::new(walk.cache_entries, walk.cache_entries),
            left_queue: vec![Time::ZERO; walk.queue_entries as usize],
            next: 0,
            levels: levels.max(1),
            level: spec.cycles(walk.level_cycles),
        }
    }

    /// A walk for `page` that is asked for at `at`.
    pub(crate) fn walk(&mut self, at: Time, page: u32) -> Walk {
        let queued = at.max(self.left_queue[self.next]);
        let levels = self.levels_to_read(page);
        let latency = Span(self.level.0 * u64::from(levels));
        let free = self.free_at.iter_mut().min().expect("there is a walker");
        let begun = queued.max(*free);
        let end = begun + latency;
        *free = end;
        self.left_queue[self.next] = begun;
        self.next = (self.next + 1) % self.left_queue.len();
        Walk { queued, begun, end, levels }
    }

    /// Looks the upper levels up from the lowest on, takes what was read into the walk cache.
    fn levels_to_read(&mut self, page: u32) -> u32 {
        let key = |level: u32| (level << 28) | (page >> (LEVEL_BITS * level));
        let known = (1..self.levels).find(|&level| self.cache.lookup(key(level)));
        let read = known.unwrap_or(self.levels);
        for level in 1..read {
            self.cache.insert(key(level));
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walkers(text: &str) -> Walkers {
        Walkers::new(&Spec::from_toml(text).unwrap())
    }

    #[test]
    fn a_walk_costs_the_levels_that_are_not_cached() {
        let mut walkers = walkers("");
        let levels = |walkers: &mut Walkers, page| walkers.walk(Time(0), page).levels;
        assert_eq!(levels(&mut walkers, 3), 4);
        assert_eq!(levels(&mut walkers, 4), 1, "same leaf table");
        assert_eq!(levels(&mut walkers, 512), 2, "same table one level up");
        assert_eq!(levels(&mut walkers, 1 << 18), 3);
    }

    #[test]
    fn walks_beyond_the_walkers_wait() {
        let mut walkers = walkers("[walk]\nwalkers = 2\nlevels = 1\nlevel_cycles = 400");
        let ends: Vec<_> = (0..4).map(|page| walkers.walk(Time(0), page).end).collect();
        assert_eq!(ends, [400, 400, 800, 800].map(Time::from_nanos));
    }

    #[test]
    fn a_full_queue_takes_a_walk_when_one_has_left() {
        let mut walkers =
            walkers("[walk]\nwalkers = 1\nlevels = 1\nlevel_cycles = 100\nqueue_entries = 2");
        let queued: Vec<_> = (0..5).map(|page| walkers.walk(Time(0), page).queued).collect();
        assert_eq!(queued, [0, 0, 0, 100, 200].map(Time::from_nanos));
    }

    #[test]
    fn a_large_page_has_a_level_less() {
        let mut walkers = walkers("[page]\nbytes = 2097152");
        assert_eq!(walkers.walk(Time(0), 3).levels, 3);
    }
}
