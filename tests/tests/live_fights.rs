//! Agents that want the same page at the same time all make progress, and are named.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use farside::{CardId, KernelContext, Shared, Space, Write, WriteSpan, WriteView};
use harness::live::{seconds, within};

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;

#[test]
fn invariant_19_three_agents_on_one_page_all_make_progress_and_are_named() {
    within(LIMIT, "three-way", || {
        let space = Space::builder()
            .cards(2)
            .address_space(16 << 20)
            .tune(|config| {
                // So wide that a slow machine still fights within it.
                config.thrash.window = farside_types::Span::from_millis(50);
            })
            .build()
            .unwrap();
        let words = space.alloc_atomic::<AtomicU64>(PAGE, "apple of discord").unwrap();
        let stop = AtomicBool::new(false);
        let counts: Vec<u64> = std::thread::scope(|s| {
            let kernel = |card: u8| {
                let mut count = 0u64;
                while !stop.load(SeqCst) {
                    let body = |k: &mut KernelContext, words| {
                        for _ in 0..20 {
                            k.fetch_add(words, 0, 1u64)?;
                            std::thread::yield_now();
                        }
                        Ok(20)
                    };
                    let launch = space.kernel("fighter").on(CardId(card));
                    count += launch.run(Shared(&words), body).unwrap();
                }
                count
            };
            let cards = [0, 1].map(|card| s.spawn(move || kernel(card)));
            let host = s.spawn(|| {
                let mut count = 0;
                while !stop.load(SeqCst) {
                    words[0].fetch_add(1, SeqCst);
                    count += 1;
                    std::thread::yield_now();
                }
                count
            });
            std::thread::sleep(seconds());
            stop.store(true, SeqCst);
            let mut counts: Vec<u64> = cards.into_iter().map(|card| card.join().unwrap()).collect();
            counts.push(host.join().unwrap());
            counts
        });
        assert_eq!(words[0].load(SeqCst), counts.iter().sum::<u64>());
        assert!(counts.iter().all(|&count| count >= 40), "somebody starved: {counts:?}");
        let report = space.report();
        assert!(report.stats.settled_fights + report.stats.throttles > 0, "{:?}", report.stats);
        let page = space.pages(&words[..]).unwrap().start;
        let fight = report.fights.iter().find(|fight| fight.fight.page == page);
        let fight = fight.unwrap_or_else(|| panic!("not named: {:?}", report.fights));
        assert_eq!(fight.object, "apple of discord");
        assert!(report.to_string().contains("apple of discord"));
        space.check().unwrap();
    });
}

#[test]
fn invariant_38_two_cards_that_each_hold_what_the_other_wants_both_get_it() {
    within(LIMIT, "livelock", || {
        let space =
            Space::builder().cards(2).card_memory(4 << 20).address_space(16 << 20).build().unwrap();
        const PAGES: usize = 64;
        let words = space.alloc_atomic::<AtomicU64>(PAGES * PAGE, "halves").unwrap();
        let (low, high) = words.split_at(PAGES / 2 * PAGE);
        let (a, b) = (space.card(0).unwrap(), space.card(1).unwrap());
        for _ in 0..20 {
            space.migrate(low, a).unwrap();
            space.migrate(high, b).unwrap();
            space.scope(|s| {
                // Each starts in the other's half.
                for (card, first) in [(a, PAGES / 2), (b, 0)] {
                    s.kernel("both halves")
                        .on(card)
                        .launch(Shared(&words), move |k, words| {
                            for page in 0..PAGES {
                                k.fetch_add(words, (first + page) % PAGES * PAGE, 1u64)?;
                            }
                            Ok(())
                        })
                        .unwrap();
                }
            });
        }
        assert!((0..PAGES).all(|page| words[page * PAGE].load(SeqCst) == 40));
        space.check().unwrap();
    });
}

#[test]
fn invariant_38_groups_that_cross_each_other_are_bounded() {
    within(LIMIT, "crossing groups", || {
        // Neighbours in memory of their own, pages in common: each group's first and last page
        // belong to the neighbour as well.
        let space =
            Space::builder().cards(3).card_memory(4 << 20).address_space(16 << 20).build().unwrap();
        const PAGES: usize = 12;
        let mut data = space.alloc::<u64>(PAGES * PAGE).unwrap();
        let step = data.len() / 3 - PAGE / 3;
        let mut parts: Vec<&mut [u64]> = data.chunks_mut(step).take(3).collect();
        let rounds = 100;
        space.scope(|s| {
            for (card, part) in parts.drain(..).enumerate() {
                s.kernel("crossing")
                    .on(CardId(card as u8))
                    .launch(Write(part), move |k, mut part: WriteSpan<u64>| {
                        for _ in 0..rounds {
                            k.with(part.slice(..), |mut part: WriteView<u64>| {
                                part.iter_mut().for_each(|word| *word += 1);
                            })?;
                        }
                        Ok(())
                    })
                    .unwrap();
            }
        });
        assert!(data[..3 * step].iter().all(|&word| word == rounds));
        assert!(data[3 * step..].iter().all(|&word| word == 0));
        space.check().unwrap();
    });
}

/// Pages of an allocation that is fought over.
const CONTESTED: usize = 64;

/// Adds to words all over an allocation from two cards and, if it is to, from the host, for the length of a race.
/// Every sum is right. Gives the space, for what it has counted.
fn fight_over_all(with_host: bool, tune: fn(&mut farside_svm::Config)) -> Space {
    let space = Space::builder().cards(2).address_space(16 << 20).tune(tune).build().unwrap();
    let words = space.alloc_atomic::<AtomicU64>(CONTESTED * PAGE, "contested").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let added: u64 = std::thread::scope(|s| {
        let card = |card: u8| {
            let stop = Arc::clone(&stop);
            let body = move |k: &mut KernelContext, words| {
                let (mut at, mut count) = (usize::from(card), 0u64);
                while !stop.load(SeqCst) {
                    at = (at * 5 + 1) % (CONTESTED * PAGE);
                    k.fetch_add(words, at, 1u64)?;
                    count += 1;
                }
                Ok(count)
            };
            space.kernel("adder").on(CardId(card)).run(Shared(&words), body).unwrap()
        };
        let cards = [0, 1].map(|number| s.spawn(move || card(number)));
        let host = s.spawn(|| {
            let (mut at, mut count) = (7, 0);
            while with_host && !stop.load(SeqCst) {
                at = (at * 5 + 3) % (CONTESTED * PAGE);
                words[at].fetch_add(1, SeqCst);
                count += 1;
            }
            count
        });
        std::thread::sleep(seconds());
        stop.store(true, SeqCst);
        cards.into_iter().map(|card| card.join().unwrap()).sum::<u64>() + host.join().unwrap()
    });
    assert_eq!(words.iter().map(|word| word.load(SeqCst)).sum::<u64>(), added);
    space.check().unwrap();
    drop(words);
    space
}

/// A fight was settled, and since then a probe of 16 pages moved now and then.
fn is_settled(space: &Space) {
    let stats = space.report().stats;
    assert!(stats.settled_fights > 0, "{stats:?}");
    let moved: u64 = stats.moves.values().sum();
    assert!(moved < 40 * CONTESTED as u64, "{moved} pages moved: {stats:?}");
}

#[test]
fn the_host_and_running_cards_that_change_the_same_words_settle() {
    within(LIMIT, "host and cards", || is_settled(&fight_over_all(true, |_| ())));
}

#[test]
fn cards_that_do_not_reach_each_other_settle_on_the_host() {
    within(LIMIT, "no peers", || {
        is_settled(&fight_over_all(false, |config| {
            let maps = &mut config.capabilities.maps;
            for card in [CardId(0), CardId(1)] {
                maps[usize::from(card.0) + 1] = maps[0].with(card.memory());
            }
        }));
    });
}

#[test]
fn control_without_contests_pages_go_to_and_fro_for_ever() {
    within(LIMIT, "no contests", || {
        let space = fight_over_all(true, |config| config.thrash.contests = false);
        let moved: u64 = space.report().stats.moves.values().sum();
        assert!(moved > 40 * CONTESTED as u64, "{moved} pages moved");
    });
}
