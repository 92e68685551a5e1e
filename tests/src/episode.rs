//! A random run: rounds of hostile steps, each ended by rest and all checks, and a last look for
//! lost frames.

use std::panic::{AssertUnwindSafe, catch_unwind};

use farside_svm::{Outcome, Request};
use farside_types::{CardId, PageNo};

use crate::hostility::Hostility;
use crate::setup::Setup;
use crate::violation::{Failure, Violation};
use crate::world::World;

/// Steps of a round, at least.
const ROUND_STEPS: u64 = 300;

/// Runs a world of this setup for at least `steps` steps; gives back how many it did. With the
/// environment variable `FARSIDE_LOG` set a failure prints the whole log.
///
/// # Errors
/// The rule that was broken; a panic of the driver counts as one.
pub fn run_episode(setup: Setup, steps: u64) -> Result<u64, Failure> {
    let mut world = World::new(setup);
    if std::env::var_os("FARSIDE_LOG").is_some() {
        world.keep_log();
    }
    let run = catch_unwind(AssertUnwindSafe(|| world.episode(steps)));
    run.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string()))
            .unwrap_or_default();
        Err(world.fail(Violation(format!("a panic: {text}"))))
    })?;
    Ok(world.steps())
}

impl World {
    /// Walks of the tables of each card behind rings, and pages that found no room there, since it came last.
    #[cfg(test)]
    fn tables(&self) -> impl Iterator<Item = (u64, u64)> {
        let ports = self.machine.cards.iter().filter_map(|card| card.port.as_ref());
        ports.map(|port| port.tables())
    }

    /// Rounds until `steps` steps are done.
    fn episode(&mut self, steps: u64) -> Result<(), Failure> {
        while self.steps() < steps {
            self.break_a_page();
            self.come_alive();
            let round = ROUND_STEPS + self.machine.rng.below(5 * ROUND_STEPS);
            for _ in 0..round {
                self.step()?;
            }
            self.cut_scripts();
            self.drive()?;
        }
        self.tidy_up()
    }

    /// Sometimes the copies of one page always fail for a round.
    fn break_a_page(&mut self) {
        let machine = &mut self.machine;
        let breaks = machine.hostility.broken_page && machine.rng.chance(300);
        let page = PageNo(machine.arena.start.0 + machine.rng.below(64));
        machine.broken_page = breaks.then_some(page);
    }

    /// Frees everything; then every card must have all its frames to give.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn tidy_up(&mut self) -> Result<(), Failure> {
        self.machine.broken_page = None;
        self.machine.hostility = Hostility::none();
        for range in self.machine.allocations.clone() {
            let answer = self.ask(self.machine.end_of(range))?;
            if let Err(error) = answer {
                return Err(self.fail(Violation(format!("freeing {range} failed: {error}"))));
            }
        }
        for card in (0..self.machine.cards.len()).map(|i| CardId(i as u8)) {
            if self.machine.cards[usize::from(card.0)].doubtful {
                self.reset_card(card)?;
            }
        }
        self.drive()?;
        for card in (0..self.machine.cards.len()).map(|i| CardId(i as u8)) {
            if !self.machine.cards[usize::from(card.0)].lost {
                self.fill_card(card)?;
            }
        }
        Ok(())
    }

    /// Fills a card to the last frame: none was lost on the way.
    fn fill_card(&mut self, card: CardId) -> Result<(), Failure> {
        let frames = self.machine.memory(card.memory()).frames.len() as u64;
        let range = self.alloc(frames)?;
        let answer = self.ask(Request::Migrate { range, to: card.memory() })?;
        if !matches!(answer, Ok(Outcome::Done { .. })) {
            let text = format!("{card} is empty, but {frames} pages do not fit: {answer:?}");
            return Err(self.fail(Violation(text)));
        }
        let freed = self.ask(Request::Free { addr: range.start.addr() })?;
        if let Err(error) = freed {
            return Err(self.fail(Violation(format!("freeing {range} failed: {error}"))));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use farside_svm::Stats;
    use farside_types::Reason;

    use super::*;

    #[test]
    fn cards_of_random_runs_with_rings_have_full_tables_and_room_too() {
        let tables = |seed| {
            let mut world = World::new(Setup::random_rings(seed, Hostility::none()));
            world.episode(2_000).unwrap_or_else(|failure| panic!("{failure}"));
            world.tables().map(|(walks, full)| (walks > 0, full > 0)).collect::<Vec<_>>()
        };
        let found: Vec<(bool, bool)> = (10_000..10_012).flat_map(tables).collect();
        let (room, no_room, none) = ((true, false), (false, true), (false, false));
        for kind in [room, no_room, none] {
            assert!(found.contains(&kind), "walks and full: {kind:?} is not in {found:?}");
        }
    }

    #[test]
    fn worlds_that_lend_have_pages_of_every_fate() {
        let mut sum = [0; 4];
        for seed in 3_000..3_024 {
            let mut world = World::new(Setup::random(seed, Hostility::reordering()).lending());
            world.episode(3_000).unwrap_or_else(|failure| panic!("{failure}"));
            let Stats { lent, lent_written, lent_clean, evictions, .. } = world.driver.stats();
            let found = [*lent, *lent_written, *lent_clean, *evictions];
            sum.iter_mut().zip(found).for_each(|(sum, found)| *sum += found);
        }
        assert!(sum.iter().all(|&pages| pages >= 10), "lent, written, clean, evicted: {sum:?}");
    }

    #[test]
    fn worlds_that_know_costs_have_pages_that_stay_and_pages_that_come_along() {
        let mut sum = [0; 2];
        for seed in 8_000..8_024 {
            let setup = Setup::random(seed, Hostility::reordering()).knowing_costs();
            let mut world = World::new(setup);
            world.episode(3_000).unwrap_or_else(|failure| panic!("{failure}"));
            let Stats { remote_maps, by_reason, .. } = world.driver.stats();
            let along = by_reason.get(&Reason::Prefetch).copied().unwrap_or_default();
            (sum[0], sum[1]) = (sum[0] + remote_maps, sum[1] + along);
        }
        assert!(sum.iter().all(|&pages| pages >= 10), "mapped, came along: {sum:?}");
    }
}
