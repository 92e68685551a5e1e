//! Words of kernels, which take no lock: resident ones ask nobody, two cards that change the same ones lose
//! none and settle, and a kernel that is not wanted gets none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use bytemuck::Pod;
use farside::{
    AtomicSpan, Error, KernelContext, KernelError, Ptr, Shared, Space, SpaceBuilder, Write,
    WriteSpan,
};
use farside_types::{MemoryId, Span, VirtAddr};
use harness::live::within;

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;

type Words = AtomicSpan<AtomicU64>;

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
fn ignores_that_it_is_cancelled(add: fn(&mut KernelContext, Words) -> Result<(), KernelError>) {
    within(LIMIT, "cancelled words", move || {
        let space = builder(1).build().unwrap();
        let words = space.alloc_atomic::<AtomicU64>(PAGE, "words").unwrap();
        let refused = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&refused);
        let body = move |k: &mut KernelContext, words: Words| {
            let mut in_a_row = 0;
            loop {
                match add(k, words) {
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

#[test]
fn a_kernel_that_ignores_that_it_is_cancelled_gets_no_word() {
    ignores_that_it_is_cancelled(|k, words| k.fetch_add(words, 7, 1).map(drop));
}

#[test]
fn a_kernel_that_ignores_that_it_is_cancelled_gets_no_run() {
    ignores_that_it_is_cancelled(|k, words| k.fetch_add_all(words, &[(7, 1); 100], None));
}

/// Lengths of runs, below, at and above what one mark covers.
const LENGTHS: [usize; 7] = [0, 1, 31, 32, 33, 64, 500];

#[test]
fn runs_read_and_write_what_their_words_would_one_after_the_other() {
    within(LIMIT, "runs of values", || {
        const WORDS: usize = 64 * PAGE;
        let space = builder(1).build().unwrap();
        let mut data = space.alloc::<u64>(WORDS).unwrap();
        // The other half comes by faults, in the middle of runs.
        space.migrate(&data[WORDS / 2..], space.card(0).unwrap()).unwrap();
        let body = |k: &mut KernelContext, data: WriteSpan<u64>| {
            let (mut plain, mut state) = (vec![0u64; WORDS], 3);
            for turn in 0..200 {
                let length = LENGTHS[turn % LENGTHS.len()];
                // Some of them twice.
                let end = if turn % 3 == 0 { 100 } else { WORDS };
                let run: Vec<usize> = (0..length).map(|_| random(&mut state, end)).collect();
                let at: Vec<Ptr<u64>> = run.iter().map(|&index| data.ptr(index)).collect();
                let values: Vec<u64> =
                    (0..length as u64).map(|at| at << 32 | turn as u64).collect();
                k.scatter(&at, &values)?;
                run.iter().zip(&values).for_each(|(&index, &value)| plain[index] = value);
                let run: Vec<usize> = (0..length).map(|_| random(&mut state, end)).collect();
                let at: Vec<Ptr<u64>> = run.iter().map(|&index| data.ptr(index)).collect();
                let mut found = vec![7; length];
                k.gather(&at, &mut found)?;
                if found.iter().zip(&run).any(|(&found, &index)| found != plain[index]) {
                    return Err(k.fail(format!("turn {turn} found {found:?}")));
                }
            }
            Ok(plain)
        };
        let plain = space.kernel("runs").run(Write(&mut data), body).unwrap();
        assert!(data.iter().zip(&plain).all(|(word, plain)| word == plain));
    });
}

#[test]
fn runs_of_atomic_operations_count_each_word_and_tell_what_it_was() {
    within(LIMIT, "runs of atomics", || {
        let space = builder(1).build().unwrap();
        let words = space.alloc_atomic::<AtomicU64>(2 * PAGE, "words").unwrap();
        let body = |k: &mut KernelContext, words: Words| {
            let (mut plain, mut state) = (vec![0u64; 2 * PAGE], 3);
            for turn in 0..200 {
                let length = LENGTHS[turn % LENGTHS.len()];
                // Few words: each run has some of them several times.
                let adds: Vec<(usize, u64)> =
                    (0..length).map(|at| (random(&mut state, 16) * 64, at as u64)).collect();
                let mut was = vec![0; length];
                k.fetch_add_all(words, &adds, Some(&mut was))?;
                k.fetch_add_all(words, &adds, None)?;
                for (&(index, value), was) in adds.iter().zip(was) {
                    if was != plain[index] {
                        return Err(k.fail(format!("word {index} was {was}")));
                    }
                    plain[index] += value;
                }
                adds.iter().for_each(|&(index, value)| plain[index] += value);
                // Every other is expected wrongly; what one replaces the next one finds.
                let tries: Vec<(usize, u64, u64)> =
                    adds.iter().map(|&(at, value)| (at, plain[at] + value % 2, value)).collect();
                let mut outcomes = vec![Ok(0); length];
                k.compare_exchange_all(words, &tries, &mut outcomes)?;
                for (&(index, expected, value), outcome) in tries.iter().zip(outcomes) {
                    let is = plain[index];
                    if outcome != if is == expected { Ok(is) } else { Err(is) } {
                        return Err(k.fail(format!("{outcome:?} where {is} was")));
                    }
                    if is == expected {
                        plain[index] = value;
                    }
                }
            }
            Ok(plain)
        };
        let plain = space.kernel("runs").run(Shared(&words), body).unwrap();
        assert!(words.iter().zip(&plain).all(|(word, &plain)| word.load(SeqCst) == plain));
    });
}

#[test]
fn runs_take_values_of_any_size_and_words_anywhere_in_a_page() {
    within(LIMIT, "sizes", || {
        let space = builder(1).build().unwrap();
        let mut data = space.alloc::<u8>(2 * 4096).unwrap();
        data.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
        fn check<T: Pod + PartialEq>(k: &mut KernelContext, start: u64) -> Result<(), KernelError> {
            // No two overlap, none crosses a page.
            let at = |index: usize| start + (index * 41 + index % 3) as u64;
            let run: Vec<Ptr<T>> = (0..90).map(|index| Ptr::at(at(index))).collect();
            let single: Vec<T> = run.iter().map(|&at| k.load(at)).collect::<Result<_, _>>()?;
            let mut found = vec![T::zeroed(); run.len()];
            k.gather(&run, &mut found)?;
            let mut turned = single.clone();
            turned.reverse();
            k.scatter(&run, &turned)?;
            let now: Vec<T> = run.iter().map(|&at| k.load(at)).collect::<Result<_, _>>()?;
            k.scatter(&run, &single)?;
            if found == single && now == turned { Ok(()) } else { Err(k.fail("they differ")) }
        }
        let body = |k: &mut KernelContext, data: WriteSpan<u8>| {
            check::<u8>(k, data.start())?;
            check::<u16>(k, data.start())?;
            check::<u32>(k, data.start())?;
            check::<u64>(k, data.start())?;
            check::<[u64; 2]>(k, data.start())?;
            check::<[u8; 3]>(k, data.start())
        };
        space.kernel("sizes").run(Write(&mut data), body).unwrap();
        assert!(data.iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8));
    });
}

/// Why a request of a run was refused.
fn refused(outcome: Result<(), KernelError>) -> String {
    match outcome {
        Err(KernelError::BadRequest { why, .. }) => why,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn a_run_that_fails_has_done_the_words_before_and_says_which_it_was() {
    within(LIMIT, "failing runs", || {
        let space = builder(1).build().unwrap();
        let mut data = space.alloc::<u64>(2 * PAGE).unwrap();
        let words = space.alloc_atomic::<AtomicU64>(100, "words").unwrap();
        let body = |k: &mut KernelContext, (data, words): (WriteSpan<u64>, Words)| {
            let mut at: Vec<Ptr<u64>> = (0..100).map(|index| data.ptr(index)).collect();
            at[70] = Ptr::at(0x100);
            let values: Vec<u64> = (1..=100).collect();
            for outcome in [k.scatter(&at, &values), k.gather(&at, &mut [9; 100])] {
                let Err(error @ KernelError::WildAddress { addr: VirtAddr(0x100), .. }) = outcome
                else {
                    panic!("that was not lent: {outcome:?}");
                };
                assert!(error.to_string().contains("word 70 of the 100"), "{error}");
            }
            let mut found = [9; 100];
            k.gather(&at, &mut found).unwrap_err();
            assert!((1..=70).eq(found[..70].iter().copied()) && found[70..] == [9; 30]);
            at[70] = Ptr::at(data.ptr(PAGE).addr() - 4);
            let why = refused(k.gather(&at, &mut found));
            assert!(why.contains("crosses a page") && why.contains("word 70 of the 100"), "{why}");

            let mut adds: Vec<(usize, u64)> = (0..100).map(|index| (index, 1)).collect();
            adds[40].0 = 100;
            let why = refused(k.fetch_add_all(words, &adds, None));
            assert!(why.contains("index 100 is behind the end of 100 words"), "{why}");
            assert!(why.contains("word 40 of the 100 of a fetch_add_all"), "{why}");

            // Nothing is done where lengths differ, or there is nothing to be done.
            let why = refused(k.gather(&at, &mut found[..99]));
            assert!(why.contains("gather of 100 words has room for 99 values"), "{why}");
            refused(k.scatter(&at[..1], &[]));
            refused(k.fetch_add_all(words, &adds[..2], Some(&mut [0])));
            refused(k.compare_exchange_all(words, &[(0, 1, 5)], &mut []));
            k.gather::<u64>(&[], &mut [])?;
            k.fetch_add_all(words, &[], Some(&mut []))?;
            k.compare_exchange_all(words, &[], &mut [])
        };
        space.kernel("fails").run((Write(&mut data), Shared(&words)), body).unwrap();
        let written = |at| if at < 70 { at as u64 + 1 } else { 0 };
        assert!(data.iter().enumerate().all(|(at, &word)| word == written(at)));
        let added = |at| u64::from(at < 40);
        assert!(words.iter().enumerate().all(|(at, word)| word.load(SeqCst) == added(at)));
    });
}

/// What a run is told and what it finds lies in shared memory itself, on the card: a mark that were held
/// while the kernel's thread touches it would be waited for by the very move that the thread waits for.
#[test]
fn a_run_whose_addresses_and_values_are_on_the_card_waits_for_nobody() {
    within(LIMIT, "runs in shared memory", || {
        const WORDS: usize = 4 * PAGE;
        const TURNS: u64 = 10;
        let space = builder(1).build().unwrap();
        let card = space.card(0).unwrap();
        let words = space.alloc_atomic::<AtomicU64>(WORDS, "words").unwrap();
        let mut at = space.alloc::<Ptr<u64>>(WORDS).unwrap();
        let mut found = space.alloc::<u64>(WORDS).unwrap();
        let span = AtomicSpan::of(&words[..]);
        at.iter_mut().enumerate().for_each(|(index, at)| *at = span.ptr(index));
        words.iter().zip(1..).for_each(|(word, value)| word.store(value, SeqCst));
        let before = space.report().stats.host_faults;
        for _ in 0..TURNS {
            space.migrate(&words, card).unwrap();
            space.migrate(&at, card).unwrap();
            space.migrate(&found, card).unwrap();
            let body = move |k: &mut KernelContext, _: Words| {
                k.gather(&at, &mut found)?;
                Ok((at, found))
            };
            (at, found) = space.kernel("gather").run(Shared(&words), body).unwrap();
            assert!((1..).zip(found.iter()).all(|(value, &found)| found == value));
            found.fill(0);
        }
        let faults = space.report().stats.host_faults - before;
        assert!(faults >= 2 * TURNS, "{faults} faults: what it was told was not on the card");
    });
}
