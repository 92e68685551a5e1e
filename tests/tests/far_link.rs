//! Cards at the other end of a link: their rings are shadowed beside them, their pages travel in front of
//! the commands that use them.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use farside::{CardId, CardPlace, MemoryId, Read, Space, Write};
use farside_link::{Config, Lease};
use farside_live::far::{Farewell, greeted, turn_away};
use harness::Prng;
use harness::live::served::{
    CardProcess, Census, Exercise, FarHost, FarPair, Program, TcpRelay, TempDir, await_status,
    builder_at, config, expect_loss, place, serve, serve_if_asked, switches_of,
};
use harness::live::{Race, role, seconds, within};

const LIMIT: Duration = Duration::from_secs(120);
/// Words of a page.
const PAGE: usize = 512;

const FAR: CardId = CardId(0);
const NEAR: CardId = CardId(1);

#[test]
fn a_kernel_on_a_card_at_the_other_end_of_a_link_works_on_the_programs_memory() {
    within(LIMIT, "one kernel", || {
        let pair = FarPair::new();
        let space = pair.builder().build().unwrap();
        let mut data = space.alloc::<u64>(100 * PAGE).unwrap();
        for (word, value) in data.iter_mut().zip(0..) {
            *word = value;
        }
        space.kernel("farside.increment").on(FAR).call(Write(&mut data)).unwrap();
        assert!(data.iter().zip(1..).all(|(&word, value)| word == value));
        space.migrate(&data, FAR).unwrap();
        let sum = space.kernel("farside.sum").on(FAR).call(Read(&data)).unwrap();
        assert_eq!(sum, data.iter().sum::<u64>());
        space.check().unwrap();
    });
}

#[test]
fn every_kind_of_step_goes_right_over_a_link() {
    within(LIMIT, "every kind of step", || {
        let pair = FarPair::new();
        let space = pair.builder().build().unwrap();
        for (a, b) in [(FAR, NEAR), (NEAR, FAR)] {
            let mut exercise = Exercise::new(&space, 80);
            exercise.run(a, b).unwrap_or_else(|error| panic!("{a}, {b}: {error}"));
            assert_eq!(exercise.check(), 0, "{a}, {b}");
        }
        space.check().unwrap();
    });
}

/// Waits until a card works.
#[track_caller]
fn await_card(space: &Space, card: CardId) {
    let end = Instant::now() + Duration::from_secs(20);
    while space.kernel("farside.nop").on(card).call(()).is_err() {
        assert!(Instant::now() < end, "{card} does not come back");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn pages_of_every_size_of_move_arrive_whole_both_ways_and_fresh_ones_are_zero() {
    within(LIMIT, "moves", || {
        let pair = FarPair::new();
        let space = pair.builder().build().unwrap();
        for pages in [1, 2, 63, 64, 65, 700, 3000] {
            let mut data = space.alloc::<u64>(pages * PAGE).unwrap();
            let sum = space.kernel("farside.sum").on(FAR).call(Read(&data)).unwrap();
            assert_eq!(sum, 0, "{pages} fresh pages");
            for (word, value) in data.iter_mut().zip(7u64..) {
                *word = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
            for to in [FAR.memory(), NEAR.memory(), FAR.memory(), MemoryId::HOST] {
                space.migrate(&data, to).unwrap();
                let located = space.locate(&data).unwrap();
                assert!(located.iter().all(|part| part.owner == Some(to)), "{located:?}");
            }
            let wanted = (7u64..).map(|value| value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            assert!(data.iter().zip(wanted).all(|(&word, wanted)| word == wanted), "{pages}");
        }
        // What was freed with something in it is given out again, as zeros.
        for _ in 0..20 {
            let mut data = space.alloc::<u64>(1000 * PAGE).unwrap();
            let sum = space.kernel("farside.sum").on(FAR).call(Read(&data)).unwrap();
            assert_eq!(sum, 0, "the memory of somebody else");
            space.kernel("farside.increment").on(FAR).call(Write(&mut data)).unwrap();
        }
        space.check().unwrap();
    });
}

#[test]
fn a_card_that_is_smaller_than_its_data_evicts_over_the_link() {
    within(LIMIT, "eviction", || {
        let folder = TempDir::new();
        let card = serve(farside_softcard::serve::CardConfig { frames: 96, ..config(&folder, 0) });
        let host = FarHost::start(folder.join("host"), &card.config().folder);
        let space = builder_at([host.place()]).build().unwrap();
        let mut data = space.alloc::<u64>(400 * PAGE).unwrap();
        data.fill(5);
        for part in data.chunks_mut(40 * PAGE) {
            space.kernel("farside.increment").call(Write(part)).unwrap();
        }
        assert!(data.iter().all(|&word| word == 6));
        assert!(space.report().stats.evictions > 0);
        space.check().unwrap();
    });
}

/// Negative control: an end that does not know the program again has lost its card, with the pages that
/// were there, and nothing else.
#[test]
fn control_a_link_that_is_cut_and_not_resumed_loses_that_cards_pages_only() {
    within(LIMIT, "forgotten", || {
        let pair = FarPair::new();
        let space = pair.builder().build().unwrap();
        pair.host.forget_programs();
        let mut rng = Prng::new(7);
        let mut lost = 0;
        for round in 0..12 {
            let mut exercise = Exercise::new(&space, 80);
            let most = 1 << rng.between(4, 21);
            pair.host.cut_after(rng.between(1, most));
            let end = Instant::now() + Duration::from_secs(30);
            let error = loop {
                match exercise.run(FAR, NEAR) {
                    Err(error) => break error,
                    Ok(()) => assert!(Instant::now() < end, "round {round}: nobody noticed"),
                }
            };
            expect_loss(&error);
            await_card(&space, FAR);
            lost += exercise.check();
            drop(exercise);
            let mut again = Exercise::new(&space, 80);
            again.run(FAR, NEAR).unwrap();
            assert_eq!(again.check(), 0, "after round {round}");
            space.check().unwrap();
        }
        assert!(lost > 0, "nothing was lost: the card was never the owner");
        assert!(pair.host.connections() > 12);
    });
}

/// A cable is pulled out and put in again, wherever the link is: each frame is done once, and the program
/// hears nothing of it.
#[test]
fn a_link_that_is_cut_in_the_middle_of_anything_goes_on_over_another_connection() {
    within(LIMIT, "cut", || {
        let pair = FarPair::new();
        let space = pair.builder().build().unwrap();
        let mut rng = Prng::new(11);
        for round in 0..40 {
            let mut exercise = Exercise::new(&space, 80);
            let cuts = pair.host.cuts();
            let most = 1 << rng.between(4, 21);
            pair.host.cut_after(rng.between(1, most));
            let end = Instant::now() + Duration::from_secs(30);
            while pair.host.cuts() == cuts {
                assert!(Instant::now() < end, "round {round}: it was not cut");
                exercise.run(FAR, NEAR).unwrap();
            }
            exercise.run(FAR, NEAR).unwrap();
            assert_eq!(exercise.check(), 0, "after round {round}");
        }
        space.check().unwrap();
        drop(space);
        await_status(&pair.far.config().folder, |s| s.functions.iter().all(|f| f.user.is_none()));
        let ended = pair.host.ended();
        let [(report, None)] = &ended[..] else { panic!("one program, in order: {ended:?}") };
        assert!(report.connections > 40, "{report:?}");
    });
}

/// Nothing is done twice: increments are counted while the cable is pulled out again and again.
#[test]
fn increments_that_race_over_a_link_that_is_cut_all_the_time_are_exact() {
    within(LIMIT, "race over cuts", || {
        let pair = FarPair::new();
        let over = std::sync::atomic::AtomicBool::new(false);
        let race = Race::new(
            Space::builder().cards_at([pair.host.place(), place(&pair.near)]),
            "on-touch",
            24,
        );
        let counts = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut rng = Prng::new(5);
                while !over.load(std::sync::atomic::Ordering::SeqCst) {
                    pair.host.cut_after(rng.below(200_000));
                    std::thread::sleep(Duration::from_millis(rng.between(5, 60)));
                }
            });
            let counts = race.run_until(seconds(), || pair.host.cuts() > 10);
            over.store(true, std::sync::atomic::Ordering::SeqCst);
            counts.unwrap()
        });
        assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
        race.space().check().unwrap();
        assert!(pair.host.cuts() > 10, "only {} cuts", pair.host.cuts());
    });
}

#[test]
fn nothing_is_lost_while_threads_and_cards_race_over_a_slow_link() {
    within(LIMIT, "race", || {
        let pair = FarPair::new();
        let relay = TcpRelay::start_slow(pair.host.folder(), Duration::from_millis(1));
        for scheme in ["on-touch", "access-counter", "duplication"] {
            let places = [relay.place_by_link(), pair.host.place(), place(&pair.near)];
            let race = Race::new(Space::builder().cards_at(places), scheme, 24);
            let counts = race.run(seconds()).unwrap();
            assert!(counts.iter().all(|&count| count > 0), "{scheme}: {counts:?}");
            race.space().check().unwrap();
        }
    });
}

#[test]
fn a_card_that_dies_or_stands_still_beside_its_end_harms_nothing_else() {
    const NAME: &str = "a_card_that_dies_or_stands_still_beside_its_end_harms_nothing_else";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let mut victim = CardProcess::start(NAME, &config(&folder, 0));
        let other = CardProcess::start(NAME, &config(&folder, 1));
        let host = FarHost::start(folder.join("host"), victim.folder());
        let space = builder_at([host.place(), other.place()]).build().unwrap();
        for round in 0..3 {
            let mut exercise = Exercise::new(&space, 80);
            exercise.run(FAR, NEAR).unwrap();
            let mut on_victim = space.alloc::<u64>(20 * PAGE).unwrap();
            on_victim.fill(7);
            space.migrate(&on_victim, FAR).unwrap();
            let begun = Instant::now();
            if round == 1 {
                victim.freeze();
                let limit = Duration::from_millis(500);
                let late = space.kernel("farside.nop").on(FAR).time_limit(limit).call(());
                late.unwrap_err();
                victim.thaw();
            } else {
                victim.crash_and_restart();
            }
            await_card(&space, FAR);
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
            assert_eq!(exercise.check(), 0, "pages that were at home");
            drop(exercise);
            let mut again = Exercise::new(&space, 80);
            again.run(FAR, NEAR).unwrap();
            assert_eq!(again.check(), 0);
            space.check().unwrap();
        }
    });
}

#[test]
fn a_program_that_is_killed_leaves_a_function_that_is_free_and_quiet_behind_its_link() {
    const NAME: &str =
        "a_program_that_is_killed_leaves_a_function_that_is_free_and_quiet_behind_its_link";
    if let Some(role) = role() {
        let space = builder_at([by_link(&role)]).build().unwrap();
        let mut exercise = Exercise::new(&space, 80);
        exercise.run(FAR, FAR).unwrap();
        println!("it works");
        loop {
            exercise.run(FAR, FAR).unwrap();
        }
    }
    within(LIMIT, NAME, || {
        let pair = FarPair::new();
        let socket = pair.host.folder().join("fn0.sock").display().to_string();
        let mut rng = Prng::new(3);
        for _ in 0..6 {
            let mut program = Program::start(NAME, &socket);
            program.await_line("it works");
            std::thread::sleep(Duration::from_micros(rng.below(50_000)));
            program.kill();
            await_status(&pair.far.config().folder, |status| {
                status.functions.iter().all(|f| f.user.is_none() && f.hung_threads == 0)
            });
        }
        let next = pair.builder().build().unwrap();
        let mut exercise = Exercise::new(&next, 80);
        exercise.run(NEAR, FAR).unwrap();
        assert_eq!(exercise.check(), 0);
    });
}

/// A card at the end of a link whose socket this is.
fn by_link(socket: &str) -> CardPlace {
    let socket = std::path::PathBuf::from(socket);
    CardPlace::Link(farside::Dialled::new("link", move || {
        let stream = UnixStream::connect(&socket)?;
        Ok(Box::new(farside_vfio_user::unix::Plain::new(stream)) as _)
    }))
}

#[test]
fn an_idle_program_with_a_card_behind_a_link_takes_no_time() {
    const NAME: &str = "an_idle_program_with_a_card_behind_a_link_takes_no_time";
    serve_if_asked(|config| config);
    if let Some(role) = role() {
        let space = builder_at([by_link(&role)]).build().unwrap();
        let mut data = space.alloc::<u64>(100 * PAGE).unwrap();
        space.kernel("farside.increment").on(FAR).call(Write(&mut data)).unwrap();
        assert!(data.iter().all(|&word| word == 1));
        println!("it is idle");
        loop {
            std::thread::park();
        }
    }
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let card = CardProcess::start(NAME, &config(&folder, 0));
        let host = FarHost::start(folder.join("host"), card.folder());
        let socket = host.folder().join("fn0.sock").display().to_string();
        let mut program = Program::start(NAME, &socket);
        program.await_line("it is idle");
        // What is left to do of the work.
        std::thread::sleep(Duration::from_millis(300));
        let switches = || switches_of(card.pid()) + switches_of(program.pid());
        let before = switches();
        std::thread::sleep(Duration::from_secs(1));
        let taken = switches() - before;
        assert!(taken <= 5, "idle processes were put on a processor {taken} times in a second");
    });
}

#[test]
fn links_that_come_and_go_leave_nothing_behind_in_the_program() {
    const NAME: &str = "links_that_come_and_go_leave_nothing_behind_in_the_program";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let card = CardProcess::start(NAME, &config(&folder, 0));
        let host = FarHost::start(folder.join("host"), card.folder());
        let pids = [std::process::id(), card.pid()];
        let round = || {
            let space = builder_at([host.place()]).build().unwrap();
            let mut exercise = Exercise::new(&space, 80);
            exercise.run(FAR, FAR).unwrap();
            assert_eq!(exercise.check(), 0);
            drop(exercise);
            drop(space);
            card.await_status(|status| status.functions.iter().all(|f| f.user.is_none()));
        };
        round();
        let before = pids.map(Census::at_rest);
        (0..6).for_each(|_| round());
        for (pid, before) in pids.into_iter().zip(before) {
            before.await_at_most(pid, "after many links");
        }
    });
}

#[test]
fn a_card_that_is_given_back_takes_nothing_with_it() {
    within(LIMIT, "giving back", || {
        let pair = FarPair::new();
        let space = pair.builder().build().unwrap();
        let mut data = space.alloc::<u64>(1000 * PAGE).unwrap();
        let pinned = space.alloc::<u64>(8 * PAGE).unwrap();
        data.fill(1);
        space.kernel("farside.increment").on(FAR).call(Write(&mut data)).unwrap();
        space.pin(&pinned, FAR).unwrap();
        assert_eq!(space.locate(&data).unwrap()[0].owner, Some(FAR.memory()));
        let begun = Instant::now();
        let given = space.give_back(FAR, Duration::from_secs(20)).unwrap();
        assert_eq!((given.jobs_stopped, given.pages_lost), (0, 0));
        assert!(given.pages_moved >= 1000, "{given:?}");
        assert!(begun.elapsed() < Duration::from_secs(10), "nothing had to be waited for");
        assert!(data.iter().all(|&word| word == 2));
        assert!(pinned.iter().all(|&word| word == 0));
        // The card is for others now, and not for this program.
        await_status(&pair.far.config().folder, |s| s.functions.iter().all(|f| f.user.is_none()));
        space.kernel("farside.increment").on(FAR).call(Write(&mut data)).unwrap_err();
        space.migrate(&data, FAR).unwrap_err();
        space.kernel("farside.increment").on(NEAR).call(Write(&mut data)).unwrap();
        assert!(data.iter().all(|&word| word == 3));
        space.check().unwrap();
        let next = builder_at([pair.host.place()]).build().unwrap();
        next.kernel("farside.nop").call(()).unwrap();
        assert_eq!(space.give_back(FAR, Duration::ZERO).unwrap().pages_lost, 0, "once more");
    });
}

#[test]
fn kernels_that_do_not_end_are_stopped_before_their_card_is_given_back() {
    within(LIMIT, "giving back", || {
        let pair = FarPair::new();
        let space = pair.builder().build().unwrap();
        let mut data = space.alloc::<u64>(40 * PAGE).unwrap();
        data.fill(1);
        space.kernel("farside.increment").on(FAR).call(Write(&mut data)).unwrap();
        let lock = space.alloc_atomic::<std::sync::atomic::AtomicU64>(PAGE, "lock").unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                // Nobody meets it.
                let args = (farside::Shared(&lock[..]), farside::Value(2u64));
                space.kernel("test.meet").on(FAR).call(args)
            });
            std::thread::sleep(Duration::from_millis(100));
            let begun = Instant::now();
            let given = space.give_back(FAR, Duration::from_secs(2)).unwrap();
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
            assert_eq!((given.jobs_stopped, given.pages_lost), (1, 0), "{given:?}");
            waiting.join().unwrap().unwrap_err();
        });
        assert!(data.iter().all(|&word| word == 2));
        space.check().unwrap();
    });
}

#[test]
fn a_program_is_told_that_there_is_no_card_at_the_other_end() {
    within(LIMIT, "no card", || {
        let folder = TempDir::new();
        let socket = folder.join("lender.sock");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || {
            for program in listener.incoming().flatten() {
                let stream = farside_vfio_user::unix::Plain::new(program);
                let config = || Config::new(Lease::none());
                let (_, line) =
                    greeted(Box::new(stream), config(), Duration::from_secs(5)).unwrap();
                turn_away(config(), line, Farewell::NoCard);
            }
        });
        let begun = Instant::now();
        let error = builder_at([by_link(&socket.display().to_string())]).build().unwrap_err();
        assert!(error.to_string().contains("gone from its lender's host"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    });
}

/// A host that wants its card back, once it says so.
struct Lender {
    host: std::path::PathBuf,
    wants: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl farside::Dial for Lender {
    fn dial(&self) -> std::io::Result<Box<dyn farside::CardStream>> {
        let stream = UnixStream::connect(self.host.join("fn0.sock"))?;
        Ok(Box::new(farside_vfio_user::unix::Plain::new(stream)))
    }

    fn wanted_back(&self) -> Option<Duration> {
        let wants = self.wants.load(std::sync::atomic::Ordering::SeqCst);
        wants.then_some(Duration::from_secs(10))
    }
}

#[test]
fn a_card_that_is_wanted_back_is_given_back_without_its_pages() {
    within(LIMIT, "a recall", || {
        let pair = FarPair::new();
        let wants = std::sync::Arc::<std::sync::atomic::AtomicBool>::default();
        let host = pair.host.folder().to_owned();
        let lender = Lender { host, wants: std::sync::Arc::clone(&wants) };
        let lent = CardPlace::Link(farside::Dialled::new("a lender", lender));
        let space = builder_at([lent, place(&pair.near)]).build().unwrap();
        let mut data = space.alloc::<u64>(200 * PAGE).unwrap();
        data.fill(1);
        space.kernel("farside.increment").on(FAR).call(Write(&mut data)).unwrap();
        // It stays as long as nobody wants it.
        std::thread::sleep(Duration::from_millis(1500));
        space.kernel("farside.increment").on(FAR).call(Write(&mut data)).unwrap();
        wants.store(true, std::sync::atomic::Ordering::SeqCst);
        await_status(&pair.far.config().folder, |s| s.functions.iter().all(|f| f.user.is_none()));
        assert!(data.iter().all(|&word| word == 3), "pages went with the card");
        space.kernel("farside.increment").on(FAR).call(Write(&mut data)).unwrap_err();
        space.kernel("farside.increment").on(NEAR).call(Write(&mut data)).unwrap();
        assert!(data.iter().all(|&word| word == 4));
        space.check().unwrap();
    });
}

/// Negative control: a card that goes without giving anything back takes its pages with it.
#[test]
fn control_a_card_that_is_pulled_out_takes_its_pages_with_it() {
    within(LIMIT, "pulling out", || {
        let pair = FarPair::new();
        let space = pair.builder().build().unwrap();
        let mut data = space.alloc::<u64>(40 * PAGE).unwrap();
        data.fill(1);
        space.kernel("farside.increment").on(FAR).call(Write(&mut data)).unwrap();
        space.fail_card(FAR).unwrap();
        space.migrate(&data, MemoryId::HOST).unwrap_err();
    });
}

#[test]
fn memory_at_the_other_end_of_a_link_is_read_and_written_byte_by_byte() {
    within(LIMIT, "far memory", || {
        let pair = FarPair::new();
        let place = pair.host.place();
        let connect = farside_live::ring_card::connect;
        let (card, identity) = connect(FAR, &place, Duration::from_secs(2)).unwrap();
        let mut rng = Prng::new(9);
        let bytes: Vec<u8> = (0..700_001).map(|_| rng.bits() as u8).collect();
        for offset in [0, 4096, 12345] {
            card.write_memory(offset, &bytes).unwrap();
            let mut read = vec![0; bytes.len() - 7];
            card.read_memory(offset + 7, &mut read).unwrap();
            assert!(read == bytes[7..], "from {offset} on");
        }
        assert!(card.memory(4096).is_err(), "there is nothing to be mapped");
        let end = u64::from(identity.frames) * 4096;
        card.read_memory(end - 4, &mut [0; 8]).unwrap_err();
        card.read_memory(0, &mut [0; 8]).unwrap_err();
    });
}
