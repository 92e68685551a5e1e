//! One adopted range: where each of its pages is, and the host's steps of a migration.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::{Duration, Instant};

use farside_linux::card_memory::{copy_pages, zero_pages};
use farside_linux::mapping::Mapping;
use farside_linux::uffd::RegisterMode;
use farside_types::{BLOCK_SIZE, PAGE_SIZE, PageNo, PageRange, Rights, VirtAddr};
use rustix::io::Errno;

use super::backing::Backing;
use super::watch::Watch;
use super::{AdoptError, Found};

/// What errors call the staging area.
const WHAT: &str = "farside-staging";

/// `MADV_POPULATE_WRITE` (Linux 5.14): pages are there, for writing, and the process's own.
const POPULATE_WRITE: libc::c_int = 23;

/// Pages of one operation at most: whoever hears of the range waits as long as one takes.
const PAGES_AT_ONCE: u64 = 2048;

/// How often one page is tried while the kernel says "again".
const TRIES_MAX: u32 = 100_000;

/// How long a page is waited for that a device has pinned. A read or a write of the program's is over by then;
/// what is registered for good (io_uring's fixed buffers) is not.
const PINNED_MAX: Duration = Duration::from_millis(200);

/// How long a page is tried that a thread waits for, and that the driver has nothing to do with any more.
const SERVED_MAX: Duration = Duration::from_secs(1);

/// How long until it is looked at again.
const PINNED_PAUSE: Duration = Duration::from_micros(100);

/// How long a page that was emptied is waited for to go, or to be known to stay: see [`super::emptying`]. Only a thread that
/// gets no processor makes it last.
const EMPTYING_MAX: Duration = Duration::from_secs(10);

/// Places of parts of a range that there is room for from the start: whoever hears of an mremap is not
/// to allocate.
const PIECES: usize = 64;

/// Where the bytes of a page on the host are.
pub(super) mod mark {
    /// Which of the four below.
    pub(in crate::adopted) const PLACE: u8 = 3;
    /// In the heap, which the program may write; nowhere if it was never touched.
    pub(in crate::adopted) const HEAP: u8 = 0;
    /// In the staging area; the heap has none.
    pub(in crate::adopted) const STAGED: u8 = 1;
    /// In both; the heap's is protected from writes.
    pub(in crate::adopted) const BOTH: u8 = 2;
    /// In the file alone, of a range that is one; neither the heap nor the staging area has it.
    pub(in crate::adopted) const FILE: u8 = 3;
    /// The program has emptied it (`MADV_DONTNEED`) and not touched it since: it is zero, whatever comes from
    /// a card, is in the staging area, or is about to be taken from the heap. One that the heap still has when
    /// that is over holds what it holds: the program may have written it.
    pub(in crate::adopted) const EMPTIED: u8 = 4;
    /// Accesses of the heap end with SIGBUS.
    pub(in crate::adopted) const POISONED: u8 = 8;
    /// The program has unmapped it: it is nowhere.
    pub(in crate::adopted) const GONE: u8 = 16;
    /// In the file alone, and the program may write it as soon as it is in memory: the driver has shown it, and not taken it since.
    pub(in crate::adopted) const SHOWN: u8 = 32;
}

/// Where a part of the range is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    pages: PageRange,
    now: PageNo,
}

/// Pages that are alike and beside each other, in the heap as well.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) pages: PageRange,
    pub(super) now: PageRange,
    pub(super) mark: u8,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Region {
    pages: PageRange,
    watch: Arc<Watch>,
    /// Its page `0` is `staging_start`.
    _staging: Mapping,
    staging_start: PageNo,
    marks: Box<[AtomicU8]>,
    /// The file, of a range that is one, and the memory at its addresses.
    backing: Option<(Backing, Mapping)>,
    /// Pages that the program has emptied, and of which cards may have copies still.
    emptied: Box<[AtomicBool]>,
    /// Number of the event by which pages were emptied last.
    emptied_by: Box<[AtomicU32]>,
    /// Where it is now; changed with the watch's order held for writing.
    pieces: RwLock<Vec<Piece>>,
    /// The program has moved or unmapped some of it: it is to be given back.
    pub(crate) leaves: AtomicBool,
    /// The driver does not know it any more.
    pub(crate) is_let_go: AtomicBool,
    /// What was lost with cards when the driver let go of it.
    pub(crate) lost: Mutex<Vec<PageRange>>,
    /// Whether it was given back; held by who does that.
    pub(crate) is_home: Mutex<bool>,
}

impl Region {
    /// Takes a range in. All of it is in the heap, and is not watched yet.
    pub(crate) fn new(pages: PageRange, watch: &Arc<Watch>) -> Result<Region, AdoptError> {
        Region::with(pages, watch, mark::HEAP, None)
    }

    /// A range at `heap` that is a file. All of it is in the file alone, and is not watched yet.
    pub(crate) fn of_file(
        pages: PageRange,
        watch: &Arc<Watch>,
        backing: Backing,
        heap: Mapping,
    ) -> Result<Region, AdoptError> {
        Region::with(pages, watch, mark::FILE | mark::SHOWN, Some((backing, heap)))
    }

    fn with(
        pages: PageRange,
        watch: &Arc<Watch>,
        value: u8,
        backing: Option<(Backing, Mapping)>,
    ) -> Result<Region, AdoptError> {
        // Huge pages of the heap move whole where the staging area is aligned as it is.
        let within = pages.start.addr().0 as usize % BLOCK_SIZE;
        let bytes = (pages.bytes() as usize + within).next_multiple_of(BLOCK_SIZE);
        let staging = Mapping::reserve_aligned(WHAT, bytes, BLOCK_SIZE)?;
        staging.allow(WHAT, 0, bytes)?;
        staging.keep_from_children(WHAT)?;
        let staging_start = VirtAddr((staging.base() as usize + within) as u64).page();
        let room = usize::try_from(pages.count).unwrap_or(usize::MAX);
        let marks = std::iter::repeat_with(|| AtomicU8::new(value)).take(room).collect();
        let emptied = std::iter::repeat_with(|| AtomicBool::new(false)).take(room).collect();
        let emptied_by = std::iter::repeat_with(|| AtomicU32::new(0)).take(room).collect();
        let mut pieces = Vec::with_capacity(PIECES);
        pieces.push(Piece { pages, now: pages.start });
        let region = Region {
            pages,
            watch: Arc::clone(watch),
            _staging: staging,
            staging_start,
            marks,
            backing,
            emptied,
            emptied_by,
            pieces: RwLock::new(pieces),
            leaves: AtomicBool::new(false),
            is_let_go: AtomicBool::new(false),
            lost: Mutex::new(Vec::new()),
            is_home: Mutex::new(false),
        };
        region.watch_pages(region.staging_pages(), false)?;
        Ok(region)
    }

    /// Has the program's accesses watched from here on.
    pub(crate) fn begin(&self) -> Result<(), AdoptError> {
        self.watch_pages(self.pages, true)
    }

    fn watch_pages(&self, range: PageRange, write_protect: bool) -> Result<(), AdoptError> {
        let mode = RegisterMode { missing: true, minor: false, write_protect };
        // SAFETY: the staging area is this region's own; the heap's pages are lent to the space until it has
        // been given back (`Runtime::adopt` is unsafe for that), and no mapping of the runtime's.
        unsafe { self.watch.uffd().register(range, mode) }
            .map(drop)
            .map_err(|error| AdoptError::Uffd { addr: range.start.addr(), error })
    }

    /// The file, of a range that is one.
    pub(crate) fn backing(&self) -> Option<&Backing> {
        self.backing.as_ref().map(|(backing, _)| backing)
    }

    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The addresses that it had when it was adopted, which cards know it by.
    pub(crate) fn pages(&self) -> PageRange {
        self.pages
    }

    /// Whether cards know some of it by one of these addresses, or it is at one of them now.
    pub(crate) fn is_anywhere_in(&self, range: PageRange) -> bool {
        let at = |piece: &Piece| PageRange::new(piece.now, piece.pages.count).overlaps(range);
        self.pages.overlaps(range) || self.pieces().iter().any(at)
    }

    fn staging_pages(&self) -> PageRange {
        PageRange::new(self.staging_start, self.pages.count)
    }

    pub(super) fn mark(&self, page: PageNo) -> &AtomicU8 {
        &self.marks[(page.0 - self.pages.start.0) as usize]
    }

    pub(super) fn set_marks(&self, pages: PageRange, value: u8) {
        pages.pages().for_each(|page| self.mark(page).store(value, Ordering::Release));
    }

    /// The page of the staging area for a page.
    pub(super) fn staged(&self, page: PageNo) -> PageNo {
        self.staging_start.offset(page.0 - self.pages.start.0)
    }

    pub(super) fn staged_ptr(&self, page: PageNo) -> *mut u8 {
        self.staged(page).addr().0 as *mut u8
    }

    fn pieces(&self) -> RwLockReadGuard<'_, Vec<Piece>> {
        self.pieces.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn pieces_mut(&self) -> RwLockWriteGuard<'_, Vec<Piece>> {
        self.pieces.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pages at the start of `left` that are alike, and where the heap has them.
    fn stretch(&self, left: PageRange) -> Stretch {
        let first = left.start;
        let value = self.mark(first).load(Ordering::Acquire);
        let pieces = self.pieces();
        let piece = pieces.iter().find(|piece| piece.pages.contains(first));
        let (most, now, value) = match piece {
            Some(piece) => {
                let left = left.intersection(piece.pages);
                (left.count, piece.now.offset(first.0 - piece.pages.start.0), value)
            }
            None => (1, first, value | mark::GONE),
        };
        let alike = |page: &PageNo| self.mark(*page).load(Ordering::Acquire) == value;
        let behind = PageRange::new(first, most.min(PAGES_AT_ONCE)).pages().skip(1);
        let count = 1 + if piece.is_some() { behind.take_while(alike).count() as u64 } else { 0 };
        Stretch {
            pages: PageRange::new(first, count),
            now: PageRange::new(now, count),
            mark: value,
        }
    }

    /// The same where nothing is done with the pages at once.
    pub(super) fn stretch_in(&self, left: PageRange) -> Stretch {
        let _order = self.watch.order();
        self.stretch(left)
    }

    /// Goes through `range`: each step says how many pages at the start of its stretch are done. What changes where the
    /// heap is does not happen during a step.
    pub(super) fn walk(
        &self,
        range: PageRange,
        mut step: impl FnMut(Stretch) -> Result<u64, Errno>,
    ) -> Result<(), (u64, Errno)> {
        let (mut done, mut tries) = (0, 0);
        let mut waits: Option<(Errno, Instant)> = None;
        while done < range.count {
            let left = PageRange::new(range.start.offset(done), range.count - done);
            let outcome = {
                let _order = self.watch.order();
                step(self.stretch(left))
            };
            match outcome {
                Ok(0) | Err(Errno::AGAIN) if tries < TRIES_MAX => {
                    tries += 1;
                    // The kernel goes on with what it was asked when it has been heard, by whomever.
                    self.watch.hear();
                    match tries {
                        0..=16 => {}
                        17..=1000 => rustix::thread::sched_yield(),
                        // Whoever changes the program's mappings does not run.
                        _ => std::thread::sleep(PINNED_PAUSE),
                    }
                }
                Ok(pages) if pages > 0 => {
                    done += pages;
                    tries = 0;
                    waits = None;
                }
                Err(errno @ (Errno::INPROGRESS | Errno::BUSY)) => {
                    let since = match waits {
                        Some((why, since)) if why == errno => since,
                        _ => waits.insert((errno, Instant::now())).1,
                    };
                    let most = if errno == Errno::BUSY { PINNED_MAX } else { EMPTYING_MAX };
                    if since.elapsed() > most {
                        return Err((done, Errno::BUSY));
                    }
                    self.watch.hear();
                    std::thread::sleep(PINNED_PAUSE);
                }
                Ok(_) => return Err((done, Errno::AGAIN)),
                Err(errno) => return Err((done, errno)),
            }
        }
        Ok(())
    }

    /// Takes pages out of the program's map, into the staging area: when it returns no access is in flight.
    ///
    /// # Errors
    /// How many pages were done, and why the next was not: [`Errno::BUSY`] a device has it pinned,
    /// [`Errno::INVAL`] the program has changed its rights or locked it.
    pub(crate) fn unmap(&self, range: PageRange) -> Result<(), (u64, Errno)> {
        let mut single = false;
        self.walk(range, |stretch| match stretch.mark & (mark::PLACE | mark::GONE) {
            mark::HEAP => {
                let most = if single { 1 } else { stretch.pages.count };
                match self.take(&stretch, most) {
                    Err(Errno::INVAL) if most > 1 => {
                        // The program's mappings end in between: page by page.
                        single = true;
                        Ok(0)
                    }
                    Err(Errno::BUSY) => {
                        self.make_own(stretch.now.start);
                        Err(Errno::BUSY)
                    }
                    Ok(pages) => {
                        single = false;
                        Ok(pages)
                    }
                    refused => refused,
                }
            }
            mark::BOTH => self.discard_staged(stretch.pages).map(|_| 0),
            mark::FILE => {
                self.set_marks(stretch.pages, stretch.mark & !mark::SHOWN);
                Ok(stretch.pages.count)
            }
            _ => Ok(stretch.pages.count),
        })
    }

    /// Moves pages at the start of a stretch from the heap to the staging area.
    fn take(&self, stretch: &Stretch, most: u64) -> Result<u64, Errno> {
        let first = stretch.pages.start;
        #[cfg(feature = "mutations")]
        if self.watch.copies_first.load(Ordering::Relaxed) && self.watch.has(stretch.now.start) {
            return self.copy_and_discard(first, stretch.now.start);
        }
        let emptied = stretch.mark & mark::EMPTIED != 0;
        if emptied && self.may_be_taken(first) && self.watch.has(stretch.now.start) {
            return Err(Errno::INPROGRESS);
        }
        // What was emptied may be there or not, page by page.
        let to = PageRange::new(self.staged(first), if emptied { 1 } else { most });
        // SAFETY: both ends are this region's, whose pages the driver holds: nobody else moves them.
        let moved = match unsafe { self.watch.uffd().move_pages(to, stretch.now.start) } {
            Err(Errno::NOENT) if self.watch.has(stretch.now.start) => return Ok(0),
            Err(Errno::NOENT) => {
                // It was never touched, or is empty again.
                match self.watch.uffd().zero_once_only(PageRange::page(to.start)) {
                    Ok(_) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                // SAFETY: the page of the staging area is there, and nobody else's.
                unsafe { zero_pages(self.staged_ptr(first), 1) };
                1
            }
            Err(Errno::EXIST) => {
                // Of former times.
                self.watch.discard(PageRange::page(to.start))?;
                return Ok(0);
            }
            moved => moved?,
        };
        // What the heap had is what the program sees, also of a page that it has freed and written since.
        self.set_marks(PageRange::new(first, moved), mark::STAGED);
        Ok(moved)
    }

    /// The wrong way: a write between the copy and the end of the page is lost.
    #[cfg(feature = "mutations")]
    fn copy_and_discard(&self, page: PageNo, now: PageNo) -> Result<u64, Errno> {
        match self.watch.uffd().zero_once_only(PageRange::page(self.staged(page))) {
            Ok(_) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        // SAFETY: the staging area has the page.
        unsafe { read_own(now, self.staged_ptr(page)) }?;
        self.watch.discard(PageRange::page(now))?;
        self.set_marks(PageRange::page(page), mark::STAGED);
        Ok(1)
    }

    /// Breaks the sharing of a page with a child.
    fn make_own(&self, now: PageNo) {
        // SAFETY: no byte changes by it. The page is there, so it does not wait for a fault: whoever
        // takes it away is heard first, and the order is held.
        unsafe { libc::madvise(now.addr().0 as *mut libc::c_void, PAGE_SIZE, POPULATE_WRITE) };
    }

    /// Maps pages for the program and wakes who waits for them.
    ///
    /// # Errors
    /// As [`Region::unmap`].
    pub(crate) fn map(&self, range: PageRange, rights: Rights) -> Result<(), (u64, Errno)> {
        if let Some(backing) = self.backing() {
            self.bring_from_file(backing, range, rights)?;
        }
        let mut single = false;
        self.walk(range, |stretch| {
            let place = stretch.mark & mark::PLACE;
            if stretch.mark & mark::GONE != 0 {
                return Ok(stretch.pages.count);
            }
            if stretch.mark & mark::EMPTIED != 0 && place != mark::HEAP {
                // SAFETY: a page that is not in the heap alone is in the staging area.
                unsafe {
                    zero_pages(self.staged_ptr(stretch.pages.start), stretch.pages.count as usize)
                };
            }
            let poisoned = stretch.mark & mark::POISONED != 0;
            match (place, rights) {
                (mark::HEAP, Rights::ReadWrite) => self.map_in_heap(&stretch),
                (mark::HEAP, _) => self.take(&stretch, 1).map(|_| 0),
                (mark::STAGED, Rights::ReadWrite) if !poisoned => {
                    let most = if single { 1 } else { stretch.pages.count };
                    match self.bring(&stretch, most) {
                        // The program's mappings end in between: page by page.
                        Err(Errno::INVAL) if most > 1 => {
                            single = true;
                            Ok(0)
                        }
                        // Other rights than the staging area's, or locked: a copy can go there.
                        Err(Errno::INVAL) => self.bring_copies(&stretch, 1, false),
                        outcome => {
                            single = false;
                            outcome
                        }
                    }
                }
                (mark::STAGED, rights) => {
                    self.bring_copies(&stretch, stretch.pages.count, rights == Rights::Read)
                }
                (_, Rights::ReadWrite) => {
                    let pages = self.discard_staged(stretch.pages)?;
                    let now = PageRange::new(stretch.now.start, pages);
                    self.watch.uffd().protect_once(now, false)?;
                    Ok(pages)
                }
                _ if !self.watch.has(stretch.now.start) => {
                    // The program has emptied it since.
                    self.set_marks(PageRange::page(stretch.pages.start), mark::STAGED);
                    Ok(0)
                }
                _ => {
                    self.watch.wake(PageRange::page(stretch.now.start))?;
                    Ok(1)
                }
            }
        })
    }

    /// A page that the heap has, or that was never touched: the event is stale, or its first.
    fn map_in_heap(&self, stretch: &Stretch) -> Result<u64, Errno> {
        match self.watch.uffd().zero_once_only(PageRange::page(stretch.now.start)) {
            Ok(_) => {
                self.set_marks(PageRange::page(stretch.pages.start), mark::HEAP);
                Ok(1)
            }
            Err(Errno::EXIST) => {
                self.watch.uffd().protect_once(PageRange::page(stretch.now.start), false)?;
                Ok(1)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Moves pages at the start of a stretch from the staging area to the heap.
    fn bring(&self, stretch: &Stretch, most: u64) -> Result<u64, Errno> {
        let first = stretch.pages.start;
        let to = PageRange::new(stretch.now.start, most);
        // SAFETY: as in `take`.
        match unsafe { self.watch.uffd().move_pages(to, self.staged(first)) } {
            Ok(moved) => {
                self.set_marks(PageRange::new(first, moved), mark::HEAP);
                Ok(moved)
            }
            Err(Errno::EXIST) => self.is_there(first, to.start),
            // Another part of the runtime reads it.
            Err(Errno::BUSY) => Err(Errno::AGAIN),
            Err(errno) => Err(errno),
        }
    }

    /// Copies pages at the start of a stretch from the staging area to the heap, where the program may
    /// only read them if both are kept.
    fn bring_copies(&self, stretch: &Stretch, most: u64, keep: bool) -> Result<u64, Errno> {
        let first = stretch.pages.start;
        let to = PageRange::new(stretch.now.start, most);
        match self.watch.uffd().copy_once_only(to, self.staged(first), keep) {
            Ok(copied) if keep => {
                self.set_marks(PageRange::new(first, copied), mark::BOTH);
                Ok(copied)
            }
            // If they cannot be given back now, they are found to be there the next time.
            Ok(copied) => self.discard_staged(PageRange::new(first, copied)),
            Err(Errno::EXIST) => self.is_there(first, to.start),
            Err(errno) => Err(errno),
        }
    }

    /// The kernel says that the heap has a page that was to be brought. If it has, the program may have written
    /// it since, or has emptied it and the kernel is about to take it.
    fn is_there(&self, page: PageNo, now: PageNo) -> Result<u64, Errno> {
        if self.watch.has(now) {
            let emptied = self.mark(page).load(Ordering::Acquire) & mark::EMPTIED;
            self.discard_staged(PageRange::page(page))?;
            self.mark(page).store(mark::HEAP | emptied, Ordering::Release);
        }
        Ok(0)
    }

    /// The heap alone has pages at the start of these from here on; gives how many.
    fn discard_staged(&self, pages: PageRange) -> Result<u64, Errno> {
        let done = self.watch.discard(PageRange::new(self.staged(pages.start), pages.count))?;
        self.set_marks(PageRange::new(pages.start, done), mark::HEAP);
        Ok(done)
    }

    /// A page that the program has emptied is zero from here on.
    pub(super) fn empty(&self, page: PageNo) {
        let value = self.mark(page).load(Ordering::Acquire);
        // SAFETY: a page that is not in the heap alone is in the staging area, which is this region's own.
        unsafe { zero_pages(self.staged_ptr(page), 1) };
        self.mark(page).store(value & !mark::EMPTIED, Ordering::Release);
    }

    /// Lets the program only read pages, or write them as well.
    ///
    /// # Errors
    /// As [`Region::unmap`].
    pub(crate) fn protect(&self, range: PageRange, rights: Rights) -> Result<(), (u64, Errno)> {
        if rights == Rights::Read {
            // A device that has a page pinned writes it whatever is protected: only a move sees that.
            self.unmap(range)?;
        }
        self.map(range, rights)
    }

    /// Has accesses of the program end with SIGBUS, until the pages are mapped.
    ///
    /// # Errors
    /// As [`Region::unmap`].
    pub(crate) fn poison(&self, range: PageRange) -> Result<(), (u64, Errno)> {
        self.unmap(range)?;
        self.walk(range, |stretch| {
            if stretch.mark & (mark::GONE | mark::POISONED) != 0 {
                return Ok(stretch.pages.count);
            }
            match self.watch.uffd().poison_once(stretch.now.start) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            let page = PageRange::page(stretch.pages.start);
            self.set_marks(page, stretch.mark | mark::POISONED);
            Ok(1)
        })
    }

    /// Copies the host's bytes of pages to `to`.
    ///
    /// # Safety
    /// `to` has room for them, which nobody else uses; the driver holds the pages.
    pub(crate) unsafe fn copy_out(
        &self,
        range: PageRange,
        to: *mut u8,
    ) -> Result<(), (u64, Errno)> {
        let Some(backing) = self.backing() else {
            // SAFETY: the caller's.
            return unsafe { self.copy_out_of_memory(range, to) };
        };
        let mut done = 0;
        while done < range.count {
            let left = PageRange::new(range.start.offset(done), range.count - done);
            let to = to.wrapping_add(done as usize * PAGE_SIZE);
            // SAFETY: the caller's.
            let room = unsafe { std::slice::from_raw_parts_mut(to, left.bytes() as usize) };
            let read = self.copy_from_file(backing, left, room).map_err(|errno| (done, errno))?;
            if read == 0 {
                let pages = self.stretch_in(left).pages;
                // SAFETY: the caller's.
                unsafe { self.copy_out_of_memory(pages, to) }
                    .map_err(|(more, errno)| (done + more, errno))?;
                done += pages.count;
            }
            done += read;
        }
        Ok(())
    }

    /// The same for pages that are in memory.
    ///
    /// # Safety
    /// As for [`Region::copy_out`].
    unsafe fn copy_out_of_memory(&self, range: PageRange, to: *mut u8) -> Result<(), (u64, Errno)> {
        self.walk(range, |stretch| {
            let first = stretch.pages.start;
            let to = to.wrapping_add((first.0 - range.start.0) as usize * PAGE_SIZE);
            let count = stretch.pages.count as usize;
            match stretch.mark & (mark::PLACE | mark::GONE) {
                place if place & mark::GONE != 0 => {
                    // SAFETY: the caller's.
                    unsafe { zero_pages(to, count) };
                }
                // The program can still reach it, and may unmap it: the kernel reads it. Whoever reads what was never
                // touched would wait for a page.
                mark::HEAP if !self.watch.has(stretch.now.start) => {
                    // SAFETY: the caller's.
                    unsafe { zero_pages(to, 1) };
                    return Ok(1);
                }
                mark::HEAP => {
                    // SAFETY: the caller's.
                    unsafe { read_own(stretch.now.start, to) }?;
                    return Ok(1);
                }
                _ if stretch.mark & mark::EMPTIED != 0 => {
                    self.empty(first);
                    return Ok(0);
                }
                _ => {
                    // SAFETY: the staging area has these pages; the rest is the caller's.
                    unsafe { copy_pages(self.staged_ptr(first), to, count) };
                }
            }
            Ok(stretch.pages.count)
        })
    }

    /// Copies bytes of pages from `from` to where the host has them.
    ///
    /// # Safety
    /// `from` has them, and nobody changes them meanwhile; the driver holds the pages.
    pub(crate) unsafe fn copy_in(
        &self,
        range: PageRange,
        from: *const u8,
    ) -> Result<(), (u64, Errno)> {
        self.walk(range, |stretch| {
            let first = stretch.pages.start;
            let from = from.wrapping_add((first.0 - range.start.0) as usize * PAGE_SIZE);
            match stretch.mark & (mark::PLACE | mark::GONE) {
                // The program has unmapped it.
                place if place & mark::GONE != 0 => {}
                mark::STAGED if stretch.mark & mark::EMPTIED != 0 => {}
                mark::FILE => return self.take_in(&stretch, from),
                mark::STAGED => {
                    let (to, count) = (self.staged_ptr(first), stretch.pages.count as usize);
                    // SAFETY: the staging area has these pages; the rest is the caller's.
                    unsafe { copy_pages(from, to, count) };
                }
                // Nothing is overwritten that the program may have changed.
                _ => return Err(Errno::BUSY),
            }
            Ok(stretch.pages.count)
        })
    }

    /// Takes bytes into the staging area that it has no pages for.
    fn take_in(&self, stretch: &Stretch, from: *const u8) -> Result<u64, Errno> {
        let first = stretch.pages.start;
        let to = PageRange::new(self.staged(first), stretch.pages.count);
        let from = VirtAddr(from as u64).page();
        let copied = self.watch.uffd().copy_once_only(to, from, false)?;
        let pages = PageRange::new(first, copied);
        self.set_marks(pages, mark::STAGED);
        self.note_came(pages);
        Ok(copied)
    }

    /// The page that is at an address now, if it is one of these.
    pub(crate) fn page_at(&self, now: PageNo) -> Option<PageNo> {
        let pieces = self.pieces();
        let at = |piece: &&Piece| PageRange::new(piece.now, piece.pages.count).contains(now);
        let piece = pieces.iter().find(at)?;
        Some(piece.pages.start.offset(now.0 - piece.now.0))
    }

    /// The first page from an address on that one of these is at now.
    pub(super) fn first_from(&self, now: PageNo) -> Option<PageNo> {
        let pieces = self.pieces();
        pieces.iter().map(|piece| piece.now).filter(|&start| start >= now).min()
    }

    /// The kernel has emptied pages, or is about to; the order is held for writing.
    pub(super) fn removed(&self, now: PageRange) -> Found {
        let mut found = Found::Nothing;
        let mut number = None;
        for page in now.pages().filter_map(|page| self.page_at(page)) {
            let number = *number.get_or_insert_with(|| self.watch.emptying.hear(now.count));
            self.emptied_by(page).store(number, Ordering::Release);
            let value = self.mark(page).load(Ordering::Acquire);
            if value & mark::PLACE == mark::FILE {
                // Nothing of it is in memory that could be emptied.
                continue;
            }
            if value & mark::PLACE == mark::HEAP {
                self.mark(page).store(value | mark::EMPTIED, Ordering::Release);
                continue;
            }
            self.emptied_mark(page).store(true, Ordering::Release);
            let value = value & !mark::PLACE | mark::STAGED | mark::EMPTIED;
            self.mark(page).store(value, Ordering::Release);
            found = Found::Work;
        }
        found
    }

    /// Pages are not mapped any more; the order is held for writing.
    pub(super) fn unmapped(&self, gone: PageRange) -> Found {
        let mut pieces = self.pieces_mut();
        let is_hit = |piece: &Piece| PageRange::new(piece.now, piece.pages.count).overlaps(gone);
        if !pieces.iter().any(is_hit) {
            return Found::Nothing;
        }
        self.cut(&mut pieces, gone, None);
        self.leaves.store(true, Ordering::SeqCst);
        Found::Work
    }

    /// Pages are somewhere else now; the order is held for writing.
    pub(super) fn moved(&self, from: PageRange, to: PageNo) -> Found {
        let mut pieces = self.pieces_mut();
        let is_hit = |piece: &Piece| PageRange::new(piece.now, piece.pages.count).overlaps(from);
        if !pieces.iter().any(is_hit) {
            return Found::Nothing;
        }
        self.cut(&mut pieces, from, Some(to));
        self.leaves.store(true, Ordering::SeqCst);
        Found::Work
    }

    /// What was at `from` is nowhere, or from `to` on.
    fn cut(&self, pieces: &mut Vec<Piece>, from: PageRange, to: Option<PageNo>) {
        let count = pieces.len();
        for at in 0..count {
            let piece = pieces[at];
            let there = PageRange::new(piece.now, piece.pages.count);
            let hit = there.intersection(from);
            if hit.is_empty() {
                continue;
            }
            let of = |part: PageRange| {
                PageRange::new(piece.pages.start.offset(part.start.0 - there.start.0), part.count)
            };
            let behind = PageRange::new(hit.end(), there.end().0 - hit.end().0);
            let before = PageRange::new(there.start, hit.start.0 - there.start.0);
            pieces[at] = Piece { pages: of(before), now: before.start };
            if !behind.is_empty() {
                pieces.push(Piece { pages: of(behind), now: behind.start });
            }
            if let Some(to) = to {
                let now = to.offset(hit.start.0 - from.start.0);
                pieces.push(Piece { pages: of(hit), now });
            }
        }
        pieces.retain(|piece| !piece.pages.is_empty());
    }

    /// Whether a page is in the heap alone.
    pub(super) fn has_at_home(&self, page: PageNo) -> bool {
        self.mark(page).load(Ordering::Acquire) & mark::PLACE == mark::HEAP
    }

    /// Pages that are not in the heap alone, where the program may write them.
    pub(crate) fn away(&self) -> impl Iterator<Item = PageNo> + '_ {
        let away = |value: u8| value & mark::PLACE != mark::HEAP && value & mark::POISONED == 0;
        self.pages.pages().filter(move |&page| away(self.mark(page).load(Ordering::Acquire)))
    }

    /// Pages that were emptied, of which cards may have copies.
    pub(crate) fn emptied_pages(&self) -> impl Iterator<Item = PageNo> + '_ {
        let emptied = |page: &PageNo| self.emptied_mark(*page).load(Ordering::Acquire);
        self.pages.pages().filter(emptied)
    }

    /// They did not come home.
    pub(crate) fn are_to_be_recalled(&self, pages: PageRange) {
        pages.pages().for_each(|page| self.emptied_mark(page).store(true, Ordering::Release));
    }

    /// No card has a copy of these.
    pub(crate) fn are_recalled(&self, pages: PageRange) {
        pages.pages().for_each(|page| self.emptied_mark(page).store(false, Ordering::Release));
    }

    /// Whether the kernel may be about to take a page that was emptied.
    fn may_be_taken(&self, page: PageNo) -> bool {
        let number = self.emptied_by(page).load(Ordering::Acquire);
        // The staging area is not watched for writes, so this does nothing.
        let ask = || self.watch.uffd().protect_once(PageRange::page(self.staging_start), false);
        !self.watch.emptying.is_over(number, || ask() != Err(Errno::AGAIN))
    }

    fn emptied_by(&self, page: PageNo) -> &AtomicU32 {
        &self.emptied_by[(page.0 - self.pages.start.0) as usize]
    }

    fn emptied_mark(&self, page: PageNo) -> &AtomicBool {
        &self.emptied[(page.0 - self.pages.start.0) as usize]
    }

    /// Brings all that is not in the heap there; zeros where it was lost. The driver has nothing to do with the pages any more.
    ///
    /// # Errors
    /// Where it ended, and why.
    pub(crate) fn finish(&self, lost: &[PageRange]) -> Result<(), (u64, Errno)> {
        for page in lost.iter().flat_map(|range| range.pages()) {
            let value = self.mark(page).load(Ordering::Acquire);
            if value & mark::PLACE != mark::HEAP && value & mark::EMPTIED == 0 {
                self.mark(page).store(value | mark::EMPTIED, Ordering::Release);
            }
        }
        let away = |stretch: &Stretch| stretch.mark & mark::PLACE != mark::HEAP;
        let mut left = self.pages;
        while !left.is_empty() {
            let stretch = self.stretch(left);
            if away(&stretch) {
                let done = left.start.0 - self.pages.start.0;
                let outcome = self.map(stretch.pages, Rights::ReadWrite);
                outcome.map_err(|(more, errno)| (done + more, errno))?;
            }
            left = PageRange::new(stretch.pages.end(), left.count - stretch.pages.count);
        }
        Ok(())
    }

    /// Who waits for a page faults again.
    pub(crate) fn let_fault_again(&self) {
        for range in self.places() {
            if let Err(errno) = self.watch.wake(range) {
                tracing::debug!(%range, %errno, "nobody waits there");
            }
        }
    }

    /// The program's accesses are not watched any more; who waits goes on.
    pub(crate) fn end(&self) {
        for range in self.places() {
            self.watch.forget(range);
        }
    }

    /// Where its parts are now.
    fn places(&self) -> Vec<PageRange> {
        let place = |piece: &Piece| PageRange::new(piece.now, piece.pages.count);
        self.pieces().iter().map(place).collect()
    }

    /// Serves a fault on a page of a range that the driver has let go of. What cannot be had within [`SERVED_MAX`] ends
    /// with SIGBUS, as it does where the driver serves it.
    pub(crate) fn serve(&self, page: PageNo) {
        let (pages, began) = (PageRange::page(page), Instant::now());
        loop {
            let is_home = match self.is_home.try_lock() {
                Ok(is_home) => is_home,
                Err(TryLockError::Poisoned(is_home)) => is_home.into_inner(),
                // It is being given back: who does that has its faults come again if it cannot.
                Err(TryLockError::WouldBlock) => return,
            };
            if *is_home {
                return;
            }
            let Err((_, errno)) = self.map(pages, Rights::ReadWrite) else { return };
            if began.elapsed() > SERVED_MAX {
                tracing::error!(%page, %errno, "a page of memory that is not all at home cannot be had");
                if let Err((_, errno)) = self.poison(pages) {
                    tracing::error!(%page, %errno, "and who waits for it waits on");
                }
                return;
            }
            drop(is_home);
            std::thread::sleep(PINNED_PAUSE);
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Unmapping what is watched would wait for who hears of it.
        let heap = self.backing.is_some().then_some(self.pages);
        for pages in [Some(self.staging_pages()), heap].into_iter().flatten() {
            if let Err(error) = self.watch.uffd().unregister(pages) {
                tracing::debug!(%error, %pages, "memory was not watched any more");
            }
        }
    }
}

/// Reads a page of this process that may be unmapped meanwhile.
///
/// # Safety
/// `to` has room for a page, which nobody else uses.
pub(super) unsafe fn read_own(page: PageNo, to: *mut u8) -> Result<(), Errno> {
    let local = libc::iovec { iov_base: to.cast(), iov_len: PAGE_SIZE };
    let remote = libc::iovec { iov_base: page.addr().0 as *mut _, iov_len: PAGE_SIZE };
    // SAFETY: `to` has room for the page (the caller's); what is read is checked by the kernel.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    if usize::try_from(read) == Ok(PAGE_SIZE) { Ok(()) } else { Err(Errno::FAULT) }
}
