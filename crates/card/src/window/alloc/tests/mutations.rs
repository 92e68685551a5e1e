//! Negative controls: each mistake is caught, by random steps or by one of the errors of memory.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::mutation::AllocMutation;
use super::bus::{Arrives, Failing};
use super::faults::run_failing;
use super::random::{run_to_the_end, shapes};
use super::seeds::inputs;
use super::world::{Checked, World};

/// Mistakes that need a certain order of things, or memory that somebody else has changed: their tests are in
/// `scenarios.rs`, `faults.rs` and `corrupted.rs`.
const ELSEWHERE: [AllocMutation; 8] = [
    AllocMutation::RegionForEach,
    AllocMutation::DirectoryFirst,
    AllocMutation::MoveKeepsSizes,
    AllocMutation::WordsAreTrusted,
    AllocMutation::BitmapsAreTrusted,
    AllocMutation::SweepTakesOthers,
    AllocMutation::WordsFreeTables,
    AllocMutation::UnusedRegionStays,
];
/// Inputs that a mistake may survive, for each of the shapes.
const INPUTS: u64 = 700;
const STEPS: usize = 150;

/// Mistakes that only errors of memory show.
const OF_ERRORS: [AllocMutation; 2] =
    [AllocMutation::FailedWriteIsForgotten, AllocMutation::TouchIgnoresErrors];

fn world(seed: u64, mutation: Option<AllocMutation>) -> World {
    let shapes = shapes();
    let mut world = World::new(&shapes[seed as usize % shapes.len()]);
    mutation.into_iter().for_each(|mutation| world.mutate(mutation));
    world
}

/// Steps, and everything is freed.
fn without_errors(seed: u64, mutation: Option<AllocMutation>) -> Checked {
    run_to_the_end(&mut world(seed, mutation), &inputs(seed, STEPS))
}

/// The same, where some accesses fail.
fn with_errors(seed: u64, mutation: Option<AllocMutation>) -> Checked {
    let mut world = world(seed, mutation);
    let at = world.bus.accesses + seed % 97 * 5;
    let failing = Failing::Some(at, 1 + seed % 40, Arrives::Some);
    run_failing(&mut world, failing, &inputs(seed, STEPS))
}

/// Whether something goes wrong with these steps.
fn catches(mutation: AllocMutation, seed: u64) -> bool {
    let check = if OF_ERRORS.contains(&mutation) { with_errors } else { without_errors };
    match catch_unwind(AssertUnwindSafe(|| check(seed, Some(mutation)))) {
        Ok(Ok(())) => false,
        Ok(Err(error)) => {
            println!("{mutation:?} caught with seed {seed}: {error}");
            true
        }
        Err(_) => true,
    }
}

#[test]
fn every_mistake_is_caught() {
    let missed: Vec<AllocMutation> = AllocMutation::ALL
        .into_iter()
        .filter(|mutation| !ELSEWHERE.contains(mutation))
        .filter(|&mutation| !(0..INPUTS).any(|seed| catches(mutation, seed)))
        .collect();
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

#[test]
fn without_a_mistake_there_is_nothing_to_catch() {
    for seed in 0..INPUTS {
        for check in [without_errors, with_errors] {
            check(seed, None).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}
