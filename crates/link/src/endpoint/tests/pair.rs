//! The fixture.

use std::collections::VecDeque;
use std::time::Duration;

use crate::endpoint::{Config, Endpoint, Event, Lease, Load, NotSent};
use crate::error::{End, Lost};
use crate::frame::{Frame, Tag};

/// The borrower's end.
pub(super) const BORROWER: usize = 0;
/// The lender's end.
pub(super) const LENDER: usize = 1;

/// What an end's user has seen, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    Up { is_again: bool },
    Frame(Tag, Frame<Vec<u8>>),
    Lost(Lost),
    Ended(End),
}

/// Bytes on their way.
#[derive(Default)]
struct Pipe {
    pieces: VecDeque<(Duration, VecDeque<u8>)>,
}

pub(super) struct Pair {
    pub(super) now: Duration,
    pub(super) ends: [Endpoint; 2],
    pub(super) seen: [Vec<Seen>; 2],
    pub(super) loads: [Vec<Load>; 2],
    pipes: [Pipe; 2],
    is_connected: bool,
    /// How long bytes take.
    pub(super) delay: Duration,
    /// Bytes that leave an end in one step.
    pub(super) per_step: usize,
    /// Whether posted frames are done at once.
    pub(super) does_posted: bool,
    /// Ends that read nothing.
    pub(super) deaf: [bool; 2],
    /// After so many bytes, counted over both ways, the connection breaks.
    pub(super) cut_after: Option<usize>,
}

pub(super) fn lease() -> Lease {
    Lease { device: "card0".to_owned(), epoch: 7 }
}

/// A frame with its data owned.
fn owned(frame: Frame<&[u8]>) -> Frame<Vec<u8>> {
    frame.map(<[u8]>::to_vec)
}

impl Pair {
    pub(super) fn new() -> Pair {
        Pair::with(Config::new(lease()), Config::new(lease()))
    }

    pub(super) fn with(borrower: Config, lender: Config) -> Pair {
        Pair {
            now: Duration::from_secs(100),
            ends: [Endpoint::borrower(borrower, 42), Endpoint::lender(lender)],
            seen: [Vec::new(), Vec::new()],
            loads: [Vec::new(), Vec::new()],
            pipes: [Pipe::default(), Pipe::default()],
            is_connected: false,
            delay: Duration::from_micros(50),
            per_step: usize::MAX,
            does_posted: true,
            deaf: [false; 2],
            cut_after: None,
        }
    }

    /// Two ends that know one another, and may send.
    pub(super) fn up() -> Pair {
        let mut pair = Pair::new();
        pair.connect();
        pair.settle();
        pair
    }

    pub(super) fn connect(&mut self) {
        self.pipes = [Pipe::default(), Pipe::default()];
        self.is_connected = true;
        self.ends.iter_mut().for_each(|end| end.connected(self.now));
    }

    pub(super) fn cut(&mut self) {
        self.pipes = [Pipe::default(), Pipe::default()];
        self.is_connected = false;
        self.ends.iter_mut().for_each(|end| end.disconnected(self.now));
    }

    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Lets everything happen that is on its way, and gives whether anything did.
    pub(super) fn step(&mut self) -> bool {
        let mut did = false;
        for at in [BORROWER, LENDER] {
            did |= self.leave(at);
        }
        let arrivals = self.pipes.iter().filter_map(|pipe| pipe.pieces.front());
        if let Some(next) = arrivals.map(|(at, _)| *at).min() {
            self.now = self.now.max(next);
        }
        for at in [BORROWER, LENDER] {
            did |= self.arrive(at);
            did |= self.take(at);
        }
        did
    }

    fn leave(&mut self, at: usize) -> bool {
        let transmit = self.ends[at].transmit(self.now);
        let all = transmit.slices().iter().flat_map(|slice| slice.iter().copied());
        let mut bytes: VecDeque<u8> = all.take(self.per_step).collect();
        let count = bytes.len();
        self.ends[at].transmitted(self.now, count);
        if count == 0 {
            return false;
        }
        if let Some(left) = &mut self.cut_after {
            // What is beyond the cut has left this end all the same, and arrives nowhere.
            bytes.truncate(*left);
            *left -= bytes.len();
        }
        if self.is_connected {
            self.pipes[1 - at].pieces.push_back((self.now + self.delay, bytes));
        }
        true
    }

    fn arrive(&mut self, at: usize) -> bool {
        let mut did = false;
        while !self.deaf[at] {
            let Some((when, piece)) = self.pipes[at].pieces.front_mut() else { break };
            if *when > self.now {
                break;
            }
            let space = self.ends[at].space();
            let count = space.len().min(piece.len());
            for (to, byte) in space.iter_mut().zip(piece.drain(..count)) {
                *to = byte;
            }
            if piece.is_empty() {
                self.pipes[at].pieces.pop_front();
            }
            self.ends[at].filled(self.now, count);
            did = true;
            self.take(at);
        }
        let all_gone = self.pipes.iter().all(|pipe| pipe.pieces.is_empty());
        if self.cut_after == Some(0) && all_gone {
            self.cut_after = None;
            self.cut();
        }
        did
    }

    /// Takes the events of an end.
    pub(super) fn take(&mut self, at: usize) -> bool {
        let mut did = false;
        loop {
            let mut load = None;
            let seen = match self.ends[at].poll_event(self.now) {
                None => return did,
                Some(Event::Up { is_again, .. }) => Seen::Up { is_again },
                Some(Event::Posted { frame, load: took }) => {
                    load = Some(took);
                    Seen::Frame(Tag::NONE, owned(frame))
                }
                Some(Event::Request { tag, frame } | Event::Reply { tag, frame, .. }) => {
                    Seen::Frame(tag, owned(frame))
                }
                Some(Event::Lost(why)) => Seen::Lost(why),
                Some(Event::Ended(end)) => Seen::Ended(end),
            };
            did = true;
            self.seen[at].push(seen);
            match load {
                Some(load) if self.does_posted => self.ends[at].done(load),
                Some(load) => self.loads[at].push(load),
                None => {}
            }
        }
    }

    /// Until nothing happens any more without time.
    pub(super) fn settle(&mut self) {
        for _ in 0..1_000_000 {
            if !self.step() {
                return;
            }
        }
        panic!("two ends talk for ever");
    }

    /// Lets time pass, with the heartbeats in it.
    pub(super) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            self.settle();
            let next = self.ends.iter().filter_map(Endpoint::poll_timeout).min();
            let Some(next) = next.filter(|&next| next <= end) else { break };
            self.now = self.now.max(next);
            self.ends.iter_mut().for_each(|end| end.handle_timeout(next));
            for at in [BORROWER, LENDER] {
                self.take(at);
            }
        }
        self.now = self.now.max(end);
    }

    pub(super) fn send(&mut self, at: usize, frame: Frame<Vec<u8>>) -> Result<(), NotSent> {
        self.ends[at].send(Tag::NONE, frame)
    }

    /// The frames that an end has seen.
    pub(super) fn frames(&self, at: usize) -> Vec<Frame<Vec<u8>>> {
        let frame = |seen: &Seen| match seen {
            Seen::Frame(_, frame) => Some(frame.clone()),
            _ => None,
        };
        self.seen[at].iter().filter_map(frame).collect()
    }

    /// The requests that an end has seen.
    pub(super) fn requests(&self, at: usize) -> Vec<Tag> {
        let tag = |seen: &Seen| match seen {
            Seen::Frame(tag, frame) if frame.class() == crate::Class::Request => Some(*tag),
            _ => None,
        };
        self.seen[at].iter().filter_map(tag).collect()
    }
}

/// A write of a register, by a number that tells it from others.
pub(super) fn register(number: u32) -> Frame<Vec<u8>> {
    Frame::RegionWrite { region: 0, offset: 8, data: number.to_le_bytes().to_vec() }
}

/// A piece of bulk.
pub(super) fn bulk(offset: u64, bytes: usize) -> Frame<Vec<u8>> {
    Frame::MemoryWrite { offset, data: vec![offset as u8; bytes] }
}
