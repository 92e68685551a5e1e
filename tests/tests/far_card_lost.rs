//! A card's process is killed: what was only there is lost and says so, everything else goes on,
//! and the card is used again when it comes back.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farside::{
    CardId, CardPlace, Error, KernelError, MemoryId, PageState, Read, Shared, Space, SpaceBuilder,
    Value, Write,
};
use farside_softcard::serve::CardConfig;
use farside_svm::{Command, Mutation};
use harness::Prng;
use harness::live::served::{
    CardProcess, Exercise, STEPS, TempDir, config, expect_loss, family_of, serve_if_asked,
    test_kernels,
};
use harness::live::{Child, must_be_caught, role, seconds, within};

const LIMIT: Duration = Duration::from_secs(120);
/// Words of a page.
const PAGE: usize = 512;
/// The card that is killed, and the one that is not.
const VICTIM: CardId = CardId(0);
const OTHER: CardId = CardId(1);

/// Two cards in processes of their own.
struct Cards {
    victim: CardProcess,
    other: CardProcess,
    _folder: TempDir,
}

impl Cards {
    fn start(test: &str) -> Cards {
        Cards::start_in(test, TempDir::new())
    }

    fn start_in(test: &str, folder: TempDir) -> Cards {
        let start = |card| CardProcess::start(test, &config(&folder, card));
        Cards { victim: start(0), other: start(1), _folder: folder }
    }

    fn builder(&self) -> SpaceBuilder {
        Space::builder()
            .cards_at([self.victim.place(), self.other.place()])
            .address_space(16 << 20)
            .grace(Duration::from_millis(50))
            .kernels(test_kernels())
    }

    fn space(&self) -> Space {
        self.builder().build().unwrap()
    }
}

/// Waits until a card works, or does not.
#[track_caller]
fn await_card(space: &Space, card: CardId, works: bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while space.kernel("farside.nop").on(card).call(()).is_ok() != works {
        assert!(Instant::now() < end, "{card} does not come to work: {works}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

static STEP: Mutex<&str> = Mutex::new("");
/// How many times the step goes well before it is struck.
static LEFT: AtomicUsize = AtomicUsize::new(0);
/// The process that is struck; 0 when it was.
static STRUCK: AtomicU32 = AtomicU32::new(0);

fn strike(command: &Command) {
    if command.name() != *STEP.lock().unwrap()
        || LEFT.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
    {
        return;
    }
    let pid = STRUCK.swap(0, SeqCst);
    if pid != 0 {
        // All at once: those that serve would end with their supervisor, but a little later, and the
        // step might be over by then.
        for pid in family_of(pid) {
            // SAFETY: the process is a child of this one that nobody has waited for yet, or made by it.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
    }
}

#[test]
fn invariant_26_a_card_process_killed_in_any_step_takes_its_own_pages_only_and_comes_back() {
    const NAME: &str =
        "invariant_26_a_card_process_killed_in_any_step_takes_its_own_pages_only_and_comes_back";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let mut cards = Cards::start(NAME);
        let space = cards.builder().probe(strike).build().unwrap();
        let (mut lost, mut kept) = (0, 0);
        for (step, left) in STEPS.into_iter().flat_map(|step| [(step, 0), (step, 2)]) {
            *STEP.lock().unwrap() = step;
            LEFT.store(left, SeqCst);
            STRUCK.store(cards.victim.pid(), SeqCst);
            let mut struck = Exercise::new(&space, 80);
            let outcome = (0..3).try_for_each(|_| struck.run(VICTIM, OTHER));
            assert_eq!(STRUCK.load(SeqCst), 0, "the step {step} never came");
            let Err(error) = outcome else { panic!("{step}:{left}: nobody noticed") };
            expect_loss(&error);
            cards.victim.crash();
            await_card(&space, VICTIM, false);
            lost += struck.check();
            kept += usize::from(struck.check() == 0);
            // The other card, meanwhile.
            let mut data = space.alloc::<u64>(70 * PAGE).unwrap();
            space.kernel("farside.fill").on(OTHER).call((Write(&mut data), Value(5u64))).unwrap();
            assert!(data.iter().all(|&word| word == 5));

            cards.victim.restart();
            await_card(&space, VICTIM, true);
            for (a, b) in [(VICTIM, OTHER), (OTHER, VICTIM)] {
                let mut again = Exercise::new(&space, 80);
                again.run(a, b).unwrap();
                assert_eq!(again.check(), 0, "after {step}:{left}");
            }
            struck.check();
            drop(struck);
            space.check().unwrap();
        }
        assert!(lost > 0 && kept > 0, "{lost} pages were lost, {kept} times none was");
    });
}

#[test]
fn a_card_process_killed_at_any_time_harms_nothing_else() {
    const NAME: &str = "a_card_process_killed_at_any_time_harms_nothing_else";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let mut cards = Cards::start(NAME);
        let space = cards.space();
        let at_home = space.alloc_atomic::<AtomicU64>(16 * PAGE, "at home").unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            let survivor = s.spawn(|| {
                let mut count = 0;
                while !stop.load(SeqCst) {
                    let args = (Shared(&at_home[..]), Value(1u64), Value(1u64));
                    space.kernel("test.affine").on(OTHER).call(args).unwrap();
                    at_home[PAGE].fetch_add(1, SeqCst);
                    count += 1;
                }
                count
            });
            let mut random = Prng::new(7);
            let end = Instant::now() + 2 * seconds();
            while Instant::now() < end {
                let mut struck = Exercise::new(&space, 80);
                let time = Duration::from_micros(random.below(15_000));
                let victim = &mut cards.victim;
                std::thread::scope(|s| {
                    s.spawn(move || {
                        std::thread::sleep(time);
                        victim.crash();
                    });
                    let error = loop {
                        match struck.run(VICTIM, OTHER) {
                            Ok(()) => {}
                            Err(error) => break error,
                        }
                    };
                    expect_loss(&error);
                });
                await_card(&space, VICTIM, false);
                struck.check();
                cards.victim.restart();
                await_card(&space, VICTIM, true);
                let mut again = Exercise::new(&space, 80);
                again.run(VICTIM, OTHER).unwrap();
                assert_eq!(again.check(), 0);
                space.check().unwrap();
            }
            stop.store(true, SeqCst);
            let count: u64 = survivor.join().unwrap();
            assert!(count > 0);
            assert_eq!(at_home[0].load(SeqCst), count);
            assert_eq!(at_home[PAGE].load(SeqCst), 2 * count);
        });
    });
}

#[test]
fn cards_that_go_and_come_back_together_reach_each_others_new_memory() {
    const NAME: &str = "cards_that_go_and_come_back_together_reach_each_others_new_memory";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let mut cards = Cards::start(NAME);
        let space = cards.space();
        let end = Instant::now() + 2 * seconds();
        while Instant::now() < end {
            cards.victim.crash();
            cards.other.crash();
            for card in [VICTIM, OTHER] {
                await_card(&space, card, false);
            }
            cards.victim.restart();
            cards.other.restart();
            for card in [VICTIM, OTHER] {
                await_card(&space, card, true);
            }
            for (a, b) in [(VICTIM, OTHER), (OTHER, VICTIM)] {
                let mut again = Exercise::new(&space, 80);
                again.run(a, b).unwrap();
                assert_eq!(again.check(), 0);
            }
            space.check().unwrap();
        }
    });
}

#[test]
fn a_card_that_is_killed_as_it_comes_back_is_got_back_again() {
    const NAME: &str = "a_card_that_is_killed_as_it_comes_back_is_got_back_again";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let mut cards = Cards::start(NAME);
        let space = cards.space();
        let mut random = Prng::new(9);
        let end = Instant::now() + seconds();
        while Instant::now() < end {
            cards.victim.crash_and_restart();
            // Around the moment in which the program sees that it is there.
            std::thread::sleep(Duration::from_micros(random.below(8_000)));
        }
        await_card(&space, VICTIM, true);
        Exercise::new(&space, 80).run(VICTIM, OTHER).unwrap();
        space.check().unwrap();
    });
}

#[test]
fn pages_with_a_copy_elsewhere_survive_and_the_others_are_lost_by_name() {
    const NAME: &str = "pages_with_a_copy_elsewhere_survive_and_the_others_are_lost_by_name";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let mut cards = Cards::start(NAME);
        let space = cards.space();
        let alloc = |value| {
            let mut data = space.alloc::<u64>(8 * PAGE).unwrap();
            data.fill(value);
            data
        };
        let (clean, mut host, mut dirty, mut elsewhere) = (alloc(1), alloc(2), alloc(3), alloc(4));
        assert_eq!(space.kernel("farside.sum").call(Read(&clean)).unwrap(), 8 * PAGE as u64);
        space.kernel("farside.increment").call(Write(&mut dirty)).unwrap();
        space.kernel("farside.increment").on(OTHER).call(Write(&mut elsewhere)).unwrap();
        cards.victim.crash();
        await_card(&space, VICTIM, false);

        assert!(clean.iter().all(|&word| word == 1));
        assert!(host.iter().all(|&word| word == 2));
        assert!(elsewhere.iter().all(|&word| word == 5));
        let lost = |dirty: &[u64]| {
            let at = space.locate(dirty).unwrap();
            assert!(at.iter().all(|part| part.state == PageState::Lost), "{at:?}");
            let heir = space.kernel("farside.sum").on(OTHER).call(Read(dirty)).unwrap_err();
            assert!(heir.to_string().contains("on a card that is gone"), "{heir}");
            assert!(space.migrate(dirty, MemoryId::HOST).is_err());
        };
        lost(&dirty);
        assert!(space.report().to_string().contains("lost: 8 pages"), "{}", space.report());
        let late = space.kernel("farside.nop").call(()).unwrap_err();
        assert!(matches!(late, Error::Kernel(KernelError::Dropped { .. })), "{late}");
        assert!(space.migrate(&host, VICTIM).is_err());
        space.kernel("farside.increment").on(OTHER).call(Write(&mut host)).unwrap();

        cards.victim.restart();
        await_card(&space, VICTIM, true);
        // What is lost stays lost, also for the card that has come back.
        lost(&dirty);
        space.kernel("farside.sum").call(Read(&dirty)).unwrap_err();
        space.kernel("farside.increment").call(Write(&mut host)).unwrap();
        assert!(host.iter().all(|&word| word == 4));
        drop(dirty);
        let again = space.alloc::<u64>(8 * PAGE).unwrap();
        assert!(again.iter().all(|&word| word == 0));
        space.check().unwrap();
    });
}

/// Leaves a page on a card that is gone.
fn lose_a_page(space: &Space, cards: &mut Cards) -> farside::Buffer<u64> {
    let mut data = space.alloc::<u64>(2 * PAGE).unwrap();
    data.fill(7);
    space.kernel("farside.increment").call(Write(&mut data)).unwrap();
    cards.victim.crash();
    await_card(space, VICTIM, false);
    data
}

#[test]
fn invariant_26_a_page_lost_with_a_card_process_ends_with_sigbus_and_never_reads_as_zeros() {
    const NAME: &str =
        "invariant_26_a_page_lost_with_a_card_process_ends_with_sigbus_and_never_reads_as_zeros";
    serve_if_asked(|config| config);
    if let Some(folder) = role() {
        let mut cards = Cards::start_in(NAME, TempDir::of_parent(folder));
        let space = cards.space();
        let data = lose_a_page(&space, &mut cards);
        println!("it is lost");
        println!("the lost page read as {}", data[5]);
        return;
    }
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let ended = Child::new(NAME, &folder.path().display().to_string()).run();
        ended.expect_signal(libc::SIGBUS);
        assert!(ended.text.contains("it is lost"), "{}", ended.text);
        assert!(!ended.text.contains("read as"), "{}", ended.text);
    });
}

/// What another card sees of a lost page; an error is the right answer.
fn heir_sees(space: &Space, cards: &mut Cards) -> Result<(), String> {
    let data = lose_a_page(space, cards);
    match space.kernel("farside.sum").on(OTHER).call(Read(&data)) {
        Err(Error::Kernel(KernelError::Fault { .. })) => Ok(()),
        other => Err(format!("a lost page was read as {other:?}")),
    }
}

#[test]
fn invariant_26_another_card_never_reads_a_page_lost_with_a_process_as_zeros() {
    const NAME: &str = "invariant_26_another_card_never_reads_a_page_lost_with_a_process_as_zeros";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let mut cards = Cards::start(NAME);
        heir_sees(&cards.space(), &mut cards).unwrap();
    });
}

#[test]
fn control_showing_pages_lost_with_a_process_as_zeros_is_noticed() {
    const NAME: &str = "control_showing_pages_lost_with_a_process_as_zeros_is_noticed";
    serve_if_asked(|config| config);
    must_be_caught(NAME, || {
        let mut cards = Cards::start(NAME);
        let space = cards.space();
        space.mutate(Mutation::LostReadsAsZero).map_err(|error| error.to_string())?;
        heir_sees(&space, &mut cards)
    });
}

#[test]
fn jobs_that_run_or_wait_on_the_card_fail_and_those_of_others_do_not() {
    const NAME: &str = "jobs_that_run_or_wait_on_the_card_fail_and_those_of_others_do_not";
    serve_if_asked(|config| CardConfig { pes: 1, ..config });
    within(LIMIT, NAME, || {
        let mut cards = Cards::start(NAME);
        let space = cards.space();
        let words = space.alloc_atomic::<AtomicU64>(PAGE, "words").unwrap();
        space.scope(|s| {
            let stream = space.stream();
            let running = s.kernel("farside.spin").stream(stream).launch_call(()).unwrap();
            let in_stream = s.kernel("farside.nop").stream(stream).launch_call(()).unwrap();
            let on_card = s.kernel("farside.nop").launch_call(()).unwrap();
            let args = (Shared(&words[..]), Value(2u64));
            let other = s.kernel("test.meet").on(OTHER).launch_call(args).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            assert!(!running.is_done() && !on_card.is_done() && !other.is_done());
            cards.victim.crash();
            for job in [running, in_stream, on_card] {
                let error = job.wait().unwrap_err();
                assert!(error.to_string().contains("is gone"), "{error}");
            }
            assert!(!other.is_done());
            words[0].fetch_add(1, SeqCst);
            assert_eq!(other.wait().unwrap(), 2);
        });
        space.check().unwrap();
    });
}

#[test]
fn a_card_that_comes_back_with_another_size_is_not_used() {
    const NAME: &str = "a_card_that_comes_back_with_another_size_is_not_used";
    serve_if_asked(|config| {
        // As the folder says: see below.
        let small = config.folder.join("small").exists();
        CardConfig { frames: if small { 64 } else { 512 }, ..config }
    });
    within(LIMIT, NAME, || {
        let mut cards = Cards::start(NAME);
        let space = cards.space();
        let folder = config(&cards._folder, 0).folder;
        // The one of before would answer whoever asks first, if it had not ended.
        cards.victim.crash_to_the_last();
        std::fs::write(folder.join("small"), "").unwrap();
        cards.victim.restart();
        // Whoever asks is told that it is away; it is looked at again and again meanwhile.
        for _ in 0..50 {
            space.kernel("farside.nop").call(()).unwrap_err();
            std::thread::sleep(Duration::from_millis(2));
        }
        cards.victim.crash();
        std::fs::remove_file(folder.join("small")).unwrap();
        cards.victim.restart();
        await_card(&space, VICTIM, true);
        let mut again = Exercise::new(&space, 80);
        again.run(VICTIM, OTHER).unwrap();
        assert_eq!(again.check(), 0);
    });
}

#[test]
fn a_space_ends_while_its_card_is_away() {
    const NAME: &str = "a_space_ends_while_its_card_is_away";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let mut cards = Cards::start(NAME);
        let space = cards.space();
        let mut exercise = Exercise::new(&space, 80);
        exercise.run(VICTIM, OTHER).unwrap();
        cards.victim.crash();
        drop(exercise);
        drop(space);
        // The other card is free for the next, and the first as soon as it is back.
        cards.victim.restart();
        let next = cards.space();
        Exercise::new(&next, 80).run(VICTIM, OTHER).unwrap();
    });
}

#[test]
fn a_card_does_not_come_back_while_another_still_uses_what_it_had() {
    const NAME: &str = "a_card_does_not_come_back_while_another_still_uses_what_it_had";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let mut victim = CardProcess::start(NAME, &config(&folder, 0));
        let here = CardPlace::InProgram { frames: 1024 };
        let places = [victim.place(), here];
        let space = Space::builder().cards_at(places).address_space(16 << 20).build().unwrap();
        let mut data = space.alloc::<u64>(PAGE).unwrap();
        data.fill(7);
        space.pin(&data, VICTIM).unwrap();
        let (holds, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (held, told) = (Arc::clone(&holds), Arc::clone(&go));
        space.scope(|scope| {
            let holder = scope.kernel("holder").on(OTHER).launch(Read(&data), move |k, data| {
                k.with(data, |_data| {
                    held.store(true, SeqCst);
                    let end = Instant::now() + LIMIT;
                    while !told.load(SeqCst) && Instant::now() < end {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                })
            });
            let end = Instant::now() + LIMIT;
            while !holds.load(SeqCst) {
                assert!(Instant::now() < end, "the other card does not reach the pinned page");
                std::thread::sleep(Duration::from_millis(1));
            }
            victim.crash_and_restart();
            std::thread::sleep(Duration::from_millis(300));
            let status = victim.await_status(|_| true);
            let used = status.functions.iter().any(|function| function.user.is_some());
            go.store(true, SeqCst);
            assert!(!used, "it came back under a kernel that reached its memory");
            drop(holder);
            await_card(&space, VICTIM, true);
        });
    });
}
