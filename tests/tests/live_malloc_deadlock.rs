//! A signal handler that touches shared memory while its thread is inside the allocator deadlocks the
//! program. That cannot be undone, but it is named within seconds, and SIGTERM still ends the program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use farside::Space;
use harness::live::{role, within};

const LIMIT: Duration = Duration::from_secs(60);

/// An allocator with one lock for all threads, as that of a C library has: whoever allocates waits for
/// it.
struct OneLock;

static LOCK: Mutex<()> = Mutex::new(());
/// The thread that gets a signal at its next allocation.
static ARMED: AtomicI32 = AtomicI32::new(0);
/// What the handler touches.
static TARGET: AtomicPtr<u64> = AtomicPtr::new(std::ptr::null_mut());

fn thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

// SAFETY: it is the system's, behind a lock.
unsafe impl GlobalAlloc for OneLock {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
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

#[global_allocator]
static ALLOCATOR: OneLock = OneLock;

extern "C" fn handler(_: libc::c_int) {
    // SAFETY: the pointer leads to a word of shared memory, which lives as long as the child.
    unsafe { TARGET.load(SeqCst).read_volatile() };
}

fn deadlock() {
    let space = Space::builder().cards(1).address_space(16 << 20).build().unwrap();
    let mut data = space.alloc::<u64>(512).unwrap();
    data.fill(1);
    space.migrate(&data, space.card(0).unwrap()).unwrap();
    TARGET.store(data.as_mut_ptr(), SeqCst);
    // SAFETY: the handler only reads a word of memory.
    unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
    ARMED.store(thread(), SeqCst);
    let never = std::hint::black_box(Box::new([7u8; 100]));
    println!("no deadlock after all: {}", never[5]);
}

#[test]
fn a_handler_that_touches_shared_memory_inside_malloc_is_named() {
    const TEST: &str = "a_handler_that_touches_shared_memory_inside_malloc_is_named";
    if role().is_some() {
        return deadlock();
    }
    within(LIMIT, TEST, || {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([TEST, "--exact", "--nocapture", "--test-threads=1"])
            .env("FARSIDE_LIVE_ROLE", "deadlock")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
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
