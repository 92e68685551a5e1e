//! Invariant 30: whatever a wire does to frames, the bytes are exactly at their places or the
//! transfer fails, and nothing is misplaced.
//!
//! The wire drops, doubles, reorders and damages frames and injects foreign ones, from a seed. The
//! checks of the receiver are turned off one by one, and that is noticed.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::receiver::Checks;
use super::*;
use crate::interface::{DmaAddr, LinkField, link_frame_kind};

const A: LinkAddress = LinkAddress::new(1, 0);
const B: LinkAddress = LinkAddress::new(2, 0);
/// Frames of the receiver's memory.
const FRAMES: usize = 64;
/// What is in memory that nothing may touch.
const CANARY: u8 = 0xc5;

/// How bad a wire is: in 256 frames so many of each.
#[derive(Clone, Copy, Debug)]
struct Wire {
    drops: u8,
    doubles: u8,
    reorders: u8,
    damages: u8,
    foreign: u8,
}

/// Splitmix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % sides.max(1)
    }

    fn happens(&mut self, in_256: u8) -> bool {
        self.roll(256) < u64::from(in_256)
    }
}

/// The bytes of a page of a transfer.
fn right_byte(transfer: u32, page: usize, offset: usize) -> u8 {
    let mixed = (transfer as u64 * 65_521 + page as u64 * 4096 + offset as u64)
        .wrapping_mul(0x2545_f491_4f6c_dd1d);
    mixed.to_be_bytes()[1]
}

/// Source pages are numbered by transfer and index.
struct Source;

impl PagesRead for Source {
    fn read(&mut self, page: DmaAddr, offset: u32, bytes: &mut [u8]) -> Result<(), ReadFailed> {
        let DmaAddr::Bus(number) = page else {
            return Err(ReadFailed);
        };
        let (transfer, index) = (number >> 16, number as usize & 0xffff);
        for (byte, offset) in bytes.iter_mut().zip(offset as usize..) {
            *byte = right_byte(transfer, index, offset);
        }
        Ok(())
    }
}

/// One run of two transfers at the same time.
struct World {
    sender: Sender,
    receiver: Receiver,
    dice: Dice,
    wire: Wire,
    there: VecDeque<Vec<u8>>,
    back: VecDeque<Vec<u8>>,
    memory: Vec<u8>,
    writes: Vec<u8>,
    /// Frames of each transfer's pages.
    places: [Vec<usize>; 2],
    /// Bytes that were delivered and wait to be stored: transfer, bytes.
    unstored: VecDeque<(u32, u32)>,
}

/// Numbers of the two transfers.
const TRANSFERS: [u32; 2] = [3, 4];

/// How the two transfers ended at each end; `None` if an end does not know.
type Ends = [(Option<bool>, Option<bool>); 2];

impl World {
    fn new(seed: u64, wire: Wire, payload_bytes: u32, checks: Checks) -> World {
        let sender = SenderConfig { payload_bytes, ..SenderConfig::new(A) };
        let receiver = ReceiverConfig {
            buffer_bytes_low: 2048,
            buffer_bytes_high: 8192,
            buffer_bytes_max: 16384,
            pause_quanta: 5,
            ..ReceiverConfig::new(B)
        };
        let mut world = World {
            sender: Sender::new(sender).unwrap(),
            receiver: Receiver::new(receiver).unwrap(),
            dice: Dice(seed),
            wire,
            there: VecDeque::new(),
            back: VecDeque::new(),
            memory: vec![CANARY; FRAMES * 4096],
            writes: vec![0; FRAMES * 64],
            places: [Vec::new(), Vec::new()],
            unstored: VecDeque::new(),
        };
        world.receiver.checks = checks;
        world.open_transfers();
        world
    }

    /// Two transfers, each to two runs of frames with room between them.
    fn open_transfers(&mut self) {
        for (index, transfer) in TRANSFERS.into_iter().enumerate() {
            let counts = [1 + self.dice.roll(6) as u32, 1 + self.dice.roll(6) as u32];
            let firsts = [index as u32 * 32 + 2, index as u32 * 32 + 16];
            let runs =
                [1, 0].map(|run| PageRun { first: DmaAddr::Own(firsts[run]), count: counts[run] });
            let list = |run: &PageRun| match run.first {
                DmaAddr::Own(first) => first..first + run.count,
                DmaAddr::Bus(_) => 0..0,
            };
            self.places[index] = runs.iter().flat_map(list).map(|frame| frame as usize).collect();
            self.receiver.announce(A, transfer, &runs).unwrap();
            let first = DmaAddr::Bus(transfer << 16);
            let source = [PageRun { first, count: counts[0] + counts[1] }];
            self.sender.send(B, transfer, &source).unwrap();
        }
    }

    /// Puts a frame on a wire that does what it wants with it.
    fn carry(&mut self, frame: &[u8], back: bool) {
        if self.dice.happens(self.wire.drops) {
            return;
        }
        let copies = if self.dice.happens(self.wire.doubles) { 2 } else { 1 };
        for _ in 0..copies {
            let mut frame = frame.to_vec();
            if self.dice.happens(self.wire.damages) {
                self.damage(&mut frame);
            }
            let late = self.dice.happens(self.wire.reorders);
            let place = if late { self.dice.roll(12) as usize } else { 0 };
            let queue = if back { &mut self.back } else { &mut self.there };
            let place = queue.len().saturating_sub(place);
            queue.insert(place, frame);
        }
        if self.dice.happens(self.wire.foreign) {
            if let Some(foreign) = self.foreign(frame) {
                let queue = if back { &mut self.back } else { &mut self.there };
                queue.push_back(foreign);
            }
        }
    }

    /// Flips bits, cuts off, or overwrites a stretch.
    fn damage(&mut self, frame: &mut Vec<u8>) {
        let length = frame.len() as u64;
        match self.dice.roll(4) {
            0 => frame.truncate(self.dice.roll(length) as usize),
            1 => {
                let start = self.dice.roll(length) as usize;
                let end = frame.len().min(start + 1 + self.dice.roll(40) as usize);
                let change = 1 + self.dice.roll(255) as u8;
                frame[start..end].iter_mut().for_each(|byte| *byte ^= change);
            }
            _ => {
                for _ in 0..=self.dice.roll(3) {
                    let bit = self.dice.roll(length * 8);
                    frame[bit as usize / 8] ^= 1 << (bit % 8);
                }
            }
        }
    }

    /// A frame that is sound in itself and belongs elsewhere: other bytes, a right CRC.
    fn foreign(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let (mut header, payload) = LinkHeader::from_frame(frame).ok()?;
        let payload: Vec<u8> = payload.iter().map(|byte| !byte).collect();
        match self.dice.roll(6) {
            0 => header.from = LinkAddress::new(3, 0),
            1 => header.from = LinkAddress::new(1, 1),
            2 => header.to = LinkAddress::new(2, 1),
            3 => header.transfer ^= 0x40,
            4 => header.pages += 1,
            _ if header.kind == LinkKind::Data => header.page += header.pages,
            _ => header.from = LinkAddress::new(3, 0),
        }
        Some([&header.to_bytes(&payload)[..], &payload].concat())
    }

    fn receive(&mut self, frame: &[u8]) -> Result<(), String> {
        let Ok(Received::Bytes(delivered)) = self.receiver.handle_frame(frame) else {
            return Ok(());
        };
        let Delivered { transfer, page, offset, bytes, .. } = delivered;
        let DmaAddr::Own(first) = page else {
            return Err(format!("transfer {transfer} goes to {page:?}"));
        };
        let start = first as usize * 4096 + offset as usize;
        let Some(memory) = self.memory.get_mut(start..start + bytes.len()) else {
            return Err(format!("transfer {transfer} goes to {page:?}, beyond the memory"));
        };
        memory.copy_from_slice(bytes);
        for unit in &mut self.writes[start / 64..(start + bytes.len()) / 64] {
            *unit += 1;
            if *unit > 1 {
                return Err(format!("frame {first} at {offset} is written twice"));
            }
        }
        self.unstored.push_back((transfer, bytes.len() as u32));
        Ok(())
    }

    /// One frame each way. Returns whether anything moved.
    fn step(&mut self) -> Result<bool, String> {
        let mut frame = [0; LINK_FRAME_BYTES_MAX];
        let mut moved = false;
        if let Some(outgoing) = self.sender.poll_frame(&mut Source, &mut frame) {
            self.carry(&frame[..outgoing.bytes], false);
            moved = true;
        }
        if self.dice.roll(3) > 0 {
            if let Some(arrived) = self.there.pop_front() {
                self.receive(&arrived)?;
                moved = true;
            }
        }
        if self.dice.roll(4) == 0 {
            if let Some((transfer, bytes)) = self.unstored.pop_front() {
                self.receiver.stored(A, transfer, bytes);
                moved = true;
            }
        }
        if let Some(outgoing) = self.receiver.poll_frame(&mut frame) {
            self.carry(&frame[..outgoing.bytes], true);
            moved = true;
        }
        if let Some(arrived) = self.back.pop_front() {
            // What the sender refuses did nothing; what it takes shows in the end.
            let _ = self.sender.handle_frame(&arrived);
            moved = true;
        }
        self.sender.elapsed(1);
        Ok(moved || !self.there.is_empty() || !self.unstored.is_empty())
    }

    /// Goes on until both ends know, asks where nothing moves, and gives up in the end.
    fn run(&mut self) -> Result<Ends, String> {
        let mut ends: Ends = [(None, None); 2];
        let mut quiet = 0;
        for _ in 0..40_000 {
            let moved = self.step()?;
            self.note_ends(&mut ends);
            if ends.iter().all(|end| end.0.is_some() && end.1.is_some()) {
                break;
            }
            quiet = if moved { 0 } else { quiet + 1 };
            if quiet > 8 {
                TRANSFERS.into_iter().for_each(|transfer| {
                    self.sender.nudge(B, transfer);
                });
            }
            if quiet > 64 {
                break;
            }
        }
        for transfer in TRANSFERS {
            self.sender.give_up(B, transfer);
            self.receiver.give_up(A, transfer);
        }
        self.note_ends(&mut ends);
        Ok(ends)
    }

    fn note_ends(&mut self, ends: &mut Ends) {
        let index = |transfer| usize::from(transfer == TRANSFERS[1]);
        while let Some(end) = self.sender.poll_ended() {
            ends[index(end.transfer)].0 = Some(end.result.is_ok());
        }
        while let Some(end) = self.receiver.poll_ended() {
            ends[index(end.transfer)].1 = Some(end.result.is_ok());
        }
    }

    /// Looks at every byte of the memory.
    fn check(&self, ends: &Ends) -> Result<(), String> {
        let mut announced = [false; FRAMES];
        for (index, places) in self.places.iter().enumerate() {
            let (sent, received) = ends[index];
            if sent == Some(true) && received != Some(true) {
                return Err(format!("transfer {index}: the sender believes what is not so"));
            }
            for (page, &frame) in places.iter().enumerate() {
                announced[frame] = true;
                self.check_page(index, page, frame, received == Some(true))?;
            }
        }
        for (frame, bytes) in self.memory.chunks_exact(4096).enumerate() {
            if !announced[frame] && bytes.iter().any(|&byte| byte != CANARY) {
                return Err(format!("frame {frame} was announced by nobody and is changed"));
            }
        }
        Ok(())
    }

    fn check_page(
        &self,
        index: usize,
        page: usize,
        frame: usize,
        whole: bool,
    ) -> Result<(), String> {
        for offset in 0..4096 {
            let written = self.writes[frame * 64 + offset / 64] > 0;
            let right = match written {
                true => right_byte(TRANSFERS[index], page, offset),
                false if whole => return Err(format!("page {page} is not whole at {offset}")),
                false => CANARY,
            };
            if self.memory[frame * 4096 + offset] != right {
                return Err(format!("page {page} of transfer {index} is wrong at {offset}"));
            }
        }
        Ok(())
    }
}

/// Runs a world, and what was wrong with it.
fn run(seed: u64, wire: Wire, payload: u32, checks: Checks) -> Result<(Ends, World), String> {
    let mut world = World::new(seed, wire, payload, checks);
    let ends = world.run()?;
    world.check(&ends)?;
    Ok((ends, world))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Any wire: right or failed, and nothing misplaced.
    #[test]
    fn invariant_30_bytes_are_at_their_places_or_the_transfer_fails(
        seed: u64,
        rates in prop::array::uniform5(0u8..120),
        payload_bits in 6u32..=12,
    ) {
        let [drops, doubles, reorders, damages, foreign] = rates;
        let wire = Wire { drops, doubles, reorders, damages, foreign };
        let outcome = run(seed, wire, 1 << payload_bits, Checks::ALL);
        prop_assert!(outcome.is_ok(), "{}", outcome.err().unwrap_or_default());
    }

    /// Bytes from anywhere never panic and write nothing.
    #[test]
    fn random_bytes_do_nothing(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..50),
    ) {
        let wire = Wire { drops: 0, doubles: 0, reorders: 0, damages: 0, foreign: 0 };
        let mut world = World::new(1, wire, 1024, Checks::ALL);
        for frame in &frames {
            prop_assert!(world.receiver.handle_frame(frame).is_err());
            prop_assert!(world.sender.handle_frame(frame).is_err());
        }
    }
}

/// A wire that is bad, and not hopeless.
const BAD: Wire = Wire { drops: 12, doubles: 12, reorders: 30, damages: 12, foreign: 40 };

#[test]
fn a_bad_wire_is_survived_and_everything_it_did_is_counted() {
    let mut seen = [0; 5];
    for seed in 0..20 {
        let (ends, world) = run(seed, BAD, 1024, Checks::ALL).unwrap();
        assert_eq!(ends, [(Some(true), Some(true)); 2], "seed {seed}");
        let counters = world.receiver.counters();
        let ReceiverCounters { damaged, foreign, reordered, duplicated, lost, .. } = counters;
        for (sum, count) in seen.iter_mut().zip([damaged, foreign, reordered, duplicated, lost]) {
            *sum += count;
        }
    }
    assert!(seen.iter().all(|&count| count > 20), "{seen:?}");
}

#[test]
fn a_good_wire_counts_no_error() {
    let good = Wire { drops: 0, doubles: 0, reorders: 0, damages: 0, foreign: 0 };
    for payload in [64, 1024, 4096] {
        let (ends, world) = run(5, good, payload, Checks::ALL).unwrap();
        assert_eq!(ends, [(Some(true), Some(true)); 2]);
        let counters = world.receiver.counters();
        assert_eq!(counters.errors() - counters.overrun - counters.lost, 0, "{counters:?}");
    }
}

/// Some seed must go wrong when a check is not made.
fn goes_wrong(wire: Wire, checks: Checks) -> bool {
    (0..200).any(|seed| run(seed, wire, 1024, checks).is_err())
}

#[test]
fn control_without_the_crc_damage_gets_through() {
    let wire = Wire { damages: 60, ..BAD };
    assert!(goes_wrong(wire, Checks { crc: false, ..Checks::ALL }));
}

#[test]
fn control_without_the_check_of_the_source_foreign_frames_get_through() {
    assert!(goes_wrong(BAD, Checks { source: false, ..Checks::ALL }));
}

#[test]
fn control_without_the_check_of_the_index_other_frames_are_overwritten() {
    assert!(goes_wrong(BAD, Checks { index: false, ..Checks::ALL }));
}

#[test]
fn control_without_the_memory_of_what_came_pages_are_written_twice() {
    assert!(goes_wrong(BAD, Checks { presence: false, ..Checks::ALL }));
}

#[test]
fn the_kind_of_a_frame_tells_which_end_it_is_for() {
    let mut world = World::new(1, BAD, 64, Checks::ALL);
    let mut frame = [0; LINK_FRAME_BYTES_MAX];
    let outgoing = world.sender.poll_frame(&mut Source, &mut frame).unwrap();
    assert_eq!(link_frame_kind(&frame[..outgoing.bytes]), Some(LinkKind::Data));
    assert_eq!(link_frame_kind(&frame[..LinkField::KIND]), None);
}
