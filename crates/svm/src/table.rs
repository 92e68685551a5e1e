//! The page table: one entry per page of the arena, in blocks of 512, dense where it is used.

use farside_types::{BLOCK_PAGES, FrameNo, PageNo, PageRange};
use serde::{Deserialize, Serialize};

use crate::page::PageEntry;

type Block = [PageEntry; BLOCK_PAGES as usize];

/// Entries of all pages of the arena.
#[derive(Serialize, Deserialize)]
pub(crate) struct PageTable {
    arena: PageRange,
    #[serde(with = "crate::state::blocks")]
    blocks: Vec<Option<Box<Block>>>,
    absent: PageEntry,
}

impl PageTable {
    pub(crate) fn new(arena: PageRange) -> PageTable {
        PageTable { arena, blocks: Vec::new(), absent: PageEntry::default() }
    }

    /// Index of a page in the arena; the host's frame of the page.
    #[inline]
    pub(crate) fn index(&self, page: PageNo) -> u32 {
        (page.0 - self.arena.start.0) as u32
    }

    /// The page of an index.
    #[inline]
    pub(crate) fn page_at(&self, index: u32) -> PageNo {
        self.arena.start.offset(u64::from(index))
    }

    pub(crate) fn host_frame(&self, page: PageNo) -> FrameNo {
        FrameNo(self.index(page))
    }

    /// The entry of `page`; that of an unallocated page outside the arena.
    #[inline]
    pub(crate) fn get(&self, page: PageNo) -> &PageEntry {
        if !self.arena.contains(page) {
            return &self.absent;
        }
        let index = page.0 - self.arena.start.0;
        match self.blocks.get((index / BLOCK_PAGES) as usize) {
            Some(Some(block)) => &block[(index % BLOCK_PAGES) as usize],
            _ => &self.absent,
        }
    }

    /// The entry of `page`, which lies in the arena.
    #[inline]
    pub(crate) fn get_mut(&mut self, page: PageNo) -> &mut PageEntry {
        let within = (page.0 - self.arena.start.0) % BLOCK_PAGES;
        &mut self.block_mut(page)[within as usize]
    }

    /// The block of `page`, which lies in the arena.
    #[inline]
    fn block_mut(&mut self, page: PageNo) -> &mut Block {
        assert!(self.arena.contains(page), "{page} is outside the arena");
        let slot = ((page.0 - self.arena.start.0) / BLOCK_PAGES) as usize;
        if slot >= self.blocks.len() {
            self.blocks.resize_with(slot + 1, || None);
        }
        self.blocks[slot]
            .get_or_insert_with(|| Box::new([PageEntry::default(); BLOCK_PAGES as usize]))
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
            let within = (page.0 - self.arena.start.0) % BLOCK_PAGES;
            let count = (BLOCK_PAGES - within).min(range.end().0 - page.0);
            let entries = &mut self.block_mut(page)[within as usize..(within + count) as usize];
            for (i, entry) in entries.iter_mut().enumerate() {
                each(page.offset(i as u64), entry);
            }
            page = page.offset(count);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let used = self.blocks.iter().flatten().count();
        self.blocks.capacity() * size_of::<Option<Box<Block>>>() + used * size_of::<Block>()
    }
}
