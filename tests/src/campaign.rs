//! Many random runs: of one level of hostility, and with a rule broken on purpose.
//!
//! The usual seeds and new ones, or what `FARSIDE_SEED` says ([`crate::seeds`]); `FARSIDE_STEPS=n` makes
//! every run so many steps long.

use std::fmt::Debug;
use std::ops::Range;

use crate::episode::run_episode;
use crate::seeds::seeds_and_new_ones;
use crate::setup::Setup;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}; give it a number")))
}

/// Runs a world for each of the usual seeds and for as many new ones, of `steps` steps at least.
///
/// # Panics
/// If a rule is broken: with seed, step, configuration and the last lines of the log.
pub fn run_level(level: &str, seeds: Range<u64>, steps: u64, setup: impl Fn(u64) -> Setup) {
    let seeds = seeds_and_new_ones(seeds);
    let steps = number("FARSIDE_STEPS").unwrap_or(steps);
    println!("{level}: seeds {seeds:?}, {steps} steps each");
    let mut done = 0;
    for seed in seeds.into_iter().flatten() {
        match run_episode(setup(seed), steps) {
            Ok(count) => done += count,
            Err(failure) => panic!("{level}, runs of {steps} steps (FARSIDE_STEPS):\n{failure}"),
        }
    }
    println!("{level}: {done} steps");
}

/// Runs worlds with a broken rule until one of them notices.
///
/// # Panics
/// If none of `runs` does.
pub fn must_be_caught(rule: impl Debug, runs: u64, steps: u64, setup: impl Fn(u64) -> Setup) {
    for run in 0..runs {
        if let Err(failure) = run_episode(setup(run), steps) {
            println!("{rule:?} caught in run {run}: {}", failure.violation);
            return;
        }
    }
    panic!("{rule:?} survived {runs} runs of {steps} steps: the harness does not see it");
}

/// A test for each mutation, by `must_be_caught` of the file that uses it, and one that none of them
/// is forgotten.
#[macro_export]
macro_rules! mutations {
    ($all:ident { $($name:ident: $mutation:ident,)+ }) => {
        $(
            #[test]
            fn $name() {
                must_be_caught($all::$mutation);
            }
        )+

        #[test]
        fn every_mutation_has_a_test() {
            let tested = [$($all::$mutation),+];
            for mutation in $all::ALL {
                assert!(tested.contains(&mutation), "{mutation:?} has no test in this file");
            }
        }
    };
}
