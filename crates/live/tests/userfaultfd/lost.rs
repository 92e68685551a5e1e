//! Pages that are lost end those who touch them.

use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::Ordering;

use farside_linux::uffd::UffdError;
use farside_live::arena::ArenaError;
use farside_types::Rights;
use rustix::io::Errno;

use super::{
    arena_with, assert_writes_fault, in_child, is_child, next_fault, pages, start, sum, word,
};

#[test]
fn a_poisoned_page_raises_sigbus() {
    const NAME: &str = "lost::a_poisoned_page_raises_sigbus";
    let Some(arena) = arena_with(|arena| arena.support().poison, "POISON") else {
        return;
    };
    if is_child(NAME) {
        arena.map_zero(pages(arena, 0, 4), Rights::ReadWrite).unwrap();
        arena.poison(pages(arena, 1, 2)).unwrap();
        assert_eq!(word(arena, 0).load(Ordering::Relaxed), 0);
        assert_eq!(word(arena, 3).load(Ordering::Relaxed), 0);
        word(arena, 2).load(Ordering::Relaxed);
        return;
    }
    assert_eq!(in_child(NAME).signal(), Some(libc::SIGBUS));
}

#[test]
fn poison_ends_an_access_that_waits() {
    const NAME: &str = "lost::poison_ends_an_access_that_waits";
    let Some(arena) = arena_with(|arena| arena.support().poison, "POISON") else {
        return;
    };
    if is_child(NAME) {
        let reader = start(move || word(arena, 0).load(Ordering::Relaxed));
        next_fault(arena);
        arena.poison(pages(arena, 0, 1)).unwrap();
        reader.finishes();
        return;
    }
    assert_eq!(in_child(NAME).signal(), Some(libc::SIGBUS));
}

#[test]
fn poison_takes_pages_in_any_state_and_stale_bytes_never_come_back() {
    let Some(arena) = arena_with(|arena| arena.support().poison, "POISON") else {
        return;
    };
    let range = pages(arena, 0, 6);
    arena.map_zero(pages(arena, 0, 4), Rights::ReadWrite).unwrap();
    let fill = start(move || (0..4).for_each(|page| word(arena, page).store(9, Ordering::Relaxed)));
    fill.finishes();
    if arena.support().host_read_only {
        arena.protect(pages(arena, 1, 2), Rights::Read).unwrap();
    }
    arena.unmap(pages(arena, 2, 2)).unwrap();
    arena.poison(range).unwrap();
    arena.poison(range).unwrap();
    let error = arena.map(range, Rights::ReadWrite).unwrap_err();
    assert!(
        matches!(error, ArenaError::Uffd(UffdError::Range { done: 0, errno: Errno::FAULT, .. })),
        "{error}"
    );
    // A new life for the pages: zeros, nothing else.
    arena.map_zero(range, Rights::ReadWrite).unwrap();
    assert_eq!(sum(arena, 0, 6), 0);
    assert_writes_fault(arena, &[1, 2], false);
}
