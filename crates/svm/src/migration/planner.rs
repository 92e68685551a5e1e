//! The planner: what has to happen so that an agent can reach a page.
//!
//! It looks at one page's entry and a decision, gives the page's [`Transition`] and enters the page into
//! a [`Plan`]. Pages with one transition travel together; a request over several source memories thus
//! splits by itself.

use farside_types::{Access, AgentId, CancelReason, MemoryId, PageNo, PageRange, Reason, Time};

use crate::api::command::Run;
use crate::api::query::ObjectId;
use crate::faults::open::FaultKey;
use crate::migration::plan::{Plan, Wider, widen};
use crate::migration::transition::{Fill, Transition, location};
use crate::mutation::Mutation;
use crate::placement::{Action, Costs, Decision, FaultView, Scope};
use crate::tables::page::{PageEntry, PageState, flag};
use crate::waiting::{Obstacle, Until};
use crate::{Driver, KnownCosts};

/// How far a decision reaches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) scope: Scope,
    /// Also over pages that running cards lose by it.
    pub(crate) firm: bool,
    /// Over pages that can be lent, which are.
    pub(crate) lends: bool,
}

/// Who asks for a page.
#[derive(Clone, Copy)]
pub(crate) struct Asker {
    pub(crate) agent: AgentId,
    pub(crate) access: Access,
    /// The scheme was asked for this fault before.
    pub(crate) again: bool,
}

/// What has become of a page that was asked for.
#[derive(Clone, Copy)]
pub(crate) enum Planned {
    /// Nothing: who asks has it mapped with enough rights.
    Resident,
    /// It is in this part of the plan.
    In(usize),
}

impl Driver {
    /// Whether something can be planned for `page` now: no chain holds it, it is not being poisoned,
    /// and no group but that of `own` has reserved it.
    pub(crate) fn may_plan(
        &self,
        page: PageNo,
        entry: &PageEntry,
        own: Option<FaultKey>,
    ) -> Result<(), Obstacle> {
        let until = if entry.state == PageState::Moving {
            Until::PagesFree(entry.chain)
        } else if self.is_being_poisoned(page, entry) {
            Until::Poisoned
        } else if let Some(group) = self.reserved(page, own) {
            Until::GroupBegins(group)
        } else {
            return Ok(());
        };
        Err(Obstacle::Wait(until))
    }

    /// Enters what a page needs that may be planned; the plan also notes how far the decision reaches.
    pub(crate) fn plan_page(
        &mut self,
        now: Time,
        page: PageNo,
        entry: &PageEntry,
        asker: Asker,
        plan: &mut Plan,
    ) -> Result<Planned, Obstacle> {
        let Some((transition, reach)) = self.resolve(now, page, entry, asker)? else {
            return Ok(Planned::Resident);
        };
        let part = self.enter(plan, transition, page, entry);
        let reach = self.at_least_a_block(page, reach);
        if reach.scope != Scope::Page {
            let wider = Wider { page, access: asker.access, transition, reach };
            widen(&mut plan.wider, wider);
        }
        Ok(Planned::In(part))
    }

    /// What an allocation that moves in whole blocks makes of a decision's reach.
    fn at_least_a_block(&self, page: PageNo, reach: Reach) -> Reach {
        let Some(block) = self.space.block_of(page) else { return reach };
        match reach.scope {
            Scope::Object => reach,
            Scope::Range(range) if range.covers(block) => reach,
            // Whoever has some of it mapped and runs has to stop for the page anyway.
            _ => Reach { scope: Scope::Range(block), firm: true, ..reach },
        }
    }

    /// What has to happen to a page that may be planned; nothing, if who asks has it mapped with enough
    /// rights.
    pub(crate) fn resolve(
        &mut self,
        now: Time,
        page: PageNo,
        entry: &PageEntry,
        asker: Asker,
    ) -> Result<Option<(Transition, Reach)>, Obstacle> {
        let Asker { agent, access, again } = asker;
        debug_assert!(entry.state != PageState::Moving, "{page} is planned, and {}", entry.chain);
        if let Some(reason) = self.refusal(entry, agent, access) {
            return Err(Obstacle::Refuse(reason));
        }
        let directory = entry.directory;
        let held = if access.is_write() { directory.writers() } else { directory.mappers() };
        // One that has not let go may be in the directory of a page that it cannot reach.
        let at = location(agent, directory.copies(), entry.owner());
        if held.contains(agent) && self.reaches_page(entry, agent, at) {
            return Ok(None);
        }
        if self.is_pinned_away(page, entry, agent, access) {
            return Err(Obstacle::Refuse(CancelReason::PinnedElsewhere));
        }
        let mut decision = match self.settle_fight(now, page, entry, asker) {
            Ok(Some(decision)) => decision,
            Ok(None) => self.decide(now, page, entry, agent, access, again),
            Err(later) => return Err(Obstacle::Wait(Until::Time(later))),
        };
        let plan = |driver: &Driver, Decision { action, reason, lends, .. }| {
            driver.transition(entry, agent, access, action, reason, lends).map_err(Obstacle::Refuse)
        };
        let mut transition = plan(self, decision)?;
        if let Some(settled) = self.settle_contest(now, page, entry, asker, &transition) {
            decision = settled;
            transition = plan(self, decision)?;
        }
        // A kernel that hangs may hold the page for itself: it has to be taken from its card first, and
        // where that cannot be done nobody gets it.
        let others = entry.directory.mappers().without(agent);
        if transition.maps_remotely() && !entry.has(flag::PINNED) && self.hangs(others) {
            decision = Decision::page(Action::Migrate, decision.reason);
            transition = plan(self, decision)?;
        }
        let Decision { scope, firm, lends, .. } = decision;
        let reach = Reach { scope, firm, lends: lends && access.is_write() };
        Ok(Some((transition, reach)))
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
        // What is given back to the program its own threads may use all the time.
        if entry.has(flag::DOOMED) && !(entry.directory.is_adopted() && agent.is_cpu()) {
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
            && !self.reaches_page(entry, agent, MemoryId::HOST)
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
            may_lend: self.may_lend(page, entry, agent),
            again,
            costs: self.costs(),
        };
        let mut decision = self.placement.on_fault(&view);
        decision.lends &= view.may_lend || access.is_write();
        decision
    }

    /// What the scheme is told of costs.
    pub(crate) fn costs(&self) -> Option<Costs> {
        match self.config.costs {
            KnownCosts::None => None,
            KnownCosts::Far(far, at_once) => {
                let costs = self.prices.costs(far, self.brings_neighbours());
                costs.map(|costs| Costs { at_once, ..costs })
            }
            KnownCosts::Fixed(costs) => Some(costs),
        }
    }

    /// A preferred location keeps the page; agents that reach it map it there.
    fn hinted_action(&self, page: PageNo, agent: AgentId, entry: &PageEntry) -> Option<Action> {
        let preferred = self.space.holding(page)?.hint(page)?.preferred?;
        let fresh = entry.directory.copies().is_empty();
        let there = preferred == entry.owner() && !fresh;
        if there && preferred != agent.home() && self.reaches_page(entry, agent, preferred) {
            return Some(Action::MapRemote);
        }
        (preferred == agent.home()).then_some(Action::Migrate)
    }

    /// Enters a page into a plan and marks it, so that nothing enters it twice.
    pub(crate) fn enter(
        &mut self,
        plan: &mut Plan,
        transition: Transition,
        page: PageNo,
        entry: &PageEntry,
    ) -> usize {
        let run = self.run_of(page, entry, &transition);
        self.table.get_mut(page).set(flag::PLANNED, true);
        plan.add(transition, run)
    }

    /// A page with the frames that its run names: where the bytes come from, and where they go or are
    /// mapped. Frames that are yet to be found on a card stand as the source's for the time being.
    pub(crate) fn run_of(&self, page: PageNo, entry: &PageEntry, transition: &Transition) -> Run {
        let host = self.table.host_frame(page);
        let (fresh, maps) = (transition.before.is_empty(), transition.map.is_some());
        let src = match transition.fill {
            Fill::Zero => host,
            Fill::Copy => self.frame_at(page, entry, transition.from),
            Fill::Nothing if fresh => host,
            Fill::Nothing if maps => self.frame_at(page, entry, transition.at),
            Fill::Nothing => self.frame_at(page, entry, transition.from),
        };
        let dst = if transition.at.is_host() { host } else { src };
        Run { page, count: 1, src, dst }
    }

    /// The pages for which holds what was found for one of them, if their entries are equal: nobody fights
    /// over it, no pin or advice of its own applies, and the scheme looks at nothing else.
    pub(crate) fn holds_for(&self, page: PageNo, entry: &PageEntry, agent: AgentId) -> PageRange {
        let special = flag::PINNED | flag::THRASH_PINNED | flag::HINTED;
        let alone = entry.has(special)
            || self.is_contested(entry, agent)
            || entry.directory.bounces() >= self.config.thrash.throttle_after;
        match self.placement.grain() {
            _ if alone => PageRange::page(page),
            u64::MAX if entry.directory.is_adopted() => PageRange::page(page),
            u64::MAX => self.config.arena,
            grain => PageRange::new(page.align_down(grain), grain),
        }
    }
}
