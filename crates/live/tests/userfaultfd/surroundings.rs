//! System calls, children, the alias, and sizes: the arena in the rest of the system.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use farside_linux::uffd::FaultKind;
use farside_live::arena::{Arena, ArenaError};
use farside_live::doctor::Report;
use farside_live::features::Features;
use farside_types::{BLOCK_SIZE, FrameNo, PAGE_SIZE, PageNo, PageRange, Rights, VirtAddr};
use rustix::io::Errno;

use super::{alias_word, arena, next_fault, no_fault, pages, pipe, start, word};

#[test]
fn a_system_call_can_fill_an_absent_page() {
    let arena = arena();
    let (from, to) = pipe();
    rustix::io::write(&to, &[7; 100]).unwrap();
    let address = arena.program_ptr(arena.base_page().offset(2)).unwrap().as_ptr() as usize;
    let reader = start(move || {
        // SAFETY: 100 bytes of an arena that lives for ever; nobody else uses the page.
        let buffer = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, 100) };
        rustix::io::read(&from, buffer)
    });
    if !arena.uffd().support().opened_by.serves_system_calls() {
        assert_eq!(reader.finishes(), Err(Errno::FAULT), "user mode only: as documented");
        return;
    }
    let fault = next_fault(arena);
    assert_eq!(fault.addr.page(), arena.base_page().offset(2));
    arena.map_zero(pages(arena, 2, 1), Rights::ReadWrite).unwrap();
    assert_eq!(reader.finishes(), Ok(100));
    assert_eq!(alias_word(arena, 2).load(Ordering::Relaxed), 0x0707_0707_0707_0707);
}

#[test]
fn a_forked_child_does_not_see_the_arena() {
    let arena = arena();
    arena.map_zero(pages(arena, 0, 1), Rights::ReadWrite).unwrap();
    let (_from, to) = pipe();
    let program = arena.program_ptr(arena.base_page()).unwrap().as_ptr();
    let alias = arena.alias_ptr(pages(arena, 0, 1)).unwrap().as_ptr();
    let write = |address: *mut u8| {
        // SAFETY: the kernel checks the address and answers EFAULT if nothing is mapped there.
        unsafe { libc::write(to.as_raw_fd(), address.cast(), 1) == 1 }
    };
    assert!(write(program) && write(alias), "the parent sees both mappings");
    // SAFETY: the child makes system calls only, as it must after a fork among threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let seen = i32::from(write(program)) + i32::from(write(alias));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(seen) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and ends after two system calls.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "status {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "mappings that the child sees");
}

#[test]
fn the_alias_never_faults_through_userfaultfd() {
    let arena = arena();
    arena.map_zero(pages(arena, 1, 1), Rights::ReadWrite).unwrap();
    arena.unmap(pages(arena, 1, 1)).unwrap();
    let access = start(move || {
        for page in 0..512 {
            alias_word(arena, page).fetch_add(1, Ordering::Relaxed);
        }
    });
    access.finishes();
    no_fault(arena);
    // The program's mapping does.
    let reader = start(move || word(arena, 1).load(Ordering::Relaxed));
    assert_eq!(next_fault(arena).kind, FaultKind::Minor);
    arena.map(pages(arena, 1, 1), Rights::ReadWrite).unwrap();
    assert_eq!(reader.finishes(), 1);
}

// Bounds

#[test]
fn ranges_beyond_the_arena_are_refused_and_empty_ones_do_nothing() {
    let arena = arena();
    let base = arena.base_page();
    let beyond = [
        PageRange::new(base, 513),
        PageRange::new(base.offset(512), 1),
        PageRange::new(PageNo(base.0 - 1), 2),
        PageRange::new(base, u64::MAX),
        PageRange::new(PageNo(u64::MAX), 1),
        PageRange::new(PageNo(0), 1),
    ];
    for range in beyond {
        for outcome in every_operation(arena, range) {
            assert!(matches!(outcome, Err(ArenaError::Bounds { .. })), "{outcome:?}");
        }
    }
    for empty in [PageRange::new(base, 0), PageRange::new(base.offset(512), 0)] {
        for outcome in every_operation(arena, empty) {
            assert!(!matches!(outcome, Err(ArenaError::Bounds { .. } | ArenaError::Call { .. })));
        }
    }
    assert!(arena.contains(base.addr()) && !arena.contains(VirtAddr(base.addr().0 - 1)));
    assert_eq!(arena.frame(base.offset(7)), Some(FrameNo(7)));
    assert_eq!(arena.frame(base.offset(512)), None);
}

fn every_operation(arena: &Arena, range: PageRange) -> Vec<Result<(), ArenaError>> {
    vec![
        arena.unmap(range),
        arena.map(range, Rights::ReadWrite).map(drop),
        arena.map_zero(range, Rights::ReadWrite).map(drop),
        arena.protect(range, Rights::ReadWrite),
        arena.release(range),
        arena.poison(range),
        arena.alias_ptr(range).map(drop),
    ]
}

#[test]
fn sizes_that_are_no_multiple_of_a_block_are_refused() {
    for bytes in [0, 1, PAGE_SIZE as u64, BLOCK_SIZE as u64 + 1] {
        let error = Arena::new(bytes).unwrap_err();
        assert!(matches!(error, ArenaError::Memory(_)), "{bytes}: {error}");
    }
}

#[test]
fn sizes_beyond_what_frames_have_numbers_for_are_refused_as_such() {
    for bytes in [u64::MAX, 1 << 50, 1 << 44] {
        let error = Arena::new(bytes).unwrap_err();
        assert!(matches!(error, ArenaError::TooLarge { .. }), "{bytes}: {error}");
    }
}

#[test]
fn the_default_arena_costs_address_space_only() {
    let arena = Arena::new(farside_live::arena::DEFAULT_ARENA_BYTES)
        .unwrap_or_else(|error| panic!("{error}\n{}", Report::new(&Features::probe())));
    assert_eq!(arena.base_page().addr().0 % BLOCK_SIZE as u64, 0);
    let last = PageRange::new(arena.base_page().offset(arena.pages().count - 1), 1);
    arena.map_zero(last, Rights::ReadWrite).unwrap();
    let blocks = rustix::fs::fstat(arena.file()).unwrap().st_blocks;
    assert!(blocks as usize * 512 <= 2 * PAGE_SIZE, "{blocks} blocks of 512 bytes");
}
