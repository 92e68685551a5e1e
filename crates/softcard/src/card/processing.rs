//! Processing elements: threads that run jobs.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{JoinHandle, ThreadId};

use farside_card::PeError;
use farside_types::PeId;

use super::{Embedder, Queued, SoftCard};
use crate::error::KernelError;
use crate::job::Job;
use crate::kernel::KernelContext;
use farside_linux::lock::lock;
use farside_linux::signals::{BlockedSignals, block_for_whole_thread};

impl SoftCard {
    /// Starts `pes` processing elements.
    ///
    /// # Errors
    /// The system has no thread for one of them.
    pub fn start(self: &Arc<Self>, embedder: &Arc<dyn Embedder>, pes: u16) -> std::io::Result<()> {
        for pe in 0..pes {
            self.spawn(embedder, &pe.to_string())?;
        }
        Ok(())
    }

    fn spawn(self: &Arc<Self>, embedder: &Arc<dyn Embedder>, name: &str) -> std::io::Result<()> {
        // New threads inherit the mask: no signal of the program ever runs on them.
        let _signals = BlockedSignals::block();
        let (card, embedder) = (Arc::clone(self), Arc::clone(embedder));
        let builder = std::thread::Builder::new().name(format!("farside-{}.{name}", self.id.0));
        let thread = builder.spawn(move || run_jobs(&card, &embedder))?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    /// Starts a thread in place of one whose kernel hangs.
    pub fn replace(self: &Arc<Self>, embedder: &Arc<dyn Embedder>, hangs: Option<ThreadId>) {
        lock(&self.hung).extend(hangs);
        if let Err(error) = self.spawn(embedder, "spare") {
            let card = self.id;
            tracing::error!(%error, %card, "no thread takes the place of a kernel that hangs");
        }
    }

    /// Tells the processing elements to end when they have nothing left to do.
    pub fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.gate.notify();
    }

    /// Waits for the end of all processing elements but those that hang. Gives how many do.
    pub fn join(&self) -> usize {
        let mut left_behind = 0;
        loop {
            // One by one: a spare may be added meanwhile.
            let Some(thread) = lock(&self.threads).pop() else {
                return left_behind;
            };
            left_behind += usize::from(!self.join_one(thread));
        }
    }

    /// A kernel that hangs never returns; its thread is left behind with what it holds.
    fn join_one(&self, thread: JoinHandle<()>) -> bool {
        let id = thread.thread().id();
        // The last handle of a space may go in a kernel's thread, which cannot wait for itself.
        let own = id == std::thread::current().id();
        while !thread.is_finished() && !lock(&self.hung).contains(&id) && !own {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        let finished = thread.is_finished();
        if finished {
            let _ = thread.join();
        }
        finished
    }
}

/// A processing element: runs jobs one after the other.
fn run_jobs(card: &Arc<SoftCard>, embedder: &Arc<dyn Embedder>) {
    block_for_whole_thread();
    loop {
        let next = card.gate.wait(None, || match lock(&card.queue).pop_front() {
            Some(queued) => Some(Some(queued)),
            None => card.closing.load(Ordering::SeqCst).then_some(None),
        });
        let Some(Some(Queued { job, pe })) = next else { return };
        let goes_on = match pe {
            Some(pe) => run_placed(card, embedder, pe, &job),
            None => run_job(card, embedder, &job),
        };
        if !goes_on {
            return;
        }
    }
}

/// Runs one job; `false` if the thread's place was given to another meanwhile.
fn run_job(card: &Arc<SoftCard>, embedder: &Arc<dyn Embedder>, job: &Arc<Job>) -> bool {
    let launched = {
        let mut model = lock(&card.model);
        let pe = model.pes().idle();
        pe.and_then(|pe| model.launch(pe, job.id).map(|()| pe).map_err(|_: PeError| ()).ok())
    };
    let Some(pe) = launched else {
        job.end_with(embedder.as_ref(), card, Err(job.dropped_error()));
        return true;
    };
    let result = run_kernel(card, embedder, pe, job);
    let aborted = lock(&card.model).abort(job.id).unwrap_or_default();
    card.answer(aborted.answers);
    embedder.drained(card, &aborted.drains);
    // The driver knows that the card is idle before the program knows that the kernel is done:
    // its next fault then waits for nobody.
    job.end_with(embedder.as_ref(), card, result);
    // Only now: with its result entered it cannot be given up any more.
    !job.was_given_up()
}

/// Runs a job that the model has put on a processing element; the card's surroundings take it off.
fn run_placed(
    card: &Arc<SoftCard>,
    embedder: &Arc<dyn Embedder>,
    pe: PeId,
    job: &Arc<Job>,
) -> bool {
    let result = run_kernel(card, embedder, pe, job);
    job.end_with(embedder.as_ref(), card, result);
    !job.was_given_up()
}

fn run_kernel(
    card: &Arc<SoftCard>,
    embedder: &Arc<dyn Embedder>,
    pe: PeId,
    job: &Arc<Job>,
) -> Result<(), KernelError> {
    let body = job.begin(pe);
    if let Some(stop) = job.stopped() {
        return Err(stop);
    }
    let Some(body) = body else { return Ok(()) };
    let mut context =
        KernelContext::new(Arc::clone(card), Arc::clone(embedder), Arc::clone(job), pe);
    context.record_begin();
    let ran = std::panic::catch_unwind(AssertUnwindSafe(|| body(&mut context)));
    context.free_own();
    context.record_end();
    ran.unwrap_or_else(|panic| {
        let message = panic_message(panic.as_ref());
        Err(KernelError::Panicked { kernel: job.name.clone(), message })
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
