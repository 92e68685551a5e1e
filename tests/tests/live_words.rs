//! Words of kernels, which take no lock: resident ones ask nobody, two cards that change the same ones lose
//! none and settle, and a kernel that is not wanted gets none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use farside::{AtomicSpan, Error, KernelContext, KernelError, Shared, Space, SpaceBuilder};
use farside_types::{MemoryId, Span};
use harness::live::within;

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;

fn builder(cards: usize) -> SpaceBuilder {
    Space::builder().cards(cards).card_memory(64 << 20).address_space(256 << 20)
}

/// Numbers below `end` that look random.
fn random(state: &mut u64, end: usize) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*state >> 33) as usize % end
}

#[test]
fn random_words_of_resident_pages_ask_the_driver_for_nothing() {
    within(LIMIT, "resident words", || {
        // 8192 pages: eight times what the card's TLBs know.
        const WORDS: usize = 8192 * PAGE;
        let space = builder(1).build().unwrap();
        let table = space.alloc_atomic::<AtomicU64>(WORDS, "table").unwrap();
        space.migrate(&table, space.card(0).unwrap()).unwrap();
        let before = space.report().stats;
        let launch = space.kernel("random");
        let body = |k: &mut KernelContext, table: AtomicSpan<AtomicU64>| {
            let mut state = 5;
            for _ in 0..200_000 {
                k.fetch_add(table, random(&mut state, WORDS), 1)?;
            }
            Ok(())
        };
        launch.run(Shared(&table), body).unwrap();
        let after = space.report().stats;
        assert_eq!((after.card_faults, after.refills), (before.card_faults, before.refills));
        assert_eq!(table.iter().map(|word| word.load(SeqCst)).sum::<u64>(), 200_000);
    });
}

/// Both cards add to random words of 512 pages. Gives the pages that moved from a memory to another.
fn two_cards_add(space: &Space, each: u64) -> u64 {
    const WORDS: usize = 512 * PAGE;
    let table = space.alloc_atomic::<AtomicU64>(WORDS, "table").unwrap();
    space
        .scope(|scope| {
            for card in space.cards() {
                let body = move |k: &mut KernelContext, table: AtomicSpan<AtomicU64>| {
                    let mut state = 11 + u64::from(card.0);
                    for _ in 0..each {
                        k.fetch_add(table, random(&mut state, WORDS), 1)?;
                    }
                    Ok(())
                };
                scope.kernel("add").on(card).launch(Shared(&table), body)?;
            }
            Ok::<_, Error>(())
        })
        .unwrap();
    let moved = moved_between_memories(space);
    assert_eq!(table.iter().map(|word| word.load(SeqCst)).sum::<u64>(), 2 * each);
    moved
}

fn moved_between_memories(space: &Space) -> u64 {
    let stats = space.report().stats;
    let moves = stats.moves.iter().filter(|((from, to), _)| {
        from.is_some_and(|from| from != MemoryId::HOST) && *to != MemoryId::HOST
    });
    moves.map(|(_, pages)| pages).sum()
}

#[test]
fn two_cards_that_change_the_same_pages_settle_and_lose_nothing() {
    within(LIMIT, "settled words", || {
        for scheme in farside::placement::NAMES {
            let space = builder(2).placement(scheme).build().unwrap();
            let moved = two_cards_add(&space, 200_000);
            let fights = space.report().stats.settled_fights;
            assert!(moved <= 2 * 512, "{scheme}: {moved} pages moved, {fights} settled");
        }
    });
}

#[test]
fn control_without_contests_they_move_their_pages_again_and_again() {
    within(LIMIT, "unsettled words", || {
        let space = builder(2)
            .placement("on-touch")
            .tune(|config| {
                config.thrash.contests = false;
                config.thrash.window = Span::ZERO;
            })
            .build()
            .unwrap();
        // They may happen to run one after the other, on a busy machine.
        let moved = (0..20).map(|_| two_cards_add(&space, 20_000)).max().unwrap_or(0);
        assert!(moved > 2 * 512, "{moved}");
    });
}

/// A kernel that does not mind errors goes on for ever, and touches nothing any more.
#[test]
fn a_kernel_that_ignores_that_it_is_cancelled_gets_no_word() {
    within(LIMIT, "cancelled words", || {
        let space = builder(1).build().unwrap();
        let words = space.alloc_atomic::<AtomicU64>(PAGE, "words").unwrap();
        let refused = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&refused);
        let body = move |k: &mut KernelContext, words: AtomicSpan<AtomicU64>| {
            let mut in_a_row = 0;
            loop {
                match k.fetch_add(words, 7, 1) {
                    Ok(_) if in_a_row > 0 => return Err(k.fail("it got one after all")),
                    Ok(_) => {}
                    Err(error) => {
                        in_a_row += 1;
                        seen.fetch_add(1, SeqCst);
                        if in_a_row == 1000 {
                            return Err::<(), _>(error);
                        }
                    }
                }
            }
        };
        let launch = space.kernel("deaf").time_limit(Duration::from_millis(50));
        let error = launch.run(Shared(&words), body).unwrap_err();
        assert!(matches!(error, Error::Kernel(KernelError::TimedOut { .. })), "{error}");
        assert_eq!(refused.load(SeqCst), 1000);
        assert!(words[7].load(SeqCst) > 0);
    });
}
