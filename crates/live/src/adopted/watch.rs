//! The descriptors that adopted memory is watched by, and what is heard of it.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use farside_linux::lock::lock;
use farside_linux::mapping::Mapping;
use farside_linux::uffd::abi::feature;
use farside_linux::uffd::{Fault, FeatureSet, Happened, RegisterMode, UffdError, Userfaultfd};
use farside_linux::wait::Gate;
use farside_types::{BLOCK_SIZE, PAGE_SHIFT, PageNo, PageRange, VirtAddr};
use rustix::io::Errno;

use super::departures::Departures;
use super::emptying::Emptying;
use super::{AdoptError, Region};

/// Features without which nothing is adopted.
const NEEDED: u64 = feature::MOVE
    | feature::EVENT_REMOVE
    | feature::EVENT_UNMAP
    | feature::EVENT_REMAP
    | feature::PAGEFAULT_FLAG_WP
    | feature::POISON;

/// Faults that were heard by others than the reader, and wait for it. Whoever comes later faults again.
const FAULTS_MAX: usize = 1024;

/// Pages of the bin.
const BIN_PAGES: u64 = (BLOCK_SIZE >> PAGE_SHIFT) as u64;

/// What an event has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Nothing,
    /// Something for the thread that works for adopted memory.
    Work,
}

/// Who serves a fault.
#[derive(Debug)]
pub(crate) enum Whose {
    /// The driver, which knows this page.
    Drivers(PageNo),
    /// A range that the driver has let go of, and that is not all at home.
    LetGo(Arc<Region>, PageNo),
    /// Nobody: it is of no range.
    Nobodys,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Heap and staging areas; with events. While one of them has not been read, it refuses every operation, so none is about addresses
    /// that are another's by now.
    uffd: Userfaultfd,
    regions: Arc<RwLock<Vec<Arc<Region>>>>,
    /// Held for reading by who moves pages, for writing by who reads events until it has entered them.
    order: RwLock<()>,
    pub(super) departures: Departures,
    pub(super) emptying: Emptying,
    faults: Mutex<VecDeque<Fault>>,
    /// Wakes the reader.
    pub(crate) bell: OwnedFd,
    /// Wakes the worker, and who waits for it.
    pub(crate) work: Gate,
    /// How often there was something for the worker, and how much of that it has done.
    pub(crate) asked: AtomicU64,
    pub(crate) served: AtomicU64,
    /// `/proc/self/pagemap`.
    map: File,
    /// No more is to be heard: the space closes.
    pub(crate) closed: AtomicBool,
    bin: Mutex<Bin>,
    /// Pages are copied out of the heap while the program writes them: for tests that must notice.
    #[cfg(feature = "mutations")]
    pub(crate) copies_first: AtomicBool,
}

/// Where pages go that nobody needs: memory that is watched without events, so that giving it back waits for
/// nobody.
#[derive(Debug)]
struct Bin {
    uffd: Userfaultfd,
    pages: PageRange,
    memory: Mapping,
    /// It may hold pages.
    is_full: bool,
}

impl Watch {
    pub(super) fn new(regions: Arc<RwLock<Vec<Arc<Region>>>>) -> Result<Watch, AdoptError> {
        let open = |wanted| {
            Userfaultfd::open(FeatureSet(wanted))
                .map_err(|error| AdoptError::Uffd { addr: VirtAddr(0), error })
        };
        let uffd = open(NEEDED | feature::THREAD_ID | feature::EXACT_ADDRESS)?;
        if !uffd.enabled().contains(NEEDED) {
            return Err(AdoptError::NoMove);
        }
        let map = File::open("/proc/self/pagemap").map_err(|error| AdoptError::Call {
            what: "open(/proc/self/pagemap)",
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })?;
        let bin = Bin::new(open(feature::MOVE)?)?;
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let bell = rustix::event::eventfd(0, flags)
            .map_err(|errno| AdoptError::Call { what: "eventfd", errno })?;
        Ok(Watch {
            uffd,
            regions,
            order: RwLock::new(()),
            departures: Departures::default(),
            emptying: Emptying::default(),
            faults: Mutex::new(VecDeque::with_capacity(FAULTS_MAX)),
            bell,
            work: Gate::new(),
            asked: AtomicU64::new(0),
            served: AtomicU64::new(0),
            map,
            closed: AtomicBool::new(false),
            bin: Mutex::new(bin),
            #[cfg(feature = "mutations")]
            copies_first: AtomicBool::new(false),
        })
    }

    pub(crate) fn uffd(&self) -> &Userfaultfd {
        &self.uffd
    }

    /// Nothing that is heard changes where pages are, until it is given back.
    pub(crate) fn order(&self) -> RwLockReadGuard<'_, ()> {
        self.order.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody moves a page until it is given back.
    fn still(&self) -> RwLockWriteGuard<'_, ()> {
        self.order.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all that there is to hear and enters it. Allocates nothing: who has unmapped something may hold
    /// the lock of an allocator.
    pub(crate) fn hear(&self) {
        let mut found = Found::Nothing;
        {
            let _still = self.still();
            loop {
                match self.uffd.read_event() {
                    Ok(Some(happened)) => {
                        if self.enter(happened) == Found::Work {
                            found = Found::Work;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => deaf(&error),
                }
            }
            if found == Found::Work {
                self.asked.fetch_add(1, Ordering::SeqCst);
            }
        }
        if found == Found::Work {
            self.work.notify();
        }
    }

    fn enter(&self, happened: Happened) -> Found {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let each = |enter: &dyn Fn(&Region) -> Found| {
            let found = regions.iter().map(|region| enter(region));
            found.fold(Found::Nothing, |all, one| if one == Found::Work { one } else { all })
        };
        match happened {
            Happened::Fault(fault) => {
                drop(regions);
                self.keep(fault);
                Found::Nothing
            }
            Happened::Removed(pages) => each(&|region| region.removed(pages)),
            Happened::Unmapped(pages) => each(&|region| region.unmapped(pages)),
            Happened::Moved { from, to } => each(&|region| region.moved(from, to)),
        }
    }

    fn keep(&self, fault: Fault) {
        let mut faults = lock(&self.faults);
        if faults.len() < FAULTS_MAX {
            faults.push_back(fault);
        } else {
            // It faults again, and by then there is room.
            let _ = self.uffd.wake(PageRange::page(fault.addr.page()));
        }
        drop(faults);
        self.ring();
    }

    /// Makes the reader look up.
    pub(crate) fn ring(&self) {
        // Full means that it has been rung often enough.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// The next fault that was heard.
    pub(crate) fn next_fault(&self) -> Option<Fault> {
        lock(&self.faults).pop_front()
    }

    /// Whose a page is that is at an address now.
    pub(crate) fn whose(&self, now: PageNo) -> Whose {
        let _order = self.order();
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let found = regions.iter().find_map(|region| Some((region, region.page_at(now)?)));
        match found {
            Some((region, page)) if region.is_let_go.load(Ordering::SeqCst) => {
                Whose::LetGo(Arc::clone(region), page)
            }
            Some((_, page)) => Whose::Drivers(page),
            None => Whose::Nobodys,
        }
    }

    /// A fault at memory that is watched and of no range: what the program has added to one by mremap, or the
    /// rest of one. It is what fresh memory is.
    pub(crate) fn fill_unknown(&self, page: PageNo) {
        match self.uffd.zero_once_only(PageRange::page(page)) {
            Ok(_) => {}
            Err(Errno::AGAIN) => self.keep(Fault { addr: page.addr(), ..Fault::EMPTY }),
            Err(_) => _ = self.uffd.wake(PageRange::page(page)),
        }
    }

    /// Watches pages no more, nor what the program has added at their end (mremap), which is watched with them. That is
    /// told by the mapping: one never holds what another descriptor watches, of another space or another library, and
    /// to ask the kernel about a page would take its protection off.
    pub(super) fn forget(&self, range: PageRange) {
        let mapped = super::maps::pages_from(PageNo(range.end().0 - 1));
        let _order = self.order();
        let behind = match mapped {
            Ok(mapped) => self.free_of_ranges(PageRange::new(range.end(), mapped.count.max(1) - 1)),
            Err(_) => PageRange::default(),
        };
        for pages in [range, behind].into_iter().filter(|pages| !pages.is_empty()) {
            // What was unmapped meanwhile is not watched either.
            if let Err(error) = self.uffd.unregister(pages) {
                tracing::debug!(%error, %pages, "adopted memory was not watched any more");
            }
        }
    }

    /// The pages at the start of `pages` before the next range.
    fn free_of_ranges(&self, pages: PageRange) -> PageRange {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let next = regions.iter().filter_map(|region| region.first_from(pages.start)).min();
        let free = next.map_or(pages.count, |next| next.0 - pages.start.0);
        PageRange::new(pages.start, pages.count.min(free))
    }

    /// The same for a page of a range while the program forks: the step that wants the page next may wait for the end of
    /// that, and the fork for who waits here. All pages are at home, so one that is absent was never touched, or
    /// is empty. Whether it was done.
    pub(crate) fn fill_beside_a_fork(&self, now: PageNo) -> bool {
        let at_home = || {
            let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
            regions
                .iter()
                .filter(|region| region.backing().is_none())
                .any(|region| region.page_at(now).is_some_and(|page| region.has_at_home(page)))
        };
        self.departures.if_stopped(|| {
            at_home() && {
                self.fill_unknown(now);
                true
            }
        })
    }

    /// No page leaves the heap, and who waits for one is served beside the fork.
    pub(super) fn let_fault_beside_a_fork(&self) {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.iter().for_each(|region| region.let_fault_again());
    }

    /// Wakes who waits for pages that are there.
    pub(super) fn wake(&self, pages: PageRange) -> Result<(), Errno> {
        self.uffd.wake(pages).map_err(|error| error.errno().unwrap_or(Errno::INVAL))
    }

    /// Whether a page is there, in memory or swapped out: what a call says of one may be about another, or wrong.
    pub(super) fn has(&self, page: PageNo) -> bool {
        const THERE: u64 = 3 << 62;
        let mut entry = [0; 8];
        let at = (page.addr().0 >> PAGE_SHIFT) * 8;
        self.map.read_exact_at(&mut entry, at).is_ok() && u64::from_ne_bytes(entry) & THERE != 0
    }

    /// Gives pages at the start of a part of a staging area back; says how many.
    pub(super) fn discard(&self, pages: PageRange) -> Result<u64, Errno> {
        let mut bin = lock(&self.bin);
        if bin.is_full {
            bin.empty()?;
        }
        let to = PageRange::new(bin.pages.start, pages.count.min(BIN_PAGES));
        // SAFETY: the staging area is the caller's, whose pages it gives up; the bin is nobody's.
        match unsafe { bin.uffd.move_pages(to, pages.start) } {
            Ok(moved) => {
                bin.is_full = true;
                // If it fails it is tried again before the bin is used.
                let _ = bin.empty();
                Ok(moved)
            }
            Err(Errno::NOENT) if !self.has(pages.start) => Ok(1),
            Err(Errno::EXIST) => {
                bin.is_full = true;
                Err(Errno::AGAIN)
            }
            Err(Errno::NOENT) => Err(Errno::AGAIN),
            Err(errno) => Err(errno),
        }
    }
}

impl Bin {
    fn new(uffd: Userfaultfd) -> Result<Bin, AdoptError> {
        const WHAT: &str = "farside-bin";
        let memory = Mapping::reserve_aligned(WHAT, BLOCK_SIZE, BLOCK_SIZE)?;
        memory.allow(WHAT, 0, BLOCK_SIZE)?;
        memory.keep_from_children(WHAT)?;
        let pages = PageRange::new(VirtAddr(memory.base() as u64).page(), BIN_PAGES);
        let mode = RegisterMode { missing: true, minor: false, write_protect: false };
        // SAFETY: the range is the mapping just made, which nobody else knows.
        unsafe { uffd.register(pages, mode) }
            .map_err(|error| AdoptError::Uffd { addr: pages.start.addr(), error })?;
        Ok(Bin { uffd, pages, memory, is_full: false })
    }

    fn empty(&mut self) -> Result<(), Errno> {
        let advice = rustix::mm::Advice::LinuxDontNeed;
        // SAFETY: the memory is the bin's own, and nobody reads it.
        unsafe { rustix::mm::madvise(self.memory.base().cast(), BLOCK_SIZE, advice) }?;
        self.is_full = false;
        Ok(())
    }
}

/// Without events every thread that touches adopted memory would hang.
fn deaf(error: &UffdError) -> ! {
    eprintln!("farside: cannot read what happens to adopted memory: {error}; aborting");
    std::process::abort();
}
