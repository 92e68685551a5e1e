//! The edges of a card's own memory: odd windows, requests for shared memory that name it, kernels that hang or are cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farside::{
    Advice, Args, Backing, CardBuffer, CardId, Error, Growable, KernelContext, KernelError,
    LiveError, Read, ReadView, Space, SpaceBuilder, WindowError, Write, WriteSpan, WriteView,
};
use farside_softcard::Request;
use farside_types::{CancelReason, Span};
use harness::live::{Child, role, within};

const OWN: u64 = 16 << 20;
const PAGE: usize = 4096;

fn builder(cards: usize) -> SpaceBuilder {
    let builder = Space::builder().cards(cards).card_memory(4 << 20).card_window(OWN);
    builder.processing_elements(2).address_space(64 << 20)
}

fn add_one(kernel: &mut KernelContext, mut span: WriteSpan<u64>) -> Result<(), KernelError> {
    for begin in (0..span.len()).step_by(4096) {
        let part = span.slice(begin..span.len().min(begin + 4096));
        kernel.with(part, |mut values| values.iter_mut().for_each(|value| *value += 1))?;
    }
    Ok(())
}

#[test]
fn windows_of_any_number_of_pages_are_used_to_the_last_one() {
    for pages in [1, 2, 3, 7, 100, 8191, 8193] {
        let space = builder(1).card_window(pages * PAGE as u64).build().unwrap();
        let card = space.card(0).unwrap();
        for backing in [Backing::Eager, Backing::Lazy] {
            let len = pages as usize * PAGE / 8;
            let mut all = space.alloc_on::<u64>(card, len, backing).unwrap();
            all.host_mut().unwrap().fill(1);
            space.kernel("add").run(Write(all.host_mut().unwrap()), add_one).unwrap();
            assert!(all.host().unwrap().iter().all(|&value| value == 2), "{pages} {backing:?}");
            assert_eq!(space.own_memory_free(card).unwrap(), 0);
            space.alloc_on::<u64>(card, 1, Backing::Eager).unwrap_err();
        }
    }
}

#[test]
fn a_window_that_is_too_large_is_refused() {
    for bytes in
        [16 << 40, (16 << 40) - PAGE as u64, 8 << 40, (4 << 40) + PAGE as u64, u64::MAX - 4095]
    {
        let refused = builder(1).card_window(bytes).build().unwrap_err();
        assert!(refused.to_string().contains("4 TiB"), "{refused}");
    }
}

#[test]
fn sixteen_cards_have_windows_of_their_own() {
    let space = builder(16).card_window(1 << 30).build().unwrap();
    let mut buffers: Vec<_> = space
        .cards()
        .map(|card| space.alloc_on::<u64>(card, 3000, Backing::Lazy).unwrap())
        .collect();
    for (number, buffer) in (0..).zip(&mut buffers) {
        buffer.host_mut().unwrap().fill(number);
    }
    for (number, buffer) in (0..).zip(&mut buffers) {
        let elsewhere = space.card((number as usize + 1) % 16).unwrap();
        space.kernel("add").on(elsewhere).run(Write(buffer.host_mut().unwrap()), add_one).unwrap();
        assert!(buffer.host().unwrap().iter().all(|&value| value == number + 1));
    }
}

#[test]
fn cards_with_few_tables_or_none_work_on_scattered_groups() {
    for tables in [0, 1, 3] {
        let space = builder(2).card_table_pages(tables).build().unwrap();
        let card = space.card(0).unwrap();
        let mut pages: Vec<_> = (0..3000)
            .map(|_| Some(space.alloc_on::<u64>(card, PAGE / 8, Backing::Eager).unwrap()))
            .collect();
        pages.iter_mut().step_by(2).for_each(|page| drop(page.take()));
        let left = space.own_memory_free(card).unwrap() as usize - 1500 * PAGE;
        let _rest = space.alloc_on::<u8>(card, left, Backing::Eager).unwrap();
        let mut buffer = space.alloc_on::<u64>(card, 1400 * PAGE / 8, Backing::Eager).unwrap();
        for card in space.cards() {
            let kernel = space.kernel("all").on(card);
            let values = Write(buffer.host_mut().unwrap());
            let all = |kernel: &mut KernelContext, span| {
                kernel.with(span, |mut values: WriteView<u64>| {
                    values.iter_mut().for_each(|value| *value += 1);
                })
            };
            kernel.run(values, all).unwrap();
        }
        assert!(buffer.to_vec().unwrap().iter().all(|&value| value == 2));
    }
}

#[test]
fn groups_mix_shared_and_own_memory_and_are_bounded() {
    let space = builder(1).build().unwrap();
    let card = space.card(0).unwrap();
    let mut shared = space.alloc::<u64>(600 * PAGE / 8).unwrap();
    let mut own = space.alloc_on::<u64>(card, 2100 * PAGE / 8, Backing::Lazy).unwrap();
    for round in 0..5u64 {
        shared.fill(round);
        let mixed = |kernel: &mut KernelContext,
                     (mut shared, mut own): (WriteSpan<u64>, WriteSpan<u64>)| {
            for n in (0..20).map(|n| n * 30 * PAGE / 8) {
                let parts = (shared.slice(n..n + 3000), own.slice(n..n + 3000));
                kernel.with(parts, |(mut shared, mut own): (WriteView<u64>, WriteView<u64>)| {
                    own.iter_mut()
                        .zip(shared.iter_mut())
                        .for_each(|(own, shared)| *own += *shared + 1);
                })?;
            }
            Ok(())
        };
        let lent = (Write(&mut shared), Write(own.host_mut().unwrap()));
        space.kernel("mixed").run(lent, mixed).unwrap();
    }
    assert_eq!(own.host().unwrap()[30 * PAGE / 8 + 5], 15);
    let whole = |kernel: &mut KernelContext, span: WriteSpan<u64>| kernel.with(span, |_| ());
    let limit =
        space.kernel("whole").run(Write(&mut own.host_mut().unwrap()[..2048 * PAGE / 8]), whole);
    limit.unwrap();
    let refused = space.kernel("whole").run(Write(own.host_mut().unwrap()), whole).unwrap_err();
    assert!(refused.to_string().contains("ask for less"), "{refused}");
}

#[test]
fn requests_for_shared_memory_that_name_it_are_refused() {
    let space = builder(2).build().unwrap();
    let cards: Vec<_> = space.cards().collect();
    let mut own = space.alloc_on::<u64>(cards[0], 2000, Backing::Lazy).unwrap();
    own.host_mut().unwrap().fill(7);
    let values = own.host().unwrap();
    assert!(space.why(own.addr()).is_err());
    let located = space.locate(values).unwrap_err().to_string();
    assert!(located.contains("card 0's own memory, which stays where it is"), "{located}");
    let refused = [
        space.migrate(values, cards[1]).map(drop),
        space.prefetch(values, cards[1]).map(drop),
        space.advise(values, Advice::ReadMostly(true)),
        space.pin(values, cards[1]),
        space.unpin(values),
        space.migrate_async(values, cards[1]).start().and_then(|moving| moving.wait().map(drop)),
    ];
    for refused in refused {
        assert!(refused.unwrap_err().to_string().contains("own memory, which stays where it is"));
    }
    space.check().unwrap();
    assert!(own.host().unwrap().iter().all(|&value| value == 7));
}

#[test]
fn a_parallel_launch_asks_each_of_its_cards_whether_it_reaches_the_memory() {
    let space = builder(2).peer_to_peer(false).build().unwrap();
    let cards: Vec<_> = space.cards().collect();
    for (owner, other) in [(cards[0], cards[1]), (cards[1], cards[0])] {
        let mut own = space.alloc_on::<u64>(owner, 20_000, Backing::Eager).unwrap();
        let each = |kernel: &mut KernelContext, _: std::ops::Range<u64>, span| {
            let mut scratch = kernel.alloc::<u64>(1000, Backing::Lazy)?;
            add_one(kernel, scratch.slice(..))?;
            add_one(kernel, span)
        };
        let launch =
            |cards: &[farside::CardId]| space.for_each("each", 0..20_000).on(cards.to_vec());
        launch(&[owner]).run(Write(own.host_mut().unwrap()), each).unwrap();
        for cards in [vec![other], vec![owner, other]] {
            let refused = launch(&cards).run(Write(own.host_mut().unwrap()), each);
            let elsewhere = LiveError::WindowElsewhere { addr: own.addr(), owner, card: other };
            assert!(
                matches!(refused, Err(Error::Live(ref error)) if *error.to_string() == elsewhere.to_string()),
                "{refused:?}"
            );
        }
        assert!(own.host().unwrap().iter().all(|&value| value == 1));
    }
}

#[test]
fn a_kernel_that_only_allocates_ends_when_it_is_cancelled() {
    let space = builder(1).build().unwrap();
    space.scope(|s| {
        let began = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&began);
        let job = s.kernel("churn").launch((), move |kernel, ()| {
            loop {
                let span = kernel.alloc::<u64>(1000, Backing::Eager)?;
                kernel.free(span)?;
                seen.store(true, Ordering::SeqCst);
            }
            #[expect(unreachable_code, reason = "it ends by an error")]
            Ok(())
        });
        let job = job.unwrap();
        while !began.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        job.cancel();
        let ended = job.wait();
        assert!(matches!(ended, Err(Error::Kernel(KernelError::Cancelled { .. }))), "{ended:?}");
    });
}

#[test]
fn what_a_kernel_had_is_free_when_it_has_panicked() {
    let space = builder(1).build().unwrap();
    let card = space.card(0).unwrap();
    let before = space.own_memory_free(card).unwrap();
    for held in [false, true] {
        let panicked = space.kernel("panics").run((), move |kernel, ()| {
            let mut grown = Growable::new();
            grown.extend(kernel, &[1u64; 5000])?;
            let span = kernel.alloc::<u64>(5000, Backing::Eager)?;
            if held {
                kernel.with((span, grown.values()), |_: (WriteView<u64>, ReadView<u64>)| {
                    panic!("held")
                })
            } else {
                panic!("not held")
            }
        });
        let panicked: Result<(), Error> = panicked;
        assert!(
            matches!(panicked, Err(Error::Kernel(KernelError::Panicked { .. }))),
            "{panicked:?}"
        );
        assert_eq!(space.own_memory_free(card).unwrap(), before);
    }
}

#[test]
fn who_is_another_kernels_growing_vector_gets_nothing_by_it() {
    let space = builder(1).build().unwrap();
    let mut grown = space
        .kernel("first")
        .run((), |kernel, ()| {
            let mut grown = Growable::new();
            grown.extend(kernel, &[5u64; 100])?;
            Ok(grown)
        })
        .unwrap();
    let late = space.kernel("second").run((), move |kernel, ()| grown.extend(kernel, &[6u64; 100]));
    assert!(matches!(late, Err(Error::Kernel(KernelError::WildAddress { .. }))), "{late:?}");
}

const LIMIT: Duration = Duration::from_secs(60);

/// Runs a kernel that is given up and holds what it is lent, until it is told to let go.
fn hang<A: Args>(space: &Space, card: CardId, args: A, stop: &Arc<AtomicBool>)
where
    A::Spans: Request + Send + 'static,
{
    let stop = Arc::clone(stop);
    let launch = space.kernel("hangs").on(card).time_limit(Duration::from_millis(20));
    let hung = launch.run(args, move |kernel, span| {
        kernel.with(span, |_| {
            while !stop.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        })
    });
    assert!(matches!(hung, Err(Error::Kernel(KernelError::Hung { .. }))), "{hung:?}");
}

/// Two cards, a buffer of two pages on the first one, and one beside it.
fn with_two_buffers() -> (Space, CardBuffer<u64>, CardBuffer<u64>) {
    let builder = builder(2).grace(Duration::from_millis(20));
    let space =
        builder.tune(|config| config.limits.drain = Span::from_millis(100)).build().unwrap();
    let card = space.card(0).unwrap();
    let mut held = space.alloc_on(card, 2 * PAGE / 8, Backing::Lazy).unwrap();
    let mut other = space.alloc_on(card, 2 * PAGE / 8, Backing::Lazy).unwrap();
    held.host_mut().unwrap().fill(1);
    other.host_mut().unwrap().fill(1);
    (space, held, other)
}

fn is_held<T>(result: Result<T, Error>) -> bool {
    let Err(Error::Kernel(KernelError::Fault { reason, .. })) = result else { return false };
    reason == CancelReason::Held(CardId(0))
}

#[test]
fn what_a_hung_kernel_writes_is_nobody_elses() {
    within(LIMIT, "hung writer", || {
        let (space, mut held, mut other) = with_two_buffers();
        let stop = Arc::default();
        let (first, second) = held.host_mut().unwrap().split_at_mut(PAGE / 8);
        // Each card has a translation of all of it.
        for card in space.cards() {
            space.kernel("add").on(card).run(Write(&mut *first), add_one).unwrap();
        }
        hang(&space, CardId(0), Write(&mut *first), &stop);
        for card in space.cards() {
            let launch = |name| space.kernel(name).on(card);
            assert!(is_held(launch("held").run(Write(&mut *first), add_one)));
            launch("free").run(Write(&mut *second), add_one).unwrap();
            launch("other").run(Write(other.host_mut().unwrap()), add_one).unwrap();
        }
        assert!(second.iter().all(|&value| value == 3));
        for refused in [held.to_vec().map(drop), held.host().map(drop), held.host_mut().map(drop)] {
            assert!(matches!(refused, Err(WindowError::NotShown { .. })), "{refused:?}");
        }
        assert_eq!(other.to_vec().unwrap(), other.host().unwrap());
        stop.store(true, Ordering::SeqCst);
    });
}

#[test]
fn what_a_hung_kernel_reads_is_read_and_not_written() {
    within(LIMIT, "hung reader", || {
        let (space, mut held, _other) = with_two_buffers();
        let stop = Arc::default();
        let values = held.host_mut().unwrap();
        for card in space.cards() {
            space.kernel("add").on(card).run(Write(&mut *values), add_one).unwrap();
        }
        hang(&space, CardId(0), Read(&*values), &stop);
        assert!(values.iter().all(|&value| value == 3));
        for card in space.cards() {
            let sum = |kernel: &mut KernelContext, span| {
                kernel.with(span, |values: ReadView<u64>| values.iter().sum::<u64>())
            };
            let sum = space.kernel("sum").on(card).run(Read(&*values), sum).unwrap();
            assert_eq!(sum, 3 * values.len() as u64);
            assert!(is_held(space.kernel("held").on(card).run(Write(&mut *values), add_one)));
        }
        assert!(held.host_mut().is_err());
        assert!(held.to_vec().unwrap().iter().all(|&value| value == 3));
        stop.store(true, Ordering::SeqCst);
    });
}

#[test]
fn the_program_cannot_write_what_a_hung_kernel_holds() {
    const NAME: &str = "the_program_cannot_write_what_a_hung_kernel_holds";
    if let Some(access) = role() {
        let (space, mut held, _other) = with_two_buffers();
        let values = held.host_mut().unwrap();
        match access.as_str() {
            "read" => hang(&space, CardId(0), Read(&*values), &Arc::default()),
            _ => hang(&space, CardId(0), Write(&mut *values), &Arc::default()),
        }
        println!("until here");
        values[0] = 2;
        println!("beyond");
        return;
    }
    within(LIMIT, NAME, || {
        for role in ["read", "write"] {
            let ended = Child::new(NAME, role).run();
            ended.expect_signal(libc::SIGSEGV);
            assert!(
                ended.text.contains("until here") && !ended.text.contains("beyond"),
                "{}",
                ended.text
            );
        }
    });
}

#[test]
fn what_a_dead_cards_kernel_holds_of_anothers_memory_is_never_anybody_elses() {
    within(LIMIT, "dead holder", || {
        let (space, mut held, mut other) = with_two_buffers();
        let (owner, dead) = (CardId(0), CardId(1));
        let stop = Arc::new(AtomicBool::new(false));
        let (began, stopped) = (Arc::new(AtomicBool::new(false)), Arc::clone(&stop));
        let seen = Arc::clone(&began);
        space.scope(|s| {
            let values = Write(held.host_mut().unwrap());
            let job = s.kernel("holds").on(dead).launch(values, move |kernel, span| {
                kernel.with(span, |_: WriteView<u64>| {
                    seen.store(true, Ordering::SeqCst);
                    while !stopped.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                })
            });
            while !began.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            space.fail_card(dead).unwrap();
            assert!(job.unwrap().wait().is_err());
        });
        assert!(matches!(held.host(), Err(WindowError::NotShown { .. })));
        space.kernel("other").on(owner).run(Write(other.host_mut().unwrap()), add_one).unwrap();
        // The card has forgotten the access; its pages are given to nobody all the same.
        drop(held);
        let refused = space.alloc_on::<u64>(owner, 1, Backing::Lazy);
        assert!(matches!(refused, Err(Error::Window(WindowError::Held { .. }))), "{refused:?}");
        stop.store(true, Ordering::SeqCst);
    });
}

/// A vector takes as many pages at once as there are, also where that is one.
#[test]
fn a_vector_grows_however_few_pages_are_had_at_once() {
    let tunes: [fn(&mut farside_svm::Config); 3] = [
        |config| config.limits.group_pages = 2,
        |config| config.limits.group_pages = 7,
        |config| config.limits.group_pages = 64,
    ];
    for tune in tunes {
        let space = builder(1).tune(tune).build().unwrap();
        let made = space
            .kernel("grow")
            .run((), |kernel, ()| {
                let values: Vec<u64> = (0..100_003).collect();
                let mut made = Growable::new();
                made.push(kernel, u64::MAX)?;
                made.extend(kernel, &values)?;
                made.finish(kernel)
            })
            .unwrap();
        assert_eq!(made.host().unwrap()[0], u64::MAX);
        assert!((0..100_003).eq(made.host().unwrap()[1..].iter().copied()));
    }
}

/// A copy reads zeros where nothing was written, and takes no memory for that.
#[test]
fn a_copy_of_what_was_never_touched_takes_no_memory() {
    let space = builder(1).build().unwrap();
    let card = space.card(0).unwrap();
    // More pages than are copied at once, and more than there is memory for.
    let len = 2 * OWN as usize / 8;
    let before = space.own_memory_free(card).unwrap();
    let words = space.alloc_on::<u64>(card, len, Backing::Lazy).unwrap();
    assert!(words.to_vec().unwrap().iter().all(|&word| word == 0));
    assert_eq!(space.own_memory_free(card).unwrap(), before);
    drop(words);
    let sparse = space
        .kernel("sparse")
        .on(card)
        .run((), |kernel, ()| {
            let mut made = Growable::new();
            made.extend(kernel, &vec![3u64; 3 * 512 * 512])?;
            made.finish(kernel)
        })
        .unwrap();
    assert!(sparse.to_vec().unwrap().iter().all(|&word| word == 3));
}
