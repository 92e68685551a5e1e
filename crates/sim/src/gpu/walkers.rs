//! The page table walkers that a GPU's compute units share.

use farside_types::{Span, Time};

/// A fixed number of walkers; a walk takes the one that is free first.
#[derive(Clone, Debug)]
pub(crate) struct Walkers {
    free_at: Vec<Time>,
    /// Per page: when the last walk for it ends. Lookups during a walk share it.
    walked_at: Vec<Time>,
    latency: Span,
}

impl Walkers {
    pub(crate) fn new(walkers: u32, latency: Span, pages: usize) -> Walkers {
        Walkers {
            free_at: vec![Time::ZERO; walkers as usize],
            walked_at: vec![Time::ZERO; pages],
            latency,
        }
    }

    /// When a walk for `page` that is asked for at `at` ends, and whether it is a new one.
    pub(crate) fn walk(&mut self, at: Time, page: u32) -> (Time, bool) {
        let walked_at = &mut self.walked_at[page as usize];
        if *walked_at > at {
            return (*walked_at, false);
        }
        let mut end = at + self.latency;
        if let Some(free_at) = self.free_at.iter_mut().min() {
            end = at.max(*free_at) + self.latency;
            *free_at = end;
        }
        *walked_at = end;
        (end, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_beyond_the_walkers_wait() {
        let mut walkers = Walkers::new(2, Span(400), 8);
        let ends: Vec<_> = (0..4).map(|page| walkers.walk(Time(0), page).0).collect();
        assert_eq!(ends, [Time(400), Time(400), Time(800), Time(800)]);
    }

    #[test]
    fn a_walk_under_way_is_shared() {
        let mut walkers = Walkers::new(1, Span(400), 8);
        assert_eq!(walkers.walk(Time(0), 3), (Time(400), true));
        assert_eq!(walkers.walk(Time(399), 3), (Time(400), false));
        assert_eq!(walkers.walk(Time(400), 3), (Time(800), true));
    }
}
