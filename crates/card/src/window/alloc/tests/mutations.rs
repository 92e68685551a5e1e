//! Negative controls: each mistake is caught, by random steps or by one of the errors of memory.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::mutation::AllocMutation;
use super::bus::Failing;
use super::random::{run_to_the_end, shapes};
use super::seeds::inputs;
use super::world::World;

/// Mistakes that need a certain order of things: their tests are in `scenarios.rs`.
const ELSEWHERE: [AllocMutation; 3] =
    [AllocMutation::RegionForEach, AllocMutation::DirectoryFirst, AllocMutation::MoveKeepsSizes];
/// Inputs that a mistake may survive, for each of the shapes.
const INPUTS: u64 = 300;
const STEPS: usize = 150;

/// Whether something goes wrong with these steps.
fn catches(mutation: AllocMutation, seed: u64) -> bool {
    let shapes = shapes();
    let mut world = World::new(&shapes[seed as usize % shapes.len()]);
    world.mutate(mutation);
    if matches!(mutation, AllocMutation::FailedWriteIsForgotten | AllocMutation::TouchIgnoresErrors)
    {
        let at = world.bus.accesses + seed % 97 * 5;
        world.bus.failing =
            if seed & 1 == 0 { Failing::From(at, true) } else { Failing::One(at, false) };
    }
    let ended = catch_unwind(AssertUnwindSafe(|| run_to_the_end(&mut world, &inputs(seed, STEPS))));
    match ended {
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
        let shapes = shapes();
        let mut world = World::new(&shapes[seed as usize % shapes.len()]);
        run_to_the_end(&mut world, &inputs(seed, STEPS))
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
