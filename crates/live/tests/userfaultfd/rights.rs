//! Zero fill, and the rights that pages are mapped with.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farside_linux::uffd::{FaultKind, Installed};
use farside_types::{Access, Rights};

use super::{
    alias_word, arena, assert_writes_fault, next_fault, no_fault, pages, read_only_arena, start,
    sum, word,
};

#[test]
fn zero_fill_shows_no_old_bytes_after_release() {
    let arena = arena();
    let range = pages(arena, 0, 8);
    arena.map_zero(range, Rights::ReadWrite).unwrap();
    let fill =
        start(move || (0..8).for_each(|page| word(arena, page).store(77, Ordering::Relaxed)));
    fill.finishes();
    arena.unmap(range).unwrap();
    arena.release(range).unwrap();
    let reader = start(move || word(arena, 2).load(Ordering::Relaxed));
    assert_eq!(next_fault(arena).kind, FaultKind::Missing);
    let installed = arena.map_zero(range, Rights::ReadWrite).unwrap();
    assert_eq!(installed, Installed { mapped: 8, present: 0 });
    assert_eq!(reader.finishes(), 0);
    assert_eq!(sum(arena, 0, 8), 0);
}

#[test]
fn zero_fill_keeps_pages_of_the_file_and_fills_the_holes_between() {
    for rights in [Rights::ReadWrite, Rights::Read] {
        let Some(arena) = read_only_arena() else {
            continue;
        };
        // Of every three pages: a hole, one in the file, one mapped already.
        for page in (0..60).filter(|page| page % 3 > 0) {
            alias_word(arena, page).store(page, Ordering::Relaxed);
        }
        for page in (0..60).filter(|page| page % 3 == 2) {
            arena.map(pages(arena, page, 1), Rights::ReadWrite).unwrap();
        }
        let installed = arena.map_zero(pages(arena, 0, 60), rights).unwrap();
        assert_eq!(installed, Installed { mapped: 40, present: 20 });
        let values =
            start(move || (0..60).map(|p| word(arena, p).load(Ordering::Relaxed)).collect());
        let values: Vec<u64> = values.finishes();
        for (page, value) in (0..60).zip(values) {
            assert_eq!(value, if page % 3 == 0 { 0 } else { page });
        }
        no_fault(arena);
        assert_writes_fault(arena, &[0, 1, 2, 59], rights == Rights::Read);
    }
}

/// The arena guesses from the last page where the next one is; a wrong guess changes nothing.
#[test]
fn pages_of_the_file_and_holes_one_by_one_in_any_order_are_what_they_are() {
    for rights in [Rights::ReadWrite, Rights::Read] {
        let Some(arena) = read_only_arena() else {
            continue;
        };
        // Runs of one, two and three of a kind, both beginnings.
        let in_file = |page: u64| [1, 3, 4, 8, 9, 10, 15].contains(&(page % 16)) != (page >= 16);
        for page in (0..32).filter(|&page| in_file(page)) {
            alias_word(arena, page).store(page + 1, Ordering::Relaxed);
        }
        for page in 0..32 {
            let once = arena.map_zero(pages(arena, page, 1), rights).unwrap();
            assert_eq!(once, Installed { mapped: 1, present: 0 }, "page {page}");
            let again = arena.map_zero(pages(arena, page, 1), rights).unwrap();
            assert_eq!(again, Installed { mapped: 0, present: 1 }, "page {page}");
        }
        for page in 0..32 {
            let value = word(arena, page).load(Ordering::Relaxed);
            assert_eq!(value, if in_file(page) { page + 1 } else { 0 }, "page {page}");
        }
        no_fault(arena);
        assert_writes_fault(arena, &[0, 1, 2, 31], rights == Rights::Read);
    }
}

#[track_caller]
#[test]
fn a_read_only_zero_fill_of_many_pages_is_read_only_throughout() {
    let Some(arena) = read_only_arena() else {
        return;
    };
    arena.map_zero(pages(arena, 0, 100), Rights::Read).unwrap();
    assert_writes_fault(arena, &[0, 15, 16, 99], true);
}

// Rights

#[test]
fn a_write_to_a_read_only_page_waits_until_the_rights_grow() {
    let Some(arena) = read_only_arena() else {
        return;
    };
    alias_word(arena, 4).store(5, Ordering::Relaxed);
    arena.map(pages(arena, 4, 1), Rights::Read).unwrap();
    assert_eq!(start(move || word(arena, 4).load(Ordering::Relaxed)).finishes(), 5);
    no_fault(arena);
    let writer = start(move || word(arena, 4).fetch_add(1, Ordering::Relaxed));
    let fault = next_fault(arena);
    assert_eq!((fault.kind, fault.access), (FaultKind::WriteProtect, Access::Write));
    writer.still_waits();
    assert_eq!(alias_word(arena, 4).load(Ordering::Relaxed), 5);
    arena.protect(pages(arena, 4, 1), Rights::ReadWrite).unwrap();
    writer.finishes();
    assert_eq!(alias_word(arena, 4).load(Ordering::Relaxed), 6);
}

#[test]
fn mapping_a_mapped_page_again_gives_it_the_new_rights() {
    let Some(arena) = read_only_arena() else {
        return;
    };
    let range = pages(arena, 0, 3);
    arena.map_zero(range, Rights::ReadWrite).unwrap();
    arena.map(range, Rights::Read).unwrap();
    let writer = start(move || word(arena, 1).store(3, Ordering::Relaxed));
    assert_eq!(next_fault(arena).kind, FaultKind::WriteProtect);
    writer.still_waits();
    arena.map(range, Rights::ReadWrite).unwrap();
    writer.finishes();
    no_fault(arena);
}

#[test]
fn protection_stops_writers_that_are_running() {
    let Some(arena) = read_only_arena() else {
        return;
    };
    arena.map_zero(pages(arena, 0, 1), Rights::ReadWrite).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let stop = Arc::clone(&stop);
        start(move || {
            while !stop.load(Ordering::Relaxed) {
                word(arena, 0).fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    for _ in 0..200 {
        arena.protect(pages(arena, 0, 1), Rights::Read).unwrap();
        let seen = alias_word(arena, 0).load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(50));
        assert_eq!(alias_word(arena, 0).load(Ordering::Relaxed), seen);
        arena.protect(pages(arena, 0, 1), Rights::ReadWrite).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    writer.finishes();
}

#[test]
fn protecting_an_absent_page_does_not_fill_it_and_mapping_it_writable_drops_the_protection() {
    let Some(arena) = read_only_arena() else {
        return;
    };
    arena.protect(pages(arena, 0, 2), Rights::Read).unwrap();
    let reader = start(move || word(arena, 0).load(Ordering::Relaxed));
    assert_eq!(next_fault(arena).kind, FaultKind::Missing);
    reader.still_waits();
    arena.map_zero(pages(arena, 0, 2), Rights::ReadWrite).unwrap();
    assert_eq!(reader.finishes(), 0);
    assert_writes_fault(arena, &[0, 1], false);
    // The marker that zapping a protected page leaves behind must not outlive the next mapping.
    arena.protect(pages(arena, 0, 2), Rights::Read).unwrap();
    arena.unmap(pages(arena, 0, 2)).unwrap();
    arena.map(pages(arena, 0, 2), Rights::ReadWrite).unwrap();
    assert_writes_fault(arena, &[0, 1], false);
}

#[test]
fn read_only_mappings_of_absent_protected_pages_are_read_only() {
    let Some(arena) = read_only_arena() else {
        return;
    };
    alias_word(arena, 0).store(1, Ordering::Relaxed);
    arena.protect(pages(arena, 0, 1), Rights::Read).unwrap();
    arena.map(pages(arena, 0, 1), Rights::Read).unwrap();
    assert_writes_fault(arena, &[0], true);
}
