//! Words of the tables' memory that somebody else has changed: no command panics or hangs, no allocation of
//! another region is touched, and what makes no sense is an error.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use farside_types::{Access, Rights};
use proptest::prelude::*;

use super::super::super::{WindowFault, WindowMapping};
use super::super::mutation::AllocMutation;
use super::super::word::PageWord;
use super::super::{AllocError, AllocStep, SweepStep, Touch};
use super::random::{Input, run, shapes};
use super::seeds::inputs;
use super::world::{World, config};
use crate::interface::AllocRequest;

type Mutation = Option<AllocMutation>;

const RW: Rights = Rights::ReadWrite;
/// Steps of the background in which everything must end.
const SWEEPS_MAX: u32 = 10_000;

/// What a command is answered with in the end.
fn command(world: &mut World, request: AllocRequest) -> Result<u64, AllocError> {
    let mut step = world.allocator.handle(&mut world.bus, request);
    if let AllocStep::Invalidate(_) = step {
        step = world.allocator.invalidated(&mut world.bus);
    }
    let AllocStep::Answer(answer) = step else { panic!("{step:?}") };
    answer
}

fn sweep(world: &mut World) {
    for _ in 0..SWEEPS_MAX {
        match world.allocator.sweep(&mut world.bus) {
            SweepStep::Idle => return,
            SweepStep::More => {}
            SweepStep::Invalidate(_) => world.allocator.swept(&mut world.bus),
        }
    }
    panic!("the sweep has no end");
}

/// Pages as walks find them.
fn found(
    world: &mut World,
    pages: impl Iterator<Item = u64>,
) -> Vec<Result<WindowMapping, WindowFault>> {
    pages.map(|page| world.translation(page)).collect()
}

/// Addresses of words that a region has: of its table, of its bitmap.
fn words_of(world: &World, region: u64) -> Vec<u64> {
    let layout = &world.allocator.layout;
    let (bitmap, count) = layout.bitmap(region);
    let table = world.allocator.regions.table(region);
    let table = table
        .into_iter()
        .flat_map(|table| (0..layout.region_pages()).map(move |within| table.address + 8 * within));
    table.chain((0..count).map(|word| bitmap + 8 * word)).collect()
}

/// What of the allocations lies in no region that was changed: by the first page, with its translations.
type Others = BTreeMap<u64, Vec<Result<WindowMapping, WindowFault>>>;

fn others(world: &mut World, changed: u64) -> Others {
    let live = world.live.clone();
    let layout = world.allocator.layout.clone();
    let is_other = |first: u64, pages: u64| {
        let regions = layout.region_of(first)..=layout.region_of(first + pages - 1);
        !regions.contains(&changed)
    };
    let others = live.iter().filter(|(first, of)| is_other(**first, of.pages));
    others.map(|(&first, of)| (first, found(world, first..first + of.pages))).collect()
}

fn check_others(world: &mut World, others: &Others) -> Result<(), String> {
    for (&first, before) in others {
        let now = found(world, first..first + before.len() as u64);
        // Pages that were touched meanwhile have a frame.
        let is_alike = before.iter().zip(&now).all(|(before, now)| before == now);
        if !is_alike {
            return Err(format!("{first} was {before:?}, and is {now:?}"));
        }
    }
    Ok(())
}

/// A malloc, after which a kernel writes all over its pages: where they are frames of a table, over that.
fn malloc_and_write(
    world: &mut World,
    bytes: u64,
    memory: u8,
    lazy: bool,
) -> Result<u64, AllocError> {
    let address = command(world, AllocRequest::Malloc { bytes, memory, rights: RW, lazy })?;
    let first = (address - world.config.base) >> 12;
    for mapping in found(world, first..first + (bytes >> 12)).into_iter().flatten() {
        let bytes = u64::from(mapping.frame) << 12..u64::from(mapping.frame + 1) << 12;
        if mapping.memory == world.config.tables {
            world.bus.words.range_mut(bytes).for_each(|(_, word)| *word = 0x5555_5555_5555_5555);
        }
    }
    Ok(address)
}

/// Every command on every address, and new allocations.
fn do_everything(world: &mut World, others: &Others) -> Result<(), String> {
    let region = world.allocator.layout.region_pages();
    let pages = world.allocator.layout.regions * region;
    let mine: Vec<u64> = (0..pages)
        .filter(|page| {
            !others.iter().any(|(first, of)| (*first..first + of.len() as u64).contains(page))
        })
        .collect();
    for round in 0..3 {
        for &page in &mine {
            let address = world.address(page);
            let lazy = page % 3 == 0;
            let bytes = ((page * 7 + round) % (region + 3) + 1) << 12;
            let ticket = world.allocator.ticket();
            let touch = Touch { page, access: Access::Read, seen: None, ticket };
            let _ = world.allocator.touch(&mut world.bus, touch);
            let memory = if page % 5 == 0 { 1 } else { 0 };
            let _ = match (page + round) % 4 {
                0 => command(world, AllocRequest::Free { address }),
                1 => malloc_and_write(world, bytes, memory, lazy),
                _ => command(world, AllocRequest::Realloc { address, bytes, lazy }),
            };
            check_others(world, others).map_err(|error| format!("page {page}: {error}"))?;
            if page % 4 == 0 {
                sweep(world);
                check_others(world, others).map_err(|error| format!("swept, {page}: {error}"))?;
            }
        }
    }
    Ok(())
}

/// In a region one allocation is freed, and not swept; another has grown, and its old end still has the mark.
fn begin_something(world: &mut World, region: u64) {
    let layout = world.allocator.layout.clone();
    let here: Vec<(u64, u64)> = world
        .live
        .iter()
        .filter(|&(&first, _)| layout.region_of(first) == region)
        .map(|(&first, of)| (world.address(first), of.pages))
        .collect();
    for (index, (address, pages)) in here.into_iter().take(2).enumerate() {
        let bytes = (pages + 1) << 12;
        let _ = match index {
            0 => command(world, AllocRequest::Free { address }),
            _ => command(world, AllocRequest::Realloc { address, bytes, lazy: false }),
        };
    }
}

/// Runs steps, changes words of one region, does everything; then the others can be freed.
fn corrupt(
    mutation: Mutation,
    shape: usize,
    inputs: &[Input],
    region: u64,
    changes: &[(u16, u64)],
) -> Result<(), String> {
    let mut world = World::new(&shapes()[shape]);
    mutation.into_iter().for_each(|mutation| world.mutate(mutation));
    run(&mut world, inputs)?;
    let region = region % world.allocator.layout.regions;
    begin_something(&mut world, region);
    let words = words_of(&world, region);
    let others = others(&mut world, region);
    for &(at, mask) in changes {
        let address = words[usize::from(at) % words.len()];
        let word = world.bus.peek(address);
        world.bus.words.insert(address, word ^ mask);
    }
    do_everything(&mut world, &others)?;
    for &first in others.keys() {
        let address = world.address(first);
        let freed = command(&mut world, AllocRequest::Free { address });
        if freed != Ok(0) {
            return Err(format!("{first} is freed: {freed:?}"));
        }
        sweep(&mut world);
    }
    Ok(())
}

/// One bit, several, or all.
fn masks() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0u32..64).prop_map(|bit| 1 << bit),
        any::<u64>(),
        any::<u64>().prop_map(|mask| mask & 0xffff_ffff),
        Just(u64::MAX),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn words_that_somebody_else_has_changed_touch_nobody_else(
        shape in 0usize..5,
        inputs in proptest::collection::vec(any::<Input>(), 0..80),
        region in any::<u64>(),
        changes in proptest::collection::vec((any::<u16>(), masks()), 1..12),
    ) {
        corrupt(None, shape, &inputs, region, &changes).map_err(TestCaseError::fail)?;
    }
}

/// The random check is one: it finds a table that was given out as a page.
#[test]
fn control_a_table_that_a_word_frees_is_found_at_random() {
    let mask = |seed: u64| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) & 0xf_0000_0000;
    let finds = |seed: u64| {
        let changes: Vec<(u16, u64)> = inputs(seed, 8)
            .iter()
            .map(|&[a, b, c, _]| (u16::from_le_bytes([a, b]), mask(c.into())))
            .collect();
        let shape = seed as usize % shapes().len();
        let steps = inputs(seed + 1, 60);
        corrupt(Some(AllocMutation::WordsFreeTables), shape, &steps, seed, &changes)
    };
    assert!((0..1000).any(|seed| finds(seed).is_err()));
}

/// A world with an allocation of 5 pages between two of 2; the address of its word, and of its page.
fn three(mutation: Mutation) -> (World, u64, u64) {
    let mut world = World::new(&config(&[3, 4], &[160, 40, 70]));
    mutation.into_iter().for_each(|mutation| world.mutate(mutation));
    let malloc = |pages: u64| AllocRequest::Malloc {
        bytes: pages << 12,
        memory: 0,
        rights: RW,
        lazy: false,
    };
    let addresses: Vec<u64> =
        [2, 5, 2].map(|pages| command(&mut world, malloc(pages)).unwrap()).into();
    let page = (addresses[1] - world.config.base) >> 12;
    let table = world.allocator.regions.table(0).unwrap();
    let word = world.allocator.word_address(table, page);
    (world, word, addresses[1])
}

fn a_first_word_that_makes_no_sense_is_an_error_of_each_command(mutation: Mutation) {
    let changes: [fn(PageWord) -> PageWord; 6] = [
        |word| PageWord(word.entry().in_memory(3).0),
        |word| PageWord(word.entry().in_memory(15).0),
        |word| word.with_frame(160),
        // A frame of the directory, and one of a table.
        |word| word.with_frame(0),
        |word| word.with_size(7),
        |word| word.with_pages(15),
    ];
    for change in changes {
        let (mut world, word, address) = three(mutation);
        let before = world.bus.peek(word);
        world.bus.words.insert(word, change(PageWord(before)).0);
        for request in [
            AllocRequest::Free { address },
            AllocRequest::Realloc { address, bytes: 1, lazy: false },
            AllocRequest::Realloc { address, bytes: 40 << 12, lazy: false },
            AllocRequest::Realloc { address, bytes: 40 << 12, lazy: true },
        ] {
            assert_eq!(command(&mut world, request), Err(AllocError::BadEntry), "{request:?}");
        }
        let touch = Touch { page: 2, access: Access::Read, seen: None, ticket: 0 };
        let touched = world.allocator.touch(&mut world.bus, touch);
        assert!(touched.is_ok() || touched == Err(WindowFault::BadEntry), "{touched:?}");
        world.bus.words.insert(word, before);
        sweep(&mut world);
        assert_eq!(command(&mut world, AllocRequest::Free { address }), Ok(0));
    }
}

/// A word in the middle is read when its allocation moves or is cut there.
fn a_word_in_the_middle_that_makes_no_sense_is_an_error_where_it_is_read(mutation: Mutation) {
    for (change, pages) in [(0, 20), (0, 9), (0, 1), (1 << 63, 9), (1 << 63, 3)] {
        let (mut world, word, address) = three(mutation);
        let at = word + 8;
        let before = world.bus.peek(at);
        world.bus.words.insert(at, if change == 0 { 0 } else { before ^ change });
        let request = AllocRequest::Realloc { address, bytes: pages << 12, lazy: false };
        assert_eq!(command(&mut world, request), Err(AllocError::BadEntry), "{change:x}, {pages}");
        world.bus.words.insert(at, before);
        sweep(&mut world);
        let moved = command(&mut world, request).unwrap();
        sweep(&mut world);
        assert_eq!(command(&mut world, AllocRequest::Free { address: moved }), Ok(0));
        sweep(&mut world);
        assert_eq!(world.allocator.counts().quarantined, 0);
    }
}

/// A count that is too large ends where the next allocation begins; one that is too small leaves pages in use.
fn a_count_that_is_wrong_takes_nothing_from_others(mutation: Mutation) {
    for pages in [3, 7] {
        let (mut world, word, address) = three(mutation);
        let before = PageWord(world.bus.peek(word));
        world.bus.words.insert(word, before.with_pages(pages).0);
        let free = world.allocator.free_frames(0);
        assert_eq!(command(&mut world, AllocRequest::Free { address }), Ok(0));
        sweep(&mut world);
        assert_eq!(world.allocator.free_frames(0) - free, pages.min(5), "{pages}");
        assert_eq!(world.allocator.counts().bad_words, u64::from(pages > 5));
        let third = address + (5 << 12);
        let page = (third - world.config.base) >> 12;
        assert!(found(&mut world, page..page + 2).iter().all(Result::is_ok));
        assert_eq!(command(&mut world, AllocRequest::Free { address: third }), Ok(0));
        sweep(&mut world);
    }
}

/// A bitmap is no bitmap of the region if it has not as many pages in use.
fn nothing_is_given_out_of_a_region_whose_bitmap_is_wrong(mutation: Mutation) {
    let mut world = World::new(&config(&[3, 4], &[160]));
    mutation.into_iter().for_each(|mutation| world.mutate(mutation));
    let malloc = AllocRequest::Malloc { bytes: 3 << 12, memory: 0, rights: RW, lazy: false };
    let addresses: Vec<u64> = (0..8).map(|_| command(&mut world, malloc).unwrap()).collect();
    sweep(&mut world);
    assert_eq!(world.allocator.places.open_region(), Some(1));
    let (bitmap, _) = world.allocator.layout.bitmap(0);
    world.bus.words.insert(bitmap, 0);
    let page = AllocRequest::Malloc { bytes: 1, memory: 0, rights: RW, lazy: false };
    let mut bad = 0;
    let mut given = addresses.clone();
    for _ in 0..20 {
        match command(&mut world, page) {
            Ok(address) => given.push(address),
            Err(error) => {
                assert_eq!(error, AllocError::BadEntry);
                bad += 1;
            }
        }
    }
    assert_eq!(bad, 1, "the others come from elsewhere");
    given.sort_unstable();
    given.dedup();
    assert_eq!(given.len(), 8 + 19);
    for address in given {
        assert_eq!(command(&mut world, AllocRequest::Free { address }), Ok(0));
        sweep(&mut world);
    }
}

/// A word that names a frame of a table gives nothing back: the table would be given out as a page.
fn no_frame_of_a_table_is_given_back_by_a_word(mutation: Mutation) {
    let (mut world, word, address) = three(mutation);
    let table = world.allocator.regions.table(0).unwrap();
    let of_table = (table.address >> 12) as u32;
    for (within, frame) in [(1, of_table), (2, 0)] {
        let at = word + 8 * within;
        let changed = PageWord(world.bus.peek(at)).with_frame(frame);
        world.bus.words.insert(at, changed.0);
    }
    let free = world.allocator.free_frames(0);
    assert_eq!(command(&mut world, AllocRequest::Free { address }), Ok(0));
    sweep(&mut world);
    assert_eq!(world.allocator.free_frames(0) - free, 3);
    assert_eq!(world.allocator.counts().bad_words, 2);
}

/// What the tables hold, and the mistake that it finds.
const CASES: [(fn(Mutation), AllocMutation); 5] = [
    (a_first_word_that_makes_no_sense_is_an_error_of_each_command, AllocMutation::WordsAreTrusted),
    (
        a_word_in_the_middle_that_makes_no_sense_is_an_error_where_it_is_read,
        AllocMutation::WordsAreTrusted,
    ),
    (a_count_that_is_wrong_takes_nothing_from_others, AllocMutation::SweepTakesOthers),
    (nothing_is_given_out_of_a_region_whose_bitmap_is_wrong, AllocMutation::BitmapsAreTrusted),
    (no_frame_of_a_table_is_given_back_by_a_word, AllocMutation::WordsFreeTables),
];

#[test]
fn what_makes_no_sense_is_an_error_and_takes_nothing_from_others() {
    CASES.iter().for_each(|(case, _)| case(None));
}

#[test]
fn control_an_allocator_that_trusts_its_memory_is_caught() {
    for (index, (case, mutation)) in CASES.into_iter().enumerate() {
        let ended = catch_unwind(AssertUnwindSafe(|| case(Some(mutation))));
        assert!(ended.is_err(), "case {index} does not find {mutation:?}");
    }
}
