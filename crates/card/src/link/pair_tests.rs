//! A sender and a receiver with a wire between them that does what each test tells it.

use std::collections::HashMap;

use super::*;
use crate::interface::{DmaAddr, LinkField, LinkVerdict};

const A: LinkAddress = LinkAddress::new(1, 0);
const B: LinkAddress = LinkAddress::new(2, 3);
const SOURCE: [PageRun; 1] = [PageRun { first: DmaAddr::Own(100), count: 3 }];
const TARGET: [PageRun; 2] =
    [PageRun { first: DmaAddr::Own(7), count: 1 }, PageRun { first: DmaAddr::Bus(40), count: 2 }];

/// The bytes of a source page: every word differs.
struct Source;

fn source_byte(page: u32, offset: u32) -> u8 {
    (page.wrapping_mul(0x9e37_79b1) ^ offset.wrapping_mul(0x85eb_ca6b)).to_be_bytes()[0]
}

impl PagesRead for Source {
    fn read(&mut self, page: DmaAddr, offset: u32, bytes: &mut [u8]) -> Result<(), ReadFailed> {
        let DmaAddr::Own(frame) = page else {
            return Err(ReadFailed);
        };
        for (byte, offset) in bytes.iter_mut().zip(offset..) {
            *byte = source_byte(frame, offset);
        }
        Ok(())
    }
}

/// Both ends.
struct Pair {
    sender: Sender,
    receiver: Receiver,
    memory: HashMap<(DmaAddr, u32), u8>,
}

impl Pair {
    fn new(payload_bytes: u32) -> Pair {
        let sender = SenderConfig { payload_bytes, ..SenderConfig::new(A) };
        let mut pair = Pair {
            sender: Sender::new(sender).unwrap(),
            receiver: Receiver::new(ReceiverConfig::new(B)).unwrap(),
            memory: HashMap::new(),
        };
        pair.receiver.announce(A, 9, &TARGET).unwrap();
        pair.sender.send(B, 9, &SOURCE).unwrap();
        pair
    }

    /// The sender's next frame.
    fn sent(&mut self) -> Option<Vec<u8>> {
        let mut frame = [0; LINK_FRAME_BYTES_MAX];
        let outgoing = self.sender.poll_frame(&mut Source, &mut frame)?;
        assert_eq!(outgoing.to, B);
        Some(frame[..outgoing.bytes].to_vec())
    }

    fn all_sent(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.sent()).collect()
    }

    /// The receiver's next frame.
    fn answered(&mut self) -> Option<Vec<u8>> {
        let mut frame = [0; LINK_FRAME_BYTES_MAX];
        let outgoing = self.receiver.poll_frame(&mut frame)?;
        assert_eq!(outgoing.to, A);
        Some(frame[..outgoing.bytes].to_vec())
    }

    fn receive(&mut self, frame: &[u8]) -> Result<(), LinkError> {
        if let Received::Bytes(delivered) = self.receiver.handle_frame(frame)? {
            for (&byte, offset) in delivered.bytes.iter().zip(delivered.offset..) {
                let before = self.memory.insert((delivered.page, offset), byte);
                assert_eq!(before, None, "written twice");
            }
            self.receiver.stored(A, 9, delivered.bytes.len() as u32);
        }
        Ok(())
    }

    fn assert_all_there(&self) {
        let places = [DmaAddr::Own(7), DmaAddr::Bus(40), DmaAddr::Bus(41)];
        for (place, page) in places.into_iter().zip(100..) {
            for offset in 0..4096 {
                assert_eq!(self.memory.get(&(place, offset)), Some(&source_byte(page, offset)));
            }
        }
        assert_eq!(self.memory.len(), 3 * 4096);
    }

    fn ends(&mut self) -> (Option<SendEnded>, Option<ReceiveEnded>) {
        (self.sender.poll_ended(), self.receiver.poll_ended())
    }
}

const SENT: SendEnded = SendEnded { to: B, transfer: 9, pages: 3, result: Ok(()) };
const RECEIVED: ReceiveEnded = ReceiveEnded { from: A, transfer: 9, pages: 3, result: Ok(()) };

#[test]
fn pages_arrive_whole_with_frames_of_every_size_and_both_ends_know() {
    for payload in [64, 128, 256, 512, 1024, 2048, 4096] {
        let mut pair = Pair::new(payload);
        let frames = pair.all_sent();
        assert_eq!(frames.len(), 3 * 4096 / payload as usize);
        for frame in &frames {
            assert_eq!(pair.ends(), (None, None), "not before the last frame");
            pair.receive(frame).unwrap();
        }
        pair.assert_all_there();
        let report = pair.answered().unwrap();
        assert_eq!(pair.answered(), None);
        pair.sender.handle_frame(&report).unwrap();
        assert_eq!(pair.ends(), (Some(SENT), Some(RECEIVED)));
        assert_eq!(pair.receiver.counters().errors(), 0);
    }
}

#[test]
fn pages_that_were_lost_are_sent_again_and_no_others() {
    let mut pair = Pair::new(1024);
    for (index, frame) in pair.all_sent().iter().enumerate() {
        if index != 5 {
            pair.receive(frame).unwrap();
        }
    }
    assert_eq!(pair.receiver.counters().lost, 1);
    let report = pair.answered().unwrap();
    pair.sender.handle_frame(&report).unwrap();
    let again = pair.all_sent();
    assert_eq!(again.len(), 4, "the four frames of the page that lacks one");
    for frame in &again {
        pair.receive(frame).unwrap();
    }
    pair.assert_all_there();
    let counters = pair.receiver.counters();
    assert_eq!((counters.repeated, counters.duplicated), (3, 0));
    assert!(matches!(pair.receive(&again[3]), Err(LinkError::Duplicate { .. })));
    let report = pair.answered().unwrap();
    pair.sender.handle_frame(&report).unwrap();
    assert_eq!(pair.ends(), (Some(SENT), Some(RECEIVED)));
    assert_eq!(pair.sender.counters().pages_again, 1);
}

#[test]
fn a_lost_last_frame_or_report_needs_a_question() {
    let mut pair = Pair::new(4096);
    let mut frames = pair.all_sent();
    frames.pop();
    frames.iter().for_each(|frame| pair.receive(frame).unwrap());
    assert_eq!(pair.answered(), None, "the frame that asks for the report was lost");
    assert!(pair.sender.nudge(B, 9));
    let question = pair.sent().unwrap();
    assert_eq!(pair.sent(), None, "one question per nudge");
    pair.receive(&question).unwrap();
    let report = pair.answered().unwrap();
    pair.sender.handle_frame(&report).unwrap();
    let again = pair.all_sent();
    assert_eq!(again.len(), 1);
    pair.receive(&again[0]).unwrap();
    let lost = pair.answered().unwrap();
    assert_eq!(pair.receiver.poll_ended(), Some(RECEIVED));
    assert!(pair.sender.nudge(B, 9));
    let question = pair.sent().unwrap();
    pair.receive(&question).unwrap();
    assert_eq!(pair.answered(), Some(lost.clone()), "an ended transfer is answered alike");
    pair.sender.handle_frame(&lost).unwrap();
    assert_eq!(pair.sender.poll_ended(), Some(SENT));
    assert!(!pair.sender.nudge(B, 9), "it has ended");
}

#[test]
fn duplicates_reordered_and_damaged_frames_are_counted_and_do_no_harm() {
    let mut pair = Pair::new(1024);
    let mut frames = pair.all_sent();
    frames.swap(3, 4);
    let mut damaged = frames[0].clone();
    damaged[50] ^= 0x10;
    assert!(matches!(pair.receive(&damaged), Err(LinkError::Damaged(_))));
    for frame in &frames {
        pair.receive(frame).unwrap();
        assert!(matches!(pair.receive(frame), Err(LinkError::Duplicate { .. })));
    }
    let counters = pair.receiver.counters();
    assert_eq!((counters.lost, counters.reordered), (0, 1));
    assert_eq!((counters.duplicated, counters.damaged), (12, 1));
    pair.assert_all_there();
}

/// A frame with one field changed, and a CRC that is right.
fn forged(frame: &[u8], offset: usize, value: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[offset..offset + value.len()].copy_from_slice(value);
    let (header, payload) = LinkHeader::parse(&frame).unwrap();
    let bytes = header.to_bytes(payload);
    frame[..LINK_HEADER_BYTES].copy_from_slice(&bytes);
    frame
}

#[test]
fn foreign_frames_are_refused_by_name_and_write_nothing() {
    let mut pair = Pair::new(1024);
    let frame = pair.sent().unwrap();
    type Right = fn(&LinkError) -> bool;
    let cases: [(usize, &[u8], Right); 8] = [
        (LinkField::TRANSFER, &[8], |e| matches!(e, LinkError::UnknownTransfer { .. })),
        (LinkField::FROM, &[5], |e| matches!(e, LinkError::UnknownTransfer { .. })),
        (LinkField::FROM, &[1, 1], |e| matches!(e, LinkError::UnknownTransfer { .. })),
        (LinkField::TO, &[2, 4], |e| matches!(e, LinkError::NotHere { .. })),
        (LinkField::PAGES, &[4], |e| matches!(e, LinkError::PagesDiffer { .. })),
        (LinkField::PAGE, &[3], |e| matches!(e, LinkError::BeyondList { page: 3, .. })),
        (LinkField::ARGUMENT, &[1, 0], |e| matches!(e, LinkError::BadPiece { .. })),
        (LinkField::KIND, &[4], |e| matches!(e, LinkError::WrongEnd(LinkKind::Report))),
    ];
    for (offset, value, right) in cases {
        let error = pair.receive(&forged(&frame, offset, value)).unwrap_err();
        assert!(right(&error), "{offset}: {error}");
    }
    assert_eq!(pair.receiver.counters().foreign, 8);
    assert!(pair.memory.is_empty());
}

#[test]
fn a_frame_that_overlaps_what_is_here_is_dropped_whole() {
    let mut pair = Pair::new(1024);
    let frame = pair.sent().unwrap();
    pair.receive(&frame).unwrap();
    let second = forged(&pair.sent().unwrap(), LinkField::ARGUMENT, &512u16.to_le_bytes());
    assert!(matches!(pair.receive(&second), Err(LinkError::Overlap { page: 0, .. })));
    assert_eq!(pair.memory.len(), 1024);
}

#[test]
fn cut_frames_and_random_bytes_are_damage_and_padding_is_none() {
    let mut pair = Pair::new(64);
    let frame = pair.sent().unwrap();
    for bytes in 0..frame.len() {
        let damaged = pair.receive(&frame[..bytes]).unwrap_err();
        assert!(matches!(damaged, LinkError::Damaged(_)), "{damaged}");
    }
    let padded = [frame, vec![0xee; 30]].concat();
    pair.receive(&padded).unwrap();
    assert_eq!(pair.memory.len(), 64);
    assert!(pair.sender.handle_frame(&[0xff; 100]).is_err());
    assert_eq!(pair.sender.counters().damaged, 1);
}

#[test]
fn each_round_brings_what_it_can() {
    let mut pair = Pair::new(4096);
    let mut rounds = 0;
    while let Some(last) = pair.all_sent().pop() {
        rounds += 1;
        pair.receive(&last).unwrap();
        let report = pair.answered().unwrap();
        pair.sender.handle_frame(&report).unwrap();
    }
    assert_eq!(rounds, 3, "the last page of those that are missing, each time");
    pair.assert_all_there();
    assert_eq!(pair.ends(), (Some(SENT), Some(RECEIVED)));
}

#[test]
fn a_transfer_ends_after_its_last_round_and_the_receiver_is_told() {
    let mut pair = Pair::new(4096);
    for _ in 0..8 {
        pair.all_sent();
        assert!(pair.sender.nudge(B, 9));
        let question = pair.sent().unwrap();
        pair.receive(&question).unwrap();
        let report = pair.answered().unwrap();
        pair.sender.handle_frame(&report).unwrap();
    }
    let stop = pair.sent().unwrap();
    pair.receive(&stop).unwrap();
    let failed = Err(SendFailure::TooManyRounds { rounds: 8 });
    let (sent, received) = pair.ends();
    assert_eq!(sent.unwrap().result, failed);
    assert_eq!(received.unwrap().result, Err(ReceiveFailure::Stopped));
}

#[test]
fn giving_up_at_either_end_ends_the_other() {
    let mut pair = Pair::new(4096);
    assert!(pair.sender.give_up(B, 9) && !pair.sender.give_up(B, 9));
    let stop = pair.sent().unwrap();
    pair.receive(&stop).unwrap();
    let (sent, received) = pair.ends();
    assert_eq!(sent.unwrap().result, Err(SendFailure::GivenUp));
    assert_eq!(received.unwrap().result, Err(ReceiveFailure::Stopped));

    let mut pair = Pair::new(4096);
    let frames = pair.all_sent();
    pair.receive(&frames[0]).unwrap();
    assert!(pair.receiver.give_up(A, 9) && !pair.receiver.give_up(A, 9));
    pair.receive(&frames[1]).unwrap();
    let report = pair.answered().unwrap();
    assert_eq!(report[LinkField::ARGUMENT], LinkVerdict::Refused as u8);
    pair.sender.handle_frame(&report).unwrap();
    let (sent, received) = pair.ends();
    let sent = sent.unwrap();
    assert_eq!((sent.result, sent.pages), (Err(SendFailure::Refused), 1));
    assert_eq!(received.unwrap().result, Err(ReceiveFailure::GivenUp));
    assert_eq!(pair.memory.len(), 4096, "nothing after it was given up");
}

#[test]
fn a_source_that_cannot_be_read_ends_the_transfer_at_that_page() {
    let mut pair = Pair::new(4096);
    pair.sender.give_up(B, 9);
    pair.sender.poll_ended();
    pair.sent();
    let runs = [SOURCE[0], PageRun { first: DmaAddr::Bus(1), count: 1 }];
    pair.sender.send(B, 10, &runs).unwrap();
    assert_eq!(pair.all_sent().len(), 4, "three pages and a stop");
    let failed = Err(SendFailure::SourceFailed { page: 3 });
    assert_eq!(pair.sender.poll_ended().unwrap().result, failed);
}

#[test]
fn a_full_buffer_pauses_the_sender_and_an_empty_one_lets_it_go_on() {
    let sizes = |payload: u32| ReceiverConfig {
        buffer_bytes_low: 0,
        buffer_bytes_high: payload,
        buffer_bytes_max: 4096,
        pause_quanta: 100,
        ..ReceiverConfig::new(B)
    };
    let mut pair = Pair::new(1024);
    pair.receiver = Receiver::new(sizes(1024)).unwrap();
    pair.receiver.announce(A, 9, &TARGET).unwrap();
    for _ in 0..2 {
        let frame = pair.sent().unwrap();
        assert!(matches!(pair.receiver.handle_frame(&frame), Ok(Received::Bytes(_))));
    }
    let pause = pair.answered().unwrap();
    pair.sender.handle_frame(&pause).unwrap();
    assert_eq!(pair.sender.pause_of(B), 100);
    assert_eq!(pair.sent(), None, "paused");
    pair.sender.elapsed(99);
    assert_eq!(pair.sent(), None, "still paused");
    pair.sender.elapsed(1);
    for _ in 0..2 {
        let frame = pair.sent().expect("the pause is over");
        pair.receiver.handle_frame(&frame).unwrap();
    }
    let frame = pair.sent().unwrap();
    let overrun = pair.receiver.handle_frame(&frame);
    assert_eq!(overrun, Err(LinkError::Overrun { bytes: 1024 }));
    pair.sender.handle_frame(&pause).unwrap();
    assert_eq!(pair.sent(), None);
    pair.receiver.stored(A, 9, 4096);
    let go_on = pair.answered().unwrap();
    pair.sender.handle_frame(&go_on).unwrap();
    assert_eq!(pair.sender.pause_of(B), 0);
    assert!(pair.sent().is_some());
    assert_eq!(pair.answered(), None, "nobody is paused any more");
}

#[test]
fn the_end_waits_for_the_last_byte_to_be_stored() {
    let mut pair = Pair::new(4096);
    for frame in pair.all_sent() {
        pair.receiver.handle_frame(&frame).unwrap();
    }
    assert_eq!(pair.receiver.poll_ended(), None);
    let report = pair.answered().unwrap();
    assert_eq!(report.len(), LINK_HEADER_BYTES, "nothing is missing, and it is not done");
    pair.sender.handle_frame(&report).unwrap();
    assert_eq!(pair.sent(), None);
    pair.receiver.stored(A, 9, 3 * 4096);
    assert_eq!(pair.receiver.poll_ended(), Some(RECEIVED));
    let report = pair.answered().unwrap();
    pair.sender.handle_frame(&report).unwrap();
    assert_eq!(pair.sender.poll_ended(), Some(SENT));
}

#[test]
fn reports_of_earlier_rounds_and_senseless_ones_do_nothing() {
    let mut pair = Pair::new(4096);
    let frames = pair.all_sent();
    pair.receive(&frames[2]).unwrap();
    let report = pair.answered().unwrap();
    for (offset, value) in [(LinkField::PAGES, 4), (LinkField::ARGUMENT, 9), (LinkField::PAGE, 99)]
    {
        let wrong = pair.sender.handle_frame(&forged(&report, offset, &[value]));
        assert_eq!(wrong, Err(LinkError::BadReport { transfer: 9 }));
    }
    let early = forged(&report, LinkField::ARGUMENT, &[LinkVerdict::Done as u8]);
    let wrong = pair.sender.handle_frame(&early);
    assert_eq!(wrong, Err(LinkError::BadReport { transfer: 9 }), "done with a page of three");
    let beyond = forged(&report, LINK_HEADER_BYTES + 4, &[9]);
    let wrong = pair.sender.handle_frame(&beyond);
    assert_eq!(wrong, Err(LinkError::BadReport { transfer: 9 }), "missing beyond the end");
    pair.sender.handle_frame(&report).unwrap();
    pair.sender.handle_frame(&report).unwrap();
    assert_eq!(pair.sender.counters().reports_late, 1, "the second copy");
    assert_eq!(pair.all_sent().len(), 2, "one more round, not two");
}

#[test]
fn bounds_hold_and_numbers_are_not_reused_while_frames_may_come() {
    let config = ReceiverConfig { transfers_max: 2, ..ReceiverConfig::new(B) };
    let mut receiver = Receiver::new(config).unwrap();
    receiver.announce(A, 1, &TARGET).unwrap();
    let in_use = Err(AnnounceError::InUse { transfer: 1, peer: A });
    assert_eq!(receiver.announce(A, 1, &TARGET), in_use);
    receiver.announce(B, 1, &TARGET).unwrap();
    assert_eq!(receiver.announce(A, 2, &TARGET), Err(AnnounceError::TooMany { most: 2 }));
    receiver.give_up(A, 1);
    let unread = receiver.announce(A, 2, &TARGET);
    assert_eq!(unread, Err(AnnounceError::TooMany { most: 2 }), "its end was not read");
    receiver.poll_ended().unwrap();
    assert_eq!(receiver.announce(A, 1, &TARGET), in_use, "frames of it may still come");
    receiver.announce(A, 2, &TARGET).unwrap();

    let config = SenderConfig { transfers_max: 1, ..SenderConfig::new(A) };
    let mut sender = Sender::new(config).unwrap();
    sender.send(B, 1, &SOURCE).unwrap();
    assert_eq!(sender.send(B, 1, &SOURCE), Err(AnnounceError::InUse { transfer: 1, peer: B }));
    assert_eq!(sender.send(B, 2, &SOURCE), Err(AnnounceError::TooMany { most: 1 }));
}

#[test]
fn sizes_that_make_no_end_are_refused() {
    for payload_bytes in [0, 32, 96, 8192] {
        let config = SenderConfig { payload_bytes, ..SenderConfig::new(A) };
        assert_eq!(Sender::new(config).err(), Some(LinkConfigError::Payload(payload_bytes)));
    }
    let config = SenderConfig { rounds_max: 0, ..SenderConfig::new(A) };
    assert!(Sender::new(config).err().unwrap().to_string().contains("rounds_max"));
    let config = ReceiverConfig { buffer_bytes_low: 1 << 30, ..ReceiverConfig::new(B) };
    assert!(matches!(Receiver::new(config).err(), Some(LinkConfigError::Marks { .. })));
    let config = ReceiverConfig { pages_max: 1 << 20, ..ReceiverConfig::new(B) };
    assert!(Receiver::new(config).err().unwrap().to_string().contains("pages_max"));
}

#[test]
fn transfers_take_turns() {
    let mut pair = Pair::new(4096);
    pair.sender.send(B, 10, &SOURCE).unwrap();
    let transfers: Vec<u8> =
        pair.all_sent().iter().map(|frame| frame[LinkField::TRANSFER]).collect();
    assert_eq!(transfers, [9, 10, 9, 10, 9, 10]);
}
