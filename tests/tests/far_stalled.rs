//! A card's process stands still, or a kernel there does not stop: what depends on it ends with an
//! error within the limits, everything else goes on, and nothing of its former life is written to
//! memory when it wakes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{
    Buffer, CardId, Error, KernelError, MemoryId, PageState, Read, Shared, Space, SpaceBuilder,
    Value, Write,
};
use farside_softcard::serve::CardConfig;
use farside_types::Span;
use harness::live::served::{
    CardProcess, Exercise, TempDir, await_status, config, place, serve, serve_if_asked,
    test_kernels,
};
use harness::live::within;

const LIMIT: Duration = Duration::from_secs(90);
/// Words of a page.
const PAGE: usize = 512;
/// The card that stands still, and the one that does not.
const STILL: CardId = CardId(0);
const OTHER: CardId = CardId(1);
/// What memory holds that nobody may overwrite.
const PATTERN: u64 = 0x5afe_5afe_5afe_5afe;
/// What is written by whom nobody waits for any more.
const STALE: u64 = 0xbad0_bad0_bad0_bad0;
/// Much longer than everything that has a limit here, and less than a test may take.
const PATIENCE: Duration = Duration::from_secs(20);

fn grace(config: CardConfig) -> CardConfig {
    CardConfig { grace: Duration::from_millis(50), ..config }
}

fn tuned(builder: SpaceBuilder) -> SpaceBuilder {
    builder.address_space(16 << 20).grace(Duration::from_millis(50)).kernels(test_kernels()).tune(
        |config| {
            config.limits.drain = Span::from_millis(200);
            config.limits.copy = Span::from_millis(300);
        },
    )
}

/// Two cards in processes of their own, and a space over them.
struct Fixture {
    still: CardProcess,
    _other: CardProcess,
    _folder: TempDir,
    space: Space,
}

impl Fixture {
    fn start(test: &str) -> Fixture {
        let folder = TempDir::new();
        let start = |card| CardProcess::start(test, &config(&folder, card));
        let (still, other) = (start(0), start(1));
        let builder = Space::builder().cards_at([still.place(), other.place()]);
        let space = tuned(builder).build().unwrap();
        Fixture { still, _other: other, _folder: folder, space }
    }

    fn filled(&self, pages: usize, value: u64) -> Buffer<u64> {
        let mut data = self.space.alloc::<u64>(pages * PAGE).unwrap();
        data.fill(value);
        data
    }

    /// Runs `body` while the card stands still, and the other card and the host work all the while.
    fn while_still(&self, body: impl FnOnce()) {
        self.still.freeze();
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            let others = s.spawn(|| {
                let mut data = self.filled(70, 1);
                let mut count = 1;
                while !stop.load(SeqCst) {
                    self.space
                        .kernel("farside.increment")
                        .on(OTHER)
                        .call(Write(&mut data))
                        .expect("the other card works");
                    count += 1;
                    assert!(data.iter().all(|&word| word == count));
                }
                count
            });
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            stop.store(true, SeqCst);
            assert!(others.join().unwrap() > 1, "nothing else went on");
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }

    /// Lets the card go on, and sees that it is used again.
    #[track_caller]
    fn thaw_and_use(&self) {
        self.still.thaw();
        await_card(&self.space, STILL);
        for (a, b) in [(STILL, OTHER), (OTHER, STILL)] {
            let mut again = Exercise::new(&self.space, 80);
            again.run(a, b).unwrap();
            assert_eq!(again.check(), 0);
        }
        self.space.check().unwrap();
    }
}

/// Waits until a card works.
#[track_caller]
fn await_card(space: &Space, card: CardId) {
    let end = Instant::now() + PATIENCE;
    loop {
        let limited = space.kernel("farside.nop").on(card).time_limit(Duration::from_secs(1));
        match limited.call(()) {
            Ok(_) => return,
            Err(error) => assert!(Instant::now() < end, "{card} does not come back: {error}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[track_caller]
fn expect_hung(outcome: Result<u64, Error>) {
    let error = outcome.unwrap_err();
    let fits = matches!(
        error,
        Error::Kernel(
            KernelError::Hung { .. } | KernelError::Dropped { .. } | KernelError::TimedOut { .. }
        )
    );
    assert!(fits, "{error}");
}

#[test]
fn a_job_on_a_card_that_stands_still_ends_with_an_error_and_the_card_is_reset() {
    const NAME: &str = "a_job_on_a_card_that_stands_still_ends_with_an_error_and_the_card_is_reset";
    serve_if_asked(grace);
    within(LIMIT, NAME, || {
        let fixture = Fixture::start(NAME);
        let space = &fixture.space;
        let mut data = fixture.filled(80, PATTERN);
        fixture.while_still(|| {
            let limit = Duration::from_millis(20);
            let kernel = || space.kernel("farside.increment").time_limit(limit);
            let started = Instant::now();
            expect_hung(kernel().call(Write(&mut data)));
            assert!(started.elapsed() < PATIENCE);
            // From now on it is known, and nobody waits for anything.
            expect_hung(kernel().call(Write(&mut data)));
        });
        fixture.thaw_and_use();
        // The kernel never ran for anybody to see.
        assert!(data.iter().all(|&word| word == PATTERN));
    });
}

#[test]
fn a_card_that_stood_still_for_a_while_and_was_not_needed_goes_on() {
    const NAME: &str = "a_card_that_stood_still_for_a_while_and_was_not_needed_goes_on";
    serve_if_asked(grace);
    within(LIMIT, NAME, || {
        let fixture = Fixture::start(NAME);
        let mut data = fixture.filled(80, 1);
        let before = fixture.still.await_status(|_| true);
        let generation = |status: &farside_softcard::serve::CardStatus| {
            status.functions[0].user.as_ref().unwrap().generation
        };
        fixture.space.scope(|s| {
            fixture.still.freeze();
            let job = s.kernel("farside.increment").launch_call(Write(&mut data)).unwrap();
            std::thread::sleep(Duration::from_millis(600));
            assert!(!job.is_done(), "nobody said that it may not take long");
            fixture.still.thaw();
            assert_eq!(job.wait().unwrap(), 80 * PAGE as u64);
        });
        assert!(data.iter().all(|&word| word == 2));
        let after = fixture.still.await_status(|_| true);
        assert_eq!(generation(&before), generation(&after), "it was reset without need");
    });
}

#[test]
fn pages_that_a_card_does_not_let_go_stay_where_they_are() {
    const NAME: &str = "pages_that_a_card_does_not_let_go_stay_where_they_are";
    serve_if_asked(grace);
    within(LIMIT, NAME, || {
        let fixture = Fixture::start(NAME);
        let space = &fixture.space;
        let held = space.alloc_atomic::<AtomicU64>(PAGE, "held").unwrap();
        space.scope(|s| {
            let args = (Shared(&held[..]), Value(u64::MAX));
            let holder = s.kernel("test.meet").launch_call(args).unwrap();
            while held[0].load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            // Back to the card, which reads it all the time.
            std::thread::sleep(Duration::from_millis(5));
            space.migrate(&held, STILL).unwrap();
            fixture.while_still(|| {
                let started = Instant::now();
                let error = space.migrate(&held, MemoryId::HOST).unwrap_err();
                assert!(started.elapsed() < PATIENCE);
                assert!(error.to_string().contains("does not let"), "{error}");
                let at = space.locate(&held).unwrap();
                assert!(at.iter().all(|part| part.owner == Some(STILL.memory())), "{at:?}");
                expect_hung(holder.wait());
            });
        });
        fixture.thaw_and_use();
        // Only once it was known not to answer, and reset, what was nowhere else is lost.
        let at = space.locate(&held).unwrap();
        assert!(at.iter().all(|part| part.state == PageState::Lost), "{at:?}");
    });
}

#[test]
fn a_card_that_stands_still_for_a_while_loses_no_page() {
    const NAME: &str = "a_card_that_stands_still_for_a_while_loses_no_page";
    serve_if_asked(grace);
    within(LIMIT, NAME, || {
        let fixture = Fixture::start(NAME);
        let space = &fixture.space;
        let busy = space.alloc_atomic::<AtomicU64>(PAGE, "busy").unwrap();
        let beside = fixture.filled(80, PATTERN);
        space.migrate(&beside, STILL).unwrap();
        space.scope(|s| {
            // It runs, so that letting go of a page has to be waited for.
            let args = (Shared(&busy[..]), Value(u64::MAX));
            let job = s.kernel("test.meet").launch_call(args).unwrap();
            while busy[0].load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            fixture.still.freeze();
            let error = space.migrate(&beside, MemoryId::HOST).unwrap_err();
            assert!(error.to_string().contains("does not let"), "{error}");
            std::thread::scope(|t| {
                // Its first tries are in vain as well.
                let reader = t.spawn(|| beside[0]);
                std::thread::sleep(Duration::from_millis(300));
                fixture.still.thaw();
                assert_eq!(reader.join().unwrap(), PATTERN);
            });
            job.cancel();
            drop(job.wait().unwrap_err());
        });
        assert!(beside.iter().all(|&word| word == PATTERN), "a page was lost");
        space.kernel("farside.sum").call(Read(&beside)).unwrap();
        space.check().unwrap();
    });
}

#[test]
fn a_copy_that_a_card_does_not_do_fails_and_is_not_done_later() {
    const NAME: &str = "a_copy_that_a_card_does_not_do_fails_and_is_not_done_later";
    serve_if_asked(grace);
    within(LIMIT, NAME, || {
        let fixture = Fixture::start(NAME);
        let space = &fixture.space;
        // To the card: nothing is lost, and the source is as good as before.
        let mut to_card = fixture.filled(100, PATTERN);
        // To the host: these were only there.
        let mut to_host = fixture.filled(100, STALE);
        space.migrate(&to_host, STILL).unwrap();
        fixture.while_still(|| {
            space.migrate(&to_card, STILL).unwrap_err();
            space.migrate(&to_host, MemoryId::HOST).unwrap_err();
            assert!(to_card.iter().all(|&word| word == PATTERN));
            to_card.fill(PATTERN + 1);
            // Until it has been asked, and given up.
            expect_hung(space.kernel("farside.nop").call(()));
        });
        fixture.thaw_and_use();
        assert!(to_card.iter().all(|&word| word == PATTERN + 1));
        // Its frames are the host's again. Whatever is left of the copy is not written there.
        let start = to_host.addr();
        let lost = space.locate(&to_host).unwrap();
        assert!(lost.iter().all(|part| part.state == PageState::Lost), "{lost:?}");
        drop(to_host);
        to_host = fixture.filled(100, PATTERN);
        assert_eq!(to_host.addr(), start, "this test wants the same pages again");
        std::thread::sleep(Duration::from_millis(100));
        assert!(to_host.iter().all(|&word| word == PATTERN));
        space.kernel("farside.increment").call(Write(&mut to_host)).unwrap();
        assert!(to_host.iter().all(|&word| word == PATTERN + 1));
    });
}

#[test]
fn a_copy_that_a_card_does_too_late_changes_nothing() {
    const NAME: &str = "a_copy_that_a_card_does_too_late_changes_nothing";
    serve_if_asked(grace);
    within(LIMIT, NAME, || {
        let fixture = Fixture::start(NAME);
        let space = &fixture.space;
        let mut to_card = fixture.filled(100, STALE);
        let mut to_host = fixture.filled(100, PATTERN);
        space.migrate(&to_host, STILL).unwrap();
        fixture.while_still(|| {
            space.migrate(&to_card, STILL).unwrap_err();
            space.migrate(&to_host, MemoryId::HOST).unwrap_err();
            to_card.fill(PATTERN);
        });
        // It goes on before anybody has asked whether it still answers, and does what it was told.
        fixture.still.thaw();
        await_card(space, STILL);
        space.kernel("farside.increment").call(Write(&mut to_host)).unwrap();
        let words = to_host.len() as u64;
        for card in [STILL, OTHER] {
            let sum = space.kernel("farside.sum").on(card).call(Read(&to_host)).unwrap();
            assert_eq!(sum, words.wrapping_mul(PATTERN + 1), "as {card} sees it");
            let sum = space.kernel("farside.sum").on(card).call(Read(&to_card)).unwrap();
            assert_eq!(sum, words.wrapping_mul(PATTERN), "as {card} sees it");
        }
        assert!(to_card.iter().all(|&word| word == PATTERN));
        space.check().unwrap();
    });
}

#[test]
fn a_kernel_that_writes_to_the_host_is_fenced_off_when_its_card_wakes() {
    const NAME: &str = "a_kernel_that_writes_to_the_host_is_fenced_off_when_its_card_wakes";
    serve_if_asked(grace);
    within(LIMIT, NAME, || {
        let fixture = Fixture::start(NAME);
        let space = &fixture.space;
        let mut data = fixture.filled(4, 1);
        // Kernels reach it over the bus, because it may not leave the host.
        space.pin(&data, MemoryId::HOST).unwrap();
        let (start, words) = (data.as_ptr(), data.len());
        space.scope(|s| {
            let args = (Write(&mut data[..]), Value(60_000u64), Value(STALE));
            let limit = Duration::from_millis(300);
            let job = s.kernel("test.scribble").time_limit(limit).launch_call(args).unwrap();
            let end = Instant::now() + PATIENCE;
            // SAFETY: the pages are mapped as long as `data` lives; the kernel writes whole words,
            // and this reads one of them.
            while unsafe { start.add(words - 1).read_volatile() } != STALE {
                assert!(Instant::now() < end, "the kernel never wrote");
            }
            fixture.while_still(|| expect_hung(job.wait()));
        });
        let first = data.addr();
        space.unpin(&data).unwrap();
        drop(data);
        fixture.still.thaw();
        await_card(space, STILL);
        // The same pages, given to somebody else. The kernel scribbles on, but not here.
        let data = fixture.filled(4, PATTERN);
        assert_eq!(data.addr(), first, "this test wants the same pages again");
        let end = Instant::now() + Duration::from_millis(100);
        while Instant::now() < end {
            assert!(data.iter().all(|&word| word == PATTERN), "a stale write came through");
        }
        fixture.thaw_and_use();
        assert!(data.iter().all(|&word| word == PATTERN), "a stale write came through");
    });
}

#[test]
fn a_card_that_stands_still_while_another_comes_back_reaches_its_new_memory_later() {
    const NAME: &str =
        "a_card_that_stands_still_while_another_comes_back_reaches_its_new_memory_later";
    serve_if_asked(grace);
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let start = |card| CardProcess::start(NAME, &config(&folder, card));
        let (still, mut other) = (start(0), start(1));
        let builder = Space::builder().cards_at([still.place(), other.place()]);
        let space = tuned(builder).build().unwrap();
        Exercise::new(&space, 80).run(STILL, OTHER).unwrap();
        // Behind everything that it was told before: nothing waits for it then.
        await_card(&space, STILL);
        still.freeze();
        other.crash_and_restart();
        await_card(&space, OTHER);
        still.thaw();
        await_card(&space, STILL);
        for (a, b) in [(STILL, OTHER), (OTHER, STILL)] {
            let mut again = Exercise::new(&space, 80);
            again.run(a, b).unwrap();
            assert_eq!(again.check(), 0);
        }
        space.check().unwrap();
    });
}

#[test]
fn a_space_ends_while_its_card_stands_still() {
    const NAME: &str = "a_space_ends_while_its_card_stands_still";
    serve_if_asked(grace);
    within(LIMIT, NAME, || {
        let fixture = Fixture::start(NAME);
        let mut exercise = Exercise::new(&fixture.space, 80);
        exercise.run(STILL, OTHER).unwrap();
        fixture.still.freeze();
        drop(exercise);
        let Fixture { still, _other: other, _folder, space } = fixture;
        let started = Instant::now();
        drop(space);
        assert!(started.elapsed() < PATIENCE);
        still.thaw();
        // Its functions are free for the next program.
        let next = tuned(Space::builder().cards_at([still.place(), other.place()]));
        Exercise::new(&next.build().unwrap(), 80).run(STILL, OTHER).unwrap();
        still.await_status(|status| status.functions.iter().all(|f| f.user.is_none()));
    });
}

#[test]
fn a_kernel_that_keeps_its_memory_for_ever_costs_its_program_that_memory_and_nobody_else() {
    within(LIMIT, "hoard", || {
        let folder = TempDir::new();
        let server = serve(grace(config(&folder, 0)));
        let path = server.config().folder.clone();
        let open = || tuned(Space::builder().cards_at([place(&server)])).build().unwrap();
        let (space, neighbour) = (open(), open());
        let mut hoarded = space.alloc::<u64>(4 * PAGE).unwrap();
        let mut beside = space.alloc::<u64>(4 * PAGE).unwrap();
        beside.fill(1);
        let hoard = space.kernel("test.hoard").time_limit(Duration::from_millis(50));
        expect_hung(hoard.call((Write(&mut hoarded), Value(4_000u64))));
        await_status(&path, |status| status.functions[0].hung_threads == 1);
        // Other memory, the same card.
        space.kernel("farside.increment").call(Write(&mut beside)).unwrap();
        assert!(beside.iter().all(|&word| word == 2));
        let held = space.migrate(&hoarded, MemoryId::HOST);
        assert!(held.is_err(), "pages came back that a kernel holds");
        // The neighbour on the other function.
        let mut theirs = neighbour.alloc::<u64>(80 * PAGE).unwrap();
        neighbour.kernel("farside.increment").call(Write(&mut theirs)).unwrap();
        assert!(theirs.iter().all(|&word| word == 1));
        drop(hoarded);
        drop(beside);
        drop(space);
        // The function is another's before the kernel would have ended: it ends with the lease.
        await_status(&path, |status| {
            status.functions[0].user.is_none() && status.functions[0].hung_threads == 0
        });
        let next = open();
        let mut fresh = next.alloc::<u64>(200 * PAGE).unwrap();
        assert_eq!(next.kernel("farside.sum").call(Read(&fresh)).unwrap(), 0);
        next.kernel("farside.increment").call(Write(&mut fresh)).unwrap();
        assert!(fresh.iter().all(|&word| word == 1));
        next.check().unwrap();
    });
}

#[test]
fn kernels_that_ignore_their_end_leave_their_function_to_the_next_program() {
    within(LIMIT, "deaf", || {
        let folder = TempDir::new();
        let server = serve(CardConfig { functions: 1, ..grace(config(&folder, 0)) });
        let path = server.config().folder.clone();
        for round in 1..=3 {
            let space = tuned(Space::builder().cards_at([place(&server)])).build().unwrap();
            space.scope(|s| {
                let launch = || s.kernel("test.deaf").launch_call(Value(3_000u64)).unwrap();
                let jobs = [launch(), launch(), launch()];
                // Two run, and the third waits.
                await_status(&path, |status| {
                    status.functions[0].user.as_ref().is_some_and(|user| user.jobs == 2)
                });
                jobs.iter().for_each(farside::Job::cancel);
                jobs.into_iter().for_each(|job| drop(job.wait().unwrap_err()));
            });
            let mut data = space.alloc::<u64>(PAGE).unwrap();
            space.kernel("farside.increment").call(Write(&mut data)).unwrap();
            assert!(data.iter().all(|&word| word == 1), "in round {round}");
        }
    });
}
