//! Large pages under an allocation: aligned blocks of 2 MiB whose bytes the kernel keeps in one piece.
//!
//! hugetlb would need memory that an administrator has set aside, and pages that only move whole. Here
//! `MADV_COLLAPSE` (Linux 6.1) makes the large page from memory like any other, whatever the settings
//! of transparent huge pages are, and it stays a page of the file: each of its 512 small pages can go by
//! itself. To take a large page out of the map takes 9 ns for each small page, instead of 100. To map it,
//! though, `UFFDIO_CONTINUE` goes from small page to small page, at 214 ns each (all measured:
//! `docs/design-notes.md`). So a block that the program gets whole, to read and write, is **opened**: it is
//! taken out of userfaultfd's care, which wakes whoever waits there, and the kernel maps it at once.
//! Whoever takes anything of it from the program **closes** it first. Its other pages then are mapped one by
//! one.
//!
//! | | the program's mapping of the block |
//! |---|---|
//! | open | all of it mapped or about to be, no fault is told, the program may read and write |
//! | closed | as any other: what is absent faults |
//!
//! The driver says who may reach a page; that all of a block is the program's when it is opened is its
//! rule 1. What has to be right here is that two chains with pages of one block do not open and
//! close it at once: each block has a lock.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

use farside_linux::lock::lock;
use farside_linux::uffd::{Holes, Install, Installed};
use farside_types::{BLOCK_PAGES, PAGE_SIZE, PageNo, PageRange, Rights};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::Advice;
use serde::{Deserialize, Serialize};

use super::{Arena, ArenaError, retry};

/// `MADV_COLLAPSE` (Linux 6.1), in neither `libc` nor `rustix`.
const COLLAPSE: libc::c_int = 25;

/// Blocks share this many locks.
const LOCKS: usize = 64;

/// Most blocks that are open: each may cost the process two mappings, of which it has 65,530 unless
/// its administrator says otherwise.
const OPEN_MAX: u32 = 8192;

/// Its bytes are in one large page.
const LARGE: u8 = 1;
/// It is open.
const OPEN: u8 = 2;
/// Some of it was mapped by small pages, so that there is a page table that is in the way of a large one.
const SPLIT: u8 = 4;

/// How many blocks of allocations were to have large pages, and how many have got them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct LargePages {
    /// Blocks of 2 MiB that were to be large pages.
    pub wanted: u64,
    /// Those that were when they were allocated.
    pub had: u64,
}

/// What is known of the arena's blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    states: Box<[AtomicU8]>,
    locks: [Mutex<()>; LOCKS],
    /// Whether a block was ever large: without, nobody looks further.
    any: AtomicBool,
    open: AtomicU32,
    open_max: u32,
}

impl Blocks {
    pub(super) fn new(blocks: u64) -> Blocks {
        Blocks {
            states: (0..blocks).map(|_| AtomicU8::new(0)).collect(),
            locks: [const { Mutex::new(()) }; LOCKS],
            any: AtomicBool::new(false),
            open: AtomicU32::new(0),
            open_max: OPEN_MAX,
        }
    }
}

/// A block, locked.
struct Block<'a> {
    arena: &'a Arena,
    pages: PageRange,
    state: &'a AtomicU8,
    _lock: MutexGuard<'a, ()>,
}

impl Arena {
    /// Has the kernel keep whole blocks of `range` in large pages, zero, as far as it can. The range
    /// must be new: nobody knows of it, and no byte of it was written.
    ///
    /// # Errors
    /// [`ArenaError::Bounds`], and [`ArenaError::Uffd`] if the range cannot be watched any more: nobody may
    /// ever use it then. That there are no large pages is no error.
    pub fn make_large(&self, range: PageRange) -> Result<LargePages, ArenaError> {
        self.checked("make large", range)?;
        let whole: Vec<PageRange> = self.pieces(range).filter(is_whole).collect();
        let wanted = whole.len() as u64;
        let (Some(first), Some(last)) = (whole.first(), whole.last()) else {
            return Ok(LargePages::default());
        };
        if self.keeps_frames.load(Ordering::SeqCst) {
            // A device knows these frames as they are now.
            return Ok(LargePages { wanted, had: 0 });
        }
        // The kernel fills no gap of a file that somebody watches for missing pages.
        let all = PageRange::new(first.start, last.end().0 - first.start.0);
        self.uffd.unregister(all)?;
        let large = whole.iter().filter(|&&block| self.collapse(block)).count();
        self.register(all)?;
        Ok(LargePages { wanted, had: large as u64 })
    }

    /// Whether a new block has become a large page.
    fn collapse(&self, block: PageRange) -> bool {
        let Ok(alias) = self.alias_ptr(block) else { return false };
        let start = alias.as_ptr();
        // SAFETY: the alias covers the block, which nobody uses yet; the advice changes no contents.
        let advise =
            |advice| unsafe { rustix::mm::madvise(start.cast(), block.bytes() as usize, advice) };
        // One of its pages has to be there for the kernel to make a large one of it.
        let one = self.fill(PageRange::page(block.start));
        let advised = one.and_then(|()| advise(Advice::LinuxHugepage));
        let made = advised.and_then(|()| match collapse(start, block) {
            // The kernel also looks at who watches the page behind the block.
            Err(Errno::BUSY) => self.fill(block).and_then(|()| collapse(start, block)),
            other => other,
        });
        // The alias is as it was for whoever comes later; what is mapped stays.
        let _ = advise(Advice::LinuxNoHugepage);
        if let Err(errno) = made {
            tracing::debug!(%block, %errno, "no large page");
            return false;
        }
        self.state(block).store(LARGE, Ordering::SeqCst);
        self.large.any.store(true, Ordering::SeqCst);
        true
    }

    /// Puts small pages into the file, zero, where there are none.
    fn fill(&self, pages: PageRange) -> Result<(), Errno> {
        let offset = (pages.start.0 - self.pages.start.0) * PAGE_SIZE as u64;
        let flags = FallocateFlags::empty();
        retry(|| rustix::fs::fallocate(&self.file, flags, offset, pages.bytes()))
    }

    /// Whether blocks of `range` are large, or were.
    pub(super) fn has_large(&self, range: PageRange) -> bool {
        self.large.any.load(Ordering::SeqCst)
            && self.pieces(range).any(|piece| self.state(piece).load(Ordering::SeqCst) != 0)
    }

    /// [`Arena::unmap`] where some of the blocks are large.
    pub(super) fn unmap_by_blocks(&self, range: PageRange) -> Result<(), ArenaError> {
        for piece in self.pieces(range) {
            let block = self.block(piece);
            let was_open = block.close()?;
            self.drop_translations(piece)?;
            if was_open {
                block.keep_others(piece);
            }
        }
        Ok(())
    }

    /// [`Arena::protect`] where some of the blocks are large.
    pub(super) fn protect_by_blocks(
        &self,
        range: PageRange,
        rights: Rights,
    ) -> Result<(), ArenaError> {
        for piece in self.pieces(range) {
            let block = self.block(piece);
            if !block.is(OPEN) {
                self.uffd.write_protect(piece, rights == Rights::Read)?;
            } else if rights == Rights::Read {
                block.install(piece, self.how("protect", rights, Holes::Refuse))?;
            }
        }
        Ok(())
    }

    /// [`Arena::map`] and [`Arena::map_zero`] where some of the blocks are large.
    pub(super) fn install_by_blocks(
        &self,
        range: PageRange,
        how: Install,
    ) -> Result<Installed, ArenaError> {
        let mut sum = Installed::default();
        for piece in self.pieces(range) {
            let Installed { mapped, present } = self.block(piece).install(piece, how)?;
            sum = Installed { mapped: sum.mapped + mapped, present: sum.present + present };
        }
        Ok(sum)
    }

    /// Gives the frames of `range` back where some of the blocks are large: these are no more.
    pub(super) fn punch_by_blocks(&self, range: PageRange) -> Result<(), ArenaError> {
        for piece in self.pieces(range) {
            let block = self.block(piece);
            let was_open = block.close()?;
            self.punch(piece)?;
            if was_open {
                // The kernel has split the large page, and taken all of it out of the map for that.
                block.keep_others(piece);
            }
            block.set(LARGE | SPLIT, false);
        }
        Ok(())
    }

    /// `range` cut at the borders of blocks.
    fn pieces(&self, range: PageRange) -> impl Iterator<Item = PageRange> + use<> {
        let mut next = range.start;
        std::iter::from_fn(move || {
            let left = range.end().0 - next.0;
            let piece = PageRange::new(next, left.min(BLOCK_PAGES - next.0 % BLOCK_PAGES));
            next = piece.end();
            (left > 0).then_some(piece)
        })
    }

    /// What is known of the block of `piece`.
    fn state(&self, piece: PageRange) -> &AtomicU8 {
        &self.large.states[((piece.start.0 - self.pages.start.0) / BLOCK_PAGES) as usize]
    }

    fn block(&self, piece: PageRange) -> Block<'_> {
        let start = PageNo(piece.start.0 / BLOCK_PAGES * BLOCK_PAGES);
        let which = (start.0 / BLOCK_PAGES) as usize % LOCKS;
        Block {
            arena: self,
            pages: PageRange::new(start, BLOCK_PAGES),
            state: self.state(piece),
            _lock: lock(&self.large.locks[which]),
        }
    }
}

fn is_whole(piece: &PageRange) -> bool {
    piece.count == BLOCK_PAGES
}

/// Makes one page of a block's small ones, or maps the large page that it has as such.
fn collapse(start: *mut u8, block: PageRange) -> Result<(), Errno> {
    retry(|| {
        // SAFETY: the callers give the start of a mapping of the block. The call changes where the
        // bytes are, not what they are.
        let failed = unsafe { libc::madvise(start.cast(), block.bytes() as usize, COLLAPSE) };
        if failed == 0 {
            return Ok(());
        }
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    })
}

impl Block<'_> {
    fn is(&self, flag: u8) -> bool {
        self.state.load(Ordering::SeqCst) & flag != 0
    }

    fn set(&self, flags: u8, on: bool) {
        // Nobody else changes it: the block is locked.
        let state = self.state.load(Ordering::SeqCst);
        self.state.store(if on { state | flags } else { state & !flags }, Ordering::SeqCst);
    }

    /// Maps `piece`. All of a large block is opened, if it is to be written as well.
    fn install(&self, piece: PageRange, how: Install) -> Result<Installed, ArenaError> {
        let writes = !how.write_protect;
        if self.is(OPEN) && writes {
            return Ok(Installed { mapped: 0, present: piece.count });
        }
        if writes && self.is(LARGE) && is_whole(&piece) && self.open() {
            return Ok(Installed { mapped: piece.count, present: 0 });
        }
        let was_open = self.close()?;
        if was_open {
            self.arena.drop_translations(piece)?;
        }
        self.set(SPLIT, self.is(LARGE));
        let installed = self.arena.uffd.install(piece, how)?;
        if was_open {
            self.keep_others(piece);
        }
        Ok(installed)
    }

    /// Takes the block out of userfaultfd's care and maps it; `false`: it is as it was.
    fn open(&self) -> bool {
        let count = &self.arena.large.open;
        if count.fetch_add(1, Ordering::SeqCst) >= self.arena.large.open_max {
            count.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        // Before anybody can fault there: a small page that is mapped would be in the way.
        self.advise(Advice::LinuxHugepage);
        if let Err(error) = self.arena.uffd.unregister(self.pages) {
            tracing::debug!(%error, block = %self.pages, "not opened");
            count.fetch_sub(1, Ordering::SeqCst);
            self.advise(Advice::LinuxNoHugepage);
            return false;
        }
        self.set(OPEN, true);
        // From here on every access finds its page by itself; this spares it the fault.
        if self.is(SPLIT) && collapse(self.start(), self.pages).is_ok() {
            self.set(SPLIT, false);
        } else {
            self.advise(Advice::LinuxPopulateWrite);
        }
        true
    }

    /// Has userfaultfd watch the block again, if it was open. What is mapped stays, until something of it
    /// is dropped: then the kernel drops all of a large page.
    fn close(&self) -> Result<bool, ArenaError> {
        if !self.is(OPEN) {
            return Ok(false);
        }
        self.arena.register(self.pages)?;
        self.set(OPEN, false);
        self.arena.large.open.fetch_sub(1, Ordering::SeqCst);
        self.advise(Advice::LinuxNoHugepage);
        Ok(true)
    }

    /// Maps what was open beside `piece`, of which something was taken: with the large page all is gone
    /// from the map. What cannot be mapped faults, and is mapped then.
    fn keep_others(&self, piece: PageRange) {
        let (start, end) = (self.pages.start, self.pages.end());
        let before = PageRange::new(start, piece.start.0 - start.0);
        let behind = PageRange::new(piece.end(), end.0 - piece.end().0);
        for others in [before, behind].into_iter().filter(|others| !others.is_empty()) {
            self.set(SPLIT, true);
            let how = self.arena.how("map", Rights::ReadWrite, Holes::Refuse);
            if let Err(error) = self.arena.uffd.install(others, how) {
                tracing::debug!(%error, %others, "pages of a closed block will fault");
            }
        }
    }

    fn start(&self) -> *mut u8 {
        let offset = (self.pages.start.0 - self.arena.pages.start.0) as usize;
        self.arena.program.base().wrapping_add(offset * PAGE_SIZE)
    }

    /// Advice that spares time, and may be refused.
    fn advise(&self, advice: Advice) {
        let bytes = self.pages.bytes() as usize;
        // SAFETY: the block is in the program's mapping. None of the advice that is given here
        // changes what its bytes are.
        if let Err(errno) = unsafe { rustix::mm::madvise(self.start().cast(), bytes, advice) } {
            tracing::debug!(%errno, block = %self.pages, ?advice, "advice was refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use farside_types::BLOCK_SIZE;

    use super::*;

    #[test]
    fn blocks_beyond_the_limit_are_mapped_by_small_pages() {
        let mut arena = Arena::new(4 * BLOCK_SIZE as u64).unwrap();
        let all = arena.pages();
        let LargePages { wanted, had } = arena.make_large(all).unwrap();
        assert_eq!(wanted, 4);
        arena.large.open_max = 2;
        let open = |arena: &Arena| arena.large.open.load(Ordering::SeqCst);
        let most = had.min(2) as u32;
        for _ in 0..3 {
            arena.map_zero(all, Rights::ReadWrite).unwrap();
            assert_eq!(open(&arena), most);
            // SAFETY: all of it is mapped, and this thread is the only one that uses it.
            unsafe { arena.program.base().write_bytes(7, 4 * BLOCK_SIZE) };
            arena.unmap(all).unwrap();
            assert_eq!(open(&arena), 0);
        }
        // Without a limit that is met, as many are open as are large.
        arena.large.open_max = 8;
        arena.map(all, Rights::ReadWrite).unwrap();
        assert_eq!(u64::from(open(&arena)), had);
        // To give frames back closes, and there are no large pages after it.
        arena.release(all).unwrap();
        assert_eq!(open(&arena), 0);
        arena.map_zero(all, Rights::ReadWrite).unwrap();
        assert_eq!(open(&arena), 0);
    }
}
