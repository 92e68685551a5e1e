//! The arena: the memory that `alloc` gives, at the same addresses on the host and on every card.
//!
//! Owns one memory file, its mapping for the program (registered with userfaultfd) and a second,
//! unregistered mapping for the runtime, the alias. Offers the host's steps of a migration; which
//! step is due when is the driver's business, and that ranges in use do not overlap as well.
//!
//! | page | program mapping | file |
//! |---|---|---|
//! | on the host | mapped | the bytes |
//! | on a card | absent: faults `Minor` | stale bytes |
//! | on a card, host frame given back | absent: faults `Missing` | a hole |
//! | lost | poisoned: SIGBUS | a hole |
//!
//! Out: [`Arena::unmap`] → copy alias→card. Back: copy card→alias → [`Arena::map`]. A page is
//! registered for minor faults as well as missing ones, so that no thread ever maps a page that
//! the runtime is filling through the alias.
//!
//! Memory that the kernel writes by itself (O_DIRECT, io_uring fixed buffers) is not stopped by
//! unmapping: pages in such use must be pinned to the host.

mod large;

use core::ptr::NonNull;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use farside_types::{
    BLOCK_PAGES, BLOCK_SIZE, FrameNo, PAGE_SIZE, PageNo, PageRange, Rights, VirtAddr,
};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::Advice;

use farside_linux::mapping::{Mapping, MemoryError, memory_file};
use farside_linux::uffd::abi::{feature, nr};
use farside_linux::uffd::{
    FeatureSet, Holes, Install, Installed, Present, RangeOperations, RegisterMode, UffdError,
    Userfaultfd,
};

pub use large::LargePages;

/// Address space of an arena unless told otherwise: 64 GiB. It costs nothing until used.
pub const DEFAULT_ARENA_BYTES: u64 = 64 << 30;

/// What errors call it.
const WHAT: &str = "farside-arena";

/// Most address space of an arena: a host frame is the index of its page in 32 bits, which are not all
/// used.
pub const ARENA_BYTES_MAX: u64 = (1 << 44) - BLOCK_SIZE as u64;

/// Most times that one page is taken out of the map again because it was mapped while being
/// poisoned.
const POISON_TRIES_MAX: u32 = 64;

/// `MADV_DONTNEED_LOCKED` (Linux 5.18): `MADV_DONTNEED` for locked pages too. In neither `libc` nor
/// `rustix`.
const DONTNEED_LOCKED: libc::c_int = 24;

/// Features without which there is no arena.
const NEEDED: u64 = feature::MISSING_SHMEM | feature::MINOR_SHMEM;
/// Features that are used where they exist.
const WANTED: u64 = NEEDED
    | WRITE_PROTECT
    | feature::WP_UNPOPULATED
    | feature::POISON
    | feature::THREAD_ID
    | feature::EXACT_ADDRESS;
/// Features that write-protect faults on shared memory need.
const WRITE_PROTECT: u64 = feature::PAGEFAULT_FLAG_WP | feature::WP_HUGETLBFS_SHMEM;

/// An operation on the arena failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArenaError {
    /// The pages are not all in the arena.
    #[error("cannot {operation} {range}: the arena has {arena}; give a range within it")]
    Bounds {
        /// What was tried.
        operation: &'static str,
        /// The pages asked for.
        range: PageRange,
        /// The pages of the arena.
        arena: PageRange,
    },
    /// More address space than frames have numbers for.
    #[error(
        "an address space of {bytes} bytes is not possible: {ARENA_BYTES_MAX} bytes (16 TiB less \
         2 MiB) are the most there can be; ask for less"
    )]
    TooLarge {
        /// What was asked for.
        bytes: u64,
    },
    /// The kernel lacks what the operation needs.
    #[error("cannot {operation}: this kernel lacks {needs}; run `farside doctor`")]
    Unsupported {
        /// What was tried.
        operation: &'static str,
        /// What is missing, and since when there is such a thing.
        needs: &'static str,
    },
    /// The paging interface failed.
    #[error(transparent)]
    Uffd(#[from] UffdError),
    /// The memory could not be had.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Locked pages cannot be taken out of the map.
    #[error(
        "{range} cannot be taken from the program: some of it is locked (mlock, mlockall), and this \
         kernel takes no locked page away (MADV_DONTNEED_LOCKED, Linux 5.18); munlock it"
    )]
    Locked {
        /// Which pages.
        range: PageRange,
    },
    /// A system call on pages failed.
    #[error("{call} on {range} failed: {errno}; run `farside doctor` to see what is supported")]
    Call {
        /// The system call.
        call: &'static str,
        /// Which pages.
        range: PageRange,
        /// The kernel's answer.
        errno: Errno,
    },
}

impl ArenaError {
    /// The kernel's error number; what it would have said where it was not the kernel that refused.
    pub fn errno(&self) -> Errno {
        match self {
            ArenaError::Uffd(error) => error.errno().unwrap_or(Errno::INVAL),
            ArenaError::Call { errno, .. }
            | ArenaError::Memory(MemoryError::Call { errno, .. }) => *errno,
            ArenaError::Unsupported { .. } => Errno::NOSYS,
            ArenaError::Bounds { .. }
            | ArenaError::TooLarge { .. }
            | ArenaError::Memory(_)
            | ArenaError::Locked { .. } => Errno::INVAL,
        }
    }
}

/// What the arena can do on this kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaSupport {
    /// Whether pages can be mapped read only, so that writes to them fault (Linux 6.4). Without
    /// it `Capabilities::host_read_only` is false.
    pub host_read_only: bool,
    /// Whether lost pages can be poisoned (Linux 6.6).
    pub poison: bool,
}

/// See the module. Dropping it unmaps it first: threads that still wait for a page of it then
/// end with SIGSEGV, rather than seeing empty memory.
#[derive(Debug)]
pub struct Arena {
    // Fields are dropped in this order.
    program: Mapping,
    alias: Mapping,
    uffd: Userfaultfd,
    file: OwnedFd,
    pages: PageRange,
    mode: RegisterMode,
    operations: RangeOperations,
    support: ArenaSupport,
    large: large::Blocks,
    /// Frames stay where they are; see [`Arena::keep_frames`].
    keeps_frames: AtomicBool,
}

impl Arena {
    /// An arena over `bytes` bytes of address space ([`DEFAULT_ARENA_BYTES`]), a positive
    /// multiple of 2 MiB. Memory is taken page by page as it is used.
    ///
    /// # Errors
    /// [`ArenaError::Memory`] for the size or where memory or address space is short,
    /// [`ArenaError::Uffd`] where userfaultfd is not to be had, [`ArenaError::Unsupported`] before
    /// Linux 5.14.
    pub fn new(bytes: u64) -> Result<Arena, ArenaError> {
        let length = usize::try_from(bytes).unwrap_or(0);
        if bytes > ARENA_BYTES_MAX {
            return Err(ArenaError::TooLarge { bytes });
        }
        if length == 0 || length % BLOCK_SIZE != 0 {
            return Err(MemoryError::Size { what: WHAT, bytes, multiple: BLOCK_SIZE as u64 }.into());
        }
        let uffd = Userfaultfd::open(FeatureSet(WANTED))?;
        if !uffd.enabled().contains(NEEDED) {
            return Err(ArenaError::Unsupported {
                operation: "make an arena",
                needs: "userfaultfd minor faults on shared memory (Linux 5.14)",
            });
        }
        let file = memory_file(WHAT, bytes)?;
        let program = Mapping::new(WHAT, &file, length, BLOCK_SIZE)?;
        let alias = Mapping::new(WHAT, &file, length, BLOCK_SIZE)?;
        let base = VirtAddr(program.base() as u64).page();
        let pages = PageRange::new(base, bytes >> farside_types::PAGE_SHIFT);
        let write_protect = uffd.enabled().contains(WRITE_PROTECT);
        let mode = RegisterMode { missing: true, minor: true, write_protect };
        // SAFETY: the range is the program mapping just made, which this arena owns. It is
        // unmapped before the descriptor is closed, and no reference into it exists.
        let operations = unsafe { uffd.register(pages, mode) }?;
        let mut arena = Arena {
            program,
            alias,
            mode,
            operations,
            pages,
            large: large::Blocks::new(pages.count / BLOCK_PAGES),
            support: ArenaSupport {
                host_read_only: false,
                poison: uffd.enabled().contains(feature::POISON) && operations.has(nr::POISON),
            },
            uffd,
            file,
            keeps_frames: AtomicBool::new(false),
        };
        arena.support.host_read_only = write_protect && arena.maps_write_protected();
        Ok(arena)
    }

    /// Has core dumps hold the pages that the program has mapped at that moment; never those that
    /// are elsewhere, nor those that were never used.
    ///
    /// # Errors
    /// [`ArenaError::Memory`].
    pub fn dump(&self) -> Result<(), ArenaError> {
        // The kernel dumps no page for which it would have to fault here. The alias, where every
        // page of the file can be had, stays out.
        Ok(self.program.dump(WHAT, true)?)
    }

    /// The pages of the arena.
    pub fn pages(&self) -> PageRange {
        self.pages
    }

    /// The first page.
    pub fn base_page(&self) -> PageNo {
        self.pages.start
    }

    /// Whether the byte at `addr` is in the arena.
    pub fn contains(&self, addr: VirtAddr) -> bool {
        self.pages.contains(addr.page())
    }

    /// What it can do on this kernel.
    pub fn support(&self) -> ArenaSupport {
        self.support
    }

    /// The source of fault events. Resolve them with the arena's own operations.
    pub fn uffd(&self) -> &Userfaultfd {
        &self.uffd
    }

    /// Where the alias of the first page is: memory of the runtime, without faults.
    pub(crate) fn alias_base(&self) -> *mut u8 {
        self.alias.base()
    }

    /// The memory file; byte 0 is the first page.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The host frame of a page; `None` if the page is not in the arena.
    pub fn frame(&self, page: PageNo) -> Option<FrameNo> {
        self.pages.contains(page).then(|| FrameNo((page.0 - self.pages.start.0) as u32))
    }

    /// Where the program sees a page. Accesses fault as the driver decides.
    ///
    /// # Errors
    /// [`ArenaError::Bounds`].
    pub fn program_ptr(&self, page: PageNo) -> Result<NonNull<u8>, ArenaError> {
        self.pointer("address", &self.program, PageRange::page(page))
    }

    /// Where the runtime sees the frames of `range`, contiguous. Accesses never fault through
    /// userfaultfd; reading a hole allocates the page (zeros).
    ///
    /// The pointer lives as long as the arena. Whoever dereferences it must hold the range as
    /// the driver's rules say: taken out of the map before its bytes are moved.
    ///
    /// # Errors
    /// [`ArenaError::Bounds`].
    pub fn alias_ptr(&self, range: PageRange) -> Result<NonNull<u8>, ArenaError> {
        self.pointer("address", &self.alias, range)
    }

    /// Takes `range` out of the program's map: when it returns, every thread's next access
    /// faults, and no write is in flight. The bytes stay in the file.
    ///
    /// # Errors
    /// [`ArenaError::Bounds`], [`ArenaError::Call`].
    pub fn unmap(&self, range: PageRange) -> Result<(), ArenaError> {
        self.checked("unmap", range)?;
        if self.has_large(range) {
            self.unmap_by_blocks(range)
        } else {
            self.drop_translations(range)
        }
    }

    /// Empties the page table of `range`, but for poison and marks of protection.
    fn drop_translations(&self, range: PageRange) -> Result<(), ArenaError> {
        let start = self.checked("unmap", range)?;
        if range.is_empty() {
            return Ok(());
        }
        let start = self.program.base().wrapping_add(start);
        let bytes = range.bytes() as usize;
        let dropped = retry(|| {
            // SAFETY: the range is within the program mapping (checked). On a shared file mapping
            // DONTNEED drops translations only; the bytes stay in the file.
            unsafe { rustix::mm::madvise(start.cast(), bytes, Advice::LinuxDontNeed) }
        });
        match dropped {
            Ok(()) => Ok(()),
            // So the kernel answers for pages that the program has locked, and stops there.
            Err(Errno::INVAL) => self.unmap_locked(range, start),
            Err(errno) => Err(ArenaError::Call { call: "madvise(DONTNEED)", range, errno }),
        }
    }

    /// [`Arena::unmap`] for pages of which some are locked (`mlock`, `mlockall`).
    fn unmap_locked(&self, range: PageRange, start: *mut u8) -> Result<(), ArenaError> {
        retry(|| {
            // SAFETY: as in `unmap`, which has checked the range; locked pages are dropped as well,
            // and stay locked wherever they are mapped again.
            let failed =
                unsafe { libc::madvise(start.cast(), range.bytes() as usize, DONTNEED_LOCKED) };
            if failed == 0 {
                return Ok(());
            }
            Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
        })
        .map_err(|errno| match errno {
            Errno::INVAL => ArenaError::Locked { range },
            errno => ArenaError::Call { call: "madvise(DONTNEED_LOCKED)", range, errno },
        })
    }

    /// Maps the pages of `range` as they are in the file and wakes the threads that wait for
    /// them. Pages that are mapped already get `rights`, and their threads are woken as well, so
    /// it is also the answer to an event that has become stale.
    ///
    /// # Errors
    /// [`ArenaError::Bounds`]; [`ArenaError::Unsupported`] for `Rights::Read` without
    /// [`ArenaSupport::host_read_only`]; [`ArenaError::Uffd`] with EFAULT at the first page that
    /// is not in the file (a lost page never turns into zeros this way). Pages before the one
    /// that failed are mapped and woken.
    pub fn map(&self, range: PageRange, rights: Rights) -> Result<Installed, ArenaError> {
        self.install("map", range, rights, Holes::Refuse)
    }

    /// Like [`Arena::map`], and pages that are not in the file are filled with zeros: for pages
    /// that were never written or have been released. A page that is in the file keeps its bytes;
    /// to be rid of them, [`Arena::release`] first.
    ///
    /// # Errors
    /// As [`Arena::map`], without EFAULT; ENOMEM where memory has run out.
    pub fn map_zero(&self, range: PageRange, rights: Rights) -> Result<Installed, ArenaError> {
        let zeropage = self.operations.has(nr::ZEROPAGE);
        self.install("map zeros", range, rights, Holes::Zero { zeropage })
    }

    /// Changes what the program may do with the mapped pages of `range`. Growing rights wake the
    /// threads that wait to write. With shrinking ones, when it returns no write is in flight.
    ///
    /// # Errors
    /// [`ArenaError::Bounds`], [`ArenaError::Unsupported`] without
    /// [`ArenaSupport::host_read_only`], [`ArenaError::Uffd`].
    pub fn protect(&self, range: PageRange, rights: Rights) -> Result<(), ArenaError> {
        self.checked("protect", range)?;
        self.require_read_only("protect pages")?;
        if self.has_large(range) {
            return self.protect_by_blocks(range, rights);
        }
        Ok(self.uffd.write_protect(range, rights == Rights::Read)?)
    }

    /// A device reaches the frames through an IOMMU, which knows them as they are now: from here on
    /// [`Arena::release`] fills them with zeros instead of giving them back, because a frame that
    /// came in their place would be another than the device's.
    pub fn keep_frames(&self) {
        self.keeps_frames.store(true, Ordering::SeqCst);
    }

    /// Gives the host frames of `range` back to the kernel, and takes them out of every map. The
    /// next reader of the frames sees zeros.
    ///
    /// # Errors
    /// [`ArenaError::Bounds`], [`ArenaError::Call`].
    pub fn release(&self, range: PageRange) -> Result<(), ArenaError> {
        self.checked("release", range)?;
        if range.is_empty() {
            return Ok(());
        }
        if self.keeps_frames.load(Ordering::SeqCst) {
            self.clear_entries(range)?;
            let alias = self.alias_ptr(range)?;
            // SAFETY: the alias covers the range; its frames are given up, so nobody uses them.
            unsafe { alias.as_ptr().write_bytes(0, range.bytes() as usize) };
            return Ok(());
        }
        if self.has_large(range) { self.punch_by_blocks(range) } else { self.punch(range) }
    }

    /// Makes a hole of `range` in the file.
    fn punch(&self, range: PageRange) -> Result<(), ArenaError> {
        let start = self.checked("release", range)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retry(|| rustix::fs::fallocate(&self.file, flags, start as u64, range.bytes()))
            .map_err(|errno| ArenaError::Call { call: "fallocate(PUNCH_HOLE)", range, errno })
    }

    /// Makes accesses to `range` end with SIGBUS, those that wait as well: the bytes are gone.
    /// The frames are released first, so that no later [`Arena::map`] can bring stale bytes back;
    /// [`Arena::map_zero`] and [`Arena::unmap`] lift the poison.
    ///
    /// # Errors
    /// [`ArenaError::Bounds`], [`ArenaError::Unsupported`] without [`ArenaSupport::poison`],
    /// [`ArenaError::Call`], [`ArenaError::Uffd`].
    pub fn poison(&self, range: PageRange) -> Result<(), ArenaError> {
        self.checked("poison", range)?;
        if !self.support.poison {
            return Err(ArenaError::Unsupported {
                operation: "poison pages",
                needs: "UFFDIO_POISON (Linux 6.6)",
            });
        }
        self.release(range)?;
        let mut left = range;
        let mut tries = 0;
        loop {
            self.clear_entries(left)?;
            let Err(error) = self.uffd.poison(left) else {
                return Ok(());
            };
            let UffdError::Range { done, errno: Errno::EXIST, .. } = error else {
                return Err(error.into());
            };
            tries = if done > 0 { 0 } else { tries + 1 };
            if tries > POISON_TRIES_MAX {
                return Err(error.into());
            }
            left = PageRange::new(left.start.offset(done), left.count - done);
        }
    }

    /// Empties the page table entries of `range`: mappings, old poison, and the write-protection
    /// markers that zapping a protected page leaves behind, on which POISON would stop.
    fn clear_entries(&self, range: PageRange) -> Result<(), ArenaError> {
        self.unmap(range)?;
        if self.operations.has(nr::WRITEPROTECT) {
            self.uffd.forget_protection(range)?;
        }
        Ok(())
    }

    fn install(
        &self,
        operation: &'static str,
        range: PageRange,
        rights: Rights,
        holes: Holes,
    ) -> Result<Installed, ArenaError> {
        self.checked(operation, range)?;
        let write_protect = rights == Rights::Read;
        if write_protect {
            self.require_read_only("map pages read only")?;
        }
        let how = self.how(operation, rights, holes);
        if self.has_large(range) {
            return self.install_by_blocks(range, how);
        }
        Ok(self.uffd.install(range, how)?)
    }

    /// How pages are mapped.
    fn how(&self, operation: &'static str, rights: Rights, holes: Holes) -> Install {
        let protects = self.operations.has(nr::WRITEPROTECT);
        let present = if protects { Present::Protect } else { Present::Keep };
        Install { operation, write_protect: rights == Rights::Read, holes, present }
    }

    /// Has userfaultfd watch `range` again, of which it was told not to.
    fn register(&self, range: PageRange) -> Result<(), ArenaError> {
        // SAFETY: as in `new`: the range is of the program mapping, which this arena owns.
        unsafe { self.uffd.register(range, self.mode) }?;
        Ok(())
    }

    fn require_read_only(&self, operation: &'static str) -> Result<(), ArenaError> {
        if self.support.host_read_only {
            return Ok(());
        }
        Err(ArenaError::Unsupported {
            operation,
            needs: "write-protected mappings of shared memory (UFFDIO_CONTINUE_MODE_WP, Linux 6.4)",
        })
    }

    /// No feature bit tells whether CONTINUE takes MODE_WP, so ask: in a new arena every page is a
    /// hole, which a kernel that knows the mode answers with EFAULT, others with EINVAL.
    fn maps_write_protected(&self) -> bool {
        let outcome = self.uffd.continue_pages(PageRange::page(self.base_page()), true);
        outcome.is_err_and(|error| error.errno() == Some(Errno::FAULT))
    }

    fn pointer(
        &self,
        operation: &'static str,
        mapping: &Mapping,
        range: PageRange,
    ) -> Result<NonNull<u8>, ArenaError> {
        let offset = self.checked(operation, range)?;
        // The base of a mapping is not null and the offset within it.
        NonNull::new(mapping.base().wrapping_add(offset)).ok_or(ArenaError::Bounds {
            operation,
            range,
            arena: self.pages,
        })
    }

    /// Byte offset of `range` in file and mappings, if the arena covers it.
    fn checked(&self, operation: &'static str, range: PageRange) -> Result<usize, ArenaError> {
        let offset = range.start.0.checked_sub(self.pages.start.0);
        let inside = offset.filter(|&offset| {
            offset.checked_add(range.count).is_some_and(|end| end <= self.pages.count)
        });
        inside.map(|pages| pages as usize * PAGE_SIZE).ok_or(ArenaError::Bounds {
            operation,
            range,
            arena: self.pages,
        })
    }
}

fn retry(mut call: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
