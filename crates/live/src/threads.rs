//! The runtime's own thread, the fault reader, and the beginning and the end of all threads.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use farside_svm::Event;
use farside_types::Span;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::error::LiveError;
use crate::runtime::Runtime;
use crate::signals::{BlockedSignals, block_for_whole_thread};
use crate::soft_card::Backplane;
use crate::uffd::Fault;

/// Faults read at once.
const FAULTS: usize = 64;

/// A running runtime; stops and joins its threads when dropped.
#[derive(Debug)]
pub struct Machine {
    runtime: Arc<Runtime>,
    reader: Option<JoinHandle<()>>,
}

impl Machine {
    /// Starts the fault reader and `pes` processing elements per card.
    ///
    /// # Errors
    /// [`LiveError::Thread`].
    pub fn start(runtime: Runtime, pes: u16) -> Result<Machine, LiveError> {
        let runtime = runtime.share();
        let mut machine = Machine { runtime: Arc::clone(&runtime), reader: None };
        // New threads inherit the mask: no signal of the program ever runs on them.
        let _signals = BlockedSignals::block();
        let reader = Arc::clone(&runtime);
        let builder = std::thread::Builder::new().name("farside-faults".to_owned());
        let started = builder.spawn(move || read_faults(&reader)).map_err(LiveError::Thread)?;
        machine.reader = Some(started);
        let plane: Arc<dyn Backplane> = Arc::clone(&runtime) as _;
        for card in runtime.cards_in_program() {
            card.start(&plane, pes)?;
        }
        Ok(machine)
    }

    /// The runtime.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }
}

impl Drop for Machine {
    /// Cancels what still runs and ends all threads. The fault reader goes last: kernels that end
    /// may need it.
    fn drop(&mut self) {
        let runtime = &self.runtime;
        let reader = self.reader.take();
        if runtime.check_process().is_err() {
            // In a child made by fork there are no such threads.
            return std::mem::forget(reader);
        }
        for job in runtime.open_jobs() {
            job.cancel(runtime);
        }
        let Some(reader) = reader else { return };
        for card in runtime.cards_in_program() {
            card.close();
            card.join();
        }
        runtime.await_rings();
        runtime.closed.store(true, Ordering::SeqCst);
        runtime.ring_bell();
        let _ = reader.join();
    }
}

/// Reads page faults, hears the cards behind rings, and minds the clock.
fn read_faults(runtime: &Runtime) {
    block_for_whole_thread();
    let mut faults = [Fault::EMPTY; FAULTS];
    let mut sources = Sources::default();
    while !runtime.closed.load(Ordering::SeqCst) {
        let next = runtime.look_at_clock();
        runtime.look_after_suspects();
        let left = match runtime.rings_may_sleep() {
            true => next.map(|at| runtime.clock.until(at)),
            false => Some(Span::ZERO),
        };
        if sources.wait(runtime, left) {
            read_all(runtime, &mut faults);
        }
        for ring in runtime.rings() {
            runtime.hear(ring);
        }
    }
}

/// Tells the driver of all page faults that are there.
fn read_all(runtime: &Runtime, faults: &mut [Fault; FAULTS]) {
    loop {
        let count = match runtime.memories.arena.uffd().read_events(faults) {
            Ok(count) => count,
            Err(error) => {
                // Without faults every thread that touches a page would hang.
                eprintln!("farside: cannot read page faults: {error}; aborting");
                std::process::abort();
            }
        };
        if count == 0 {
            return;
        }
        runtime.tell_all(
            faults[..count]
                .iter()
                .map(|fault| Event::HostFault { page: fault.addr.page(), access: fault.access }),
        );
    }
}

/// What the fault reader waits for, beside page faults and the bell.
#[derive(Default)]
struct Sources {
    /// Per card behind rings: its interrupts, and its connection while there is one.
    rings: Vec<(Arc<OwnedFd>, Option<Arc<OwnedFd>>)>,
}

impl Sources {
    /// Sleeps until something happens or `left` has passed. Gives whether there are page faults.
    fn wait(&mut self, runtime: &Runtime, left: Option<Span>) -> bool {
        self.rings.clear();
        self.rings.extend(runtime.rings().map(|ring| (Arc::clone(&ring.event), ring.watched())));
        let timeout = left.map(|span| Timespec {
            tv_sec: (span.as_nanos() / 1_000_000_000) as i64,
            tv_nsec: (span.as_nanos() % 1_000_000_000) as i64,
        });
        let uffd = runtime.memories.arena.uffd();
        let mut polled =
            vec![PollFd::new(uffd, PollFlags::IN), PollFd::new(&runtime.bell, PollFlags::IN)];
        for (event, watch) in &self.rings {
            polled.push(PollFd::new(event, PollFlags::IN));
            polled.extend(watch.iter().map(|watch| PollFd::new(watch, PollFlags::RDHUP)));
        }
        // Every outcome means: look.
        let _ = rustix::event::poll(&mut polled, timeout.as_ref());
        let says: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut says = says.into_iter();
        let faults = says.next().unwrap_or(false);
        if says.next().unwrap_or(false) {
            clear(&runtime.bell);
        }
        for ((event, watch), ring) in self.rings.iter().zip(runtime.rings()) {
            if says.next().unwrap_or(false) {
                clear(event);
            }
            if watch.is_some() && says.next().unwrap_or(false) && ring.is_gone() {
                runtime.lose(ring);
            }
        }
        faults
    }
}

/// Sets an event descriptor back.
fn clear(event: &OwnedFd) {
    let mut count = [0; 8];
    let _ = rustix::io::read(event, &mut count);
}
