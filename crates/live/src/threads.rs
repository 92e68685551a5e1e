//! The runtime's own thread, the fault reader, and the beginning and the end of all threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use farside_svm::Event;
use farside_types::Span;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::error::LiveError;
use crate::runtime::{Port, Runtime};
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
        for port in &runtime.ports {
            let Port::InProgram(card) = port;
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
        for port in &runtime.ports {
            let Port::InProgram(card) = port;
            card.close();
            card.join();
        }
        runtime.closed.store(true, Ordering::SeqCst);
        runtime.ring_bell();
        let _ = reader.join();
    }
}

/// Reads page faults, and minds the clock. Allocates nothing of its own on the way.
fn read_faults(runtime: &Runtime) {
    block_for_whole_thread();
    let mut faults = [Fault::EMPTY; FAULTS];
    while !runtime.closed.load(Ordering::SeqCst) {
        let next = runtime.look_at_clock();
        let left = next.map(|at| runtime.clock.until(at));
        wait_for_fault(runtime, left);
        loop {
            let count = match runtime.memories.arena.uffd().read_events(&mut faults) {
                Ok(count) => count,
                Err(error) => {
                    // Without faults every thread that touches a page would hang.
                    eprintln!("farside: cannot read page faults: {error}; aborting");
                    std::process::abort();
                }
            };
            if count == 0 {
                break;
            }
            runtime.tell_all(
                faults[..count].iter().map(|fault| Event::HostFault {
                    page: fault.addr.page(),
                    access: fault.access,
                }),
            );
        }
    }
}

/// Sleeps until there is a fault, the bell rings or `left` has passed.
fn wait_for_fault(runtime: &Runtime, left: Option<Span>) {
    let timeout = left.map(|span| Timespec {
        tv_sec: (span.as_nanos() / 1_000_000_000) as i64,
        tv_nsec: (span.as_nanos() % 1_000_000_000) as i64,
    });
    let uffd = runtime.memories.arena.uffd();
    let mut polled = [PollFd::new(uffd, PollFlags::IN), PollFd::new(&runtime.bell, PollFlags::IN)];
    // Every outcome means: look.
    let _ = rustix::event::poll(&mut polled, timeout.as_ref());
    if polled[1].revents().contains(PollFlags::IN) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&runtime.bell, &mut count);
    }
}
