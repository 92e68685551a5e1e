//! A thread that waits for nobody, and so can say who waits for whom.
//!
//! Page faults are served by a thread of this process, which takes the driver's lock and allocates
//! nothing. So a signal handler may touch shared memory while its own thread is inside `malloc`. But
//! calls of the library allocate while they have the driver: where another thread is in one of them at
//! that moment, it waits for malloc's lock, the page for the driver, and the handler, whose thread has
//! malloc's lock, for the page. Nobody can undo that; the [`Watchdog`] names it. It looks once a second,
//! and from its start on it never allocates, takes no lock of the driver, and writes by system calls
//! only.
//!
//! It also lets rings of a doorbell go on that a card has made wait.

use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::LiveError;
use crate::runtime::Runtime;
use farside_linux::signals::block_for_whole_thread;
use farside_linux::uffd::Fault;

/// Between two looks.
const TICK: Duration = Duration::from_secs(1);

/// Looks at which the fault reader has not got any further, until that is called a deadlock.
const TICKS_MAX: u32 = 4;

/// What the fault reader does, for others to see. Costs it a store or two for each batch of faults.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// Beginnings, ends and steps of its work: odd while it works.
    beats: AtomicU64,
    /// Its thread.
    reader: AtomicU32,
    /// The thread of the program that waits for the first fault of the batch, if that is known.
    waits: AtomicU32,
    /// The byte that thread touched; 0 without a fault.
    addr: AtomicU64,
}

impl Pulse {
    /// The calling thread is the fault reader.
    pub(crate) fn is_reader(&self) {
        self.reader
            .store(rustix::thread::gettid().as_raw_nonzero().get() as u32, Ordering::Relaxed);
    }

    /// It begins to work.
    pub(crate) fn begin(&self) {
        self.beats.fetch_or(1, Ordering::Relaxed);
    }

    /// It works on a fault.
    pub(crate) fn serves(&self, fault: &Fault) {
        self.waits.store(fault.thread.unwrap_or(0), Ordering::Relaxed);
        self.addr.store(fault.addr.0, Ordering::Relaxed);
    }

    /// It has carried out a command.
    pub(crate) fn step(&self) {
        self.beats.fetch_add(2, Ordering::Relaxed);
    }

    /// It is going to sleep.
    pub(crate) fn rest(&self) {
        self.addr.store(0, Ordering::Relaxed);
        // From odd to the next even number.
        self.beats.fetch_add(1, Ordering::Relaxed);
    }
}

/// The thread; it ends when dropped, after [`Runtime::closed`] was set.
#[derive(Debug)]
pub(crate) struct Watchdog(Option<JoinHandle<()>>);

impl Watchdog {
    /// Starts it.
    ///
    /// # Errors
    /// [`LiveError::Thread`].
    pub(crate) fn start(runtime: &Arc<Runtime>) -> Result<Watchdog, LiveError> {
        let runtime = Arc::clone(runtime);
        let builder = std::thread::Builder::new().name("farside-watch".to_owned());
        let thread = builder.spawn(move || watch(&runtime)).map_err(LiveError::Thread)?;
        Ok(Watchdog(Some(thread)))
    }

    /// Lets go of a thread that does not exist, in a child made by fork.
    pub(crate) fn forget(mut self) {
        std::mem::forget(self.0.take());
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn watch(runtime: &Runtime) {
    block_for_whole_thread();
    let (mut seen, mut ticks) = (0, 0);
    while !runtime.closed.load(Ordering::SeqCst) {
        std::thread::park_timeout(TICK);
        runtime.rings().for_each(|ring| ring.free_doorbell());
        if let Some(watch) = runtime.memories.adopted.watching() {
            // Who unmaps adopted memory waits until that is heard, and may hold a lock of an allocator that is
            // wanted by somebody for whom its reader waits.
            watch.hear();
        }
        if runtime.rings().any(|ring| ring.wanted_back().is_some()) {
            // The fault reader sees to it.
            runtime.recalled.store(true, Ordering::SeqCst);
            runtime.ring_bell();
        }
        let beats = runtime.pulse.beats.load(Ordering::Relaxed);
        // Looks are counted, not time: a machine that was asleep has not been watched.
        ticks = if beats % 2 == 1 && beats == seen { ticks + 1 } else { 0 };
        seen = beats;
        if ticks == TICKS_MAX && is_waited_for(runtime) && sleeps(&runtime.pulse) {
            report(&runtime.pulse);
        }
    }
}

/// Whether a thread of the program waits for a page.
fn is_waited_for(runtime: &Runtime) -> bool {
    if runtime.pulse.addr.load(Ordering::Relaxed) != 0 {
        return true;
    }
    let uffd = runtime.memories.arena.uffd().as_fd();
    let mut polled = [PollFd::from_borrowed_fd(uffd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut polled, Some(&now)), Ok(1..))
}

/// Whether the fault reader waits for something, and is not merely at work for long.
fn sleeps(pulse: &Pulse) -> bool {
    let mut path = [0; 64];
    let reader = pulse.reader.load(Ordering::Relaxed);
    if write!(&mut path[..], "/proc/self/task/{reader}/stat").is_err() {
        return false;
    }
    let end = path.iter().position(|&byte| byte == 0).unwrap_or(0);
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(&path[..end], flags, rustix::fs::Mode::empty()) else {
        // Without /proc it cannot be known; a message too many is better than none.
        return true;
    };
    let mut stat = [0; 256];
    let read = rustix::io::read(&file, &mut stat).unwrap_or(0);
    state_of(&stat[..read]) != Some(b'R')
}

/// The state in a thread's `stat`: it follows the name, which is in brackets and may hold anything.
fn state_of(stat: &[u8]) -> Option<u8> {
    let name_ends = stat.iter().rposition(|&byte| byte == b')')?;
    stat.get(name_ends + 2).copied()
}

fn report(pulse: &Pulse) {
    let mut text = [0; 1024];
    let mut left = &mut text[..];
    let seconds = TICK.as_secs() * u64::from(TICKS_MAX);
    let (thread, addr) = (pulse.waits.load(Ordering::Relaxed), pulse.addr.load(Ordering::Relaxed));
    let _ = writeln!(
        left,
        "farside: deadlock: thread {thread} has waited for the page at {addr:#x} for {seconds} s, and \
         the thread that brings pages waits for a lock of this program. Most likely a signal handler \
         has touched shared memory while its thread was inside malloc, and another thread was \
         allocating, freeing, moving or launching. Where both may meet, pin what the handler needs to \
         the host with Space::pin, or give it memory of its own (docs/programming.md, \"fork, signals, \
         O_DIRECT\"). The program does not go on; SIGTERM and SIGKILL end it."
    );
    let unused = left.len();
    let _ = rustix::io::write(std::io::stderr(), &text[..text.len() - unused]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_found_behind_any_name() {
        assert_eq!(state_of(b"12 (a) R) S 1 2"), Some(b'S'));
        assert_eq!(state_of(b"12 (farside-faults) R 1 2"), Some(b'R'));
        assert_eq!(state_of(b"nonsense"), None);
    }

    #[test]
    fn a_pulse_is_odd_while_there_is_work() {
        let pulse = Pulse::default();
        let odd = || pulse.beats.load(Ordering::Relaxed) % 2 == 1;
        pulse.begin();
        pulse.step();
        assert!(odd());
        pulse.rest();
        assert!(!odd());
        pulse.begin();
        assert!(odd());
    }
}
