//! The randomised runs: the real driver against the hostile machine, judged by a flat memory.
//!
//! Each test has its usual seeds, and as many that are drawn each time: what fails with one of those is
//! real, and was there before. `FARSIDE_SEED=n` runs that seed alone, `FARSIDE_SEED=n..` as many as usual
//! from `n` on, and `FARSIDE_STEPS=n` makes every run so many steps long (the long mode). A failure prints
//! seed, step, configuration and the last lines of the log; its legend is in `harness::log`.

use harness::{Hostility, Setup, run_episode, run_level};

/// Seeds of one level of hostility: each scheme with each way to reach a card, twice.
const SEEDS: u64 = 2 * Setup::ROUND;

/// Steps of one seed: three levels x 36 seeds x 10,000 steps are 1,080,000, and as many with new seeds.
const STEPS: u64 = 10_000;

fn run(level: &str, hostility: &Hostility, first_seed: u64) {
    let seeds = first_seed..first_seed + SEEDS;
    run_level(level, seeds, STEPS, |seed| Setup::random(seed, hostility.clone()));
}

#[test]
fn a_friendly_machine() {
    run("friendly", &Hostility::none(), 0);
}

#[test]
fn a_machine_that_reorders() {
    run("reordering", &Hostility::reordering(), 1_000);
}

#[test]
fn a_machine_that_breaks() {
    run("breaking", &Hostility::breaking(), 2_000);
}

#[test]
fn pages_on_loan() {
    for (hostility, first) in [(Hostility::reordering(), 3_000), (Hostility::breaking(), 4_000)] {
        let lending = |seed| Setup::random(seed, hostility.clone()).lending();
        run_level("loans", first..first + SEEDS, STEPS, lending);
    }
}

#[test]
fn costs_that_are_known() {
    for (hostility, first) in [(Hostility::reordering(), 8_000), (Hostility::breaking(), 9_000)] {
        let knowing = |seed| Setup::random(seed, hostility.clone()).knowing_costs();
        run_level("costs", first..first + SEEDS, STEPS, knowing);
    }
}

#[test]
fn cards_that_read_at_once() {
    for (hostility, first) in [(Hostility::reordering(), 10_000), (Hostility::breaking(), 11_000)] {
        let readers = |seed| Setup::random(seed, hostility.clone()).reading_at_once();
        run_level("readers", first..first + SEEDS, STEPS, readers);
    }
}

#[test]
fn memory_that_the_program_had_before() {
    let levels = [Hostility::none(), Hostility::reordering(), Hostility::breaking()];
    for (hostility, first) in levels.into_iter().zip([5_000, 6_000, 7_000]) {
        let adopting = |seed| Setup::random(seed, hostility.clone()).adopting();
        run_level("adoption", first..first + SEEDS, STEPS, adopting);
    }
}

#[test]
fn equal_seeds_take_equal_steps() {
    let run = || run_episode(Setup::random(7, Hostility::reordering()), 2_000);
    let (first, second) = (run(), run());
    assert_eq!(first.expect("it passes"), second.expect("it passes"));
}
