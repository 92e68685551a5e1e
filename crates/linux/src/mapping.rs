//! Memory files and their mappings: what arena and card memory are made of.
//!
//! Owns creation, placement and disposal. Knows nothing of pages' owners.

use core::ptr::{self, NonNull};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use farside_types::PAGE_SIZE;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

/// Memory could not be had, or a call on it failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The size is zero or not a multiple of what it must be.
    #[error("{what} of {bytes} bytes is not possible; give a positive multiple of {multiple}")]
    Size {
        /// What was to be made.
        what: &'static str,
        /// The size asked for.
        bytes: u64,
        /// What it must be a multiple of.
        multiple: u64,
    },
    /// The process may not have files of this size (RLIMIT_FSIZE).
    #[error(
        "{what} of {bytes} bytes exceeds the file size limit of {limit}; raise it (ulimit -f) or \
         ask for less"
    )]
    FileLimit {
        /// What was to be made.
        what: &'static str,
        /// The size asked for.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A system call failed.
    #[error("{call} for {what} of {bytes} bytes failed: {errno}; {}", advice(*.errno))]
    Call {
        /// The system call.
        call: &'static str,
        /// What it was for.
        what: &'static str,
        /// The bytes concerned.
        bytes: u64,
        /// The kernel's answer.
        errno: Errno,
    },
}

fn advice(errno: Errno) -> &'static str {
    match errno {
        Errno::NOMEM => {
            "memory or address space has run out: ask for less, or raise the limits (ulimit -v, \
             the memory limit of the container, vm.max_map_count)"
        }
        Errno::MFILE | Errno::NFILE => "too many files are open: raise the limit (ulimit -n)",
        Errno::NOSPC => "memory for shared files has run out: free some or raise the limit",
        _ => "run `farside doctor` to see what this machine supports",
    }
}

/// A file in memory, closed on exec. Its size is sealed: a process that it is shared with cannot cut
/// it off under the others' mappings, which would end them with SIGBUS.
pub fn memory_file(what: &'static str, bytes: u64) -> Result<OwnedFd, MemoryError> {
    let call = |call| move |errno| MemoryError::Call { call, what, bytes, errno };
    // Beyond the limit ftruncate would raise SIGXFSZ, which ends the program.
    if let Some(limit) = getrlimit(Resource::Fsize).current.filter(|limit| bytes > *limit) {
        return Err(MemoryError::FileLimit { what, bytes, limit });
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = match rustix::fs::memfd_create(what, flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3 the flag is unknown.
        Err(Errno::INVAL) => rustix::fs::memfd_create(what, flags),
        other => other,
    }
    .map_err(call("memfd_create"))?;
    rustix::fs::ftruncate(&fd, bytes).map_err(call("ftruncate"))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&fd, seals).map_err(call("fcntl(F_ADD_SEALS)"))?;
    Ok(fd)
}

/// A part of a file, to be put into a mapping.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The file.
    pub file: BorrowedFd<'a>,
    /// Where the part begins, a multiple of the page size.
    pub offset: u64,
    /// Whether it is written, for others to see; if not, it can only be read.
    pub shared: bool,
}

/// A shared mapping of a whole memory file. Not inherited by fork, never huge, in no core dump: to
/// dump it would allocate every page of it. Unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is memory of the process, not of a thread. It hands out raw pointers only;
// whoever dereferences them answers for races.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method changes the mapping itself.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of `file`, from its beginning, at an address that is a multiple of
    /// `align`, a power of two and a multiple of the page size.
    pub fn new(
        what: &'static str,
        file: impl AsFd,
        bytes: usize,
        align: usize,
    ) -> Result<Mapping, MemoryError> {
        Mapping::of_part(what, file, 0, bytes, align)
    }

    /// Maps `bytes` bytes of `file` from `offset` on, a multiple of the page size.
    pub fn of_part(
        what: &'static str,
        file: impl AsFd,
        offset: u64,
        bytes: usize,
        align: usize,
    ) -> Result<Mapping, MemoryError> {
        debug_assert!(align.is_power_of_two() && align >= PAGE_SIZE);
        let fail = |call| move |errno| MemoryError::Call { call, what, bytes: bytes as u64, errno };
        let room = bytes.checked_add(align).ok_or(Errno::NOMEM).map_err(fail("mmap"))?;
        // SAFETY: a new private reservation at an address the kernel chooses touches nothing.
        let reserved = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                room,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(fail("mmap"))?
        .cast::<u8>();
        let skip = reserved.align_offset(align);
        let base = reserved.wrapping_add(skip);
        // SAFETY: base..base + bytes lies within the reservation just made, because skip < align;
        // nobody else knows of it.
        let mapped = unsafe {
            rustix::mm::mmap(
                base.cast(),
                bytes,
                ProtFlags::empty(),
                MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED,
                file,
                offset,
            )
        };
        if let Err(errno) = mapped {
            unmap(reserved, room);
            return Err(fail("mmap")(errno));
        }
        unmap(reserved, skip);
        unmap(base.wrapping_add(bytes), align - skip);
        // The kernel never chooses address 0 for a reservation.
        let base = NonNull::new(base).ok_or(Errno::NOMEM).map_err(fail("mmap"))?;
        let mapping = Mapping { base, bytes };
        mapping.open_empty().map_err(|(call, errno)| fail(call)(errno))?;
        mapping.advise(Advice::LinuxDontFork).map_err(fail("madvise(DONTFORK)"))?;
        mapping.advise(Advice::LinuxDontDump).map_err(fail("madvise(DONTDUMP)"))?;
        match mapping.advise(Advice::LinuxNoHugepage) {
            // A kernel without huge pages does not know the request and does not need it.
            Ok(()) | Err(Errno::INVAL) => Ok(mapping),
            Err(errno) => Err(fail("madvise(NOHUGEPAGE)")(errno)),
        }
    }

    /// Lets a mapping that nobody may access yet be read and written.
    ///
    /// Where the program locks all that it will map (`mlockall` with MCL_FUTURE), a mapping that may be
    /// accessed has all its pages at once: an arena would be allocated as a whole, and no first access
    /// would ever be seen. So the lock is taken off before there is a page. Pages can be locked
    /// afterwards.
    fn open_empty(&self) -> Result<(), (&'static str, Errno)> {
        let start = self.base().cast();
        // SAFETY: the range is this mapping, of which nobody else knows yet; neither call touches what
        // is in the memory.
        unsafe { rustix::mm::munlock(start, self.bytes) }.map_err(|errno| ("munlock", errno))?;
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: as above.
        unsafe { rustix::mm::mprotect(start, self.bytes, access) }
            .map_err(|errno| ("mprotect", errno))
    }

    /// Address space of this process that nothing is mapped in.
    /// # Errors
    /// [`MemoryError::Call`].
    pub fn reserve(what: &'static str, bytes: usize) -> Result<Mapping, MemoryError> {
        let (access, flags) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
        let fail = |errno| MemoryError::Call { call: "mmap", what, bytes: bytes as u64, errno };
        // SAFETY: a new mapping at an address the kernel chooses touches nothing.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, access, flags) };
        let base = NonNull::new(base.map_err(fail)?.cast::<u8>());
        Ok(Mapping { base: base.ok_or(Errno::NOMEM).map_err(fail)?, bytes })
    }

    /// [`Mapping::reserve`] at a multiple of `align`, a power of two and a multiple of the page size.
    ///
    /// # Errors
    /// [`MemoryError::Call`].
    pub fn reserve_aligned(
        what: &'static str,
        bytes: usize,
        align: usize,
    ) -> Result<Mapping, MemoryError> {
        debug_assert!(align.is_power_of_two() && align >= PAGE_SIZE);
        let fail = |errno| MemoryError::Call { call: "mmap", what, bytes: bytes as u64, errno };
        let room = bytes.checked_add(align).ok_or(Errno::NOMEM).map_err(fail)?;
        let mut whole = Mapping::reserve(what, room)?;
        let reserved = whole.base();
        let skip = reserved.align_offset(align);
        unmap(reserved, skip);
        unmap(reserved.wrapping_add(skip + bytes), align - skip);
        whole.base = NonNull::new(reserved.wrapping_add(skip)).ok_or(Errno::NOMEM).map_err(fail)?;
        whole.bytes = bytes;
        Ok(whole)
    }

    /// Where the first byte is; not null, and valid as long as the mapping.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Puts other memory in its place, at once for all threads: `file` from `offset` on. Pointers
    /// stay valid.
    pub fn replace(
        &self,
        what: &'static str,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<(), MemoryError> {
        self.put(what, 0, self.bytes, Some(Part { file, offset, shared: true }))
    }

    /// Has a core dump hold what is mapped here, or not.
    ///
    /// # Errors
    /// [`MemoryError::Call`].
    pub fn dump(&self, what: &'static str, on: bool) -> Result<(), MemoryError> {
        let advice = if on { Advice::LinuxDoDump } else { Advice::LinuxDontDump };
        let bytes = self.bytes as u64;
        let call = if on { "madvise(DODUMP)" } else { "madvise(DONTDUMP)" };
        self.advise(advice).map_err(|errno| MemoryError::Call { call, what, bytes, errno })
    }

    /// Puts memory into the `bytes` bytes at `at`, at once for all threads: a part of a file, or
    /// without one, nothing: the address space stays reserved.
    pub fn put(
        &self,
        what: &'static str,
        at: usize,
        bytes: usize,
        part: Option<Part<'_>>,
    ) -> Result<(), MemoryError> {
        let fail = |errno| MemoryError::Call { call: "mmap", what, bytes: bytes as u64, errno };
        if at.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(fail(Errno::INVAL));
        }
        let (read, write) = (ProtFlags::READ, ProtFlags::READ | ProtFlags::WRITE);
        let start = self.base().wrapping_add(at).cast();
        let (fixed, private) = (MapFlags::NORESERVE | MapFlags::FIXED, MapFlags::PRIVATE);
        // SAFETY: the range lies in this mapping and is replaced in one step; whoever reads or
        // writes it through pointers meanwhile sees one memory or the other.
        let outcome = unsafe {
            match part {
                Some(Part { file, offset, shared }) => {
                    let (access, kind) =
                        if shared { (write, MapFlags::SHARED) } else { (read, private) };
                    rustix::mm::mmap(start, bytes, access, fixed | kind, file, offset)
                }
                None => {
                    let nothing = ProtFlags::empty();
                    rustix::mm::mmap_anonymous(start, bytes, nothing, fixed | private)
                }
            }
        };
        outcome.map_err(fail)?;
        let advise = |advice, call| {
            // SAFETY: the range was mapped just now; no advice that is given here changes its contents.
            unsafe { rustix::mm::madvise(start, bytes, advice) }
                .map_err(|errno| MemoryError::Call { call, what, bytes: bytes as u64, errno })
        };
        // What is new there is in no core dump, as what was there before.
        advise(Advice::LinuxDontDump, "madvise(DONTDUMP)")?;
        if part.is_some_and(|part| part.shared) {
            // A child made by fork would go on writing what is another's meanwhile.
            advise(Advice::LinuxDontFork, "madvise(DONTFORK)")?;
        }
        Ok(())
    }

    /// Lets a part of a reservation be read and written: empty pages of this process's own.
    ///
    /// # Errors
    /// [`MemoryError::Call`].
    pub fn allow(&self, what: &'static str, at: usize, bytes: usize) -> Result<(), MemoryError> {
        self.protect(what, at, bytes, MprotectFlags::READ | MprotectFlags::WRITE)
    }

    /// Lets a part be read only: who writes it gets SIGSEGV.
    ///
    /// # Errors
    /// [`MemoryError::Call`].
    pub fn deny_writes(
        &self,
        what: &'static str,
        at: usize,
        bytes: usize,
    ) -> Result<(), MemoryError> {
        self.protect(what, at, bytes, MprotectFlags::READ)
    }

    /// Has no child made by fork get a copy.
    ///
    /// # Errors
    /// [`MemoryError::Call`].
    pub fn keep_from_children(&self, what: &'static str) -> Result<(), MemoryError> {
        let (call, bytes) = ("madvise(DONTFORK)", self.bytes as u64);
        let advice = Advice::LinuxDontFork;
        self.advise(advice).map_err(|errno| MemoryError::Call { call, what, bytes, errno })
    }

    fn protect(
        &self,
        what: &'static str,
        at: usize,
        bytes: usize,
        flags: MprotectFlags,
    ) -> Result<(), MemoryError> {
        let fail = |errno| MemoryError::Call { call: "mprotect", what, bytes: bytes as u64, errno };
        if at.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(fail(Errno::INVAL));
        }
        let start = self.base().wrapping_add(at).cast();
        // SAFETY: the range lies in this mapping, and its contents stay; without a right an access ends in a signal.
        unsafe { rustix::mm::mprotect(start, bytes, flags) }.map_err(fail)
    }

    fn advise(&self, advice: Advice) -> Result<(), Errno> {
        // SAFETY: the range is this mapping; no advice that is given here changes its contents.
        unsafe { rustix::mm::madvise(self.base().cast(), self.bytes, advice) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.base(), self.bytes);
    }
}

/// Gives address space back. Only for ranges that this module has mapped.
fn unmap(start: *mut u8, bytes: usize) {
    if bytes == 0 {
        return;
    }
    // SAFETY: the callers own the range and use it no more.
    let outcome = unsafe { rustix::mm::munmap(start.cast(), bytes) };
    if let Err(errno) = outcome {
        // Splitting a mapping can fail at the limit of mappings; then the address space leaks.
        tracing::warn!(%errno, bytes, "address space could not be given back");
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use farside_types::BLOCK_SIZE;

    #[test]
    fn mappings_are_aligned_and_share_the_file() {
        let file = memory_file("test", BLOCK_SIZE as u64).unwrap();
        let a = Mapping::new("test", &file, BLOCK_SIZE, BLOCK_SIZE).unwrap();
        let b = Mapping::new("test", &file, BLOCK_SIZE, PAGE_SIZE).unwrap();
        assert_eq!(a.base() as usize % BLOCK_SIZE, 0);
        // SAFETY: both mappings are live and nobody else uses them.
        unsafe {
            a.base().add(5).write(77);
            assert_eq!(b.base().add(5).read(), 77);
        }
    }

    #[test]
    fn a_replaced_mapping_keeps_its_place_and_has_other_memory() {
        let file = memory_file("test", 2 * PAGE_SIZE as u64).unwrap();
        let mapping = Mapping::new("test", &file, PAGE_SIZE, PAGE_SIZE).unwrap();
        let second =
            Mapping::of_part("test", &file, PAGE_SIZE as u64, PAGE_SIZE, PAGE_SIZE).unwrap();
        // SAFETY: both mappings are live and nobody else uses them.
        unsafe {
            mapping.base().write(1);
            second.base().write(2);
            mapping.replace("test", file.as_fd(), PAGE_SIZE as u64).unwrap();
            assert_eq!(mapping.base().read(), 2);
            assert!(mapping.put("test", PAGE_SIZE, PAGE_SIZE, None).is_err());
            mapping.put("test", 0, PAGE_SIZE, None).unwrap();
            // The kernel reads the byte instead of this process, which would end by it.
            assert_eq!(libc::write(file.as_raw_fd(), mapping.base().cast(), 1), -1);
            let errno = std::io::Error::last_os_error().raw_os_error();
            assert_eq!(errno, Some(libc::EFAULT), "nothing is there");
            assert_eq!(second.base().read(), 2, "the file is as it was");
        }
    }

    #[test]
    fn a_reservation_is_aligned_and_gets_memory_part_by_part() {
        let file = memory_file("test", 2 * PAGE_SIZE as u64).unwrap();
        let mapping = Mapping::reserve_aligned("test", 1 << 24, 1 << 24).unwrap();
        assert_eq!(mapping.base() as usize % (1 << 24), 0);
        let part = Part { file: file.as_fd(), offset: PAGE_SIZE as u64, shared: true };
        mapping.put("test", (1 << 24) - PAGE_SIZE, PAGE_SIZE, Some(part)).unwrap();
        let last = mapping.base().wrapping_add((1 << 24) - 1);
        // SAFETY: the page was mapped just now, and only this test uses it.
        unsafe {
            last.write(3);
            assert_eq!(last.read(), 3);
        }
    }

    #[test]
    fn a_memory_file_cannot_be_cut_off() {
        let file = memory_file("test", PAGE_SIZE as u64).unwrap();
        assert_eq!(rustix::fs::ftruncate(&file, 0), Err(Errno::PERM));
    }

    #[test]
    fn impossible_sizes_are_errors_that_say_what_to_do() {
        let file = memory_file("test", PAGE_SIZE as u64).unwrap();
        let error = Mapping::new("test", &file, usize::MAX & !(PAGE_SIZE - 1), PAGE_SIZE);
        let text = error.unwrap_err().to_string();
        assert!(text.contains("ask for less"), "{text}");
    }
}
