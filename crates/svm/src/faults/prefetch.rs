//! What is brought along with a fault: fault-around for the host, the density tree for cards, and
//! decisions that reach further than their page.

use farside_types::{
    Access, AgentId, AgentSet, BLOCK_PAGES, CardId, GROUP_PAGES, PageNo, PageRange, Reason,
};

use crate::Driver;
use crate::migration::chain::tidy;
use crate::migration::plan::{OpenPart, Plan, Wider, widen};
use crate::migration::planner::Reach;
use crate::migration::transition::{Fill, Transition};
use crate::placement::{Action, Scope};
use crate::tables::page::{PageEntry, PageState, flag};

/// What comes along and is stopped for nobody.
const ALONE: Reach = Reach { scope: Scope::Page, firm: false, lends: false };
/// What comes along whoever is stopped for it.
const FIRM: Reach = Reach { firm: true, ..ALONE };

impl Driver {
    /// Whether a card's fault brings neighbours of its page, whatever the scheme says.
    pub(crate) fn brings_neighbours(&self) -> bool {
        self.config.prefetch.density_percent < 100
    }

    /// A card's fault brings the largest subtree of its block that is to be fuller than the
    /// threshold (as NVIDIA's driver does), as far as there is room.
    pub(crate) fn prefetch_around(&mut self, card: CardId, plan: &mut Plan) {
        if !self.brings_neighbours() {
            return;
        }
        let wanted: u32 = plan.open_parts().map(|part| part.pages).sum();
        let mut budget = self.room(card).saturating_sub(wanted);
        for part in 0..plan.parts.len() {
            let transition = plan.parts[part].transition;
            if !transition.fills() || transition.at != card.memory() {
                continue;
            }
            let mut blocks = self.scratch.pages.take();
            blocks_of(plan, part, &mut blocks);
            for &block in &blocks {
                self.prefetch_block(card, plan, &transition, block, &mut budget);
            }
            self.scratch.pages.keep(blocks);
        }
        tidy_prefetched(plan);
    }

    /// One block: the tree is climbed from every leaf with a fault.
    fn prefetch_block(
        &mut self,
        card: CardId,
        plan: &mut Plan,
        transition: &Transition,
        block: PageNo,
        budget: &mut u32,
    ) {
        let usual = self.config.prefetch.density_leaf_pages;
        let leaf = self.config.capabilities.window(transition.from, transition.at, usual) as usize;
        let percent = usize::from(self.config.prefetch.density_percent);
        let mut occupied = [false; BLOCK_PAGES as usize];
        let mut faulted = [false; BLOCK_PAGES as usize];
        for (i, page) in PageRange::new(block, BLOCK_PAGES).pages().enumerate() {
            let entry = self.table.get(page);
            faulted[i] = entry.has(flag::PLANNED);
            occupied[i] = faulted[i] || entry.directory.copies().contains(card.memory());
        }
        for start in (0..BLOCK_PAGES as usize).step_by(leaf) {
            if faulted[start..start + leaf].iter().any(|&f| f) {
                occupied[start..start + leaf].fill(true);
                let (from, len) = densest(&occupied, start, leaf, percent);
                occupied[from..from + len].fill(true);
            }
        }
        let pages = PageRange::new(block, BLOCK_PAGES).pages().zip(occupied.iter().zip(&faulted));
        let extra = pages.filter(|(_, (occupied, faulted))| **occupied && !**faulted);
        let access = access_of(transition);
        for (page, _) in extra {
            if *budget == 0 {
                break;
            }
            if self.bring_along(plan, transition, page, card.agent(), access, ALONE) {
                *budget -= 1;
            }
        }
    }

    /// A host fault brings the aligned window around it, where the host has a page of that, or next to it, mapped:
    /// who goes through memory in order has, who jumps about has not, and would use nothing of it. From and
    /// to memories behind a link the window comes in any case, since another fault costs a round trip.
    pub(crate) fn fault_around(&mut self, page: PageNo, access: Access, plan: &mut Plan) {
        let is_mapped = self.maps_on_host(page);
        let Some(part) = plan.parts.first().filter(|_| !is_mapped) else { return };
        let transition = part.transition;
        let capabilities = &self.config.capabilities;
        let usual = self.config.prefetch.host_fault_around;
        let around = u64::from(capabilities.window(transition.from, transition.at, usual));
        let window = PageRange::new(page.align_down(around), around);
        let is_far = capabilities.is_far(transition.from, transition.at);
        if around == 1 || !(is_far || self.is_used_by_host(window)) {
            return;
        }
        for neighbour in window.pages() {
            if self.table.covers(neighbour) {
                self.bring_along(plan, &transition, neighbour, AgentId::CPU, access, ALONE);
            }
        }
        tidy_prefetched(plan);
    }

    fn maps_on_host(&self, page: PageNo) -> bool {
        self.table.get(page).directory.mappers().contains(AgentId::CPU)
    }

    /// Whether the host has a page of a window mapped, or one next to it.
    fn is_used_by_host(&self, window: PageRange) -> bool {
        let first = PageNo(window.start.0.saturating_sub(1));
        let wider = PageRange::new(first, window.end().0 + 1 - first.0);
        wider.pages().any(|page| self.maps_on_host(page))
    }

    /// Enters `page` if it is in the same situation as the page of `transition`. Unless that is `firm`,
    /// pages that would be taken from running cards stay; where it `lends`, those that cannot be lent.
    fn bring_along(
        &mut self,
        plan: &mut Plan,
        transition: &Transition,
        page: PageNo,
        agent: AgentId,
        access: Access,
        reach: Reach,
    ) -> bool {
        let entry = *self.table.get(page);
        let alike = entry.directory.copies() == transition.before
            && (transition.before.is_empty() || entry.owner() == transition.from);
        if !alike || !self.may_come_along(&entry, page, agent, access) {
            return false;
        }
        let lends = (transition.lends || reach.lends) && self.may_lend(page, &entry, agent);
        if reach.lends && !lends {
            return false;
        }
        let reads = lends || (entry.has(flag::READ_ONLY) && !agent.is_cpu());
        let access = if reads { Access::Read } else { access };
        let (action, reason) = (action_of(transition), transition.reason);
        let Ok(same) = self.transition(&entry, agent, access, action, reason, lends) else {
            return false;
        };
        // Draining it could take as long as a kernel holds it; nobody asked for it.
        if !reach.firm && self.runs(same.stop.union(same.demote).without(agent)) {
            return false;
        }
        let part = self.enter(plan, same, page, &entry);
        plan.parts[part].prefetched += 1;
        true
    }

    /// A group's pages bring their blocks along, where their allocations move in blocks, as far as there is
    /// room.
    pub(crate) fn bring_blocks(&mut self, agent: AgentId, plan: &mut Plan) {
        if !self.space.has_blocks() {
            return;
        }
        let Plan { parts, wider, .. } = plan;
        let filled = parts.iter().filter(|part| part.transition.fills());
        filled.flat_map(|part| self.blocks_around(part)).for_each(|each| widen(wider, each));
        // None of the group's own pages enters twice.
        self.mark_planned(plan, true);
        self.widen(agent, plan);
        self.mark_planned(plan, false);
    }

    /// The blocks of a part's pages that move as a whole.
    fn blocks_around(&self, part: &OpenPart) -> impl Iterator<Item = Wider> {
        let transition = part.transition;
        let access = access_of(&transition);
        let pages = part.runs.iter().flat_map(|run| run.pages().pages());
        pages.filter_map(move |page| {
            let scope = Scope::Range(self.space.block_of(page)?);
            Some(Wider { page, access, transition, reach: Reach { scope, ..FIRM } })
        })
    }

    fn mark_planned(&mut self, plan: &Plan, on: bool) {
        for run in plan.parts.iter().flat_map(|part| &part.runs) {
            self.table.for_each_mut(run.pages(), |_, entry| entry.set(flag::PLANNED, on));
        }
    }

    fn may_come_along(
        &self,
        entry: &PageEntry,
        page: PageNo,
        agent: AgentId,
        access: Access,
    ) -> bool {
        let busy = entry.state == PageState::Moving || entry.has(flag::PLANNED);
        let stays = entry.has(flag::PINNED | flag::THRASH_PINNED | flag::POISONED);
        // One quick return is no fight yet.
        let fought = entry.directory.bounces() > 1;
        let directory = entry.directory;
        let held = if access.is_write() { directory.writers() } else { directory.mappers() };
        !(busy || stays || fought || held.contains(agent))
            && self.refusal(entry, agent, Access::Read).is_none()
            && self.reserved(page, None).is_none()
    }

    /// Whether one of `agents` is a card that runs a kernel.
    pub(crate) fn runs(&self, agents: AgentSet) -> bool {
        let mut cards = agents.iter().filter_map(AgentId::card);
        cards.any(|card| self.cards[card.0 as usize].running > 0)
    }

    /// Applies decisions that reach further than their page.
    pub(crate) fn widen(&mut self, agent: AgentId, plan: &mut Plan) {
        let mut decisions = std::mem::take(&mut plan.wider);
        for wider in decisions.drain(..) {
            let Some(object) = self.space.holding(wider.page) else {
                continue;
            };
            let range = match wider.reach.scope {
                Scope::Page => PageRange::page(wider.page),
                Scope::Group => PageRange::new(wider.page.align_down(GROUP_PAGES), GROUP_PAGES),
                Scope::Range(range) => range,
                Scope::Object => object.range,
            };
            let range = range.intersection(object.range);
            let room = agent.card().map_or(u32::MAX, |card| self.room(card));
            let most = self.config.limits.chain_pages.min(room);
            // Who asked waits for its page only: the others follow in a chain of their own. Where
            // somebody is stopped for them, once is better than twice.
            let mut transition = wider.transition;
            if !wider.reach.firm
                && transition.fill == Fill::Copy
                && transition.reason == Reason::Demand
            {
                transition.reason = Reason::Prefetch;
            }
            for page in range.pages() {
                let planned: u32 = plan.open_parts().map(|part| part.pages).sum();
                if planned >= most {
                    break;
                }
                self.bring_along(plan, &transition, page, agent, wider.access, wider.reach);
            }
        }
        plan.wider = decisions;
        tidy_prefetched(plan);
    }
}

/// What is decided for neighbours that come along with pages of this transition.
fn action_of(transition: &Transition) -> Action {
    let another_copy = transition.fill == Fill::Copy && !transition.relocates();
    if let Some(card) = transition.stays_at_reader() {
        Action::MapAt(card)
    } else if transition.meets_on_host() {
        Action::MapOnHost
    } else if transition.maps_remotely() && !transition.collapses {
        Action::MapRemote
    } else if another_copy || transition.reason == Reason::Collapse {
        Action::Duplicate
    } else {
        Action::Migrate
    }
}

/// What neighbours that come along with pages of this transition are wanted for.
fn access_of(transition: &Transition) -> Access {
    let alone = transition.after.len() == 1 && !transition.lends;
    if alone { Access::Write } else { Access::Read }
}

/// First pages of the blocks that the runs of a part touch.
fn blocks_of(plan: &Plan, part: usize, blocks: &mut Vec<PageNo>) {
    blocks.extend(plan.parts[part].runs.iter().flat_map(|run| {
        let last = run.pages().end().0 - 1;
        (run.page.block().0..=PageNo(last).block().0).map(|b| PageNo(b * BLOCK_PAGES))
    }));
    blocks.sort_unstable();
    blocks.dedup();
}

/// The largest aligned subtree around `start` that is occupied to more than `percent`.
fn densest(occupied: &[bool], start: usize, leaf: usize, percent: usize) -> (usize, usize) {
    let mut best = (start, leaf);
    let mut len = leaf;
    while len < occupied.len() {
        len *= 2;
        let from = start & !(len - 1);
        let full = occupied[from..from + len].iter().filter(|&&o| o).count();
        if full * 100 > percent * len {
            best = (from, len);
        }
    }
    best
}

/// Pages came out of order: runs are sorted and merged again.
fn tidy_prefetched(plan: &mut Plan) {
    for part in plan.parts.iter_mut().filter(|part| part.prefetched > 0) {
        tidy(&mut part.runs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_climbed_while_it_is_more_than_half_full() {
        let mut occupied = [false; 512];
        occupied[..16].fill(true);
        assert_eq!(densest(&occupied, 0, 16, 51), (0, 16));
        occupied[16..32].fill(true);
        assert_eq!(densest(&occupied, 16, 16, 51), (0, 32));
        occupied[32..48].fill(true);
        assert_eq!(densest(&occupied, 32, 16, 51), (0, 64), "48 of 64 pages are 75 percent");
        occupied[..300].fill(true);
        assert_eq!(densest(&occupied, 288, 16, 51), (0, 512));
    }
}
