//! What the arena promises, on the kernel of this machine. Read as its specification.
//!
//! Every wait has a limit, so a broken promise fails a test instead of hanging it. Arenas are
//! leaked, because a thread that a broken promise leaves asleep must not meet unmapped memory.

mod faults;
mod large;
mod lost;
mod races;
mod rights;
mod surroundings;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Once, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farside_linux::uffd::{Fault, FaultKind, abi};
use farside_live::arena::{Arena, ArenaError};
use farside_live::doctor::Report;
use farside_live::features::Features;
use farside_types::{BLOCK_SIZE, PageRange, Rights};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longest wait for something that must happen.
const LIMIT: Duration = Duration::from_secs(20);
/// Longest run of these tests.
const WATCHDOG: Duration = Duration::from_secs(180);
/// How long something that must not happen is given to happen.
const NEVER: Duration = Duration::from_millis(50);

/// Ends the whole program where a broken promise leaves a test's own thread asleep on a page.
fn start_watchdog() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        std::thread::spawn(|| {
            std::thread::sleep(WATCHDOG);
            eprintln!("these tests hang: a thread sleeps on a page that nobody resolves");
            std::process::exit(101);
        });
    });
}

fn arena() -> &'static Arena {
    start_watchdog();
    match Arena::new(BLOCK_SIZE as u64) {
        Ok(arena) => Box::leak(Box::new(arena)),
        Err(error) => panic!(
            "these tests need userfaultfd with its full rights: {error}\n{}",
            Report::new(&Features::probe())
        ),
    }
}

/// An arena on a kernel with everything; says what is missing where it is not.
fn arena_with(needs: impl Fn(&Arena) -> bool, what: &str) -> Option<&'static Arena> {
    let arena = arena();
    if needs(arena) {
        return Some(arena);
    }
    eprintln!("skipped: this kernel has no {what}; the arena must say so as well");
    None
}

fn read_only_arena() -> Option<&'static Arena> {
    let arena = arena_with(|arena| arena.support().host_read_only, "read-only mappings");
    if arena.is_none() {
        let other = self::arena();
        let refused = other.protect(pages(other, 0, 1), Rights::Read);
        assert!(matches!(refused, Err(ArenaError::Unsupported { .. })));
    }
    arena
}

fn pages(arena: &Arena, first: u64, count: u64) -> PageRange {
    PageRange::new(arena.base_page().offset(first), count)
}

/// The first word of a page, as the program sees it.
fn word(arena: &'static Arena, page: u64) -> &'static AtomicU64 {
    let pointer = arena.program_ptr(arena.base_page().offset(page)).unwrap();
    // SAFETY: the arena lives for ever and the address is aligned; all accesses are atomic.
    unsafe { AtomicU64::from_ptr(pointer.as_ptr().cast()) }
}

/// The first word of a page, as the runtime sees it.
fn alias_word(arena: &'static Arena, page: u64) -> &'static AtomicU64 {
    let pointer = arena.alias_ptr(pages(arena, page, 1)).unwrap();
    // SAFETY: as above.
    unsafe { AtomicU64::from_ptr(pointer.as_ptr().cast()) }
}

/// Something that runs on a thread of its own, and may never end.
struct Pending<T> {
    result: mpsc::Receiver<T>,
    _thread: JoinHandle<()>,
}

fn start<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Pending<T> {
    let (sender, result) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // The receiver is gone only if the test has failed already.
        let _ = sender.send(work());
    });
    Pending { result, _thread: thread }
}

impl<T> Pending<T> {
    #[track_caller]
    fn finishes(&self) -> T {
        self.result.recv_timeout(LIMIT).expect("a thread sleeps on a page that is there")
    }

    #[track_caller]
    fn still_waits(&self) {
        assert!(self.result.recv_timeout(NEVER).is_err(), "the access went through");
    }
}

/// The sum of the first words of `count` pages, read within the limit.
#[track_caller]
fn sum(arena: &'static Arena, first: u64, count: u64) -> u64 {
    start(move || {
        (first..first + count).map(|page| word(arena, page).load(Ordering::Relaxed)).sum()
    })
    .finishes()
}

#[track_caller]
fn next_fault(arena: &Arena) -> Fault {
    let mut fds = [PollFd::new(arena.uffd(), PollFlags::IN)];
    let limit = Timespec::try_from(LIMIT).unwrap();
    assert_eq!(poll(&mut fds, Some(&limit)).unwrap(), 1, "no fault was reported");
    let mut faults = [Fault::EMPTY];
    assert_eq!(arena.uffd().read_events(&mut faults).unwrap(), 1);
    faults[0]
}

#[track_caller]
fn no_fault(arena: &Arena) {
    let mut faults = [Fault::EMPTY];
    assert_eq!(arena.uffd().read_events(&mut faults).unwrap(), 0, "unexpected: {:?}", faults[0]);
}

/// Runs the named test again in a process of its own, where it sees that it is one.
fn in_child(test: &str) -> ExitStatus {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("FARSIDE_TEST_CHILD", test)
        .spawn()
        .unwrap();
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("the child of {test} hangs: {:?}", child.wait());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_child(test: &str) -> bool {
    std::env::var("FARSIDE_TEST_CHILD").is_ok_and(|name| name == test)
}

/// CONTINUE that leaves the waiting threads asleep, to make a stale event on purpose.
fn map_without_waking(arena: &Arena, range: PageRange) {
    let mut arg = abi::Continue {
        range: abi::Range { start: range.start.addr().0, len: range.bytes() },
        mode: abi::MODE_DONTWAKE,
        mapped: 0,
    };
    let fd = arena.uffd().as_raw_fd();
    // SAFETY: the request and its structure belong together; the range is the arena's.
    let rc = unsafe { libc::ioctl(fd, abi::request::CONTINUE, &mut arg) };
    assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut fds = [0; 2];
    // SAFETY: the array has room for two descriptors.
    assert_eq!(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: the kernel has just made these descriptors for us.
    fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).into()
}

fn assert_writes_fault(arena: &'static Arena, list: &[u64], expected: bool) {
    for &page in list {
        let writer = start(move || word(arena, page).store(1, Ordering::Relaxed));
        if expected {
            assert_eq!(next_fault(arena).kind, FaultKind::WriteProtect, "page {page}");
            writer.still_waits();
            arena.protect(pages(arena, page, 1), Rights::ReadWrite).unwrap();
        }
        writer.finishes();
        no_fault(arena);
    }
}
