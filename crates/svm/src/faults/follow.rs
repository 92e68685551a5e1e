//! Copies beside copies: a card that asks for a page while another one is getting a copy of it gets its own from the
//! same source at the same time, where the scheme has it so ([`crate::PlacementScheme::copies_together`]).
//!
//! It would wait for that chain otherwise, a third card for the second one's, and what all ask for at once, as the
//! constants of a kernel, would reach the last of them after as many chains as there are cards. A copy more takes
//! nothing from anybody, and whoever had to be stopped for the first has been before it began. So a chain of its own
//! copies the page, which holds it as soon as the first has let it go ([`crate::migration::follow`]).

use farside_types::{AgentId, PageNo, Time};

use crate::Driver;
use crate::api::capability::Transport;
use crate::faults::open::FaultKey;
use crate::migration::chain::{Chain, Part, Purpose, Stage};
use crate::migration::chains::ChainId;
use crate::migration::plan::{Follower, OpenPart, Plan};
use crate::migration::planner::Asker;
use crate::migration::transition::{Label, Transition};
use crate::tables::page::{PageEntry, PageState, flag};
use crate::waiting::{Until, Work};

/// A copy that a chain makes, beside which another one may be made.
struct Leading {
    chain: ChainId,
    transition: Transition,
    /// The page's entry as it will be when the chain has settled.
    entry: PageEntry,
}

impl Driver {
    /// Enters a page that a chain is copying to another card among those that follow it, if a copy may be made beside
    /// that one. Gives its place there.
    pub(crate) fn follow(
        &mut self,
        now: Time,
        page: PageNo,
        (asker, key): (Asker, FaultKey),
        plan: &mut Plan,
    ) -> Option<usize> {
        // It fails with the chain that it follows, and so is to have a chain of its own left. A block moves as a whole.
        let fault = self.faults.get(key)?;
        let fresh = fault.attempts == 0 && self.config.limits.attempts > 1;
        if asker.access.is_write() || !fresh || self.space.block_of(page).is_some() {
            return None;
        }
        let leading = self.leading(page, asker.agent, plan)?;
        let (transition, _) = self.resolve(now, page, &leading.entry, asker).ok().flatten()?;
        if let Some(fault) = self.faults.get_mut(key) {
            fault.decided = true;
        }
        if !self.goes_beside(&transition, &leading) {
            return None;
        }
        Some(self.enter_follower(plan, &leading, transition, page))
    }

    /// The copy of a page that is under way, and that a card may have one beside.
    fn leading(&self, page: PageNo, agent: AgentId, plan: &Plan) -> Option<Leading> {
        let (entry, card) = (*self.table.get(page), agent.card()?);
        let held = entry.state == PageState::Moving;
        if !held || !self.placement.copies_together() || self.reserved(page, None).is_some() {
            return None;
        }
        let enter: u32 = plan.open_parts().map(|part| part.pages).sum();
        if self.room(card) <= enter {
            return None;
        }
        let mut leading = self.copied_by(entry.chain, page, entry)?;
        while let Some(next) = self.follower_with(leading.chain, page) {
            leading = self.copied_by(next, page, leading.entry)?;
        }
        // Each move of what agents fight over is weighed when it is its turn.
        let fought = leading.entry.has(flag::THRASH_PINNED)
            || leading.entry.directory.bounces() >= self.config.thrash.throttle_after;
        (!fought).then_some(leading)
    }

    /// The copy that a chain makes of a page which had this entry before, if all is well with it.
    fn copied_by(&self, chain: ChainId, page: PageNo, entry: PageEntry) -> Option<Leading> {
        let Chain { stage, parts, failure, holders, purpose, .. } = &self.chains[chain];
        let has = |part: &&Part| part.runs.iter().any(|run| run.pages().contains(page));
        let Part { transition, .. } = parts.iter().find(has)?;
        // What the program asked for is done when its chain has ended: a pin is to find the copies that it made.
        let well = *stage == Stage::Copy
            && failure.is_none()
            && holders.is_empty()
            && purpose.request.is_none();
        let plain = transition.label == Label::Duplication && !transition.lends;
        let entry = self.entry_afterwards(self.now, transition, entry);
        (well && plain).then_some(Leading { chain, transition: *transition, entry })
    }

    /// Whether a transition is a copy that can be made beside another one: from the same source, at once, and nobody
    /// is stopped for it.
    fn goes_beside(&self, transition: &Transition, leading: &Leading) -> bool {
        let Transition { label, from, at, stop, demote, lends, .. } = *transition;
        let transport = self.config.capabilities.transport(from, at, 1);
        label == Label::Duplication
            && !lends
            && leading.transition.from == from
            && stop.is_empty()
            && demote.is_empty()
            && matches!(transport, Transport::Direct(_))
    }

    /// Enters a page among those that follow a chain.
    fn enter_follower(
        &mut self,
        plan: &mut Plan,
        leading: &Leading,
        transition: Transition,
        page: PageNo,
    ) -> usize {
        let run = self.run_of(page, &leading.entry, &transition);
        let (followers, leader) = (&mut plan.followers, leading.chain);
        let same = |it: &Follower| it.leader == leader && it.part.transition == transition;
        let at = followers.iter().position(same).unwrap_or_else(|| {
            followers.push(Follower { leader, part: OpenPart::new(transition) });
            followers.len() - 1
        });
        followers[at].part.add(run);
        at
    }

    /// The copies beside others begin.
    pub(crate) fn start_followers(&mut self, now: Time, plan: &mut Plan) {
        for Follower { leader, part } in plan.followers.drain(..) {
            let OpenPart { transition, mut runs, pages, faults, .. } = part;
            let card = transition.needs_frames().filter(|_| self.has_idle_chain());
            let Some(card) = card else {
                let until = Until::PagesFree(leader);
                faults.iter().for_each(|&key| self.park(Work::Fault(key), until));
                continue;
            };
            self.take_frames(card, pages, &mut runs);
            self.stats.followed += u64::from(pages);
            let part = Part::new(transition, runs);
            self.start_follower(now, leader, part, Purpose::of_faults(faults));
        }
    }
}
