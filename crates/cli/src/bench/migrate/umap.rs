//! UMap's design, re-created: what a fault costs in a library that serves it by one poll loop, fillers with a
//! bounce buffer each, and `UFFDIO_COPY`.
//!
//! After LLNL's UMap (github.com/LLNL/umap, commit ebc5a66): the loop and its batches `src/umap/Uffd.cpp`, the
//! table of pages and what happens under its lock `Buffer.cpp`, the fillers `FillWorkers.cpp`, one queue behind a
//! lock and a condition `WorkQueue.hpp`, 256 events at a time and as many fillers as processors
//! `RegionManager.cpp`. Nothing of its code is here.
//!
//! As there: private anonymous memory, registered for missing pages and write protection; a page is 4 KiB; a
//! page that is read comes write-protected. Left out: eviction and writing back (its buffer is never full here),
//! several regions, statistics. Its store is a file; here it is warm memory, as a card's, which is faster.

use std::collections::{BTreeMap, VecDeque};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use farside::LiveError;
use farside_linux::affinity::cpu_count;
use farside_linux::card_memory::{CardMemory, copy_pages};
use farside_linux::lock::lock;
use farside_linux::uffd::abi::feature;
use farside_linux::uffd::{Fault, FaultKind, FeatureSet, RegisterMode, Userfaultfd};
use farside_types::{Access, FrameNo, PAGE_SIZE, PageNo, PageRange, VirtAddr};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::super::{BenchError, pin};

/// Events that the loop reads at a time.
const EVENTS: usize = 256;

/// Private anonymous memory of the program.
struct Region {
    base: NonNull<u8>,
    pages: PageRange,
}

// SAFETY: the memory is of the process, not of a thread; only its address is used by others.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// What is known of a page that was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// A filler is at it.
    Updating,
    /// Its bytes are there.
    Present,
}

#[derive(Clone, Copy)]
struct Page {
    state: State,
    dirty: bool,
}

/// What a filler has to do.
#[derive(Clone, Copy)]
enum Work {
    /// Fill a page; write-protected unless it was written.
    Fill { page: PageNo, dirty: bool },
    /// Let a page be written that is there.
    Unprotect(PageNo),
    /// Leave.
    End,
}

struct Shared {
    // Dropped first: nothing waits for a page any more.
    uffd: Userfaultfd,
    region: Region,
    store: CardMemory,
    pages: Mutex<BTreeMap<PageNo, Page>>,
    changed: Condvar,
    queue: Mutex<VecDeque<Work>>,
    has_work: Condvar,
    stop: AtomicBool,
}

/// A region whose faults are served as UMap serves them.
pub(super) struct UmapLike {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Region {
    fn new(pages: u64) -> Result<Region, BenchError> {
        let bytes = pages as usize * PAGE_SIZE;
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address the kernel chooses touches nothing.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) };
        let base = base.map_err(std::io::Error::from)?.cast::<u8>();
        let start = VirtAddr(base as u64).page();
        let base = NonNull::new(base).ok_or(std::io::ErrorKind::OutOfMemory);
        let base = base.map_err(std::io::Error::from)?;
        Ok(Region { base, pages: PageRange::new(start, pages) })
    }

    /// Takes all pages away.
    fn empty(&self) -> Result<(), BenchError> {
        let (start, bytes) = (self.base.as_ptr().cast(), self.pages.bytes() as usize);
        // SAFETY: the range is this mapping; nobody has a reference into it.
        unsafe { rustix::mm::madvise(start, bytes, Advice::LinuxDontNeed) }
            .map_err(std::io::Error::from)?;
        Ok(())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping, which nobody uses any more.
        let unmapped =
            unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.pages.bytes() as usize) };
        debug_assert!(unmapped.is_ok());
    }
}

impl UmapLike {
    /// Starts the loop and its fillers on `cpu`; the store is empty.
    pub(super) fn start(pages: u32, cpu: usize) -> Result<UmapLike, BenchError> {
        let store = CardMemory::new(pages).map_err(LiveError::from)?;
        store.warm(FrameNo(0), pages).map_err(LiveError::from)?;
        let wanted = FeatureSet(feature::PAGEFAULT_FLAG_WP);
        let uffd = Userfaultfd::open(wanted).map_err(failed)?;
        let region = Region::new(pages.into())?;
        // Kernels that do not protect anonymous memory: then it is mapped writable, as UMap does.
        let write_protect = uffd.enabled().contains(wanted.0);
        let mode = RegisterMode { missing: true, minor: false, write_protect };
        // SAFETY: the region is a mapping of its own, which lives as long as the descriptor; nobody has a
        // reference into it.
        unsafe { uffd.register(region.pages, mode) }.map_err(failed)?;
        let shared = Arc::new(Shared {
            uffd,
            region,
            store,
            pages: Mutex::default(),
            changed: Condvar::new(),
            queue: Mutex::default(),
            has_work: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let spawn = |body: fn(&Shared)| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                let _pinned = pin(cpu);
                body(&shared);
            })
        };
        let fillers = (0..cpu_count()).map(|_| spawn(Shared::fill));
        let threads = std::iter::once(spawn(Shared::handle)).chain(fillers).collect();
        Ok(UmapLike { shared, threads })
    }

    /// The first byte of the region.
    pub(super) fn start_ptr(&self) -> *mut u8 {
        self.shared.region.base.as_ptr()
    }

    /// Takes all pages away from the program, and writes `image` to the store: by the caller's processor, as
    /// a migration to a card does.
    pub(super) fn send_out(&self, image: &[u64]) -> Result<(), BenchError> {
        let shared = &self.shared;
        let mut pages = lock(&shared.pages);
        while pages.values().any(|page| page.state != State::Present) {
            pages = shared.changed.wait(pages).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        shared.region.empty()?;
        pages.clear();
        let count = size_of_val(image) / PAGE_SIZE;
        assert!(count <= shared.store.frames() as usize, "the image fits the store");
        // SAFETY: both hold `count` pages; no page is being filled, and none will be before the region is
        // touched.
        unsafe { copy_pages(image.as_ptr().cast(), shared.store.base(), count) };
        Ok(())
    }
}

impl Drop for UmapLike {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        (0..self.threads.len()).for_each(|_| self.shared.send(Work::End));
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Failed(error.to_string())
}

impl Shared {
    /// The poll loop: batches of faults, sorted, each page once.
    fn handle(&self) {
        let mut faults = vec![Fault::EMPTY; EVENTS];
        while !self.stop.load(Ordering::Relaxed) {
            let mut polled = [PollFd::new(&self.uffd, PollFlags::IN)];
            let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let _ = rustix::event::poll(&mut polled, Some(&timeout));
            let count = self.uffd.read_events(&mut faults).unwrap_or(0);
            let batch = &mut faults[..count];
            // Of one page the strongest access first.
            batch
                .sort_unstable_by_key(|fault| (fault.addr.page(), std::cmp::Reverse(fault.access)));
            let mut last = None;
            for fault in batch
                .iter()
                .filter(|fault| last.replace(fault.addr.page()) != Some(fault.addr.page()))
            {
                let writes = fault.access == Access::Write || fault.kind == FaultKind::WriteProtect;
                self.take(fault.addr.page(), writes);
            }
        }
    }

    /// One page of a batch.
    fn take(&self, page: PageNo, writes: bool) {
        let mut pages = lock(&self.pages);
        while pages.get(&page).is_some_and(|known| known.state != State::Present) {
            pages = self.changed.wait(pages).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        let work = match pages.get(&page) {
            None => Work::Fill { page, dirty: writes },
            Some(known) if writes && !known.dirty => Work::Unprotect(page),
            // It came while the page did.
            Some(_) => return,
        };
        pages.insert(page, Page { state: State::Updating, dirty: writes });
        self.send(work);
    }

    fn send(&self, work: Work) {
        lock(&self.queue).push_back(work);
        self.has_work.notify_one();
    }

    fn next(&self) -> Work {
        let mut queue = lock(&self.queue);
        loop {
            match queue.pop_front() {
                Some(work) => return work,
                None => {
                    queue = self
                        .has_work
                        .wait(queue)
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                }
            }
        }
    }

    /// A filler: from the store into its bounce buffer, and from there into the region.
    fn fill(&self) {
        let mut bounce = vec![0; PAGE_SIZE];
        loop {
            let (page, done) = match self.next() {
                Work::End => return,
                Work::Fill { page, dirty } => (page, self.fill_page(page, dirty, &mut bounce)),
                Work::Unprotect(page) => {
                    let page_alone = PageRange::page(page);
                    (page, self.uffd.write_protect(page_alone, false).map_err(failed))
                }
            };
            if let Err(error) = done {
                // Whoever waits for the page would wait for ever.
                eprintln!("farside bench: UMap's design cannot fill {page}: {error}");
                std::process::exit(1);
            }
            if let Some(known) = lock(&self.pages).get_mut(&page) {
                known.state = State::Present;
            }
            self.changed.notify_all();
        }
    }

    fn fill_page(&self, page: PageNo, dirty: bool, bounce: &mut [u8]) -> Result<(), BenchError> {
        let frame = FrameNo((page.0 - self.region.pages.start.0) as u32);
        let from = self.store.run_ptr(frame, 1).map_err(LiveError::from)?;
        // SAFETY: both are a page; the store is written only while no page is being filled.
        unsafe { copy_pages(from.as_ptr(), bounce.as_mut_ptr(), 1) };
        let protect = !dirty && self.uffd.enabled().contains(feature::PAGEFAULT_FLAG_WP);
        self.uffd.copy(PageRange::page(page), bounce, protect).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: usize = 40;
    const PAGE: usize = PAGE_SIZE / size_of::<u64>();

    fn image(seed: u64) -> Vec<u64> {
        (0..(PAGES * PAGE) as u64).map(|word| word.wrapping_mul(seed | 1)).collect()
    }

    fn values(region: &UmapLike) -> Vec<u64> {
        let at = |word: usize| region.start_ptr().cast::<u64>().wrapping_add(word);
        // SAFETY: the words lie in the region, whose faults are served.
        (0..PAGES * PAGE).map(|word| unsafe { at(word).read_volatile() }).collect()
    }

    #[test]
    fn what_is_read_is_what_the_store_holds_each_time_it_is_sent_out() {
        let region = UmapLike::start(PAGES as u32, 0).unwrap();
        for seed in [3, 5, 7] {
            let image = image(seed);
            region.send_out(&image).unwrap();
            assert!(values(&region) == image, "seed {seed}");
        }
    }

    #[test]
    fn pages_that_are_written_before_and_after_they_are_read_keep_it() {
        let region = UmapLike::start(PAGES as u32, 0).unwrap();
        let mut wanted = image(9);
        region.send_out(&wanted).unwrap();
        for page in 0..PAGES {
            let word = region.start_ptr().cast::<u64>().wrapping_add(page * PAGE);
            // SAFETY: as in `values`; only this thread uses the region.
            unsafe {
                if page % 2 == 0 {
                    assert_eq!(word.read_volatile(), wanted[page * PAGE]);
                }
                word.write_volatile(1);
            }
            wanted[page * PAGE] = 1;
        }
        assert!(values(&region) == wanted);
    }

    #[test]
    fn several_threads_that_want_the_same_pages_all_get_them() {
        let region = UmapLike::start(PAGES as u32, 0).unwrap();
        let image = image(11);
        region.send_out(&image).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!(values(&region) == image));
            }
        });
        // Nothing of what is late for a page is in the way of the next round.
        region.send_out(&image).unwrap();
        assert!(values(&region) == image);
    }
}
