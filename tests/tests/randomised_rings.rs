//! The randomised runs with cards behind registers and rings: the same driver and the same judge, and
//! between them the production driver of the card interface, rings that are often full, a doorbell, an
//! interrupt, and the card's model with its front.
//!
//! Each test has its usual seeds, and as many that are drawn each time: what fails with one of those is
//! real, and was there before. `FARSIDE_SEED=n` runs that seed alone, `FARSIDE_SEED=n..` as many as usual
//! from `n` on, and `FARSIDE_STEPS=n` makes every run so many steps long. A failure prints seed, step,
//! configuration and the last lines of the log; its legend is in `harness::log`.

use harness::{Hostility, Setup, run_episode, run_level};

/// Seeds of one level of hostility: each scheme with each way to reach a card.
const SEEDS: u64 = Setup::ROUND;

/// Steps of one seed: five levels x 18 seeds x 10,000 steps are 900,000, and as many with new seeds.
const STEPS: u64 = 10_000;

fn run(level: &str, hostility: &Hostility, first_seed: u64) {
    let seeds = first_seed..first_seed + SEEDS;
    run_level(level, seeds, STEPS, |seed| Setup::random_rings(seed, hostility.clone()));
}

#[test]
fn a_friendly_machine_with_rings() {
    run("friendly", &Hostility::none(), 10_000);
}

#[test]
fn a_machine_that_reorders_with_rings() {
    run("reordering", &Hostility::reordering(), 11_000);
}

#[test]
fn a_machine_with_rings_that_breaks() {
    run("breaking", &Hostility::breaking(), 12_000);
}

/// Its cards refuse commands often, and nothing else goes wrong.
#[test]
fn a_machine_with_rings_that_refuses() {
    let hostility = Hostility { ring_failure: 40, ..Hostility::reordering() };
    run("refusing", &hostility, 14_000);
}

/// Its jobs fill rings with faults.
#[test]
fn a_crowded_machine_with_rings_that_breaks() {
    let seeds = 16_000..16_000 + SEEDS;
    let setup = |seed| Setup::random_rings(seed, Hostility::breaking()).crowded();
    run_level("crowded", seeds, STEPS, setup);
}

#[test]
fn equal_seeds_take_equal_steps() {
    let run = || run_episode(Setup::random_rings(7, Hostility::reordering()), 2_000);
    let (first, second) = (run(), run());
    assert_eq!(first.expect("it passes"), second.expect("it passes"));
}
