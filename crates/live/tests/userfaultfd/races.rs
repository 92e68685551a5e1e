//! Nothing is lost between a page that moves and threads that write to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farside_linux::card_memory::{CardMemory, copy_pages};
use farside_live::arena::Arena;
use farside_types::{BLOCK_PAGES, FrameNo, PAGE_SIZE, PageRange, Rights};

use super::large::{block, large_arena};
use super::{LIMIT, Pending, arena, pages, start, sum, word};

const RACE_PAGES: u64 = 4;

/// Longest run of the race, for machines with other work to do.
const RACE: Duration = Duration::from_secs(2);

/// What is done first.
#[derive(Clone, Copy, PartialEq)]
enum First {
    /// Stop the writers, then copy: the proven sequence.
    StopWriters,
    /// Copy, then stop the writers: the mistake.
    Copy,
}

/// A thread that increments words of four pages without pause.
struct Writer {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    thread: Pending<()>,
}

impl Writer {
    fn start(arena: &'static Arena, first: u64) -> Writer {
        let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&written));
        let thread = start(move || {
            while !stopped.load(Ordering::Relaxed) {
                for page in first..first + RACE_PAGES {
                    word(arena, page).fetch_add(1, Ordering::Relaxed);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Writer { stop, written, thread }
    }

    #[track_caller]
    fn makes_progress(&self) {
        let before = self.written.load(Ordering::Relaxed);
        let end = Instant::now() + LIMIT;
        while self.written.load(Ordering::Relaxed) < before + 2 * RACE_PAGES {
            assert!(Instant::now() < end, "the writer makes no progress");
            std::thread::yield_now();
        }
    }

    /// Increments made in all.
    fn finish(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.finishes();
        self.written.load(Ordering::Relaxed)
    }
}

/// Sends pages to a card and back `cycles` times under a racing writer. Gives the number of increments
/// that are not in memory afterwards.
fn increments_lost(first: First, cycles: u32) -> u64 {
    let arena = arena();
    let range = pages(arena, 0, RACE_PAGES);
    arena.map_zero(range, Rights::ReadWrite).unwrap();
    increments_lost_in(arena, 0, &[range], first, cycles)
}

/// The same with these ranges one after the other; all hold the writer's pages, which begin at `at`.
fn increments_lost_in(
    arena: &'static Arena,
    at: u64,
    ranges: &[PageRange],
    first: First,
    cycles: u32,
) -> u64 {
    let card = CardMemory::new(BLOCK_PAGES as u32).unwrap();
    let writer = Writer::start(arena, at);
    let end = Instant::now() + RACE;
    for range in ranges.iter().cycle().take(cycles as usize * ranges.len()) {
        writer.makes_progress();
        there_and_back(arena, *range, &card, &writer, first);
        if Instant::now() > end {
            break;
        }
    }
    writer.finish() - sum(arena, at, RACE_PAGES)
}

fn there_and_back(
    arena: &Arena,
    range: PageRange,
    card: &CardMemory,
    writer: &Writer,
    first: First,
) {
    let host = arena.alias_ptr(range).unwrap().as_ptr();
    let frames = card.run_ptr(FrameNo(0), range.count as u32).unwrap().as_ptr();
    let count = range.count as usize;
    // SAFETY: both ends are live and as long as the range. In the negative control the writer
    // races with the copy on purpose: that is the mistake under test.
    let copy_out = || unsafe { copy_pages(host, frames, count) };
    match first {
        First::StopWriters => {
            arena.unmap(range).unwrap();
            std::thread::yield_now();
            copy_out();
        }
        First::Copy => {
            copy_out();
            writer.makes_progress();
            arena.unmap(range).unwrap();
        }
    }
    // The host's frames are stale now; make sure that nobody sees them.
    // SAFETY: the program's mapping is gone and the alias is this thread's.
    unsafe { host.write_bytes(0xee, count * PAGE_SIZE) };
    // SAFETY: as above.
    unsafe { copy_pages(frames, host, count) };
    arena.map(range, Rights::ReadWrite).unwrap();
}

#[test]
fn a_writer_that_races_with_migration_loses_nothing() {
    assert_eq!(increments_lost(First::StopWriters, 4_000), 0);
}

#[test]
fn a_writer_that_races_with_a_large_block_that_is_opened_and_closed_loses_nothing() {
    let ((arena, _), first) = (large_arena(), First::StopWriters);
    let (whole, at) = (block(arena), BLOCK_PAGES + 100);
    // As a whole, in part, and as a whole again when it was taken apart.
    let ranges = [whole, pages(arena, at, RACE_PAGES), whole];
    arena.map_zero(whole, Rights::ReadWrite).unwrap();
    assert_eq!(increments_lost_in(arena, at, &ranges, first, 2_000), 0);
}

#[test]
fn negative_control_copying_a_large_block_before_stopping_writers_loses_increments() {
    let (arena, _) = large_arena();
    arena.map_zero(block(arena), Rights::ReadWrite).unwrap();
    let lost = increments_lost_in(arena, BLOCK_PAGES, &[block(arena)], First::Copy, 50);
    assert!(lost > 0, "the race test cannot see a lost increment");
}

#[test]
fn negative_control_copying_before_stopping_writers_loses_increments() {
    assert!(increments_lost(First::Copy, 50) > 0, "the race test cannot see a lost increment");
}
