//! The allocations that a scheme was told of, and its word about each of their pages.

use std::collections::BTreeMap;

use farside_types::{PageNo, PageRange};

/// What is kept for a scheme. A word is there from the allocation on, so that nobody who faults waits for
/// an allocator.
#[derive(Debug)]
pub(crate) struct Notes {
    kept: bool,
    /// By first page; they do not overlap.
    allocations: BTreeMap<PageNo, Allocation>,
    /// Stands for the word of a page that is in no allocation.
    spare: u64,
}

#[derive(Debug)]
struct Allocation {
    pages: PageRange,
    /// One for each page, or none.
    words: Box<[u64]>,
}

impl Notes {
    pub(crate) fn new(kept: bool) -> Notes {
        Notes { kept, allocations: BTreeMap::new(), spare: 0 }
    }

    pub(crate) fn add(&mut self, pages: PageRange) {
        let words = if self.kept { vec![0; pages.count as usize] } else { Vec::new() };
        self.allocations.insert(pages.start, Allocation { pages, words: words.into() });
    }

    pub(crate) fn remove(&mut self, pages: PageRange) {
        self.allocations.remove(&pages.start);
    }

    /// The allocation that all these pages are in.
    pub(crate) fn allocation(&self, pages: PageRange) -> Option<PageRange> {
        let (_, last) = self.allocations.range(..=pages.start).next_back()?;
        last.pages.covers(pages).then_some(last.pages)
    }

    /// Those of these pages, the first of them, that one allocation has.
    pub(crate) fn part(&self, pages: PageRange) -> Option<PageRange> {
        let before = self.allocations.range(..=pages.start).next_back();
        let within = self.allocations.range(pages.start..pages.end());
        let parts = before.into_iter().chain(within).map(|(_, it)| it.pages.intersection(pages));
        parts.into_iter().find(|part| part.count > 0)
    }

    /// Where the word of a page is; null where none is kept.
    pub(crate) fn word(&mut self, page: PageNo) -> *mut u64 {
        if !self.kept {
            return std::ptr::null_mut();
        }
        self.spare = 0;
        if let Some(words) = self.words(PageRange::page(page)) {
            return words.as_mut_ptr();
        }
        &raw mut self.spare
    }

    /// The words of these pages, if they are kept and all in one allocation.
    pub(crate) fn words(&mut self, pages: PageRange) -> Option<&mut [u64]> {
        let (_, last) = self.allocations.range_mut(..=pages.start).next_back()?;
        let from = (pages.start.0 - last.pages.start.0) as usize;
        last.words.get_mut(from..from.checked_add(pages.count as usize)?)
    }

    /// The word of a page, to look at.
    pub(crate) fn look(&self, page: PageNo) -> u64 {
        let last = self.allocations.range(..=page).next_back();
        let word = last.and_then(|(first, last)| last.words.get((page.0 - first.0) as usize));
        word.copied().unwrap_or(0)
    }

    /// Every allocation with the words that are not zero, by their place in it.
    pub(crate) fn written(&self) -> impl Iterator<Item = (PageRange, Vec<(u64, u64)>)> {
        self.allocations.values().map(|allocation| {
            let words = (0..).zip(allocation.words.iter().copied());
            (allocation.pages, words.filter(|(_, word)| *word != 0).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, count: u64) -> PageRange {
        PageRange::new(PageNo(start), count)
    }

    #[test]
    fn every_page_of_an_allocation_has_a_word_until_it_is_freed() {
        let mut notes = Notes::new(true);
        notes.add(range(100, 4));
        notes.add(range(104, 2));
        notes.words(range(102, 2)).unwrap().copy_from_slice(&[7, 8]);
        assert_eq!([100, 102, 103, 104, 106].map(|page| notes.look(PageNo(page))), [0, 7, 8, 0, 0]);
        assert!(notes.words(range(103, 2)).is_none(), "of two allocations");
        assert!(notes.words(range(99, 1)).is_none() && notes.words(range(106, 1)).is_none());
        notes.remove(range(100, 4));
        notes.add(range(100, 4));
        assert_eq!(notes.look(PageNo(102)), 0);
    }

    #[test]
    fn an_allocation_is_found_by_pages_that_are_all_in_it() {
        let mut notes = Notes::new(false);
        notes.add(range(100, 4));
        assert_eq!(notes.allocation(range(101, 3)), Some(range(100, 4)));
        for outside in [range(101, 4), range(99, 2), range(104, 1)] {
            assert_eq!(notes.allocation(outside), None, "{outside:?}");
        }
        assert!(notes.word(PageNo(101)).is_null(), "nobody wants any");
    }

    #[test]
    fn of_pages_that_no_one_allocation_has_the_first_part_is_found() {
        let mut notes = Notes::new(false);
        notes.add(range(100, 20));
        notes.add(range(130, 8));
        for (pages, part) in [
            (range(112, 16), Some(range(112, 8))),
            (range(96, 16), Some(range(100, 12))),
            (range(112, 32), Some(range(112, 8))),
            (range(124, 16), Some(range(130, 8))),
            (range(101, 3), Some(range(101, 3))),
            (range(120, 10), None),
        ] {
            assert_eq!(notes.part(pages), part, "{pages:?}");
        }
    }
}
