//! The page table: one entry per page of the space, in blocks of 512, dense where it is used. A block of
//! the arena of which no page was ever touched has one entry for all of them.

use farside_types::{BLOCK_PAGES, FrameNo, PageNo, PageRange};
use serde::{Deserialize, Serialize};

use crate::tables::blocks::Blocks;
use crate::tables::layout::Layout;
use crate::tables::page::PageEntry;

type Block = [PageEntry; BLOCK_PAGES as usize];

/// Entries of all pages of the space.
#[derive(Serialize, Deserialize)]
pub(crate) struct PageTable {
    layout: Layout,
    blocks: Blocks<PageEntry, { BLOCK_PAGES as usize }>,
    /// By block: the entry of all its pages, where nobody has touched one of them.
    untouched: Vec<PageEntry>,
    absent: PageEntry,
}

impl PageTable {
    pub(crate) fn new(arena: PageRange) -> PageTable {
        let absent = PageEntry::default();
        PageTable {
            layout: Layout::new(arena),
            blocks: Blocks::new(),
            untouched: Vec::new(),
            absent,
        }
    }

    /// The number of a page of the space; the host's frame of the page.
    #[inline]
    pub(crate) fn index(&self, page: PageNo) -> u32 {
        self.layout.index(page)
    }

    /// The page of a number.
    #[inline]
    pub(crate) fn page_at(&self, index: u32) -> PageNo {
        self.layout.page_at(index)
    }

    /// Whether there are entries for `page`.
    #[inline]
    pub(crate) fn covers(&self, page: PageNo) -> bool {
        self.layout.contains(page)
    }

    /// Makes entries for pages outside the arena; `false` where there are no more numbers for pages.
    pub(crate) fn adopt(&mut self, range: PageRange) -> bool {
        self.layout.adopt(range)
    }

    /// There are no entries for `range`, which was adopted, any more.
    pub(crate) fn disown(&mut self, range: PageRange) {
        self.layout.disown(range);
    }

    pub(crate) fn host_frame(&self, page: PageNo) -> FrameNo {
        FrameNo(self.index(page))
    }

    /// The entry of `page`; that of an unallocated page outside the space.
    #[inline]
    pub(crate) fn get(&self, page: PageNo) -> &PageEntry {
        let Some(slot) = self.layout.slot(page) else { return &self.absent };
        match self.blocks.get(slot) {
            Some(block) => &block[(page.0 % BLOCK_PAGES) as usize],
            None => self.untouched.get(slot).unwrap_or(&self.absent),
        }
    }

    /// The entry of `page`, which lies in the space.
    #[inline]
    pub(crate) fn get_mut(&mut self, page: PageNo) -> &mut PageEntry {
        &mut self.block_mut(page)[(page.0 % BLOCK_PAGES) as usize]
    }

    /// The block of `page`, which lies in the space.
    #[inline]
    fn block_mut(&mut self, page: PageNo) -> &mut Block {
        let slot = self.slot(page);
        let all = self.untouched.get(slot).copied().unwrap_or(self.absent);
        self.blocks.get_or_make(slot, || [all; BLOCK_PAGES as usize])
    }

    /// The slot of the block of `page`, which lies in the space.
    #[inline]
    fn slot(&self, page: PageNo) -> usize {
        self.layout.slot(page).unwrap_or_else(|| panic!("{page} is outside the space"))
    }

    /// Whether no page of the block that starts at `page` was ever touched.
    fn is_untouched(&self, page: PageNo) -> bool {
        self.blocks.get(self.slot(page)).is_none()
    }

    /// Makes room for the entries of `range`, so that nobody who touches a page has to.
    pub(crate) fn make_room(&mut self, range: PageRange) {
        self.blocks.make_room(self.layout.end_of(range));
    }

    /// Pages of the blocks that there is room for.
    pub(crate) fn pages(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_PAGES
    }

    /// Pages at the start of `range` in whole blocks that nobody has touched.
    pub(crate) fn untouched_pages(&self, range: PageRange) -> u64 {
        let aligned = range.start.0 % BLOCK_PAGES == 0;
        let blocks = if aligned { range.count / BLOCK_PAGES } else { 0 };
        let starts = (0..blocks).map(|block| range.start.offset(block * BLOCK_PAGES));
        starts.take_while(|&start| self.is_untouched(start)).count() as u64 * BLOCK_PAGES
    }

    /// The parts of `range` in blocks of which a page was touched: all others are as they were
    /// allocated.
    pub(crate) fn touched(&self, range: PageRange) -> Vec<PageRange> {
        let mut parts: Vec<PageRange> = Vec::new();
        for piece in self.pieces(range) {
            if self.is_untouched(piece.start) {
                continue;
            }
            match parts.last_mut().filter(|last| last.end() == piece.start) {
                Some(last) => last.count += piece.count,
                None => parts.push(piece),
            }
        }
        parts
    }

    /// `range` cut at the borders of blocks.
    fn pieces(&self, range: PageRange) -> impl Iterator<Item = PageRange> + use<> {
        let mut page = range.start;
        std::iter::from_fn(move || {
            let count = (BLOCK_PAGES - page.0 % BLOCK_PAGES).min(range.end().0 - page.0);
            let piece = PageRange::new(page, count);
            page = piece.end();
            (count > 0).then_some(piece)
        })
    }

    /// How many pages at the start of `range`, and of its block, are alike, and if on a card in frames
    /// that go on; at least one.
    pub(crate) fn stretch(&self, range: PageRange) -> u64 {
        let within = range.start.0 % BLOCK_PAGES;
        let end = (within + range.count).min(BLOCK_PAGES);
        let Some(block) = self.blocks.get(self.slot(range.start)) else {
            return end - within;
        };
        let entries = &block[within as usize..end as usize];
        let first = &entries[0];
        if first.is_alone() {
            return 1;
        }
        let behind = entries.iter().zip(0..).take_while(|(entry, at)| entry.continues(first, *at));
        behind.count() as u64
    }

    /// Does the same to every entry of `range`: once for a block that nobody has touched.
    pub(crate) fn update(&mut self, range: PageRange, mut change: impl FnMut(&mut PageEntry)) {
        let end = if self.layout.is_arena(range.start) { self.layout.end_of(range) } else { 0 };
        if self.untouched.len() < end {
            self.untouched.resize(end, self.absent);
        }
        for piece in self.pieces(range) {
            let whole = piece.count == BLOCK_PAGES && self.layout.is_arena(piece.start);
            if whole && self.is_untouched(piece.start) {
                let slot = self.slot(piece.start);
                change(&mut self.untouched[slot]);
            } else {
                self.for_each_mut(piece, |_, entry| change(entry));
            }
        }
    }

    /// Calls `each` with every entry of `range`, in order.
    pub(crate) fn for_each_mut(
        &mut self,
        range: PageRange,
        mut each: impl FnMut(PageNo, &mut PageEntry),
    ) {
        let mut page = range.start;
        while page < range.end() {
            // One look-up per block, not per page.
            let within = page.0 % BLOCK_PAGES;
            let count = (BLOCK_PAGES - within).min(range.end().0 - page.0);
            let entries = &mut self.block_mut(page)[within as usize..(within + count) as usize];
            for (i, entry) in entries.iter_mut().enumerate() {
                each(page.offset(i as u64), entry);
            }
            page = page.offset(count);
        }
    }

    /// Calls `each` with the entries of `range` in blocks that have a place: what was adopted may be the program's
    /// again, all of it or the blocks that no other range has.
    pub(crate) fn for_each_known_mut(
        &mut self,
        range: PageRange,
        mut each: impl FnMut(&mut PageEntry),
    ) {
        for piece in self.pieces(range) {
            if self.covers(piece.start) {
                self.for_each_mut(piece, |_, entry| each(entry));
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.layout.bytes()
            + self.blocks.bytes()
            + self.untouched.capacity() * size_of::<PageEntry>()
    }
}

#[cfg(test)]
mod tests {
    use farside_types::{MemoryId, MemorySet};

    use super::*;
    use crate::tables::page::{PageState, flag};

    const ARENA: PageRange = PageRange::new(PageNo(512), 8 * BLOCK_PAGES);

    #[test]
    fn a_block_that_nobody_touched_has_one_entry_until_somebody_does() {
        let mut table = PageTable::new(ARENA);
        let most = PageRange::new(PageNo(512 + 100), 6 * BLOCK_PAGES);
        table.update(most, |entry| entry.set(flag::READ_ONLY, true));
        // Of the first and the last block only a part is meant.
        assert_eq!(table.blocks.present(), 2);
        assert!(most.pages().all(|page| table.get(page).has(flag::READ_ONLY)));
        assert!(!table.get(PageNo(512 + 99)).has(flag::READ_ONLY));
        assert!(!table.get(most.end()).has(flag::READ_ONLY));
        let page = PageNo(512 + 3 * BLOCK_PAGES + 7);
        table.get_mut(page).set(flag::PINNED, true);
        assert!(table.get(page).has(flag::READ_ONLY | flag::PINNED));
        assert!(!table.get(page.offset(1)).has(flag::PINNED));
        assert!(table.get(page.offset(1)).has(flag::READ_ONLY));
        let touched = table.touched(ARENA);
        let blocks: Vec<u64> = touched.iter().map(|r| (r.start.0 - 512) / BLOCK_PAGES).collect();
        assert_eq!(blocks, [0, 3, 6]);
        let middle = PageRange::new(PageNo(512 + BLOCK_PAGES), 7 * BLOCK_PAGES);
        assert_eq!(table.untouched_pages(middle), 2 * BLOCK_PAGES);
    }

    #[test]
    fn a_stretch_ends_where_a_page_is_not_like_the_first_or_its_frame_does_not_follow() {
        let mut table = PageTable::new(ARENA);
        let range = PageRange::new(PageNo(512 + 10), 600);
        assert_eq!(table.stretch(range), 502, "to the end of a block that nobody touched");
        let mut frame = FrameNo(700);
        table.for_each_mut(range, |_, entry| {
            entry.directory.set_copies(MemorySet::only(MemoryId(1)));
            (entry.state, entry.owner, entry.frame) = (PageState::Card, 1, frame);
            frame = frame.offset(1);
        });
        assert_eq!(table.stretch(range), 502);
        let from = |at: u64| PageRange::new(range.start.offset(at), range.count - at);
        // Another frame than the next one.
        table.get_mut(range.start.offset(7)).frame = FrameNo(3);
        assert_eq!(
            (table.stretch(range), table.stretch(from(7)), table.stretch(from(8))),
            (7, 1, 494)
        );
        // Another right.
        table.get_mut(range.start.offset(20)).set(flag::READ_ONLY, true);
        assert_eq!(
            (table.stretch(from(8)), table.stretch(from(20)), table.stretch(from(21))),
            (12, 1, 481)
        );
        // Its copies' frames are not in the entries.
        let replicated = [MemoryId(1), MemoryId(2)].into_iter().collect();
        table.for_each_mut(from(30), |_, entry| entry.directory.set_copies(replicated));
        assert_eq!((table.stretch(from(21)), table.stretch(from(30))), (9, 1));
    }
}
