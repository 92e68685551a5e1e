//! Rolling a chain back: copies that fail, executors that do not answer, cards that do not drain.
//! The source stays valid, and nothing is used again that somebody may still write.

use farside_types::{AgentId, AgentSet, CancelReason, MemoryId, MemorySet, Time};

use crate::Driver;
use crate::chain::{End, Failure, Fill, Part, Pending, Transition};
use crate::command::{Executor, Run};
use crate::event::{StepError, StepErrorKind};
use crate::fault::Work;
use crate::lost::Held;
use crate::mutation::Mutation;
use crate::page::{NO_CHAIN, PageState, flag};
use crate::reply::{Reply, RequestError};

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
        for part in &parts {
            self.restore_pages(index, part);
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

    fn restore_pages(&mut self, index: u32, part: &Part) {
        let transition = part.transition;
        let undrained = self.still_mapping(index);
        let lost = transition.needs_frames();
        for run in part.runs.iter() {
            if let Some(card) = lost {
                if !self.is_dead(card.memory()) {
                    self.chains[index as usize].let_go(card, run.dst, run.count);
                }
            }
            self.table.for_each_mut(run.pages(), |_, entry| {
                entry.directory.unmap(transition.stop.minus(undrained));
                entry.directory.protect(transition.demote.minus(undrained));
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

    /// Cards that did not drain, or were told to by a posted command that is still in their ring:
    /// after a rollback they stay in the directory, so that whoever frees a frame stops them again.
    fn still_mapping(&self, index: u32) -> AgentSet {
        let chain = &self.chains[index as usize];
        let unanswered = chain.pending.iter().filter(|pending| pending.drain);
        let cards = unanswered.filter_map(|pending| match pending.executor {
            Executor::Card(card) => Some(card.agent()),
            _ => None,
        });
        cards.fold(chain.undrained, AgentSet::with)
    }

    /// Faults of a failed chain are planned again, a bounded number of times.
    fn retry_faults(&mut self, index: u32) {
        let holder = self.chains[index as usize].undrained.iter().find_map(AgentId::card);
        let reason = holder.map_or(CancelReason::CopyFailed, CancelReason::Held);
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

    /// Tells the program that these cards do not answer.
    pub(crate) fn suspect(&mut self, index: u32, part: u16, suspects: MemorySet) {
        let part = self.chains[index as usize].parts.get(part as usize);
        let pages =
            part.and_then(|part| part.runs.first()).map_or_else(Default::default, Run::pages);
        for card in suspects.iter().filter_map(MemoryId::card) {
            self.replies.push_back(Reply::CardSuspect { card, pages });
        }
    }

    /// A copy that timed out may still arrive: the bounce buffer, or the host's frames, that it
    /// writes are out of use. (Frames of cards go with the chain.)
    pub(crate) fn guard(&mut self, index: u32, pending: Pending, suspects: MemorySet) {
        if self.mutated.on(Mutation::ReuseAfterTimeout) {
            return;
        }
        if let Some(slot) = pending.bounce {
            self.chains[index as usize].bounce = None;
            return self.put_in_quarantine(suspects, Held::Bounce(slot));
        }
        let chain = &self.chains[index as usize];
        let Some(part) = chain.parts.get(pending.part as usize) else {
            return;
        };
        let into_host = part.transition.fill == Fill::Copy && part.transition.at.is_host();
        if pending.drain || !into_host {
            return;
        }
        let runs = part.runs.clone();
        for run in runs.iter() {
            self.table.for_each_mut(run.pages(), |_, entry| entry.set(flag::HOST_UNSAFE, true));
            self.put_in_quarantine(suspects, Held::Host(run.pages()));
        }
    }

    /// A card did not drain. Where it could write nobody knows what the page holds: it is lost.
    /// Where it only reads the chain goes on, and what it may still read is quarantined.
    pub(crate) fn drain_failed(&mut self, index: u32, pending: Pending) {
        let Executor::Card(card) = pending.executor else {
            return;
        };
        let chain = &mut self.chains[index as usize];
        let part = &chain.parts[pending.part as usize];
        let (runs, transition, page) = (part.runs.clone(), part.transition, part.first_page());
        let several = part.pages > 1 && transition.end != End::Free;
        self.suspect(index, pending.part, MemorySet::only(card.memory()));
        let agent = card.agent();
        let writes = runs.iter().any(|run| {
            run.pages().pages().any(|p| self.table.get(p).directory.writers().contains(agent))
        });
        let chain = &mut self.chains[index as usize];
        if writes && several {
            // Which of them it holds is not known: none is given up. The card keeps its entry in
            // the directory, and whoever needs one of them drains that page alone.
            chain.undrained = chain.undrained.with(agent);
            let Transition { from, at, .. } = transition;
            let kind = StepErrorKind::TimedOut;
            chain.failure.get_or_insert(Failure { kind, page, from, to: at });
            return;
        }
        chain.suspects = chain.suspects.with(card.memory());
        if writes {
            let Transition { from, at, .. } = transition;
            let kind = StepErrorKind::TimedOut;
            let lost = self.lose_written(index, card, &runs);
            let chain = &mut self.chains[index as usize];
            let page = lost.unwrap_or(page);
            chain.failure.get_or_insert(Failure { kind, page, from, to: at });
        }
    }

    fn request_error(&self, failure: &Failure) -> RequestError {
        let &Failure { page, from, to, .. } = failure;
        if self.table.get(page).state == PageState::Lost {
            return RequestError::Lost { page, memory: from };
        }
        let entry = self.table.get(page);
        let there = !entry.directory.copies().is_empty();
        let from = if there { entry.owner() } else { from };
        RequestError::CopyFailed { page, from, to }
    }
}
