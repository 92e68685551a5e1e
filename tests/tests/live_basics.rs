//! The plain uses of a space, live: every feature of the interface does what it says.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use bytemuck::{Pod, Zeroable};
use farside::{
    Advice, CardId, Error, KernelContext, KernelError, LiveError, MemoryId, Ptr, Read, ReadView,
    Reason, Shared, Space, Write, WriteView, placement,
};
use farside_svm::Mutation;
use harness::live::{must_be_caught, within};

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;

fn space(cards: usize) -> Space {
    Space::builder().cards(cards).card_memory(8 << 20).address_space(64 << 20).build().unwrap()
}

fn add_one(k: &mut KernelContext, data: farside::WriteSpan<u64>) -> Result<(), KernelError> {
    k.with(data, |mut data: WriteView<u64>| data.iter_mut().for_each(|word| *word += 1))
}

#[test]
fn every_scheme_moves_data_between_one_to_four_cards_and_the_host() {
    within(LIMIT, "schemes", || {
        for name in placement::NAMES {
            for cards in 1..=4 {
                let space = Space::builder()
                    .cards(cards)
                    .card_memory(4 << 20)
                    .address_space(16 << 20)
                    .placement(name)
                    .build()
                    .unwrap();
                let mut data = space.alloc::<u64>(40 * PAGE).unwrap();
                for (i, word) in data.iter_mut().enumerate() {
                    *word = i as u64;
                }
                for round in 0..3u64 {
                    for card in space.cards() {
                        space.kernel("add").on(card).run(Write(&mut data), add_one).unwrap();
                    }
                    let more = (round + 1) * cards as u64;
                    for (i, word) in data.iter().enumerate() {
                        assert_eq!(*word, i as u64 + more, "{name}, {cards} cards, word {i}");
                    }
                }
                space.check().unwrap();
            }
        }
    });
}

#[test]
fn user_managed_moves_put_pages_where_they_are_told_to_be() {
    within(LIMIT, "migrate", || {
        let space = space(2);
        let (a, b) = (space.card(0).unwrap(), space.card(1).unwrap());
        let mut data = space.alloc_named::<u64>(100 * PAGE, "moved").unwrap();
        data.fill(7);
        assert_eq!(space.migrate(&data, a).unwrap(), 100);
        let at = space.locate(&data).unwrap();
        assert_eq!(at.len(), 1);
        assert_eq!((at[0].owner, at[0].reason), (Some(a.memory()), Some(Reason::User)));
        assert_eq!(space.migrate(&data[10 * PAGE..20 * PAGE], b).unwrap(), 10);
        let owners: Vec<_> = space.locate(&data).unwrap().iter().map(|part| part.owner).collect();
        assert_eq!(owners, [a.memory(), b.memory(), a.memory()].map(Some));
        // A request over two source memories is split and comes home whole.
        assert_eq!(space.migrate(&data, MemoryId::HOST).unwrap(), 100);
        assert!(data.iter().all(|&word| word == 7));
        let history = space.history(&data).unwrap();
        assert!(history.iter().any(|moved| moved.to == b.memory()), "{history:?}");
        let moved = space.report().stats.by_direction();
        assert_eq!((moved.host_to_card, moved.card_to_card), (100, 10));
        space.check().unwrap();
    });
}

#[test]
fn cards_hand_pages_to_each_other_directly_and_through_a_bounce_buffer() {
    within(LIMIT, "card to card", || {
        for peer in [true, false] {
            let space = Space::builder()
                .cards(2)
                .card_memory(8 << 20)
                .address_space(32 << 20)
                .peer_to_peer(peer)
                .tune(|config| config.capabilities.bounce_pages = 64)
                .build()
                .unwrap();
            let (a, b) = (space.card(0).unwrap(), space.card(1).unwrap());
            let mut data = space.alloc::<u64>(500 * PAGE).unwrap();
            data.iter_mut().enumerate().for_each(|(i, word)| *word = i as u64);
            for card in [a, b, a, b] {
                space.kernel("add").on(card).run(Write(&mut data), add_one).unwrap();
            }
            let report = space.report();
            assert_eq!(report.directions.card_to_card, 1500, "peer {peer}");
            let flow = report.traffic.card_to_card;
            assert!(flow.pages == 1500 && flow.bandwidth().is_some(), "peer {peer}: {flow:?}");
            assert!(data.iter().enumerate().all(|(i, &word)| word == i as u64 + 4), "peer {peer}");
            space.check().unwrap();
        }
    });
}

/// A node of a list that is spread over pages.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Node {
    value: u64,
    next: Ptr<Node>,
}

#[test]
fn plain_pointers_are_followed_on_every_card() {
    within(LIMIT, "chase", || {
        const NODES: usize = 2000;
        let space = space(2);
        let mut nodes = space.alloc::<Node>(NODES).unwrap();
        // A walk with a step that is prime to the length visits every node.
        let order = |i: usize| i * 777 % NODES;
        for i in 0..NODES {
            let next = if i + 1 < NODES { Ptr::to(&nodes[order(i + 1)]) } else { Ptr::NULL };
            nodes[order(i)] = Node { value: i as u64, next };
        }
        for round in 1..=2u64 {
            for card in space.cards() {
                let sum = space
                    .kernel("chase")
                    .on(card)
                    .run(Write(&mut nodes), move |k, nodes| {
                        let mut at: Ptr<Node> = nodes.ptr(0);
                        let mut sum = 0;
                        while !at.is_null() {
                            let node = k.load(at)?;
                            sum += node.value;
                            k.store(at.field::<u64>(0), node.value + 1)?;
                            at = node.next;
                        }
                        Ok(sum)
                    })
                    .unwrap();
                let done = 2 * (round - 1) + u64::from(card.0);
                let n = NODES as u64;
                assert_eq!(sum, n * (n - 1) / 2 + n * done, "round {round} on {card}");
            }
        }
        assert_eq!(nodes[order(5)].value, 5 + 4);
    });
}

#[test]
fn scattered_frames_give_the_same_bytes_as_contiguous_ones() {
    within(LIMIT, "scattered", || {
        let space = space(1);
        let card = space.card(0).unwrap();
        let mut data = space.alloc::<u64>(64 * PAGE).unwrap();
        data.iter_mut().enumerate().for_each(|(i, word)| *word = i as u64);
        // Every second page first: the frames of the range cannot follow one another.
        for page in (0..64).step_by(2) {
            space.migrate(&data[page * PAGE..(page + 1) * PAGE], card).unwrap();
        }
        let pieces = space
            .kernel("scattered")
            .on(card)
            .run(Write(&mut data), |k, data| {
                k.with(data, |mut data: WriteView<u64>| {
                    for (i, word) in data.iter_mut().enumerate() {
                        assert_eq!(*word, i as u64);
                        *word *= 3;
                    }
                    data[PAGE] += 1;
                    data.pieces().count()
                })
            })
            .unwrap();
        assert!(pieces > 1, "the test wants scattered frames");
        for (i, &word) in data.iter().enumerate() {
            assert_eq!(word, 3 * i as u64 + u64::from(i == PAGE));
        }
        // Moved at once into a card with room they are one slice.
        let contiguous = space
            .kernel("contiguous")
            .on(card)
            .run(Read(&data), |k, data| {
                k.with(data, |data: ReadView<u64>| data.as_slice().is_some())
            })
            .unwrap();
        assert!(contiguous);
    });
}

#[test]
fn unaligned_ranges_and_mixed_requests_see_exactly_their_words() {
    within(LIMIT, "unaligned", || {
        let space = space(1);
        let input = {
            let mut input = space.alloc::<u32>(5000).unwrap();
            input.iter_mut().enumerate().for_each(|(i, word)| *word = i as u32);
            input
        };
        let mut output = space.alloc::<u32>(5000).unwrap();
        let args = (Read(&input[1001..4003]), Write(&mut output[7..3009]));
        space
            .kernel("copy")
            .run(args, |k, (input, output)| {
                k.with((input, output), |(input, mut output): (ReadView<u32>, WriteView<u32>)| {
                    for (out, value) in output.iter_mut().zip(input.iter()) {
                        *out = *value;
                    }
                })
            })
            .unwrap();
        assert!(output[..7].iter().chain(&output[3009..]).all(|&word| word == 0));
        assert!(output[7..3009].iter().zip(1001..).all(|(&word, i)| word == i));
    });
}

#[test]
fn advice_prefetch_pins_and_trim_do_what_they_say() {
    within(LIMIT, "advice", || {
        let space = space(2);
        let (a, b) = (space.card(0).unwrap(), space.card(1).unwrap());
        let mut data = space.alloc::<u64>(32 * PAGE).unwrap();
        data.fill(3);
        assert_eq!(space.prefetch(&data, a).unwrap(), 32);
        space.trim().unwrap();
        assert!(data.iter().all(|&word| word == 3), "trimmed pages come back from the card");

        space.pin(&data, MemoryId::HOST).unwrap();
        space.kernel("remote").on(b).run(Write(&mut data), add_one).unwrap();
        let at = space.locate(&data).unwrap();
        assert!(at.iter().all(|part| part.owner == Some(MemoryId::HOST)), "{at:?}");
        assert!(matches!(space.migrate(&data, b), Err(Error::Live(_))), "pinned pages stay");
        space.unpin(&data).unwrap();
        assert_eq!(space.migrate(&data, b).unwrap(), 32);
        assert!(data.iter().all(|&word| word == 4));

        space.advise(&data, Advice::ReadMostly(true)).unwrap();
        let sum = |card| {
            space
                .kernel("sum")
                .on(card)
                .run(Read(&data), |k, data| {
                    k.with(data, |data: ReadView<u64>| data.iter().sum::<u64>())
                })
                .unwrap()
        };
        let words = data.len() as u64;
        assert_eq!((sum(a), sum(b), data.iter().sum::<u64>()), (4 * words, 4 * words, 4 * words));
        let copies = space.locate(&data).unwrap()[0].copies.len();
        assert!(copies >= 2, "a page that is mostly read has copies, not {copies}");
        data[0] = 9;
        // The write is through as soon as the page is mapped; the tables follow at once.
        let alone = || space.locate(&data[..1]).unwrap()[0].copies.len() == 1;
        let end = std::time::Instant::now() + Duration::from_secs(5);
        while !alone() {
            assert!(std::time::Instant::now() < end, "a write takes the other copies away");
        }
        space.advise(&data, Advice::ReadMostly(false)).unwrap();

        space.advise(&data, Advice::Preferred(Some(a.memory()))).unwrap();
        space.migrate(&data, a).unwrap();
        space.kernel("remote").on(b).run(Write(&mut data), add_one).unwrap();
        let at = space.locate(&data).unwrap();
        assert!(at.iter().all(|part| part.owner == Some(a.memory())), "{at:?}");
        assert_eq!((data[0], data[1]), (10, 5));
        space.check().unwrap();
    });
}

#[test]
fn invariant_7_a_write_to_read_only_memory_fails_its_job_and_changes_nothing() {
    within(LIMIT, "read only", || {
        let space = space(1);
        let mut data = space.alloc::<u64>(PAGE).unwrap();
        data.fill(1);
        space.set_read_only(&data, true).unwrap();
        let refused = space.kernel("writer").run(Write(&mut data), add_one).unwrap_err();
        assert!(refused.to_string().contains("cards may only read"), "{refused}");
        assert!(data.iter().all(|&word| word == 1));
        space.set_read_only(&data, false).unwrap();
        space.kernel("writer").run(Write(&mut data), add_one).unwrap();
        assert!(data.iter().all(|&word| word == 2));

        // Lent for reading: the launch's own rights count, whatever the pages allow.
        let refused =
            space.kernel("thief").run(Read(&data), |k, data| k.store(data.ptr(3), 99)).unwrap_err();
        assert!(matches!(refused, Error::Kernel(KernelError::WildAddress { .. })), "{refused}");
        assert_eq!(data[3], 2);
    });
}

#[test]
fn invariant_17_a_wild_address_fails_only_its_job_and_is_named() {
    within(LIMIT, "wild", || {
        let space = space(1);
        let mut near = space.alloc_named::<u64>(2 * PAGE, "ledger").unwrap();
        let end = near.addr().0 + 8192;
        let wild = |at: u64| {
            space
                .kernel("stray")
                .run(Read(&near), move |k, _| k.load(Ptr::<u64>::at(at)))
                .unwrap_err()
                .to_string()
        };
        let text = wild(end + 8);
        for part in ["stray", "ledger", &format!("{:#x}", end + 8)] {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
        for at in [0, 1, 8, u64::MAX, u64::MAX - 7, near.addr().0 - 8, 1 << 63] {
            assert!(wild(at).contains("stray"));
        }
        let text = space
            .kernel("skew")
            .run(Read(&near), |k, data| k.load(Ptr::<u64>::at(data.start() + 4093)))
            .unwrap_err()
            .to_string();
        assert!(text.contains("skew"), "{text}");
        // Memory that was freed is not lent any more.
        let gone = space.alloc_named::<u64>(PAGE, "gone").unwrap();
        let at = gone.addr().0;
        drop(gone);
        assert!(wild(at).contains("ledger"));
        space.kernel("fine").run(Write(&mut near), add_one).unwrap();
        assert_eq!(near[0], 1);
    });
}

#[test]
fn requests_that_make_no_sense_are_errors() {
    within(LIMIT, "bad requests", || {
        let space = space(1);
        let mut data = space.alloc::<u64>(64 * PAGE).unwrap();
        let own = [1u64; 8];
        assert!(matches!(
            space.migrate(&own[..], MemoryId::HOST),
            Err(Error::Live(LiveError::NotShared { .. }))
        ));
        let outside = space.kernel("outside").run(Read(&own), |_, _| Ok(()));
        assert!(matches!(outside, Err(Error::Live(LiveError::NotShared { .. }))));
        let nowhere = space.kernel("nowhere").on(CardId(9)).run((), |_, ()| Ok(()));
        assert!(matches!(nowhere, Err(Error::Live(LiveError::NoSuchCard { .. }))));
        assert!(space.migrate(&data, CardId(9)).is_err());
        assert!(space.unpin(&data).is_err());
        assert!(space.alloc::<u64>(0).is_err());
        assert!(space.alloc::<u64>(usize::MAX).is_err());
        assert!(space.alloc::<u64>(64 << 20).is_err());

        let twice = space
            .kernel("twice")
            .run(Write(&mut data), |k, mut data| {
                let (one, two) = (data.slice(0..20), data.slice(10..30));
                k.with((one, two), |(_, _): (WriteView<u64>, WriteView<u64>)| ())
            })
            .unwrap_err();
        assert!(twice.to_string().contains("overlaps"), "{twice}");
        let alias = space
            .kernel("alias")
            .run(Write(&mut data), |k, mut data| {
                let (one, two) = (data.read(), data.slice(10..30));
                k.with((one, two), |(_, _): (ReadView<u64>, WriteView<u64>)| ())
            })
            .unwrap_err();
        assert!(alias.to_string().contains("overlaps"), "{alias}");
        space
            .kernel("empty")
            .run(Write(&mut data), |k, mut data| {
                k.with(data.slice(5..5), |view: WriteView<u64>| assert!(view.is_empty()))
            })
            .unwrap();
    });
}

#[test]
fn a_panic_fails_its_kernel_only_and_gives_memory_back() {
    within(LIMIT, "panic", || {
        let space = space(1);
        let mut data = space.alloc::<u64>(8 * PAGE).unwrap();
        let failed = space
            .kernel("careless")
            .run(Write(&mut data), |k, data| {
                k.with(data, |mut data: WriteView<u64>| {
                    data[0] = 5;
                    panic!("the message of the panic");
                })
            })
            .map(|(): ()| ())
            .unwrap_err();
        assert!(failed.to_string().contains("the message of the panic"), "{failed}");
        assert_eq!(data[0], 5, "the pages come back at once");
        space.kernel("next").run(Write(&mut data), add_one).unwrap();
        assert_eq!(data[0], 6);
        let gave_up: Result<(), _> = space.kernel("honest").run((), |k, ()| Err(k.fail("no luck")));
        assert!(gave_up.unwrap_err().to_string().contains("no luck"));
    });
}

/// Launches of one stream, each on the next card, each of which wants to be the next.
fn take_turns(space: &Space) -> Result<(), String> {
    let words = space.alloc_atomic::<AtomicU64>(1, "turn").unwrap();
    let stream = space.stream();
    space.scope(|s| {
        let launch = |turn: u64| {
            let kernel = s.kernel("turn").on(CardId((turn % 3) as u8)).stream(stream);
            let launched = kernel.launch(Shared(&words), move |k, words| {
                match k.compare_exchange(words, 0, turn, turn + 1)? {
                    Ok(was) if was == turn => Ok(()),
                    Ok(seen) | Err(seen) => Err(k.fail(format!("turn {turn} saw {seen}"))),
                }
            });
            launched.unwrap()
        };
        let jobs: Vec<_> = (0..60).map(launch).collect();
        jobs.into_iter().try_for_each(|job| job.wait().map_err(|error| error.to_string()))
    })
}

#[test]
fn launches_of_a_stream_are_ordered_across_cards() {
    within(LIMIT, "stream", || take_turns(&space(3)).unwrap());
}

#[test]
fn control_starting_a_streams_launches_together_is_noticed() {
    must_be_caught("control_starting_a_streams_launches_together_is_noticed", || {
        (0..50).try_for_each(|_| {
            let space = space(3);
            space.mutate(Mutation::IgnoreStreamOrder).map_err(|error| error.to_string())?;
            take_turns(&space)
        })
    });
}

#[test]
fn waiting_time_limits_and_cancelling() {
    within(LIMIT, "limits", || {
        let space = space(1);
        let words = space.alloc_atomic::<AtomicU64>(1, "word").unwrap();
        space.scope(|s| {
            let spin = |k: &mut KernelContext, words| -> Result<(), KernelError> {
                loop {
                    k.fetch_add::<AtomicU64>(words, 0, 1)?;
                }
            };
            let job = s.kernel("endless").launch(Shared(&words), spin).unwrap();
            let job = job.wait_for(Duration::from_millis(20)).unwrap_err();
            assert!(!job.is_done());
            // It holds the only processing element: what waits behind it can still be cancelled,
            // and its own time limit counts.
            let behind = s.kernel("behind").launch((), |_, ()| Ok(())).unwrap();
            behind.cancel();
            let error = behind.wait().unwrap_err();
            assert!(matches!(error, Error::Kernel(KernelError::Cancelled { .. })), "{error}");
            let late = s.kernel("late").time_limit(Duration::from_millis(30));
            let error = late.launch((), |_, ()| Ok(())).unwrap().wait().unwrap_err();
            assert!(matches!(error, Error::Kernel(KernelError::TimedOut { .. })), "{error}");
            job.cancel();
            let error = job.wait().unwrap_err();
            assert!(matches!(error, Error::Kernel(KernelError::Cancelled { .. })), "{error}");
        });
        let limited = space.kernel("limited").time_limit(Duration::from_millis(30));
        let error = limited
            .run(Shared(&words), |k, words| -> Result<(), KernelError> {
                loop {
                    k.fetch_add(words, 0, 1)?;
                }
            })
            .unwrap_err();
        assert!(matches!(error, Error::Kernel(KernelError::TimedOut { .. })), "{error}");
        // A limit beyond the clock is none.
        space.kernel("patient").time_limit(Duration::MAX).run((), |_, ()| Ok(())).unwrap();
    });
}

#[test]
fn a_kernels_own_operation_on_a_word_may_use_shared_memory_itself() {
    within(LIMIT, "atomic body", || {
        let space = space(1);
        let words = space.alloc_atomic::<AtomicU64>(2 * PAGE, "words").unwrap();
        // Far enough that nobody brings the held page along with it.
        let mut other = space.alloc::<u64>(1024 * PAGE).unwrap();
        let far = 800 * PAGE;
        other.fill(8);
        space.migrate(&other, space.card(0).unwrap()).unwrap();
        let other = std::sync::Arc::new(other);
        let inner = std::sync::Arc::clone(&other);
        // The body faults on a page of the host while it has a word of the card: with the card's
        // lock held nobody could serve that fault.
        let got = space
            .kernel("nested")
            .run(Shared(&words), move |k, words| {
                k.atomic(words, 3, |word| {
                    word.fetch_add(inner[far], SeqCst);
                    inner[far]
                })
            })
            .unwrap();
        assert_eq!(got, 8);
        assert_eq!(words[3].load(SeqCst), 8);
    });
}

#[test]
fn invariant_15_more_faults_than_the_queue_holds_are_all_served() {
    within(LIMIT, "queue full", || {
        // 80 processing elements, 48 entries: the others wait for room.
        const PES: usize = 80;
        let space = Space::builder()
            .cards(1)
            .processing_elements(PES as u16)
            .card_memory(32 * 4096)
            .address_space(16 << 20)
            .build()
            .unwrap();
        let words = space.alloc_atomic::<AtomicU64>(PES * PAGE, "words").unwrap();
        for round in 0..3 {
            space.scope(|s| {
                for pe in 0..PES {
                    s.kernel("one of many")
                        .launch(Shared(&words), move |k, words| {
                            for page in 0..PES {
                                k.fetch_add(words, (pe + 7 * page) % PES * PAGE, 1)?;
                            }
                            Ok(())
                        })
                        .unwrap();
                }
            });
            let all = PES as u64 * (round + 1);
            assert!((0..PES).all(|page| words[page * PAGE].load(SeqCst) == all));
        }
        space.check().unwrap();
    });
}

#[test]
fn two_spaces_know_nothing_of_each_other() {
    within(LIMIT, "two spaces", || {
        let (one, two) = (space(1), space(2));
        let mut mine = one.alloc::<u64>(4 * PAGE).unwrap();
        let mut yours = two.alloc::<u64>(4 * PAGE).unwrap();
        let strange = two.kernel("stranger").run(Write(&mut mine), add_one);
        assert!(matches!(strange, Err(Error::Live(LiveError::NotShared { .. }))));
        assert!(matches!(one.locate(&yours), Err(Error::Live(LiveError::NotShared { .. }))));
        std::thread::scope(|s| {
            s.spawn(|| {
                for _ in 0..50 {
                    one.kernel("add").run(Write(&mut mine), add_one).unwrap();
                    mine[0] += 1;
                }
            });
            s.spawn(|| {
                for turn in 0..50 {
                    let card = CardId(turn % 2);
                    two.kernel("add").on(card).run(Write(&mut yours), add_one).unwrap();
                }
            });
        });
        assert_eq!((mine[0], mine[1], yours[0]), (100, 50, 50));
    });
}
