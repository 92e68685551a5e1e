//! What the arena promises, on the kernel of this machine. Read as its specification.
//!
//! Every wait has a limit, so a broken promise fails a test instead of hanging it. Arenas are
//! leaked, because a thread that a broken promise leaves asleep must not meet unmapped memory.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Once};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farside_linux::card_memory::{CardMemory, copy_pages};
use farside_linux::uffd::{Fault, FaultKind, Installed, UffdError, abi};
use farside_live::arena::{Arena, ArenaError};
use farside_live::doctor::Report;
use farside_live::features::Features;
use farside_types::{Access, BLOCK_SIZE, FrameNo, PAGE_SIZE, PageNo, PageRange, Rights, VirtAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Longest wait for something that must happen.
const LIMIT: Duration = Duration::from_secs(20);
/// Longest run of this file.
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

/// The sum of the first words of the first `count` pages, read within the limit.
#[track_caller]
fn sum(arena: &'static Arena, count: u64) -> u64 {
    start(move || (0..count).map(|page| word(arena, page).load(Ordering::Relaxed)).sum()).finishes()
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

/// Runs the named test of this file again in a process of its own, where it sees that it is one.
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

// Faults

#[test]
fn a_fault_names_address_access_kind_and_thread() {
    let arena = arena();
    let reader = start(move || {
        let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        (id, word(arena, 3).load(Ordering::Relaxed))
    });
    let missing = next_fault(arena);
    assert_eq!(missing.kind, FaultKind::Missing);
    assert_eq!(missing.access, Access::Read);
    assert_eq!(missing.addr, arena.base_page().offset(3).addr());
    arena.map_zero(pages(arena, 3, 1), Rights::ReadWrite).unwrap();
    let (id, value) = reader.finishes();
    assert_eq!((missing.thread, value), (Some(id), 0));

    arena.unmap(pages(arena, 3, 1)).unwrap();
    let writer = start(move || word(arena, 3).store(8, Ordering::Relaxed));
    let minor = next_fault(arena);
    assert_eq!((minor.kind, minor.access), (FaultKind::Minor, Access::Write));
    arena.map(pages(arena, 3, 1), Rights::ReadWrite).unwrap();
    writer.finishes();
    assert_eq!(alias_word(arena, 3).load(Ordering::Relaxed), 8);
}

#[test]
fn one_mapping_wakes_every_thread_that_waits_for_the_page() {
    let arena = arena();
    let threads: Vec<_> =
        (0..8).map(|_| start(move || word(arena, 0).fetch_add(1, Ordering::Relaxed))).collect();
    next_fault(arena);
    arena.map_zero(pages(arena, 0, 1), Rights::ReadWrite).unwrap();
    for thread in &threads {
        thread.finishes();
    }
    assert_eq!(word(arena, 0).load(Ordering::Relaxed), 8);
}

#[test]
fn many_faults_fit_an_array_of_any_size() {
    let arena = arena();
    let threads: Vec<_> =
        (0..40).map(|i| start(move || word(arena, i).load(Ordering::Relaxed))).collect();
    let mut seen = std::collections::BTreeSet::new();
    let end = Instant::now() + LIMIT;
    while seen.len() < 40 && Instant::now() < end {
        let mut faults = [Fault::EMPTY; 3];
        let count = arena.uffd().read_events(&mut faults).unwrap();
        seen.extend(faults[..count].iter().map(|fault| fault.addr));
    }
    assert_eq!(seen.len(), 40);
    let installed = arena.map_zero(pages(arena, 0, 40), Rights::ReadWrite).unwrap();
    assert_eq!(installed, Installed { mapped: 40, present: 0 });
    threads.iter().for_each(|thread| assert_eq!(thread.finishes(), 0));
}

// Nothing is lost

const RACE_PAGES: u64 = 4;
/// Longest run of the race, for machines with other work to do.
const RACE: Duration = Duration::from_secs(2);

/// What is done first.
#[derive(Clone, Copy, PartialEq)]
enum First {
    /// Stop the writers, then copy: the proven sequence.
    StopWriters,
    /// Copy, then stop the writers: the mistake.
    Copy,
}

/// A thread that increments words of four pages without pause.
struct Writer {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    thread: Pending<()>,
}

impl Writer {
    fn start(arena: &'static Arena) -> Writer {
        let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&written));
        let thread = start(move || {
            while !stopped.load(Ordering::Relaxed) {
                for page in 0..RACE_PAGES {
                    word(arena, page).fetch_add(1, Ordering::Relaxed);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Writer { stop, written, thread }
    }

    #[track_caller]
    fn makes_progress(&self) {
        let before = self.written.load(Ordering::Relaxed);
        let end = Instant::now() + LIMIT;
        while self.written.load(Ordering::Relaxed) < before + 2 * RACE_PAGES {
            assert!(Instant::now() < end, "the writer makes no progress");
            std::thread::yield_now();
        }
    }

    /// Increments made in all.
    fn finish(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.finishes();
        self.written.load(Ordering::Relaxed)
    }
}

/// Sends the pages to a card and back `cycles` times under a racing writer. Gives the number of
/// increments that are not in memory afterwards.
fn increments_lost(first: First, cycles: u32) -> u64 {
    let arena = arena();
    let range = pages(arena, 0, RACE_PAGES);
    let card = CardMemory::new(RACE_PAGES as u32).unwrap();
    arena.map_zero(range, Rights::ReadWrite).unwrap();
    let writer = Writer::start(arena);
    let end = Instant::now() + RACE;
    for _ in 0..cycles {
        writer.makes_progress();
        there_and_back(arena, range, &card, &writer, first);
        if Instant::now() > end {
            break;
        }
    }
    writer.finish() - sum(arena, RACE_PAGES)
}

fn there_and_back(
    arena: &Arena,
    range: PageRange,
    card: &CardMemory,
    writer: &Writer,
    first: First,
) {
    let host = arena.alias_ptr(range).unwrap().as_ptr();
    let frames = card.run_ptr(FrameNo(0), range.count as u32).unwrap().as_ptr();
    let count = range.count as usize;
    // SAFETY: both ends are live and as long as the range. In the negative control the writer
    // races with the copy on purpose: that is the mistake under test.
    let copy_out = || unsafe { copy_pages(host, frames, count) };
    match first {
        First::StopWriters => {
            arena.unmap(range).unwrap();
            std::thread::yield_now();
            copy_out();
        }
        First::Copy => {
            copy_out();
            writer.makes_progress();
            arena.unmap(range).unwrap();
        }
    }
    // The host's frames are stale now; make sure that nobody sees them.
    // SAFETY: the program's mapping is gone and the alias is this thread's.
    unsafe { host.write_bytes(0xee, count * PAGE_SIZE) };
    // SAFETY: as above.
    unsafe { copy_pages(frames, host, count) };
    arena.map(range, Rights::ReadWrite).unwrap();
}

#[test]
fn a_writer_that_races_with_migration_loses_nothing() {
    assert_eq!(increments_lost(First::StopWriters, 4_000), 0);
}

#[test]
fn negative_control_copying_before_stopping_writers_loses_increments() {
    assert!(increments_lost(First::Copy, 50) > 0, "the race test cannot see a lost increment");
}

// Wakes

#[test]
fn a_stale_event_wakes_its_thread_whatever_the_rights() {
    for rights in [Rights::ReadWrite, Rights::Read] {
        let arena = arena();
        if rights == Rights::Read && !arena.support().host_read_only {
            continue;
        }
        alias_word(arena, 1).store(11, Ordering::Relaxed);
        let reader = start(move || word(arena, 1).load(Ordering::Relaxed));
        assert_eq!(next_fault(arena).kind, FaultKind::Minor);
        map_without_waking(arena, pages(arena, 1, 1));
        reader.still_waits();
        let installed = arena.map(pages(arena, 1, 1), rights).unwrap();
        assert_eq!(installed, Installed { mapped: 0, present: 1 });
        assert_eq!(reader.finishes(), 11);
    }
}

#[test]
fn a_stale_event_of_a_page_that_has_left_again_does_not_wake_or_map_it() {
    let arena = arena();
    alias_word(arena, 0).store(1, Ordering::Relaxed);
    let reader = start(move || word(arena, 0).load(Ordering::Relaxed));
    next_fault(arena);
    map_without_waking(arena, pages(arena, 0, 1));
    arena.unmap(pages(arena, 0, 1)).unwrap();
    reader.still_waits();
    // Exactly one event per sleeping thread: nothing kept it running in circles.
    no_fault(arena);
    arena.map(pages(arena, 0, 1), Rights::ReadWrite).unwrap();
    assert_eq!(reader.finishes(), 1);
}

#[test]
fn mapped_pages_in_the_middle_do_not_stop_a_range_and_their_threads_wake() {
    let arena = arena();
    for page in 0..16 {
        alias_word(arena, page).store(100 + page, Ordering::Relaxed);
    }
    let reader = start(move || word(arena, 6).load(Ordering::Relaxed));
    next_fault(arena);
    map_without_waking(arena, pages(arena, 5, 2));
    reader.still_waits();
    let installed = arena.map(pages(arena, 0, 16), Rights::ReadWrite).unwrap();
    assert_eq!(installed, Installed { mapped: 14, present: 2 });
    assert_eq!(reader.finishes(), 106);
    assert_eq!(sum(arena, 16), (100..116).sum::<u64>());
    no_fault(arena);
}

#[test]
fn continue_by_itself_leaves_no_thread_asleep_either() {
    let arena = arena();
    for page in 0..8 {
        alias_word(arena, page).store(page, Ordering::Relaxed);
    }
    let reader = start(move || word(arena, 7).load(Ordering::Relaxed));
    next_fault(arena);
    map_without_waking(arena, pages(arena, 7, 1));
    reader.still_waits();
    let installed = arena.uffd().continue_pages(pages(arena, 0, 8), false).unwrap();
    assert_eq!(installed, Installed { mapped: 7, present: 1 });
    assert_eq!(reader.finishes(), 7);
}

#[test]
fn a_hole_stops_a_range_exactly_there_and_what_came_before_is_mapped_and_woken() {
    let arena = arena();
    for page in [0, 1, 2, 4] {
        alias_word(arena, page).store(50 + page, Ordering::Relaxed);
    }
    let reader = start(move || word(arena, 1).load(Ordering::Relaxed));
    next_fault(arena);
    map_without_waking(arena, pages(arena, 1, 1));
    let error = arena.map(pages(arena, 0, 5), Rights::ReadWrite).unwrap_err();
    let ArenaError::Uffd(UffdError::Range { done, errno, .. }) = error else { panic!("{error}") };
    assert_eq!((done, errno), (3, Errno::FAULT));
    assert_eq!(reader.finishes(), 51);
    let text = error.to_string();
    assert!(text.contains("fill it with zeros"), "{text}");
}

// Zero fill

#[test]
fn zero_fill_shows_no_old_bytes_after_release() {
    let arena = arena();
    let range = pages(arena, 0, 8);
    arena.map_zero(range, Rights::ReadWrite).unwrap();
    let fill =
        start(move || (0..8).for_each(|page| word(arena, page).store(77, Ordering::Relaxed)));
    fill.finishes();
    arena.unmap(range).unwrap();
    arena.release(range).unwrap();
    let reader = start(move || word(arena, 2).load(Ordering::Relaxed));
    assert_eq!(next_fault(arena).kind, FaultKind::Missing);
    let installed = arena.map_zero(range, Rights::ReadWrite).unwrap();
    assert_eq!(installed, Installed { mapped: 8, present: 0 });
    assert_eq!(reader.finishes(), 0);
    assert_eq!(sum(arena, 8), 0);
}

#[test]
fn zero_fill_keeps_pages_of_the_file_and_fills_the_holes_between() {
    for rights in [Rights::ReadWrite, Rights::Read] {
        let Some(arena) = read_only_arena() else {
            continue;
        };
        // Of every three pages: a hole, one in the file, one mapped already.
        for page in (0..60).filter(|page| page % 3 > 0) {
            alias_word(arena, page).store(page, Ordering::Relaxed);
        }
        for page in (0..60).filter(|page| page % 3 == 2) {
            arena.map(pages(arena, page, 1), Rights::ReadWrite).unwrap();
        }
        let installed = arena.map_zero(pages(arena, 0, 60), rights).unwrap();
        assert_eq!(installed, Installed { mapped: 40, present: 20 });
        let values =
            start(move || (0..60).map(|p| word(arena, p).load(Ordering::Relaxed)).collect());
        let values: Vec<u64> = values.finishes();
        for (page, value) in (0..60).zip(values) {
            assert_eq!(value, if page % 3 == 0 { 0 } else { page });
        }
        no_fault(arena);
        assert_writes_fault(arena, &[0, 1, 2, 59], rights == Rights::Read);
    }
}

#[track_caller]
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

#[test]
fn a_read_only_zero_fill_of_many_pages_is_read_only_throughout() {
    let Some(arena) = read_only_arena() else {
        return;
    };
    arena.map_zero(pages(arena, 0, 100), Rights::Read).unwrap();
    assert_writes_fault(arena, &[0, 15, 16, 99], true);
}

// Rights

#[test]
fn a_write_to_a_read_only_page_waits_until_the_rights_grow() {
    let Some(arena) = read_only_arena() else {
        return;
    };
    alias_word(arena, 4).store(5, Ordering::Relaxed);
    arena.map(pages(arena, 4, 1), Rights::Read).unwrap();
    assert_eq!(start(move || word(arena, 4).load(Ordering::Relaxed)).finishes(), 5);
    no_fault(arena);
    let writer = start(move || word(arena, 4).fetch_add(1, Ordering::Relaxed));
    let fault = next_fault(arena);
    assert_eq!((fault.kind, fault.access), (FaultKind::WriteProtect, Access::Write));
    writer.still_waits();
    assert_eq!(alias_word(arena, 4).load(Ordering::Relaxed), 5);
    arena.protect(pages(arena, 4, 1), Rights::ReadWrite).unwrap();
    writer.finishes();
    assert_eq!(alias_word(arena, 4).load(Ordering::Relaxed), 6);
}

#[test]
fn mapping_a_mapped_page_again_gives_it_the_new_rights() {
    let Some(arena) = read_only_arena() else {
        return;
    };
    let range = pages(arena, 0, 3);
    arena.map_zero(range, Rights::ReadWrite).unwrap();
    arena.map(range, Rights::Read).unwrap();
    let writer = start(move || word(arena, 1).store(3, Ordering::Relaxed));
    assert_eq!(next_fault(arena).kind, FaultKind::WriteProtect);
    writer.still_waits();
    arena.map(range, Rights::ReadWrite).unwrap();
    writer.finishes();
    no_fault(arena);
}

#[test]
fn protection_stops_writers_that_are_running() {
    let Some(arena) = read_only_arena() else {
        return;
    };
    arena.map_zero(pages(arena, 0, 1), Rights::ReadWrite).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let stop = Arc::clone(&stop);
        start(move || {
            while !stop.load(Ordering::Relaxed) {
                word(arena, 0).fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    for _ in 0..200 {
        arena.protect(pages(arena, 0, 1), Rights::Read).unwrap();
        let seen = alias_word(arena, 0).load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(50));
        assert_eq!(alias_word(arena, 0).load(Ordering::Relaxed), seen);
        arena.protect(pages(arena, 0, 1), Rights::ReadWrite).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    writer.finishes();
}

#[test]
fn protecting_an_absent_page_does_not_fill_it_and_mapping_it_writable_drops_the_protection() {
    let Some(arena) = read_only_arena() else {
        return;
    };
    arena.protect(pages(arena, 0, 2), Rights::Read).unwrap();
    let reader = start(move || word(arena, 0).load(Ordering::Relaxed));
    assert_eq!(next_fault(arena).kind, FaultKind::Missing);
    reader.still_waits();
    arena.map_zero(pages(arena, 0, 2), Rights::ReadWrite).unwrap();
    assert_eq!(reader.finishes(), 0);
    assert_writes_fault(arena, &[0, 1], false);
    // The marker that zapping a protected page leaves behind must not outlive the next mapping.
    arena.protect(pages(arena, 0, 2), Rights::Read).unwrap();
    arena.unmap(pages(arena, 0, 2)).unwrap();
    arena.map(pages(arena, 0, 2), Rights::ReadWrite).unwrap();
    assert_writes_fault(arena, &[0, 1], false);
}

#[test]
fn read_only_mappings_of_absent_protected_pages_are_read_only() {
    let Some(arena) = read_only_arena() else {
        return;
    };
    alias_word(arena, 0).store(1, Ordering::Relaxed);
    arena.protect(pages(arena, 0, 1), Rights::Read).unwrap();
    arena.map(pages(arena, 0, 1), Rights::Read).unwrap();
    assert_writes_fault(arena, &[0], true);
}

// Lost pages

#[test]
fn a_poisoned_page_raises_sigbus() {
    const NAME: &str = "a_poisoned_page_raises_sigbus";
    let Some(arena) = arena_with(|arena| arena.support().poison, "POISON") else {
        return;
    };
    if is_child(NAME) {
        arena.map_zero(pages(arena, 0, 4), Rights::ReadWrite).unwrap();
        arena.poison(pages(arena, 1, 2)).unwrap();
        assert_eq!(word(arena, 0).load(Ordering::Relaxed), 0);
        assert_eq!(word(arena, 3).load(Ordering::Relaxed), 0);
        word(arena, 2).load(Ordering::Relaxed);
        return;
    }
    assert_eq!(in_child(NAME).signal(), Some(libc::SIGBUS));
}

#[test]
fn poison_ends_an_access_that_waits() {
    const NAME: &str = "poison_ends_an_access_that_waits";
    let Some(arena) = arena_with(|arena| arena.support().poison, "POISON") else {
        return;
    };
    if is_child(NAME) {
        let reader = start(move || word(arena, 0).load(Ordering::Relaxed));
        next_fault(arena);
        arena.poison(pages(arena, 0, 1)).unwrap();
        reader.finishes();
        return;
    }
    assert_eq!(in_child(NAME).signal(), Some(libc::SIGBUS));
}

#[test]
fn poison_takes_pages_in_any_state_and_stale_bytes_never_come_back() {
    let Some(arena) = arena_with(|arena| arena.support().poison, "POISON") else {
        return;
    };
    let range = pages(arena, 0, 6);
    arena.map_zero(pages(arena, 0, 4), Rights::ReadWrite).unwrap();
    let fill = start(move || (0..4).for_each(|page| word(arena, page).store(9, Ordering::Relaxed)));
    fill.finishes();
    if arena.support().host_read_only {
        arena.protect(pages(arena, 1, 2), Rights::Read).unwrap();
    }
    arena.unmap(pages(arena, 2, 2)).unwrap();
    arena.poison(range).unwrap();
    arena.poison(range).unwrap();
    let error = arena.map(range, Rights::ReadWrite).unwrap_err();
    assert!(
        matches!(error, ArenaError::Uffd(UffdError::Range { done: 0, errno: Errno::FAULT, .. })),
        "{error}"
    );
    // A new life for the pages: zeros, nothing else.
    arena.map_zero(range, Rights::ReadWrite).unwrap();
    assert_eq!(sum(arena, 6), 0);
    assert_writes_fault(arena, &[1, 2], false);
}

// The rest of the system

#[test]
fn a_system_call_can_fill_an_absent_page() {
    let arena = arena();
    let (from, to) = pipe();
    rustix::io::write(&to, &[7; 100]).unwrap();
    let address = arena.program_ptr(arena.base_page().offset(2)).unwrap().as_ptr() as usize;
    let reader = start(move || {
        // SAFETY: 100 bytes of an arena that lives for ever; nobody else uses the page.
        let buffer = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, 100) };
        rustix::io::read(&from, buffer)
    });
    if !arena.uffd().support().opened_by.serves_system_calls() {
        assert_eq!(reader.finishes(), Err(Errno::FAULT), "user mode only: as documented");
        return;
    }
    let fault = next_fault(arena);
    assert_eq!(fault.addr.page(), arena.base_page().offset(2));
    arena.map_zero(pages(arena, 2, 1), Rights::ReadWrite).unwrap();
    assert_eq!(reader.finishes(), Ok(100));
    assert_eq!(alias_word(arena, 2).load(Ordering::Relaxed), 0x0707_0707_0707_0707);
}

#[test]
fn a_forked_child_does_not_see_the_arena() {
    let arena = arena();
    arena.map_zero(pages(arena, 0, 1), Rights::ReadWrite).unwrap();
    let (_from, to) = pipe();
    let program = arena.program_ptr(arena.base_page()).unwrap().as_ptr();
    let alias = arena.alias_ptr(pages(arena, 0, 1)).unwrap().as_ptr();
    let write = |address: *mut u8| {
        // SAFETY: the kernel checks the address and answers EFAULT if nothing is mapped there.
        unsafe { libc::write(to.as_raw_fd(), address.cast(), 1) == 1 }
    };
    assert!(write(program) && write(alias), "the parent sees both mappings");
    // SAFETY: the child makes system calls only, as it must after a fork among threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let seen = i32::from(write(program)) + i32::from(write(alias));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(seen) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and ends after two system calls.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "status {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "mappings that the child sees");
}

#[test]
fn the_alias_never_faults_through_userfaultfd() {
    let arena = arena();
    arena.map_zero(pages(arena, 1, 1), Rights::ReadWrite).unwrap();
    arena.unmap(pages(arena, 1, 1)).unwrap();
    let access = start(move || {
        for page in 0..512 {
            alias_word(arena, page).fetch_add(1, Ordering::Relaxed);
        }
    });
    access.finishes();
    no_fault(arena);
    // The program's mapping does.
    let reader = start(move || word(arena, 1).load(Ordering::Relaxed));
    assert_eq!(next_fault(arena).kind, FaultKind::Minor);
    arena.map(pages(arena, 1, 1), Rights::ReadWrite).unwrap();
    assert_eq!(reader.finishes(), 1);
}

// Bounds

#[test]
fn ranges_beyond_the_arena_are_refused_and_empty_ones_do_nothing() {
    let arena = arena();
    let base = arena.base_page();
    let beyond = [
        PageRange::new(base, 513),
        PageRange::new(base.offset(512), 1),
        PageRange::new(PageNo(base.0 - 1), 2),
        PageRange::new(base, u64::MAX),
        PageRange::new(PageNo(u64::MAX), 1),
        PageRange::new(PageNo(0), 1),
    ];
    for range in beyond {
        for outcome in every_operation(arena, range) {
            assert!(matches!(outcome, Err(ArenaError::Bounds { .. })), "{outcome:?}");
        }
    }
    for empty in [PageRange::new(base, 0), PageRange::new(base.offset(512), 0)] {
        for outcome in every_operation(arena, empty) {
            assert!(!matches!(outcome, Err(ArenaError::Bounds { .. } | ArenaError::Call { .. })));
        }
    }
    assert!(arena.contains(base.addr()) && !arena.contains(VirtAddr(base.addr().0 - 1)));
    assert_eq!(arena.frame(base.offset(7)), Some(FrameNo(7)));
    assert_eq!(arena.frame(base.offset(512)), None);
}

fn every_operation(arena: &Arena, range: PageRange) -> Vec<Result<(), ArenaError>> {
    vec![
        arena.unmap(range),
        arena.map(range, Rights::ReadWrite).map(drop),
        arena.map_zero(range, Rights::ReadWrite).map(drop),
        arena.protect(range, Rights::ReadWrite),
        arena.release(range),
        arena.poison(range),
        arena.alias_ptr(range).map(drop),
    ]
}

#[test]
fn sizes_that_are_no_multiple_of_a_block_are_refused() {
    for bytes in [0, 1, PAGE_SIZE as u64, BLOCK_SIZE as u64 + 1] {
        let error = Arena::new(bytes).unwrap_err();
        assert!(matches!(error, ArenaError::Memory(_)), "{bytes}: {error}");
    }
}

#[test]
fn sizes_beyond_what_frames_have_numbers_for_are_refused_as_such() {
    for bytes in [u64::MAX, 1 << 50, 1 << 44] {
        let error = Arena::new(bytes).unwrap_err();
        assert!(matches!(error, ArenaError::TooLarge { .. }), "{bytes}: {error}");
    }
}

#[test]
fn the_default_arena_costs_address_space_only() {
    let arena = Arena::new(farside_live::arena::DEFAULT_ARENA_BYTES)
        .unwrap_or_else(|error| panic!("{error}\n{}", Report::new(&Features::probe())));
    assert_eq!(arena.base_page().addr().0 % BLOCK_SIZE as u64, 0);
    let last = PageRange::new(arena.base_page().offset(arena.pages().count - 1), 1);
    arena.map_zero(last, Rights::ReadWrite).unwrap();
    let blocks = rustix::fs::fstat(arena.file()).unwrap().st_blocks;
    assert!(blocks as usize * 512 <= 2 * PAGE_SIZE, "{blocks} blocks of 512 bytes");
}
