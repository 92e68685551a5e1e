//! Commands of a card, carried out in the order of its ring.

use farside_svm::{Command, Executor, RingOp, Run, Step, StepError, StepErrorKind, Task};
use farside_types::{
    CancelReason, CardId, CommandId, FaultId, FrameNo, JobId, MemoryId, PageNo, Rights, Span, Time,
};

use crate::access::{Cargo, Fault, Flight, Who};
use crate::card::Queued;
use crate::job::{JobFailure, JobState};
use crate::machine::{Machine, Parcel, Work};
use crate::memory::Translation;
use crate::violation::{Violation, ensure};

/// The pages of runs, each with its source and destination frame.
pub(crate) fn flat(runs: &[Run]) -> impl Iterator<Item = (PageNo, FrameNo, FrameNo)> + '_ {
    runs.iter().flat_map(|run| {
        let frames =
            move |i: u32| (run.page.offset(u64::from(i)), run.src.offset(i), run.dst.offset(i));
        (0..run.count).map(frames)
    })
}

/// The answer of a card that is gone.
pub(crate) const GONE: StepError = StepError { pages_done: 0, kind: StepErrorKind::CardGone };

impl Machine {
    /// Puts a command on its card's ring.
    pub(crate) fn enqueue(&mut self, card: CardId, step: Step<RingOp>) {
        let state = &self.cards[usize::from(card.0)];
        if state.lost && state.behind_rings && !matches!(step.op, RingOp::Launch { .. }) {
            return; // nobody is there to answer
        }
        if state.lost {
            let at = self.soon();
            return self.complete(&step.header, at, Err(GONE));
        }
        if self.cards[usize::from(card.0)].port.is_some() {
            return self.submit(card, step);
        }
        let generation = match &step.op {
            RingOp::Map { memory, .. } => self.memory(*memory).generation,
            _ => 0,
        };
        let refused = self.sabotaged(&Command::Ring(card, step.clone()));
        if refused == Some(StepErrorKind::TimedOut) {
            self.stall(card);
            let at = self.much_later();
            self.agenda.at(at, Work::GoOn(card));
        }
        let refused = refused.filter(|kind| *kind != StepErrorKind::TimedOut);
        let refused = refused.or_else(|| self.ring_command_fails(card));
        self.card_mut(card).ring.push_back(Queued { step, generation, refused });
        self.kick_ring(card);
    }

    /// Sees to it that the ring's head is carried out.
    pub(crate) fn kick_ring(&mut self, card: CardId) {
        let ring = self.card_mut(card);
        if ring.ring_scheduled || ring.stalled || ring.ring.is_empty() || ring.port.is_some() {
            return;
        }
        ring.ring_scheduled = true;
        self.later(Work::Ring(card));
    }

    /// Carries the head of a ring out, or lets it drain on.
    pub(crate) fn run_ring(&mut self, card: CardId) -> Result<(), Violation> {
        let ring = self.card_mut(card);
        ring.ring_scheduled = false;
        if ring.stalled {
            return Ok(());
        }
        let Some(head) = ring.ring.front().cloned() else {
            return Ok(());
        };
        if let Some(kind) = head.refused {
            self.card_mut(card).ring.pop_front();
            self.refuse(card, &head, kind);
            self.kick_ring(card);
            return Ok(());
        }
        if !self.carry_out(card, &head)? {
            self.card_mut(card).ring_scheduled = true;
            self.later(Work::Ring(card));
            return Ok(());
        }
        let done = self.soon();
        let ring = self.card_mut(card);
        ring.ring.pop_front();
        ring.head_begun = false;
        let at = done.max(Time(ring.last_completion.0 + 1));
        ring.last_completion = at;
        self.complete(&head.step.header, at, Ok(()));
        self.kick_ring(card);
        Ok(())
    }

    /// Carries one command out; false while it drains.
    fn carry_out(&mut self, card: CardId, head: &Queued) -> Result<bool, Violation> {
        let Step { header, op } = &head.step;
        if !self.cards[usize::from(card.0)].head_begun {
            self.say('x', format!("{} {} {}", header.id.0, card, op.name()));
            self.card_mut(card).head_begun = true;
        }
        match op {
            RingOp::Unmap { runs, tells } => {
                let drained = self.unmap(card, runs);
                if drained {
                    self.tell_written(card, header.id, runs, *tells);
                }
                Ok(drained)
            }
            RingOp::Protect { runs, rights } => Ok(self.protect(card, runs, *rights)),
            RingOp::Map { runs, memory, rights } => {
                self.map(card, head, runs, *memory, *rights).map(|()| true)
            }
            RingOp::Accessed { runs } => {
                self.tell_use(header.id, runs);
                Ok(true)
            }
            RingOp::Resume { faults } => self.resume(card, faults).map(|()| true),
            RingOp::Cancel { faults, reason } => {
                self.cancel(card, faults, *reason);
                Ok(true)
            }
            RingOp::Launch { job } => self.start(card, *job).map(|()| true),
        }
    }

    /// Says which pages were used, which nobody knows here: some, and not of all.
    fn tell_use(&mut self, command: CommandId, runs: &[Run]) {
        let pages = flat(runs).count() as u64;
        let first = self.rng.below(pages);
        let told = self.rng.below(pages - first + 1);
        let bits = (0..told.div_ceil(64)).map(|_| self.rng.bits()).collect();
        let parcel = Parcel::Told(command, first, told, bits);
        self.agenda.at(self.now, Work::Deliver(parcel));
    }

    /// Pages are unmapped and drained. Says which of them were written, mostly of all of them: a card may not
    /// know.
    fn tell_written(&mut self, card: CardId, command: CommandId, runs: &[Run], tells: bool) {
        let state = &mut self.cards[usize::from(card.0)];
        let told = |(page, ..): (PageNo, FrameNo, FrameNo)| state.written.remove(&page);
        let written = flat(runs).map(told).map(|told| told.is_none_or(|(_, written)| written));
        let written: Vec<bool> = written.collect();
        if !tells {
            return;
        }
        let pages = written.len() as u64;
        let part = self.also.chance(self.hostility.untold);
        let first = if part { self.also.below(pages) } else { 0 };
        let told = if part { self.also.below(pages - first + 1) } else { pages };
        let word =
            |bits: &[bool]| bits.iter().rev().fold(0, |word, &bit| word << 1 | u64::from(bit));
        let bits = written[first as usize..][..told as usize].chunks(64).map(word).collect();
        let parcel = Parcel::Told(command, first, told, bits);
        self.agenda.at(self.now, Work::Deliver(parcel));
    }

    /// Takes translations away; true when nothing is in flight through them.
    fn unmap(&mut self, card: CardId, runs: &[Run]) -> bool {
        for (page, _, _) in flat(runs) {
            self.card_mut(card).forget(page);
        }
        let agent = card.agent();
        !self.flights.values().any(|flight| {
            flight.agent == agent && flat(runs).any(|(page, ..)| flight.translation(page).is_some())
        })
    }

    /// Lowers rights; true when no write with the old ones is in flight.
    fn protect(&mut self, card: CardId, runs: &[Run], rights: Rights) -> bool {
        for (page, _, _) in flat(runs) {
            if let Some(entry) = self.card_mut(card).tlb.get_mut(&page) {
                entry.rights = entry.rights.min(rights);
            }
        }
        let agent = card.agent();
        rights == Rights::ReadWrite
            || !self.flights.values().any(|flight| {
                flight.agent == agent && flat(runs).any(|(page, ..)| flight.writes(page))
            })
    }

    /// Inserts translations, each to a frame that holds the page.
    fn map(
        &mut self,
        card: CardId,
        head: &Queued,
        runs: &[Run],
        memory: MemoryId,
        rights: Rights,
    ) -> Result<(), Violation> {
        let id = head.step.header.id;
        let dangling =
            self.memory(memory).generation != head.generation || self.memory(memory).lost;
        for (page, _, frame) in flat(runs) {
            let holder = self.memory(memory).frame(frame).map(|frame| frame.page);
            ensure!(holder.is_some(), "{id} maps {frame:?} of {memory}, which does not exist");
            // It is taken away again before the card runs anything.
            let harmless = self.cards[usize::from(card.0)].stale_is_harmless(page);
            ensure!(
                dangling || harmless || holder == Some(Some(page)),
                "{id} maps {page} to {frame:?} of {memory}, where {holder:?} is"
            );
            let generation = head.generation;
            let entry = Translation { memory, frame, rights, generation };
            self.card_mut(card).enter(page, entry);
        }
        Ok(())
    }

    /// Replays faulted accesses: each takes its translation now.
    fn resume(&mut self, card: CardId, faults: &[FaultId]) -> Result<(), Violation> {
        for id in faults {
            let Some(fault) = self.faults.remove(id) else { continue };
            if fault.void {
                continue;
            }
            let job = self.job_mut(fault.job);
            job.waits = job.waits.saturating_sub(1);
            if self.lacks_refused(card, &fault) {
                self.raise(card, fault.job, fault.need, fault.access);
                continue;
            }
            let held = self.held_by(card, &fault)?;
            self.say('x', format!("replay {id} of {} on {card}", fault.job));
            match fault.access {
                Some(access) => {
                    self.take_off(card.agent(), Who::Job(fault.job), access, held[0].2)?;
                }
                None => self.hold_group(card, fault.job, held),
            }
        }
        Ok(())
    }

    /// Whether a resumed fault lacks a translation because of what the card refused: to insert it, or
    /// to take the answer while it was there. The access faults again.
    fn lacks_refused(&self, card: CardId, fault: &Fault) -> bool {
        let state = &self.cards[usize::from(card.0)];
        let lacks = |&(page, access): &(PageNo, farside_types::Access)| {
            let refused = state.answers_refused || state.not_mapped.contains(&page);
            refused && self.hit(card.agent(), page, access).is_none()
        };
        fault.pages().iter().any(lacks)
    }

    /// The translations that a resumed fault finds; all must be there at this instant.
    fn held_by(
        &self,
        card: CardId,
        fault: &Fault,
    ) -> Result<Vec<(PageNo, farside_types::Access, Translation)>, Violation> {
        let mut held = Vec::new();
        for (page, access) in fault.pages() {
            let found = self.hit(card.agent(), page, access);
            let Some(translation) = found else {
                let there = self.translation(card.agent(), page);
                return Err(Violation(format!(
                    "{} of {} on {card} was resumed, but {page} is not there for {access:?}: {there:?}",
                    fault.id, fault.job
                )));
            };
            held.push((page, access, translation));
        }
        Ok(held)
    }

    /// A kernel holds a group of pages for a while.
    pub(crate) fn hold_group(
        &mut self,
        card: CardId,
        job: JobId,
        held: Vec<(PageNo, farside_types::Access, Translation)>,
    ) {
        for &(page, access, _) in &held {
            self.mark_written(card.agent(), page, access);
        }
        let accesses = self.rng.between(1, 5) as u32;
        self.job_mut(job).flights += 1;
        let cargo = Cargo::Group(held, accesses);
        let flight = Flight { agent: card.agent(), who: Who::Job(job), cargo, grant: None };
        let id = self.number();
        self.flights.insert(id, flight);
        self.later(Work::Fly(id));
    }

    /// Ends faulted accesses with an error; their jobs fail.
    fn cancel(&mut self, card: CardId, faults: &[FaultId], reason: CancelReason) {
        for id in faults {
            let Some(fault) = self.faults.remove(id) else { continue };
            if fault.void {
                continue;
            }
            let job = self.job_mut(fault.job);
            job.waits = job.waits.saturating_sub(1);
            job.failed.get_or_insert(JobFailure::Cancelled(reason));
        }
        self.wake_card(card);
    }

    /// Starts a kernel; those before it in its stream must have ended.
    pub(crate) fn start(&mut self, card: CardId, id: JobId) -> Result<(), Violation> {
        let stream = self.job_mut(id).stream;
        let mut before = self.jobs.range(..id).map(|(_, job)| job);
        let unfinished = before.rfind(|job| job.stream == stream && !job.is_over());
        if let Some(unfinished) = unfinished {
            return Err(Violation(format!(
                "{id} was started before {} of the same {stream} ended",
                unfinished.id
            )));
        }
        for other in self.job_mut(id).after.clone() {
            let other = self.job_mut(other);
            ensure!(
                other.state == JobState::Done && other.failed.is_none(),
                "{id} was started, and {}, which it comes after, is {:?} ({:?})",
                other.id,
                other.state,
                other.failed
            );
        }
        self.job_mut(id).state = JobState::Running;
        self.card_mut(card).running += 1;
        self.wake_card(card);
        Ok(())
    }

    /// A job that never starts: it came after one that has failed.
    pub(crate) fn not_run(&mut self, id: JobId, because: Task) -> Result<(), Violation> {
        let Task::Job(other) = because else {
            return Err(Violation(format!("{id} comes after {because}, which is no job")));
        };
        ensure!(self.job_mut(id).after.contains(&other), "{id} does not come after {other}");
        let other = self.job_mut(other);
        let failed = other.failed.is_some() || other.state == JobState::Dropped;
        ensure!(failed, "{id} does not start because of {}, which has not failed", other.id);
        let job = self.job_mut(id);
        ensure!(job.state == JobState::Asked, "{id} is not to start, but it is {:?}", job.state);
        job.state = JobState::Dropped;
        Ok(())
    }

    /// Judges a command of a ring when it is handed out.
    pub(crate) fn accept_ring(
        &mut self,
        card: CardId,
        step: &Step<RingOp>,
    ) -> Result<(), Violation> {
        let id = step.header.id;
        ensure!(
            usize::from(card.0) < self.cards.len(),
            "{id} goes to {card}, which does not exist"
        );
        match &step.op {
            RingOp::Map { memory, runs, .. } => {
                ensure!(
                    self.capabilities.can_map(card.agent(), *memory),
                    "{id} maps {memory} for {card}, which cannot reach it"
                );
                let adopted = flat(runs).find(|&(page, ..)| self.moves_adopted(page));
                ensure!(
                    !memory.is_host() || adopted.is_none(),
                    "{id} maps {adopted:?} at the host for {card}: it is the program's own there"
                );
            }
            RingOp::Resume { faults } => self.accept_answers(id, card, faults, None)?,
            RingOp::Cancel { faults, reason } => {
                self.accept_answers(id, card, faults, Some(*reason))?;
            }
            RingOp::Launch { job } => self.accept_launch(card, *job)?,
            RingOp::Unmap { tells: true, .. } | RingOp::Accessed { .. } => ensure!(
                self.capabilities.tells.contains(card.memory()),
                "{id} asks {card}, which does not tell of its pages"
            ),
            RingOp::Unmap { .. } | RingOp::Protect { .. } => {}
        }
        Ok(())
    }

    fn accept_launch(&mut self, card: CardId, id: JobId) -> Result<(), Violation> {
        let Some(job) = self.jobs.get_mut(&id) else {
            return Err(Violation(format!("{id} is launched, but nobody asked for it")));
        };
        ensure!(job.card == card, "{id} is launched on {card} instead of {}", job.card);
        ensure!(job.state == JobState::Asked, "{id} is launched, but it is {:?}", job.state);
        job.state = JobState::Issued;
        if self.cards[usize::from(card.0)].lost {
            self.finish_job(id, Some(JobFailure::CardGone));
        }
        Ok(())
    }

    /// Every fault is answered once, and an error has a legitimate reason.
    fn accept_answers(
        &mut self,
        id: farside_types::CommandId,
        card: CardId,
        faults: &[FaultId],
        reason: Option<CancelReason>,
    ) -> Result<(), Violation> {
        ensure!(!faults.is_empty(), "{id} answers no fault");
        for fault_id in faults {
            if self.forgotten.contains(fault_id) {
                continue;
            }
            let Some(fault) = self.faults.get_mut(fault_id) else {
                return Err(Violation(format!("{id} answers {fault_id}, which is not open")));
            };
            ensure!(fault.delivered, "{id} answers {fault_id} before the driver was told of it");
            ensure!(!fault.answered, "{id} answers {fault_id} a second time");
            ensure!(fault.card == card, "{id} answers {fault_id} of {} on {card}", fault.card);
            fault.answered = true;
            if let Some(reason) = reason.filter(|_| fault.judged != reason) {
                fault.judged = Some(reason);
                let fault = fault.clone();
                self.judge_cancel(&fault, reason)?;
            }
        }
        Ok(())
    }

    /// A drain and the like: who may be the executor of what.
    pub(crate) fn is_trip(command: &Command) -> bool {
        let awaited = command.header().wait == farside_svm::Wait::Awaited;
        awaited && command.executor() != Executor::HostCpu
    }

    /// The time after which an unanswered command comes back from the dead.
    pub(crate) fn much_later(&mut self) -> Time {
        let limit = self.limits.copy.0.max(self.limits.drain.0);
        self.now + Span(limit + self.rng.below(2 * limit))
    }
}
