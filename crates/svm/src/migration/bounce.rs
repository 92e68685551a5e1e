//! Copies through bounce buffers: out of the source, then into the destination.

use farside_types::Time;

use crate::Driver;
use crate::api::command::{Executor, Place, Runs, TransferOp};
use crate::api::event::{StepError, StepErrorKind};
use crate::migration::chain::{FailedStep, Hop, Pending, Role, cut_runs};
use crate::migration::chains::ChainId;
use crate::waiting::{Until, Work};

impl Driver {
    /// Cuts a part into pieces that fit a bounce buffer.
    pub(crate) fn plan_hops(&mut self, id: ChainId, part: u16, runs: Runs) {
        let most = self.config.capabilities.bounce_pages;
        let mut left = runs;
        while !left.is_empty() {
            let behind = cut_runs(&mut left, most);
            let hop = Hop { part, runs: left, inbound: false };
            self.chains[id].hops.push_back(hop);
            left = behind;
        }
    }

    /// A direct link between cards that fails a copy is not used again until somebody says that it works,
    /// and the copy goes through the host's memory. `false`: it cannot.
    pub(crate) fn go_around(&mut self, id: ChainId, pending: Pending, error: StepError) -> bool {
        let Executor::Link(from, to) = pending.executor else { return false };
        self.config.capabilities.set_link(from, to, false);
        let chain = &self.chains[id];
        // Nobody knows what one that does not answer still writes.
        let is_over = error.kind != StepErrorKind::TimedOut;
        let lives = !self.is_dead(from.memory()) && !self.is_dead(to.memory());
        if !is_over || !lives || chain.failure.is_some() {
            return false;
        }
        let runs = chain.parts[pending.part as usize].runs.clone();
        self.plan_hops(id, pending.part, runs);
        true
    }

    /// Issues the next copy through the bounce buffer; `false` if the chain has to wait for one.
    pub(crate) fn next_hop(&mut self, now: Time, id: ChainId) -> bool {
        let chain = &mut self.chains[id];
        let Some(hop) = chain.hops.front_mut() else {
            self.give_bounce_back(now, id);
            return true;
        };
        let Some(slot) = chain.bounce.or_else(|| self.bounce_free.pop()) else {
            return self.wait_for_bounce(id);
        };
        chain.bounce = Some(slot);
        let (part, runs, inbound) = (hop.part, hop.runs.clone(), hop.inbound);
        if inbound {
            chain.hops.pop_front();
        } else {
            hop.inbound = true;
        }
        let transition = chain.parts[part as usize].transition;
        let (out, back) = self.config.capabilities.hops(transition.from, transition.at);
        let bounce = Place::Bounce(slot);
        if inbound {
            let op = TransferOp::Copy { from: bounce, to: Place::Memory(transition.at), runs };
            self.transfer(id, part, Role::Copy, back, op);
        } else {
            let op = TransferOp::Copy { from: Place::Memory(transition.from), to: bounce, runs };
            self.transfer(id, part, Role::CopyOut(slot), out, op);
        }
        self.limit(now, id, self.config.limits.copy);
        true
    }

    /// Waits for a bounce buffer: gives `false`. If all of them are in quarantine it notes a failure.
    fn wait_for_bounce(&mut self, id: ChainId) -> bool {
        let in_use = self.chains.iter().any(|chain| chain.bounce.is_some());
        if in_use {
            self.park(Work::Chain(id), Until::BounceBuffer);
            return false;
        }
        let chain = &mut self.chains[id];
        let part = chain.hops.front().map_or(0, |hop| hop.part);
        let page = chain.parts[part as usize].first_page();
        chain.fail(part, FailedStep::Copy, page, StepErrorKind::TimedOut);
        true
    }

    pub(crate) fn give_bounce_back(&mut self, now: Time, id: ChainId) {
        let Some(slot) = self.chains[id].bounce.take() else {
            return;
        };
        self.bounce_free.push(slot);
        self.wake_bounce_waiter(now);
    }

    /// A bounce buffer is free: the first that waits goes on. One whose destination has gone rolls
    /// back and does not take it; then it is the next one's turn.
    pub(crate) fn wake_bounce_waiter(&mut self, now: Time) {
        while !self.bounce_free.is_empty() {
            let Some(next) = self.waiting.pop(Until::BounceBuffer) else { return };
            self.plan(now, next);
        }
    }

    /// There may be no bounce buffer in use any more that could become free: each of those who wait
    /// for one looks for itself.
    pub(crate) fn wake_bounce_waiters(&mut self, now: Time) {
        let waiting = self.waiting.queue(Until::BounceBuffer).count();
        for _ in 0..waiting {
            let Some(next) = self.waiting.pop(Until::BounceBuffer) else { return };
            self.plan(now, next);
        }
    }
}
