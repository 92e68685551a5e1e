//! What a reader behind a translator gets out of a memory, in beats a cycle.
//!
//! The memory answers a read after [`LATENCY`] cycles, takes one read every few cycles and gives one beat of
//! 64 bytes a cycle. Reader and walker have a port each. Of reads that are due, the walker's go first, but
//! not into the middle of a burst.

use std::collections::VecDeque;

use super::Random;
use super::netlist::{Inputs, Netlist};

/// Cycles from a read's address to its first beat.
pub(crate) const LATENCY: u64 = 71;
/// Bytes of a beat, as a power of two.
const BEAT_SHIFT: u32 = 6;
/// Where the window begins.
const BASE: u64 = 1 << 60;

/// The pages that a reader goes through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pattern {
    /// One after the other.
    Linear,
    /// Any of so many.
    Random { pages: u64 },
}

/// What a reader asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) pattern: Pattern,
    /// Of a page, as a power of two.
    pub(crate) page_bits: u32,
    /// Words of a table, as a power of two.
    pub(crate) leaf_bits: u32,
    /// Beats of a request.
    pub(crate) beats: u64,
    pub(crate) requests: u64,
    /// The memory takes a read in one of so many cycles.
    pub(crate) gap: u64,
    /// Reads of the reader under way.
    pub(crate) outstanding: usize,
}

/// What came out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Beats a cycle, from the first request to the last beat.
    pub(crate) beats: f64,
    /// From the first request to its place, and to its first beat.
    pub(crate) place: u64,
    pub(crate) data: u64,
    /// Lines that were read.
    pub(crate) lines: u64,
}

/// Reads of one port, the oldest first: when it is due, its address, and beats that are to come.
type Port = VecDeque<(u64, u64, u64)>;

/// The reader's and the walker's.
const READER: usize = 0;
const WALKER: usize = 1;

struct Memory {
    ports: [Port; 2],
    /// The port that is in the middle of a burst.
    burst: Option<usize>,
    /// The next cycle in which a read is taken.
    free: u64,
    gap: u64,
}

impl Memory {
    fn new(gap: u64) -> Memory {
        Memory { ports: [Port::new(), Port::new()], burst: None, free: 0, gap }
    }

    fn takes(&self, now: u64) -> bool {
        self.free <= now
    }

    fn take(&mut self, port: usize, now: u64, address: u64, beats: u64) {
        self.free = now + self.gap;
        self.ports[port].push_back((now + LATENCY, address, beats));
    }

    /// The port that has a beat in this cycle, and its read's address.
    fn beat(&mut self, now: u64) -> Option<(usize, u64)> {
        let is_due = |port: &usize| self.ports[*port].front().is_some_and(|&(due, ..)| due <= now);
        let port = self.burst.or_else(|| [WALKER, READER].into_iter().find(is_due))?;
        let (_, address, beats) = self.ports[port].front_mut()?;
        let address = *address;
        *beats -= 1;
        self.burst = Some(port);
        if *beats == 0 {
            self.ports[port].pop_front();
            self.burst = None;
        }
        Some((port, address))
    }
}

/// The requests of a load, in order.
struct Requests {
    load: Load,
    random: Random,
    made: u64,
}

impl Requests {
    fn new(load: Load) -> Requests {
        Requests { load, random: Random::new(42), made: 0 }
    }

    /// The address within the window.
    fn next(&mut self) -> Option<u64> {
        let Load { pattern, page_bits, beats, requests, .. } = self.load;
        let bytes = beats << BEAT_SHIFT;
        let begin = match pattern {
            Pattern::Linear => self.made * bytes,
            Pattern::Random { pages } => {
                let within = self.random.below((1 << page_bits) / bytes) * bytes;
                self.random.below(pages) << page_bits | within
            }
        };
        self.made += 1;
        (self.made <= requests).then_some(begin)
    }
}

/// The frame of a page: any, so that no two pages are side by side.
fn frame(page: u64) -> u64 {
    page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 & 0x1_ffff
}

/// The line at an address of the walker's memory; table n + 1 is that of word n of the root.
fn line(load: &Load, address: u64) -> [u64; 8] {
    let first = (address >> 3) - (1 << load.leaf_bits);
    std::array::from_fn(|word| 0b111 | frame(first + word as u64) << 32)
}

/// The same requests straight to the memory.
pub(crate) fn raw(load: Load) -> f64 {
    let mut requests = Requests::new(load);
    let mut memory = Memory::new(load.gap);
    let mut next = requests.next();
    let (mut now, mut left) = (0, load.requests * load.beats);
    while left != 0 {
        if memory.beat(now).is_some() {
            left -= 1;
        }
        if memory.takes(now)
            && memory.ports[READER].len() < load.outstanding
            && let Some(address) = next
        {
            memory.take(READER, now, address, load.beats);
            next = requests.next();
        }
        now += 1;
    }
    (load.requests * load.beats) as f64 / now as f64
}

/// Through translator and walker, which begin with nothing known.
pub(crate) fn translated(netlist: &mut Netlist, load: Load) -> Measured {
    let mut inputs = start(netlist, load);
    let mut requests = Requests::new(load);
    let mut asked = VecDeque::new();
    let mut memory = Memory::new(load.gap);
    let mut next = requests.next();
    let (mut now, mut left) = (0, load.requests * load.beats);
    let mut measured = Measured { beats: 0.0, place: 0, data: 0, lines: 0 };
    while left != 0 {
        inputs.in_valid = next.is_some().into();
        inputs.in_addr = BASE | next.unwrap_or(0);
        let beat = memory.beat(now);
        inputs.r_valid = u8::from(beat.is_some_and(|(port, _)| port == WALKER));
        if let Some((WALKER, address)) = beat {
            inputs.r_data = line(&load, address);
        } else if beat.is_some() {
            left -= 1;
            measured.data = if measured.data == 0 { now } else { measured.data };
        }
        let takes = memory.takes(now);
        let room = memory.ports[READER].len() < load.outstanding;
        // The walker's reads first; both are seen before either is taken.
        inputs.ar_ready = takes.into();
        inputs.out_ready = 0;
        let seen = netlist.look(&inputs);
        inputs.out_ready = (takes && room && seen.ar_valid == 0).into();
        let outputs = netlist.look(&inputs);
        if outputs.ar_valid == 1 && takes {
            memory.take(WALKER, now, outputs.ar_addr, 1);
            measured.lines += 1;
        }
        if outputs.out_valid == 1 && measured.place == 0 {
            measured.place = now;
        }
        if outputs.out_valid == 1 && inputs.out_ready == 1 {
            let wanted: u64 = asked.pop_front().expect("an answer to a request");
            let place = frame(wanted >> load.page_bits) << load.page_bits
                | wanted & ((1 << load.page_bits) - 1);
            assert_eq!((outputs.out_status, outputs.out_addr), (0, place), "{wanted:#x}");
            memory.take(READER, now, place, load.beats);
        }
        if inputs.in_valid == 1 && outputs.in_ready == 1 {
            asked.extend(next);
            next = requests.next();
        }
        netlist.clock();
        now += 1;
        assert!(now < 100 * (load.requests * load.beats + 1000), "nothing goes on");
    }
    measured.beats = (load.requests * load.beats) as f64 / now as f64;
    measured
}

/// Reset, and a root that leads to the tables.
fn start(netlist: &mut Netlist, load: Load) -> Inputs {
    let mut inputs = Inputs {
        window_base: BASE >> (load.page_bits + 13 + load.leaf_bits),
        rst: 1,
        root_valid: 1,
        ..Inputs::default()
    };
    netlist.look(&inputs);
    netlist.clock();
    inputs.rst = 0;
    while inputs.root_index < 1 << 13 {
        inputs.root_word = 0x1_0001 | (inputs.root_index + 1) << 32;
        let ready = netlist.look(&inputs).root_ready;
        netlist.clock();
        inputs.root_index += u64::from(ready);
    }
    inputs.root_valid = 0;
    inputs
}
