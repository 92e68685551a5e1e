//! A chain's stages: setup → copy → finalize → closing, and back when a step fails (driver rules 4 and
//! 5).

use farside_types::{
    AgentId, AgentSet, CardId, CommandId, Epoch, MemoryId, MemorySet, PageNo, Rights, Time,
};

use crate::Driver;
use crate::api::capability::Transport;
use crate::api::command::{
    Command, Executor, Header, HostOp, Mover, Order, Place, RingOp, Runs, TransferOp, Wait,
};
use crate::api::event::StepErrorKind;
use crate::migration::chain::{FailedStep, Left, Part, Pending, Role, Stage, push_page};
use crate::migration::chains::ChainId;
use crate::migration::lost::Held;
use crate::migration::transition::{End, Fill, Transition};
use crate::mutation::Mutation;
use crate::waiting::Until;

impl Driver {
    /// The next command's id, for a command of chain `id`.
    pub(crate) fn command_id(&mut self, id: ChainId) -> CommandId {
        self.next_command += 1;
        id.command(self.next_command)
    }

    /// Issues a command of chain `id`.
    pub(crate) fn issue(&mut self, id: ChainId, part: u16, role: Role, wait: Wait, order: Order) {
        let command = self.command_id(id);
        let chain = &mut self.chains[id];
        let (epoch, phase) = (Epoch(chain.epoch), role.phase());
        let reason = chain.parts[part as usize].transition.reason;
        let order = order.with(Header { id: command, epoch, wait, phase, reason });
        let (executor, awaited) = (order.executor(), wait == Wait::Awaited);
        let posts = match &order {
            Command::Transfer(by, step) => self.config.capabilities.posts(*by, &step.op),
            Command::Host(_) | Command::Ring(..) => false,
        };
        chain.pending.push(Pending { command, executor, awaited, part, role });
        let on_card = executor != Executor::HostCpu;
        match wait {
            Wait::Awaited if on_card && !posts => self.stats.awaited_trips += 1,
            Wait::Awaited | Wait::Posted if on_card => self.stats.posted_commands += 1,
            _ => {}
        }
        self.commands.push_back(order);
    }

    /// Setup: stop everybody who could write, or who would be left with an old translation.
    pub(crate) fn setup(&mut self, now: Time, id: ChainId) {
        for part in 0..self.chains[id].parts.len() {
            let Part { transition, runs, .. } = &self.chains[id].parts[part];
            let (transition, runs, part) = (*transition, runs.clone(), part as u16);
            for agent in transition.stop.iter() {
                let runs = runs.clone();
                match agent.card() {
                    None => self.stop_host(id, part, HostOp::Unmap { runs }),
                    Some(card) => {
                        let tells = transition.reclaims && agent == transition.from.agent();
                        let op = RingOp::Unmap { runs, tells };
                        self.stop_card(id, part, card, op, transition.leaves_behind(agent));
                    }
                }
            }
            for agent in transition.demote.iter() {
                let (runs, rights) = (runs.clone(), Rights::Read);
                match agent.card() {
                    None => self.stop_host(id, part, HostOp::Protect { runs, rights }),
                    Some(card) => {
                        self.stop_card(id, part, card, RingOp::Protect { runs, rights }, false);
                    }
                }
            }
        }
        self.limit(now, id, self.config.limits.drain);
    }

    fn stop_host(&mut self, id: ChainId, part: u16, op: HostOp) {
        let early = self.mutated.on(Mutation::CopyBeforeUnmap);
        let wait = if early { Wait::Posted } else { Wait::Awaited };
        self.issue(id, part, Role::Stop(AgentId::CPU), wait, Order::Host(op));
    }

    /// An idle card takes it posted: ring order puts it before any later launch. Not so where the frames
    /// that the card had mapped stay in use (`leaves_behind`): whoever frees them next finds the card in no
    /// page's directory, and does not wait for it.
    fn stop_card(&mut self, id: ChainId, part: u16, card: CardId, op: RingOp, leaves_behind: bool) {
        if self.is_dead(card.memory()) {
            return;
        }
        let running = self.cards[card.0 as usize].running > 0;
        let awaited = (running || leaves_behind) && !self.mutated.on(Mutation::SkipDrain);
        let wait = if awaited { Wait::Awaited } else { Wait::Posted };
        self.issue(id, part, Role::Stop(card.agent()), wait, Order::Ring(card, op));
    }

    /// Goes on as far as nothing is waited for.
    pub(crate) fn advance(&mut self, now: Time, id: ChainId) {
        loop {
            if self.chains[id].waits() || self.waits_for_leader(id) {
                return;
            }
            let chain = &self.chains[id];
            match chain.stage {
                Stage::Idle => return,
                Stage::Setup | Stage::Copy if chain.failure.is_some() => {
                    self.roll_back(now, id);
                }
                Stage::Setup => {
                    self.chains[id].stage = Stage::Copy;
                    if !self.destination_lives(id) {
                        continue;
                    }
                    self.copy(now, id);
                    if self.mutated.on(Mutation::MapBeforeCopy) {
                        self.chains[id].pending.iter_mut().for_each(|p| p.awaited = false);
                    }
                }
                Stage::Copy => {
                    let hops = !self.chains[id].hops.is_empty();
                    if hops && !self.destination_lives(id) {
                        continue;
                    }
                    if !self.next_hop(now, id) {
                        return;
                    }
                    let chain = &self.chains[id];
                    if chain.waits() || chain.failure.is_some() || !self.destination_lives(id) {
                        continue;
                    }
                    self.chains[id].stage = Stage::Finalize;
                    self.map(id);
                }
                Stage::Finalize => self.settle(now, id),
                Stage::Closing => {
                    if !self.chains[id].pending.is_empty() {
                        return;
                    }
                    self.retire(id);
                    return;
                }
            }
        }
    }

    /// Notes a failure if the chain's destination has gone meanwhile.
    fn destination_lives(&mut self, id: ChainId) -> bool {
        let dead = self.dead;
        let chain = &mut self.chains[id];
        let is_lost = |part: &Part| {
            let Transition { fill, from, at, map, .. } = part.transition;
            let target =
                map.is_some_and(|(agent, _)| dead.contains(agent.home()) || dead.contains(at));
            target
                || (fill != Fill::Nothing && dead.contains(at))
                || (fill == Fill::Copy && dead.contains(from))
        };
        let Some(part) = chain.parts.iter().position(is_lost) else { return true };
        let page = chain.parts[part].first_page();
        chain.fail(part as u16, FailedStep::Copy, page, StepErrorKind::CardGone);
        false
    }

    /// Copy: every part that needs bytes gets them.
    fn copy(&mut self, now: Time, id: ChainId) {
        for part in 0..self.chains[id].parts.len() {
            let Part { transition, runs, pages, .. } = &self.chains[id].parts[part];
            let (transition, runs, pages, part) = (*transition, runs.clone(), *pages, part as u16);
            let (from, to) = (Place::Memory(transition.from), Place::Memory(transition.at));
            match transition.fill {
                Fill::Nothing => self.release_host(id, part, &transition, runs),
                Fill::Zero if self.mutated.on(Mutation::SkipZeroFill) => {}
                Fill::Zero => {
                    let by = self.config.capabilities.filler(transition.at);
                    let op = TransferOp::Fill { memory: transition.at, runs };
                    self.transfer(id, part, Role::Copy, by, op);
                }
                Fill::Copy => {
                    let runs = if transition.reclaims { self.written(&runs) } else { runs };
                    if runs.is_empty() {
                        continue;
                    }
                    match self.config.capabilities.transport(transition.from, transition.at, pages)
                    {
                        Transport::Direct(by) => {
                            let op = TransferOp::Copy { from, to, runs };
                            self.transfer(id, part, Role::Copy, by, op);
                        }
                        Transport::Bounce(..) => self.plan_hops(id, part, runs),
                    }
                }
            }
        }
        self.limit(now, id, self.config.limits.copy);
    }

    /// Parts that end with the host's frame given back do it in place of a copy.
    fn release_host(&mut self, id: ChainId, part: u16, transition: &Transition, runs: Runs) {
        if transition.end != End::Settle {
            let order = Order::Host(HostOp::Release { runs });
            self.issue(id, part, Role::Release, Wait::Awaited, order);
        }
    }

    pub(crate) fn transfer(
        &mut self,
        id: ChainId,
        part: u16,
        role: Role,
        by: Mover,
        op: TransferOp,
    ) {
        self.issue(id, part, role, Wait::Awaited, Order::Transfer(by, op));
    }

    /// Finalize: the new mapping.
    pub(crate) fn map(&mut self, id: ChainId) {
        for part in 0..self.chains[id].parts.len() {
            let Part { transition, runs, .. } = &self.chains[id].parts[part];
            let Some((agent, rights)) = transition.map else {
                continue;
            };
            let (transition, runs, part) = (*transition, runs.clone(), part as u16);
            match agent.card() {
                Some(card) => {
                    let op = RingOp::Map { runs, memory: transition.at, rights };
                    self.issue(id, part, Role::CardMap, Wait::Posted, Order::Ring(card, op));
                }
                None => self.map_host(id, part, &transition, rights, runs),
            }
        }
    }

    /// Maps pages for the CPU; those that it has mapped with other rights get new ones.
    fn map_host(
        &mut self,
        id: ChainId,
        part: u16,
        transition: &Transition,
        rights: Rights,
        runs: Runs,
    ) {
        self.chains[id].host_faults = self.stats.host_faults;
        let writes = rights == Rights::ReadWrite;
        let stays = !transition.stop.contains(AgentId::CPU);
        let held = |page: PageNo| {
            let directory = self.table.get(page).directory;
            let cpu = |set: AgentSet| set.contains(AgentId::CPU);
            stays && cpu(directory.mappers()) && cpu(directory.writers()) != writes
        };
        let pages = || runs.iter().flat_map(|run| run.pages().pages());
        let any_held = pages().any(held);
        let (mut to_map, mut to_protect) = (Runs::new(), Runs::new());
        if any_held {
            for run in runs.iter() {
                for (i, page) in run.pages().pages().enumerate() {
                    let list = if held(page) { &mut to_protect } else { &mut to_map };
                    push_page(list, page, run.src.offset(i as u32), run.dst.offset(i as u32));
                }
            }
        }
        if !to_protect.is_empty() {
            let order = Order::Host(HostOp::Protect { runs: to_protect, rights });
            self.issue(id, part, Role::HostMap, Wait::Awaited, order);
        }
        if !any_held || !to_map.is_empty() {
            let runs = if any_held { to_map } else { runs };
            let order = Order::Host(HostOp::Map { runs, rights });
            self.issue(id, part, Role::HostMap, Wait::Awaited, order);
        }
    }

    /// The chain lets its pages go; those who waited for them are planned.
    pub(crate) fn leave_pages(&mut self, id: ChainId) {
        let chain = &mut self.chains[id];
        debug_assert!(chain.purpose.faults.is_empty(), "{id} leaves faults without an answer");
        if let Some(brought) = chain.brings.take() {
            self.prices.end(self.now, brought);
        }
        chain.stage = Stage::Closing;
        chain.deadline = None;
        debug_assert!(!self.holds_a_page(id), "{id} leaves its pages, and holds one");
        self.wake(Until::PagesFree(id));
    }

    /// Whether the table says of a page of the chain that the chain holds it.
    fn holds_a_page(&self, id: ChainId) -> bool {
        let runs = self.chains[id].parts.iter().flat_map(|part| part.runs.iter());
        runs.flat_map(|run| run.pages().pages()).any(|page| self.table.get(page).chain == id)
    }

    /// Every command has been answered: what was left is free, or quarantined.
    fn retire(&mut self, id: ChainId) {
        debug_assert!(self.waiting.is_empty(Until::PagesFree(id)), "{id} ends, and is waited for");
        let chain = &mut self.chains[id];
        debug_assert!(chain.pending.is_empty(), "{id} ends, and waits for answers");
        debug_assert!(chain.bounce.is_none() && chain.hops.is_empty(), "{id} ends amid a copy");
        let release = std::mem::take(&mut chain.release);
        let careless = self.mutated.on(Mutation::ReuseAfterTimeout);
        let suspects = if careless { MemorySet::EMPTY } else { chain.suspects };
        for part in chain.parts.iter().filter(|part| part.transition.makes_room) {
            for card in part.transition.dropped().iter().filter_map(MemoryId::card) {
                let state = &mut self.cards[card.0 as usize];
                state.evicting = state.evicting.saturating_sub(part.pages);
            }
        }
        chain.end();
        self.chains.give_back(id);
        for &Left { card, frame, count } in &release {
            if suspects.is_empty() {
                self.cards[card.0 as usize].frames.release(frame, count);
            } else {
                self.put_in_quarantine(suspects, Held::Frames(card, frame, count));
            }
        }
        self.wake_for_room();
        self.finish_resets();
    }
}
