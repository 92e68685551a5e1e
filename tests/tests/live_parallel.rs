//! Launches over ranges of indices, order between launches, and moves that nobody waits for: on cards in the
//! program. `far_parallel.rs` has the same on cards elsewhere.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use farside::{
    CardId, Error, Indices, KernelContext, KernelError, MemoryId, Read, ReadView, Shared, Shares,
    Space, Split, Value, Write, WriteView,
};
use farside_svm::Mutation;
use harness::live::{must_be_caught, within};

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;

fn space(cards: usize, elements: u16) -> Space {
    let builder = Space::builder().cards(cards).card_memory(8 << 20).address_space(64 << 20);
    builder.processing_elements(elements).build().unwrap()
}

/// Pieces and indices of all cards.
fn sum(shares: &Shares) -> (u64, u64) {
    let of = |pick: fn(&farside::CardShare) -> u64| shares.cards.iter().map(pick).sum();
    (of(|share| share.pieces), of(|share| share.indices))
}

fn kernel_error<T: std::fmt::Debug>(outcome: Result<T, Error>) -> KernelError {
    match outcome {
        Err(Error::Kernel(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// Waits until it holds.
#[track_caller]
fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Keeps its processing element until it is told.
fn stand_still(k: &KernelContext, go_on: &AtomicBool) -> Result<(), KernelError> {
    while !go_on.load(SeqCst) {
        k.checkpoint()?;
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

#[test]
fn every_index_is_run_exactly_once_however_the_pieces_are_stolen() {
    within(LIMIT, "exactly once", || {
        for (cards, elements, grain) in
            [(1, 1, 1000), (2, 1, 3), (2, 2, 64), (3, 2, 1), (4, 1, 511)]
        {
            let space = space(cards, elements);
            let n = 5_003 + cards as u64;
            let counts = space.alloc_atomic::<AtomicU32>(n as usize, "counts").unwrap();
            let mut own = space.alloc::<u64>(2 * n as usize).unwrap();
            let first = 1_000_000;
            let each = space.for_each("count", first..first + n).grain(grain);
            let shares = each
                .run((Shared(&counts), Write(&mut own)), move |k, indices, (counts, own)| {
                    // Cards of different speeds, differently from piece to piece.
                    if (indices.start * 7 + u64::from(k.card().0)) % 5 == 0 {
                        std::thread::yield_now();
                    }
                    for index in indices.clone() {
                        k.fetch_add(counts, (index - first) as usize, 1)?;
                    }
                    k.with(own, |mut own: WriteView<u64>| {
                        assert_eq!(own.len() as u64, 2 * (indices.end - indices.start));
                        own.iter_mut().zip(2 * indices.start..).for_each(|(word, at)| *word += at);
                    })
                })
                .unwrap();
            assert_eq!(sum(&shares), (n.div_ceil(grain), n));
            assert!(counts.iter().all(|count| count.load(SeqCst) == 1));
            assert!(own.iter().zip(2 * first..).all(|(&word, at)| word == at));
            space.check().unwrap();
        }
    });
}

#[test]
fn a_card_that_stands_still_holds_up_its_own_piece_only() {
    within(LIMIT, "slow card", || {
        let space = space(2, 1);
        let go_on = Arc::new(AtomicBool::new(false));
        space.scope(|s| {
            let told = Arc::clone(&go_on);
            let each = s.for_each("slow", 0..640).grain(10);
            let pieces =
                each.launch(
                    (),
                    move |k, _, ()| {
                        if k.card() == CardId(0) { stand_still(k, &told) } else { Ok(()) }
                    },
                );
            let pieces = pieces.unwrap();
            until("the fast card does not take what is left", || pieces.progress().done == 63);
            assert!(!pieces.is_done());
            go_on.store(true, SeqCst);
            let shares = pieces.wait().unwrap().cards;
            let counts = |at: usize| (shares[at].pieces, shares[at].indices, shares[at].stolen);
            assert_eq!((counts(0), counts(1)), ((1, 10, 0), (63, 630, 31)));
        });
    });
}

#[test]
fn named_kernels_get_their_part_and_their_values_are_added_up() {
    within(LIMIT, "named", || {
        let space = space(2, 2);
        let (mut x, mut y) =
            (space.alloc::<f32>(10_000).unwrap(), space.alloc::<f32>(10_000).unwrap());
        x.iter_mut().zip(0..).for_each(|(x, i)| *x = i as f32);
        y.fill(1.0);
        let args = (Value(2.0f32), Split(&x), Write(&mut y));
        let shares = space.for_each("farside.saxpy", 0..10_000).grain(300).call(args).unwrap();
        assert_eq!((shares.value, sum(&shares)), (10_000, (34, 10_000)));
        assert!(y.iter().zip(0..).all(|(&y, i)| y == 2.0 * i as f32 + 1.0));

        let mut bins = space.alloc_atomic::<AtomicU64>(256, "bins").unwrap();
        let mut text = space.alloc::<u8>(3 * 5_000).unwrap();
        text.iter_mut().zip(0..).for_each(|(byte, i)| *byte = (i % 251) as u8);
        let each = space.for_each("farside.histogram", 0..5_000).grain(77);
        assert_eq!(each.call((Split(&text), Shared(&bins))).unwrap().value, 15_000);
        let (values, wanted) = (bins.values(), |bin| text.iter().filter(|&&b| b == bin).count());
        assert!((0..=255u8).all(|bin| values[usize::from(bin)] == wanted(bin) as u64));

        let error = space.for_each("farside.sum", 0..5_000).call((Split(&text), Indices));
        assert!(matches!(error, Err(Error::Piece { .. })), "{error:?}");
    });
}

#[test]
fn the_first_piece_that_fails_is_named_and_no_other_is_begun() {
    within(LIMIT, "failing", || {
        let space = space(1, 1);
        let ran = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&ran);
        let outcome = space.for_each("picky", 0..1000).grain(10).run((), move |k, indices, ()| {
            count.fetch_add(1, SeqCst);
            if indices.contains(&777) { Err(k.fail("not this one")) } else { Ok(()) }
        });
        let Err(Error::Piece { card, indices, error }) = outcome else { panic!("{outcome:?}") };
        assert_eq!((card, indices), (CardId(0), 770..780));
        assert!(error.to_string().contains("not this one"), "{error}");
        assert_eq!(ran.load(SeqCst), 78);
        let panics = space.for_each("panics", 0..10).run((), |_, _, ()| panic!("at once"));
        assert!(panics.unwrap_err().to_string().contains("at once"));
        space.check().unwrap();
    });
}

#[test]
fn ranges_of_nothing_and_ranges_of_little_are_ranges() {
    within(LIMIT, "small", || {
        let space = space(2, 4);
        let ran = Arc::new(AtomicU64::new(0));
        #[allow(clippy::reversed_empty_ranges)]
        for indices in [0..0, 7..7, 9..2, 0..1, 5..8, 0..9] {
            ran.store(0, SeqCst);
            let count = Arc::clone(&ran);
            let each = space.for_each("few", indices.clone());
            let shares = each.run((), move |_, indices, ()| {
                count.fetch_add(indices.end - indices.start, SeqCst);
                Ok(())
            });
            let wanted = indices.end.saturating_sub(indices.start);
            assert_eq!((sum(&shares.unwrap()), ran.load(SeqCst)), ((wanted, wanted), wanted));
        }
        let nothing = space.for_each("none", 0..0);
        let (first, second) = (space.card(0).unwrap(), space.card(1).unwrap());
        assert_eq!(
            nothing.on([second, first, second]).run((), |_, _, ()| Ok(())).unwrap().cards.len(),
            2
        );
        // The last of all numbers is an index like others.
        let last = space.for_each("last", u64::MAX - 3..u64::MAX).grain(2);
        assert_eq!(sum(&last.run((), |_, _, ()| Ok(())).unwrap()), (2, 3));
    });
}

#[test]
fn what_cannot_be_split_or_cut_is_refused_before_anything_runs() {
    within(LIMIT, "refused", || {
        let space = space(2, 1);
        let mut data = space.alloc::<u64>(1000).unwrap();
        let never = |_: &mut KernelContext,
                     _,
                     _: farside::WriteSpan<u64>|
         -> Result<(), KernelError> { panic!("it runs") };
        let text = |error: Error| error.to_string();
        let uneven = space.for_each("uneven", 0..300).run(Write(&mut data), never).unwrap_err();
        assert!(text(uneven).contains("1000 values cannot be split over 300 indices"));
        let grain = space.for_each("grain", 0..10).grain(0).run((), |_, _, ()| Ok(()));
        assert!(text(grain.unwrap_err()).contains("the grain of a parallel launch is 0"));
        let nowhere = space.for_each("nowhere", 0..10).on([]).run((), |_, _, ()| Ok(()));
        assert!(text(nowhere.unwrap_err()).contains("name at least one card"));
        let foreign = space.for_each("foreign", 0..10).on([CardId(9)]).run((), |_, _, ()| Ok(()));
        assert!(text(foreign.unwrap_err()).contains("there is no"));
        let outside = [0u64; 10];
        let elsewhere = space.for_each("outside", 0..10).run(Split(&outside), |_, _, _| Ok(()));
        assert!(text(elsewhere.unwrap_err()).contains("is not in the space"));
        let unknown = space.for_each("farside.summ", 0..10).call(()).unwrap_err();
        assert!(text(unknown).contains("did you mean"));
    });
}

#[test]
fn pieces_that_are_cancelled_dropped_or_late_end() {
    within(LIMIT, "ends", || {
        let space = space(2, 1);
        let never = Arc::new(AtomicBool::new(false));
        let still = |told: &Arc<AtomicBool>| {
            let told = Arc::clone(told);
            move |k: &mut KernelContext, _, ()| stand_still(k, &told)
        };
        space.scope(|s| {
            let pieces =
                s.for_each("cancelled", 0..100).grain(1).launch((), still(&never)).unwrap();
            pieces.cancel();
            let error = kernel_error(pieces.wait());
            assert!(matches!(error, KernelError::Cancelled { .. }), "{error}");
            let late = s.for_each("late", 0..100).grain(1).time_limit(Duration::from_millis(20));
            let error = late.launch((), still(&never)).unwrap().wait().unwrap_err();
            let Error::Piece { error: KernelError::TimedOut { .. }, .. } = error else {
                panic!("{error}")
            };
        });
        let (ran, go_on) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        space.scope(|s| {
            let (count, told) = (Arc::clone(&ran), Arc::clone(&go_on));
            let pieces = s.for_each("dropped", 0..50).grain(1).launch((), move |k, _, ()| {
                stand_still(k, &told)?;
                count.fetch_add(1, SeqCst);
                Ok(())
            });
            drop(pieces.unwrap());
            go_on.store(true, SeqCst);
        });
        assert_eq!(ran.load(SeqCst), 50, "the scope did not wait for pieces that were dropped");
    });
}

/// A kernel that captures shared memory: it must go in a thread of the program, whatever becomes of its pieces.
#[test]
fn what_a_kernel_captures_goes_however_its_pieces_end() {
    within(LIMIT, "captured", || {
        let space = space(2, 1);
        for fails in [false, true] {
            for _ in 0..20 {
                let captured = space.alloc::<u64>(PAGE).unwrap();
                let outcome =
                    space.for_each("holder", 0..40).grain(1).run((), move |k, indices, ()| {
                        if fails && indices.start == 7 {
                            Err(k.fail("seven"))
                        } else {
                            assert_eq!(captured.len(), PAGE);
                            Ok(())
                        }
                    });
                assert_eq!(outcome.is_err(), fails);
            }
        }
        let buffers = space.report().to_string();
        assert!(space.check().is_ok(), "{buffers}");
    });
}

#[test]
fn a_card_that_is_lost_in_the_middle_fails_the_launch_with_the_range_that_it_had() {
    within(LIMIT, "lost card", || {
        let space = space(2, 1);
        let begun = Arc::new(AtomicUsize::new(0));
        let ran: Arc<Vec<AtomicU32>> = Arc::new((0..64).map(|_| AtomicU32::new(0)).collect());
        let outcome = space.scope(|s| {
            let (count, ran) = (Arc::clone(&begun), Arc::clone(&ran));
            let pieces = s.for_each("struck", 0..64).grain(1).launch((), move |k, indices, ()| {
                if k.card() == CardId(0) {
                    count.fetch_add(1, SeqCst);
                    stand_still(k, &AtomicBool::new(false))?;
                }
                ran[indices.start as usize].fetch_add(1, SeqCst);
                Ok(())
            });
            let pieces = pieces.unwrap();
            until("the piece does not begin", || begun.load(SeqCst) == 1);
            space.fail_card(CardId(0)).unwrap();
            pieces.wait()
        });
        let Err(Error::Piece { card, indices, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!((card, indices), (CardId(0), 0..1));
        assert_eq!(ran[0].load(SeqCst), 0, "it was run again");
        assert!(ran.iter().all(|count| count.load(SeqCst) <= 1));
    });
}

/// Launches, each on the next card, each after the one before it, which wants to be the next.
fn take_turns(space: &Space, launches: u64) -> Result<(), String> {
    let word = space.alloc_atomic::<AtomicU64>(1, "turn").unwrap();
    space.scope(|s| {
        let mut last: Option<farside::Job<'_, ()>> = None;
        for turn in 0..launches {
            let kernel = s.kernel("turn").on(CardId((turn % 3) as u8));
            let kernel = last.iter().fold(kernel, |kernel, last| kernel.after(last));
            let job = kernel.launch(Shared(&word), move |k, word| {
                match k.compare_exchange(word, 0, turn, turn + 1)? {
                    Ok(was) if was == turn => Ok(()),
                    Ok(seen) | Err(seen) => Err(k.fail(format!("turn {turn} saw {seen}"))),
                }
            });
            last = Some(job.unwrap());
        }
        last.map_or(Ok(()), |last| last.wait().map_err(|error| error.to_string()))
    })?;
    let seen = word[0].load(SeqCst);
    if seen == launches { Ok(()) } else { Err(format!("{seen} of {launches} turns")) }
}

#[test]
fn a_thousand_launches_come_one_after_the_other_without_the_program() {
    within(LIMIT, "chain", || take_turns(&space(3, 1), 1000).unwrap());
}

/// Whoever comes after a launch may have ended before the thread that ended that launch goes on.
#[test]
fn who_sees_the_end_of_a_launch_sees_the_ends_of_those_before_it() {
    within(LIMIT, "ends", || {
        let space = space(3, 1);
        let busy = AtomicBool::new(true);
        std::thread::scope(|threads| {
            // The threads of the cards are interrupted where they happen to be.
            for _ in 0..4 {
                threads.spawn(|| {
                    while busy.load(SeqCst) {
                        std::hint::spin_loop();
                    }
                });
            }
            let unseen = (0..2000).find(|_| !ends_are_seen(&space));
            busy.store(false, SeqCst);
            assert_eq!(unseen, None, "the round in which an end was not seen");
        });
    });
}

/// Whether the ends of a chain's launches are seen with that of its last.
fn ends_are_seen(space: &Space) -> bool {
    space.scope(|s| {
        let on = |card| s.kernel("nothing").on(CardId(card));
        let first = on(0).launch((), |_, ()| Ok(())).unwrap();
        let second = on(1).after(&first).launch((), |_, ()| Ok(())).unwrap();
        let third = on(2).after(&second).launch((), |_, ()| Ok(())).unwrap();
        third.wait().unwrap();
        first.is_done() && second.is_done()
    })
}

#[test]
fn control_starting_launches_before_those_that_they_come_after_is_noticed() {
    must_be_caught(
        "control_starting_launches_before_those_that_they_come_after_is_noticed",
        || {
            (0..50).try_for_each(|_| {
                let space = space(3, 1);
                space.mutate(Mutation::IgnoreOrder).map_err(|error| error.to_string())?;
                take_turns(&space, 60)
            })
        },
    );
}

#[test]
fn a_diamond_of_launches_pieces_and_moves_comes_together() {
    within(LIMIT, "diamond", || {
        let space = space(2, 1);
        let words = space.alloc_atomic::<AtomicU64>(4 * PAGE, "words").unwrap();
        for _ in 0..30 {
            words.iter().for_each(|word| word.store(1, SeqCst));
            let total = space.scope(|s| {
                let go = s.kernel("top").on(CardId(0)).launch(Shared(&words), |k, words| {
                    (0..words.len()).try_for_each(|at| k.fetch_add(words, at, 1).map(drop))
                });
                let go = go.unwrap();
                let left = s.for_each("left", 0..2 * PAGE as u64).after(&go);
                let left = left.launch(Shared(&words), |k, indices, words| {
                    indices
                        .into_iter()
                        .try_for_each(|at| k.fetch_add(words, at as usize, 10).map(drop))
                });
                let moved = space.migrate_async(&words[2 * PAGE..], CardId(1)).after(&go).start();
                let moved = moved.unwrap();
                let (left, again) = (left.unwrap(), space.prefetch_async(&words, CardId(0)));
                let again = again.after(&moved).start().unwrap();
                let bottom =
                    s.kernel("bottom").on(CardId(1)).after(&left).after(&moved).after(&again);
                let bottom = bottom.launch(Shared(&words), |k, words| {
                    (0..words.len()).try_fold(0, |sum, at| Ok(sum + k.load(words.ptr(at))?))
                });
                bottom.unwrap().wait().unwrap()
            });
            assert_eq!(total, (2 * PAGE * 12 + 2 * PAGE * 2) as u64);
        }
    });
}

#[test]
fn what_comes_after_a_failure_does_not_run_and_names_it() {
    within(LIMIT, "propagation", || {
        let space = space(2, 1);
        let data = space.alloc::<u64>(PAGE).unwrap();
        let ran = Arc::new(AtomicU64::new(0));
        let runs = || {
            let ran = Arc::clone(&ran);
            move |_: &mut KernelContext, ()| {
                ran.fetch_add(1, SeqCst);
                Ok(())
            }
        };
        let named = |error: Error| {
            let text = error.to_string();
            assert!(text.contains("kernel `bad` on card 1") && text.contains("no luck"), "{text}");
        };
        for first_waits in [true, false] {
            space.scope(|s| {
                let go_on = Arc::new(AtomicBool::new(!first_waits));
                let told = Arc::clone(&go_on);
                let bad = s.kernel("bad").on(CardId(1)).launch((), move |k, ()| -> Result<(), _> {
                    stand_still(k, &told)?;
                    Err(k.fail("no luck"))
                });
                let bad = bad.unwrap();
                if !first_waits {
                    until("it ends", || bad.is_done());
                }
                let good = s.kernel("good").launch((), |_, ()| Ok(())).unwrap();
                let next = s.kernel("next").after(&good).after(&bad).launch((), runs()).unwrap();
                let more = s.kernel("more").after(&next).launch((), runs()).unwrap();
                let pieces = s.for_each("pieces", 0..10).after(&bad);
                let pieces = pieces.launch((), |_, _, ()| panic!("it runs")).unwrap();
                let last = s.kernel("last").after(&pieces).launch((), runs()).unwrap();
                let moved = space.migrate_async(&data, CardId(0)).after(&more).start().unwrap();
                let behind = s.kernel("behind").after(&moved).launch((), runs()).unwrap();
                go_on.store(true, SeqCst);
                assert!(bad.wait().is_err());
                good.wait().unwrap();
                for job in [next, more, last, behind] {
                    let outcome = job.wait();
                    assert!(
                        matches!(outcome, Err(Error::Kernel(KernelError::NotRun { .. }))),
                        "{outcome:?}"
                    );
                    named(outcome.unwrap_err());
                }
                named(pieces.wait().unwrap_err());
                named(moved.wait().unwrap_err());
            });
        }
        assert_eq!(ran.load(SeqCst), 0);
        assert!(space.locate(&data).unwrap().iter().all(|part| part.owner != Some(MemoryId(1))));
        // A space in which things have failed works as before.
        space.kernel("fine").run((), |_, ()| Ok(())).unwrap();
        space.check().unwrap();
    });
}

#[test]
fn what_comes_after_something_cancelled_hung_or_lost_does_not_run() {
    within(LIMIT, "cancelled", || {
        let space = Space::builder().cards(2).grace(Duration::from_millis(30)).build().unwrap();
        let never = Arc::new(AtomicBool::new(false));
        space.scope(|s| {
            let told = Arc::clone(&never);
            let first = s.kernel("first").launch((), move |k, ()| stand_still(k, &told)).unwrap();
            let waits =
                s.kernel("waits").on(CardId(1)).after(&first).launch((), |_, ()| Ok(())).unwrap();
            let last = s.kernel("last").after(&waits).launch((), |_, ()| Ok(())).unwrap();
            waits.cancel();
            let error = kernel_error(last.wait()).to_string();
            assert!(error.contains("kernel `waits` on card 1"), "{error}");
            let other =
                s.kernel("other").on(CardId(1)).after(&first).launch((), |_, ()| Ok(())).unwrap();
            first.cancel();
            assert!(matches!(kernel_error(other.wait()), KernelError::NotRun { .. }));

            let release = Arc::new(AtomicBool::new(false));
            let told = Arc::clone(&release);
            let deaf = s.kernel("deaf").on(CardId(1)).time_limit(Duration::from_millis(20));
            let deaf = deaf.launch((), move |_, ()| {
                until("nobody lets it go", || told.load(SeqCst));
                Ok(())
            });
            let deaf = deaf.unwrap();
            let other = s.kernel("other").after(&deaf).launch((), |_, ()| Ok(())).unwrap();
            let error = kernel_error(other.wait()).to_string();
            assert!(
                error.contains("kernel `deaf` on card 1") && error.contains("hangs"),
                "{error}"
            );
            release.store(true, SeqCst);

            let told = Arc::clone(&never);
            let gone = s
                .kernel("gone")
                .on(CardId(1))
                .launch((), move |k, ()| stand_still(k, &told))
                .unwrap();
            let other = s.kernel("other").after(&gone).launch((), |_, ()| Ok(())).unwrap();
            space.fail_card(CardId(1)).unwrap();
            let error = kernel_error(other.wait()).to_string();
            assert!(error.contains("kernel `gone` on card 1"), "{error}");
        });
    });
}

/// Polls futures when they are woken, until all are over.
struct Executor {
    woken: Receiver<usize>,
    wakers: Vec<Arc<Counted>>,
}

struct Counted {
    at: usize,
    wakes: AtomicUsize,
    woken: Mutex<std::sync::mpsc::Sender<usize>>,
}

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, SeqCst);
        self.woken.lock().unwrap().send(self.at).unwrap();
    }
}

impl Executor {
    fn new(tasks: usize) -> Executor {
        let (sender, woken) = channel();
        let waker = |at| {
            let woken = Mutex::new(sender.clone());
            Arc::new(Counted { at, wakes: AtomicUsize::new(0), woken })
        };
        Executor { woken, wakers: (0..tasks).map(waker).collect() }
    }

    /// The values, in order. No task is woken more than once, and none that had its value at once.
    fn run<T>(&self, tasks: Vec<Pin<Box<dyn Future<Output = T> + '_>>>) -> Vec<T> {
        let mut tasks: Vec<_> = tasks.into_iter().map(Some).collect();
        let mut values: Vec<Option<T>> = tasks.iter().map(|_| None).collect();
        let mut poll = |at: usize| {
            let Some(task) = tasks[at].as_mut() else { panic!("{at} is woken when it is over") };
            let waker = Waker::from(Arc::clone(&self.wakers[at]));
            if let Poll::Ready(value) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
                (values[at], tasks[at]) = (Some(value), None);
            }
            tasks.iter().flatten().count()
        };
        let mut left = (0..self.wakers.len()).map(&mut poll).last().unwrap_or(0);
        while left > 0 {
            left = poll(self.woken.recv_timeout(Duration::from_secs(20)).expect("nobody is woken"));
        }
        assert!(self.wakers.iter().all(|waker| waker.wakes.load(SeqCst) <= 1));
        values.into_iter().map(|value| value.expect("all are over")).collect()
    }
}

#[test]
fn launches_pieces_and_moves_are_futures() {
    within(LIMIT, "futures", || {
        let space = space(2, 1);
        let data = space.alloc::<u64>(64 * PAGE).unwrap();
        for round in 0..20 {
            space.scope(|s| {
                let job = s.kernel("job").launch((), move |_, ()| Ok(round)).unwrap();
                let after = s.kernel("after").on(CardId(1)).after(&job);
                let after = after.launch((), move |_, ()| Ok(round + 1)).unwrap();
                let pieces =
                    s.for_each("pieces", 0..1000).grain(10).launch((), |_, _, ()| Ok(())).unwrap();
                let card = CardId((round % 2) as u8);
                let moved = space.migrate_async(&data, card).after(&after).start().unwrap();
                let tasks: Vec<Pin<Box<dyn Future<Output = u64>>>> = vec![
                    Box::pin(async { job.await.unwrap() }),
                    Box::pin(async { after.await.unwrap() }),
                    Box::pin(async { sum(&pieces.await.unwrap()).1 }),
                    Box::pin(async { moved.await.unwrap() }),
                ];
                let values = Executor::new(4).run(tasks);
                assert_eq!(values[..3], [round, round + 1, 1000]);
                assert!(values[3] <= 64, "{}", values[3]);
            });
        }
    });
}

#[test]
fn a_future_is_woken_once_by_a_thread_that_may_touch_shared_memory() {
    struct Toucher {
        word: farside::Buffer<AtomicU64>,
        seen: AtomicU64,
    }
    impl Wake for Toucher {
        fn wake(self: Arc<Self>) {
            self.seen.store(self.word[0].fetch_add(1, SeqCst) + 100, SeqCst);
        }
    }
    within(LIMIT, "waker", || {
        let space = space(2, 1);
        let word = space.alloc_atomic::<AtomicU64>(1, "word").unwrap();
        space.migrate(&word, CardId(0)).unwrap();
        let toucher = Arc::new(Toucher { word, seen: AtomicU64::new(0) });
        let waker = Waker::from(Arc::clone(&toucher));
        let go_on = Arc::new(AtomicBool::new(false));
        space.scope(|s| {
            let told = Arc::clone(&go_on);
            let mut job =
                pin!(s.kernel("job").launch((), move |k, ()| stand_still(k, &told)).unwrap());
            for _ in 0..3 {
                assert!(job.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            }
            go_on.store(true, SeqCst);
            until("it is not woken", || toucher.seen.load(SeqCst) == 100);
            assert!(job.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
            // One that is dropped wakes nobody, and lets go of its waker.
            let told = Arc::new(AtomicBool::new(false));
            let still = Arc::clone(&told);
            let mut other = Box::pin(
                s.kernel("other").launch((), move |k, ()| stand_still(k, &still)).unwrap(),
            );
            assert!(other.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            drop(other);
            told.store(true, SeqCst);
        });
        drop(waker);
        until("the waker is kept", || Arc::strong_count(&toucher) == 1);
        assert_eq!(toucher.word[0].load(SeqCst), 1);
    });
}

#[test]
fn many_moves_at_once_lose_nothing_and_tell_their_errors() {
    within(LIMIT, "moves", || {
        let space = space(3, 1);
        let mut buffers: Vec<_> = (0..40).map(|_| space.alloc::<u64>(20 * PAGE).unwrap()).collect();
        for (number, buffer) in buffers.iter_mut().enumerate() {
            buffer.iter_mut().zip(number as u64..).for_each(|(word, value)| *word = value);
        }
        for round in 0..10 {
            let start = |(number, buffer): (usize, &farside::Buffer<u64>)| {
                let to = MemoryId(((number + round) % 4) as u8);
                let moving = match number % 3 {
                    0 => space.prefetch_async(buffer, to),
                    _ => space.migrate_async(buffer, to),
                };
                moving.start().unwrap()
            };
            let moves: Vec<_> = buffers.iter().enumerate().map(start).collect();
            let touched: u64 = buffers.iter().step_by(7).map(|buffer| buffer[round * PAGE]).sum();
            assert_eq!(touched, (0..40).step_by(7).map(|n| n + (round * PAGE) as u64).sum::<u64>());
            let tasks = moves
                .into_iter()
                .map(|moving| Box::pin(moving) as Pin<Box<dyn Future<Output = _>>>);
            let values: Vec<Result<u64, Error>> = Executor::new(40).run(tasks.collect());
            assert!(values.iter().all(|value| matches!(value, Ok(0..=20))), "{values:?}");
        }
        for (number, buffer) in buffers.iter().enumerate() {
            assert!(buffer.iter().zip(number as u64..).all(|(&word, value)| word == value));
        }
        let large = space.alloc::<u64>(4096 * PAGE).unwrap();
        let error = space.migrate_async(&large, CardId(0)).start().unwrap().wait().unwrap_err();
        assert!(error.to_string().contains("cannot be at"), "{error}");
        let nowhere = space.migrate_async(&large, MemoryId(9)).start().unwrap();
        assert!(nowhere.wait_for(Duration::from_secs(20)).unwrap().is_err());
        let outside = [0u64; 8];
        assert!(space.migrate_async(&outside, CardId(0)).start().is_err());
        space.check().unwrap();
    });
}

#[test]
fn a_move_whose_handle_is_dropped_goes_on() {
    within(LIMIT, "dropped move", || {
        let space = space(1, 1);
        let mut data = space.alloc::<u64>(256 * PAGE).unwrap();
        data.fill(3);
        drop(space.migrate_async(&data, CardId(0)).start().unwrap());
        let card = CardId(0).memory();
        let there = || space.locate(&data).unwrap().iter().all(|part| part.owner == Some(card));
        until("the pages do not come", there);
        // One that waits and whose buffer goes in the meantime says so.
        let told = Arc::new(AtomicBool::new(false));
        let still = Arc::clone(&told);
        space.scope(|s| {
            let job = s.kernel("job").launch((), move |k, ()| stand_still(k, &still)).unwrap();
            let moving = space.migrate_async(&data, MemoryId::HOST).after(&job).start().unwrap();
            assert!(moving.wait_for(Duration::from_millis(5)).is_none());
            drop(data);
            told.store(true, SeqCst);
            let error = moving.wait().unwrap_err().to_string();
            assert!(error.contains("not allocated"), "{error}");
        });
    });
}

#[test]
fn a_split_stencil_reads_all_and_writes_its_own() {
    within(LIMIT, "stencil", || {
        let space = space(2, 2);
        let n = 20_000;
        let (mut from, mut to) = (space.alloc::<u64>(n).unwrap(), space.alloc::<u64>(n).unwrap());
        from.iter_mut().zip(0..).for_each(|(word, i)| *word = i * i % 1000);
        let each = space.for_each("stencil", 0..n as u64).grain(512);
        let args = (Read(&from), Write(&mut to));
        each.run(args, move |k, indices, (from, to)| {
            let (start, end) = (indices.start as usize, indices.end as usize);
            let (low, high) = (start.saturating_sub(1), (end + 1).min(n));
            k.with(
                (from.slice(low..high), to),
                |(from, mut to): (ReadView<u64>, WriteView<u64>)| {
                    let from: Vec<u64> = from.iter().copied().collect();
                    for (at, word) in (start..).zip(to.iter_mut()) {
                        let near = at.saturating_sub(1).max(low)..(at + 2).min(high);
                        *word = near.map(|at| from[at - low]).sum();
                    }
                },
            )
        })
        .unwrap();
        let wanted = |at: usize| from[at.saturating_sub(1)..(at + 2).min(n)].iter().sum::<u64>();
        assert!((0..n).all(|at| to[at] == wanted(at)));
    });
}
