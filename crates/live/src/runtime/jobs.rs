//! Jobs: launched, stopped, given up.

use std::sync::Arc;

use farside_svm::{Event, Note, Task};
use farside_types::{Access, CardId, JobId, PageRange, Span, StreamId, Time, VirtAddr};

use super::carry_out::AbortOnPanic;
use super::order::{Predecessor, open_tasks};
use super::{ASID, Core, Port, Runtime};
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

    pub(super) fn deadline(&self, limit: Option<Span>) -> Option<Time> {
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
                link.flush(false);
            }
        }
    }

    /// Enters a job and tells the driver. It starts when all of `after` have ended well.
    ///
    /// # Errors
    /// [`LiveError::WrongProcess`] after a fork; [`LiveError::ClosureElsewhere`].
    pub fn launch(
        &self,
        job: Arc<Job>,
        stream: StreamId,
        after: &[Predecessor],
    ) -> Result<(), LiveError> {
        self.check_process()?;
        if self.is_far(job.card) && job.is_closure() {
            let (kernel, card) = (Arc::clone(&job.name), job.card);
            return Err(LiveError::ClosureElsewhere { kernel, card });
        }
        self.await_emptied();
        let _signals = BlockedSignals::block();
        let _whole = AbortOnPanic::new();
        // What it needs may be made by those that it comes after.
        if self.is_far(job.card) && after.is_empty() {
            self.bring_expected(&job);
        }
        let mut core = lock(&self.core);
        match open_tasks(after) {
            Err(failed) => job.finish(Err(Runtime::not_run(&job, failed))),
            Ok(tasks) => {
                self.enter(&mut core, job, stream, after, &tasks);
                self.carry_out(core);
            }
        }
        Ok(())
    }

    /// Enters a job that comes after `tasks`, those of `after` that have not ended.
    pub(super) fn enter(
        &self,
        core: &mut Core,
        job: Arc<Job>,
        stream: StreamId,
        after: &[Predecessor],
        tasks: &[Task],
    ) {
        let (id, card, limit) = (job.id, job.card, job.deadline);
        let mut writes = writes_of(&job);
        // What is a card's own is nothing of the driver's.
        writes.retain(|&range| self.arena().covers(range) || self.is_adopted(range));
        note_launch(core, &job);
        core.jobs.insert(id, job);
        core.remember_order(Task::Job(id), after, tasks);
        if let Some(at) = limit {
            self.look_at(core, at, id);
        }
        let event = Event::Launch { job: id, card, stream, after: tasks, writes: &writes };
        core.driver.0.handle(self.clock.now(), event);
    }

    /// A job is known no longer: it has ended, in whatever way. The driver has been told.
    pub(super) fn forget_job(&self, core: &mut Core, id: JobId) {
        core.after.remove(&Task::Job(id));
        if let Some(job) = core.jobs.remove(&id) {
            self.piece_over(core, &job);
        }
    }

    /// A job has ended in whatever way and touches memory no more.
    pub(crate) fn job_done(&self, id: JobId) {
        let _whole = AbortOnPanic::new();
        let mut core = lock(&self.core);
        let now = self.clock.now();
        // One that was stopped before it began has no result yet.
        let ended_well = |job: &Arc<Job>| {
            job.result().map_or_else(|| job.stopped().is_none(), |result| result.is_ok())
        };
        if !core.jobs.get(&id).is_none_or(ended_well) {
            core.driver.0.handle(now, Event::JobFailed { job: id });
        }
        core.driver.0.handle(now, Event::JobDone { job: id });
        // Whoever comes after it may begin, and end, before this thread goes on: who has seen that sees this end too.
        if let Some(job) = core.jobs.get(&id).filter(|job| job.result().is_some()) {
            job.end().mark();
        }
        self.forget_job(&mut core, id);
        self.carry_out(core);
    }

    /// A job was given up that still holds memory.
    pub(crate) fn job_hung(&self, id: JobId) {
        let _whole = AbortOnPanic::new();
        let mut core = lock(&self.core);
        core.driver.0.handle(self.clock.now(), Event::JobHung { job: id });
        if let Some(job) = core.jobs.get(&id).cloned() {
            self.piece_over(&mut core, &job);
        }
        self.carry_out(core);
    }

    /// Jobs whose results are errors, although their card may still be busy with them.
    pub(super) fn jobs_failed(&self, jobs: &[Arc<Job>]) {
        let _whole = AbortOnPanic::new();
        let mut core = lock(&self.core);
        for job in jobs {
            core.driver.0.handle(self.clock.now(), Event::JobFailed { job: job.id });
            self.piece_over(&mut core, job);
        }
        self.carry_out(core);
    }

    /// A job that waits in its stream is no longer wanted.
    pub(crate) fn job_cancel(&self, id: JobId) {
        self.handle(Event::JobCancel { job: id });
    }

    /// Looks at a job that was cancelled again at `at`.
    pub(crate) fn look_again(&self, at: Time, id: JobId) {
        self.look_at(&mut lock(&self.core), at, id);
    }

    fn look_at(&self, core: &mut Core, at: Time, id: JobId) {
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

/// Notes what the driver does not know of a launch: its name, and what it uses to the byte.
fn note_launch(core: &mut Core, job: &Job) {
    let driver = &mut core.driver.0;
    if !driver.keeps_journal() {
        return;
    }
    driver.note(Note::Launch { job: job.id, card: job.card, name: &job.name });
    for grant in &job.grants {
        let access = if grant.may_be_written() { Access::Write } else { Access::Read };
        let at = VirtAddr(grant.start());
        driver.note(Note::Lent { job: job.id, at, bytes: grant.bytes(), access });
    }
}

/// The pages that a job may write.
fn writes_of(job: &Job) -> Vec<PageRange> {
    let written = job.grants.iter().filter(|grant| grant.may_be_written());
    written
        .filter_map(|grant| PageRange::covering(VirtAddr(grant.start()), grant.bytes()).ok())
        .collect()
}
