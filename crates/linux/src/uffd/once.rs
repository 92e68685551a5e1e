//! Operations on anonymous memory that are tried once: pages that are moved, filled, copied.
//!
//! While the program changes mappings that are watched (mremap, munmap, madvise), the kernel answers "again" until
//! the event has been read. Who waited here for that would wait for itself if it is to read it, so these
//! say [`Errno::AGAIN`] and leave it to the caller.

use farside_types::{PAGE_SHIFT, PageNo, PageRange};
use rustix::io::Errno;

use super::{Userfaultfd, abi, bytes};

impl Userfaultfd {
    /// Moves pages of private anonymous memory, from `from` to the equally many absent ones of `to`, which this
    /// descriptor watches: each page is in one of both places at any instant, and no access through the old one is in flight
    /// when it returns. Threads that wait for pages of `to` go on. Gives how many pages it moved, from the first one
    /// on.
    ///
    /// # Errors
    /// If none was moved, what is wrong with the first: [`Errno::AGAIN`] try again, [`Errno::NOENT`] it is absent at its
    /// source, [`Errno::EXIST`] there is one at its destination, [`Errno::BUSY`] it is shared (after a fork) or
    /// pinned (by a device), [`Errno::INVAL`] the two places are not alike (rights, locks, mappings
    /// that end in between) or are no such memory, [`Errno::NOMEM`].
    ///
    /// # Safety
    /// The caller owns the pages at both ends, or stands in for who does: what was at `from` is at `to` afterwards, behind the back of
    /// any reference.
    pub unsafe fn move_pages(&self, to: PageRange, from: PageNo) -> Result<u64, Errno> {
        once(to, || {
            let dst = bytes(to);
            let (start, src, len) = (dst.start, from.addr().0, dst.len);
            let mut arg = abi::Move { dst: start, src, len, mode: 0, moved: 0 };
            (self.call(abi::request::MOVE, &mut arg), arg.moved)
        })
    }

    /// Fills absent pages with zeros and wakes who waits for them; gives how many.
    ///
    /// # Errors
    /// As [`Userfaultfd::move_pages`].
    pub fn zero_once_only(&self, range: PageRange) -> Result<u64, Errno> {
        once(range, || {
            let mut arg = abi::Zeropage { range: bytes(range), mode: 0, filled: 0 };
            (self.call(abi::request::ZEROPAGE, &mut arg), arg.filled)
        })
    }

    /// Fills absent pages, or those that end accesses with an error, with copies of those that begin at `from`, protected from
    /// writes or not, and wakes who waits for them; gives how many.
    ///
    /// # Errors
    /// As [`Userfaultfd::move_pages`]; [`Errno::FAULT`] if `from` cannot be read.
    pub fn copy_once_only(
        &self,
        to: PageRange,
        from: PageNo,
        write_protect: bool,
    ) -> Result<u64, Errno> {
        once(to, || {
            let dst = bytes(to);
            let mut arg = abi::Copy {
                dst: dst.start,
                src: from.addr().0,
                len: dst.len,
                mode: if write_protect { abi::MODE_WP } else { 0 },
                copied: 0,
            };
            (self.call(abi::request::COPY, &mut arg), arg.copied)
        })
    }

    /// Protects pages from writes, or lifts that and wakes who waits.
    ///
    /// # Errors
    /// [`Errno::AGAIN`], and [`Errno::NOENT`] where nothing is watched.
    pub fn protect_once(&self, range: PageRange, protect: bool) -> Result<(), Errno> {
        let mode = if protect { abi::WRITEPROTECT_MODE_WP } else { 0 };
        let mut arg = abi::WriteProtect { range: bytes(range), mode };
        self.call(abi::request::WRITEPROTECT, &mut arg)
    }

    /// Ends accesses to an absent page with SIGBUS, those that wait as well.
    ///
    /// # Errors
    /// As [`Userfaultfd::move_pages`].
    pub fn poison_once(&self, page: PageNo) -> Result<(), Errno> {
        let mut arg = abi::Poison { range: bytes(PageRange::page(page)), ..Default::default() };
        self.call(abi::request::POISON, &mut arg)
    }
}

/// One ioctl that reports how far it came.
fn once(range: PageRange, call: impl FnOnce() -> (Result<(), Errno>, i64)) -> Result<u64, Errno> {
    match call() {
        (Ok(()), _) => Ok(range.count),
        // The count is trusted only together with EAGAIN, the kernel's word for "short".
        (Err(Errno::AGAIN), bytes) if bytes > 0 => {
            Ok((bytes as u64 >> PAGE_SHIFT).min(range.count))
        }
        (Err(Errno::INTR), _) => Err(Errno::AGAIN),
        (Err(errno), _) => Err(errno),
    }
}
