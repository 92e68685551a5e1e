//! Commands, accesses and steps of the background in any order.

use farside_types::{Access, Rights};
use proptest::prelude::*;

use super::super::{AllocError, AllocatorConfig};
use super::world::{Checked, World, config};

/// One step: what, and with what.
pub(super) type Input = [u8; 4];

/// Sizes that the steps are run with.
pub(super) fn shapes() -> Vec<AllocatorConfig> {
    vec![
        config(&[3, 4], &[160, 40, 70]),
        config(&[2, 2, 3], &[70, 40]),
        config(&[7], &[90]),
        config(&[1, 2, 1, 3], &[60]),
        config(&[3, 7], &[1200]),
    ]
}

/// Runs steps. What goes wrong is the error.
pub(super) fn run(world: &mut World, inputs: &[Input]) -> Checked {
    for &input in inputs {
        step(world, input).map_err(|error| format!("{input:?}: {error}"))?;
    }
    world.check()
}

/// Frees everything that is left: everything is there again.
pub(super) fn run_to_the_end(world: &mut World, inputs: &[Input]) -> Checked {
    run(world, inputs)?;
    while let Some((&first, _)) = world.live.iter().next() {
        match world.free(world.address(first))? {
            Some(Err(_)) if world.is_quarantining() => drop(world.live.remove(&first)),
            Some(Err(error)) => return Err(format!("{first} cannot be freed: {error:?}")),
            _ => {}
        }
        world.settle()?;
    }
    world.check()?;
    let (tables, ready) = world.allocator.leaf_tables();
    if tables != ready && !world.is_quarantining() {
        return Err(format!(
            "{tables} tables, of which {ready} are ready, and nothing is allocated"
        ));
    }
    Ok(())
}

fn step(world: &mut World, [what, a, b, c]: Input) -> Checked {
    let region = world.allocator.layout.region_pages();
    let window = world.allocator.layout.regions * region;
    let nth = |world: &World| {
        let count = world.live.len().max(1);
        world.live.iter().nth(usize::from(a) % count).map(|(&first, of)| (first, of.pages))
    };
    let size = match c % 8 {
        0..=4 => u64::from(b) % 9 + 1,
        5 => u64::from(b) % (2 * region) + 1,
        6 => region * (u64::from(b) % 3 + 1),
        _ => region * (u64::from(b) % 3) + region / 2 + 1,
    };
    match what % 16 {
        0..=3 => {
            let memories = world.config.memories.len() as u8;
            let rights = if a & 8 == 0 { Rights::ReadWrite } else { Rights::Read };
            // Now and then one that there is not.
            let memory = a % 8 % (memories + 1);
            let answer = world.malloc(size, memory, rights, c & 32 != 0)?;
            let is_known = memory < memories;
            check_malloc(world, answer, size, is_known, memory, c & 32 != 0)
        }
        4 | 5 => match nth(world) {
            Some((first, _)) => world.realloc(world.address(first), size, c & 32 != 0).map(drop),
            None => Ok(()),
        },
        6 => match nth(world) {
            Some((first, pages)) => {
                let new = pages + u64::from(b) % 3;
                world.realloc(world.address(first), new, c & 32 != 0).map(drop)
            }
            None => Ok(()),
        },
        7 | 8 => match nth(world) {
            Some((first, _)) => world.free(world.address(first)).map(drop),
            None => Ok(()),
        },
        9 => {
            let page = (u64::from(a) << 8 | u64::from(b)) % (window + 2);
            let unaligned = u64::from(c % 3 / 2);
            world.free(world.address(page) + unaligned).map(drop)
        }
        10 => world.invalidated().map(drop),
        11 => {
            for _ in 0..b % 8 {
                world.sweep();
            }
            Ok(())
        }
        12 => world.swept(),
        13 | 14 => {
            let page = match nth(world) {
                Some((first, pages)) if c % 8 != 0 => first + u64::from(b) % (pages + 1),
                _ => u64::from(b),
            };
            let access = if c & 16 == 0 { Access::Read } else { Access::Write };
            if what & 32 == 0 {
                return world.access(page % window, access);
            }
            world.begin_walk(page % window);
            Ok(())
        }
        _ if b % 4 == 0 && !world.is_waiting() => world.check(),
        _ => world.end_walk(),
    }
}

/// Whether the answer to a malloc can be.
fn check_malloc(
    world: &World,
    answer: Result<u64, AllocError>,
    size: u64,
    is_known: bool,
    memory: u8,
    lazy: bool,
) -> Checked {
    let is_there = match answer {
        Ok(_) => is_known && size <= world.pages(),
        Err(AllocError::UnknownMemory) => !is_known,
        Err(error) => world.may_refuse(error, size, memory, lazy),
    };
    if is_there { Ok(()) } else { Err(format!("malloc of {size} is answered {answer:?}")) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn tables_say_what_was_asked_for_whatever_is_done(
        shape in 0usize..5,
        inputs in proptest::collection::vec(any::<Input>(), 0..160),
    ) {
        let mut world = World::new(&shapes()[shape]);
        run_to_the_end(&mut world, &inputs).map_err(TestCaseError::fail)?;
    }
}
