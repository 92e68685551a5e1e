//! The driver's end: its commands go into the ring, what the card says goes to it.

use farside_live::harness::{Said, fault_on_card};
use farside_svm::{RingOp, Step as Ordered, TransferOp, Wait};
use farside_types::{CardId, JobId};

use super::Step;
use super::bus::Refusal;
use super::far::KERNEL;
use super::mutation::RingMutation;
use crate::card::Queued;
use crate::job::{JobFailure, JobState};
use crate::machine::{Machine, Parcel};
use crate::violation::{Violation, ensure};

impl Machine {
    /// Puts a command of the driver into a card's ring.
    pub(crate) fn submit(&mut self, card: CardId, step: Ordered<RingOp>) {
        let generation = match &step.op {
            RingOp::Map { memory, .. } => self.memory(*memory).generation,
            _ => 0,
        };
        let started = self.port(card).is_some_and(|port| port.driver.submit(&step, KERNEL));
        if started {
            self.may_refuse(card, &step);
            self.card_mut(card).ring.push_back(Queued { step, generation, refused: None });
        } else {
            let at = self.soon();
            self.complete(&step.header, at, Ok(()));
        }
    }

    /// The card refuses a command by chance when it comes to it. One that it may not refuse, because
    /// nobody waits for its answer before what comes next, it carries out.
    fn may_refuse(&mut self, card: CardId, step: &Ordered<RingOp>) {
        let awaited = step.header.wait == Wait::Awaited;
        let page = step.op.runs().first().map(|run| run.page);
        let refusal = match &step.op {
            RingOp::Map { .. } => page.map(Refusal::Map),
            RingOp::Protect { .. } if awaited => page.map(Refusal::Protect),
            RingOp::Unmap { .. } if awaited => page.map(Refusal::Unmap),
            RingOp::Resume { faults } | RingOp::Cancel { faults, .. } => {
                faults.first().map(|&fault| Refusal::Answers(fault_on_card(fault)))
            }
            _ => None,
        };
        let Some(refusal) = refusal else { return };
        if self.ring_command_fails(card).is_some() {
            if let Some(port) = self.port(card) {
                port.far().bus.refusals.push(refusal);
            }
        }
    }

    /// The same with a copy or fill for its page DMA.
    pub(crate) fn submit_transfer(&mut self, card: CardId, step: &Ordered<TransferOp>) {
        if !self.port(card).is_some_and(|port| port.driver.transfer(step)) {
            let at = self.soon();
            self.complete(&step.header, at, Ok(()));
        }
    }

    /// Publishes what was put into rings, with one doorbell each.
    pub(crate) fn flush_ports(&mut self) {
        for card in (0..self.cards.len()).map(|i| CardId(i as u8)) {
            self.flush(card);
        }
    }

    fn flush(&mut self, card: CardId) {
        if let Some(port) = self.port(card) {
            port.driver.flush();
            self.signals(card);
            self.will_look(card);
        }
    }

    /// Takes what a card has written to its rings.
    pub(super) fn receive(&mut self, card: CardId) -> Result<(), Violation> {
        let Some(port) = self.port(card) else { return Ok(()) };
        port.far().bus.interrupt = false;
        let said = port.driver.receive();
        ensure!(!port.driver.is_broken(), "{card} has written nonsense to its rings");
        for word in said {
            self.received(card, word)?;
        }
        self.flush(card);
        self.step_later(card, Step::DriverDozes);
        Ok(())
    }

    fn received(&mut self, card: CardId, said: Said) -> Result<(), Violation> {
        match said {
            Said::Done(id, _, result) => {
                let Some(port) = self.port(card) else { return Ok(()) };
                if port.broken.now(RingMutation::LoseCompletion) {
                    return Ok(());
                }
                let ring = &mut self.card_mut(card).ring;
                let queued = ring.iter().position(|queued| queued.step.header.id == id);
                let header = match queued.and_then(|at| ring.remove(at)) {
                    Some(queued) => Some(queued.step.header),
                    None => self.transfers.get(&id).map(|transfer| *transfer.command.header()),
                };
                let Some(header) = header else {
                    return Err(Violation(format!("{id} has completed on {card}, once more")));
                };
                let at = self.soon();
                self.complete(&header, at, result);
            }
            Said::Faults(faults) => {
                for fault in &faults {
                    let Some(open) = self.faults.get_mut(&fault.id) else {
                        let text = format!("{card} reports {fault:?}, which nobody raised");
                        return Err(Violation(text));
                    };
                    // Others may have joined it since it was raised.
                    open.need = fault.need.clone();
                }
                let now = self.now;
                self.agenda
                    .at(now, crate::machine::Work::Deliver(Parcel::CardFaults(card, faults)));
            }
            Said::Told(command, first, pages, bits) => {
                let told = Parcel::Told(command, first, pages, bits);
                self.agenda.at(self.now, crate::machine::Work::Deliver(told));
            }
            Said::Notice(pages, count) => {
                self.deliver(Parcel::CounterNotice(card, pages, count));
            }
            Said::JobEnded(job, result, hangs) => {
                ensure!(!hangs, "{card} says that {job} hangs");
                self.job_answered(job, result.is_ok())?;
            }
        }
        Ok(())
    }

    /// The completion of a launch: the job has ended before, or was never started.
    fn job_answered(&mut self, id: JobId, well: bool) -> Result<(), Violation> {
        let job = self.job_mut(id);
        match job.state {
            JobState::Done => {
                ensure!(
                    well == job.failed.is_none(),
                    "{id} ended {:?}, and its launch says that it ended well: {well}",
                    job.failed
                );
                self.deliver(Parcel::JobDone(id));
            }
            JobState::Issued if !well => self.finish_job(id, Some(JobFailure::Aborted)),
            state => {
                let text = format!("the launch of {id}, which is {state:?}, is complete: {well}");
                return Err(Violation(text));
            }
        }
        Ok(())
    }

    /// The program does not want a job any more that was launched.
    pub(crate) fn abort_a_job(&mut self, card: CardId) {
        let launched = self.jobs.values().filter(|job| job.card == card);
        let launched = launched.filter(|job| {
            matches!(job.state, JobState::Issued | JobState::Running) && job.failed.is_none()
        });
        let ids: Vec<JobId> = launched.map(|job| job.id).collect();
        let Some(id) = self.rng.pick(&ids) else { return };
        let Some(port) = self.port(card) else { return };
        let never_was = port.driver.abort(id);
        self.flush(card);
        self.say('!', format!("{id} on {card} is aborted"));
        if never_was {
            self.finish_job(id, Some(JobFailure::Aborted));
        }
    }
}
