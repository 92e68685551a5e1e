//! What may overtake what: nothing.

use super::pair::{BORROWER, LENDER, Pair, Seen, bulk, register};
use crate::frame::{Frame, Tag};
use crate::mutation::{Mutation, take_away};

fn data(address: u64) -> Frame<Vec<u8>> {
    Frame::DmaWrite { address, data: vec![1; 50_000] }
}

const INTERRUPT: Frame<Vec<u8>> = Frame::Interrupt { index: 2, vector: 1 };

/// What the borrower sees of data and the interrupt that tells of it.
fn data_and_its_interrupt() -> Vec<Frame<Vec<u8>>> {
    let mut pair = Pair::up();
    pair.per_step = 5000;
    for address in 0..5 {
        pair.send(LENDER, data(address)).unwrap();
    }
    pair.step();
    pair.send(LENDER, INTERRUPT).unwrap();
    pair.settle();
    pair.frames(BORROWER)
}

#[test]
fn an_interrupt_comes_behind_the_data_before_it() {
    let seen = data_and_its_interrupt();
    assert_eq!(seen, [data(0), data(1), data(2), data(3), data(4), INTERRUPT]);
}

/// Negative control: an interrupt that goes first is there before the data that it tells of.
#[test]
fn control_an_interrupt_that_goes_first_comes_before_its_data() {
    take_away(Mutation::InterruptFirst);
    let seen = data_and_its_interrupt();
    assert_eq!(seen.len(), 6);
    assert_ne!(seen.last(), Some(&INTERRUPT));
}

#[test]
fn a_reply_comes_behind_what_was_posted_before_it() {
    let mut pair = Pair::up();
    let read = Frame::RegionRead { region: 0, offset: 0, bytes: 4 };
    pair.ends[BORROWER].send(Tag(3), read).unwrap();
    pair.settle();
    pair.per_step = 1000;
    pair.send(LENDER, data(0)).unwrap();
    pair.send(LENDER, INTERRUPT).unwrap();
    let reply = Frame::Data { offset: 0, last: true, data: vec![7; 4] };
    pair.ends[LENDER].send(Tag(3), reply.clone()).unwrap();
    pair.send(LENDER, data(1)).unwrap();
    pair.settle();
    assert_eq!(pair.frames(BORROWER), [data(0), INTERRUPT, reply, data(1)]);
}

#[test]
fn a_doorbell_comes_behind_the_bulk_before_it_and_a_read_behind_both() {
    let mut pair = Pair::up();
    pair.per_step = 777;
    pair.send(BORROWER, bulk(0, 65_536)).unwrap();
    pair.send(BORROWER, bulk(1, 65_536)).unwrap();
    pair.send(BORROWER, register(1)).unwrap();
    let read = Frame::RegionRead { region: 0, offset: 0, bytes: 4 };
    pair.ends[BORROWER].send(Tag(1), read.clone()).unwrap();
    pair.settle();
    let wanted = [bulk(0, 65_536), bulk(1, 65_536), register(1), read];
    assert_eq!(pair.frames(LENDER), wanted);
}

#[test]
fn a_reply_comes_in_pieces_and_the_last_is_said_to_be() {
    let mut pair = Pair::up();
    let read = Frame::RegionRead { region: 2, offset: 0, bytes: 100_000 };
    pair.ends[BORROWER].send(Tag(5), read).unwrap();
    pair.settle();
    let piece =
        |offset: u32, bytes: usize, last| Frame::Data { offset, last, data: vec![3; bytes] };
    pair.ends[LENDER].send(Tag(5), piece(0, 60_000, false)).unwrap();
    pair.ends[LENDER].send(Tag(5), piece(60_000, 40_000, true)).unwrap();
    assert!(pair.ends[LENDER].send(Tag(5), piece(100_000, 0, true)).is_err(), "it is over");
    pair.settle();
    let pieces = pair.seen[BORROWER].iter().filter(|seen| matches!(seen, Seen::Frame(..)));
    assert_eq!(pieces.count(), 2);
    assert_eq!(pair.ends[BORROWER].asked(), 0);
}
