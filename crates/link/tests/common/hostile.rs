//! Feeds an end of a link what a hostile peer sends, and checks what must hold whatever that is.
//!
//! Shared by the tests and the fuzz targets of `crates/lend/fuzz`. The input is a list of steps: a byte
//! that says what happens, and the numbers of that.

use std::collections::HashMap;
use std::time::Duration;

use farside_link::control::{CONTROLS, CREDIT, HELLO, MAGIC, VERSION, WELCOME};
use farside_link::description::{BYTES_MAX, Description};
use farside_link::endpoint::Load;
use farside_link::frame::{DATA_BYTES_MAX, MapRights};
use farside_link::wire::Header;
use farside_link::{Config, Endpoint, Event, Frame, Kind, Lease, NotSent, Tag};

/// Posted frames and requests that may come at a time (`Config::new`).
const POSTED_MAX: usize = 1024;
const REQUESTS_MAX: usize = 128;
/// What is said beside frames, and not read: a few of the longest control frames.
const CONTROL_MAX: usize = 2048;

/// Takes numbers out of an input; zeros when it is used up.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    /// A small number mostly, else one near an edge, or any.
    fn number(&mut self) -> u64 {
        let choice = self.byte();
        let small = u64::from(self.byte());
        match choice {
            0..250 => small % 4,
            250 => small << 8,
            251 => (1 << 20) + small,
            252 => (1 << 32) - 1 + small,
            253 => u64::MAX - small,
            _ => {
                let mut bytes = [0; 8];
                let taken = self.take(8);
                bytes[..taken.len()].copy_from_slice(taken);
                u64::from_le_bytes(bytes)
            }
        }
    }

    fn data(&mut self) -> Vec<u8> {
        let bytes = match self.byte() {
            byte @ 0..240 => usize::from(byte) % 17,
            240..250 => usize::from(self.byte()) << 4,
            250..=254 => DATA_BYTES_MAX,
            255 => DATA_BYTES_MAX + usize::from(self.byte()),
        };
        vec![self.byte(); bytes]
    }
}

/// A peer, and what it has made the end believe.
struct Attack<'a> {
    input: Input<'a>,
    end: Endpoint,
    is_lender: bool,
    now: Duration,
    /// The next number of a frame of the peer.
    sequence: u64,
    /// What the peer grants.
    credit: u64,
    /// What the end has asked, and how many bytes it may get.
    asked: HashMap<Tag, u64>,
    /// What the peer has asked, and waits for.
    open: Vec<(Tag, Kind, u32)>,
    loads: Vec<Load>,
    ended: bool,
    handed_on: usize,
}

/// One end under attack, either; gives how many frames it handed on.
pub(crate) fn endpoint(input: &[u8]) -> usize {
    let mut input = Input(input);
    let first = input.byte();
    let is_lender = first & 1 == 0;
    let config = Config::new(Lease { device: "card0".to_owned(), epoch: 7 });
    let end = if is_lender { Endpoint::lender(config) } else { Endpoint::borrower(config, 42) };
    let mut attack = Attack {
        input,
        end,
        is_lender,
        now: Duration::from_secs(1),
        sequence: 0,
        credit: 0,
        asked: HashMap::new(),
        open: Vec::new(),
        loads: Vec::new(),
        ended: false,
        handed_on: 0,
    };
    attack.end.connected(attack.now);
    if first & 2 == 0 {
        attack.greet();
    }
    while !attack.input.0.is_empty() {
        attack.step();
        attack.look();
    }
    attack.handed_on
}

impl Attack<'_> {
    fn step(&mut self) {
        match self.input.byte() {
            0 => {
                let count = usize::from(self.input.byte());
                let bytes = self.input.take(count).to_vec();
                self.feed(&bytes);
            }
            1 => self.control(),
            2..100 => self.frame(),
            100..120 => self.reply(),
            120..130 => self.grant(),
            130..160 => self.send(),
            160..190 => self.answer(),
            190..210 => {
                if let Some(load) = self.loads.pop() {
                    self.end.done(load);
                }
            }
            210..230 => self.transmit(),
            230..245 => {
                self.now += Duration::from_millis(self.input.number().min(20_000));
                self.end.handle_timeout(self.now);
            }
            245..248 => self.end.disconnected(self.now),
            248..=254 => {
                self.end.connected(self.now);
                self.greet();
            }
            255 => self.end.close(0x8000_0000),
        }
    }

    /// As an honest peer begins, or goes on.
    fn greet(&mut self) {
        let mut payload = Vec::new();
        if self.is_lender {
            payload.extend(MAGIC.to_le_bytes());
            payload.extend([VERSION, VERSION].map(u16::to_le_bytes).concat());
            // A session, the epoch, what it received, what it can do.
            payload.extend([1, 7, 0, 0].map(u64::to_le_bytes).concat());
            payload.extend(b"card0");
            self.say(HELLO, &payload);
        } else {
            payload.extend(VERSION.to_le_bytes());
            payload.extend([0, 0].map(u64::to_le_bytes).concat());
            self.say(WELCOME, &payload);
        }
        self.grant();
    }

    fn grant(&mut self) {
        self.credit = self.credit.saturating_add(1 << 20);
        let payload = [self.credit; 6].map(u64::to_le_bytes).concat();
        self.say(CREDIT, &payload);
    }

    fn say(&mut self, kind: u16, payload: &[u8]) {
        let header = Header { kind, length: payload.len() as u32, ..Header::default() };
        self.feed(&[&header.encode()[..], payload].concat());
    }

    /// A control frame of the right length, and anything in it.
    fn control(&mut self) {
        let choice = usize::from(self.input.byte()) % CONTROLS.len();
        let (kind, _, least, most) = CONTROLS[choice];
        let count = least + usize::from(self.input.byte()) % (most - least + 1);
        let mut payload = self.input.take(count).to_vec();
        payload.resize(count, 0);
        if kind == HELLO {
            payload[..4].copy_from_slice(&MAGIC.to_le_bytes());
        }
        self.say(kind, &payload);
    }

    /// A frame whose header is nearly right, and anything in its fields.
    fn frame(&mut self) {
        let kind = Kind::ALL[usize::from(self.input.byte()) % Kind::ALL.len()];
        let mut payload = Vec::new();
        while payload.len() < kind.field_bytes() {
            payload.extend(&self.input.number().to_le_bytes()[..4]);
        }
        payload.truncate(kind.field_bytes());
        if kind.has_data() {
            payload.extend(self.input.data());
        }
        // Mostly one of its own.
        let tag = if self.input.byte() < 250 { 1000 + self.sequence } else { self.input.number() };
        self.count(kind, tag, &payload);
    }

    /// A reply to something that was asked, mostly the right one.
    fn reply(&mut self) {
        let Some((&tag, &left)) = self.asked.iter().min() else { return };
        let (kind, payload) = match self.input.byte() {
            0..100 if left > 0 => {
                let count = (left as usize).min(DATA_BYTES_MAX);
                let last = u8::from(count as u64 == left);
                (Kind::Data, [&[0, 0, 0, 0, last][..], &vec![7; count]].concat())
            }
            100..105 => (Kind::Data, [&[0, 0, 0, 0, 1][..], &self.input.data()].concat()),
            105..160 => (Kind::Failed, 5u32.to_le_bytes().to_vec()),
            _ => (Kind::Done, Vec::new()),
        };
        self.count(kind, tag.0, &payload);
    }

    fn count(&mut self, kind: Kind, tag: u64, payload: &[u8]) {
        let wrong = self.input.byte() > 250;
        let sequence = if wrong { self.input.number() } else { self.sequence };
        let acknowledged = if wrong { self.input.number() } else { 0 };
        self.sequence = self.sequence.wrapping_add(u64::from(!wrong));
        let (kind, length) = (kind.number(), payload.len() as u32);
        let header = Header { kind, length, sequence, acknowledged, tag };
        self.feed(&[&header.encode()[..], payload].concat());
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = self.end.space();
            assert!(!space.is_empty(), "every event was taken, and there is no room");
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            self.end.filled(self.now, count);
            bytes = &bytes[count..];
            self.look();
        }
    }

    /// Takes the events, and checks that each may be.
    fn look(&mut self) {
        while let Some(event) = self.end.poll_event(self.now) {
            assert!(!self.ended, "{event:?} after the end");
            match event {
                Event::Up { .. } | Event::Lost(_) => {}
                Event::Posted { load, .. } => {
                    self.loads.push(load);
                    self.handed_on += 1;
                }
                Event::Request { tag, frame } => {
                    assert!(self.open.iter().all(|open| open.0 != tag), "{tag:?} is in use");
                    self.open.push((tag, frame.kind(), frame.wanted_bytes().unwrap_or(0)));
                    self.handed_on += 1;
                }
                Event::Reply { tag, frame, is_last } => {
                    let left = self.asked.get_mut(&tag).expect("only what was asked is answered");
                    let came = frame.data().map_or(0, |data| data.len() as u64);
                    assert!(came <= *left, "{came} bytes come, {left} were left");
                    *left -= came;
                    if is_last {
                        self.asked.remove(&tag);
                    }
                    self.handed_on += 1;
                }
                Event::Ended(_) => {
                    self.ended = true;
                    self.asked.clear();
                    self.open.clear();
                }
            }
        }
        assert!(self.loads.len() <= POSTED_MAX, "more posted frames than were granted");
        assert!(self.open.len() <= REQUESTS_MAX, "more requests than were granted");
        assert_eq!(self.end.is_over(), self.ended);
        assert_eq!(self.end.asked(), self.asked.len());
    }

    /// The end's own user sends.
    fn send(&mut self) {
        let tag = Tag(self.input.number());
        let frame = match self.input.byte() % 6 {
            0 => Frame::DmaWrite { address: self.input.number(), data: self.input.data() },
            1 => Frame::MemoryRead { offset: 0, bytes: self.input.number() as u32 },
            2 => Frame::DmaRead { address: 0, bytes: u32::from(self.input.byte()) + 1 },
            3 => Frame::Barrier,
            4 => Frame::Describe,
            _ => Frame::DmaMap { address: 0, bytes: 1, rights: MapRights::default() },
        };
        let is_posted = frame.class() == farside_link::Class::Posted;
        let tag = if is_posted { Tag::NONE } else { tag };
        let wanted = u64::from(frame.wanted_bytes().unwrap_or(0));
        match self.end.send(tag, frame) {
            Ok(()) if !is_posted => {
                assert!(self.asked.insert(tag, wanted).is_none(), "a tag for two requests");
            }
            Ok(()) => {}
            Err(NotSent::Over(_)) => assert!(self.ended),
            Err(_) => assert!(!self.ended),
        }
    }

    /// The end's own user answers.
    fn answer(&mut self) {
        let Some((tag, kind, wanted)) = self.open.pop() else { return };
        let reply = match (self.input.byte() % 3, kind, wanted) {
            (0, ..) => Frame::Failed { errno: 5 },
            (_, Kind::Describe, _) => Frame::Data { offset: 0, last: true, data: vec![0; 16] },
            (_, _, 1..=65_536) => {
                Frame::Data { offset: 0, last: true, data: vec![0; wanted as usize] }
            }
            (_, Kind::RegionRead | Kind::MemoryRead | Kind::MemoryReadBehind, _)
            | (_, Kind::DmaRead | Kind::PeerRead, _) => Frame::Failed { errno: 5 },
            _ => Frame::Done,
        };
        match self.end.send(tag, reply) {
            Ok(()) => {}
            Err(NotSent::Later(..)) => self.open.push((tag, kind, wanted)),
            Err(wrong) => panic!("an answer that fits is refused: {wrong:?}"),
        }
    }

    /// The connection takes some of what there is.
    fn transmit(&mut self) {
        let now = self.now;
        let transmit = self.end.transmit(now);
        let all: usize = transmit.slices().iter().map(|slice| slice.len()).sum();
        let count = match self.input.byte() {
            byte @ 0..=199 => all.min(usize::from(byte) * 8),
            200..=255 => all,
        };
        self.end.transmitted(now, count);
    }
}

/// However much a peer sends that never reads: what waits to be said to it is bounded.
pub(crate) fn deaf(frames: u64) {
    let mut attack = Attack {
        input: Input(&[]),
        end: Endpoint::lender(Config::new(Lease { device: "card0".to_owned(), epoch: 7 })),
        is_lender: true,
        now: Duration::from_secs(1),
        sequence: 0,
        credit: 0,
        asked: HashMap::new(),
        open: Vec::new(),
        loads: Vec::new(),
        ended: false,
        handed_on: 0,
    };
    attack.end.connected(attack.now);
    attack.greet();
    for _ in 0..frames {
        if attack.ended {
            break;
        }
        attack.count(Kind::Return, 0, &[]);
        attack.loads.drain(..).for_each(|load| attack.end.done(load));
        attack.now += Duration::from_millis(1);
        let waiting = attack.end.transmit(attack.now);
        let waiting: usize = waiting.slices().iter().map(|slice| slice.len()).sum();
        assert!(waiting <= CONTROL_MAX, "{waiting} bytes wait after {} frames", attack.sequence);
    }
    // It was not told of more credit, as it does not read.
    assert_eq!(attack.handed_on, POSTED_MAX);
    assert!(attack.ended, "it sent more than it was granted");
}

/// Bytes that may be a description.
pub(crate) fn description(input: &[u8]) -> usize {
    let Some(described) = Description::decode(input) else { return 0 };
    let again = described.encode().expect("what was read can be written");
    assert!(again == input && input.len() <= BYTES_MAX as usize);
    1
}
