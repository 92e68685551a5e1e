//! An end that says anything: refused by name, counted, and nothing of it is handed on.

use std::time::Duration;

use proptest::prelude::*;

use super::pair::lease;
use crate::control::{Amount, Control, Hello, VERSION};
use crate::endpoint::{Config, Endpoint, Event, NotSent};
use crate::error::{End, Violation};
use crate::frame::{Class, Frame, Tag, tests::any_frame};
use crate::wire::Header;

const NOW: Duration = Duration::from_secs(1);

/// A lender's end that has a borrower, whose bytes are the test's.
fn lender() -> Endpoint {
    let mut end = Endpoint::lender(Config::new(lease()));
    end.connected(NOW);
    let mut bytes = Vec::new();
    Control::Hello(Hello {
        versions: (VERSION, VERSION),
        session: 1,
        epoch: 7,
        received: 0,
        capabilities: 0,
        device: b"card0",
    })
    .put(0, &mut bytes);
    let amount = Amount { frames: 9, bytes: 1 << 20 };
    Control::Credit([amount; 3]).put(0, &mut bytes);
    assert_eq!(feed(&mut end, &bytes), None);
    assert!(end.is_up());
    end
}

/// Gives bytes to an end, and how it ended.
fn feed(end: &mut Endpoint, mut bytes: &[u8]) -> Option<End> {
    let mut ended = None;
    while !bytes.is_empty() {
        let space = end.space();
        let count = space.len().min(bytes.len());
        assert!(count > 0, "every event was taken");
        space[..count].copy_from_slice(&bytes[..count]);
        end.filled(NOW, count);
        bytes = &bytes[count..];
        loop {
            match end.poll_event(NOW) {
                None => break,
                Some(Event::Ended(how)) => ended = Some(how),
                Some(_) => {}
            }
        }
    }
    ended
}

fn bytes_of(frame: &Frame<Vec<u8>>, sequence: u64, tag: u64) -> Vec<u8> {
    let mut payload = Vec::new();
    frame.put_fields(&mut payload);
    payload.extend_from_slice(frame.data().map_or(&[], Vec::as_slice));
    let (kind, length) = (frame.kind().number(), payload.len() as u32);
    let header = Header { kind, length, sequence, acknowledged: 0, tag };
    [&header.encode()[..], &payload].concat()
}

fn violates(bytes: &[u8], wanted: Violation) {
    let mut end = lender();
    assert_eq!(feed(&mut end, bytes), Some(End::Violation(wanted)));
    assert_eq!(end.counters().violations, 1);
    assert!(end.is_over());
    assert!(matches!(end.send(Tag::NONE, Frame::Return), Err(NotSent::Over(_))));
    assert!(!end.transmit(NOW).is_empty(), "the other end is told");
}

#[test]
fn each_violation_has_its_name() {
    let frame = |sequence, tag| bytes_of(&Frame::Barrier, sequence, tag);
    violates(&frame(1, 0), Violation::Gap { expected: 0, got: 1 });
    violates(&[frame(0, 5), frame(1, 5)].concat(), Violation::TagInUse(5));
    violates(&bytes_of(&Frame::Done, 0, 8), Violation::Reply(8));
    let header = |kind, length| Header { kind, length, ..Header::default() }.encode();
    violates(&header(0x0777, 0), Violation::UnknownKind(0x0777));
    violates(&header(0x0206, 1), Violation::Length { kind: 0x0206, length: 1 });
    violates(&header(0x0101, u32::MAX), Violation::Length { kind: 0x0101, length: u32::MAX });
    violates(&header(0x0004, 47), Violation::Length { kind: 0x0004, length: 47 });
    let mut spare = header(0x0206, 0);
    spare[2] = 1;
    violates(&spare, Violation::Header);
    let acknowledged = Header { kind: 0x0206, acknowledged: 1, ..Header::default() };
    violates(&acknowledged.encode(), Violation::Acknowledged);
    let mut less = Vec::new();
    Control::Credit([Amount { frames: 8, bytes: 1 << 20 }; 3]).put(0, &mut less);
    violates(&less, Violation::CreditBack);
    let mut again = Vec::new();
    Control::Welcome { version: 1, received: 0, capabilities: 0 }.put(0, &mut again);
    violates(&again, Violation::Unexpected(0x0002));
    let mut wrong =
        bytes_of(&Frame::DmaMap { address: 0, bytes: 1, rights: Default::default() }, 0, 0);
    wrong[32 + 16] = 4;
    violates(&wrong, Violation::Malformed(crate::Kind::DmaMap));
}

#[test]
fn who_sends_more_than_the_credit_ends_the_link() {
    let mut end = lender();
    for sequence in 0..129 {
        let ended = feed(&mut end, &bytes_of(&Frame::Barrier, sequence, sequence));
        let wanted = (sequence == 128).then_some(End::Violation(Violation::Credit(Class::Request)));
        assert_eq!(ended, wanted, "{sequence}");
    }
}

#[test]
fn a_reply_that_is_not_what_was_asked_for_ends_the_link() {
    let replies = [
        Frame::Done,
        Frame::Data { offset: 1, last: true, data: vec![0; 8] },
        Frame::Data { offset: 0, last: true, data: vec![0; 7] },
        Frame::Data { offset: 0, last: false, data: vec![0; 9] },
    ];
    for reply in replies {
        let mut end = lender();
        end.send(Tag(4), Frame::DmaRead { address: 0, bytes: 8 }).unwrap();
        let written: usize = end.transmit(NOW).slices().iter().map(|slice| slice.len()).sum();
        end.transmitted(NOW, written);
        let ended = feed(&mut end, &bytes_of(&reply, 0, 4));
        assert_eq!(ended, Some(End::Violation(Violation::Reply(4))), "{reply:?}");
    }
}

#[test]
fn what_is_wrong_is_not_sent() {
    let mut end = lender();
    let long = Frame::DmaWrite { address: 0, data: vec![0; (64 << 10) + 1] };
    assert!(matches!(end.send(Tag::NONE, long), Err(NotSent::Wrong(_))));
    let tagged = end.send(Tag(1), Frame::Interrupt { index: 0, vector: 0 });
    assert!(matches!(tagged, Err(NotSent::Wrong(_))));
    assert!(matches!(end.send(Tag(1), Frame::Done), Err(NotSent::Wrong(_))));
    let much = Frame::DmaRead { address: 0, bytes: (1 << 20) + 1 };
    assert!(matches!(end.send(Tag(1), much), Err(NotSent::Wrong(_))));
    end.send(Tag(1), Frame::Barrier).unwrap();
    assert!(matches!(end.send(Tag(1), Frame::Barrier), Err(NotSent::Wrong(_))));
}

proptest! {
    #[test]
    fn any_bytes_end_a_link_or_wait_for_more(
        greeted in any::<bool>(), bytes in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let mut end = if greeted { lender() } else { Endpoint::lender(Config::new(lease())) };
        if !greeted {
            end.connected(NOW);
        }
        feed(&mut end, &bytes);
    }

    /// Frames that are nearly right: the numbers count, and some bytes are others.
    #[test]
    fn frames_with_bytes_changed_are_frames_or_refused(
        frames in proptest::collection::vec(any_frame(), 1..12),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = Vec::new();
        for (sequence, frame) in frames.iter().enumerate() {
            let tag = if frame.class() == Class::Posted { 0 } else { sequence as u64 };
            bytes.extend(bytes_of(frame, sequence as u64, tag));
        }
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let mut end = lender();
        feed(&mut end, &bytes);
        let counters = end.counters();
        prop_assert!(counters.received_frames <= frames.len() as u64);
        prop_assert_eq!(counters.violations, u64::from(end.is_over()));
    }

    #[test]
    fn posted_frames_arrive_as_they_were_sent(
        frames in proptest::collection::vec(any_frame(), 1..12),
    ) {
        let sent: Vec<_> = frames.into_iter().filter(|frame| frame.class() == Class::Posted).collect();
        let mut end = lender();
        for (sequence, frame) in sent.iter().enumerate() {
            let bytes = bytes_of(frame, sequence as u64, 0);
            end.space()[..bytes.len()].copy_from_slice(&bytes);
            end.filled(NOW, bytes.len());
            let Some(Event::Posted { frame: seen, load }) = end.poll_event(NOW) else {
                panic!("{frame:?} is not seen");
            };
            let mut payload = Vec::new();
            seen.put_fields(&mut payload);
            payload.extend_from_slice(seen.data().copied().unwrap_or_default());
            prop_assert_eq!((seen.kind(), &payload[..]), (frame.kind(), &bytes[32..]));
            end.done(load);
        }
    }
}
