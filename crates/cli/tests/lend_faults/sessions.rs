//! Programs on one lease, over a cable that loses, doubles, delays and reorders packets: the host and the card
//! race for pages, and programs come that are too many, and after one that has gone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farside::{Buffer, CardId, Space, Write};

use crate::common::Held;
use crate::network::Network;
use crate::relay::Relay;
use crate::weather::{BAD, until_all_of_it};
use crate::world::World;

/// How long it may take until something is so.
const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;
const PAGES: usize = 3;
/// Programs that a card serves at a time: its functions.
const PROGRAMS: usize = 8;

/// B's lease of the card, which ends with this.
fn held_by_b(world: &World) -> Held {
    world.b.borrow("card0").unwrap_or_else(|why| panic!("{why}\n{}", world.logs()))
}

/// A program, in this process: what it uses is B's folder, and not B's network.
fn program(held: &Held) -> Result<Program, farside::Error> {
    let place = held.place.parse().expect("a place");
    let space = Space::builder().cards_at([place]).address_space(16 << 20).build()?;
    let words = space.alloc::<u64>(PAGES * PAGE)?;
    Ok(Program { space, words, by_card: 0 })
}

/// The card increments the first half of each page, the host the second.
struct Program {
    space: Space,
    words: Buffer<u64>,
    by_card: u64,
}

impl Program {
    /// Increments by both at once, so often by the card; every word is what it has to be.
    fn race(&mut self, turns: u64) {
        let (before, over) = (self.words[PAGE / 2], AtomicBool::new(false));
        let space = &self.space;
        let (mut cards, mut hosts) = (Vec::new(), Vec::new());
        for page in self.words.chunks_mut(PAGE) {
            let (card, host) = page.split_at_mut(PAGE / 2);
            cards.push(card);
            hosts.push(host);
        }
        let by_host = std::thread::scope(|scope| {
            let host = scope.spawn(|| {
                let mut count = 0;
                while !over.load(Ordering::SeqCst) {
                    hosts.iter_mut().flat_map(|half| half.iter_mut()).for_each(|word| *word += 1);
                    count += 1;
                }
                count
            });
            for _ in 0..turns {
                for half in &mut cards {
                    let kernel = space.kernel("farside.increment").on(CardId(0));
                    kernel.call(Write(half)).expect("the card increments");
                }
            }
            over.store(true, Ordering::SeqCst);
            host.join().expect("the host increments")
        });
        assert!(by_host > 0, "the host had no turn");
        self.by_card += turns;
        for page in self.words.chunks(PAGE) {
            let (card, host) = page.split_at(PAGE / 2);
            assert!(card.iter().all(|&word| word == self.by_card), "increments of the card");
            assert!(host.iter().all(|&word| word == before + by_host), "increments of the host");
        }
        self.space.check().expect("it agrees with itself");
    }
}

fn world() -> (World, Relay) {
    let made = Network::with_relay(3);
    let (network, relay) =
        made.unwrap_or_else(|why| panic!("there are no network namespaces here: {why}"));
    (World::on(network, Duration::from_secs(10)), relay)
}

#[test]
#[ignore = "scripts/lend/faults.sh runs it where there are network namespaces"]
fn increments_that_race_over_a_cable_that_loses_doubles_and_reorders_are_exact() {
    let (world, relay) = world();
    relay.set(BAD);
    let held = held_by_b(&world);
    let mut program = program(&held).unwrap_or_else(|why| panic!("{why}\n{}", world.logs()));
    program.race(20);
    until_all_of_it(&relay, || program.race(5));
}

#[test]
#[ignore = "scripts/lend/faults.sh runs it where there are network namespaces"]
fn programs_that_are_too_many_are_turned_away_and_one_that_comes_later_is_served() {
    let (world, relay) = world();
    relay.set(BAD);
    let held = held_by_b(&world);
    let mut programs: Vec<Program> = (0..PROGRAMS)
        .map(|_| program(&held).unwrap_or_else(|why| panic!("{why}\n{}", world.logs())))
        .collect();
    programs[0].race(1);
    for _ in 0..2 {
        let started = Instant::now();
        let why = program(&held).err().expect("they are too many").to_string();
        assert!(why.contains("as many programs") || why.contains("in use"), "{why}");
        assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    }
    // Who is there does not notice.
    programs.iter_mut().for_each(|program| program.race(2));
    drop(programs.pop());
    let end = Instant::now() + LIMIT;
    let mut next = loop {
        match program(&held) {
            Ok(next) => break next,
            Err(why) => assert!(Instant::now() < end, "the function is not free again: {why}"),
        }
    };
    next.race(3);
    programs.iter_mut().for_each(|program| program.race(2));
    let device = world.a.device("card0").expect("it is lent");
    assert_eq!(device["state"], "lent", "{device}\n{}", world.logs());
}
