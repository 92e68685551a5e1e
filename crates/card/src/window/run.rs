//! Aligned runs of pages.

/// 2^`size` pages, of which `page` is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) page: u64,
    pub(super) size: u32,
}

impl Run {
    pub(super) fn page(page: u64) -> Run {
        Run { page, size: 0 }
    }

    /// The smallest one that has both pages.
    pub(super) fn around(first: u64, last: u64) -> Run {
        Run { page: first, size: u64::BITS - (first ^ last).leading_zeros() }
    }

    pub(super) fn overlaps(self, other: Run) -> bool {
        (self.page ^ other.page).checked_shr(self.size.max(other.size)).unwrap_or(0) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_overlap_if_one_has_the_other() {
        let run = Run::around(4, 6);
        assert_eq!(run.size, 2);
        assert!([4, 5, 6, 7].iter().all(|&page| run.overlaps(Run::page(page))));
        assert!(!run.overlaps(Run::page(3)) && !run.overlaps(Run::around(8, 9)));
        assert!(Run::around(0, 7).overlaps(run) && run.overlaps(Run::around(0, 7)));
        assert!(Run::around(0, u64::MAX).overlaps(run));
    }
}
