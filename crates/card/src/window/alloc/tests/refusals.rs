//! Whether a refusal is right: there is no room, no frame, or no end of something yet. What there is room for is
//! computed from what is allocated, not from what the allocator keeps of it.

use super::super::{AllocError, WindowPages};
use super::bus::Failing;
use super::world::World;

impl World {
    /// Pages of the window.
    pub(super) fn pages(&self) -> u64 {
        self.allocator.layout.regions * self.allocator.layout.region_pages()
    }

    /// Whether so many pages may be refused with this error.
    pub(super) fn may_refuse(&self, error: AllocError, pages: u64, memory: u8, lazy: bool) -> bool {
        // What is quarantined is known to nobody.
        if self.is_quarantining() {
            return true;
        }
        match error {
            AllocError::Busy => self.is_busy(),
            AllocError::BusError => self.bus.failing != Failing::None,
            AllocError::TooLarge => pages > self.pages(),
            AllocError::NoSpace => !self.has_place(pages),
            AllocError::NoFrames => {
                self.lacks_frames(memory, pages, self.tables_for(pages, lazy), lazy)
            }
            _ => false,
        }
    }

    /// Whether `pages` instead of those of the allocation that begins with page `first` may be refused with this error.
    pub(super) fn may_refuse_realloc(
        &self,
        error: AllocError,
        first: u64,
        pages: u64,
        lazy: bool,
    ) -> bool {
        let allocation = &self.live[&first];
        let (old, memory) = (allocation.pages, allocation.memory);
        let grows = pages > old;
        match error {
            AllocError::Busy if allocation.is_large && grows => true,
            AllocError::NoSpace if !self.is_quarantining() => {
                grows && !self.has_place(pages) && !self.grows_in_place(first, pages)
            }
            AllocError::NoFrames if !self.is_quarantining() && grows => {
                let tables = self.tables_for(pages, false).max(1);
                self.lacks_frames(memory, pages - old, tables, lazy)
            }
            // A run that is cut gets a table.
            AllocError::NoFrames if !self.is_quarantining() => {
                allocation.is_large && self.lacks_frames(memory, 0, 1, true)
            }
            _ => self.may_refuse(error, pages, memory, lazy),
        }
    }

    /// Whether a command has to wait.
    fn is_busy(&self) -> bool {
        self.is_waiting() || self.allocator.dying.len() >= 4
    }

    /// Tables that so many pages may need.
    fn tables_for(&self, pages: u64, lazy: bool) -> u64 {
        match self.is_large(pages) {
            true if lazy => 0,
            true => pages.div_ceil(self.allocator.layout.region_pages()),
            false => 1,
        }
    }

    fn lacks_frames(&self, memory: u8, pages: u64, tables: u64, lazy: bool) -> bool {
        let pages = if lazy { 0 } else { pages };
        let free = |memory| self.allocator.free_frames(memory);
        // Of the shapes here no table is larger than a frame.
        let beside = if memory == self.config.tables { tables } else { 0 };
        free(memory) < pages + beside || free(self.config.tables) < tables
    }

    /// Whether there is a place for so many pages: among small allocations, or in empty regions.
    fn has_place(&self, pages: u64) -> bool {
        let region_pages = self.allocator.layout.region_pages();
        let regions = 0..self.allocator.layout.regions;
        if !self.is_large(pages) && regions.clone().any(|region| self.room(region) >= pages) {
            return true;
        }
        let needs = if self.is_large(pages) { pages.div_ceil(region_pages) } else { 1 };
        let mut row = 0;
        regions.into_iter().any(|region| {
            row = if self.is_empty(region) { row + 1 } else { 0 };
            row >= needs && self.allocator.layout.levels > 1
        })
    }

    /// The longest row of free pages of a region with small allocations.
    fn room(&self, region: u64) -> u64 {
        let region_pages = self.allocator.layout.region_pages();
        let pages = region * region_pages..(region + 1) * region_pages;
        let is_shared = self.live.iter().any(|(first, of)| !of.is_large && pages.contains(first));
        if !is_shared && self.allocator.layout.levels > 1 {
            return 0;
        }
        let mut row = 0;
        let rows = pages.map(|page| {
            row = if self.is_free(page) { row + 1 } else { 0 };
            row
        });
        rows.max().unwrap_or(0)
    }

    fn is_empty(&self, region: u64) -> bool {
        let region_pages = self.allocator.layout.region_pages();
        (region * region_pages..(region + 1) * region_pages).all(|page| self.is_free(page))
    }

    fn is_free(&self, page: u64) -> bool {
        let region_pages = self.allocator.layout.region_pages();
        let whole = |pages: u64, is_large| {
            if is_large { pages.next_multiple_of(region_pages) } else { pages }
        };
        let has = |(&first, of): (&u64, &super::world::Allocation)| {
            (first..first + whole(of.pages, of.is_large)).contains(&page)
        };
        // A region that nobody has any more is used again when the sweep is behind it.
        let dies = |pages: WindowPages| {
            let region = page / region_pages;
            let is_left = pages.first / region_pages <= region
                && region <= (pages.end() - 1) / region_pages
                && !self.live.keys().any(|first| first / region_pages == region);
            is_left || pages.contains(page)
        };
        !self.live.iter().any(has) && !self.allocator.dying.iter().any(|dying| dies(dying.pages))
    }

    fn grows_in_place(&self, first: u64, pages: u64) -> bool {
        let of = &self.live[&first];
        let region_pages = self.allocator.layout.region_pages();
        if of.is_large {
            let end = (first + of.pages).next_multiple_of(region_pages);
            return first + pages <= self.pages()
                && (end..first + pages).all(|page| self.is_empty(page / region_pages));
        }
        let stays = first / region_pages == (first + pages - 1) / region_pages;
        stays
            && !self.is_large(pages)
            && (first + of.pages..first + pages).all(|page| self.is_free(page))
    }

    pub(super) fn is_large(&self, pages: u64) -> bool {
        self.allocator.layout.levels > 1 && pages >= self.allocator.layout.region_pages()
    }
}
