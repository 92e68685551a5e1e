//! A userfaultfd: the kernel reports accesses to absent or protected pages and leaves it to this
//! process to resolve them.
//!
//! Owns the descriptor, the handshake, retries and the bookkeeping of short counts. Does not own
//! the memory (the arena of `farside-live`) nor the decision what a fault gets (the driver).
//!
//! Rules kept here (each is a lost thread or a busy loop otherwise):
//! - EAGAIN and EINTR are retried, a bounded number of times; a short count is carried on.
//! - A page that is mapped already (EEXIST) does not stop the rest of a range, and threads that
//!   wait for it are woken.
//! - A wake is never sent for a page that is absent: the thread would fault again at once, and
//!   again (live-lock).

pub mod abi;
mod error;
mod events;
mod feature_set;
mod install;
mod once;
mod open;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;

use farside_types::{PAGE_SHIFT, PageRange};
use rustix::io::Errno;

pub use error::UffdError;
pub use events::{Fault, FaultKind, Happened};
pub use feature_set::FeatureSet;
pub use install::Installed;
pub use install::{Holes, Install, Present};
pub use open::{OpenedBy, Support};

/// Most tries of one ioctl while the kernel says "again". The address space changes for
/// microseconds; a second of yields means that whoever changes it waits for us.
const TRIES_MAX: u32 = 100_000;

/// A userfaultfd with its features negotiated. Shared by reference between the thread that reads
/// events and the one that resolves them.
#[derive(Debug)]
pub struct Userfaultfd {
    fd: OwnedFd,
    support: Support,
    enabled: FeatureSet,
    /// The page that was mapped last was in the file: the next is tried there first. A wrong guess
    /// costs one ioctl, and for a zero fill a page that is made in vain.
    was_in_file: AtomicBool,
}

/// Which accesses of a range are reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegisterMode {
    /// To pages that exist nowhere.
    pub missing: bool,
    /// To pages that are in the file but not mapped.
    pub minor: bool,
    /// Writes to write-protected pages.
    pub write_protect: bool,
}

/// Which operations the kernel takes for a registered range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeOperations(u64);

impl RangeOperations {
    /// Whether request `nr` ([`abi::nr`]) is among them.
    pub const fn has(self, nr: u32) -> bool {
        self.0 & (1 << nr) != 0
    }
}

impl Userfaultfd {
    /// Opens a descriptor and enables those of `wanted` that the kernel has.
    ///
    /// # Errors
    /// [`UffdError::Open`] and [`UffdError::Handshake`].
    pub fn open(wanted: FeatureSet) -> Result<Userfaultfd, UffdError> {
        let support = Support::probe()?;
        let fd = open::descriptor_by(support.opened_by)?;
        let enabled = wanted.and(support.features);
        open::handshake(fd.as_fd(), enabled)?;
        Ok(Userfaultfd { fd, support, enabled, was_in_file: AtomicBool::new(false) })
    }

    /// How it was opened and what the kernel has.
    pub fn support(&self) -> Support {
        self.support
    }

    /// The features that are enabled.
    pub fn enabled(&self) -> FeatureSet {
        self.enabled
    }

    /// Reports accesses to `range` from now on.
    ///
    /// # Errors
    /// [`UffdError::Range`]; EINVAL if the range is not mapped or its memory cannot be registered.
    ///
    /// # Safety
    /// The range is a mapping that the caller owns and keeps while this descriptor uses it.
    /// Later calls map, fill and protect its pages, behind the back of any Rust reference.
    pub unsafe fn register(
        &self,
        range: PageRange,
        mode: RegisterMode,
    ) -> Result<RangeOperations, UffdError> {
        let bit = |on: bool, bit: u64| if on { bit } else { 0 };
        let mut arg = abi::Register {
            range: bytes(range),
            mode: bit(mode.missing, abi::register_mode::MISSING)
                | bit(mode.minor, abi::register_mode::MINOR)
                | bit(mode.write_protect, abi::register_mode::WP),
            ioctls: 0,
        };
        self.call(abi::request::REGISTER, &mut arg)
            .map_err(|errno| failure("register", range, 0, errno))?;
        Ok(RangeOperations(arg.ioctls))
    }

    /// Reports accesses to `range` no more. Threads that wait there go on, and find what is in the file.
    ///
    /// # Errors
    /// [`UffdError::Range`]; ENOMEM where the process may have no more mappings.
    pub fn unregister(&self, range: PageRange) -> Result<(), UffdError> {
        let mut arg = bytes(range);
        self.call(abi::request::UNREGISTER, &mut arg)
            .map_err(|errno| failure("unregister", range, 0, errno))
    }

    /// Protects mapped pages of `range` against writes, or lifts the protection and wakes the
    /// threads that wait. Pages that are not mapped keep the protection for when they are (it is
    /// dropped by mapping them writable).
    ///
    /// # Errors
    /// [`UffdError::Range`].
    pub fn write_protect(&self, range: PageRange, protect: bool) -> Result<(), UffdError> {
        let mode = if protect { abi::WRITEPROTECT_MODE_WP } else { 0 };
        self.write_protect_raw(range, mode)
    }

    /// Forgets write protection without waking anyone: for pages that are about to change again.
    pub fn forget_protection(&self, range: PageRange) -> Result<(), UffdError> {
        self.write_protect_raw(range, abi::WRITEPROTECT_MODE_DONTWAKE)
    }

    fn write_protect_raw(&self, range: PageRange, mode: u64) -> Result<(), UffdError> {
        if range.is_empty() {
            return Ok(());
        }
        attempt(range, || {
            let mut arg = abi::WriteProtect { range: bytes(range), mode };
            (self.call(abi::request::WRITEPROTECT, &mut arg), 0)
        })
        .map(|_| ())
        .map_err(|errno| failure("write-protect", range, 0, errno))
    }

    /// Wakes the threads that wait for pages of `range`. They try their access again; only for
    /// pages that are mapped, see the rules of this module.
    ///
    /// # Errors
    /// [`UffdError::Range`].
    pub fn wake(&self, range: PageRange) -> Result<(), UffdError> {
        if range.is_empty() {
            return Ok(());
        }
        let mut arg = bytes(range);
        self.call(abi::request::WAKE, &mut arg).map_err(|errno| failure("wake", range, 0, errno))
    }

    /// Makes accesses to absent pages of `range` end with SIGBUS, those that wait as well.
    ///
    /// # Errors
    /// [`UffdError::Range`]; EEXIST at the first page that is mapped, protected or poisoned
    /// already: take it out of the map first. EINVAL before Linux 6.6.
    pub fn poison(&self, range: PageRange) -> Result<(), UffdError> {
        advance("poison", range, |left| {
            attempt(left, || {
                let mut arg = abi::Poison { range: bytes(left), ..Default::default() };
                (self.call(abi::request::POISON, &mut arg), arg.updated)
            })
        })
    }

    /// Fills absent pages of `range` with `source` and maps them, optionally write-protected.
    ///
    /// # Errors
    /// [`UffdError::SourceLength`]; [`UffdError::Range`] with EEXIST at the first page that is in
    /// the file or mapped already.
    pub fn copy(
        &self,
        range: PageRange,
        source: &[u8],
        write_protect: bool,
    ) -> Result<(), UffdError> {
        if source.len() as u64 != range.bytes() {
            return Err(UffdError::SourceLength { range, bytes: source.len() });
        }
        advance("copy", range, |left| {
            let skip = (left.start.0 - range.start.0) << PAGE_SHIFT;
            self.copy_once(left, &source[skip as usize..], write_protect)
        })
    }

    /// Fills absent pages of `range` with zeros and maps them.
    ///
    /// # Errors
    /// [`UffdError::Range`]; EEXIST at the first page that is in the file or mapped already.
    pub fn zero_pages(&self, range: PageRange) -> Result<(), UffdError> {
        advance("zero fill", range, |left| self.zero_once(left))
    }

    fn call<T>(&self, request: libc::Ioctl, arg: &mut T) -> Result<(), Errno> {
        open::ioctl(self.fd.as_fd(), request, arg)
    }
}

impl AsFd for Userfaultfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Userfaultfd {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.fd.as_raw_fd()
    }
}

fn bytes(range: PageRange) -> abi::Range {
    abi::Range { start: range.start.addr().0, len: range.bytes() }
}

fn failure(operation: &'static str, range: PageRange, done: u64, errno: Errno) -> UffdError {
    UffdError::Range { operation, range, done, errno }
}

/// Repeats `step` on what is left of `range` until nothing is.
fn advance(
    operation: &'static str,
    range: PageRange,
    mut step: impl FnMut(PageRange) -> Result<u64, Errno>,
) -> Result<(), UffdError> {
    let mut done = 0;
    while done < range.count {
        let left = PageRange::new(range.start.offset(done), range.count - done);
        done += step(left).map_err(|errno| failure(operation, range, done, errno))?;
    }
    Ok(())
}

/// One ioctl that reports how far it came: the pages done, at least one, or the error of the
/// first page. EAGAIN without progress and EINTR are retried.
fn attempt(
    range: PageRange,
    mut call: impl FnMut() -> (Result<(), Errno>, i64),
) -> Result<u64, Errno> {
    for _ in 0..TRIES_MAX {
        match call() {
            (Ok(()), _) => return Ok(range.count),
            // The count is trusted only together with EAGAIN, the kernel's word for "short".
            (Err(Errno::AGAIN), bytes) if bytes > 0 => {
                return Ok((bytes as u64 >> PAGE_SHIFT).min(range.count));
            }
            (Err(Errno::AGAIN | Errno::INTR), _) => rustix::thread::sched_yield(),
            (Err(errno), _) => return Err(errno),
        }
    }
    Err(Errno::AGAIN)
}

#[cfg(test)]
mod tests {
    use farside_types::PageNo;

    use super::*;

    /// An ioctl that gives these answers, one a call, and then that all is done.
    fn answers(given: &[(Result<(), Errno>, i64)]) -> impl FnMut() -> (Result<(), Errno>, i64) {
        let mut given = given.iter().copied();
        move || given.next().unwrap_or((Ok(()), 0))
    }

    const RANGE: PageRange = PageRange { start: PageNo(16), count: 8 };

    #[test]
    fn again_and_an_interruption_are_tried_again_and_a_short_count_is_told() {
        let again = (Err(Errno::AGAIN), 0);
        let interrupted = (Err(Errno::INTR), 0);
        assert_eq!(attempt(RANGE, answers(&[again, interrupted, again])), Ok(8));
        assert_eq!(attempt(RANGE, answers(&[again, (Err(Errno::AGAIN), 3 << PAGE_SHIFT)])), Ok(3));
        // A count that comes with another error says nothing.
        let gone = (Err(Errno::NOENT), 3 << PAGE_SHIFT);
        assert_eq!(attempt(RANGE, answers(&[again, gone])), Err(Errno::NOENT));
        let mut calls = 0;
        let never = attempt(RANGE, || {
            calls += 1;
            again
        });
        assert_eq!((never, calls), (Err(Errno::AGAIN), TRIES_MAX), "bounded");
    }

    #[test]
    fn a_range_goes_on_where_a_short_count_ended() {
        let mut asked = Vec::new();
        let mut short = [3, 1, 4].into_iter();
        let done = advance("map", RANGE, |left| {
            asked.push((left.start.0, left.count));
            Ok(short.next().unwrap())
        });
        assert!(done.is_ok());
        assert_eq!(asked, [(16, 8), (19, 5), (20, 4)]);
        let mut short = [Ok(5), Err(Errno::EXIST)].into_iter();
        let failed = advance("map", RANGE, |_| short.next().unwrap()).unwrap_err();
        let at = matches!(failed, UffdError::Range { done: 5, errno: Errno::EXIST, .. });
        assert!(at, "{failed}");
    }
}
