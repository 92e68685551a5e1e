//! Every order in which words, drains and changes of entries can meet, as far as `loom` goes: on the code
//! of [`Words`] itself. Each test has a control that breaks what it is about, and must be caught.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p farside-card --test loom
//! ```
#![cfg(loom)]

use std::panic::AssertUnwindSafe;

use farside_card::tables::{Place, TableEntry};
use farside_card::{Fence, Words, without};
use farside_types::{Access, Rights};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// Where the page is first, and where it is moved to.
const HERE: u32 = 0;
const THERE: u32 = 1;

/// A page that is written by words, and moved by somebody else.
struct Machine {
    words: std::sync::Arc<Words>,
    entry: AtomicU64,
    /// Two frames. Whoever moves the page copies one to the other as DMA does: at once.
    frames: [AtomicU64; 2],
}

impl Machine {
    fn new() -> Machine {
        Machine {
            words: std::sync::Arc::default(),
            entry: AtomicU64::new(entry(HERE)),
            frames: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }
}

fn entry(frame: u32) -> u64 {
    TableEntry::leaf(Place::Own(frame), Rights::ReadWrite, true, 0).used(true).0
}

/// Runs a model; whether it found an order that breaks it.
fn is_broken(model: impl Fn() + Sync + Send + 'static) -> bool {
    let ran = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }));
    ran.is_err()
}

/// What the control leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    /// The user goes on with its run under another mark than the one with which it read the entries.
    OneMark,
    /// The user reads the entry before its mark.
    Mark,
    /// Whoever moves the page does not wait.
    Drain,
    /// Table pages are reused without a disturbance.
    Disturbance,
}

/// A page is moved beside two words that are added to it: none is lost.
fn moves(without: Without) {
    let machine = Arc::new(Machine::new());
    let mut user = machine.words.user();
    let adds = thread::spawn({
        let machine = Arc::clone(&machine);
        move || {
            let mut added = 0;
            for _ in 0..2 {
                let seen = machine.entry.load(Ordering::Acquire);
                let word = user.begin();
                let now = machine.entry.load(Ordering::Acquire);
                let entry = TableEntry(if without == Without::Mark { seen } else { now });
                if let Some(Place::Own(frame)) = entry.place_for(Access::Write, 0) {
                    let frame = &machine.frames[frame as usize];
                    // Not one operation: whoever copies in between loses it.
                    frame.store(frame.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    added += 1;
                }
                drop(word);
            }
            added
        }
    });
    machine.entry.store(TableEntry::INVALID.0, Ordering::Release);
    if without != Without::Drain {
        machine.words.drain();
    }
    let bytes = machine.frames[HERE as usize].load(Ordering::Relaxed);
    machine.frames[THERE as usize].store(bytes, Ordering::Relaxed);
    machine.entry.store(entry(THERE), Ordering::Release);
    let added = adds.join().unwrap();
    assert_eq!(machine.frames[THERE as usize].load(Ordering::Relaxed), added, "one is lost");
}

#[test]
fn no_word_is_lost_beside_a_move() {
    assert!(!is_broken(|| moves(Without::Nothing)));
}

#[test]
fn control_an_entry_that_is_read_before_the_mark_loses_words() {
    assert!(is_broken(|| moves(Without::Mark)));
}

#[test]
fn control_a_move_that_does_not_wait_loses_words() {
    assert!(is_broken(|| moves(Without::Drain)));
}

#[test]
fn control_a_mark_without_its_fence_loses_words() {
    assert!(without(Fence::Mark, || is_broken(|| moves(Without::Nothing))));
}

#[test]
fn control_a_drain_without_its_fence_loses_words() {
    assert!(without(Fence::Drain, || is_broken(|| moves(Without::Nothing))));
}

/// Two pages are moved, one after the other, beside a run that adds to a word of each: its one mark covers
/// both, whichever is moved.
fn moves_two(without: Without) {
    let pages = Arc::new([Machine::new(), Machine::new()]);
    // One card's: what drains for the one page waits for users of the other.
    let words = std::sync::Arc::clone(&pages[0].words);
    let mut user = words.user();
    let adds = thread::spawn({
        let pages = Arc::clone(&pages);
        move || {
            let mut run = user.begin();
            let found = [0, 1].map(|page: usize| {
                let entry = TableEntry(pages[page].entry.load(Ordering::Acquire));
                entry.place_for(Access::Write, 0)
            });
            if without == Without::OneMark {
                drop(run);
                run = user.begin();
            }
            for (page, place) in pages.iter().zip(found) {
                if let Some(Place::Own(frame)) = place {
                    let frame = &page.frames[frame as usize];
                    frame.store(frame.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                }
            }
            drop(run);
            found.map(|place| u64::from(place.is_some()))
        }
    });
    for page in pages.iter() {
        page.entry.store(TableEntry::INVALID.0, Ordering::Release);
        if without != Without::Drain {
            words.drain();
        }
        let bytes = page.frames[HERE as usize].load(Ordering::Relaxed);
        page.frames[THERE as usize].store(bytes, Ordering::Relaxed);
    }
    let added = adds.join().unwrap();
    let found =
        [0, 1].map(|page: usize| pages[page].frames[THERE as usize].load(Ordering::Relaxed));
    assert_eq!(found, added, "one is lost");
}

#[test]
fn no_word_of_a_run_is_lost_beside_moves_of_its_pages() {
    assert!(!is_broken(|| moves_two(Without::Nothing)));
}

#[test]
fn control_a_run_that_outlives_the_mark_of_its_entries_loses_words() {
    assert!(is_broken(|| moves_two(Without::OneMark)));
}

#[test]
fn control_moves_that_do_not_wait_for_a_run_lose_words() {
    assert!(is_broken(|| moves_two(Without::Drain)));
}

#[test]
fn control_a_run_whose_mark_has_no_fence_loses_words() {
    assert!(without(Fence::Mark, || is_broken(|| moves_two(Without::Nothing))));
}

/// A table page is reused beside a user that remembers where it is: it never takes what the page says
/// for its own. The page says whose it is, which in a machine nobody looks at.
fn reuses(without: Without) {
    let words: std::sync::Arc<Words> = std::sync::Arc::default();
    let table = Arc::new(AtomicU64::new(1));
    let mut user = words.user();
    let walks = thread::spawn({
        let table = Arc::clone(&table);
        move || {
            let mut remembers = true;
            for _ in 0..2 {
                let mut word = user.begin();
                if !word.is_undisturbed() {
                    word.take_disturbance();
                    remembers = false;
                }
                if remembers {
                    assert_eq!(table.load(Ordering::Acquire), 1, "somebody else's page");
                }
                drop(word);
            }
        }
    });
    if without == Without::Disturbance {
        words.drain();
    } else {
        words.renew();
    }
    table.store(2, Ordering::Release);
    walks.join().unwrap();
}

#[test]
fn nobody_uses_a_table_page_that_was_reused() {
    assert!(!is_broken(|| reuses(Without::Nothing)));
}

#[test]
fn control_a_table_page_that_is_reused_without_a_disturbance_is_used() {
    assert!(is_broken(|| reuses(Without::Disturbance)));
}

/// A kernel is given up: after the drain it touches nothing, also if it was disturbed twice.
fn gives_up(without: Without) {
    let words: std::sync::Arc<Words> = std::sync::Arc::default();
    let (stop, given_up) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut user = words.user();
    let kernel = thread::spawn({
        let (stop, given_up) = (Arc::clone(&stop), Arc::clone(&given_up));
        move || {
            for _ in 0..2 {
                let mut word = user.begin();
                if !word.is_undisturbed() {
                    word.take_disturbance();
                    if stop.load(Ordering::Relaxed) == 1 {
                        word.stay_disturbed();
                        continue;
                    }
                }
                assert_eq!(given_up.load(Ordering::Acquire), 0, "it has memory still");
                drop(word);
            }
        }
    });
    words.disturb();
    stop.store(1, Ordering::Relaxed);
    if without != Without::Disturbance {
        words.disturb();
    }
    words.drain();
    given_up.store(1, Ordering::Release);
    kernel.join().unwrap();
}

#[test]
fn a_kernel_that_was_given_up_gets_nothing() {
    assert!(!is_broken(|| gives_up(Without::Nothing)));
}

#[test]
fn control_a_kernel_that_is_not_told_goes_on() {
    assert!(is_broken(|| gives_up(Without::Disturbance)));
}

/// Somebody who is added beside a drain: either is waited for, or sees what was changed.
#[test]
fn a_user_that_comes_beside_a_drain_is_waited_for_or_sees_the_change() {
    assert!(!is_broken(|| {
        let machine = Arc::new(Machine::new());
        let comes = thread::spawn({
            let machine = Arc::clone(&machine);
            move || {
                let mut user = machine.words.user();
                let word = user.begin();
                let entry = TableEntry(machine.entry.load(Ordering::Acquire));
                let found = entry.place_for(Access::Write, 0).is_some();
                if found {
                    machine.frames[0].store(1, Ordering::Relaxed);
                }
                drop(word);
                u64::from(found)
            }
        });
        machine.entry.store(TableEntry::INVALID.0, Ordering::Release);
        machine.words.drain();
        let copied = machine.frames[0].load(Ordering::Relaxed);
        assert_eq!(copied, comes.join().unwrap(), "it was missed");
    }));
}
