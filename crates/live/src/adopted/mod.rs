//! Adopted memory: private anonymous memory that the program had before (malloc, a `Vec`, a stack), whose
//! pages go to cards and come back, at the addresses that they have.
//!
//! | page | heap | staging area |
//! |---|---|---|
//! | the program may write it | the bytes, or a hole that was never touched | absent |
//! | the program may read it, cards have copies | a copy, write-protected | the bytes |
//! | on a card, or on the host and in no map | absent: faults | the bytes, or stale ones |
//! | lost | poisoned: SIGBUS | stale bytes |
//!
//! Out: the page is moved to the staging area (`UFFDIO_MOVE`: in one place or the other at any instant, and no
//! access is in flight when it returns) → copied to the card. Back: card → staging area → moved to
//! the heap. A page that a device of the program's has pinned (O_DIRECT, io_uring) is not
//! moved: it stays, and the move fails.
//!
//! Only pages that are the range's alone move. Those at its edges, which hold bytes of others as well, stay on the
//! host for good and are reached there ([`Edges`]): what lies beside them may be a lock of `malloc`, or something of the
//! runtime's own, and nobody who holds such a thing may have to wait for a page.
//!
//! | file | |
//! |---|---|
//! | `region.rs` | one range: its staging area, where each of its pages is, the steps of a migration |
//! | `emptying.rs` | whether what was emptied is gone, or was only freed |
//! | `watch.rs` | the descriptors, and what the kernel tells of the ranges: faults, mremap, munmap, madvise |
//! | `maps.rs` | whether a range is such memory |
//! | `departures.rs` | pages leave the heap, but not while the program forks |
//! | `fork.rs` | pages are home while the program forks |
//! | `backing.rs` | the file behind a range that is one: reads, writes, the order in which pages came |
//! | `paging.rs` | pages of such a range come into memory, and leave it |
//!
//! A range that is a file is memory of the runtime's own at the program's addresses, of which a page may be in the file
//! alone, which is a fourth place for it. For the driver it is adopted memory: where the host has a page is nothing that it knows.

mod backing;
mod departures;
mod edges;
mod emptying;
mod error;
#[cfg(feature = "mutations")]
mod faulty;
mod file_error;
pub(crate) mod fork;
mod maps;
mod paging;
mod region;
mod watch;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use farside_types::{PageNo, PageRange};

pub(crate) use backing::Backing;
pub(crate) use departures::Departure;
pub(crate) use edges::Edges;
pub use error::AdoptError;
pub use file_error::FileError;
pub(crate) use maps::check_private;
pub(crate) use region::Region;
pub(crate) use watch::{Found, Watch, Whose};

/// The adopted memory of a space.
#[derive(Debug, Default)]
pub(crate) struct Adopted {
    /// There with the first range.
    watch: OnceLock<Arc<Watch>>,
    regions: Arc<RwLock<Vec<Arc<Region>>>>,
    pub(crate) edges: Edges,
    /// Held by who adopts: one range after the other.
    pub(crate) adopting: Mutex<()>,
    /// Whether there is any, or was.
    used: AtomicBool,
    /// Pages that could not be moved because a device has them pinned.
    pinned: AtomicU64,
}

impl Adopted {
    /// Whether anything was ever adopted.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    /// What watches the memory; made with the first range.
    pub(crate) fn watch(&self) -> Result<&Arc<Watch>, AdoptError> {
        if let Some(watch) = self.watch.get() {
            return Ok(watch);
        }
        let made = Arc::new(Watch::new(Arc::clone(&self.regions))?);
        let _ = self.watch.set(made);
        self.used.store(true, Ordering::Release);
        Ok(self.watch.get().expect("it was set just now"))
    }

    /// What watches the memory, if anything was ever adopted.
    pub(crate) fn watching(&self) -> Option<&Arc<Watch>> {
        self.watch.get()
    }

    fn known(&self) -> RwLockReadGuard<'_, Vec<Arc<Region>>> {
        self.regions.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, region: Arc<Region>) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let at = regions.partition_point(|other| other.pages().start < region.pages().start);
        regions.insert(at, region);
    }

    pub(crate) fn leave(&self, region: &Arc<Region>) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        regions.retain(|other| !Arc::ptr_eq(other, region));
    }

    /// All ranges.
    pub(crate) fn regions(&self) -> Vec<Arc<Region>> {
        self.known().clone()
    }

    /// Whether some of a range is of a file.
    pub(crate) fn is_filed(&self, range: PageRange) -> bool {
        let regions = self.known();
        let hit = |region: &&Arc<Region>| region.pages().overlaps(range);
        regions.iter().filter(hit).any(|region| region.backing().is_some())
    }

    /// Ranges that the program had before, which a child made by fork has copies of.
    pub(crate) fn programs(&self) -> Vec<Arc<Region>> {
        let programs = |region: &&Arc<Region>| region.backing().is_none();
        self.known().iter().filter(programs).cloned().collect()
    }

    /// The range that a page is of.
    pub(crate) fn holding(&self, page: PageNo) -> Option<Arc<Region>> {
        let regions = self.known();
        let at = regions.partition_point(|region| region.pages().start <= page);
        let region = regions.get(at.checked_sub(1)?)?;
        region.pages().contains(page).then(|| Arc::clone(region))
    }

    /// Calls `each` with the parts of `range` and the ranges that they are of; with nothing for pages of
    /// edges, which stay where they are.
    pub(crate) fn each<E>(
        &self,
        range: PageRange,
        mut each: impl FnMut(Option<&Region>, PageRange) -> Result<(), E>,
    ) -> Result<(), (u64, E)> {
        let mut page = range.start;
        while page < range.end() {
            let left = PageRange::new(page, range.end().0 - page.0);
            let region = self.holding(page);
            let part = match &region {
                Some(region) => left.intersection(region.pages()),
                None => PageRange::page(page),
            };
            each(region.as_deref(), part).map_err(|error| (page.0 - range.start.0, error))?;
            page = part.end();
        }
        Ok(())
    }

    /// Begins a step that takes pages from the heap; nothing while the program forks.
    pub(crate) fn departure(&self) -> Option<Departure<'_>> {
        match self.watch.get() {
            Some(watch) => watch.departures.begin(),
            None => Some(Departure::NONE),
        }
    }

    /// One more page that a device has pinned.
    pub(crate) fn note_pinned(&self) {
        self.pinned.fetch_add(1, Ordering::Relaxed);
    }

    /// How often a page stayed because a device had it pinned.
    pub(crate) fn pinned(&self) -> u64 {
        self.pinned.load(Ordering::Relaxed)
    }
}
