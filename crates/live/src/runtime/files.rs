//! Files as shared memory: mapped, written, given back, by a thread of their own.
//!
//! Whatever is done with a page of a file may wait for a disk, for seconds or for ever. So steps of such pages, and the writing of
//! what was changed, are that thread's alone; nobody else who carries steps out waits for it, and no lock is held.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

use farside_linux::lock::lock;
use farside_linux::mapping::Mapping;
use farside_linux::signals::{BlockedSignals, block_for_whole_thread};
use farside_linux::wait::Gate;
use farside_svm::{Request, Run};
use farside_types::{BLOCK_SIZE, CardId, PAGE_SIZE, PageRange, VirtAddr};
use rustix::fs::FlockOperation;

use super::carry_out::AbortOnPanic;
use super::{Core, Runtime, UNDER_WAY};
use crate::adopted::{AdoptError, Backing, FileError, Region};
use crate::error::LiveError;
use crate::execute::HostWork;
use crate::memories::Frames;

/// Least memory of a file: what some steps under way need at once.
pub const FILE_MEMORY_MIN: u64 = 4 << 20;

/// Largest file: what is known of each of its pages takes some 30 bytes of memory, in all 2 GiB.
const FILE_BYTES_MAX: u64 = 256 << 30;

/// Pages that are written while nobody else's steps are looked at.
const FLUSHED_AT_ONCE: u64 = 256;

/// What errors call the memory at a file's addresses.
const WHAT: &str = "farside-file";

/// The thread for files, and what it has to do.
#[derive(Debug)]
pub(crate) struct Files {
    queue: Mutex<VecDeque<FileWork>>,
    gate: Gate,
    thread: Mutex<Option<JoinHandle<()>>>,
    is_used: AtomicBool,
    is_closed: AtomicBool,
}

impl Default for Files {
    fn default() -> Files {
        Files {
            queue: Mutex::new(VecDeque::with_capacity(UNDER_WAY)),
            gate: Gate::new(),
            thread: Mutex::new(None),
            is_used: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        }
    }
}

#[derive(Debug)]
enum FileWork {
    Step(HostWork),
    /// To write what was changed of pages.
    Flush(Arc<Region>, PageRange, Sender<Result<(), FileError>>),
}

impl Files {
    fn push(&self, work: FileWork) {
        lock(&self.queue).push_back(work);
        self.gate.notify();
    }

    /// The next thing to do; nothing when the space closes.
    fn next(&self) -> Option<FileWork> {
        self.gate.wait_for(|| {
            let next = lock(&self.queue).pop_front();
            let closed = || self.is_closed.load(Ordering::SeqCst);
            next.map(Some).or_else(|| closed().then_some(None))
        })
    }
}

/// A file that is mapped, for [`Runtime::sync_file`] and [`Runtime::unmap_file`].
#[derive(Debug)]
pub struct Filed {
    region: Weak<Region>,
    pages: PageRange,
    bytes: u64,
}

impl Filed {
    /// Where its first byte is.
    pub fn addr(&self) -> VirtAddr {
        self.pages.start.addr()
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Runtime {
    /// Makes a file shared memory: of values of `value` bytes, with up to `memory` bytes of the host's memory at a time. It is
    /// locked (`flock`) until it is given back.
    ///
    /// # Errors
    /// [`LiveError::File`] says what is wrong with it, [`LiveError::Adopt`] what the kernel or a card lacks.
    pub fn map_file(&self, path: &Path, value: usize, memory: u64) -> Result<Filed, LiveError> {
        self.check_process()?;
        for card in (0u8..).map(CardId).take(self.card_count()) {
            if matches!(self.memories.card(card), Frames::Beyond(_)) {
                return Err(AdoptError::Beyond { card }.into());
            }
        }
        if memory < FILE_MEMORY_MIN {
            return Err(FileError::TooLittleMemory { path: path.to_owned(), memory }.into());
        }
        let (file, bytes) = open(path, value)?;
        let _signals = BlockedSignals::block();
        let watch = Arc::clone(self.memories.adopted.watch()?);
        self.start_keepers(&watch)?;
        self.start_file_thread()?;
        let room = (bytes as usize).next_multiple_of(BLOCK_SIZE);
        let heap = Mapping::reserve_aligned(WHAT, room, BLOCK_SIZE).map_err(FileError::from)?;
        heap.allow(WHAT, 0, (bytes as usize).next_multiple_of(PAGE_SIZE))
            .map_err(FileError::from)?;
        heap.keep_from_children(WHAT).map_err(FileError::from)?;
        let start = VirtAddr(heap.base() as u64);
        let pages = PageRange::new(start.page(), bytes.div_ceil(PAGE_SIZE as u64));
        let backing = Backing::new(file, path.to_owned(), bytes, memory)?;
        let _one = lock(&self.memories.adopted.adopting);
        let region = Arc::new(Region::of_file(pages, &watch, backing, heap)?);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let filed = Filed { region: Arc::downgrade(&region), pages, bytes };
        self.enter_region(region, bytes, &name)?;
        Ok(filed)
    }

    /// Writes what was changed, by kernels that have ended or the program, and waits until it is on the disk.
    ///
    /// # Errors
    /// [`LiveError::File`]: what is not written is in memory still, but for what was lost with a card ([`FileError::Lost`]).
    /// [`LiveError::Request`] where a card has some of it that does not come. All else is written.
    pub fn sync_file(&self, filed: &Filed) -> Result<(), LiveError> {
        self.check_process()?;
        let _signals = BlockedSignals::block();
        self.write_file(&region(filed)?)
    }

    /// Writes what was changed, and gives the memory back. Kernels that still use it fail.
    ///
    /// # Errors
    /// [`LiveError::File`]: it is mapped as before, unless bytes were lost with a card ([`FileError::Lost`]).
    pub fn unmap_file(&self, filed: &Filed) -> Result<(), LiveError> {
        self.check_process()?;
        let _signals = BlockedSignals::block();
        self.bring_home(&region(filed)?)
    }

    /// Has reads and writes of a file fail: `count` of them, from the `first` on, counted from 1 from now on.
    #[cfg(feature = "mutations")]
    pub fn fail_file(&self, filed: &Filed, first: u64, count: u64) -> u64 {
        let region = filed.region.upgrade();
        let faults = region.as_ref().and_then(|region| region.backing()).map(|it| &it.faults);
        let calls = faults.map_or(0, |faults| faults.calls());
        faults.into_iter().for_each(|faults| faults.set(first, count));
        calls
    }

    /// Writes what was changed of a range that is a file, wherever it is.
    pub(super) fn write_file(&self, region: &Arc<Region>) -> Result<(), LiveError> {
        let range = region.pages();
        let home = match region.is_let_go.load(Ordering::SeqCst) {
            true => Ok(()),
            false => self.recall_file(range),
        };
        self.flush_file(region)?;
        home?;
        let lost = self.inspect(|driver| driver.lost(range))?;
        match (lost.first(), region.backing()) {
            (Some(&first), Some(backing)) => Err(lost_of(backing.path(), &lost, first).into()),
            _ => Ok(()),
        }
    }

    /// Brings all of a file's pages to the host. What does not come keeps nothing else, and is told; what is lost is passed over.
    fn recall_file(&self, range: PageRange) -> Result<(), LiveError> {
        let recall = |range| self.request(Request::Recall { range }).map(drop);
        if recall(range).is_ok() {
            return Ok(());
        }
        let parts = self.inspect(|driver| driver.locate(range))?;
        // The first that fails is told when all have been tried.
        parts.iter().map(|part| recall(part.range)).fold(Ok(()), Result::and)
    }

    /// Writes what was changed of what is on the host.
    pub(super) fn flush_file(&self, region: &Arc<Region>) -> Result<(), LiveError> {
        let Some(backing) = region.backing() else { return Ok(()) };
        let range = region.pages();
        let mut done = 0;
        while done < range.count {
            let count = (range.count - done).min(FLUSHED_AT_ONCE);
            let pages = PageRange::new(range.start.offset(done), count);
            let (answer, answered) = channel();
            self.files.push(FileWork::Flush(Arc::clone(region), pages, answer));
            let ended = || FileError::Settle {
                path: backing.path().to_owned(),
                source: std::io::Error::other("the thread that writes it has ended"),
            };
            answered.recv().unwrap_or_else(|_| Err(ended()))?;
            done += count;
        }
        Ok(backing.settle()?)
    }

    /// A step for a host processor: one of pages of files is for the thread for these.
    pub(super) fn host_work(&self, core: &mut Core, work: HostWork) {
        let files = &self.files;
        if files.is_used.load(Ordering::Acquire) && work.runs().iter().any(|run| self.is_filed(run))
        {
            files.push(FileWork::Step(work));
        } else {
            core.host.push_back(work);
        }
    }

    /// Whether a run has pages of a file.
    pub(crate) fn is_filed(&self, run: &Run) -> bool {
        self.memories.is_adopted(run) && self.memories.adopted.is_filed(run.pages())
    }

    fn start_file_thread(&self) -> Result<(), LiveError> {
        let mut thread = lock(&self.files.thread);
        let Some(runtime) = self.shared().filter(|_| thread.is_none()) else { return Ok(()) };
        // It ends before the space does, which waits for it.
        let runtime = Arc::downgrade(&runtime);
        let started =
            std::thread::Builder::new().name("farside-files".to_owned()).spawn(move || {
                block_for_whole_thread();
                if let Some(runtime) = runtime.upgrade() {
                    work(&runtime);
                }
            });
        *thread = Some(started.map_err(LiveError::Thread)?);
        self.files.is_used.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends the thread for files, when there is none mapped any more.
    pub(crate) fn dismiss_file_thread(&self) {
        self.files.is_closed.store(true, Ordering::SeqCst);
        self.files.gate.notify();
        if let Some(thread) = lock(&self.files.thread).take() {
            let _ = thread.join();
        }
    }

    /// In a child made by fork there is no such thread.
    pub(crate) fn forget_file_thread(&self) {
        if let Ok(mut thread) = self.files.thread.try_lock() {
            std::mem::forget(thread.take());
        }
    }
}

/// What is said of pages that are lost.
pub(super) fn lost_of(path: &Path, lost: &[PageRange], first: PageRange) -> FileError {
    let pages = lost.iter().map(|range| range.count).sum();
    FileError::Lost { path: path.to_owned(), pages, first }
}

fn region(filed: &Filed) -> Result<Arc<Region>, LiveError> {
    let range = filed.pages;
    Ok(filed.region.upgrade().ok_or(AdoptError::NotAdopted { range })?)
}

/// Opens a file, locks it, and gives its size.
fn open(path: &Path, value: usize) -> Result<(File, u64), FileError> {
    let fails = |source| FileError::Open { path: path.to_owned(), source };
    // A pipe would wait for somebody at its other end.
    let about = std::fs::metadata(path).map_err(fails)?;
    if !about.is_file() {
        return Err(FileError::NotRegular { path: path.to_owned() });
    }
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(fails)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(
        |errno| match errno {
            rustix::io::Errno::WOULDBLOCK => FileError::InUse { path: path.to_owned() },
            errno => fails(errno.into()),
        },
    )?;
    let bytes = file.metadata().map_err(fails)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(FileError::TooLarge { path: path.to_owned(), bytes });
    }
    if bytes == 0 || value == 0 || bytes % value as u64 != 0 {
        return Err(FileError::Size { path: path.to_owned(), bytes, value });
    }
    Ok((file, bytes))
}

/// Does what there is to do with files.
fn work(runtime: &Runtime) {
    let _whole = AbortOnPanic::new();
    while let Some(work) = runtime.files.next() {
        match work {
            FileWork::Step(work) => runtime.step_of_file(&work),
            FileWork::Flush(region, pages, answer) => {
                let outcome = match region.backing() {
                    Some(backing) => region.flush(backing, pages),
                    None => Ok(()),
                };
                // Who asked waits for it, or is gone.
                let _ = answer.send(outcome);
            }
        }
        for region in runtime.memories.adopted.regions() {
            region.make_room();
        }
    }
}
