//! Each frame once, in order, over connections that break at any byte; bounded memory; no deadlock.

use std::time::Duration;

use proptest::prelude::*;

use super::pair::{BORROWER, LENDER, Pair, bulk, lease, register};
use crate::endpoint::{BULK_AHEAD_BYTES, BULK_AHEAD_BYTES_MAX, Config, NotSent, Why};
use crate::frame::{Class, DATA_BYTES_MAX, Frame, Tag};
use crate::mutation::{Mutation, take_away};

/// A frame of an end, by its place in the order of what that end sends.
fn numbered(at: usize, number: u32, choice: u8) -> Frame<Vec<u8>> {
    match (at, choice % 4) {
        (BORROWER, 0) => bulk(u64::from(number), 20_000),
        (BORROWER, _) => register(number),
        (_, 0) => Frame::Interrupt { index: 2, vector: number },
        (_, 1) => Frame::DmaWrite { address: u64::from(number), data: vec![number as u8; 9000] },
        _ => Frame::DmaWrite { address: u64::from(number), data: vec![number as u8; 8] },
    }
}

/// Sends the frames of both ends over connections that break after so many bytes each, and gives what
/// was sent.
fn run(pair: &mut Pair, choices: &[(bool, u8)], cuts: &[usize]) -> [Vec<Frame<Vec<u8>>>; 2] {
    let mut sent = [Vec::new(), Vec::new()];
    let mut cuts = cuts.iter();
    for (number, &(is_lender, choice)) in choices.iter().enumerate() {
        let at = if is_lender { LENDER } else { BORROWER };
        if pair.cut_after.is_none() {
            pair.cut_after = cuts.next().copied();
        }
        if !pair.is_connected() {
            pair.connect();
        }
        let frame = numbered(at, number as u32, choice);
        let mut tries = 0;
        while let Err(not_sent) = pair.send(at, frame.clone()) {
            assert!(matches!(not_sent, NotSent::Later(..)), "{not_sent:?}");
            tries += 1;
            assert!(tries < 100, "{not_sent:?} for ever");
            pair.step();
            if !pair.is_connected() {
                pair.connect();
            }
        }
        sent[at].push(frame);
        if choice >= 128 {
            pair.step();
        }
    }
    pair.cut_after = None;
    if !pair.is_connected() {
        pair.connect();
    }
    pair.settle();
    sent
}

fn choices() -> impl Strategy<Value = Vec<(bool, u8)>> {
    proptest::collection::vec((any::<bool>(), any::<u8>()), 1..60)
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(prop_oneof![0..400usize, 0..60_000usize], 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn each_frame_comes_once_and_in_order_over_connections_that_break_at_any_byte(
        choices in choices(), cuts in cuts(), per_step in 1..9000usize,
    ) {
        let mut pair = Pair::up();
        pair.per_step = per_step;
        let sent = run(&mut pair, &choices, &cuts);
        prop_assert_eq!(pair.frames(LENDER), sent[BORROWER].clone());
        prop_assert_eq!(pair.frames(BORROWER), sent[LENDER].clone());
    }

    #[test]
    fn what_comes_again_after_a_reconnect_is_dropped_and_counted(
        choices in choices(), cuts in cuts(),
    ) {
        take_away(Mutation::ResendAll);
        let mut pair = Pair::up();
        let sent = run(&mut pair, &choices, &cuts);
        prop_assert_eq!(pair.frames(LENDER), sent[BORROWER].clone());
        prop_assert_eq!(pair.frames(BORROWER), sent[LENDER].clone());
    }
}

/// A register is written, the connection breaks before the writer hears of it, and comes again.
fn a_write_and_a_break() -> Pair {
    let mut pair = Pair::up();
    pair.send(BORROWER, register(1)).unwrap();
    pair.step();
    assert_eq!(pair.frames(LENDER).len(), 1, "it has come");
    assert_eq!(pair.ends[BORROWER].kept_bytes(), 4, "and its writer does not know");
    pair.cut();
    pair.connect();
    pair.settle();
    pair
}

#[test]
fn a_register_is_written_once_though_it_is_sent_twice() {
    take_away(Mutation::ResendAll);
    let pair = a_write_and_a_break();
    assert_eq!(pair.frames(LENDER), [register(1)]);
    assert_eq!(pair.ends[LENDER].counters().duplicates, 1);
}

/// Negative control: without the look at the sequence number it is written twice.
#[test]
fn control_duplicates_that_are_kept_write_a_register_twice() {
    take_away(Mutation::ResendAll);
    take_away(Mutation::KeepDuplicates);
    let pair = a_write_and_a_break();
    assert_eq!(pair.frames(LENDER), [register(1), register(1)]);
}

/// Both ends ask as much as they can before either answers; then each answers all that it was asked.
/// Gives how many requests got no answer, and how many were asked.
fn questions_both_ways() -> (usize, usize) {
    let mut pair = Pair::up();
    let mut asked = 0;
    for at in [BORROWER, LENDER] {
        while pair.ends[at].send(Tag(asked), Frame::Barrier).is_ok() {
            asked += 1;
        }
    }
    pair.settle();
    let mut open = [pair.requests(BORROWER), pair.requests(LENDER)];
    loop {
        let before = open.iter().map(Vec::len).sum::<usize>();
        for at in [BORROWER, LENDER] {
            open[at].retain(|&tag| pair.ends[at].send(tag, Frame::Done).is_err());
        }
        pair.settle();
        pair.pass(Duration::from_secs(1));
        if open.iter().map(Vec::len).sum::<usize>() == before {
            break;
        }
    }
    (pair.ends.iter().map(|end| end.asked()).sum(), asked as usize)
}

#[test]
fn ends_that_ask_as_much_as_they_can_answer_each_other() {
    let (unanswered, asked) = questions_both_ways();
    assert_eq!((unanswered, asked), (0, 256));
}

/// Negative control: with one credit for all classes nobody can answer any more.
#[test]
fn control_credits_that_classes_share_end_in_a_deadlock() {
    take_away(Mutation::SharedCredits);
    let (unanswered, asked) = questions_both_ways();
    assert!(unanswered > 0 && unanswered == asked, "{unanswered} of {asked}");
}

#[test]
fn a_class_without_credit_stops_no_other() {
    let mut pair = Pair::up();
    // The lender's user does nothing that was posted, and answers nothing.
    pair.does_posted = false;
    let mut posted = 0;
    while pair.send(BORROWER, register(posted)).is_ok() {
        posted += 1;
        pair.step();
    }
    let mut asked = 0;
    while pair.ends[BORROWER].send(Tag(asked), Frame::Barrier).is_ok() {
        asked += 1;
        pair.step();
    }
    pair.settle();
    assert_eq!((posted, asked), (1024, 128));
    // Both are out of credit, and the lender's own requests are answered all the same.
    pair.ends[LENDER].send(Tag(9), Frame::Barrier).unwrap();
    pair.settle();
    pair.ends[BORROWER].send(Tag(9), Frame::Done).unwrap();
    pair.settle();
    assert_eq!(pair.ends[LENDER].asked(), 0);
    // The answers give back the credit of requests, and only that.
    for tag in pair.requests(LENDER) {
        pair.ends[LENDER].send(tag, Frame::Done).unwrap();
    }
    pair.settle();
    assert_eq!(pair.ends[BORROWER].may_send(Class::Request, 0), Ok(()));
    assert_eq!(pair.ends[BORROWER].may_send(Class::Posted, 4), Err(Why::Credit));
    for load in std::mem::take(&mut pair.loads[LENDER]) {
        pair.ends[LENDER].done(load);
    }
    pair.settle();
    assert_eq!(pair.ends[BORROWER].may_send(Class::Posted, 4), Ok(()));
}

#[test]
fn memory_is_bounded_whoever_does_not_read() {
    for deaf in [[false, true], [true, true]] {
        let mut pair = Pair::up();
        pair.deaf = deaf;
        let mut offset = 0;
        for _ in 0..500 {
            while pair.send(BORROWER, bulk(offset, DATA_BYTES_MAX)).is_ok() {
                offset += DATA_BYTES_MAX as u64;
            }
            pair.step();
            assert!(pair.ends[BORROWER].bulk_ahead_bytes() <= BULK_AHEAD_BYTES);
            assert!(pair.ends[BORROWER].kept_bytes() <= 4 << 20);
        }
        assert_eq!(offset, 4 << 20, "what the other end grants, and no more");
        pair.deaf = [false; 2];
        pair.settle();
        assert_eq!(pair.frames(LENDER).len(), 64);
        assert_eq!(pair.ends[BORROWER].kept_bytes(), 0, "all is known to have come");
    }
}

/// The most bulk that leaves between a register's read and its leaving, while 64 MiB are on their way.
fn bulk_before_a_register(config: Config) -> usize {
    let mut pair = Pair::with(config.clone(), config);
    pair.connect();
    pair.settle();
    pair.per_step = 10_000;
    let (mut sent, mut most, mut tag) = (0u64, 0, 0u64);
    while sent < 64 << 20 {
        while pair.send(BORROWER, bulk(sent, DATA_BYTES_MAX)).is_ok() {
            sent += DATA_BYTES_MAX as u64;
        }
        let read = Frame::RegionRead { region: 0, offset: 0, bytes: 4 };
        if pair.ends[BORROWER].send(Tag(tag), read).is_ok() {
            most = most.max(pair.ends[BORROWER].bulk_ahead_bytes());
            tag += 1;
        }
        for _ in 0..40 {
            pair.step();
        }
        for asked in pair.requests(LENDER) {
            let reply = Frame::Data { offset: 0, last: true, data: vec![0; 4] };
            let _ = pair.ends[LENDER].send(asked, reply);
        }
        pair.seen = [Vec::new(), Vec::new()];
    }
    assert!(tag > 50, "{tag} reads");
    most
}

#[test]
fn a_register_never_waits_behind_more_than_a_mebibyte() {
    let config = Config::new(lease());
    for (config, bound) in
        [(config.clone(), BULK_AHEAD_BYTES), (config.straight(), BULK_AHEAD_BYTES_MAX)]
    {
        let most = bulk_before_a_register(config);
        assert!(most <= bound && most > bound / 2, "{most}");
    }
}

/// Negative control: with bulk taken as it comes, it waits behind more.
#[test]
fn control_bulk_that_is_taken_as_it_comes_keeps_a_register_waiting() {
    take_away(Mutation::UnboundedBulk);
    let most = bulk_before_a_register(Config::new(lease()).straight());
    assert!(most > BULK_AHEAD_BYTES_MAX, "{most}");
}
