//! The transition of a page: where it is and where it will be, and what has to happen in between.

use farside_types::{
    Access, AgentId, AgentSet, CancelReason, CardId, FrameNo, MemoryId, MemorySet, PageNo, Reason,
    Rights,
};
use serde::{Deserialize, Serialize};

use crate::Driver;
use crate::mutation::Mutation;
use crate::placement::Action;
use crate::tables::page::{PageEntry, flag};

/// What is the same for all pages of a part: where they were, where they will be, and what has to
/// happen in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Transition {
    /// Valid copies before.
    pub(crate) before: MemorySet,
    /// Main location before; meaningless if `before` is empty.
    pub(crate) from: MemoryId,
    /// Valid copies afterwards.
    pub(crate) after: MemorySet,
    /// Main location afterwards.
    pub(crate) owner: MemoryId,
    /// How the destination gets its bytes.
    pub(crate) fill: Fill,
    /// The memory that is filled, and that `agent` maps.
    pub(crate) at: MemoryId,
    /// Who gets a mapping, with which rights.
    pub(crate) map: Option<(AgentId, Rights)>,
    /// Who loses its mapping first.
    pub(crate) stop: AgentSet,
    /// Who loses the right to write first.
    pub(crate) demote: AgentSet,
    /// What becomes of the pages at the end.
    pub(crate) end: End,
    /// The copies of others go, so that one is left: it counts as a move, as a copy does.
    pub(crate) collapses: bool,
    /// It makes room on a full card: its pages count as room to come until it has ended, and are no
    /// victims again once it has failed twice.
    pub(crate) makes_room: bool,
    /// The card may write the page at once, and the host keeps its bytes (`shadow.rs`).
    pub(crate) lends: bool,
    /// Lent pages come back: those that the card has not written need no copy.
    pub(crate) reclaims: bool,
    /// Why.
    pub(crate) reason: Reason,
    /// What the statistics count it as. Nothing is decided by it.
    pub(crate) label: Label,
}

/// How the destination gets its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Fill {
    /// It has them.
    Nothing,
    /// Zeros.
    Zero,
    /// From the main location.
    Copy,
}

/// What becomes of the pages at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum End {
    /// They are in the state that their copies say.
    Settle,
    /// They are freed.
    Free,
    /// The host's frame is given back; the copies stay.
    ReleaseHost,
}

/// What the statistics count a transition as.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Label {
    /// The only location changed.
    Migration,
    /// One more copy.
    Duplication,
    /// A write took the other copies away.
    Collapse,
    /// Mapped over the bus.
    RemoteMap,
    /// Left a full card.
    Eviction,
    /// Only rights or mappings changed.
    Rights,
}

impl Transition {
    /// One that leaves everything as it is, for pages with these copies.
    pub(crate) fn unchanged(before: MemorySet, from: MemoryId, reason: Reason) -> Transition {
        Transition {
            before,
            from,
            after: before,
            owner: from,
            fill: Fill::Nothing,
            at: from,
            map: None,
            stop: AgentSet::EMPTY,
            demote: AgentSet::EMPTY,
            end: End::Settle,
            collapses: false,
            makes_room: false,
            lends: false,
            reclaims: false,
            reason,
            label: Label::Rights,
        }
    }

    /// Whether bytes come to be where none were valid.
    pub(crate) fn fills(&self) -> bool {
        self.fill != Fill::Nothing
    }

    /// Whether what is filled becomes the main location: nobody keeps a mapping of the old one.
    pub(crate) fn relocates(&self) -> bool {
        self.fills() && self.at == self.owner
    }

    /// Whether somebody maps the page through a memory that is not its own.
    pub(crate) fn maps_remotely(&self) -> bool {
        self.map.is_some_and(|(agent, _)| agent.home() != self.at)
    }

    /// Whether the page goes to the host and is mapped there over the bus.
    pub(crate) fn meets_on_host(&self) -> bool {
        self.maps_remotely() && self.relocates() && self.owner.is_host()
    }

    /// The card that had a copy of the host's page and keeps it, for somebody else to map.
    pub(crate) fn stays_at_reader(&self) -> Option<CardId> {
        let promoted = !self.fills() && self.from.is_host() && self.maps_remotely();
        self.owner.card().filter(|_| promoted && self.at == self.owner)
    }

    /// Memories that lose their copy.
    pub(crate) fn dropped(&self) -> MemorySet {
        self.before.minus(self.after)
    }

    /// Whether an agent that is stopped has reached the page in a card's frames, and they stay a copy of it.
    /// The host's are of one page for good, so an old translation of them harms nobody.
    pub(crate) fn leaves_behind(&self, agent: AgentId) -> bool {
        let reached = location(agent, self.before, self.from);
        !reached.is_host() && self.after.contains(reached)
    }

    /// The card whose frames the part needs, if any.
    pub(crate) fn needs_frames(&self) -> Option<CardId> {
        if self.fills() { self.at.card() } else { None }
    }
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

/// The host alone has the page afterwards, whoever asked.
fn plan_on_host(transition: &mut Transition) {
    transition.after = MemorySet::only(MemoryId::HOST);
    transition.owner = MemoryId::HOST;
    transition.at = MemoryId::HOST;
    if transition.before.contains(MemoryId::HOST) {
        transition.label = Label::RemoteMap;
    } else {
        transition.fill = Fill::Copy;
        transition.label = Label::Migration;
    }
}

impl Driver {
    /// The transition that gives `agent` the page by `action`.
    pub(crate) fn transition(
        &self,
        entry: &PageEntry,
        agent: AgentId,
        access: Access,
        action: Action,
        reason: Reason,
        lends: bool,
    ) -> Result<Transition, CancelReason> {
        let home = agent.home();
        let copies = entry.directory.copies();
        let mut transition = Transition::unchanged(copies, entry.owner(), reason);
        transition.lends = lends && !access.is_write();
        let exclusive = access.is_write() || transition.lends || self.takes_alone(agent, action);
        if copies.is_empty() {
            self.plan_fresh(&mut transition, home);
        } else if action == Action::MapOnHost && self.reaches_page(entry, agent, MemoryId::HOST) {
            plan_on_host(&mut transition);
        } else if copies.contains(home) {
            self.plan_at_home(&mut transition, home, exclusive, action);
        } else if let Some(reader) = self.reader_that_keeps(entry, agent, access, action) {
            transition.after = MemorySet::only(reader);
            transition.owner = reader;
            transition.at = reader;
            transition.label = Label::RemoteMap;
        } else if action == Action::MapRemote && self.reaches_page(entry, agent, entry.owner()) {
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
        transition.lends &= transition.after == MemorySet::only(home);
        if transition.at.is_host()
            && transition.fill != Fill::Nothing
            && entry.has(flag::HOST_UNSAFE)
        {
            return Err(CancelReason::CopyFailed);
        }
        self.plan_rights(&mut transition, entry, agent, access);
        Ok(transition)
    }

    /// The card that keeps its copy of a page which `agent` writes and maps there.
    fn reader_that_keeps(
        &self,
        entry: &PageEntry,
        agent: AgentId,
        access: Access,
        action: Action,
    ) -> Option<MemoryId> {
        let Action::MapAt(card) = action else { return None };
        let reader = card.memory();
        let beside_host = entry.owner().is_host() && entry.directory.copies().contains(reader);
        let keeps = access.is_write() && beside_host && self.reaches_page(entry, agent, reader);
        keeps.then_some(reader)
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
        transition.reclaims = self.reclaims(transition, entry);
        if transition.lends && self.mutated.on(Mutation::LentStaysMapped) {
            transition.stop = transition.stop.without(AgentId::CPU);
        }
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

    /// Whether an agent can map a memory, its own or over the bus.
    pub fn reaches(&self, agent: AgentId, memory: MemoryId) -> bool {
        self.config.capabilities.can_map(agent, memory)
    }

    /// Whether an agent can map a page where `memory` has it. What was adopted the CPU alone maps on the
    /// host: its frames there are the program's own, and cards do not reach them.
    pub(crate) fn reaches_page(&self, entry: &PageEntry, agent: AgentId, memory: MemoryId) -> bool {
        let beyond = entry.directory.is_adopted() && memory.is_host() && !agent.is_cpu();
        let beyond = beyond && !self.mutated.on(Mutation::ReachAdoptedAtHome);
        !beyond && self.reaches(agent, memory)
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
        transition.reclaims = self.reclaims(&transition, entry);
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

    /// The transition of a page that stays as it is and is mapped (again) for `agent`.
    pub(crate) fn held_transition(&self, entry: &PageEntry, agent: AgentId) -> Transition {
        let copies = entry.directory.copies();
        let mut transition = Transition::unchanged(copies, entry.owner(), Reason::Demand);
        transition.at = location(agent, copies, entry.owner());
        let writes = entry.directory.writers().contains(agent);
        let rights = if writes { Rights::ReadWrite } else { Rights::Read };
        transition.map = Some((agent, rights));
        transition
    }
}
