//! A signal handler may touch shared memory while its thread is inside the allocator: nobody who serves the
//! fault needs that. Where another thread is in a call of the library at that moment, which allocates while it
//! has the driver, the program stands still: that is named within seconds, and SIGTERM still ends it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use farside::{AtomicSpan, KernelContext, Shared, Space};
use harness::live::{role, within};

const LIMIT: Duration = Duration::from_secs(60);

/// An allocator with one lock for all threads, as that of a C library has: whoever allocates waits for
/// it.
struct OneLock;

static LOCK: Mutex<()> = Mutex::new(());
/// The thread that gets a signal at its next allocation.
static ARMED: AtomicI32 = AtomicI32::new(0);
/// What the handler touches, and that it has the lock and is about to.
static TARGET: AtomicPtr<u64> = AtomicPtr::new(std::ptr::null_mut());
static HELD: AtomicBool = AtomicBool::new(false);
/// The thread that waits with its next allocation of [`LARGE`] bytes until the handler has the lock.
static WAITS: AtomicI32 = AtomicI32::new(0);
static HAS_COME: AtomicBool = AtomicBool::new(false);
/// More than anybody asks for but the driver, when it makes room in its tables for an allocation.
const LARGE: usize = 300 << 10;

fn thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

// SAFETY: it is the system's, behind a lock.
unsafe impl GlobalAlloc for OneLock {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let waits = WAITS.load(SeqCst);
        if waits != 0 && layout.size() >= LARGE && waits == thread() {
            HAS_COME.store(true, SeqCst);
            await_flag(&HELD);
        }
        let _lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let armed = ARMED.load(SeqCst);
        if armed != 0 && armed == thread() {
            ARMED.store(0, SeqCst);
            // SAFETY: raising a signal of one's own.
            unsafe { libc::raise(libc::SIGUSR1) };
        }
        // SAFETY: passed on to the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let _lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: passed on to the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn await_flag(flag: &AtomicBool) {
    while !flag.load(SeqCst) {
        std::hint::spin_loop();
    }
}

#[global_allocator]
static ALLOCATOR: OneLock = OneLock;

extern "C" fn handler(_: libc::c_int) {
    HELD.store(true, SeqCst);
    // SAFETY: the pointer leads to a word of shared memory, which lives as long as the child.
    unsafe { TARGET.load(SeqCst).read_volatile() };
}

/// Has the handler touch `word` while this thread is inside the allocator.
fn touch_inside_malloc(word: *mut u64) {
    TARGET.store(word, SeqCst);
    // SAFETY: the handler only reads a word of memory.
    unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
    ARMED.store(thread(), SeqCst);
    let made = std::hint::black_box(Box::new([7u8; 100]));
    assert_eq!((made[5], ARMED.load(SeqCst)), (7, 0), "the handler has run");
}

/// Words of a page.
const PAGE: usize = 512;

/// Pages that nobody has touched, that a card has which rests, and for which a card that runs fights with this
/// thread.
fn goes_on() {
    let space = Space::builder().cards(1).address_space(64 << 20).build().unwrap();
    let mut data = space.alloc::<u64>(64 * PAGE).unwrap();
    // Threads that have just begun allocate for themselves.
    std::thread::sleep(Duration::from_millis(300));
    for page in 0..32 {
        touch_inside_malloc(&raw mut data[page * PAGE]);
    }
    data.fill(1);
    space.migrate(&data, space.card(0).unwrap()).unwrap();
    for page in 0..64 {
        touch_inside_malloc(&raw mut data[page * PAGE]);
    }
    let words = space.alloc_atomic::<AtomicU64>(64 * PAGE, "fought over").unwrap();
    let stop = space.alloc_atomic::<AtomicU64>(1, "stop").unwrap();
    let body = |k: &mut KernelContext,
                (words, stop): (AtomicSpan<AtomicU64>, AtomicSpan<AtomicU64>)| {
        let mut rounds = 0u64;
        while k.fetch_add(stop, 0, 0u64)? == 0 {
            (0..64).try_for_each(|page| k.fetch_add(words, page * PAGE, 1u64).map(drop))?;
            rounds += 1;
        }
        Ok(rounds)
    };
    std::thread::scope(|scope| {
        let kernel = || space.kernel("fighter").run((Shared(&words), Shared(&stop)), body).unwrap();
        let fighter = scope.spawn(kernel);
        while words[0].load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        for page in 0..64 {
            touch_inside_malloc(words[page * PAGE].as_ptr());
        }
        stop[0].store(1, SeqCst);
        assert!(fighter.join().unwrap() > 0);
    });
    println!("went on");
}

/// Another thread allocates shared memory, and has the driver while it waits for the allocator's lock.
fn deadlock() {
    let space = Space::builder().cards(1).address_space(256 << 20).build().unwrap();
    let mut data = space.alloc::<u64>(PAGE).unwrap();
    // Threads that have just begun allocate for themselves.
    std::thread::sleep(Duration::from_millis(300));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            WAITS.store(thread(), SeqCst);
            space.alloc::<u8>(128 << 20).unwrap();
        });
        await_flag(&HAS_COME);
        touch_inside_malloc(data.as_mut_ptr());
    });
    println!("no deadlock after all");
}

fn child(test: &str, case: &str) -> Command {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    child.env("FARSIDE_LIVE_ROLE", case).stdin(Stdio::null());
    child
}

#[test]
fn a_handler_inside_malloc_gets_its_page() {
    const TEST: &str = "a_handler_inside_malloc_gets_its_page";
    if role().is_some() {
        return goes_on();
    }
    within(LIMIT, TEST, || {
        let output = child(TEST, "goes on").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("went on"), "{output:?}");
    });
}

#[test]
fn a_handler_inside_malloc_beside_a_call_that_allocates_is_named() {
    const TEST: &str = "a_handler_inside_malloc_beside_a_call_that_allocates_is_named";
    if role().is_some() {
        return deadlock();
    }
    within(LIMIT, TEST, || {
        let mut child = child(TEST, "deadlock");
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let began = Instant::now();
        let said = BufReader::new(child.stderr.take().unwrap());
        let line = said.lines().map_while(Result::ok).find(|line| line.contains("deadlock:"));
        let line = line.expect("the watchdog says something");
        for part in ["inside malloc", "Space::pin", "thread ", "0x"] {
            assert!(line.contains(part), "`{part}` is not in: {line}");
        }
        assert!(began.elapsed() < Duration::from_secs(30), "it took {:?}", began.elapsed());
        let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        let began = Instant::now();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGTERM), "{status}");
        assert!(began.elapsed() < Duration::from_secs(1), "SIGTERM took {:?}", began.elapsed());
    });
}
