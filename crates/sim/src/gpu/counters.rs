//! Access counters: remote accesses by group of pages (GRIT, section II-B2).

use crate::state::state;

/// The counters of one GPU.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    counts: Vec<u32>,
    threshold: u32,
    group_shift: u32,
}

state!(Counters {
    fixed: counts;
    made: threshold, group_shift;
});

impl Counters {
    /// Groups of `group_pages`, a power of two.
    pub(crate) fn new(pages: usize, group_pages: u32, threshold: u32) -> Counters {
        let group_shift = group_pages.trailing_zeros();
        Counters { counts: vec![0; (pages >> group_shift) + 1], threshold, group_shift }
    }

    /// Counts a remote access. At the threshold: the group's first page, and it counts from 0.
    pub(crate) fn count(&mut self, page: u32) -> Option<u32> {
        let group = page >> self.group_shift;
        let count = &mut self.counts[group as usize];
        *count += 1;
        if *count < self.threshold {
            return None;
        }
        *count = 0;
        Some(group << self.group_shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_access_that_reaches_the_threshold_is_told_with_its_group() {
        let mut counters = Counters::new(64, 16, 3);
        assert_eq!(counters.count(16), None);
        assert_eq!(counters.count(31), None);
        assert_eq!(counters.count(15), None, "another group");
        assert_eq!(counters.count(20), Some(16));
        assert_eq!(counters.count(20), None, "counts from 0 again");
    }
}
