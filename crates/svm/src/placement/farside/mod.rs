//! Farside's own scheme: objects and ranges as well as pages, from the same faults and counters as
//! GRIT.
//!
//! GRIT lets every page pay for its own experience: four faults until its scheme changes, one fault
//! for each page that moves. Here one decision is made for as many pages as the evidence speaks
//! for, at the first fault that gives any:
//!
//! - **Objects.** A page that was never written on a card and is only read gets there as a copy, so
//!   that the next reader takes nothing away from the first. An allocation whose read pages are
//!   then written by their reader is found out by a few of them, and its other pages move at once.
//! - **Ranges.** Evidence is kept per 64 KiB group: who has had it, whether it was written, when it
//!   was last taken from somebody. Where somebody has to be stopped, the group moves at once. Where
//!   nobody has to, a fault brings as many pages as [`FarsideConfig::reach`] says, at most the
//!   subtree of the block of which the card has more than half and nobody else has any; its group, where costs say
//!   that this is worth what others wait for it.
//! - **Loans.** A page of a group that a card has written before, or of an allocation whose readers write, is
//!   lent to who reads it: its write costs no fault then. What comes back from a loan as it went is copied
//!   the next time, until a card writes its group again. So input that is only read stays on the host.
//! - **Minimum residency.** A group that has rested where it is moves as a whole, in one move that
//!   stops its former user once: data is handed on. One that is taken back before it has rested is
//!   fought over: at first only the page asked for moves, then the whole group is mapped over the
//!   bus and stays, until a counter says that somebody uses it more and it has rested.
//!
//! - **Costs.** Where the machine tells what an access to another memory takes ([`crate::KnownCosts`]), a page is
//!   brought only if that costs less than to reach over once for each of its lines, in the queue that there is now.
//!   What another card would lose is reached over to first, or stays with its reader for who writes it, and so is what a
//!   full card has lost before. A group that is
//!   reached over to goes to whoever has paid for that, as a copy if no card has written it ([`cost`]).
//!
//! - **Copies beside copies.** Cards that read a page at once get their copies at once, and not one after the other
//!   ([`crate::PlacementScheme::copies_together`]).
//!
//! Nothing of it knows a program; the constants are those of the machine ([`FarsideConfig`]). Each
//! ingredient can be switched off.

use farside_types::{
    AgentId, CardId, GROUP_PAGES, IndexMap, MemoryId, PageNo, PageRange, Reason, Span, Time,
};
use serde::{Deserialize, Serialize};

use super::parameters::Parameters;
use super::{
    Action, Costs, CounterView, Decision, FaultView, PageMode, PlacedView, PlacementScheme,
    SchemeError, Scope,
};
use crate::{Evidence, ObjectId};

mod cost;
mod groups;
mod objects;
#[cfg(test)]
mod tests;

use cost::HeldUp;
use groups::{Group, Groups};
use objects::Object;

/// Allocations that there is room to learn of, whenever one is made.
const OBJECTS: usize = 256;

/// What the scheme is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarsideConfig {
    /// Learn from an allocation how its other pages are used.
    pub objects: bool,
    /// Decide for groups and subtrees instead of pages.
    pub prefetch: bool,
    /// How long a group rests after it was taken from somebody; none: every fault is a new one.
    /// Ten times what a fault and its move take.
    pub residency: Option<Span>,
    /// Most pages that a fault brings from the host or copies where nobody is stopped for them, a
    /// power of two. More than the page itself only helps where the link has time to spare: what
    /// many compute units bring at the same time waits for each other there.
    pub reach: u16,
    /// Times in a row that a group is taken before it has rested until it is mapped over the bus.
    pub fights: u8,
    /// Bring nothing that costs more than to reach over to it, as far as costs are known.
    pub costs: bool,
    /// Copies of a page that several cards ask for at once are made together.
    pub together: bool,
}

impl Default for FarsideConfig {
    fn default() -> FarsideConfig {
        let residency = Some(Span::from_micros(250));
        FarsideConfig {
            objects: true,
            prefetch: true,
            residency,
            reach: 1,
            fights: 2,
            costs: true,
            together: true,
        }
    }
}

/// The scheme.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Farside {
    config: FarsideConfig,
    groups: Groups,
    /// Looked up only: no result depends on its order.
    objects: IndexMap<ObjectId, Object>,
}

impl Farside {
    /// With these parts.
    pub fn new(config: FarsideConfig) -> Farside {
        let (groups, objects) = (Groups::default(), IndexMap::default());
        Farside { config, groups, objects }
    }

    pub(super) fn from_parameters(parameters: &mut Parameters<'_>) -> Result<Farside, SchemeError> {
        let default = FarsideConfig::default();
        let micros = default.residency.map_or(0, |span| span.0 / 1_000_000) as u32;
        let about = "learn from an allocation's pages how its others are used";
        let objects = parameters.switch("objects", default.objects, about)?;
        let about = "decide for groups and subtrees instead of pages";
        let prefetch = parameters.switch("prefetch", default.prefetch, about)?;
        let about = "a group that was taken from somebody rests";
        let rests = parameters.switch("residency", default.residency.is_some(), about)?;
        let about = "microseconds that it rests";
        let micros = parameters.number("residency_us", micros, 1..=1_000_000, about)?;
        let about =
            "times in a row that a group is taken too early until it is mapped over the bus";
        let fights = parameters.number("fights", default.fights.into(), 1..=255, about)? as u8;
        let about = "most pages that a fault brings where nobody is stopped for them";
        let reach = parameters.number("reach", default.reach.into(), 1..=512, about)? as u16;
        let about =
            "bring nothing that costs more than to reach over to it, as far as costs are known";
        let costs = parameters.switch("costs", default.costs, about)?;
        let about = "copies of a page that several cards ask for at once are made together";
        let together = parameters.switch("together", default.together, about)?;
        let residency = rests.then_some(Span::from_micros(micros.into()));
        let config = FarsideConfig { objects, prefetch, residency, reach, fights, costs, together };
        Ok(Farside::new(config))
    }

    /// Whether the group has been where it is for long enough.
    fn has_rested(&self, now: Time, group: &Group) -> bool {
        self.config.residency.is_none_or(|rest| now.since(group.taken_at) >= rest)
    }

    /// A page that no other card has.
    fn place(&mut self, fault: &FaultView) -> Decision {
        let home = fault.agent.home();
        let write = fault.access.is_write();
        let leaves = self.comes_back(fault) || self.is_dear(fault, 0);
        if fault.owner == Some(MemoryId::HOST) && leaves {
            return self.leave(fault);
        }
        let group = self.groups.get_mut(fault.page);
        if write {
            group.write();
        }
        let (written, spared) = (group.written, group.spared);
        let object = self.objects.entry(fault.object).or_default();
        if fault.copies.contains(home) {
            // Its only reader writes it: the copy on the host goes.
            object.written_by_reader += 1;
        }
        let first = !write && !fault.copies.contains(home);
        object.read_first += u32::from(first);
        let copies = !self.config.objects || object.keeps_copies();
        let lends = !write && fault.may_lend && !spared && (written || !copies);
        // Whether a page on loan is written its reader need not ask.
        object.read_first -= u32::from(first && lends);
        let copy = !write && copies;
        let action =
            if copy || fault.copies.contains(home) { Action::Duplicate } else { Action::Migrate };
        let decision = self.decide(fault, action, true, false);
        if self.config.prefetch && fault.may_lend && fault.copies.contains(home) {
            // What came with it is written next: one fault for rights is enough for the group.
            return Decision { lends: true, ..decision.over(Scope::Group) };
        }
        Decision { lends, ..decision }
    }

    /// A page that other cards have, for reading.
    fn share(&mut self, fault: &FaultView) -> Decision {
        if self.will_write(fault) {
            return self.take(fault);
        }
        let rested = self.has_rested(fault.now, self.groups.get(fault.page));
        // A copy more leaves less room for all: it has to be worth what goes for it as well.
        let goes = u64::from(self.is_full(fault));
        let leaves = self.comes_back(fault) || self.is_dear(fault, goes);
        let takes = self.would_take(fault);
        let group = self.groups.get_mut(fault.page);
        if group.remote {
            return self.reach_over(fault);
        }
        if leaves || (takes && group.written) {
            return self.leave(fault);
        }
        if group.written {
            group.fought(rested);
            group.taken_at = fault.now;
            if group.fights > self.config.fights {
                group.remote = true;
                return self.reach_over(fault);
            }
        }
        self.decide(fault, Action::Duplicate, true, rested)
    }

    /// A page that other cards have, for writing.
    fn take(&mut self, fault: &FaultView) -> Decision {
        if let Some(reader) = self.reader_that_keeps(fault) {
            self.groups.get_mut(fault.page).write();
            return self.decide(fault, Action::MapAt(reader), false, false);
        }
        let rested = self.has_rested(fault.now, self.groups.get(fault.page));
        let others = fault.copies.without(MemoryId::HOST).without(fault.agent.home());
        let leaves = self.would_take(fault) || self.is_dear(fault, others.len() as u64);
        let group = self.groups.get_mut(fault.page);
        if group.remote && !rested {
            return self.reach_over(fault);
        }
        if leaves {
            return self.leave(fault);
        }
        if fault.costs.is_some() && fault.copies.contains(fault.agent.home()) {
            self.objects.entry(fault.object).or_default().written_by_reader += 1;
        }
        group.remote = false;
        group.write();
        group.fought(rested);
        group.taken_at = fault.now;
        if group.fights > self.config.fights {
            group.remote = true;
            return self.reach_over(fault);
        }
        self.decide(fault, Action::Migrate, rested, rested)
    }

    /// Whether who reads the page, which other cards have, will write it next, as most readers of its allocation do.
    /// Only where costs are known: on live machines what this changes has not been measured.
    fn will_write(&mut self, fault: &FaultView) -> bool {
        if fault.costs.is_none() {
            return false;
        }
        let object = self.objects.entry(fault.object).or_default();
        object.read_first += 1;
        self.config.objects && !object.keeps_copies()
    }

    /// Whether it is known what it costs to bring the page, which is not here, and to reach over to it.
    fn knows_costs(&self, fault: &FaultView) -> bool {
        let absent = !fault.copies.contains(fault.agent.home());
        self.config.costs && absent && fault.costs.is_some()
    }

    /// Whether to bring the page, which so many others lose by it, costs more than to leave it where it is.
    fn is_dear(&self, fault: &FaultView, losers: u64) -> bool {
        let costs = fault.costs.filter(|_| self.knows_costs(fault));
        costs.is_some_and(|costs| cost::is_dear(costs, losers))
    }

    /// Whether another page would have to go for this one.
    fn is_full(&self, fault: &FaultView) -> bool {
        self.knows_costs(fault) && u64::from(fault.room) <= GROUP_PAGES
    }

    /// Whether the page has gone from a full card and would push out another. What the card uses in turn is more than it
    /// holds then, and each page would be gone before its second use. So those that are there stay; who asks reaches over,
    /// and gets the page with its group when that has paid for it.
    fn comes_back(&self, fault: &FaultView) -> bool {
        self.is_full(fault) && self.groups.is_evicted(fault.page, fault.agent)
    }

    /// Whether another card has the page, and would lose it, or the right to write it. What that card pays for it nobody
    /// knows: it is stopped, and may want the page back. So who asks reaches over, and gets the page with its group when
    /// that has paid for it.
    fn would_take(&self, fault: &FaultView) -> bool {
        self.knows_costs(fault) && is_on_card(fault)
    }

    /// Which card keeps a page of the host that it has read and another, which has none, writes: one of those that would
    /// lose it by that. It loses nothing, and nothing is copied.
    fn reader_that_keeps(&self, fault: &FaultView) -> Option<CardId> {
        let keeps = self.knows_costs(fault) && fault.access.is_write() && !is_on_card(fault);
        fault.copies.iter().find_map(MemoryId::card).filter(|_| keeps)
    }

    /// The page stays where it is, and is mapped there; with those of its group that are on the same card, which nobody
    /// loses by.
    fn leave(&mut self, fault: &FaultView) -> Decision {
        if fault.access.is_write() {
            self.groups.get_mut(fault.page).write();
        }
        self.decide(fault, Action::MapRemote, is_on_card(fault), false)
    }

    /// A group goes to whoever has paid for it by reaching over.
    fn is_paid(&mut self, notice: &CounterView, costs: Costs) -> bool {
        let group = self.groups.get_mut(notice.pages.start);
        let others = group.others(notice.agent);
        let (losers, held_up) = match group.goes(notice.agent) {
            Action::Duplicate => (0, HeldUp::One),
            _ if group.written => (others, HeldUp::All),
            _ => (others, HeldUp::Some),
        };
        let price = cost::price_of_group(costs, losers, held_up);
        group.claim.notice(notice.agent, notice.count, price)
    }

    /// A group that is mapped over the bus because it was fought over goes to whoever uses it when it has rested.
    fn is_over(&self, notice: &CounterView) -> bool {
        let group = self.groups.get(notice.pages.start);
        group.remote && self.has_rested(notice.now, group)
    }

    /// The group is mapped over the bus, if it is on a card and in one place; where it is not, the
    /// page moves first.
    fn reach_over(&mut self, fault: &FaultView) -> Decision {
        let settled = fault.copies.len() == 1 && fault.owner != Some(MemoryId::HOST);
        let action = if settled { Action::MapRemote } else { Action::Migrate };
        self.decide(fault, action, settled, false)
    }

    /// How many pages come with one that nobody is stopped for.
    fn reach(&self, fault: &FaultView) -> u64 {
        let least = u64::from(self.config.reach.next_power_of_two());
        match fault.costs.filter(|_| self.config.costs) {
            Some(costs) if cost::comes_along(costs) => least.max(GROUP_PAGES),
            _ => least,
        }
    }

    /// The decision for the page, and for those that the evidence speaks for too.
    fn decide(&mut self, fault: &FaultView, action: Action, wide: bool, firm: bool) -> Decision {
        let card = fault.agent;
        let taken = fault.access.is_write() && fault.copies.len() > 1;
        let reason = if taken { Reason::Collapse } else { Reason::Demand };
        let mut decision = Decision::page(action, reason);
        let grows = matches!(action, Action::Migrate | Action::Duplicate);
        let fits = !grows || u64::from(fault.room) > GROUP_PAGES;
        if self.config.prefetch && wide && fits {
            let range = if grows && !firm {
                let reach = self.reach(fault);
                let shared = action == Action::Duplicate;
                let window = PageRange::new(fault.page.align_down(reach), reach);
                let tree = self.groups.subtree(fault.page, card, shared, reach / GROUP_PAGES);
                if reach < GROUP_PAGES { window } else { tree }
            } else {
                PageRange::new(fault.page.align_down(GROUP_PAGES), GROUP_PAGES)
            };
            if range.count > 1 {
                decision = Decision { firm, ..decision.over(Scope::Range(range)) };
            }
            self.note(range.intersection(fault.object_pages), card, grows);
        } else {
            self.note(PageRange::page(fault.page), card, grows);
        }
        decision
    }

    /// An agent is to get pages, or a mapping of them.
    fn note(&mut self, range: PageRange, agent: AgentId, comes: bool) {
        self.groups.note(range, agent);
        if comes {
            self.groups.come(range, agent);
        }
    }
}

impl PlacementScheme for Farside {
    fn name(&self) -> &'static str {
        "farside"
    }

    /// What is known is known of groups, but for what has gone from a full card: of pages that are asked for together the
    /// first speaks for the others.
    fn grain(&self) -> u64 {
        GROUP_PAGES
    }

    fn copies_together(&self) -> bool {
        self.config.together
    }

    fn on_fault(&mut self, fault: &FaultView) -> Decision {
        if fault.agent.is_cpu() {
            return Decision::page(Action::Migrate, Reason::Demand);
        }
        let home = fault.agent.home();
        let others = fault.copies.without(MemoryId::HOST).without(home);
        if others.is_empty() {
            self.place(fault)
        } else if fault.access.is_write() {
            self.take(fault)
        } else {
            self.share(fault)
        }
    }

    fn on_counter(&mut self, notice: &CounterView, decisions: &mut Vec<Decision>) {
        let costs = notice.costs.filter(|_| self.config.costs);
        let goes = match costs {
            Some(costs) => self.is_paid(notice, costs),
            None => self.is_over(notice),
        };
        if !goes {
            return;
        }
        let group = self.groups.get_mut(notice.pages.start);
        group.taken_at = notice.now;
        let action = costs.map_or(Action::Migrate, |_| group.goes(notice.agent));
        self.groups.come(notice.pages, notice.agent);
        let scope = Scope::Range(notice.pages);
        decisions.push(Decision::page(action, Reason::Counter).over(scope));
    }

    fn on_alloc(&mut self, pages: PageRange) {
        self.groups.make_room(pages);
        self.objects.reserve(OBJECTS);
    }

    fn on_written(&mut self, pages: PageRange, written: bool) {
        self.groups.told(pages, written);
    }

    fn on_evicted(&mut self, card: CardId, pages: PageRange) {
        self.groups.evicted(pages, card);
    }

    fn on_free(&mut self, pages: PageRange) {
        self.groups.forget(pages);
    }

    fn mode(&self, page: PageNo) -> PageMode {
        let group = self.groups.get(page);
        match (group.remote, group.written) {
            (true, _) => PageMode::AccessCounter,
            (false, false) if group.had != 0 => PageMode::Duplication,
            _ => PageMode::OnTouch,
        }
    }

    /// A page of a group that is mapped over the bus stays where it is alone; of an allocation whose readers
    /// write, a page that no card has moves to who asks; every other read gets a copy.
    fn explain(&self, page: &PlacedView) -> (PageMode, Vec<Evidence>) {
        let group = self.groups.get(page.page);
        let object = self.objects.get(&page.object).copied().unwrap_or_default();
        let held = page.is_on_card();
        let copied = !self.config.objects || object.keeps_copies();
        let mode = match (group.remote && held, held || copied) {
            (true, _) if page.copies.len() == 1 => PageMode::AccessCounter,
            (true, _) | (false, false) => PageMode::OnTouch,
            (false, true) => PageMode::Duplication,
        };
        let mut evidence = Vec::new();
        if group.had != 0 {
            evidence.push(Evidence::Group(group.facts(page.page)));
        }
        if object.read_first > 0 {
            evidence.push(Evidence::Object(object.facts()));
        }
        // It was decided for all of its allocation.
        if !held && !copied {
            evidence.reverse();
        }
        (mode, evidence)
    }

    fn save_state(&self) -> super::SchemeState {
        super::SchemeState(super::state::Learnt::Farside(self.clone()))
    }

    fn restore_state(&mut self, state: super::SchemeState) -> Result<(), String> {
        match state.0 {
            super::state::Learnt::Farside(saved) => *self = saved,
            _ => return Err(state.is_not_of(self.name())),
        }
        Ok(())
    }
}

/// Whether a card has the page, and maybe others a copy.
fn is_on_card(fault: &FaultView) -> bool {
    fault.owner.is_some_and(|owner| !owner.is_host())
}

/// The bit of an agent in a set of those that had a group.
fn bit(agent: AgentId) -> u32 {
    1 << agent.0
}

/// Number of the group in its block.
fn index_in_block(page: PageNo) -> usize {
    (page.0 / GROUP_PAGES % groups::PER_BLOCK) as usize
}
