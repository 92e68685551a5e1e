//! Agents that want the same page at the same time all make progress, and are named.

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
        assert!(report.stats.throttles > 0, "{:?}", report.stats);
        let page = space.pages(&words[..]).unwrap().start;
        let fight = report.fights.iter().find(|fight| fight.fight.page == page);
        let fight = fight.unwrap_or_else(|| panic!("not named: {:?}", report.fights));
        assert_eq!(fight.object, "apple of discord");
        assert!(fight.fight.throttles > 0);
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
