//! What a fault says, and which threads a mapping wakes.

use std::sync::atomic::Ordering;
use std::time::Instant;

use farside_linux::uffd::{Fault, FaultKind, Installed, UffdError};
use farside_live::arena::ArenaError;
use farside_types::{Access, Rights};
use rustix::io::Errno;

use super::{
    LIMIT, alias_word, arena, map_without_waking, next_fault, no_fault, pages, start, sum, word,
};

#[test]
fn a_fault_names_address_access_kind_and_thread() {
    let arena = arena();
    let reader = start(move || {
        let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        (id, word(arena, 3).load(Ordering::Relaxed))
    });
    let missing = next_fault(arena);
    assert_eq!(missing.kind, FaultKind::Missing);
    assert_eq!(missing.access, Access::Read);
    assert_eq!(missing.addr, arena.base_page().offset(3).addr());
    arena.map_zero(pages(arena, 3, 1), Rights::ReadWrite).unwrap();
    let (id, value) = reader.finishes();
    assert_eq!((missing.thread, value), (Some(id), 0));

    arena.unmap(pages(arena, 3, 1)).unwrap();
    let writer = start(move || word(arena, 3).store(8, Ordering::Relaxed));
    let minor = next_fault(arena);
    assert_eq!((minor.kind, minor.access), (FaultKind::Minor, Access::Write));
    arena.map(pages(arena, 3, 1), Rights::ReadWrite).unwrap();
    writer.finishes();
    assert_eq!(alias_word(arena, 3).load(Ordering::Relaxed), 8);
}

#[test]
fn one_mapping_wakes_every_thread_that_waits_for_the_page() {
    let arena = arena();
    let threads: Vec<_> =
        (0..8).map(|_| start(move || word(arena, 0).fetch_add(1, Ordering::Relaxed))).collect();
    next_fault(arena);
    arena.map_zero(pages(arena, 0, 1), Rights::ReadWrite).unwrap();
    for thread in &threads {
        thread.finishes();
    }
    assert_eq!(word(arena, 0).load(Ordering::Relaxed), 8);
}

#[test]
fn many_faults_fit_an_array_of_any_size() {
    let arena = arena();
    let threads: Vec<_> =
        (0..40).map(|i| start(move || word(arena, i).load(Ordering::Relaxed))).collect();
    let mut seen = std::collections::BTreeSet::new();
    let end = Instant::now() + LIMIT;
    while seen.len() < 40 && Instant::now() < end {
        let mut faults = [Fault::EMPTY; 3];
        let count = arena.uffd().read_events(&mut faults).unwrap();
        seen.extend(faults[..count].iter().map(|fault| fault.addr));
    }
    assert_eq!(seen.len(), 40);
    let installed = arena.map_zero(pages(arena, 0, 40), Rights::ReadWrite).unwrap();
    assert_eq!(installed, Installed { mapped: 40, present: 0 });
    threads.iter().for_each(|thread| assert_eq!(thread.finishes(), 0));
}

// Wakes

#[test]
fn a_stale_event_wakes_its_thread_whatever_the_rights() {
    for rights in [Rights::ReadWrite, Rights::Read] {
        let arena = arena();
        if rights == Rights::Read && !arena.support().host_read_only {
            continue;
        }
        alias_word(arena, 1).store(11, Ordering::Relaxed);
        let reader = start(move || word(arena, 1).load(Ordering::Relaxed));
        assert_eq!(next_fault(arena).kind, FaultKind::Minor);
        map_without_waking(arena, pages(arena, 1, 1));
        reader.still_waits();
        let installed = arena.map(pages(arena, 1, 1), rights).unwrap();
        assert_eq!(installed, Installed { mapped: 0, present: 1 });
        assert_eq!(reader.finishes(), 11);
    }
}

#[test]
fn a_stale_event_of_a_page_that_has_left_again_does_not_wake_or_map_it() {
    let arena = arena();
    alias_word(arena, 0).store(1, Ordering::Relaxed);
    let reader = start(move || word(arena, 0).load(Ordering::Relaxed));
    next_fault(arena);
    map_without_waking(arena, pages(arena, 0, 1));
    arena.unmap(pages(arena, 0, 1)).unwrap();
    reader.still_waits();
    // Exactly one event per sleeping thread: nothing kept it running in circles.
    no_fault(arena);
    arena.map(pages(arena, 0, 1), Rights::ReadWrite).unwrap();
    assert_eq!(reader.finishes(), 1);
}

#[test]
fn mapped_pages_in_the_middle_do_not_stop_a_range_and_their_threads_wake() {
    let arena = arena();
    for page in 0..16 {
        alias_word(arena, page).store(100 + page, Ordering::Relaxed);
    }
    let reader = start(move || word(arena, 6).load(Ordering::Relaxed));
    next_fault(arena);
    map_without_waking(arena, pages(arena, 5, 2));
    reader.still_waits();
    let installed = arena.map(pages(arena, 0, 16), Rights::ReadWrite).unwrap();
    assert_eq!(installed, Installed { mapped: 14, present: 2 });
    assert_eq!(reader.finishes(), 106);
    assert_eq!(sum(arena, 0, 16), (100..116).sum::<u64>());
    no_fault(arena);
}

#[test]
fn continue_by_itself_leaves_no_thread_asleep_either() {
    let arena = arena();
    for page in 0..8 {
        alias_word(arena, page).store(page, Ordering::Relaxed);
    }
    let reader = start(move || word(arena, 7).load(Ordering::Relaxed));
    next_fault(arena);
    map_without_waking(arena, pages(arena, 7, 1));
    reader.still_waits();
    let installed = arena.uffd().continue_pages(pages(arena, 0, 8), false).unwrap();
    assert_eq!(installed, Installed { mapped: 7, present: 1 });
    assert_eq!(reader.finishes(), 7);
}

#[test]
fn a_hole_stops_a_range_exactly_there_and_what_came_before_is_mapped_and_woken() {
    let arena = arena();
    for page in [0, 1, 2, 4] {
        alias_word(arena, page).store(50 + page, Ordering::Relaxed);
    }
    let reader = start(move || word(arena, 1).load(Ordering::Relaxed));
    next_fault(arena);
    map_without_waking(arena, pages(arena, 1, 1));
    let error = arena.map(pages(arena, 0, 5), Rights::ReadWrite).unwrap_err();
    let ArenaError::Uffd(UffdError::Range { done, errno, .. }) = error else { panic!("{error}") };
    assert_eq!((done, errno), (3, Errno::FAULT));
    assert_eq!(reader.finishes(), 51);
    let text = error.to_string();
    assert!(text.contains("fill it with zeros"), "{text}");
}
