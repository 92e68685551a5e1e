//! Telling the driver and carrying out what it commands.

use std::sync::{Arc, MutexGuard};

use farside_card::Drained;
use farside_card::tables::PageBits;
use farside_svm::{
    Command, Event, Header, Mover, Place, Reply, RingOp, Step, StepError, StepErrorKind, Task,
    TransferOp,
};
use farside_types::{CardId, JobId, MemoryId, PageNo, Span, Time};

use super::{Core, Port, Runtime};
use crate::execute::HostWork;
use crate::ring_card::RingCard;
use crate::threads::is_fault_reader;
use crate::trace;
use crate::traffic::Copying;
use farside_linux::lock::lock;
use farside_linux::signals::block_for_whole_thread;
use farside_softcard::Job;

/// How long a step waits until it is looked again whether the program forks.
const FORK_PAUSE: std::time::Duration = std::time::Duration::from_micros(200);

impl Runtime {
    /// Tells the driver and carries out what follows.
    pub(crate) fn handle(&self, event: Event<'_>) {
        let _whole = AbortOnPanic::new();
        trace::event(&event);
        let mut core = lock(&self.core);
        // Those who wait for the lock do not plan.
        let started = self.clock.now();
        core.driver.0.handle(started, event);
        let planned = self.clock.now();
        self.times.planned(planned.since(started));
        self.carry_out_from(core, planned);
    }

    /// Tells the driver several things at once.
    pub(crate) fn handle_all<'a>(&self, events: impl Iterator<Item = Event<'a>>) {
        let _whole = AbortOnPanic::new();
        let mut core = lock(&self.core);
        let now = self.clock.now();
        for event in events {
            trace::event(&event);
            core.driver.0.handle(now, event);
        }
        let planned = self.clock.now();
        self.times.planned(planned.since(now));
        self.carry_out_from(core, planned);
    }

    /// Lets the driver do what is due and says how soon it wants to be called again.
    pub(crate) fn look_at_clock(&self) -> Option<Span> {
        let _whole = AbortOnPanic::new();
        let now = self.clock.now();
        let mut core = lock(&self.core);
        if !core.broken.is_empty() {
            self.end_broken(std::mem::take(&mut core.broken));
        }
        if core.limits.is_empty() && core.driver.0.poll_timeout().is_none_or(|at| at > now) {
            // The common case, on the way of every fault: nothing is due.
            core.next_look = core.driver.0.poll_timeout();
            return core.next_look.map(|at| at.since(now));
        }
        core.driver.0.handle_timeout(now);
        let due: Vec<JobId> =
            core.limits.range(..=(now, JobId(u64::MAX))).map(|(&(_, job), ())| job).collect();
        core.limits.retain(|&(at, _), ()| at > now);
        let late: Vec<Arc<Job>> =
            due.iter().filter_map(|job| core.jobs.get(job).cloned()).collect();
        self.carry_out(core);
        for job in late {
            self.overdue(&job);
        }
        let mut core = lock(&self.core);
        let limit = core.limits.keys().next().map(|&(at, _)| at);
        let next = [core.driver.0.poll_timeout(), limit].into_iter().flatten().min();
        core.next_look = next;
        next.map(|at| self.clock.until(at))
    }

    /// Carries out commands until none is left.
    pub(super) fn carry_out<'a>(&'a self, core: MutexGuard<'a, Core>) {
        let now = self.clock.now();
        self.carry_out_from(core, now);
    }

    /// The same where it is known how late it is: a look at the clock costs as much as many a step.
    pub(super) fn carry_out_from<'a>(&'a self, mut core: MutexGuard<'a, Core>, now: Time) {
        let mut planned = now;
        loop {
            self.drain_driver(&mut core);
            let started = self.clock.now();
            self.times.commanded(started.since(planned));
            let Some((command, departure)) = core.next_host_work(self) else {
                break;
            };
            drop(core);
            let (result, ended) = self.execute_and_count(&command, started);
            drop(departure);
            // Those who wait for the lock do not plan.
            let locked;
            (core, locked) = match self.core.try_lock() {
                Ok(core) => (core, ended),
                Err(_) => (lock(&self.core), self.clock.now()),
            };
            core.driver.0.handle(ended, command.header().done(result));
            planned = self.clock.now();
            self.times.planned(planned.since(locked));
        }
        self.mind_timeout(&mut core);
    }

    /// Carries a command of the host's out that began at `started`; gives its outcome and when it ended.
    fn execute_and_count(
        &self,
        command: &HostWork,
        started: Time,
    ) -> (Result<(), StepError>, Time) {
        let copying = command.copying();
        copying.into_iter().for_each(|copying| self.traffic.begin(copying, started));
        let result = self.execute(command);
        if is_fault_reader() {
            self.pulse.step();
        }
        let ended = self.clock.now();
        self.times.carried_out(command, ended.since(started));
        copying.into_iter().for_each(|it| self.traffic.end(it, result.is_ok(), ended));
        (result, ended)
    }

    /// Carries a step out of pages of a file, by the thread for these.
    pub(super) fn step_of_file(&self, work: &HostWork) {
        let departure = loop {
            // One that takes memory of the program's own as well begins when no fork is under way.
            match self.may_begin(work) {
                Some(departure) => break departure,
                None => std::thread::sleep(FORK_PAUSE),
            }
        };
        let (result, _) = self.execute_and_count(work, self.clock.now());
        drop(departure);
        self.handle(work.header().done(result));
    }

    /// Has the fault reader look at the clock when the driver wants to be called.
    pub(super) fn mind_timeout(&self, core: &mut Core) {
        let wanted = core.driver.0.poll_timeout();
        let earlier = wanted.is_some_and(|at| core.next_look.is_none_or(|look| at < look));
        if earlier {
            core.next_look = wanted;
            self.ring_bell();
        }
    }

    /// Makes the fault reader look up.
    pub(crate) fn ring_bell(&self) {
        // Full means that it has been rung often enough.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Takes the driver's commands and replies: ring commands are carried out here, in order.
    pub(super) fn drain_driver(&self, core: &mut Core) {
        loop {
            if let Some(command) = core.driver.0.poll_command() {
                match command {
                    Command::Host(step) => self.host_work(core, HostWork::Paging(step)),
                    Command::Ring(card, step) => self.card_command(core, card, step),
                    Command::Transfer(mover, step) => self.transfer_command(core, mover, step),
                }
            } else if let Some(reply) = core.driver.0.poll_reply() {
                self.deliver(core, reply);
            } else {
                return self.flush_rings(core);
            }
        }
    }

    /// Publishes what was put into rings, with one doorbell for all of it.
    fn flush_rings(&self, core: &mut Core) {
        let (mut quiet, mut broken) = (false, false);
        let is_reader = is_fault_reader();
        for ring in self.rings() {
            if let Some(link) = lock(&ring.link).as_mut() {
                link.flush(is_reader);
                quiet |= link.expects_quiet_news();
                broken |= link.is_broken();
            }
        }
        if broken && !is_reader {
            // It gives the connection up.
            self.ring_bell();
        }
        // The fault reader asks before it sleeps. What another thread adds while it sleeps would
        // otherwise be found with the next event, which may wait for just that.
        if quiet && core.sleeps_quietly && !is_reader {
            core.sleeps_quietly = false;
            self.ring_bell();
        }
    }

    fn deliver(&self, core: &mut Core, reply: Reply) {
        match reply {
            Reply::Request { id, .. } if core.foresight.is_unawaited(id) => {}
            Reply::Request { id, result } => {
                if let Some(result) = core.end_move(id, result) {
                    core.answered.insert(id, result);
                    self.replies.notify();
                }
            }
            Reply::JobDropped { job } => {
                // One that runs already ends by itself, or is given up: it stays known until then.
                let Some(known) = core.jobs.get(&job) else { return };
                if known.dropped() {
                    self.forget_job(core, job);
                } else if let Port::InProgram(card) = &self.ports[known.card.0 as usize] {
                    lock(&card.model).disturb_words();
                }
            }
            Reply::JobNotRun { job, because } => {
                let why = core.why_not_begun(Task::Job(job), because);
                if let Some(known) = core.jobs.get(&job) {
                    known.finish(Err(Runtime::not_run(known, why)));
                }
                self.forget_job(core, job);
            }
            Reply::CardSuspect { card, pages } => {
                tracing::error!(%card, %pages, "a card did not let pages go in time");
                core.suspects.push((card, pages));
                core.to_reset.push(card);
            }
            Reply::CardBroken { card } => {
                tracing::error!(%card, "a card fails commands that a card cannot fail");
                core.broken.push(card);
                self.ring_bell();
            }
            Reply::ThreadsStuck { page, kind } => end_program(page, kind),
        }
    }

    /// One command of a card's ring.
    fn card_command(&self, core: &mut Core, card: CardId, step: Step<RingOp>) {
        trace::command(&step.header, step.op.name(), || step.op.pages());
        let command = || Command::Ring(card, step.clone());
        let soft = match &self.ports[card.0 as usize] {
            Port::InProgram(soft) => soft,
            Port::Ring(ring) => {
                self.show(command);
                return self.ring_command(core, ring, &step);
            }
        };
        let (mut drained, mut bits) = (Drained::Now, PageBits::default());
        let Core { jobs, answers, .. } = &mut *core;
        let result = self.unless_struck(command, || {
            let job = |job| jobs.get(&job).cloned();
            let Step { header, op } = &step;
            drained = super::soft_ring::carry_out(soft, header.id, op, job, &mut bits, answers);
            Ok(())
        });
        if bits.told() > 0 {
            let (command, pages) = (step.header.id, bits.told());
            let told = Event::Told { command, first: 0, pages, bits: bits.words() };
            core.driver.0.handle(self.clock.now(), told);
        }
        if drained == Drained::Now || result.is_err() {
            core.driver.0.handle(self.clock.now(), step.header.done(result));
        } else {
            core.draining.insert(step.header.id, step.header.epoch);
        }
    }

    /// One copy or fill: by a card's own page DMA where it has one, to which a direct link from another card
    /// belongs, else by a host processor.
    fn transfer_command(&self, core: &mut Core, mover: Mover, step: Step<TransferOp>) {
        // Cards reach the arena by its descriptor, and adopted memory not at all: the CPU does it for them.
        let adopted = self.memories.adopted.is_used() && self.is_of_adopted(&step.op);
        if let (Mover::CardDma(card) | Mover::Link(_, card), false) = (mover, adopted) {
            if let Port::Ring(ring) = &self.ports[card.0 as usize] {
                trace::transfer(mover, &step);
                self.show(|| Command::Transfer(mover, step.clone()));
                if let TransferOp::Copy { from, runs, .. } = &step.op {
                    if *from == farside_svm::Place::Memory(card.memory()) {
                        let pages = runs.iter().flat_map(|run| run.pages().pages());
                        core.foresight.leave(card, pages);
                    }
                }
                let mut link = lock(&ring.link);
                let started = link.as_mut().is_none_or(|link| link.transfer(&step));
                if let Some(copying) = Copying::of(&step.op).filter(|_| started && link.is_some()) {
                    let started_at = self.clock.now();
                    self.traffic.begin(copying, started_at);
                    let stale = core.copying.insert(step.header.id, (card, copying));
                    stale.into_iter().for_each(|(_, it)| self.traffic.end(it, false, started_at));
                }
                return self.unless_started(core, started, &step.header);
            }
        }
        self.host_work(core, HostWork::Transfer(mover, step));
    }

    /// Whether one end of a copy is adopted memory.
    fn is_of_adopted(&self, op: &TransferOp) -> bool {
        let host = Some(Place::Memory(MemoryId::HOST));
        let ends = op.source() == host || Some(op.destination()) == host;
        ends && op.runs().iter().any(|run| self.memories.is_adopted(run))
    }

    /// Takes cards out of service that fail what a card cannot fail. That may take as long as their
    /// kernels do to end, and nothing else is to wait for it.
    fn end_broken(&self, broken: Vec<CardId>) {
        for card in broken {
            let Some(runtime) = self.shared() else { return };
            let name = format!("farside-end-{}", card.0);
            let started = std::thread::Builder::new().name(name).spawn(move || {
                block_for_whole_thread();
                if let Port::Ring(ring) = &runtime.ports[card.0 as usize] {
                    return runtime.suspect(ring, "it fails commands that a card cannot fail");
                }
                if let Err(error) = runtime.fail_card(card) {
                    tracing::error!(%card, %error, "a broken card is still in use");
                }
            });
            if let Err(error) = started {
                tracing::error!(%card, %error, "no thread can take a broken card out of service");
            }
        }
    }

    /// One command of a card behind rings. Without a connection it gets no answer, and runs into
    /// its time limit: the card may still do what it did before.
    fn ring_command(&self, core: &mut Core, ring: &RingCard, step: &Step<RingOp>) {
        let mut link = lock(&ring.link);
        let started = match (link.as_mut(), &step.op) {
            (Some(_), RingOp::Launch { job }) if ring.leaves() => {
                drop(link);
                return self.refuse_job(core, ring, *job, &step.header);
            }
            (Some(link), _) => {
                if let RingOp::Launch { job } = &step.op {
                    let job =
                        core.jobs.get(job).cloned().filter(|job| core.is_behind_link(job.card));
                    job.into_iter().for_each(|job| link.will_make(job.id, core.made_by(&job)));
                }
                link.submit(step, |job| core.jobs.get(&job).cloned())
            }
            (None, RingOp::Launch { job }) => {
                drop(link);
                return self.refuse_job(core, ring, *job, &step.header);
            }
            (None, _) => true,
        };
        self.unless_started(core, started, &step.header);
    }

    /// What needs nothing of a card is done at once.
    fn unless_started(&self, core: &mut Core, started: bool, header: &Header) {
        if !started {
            core.driver.0.handle(self.clock.now(), header.done(Ok(())));
        }
    }

    /// A job for a card that is away, or about to be: it fails at once.
    fn refuse_job(&self, core: &mut Core, ring: &RingCard, job: JobId, header: &Header) {
        let now = self.clock.now();
        core.driver.0.handle(now, header.done(Ok(())));
        core.driver.0.handle(now, Event::JobFailed { job });
        core.driver.0.handle(now, Event::JobDone { job });
        if let Some(job) = core.jobs.get(&job) {
            job.note_why_gone(&lock(&ring.why_gone));
            job.finish(Err(job.dropped_error()));
        }
        self.forget_job(core, job);
    }
}

/// Threads wait for a page for ever: an end with a message is better.
fn end_program(page: PageNo, kind: StepErrorKind) -> ! {
    let text = format!(
        "farside: threads of this program wait for {page}, which they cannot have, and the kernel \
         does not end their accesses either ({kind}); aborting, because they would wait for ever\n"
    );
    // Not through `eprintln`: whoever holds its lock may wait for a page.
    let _ = rustix::io::write(std::io::stderr(), text.as_bytes());
    std::process::abort();
}

/// A panic while this lives ends the process.
///
/// A thread that carries commands out owes their completion to everybody who waits for a page. If
/// it unwound, a bug of the runtime would be a hang of the program; an end with a message is not.
pub(super) struct AbortOnPanic {
    unwinding: bool,
}

impl AbortOnPanic {
    pub(super) fn new() -> AbortOnPanic {
        AbortOnPanic { unwinding: std::thread::panicking() }
    }
}

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.unwinding {
            let text =
                b"farside: the runtime panicked (a bug); aborting, because threads that wait \
                for its pages would hang\n";
            // Not through `eprintln`: whoever holds its lock may wait for a page.
            let _ = rustix::io::write(std::io::stderr(), text);
            std::process::abort();
        }
    }
}
