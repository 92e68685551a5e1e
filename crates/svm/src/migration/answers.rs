//! Answers to the commands of a chain, and answers that do not come in time.

use farside_types::{CommandId, Epoch, MemorySet, Span, Time};

use crate::Driver;
use crate::api::command::Executor;
use crate::api::event::{StepError, StepErrorKind};
use crate::driver::Due;
use crate::migration::chain::{FailedStep, Pending, Role};
use crate::migration::chains::ChainId;
use crate::migration::lost::{Held, cards_of};
use crate::migration::stop::nth_page;
use crate::migration::transition::Fill;
use crate::mutation::Mutation;
use crate::tables::page::flag;

impl Driver {
    /// A command was answered.
    pub(crate) fn done(
        &mut self,
        now: Time,
        command: CommandId,
        epoch: Epoch,
        result: Result<(), StepError>,
    ) {
        let id = ChainId::of(command);
        if id == ChainId::DETACHED {
            return self.detached_done(command, result);
        }
        let trusting = self.mutated.on(Mutation::TrustLateCompletions);
        let known = self.chains.get(id).and_then(|chain| {
            let same = chain.epoch == epoch.0 || trusting;
            let found = chain.pending.iter().position(|pending| pending.command == command);
            found.filter(|_| same).or((trusting && !chain.pending.is_empty()).then_some(0))
        });
        let Some(at) = known else {
            if !self.late_stop_done(command, result) {
                self.stats.late_completions += 1;
            }
            return;
        };
        let chain = &mut self.chains[id];
        let pending = chain.pending.swap_remove(at);
        match result {
            Err(error) => self.step_failed(id, pending, error),
            Ok(()) if pending.role == Role::CardMap => self.map_came(pending, true),
            Ok(()) => {}
        }
        self.advance(now, id);
    }

    /// A card has told of the pages of a command, which is not answered yet.
    pub(crate) fn told(&mut self, command: CommandId, first: u64, pages: u64, bits: &[u64]) {
        if ChainId::of(command) == ChainId::DETACHED {
            self.stayers_told(command, first, pages, bits);
        } else {
            self.written_told(command, first, pages, bits);
        }
    }

    pub(crate) fn step_failed(&mut self, id: ChainId, pending: Pending, error: StepError) {
        if self.mutated.on(Mutation::IgnoreCopyFailure) {
            return;
        }
        let step = match pending.role {
            Role::Stop(agent) => return self.stop_failed(id, pending, agent, error),
            Role::Answer => return self.chain_answer_failed(id, pending, error.kind),
            Role::CardMap => return self.map_came(pending, false),
            Role::Copy if self.go_around(id, pending, error) => return,
            Role::Copy | Role::CopyOut(_) => FailedStep::Copy,
            Role::Release => FailedStep::Release,
            Role::HostMap => FailedStep::Map,
        };
        let chain = &mut self.chains[id];
        if error.kind == StepErrorKind::TimedOut {
            let suspects = cards_of(pending.executor);
            chain.suspects = chain.suspects.union(suspects);
            self.suspect(id, pending.part, suspects);
            self.guard(id, pending, suspects);
        }
        let part = &self.chains[id].parts[pending.part as usize];
        let runs = if step == FailedStep::Copy { self.copied(part) } else { part.runs.clone() };
        let page = nth_page(&runs, error.pages_done).unwrap_or(part.first_page());
        self.chains[id].fail(pending.part, step, page, error.kind);
    }

    /// A card has inserted translations for a chain, or failed to.
    fn map_came(&mut self, pending: Pending, well: bool) {
        if let Executor::Card(card) = pending.executor {
            self.map_answered(card, well);
        }
    }

    /// A card did not take the answer to its faults.
    fn chain_answer_failed(&mut self, id: ChainId, pending: Pending, kind: StepErrorKind) {
        let faults = self.chains[id].answer.take();
        if let (Executor::Card(card), Some(faults)) = (pending.executor, faults) {
            self.answer_failed(card, faults, kind);
        }
    }

    /// Gives the chain's present stage a time limit, if others than the host's own processors are
    /// waited for.
    pub(crate) fn limit(&mut self, now: Time, id: ChainId, span: Span) {
        let chain = &mut self.chains[id];
        let remote = |pending: &Pending| pending.awaited && pending.executor != Executor::HostCpu;
        if chain.pending.iter().any(remote) {
            chain.deadline = Some(now + span);
            self.arm_chain(now, id);
        }
    }

    /// Sees to it that the slot's timer is due no later than its deadline. It is never set further
    /// ahead than the shorter time limit, so that no later deadline can come before it: one timer
    /// per slot is enough.
    fn arm_chain(&mut self, now: Time, id: ChainId) {
        let step = self.config.limits.drain.min(self.config.limits.copy);
        let chain = &mut self.chains[id];
        if let (Some(deadline), None) = (chain.deadline, chain.armed) {
            let at = deadline.min(now + step);
            chain.armed = Some(at);
            self.set_timer(at, Due::Chain(id));
        }
    }

    /// A slot's timer is due: the chain that has the slot now may have time left.
    pub(crate) fn chain_timer(&mut self, now: Time, at: Time, id: ChainId) {
        let chain = &mut self.chains[id];
        if chain.armed == Some(at) {
            chain.armed = None;
        }
        self.chain_due(now, id);
        self.arm_chain(now, id);
    }

    /// The time limit of a chain's stage has passed.
    pub(crate) fn chain_due(&mut self, now: Time, id: ChainId) {
        let chain = &mut self.chains[id];
        if chain.deadline.is_none_or(|at| at > now) {
            return;
        }
        chain.deadline = None;
        // The host's own processors answer in any case: nobody is to act behind our back.
        let late = |p: &Pending| p.awaited && p.executor != Executor::HostCpu;
        let late: Vec<Pending> = chain.pending.iter().copied().filter(late).collect();
        for pending in late {
            self.chains[id].pending.retain(|p| p.command != pending.command);
            let kind = StepErrorKind::TimedOut;
            self.step_failed(id, pending, StepError { pages_done: 0, kind });
        }
        self.advance(now, id);
    }

    /// A copy that timed out may still arrive: the bounce buffer, or the host's frames, that it
    /// writes are out of use. (Frames of cards go with the chain.)
    pub(crate) fn guard(&mut self, id: ChainId, pending: Pending, suspects: MemorySet) {
        if self.mutated.on(Mutation::ReuseAfterTimeout) {
            return;
        }
        if let Role::CopyOut(slot) = pending.role {
            self.chains[id].bounce = None;
            return self.put_in_quarantine(suspects, Held::Bounce(slot));
        }
        let chain = &self.chains[id];
        let Some(part) = chain.parts.get(pending.part as usize) else {
            return;
        };
        let into_host = part.transition.fill == Fill::Copy && part.transition.at.is_host();
        if !into_host {
            return;
        }
        let runs = self.copied(part);
        for run in runs.iter() {
            self.table.for_each_mut(run.pages(), |_, entry| entry.set(flag::HOST_UNSAFE, true));
            self.put_in_quarantine(suspects, Held::Host(run.pages()));
        }
    }
}
