//! How many instructions a thread carries out in user space, and how many system calls it makes: by stepping
//! through it, as a debugger does.
//!
//! Few virtual machines let a program read the processor's own counters. Single steps count the same
//! everywhere, and to the instruction; the thread is a thousand times slower meanwhile, so what is
//! counted is not timed. A process of its own steps, because a thread cannot trace its own process.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags};

/// What a thread has done in user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) instructions: u64,
    pub(super) calls: u64,
}

impl Steps {
    pub(super) fn and(self, other: Steps) -> Steps {
        let (instructions, calls) =
            (self.instructions + other.instructions, self.calls + other.calls);
        Steps { instructions, calls }
    }

    pub(super) fn since(self, before: Steps) -> Steps {
        let (instructions, calls) =
            (self.instructions - before.instructions, self.calls - before.calls);
        Steps { instructions, calls }
    }
}

/// Steps through a thread until it is dropped.
pub(super) struct Stepper {
    child: libc::pid_t,
    counts: Page,
}

/// What the child tells; the parent only reads.
#[repr(C)]
struct Shared {
    instructions: AtomicU64,
    calls: AtomicU64,
    /// One of those below.
    state: AtomicU64,
}

/// The thread is not traced yet.
const BEGINS: u64 = 0;
/// It is.
const STEPS: u64 = 1;
/// It is to be let go.
const STOPS: u64 = 2;
/// It cannot be traced, or is no longer there.
const FAILED: u64 = 3;

/// Memory that the child has too.
struct Page(*mut libc::c_void);

impl Page {
    fn new() -> Option<Page> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        let bytes = size_of::<Shared>();
        // SAFETY: a new mapping at an address the kernel chooses touches nothing.
        let page =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) };
        page.ok().map(Page)
    }

    fn shared(&self) -> &Shared {
        // SAFETY: the page is mapped as long as `self`, and was all zero, which is what atomics may be.
        unsafe { &*self.0.cast::<Shared>() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference into it any more.
        let _ = unsafe { rustix::mm::munmap(self.0, size_of::<Shared>()) };
    }
}

/// How long a thread must do nothing to count as having done all that it had to.
const QUIET: Duration = Duration::from_millis(50);
const SETTLE_LIMIT: Duration = Duration::from_secs(20);
const ATTACH_LIMIT: Duration = Duration::from_secs(2);

impl Stepper {
    /// Begins to step through a thread. `None` if this system, or this kind of processor, does not let it.
    pub(super) fn start(thread: u32) -> Option<Stepper> {
        if !cfg!(target_arch = "x86_64") {
            return None;
        }
        let counts = Page::new()?;
        // SAFETY: the child calls nothing but system calls and _exit, which are allowed in the child of a
        // process with threads; the page stays mapped there too.
        let child = unsafe { libc::fork() };
        if child == 0 {
            step_through(thread as libc::pid_t, counts.shared());
        }
        if child < 0 {
            return None;
        }
        // Where only ancestors may trace, the thread's process has to name who else may. In vain for others.
        // SAFETY: it names a process and touches no memory.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, child as libc::c_ulong) };
        let stepper = Stepper { child, counts };
        stepper.is_attached().then_some(stepper)
    }

    fn is_attached(&self) -> bool {
        let end = Instant::now() + ATTACH_LIMIT;
        while self.state() == BEGINS && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.state() == STEPS
    }

    fn state(&self) -> u64 {
        self.counts.shared().state.load(Ordering::SeqCst)
    }

    /// What the thread has done so far, once it does nothing more. `None` if it always does something, or
    /// is not stepped through any more.
    pub(super) fn settled(&self) -> Option<Steps> {
        let end = Instant::now() + SETTLE_LIMIT;
        let mut last = self.now();
        while Instant::now() < end {
            std::thread::sleep(QUIET);
            let now = self.now();
            if now == last {
                return (self.state() == STEPS).then_some(now);
            }
            last = now;
        }
        None
    }

    fn now(&self) -> Steps {
        let Shared { instructions, calls, .. } = self.counts.shared();
        let load = |count: &AtomicU64| count.load(Ordering::SeqCst);
        Steps { instructions: load(instructions), calls: load(calls) }
    }
}

impl Drop for Stepper {
    fn drop(&mut self) {
        // It has to be let go between two steps: the trap of a step under way would end its process.
        self.counts.shared().state.store(STOPS, Ordering::SeqCst);
        // SAFETY: the child is this process's own, and not waited for before.
        while unsafe { libc::waitpid(self.child, std::ptr::null_mut(), libc::WNOHANG) } == 0 {
            // It may be about to wait for the thread, and has to be told again then.
            // SAFETY: as above.
            unsafe { libc::kill(self.child, libc::SIGUSR1) };
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn step_through(thread: libc::pid_t, shared: &Shared) -> ! {
    let traced = hear_signals() && seize(thread);
    if !traced {
        shared.state.store(FAILED, Ordering::SeqCst);
        exit();
    }
    let mut last = 0;
    loop {
        let Some(signal) = next_stop(thread, shared) else { exit() };
        // SAFETY: all zero is what numbers may be.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes the registers to where this points.
        unsafe { libc::ptrace(libc::PTRACE_GETREGS, thread, NOTHING, &raw mut registers) };
        let at = registers.rip;
        // One that repeats itself, a copy of bytes, is one.
        if last != 0 && at != last {
            shared.instructions.fetch_add(1, Ordering::SeqCst);
            let address = at as *mut libc::c_void;
            // SAFETY: the kernel reads the thread's memory, and fails where there is none.
            let word = unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, thread, address, NOTHING) };
            if word & 0xffff == SYSCALL {
                shared.calls.fetch_add(1, Ordering::SeqCst);
            }
        }
        last = at;
        let _ = shared.state.compare_exchange(BEGINS, STEPS, Ordering::SeqCst, Ordering::SeqCst);
        let signal = signal as usize as *mut libc::c_void;
        // SAFETY: it hands a signal on, and touches no memory.
        unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, thread, NOTHING, signal) };
    }
}

/// The instruction `syscall`.
#[cfg(target_arch = "x86_64")]
const SYSCALL: libc::c_long = 0x050f;

const NOTHING: *mut libc::c_void = std::ptr::null_mut();

/// Has a signal end a wait for the thread, and the parent's end this process.
#[cfg(target_arch = "x86_64")]
fn hear_signals() -> bool {
    extern "C" fn hear(_signal: libc::c_int) {}
    // SAFETY: all zero is what the action may be besides its handler, which does nothing; the set lives until
    // the call is over.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = hear as *const () as usize;
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0
            && libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) == 0
            && libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) == 0
    }
}

/// Begins to trace the thread, and stops it.
#[cfg(target_arch = "x86_64")]
fn seize(thread: libc::pid_t) -> bool {
    // The parent may have to allow it first.
    (0..100).any(|_| {
        // SAFETY: these calls take numbers only.
        unsafe {
            libc::usleep(1000);
            libc::ptrace(libc::PTRACE_SEIZE, thread, NOTHING, NOTHING) == 0
                && libc::ptrace(libc::PTRACE_INTERRUPT, thread, NOTHING, NOTHING) == 0
        }
    })
}

/// Waits until the thread stops, and gives the signal that is meant for it, 0 for none. Where it is to be let go,
/// it is, and there is no next.
#[cfg(target_arch = "x86_64")]
fn next_stop(thread: libc::pid_t, shared: &Shared) -> Option<libc::c_int> {
    loop {
        let mut status = 0;
        // SAFETY: the status is written to where this points.
        let waited = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
        let ends = shared.state.load(Ordering::SeqCst) == STOPS;
        let interrupted = || std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR);
        if waited < 0 && interrupted() {
            if ends {
                // The thread sleeps in a system call.
                // SAFETY: it takes numbers only.
                unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, thread, NOTHING, NOTHING) };
            }
        } else if waited < 0 || !libc::WIFSTOPPED(status) {
            shared.state.store(FAILED, Ordering::SeqCst);
            return None;
        } else {
            let signal = libc::WSTOPSIG(status);
            let (stepped, interrupted) = (signal == libc::SIGTRAP, status >> 16 != 0);
            if !(ends && stepped && !interrupted) {
                return Some(if stepped || interrupted { 0 } else { signal });
            }
            // Where an interrupt stopped it, the trap of the step may still be under way to it, and would
            // end its process: it is let go behind a step.
            // SAFETY: as above.
            unsafe { libc::ptrace(libc::PTRACE_DETACH, thread, NOTHING, NOTHING) };
            return None;
        }
    }
}

fn exit() -> ! {
    // SAFETY: it ends this process, which has nothing to give back.
    unsafe { libc::_exit(0) }
}

#[cfg(not(target_arch = "x86_64"))]
fn step_through(_thread: libc::pid_t, _shared: &Shared) -> ! {
    exit()
}

/// The threads of these processes whose names begin so.
pub(super) fn threads_named(begin: &str, processes: &[u32]) -> Vec<u32> {
    let named = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let id = task.file_name().to_str()?.parse().ok()?;
        name.starts_with(begin).then_some(id)
    };
    let tasks = processes.iter().filter_map(|process| {
        std::fs::read_dir(PathBuf::from(format!("/proc/{process}/task"))).ok()
    });
    tasks.flatten().flatten().filter_map(named).collect()
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn system_calls_and_instructions_of_a_thread_are_counted_and_it_goes_on() {
        let (order, orders) = channel::<u64>();
        let (done, is_done) = channel();
        let body = move || {
            for calls in orders {
                for _ in 0..calls {
                    // SAFETY: it takes and gives a number.
                    unsafe { libc::syscall(libc::SYS_getppid) };
                }
                done.send(()).unwrap();
            }
        };
        let thread = std::thread::Builder::new().name("is-stepped".to_owned()).spawn(body).unwrap();
        let run = |calls| {
            order.send(calls).unwrap();
            is_done.recv_timeout(Duration::from_secs(20)).unwrap();
        };
        // A thread gives itself its name.
        run(1);
        let id = threads_named("is-stepped", &[std::process::id()])[0];
        let Some(stepper) = Stepper::start(id) else {
            panic!("a thread cannot be stepped through")
        };
        let taken = |calls| {
            let before = stepper.settled().unwrap();
            run(calls);
            stepper.settled().unwrap().since(before)
        };
        let [few, more] = [taken(10), taken(30)];
        drop(stepper);
        assert!(more.calls - few.calls >= 20, "{few:?}, {more:?}");
        assert!(more.calls - few.calls <= 24, "{few:?}, {more:?}: waiting takes a few");
        let instructions = more.instructions - few.instructions;
        assert!((20 * 4..20 * 400).contains(&instructions), "{few:?}, {more:?}");
        run(5);
        drop(order);
        thread.join().unwrap();
    }
}
