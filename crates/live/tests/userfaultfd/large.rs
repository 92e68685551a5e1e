//! Blocks in large pages: what is true of small pages is true of them, and they are mapped at once.

use std::sync::atomic::Ordering;

use farside_linux::uffd::{FaultKind, Installed};
use farside_live::arena::Arena;
use farside_live::features::Features;
use farside_types::{BLOCK_PAGES, BLOCK_SIZE, PageRange, Rights};

use super::{
    LIMIT, alias_word, assert_writes_fault, next_fault, no_fault, pages, start, start_watchdog,
    word,
};

/// An arena of four blocks, of which the second and the third are large; whether they could be.
pub(super) fn large_arena() -> (&'static Arena, bool) {
    start_watchdog();
    let arena: &'static Arena = Box::leak(Box::new(Arena::new(4 * BLOCK_SIZE as u64).unwrap()));
    // Parts of other blocks are none.
    let made = arena.make_large(pages(arena, BLOCK_PAGES - 7, 2 * BLOCK_PAGES + 9)).unwrap();
    assert_eq!(made.wanted, 2);
    let kernel = Features::probe().kernel.unwrap();
    if (kernel.major, kernel.minor) >= (6, 1) {
        assert_eq!(made.had, 2, "{kernel:?} makes large pages of a file");
    }
    (arena, made.had == 2)
}

/// The second block.
pub(super) fn block(arena: &Arena) -> PageRange {
    pages(arena, BLOCK_PAGES, BLOCK_PAGES)
}

/// Page `at` of the second block.
fn at(at: u64) -> u64 {
    BLOCK_PAGES + at
}

fn write_all(arena: &'static Arena, value: u64) {
    let writer = move || {
        (0..BLOCK_PAGES)
            .for_each(|page| word(arena, at(page)).store(value + page, Ordering::Relaxed));
    };
    start(writer).finishes();
}

fn read(arena: &'static Arena, page: u64) -> u64 {
    start(move || word(arena, page).load(Ordering::Relaxed)).finishes()
}

/// KiB of the program's mapping of the second block that are mapped as a large page.
fn mapped_large(arena: &Arena) -> u64 {
    let start = arena.program_ptr(block(arena).start).unwrap().as_ptr() as usize;
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let holds = |line: &str| {
        let (range, _) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        Some((address(from)?..address(to)?).contains(&start))
    };
    let mut lines = maps.lines().skip_while(|line| holds(line) != Some(true)).skip(1);
    let field = lines.find_map(|line| line.strip_prefix("ShmemPmdMapped:")).unwrap();
    field.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_new_large_block_is_zero_and_faults_as_any_other_until_it_is_mapped() {
    let (arena, large) = large_arena();
    let reader = start(move || word(arena, at(9)).load(Ordering::Relaxed));
    let kind = if large { FaultKind::Minor } else { FaultKind::Missing };
    assert_eq!(next_fault(arena).kind, kind);
    reader.still_waits();
    arena.map_zero(block(arena), Rights::ReadWrite).unwrap();
    assert_eq!(reader.finishes(), 0);
    write_all(arena, 1000);
    assert_eq!(alias_word(arena, at(5)).load(Ordering::Relaxed), 1005);
    no_fault(arena);
    if large {
        assert_eq!(mapped_large(arena), 2048);
    }
    // The blocks around it are not open.
    for other in [at(0) - 1, at(BLOCK_PAGES)] {
        let reader = start(move || word(arena, other).load(Ordering::Relaxed));
        next_fault(arena);
        reader.still_waits();
        arena.map_zero(pages(arena, other, 1), Rights::ReadWrite).unwrap();
        assert_eq!(reader.finishes(), 0);
    }
}

#[test]
fn a_block_that_leaves_and_comes_back_keeps_its_bytes_and_faults_meanwhile() {
    let (arena, large) = large_arena();
    arena.map_zero(block(arena), Rights::ReadWrite).unwrap();
    for round in 0..3 {
        write_all(arena, 1000 * round);
        arena.unmap(block(arena)).unwrap();
        let reader = start(move || word(arena, at(511)).load(Ordering::Relaxed));
        assert_eq!(next_fault(arena).kind, FaultKind::Minor);
        reader.still_waits();
        alias_word(arena, at(511)).store(7, Ordering::Relaxed);
        let mapped = arena.map(block(arena), Rights::ReadWrite).unwrap();
        assert_eq!(mapped, Installed { mapped: BLOCK_PAGES, present: 0 });
        assert_eq!(reader.finishes(), 7);
        assert_eq!(read(arena, at(510)), 1000 * round + 510);
        if large {
            assert_eq!(mapped_large(arena), 2048);
        }
    }
}

#[test]
fn pages_that_leave_an_open_block_fault_and_the_others_do_not() {
    let (arena, large) = large_arena();
    arena.map_zero(block(arena), Rights::ReadWrite).unwrap();
    write_all(arena, 0);
    let some = pages(arena, at(100), 12);
    arena.unmap(some).unwrap();
    for page in [0, 99, 112, 511] {
        assert_eq!(read(arena, at(page)), page);
    }
    no_fault(arena);
    let writer = start(move || word(arena, at(104)).store(1, Ordering::Relaxed));
    assert_eq!(next_fault(arena).kind, FaultKind::Minor);
    writer.still_waits();
    assert_eq!(alias_word(arena, at(104)).load(Ordering::Relaxed), 104);
    arena.map(some, Rights::ReadWrite).unwrap();
    writer.finishes();
    // Once it was taken apart, it can be one again.
    arena.unmap(block(arena)).unwrap();
    arena.map(block(arena), Rights::ReadWrite).unwrap();
    assert_eq!((read(arena, at(104)), read(arena, at(105))), (1, 105));
    no_fault(arena);
    if large {
        assert_eq!(mapped_large(arena), 2048);
    }
}

#[test]
fn to_map_what_an_open_block_has_mapped_changes_nothing() {
    let (arena, _) = large_arena();
    arena.map_zero(block(arena), Rights::ReadWrite).unwrap();
    write_all(arena, 3);
    let again = arena.map_zero(pages(arena, at(8), 4), Rights::ReadWrite).unwrap();
    assert_eq!(again, Installed { mapped: 0, present: 4 });
    arena.protect(pages(arena, at(8), 4), Rights::ReadWrite).unwrap();
    assert_eq!(read(arena, at(9)), 12);
    no_fault(arena);
}

#[test]
fn pages_of_an_open_block_can_be_read_only() {
    let (arena, _) = large_arena();
    if !arena.support().host_read_only {
        eprintln!("this kernel has no read-only mappings: nothing to show");
        return;
    }
    // By a change of rights, and by a mapping.
    for by_protection in [true, false] {
        arena.map_zero(block(arena), Rights::ReadWrite).unwrap();
        write_all(arena, 0);
        let some = pages(arena, at(20), 4);
        if by_protection {
            arena.protect(some, Rights::Read).unwrap();
        } else {
            arena.map(some, Rights::Read).unwrap();
        }
        assert_eq!((read(arena, at(21)), read(arena, at(24))), (21, 24));
        no_fault(arena);
        assert_writes_fault(arena, &[at(19), at(24)], false);
        assert_writes_fault(arena, &[at(20), at(23)], true);
        arena.unmap(block(arena)).unwrap();
    }
}

#[test]
fn frames_of_a_large_block_that_are_given_back_are_zero_and_the_others_are_not() {
    let (arena, _) = large_arena();
    arena.map_zero(block(arena), Rights::ReadWrite).unwrap();
    write_all(arena, 50);
    arena.release(pages(arena, at(30), 2)).unwrap();
    assert_eq!(read(arena, at(29)), 79);
    assert_eq!(read(arena, at(32)), 82);
    let reader = start(move || word(arena, at(31)).load(Ordering::Relaxed));
    next_fault(arena);
    arena.map_zero(pages(arena, at(30), 2), Rights::ReadWrite).unwrap();
    assert_eq!(reader.finishes(), 0);
    // It goes on by small pages.
    arena.unmap(block(arena)).unwrap();
    arena.map_zero(block(arena), Rights::ReadWrite).unwrap();
    assert_eq!((read(arena, at(29)), read(arena, at(31))), (79, 0));
}

#[test]
fn threads_that_wait_when_a_block_is_opened_go_on_all_of_them() {
    let (arena, _) = large_arena();
    let waiting: Vec<_> = (0..8)
        .map(|page| start(move || word(arena, at(60 * page)).fetch_add(1, Ordering::Relaxed)))
        .collect();
    for _ in &waiting {
        next_fault(arena);
    }
    arena.map_zero(block(arena), Rights::ReadWrite).unwrap();
    for thread in &waiting {
        assert_eq!(thread.finishes(), 0, "within {LIMIT:?}");
    }
}

#[test]
fn a_poisoned_page_of_a_large_block_ends_nobody_who_uses_the_others() {
    let (arena, _) = large_arena();
    if !arena.support().poison {
        eprintln!("this kernel poisons no pages: nothing to show");
        return;
    }
    arena.map_zero(block(arena), Rights::ReadWrite).unwrap();
    write_all(arena, 0);
    arena.poison(pages(arena, at(40), 1)).unwrap();
    assert_eq!((read(arena, at(39)), read(arena, at(41))), (39, 41));
    no_fault(arena);
}
