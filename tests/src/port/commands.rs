//! What a card has taken from its ring, and what it does with jobs.

use farside_card::interface::{Extent, Status};
use farside_card::{Action, Answer, JobEnd, Location, MappedRun, Outcome};
use farside_live::harness::{ASID, fault_of};
use farside_svm::RingOp;
use farside_types::{CardId, JobId, PageNo, PageRange, Rights};

use super::bus::Taken;
use super::mutation::RingMutation;
use super::{FarCopy, Spot, Stand, Step};
use crate::job::{JobFailure, JobState, JobStep};
use crate::machine::Machine;
use crate::memory::Translation;
use crate::rings::flat;
use crate::transfers::Fate;
use crate::violation::{Violation, ensure};

impl Machine {
    /// The function has taken a command: the card's tables are what it says from here on.
    pub(super) fn taken(&mut self, card: CardId, command: Taken) -> Result<(), Violation> {
        self.say('x', format!("{card} takes {command:x?}"));
        match command {
            Taken::Map(extents, rights) => {
                extents.iter().try_for_each(|extent| self.mapped(card, extent, rights))
            }
            Taken::Protect(extents, rights) => {
                for page in pages_of(&extents) {
                    let Some(entry) = self.card_mut(card).tlb.get_mut(&page) else { continue };
                    let former = *entry;
                    entry.rights = entry.rights.min(rights);
                    self.removed(card, page, former);
                }
                Ok(())
            }
            Taken::Unmap(extents) => {
                for page in pages_of(&extents) {
                    if let Some(former) = self.card_mut(card).forget(page) {
                        self.removed(card, page, former);
                        self.keep_translation(card, page, former);
                    }
                }
                Ok(())
            }
            Taken::Answers(ids) => {
                for id in ids {
                    self.faults.remove(&fault_of(card, id));
                }
                Ok(())
            }
            Taken::Refused(command) => {
                self.refused(card, &command);
                Ok(())
            }
            Taken::Other => Ok(()),
            Taken::Nonsense(entry) => {
                Err(Violation(format!("{card} was given an entry that makes no sense: {entry:x?}")))
            }
        }
    }

    /// The function refuses a command, and says so by its completion.
    fn refused(&mut self, card: CardId, command: &Taken) {
        self.say('!', format!("{card} refuses {command:x?}"));
        self.note_failure(&[]);
        let extents = match command {
            Taken::Map(extents, _) => {
                self.card_mut(card).not_mapped.extend(pages_of(extents));
                extents.as_slice()
            }
            Taken::Protect(extents, _) | Taken::Unmap(extents) => {
                self.card_mut(card).doubtful = true;
                extents.as_slice()
            }
            Taken::Answers(ids) => {
                for &id in ids {
                    let fault = self.faults.get_mut(&fault_of(card, id));
                    fault.into_iter().for_each(|fault| fault.answered = false);
                }
                self.card_mut(card).answers_refused = true;
                &[]
            }
            _ => &[],
        };
        for page in pages_of(extents) {
            self.facts.each(PageRange::page(page), |facts| facts.failed = true);
        }
    }

    /// With that rule broken, a translation comes back that was taken away.
    fn keep_translation(&mut self, card: CardId, page: PageNo, former: Translation) {
        let Some(port) = self.port(card).filter(|port| port.map.own == former.memory) else {
            return;
        };
        if port.broken.now(RingMutation::KeepTranslation) {
            let mut far = port.far();
            let location = Location::new(far.model.memory(), former.frame);
            let run = std::iter::once(MappedRun::new(page, 1, location));
            let kept = far.model.map(ASID, run, former.rights);
            debug_assert_eq!(kept, Ok(()), "it was mapped before");
        }
    }

    fn removed(&mut self, card: CardId, page: PageNo, former: Translation) {
        if let Some(port) = self.port(card) {
            port.just_removed.push((page, former));
        }
    }

    /// The pages of an extent are mapped, as a command of the driver says.
    fn mapped(&mut self, card: CardId, extent: &Extent, rights: Rights) -> Result<(), Violation> {
        for index in 0..extent.count {
            let page = PageNo(extent.page + u64::from(index));
            let at = super::advance(extent.dst, index);
            let spot = self.port(card).and_then(|port| port.map.spot(at));
            let Some(Spot::Memory(memory, frame)) = spot else {
                return Err(Violation(format!("{card} maps {page} at {at:?}, where nothing is")));
            };
            let commanded = self.cards[usize::from(card.0)].ring.iter().find(|queued| {
                matches!(&queued.step.op, RingOp::Map { memory: m, runs, .. } if *m == memory
                    && flat(runs).any(|(p, _, f)| (p, f) == (page, frame)))
            });
            let Some(generation) = commanded.map(|queued| queued.generation) else {
                return Err(Violation(format!(
                    "{card} maps {page} at {frame:?} of {memory}, which no command says"
                )));
            };
            let there = self.memory(memory);
            let dangling = there.generation != generation || there.lost;
            let holder = there.frame(frame).and_then(|frame| frame.page);
            ensure!(
                dangling || holder == Some(page),
                "{card} maps {page} to {frame:?} of {memory}, where {holder:?} is"
            );
            let entry = Translation { memory, frame, rights, generation };
            self.card_mut(card).not_mapped.remove(&page);
            if let Some(former) = self.card_mut(card).tlb.insert(page, entry) {
                self.removed(card, page, former);
            }
        }
        Ok(())
    }

    /// Does, or begins, what the function wants done.
    pub(super) fn act_on(&mut self, card: CardId, action: Action) -> Result<(), Violation> {
        match action {
            Action::Start { pe, job, .. } => {
                let Some(port) = self.port(card) else { return Ok(()) };
                port.far().running.insert(job);
                port.pes.insert(pe, Stand { job, faulted: None });
                self.say('x', format!("{job} starts on {pe:?} of {card}"));
                self.start(card, job)
            }
            Action::Stop { job } => {
                if self.job_mut(job).state == JobState::Running {
                    self.job_mut(job).failed.get_or_insert(JobFailure::Aborted);
                    self.wake_card(card);
                }
                Ok(())
            }
            Action::Answer(answer) => self.answered(card, answer),
            Action::Copy { id, extents } => {
                self.begin_copy(card, id, FarCopy { extents, fill: false })
            }
            Action::Fill { id, extents, pattern } => {
                ensure!(pattern == 0, "{card} is to fill with {pattern:#x}");
                self.begin_copy(card, id, FarCopy { extents, fill: true })
            }
            other => Err(Violation(format!("{card} wants {other:?} out of the blue"))),
        }
    }

    fn begin_copy(
        &mut self,
        card: CardId,
        id: farside_types::CommandId,
        copy: FarCopy,
    ) -> Result<(), Violation> {
        let (transfer, _) = self.command_of(card, &copy)?;
        let silent = self.transfers.get(&transfer).is_some_and(|t| t.fate == Fate::Silent);
        let Some(port) = self.port(card) else { return Ok(()) };
        port.far().copying.insert(id);
        port.copies.insert(id, copy);
        let at = if silent { self.much_later() } else { self.soon() };
        self.step_at(at, card, Step::Copy(id));
        Ok(())
    }

    /// The answer to the fault that a processing element stands in.
    fn answered(&mut self, card: CardId, answer: Answer) -> Result<(), Violation> {
        let Answer { pe, job: id, outcome } = answer;
        let stand = self.port(card).and_then(|port| port.pes.get_mut(&pe));
        let step = stand.filter(|stand| stand.job == id).and_then(|stand| stand.faulted.take());
        let Some(step) = step else {
            return Err(Violation(format!(
                "{id} on {pe:?} of {card} is answered, and waits for nothing"
            )));
        };
        let job = self.job_mut(id);
        job.waits = job.waits.saturating_sub(1);
        match outcome {
            Outcome::Granted(grant) => self.granted(card, id, step, grant)?,
            Outcome::Retry => self.job_mut(id).script.steps.push_front(step),
            Outcome::Cancelled(reason) => {
                job.failed.get_or_insert(JobFailure::Cancelled(reason));
            }
            Outcome::Aborted => {
                job.failed.get_or_insert(JobFailure::Aborted);
            }
        }
        self.wake_card(card);
        Ok(())
    }

    /// A kernel of a port has ended: the function is told, and tells the driver.
    pub(crate) fn end_on_port(&mut self, card: CardId, job: JobId) -> bool {
        let Some(port) = self.port(card) else { return false };
        port.pes.retain(|_, stand| stand.job != job);
        let now = self.now;
        self.step_at(now, card, Step::Ended(job));
        true
    }

    pub(super) fn job_has_ended(&mut self, card: CardId, job: JobId) -> Result<(), Violation> {
        let end = match self.job_mut(job).failed {
            None => JobEnd::returned(job.0),
            Some(JobFailure::Aborted) => JobEnd::failed(Status::Aborted, String::new()),
            Some(failure) => JobEnd::failed(Status::KernelFailed, format!("{failure:?}")),
        };
        let Some(port) = self.port(card) else { return Ok(()) };
        port.far().running.remove(&job);
        self.notify(card, |function, model, bus| function.job_ended(model, bus, job, &end))
    }

    /// Whether a step's pages are wanted at all: a job that was told to stop raises no fault.
    pub(super) fn is_wanted(&mut self, card: CardId, job: JobId) -> bool {
        self.port(card).is_some_and(|port| port.far().function.wants(job))
    }

    /// The rule that drains are waited for is broken.
    pub(super) fn skips_drains(&mut self, card: CardId) -> bool {
        self.port(card).is_some_and(|port| port.broken.is(RingMutation::SkipDrain))
    }
}

fn pages_of(extents: &[Extent]) -> impl Iterator<Item = PageNo> + '_ {
    extents.iter().flat_map(|extent| {
        (0..u64::from(extent.count)).map(move |index| PageNo(extent.page + index))
    })
}

impl JobStep {
    /// The ranges that it needs at the same instant.
    pub(super) fn needs(&self) -> Vec<(farside_types::PageRange, farside_types::Access)> {
        match self {
            JobStep::Access(access) => {
                vec![(farside_types::PageRange::page(access.page), access.op.access())]
            }
            JobStep::Group(ranges) => ranges.clone(),
        }
    }
}
