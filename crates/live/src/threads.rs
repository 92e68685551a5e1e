//! The runtime's threads: the fault reader and the processing elements.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use farside_card::PeError;
use farside_svm::Event;
use farside_types::{CardId, PeId, Span};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::error::{KernelError, LiveError};
use crate::job::Job;
use crate::kernel::KernelContext;
use crate::runtime::{Runtime, lock};
use crate::signals::{BlockedSignals, block_for_whole_thread};
use crate::uffd::Fault;

/// Faults read at once.
const FAULTS: usize = 64;

/// A running runtime; stops and joins its threads when dropped.
#[derive(Debug)]
pub struct Machine {
    runtime: Arc<Runtime>,
    threads: Vec<JoinHandle<()>>,
}

impl Machine {
    /// Starts the fault reader and `pes` processing elements per card.
    ///
    /// # Errors
    /// [`LiveError::Thread`].
    pub fn start(runtime: Runtime, pes: u16) -> Result<Machine, LiveError> {
        let runtime = runtime.share();
        let mut machine = Machine { runtime: Arc::clone(&runtime), threads: Vec::new() };
        // New threads inherit the mask: no signal of the program ever runs on them.
        let _signals = BlockedSignals::block();
        let reader = Arc::clone(&runtime);
        machine.spawn("farside-faults", move || read_faults(&reader))?;
        for card in 0..runtime.cards.len() {
            for pe in 0..pes {
                let (runtime, card) = (Arc::clone(&runtime), CardId(card as u8));
                let name = format!("farside-{}.{pe}", card.0);
                machine.spawn(&name, move || run_jobs(&runtime, card))?;
            }
        }
        Ok(machine)
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), LiveError> {
        let builder = std::thread::Builder::new().name(name.to_owned());
        self.threads.push(builder.spawn(body).map_err(LiveError::Thread)?);
        Ok(())
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
        let mut threads = std::mem::take(&mut self.threads);
        if runtime.check_process().is_err() || threads.is_empty() {
            // In a child made by fork there are no such threads; or none was started.
            return std::mem::forget(threads);
        }
        for job in runtime.open_jobs() {
            job.cancel(runtime);
        }
        runtime.closing.store(true, Ordering::SeqCst);
        for slot in &runtime.cards {
            slot.gate.notify();
        }
        let reader = threads.remove(0);
        // Whoever hangs is known when his place was given to a spare, so these come afterwards.
        threads.drain(..).for_each(|thread| runtime.join(thread));
        while let Some(thread) = runtime.take_spare() {
            runtime.join(thread);
        }
        runtime.closed.store(true, Ordering::SeqCst);
        runtime.ring_bell();
        let _ = reader.join();
    }
}

impl Runtime {
    /// Waits for the end of a processing element's thread. A kernel that hangs never returns; its
    /// thread is left behind with what it holds.
    fn join(&self, thread: JoinHandle<()>) {
        let id = thread.thread().id();
        // The last handle of a space may go in a kernel's thread, which cannot wait for itself.
        let own = id == std::thread::current().id();
        while !thread.is_finished() && !self.hangs(id) && !own {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
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

/// A processing element: runs jobs one after the other.
pub(crate) fn run_jobs(runtime: &Arc<Runtime>, card: CardId) {
    block_for_whole_thread();
    let slot = &runtime.cards[card.0 as usize];
    loop {
        let job = slot.gate.wait(None, || match lock(&slot.queue).pop_front() {
            Some(job) => Some(Some(job)),
            None => runtime.closing.load(Ordering::SeqCst).then_some(None),
        });
        let Some(Some(job)) = job else { return };
        if !run_job(runtime, card, &job) {
            return;
        }
    }
}

/// Runs one job; `false` if the thread's place was given to another meanwhile.
fn run_job(runtime: &Arc<Runtime>, card: CardId, job: &Arc<Job>) -> bool {
    let slot = &runtime.cards[card.0 as usize];
    let launched = {
        let mut model = lock(&slot.model);
        let pe = model.pes().idle();
        pe.and_then(|pe| model.launch(pe, job.id).map(|()| pe).map_err(|_: PeError| ()).ok())
    };
    let Some(pe) = launched else {
        job.finish(Err(KernelError::Dropped { kernel: job.name.clone(), card }));
        runtime.job_done(job.id);
        return true;
    };
    let result = run_kernel(runtime, card, pe, job);
    let aborted = lock(&slot.model).abort(job.id).unwrap_or_default();
    slot.answer(aborted.answers);
    runtime.drained(&aborted.drains);
    // The driver knows that the card is idle before the program knows that the kernel is done:
    // its next fault then waits for nobody.
    runtime.job_done(job.id);
    job.finish(result);
    // Only now: with its result entered it cannot be given up any more.
    !job.was_given_up()
}

fn run_kernel(
    runtime: &Arc<Runtime>,
    card: CardId,
    pe: PeId,
    job: &Arc<Job>,
) -> Result<(), KernelError> {
    let body = job.begin(pe);
    if let Some(stop) = job.stopped() {
        return Err(stop);
    }
    let Some(body) = body else { return Ok(()) };
    let mut context = KernelContext::new(Arc::clone(runtime), Arc::clone(job), card, pe);
    let ran = std::panic::catch_unwind(AssertUnwindSafe(|| body(&mut context)));
    ran.unwrap_or_else(|panic| {
        let message = panic_message(panic.as_ref());
        Err(KernelError::Panicked { kernel: job.name.clone(), message })
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Starts a thread in place of one whose kernel hangs.
pub(crate) fn replace(runtime: &Runtime, card: CardId) {
    let Some(runtime) = runtime.shared() else {
        return;
    };
    let _signals = BlockedSignals::block();
    let name = format!("farside-{}.spare", card.0);
    let own = Arc::clone(&runtime);
    let started = std::thread::Builder::new().name(name).spawn(move || run_jobs(&own, card));
    match started {
        Ok(thread) => lock(&runtime.spares).push(thread),
        Err(error) => {
            tracing::error!(%error, %card, "no thread takes the place of a kernel that hangs");
        }
    }
}
