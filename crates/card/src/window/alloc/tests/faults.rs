//! Errors of the memory of the tables, at every access.

use farside_types::Rights;

use super::super::AllocError;
use super::super::mutation::AllocMutation;
use super::super::regions::Region;
use super::bus::{Arrives, Failing};
use super::random::{Input, run, run_to_the_end, shapes};
use super::seeds::inputs;
use super::world::{Checked, World, config};

const STEPS: usize = 60;

/// Steps while accesses fail; then nothing fails any more, and everything is freed.
pub(super) fn run_failing(world: &mut World, failing: Failing, inputs: &[Input]) -> Checked {
    world.bus.failing = failing;
    run(world, inputs)?;
    world.bus.failing = Failing::None;
    run_to_the_end(world, &[])
}

/// One access fails, a few, or all from one on until the steps end: nothing is given twice, no answer is wrong, and
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
                    Failing::One(at, Arrives::Never),
                    Failing::One(at, Arrives::Always),
                    Failing::Some(at, 2 + nth, Arrives::Some),
                    Failing::From(at, Arrives::Never),
                    Failing::From(at, Arrives::Always),
                    Failing::From(at, Arrives::Some),
                ] {
                    let mut world = World::new(config);
                    run_failing(&mut world, failing, &steps).unwrap_or_else(|error| {
                        panic!("shape {shape}, seed {seed}, {failing:?}: {error}")
                    });
                    failed += u64::from(world.allocator.counts().answers[8] > 0);
                }
            }
        }
    }
    assert!(failed > 500, "{failed} runs with refused commands");
}

/// A page that is the last no more keeps its mark if the word cannot be written; commands go on.
#[test]
fn a_mark_that_cannot_be_taken_away_stays_and_is_counted() {
    for arrives in [Arrives::Never, Arrives::Always, Arrives::Some] {
        let mut world = World::new(&shapes()[0]);
        let malloc = |world: &mut World| world.malloc(3, 0, Rights::ReadWrite, false).unwrap();
        let address = malloc(&mut world).unwrap();
        let page = (address - world.config.base) >> 12;
        let table = world.allocator.regions.table(0).unwrap();
        let last = world.allocator.word_address(table, page + 2);
        assert_eq!(world.realloc(address, 4, false).unwrap(), Some(Ok(address)));
        world.bus.failing = Failing::At(last, arrives);
        for _ in 0..3 {
            assert!(malloc(&mut world).is_ok(), "{arrives:?}");
        }
        assert_eq!(world.allocator.counts().marks_left, 1);
        world.bus.failing = Failing::None;
        assert_eq!(world.realloc(address, 2, false).unwrap(), None);
        run_to_the_end(&mut world, &[]).unwrap();
        assert_eq!(world.allocator.counts().answers[8], 0);
    }
}

/// Where the mark of a free is in memory although the write has failed, and cannot be taken back, the free goes on.
#[test]
fn a_free_whose_mark_cannot_be_taken_back_goes_on() {
    for shift in 0..16 {
        let mut world = World::new(&shapes()[0]);
        let address = world.malloc(3, 0, Rights::ReadWrite, false).unwrap().unwrap();
        world.bus.accesses += shift;
        // The read of the first word, the mark, the word as it was.
        world.bus.failing = Failing::Some(world.bus.accesses + 1, 2, Arrives::Some);
        assert_eq!(world.free(address), Ok(None));
        world.bus.failing = Failing::None;
        run_to_the_end(&mut world, &[]).unwrap();
        assert_eq!(world.allocator.counts().quarantined, 0);
    }
    // With one error it is as it was.
    let mut world = World::new(&shapes()[0]);
    let address = world.malloc(3, 0, Rights::ReadWrite, false).unwrap().unwrap();
    world.bus.failing = Failing::One(world.bus.accesses + 1, Arrives::Always);
    assert_eq!(world.free(address), Ok(Some(Err(AllocError::BusError))));
    world.check().unwrap();
}

/// Where nobody knows what the first word says, another size could be one that it has by mistake.
#[test]
fn an_allocation_whose_count_is_not_known_gets_no_other_size_and_can_be_freed() {
    // Reads, then failing writes: of the words, and of those as they were.
    for (pages, reads, writes) in [(4, 1, 3), (2, 4, 4)] {
        for shift in 0..16 {
            let mut world = World::new(&shapes()[0]);
            let address = world.malloc(3, 0, Rights::ReadWrite, false).unwrap().unwrap();
            world.bus.accesses += shift;
            world.bus.failing = Failing::Some(world.bus.accesses + reads, writes, Arrives::Some);
            let failed = Ok(Some(Err(AllocError::BusError)));
            assert_eq!(world.realloc(address, pages, false), failed);
            world.bus.failing = Failing::None;
            for again in [2, 3, 4, 20] {
                assert_eq!(world.realloc(address, again, false), failed, "{pages}, then {again}");
            }
            assert_eq!(world.free(address), Ok(None));
            run_to_the_end(&mut world, &[]).unwrap();
            let again = world.malloc(3, 0, Rights::ReadWrite, false).unwrap().unwrap();
            assert_eq!(world.realloc(again, 4, false).map(|_| ()), Ok(()));
        }
    }
}

/// A large allocation has its regions to itself, and what stays behind its end would be in it, were it to grow.
#[test]
fn a_large_allocation_behind_whose_end_a_word_stays_does_not_grow_and_can_be_freed() {
    let mut stayed = 0;
    for shift in 0..16 {
        let mut world = World::new(&shapes()[1]);
        let address = world.malloc(21, 0, Rights::Read, false).unwrap().unwrap();
        // A run is cut: its words are those of runs.
        assert!(matches!(world.realloc(address, 5, false), Ok(None)));
        world.invalidated().unwrap();
        world.settle().unwrap();
        assert_eq!(world.realloc(address, 2, false), Ok(None));
        world.invalidated().unwrap();
        let first = (address - world.config.base) >> 12;
        let table = world.allocator.regions.table(0).unwrap();
        world.bus.accesses += shift;
        let at = world.allocator.word_address(table, first + 2);
        world.bus.failing = Failing::At(at, Arrives::Some);
        world.settle().unwrap();
        world.bus.failing = Failing::None;
        world.check().unwrap();
        if world.bus.peek(at) != 0 {
            stayed += 1;
            for pages in [3, 8, 24] {
                let refused = Ok(Some(Err(AllocError::BusError)));
                assert_eq!(world.realloc(address, pages, true), refused, "{pages} pages");
                world.check().unwrap();
            }
        }
        run_to_the_end(&mut world, &[]).unwrap();
    }
    assert!(stayed > 2, "a word stayed {stayed} times");
}

/// The word that stays tells walks of its whole run: were others given pages of that, they would be found there.
#[test]
fn a_page_whose_word_stays_keeps_its_run() {
    let mut stayed = 0;
    for (is_sweep, shift) in (0..64).map(|at| (at % 2 == 0, at)) {
        let mut world = World::new(&shapes()[0]);
        let malloc =
            |world: &mut World, pages| world.malloc(pages, 0, Rights::ReadWrite, false).unwrap();
        let before = malloc(&mut world, 16).unwrap();
        let keeper = malloc(&mut world, 1).unwrap();
        let table = world.allocator.regions.table(1).unwrap();
        let at = world.allocator.word_address(table, 16 + 11);
        world.bus.accesses += shift;
        if is_sweep {
            let address = malloc(&mut world, 8).unwrap();
            assert_eq!(address, keeper + (8 << 12));
            assert_eq!(world.free(address), Ok(None));
            world.invalidated().unwrap();
            world.bus.failing = Failing::At(at, Arrives::Never);
        } else {
            world.bus.failing = Failing::At(at, Arrives::Some);
            assert_eq!(malloc(&mut world, 8), Err(AllocError::BusError));
        }
        world.settle().unwrap();
        world.bus.failing = Failing::None;
        let stays = world.translation(16 + 11);
        stayed += u64::from(stays.is_ok_and(|mapping| mapping.size == 3));
        let others: Vec<u64> = (0..7).map(|_| malloc(&mut world, 1).unwrap()).collect();
        let more = malloc(&mut world, 1).unwrap();
        let is_beside = more >> 12 & 0xff == (keeper >> 12 & 0xff) + 8;
        assert!(!(stays.is_ok() && is_beside), "{others:x?}, {more:x} behind {before:x}");
    }
    assert!(stayed > 32, "the word stays {stayed} times");
}

/// A word behind a cut that stays tells of the run as it was: what is left of that is not used again either.
#[test]
fn what_was_cut_from_a_run_whose_word_stays_is_not_used_again() {
    let mut world = World::new(&config(&[3, 7], &[1200]));
    let malloc =
        |world: &mut World, pages| world.malloc(pages, 0, Rights::ReadWrite, false).unwrap();
    let address = malloc(&mut world, 64).unwrap();
    assert_eq!(world.realloc(address, 5, false), Ok(None));
    world.invalidated().unwrap();
    let table = world.allocator.regions.table(0).unwrap();
    world.bus.failing = Failing::At(world.allocator.word_address(table, 20), Arrives::Never);
    world.settle().unwrap();
    world.bus.failing = Failing::None;
    assert_eq!(world.translation(20).map(|mapping| mapping.size), Ok(6), "as it was");
    assert_eq!(world.free(address), Ok(None));
    let free = world.allocator.free_frames(0);
    world.settle().unwrap();
    assert_eq!(world.allocator.free_frames(0), free, "the run's frames stay");
    for _ in 0..64 {
        let page = (malloc(&mut world, 1).unwrap() - world.config.base) >> 12;
        assert!(page >= 64, "{page} is in the run");
    }
}

/// While an allocation waits to move beside another, that one is freed and swept; then it does not move, because a
/// word cannot be read, and the table is nobody's.
#[test]
fn a_table_that_nobody_came_to_after_all_is_given_back() {
    // The move fails behind the sweep, or between its last step and the invalidation behind that.
    for is_swept in [true, false] {
        assert_eq!(state_of_a_region_that_nobody_came_to(is_swept, None), Region::Empty);
    }
    let stays = state_of_a_region_that_nobody_came_to(true, Some(AllocMutation::UnusedRegionStays));
    assert!(matches!(stays, Region::Shared { used: 0, .. }), "{stays:?}");
}

fn state_of_a_region_that_nobody_came_to(
    is_swept: bool,
    mutation: Option<AllocMutation>,
) -> Region {
    let mut world = World::new(&config(&[1, 4], &[60]));
    mutation.into_iter().for_each(|mutation| world.mutate(mutation));
    let malloc = |world: &mut World, pages| {
        world.malloc(pages, 0, Rights::ReadWrite, false).unwrap().unwrap()
    };
    let moving = malloc(&mut world, 4);
    malloc(&mut world, 12);
    let other = malloc(&mut world, 3);
    assert_eq!(world.free(other), Ok(None));
    assert_eq!(world.invalidated(), Ok(Some(Ok(0))));
    assert_eq!(world.realloc(moving, 5, false), Ok(None));
    let used = |world: &World| world.allocator.regions.used(1);
    assert_eq!(used(&world), Some(3 + 5), "it is about to come");
    while world.ending().is_none() {
        assert!(world.sweep());
    }
    if is_swept {
        world.swept().unwrap();
        assert_eq!(used(&world), Some(5));
    }
    // Its four words cannot be read.
    world.bus.failing = Failing::Some(world.bus.accesses, 4, Arrives::Never);
    assert_eq!(world.invalidated(), Ok(Some(Err(AllocError::BusError))));
    world.bus.failing = Failing::None;
    world.check().unwrap();
    assert_eq!(world.allocator.counts().quarantined, 0);
    world.allocator.regions.state(1)
}

#[test]
fn an_initialisation_that_fails_is_tried_again() {
    for config in shapes() {
        let mut world = World::uninitialised(&config);
        world.bus.failing = Failing::One(3, Arrives::Never);
        assert!(world.allocator.initialise(&mut world.bus).is_err());
        let malloc = world.malloc(1, 0, Rights::Read, false).unwrap();
        assert_eq!(malloc, Err(AllocError::Initialising));
        assert!(world.allocator.initialise(&mut world.bus).is_ok());
        run_to_the_end(&mut world, &inputs(1, STEPS)).unwrap();
    }
}
