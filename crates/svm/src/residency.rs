//! The residency map of one memory: the merged virtual ranges that have a valid copy there
//! (multi-FPGA SVM paper, section IV-B1).

use std::collections::BTreeMap;

use farside_types::{PageNo, PageRange};

/// Disjoint, merged ranges of pages.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub(crate) struct Residency {
    /// Start → end.
    ranges: BTreeMap<u64, u64>,
    pages: u64,
}

impl Residency {
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = PageRange> {
        self.ranges.iter().map(|(&start, &end)| PageRange::new(PageNo(start), end - start))
    }

    pub(crate) fn contains(&self, page: PageNo) -> bool {
        self.ranges.range(..=page.0).next_back().is_some_and(|(_, &end)| end > page.0)
    }

    /// Adds pages, of which none is in the set.
    pub(crate) fn insert(&mut self, range: PageRange) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start.0, range.end().0);
        self.pages += range.count;
        if let Some((&before, before_end)) = self.ranges.range_mut(..=start).next_back() {
            debug_assert!(*before_end <= start, "{range} is resident already");
            if *before_end == start {
                // Extending in place saves an insertion: the common case of a growing range.
                *before_end = end;
                start = before;
                if let Some(after_end) = self.ranges.remove(&end) {
                    end = after_end;
                    self.ranges.insert(start, end);
                }
                return;
            }
        }
        if let Some(after_end) = self.ranges.remove(&end) {
            end = after_end;
        }
        self.ranges.insert(start, end);
    }

    /// Removes pages, all of which are in the set.
    pub(crate) fn remove(&mut self, range: PageRange) {
        if range.is_empty() {
            return;
        }
        let (start, end) = (range.start.0, range.end().0);
        let Some((&outer, outer_end)) = self.ranges.range_mut(..=start).next_back() else {
            debug_assert!(false, "{range} is not resident");
            return;
        };
        let old_end = *outer_end;
        debug_assert!(old_end >= end, "{range} is not resident as a whole");
        self.pages -= range.count;
        if outer == start {
            self.ranges.remove(&outer);
        } else {
            *outer_end = start;
        }
        if old_end > end {
            self.ranges.insert(end, old_end);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        // A node of the tree holds up to 11 pairs and is two thirds full on average.
        self.ranges.len() * size_of::<(u64, u64)>() * 3 / 2
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_set_of_pages(steps in prop::collection::vec((0u64..60, 1u64..12), 1..200)) {
            let mut map = Residency::default();
            let mut pages = BTreeSet::new();
            for (start, count) in steps {
                let range = PageRange::new(PageNo(start), count);
                let held = range.pages().filter(|p| pages.contains(p)).count();
                if held == 0 {
                    map.insert(range);
                    pages.extend(range.pages());
                } else {
                    for page in range.pages().filter(|p| pages.remove(p)) {
                        map.remove(PageRange::page(page));
                    }
                }
                let listed: Vec<PageNo> = map.iter().flat_map(|r| r.pages().collect::<Vec<_>>()).collect();
                prop_assert_eq!(&listed, &pages.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(map.pages(), pages.len() as u64);
                let merged: Vec<PageRange> = map.iter().collect();
                prop_assert!(merged.windows(2).all(|w| w[0].end() < w[1].start), "not merged: {:?}", merged);
                prop_assert!((0..80).all(|p| map.contains(PageNo(p)) == pages.contains(&PageNo(p))));
            }
        }
    }
}
