//! What was wrong in the thesis's design, and commands that make no sense, one by one.

use farside_types::{Access, Rights};

use super::super::super::WindowFault;
use super::super::mutation::AllocMutation;
use super::super::{AllocArbiter, AllocError, AllocStep, AllocatorConfig, SweepStep, Touch};
use super::world::{World, config};
use crate::interface::AllocRequest;

const RW: Rights = Rights::ReadWrite;

fn world() -> World {
    World::new(&config(&[3, 4], &[160, 40, 70]))
}

fn malloc(world: &mut World, pages: u64) -> u64 {
    world.malloc(pages, 0, RW, false).unwrap().unwrap()
}

fn free(world: &mut World, address: u64) -> Result<u64, AllocError> {
    match world.free(address).unwrap() {
        Some(answer) => answer,
        None => world.invalidated().unwrap().unwrap(),
    }
}

fn realloc(world: &mut World, address: u64, pages: u64) -> Result<u64, AllocError> {
    match world.realloc(address, pages, false).unwrap() {
        Some(answer) => answer,
        None => world.invalidated().unwrap().unwrap(),
    }
}

/// The thesis gives each allocation a word of the root, so there are at most 8,192.
#[test]
fn allocations_share_tables_and_are_bounded_by_memory() {
    let fill = |mutation: Option<AllocMutation>| {
        let mut world = world();
        if let Some(mutation) = mutation {
            world.mutate(mutation);
        }
        let count = (0..).take_while(|_| world.malloc(1, 0, RW, false).unwrap().is_ok()).count();
        world.check().unwrap();
        (count, world.malloc(1, 0, RW, false).unwrap())
    };
    let (count, full) = fill(None);
    assert_eq!((count, full), (128, Err(AllocError::NoSpace)), "8 regions of 16 pages");
    assert_eq!(fill(Some(AllocMutation::RegionForEach)).0, 8, "as the thesis has it");
}

/// Whoever walks a new table finds its words.
#[test]
fn the_directory_leads_to_a_table_only_when_its_words_are_there() {
    let last_is_the_directorys = |mutation: Option<AllocMutation>| {
        let mut world = world();
        if let Some(mutation) = mutation {
            world.mutate(mutation);
        }
        malloc(&mut world, 3);
        world.bus.directory.contains(&world.bus.last_written)
    };
    assert!(last_is_the_directorys(None));
    assert!(!last_is_the_directorys(Some(AllocMutation::DirectoryFirst)));
}

/// In the thesis's design the frame of another memory is taken for frame 0, which is the root's.
#[test]
fn a_freed_frame_is_one_of_its_own_memory() {
    let mut world = world();
    let address = world.malloc(1, 2, RW, false).unwrap().unwrap();
    let before = world.allocator.free_frames(0);
    assert_eq!(world.allocator.free_frames(2), 69);
    free(&mut world, address).unwrap();
    world.check().unwrap();
    assert_eq!(world.allocator.free_frames(2), 70);
    assert!(world.allocator.free_frames(0) >= before);
}

/// The thesis answers that it was a success.
#[test]
fn out_of_memory_is_an_error_and_changes_nothing() {
    let mut world = world();
    let a = world.malloc(60, 2, RW, false).unwrap().unwrap();
    let answers = [
        world.malloc(11, 2, RW, false).unwrap(),
        world.malloc(33, 2, RW, false).unwrap(),
        realloc(&mut world, a, 71),
    ];
    assert_eq!(answers, [Err(AllocError::NoFrames); 3]);
    assert_eq!(world.allocator.free_frames(2), 10);
    world.check().unwrap();
    assert_eq!(realloc(&mut world, a, 70).map(drop), Ok(()));
    world.check().unwrap();
}

/// A lazy page for which no frame is left is a fault of its own, and gets one when there is one again.
#[test]
fn a_touch_without_a_frame_is_a_fault_and_no_hang() {
    let mut world = world();
    let lazy = world.malloc(2, 2, RW, true).unwrap().unwrap();
    let page = (lazy - world.config.base) >> 12;
    let full = world.malloc(70, 2, RW, false).unwrap().unwrap();
    let touch = |world: &mut World| {
        let ticket = world.allocator.ticket();
        let touch = Touch { page, access: Access::Write, seen: None, ticket };
        world.allocator.touch(&mut world.bus, touch)
    };
    assert_eq!(touch(&mut world), Err(WindowFault::NoFrame));
    free(&mut world, full).unwrap();
    world.settle().unwrap();
    assert!(touch(&mut world).is_ok());
}

#[test]
fn two_walks_that_touch_a_page_get_one_frame() {
    for pages in [2, 20] {
        let mut world = world();
        let address = world.malloc(pages, 2, RW, true).unwrap().unwrap();
        let page = (address - world.config.base) >> 12;
        let ticket = world.allocator.ticket();
        let seen = (pages == 2).then(|| {
            let region = world.allocator.layout.region_of(page);
            let table = world.allocator.regions.table(region).unwrap();
            world.bus.peek(world.allocator.word_address(table, page))
        });
        let touch = Touch { page, access: Access::Read, seen, ticket };
        let first = world.allocator.touch(&mut world.bus, touch);
        let second = world.allocator.touch(&mut world.bus, touch);
        assert!(first.is_ok());
        assert_eq!(first, second);
        assert_eq!(world.allocator.counts().touched, 1);
        world.check().unwrap();
    }
}

#[test]
fn commands_that_make_no_sense_are_errors_and_counted() {
    let config = config(&[3, 4], &[160, 40, 70]);
    let mut world = World::uninitialised(&config);
    let base = config.base;
    let mut expected = [0; 13];
    let mut check = |world: &mut World, request, error: AllocError| {
        let before = format!("{:?}", (&world.bus.words, world.allocator.free_frames(0)));
        let step = world.allocator.handle(&mut world.bus, request);
        assert_eq!(step, AllocStep::Answer(Err(error)), "{request:?}");
        let after = format!("{:?}", (&world.bus.words, world.allocator.free_frames(0)));
        assert_eq!(before, after);
        expected[error as usize] += 1;
        assert_eq!(world.allocator.counts().answers, expected);
    };
    let malloc = |bytes, memory| AllocRequest::Malloc { bytes, memory, rights: RW, lazy: false };
    check(&mut world, malloc(1, 0), AllocError::Initialising);
    world.allocator.initialise(&mut world.bus).unwrap();
    check(&mut world, malloc(0, 0), AllocError::ZeroSize);
    check(&mut world, malloc(u64::MAX, 0), AllocError::TooLarge);
    check(&mut world, malloc((128 << 12) + 1, 0), AllocError::TooLarge);
    check(&mut world, malloc(1, 3), AllocError::UnknownMemory);
    check(&mut world, malloc(1, 255), AllocError::UnknownMemory);
    check(&mut world, malloc(127 << 12, 2), AllocError::NoFrames);
    for address in [0, base - 1, base, base + 4096, base + (128 << 12), u64::MAX] {
        check(&mut world, AllocRequest::Free { address }, AllocError::NotAllocated);
        let realloc = AllocRequest::Realloc { address, bytes: 1, lazy: false };
        check(&mut world, realloc, AllocError::NotAllocated);
    }
    let realloc = AllocRequest::Realloc { address: base, bytes: 0, lazy: false };
    check(&mut world, realloc, AllocError::ZeroSize);
}

#[test]
fn an_address_inside_and_one_that_was_freed_are_told_apart() {
    let mut world = world();
    for pages in [3, 16, 33] {
        let address = malloc(&mut world, pages);
        for inside in [address + 1, address + 4096, address + ((pages - 1) << 12)] {
            assert_eq!(free(&mut world, inside), Err(AllocError::Inside));
            assert_eq!(realloc(&mut world, inside, 1), Err(AllocError::Inside));
        }
        assert_eq!(free(&mut world, address), Ok(0));
        // Before the sweep, and after it.
        assert_eq!(free(&mut world, address), Err(AllocError::NotAllocated));
        world.check().unwrap();
        assert_eq!(free(&mut world, address), Err(AllocError::NotAllocated));
        world.check().unwrap();
    }
}

#[test]
fn a_command_under_way_and_four_dying_ranges_make_it_busy() {
    let mut world = world();
    let addresses: Vec<u64> = (0..5).map(|_| malloc(&mut world, 1)).collect();
    assert_eq!(world.free(addresses[0]), Ok(None));
    assert_eq!(world.malloc(1, 0, RW, false).unwrap(), Err(AllocError::Busy));
    world.invalidated().unwrap();
    for &address in &addresses[1..4] {
        assert_eq!(free(&mut world, address), Ok(0));
    }
    assert!(!world.allocator.is_ready());
    assert_eq!(world.malloc(1, 0, RW, false).unwrap(), Err(AllocError::Busy));
    world.settle().unwrap();
    assert_eq!(free(&mut world, addresses[4]), Ok(0));
    world.check().unwrap();
}

/// What was freed cannot be reached from the answer on, and the frames are not used before the sweep.
#[test]
fn nothing_is_used_again_before_the_sweep_and_its_invalidation() {
    let mut world = World::new(&config(&[3, 4], &[160, 40, 4]));
    let address = world.malloc(4, 2, RW, false).unwrap().unwrap();
    free(&mut world, address).unwrap();
    assert_eq!(world.malloc(1, 2, RW, false).unwrap(), Err(AllocError::NoFrames));
    assert_eq!(world.allocator.sweep(&mut world.bus), SweepStep::More);
    assert_eq!(world.allocator.free_frames(2), 4);
    let again = world.malloc(4, 2, RW, false).unwrap().unwrap();
    assert_ne!(again, address, "its words are 0, but walks may be under way");
    world.check().unwrap();
}

/// A run keeps its size only as far as the new place is aligned like the old one.
#[test]
fn a_moved_run_is_told_only_as_far_as_it_is_aligned() {
    let moved = |mutation: Option<AllocMutation>| {
        let mut world = World::new(&config(&[3, 7], &[1400]));
        if let Some(mutation) = mutation {
            world.mutate(mutation);
        }
        let a = malloc(&mut world, 64);
        malloc(&mut world, 60);
        malloc(&mut world, 8);
        for _ in 0..6 {
            malloc(&mut world, 128);
        }
        let b = realloc(&mut world, a, 72).unwrap();
        assert_eq!((b - a) >> 12, 128 + 8);
        world.check()
    };
    assert_eq!(moved(None), Ok(()));
    assert!(moved(Some(AllocMutation::MoveKeepsSizes)).is_err());
}

#[test]
fn a_large_run_is_split_when_a_part_of_it_goes_and_grows_beside_it() {
    let mut world = World::new(&config(&[3, 4], &[300]));
    let address = malloc(&mut world, 48);
    world.access(((address - world.config.base) >> 12) + 20, Access::Write).unwrap();
    let (tables, ready) = world.allocator.leaf_tables();
    assert_eq!(tables, ready, "three runs of the directory");
    assert_eq!(realloc(&mut world, address, 21), Ok(address));
    world.check().unwrap();
    world.access(((address - world.config.base) >> 12) + 20, Access::Read).unwrap();
    assert_eq!(realloc(&mut world, address, 70), Ok(address));
    world.check().unwrap();
    world.access(((address - world.config.base) >> 12) + 20, Access::Read).unwrap();
}

#[test]
fn requesters_are_served_in_turn_and_each_is_answered() {
    let mut world = world();
    let mut arbiter = AllocArbiter::new(3);
    let malloc = AllocRequest::Malloc { bytes: 1, memory: 0, rights: RW, lazy: false };
    assert!(arbiter.ask(0, malloc) && arbiter.ask(2, malloc));
    assert!(!arbiter.ask(2, malloc) && !arbiter.ask(3, malloc));
    let mut addresses = Vec::new();
    let mut served = Vec::new();
    for _ in 0..6 {
        let begun = arbiter.begin(&mut world.allocator, &mut world.bus);
        let Some((who, AllocStep::Answer(Ok(address)))) = begun else { panic!("{begun:?}") };
        served.push(who);
        addresses.push(address);
        assert!(arbiter.ask(who, malloc));
    }
    assert_eq!(served, [0, 2, 0, 2, 0, 2]);
    for &address in &addresses {
        assert!(arbiter.ask(1, AllocRequest::Free { address }));
        let mut answers = 0;
        for _ in 0..100 {
            if let Some((who, step)) = arbiter.begin(&mut world.allocator, &mut world.bus) {
                answers += u64::from(who == 1 && matches!(step, AllocStep::Answer(_)));
            }
            if let Some((who, answer)) = arbiter.invalidated(&mut world.allocator, &mut world.bus) {
                assert_eq!((who, answer), (1, Ok(0)));
                answers += 1;
            }
            if let SweepStep::Invalidate(_) = world.allocator.sweep(&mut world.bus) {
                world.allocator.swept(&mut world.bus);
            }
        }
        assert_eq!(answers, 1);
    }
}

#[test]
fn every_memory_is_chosen_by_its_number() {
    let config = AllocatorConfig { tables: 2, ..config(&[3, 4], &[90, 80, 70]) };
    let mut world = World::new(&config);
    for memory in 0..3 {
        let before = world.allocator.free_frames(memory);
        let address = world.malloc(5, memory, Rights::Read, false).unwrap().unwrap();
        let tables = if memory == 2 { world.allocator.table_frames() } else { 0 };
        assert!(before - world.allocator.free_frames(memory) >= 5 && tables < 5);
        world.access((address - config.base) >> 12, Access::Write).unwrap();
    }
    world.check().unwrap();
}
