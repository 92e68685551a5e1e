//! The planner: what has to happen so that an agent can reach a page.
//!
//! It looks at one page's entry and a decision and gives the page's [`Transition`]. Pages with
//! one transition travel together; a request over several source memories thus splits by itself.

use farside_types::{
    Access, AgentId, AgentSet, CancelReason, FrameNo, MemoryId, MemorySet, PageNo, PageRange,
    Reason, Rights, Time,
};

use crate::Driver;
use crate::chain::{End, Fill, Label, Transition};
use crate::mutation::Mutation;
use crate::page::{PageEntry, PageState, flag};
use crate::placement::{Action, Decision, FaultView, Scope};
use crate::query::ObjectId;

/// How far a decision reaches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) scope: Scope,
    /// Also over pages that running cards lose by it.
    pub(crate) firm: bool,
}

/// What a look at a page gives.
pub(crate) enum Resolve {
    /// The agent has it mapped with enough rights.
    Resident,
    /// This has to happen.
    Transition(Transition, Reach),
    /// Nothing can be done.
    Cancel(CancelReason),
    /// Agents fight over it: ask again then.
    Later(Time),
}

/// The memory that `agent` reaches the page through, if it maps it.
pub(crate) fn location(agent: AgentId, copies: MemorySet, owner: MemoryId) -> MemoryId {
    if copies.contains(agent.home()) { agent.home() } else { owner }
}

/// Those of `mappers` that reach the page elsewhere afterwards, and so must lose their mapping.
pub(crate) fn displaced(
    mappers: AgentSet,
    entry: &PageEntry,
    after: MemorySet,
    owner: MemoryId,
) -> AgentSet {
    let before = entry.directory.copies();
    mappers
        .iter()
        .filter(|&agent| location(agent, before, entry.owner()) != location(agent, after, owner))
        .collect()
}

impl Driver {
    /// What `agent` needs for `access` to `page`, which no chain holds. `again`: the scheme was
    /// asked for this fault before.
    pub(crate) fn resolve(
        &mut self,
        now: Time,
        page: PageNo,
        agent: AgentId,
        access: Access,
        again: bool,
    ) -> Resolve {
        let entry = *self.table.get(page);
        if let Some(reason) = self.refusal(&entry, agent, access) {
            return Resolve::Cancel(reason);
        }
        let directory = entry.directory;
        let held = if access.is_write() { directory.writers() } else { directory.mappers() };
        // One that has not let go may be in the directory of a page that it cannot reach.
        let at = location(agent, directory.copies(), entry.owner());
        if held.contains(agent) && self.reaches(agent, at) {
            return Resolve::Resident;
        }
        if self.is_pinned_away(page, &entry, agent, access) {
            return Resolve::Cancel(CancelReason::PinnedElsewhere);
        }
        let decision = match self.settle_fight(now, page, &entry, agent, access) {
            Ok(Some(decision)) => decision,
            Ok(None) => self.decide(now, page, &entry, agent, access, again),
            Err(later) => return Resolve::Later(later),
        };
        match self.transition(&entry, agent, access, decision.action, decision.reason) {
            Ok(transition) => Resolve::Transition(
                transition,
                Reach { scope: decision.scope, firm: decision.firm },
            ),
            Err(reason) => Resolve::Cancel(reason),
        }
    }

    /// Why `agent` may not have the page at all.
    pub(crate) fn refusal(
        &self,
        entry: &PageEntry,
        agent: AgentId,
        access: Access,
    ) -> Option<CancelReason> {
        match entry.state {
            PageState::Unallocated => return Some(CancelReason::Unallocated),
            PageState::Tombstone => return Some(CancelReason::Freed),
            PageState::Lost if !self.mutated.on(Mutation::LostReadsAsZero) => {
                return Some(CancelReason::Lost);
            }
            _ => {}
        }
        if entry.has(flag::DOOMED) {
            return Some(CancelReason::Freed);
        }
        if entry.has(flag::READ_ONLY) && access.is_write() && !agent.is_cpu() {
            return Some(CancelReason::ReadOnly);
        }
        None
    }

    /// Whether the page is pinned to the host and this agent cannot map it there. A device of the
    /// program's may write it by itself at any time, so it does not move.
    fn is_pinned_away(
        &self,
        page: PageNo,
        entry: &PageEntry,
        agent: AgentId,
        access: Access,
    ) -> bool {
        let has_copy = entry.directory.copies().contains(agent.home()) && !access.is_write();
        entry.has(flag::PINNED)
            && !has_copy
            && !self.reaches(agent, MemoryId::HOST)
            && self.pins.iter().any(|pin| pin.at.is_host() && pin.range.contains(page))
    }

    /// Pins and advice come first, then the scheme.
    #[allow(clippy::too_many_arguments)]
    fn decide(
        &mut self,
        now: Time,
        page: PageNo,
        entry: &PageEntry,
        agent: AgentId,
        access: Access,
        again: bool,
    ) -> Decision {
        let copies = entry.directory.copies();
        if entry.has(flag::PINNED) && !copies.contains(agent.home()) {
            let pin = self.pins.iter().rev().find(|pin| pin.range.contains(page));
            let back = pin.is_some_and(|pin| pin.at == agent.home());
            let action = if back { Action::Migrate } else { Action::MapRemote };
            return Decision::page(action, Reason::Demand);
        }
        if entry.has(flag::READ_MOSTLY) {
            return Decision::page(Action::Duplicate, Reason::Demand);
        }
        if entry.has(flag::HINTED) {
            if let Some(action) = self.hinted_action(page, agent, entry) {
                return Decision::page(action, Reason::Demand);
            }
        }
        let fresh = copies.is_empty();
        let object = self.space.holding(page);
        let view = FaultView {
            now,
            page,
            object: object.map_or(ObjectId::default(), |object| object.id),
            object_pages: object.map_or(PageRange::page(page), |object| object.range),
            agent,
            access,
            owner: if fresh { None } else { Some(entry.owner()) },
            copies,
            mappers: entry.directory.mappers(),
            room: agent.card().map_or(u32::MAX, |card| self.room(card)),
            protection: entry.directory.mappers().contains(agent),
            again,
        };
        self.placement.on_fault(&view)
    }

    /// A preferred location keeps the page; agents that reach it map it there.
    fn hinted_action(&self, page: PageNo, agent: AgentId, entry: &PageEntry) -> Option<Action> {
        let preferred = self.space.holding(page)?.hint(page)?.preferred?;
        let fresh = entry.directory.copies().is_empty();
        let there = preferred == entry.owner() && !fresh;
        if there && preferred != agent.home() && self.config.capabilities.can_map(agent, preferred)
        {
            return Some(Action::MapRemote);
        }
        (preferred == agent.home()).then_some(Action::Migrate)
    }

    /// The transition that gives `agent` the page by `action`.
    pub(crate) fn transition(
        &self,
        entry: &PageEntry,
        agent: AgentId,
        access: Access,
        action: Action,
        reason: Reason,
    ) -> Result<Transition, CancelReason> {
        let home = agent.home();
        let copies = entry.directory.copies();
        let mut transition = Transition::unchanged(copies, entry.owner(), reason);
        let exclusive = access.is_write() || self.takes_alone(agent, action);
        if copies.is_empty() {
            self.plan_fresh(&mut transition, home);
        } else if copies.contains(home) {
            self.plan_at_home(&mut transition, home, exclusive, action);
        } else if action == Action::MapRemote && self.reaches(agent, entry.owner()) {
            transition.label = Label::RemoteMap;
            if access.is_write() {
                transition.after = MemorySet::only(transition.owner);
            }
        } else if action == Action::Duplicate && !exclusive {
            transition.after = copies.with(home);
            transition.fill = Fill::Copy;
            transition.at = home;
            transition.label = Label::Duplication;
        } else {
            self.plan_migration(&mut transition, home, exclusive);
        }
        if transition.at.is_host()
            && transition.fill != Fill::Nothing
            && entry.has(flag::HOST_UNSAFE)
        {
            return Err(CancelReason::CopyFailed);
        }
        self.plan_rights(&mut transition, entry, agent, access);
        Ok(transition)
    }

    /// A page without bytes appears, zero, at its user's home.
    fn plan_fresh(&self, transition: &mut Transition, home: MemoryId) {
        transition.after = MemorySet::only(home);
        transition.owner = home;
        transition.at = home;
        transition.fill = Fill::Zero;
        transition.label = Label::Migration;
    }

    /// The home has a valid copy: at most the others go. Migration leaves no copies on other cards.
    fn plan_at_home(
        &self,
        transition: &mut Transition,
        home: MemoryId,
        exclusive: bool,
        action: Action,
    ) {
        transition.at = home;
        let host = MemorySet::only(MemoryId::HOST);
        let elsewhere = transition.before.without(home).minus(host);
        if exclusive {
            transition.after = MemorySet::only(home);
            transition.owner = home;
        } else if action == Action::Migrate && !elsewhere.is_empty() {
            transition.after = transition.before.minus(elsewhere);
            transition.owner = home;
        }
    }

    /// The page moves; a clean copy may stay on the host for a reader.
    fn plan_migration(&self, transition: &mut Transition, home: MemoryId, exclusive: bool) {
        let host = MemorySet::only(MemoryId::HOST);
        let clean = if exclusive || home.is_host() || !self.config.keep_clean_copies {
            MemorySet::EMPTY
        } else {
            transition.before.and(host)
        };
        transition.after = clean.with(home);
        transition.owner = home;
        transition.at = home;
        transition.fill = Fill::Copy;
        transition.label = Label::Migration;
    }

    /// Who is stopped or demoted, and what `agent` may do afterwards.
    fn plan_rights(
        &self,
        transition: &mut Transition,
        entry: &PageEntry,
        agent: AgentId,
        access: Access,
    ) {
        let mappers = entry.directory.mappers();
        transition.stop = displaced(mappers, entry, transition.after, transition.owner);
        if transition.relocates() {
            transition.stop = transition.stop.union(mappers);
        }
        if self.mutated.on(Mutation::ForgetRemoteMappers) {
            let here = AgentSet::only(entry.owner().agent());
            transition.stop = transition.stop.and(here.union(AgentSet::only(AgentId::CPU)));
        }
        if transition.after.len() > 1 {
            transition.demote = entry.directory.writers().minus(transition.stop);
            let cpu = AgentSet::only(AgentId::CPU);
            if !self.config.capabilities.host_read_only && mappers.contains(AgentId::CPU) {
                transition.stop = transition.stop.union(cpu);
                transition.demote = transition.demote.minus(cpu);
            }
        }
        self.lift_poison(transition, entry);
        let others = transition.stop.without(agent);
        if transition.before.len() > 1 && transition.after.len() == 1 && !others.is_empty() {
            transition.collapses = true;
            transition.label = if access.is_write() { Label::Collapse } else { Label::Migration };
            if self.mutated.on(Mutation::KeepReplicas) {
                transition.stop = AgentSet::EMPTY;
            }
        }
        let alone = transition.after.len() == 1;
        let read_only = entry.has(flag::READ_ONLY) && !agent.is_cpu();
        let rights = if alone && !read_only { Rights::ReadWrite } else { Rights::Read };
        transition.map = Some((agent, rights));
        let in_place = !transition.fills() && transition.at == agent.home();
        if self.mutated.on(Mutation::KeepStaleCopy) && in_place && alone {
            transition.after = transition.before;
        }
    }

    /// An error that the CPU met does not outlast the next move: taking its (poisoned) entry away
    /// lets it fault anew.
    fn lift_poison(&self, transition: &mut Transition, entry: &PageEntry) {
        if entry.has(flag::POISONED) {
            transition.stop = transition.stop.with(AgentId::CPU);
        }
    }

    /// The CPU under migration takes a page alone also to read it: a read-only mapping would cost
    /// it a second fault, and there is nothing to copy back. So it must where it cannot map read
    /// only.
    fn takes_alone(&self, agent: AgentId, action: Action) -> bool {
        let by_choice = action != Action::Duplicate;
        agent.is_cpu() && (by_choice || !self.config.capabilities.host_read_only)
    }

    fn reaches(&self, agent: AgentId, memory: MemoryId) -> bool {
        self.config.capabilities.can_map(agent, memory)
    }

    /// The frame that holds `page` in `memory`, which has a valid copy.
    pub(crate) fn frame_at(&self, page: PageNo, entry: &PageEntry, memory: MemoryId) -> FrameNo {
        match memory.card() {
            None => self.table.host_frame(page),
            Some(_) if memory == entry.owner() => entry.frame,
            Some(card) => self.cards[card.0 as usize].replica(self.table.index(page)),
        }
    }

    /// The transition of a page that leaves `memory` because it is full.
    pub(crate) fn eviction_transition(
        &self,
        entry: &PageEntry,
        memory: MemoryId,
    ) -> Option<Transition> {
        let copies = entry.directory.copies();
        let mut transition = Transition::unchanged(copies, entry.owner(), Reason::Eviction);
        transition.makes_room = true;
        transition.label = Label::Eviction;
        let left = copies.without(memory);
        if left.is_empty() {
            if entry.has(flag::HOST_UNSAFE) {
                return None;
            }
            transition.after = MemorySet::only(MemoryId::HOST);
            transition.at = MemoryId::HOST;
            transition.fill = Fill::Copy;
            if self.mutated.on(Mutation::EvictWithoutCopy) {
                transition.fill = Fill::Nothing;
            }
        } else {
            transition.after = left;
        }
        if !transition.after.contains(transition.owner) {
            transition.owner = transition.after.first()?;
        }
        transition.stop =
            displaced(entry.directory.mappers(), entry, transition.after, transition.owner);
        self.lift_poison(&mut transition, entry);
        Some(transition)
    }

    /// The transition of a page that is freed.
    pub(crate) fn free_transition(&self, entry: &PageEntry) -> Transition {
        let mut transition =
            Transition::unchanged(entry.directory.copies(), entry.owner(), Reason::Return);
        transition.after = MemorySet::EMPTY;
        transition.owner = MemoryId::HOST;
        transition.stop = entry.directory.mappers();
        if self.mutated.on(Mutation::FreeWithoutStopping) {
            transition.stop = AgentSet::EMPTY;
        }
        transition.end = End::Free;
        transition
    }
}
