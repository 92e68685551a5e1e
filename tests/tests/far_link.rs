//! Cards at the other end of a link: their rings are shadowed beside them, their pages travel in front of
//! the commands that use them.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use farside::{CardId, CardPlace, MemoryId, Read, Space, SpaceBuilder, Write};
use farside_softcard::serve::CardServer;
use farside_types::Span;
use harness::Prng;
use harness::live::served::{
    CardProcess, Census, Exercise, FarHost, LinkLie, LyingLink, Program, TcpRelay, TempDir,
    await_status, config, expect_loss, place, serve, serve_if_asked, switches_of, test_kernels,
};
use harness::live::{role, within};

const LIMIT: Duration = Duration::from_secs(120);
/// Words of a page.
const PAGE: usize = 512;

fn builder(places: impl IntoIterator<Item = CardPlace>) -> SpaceBuilder {
    Space::builder()
        .cards_at(places)
        .address_space(64 << 20)
        .grace(Duration::from_millis(50))
        .kernels(test_kernels())
}

/// A card at the other end of a link, and one of this machine.
struct Pair {
    folder: TempDir,
    far: CardServer,
    near: CardServer,
    host: FarHost,
}

impl Pair {
    fn start() -> Pair {
        let folder = TempDir::new();
        let [far, near] = [0, 1].map(|card| serve(config(&folder, card)));
        let host = FarHost::start(folder.join("host"), &far.config().folder);
        Pair { folder, far, near, host }
    }

    fn builder(&self) -> SpaceBuilder {
        builder([self.host.place(), place(&self.near)])
    }
}

const FAR: CardId = CardId(0);
const NEAR: CardId = CardId(1);

#[test]
fn a_kernel_on_a_card_at_the_other_end_of_a_link_works_on_the_programs_memory() {
    within(LIMIT, "one kernel", || {
        let pair = Pair::start();
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
        let pair = Pair::start();
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
        let pair = Pair::start();
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
        let space = builder([host.place()]).build().unwrap();
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

#[test]
fn a_link_that_is_cut_in_the_middle_of_anything_loses_that_cards_pages_only() {
    within(LIMIT, "cut", || {
        let pair = Pair::start();
        let relay = TcpRelay::start(pair.host.folder());
        let space = builder([relay.place_by_link(), place(&pair.near)]).build().unwrap();
        let mut rng = Prng::new(7);
        let mut lost = 0;
        for round in 0..12 {
            let mut exercise = Exercise::new(&space, 80);
            let most = 1 << rng.between(4, 21);
            relay.cut_after(rng.between(1, most));
            let end = Instant::now() + Duration::from_secs(30);
            let error = loop {
                match exercise.run(FAR, NEAR) {
                    Err(error) => break error,
                    Ok(()) => assert!(Instant::now() < end, "round {round}: nobody noticed"),
                }
            };
            expect_loss(&error);
            assert!(relay.was_cut());
            relay.mend();
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

#[test]
fn a_card_that_dies_or_stands_still_beside_its_end_harms_nothing_else() {
    const NAME: &str = "a_card_that_dies_or_stands_still_beside_its_end_harms_nothing_else";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let mut victim = CardProcess::start(NAME, &config(&folder, 0));
        let other = CardProcess::start(NAME, &config(&folder, 1));
        let host = FarHost::start(folder.join("host"), victim.folder());
        let space = builder([host.place(), other.place()]).build().unwrap();
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
        let space = builder([by_link(&role)]).build().unwrap();
        let mut exercise = Exercise::new(&space, 80);
        exercise.run(FAR, FAR).unwrap();
        println!("it works");
        loop {
            exercise.run(FAR, FAR).unwrap();
        }
    }
    within(LIMIT, NAME, || {
        let pair = Pair::start();
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
        let space = builder([by_link(&role)]).build().unwrap();
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
            let space = builder([host.place()]).build().unwrap();
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
fn invariant_44_an_end_beside_a_card_that_lies_gets_an_error_in_time() {
    const TIME: Duration = Duration::from_secs(15);
    within(2 * LIMIT, "lies", || {
        let pair = Pair::start();
        let lies = [
            LinkLie::End,
            LinkLie::Silence,
            LinkLie::Half,
            LinkLie::Long(3),
            LinkLie::Long(u32::MAX),
            LinkLie::Twice,
            LinkLie::Garbled(0),
            LinkLie::Garbled(1),
            LinkLie::Garbled(6),
            LinkLie::Garbled(40),
            LinkLie::Flood,
            LinkLie::Unasked,
            LinkLie::Entries,
        ];
        let cases = lies.into_iter().flat_map(|lie| [(lie, 5), (lie, 41)]);
        let mut told = 0;
        for (number, (lie, after)) in cases.enumerate() {
            let socket = pair.folder.join(&format!("liar{number}.sock"));
            let liar = LyingLink::start(socket, pair.host.folder(), lie, after);
            let begun = Instant::now();
            let opened = builder([liar.place(), place(&pair.near)])
                .tune(|config| {
                    config.limits.drain = Span::from_millis(200);
                    config.limits.copy = Span::from_millis(300);
                })
                .build();
            assert!(begun.elapsed() < TIME, "{lie:?}: {:?}", begun.elapsed());
            let Ok(space) = opened else {
                told += 1;
                continue;
            };
            for _ in 0..30 {
                let has_lied = liar.lies() > 0;
                let mut data = space.alloc::<u64>(100 * PAGE).unwrap();
                data.fill(1);
                let begun = Instant::now();
                let kernel = space.kernel("farside.increment").on(FAR);
                let _ = kernel.time_limit(Duration::from_millis(500)).call(Write(&mut data));
                assert!(begun.elapsed() < TIME, "{lie:?}, {after}: {:?}", begun.elapsed());
                let mut data = space.alloc::<u64>(4 * PAGE).unwrap();
                data.fill(1);
                space.kernel("farside.increment").on(NEAR).call(Write(&mut data)).unwrap();
                assert!(data.iter().all(|&word| word == 2), "{lie:?} after {after}");
                if has_lied {
                    told += 1;
                    break;
                }
            }
        }
        assert_eq!(told, 13 * 2, "not all lies were told");
    });
}

/// A message to the end beside a card: its kind, and what follows.
fn message(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&(1 + body.len() as u32).to_le_bytes()[..], &[kind], &body].concat()
}

#[test]
fn invariant_55_a_program_reaches_the_memory_of_its_card_over_a_link_and_nothing_beside_it() {
    within(LIMIT, "a program that lies", || {
        let pair = Pair::start();
        let frames = u64::from(pair.far.config().frames);
        let end = frames * 4096;
        let hello = message(1, &[&0u32.to_le_bytes(), &[0, 0], &1u64.to_le_bytes(), &[0; 8]]);
        let put = |at: u64, bytes: usize| message(4, &[&at.to_le_bytes(), &vec![9; bytes]]);
        let zero = |at: u64, n: u64| message(5, &[&at.to_le_bytes(), &n.to_le_bytes()]);
        let get = |at: u64, n: u32| {
            message(6, &[&7u32.to_le_bytes(), &at.to_le_bytes(), &n.to_le_bytes()])
        };
        let entries = message(3, &[&[0; 19]]);
        let rings = |bus: u64, bytes: u64| {
            message(1, &[&[0; 4], &[3, 0], &bus.to_le_bytes(), &bytes.to_le_bytes()])
        };
        let memory = "outside the card's memory";
        let order = "at the wrong time";
        let nonsense = "makes no sense";
        let cases = [
            (put(end, 8), memory),
            (put(end - 4, 8), memory),
            (put(u64::MAX, 1), memory),
            (put(0, 0), nonsense),
            (put(0, (256 << 10) + 8), nonsense),
            (zero(end - 8, 16), memory),
            (zero(8, u64::MAX), memory),
            (zero(0, 0), memory),
            (get(end, 4096), memory),
            (get(end - 1, 2), memory),
            (get(0, 0), memory),
            (get(0, 4096).repeat(200), order),
            (entries, order),
            (rings(1 << 32, 1 << 40), order),
            (rings(1 << 32, 0), order),
            (rings(1, 4096), order),
            (rings(u64::MAX - 4095, 4096), order),
            ([rings(1 << 32, 4096), rings(1 << 33, 4096)].concat(), order),
            (message(99, &[&[1; 20]]), nonsense),
            (message(2, &[&[0; 16]]), nonsense),
            (u32::MAX.to_le_bytes().to_vec(), nonsense),
            (vec![0; 64], nonsense),
        ];
        for (bytes, why) in cases {
            let ended = pair.host.ended().len();
            let mut program = UnixStream::connect(pair.host.folder().join("fn0.sock")).unwrap();
            program.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            program.write_all(&hello).unwrap();
            program.read_exact(&mut [0; 21]).unwrap();
            // It may end while this is written.
            let _ = program.write_all(&bytes);
            let mut rest = Vec::new();
            let _ = program.read_to_end(&mut rest);
            let until = Instant::now() + Duration::from_secs(20);
            while pair.host.ended().len() == ended {
                assert!(Instant::now() < until, "{why}: {} bytes were not refused", bytes.len());
                std::thread::sleep(Duration::from_millis(1));
            }
            let (report, error) = pair.host.ended()[ended].clone();
            let error = error.unwrap_or_default();
            assert!(error.contains(why), "{error}, not {why}");
            assert_eq!(report.refusals, 1, "it is counted");
            assert_eq!(report.bytes_in, 0, "something has landed");
        }
        // The next program has the card as if nothing had been.
        let space = pair.builder().build().unwrap();
        let mut exercise = Exercise::new(&space, 80);
        exercise.run(FAR, NEAR).unwrap();
        assert_eq!(exercise.check(), 0);
    });
}

/// Negative control: bytes within the card's memory do land, so the same way is open to what is refused.
#[test]
fn control_what_a_program_puts_within_its_cards_memory_lands() {
    within(LIMIT, "a put", || {
        let pair = Pair::start();
        let mut program = UnixStream::connect(pair.host.folder().join("fn0.sock")).unwrap();
        let put = message(4, &[&4096u64.to_le_bytes(), &[9; 4096]]);
        let get = message(6, &[&7u32.to_le_bytes(), &4096u64.to_le_bytes(), &64u32.to_le_bytes()]);
        program.write_all(&[put, get].concat()).unwrap();
        let mut answer = [0; 4 + 1 + 4 + 64];
        program.read_exact(&mut answer).unwrap();
        assert_eq!(answer[9..], [9; 64]);
    });
}

#[test]
fn a_card_that_is_given_back_takes_nothing_with_it() {
    within(LIMIT, "giving back", || {
        let pair = Pair::start();
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
        let next = builder([pair.host.place()]).build().unwrap();
        next.kernel("farside.nop").call(()).unwrap();
        assert_eq!(space.give_back(FAR, Duration::ZERO).unwrap().pages_lost, 0, "once more");
    });
}

#[test]
fn kernels_that_do_not_end_are_stopped_before_their_card_is_given_back() {
    within(LIMIT, "giving back", || {
        let pair = Pair::start();
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
        let pair = Pair::start();
        let wants = std::sync::Arc::<std::sync::atomic::AtomicBool>::default();
        let host = pair.host.folder().to_owned();
        let lender = Lender { host, wants: std::sync::Arc::clone(&wants) };
        let lent = CardPlace::Link(farside::Dialled::new("a lender", lender));
        let space = builder([lent, place(&pair.near)]).build().unwrap();
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
        let pair = Pair::start();
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
        let pair = Pair::start();
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

/// A program that speaks the messages itself, with rings of 8 entries.
struct RawProgram {
    stream: UnixStream,
    /// Completions that it has taken.
    taken: u32,
}

impl RawProgram {
    /// Bus address of its rings; entries; bytes of a ring.
    const RINGS: (u64, u64, u64) = (1 << 32, 8, 4096);

    fn start(pair: &Pair) -> RawProgram {
        let stream = UnixStream::connect(pair.host.folder().join("fn0.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut program = RawProgram { stream, taken: 0 };
        let (bus, entries, bytes) = RawProgram::RINGS;
        program.call(3, 0, bus, 8 * bytes);
        for ring in 0..4 {
            let first = 0x200 + 0x20 * ring;
            program.call(2, 8, first, bus + ring * bytes);
            program.call(2, 4, first + 8, entries);
            program.call(2, 4, first + 12, ring);
        }
        program.call(2, 4, 0x100, 1);
        program
    }

    fn call(&mut self, what: u8, wide: u8, a: u64, b: u64) {
        let call = [&[0; 4][..], &[what, wide], &a.to_le_bytes(), &b.to_le_bytes()].concat();
        self.stream.write_all(&message(1, &[&call])).unwrap();
        let answer = self.read();
        assert_eq!((answer[0], &answer[5..9]), (2, &[0; 4][..]), "{what} {a:#x}");
    }

    /// The next message from the end beside the card.
    fn read(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).unwrap();
        let mut body = vec![0; u32::from_le_bytes(length) as usize];
        self.stream.read_exact(&mut body).unwrap();
        body
    }

    /// Sends a command of two words.
    fn send(&mut self, tag: u64, head: u64) {
        let mut entry = [0; 64];
        entry[..8].copy_from_slice(&tag.to_le_bytes());
        entry[8..16].copy_from_slice(&head.to_le_bytes());
        let taken = [&[0; 4][..], &self.taken.to_le_bytes(), &[0; 8]].concat();
        let header = [&taken[..], &[0], &1u16.to_le_bytes(), &[0, 0, 0]].concat();
        self.stream.write_all(&message(3, &[&header, &entry])).unwrap();
    }

    /// The tag of the next completion.
    fn completed(&mut self) -> u64 {
        loop {
            let body = self.read();
            if body[0] == 3 && body[18..20] != [0, 0] {
                assert_eq!(body[20], 1, "an entry of another ring");
                self.taken += 1;
                return u64::from_le_bytes(body[23..31].try_into().unwrap());
            }
        }
    }
}

#[test]
fn a_completion_that_interrupts_nobody_comes_by_itself() {
    within(LIMIT, "a quiet completion", || {
        let pair = Pair::start();
        let mut program = RawProgram::start(&pair);
        const NOP: u64 = 1;
        const QUIET: u64 = 1 << 18;
        program.send(7, NOP);
        assert_eq!(program.completed(), 7);
        // Most are found at once, because the end is still awake.
        for tag in 8..120 {
            let begun = Instant::now();
            program.send(tag, NOP | QUIET);
            assert_eq!(program.completed(), tag);
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        }
    });
}

/// What a hostile program could send: sound messages with changed bytes, of every kind, and nonsense.
fn hostile(rng: &mut Prng) -> Vec<u8> {
    let word = |rng: &mut Prng| match rng.below(5) {
        0 => rng.bits(),
        1 => u64::MAX - rng.below(9000),
        2 => (1 << 32) + rng.below(9 * 4096),
        3 => rng.below(64 << 20),
        _ => rng.below(0x1100),
    };
    let bytes = |rng: &mut Prng, most: u64| {
        (0..rng.below(most)).map(|_| rng.bits() as u8).collect::<Vec<u8>>()
    };
    let body = match rng.below(7) {
        0 => {
            let (a, b) = (word(rng), word(rng));
            // Not the reset, after which little is left to be tried.
            let what = [rng.below(4) as u8, [0, 4, 8, rng.bits() as u8][rng.below(4) as usize]];
            [&[0; 4][..], &what, &a.to_le_bytes(), &b.to_le_bytes()].concat()
        }
        1 => {
            let mut body = [&[0; 17][..], &(rng.below(4) as u16).to_le_bytes()].concat();
            for _ in 0..rng.below(4) {
                let list = bytes(rng, 100);
                body.extend([rng.below(4) as u8 & rng.below(4) as u8]);
                body.extend((list.len() as u16).to_le_bytes());
                let opcodes = [0x01, 0x02, 0x10, 0x12, 0x20, 0x30, 0x31, 0x40, 0x41, 0x99];
                let opcode = opcodes[rng.below(10) as usize] | rng.below(8) << 16;
                for value in [rng.bits(), opcode] {
                    body.extend(value.to_le_bytes());
                }
                (0..6).for_each(|_| body.extend((word(rng) * rng.below(2)).to_le_bytes()));
                body.extend(list);
            }
            body
        }
        2 => [&word(rng).to_le_bytes()[..], &bytes(rng, 5000)].concat(),
        3 => [word(rng).to_le_bytes(), (word(rng) & 0xf_ffff).to_le_bytes()].concat(),
        4 => [&[1; 4][..], &word(rng).to_le_bytes(), &(word(rng) as u32).to_le_bytes()].concat(),
        _ => bytes(rng, 300),
    };
    let kinds = [1, 3, 4, 5, 6, 7, rng.bits() as u8];
    let mut sent = message(kinds[rng.below(7) as usize], &[&body]);
    if rng.chance(100) {
        let at = rng.below(sent.len() as u64) as usize;
        sent[at] ^= 1 << rng.below(8);
    }
    sent
}

#[test]
fn hostile_programs_at_random_end_their_own_links_and_nothing_else() {
    let seed = std::env::var("FARSIDE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    within(LIMIT, "hostile programs", || {
        let pair = Pair::start();
        let (mut rng, mut refused) = (Prng::new(seed), 0);
        for round in 0..60 {
            let ended = pair.host.ended().len();
            let mut program = RawProgram::start(&pair);
            // Answers are not read: they are few.
            for _ in 0..rng.below(40) {
                if program.stream.write_all(&hostile(&mut rng)).is_err() {
                    break;
                }
            }
            let _ = program.stream.shutdown(std::net::Shutdown::Write);
            let until = Instant::now() + Duration::from_secs(20);
            while pair.host.ended().len() == ended {
                assert!(Instant::now() < until, "round {round}, seed {seed}: it does not end");
                std::thread::sleep(Duration::from_millis(1));
            }
            refused += pair.host.ended()[ended].0.refusals;
            if round % 20 == 19 {
                let space = pair.builder().build().unwrap();
                let mut exercise = Exercise::new(&space, 80);
                exercise.run(FAR, NEAR).unwrap();
                assert_eq!(exercise.check(), 0, "round {round}, seed {seed}");
            }
        }
        assert!(refused > 30, "only {refused} of 60 were refused");
        assert_eq!(pair.host.connections(), pair.host.ended().len() as u64, "an end has vanished");
    });
}
