//! Moves that nobody waits for: what an access counter, a scheme's samples or its tick ask for.

use farside_types::{Access, AgentId, CardId, PageRange, Reason, Time};

use crate::Driver;
use crate::api::journal::Note;
use crate::migration::transition::location;
use crate::placement::{Action, CounterView, Proposal, Scope};
use crate::tables::page::{PageEntry, flag};
use crate::waiting::Work;

impl Driver {
    /// A card's accesses to a group reached the threshold: the scheme decides.
    pub(crate) fn counter_notice(&mut self, now: Time, card: CardId, pages: PageRange, count: u32) {
        self.note(Note::Notice { card, pages });
        let agent = card.agent();
        if self.probe_contest(now, agent, pages) {
            return;
        }
        let view = CounterView { now, pages, agent, count, costs: self.costs() };
        let mut decisions = self.scratch.decisions.take();
        self.placement.on_counter(&view, &mut decisions);
        for decision in decisions.drain(..) {
            let range = match decision.scope {
                Scope::Page | Scope::Group => pages,
                Scope::Range(range) => range,
                Scope::Object => {
                    self.space.holding(pages.start).map_or(pages, |object| object.range)
                }
            };
            let (action, reason) = (decision.action, decision.reason);
            self.work.push_back(Work::Move { range, agent, action, reason });
        }
        self.scratch.decisions.keep(decisions);
    }

    /// The scheme's tick.
    pub(crate) fn tick(&mut self, now: Time) {
        let proposals = self.placement.on_tick(now);
        self.take_proposals(proposals);
        self.arm_tick();
    }

    /// Moves that the scheme wants by itself.
    pub(crate) fn take_proposals(&mut self, proposals: Vec<Proposal>) {
        for Proposal { pages, to, reason } in proposals {
            let (agent, action) = (to.agent(), Action::Migrate);
            self.work.push_back(Work::Move { range: pages, agent, action, reason });
        }
    }

    /// A move that the driver or a scheme wants; pages that are on the move are left alone.
    pub(crate) fn serve_move(
        &mut self,
        now: Time,
        range: PageRange,
        agent: AgentId,
        action: Action,
        reason: Reason,
    ) {
        if !self.is_usable(agent.home()) {
            return;
        }
        let mut plan = self.scratch.plans.take();
        for page in self.known(range).pages() {
            let entry = *self.table.get(page);
            let busy = self.may_plan(page, &entry, None).is_err();
            let held = entry.has(flag::PINNED) || entry.directory.copies().is_empty();
            if busy || held || self.refusal(&entry, agent, Access::Read).is_some() {
                continue;
            }
            let here = location(agent, entry.directory.copies(), entry.owner()) == agent.home();
            if here && entry.directory.mappers().contains(agent) {
                continue;
            }
            let access = self.move_access(&entry, action);
            if let Ok(transition) = self.transition(&entry, agent, access, action, reason, false) {
                self.enter(&mut plan, transition, page, &entry);
            }
        }
        self.start_plan(now, plan, None);
    }

    /// A page that may be written migrates with the right to write.
    fn move_access(&self, entry: &PageEntry, action: Action) -> Access {
        let migrates = action == Action::Migrate;
        if migrates && !entry.has(flag::READ_ONLY) { Access::Write } else { Access::Read }
    }
}
