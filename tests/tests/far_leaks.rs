//! Nothing is left behind, on either side, by spaces that come and go, by programs that are killed,
//! by cards that are killed; and nobody who is idle takes any time.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use farside::{CardId, CardPlace, Shared, Space, SpaceBuilder, Value, Write};
use farside_softcard::serve::{CardConfig, CardServer};
use harness::live::served::{
    CardProcess, Census, Exercise, Program, TempDir, await_status, config, serve_if_asked,
    switches_of, test_kernels,
};
use harness::live::{role, within};

const LIMIT: Duration = Duration::from_secs(90);
const CARDS: [CardId; 2] = [CardId(0), CardId(1)];
/// Rounds after which a leak of one thing per round is seen.
const ROUNDS: usize = 8;

fn builder(places: impl IntoIterator<Item = CardPlace>) -> SpaceBuilder {
    Space::builder()
        .cards_at(places)
        .address_space(16 << 20)
        .grace(Duration::from_millis(50))
        .kernels(test_kernels())
}

fn round(places: [CardPlace; 2]) {
    let space = builder(places).build().unwrap();
    let mut exercise = Exercise::new(&space, 80);
    exercise.run(CARDS[0], CARDS[1]).unwrap();
    assert_eq!(exercise.check(), 0);
}

/// Waits until nobody uses a card.
fn await_free(card: &CardProcess) {
    card.await_status(|status| status.functions.iter().all(|function| function.user.is_none()));
}

#[test]
fn spaces_that_come_and_go_leave_nothing_in_the_program_nor_in_the_cards() {
    const NAME: &str = "spaces_that_come_and_go_leave_nothing_in_the_program_nor_in_the_cards";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let cards = [0, 1].map(|card| CardProcess::start(NAME, &config(&folder, card)));
        let pids = [std::process::id(), cards[0].pid(), cards[1].pid()];
        let places = || [cards[0].place(), cards[1].place()];
        round(places());
        cards.iter().for_each(await_free);
        let before = pids.map(Census::at_rest);
        for _ in 0..ROUNDS {
            round(places());
        }
        cards.iter().for_each(await_free);
        for (pid, before) in pids.into_iter().zip(before) {
            before.await_at_most(pid, "after many spaces");
        }
    });
}

#[test]
fn programs_that_are_killed_leave_nothing_in_the_cards() {
    const NAME: &str = "programs_that_are_killed_leave_nothing_in_the_cards";
    serve_if_asked(|config| CardConfig { grace: Duration::from_millis(50), ..config });
    if let Some(role) = role() {
        let places = role.split(' ').map(|folder| CardPlace::Socket(folder.into()));
        let space = builder(places).build().unwrap();
        let mut exercise = Exercise::new(&space, 80);
        space.scope(|s| {
            s.kernel("farside.spin").on(CARDS[1]).launch_call(()).unwrap();
            loop {
                exercise.run(CARDS[0], CARDS[1]).unwrap();
                println!("it works");
            }
        });
    }
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let configs = [0, 1].map(|card| config(&folder, card));
        let role = configs.each_ref().map(|config| config.folder.display().to_string()).join(" ");
        let cards = configs.each_ref().map(|config| CardProcess::start(NAME, config));
        let kill_one = || {
            let mut program = Program::start(NAME, &role);
            program.await_line("it works");
            program.kill();
            cards.iter().for_each(await_free);
        };
        kill_one();
        let before = [cards[0].pid(), cards[1].pid()].map(Census::at_rest);
        for _ in 0..ROUNDS {
            kill_one();
        }
        for (card, before) in cards.iter().zip(before) {
            before.await_at_most(card.pid(), "after many programs that were killed");
        }
    });
}

#[test]
fn cards_that_are_killed_and_come_back_leave_nothing_in_the_program() {
    const NAME: &str = "cards_that_are_killed_and_come_back_leave_nothing_in_the_program";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let mut victim = CardProcess::start(NAME, &config(&folder, 0));
        let other = CardProcess::start(NAME, &config(&folder, 1));
        let space = builder([victim.place(), other.place()]).build().unwrap();
        let mut kill = || {
            Exercise::new(&space, 80).run(CARDS[0], CARDS[1]).unwrap();
            victim.crash();
            while space.kernel("farside.nop").call(()).is_ok() {}
            victim.restart();
            while space.kernel("farside.nop").call(()).is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Exercise::new(&space, 80).run(CARDS[0], CARDS[1]).unwrap();
        };
        kill();
        let pids = [std::process::id(), other.pid()];
        let before = pids.map(Census::at_rest);
        for _ in 0..ROUNDS {
            kill();
        }
        for (pid, before) in pids.into_iter().zip(before) {
            before.await_at_most(pid, "after a card was killed many times");
        }
        space.check().unwrap();
    });
}

#[test]
fn a_card_is_filled_to_its_last_frame_after_everything_that_was_freed() {
    within(LIMIT, "frames", || {
        let folder = TempDir::new();
        let frames = 512;
        let server = CardServer::start(CardConfig { frames, ..config(&folder, 0) }).unwrap();
        let place = CardPlace::Socket(server.config().folder.clone());
        for _ in 0..3 {
            let space = builder([place.clone()]).build().unwrap();
            for _ in 0..ROUNDS {
                // Exactly as much as there is: one frame that was lost would be missed.
                let words = space.alloc::<u64>(frames as usize * 512).unwrap();
                space.migrate(&words, CardId(0)).unwrap();
                let shared = space.alloc_atomic::<AtomicU64>(512, "one more").unwrap();
                space
                    .kernel("test.race")
                    .call((Shared(&shared[..]), Value(1u64), Value(1u64), Value(1u64)))
                    .unwrap();
                assert_eq!(shared[1].load(SeqCst), 1);
            }
            space.check().unwrap();
        }
        await_status(&server.config().folder, |status| {
            status.functions.iter().all(|function| function.user.is_none())
        });
    });
}

#[test]
fn an_idle_program_with_four_card_processes_takes_no_time() {
    const NAME: &str = "an_idle_program_with_four_card_processes_takes_no_time";
    serve_if_asked(|config| config);
    if let Some(role) = role() {
        let places = role.split(' ').map(|folder| CardPlace::Socket(folder.into()));
        let space = builder(places).build().unwrap();
        let mut data = space.alloc::<u64>(100 * 512).unwrap();
        for card in space.cards() {
            space.kernel("farside.increment").on(card).call(Write(&mut data)).unwrap();
        }
        assert!(data.iter().all(|&word| word == 4));
        println!("it is idle");
        loop {
            std::thread::park();
        }
    }
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let configs = [0, 1, 2, 3].map(|card| config(&folder, card));
        let role = configs.each_ref().map(|config| config.folder.display().to_string()).join(" ");
        let cards = configs.each_ref().map(|config| CardProcess::start(NAME, config));
        let mut program = Program::start(NAME, &role);
        program.await_line("it is idle");
        // What is left to do of the work.
        std::thread::sleep(Duration::from_millis(300));
        let pids: Vec<u32> = cards.iter().map(CardProcess::pid).chain([program.pid()]).collect();
        let switches = || pids.iter().map(|&pid| switches_of(pid)).sum::<u64>();
        let before = switches();
        std::thread::sleep(Duration::from_secs(1));
        let taken = switches() - before;
        // A thread that looks at something once in a while would do so many times in a second.
        assert!(taken <= 5, "idle processes were put on a processor {taken} times in a second");
    });
}
