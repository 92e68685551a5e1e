//! Rolling a chain back: steps that fail, executors that do not answer, agents that do not let go.
//! The source stays valid, and nothing is used again that somebody may still write.

use farside_types::{AgentId, CancelReason, MemorySet, Time};

use crate::Driver;
use crate::api::command::Executor;
use crate::api::event::{StepError, StepErrorKind};
use crate::api::reply::RequestError;
use crate::faults::open::Work;
use crate::migration::chain::{FailedStep, Failure, Fill, Part, Pending, Role};
use crate::migration::lost::Held;
use crate::migration::stop::holding;
use crate::mutation::Mutation;
use crate::tables::page::{NO_CHAIN, PageState, flag};

impl Driver {
    /// Back to where it was: the source is valid, what was found for the destination is given back.
    pub(crate) fn roll_back(&mut self, now: Time, index: u32) {
        self.stats.rollbacks += 1;
        self.give_bounce_back(now, index);
        self.bounce_waiters.retain(|&waiting| waiting != index);
        let chain = &mut self.chains[index as usize];
        chain.hops.clear();
        let failure = chain.failure.take();
        let parts = std::mem::take(&mut chain.parts);
        for (number, part) in parts.iter().enumerate() {
            self.restore_pages(index, number as u16, part);
        }
        self.chains[index as usize].parts = parts;
        self.retry_faults(index);
        self.retry_host(index);
        let request = self.chains[index as usize].request;
        if let (Some(id), Some(failure)) = (request, failure) {
            let error = self.request_error(&failure);
            self.request_rolled_back(id, index, error);
        }
        self.leave_pages(index);
        if !self.quarantine.is_empty() {
            // Perhaps the last bounce buffer is out of use: nobody must wait for it.
            for waiting in std::mem::take(&mut self.bounce_waiters) {
                self.advance(now, waiting);
            }
        }
    }

    /// Only who is known to have let go has left the directory: whoever plans these pages next, or
    /// frees one of them, stops all others again.
    fn restore_pages(&mut self, index: u32, number: u16, part: &Part) {
        let transition = part.transition;
        let holders = self.holders(index, number);
        let lost = transition.needs_frames();
        let mut at = 0;
        for run in part.runs.iter() {
            if let Some(card) = lost {
                if !self.is_dead(card.memory()) {
                    self.chains[index as usize].let_go(card, run.dst, run.count);
                }
            }
            self.table.for_each_mut(run.pages(), |_, entry| {
                let holding = holding(&holders, at);
                at += 1;
                entry.directory.unmap(transition.stop.minus(holding));
                entry.directory.protect(transition.demote.minus(holding));
                if transition.makes_room {
                    entry.set(flag::STAYS, entry.has(flag::EVICTION_FAILED));
                    entry.set(flag::EVICTION_FAILED, true);
                }
                entry.state = entry.settled_state();
                entry.chain = NO_CHAIN;
            });
            if !self.dead.is_empty() {
                self.scrub(run.pages());
            }
        }
    }

    /// Faults of a failed chain are planned again, a bounded number of times.
    fn retry_faults(&mut self, index: u32) {
        let reason = self.cancel_reason(index);
        let faults = std::mem::take(&mut self.chains[index as usize].faults);
        for key in faults {
            let Some(fault) = self.faults.get_mut(key) else {
                continue;
            };
            fault.attempts = fault.attempts.saturating_add(1);
            let spent = fault.attempts >= self.config.limits.attempts;
            if spent && !self.mutated.on(Mutation::RetryForever) {
                self.cancel(key, reason);
            } else {
                self.work.push_back(Work::Fault(key));
            }
        }
    }

    /// What a fault is told that is not tried again.
    fn cancel_reason(&self, index: u32) -> CancelReason {
        let parts = 0..self.chains[index as usize].parts.len() as u16;
        let stayed = parts.flat_map(|part| self.chains[index as usize].stayed(part).iter());
        let holder = stayed.filter_map(AgentId::card).next();
        holder.map_or(CancelReason::CopyFailed, CancelReason::Held)
    }

    fn retry_host(&mut self, index: u32) {
        let chain = &mut self.chains[index as usize];
        let host = chain.host.map(|host| Work::HostFault(host.failed()));
        chain.waiters.extend(host);
    }

    /// The time limit of a chain's stage has passed.
    pub(crate) fn chain_due(&mut self, now: Time, index: u32) {
        let chain = &mut self.chains[index as usize];
        if chain.deadline.is_none_or(|at| at > now) {
            return;
        }
        chain.deadline = None;
        // The host's own processors answer in any case: nobody is to act behind our back.
        let late = |p: &Pending| p.awaited && p.executor != Executor::HostCpu;
        let late: Vec<Pending> = chain.pending.iter().copied().filter(late).collect();
        for pending in late {
            self.chains[index as usize].pending.retain(|p| p.command != pending.command);
            let kind = StepErrorKind::TimedOut;
            self.step_failed(index, pending, StepError { pages_done: 0, kind });
        }
        self.advance(now, index);
    }

    /// A copy that timed out may still arrive: the bounce buffer, or the host's frames, that it
    /// writes are out of use. (Frames of cards go with the chain.)
    pub(crate) fn guard(&mut self, index: u32, pending: Pending, suspects: MemorySet) {
        if self.mutated.on(Mutation::ReuseAfterTimeout) {
            return;
        }
        if let Role::CopyOut(slot) = pending.role {
            self.chains[index as usize].bounce = None;
            return self.put_in_quarantine(suspects, Held::Bounce(slot));
        }
        let chain = &self.chains[index as usize];
        let Some(part) = chain.parts.get(pending.part as usize) else {
            return;
        };
        let into_host = part.transition.fill == Fill::Copy && part.transition.at.is_host();
        if !into_host {
            return;
        }
        let runs = part.runs.clone();
        for run in runs.iter() {
            self.table.for_each_mut(run.pages(), |_, entry| entry.set(flag::HOST_UNSAFE, true));
            self.put_in_quarantine(suspects, Held::Host(run.pages()));
        }
    }

    fn request_error(&self, failure: &Failure) -> RequestError {
        let &Failure { step, kind, page, from, to } = failure;
        let entry = self.table.get(page);
        match step {
            FailedStep::Stop(agent) => RequestError::NotLetGo { page, agent, why: kind },
            FailedStep::Release => RequestError::NotReleased { page, why: kind },
            _ if entry.state == PageState::Lost => RequestError::Lost { page, memory: from },
            FailedStep::Copy | FailedStep::Map => {
                let there = !entry.directory.copies().is_empty();
                let from = if there { entry.owner() } else { from };
                RequestError::CopyFailed { page, from, to }
            }
        }
    }
}
