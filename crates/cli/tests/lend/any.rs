//! Any card will do: a free one is found wherever it is, and who waits waits at every lender.

use super::*;

/// A and C lend a card each; B has none.
struct Lenders {
    a: Host,
    b: Host,
    c: Host,
    _cards: [Card; 2],
    _folders: [Folder; 2],
}

impl Lenders {
    fn start() -> Lenders {
        let folders = [Folder::new(), Folder::new()];
        let cards = folders.each_ref().map(Card::serve);
        let [a, b, c] = ["a", "b", "c"].map(|name| Host::new(&folders[0], name));
        let (address, _) = a.up(&cards[0].folder, "10");
        b.join(&a, &address, "b");
        c.join(&a, &address, "c");
        c.run(&["lend", "up", "--listen", "127.0.0.1:0", "--device", &cards[1].folder]);
        c.await_state("free", LIMIT);
        a.await_state("free", LIMIT);
        await_that(LIMIT, "b knows both cards", || {
            b.run(&["available"]).matches("card0@").count() == 2
        });
        Lenders { a, b, c, _cards: cards, _folders: folders }
    }

    fn waiting(&self) -> [u64; 2] {
        [&self.a, &self.c].map(|host| host.device()["waiting"].as_u64().unwrap())
    }
}

#[test]
fn where_one_lenders_cards_are_held_the_others_is_found() {
    let lenders = Lenders::start();
    for (held, other) in [("card0@a", &lenders.c), ("card0@c", &lenders.a)] {
        let holding = lenders.b.hold(&[held]);
        let any = lenders.b.hold(&["any"]);
        assert_eq!(other.device()["state"], "lent", "{}", any.place);
        // Now there is none.
        let why = lenders.b.refused(&["borrow", "any", "--", "true"]);
        assert!(why.contains("card0"), "{why}");
        drop((holding, any));
        for host in [&lenders.a, &lenders.c] {
            host.await_state("free", LIMIT);
        }
    }
}

#[test]
fn who_waits_for_any_card_gets_the_first_that_is_free_and_gives_up_the_other_places() {
    let lenders = Lenders::start();
    for first in [0, 1] {
        let mut held = ["card0@a", "card0@c"].map(|card| Some(lenders.b.hold(&[card])));
        let mut waits = lenders.b.command(&["borrow", "any", "--wait", "30", "--", "true"]);
        let mut waits = waits.stderr(Stdio::null()).spawn().unwrap();
        await_that(LIMIT, "it waits at both", || {
            assert!(waits.try_wait().unwrap().is_none(), "it does not wait");
            lenders.waiting() == [1, 1]
        });
        // Whichever it is.
        held[first] = None;
        await_that(LIMIT, "it does not wait for the one that is held", || {
            waits.try_wait().unwrap().is_some()
        });
        assert!(waits.wait().unwrap().success());
        // Long before the wait that they were asked for is over.
        let limit = Duration::from_secs(15);
        await_that(limit, "places are given up", || lenders.waiting() == [0, 0]);
        let other = [&lenders.c, &lenders.a][first];
        assert_eq!(other.device()["state"], "lent", "who had it has it");
        drop(held);
        for host in [&lenders.a, &lenders.c] {
            host.await_state("free", LIMIT);
        }
    }
}
