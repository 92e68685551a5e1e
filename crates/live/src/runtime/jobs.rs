//! Jobs: launched, stopped, given up.

use std::sync::Arc;

use farside_svm::Event;
use farside_types::{CardId, JobId, Span, Time};

use super::carry_out::AbortOnPanic;
use super::{ASID, Port, Runtime};
use crate::error::LiveError;
use farside_linux::lock::lock;
use farside_linux::signals::BlockedSignals;
use farside_softcard::Embedder;
use farside_softcard::{Granted, Job, KernelArgs, KernelBody, Returned, Stop};

/// Kernels that a card is asked for when a space opens, at most: each has a block of the rings' memory until it is
/// found.
const LOOKED_UP_MAX: usize = 64;

impl Runtime {
    /// A job that runs a closure on a card in the program. `limit` counts from now.
    pub fn closure(
        &self,
        card: CardId,
        name: Arc<str>,
        grants: Vec<Granted>,
        limit: Option<Span>,
        body: KernelBody,
    ) -> Arc<Job> {
        let id = JobId(self.fresh_id());
        Job::new(id, (card, ASID), name, grants, self.deadline(limit), body)
    }

    /// A job for a card that is not in the program: the kernel of that name, with these arguments.
    /// `limit` counts from now; `returned` gets what the kernel returns, if it ends well.
    pub fn call(
        &self,
        card: CardId,
        args: &KernelArgs,
        limit: Option<Span>,
        returned: Returned,
    ) -> Arc<Job> {
        let id = JobId(self.fresh_id());
        Job::call(id, (card, ASID), args, self.deadline(limit), returned)
    }

    fn deadline(&self, limit: Option<Span>) -> Option<Time> {
        limit.map(|span| self.clock.now() + span)
    }

    /// Tells a job to stop; it does at its next access to memory, or its next checkpoint.
    pub fn cancel(&self, job: &Job) {
        self.stop_job(job, Stop::Cancelled);
    }

    /// Asks the cards at the other end of a link for kernels by their names, so that no launch has to wait for
    /// that; waits for no answer.
    pub fn look_up(&self, names: &[&str]) {
        let _signals = BlockedSignals::block();
        let core = lock(&self.core);
        for ring in self.rings().filter(|ring| core.is_behind_link(ring.id)) {
            if let Some(link) = lock(&ring.link).as_mut() {
                names.iter().take(LOOKED_UP_MAX).for_each(|name| link.look_up(name));
                link.flush();
            }
        }
    }

    /// Enters a job and tells the driver.
    ///
    /// # Errors
    /// [`LiveError::WrongProcess`] after a fork; [`LiveError::ClosureElsewhere`].
    pub fn launch(&self, job: Arc<Job>, stream: farside_types::StreamId) -> Result<(), LiveError> {
        self.check_process()?;
        if self.is_far(job.card) && job.is_closure() {
            let (kernel, card) = (Arc::clone(&job.name), job.card);
            return Err(LiveError::ClosureElsewhere { kernel, card });
        }
        let _signals = BlockedSignals::block();
        let _whole = AbortOnPanic::new();
        if self.is_far(job.card) {
            self.bring_expected(&job);
        }
        let (id, card, limit) = (job.id, job.card, job.deadline);
        let mut core = lock(&self.core);
        core.jobs.insert(id, job);
        if let Some(at) = limit {
            core.limits.insert((at, id), ());
            if core.next_look.is_none_or(|look| at < look) {
                core.next_look = Some(at);
                self.ring_bell();
            }
        }
        core.driver.0.handle(self.clock.now(), Event::Launch { job: id, card, stream });
        self.carry_out(core);
        Ok(())
    }

    /// A job has ended in whatever way and touches memory no more.
    pub(crate) fn job_done(&self, id: JobId) {
        let _whole = AbortOnPanic::new();
        let mut core = lock(&self.core);
        core.jobs.remove(&id);
        core.driver.0.handle(self.clock.now(), Event::JobDone { job: id });
        self.carry_out(core);
    }

    /// A job was given up that still holds memory.
    pub(crate) fn job_hung(&self, id: JobId) {
        self.handle(Event::JobHung { job: id });
    }

    /// A job that waits in its stream is no longer wanted.
    pub(crate) fn job_cancel(&self, id: JobId) {
        self.handle(Event::JobCancel { job: id });
    }

    /// Looks at a job that was cancelled again at `at`.
    pub(crate) fn look_again(&self, at: Time, id: JobId) {
        let mut core = lock(&self.core);
        core.limits.insert((at, id), ());
        if core.next_look.is_none_or(|look| at < look) {
            core.next_look = Some(at);
            self.ring_bell();
        }
    }

    /// Tells a job to stop, unless it was told before.
    pub(crate) fn stop_job(&self, job: &Job, reason: Stop) {
        // A handler of the program that touched shared memory under one of the runtime's locks
        // would wait for itself.
        let _signals = BlockedSignals::block();
        if job.mark(reason) {
            self.stop_marked(job);
        }
    }

    /// Stops a job that was marked.
    pub(super) fn stop_marked(&self, job: &Job) {
        if job.is_done() {
            return;
        }
        let (never_was, grace) = match &self.ports[job.card.0 as usize] {
            Port::InProgram(card) => {
                let taken = card.take_queued(job.id);
                if !taken {
                    card.interrupt(job.id);
                }
                (taken, Span::from_nanos(self.grace.as_nanos() as u64))
            }
            Port::Ring(ring) => (self.abort_on_ring(ring, job), self.ring_grace()),
        };
        if never_was {
            // No processing element has taken it, and none will.
            self.job_done(job.id);
            return job.finish_stopped();
        }
        self.job_cancel(job.id);
        self.look_again(self.clock.now() + grace, job.id);
    }

    /// Its time limit, or the grace after it was told to stop, has passed.
    pub(super) fn overdue(&self, job: &Job) {
        if job.stopped().is_none() {
            return self.stop_job(job, Stop::TimedOut);
        }
        let Some(embedder) = self.shared().map(|runtime| runtime as Arc<dyn Embedder>) else {
            return;
        };
        if job.is_done() {
            return;
        }
        match &self.ports[job.card.0 as usize] {
            Port::InProgram(card) => {
                job.give_up(&embedder, card);
            }
            // The card gives a kernel up by itself. One that says nothing stands still.
            Port::Ring(ring) => self.suspect(ring, "it does not end a job that was aborted"),
        }
    }

    /// Jobs that have not ended.
    pub(crate) fn open_jobs(&self) -> Vec<Arc<Job>> {
        let _signals = BlockedSignals::block();
        lock(&self.core).jobs.values().cloned().collect()
    }
}
