//! Who may come, when a connection or a link is over.

use std::time::Duration;

use super::pair::{BORROWER, LENDER, Pair, Seen, lease, register};
use crate::endpoint::{Config, Endpoint, Event, Lease, NotSent};
use crate::error::{End, Lost, Violation};

fn ended(pair: &Pair, at: usize) -> Option<End> {
    pair.seen[at].iter().rev().find_map(|seen| match seen {
        Seen::Ended(end) => Some(*end),
        _ => None,
    })
}

fn refused(borrower: Lease, wanted: Violation) {
    let mut pair = Pair::with(Config::new(borrower), Config::new(lease()));
    pair.connect();
    pair.settle();
    assert_eq!(ended(&pair, BORROWER), Some(End::Refused(wanted.code())));
    assert_eq!(pair.seen[LENDER], [Seen::Lost(Lost::Stranger(wanted))]);
    assert_eq!(pair.ends[LENDER].counters().violations, 1);
    // The one that has the lease comes all the same.
    pair.ends[BORROWER] = Endpoint::borrower(Config::new(lease()), 1);
    pair.connect();
    pair.settle();
    assert!(pair.ends.iter().all(Endpoint::is_up));
}

#[test]
fn another_epoch_or_device_is_refused_and_the_right_one_may_still_come() {
    let epoch = Lease { epoch: 6, ..lease() };
    refused(epoch, Violation::Epoch { theirs: 6, ours: 7 });
    refused(Lease { device: "card1".to_owned(), ..lease() }, Violation::Device);
    refused(Lease { device: String::new(), ..lease() }, Violation::Device);
}

#[test]
fn another_program_cannot_go_on_with_a_link() {
    let mut pair = Pair::up();
    pair.send(BORROWER, register(1)).unwrap();
    pair.settle();
    pair.cut();
    let first =
        std::mem::replace(&mut pair.ends[BORROWER], Endpoint::borrower(Config::new(lease()), 43));
    pair.connect();
    pair.settle();
    assert_eq!(ended(&pair, BORROWER), Some(End::Refused(Violation::Session.code())));
    pair.ends[BORROWER] = first;
    pair.connect();
    pair.settle();
    assert!(pair.ends.iter().all(Endpoint::is_up));
    assert_eq!(pair.frames(LENDER), [register(1)]);
}

/// The system says that the connection failed, and all that it was given has arrived.
#[test]
fn a_frame_that_came_while_its_sender_was_told_of_a_failure_came_once() {
    let mut pair = Pair::up();
    pair.send(BORROWER, register(1)).unwrap();
    let now = Duration::from_secs(1);
    let given = pair.ends[BORROWER]
        .transmit(now)
        .slices()
        .iter()
        .flat_map(|slice| slice.to_vec())
        .collect::<Vec<_>>();
    let lender = &mut pair.ends[LENDER];
    lender.space()[..given.len()].copy_from_slice(&given);
    lender.filled(now, given.len());
    pair.take(LENDER);
    pair.cut();
    pair.connect();
    pair.settle();
    assert!(pair.ends.iter().all(Endpoint::is_up), "{:?}", pair.seen);
    assert_eq!(pair.frames(LENDER), [register(1)]);
}

#[test]
fn an_idle_link_lives_and_a_silent_one_is_lost() {
    let mut pair = Pair::up();
    pair.pass(Duration::from_secs(60));
    assert!(pair.ends.iter().all(Endpoint::is_up));
    assert_eq!(pair.ends[LENDER].counters().silences, 0);
    pair.deaf = [true; 2];
    pair.pass(Duration::from_secs(4));
    for at in [BORROWER, LENDER] {
        assert_eq!(pair.seen[at].last(), Some(&Seen::Lost(Lost::Silent)));
        assert_eq!(pair.ends[at].counters().silences, 1);
    }
    pair.deaf = [false; 2];
    pair.connect();
    pair.settle();
    assert!(pair.ends.iter().all(Endpoint::is_up));
    assert_eq!(pair.seen[LENDER].last(), Some(&Seen::Up { is_again: true }));
}

/// Somebody accepts every connection, and never says a word.
#[test]
fn connections_that_come_to_nothing_do_not_keep_a_link() {
    let mut pair = Pair::up();
    pair.cut();
    pair.deaf = [true; 2];
    for turn in 0..3 {
        for at in [BORROWER, LENDER] {
            assert_eq!(ended(&pair, at), None, "after {} s", 4 * turn);
        }
        pair.connect();
        pair.pass(Duration::from_secs(4));
    }
    for at in [BORROWER, LENDER] {
        assert_eq!(ended(&pair, at), Some(End::NoConnection));
    }
    // One that both ends meet over begins anew to be counted.
    let mut pair = Pair::up();
    for _ in 0..5 {
        pair.cut();
        pair.pass(Duration::from_secs(8));
        pair.connect();
        pair.settle();
        assert!(pair.ends.iter().all(Endpoint::is_up));
    }
}

#[test]
fn an_end_whose_connection_takes_nothing_does_not_wake_again_and_again() {
    let mut pair = Pair::up();
    let end = &mut pair.ends[BORROWER];
    let now = end.poll_timeout().unwrap();
    end.handle_timeout(now);
    assert!(!end.transmit(now).is_empty(), "a heartbeat is due");
    let next = end.poll_timeout().unwrap();
    assert!(next > now);
    end.handle_timeout(next);
    assert_eq!(end.poll_event(next), Some(Event::Lost(Lost::Silent)));
}

#[test]
fn a_stranger_that_says_nothing_is_sent_away() {
    let mut pair = Pair::new();
    pair.deaf = [true; 2];
    pair.connect();
    pair.pass(Duration::from_secs(6));
    assert_eq!(pair.seen[LENDER], [Seen::Lost(Lost::NoGreeting)]);
}

#[test]
fn a_link_without_connection_ends() {
    let mut pair = Pair::up();
    pair.cut();
    pair.pass(Duration::from_secs(9));
    assert_eq!(ended(&pair, LENDER), None);
    pair.pass(Duration::from_secs(2));
    assert_eq!(ended(&pair, LENDER), Some(End::NoConnection));
    assert_eq!(ended(&pair, BORROWER), Some(End::NoConnection));
    assert!(matches!(pair.send(BORROWER, register(1)), Err(NotSent::Over(_))));
    pair.connect();
    pair.settle();
    assert!(pair.ends.iter().all(Endpoint::is_over));
}

#[test]
fn whoever_closes_says_so_and_what_is_then_sent_comes_back() {
    let mut pair = Pair::up();
    pair.ends[LENDER].close(77);
    pair.settle();
    assert_eq!(ended(&pair, LENDER), Some(End::Closed));
    assert_eq!(ended(&pair, BORROWER), Some(End::PeerClosed(77)));
    assert!(matches!(pair.send(BORROWER, register(1)), Err(NotSent::Over(_))));
}
