//! Pages of a range that is a file ([`Backing`]): into memory when somebody wants them, out of it when there are too many.
//!
//! All of it is done by one thread, as are all steps of a migration of such a range (`runtime/files.rs`), so that who waits for a
//! disk is nobody else. No read or write of the file is done with the watch's order held.

use std::sync::atomic::Ordering;

use farside_types::{PAGE_SIZE, PageNo, PageRange, Rights};
use rustix::io::Errno;

use super::FileError;
use super::backing::{AT_ONCE, Backing, State, told};
use super::region::{Region, Stretch, mark, read_own};

/// Pages that are brought with one that the program wants, if it has been shown them all.
const AROUND: u64 = 64;

impl Region {
    /// Brings those pages of a range into memory that are in the file alone: to the program, or for reading to where cards' copies
    /// come from.
    pub(super) fn bring_from_file(
        &self,
        backing: &Backing,
        range: PageRange,
        rights: Rights,
    ) -> Result<(), (u64, Errno)> {
        let mut done = 0;
        while done < range.count {
            let stretch = self.stretch_in(part(range, done));
            if stretch.mark & (mark::PLACE | mark::GONE) != mark::FILE {
                done += stretch.pages.count;
                continue;
            }
            let wanted = stretch.pages.count.min(AT_ONCE);
            let mut state = backing.state();
            let around = if rights == Rights::ReadWrite { self.around(&stretch) } else { wanted };
            let read = self.read_into(backing, &mut state, stretch.pages.start, around.max(wanted));
            let count = match read {
                Ok(()) => around.max(wanted),
                // What is beside it may be what cannot be read.
                Err(_) if around > 1 || wanted > 1 => {
                    let one = self.read_into(backing, &mut state, stretch.pages.start, 1);
                    one.map_err(|error| (done, told(&error)))?;
                    1
                }
                Err(error) => return Err((done, told(&error))),
            };
            let pages = PageRange::new(stretch.pages.start, count);
            self.fill(&mut state, pages, rights).map_err(|(more, errno)| (done + more, errno))?;
            done += count.min(stretch.pages.count);
        }
        Ok(())
    }

    /// How many pages from the first of these on have been shown to the program, and are in the file alone.
    fn around(&self, stretch: &Stretch) -> u64 {
        if stretch.mark & mark::SHOWN == 0 {
            return 0;
        }
        let first = stretch.pages.start;
        let left = self.pages().end().0 - first.0;
        self.stretch_in(PageRange::new(first, left.min(AROUND))).pages.count
    }

    fn read_into(
        &self,
        backing: &Backing,
        state: &mut State,
        first: PageNo,
        count: u64,
    ) -> Result<(), FileError> {
        let (into, _) = state.buffers();
        backing.read(self.number(first), &mut into[..count as usize * PAGE_SIZE])
    }

    /// Puts what was read where it is wanted.
    fn fill(
        &self,
        state: &mut State,
        pages: PageRange,
        rights: Rights,
    ) -> Result<(), (u64, Errno)> {
        let shown = rights == Rights::ReadWrite;
        self.walk(pages, |stretch| {
            if stretch.mark & (mark::PLACE | mark::GONE) != mark::FILE {
                return Ok(stretch.pages.count);
            }
            let first = stretch.pages.start;
            let (to, place) = match shown {
                true => (stretch.now.start, mark::HEAP),
                false => (self.staged(first), mark::STAGED),
            };
            let to = PageRange::new(to, stretch.pages.count);
            let from = state.buffer_page().offset(first.0 - pages.start.0);
            let copied = match self.watch().uffd().copy_once_only(to, from, false) {
                // The program has something there that nobody knows of, which is the page's then.
                Err(Errno::EXIST) if shown && self.watch().has(to.start) => 1,
                // The program's mappings end in between (mlock, mprotect): page by page.
                Err(Errno::NOENT | Errno::INVAL) if to.count > 1 => {
                    self.watch().uffd().copy_once_only(PageRange::page(to.start), from, false)?
                }
                copied => copied?,
            };
            self.set_marks(PageRange::new(first, copied), place);
            state.came(PageRange::new(PageNo(self.number(first)), copied));
            Ok(copied)
        })
    }

    /// Pages that were in the file alone have come into memory.
    pub(super) fn note_came(&self, pages: PageRange) {
        if let Some(backing) = self.backing() {
            backing.state().came(PageRange::new(PageNo(self.number(pages.start)), pages.count));
        }
    }

    /// Copies pages that are in the file alone from there. Gives how many at the start of a range these were.
    pub(super) fn copy_from_file(
        &self,
        backing: &Backing,
        range: PageRange,
        to: &mut [u8],
    ) -> Result<u64, Errno> {
        let stretch = self.stretch_in(range);
        if stretch.mark & (mark::PLACE | mark::GONE) != mark::FILE {
            return Ok(0);
        }
        let count = stretch.pages.count;
        let read = backing.read(self.number(range.start), &mut to[..count as usize * PAGE_SIZE]);
        read.map(|()| count).map_err(|error| told(&error))
    }

    /// Lets pages leave that came first, until there are no more than there should be.
    pub(crate) fn make_room(&self) {
        let Some(backing) = self.backing() else { return };
        loop {
            let leaving = backing.state().next_to_leave(backing);
            let Some(leaving) = leaving else { return };
            let pages = PageRange::new(self.pages().start.offset(leaving.start.0), leaving.count);
            let Err((done, error)) = self.leave(backing, pages) else {
                backing.state().gets_stuck(false);
                continue;
            };
            let mut state = backing.state();
            state.came(PageRange::new(leaving.start.offset(done), leaving.count - done));
            if state.gets_stuck(true) {
                tracing::error!(%error, "pages of a file stay in memory, beyond what it was to take");
            }
            return;
        }
    }

    /// Writes what was changed of pages, and gives their memory back; the program faults at them from here on.
    fn leave(&self, backing: &Backing, range: PageRange) -> Result<(), (u64, FileError)> {
        let mut done = 0;
        while done < range.count {
            let Stretch { pages, mark, .. } = self.stretch_in(part(range, done));
            if mark & mark::GONE != 0 || mark & mark::PLACE == mark::FILE {
                done += pages.count;
                continue;
            }
            let shown = if mark & mark::PLACE == mark::HEAP { mark::SHOWN } else { 0 };
            self.unmap(pages).map_err(|(_, errno)| (done, self.stays(backing, pages, errno)))?;
            self.write_staged(backing, pages).map_err(|error| (done, error))?;
            let given_back = self.walk(pages, |stretch| match stretch.mark {
                value if value & (mark::PLACE | mark::EMPTIED | mark::GONE) == mark::STAGED => {
                    let first = stretch.pages.start;
                    let staged = PageRange::new(self.staged(first), stretch.pages.count);
                    let given_back = self.watch().discard(staged)?;
                    let poisoned = value & mark::POISONED;
                    let value = mark::FILE | shown | poisoned;
                    self.set_marks(PageRange::new(first, given_back), value);
                    Ok(given_back)
                }
                // The program has emptied or unmapped it meanwhile.
                _ => Err(Errno::CANCELED),
            });
            given_back.map_err(|(more, errno)| (done + more, self.stays(backing, pages, errno)))?;
            done += pages.count;
        }
        Ok(())
    }

    /// Writes what was changed of pages in the staging area.
    fn write_staged(&self, backing: &Backing, pages: PageRange) -> Result<(), FileError> {
        for page in pages.pages() {
            if self.mark(page).load(Ordering::Acquire) & mark::EMPTIED != 0 {
                self.empty(page);
            }
        }
        let bytes = pages.bytes() as usize;
        // SAFETY: the pages were moved to the staging area, which is this region's own; nobody else takes steps for it.
        let new = unsafe { std::slice::from_raw_parts(self.staged_ptr(pages.start), bytes) };
        let mut state = backing.state();
        let (_, old) = state.buffers();
        backing.write_changed(self.number(pages.start), new, old)
    }

    /// Writes what was changed of pages, which stay where they are.
    pub(crate) fn flush(&self, backing: &Backing, range: PageRange) -> Result<(), FileError> {
        let mut done = 0;
        while done < range.count {
            let mut pages = self.stretch_in(part(range, done)).pages;
            pages.count = pages.count.min(AT_ONCE);
            let mut state = backing.state();
            let (new, old) = state.buffers();
            match self.gather(pages, new) {
                Ok(()) => {
                    let new = &new[..pages.bytes() as usize];
                    backing.write_changed(self.number(pages.start), new, old)?;
                }
                Err((_, Errno::CANCELED)) => {}
                Err((_, errno)) => return Err(self.stays(backing, pages, errno)),
            }
            done += pages.count;
        }
        Ok(())
    }

    /// Copies pages that are in memory and alike; [`Errno::CANCELED`] if they are not.
    fn gather(&self, pages: PageRange, into: &mut [u8]) -> Result<(), (u64, Errno)> {
        self.walk(pages, |stretch| {
            let first = stretch.pages.start;
            let at = (first.0 - pages.start.0) as usize * PAGE_SIZE;
            let into = &mut into[at..at + stretch.pages.bytes() as usize];
            match stretch.mark & (mark::PLACE | mark::GONE) {
                mark::HEAP => {
                    let page = &mut into[..PAGE_SIZE];
                    match self.watch().has(stretch.now.start) {
                        // SAFETY: it has room for a page.
                        true => unsafe { read_own(stretch.now.start, page.as_mut_ptr()) }?,
                        // The program has emptied it.
                        false => page.fill(0),
                    }
                    Ok(1)
                }
                mark::STAGED | mark::BOTH if stretch.mark & mark::EMPTIED != 0 => {
                    self.empty(first);
                    Ok(0)
                }
                mark::STAGED | mark::BOTH => {
                    // SAFETY: the staging area has these pages, and nobody else takes steps for them.
                    let staged =
                        unsafe { std::slice::from_raw_parts(self.staged_ptr(first), into.len()) };
                    into.copy_from_slice(staged);
                    Ok(stretch.pages.count)
                }
                _ => Err(Errno::CANCELED),
            }
        })
    }

    /// Why pages are not written: they are locked, or a device has them pinned.
    fn stays(&self, backing: &Backing, pages: PageRange, errno: Errno) -> FileError {
        let (path, offset) =
            (backing.path().to_owned(), self.number(pages.start) * PAGE_SIZE as u64);
        FileError::Write { path, offset, source: errno.into() }
    }

    /// The number of a page, counted from the first.
    fn number(&self, page: PageNo) -> u64 {
        page.0 - self.pages().start.0
    }
}

/// What is left of a range.
fn part(range: PageRange, done: u64) -> PageRange {
    PageRange::new(range.start.offset(done), range.count - done)
}
