//! Carrying a chain through its stages: setup → copy → finalize → closing, and back again when a
//! step fails (driver rules 4 and 5).

use farside_types::{
    AgentId, AgentSet, CardId, CommandId, Epoch, MemoryId, MemorySet, PageNo, RequestId, Rights,
    Span, Time,
};

use crate::Driver;
use crate::api::capability::Transport;
use crate::api::command::{
    Executor, Header, HostOp, Mover, Order, Place, RingOp, Run, Runs, TransferOp, Wait,
};
use crate::api::event::{StepError, StepErrorKind};
use crate::driver::Due;
use crate::faults::open::{FaultKey, HostFault, Work};
use crate::migration::chain::{
    Chain, End, FailedStep, Failure, Fill, Hop, Part, Pending, Role, Stage, Transition, cut_runs,
    push_page,
};
use crate::migration::lost::{Held, cards_of};
use crate::migration::stop::nth_page;
use crate::mutation::Mutation;
use crate::tables::page::PageState;

/// Bits of a command's id that name its chain.
const CHAIN_BITS: u32 = 24;
/// The chain of commands that belong to none.
pub(crate) const LOOSE: u32 = (1 << CHAIN_BITS) - 1;

impl Driver {
    pub(crate) fn command_id(&mut self, chain: u32) -> CommandId {
        self.next_command += 1;
        CommandId(self.next_command << CHAIN_BITS | u64::from(chain))
    }

    /// Whether a chain can be started.
    pub(crate) fn has_idle_chain(&self) -> bool {
        !self.idle_chains.is_empty() || self.chains.len() < self.config.limits.chains
    }

    /// Takes the pages of `parts`, which no chain holds, and begins to move them. `faults` are
    /// answered when all of them have arrived.
    pub(crate) fn start_chain(
        &mut self,
        now: Time,
        parts: Vec<Part>,
        faults: Vec<FaultKey>,
        request: Option<RequestId>,
        host: Option<HostFault>,
    ) {
        if !self.has_idle_chain() {
            debug_assert!(request.is_none(), "a request looks for a chain before it starts one");
            return self.wait_for_chain(parts, faults, host);
        }
        let index = self.idle_chains.pop().unwrap_or_else(|| {
            self.chains.push(Chain::idle());
            self.chains.len() as u32 - 1
        });
        self.stats.chains += 1;
        for part in &parts {
            for run in part.runs.iter() {
                self.table.for_each_mut(run.pages(), |_, entry| {
                    entry.state = PageState::Moving;
                    entry.chain = index;
                });
            }
        }
        for part in parts.iter().filter(|part| part.transition.makes_room) {
            for card in part.transition.dropped().iter().filter_map(MemoryId::card) {
                self.cards[card.0 as usize].evicting += part.pages;
            }
        }
        let chain = &mut self.chains[index as usize];
        chain.stage = Stage::Setup;
        chain.parts = parts;
        chain.faults = faults;
        chain.request = request;
        chain.host = host;
        self.setup(now, index);
        self.advance(now, index);
    }

    /// No chain is free: whoever wanted one is planned again when one is. Moves of the driver's own
    /// are dropped; what made them comes again.
    fn wait_for_chain(&mut self, parts: Vec<Part>, faults: Vec<FaultKey>, host: Option<HostFault>) {
        for part in &parts {
            self.give_frames_back(&part.transition, &part.runs);
        }
        if let Some(host) = host {
            self.await_chain(Work::HostFault(host));
        }
        for key in faults {
            self.await_chain(Work::Fault(key));
        }
    }

    /// Plans `work` again when a chain has ended.
    pub(crate) fn await_chain(&mut self, work: Work) {
        if !self.chain_waiters.contains(&work) {
            self.chain_waiters.push_back(work);
        }
    }

    /// Frees frames that were taken for runs and are not used after all.
    pub(crate) fn give_frames_back(&mut self, transition: &Transition, runs: &[Run]) {
        let Some(card) = transition.needs_frames() else { return };
        for run in runs {
            self.cards[card.0 as usize].frames.release(run.dst, run.count);
        }
    }

    /// Issues a command of chain `index`.
    pub(crate) fn issue(&mut self, index: u32, part: u16, role: Role, wait: Wait, order: Order) {
        let id = self.command_id(index);
        let chain = &mut self.chains[index as usize];
        let (epoch, phase) = (Epoch(chain.epoch), role.phase());
        let reason = chain.parts[part as usize].transition.reason;
        let command = order.with(Header { id, epoch, wait, phase, reason });
        let (executor, awaited) = (command.executor(), wait == Wait::Awaited);
        chain.pending.push(Pending { command: id, executor, awaited, part, role });
        let on_card = executor != Executor::HostCpu;
        match wait {
            Wait::Awaited if on_card => self.stats.awaited_trips += 1,
            Wait::Posted if on_card => self.stats.posted_commands += 1,
            _ => {}
        }
        self.commands.push_back(command);
    }

    /// Gives the chain's present stage a time limit, if others than the host's own processors are
    /// waited for.
    fn limit(&mut self, now: Time, index: u32, span: Span) {
        let chain = &mut self.chains[index as usize];
        let remote = |pending: &Pending| pending.awaited && pending.executor != Executor::HostCpu;
        if chain.pending.iter().any(remote) {
            chain.deadline = Some(now + span);
            self.arm_chain(now, index);
        }
    }

    /// Sees to it that the slot's timer is due no later than its deadline. It is never set further
    /// ahead than the shorter time limit, so that no later deadline can come before it: one timer
    /// per slot is enough.
    fn arm_chain(&mut self, now: Time, index: u32) {
        let step = self.config.limits.drain.min(self.config.limits.copy);
        let chain = &mut self.chains[index as usize];
        if let (Some(deadline), None) = (chain.deadline, chain.armed) {
            let at = deadline.min(now + step);
            chain.armed = Some(at);
            self.set_timer(at, Due::Chain { index });
        }
    }

    /// A slot's timer is due: the chain that has the slot now may have time left.
    pub(crate) fn chain_timer(&mut self, now: Time, at: Time, index: u32) {
        let chain = &mut self.chains[index as usize];
        if chain.armed == Some(at) {
            chain.armed = None;
        }
        self.chain_due(now, index);
        self.arm_chain(now, index);
    }

    /// Setup: stop everybody who could write, or who would be left with an old translation.
    fn setup(&mut self, now: Time, index: u32) {
        for part in 0..self.chains[index as usize].parts.len() {
            let Part { transition, runs, .. } = &self.chains[index as usize].parts[part];
            let (transition, runs, part) = (*transition, runs.clone(), part as u16);
            for agent in transition.stop.iter() {
                let runs = runs.clone();
                match agent.card() {
                    None => self.stop_host(index, part, HostOp::Unmap { runs }),
                    Some(card) => self.stop_card(index, part, card, RingOp::Unmap { runs }),
                }
            }
            for agent in transition.demote.iter() {
                let (runs, rights) = (runs.clone(), Rights::Read);
                match agent.card() {
                    None => self.stop_host(index, part, HostOp::Protect { runs, rights }),
                    Some(card) => {
                        self.stop_card(index, part, card, RingOp::Protect { runs, rights })
                    }
                }
            }
        }
        self.limit(now, index, self.config.limits.drain);
    }

    fn stop_host(&mut self, index: u32, part: u16, op: HostOp) {
        let early = self.mutated.on(Mutation::CopyBeforeUnmap);
        let wait = if early { Wait::Posted } else { Wait::Awaited };
        self.issue(index, part, Role::Stop(AgentId::CPU), wait, Order::Host(op));
    }

    /// An idle card takes it posted: ring order puts it before any later launch.
    fn stop_card(&mut self, index: u32, part: u16, card: CardId, op: RingOp) {
        if self.is_dead(card.memory()) {
            return;
        }
        let running = self.cards[card.0 as usize].running > 0;
        let awaited = running && !self.mutated.on(Mutation::SkipDrain);
        let wait = if awaited { Wait::Awaited } else { Wait::Posted };
        self.issue(index, part, Role::Stop(card.agent()), wait, Order::Ring(card, op));
    }

    /// A command was answered.
    pub(crate) fn done(
        &mut self,
        now: Time,
        command: CommandId,
        epoch: Epoch,
        result: Result<(), StepError>,
    ) {
        let index = (command.0 & u64::from(LOOSE)) as u32;
        if index == LOOSE {
            return self.loose_done(command, result);
        }
        let trusting = self.mutated.on(Mutation::TrustLateCompletions);
        let known = self.chains.get(index as usize).and_then(|chain| {
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
        let chain = &mut self.chains[index as usize];
        let pending = chain.pending.swap_remove(at);
        match result {
            Err(error) => self.step_failed(index, pending, error),
            Ok(()) if pending.role == Role::CardMap => self.map_came(pending, true),
            Ok(()) => {}
        }
        self.advance(now, index);
    }

    pub(crate) fn step_failed(&mut self, index: u32, pending: Pending, error: StepError) {
        if self.mutated.on(Mutation::IgnoreCopyFailure) {
            return;
        }
        let step = match pending.role {
            Role::Stop(agent) => return self.stop_failed(index, pending, agent, error),
            Role::Answer => return self.chain_answer_failed(index, pending, error.kind),
            Role::CardMap => return self.map_came(pending, false),
            Role::Copy | Role::CopyOut(_) => FailedStep::Copy,
            Role::Release => FailedStep::Release,
            Role::HostMap => FailedStep::Map,
        };
        let chain = &mut self.chains[index as usize];
        if error.kind == StepErrorKind::TimedOut {
            let suspects = cards_of(pending.executor);
            chain.suspects = chain.suspects.union(suspects);
            self.suspect(index, pending.part, suspects);
            self.guard(index, pending, suspects);
        }
        let chain = &mut self.chains[index as usize];
        let part = &chain.parts[pending.part as usize];
        let page = nth_page(&part.runs, error.pages_done).unwrap_or(part.first_page());
        chain.fail(pending.part, step, page, error.kind);
    }

    /// A card has inserted translations for a chain, or failed to.
    fn map_came(&mut self, pending: Pending, well: bool) {
        if let Executor::Card(card) = pending.executor {
            self.map_answered(card, well);
        }
    }

    /// A card did not take the answer to its faults.
    fn chain_answer_failed(&mut self, index: u32, pending: Pending, kind: StepErrorKind) {
        let faults = self.chains[index as usize].answer.take();
        if let (Executor::Card(card), Some(faults)) = (pending.executor, faults) {
            self.answer_failed(card, faults, kind);
        }
    }

    /// Goes on as far as nothing is waited for.
    pub(crate) fn advance(&mut self, now: Time, index: u32) {
        loop {
            let chain = &self.chains[index as usize];
            if chain.waits() {
                return;
            }
            match chain.stage {
                Stage::Idle => return,
                Stage::Setup | Stage::Copy if chain.failure.is_some() => {
                    self.roll_back(now, index);
                }
                Stage::Setup => {
                    self.chains[index as usize].stage = Stage::Copy;
                    if !self.destination_lives(index) {
                        continue;
                    }
                    self.copy(now, index);
                    if self.mutated.on(Mutation::MapBeforeCopy) {
                        self.chains[index as usize]
                            .pending
                            .iter_mut()
                            .for_each(|p| p.awaited = false);
                    }
                }
                Stage::Copy => {
                    let hops = !self.chains[index as usize].hops.is_empty();
                    if hops && !self.destination_lives(index) {
                        continue;
                    }
                    if !self.next_hop(now, index) {
                        return;
                    }
                    let chain = &self.chains[index as usize];
                    if chain.waits() || chain.failure.is_some() || !self.destination_lives(index) {
                        continue;
                    }
                    self.chains[index as usize].stage = Stage::Finalize;
                    self.map(index);
                }
                Stage::Finalize => self.settle(now, index),
                Stage::Closing => {
                    if !self.chains[index as usize].pending.is_empty() {
                        return;
                    }
                    self.retire(index);
                    return;
                }
            }
        }
    }

    /// Notes a failure if the chain's destination has gone meanwhile.
    fn destination_lives(&mut self, index: u32) -> bool {
        let dead = self.dead;
        let chain = &mut self.chains[index as usize];
        let lost = chain.parts.iter().find(|part| {
            let Transition { fill, from, at, map, .. } = part.transition;
            let target =
                map.is_some_and(|(agent, _)| dead.contains(agent.home()) || dead.contains(at));
            target
                || (fill != Fill::Nothing && dead.contains(at))
                || (fill == Fill::Copy && dead.contains(from))
        });
        let Some(part) = lost else { return true };
        let Transition { from, at, .. } = part.transition;
        let (step, kind, page) = (FailedStep::Copy, StepErrorKind::CardGone, part.first_page());
        chain.failure = Some(Failure { step, kind, page, from, to: at });
        false
    }

    /// Copy: every part that needs bytes gets them.
    fn copy(&mut self, now: Time, index: u32) {
        for part in 0..self.chains[index as usize].parts.len() {
            let Part { transition, runs, pages, .. } = &self.chains[index as usize].parts[part];
            let (transition, runs, pages, part) = (*transition, runs.clone(), *pages, part as u16);
            let (from, to) = (Place::Memory(transition.from), Place::Memory(transition.at));
            match transition.fill {
                Fill::Nothing => self.release_host(index, part, &transition, runs),
                Fill::Zero if self.mutated.on(Mutation::SkipZeroFill) => {}
                Fill::Zero => {
                    let by = self.config.capabilities.filler(transition.at);
                    let op = TransferOp::Fill { memory: transition.at, runs };
                    self.transfer(index, part, Role::Copy, by, op);
                }
                Fill::Copy => {
                    match self.config.capabilities.transport(transition.from, transition.at, pages)
                    {
                        Transport::Direct(by) => {
                            let op = TransferOp::Copy { from, to, runs };
                            self.transfer(index, part, Role::Copy, by, op);
                        }
                        Transport::Bounce(..) => self.plan_hops(index, part, runs),
                    }
                }
            }
        }
        self.limit(now, index, self.config.limits.copy);
    }

    /// Parts that end with the host's frame given back do it in place of a copy.
    fn release_host(&mut self, index: u32, part: u16, transition: &Transition, runs: Runs) {
        if transition.end != End::Settle {
            let order = Order::Host(HostOp::Release { runs });
            self.issue(index, part, Role::Release, Wait::Awaited, order);
        }
    }

    fn transfer(&mut self, index: u32, part: u16, role: Role, by: Mover, op: TransferOp) {
        self.issue(index, part, role, Wait::Awaited, Order::Transfer(by, op));
    }

    /// Cuts a part into pieces that fit a bounce buffer.
    fn plan_hops(&mut self, index: u32, part: u16, runs: Runs) {
        let most = self.config.capabilities.bounce_pages;
        let mut left = runs.to_vec();
        while !left.is_empty() {
            let behind = cut_runs(&mut left, most);
            let hop = Hop { part, runs: left.into(), inbound: false };
            self.chains[index as usize].hops.push_back(hop);
            left = behind;
        }
    }

    /// Issues the next copy through the bounce buffer; `false` if the chain has to wait for one.
    fn next_hop(&mut self, now: Time, index: u32) -> bool {
        let chain = &mut self.chains[index as usize];
        let Some(hop) = chain.hops.front_mut() else {
            self.give_bounce_back(now, index);
            return true;
        };
        let Some(slot) = chain.bounce.or_else(|| self.bounce_free.pop()) else {
            return self.wait_for_bounce(index);
        };
        chain.bounce = Some(slot);
        let (part, runs, inbound) = (hop.part, hop.runs.clone(), hop.inbound);
        if inbound {
            chain.hops.pop_front();
        } else {
            hop.inbound = true;
        }
        let Part { transition, pages, .. } = &chain.parts[part as usize];
        let (transition, pages) = (*transition, *pages);
        let Transport::Bounce(out, back) =
            self.config.capabilities.transport(transition.from, transition.at, pages)
        else {
            return true;
        };
        let bounce = Place::Bounce(slot);
        if inbound {
            let op = TransferOp::Copy { from: bounce, to: Place::Memory(transition.at), runs };
            self.transfer(index, part, Role::Copy, back, op);
        } else {
            let op = TransferOp::Copy { from: Place::Memory(transition.from), to: bounce, runs };
            self.transfer(index, part, Role::CopyOut(slot), out, op);
        }
        self.limit(now, index, self.config.limits.copy);
        true
    }

    /// Waits for a bounce buffer: gives `false`. If all of them are in quarantine it notes a failure.
    fn wait_for_bounce(&mut self, index: u32) -> bool {
        let in_use = self.chains.iter().any(|chain| chain.bounce.is_some());
        if in_use {
            if !self.bounce_waiters.contains(&index) {
                self.bounce_waiters.push_back(index);
            }
            return false;
        }
        let chain = &mut self.chains[index as usize];
        let part = chain.hops.front().map_or(0, |hop| hop.part);
        let part = &chain.parts[part as usize];
        let Transition { from, at, .. } = part.transition;
        let (step, kind, page) = (FailedStep::Copy, StepErrorKind::TimedOut, part.first_page());
        chain.failure = Some(Failure { step, kind, page, from, to: at });
        true
    }

    pub(crate) fn give_bounce_back(&mut self, now: Time, index: u32) {
        let Some(slot) = self.chains[index as usize].bounce.take() else {
            return;
        };
        self.bounce_free.push(slot);
        self.wake_bounce_waiter(now);
    }

    /// A bounce buffer is free: the first that waits goes on. One whose destination has gone rolls
    /// back and does not take it; then it is the next one's turn.
    pub(crate) fn wake_bounce_waiter(&mut self, now: Time) {
        while !self.bounce_free.is_empty() {
            let Some(next) = self.bounce_waiters.pop_front() else { return };
            self.advance(now, next);
        }
    }

    /// Finalize: the new mapping.
    pub(crate) fn map(&mut self, index: u32) {
        for part in 0..self.chains[index as usize].parts.len() {
            let Part { transition, runs, .. } = &self.chains[index as usize].parts[part];
            let Some((agent, rights)) = transition.map else {
                continue;
            };
            let (transition, runs, part) = (*transition, runs.clone(), part as u16);
            match agent.card() {
                Some(card) => {
                    let op = RingOp::Map { runs, memory: transition.at, rights };
                    self.issue(index, part, Role::CardMap, Wait::Posted, Order::Ring(card, op));
                }
                None => self.map_host(index, part, &transition, rights, runs),
            }
        }
    }

    /// Maps pages for the CPU; those that it has mapped with other rights get new ones.
    fn map_host(
        &mut self,
        index: u32,
        part: u16,
        transition: &Transition,
        rights: Rights,
        runs: Runs,
    ) {
        self.chains[index as usize].host_faults = self.stats.host_faults;
        let writes = rights == Rights::ReadWrite;
        let stays = !transition.stop.contains(AgentId::CPU);
        let held = |page: PageNo| {
            let directory = self.table.get(page).directory;
            let cpu = |set: AgentSet| set.contains(AgentId::CPU);
            stays && cpu(directory.mappers()) && cpu(directory.writers()) != writes
        };
        let pages = || runs.iter().flat_map(|run| run.pages().pages());
        let any_held = pages().any(held);
        let (mut to_map, mut to_protect) = (Vec::new(), Vec::new());
        if any_held {
            for run in runs.iter() {
                for (i, page) in run.pages().pages().enumerate() {
                    let list = if held(page) { &mut to_protect } else { &mut to_map };
                    push_page(list, page, run.src.offset(i as u32), run.dst.offset(i as u32));
                }
            }
        }
        if !to_protect.is_empty() {
            let order = Order::Host(HostOp::Protect { runs: to_protect.into(), rights });
            self.issue(index, part, Role::HostMap, Wait::Awaited, order);
        }
        if !any_held || !to_map.is_empty() {
            let runs = if any_held { to_map.into() } else { runs };
            let order = Order::Host(HostOp::Map { runs, rights });
            self.issue(index, part, Role::HostMap, Wait::Awaited, order);
        }
    }

    /// The chain lets its pages go; those who waited for them are planned.
    pub(crate) fn leave_pages(&mut self, index: u32) {
        let chain = &mut self.chains[index as usize];
        chain.stage = Stage::Closing;
        chain.deadline = None;
        let waiters = std::mem::take(&mut chain.waiters);
        self.work.extend(waiters);
    }

    /// Every command has been answered: what was left is free, or quarantined.
    fn retire(&mut self, index: u32) {
        let chain = &mut self.chains[index as usize];
        let release = std::mem::take(&mut chain.release);
        let careless = self.mutated.on(Mutation::ReuseAfterTimeout);
        let suspects = if careless { MemorySet::EMPTY } else { chain.suspects };
        let evicted = chain.parts.iter().filter(|p| p.transition.makes_room);
        let evictions: Vec<(CardId, u32)> = evicted
            .flat_map(|p| {
                let pages = p.pages;
                p.transition.dropped().iter().filter_map(move |m| Some((m.card()?, pages)))
            })
            .collect();
        let (epoch, pending, waiters) = (
            chain.epoch.wrapping_add(1),
            std::mem::take(&mut chain.pending),
            std::mem::take(&mut chain.waiters),
        );
        *chain = Chain { epoch, pending, armed: chain.armed, ..Chain::idle() };
        self.idle_chains.push(index);
        self.work.extend(waiters);
        for (card, frame, count) in release {
            if suspects.is_empty() {
                self.cards[card.0 as usize].frames.release(frame, count);
            } else {
                self.put_in_quarantine(suspects, Held::Frames(card, frame, count));
            }
        }
        for (card, pages) in evictions {
            let state = &mut self.cards[card.0 as usize];
            state.evicting = state.evicting.saturating_sub(pages);
        }
        self.wake_waiting();
        self.finish_resets();
    }

    /// A chain has ended: those who wait for frames or for a chain are planned again, in order.
    pub(crate) fn wake_waiting(&mut self) {
        for card in &mut self.cards {
            self.work.extend(card.waiting.drain(..));
        }
        self.work.extend(self.chain_waiters.drain(..));
    }
}
