//! Agents that fight over a page: seen, damped, released (driver rule 10).
//!
//! A page that moves on demand again and again within the window is a fight. First it rests for a
//! minimum residency after each move, so that whoever has it gets something done; if that does not
//! end it, it is pinned where it is for a while and the others map it over the bus. Where one of
//! them cannot (the CPU does not map card memory) it is pinned on the host.

use farside_types::{AgentSet, PageNo, Reason, Time};

use crate::Driver;
use crate::driver::Due;
use crate::migration::planner::Asker;
use crate::migration::transition::{Transition, location};
use crate::placement::{Action, Decision};
use crate::tables::page::{PageEntry, PageState, flag};

impl Driver {
    /// What a fight over `page` demands: a decision, nothing, or patience until some time.
    pub(crate) fn settle_fight(
        &mut self,
        now: Time,
        page: PageNo,
        entry: &PageEntry,
        asker: Asker,
    ) -> Result<Option<Decision>, Time> {
        let Asker { agent, access, .. } = asker;
        if entry.has(flag::THRASH_PINNED) {
            return Ok(Some(Decision::page(Action::MapRemote, Reason::Thrash)));
        }
        let config = self.config.thrash;
        let bounces = entry.directory.bounces();
        let at_home = entry.directory.copies().contains(agent.home());
        if bounces < config.throttle_after || (at_home && !access.is_write()) {
            return Ok(None);
        }
        let rested = entry.residency(now);
        if rested >= config.window {
            return Ok(None);
        }
        let agents = entry.directory.mappers().with(agent).with(entry.owner().agent());
        if bounces >= config.pin_after {
            self.pin_fought(now, page, agents);
            return Ok(Some(Decision::page(Action::MapRemote, Reason::Thrash)));
        }
        if rested >= config.minimum_residency {
            return Ok(None);
        }
        self.stats.throttles += 1;
        if let Some(fight) = self.history.fight(page, agents) {
            fight.throttles += 1;
        }
        Err(now + (config.minimum_residency - rested))
    }

    fn pin_fought(&mut self, now: Time, page: PageNo, agents: AgentSet) {
        self.stats.thrash_pins += 1;
        self.table.get_mut(page).set(flag::THRASH_PINNED, true);
        if let Some(fight) = self.history.fight(page, agents) {
            fight.pins += 1;
        }
        self.set_timer(now + self.config.thrash.pin_for, Due::Unpin(page));
    }

    /// The pin has lasted long enough: those who map the page over the bus lose it, so that the
    /// next access places it anew.
    pub(crate) fn end_thrash_pin(&mut self, now: Time, page: PageNo) {
        if !self.table.get(page).has(flag::THRASH_PINNED) {
            return;
        }
        if !self.has_idle_chain() {
            return self.set_timer(now + self.config.thrash.window, Due::Unpin(page));
        }
        let entry = self.table.get_mut(page);
        entry.set(flag::THRASH_PINNED, false);
        entry.directory.set_bounces(0);
        let entry = *entry;
        let settled = matches!(entry.state, PageState::Host | PageState::Card);
        let (copies, owner) = (entry.directory.copies(), entry.owner());
        let remote: AgentSet = entry
            .directory
            .mappers()
            .iter()
            .filter(|&agent| location(agent, copies, owner) != agent.home())
            .collect();
        if !settled || remote.is_empty() || entry.has(flag::DOOMED) {
            return;
        }
        let mut transition = Transition::unchanged(copies, owner, Reason::Thrash);
        transition.stop = remote;
        let mut plan = self.scratch.plans.take();
        self.enter(&mut plan, transition, page, &entry);
        self.start_plan(now, plan, None);
    }
}

#[cfg(test)]
mod tests {
    use farside_types::Access;

    use crate::placement::fixture::Fixture;

    #[test]
    fn a_fault_for_rights_that_has_to_wait_while_its_page_rests_counts_once() {
        let mut fixture = Fixture::new("duplication", 1, 64, 1);
        fixture.driver.config.thrash =
            crate::ThrashConfig { contests: false, ..Default::default() };
        fixture.launch(0);
        fixture.quick();
        let page = fixture.page(0);
        // The card reads it and then wants to write it, each time behind the host.
        for _ in 0..3 {
            fixture.read(0, page);
            fixture.write(0, page);
            fixture.cpu(page, Access::Write);
        }
        fixture.read(0, page);
        let before = fixture.driver.stats().clone();
        fixture.write(0, page);
        assert_eq!(fixture.driver.stats().throttles - before.throttles, 1, "it has to wait");
        fixture.later();
        fixture.timers();
        let after = fixture.driver.stats();
        assert_eq!(after.protection_faults - before.protection_faults, 1);
        assert!(fixture.driver.page(page).writers.contains(farside_types::CardId(0).agent()));
    }
}
