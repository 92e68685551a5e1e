//! A storm: cards and programs are killed, and cards stand still, at random, while programs check
//! all their results. Afterwards everything works, and nothing is left behind.
//!
//! One card has translation tables, one is of before there were any, and one has no room for a page in them.
//!
//! Ten seconds, or ten times `FARSIDE_SECONDS`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{CardId, CardPlace, Error, LiveError, Space};
use farside_softcard::serve::CardConfig;
use harness::Prng;
use harness::live::served::{
    CardProcess, Census, Exercise, Program, TempDir, config, expect_loss, serve_if_asked,
    test_kernels, with_table_pages,
};
use harness::live::{role, seconds, within};

const LIMIT: Duration = Duration::from_secs(120);
const NAME: &str = "cards_and_programs_killed_at_random_harm_nobody_else";
const CARDS: [CardId; 2] = [CardId(0), CardId(1)];
/// Pages that a program works on.
const PAGES: usize = 80;

/// A space over two cards, as soon as both are there.
fn open(places: &[CardPlace; 2]) -> Space {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let builder = Space::builder()
            .cards_at(places.clone())
            .address_space(64 << 20)
            .grace(Duration::from_millis(50))
            .kernels(test_kernels());
        match builder.build() {
            Ok(space) => return space,
            // A card is away, or was killed while it was being opened.
            Err(Error::Live(
                error @ (LiveError::Card { .. }
                | LiveError::CardAbsent { .. }
                | LiveError::CardsBusy { .. }),
            )) => assert!(Instant::now() < end, "{error}"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Works and checks until told to stop. Gives how often it worked, and how often it did not.
fn work(space: &Space, stop: &AtomicBool) -> (u64, u64) {
    let (mut good, mut bad) = (0, 0);
    while !stop.load(SeqCst) {
        let mut exercise = Exercise::new(space, PAGES);
        match exercise.run(CARDS[0], CARDS[1]) {
            Ok(()) => {
                good += 1;
                exercise.check();
            }
            Err(error) => {
                bad += 1;
                expect_loss(&error);
                // Not everything has been noticed yet, so pages may still be lost: only a kernel
                // or the host's fault would tell, and the host's would end this program.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    (good, bad)
}

/// In a child, whose role names the cards' folders: works until it is killed.
fn be_a_program_if_asked() {
    let Some(role) = role() else { return };
    let (first, second) = role.split_once(' ').expect("two folders");
    let places = [first, second].map(|folder| CardPlace::Socket(folder.into()));
    loop {
        let space = open(&places);
        println!("it works");
        work(&space, &AtomicBool::new(false));
    }
}

/// Kills a card, or lets it stand still, now and then, for a while. A card lives no longer than the
/// thread that has started it.
fn kill_cards(cards: &mut [CardProcess], time: Duration) -> u64 {
    let mut random = Prng::new(21);
    let mut killed = 0;
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20 + random.below(200)));
        let card = &mut cards[random.below(3) as usize];
        if random.below(4) == 0 {
            card.freeze();
            std::thread::sleep(Duration::from_millis(random.below(50)));
            card.thaw();
            continue;
        }
        card.crash();
        killed += 1;
        std::thread::sleep(Duration::from_millis(random.below(30)));
        card.restart();
    }
    killed
}

/// Starts a program and kills it, again and again.
fn kill_programs(role: &str, seed: u64, stop: &AtomicBool) -> u64 {
    let mut random = Prng::new(seed);
    let mut killed = 0;
    while !stop.load(SeqCst) {
        let mut program = Program::start(NAME, role);
        program.await_line("it works");
        std::thread::sleep(Duration::from_millis(random.below(150)));
        program.kill();
        killed += 1;
    }
    killed
}

#[test]
fn cards_and_programs_killed_at_random_harm_nobody_else() {
    serve_if_asked(|config| {
        let config = CardConfig { functions: 8, grace: Duration::from_millis(50), ..config };
        match config.folder.to_string_lossy().chars().last() {
            Some('1') => with_table_pages(config, 0),
            Some('2') => with_table_pages(config, 1),
            _ => config,
        }
    });
    be_a_program_if_asked();
    let time = 10 * seconds();
    within(LIMIT + time, NAME, || {
        let folder = TempDir::new();
        let configs = [0, 1, 2].map(|card| config(&folder, card));
        let mut cards = configs.each_ref().map(|config| CardProcess::start(NAME, config));
        let place = |card: usize| CardPlace::Socket(configs[card].folder.clone());
        let pairs = [[place(0), place(1)], [place(1), place(2)], [place(2), place(0)]];
        let role = |first: usize, second: usize| {
            [first, second].map(|card| configs[card].folder.display().to_string()).join(" ")
        };
        let before = Census::at_rest(std::process::id());
        {
            let spaces = pairs.each_ref().map(open);
            let (stop, done) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
            std::thread::scope(|s| {
                for space in &spaces {
                    let (stop, done) = (&stop, &done);
                    s.spawn(move || {
                        let (good, bad) = work(space, stop);
                        assert!(good > 0, "a program never worked, and failed {bad} times");
                        done[0].fetch_add(good, SeqCst);
                        done[1].fetch_add(bad, SeqCst);
                    });
                }
                let running = &stop;
                let program_killers = [(role(0, 1), 5), (role(2, 1), 6)]
                    .map(|(role, seed)| s.spawn(move || kill_programs(&role, seed, running)));
                assert!(kill_cards(&mut cards, time) > 0);
                stop.store(true, SeqCst);
                assert!(program_killers.into_iter().all(|killer| killer.join().unwrap() > 0));
            });
            let [good, bad] = done.map(AtomicU64::into_inner);
            assert!(bad > 0, "{good} times all went well: nothing was struck");
            // After the storm.
            for space in &spaces {
                let end = Instant::now() + Duration::from_secs(20);
                loop {
                    let mut exercise = Exercise::new(space, PAGES);
                    match exercise.run(CARDS[0], CARDS[1]) {
                        Ok(()) => break assert_eq!(exercise.check(), 0),
                        Err(error) => assert!(Instant::now() < end, "{error}"),
                    }
                }
                space.check().unwrap();
            }
        }
        for card in &cards {
            card.await_status(|status| status.functions.iter().all(|f| f.user.is_none()));
        }
        before.await_at_most(std::process::id(), "after the storm");
        // Nor in the cards: they have no more than one that is new.
        for card in &mut cards {
            let after = Census::at_rest(card.pid());
            card.crash_and_restart();
            let new = Census::at_rest(card.pid());
            assert!(after.is_within(new), "after the storm: {after:?}, a new one: {new:?}");
        }
    });
}
