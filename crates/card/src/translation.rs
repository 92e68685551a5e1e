//! Where a page is: locations, translations and runs of them.

use farside_types::{FrameNo, MemoryId, PageNo, PageRange, Rights, Shelf, Shelved};
use serde::{Deserialize, Serialize};

/// A frame of a memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Location {
    /// Which memory: the card's own, the host's or a peer's.
    pub memory: MemoryId,
    /// The frame in it.
    pub frame: FrameNo,
}

impl Location {
    /// A frame of a memory.
    pub const fn new(memory: MemoryId, frame: FrameNo) -> Location {
        Location { memory, frame }
    }

    /// The location `count` frames further on in the same memory.
    ///
    /// # Panics
    /// In debug builds beyond the last frame number; mappings are checked against that when they
    /// are made.
    #[must_use]
    pub const fn offset(self, count: u32) -> Location {
        Location::new(self.memory, self.frame.offset(count))
    }

    /// Whether `next` lies right behind `count` frames from here on.
    pub(crate) fn is_followed_by(self, count: u32, next: Location) -> bool {
        self.memory == next.memory
            && u64::from(self.frame.0) + u64::from(count) == u64::from(next.frame.0)
    }
}

/// What a TLB entry says about a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Translation {
    /// Where the page is.
    pub location: Location,
    /// What the card may do with it.
    pub rights: Rights,
}

impl Translation {
    /// What an empty TLB slot holds; its key never matches.
    pub(crate) const VACANT: Translation =
        Translation { location: Location::new(MemoryId::HOST, FrameNo(0)), rights: Rights::Read };
}

/// `count` virtually contiguous pages in contiguous frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MappedRun {
    /// First page.
    pub page: PageNo,
    /// Number of pages.
    pub count: u32,
    /// Where the first page is.
    pub location: Location,
}

/// Of no pages.
impl Default for MappedRun {
    fn default() -> MappedRun {
        MappedRun::new(PageNo(0), 0, Location::new(MemoryId::HOST, FrameNo(0)))
    }
}

impl Shelved for MappedRun {
    fn shelf() -> &'static Shelf<MappedRun> {
        static SHELF: Shelf<MappedRun> = Shelf::new();
        &SHELF
    }
}

impl MappedRun {
    /// `count` pages from `page` on, in frames from `location` on.
    pub const fn new(page: PageNo, count: u32, location: Location) -> MappedRun {
        MappedRun { page, count, location }
    }

    /// The pages.
    pub const fn pages(&self) -> PageRange {
        PageRange::new(self.page, self.count as u64)
    }

    /// The part of the run in `range`, if there is one.
    pub(crate) fn clip(&self, range: PageRange) -> Option<MappedRun> {
        let part = self.pages().intersection(range);
        if part.is_empty() {
            return None;
        }
        let skipped = (part.start.0 - self.page.0) as u32;
        Some(MappedRun::new(part.start, part.count as u32, self.location.offset(skipped)))
    }

    /// The parts of the run before and behind `range`.
    pub(crate) fn outside(&self, range: PageRange) -> [Option<MappedRun>; 2] {
        let before = PageRange::new(PageNo(0), range.start.0);
        let behind = PageRange::new(range.end(), crate::PAGES_MAX - range.end().0);
        [self.clip(before), self.clip(behind)]
    }

    /// This run with `next` at its end, if `next` continues it in pages and frames.
    pub fn joined(&self, next: &MappedRun) -> Option<MappedRun> {
        let continues = self.pages().end() == next.page
            && self.location.is_followed_by(self.count, next.location);
        let count = self.count.checked_add(next.count)?;
        continues.then_some(MappedRun { count, ..*self })
    }
}
