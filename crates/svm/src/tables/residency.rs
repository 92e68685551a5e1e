//! The residency map of one memory: the merged virtual ranges that have a valid copy there
//! (multi-FPGA SVM paper, section IV-B1).
//!
//! The paper keeps an interval tree. A bit per page in blocks of 512 gives the same answers: ranges
//! merge by themselves, and a page or a whole block comes and goes in a few words, where the tree
//! took most of the driver's time as soon as pages moved singly (measured: `docs/design-notes.md`).

use farside_types::{BLOCK_PAGES, PageNo, PageRange};
use serde::{Deserialize, Serialize};

use crate::tables::blocks::Blocks;
use crate::tables::layout::Layout;

const WORD: u64 = u64::BITS as u64;
const WORDS: usize = (BLOCK_PAGES / WORD) as usize;

/// A set of pages of the space, read as merged ranges.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Residency {
    layout: Layout,
    blocks: Blocks<u64, WORDS>,
    pages: u64,
}

impl Residency {
    /// An empty map of a space.
    pub(crate) fn new(layout: Layout) -> Residency {
        Residency { layout, blocks: Blocks::new(), pages: 0 }
    }

    /// Makes room for `range`, so that nobody who enters pages of it has to.
    pub(crate) fn make_room(&mut self, range: PageRange) {
        self.blocks.make_room(self.layout.end_of(range));
    }

    /// The space has other blocks now.
    pub(crate) fn lay_out(&mut self, layout: Layout) {
        self.layout = layout;
    }

    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// The merged ranges, ascending; those of adopted memory behind them, block by block.
    pub(crate) fn iter(&self) -> impl Iterator<Item = PageRange> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let first = self.find(next, true)?;
            let mut end = self.find(first, false).unwrap_or(self.blocks.len() as u64 * BLOCK_PAGES);
            if !self.layout.is_arena_number(first) {
                end = end.min((first / BLOCK_PAGES + 1) * BLOCK_PAGES);
            }
            next = end;
            Some(PageRange::new(self.layout.page_at(first as u32), end - first))
        })
    }

    /// The first index from `from` on that is (`set`) or is not in the map; `None` behind its end.
    fn find(&self, from: u64, set: bool) -> Option<u64> {
        let mut index = from;
        let end = self.blocks.len() as u64 * BLOCK_PAGES;
        while index < end {
            let word = self.word(index);
            let wanted = if set { word } else { !word } >> (index % WORD);
            if wanted != 0 {
                return Some(index + u64::from(wanted.trailing_zeros()));
            }
            index = (index / WORD + 1) * WORD;
        }
        None
    }

    fn word(&self, index: u64) -> u64 {
        match self.blocks.get((index / BLOCK_PAGES) as usize) {
            Some(block) => block[(index % BLOCK_PAGES / WORD) as usize],
            None => 0,
        }
    }

    pub(crate) fn contains(&self, page: PageNo) -> bool {
        let Some(slot) = self.layout.slot(page) else { return false };
        let index = slot as u64 * BLOCK_PAGES + page.0 % BLOCK_PAGES;
        self.word(index) >> (index % WORD) & 1 == 1
    }

    /// Adds pages, of which none is in the set.
    pub(crate) fn insert(&mut self, range: PageRange) {
        self.pages += range.count;
        self.each_word(range, |word, mask| {
            debug_assert!(*word & mask == 0, "a page of {range} is resident already");
            *word |= mask;
        });
    }

    /// Removes pages, all of which are in the set.
    pub(crate) fn remove(&mut self, range: PageRange) {
        self.pages -= range.count;
        self.each_word(range, |word, mask| {
            debug_assert!(*word & mask == mask, "a page of {range} is not resident");
            *word &= !mask;
        });
    }

    /// Calls `change` with every word that `range` touches and the bits of it.
    fn each_word(&mut self, range: PageRange, change: impl Fn(&mut u64, u64)) {
        let mut page = range.start;
        while page < range.end() {
            let slot = self.layout.slot(page).expect("what is resident is in the space");
            let block = self.blocks.get_or_make(slot, || [0; WORDS]);
            let bit = page.0 % WORD;
            let count = (WORD - bit).min(range.end().0 - page.0);
            let mask = (u64::MAX >> (WORD - count)) << bit;
            change(&mut block[(page.0 % BLOCK_PAGES / WORD) as usize], mask);
            page = page.offset(count);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.blocks.bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const START: PageNo = PageNo(1024);

    proptest! {
        #[test]
        fn agrees_with_a_set_of_pages(
            steps in prop::collection::vec((0u64..1400, 1u64..300), 1..120),
        ) {
            let mut map = Residency::new(Layout::new(PageRange::new(START, 1 << 12)));
            let mut pages = BTreeSet::new();
            for (start, count) in steps {
                let range = PageRange::new(START.offset(start), count);
                let held = range.pages().filter(|p| pages.contains(p)).count();
                if held == 0 {
                    map.insert(range);
                    pages.extend(range.pages());
                } else {
                    for page in range.pages().filter(|p| pages.remove(p)) {
                        map.remove(PageRange::page(page));
                    }
                }
                let listed: Vec<PageNo> =
                    map.iter().flat_map(|r| r.pages().collect::<Vec<_>>()).collect();
                prop_assert_eq!(&listed, &pages.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(map.pages(), pages.len() as u64);
                let merged: Vec<PageRange> = map.iter().collect();
                let apart = merged.windows(2).all(|w| w[0].end() < w[1].start);
                prop_assert!(apart, "not merged: {:?}", merged);
                for page in PageRange::new(PageNo(1000), 2000).pages() {
                    prop_assert_eq!(map.contains(page), pages.contains(&page));
                }
            }
        }
    }
}
