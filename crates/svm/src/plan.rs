//! The planner: what has to happen so that an agent can reach a page.
//!
//! It looks at one page's entry and a decision and gives the [`Shape`] of the transition. Pages of
//! one shape travel together; a request over several source memories thus splits by itself.

use farside_types::{
    Access, AgentId, AgentSet, CancelReason, FrameNo, MemoryId, MemorySet, PageNo, PageRange,
    Reason, Rights, Time,
};

use crate::Driver;
use crate::chain::{End, Fill, Kind, Shape};
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
    Transition(Shape, Reach),
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
        let decision = match self.settle_fight(now, page, &entry, agent, access) {
            Ok(Some(decision)) => decision,
            Ok(None) => self.decide(now, page, &entry, agent, access, again),
            Err(later) => return Resolve::Later(later),
        };
        match self.shape(&entry, agent, access, decision.action, decision.reason) {
            Ok(shape) => {
                Resolve::Transition(shape, Reach { scope: decision.scope, firm: decision.firm })
            }
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
    pub(crate) fn shape(
        &self,
        entry: &PageEntry,
        agent: AgentId,
        access: Access,
        action: Action,
        reason: Reason,
    ) -> Result<Shape, CancelReason> {
        let home = agent.home();
        let copies = entry.directory.copies();
        let mut shape = Shape::unchanged(copies, entry.owner(), reason);
        let exclusive = access.is_write() || self.takes_alone(agent, action);
        if copies.is_empty() {
            self.shape_fresh(&mut shape, home);
        } else if copies.contains(home) {
            self.shape_at_home(&mut shape, home, exclusive, action);
        } else if action == Action::MapRemote && self.reaches(agent, entry.owner()) {
            shape.kind = Kind::RemoteMap;
            if access.is_write() {
                shape.after = MemorySet::only(shape.owner);
            }
        } else if action == Action::Duplicate && !exclusive {
            shape.after = copies.with(home);
            shape.fill = Fill::Copy;
            shape.at = home;
            shape.kind = Kind::Duplication;
        } else {
            self.shape_migration(&mut shape, home, exclusive);
        }
        if shape.at.is_host() && shape.fill != Fill::Nothing && entry.has(flag::HOST_UNSAFE) {
            return Err(CancelReason::CopyFailed);
        }
        self.shape_rights(&mut shape, entry, agent, access);
        Ok(shape)
    }

    /// A page without bytes appears, zero, at its user's home.
    fn shape_fresh(&self, shape: &mut Shape, home: MemoryId) {
        shape.after = MemorySet::only(home);
        shape.owner = home;
        shape.at = home;
        shape.fill = Fill::Zero;
        shape.kind = Kind::Migration;
    }

    /// The home has a valid copy: at most the others go. Migration leaves no copies on other cards.
    fn shape_at_home(&self, shape: &mut Shape, home: MemoryId, exclusive: bool, action: Action) {
        shape.at = home;
        let host = MemorySet::only(MemoryId::HOST);
        let elsewhere = shape.before.without(home).minus(host);
        if exclusive {
            shape.after = MemorySet::only(home);
            shape.owner = home;
        } else if action == Action::Migrate && !elsewhere.is_empty() {
            shape.after = shape.before.minus(elsewhere);
            shape.owner = home;
        }
    }

    /// The page moves; a clean copy may stay on the host for a reader.
    fn shape_migration(&self, shape: &mut Shape, home: MemoryId, exclusive: bool) {
        let host = MemorySet::only(MemoryId::HOST);
        let clean = if exclusive || home.is_host() || !self.config.keep_clean_copies {
            MemorySet::EMPTY
        } else {
            shape.before.and(host)
        };
        shape.after = clean.with(home);
        shape.owner = home;
        shape.at = home;
        shape.fill = Fill::Copy;
        shape.kind = Kind::Migration;
    }

    /// Who is stopped or demoted, and what `agent` may do afterwards.
    fn shape_rights(&self, shape: &mut Shape, entry: &PageEntry, agent: AgentId, access: Access) {
        let mappers = entry.directory.mappers();
        shape.stop = displaced(mappers, entry, shape.after, shape.owner);
        if shape.kind == Kind::Migration {
            shape.stop = shape.stop.union(mappers);
        }
        if self.mutated.on(Mutation::ForgetRemoteMappers) {
            let here = AgentSet::only(entry.owner().agent());
            shape.stop = shape.stop.and(here.union(AgentSet::only(AgentId::CPU)));
        }
        if shape.after.len() > 1 {
            shape.demote = entry.directory.writers().minus(shape.stop);
            let cpu = AgentSet::only(AgentId::CPU);
            if !self.config.capabilities.host_read_only && mappers.contains(AgentId::CPU) {
                shape.stop = shape.stop.union(cpu);
                shape.demote = shape.demote.minus(cpu);
            }
        }
        self.lift_poison(shape, entry);
        let others = shape.stop.without(agent);
        if shape.before.len() > 1 && shape.after.len() == 1 && !others.is_empty() {
            shape.kind = if access.is_write() { Kind::Collapse } else { Kind::Migration };
            if self.mutated.on(Mutation::KeepReplicas) {
                shape.stop = AgentSet::EMPTY;
            }
        }
        let alone = shape.after.len() == 1;
        let read_only = entry.has(flag::READ_ONLY) && !agent.is_cpu();
        let rights = if alone && !read_only { Rights::ReadWrite } else { Rights::Read };
        shape.map = Some((agent, rights));
        if self.mutated.on(Mutation::KeepStaleCopy) && shape.kind == Kind::Rights && alone {
            shape.after = shape.before;
        }
    }

    /// An error that the CPU met does not outlast the next move: taking its (poisoned) entry away
    /// lets it fault anew.
    fn lift_poison(&self, shape: &mut Shape, entry: &PageEntry) {
        if entry.has(flag::POISONED) {
            shape.stop = shape.stop.with(AgentId::CPU);
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

    /// The shape of a page that leaves `memory` because it is full.
    pub(crate) fn shape_eviction(&self, entry: &PageEntry, memory: MemoryId) -> Option<Shape> {
        let copies = entry.directory.copies();
        let mut shape = Shape::unchanged(copies, entry.owner(), Reason::Eviction);
        shape.kind = Kind::Eviction;
        let left = copies.without(memory);
        if left.is_empty() {
            if entry.has(flag::HOST_UNSAFE) {
                return None;
            }
            shape.after = MemorySet::only(MemoryId::HOST);
            shape.at = MemoryId::HOST;
            shape.fill = Fill::Copy;
            if self.mutated.on(Mutation::EvictWithoutCopy) {
                shape.fill = Fill::Nothing;
            }
        } else {
            shape.after = left;
        }
        if !shape.after.contains(shape.owner) {
            shape.owner = shape.after.first()?;
        }
        shape.stop = displaced(entry.directory.mappers(), entry, shape.after, shape.owner);
        self.lift_poison(&mut shape, entry);
        Some(shape)
    }

    /// The shape of a page that is freed.
    pub(crate) fn shape_free(&self, entry: &PageEntry) -> Shape {
        let mut shape = Shape::unchanged(entry.directory.copies(), entry.owner(), Reason::Return);
        shape.after = MemorySet::EMPTY;
        shape.owner = MemoryId::HOST;
        shape.stop = entry.directory.mappers();
        if self.mutated.on(Mutation::FreeWithoutStopping) {
            shape.stop = AgentSet::EMPTY;
        }
        shape.end = End::Free;
        shape
    }
}
