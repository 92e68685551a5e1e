//! What commands cost: accesses one after the other, and beats (`docs/rtl/allocator.md`, *Cycles*).

use farside_types::{Access, Rights};

use super::super::super::WindowGeometry;
use super::super::{AllocError, AllocStep, AllocatorConfig, SweepStep, Touch};
use super::bus::Cost;
use super::world::World;
use crate::interface::AllocRequest;

const RW: Rights = Rights::ReadWrite;

/// The default window, and 64 GiB in pages of 256 KiB.
fn world() -> World {
    let config = AllocatorConfig {
        geometry: WindowGeometry::default(),
        base: 1 << 45,
        memories: vec![1 << 18],
        tables: 0,
        ready_tables: 2,
    };
    let mut world = World::new(&config);
    rest(&mut world);
    world
}

/// Lets the background end.
fn rest(world: &mut World) {
    loop {
        match world.allocator.sweep(&mut world.bus) {
            SweepStep::Idle => break,
            SweepStep::More => {}
            SweepStep::Invalidate(_) => world.allocator.swept(&mut world.bus),
        }
    }
    world.bus.take_cost();
}

fn malloc(world: &mut World, pages: u64, lazy: bool) -> (u64, Cost) {
    let bytes = pages << 18;
    let request = AllocRequest::Malloc { bytes, memory: 0, rights: RW, lazy };
    let AllocStep::Answer(Ok(address)) = world.allocator.handle(&mut world.bus, request) else {
        panic!("{pages} pages")
    };
    (address, world.bus.take_cost())
}

fn realloc(world: &mut World, address: u64, pages: u64) -> (u64, Cost) {
    let request = AllocRequest::Realloc { address, bytes: pages << 18, lazy: false };
    let mut step = world.allocator.handle(&mut world.bus, request);
    if let AllocStep::Invalidate(_) = step {
        step = world.allocator.invalidated(&mut world.bus);
    }
    let AllocStep::Answer(Ok(address)) = step else { panic!("{step:?}") };
    (address, world.bus.take_cost())
}

fn cost(waits: u64, beats_read: u64, beats_written: u64, on_chip: u64) -> Cost {
    Cost { waits, beats_read, beats_written, on_chip }
}

#[test]
fn a_malloc_of_a_page_is_one_write_also_in_an_empty_space() {
    let mut world = world();
    assert_eq!(malloc(&mut world, 1, false).1, cost(1, 0, 1, 1));
    rest(&mut world);
    for _ in 0..100 {
        assert_eq!(malloc(&mut world, 1, false).1, cost(1, 0, 1, 0));
    }
}

/// 90 % of two regions are taken by single pages, in no order.
#[test]
fn a_malloc_in_a_space_that_is_nearly_full_opens_one_region() {
    let mut world = world();
    let addresses: Vec<u64> = (0..2 * 8192).map(|_| malloc(&mut world, 1, false).0).collect();
    for address in addresses.iter().filter(|&address| address >> 18 & 0xf == 7) {
        world.allocator.handle(&mut world.bus, AllocRequest::Free { address: *address });
        world.allocator.invalidated(&mut world.bus);
        rest(&mut world);
    }
    let mut worst = Cost::default();
    for _ in 0..1000 {
        let (_, now) = malloc(&mut world, 1, false);
        worst.waits = worst.waits.max(now.waits);
        worst.beats_read = worst.beats_read.max(now.beats_read);
        rest(&mut world);
    }
    assert_eq!((worst.waits, worst.beats_read), (2, 16), "one bitmap, and the word");
}

#[test]
fn a_large_malloc_of_contiguous_frames_needs_no_access() {
    let mut world = world();
    assert_eq!(malloc(&mut world, 65_536, false).1, cost(0, 0, 0, 8));
    assert_eq!(malloc(&mut world, 65_536, true).1, Cost::default(), "lazy");
}

#[test]
fn a_large_malloc_of_scattered_frames_writes_each_word_once() {
    let mut world = world();
    // No two frames that are neighbours are free.
    for frame in (0..1 << 18).step_by(2) {
        let _ = world.allocator.frames.take(0, 0, Some(frame));
    }
    let (_, spent) = malloc(&mut world, 65_536, false);
    assert_eq!(spent, cost(1, 0, 8192, 8));
}

#[test]
fn leaf_words_of_contiguous_frames_are_written_eight_to_a_beat() {
    let mut world = world();
    // No run of a region's size is free, and nearly all of 64.
    for frame in (100..1 << 18).step_by(8192) {
        let _ = world.allocator.frames.take(0, 0, Some(frame));
    }
    let (_, spent) = malloc(&mut world, 65_536, false);
    assert_eq!(spent, cost(1, 0, 8192, 8));
}

#[test]
fn a_realloc_of_a_page_more_is_two_accesses() {
    let mut world = world();
    let (address, _) = malloc(&mut world, 1000, false);
    let others: Vec<u64> = (0..7300).map(|_| malloc(&mut world, 1, false).0).collect();
    assert_eq!((others[7299] - address) >> 18, 1000 + 7299, "the next region is open");
    rest(&mut world);
    let (first, spent) = realloc(&mut world, others[7299], 2);
    assert_eq!((first, spent), (others[7299], cost(2, 1, 1, 0)));
}

/// The mark of the page that was the last waits for the background; where that had no time it is taken away first.
#[test]
fn a_growth_behind_a_growth_is_four_accesses() {
    let mut world = world();
    let (address, _) = malloc(&mut world, 2, false);
    rest(&mut world);
    assert_eq!(realloc(&mut world, address, 3), (address, cost(2, 1, 1, 0)));
    assert_eq!(realloc(&mut world, address, 4), (address, cost(4, 2, 2, 0)));
    rest(&mut world);
    assert_eq!(realloc(&mut world, address, 5), (address, cost(2, 1, 1, 0)));
}

/// What the background does in one step: 512 words of what was freed, but a whole table that is made ready.
#[test]
fn a_step_of_the_background_is_512_words_or_a_table() {
    let mut world = world();
    let (address, _) = malloc(&mut world, 8000, false);
    assert_eq!(world.allocator.sweep(&mut world.bus), SweepStep::More, "the bitmap");
    world.bus.take_cost();
    assert_eq!(world.allocator.sweep(&mut world.bus), SweepStep::More);
    assert_eq!(
        world.bus.take_cost(),
        cost(1, 0, 8192 / 8, 0),
        "a table for the one that was taken"
    );
    world.allocator.handle(&mut world.bus, AllocRequest::Free { address });
    world.allocator.invalidated(&mut world.bus);
    world.bus.take_cost();
    assert_eq!(world.allocator.sweep(&mut world.bus), SweepStep::More);
    assert_eq!(world.bus.take_cost(), cost(2, 512 / 8, 512 / 8, 0));
}

#[test]
fn a_realloc_that_moves_reads_and_writes_each_word_once() {
    for pages in [1, 64, 1000, 8000] {
        let mut world = world();
        let (address, _) = malloc(&mut world, pages, false);
        malloc(&mut world, 1, false);
        rest(&mut world);
        let (moved, spent) = realloc(&mut world, address, pages + 1);
        assert_ne!(moved, address);
        let beats = pages.div_ceil(8);
        assert_eq!(spent.waits, 3, "the first word, the words, the new ones");
        assert!(spent.beats_read <= beats + 1 + 16, "{spent:?}");
        assert!(spent.beats_written <= beats + 1 + 16, "{spent:?}");
        let cycles = 71 * spent.waits + spent.beats_read.max(spent.beats_written) + 60;
        assert!(cycles <= 400 + pages / 7, "{pages} pages: {cycles}");
    }
    let mut world = world();
    let (address, _) = malloc(&mut world, 65_536, false);
    malloc(&mut world, 8192, false);
    let (moved, spent) = realloc(&mut world, address, 65_536 + 8192);
    assert_ne!(moved, address);
    assert_eq!((spent.waits, spent.beats_written), (0, 0), "by the directory: {spent:?}");
}

#[test]
fn a_free_is_two_accesses_and_of_a_large_one_none() {
    let mut world = world();
    for (pages, expected) in
        [(1, cost(2, 1, 1, 0)), (8000, cost(2, 1, 1, 0)), (65_536, cost(0, 0, 0, 0))]
    {
        let (address, _) = malloc(&mut world, pages, false);
        rest(&mut world);
        world.allocator.handle(&mut world.bus, AllocRequest::Free { address });
        assert_eq!(world.bus.take_cost(), expected, "{pages} pages");
        world.allocator.invalidated(&mut world.bus);
        assert_eq!(world.bus.take_cost(), Cost::default());
        let swept = world.allocator.counts().swept;
        let (mut accesses, mut beats) = (0, 0);
        while world.allocator.dying.front().is_some() {
            if let SweepStep::Invalidate(_) = world.allocator.sweep(&mut world.bus) {
                world.allocator.swept(&mut world.bus);
            }
            let spent = world.bus.take_cost();
            accesses += spent.waits;
            beats += spent.beats_read.max(spent.beats_written);
        }
        assert_eq!(world.allocator.counts().swept - swept, pages);
        assert!(beats <= pages.div_ceil(8) + 17, "{beats} beats for {pages} pages");
        assert!(accesses <= 2 * pages.div_ceil(512) + 2, "{accesses} for {pages} pages");
    }
}

#[test]
fn a_first_touch_is_one_access_behind_the_walk() {
    let mut world = world();
    let (small, _) = malloc(&mut world, 100, true);
    let (large, _) = malloc(&mut world, 20_000, true);
    rest(&mut world);
    let base = world.config.base;
    for (address, seen) in [(small, true), (large, false)] {
        let first = (address - base) >> 18;
        for (page, on_chip) in [(first, u64::from(!seen)), (first + 1, 0)] {
            let ticket = world.allocator.ticket();
            let region = world.allocator.layout.region_of(page);
            let table = world.allocator.regions.table(region);
            let seen = table.map(|table| world.bus.peek(world.allocator.word_address(table, page)));
            let touch = Touch { page, access: Access::Write, seen, ticket };
            let mapping = world.allocator.touch(&mut world.bus, touch).unwrap();
            assert_eq!(world.bus.take_cost(), cost(1, 0, 1, on_chip));
            // Somebody else comes from before: what is on the chip suffices.
            assert_eq!(world.allocator.touch(&mut world.bus, touch), Ok(mapping));
            assert_eq!(world.bus.take_cost(), cost(0, 0, 0, on_chip));
        }
    }
    // A walk that began long ago reads the word again.
    let old = Touch { page: (small - base) >> 18, access: Access::Read, seen: Some(0), ticket: 0 };
    assert!(world.allocator.touch(&mut world.bus, old).is_ok());
    assert_eq!(world.bus.take_cost(), cost(1, 1, 0, 0));
}

#[test]
fn refusals_cost_what_they_have_to_read() {
    let mut world = world();
    let (address, _) = malloc(&mut world, 2, false);
    rest(&mut world);
    for (wrong, error, expected) in [
        (address + (1 << 18), AllocError::Inside, cost(1, 1, 0, 0)),
        (address + (2 << 18), AllocError::NotAllocated, cost(1, 1, 0, 0)),
        (address + (8192 << 18), AllocError::NotAllocated, Cost::default()),
    ] {
        let request = AllocRequest::Free { address: wrong };
        let step = world.allocator.handle(&mut world.bus, request);
        assert_eq!(step, AllocStep::Answer(Err(error)));
        assert_eq!(world.bus.take_cost(), expected);
    }
}
