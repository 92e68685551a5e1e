//! Rolling a chain back: steps that fail, executors that do not answer, agents that do not let go.
//! The source stays valid, and nothing is used again that somebody may still write.

use farside_types::{AgentId, CancelReason, Time};

use crate::Driver;
use crate::api::reply::RequestError;
use crate::migration::chain::{FailedStep, Failure, Part};
use crate::migration::chains::ChainId;
use crate::migration::stop::holding;
use crate::mutation::Mutation;
use crate::tables::page::{PageState, flag};
use crate::waiting::{Until, Work};

impl Driver {
    /// Back to where it was: the source is valid, what was found for the destination is given back.
    pub(crate) fn roll_back(&mut self, now: Time, id: ChainId) {
        self.stats.rollbacks += 1;
        self.give_bounce_back(now, id);
        self.waiting.forget(Work::Chain(id), Until::BounceBuffer);
        let chain = &mut self.chains[id];
        chain.hops.clear();
        let failure = chain.failure.take();
        let parts = std::mem::take(&mut chain.parts);
        for (number, part) in parts.iter().enumerate() {
            self.restore_pages(id, number as u16, part);
        }
        self.chains[id].parts = parts;
        self.retry_faults(id, failure.as_ref());
        self.retry_host(id);
        let request = self.chains[id].purpose.request;
        if let (Some(request), Some(failure)) = (request, failure) {
            let error = self.request_error(&failure);
            self.request_rolled_back(request, id, error);
        }
        // How long a failure took says nothing of what bringing costs.
        if let Some(failed) = self.chains[id].brings.take() {
            self.prices.give_up(failed);
        }
        self.release_followers(id, failure.map(|failure| failure.kind));
        self.leave_pages(id);
        if !self.quarantine.is_empty() {
            self.wake_bounce_waiters(now);
        }
    }

    /// Only who is known to have let go has left the directory: whoever plans these pages next, or
    /// frees one of them, stops all others again.
    fn restore_pages(&mut self, id: ChainId, number: u16, part: &Part) {
        let transition = part.transition;
        let holders = self.holders(id, number);
        let lost = transition.needs_frames();
        let lent = self.keeps_loans(&transition);
        let mut at = 0;
        for run in part.runs.iter() {
            if let Some(card) = lost {
                if !self.is_dead(card.memory()) {
                    self.chains[id].let_go(card, run.dst, run.count);
                }
            }
            self.table.for_each_mut(run.pages(), |_, entry| {
                let holding = holding(&holders, at);
                at += 1;
                entry.directory.unmap(transition.stop.minus(holding));
                entry.directory.protect(transition.demote.minus(holding));
                entry.directory.set_lent(lent && entry.directory.is_lent());
                if transition.makes_room {
                    entry.set(flag::STAYS, entry.has(flag::EVICTION_FAILED));
                    entry.set(flag::EVICTION_FAILED, true);
                }
                entry.state = entry.settled_state();
                entry.chain = ChainId::NONE;
            });
            self.hand_over(id, run.pages());
            if !self.dead.is_empty() {
                self.scrub(run.pages());
            }
        }
    }

    /// Faults of a failed chain are planned again, a bounded number of times.
    fn retry_faults(&mut self, id: ChainId, failure: Option<&Failure>) {
        let reason = self.cancel_reason(id, failure);
        let faults = std::mem::take(&mut self.chains[id].purpose.faults);
        for &key in &faults {
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
    fn cancel_reason(&self, id: ChainId, failure: Option<&Failure>) -> CancelReason {
        if let Some(Failure { step: FailedStep::Stop(AgentId::CPU), page, .. }) = failure {
            if self.table.get(*page).directory.is_adopted() {
                return CancelReason::HostKeeps;
            }
        }
        let parts = 0..self.chains[id].parts.len() as u16;
        let stayed = parts.flat_map(|part| self.chains[id].stayed(part).iter());
        let holder = stayed.filter_map(AgentId::card).next();
        holder.map_or(CancelReason::CopyFailed, CancelReason::Held)
    }

    fn retry_host(&mut self, id: ChainId) {
        if let Some(host) = self.chains[id].purpose.host {
            self.park(Work::HostFault(host.failed()), Until::PagesFree(id));
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
