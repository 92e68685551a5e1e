//! Errors of the memory of the tables, at every access.

use super::bus::Failing;
use super::random::{run, run_to_the_end, shapes};
use super::seeds::inputs;
use super::world::World;

const STEPS: usize = 60;

/// One access fails, or all from one on until the steps end: nothing is given twice, no answer is wrong, and
/// what was allocated stays; pages may stay in use.
#[test]
fn whatever_access_fails_the_tables_make_sense() {
    let mut failed = 0;
    for (shape, config) in shapes().iter().enumerate() {
        for seed in 0..14 {
            let steps = inputs(seed + 1000 * shape as u64, STEPS);
            let mut world = World::new(config);
            let begin = world.bus.accesses;
            run(&mut world, &steps).unwrap();
            let accesses = world.bus.accesses - begin;
            for nth in 0..24 {
                let at = begin + accesses * nth / 24 + seed % 7;
                for failing in [
                    Failing::One(at, false),
                    Failing::One(at, true),
                    Failing::From(at, false),
                    Failing::From(at, true),
                ] {
                    let mut world = World::new(config);
                    world.bus.failing = failing;
                    run(&mut world, &steps)
                        .and_then(|()| {
                            world.bus.failing = Failing::None;
                            run_to_the_end(&mut world, &[])
                        })
                        .unwrap_or_else(|error| {
                            panic!("shape {shape}, seed {seed}, {failing:?}: {error}")
                        });
                    failed += u64::from(world.allocator.counts().answers[8] > 0);
                }
            }
        }
    }
    assert!(failed > 500, "{failed} runs with refused commands");
}

/// The old place of others is swept while an allocation is about to move beside it; then it does not, because a
/// word cannot be read, and its table is nobody's.
#[test]
fn a_table_that_nobody_came_to_after_all_is_given_back() {
    let mut world = World::new(&shapes()[0]);
    world.bus.failing = Failing::One(198, false);
    run_to_the_end(&mut world, &inputs(52, STEPS)).unwrap();
}

#[test]
fn an_initialisation_that_fails_is_tried_again() {
    for config in shapes() {
        let mut world = World::uninitialised(&config);
        world.bus.failing = Failing::One(3, false);
        assert!(world.allocator.initialise(&mut world.bus).is_err());
        let malloc = world.malloc(1, 0, farside_types::Rights::Read, false).unwrap();
        assert_eq!(malloc, Err(super::super::AllocError::Initialising));
        assert!(world.allocator.initialise(&mut world.bus).is_ok());
        run_to_the_end(&mut world, &inputs(1, STEPS)).unwrap();
    }
}
