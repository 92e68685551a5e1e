//! The card's memory as the walker sees it: random tables, reads that take their time.

use std::collections::{HashMap, VecDeque};

use super::{Random, Shape};

/// Tables of the leaf level that words of the root lead to.
const TABLES: u64 = 6;

/// A line on its way.
struct Read {
    due: u64,
    /// `None`: the memory answers with an error.
    words: Option<Vec<u64>>,
}

/// Words that were written, and the reads under way. What was never written is random, and the same each
/// time.
pub(crate) struct Memory {
    words: HashMap<u64, u64>,
    /// Where they are, in the order in which they were first read: one of them is chosen without a look at all.
    known: Vec<u64>,
    reads: VecDeque<Read>,
    seed: u64,
}

impl Memory {
    pub(crate) fn new(seed: u64) -> Memory {
        Memory { words: HashMap::new(), known: Vec::new(), reads: VecDeque::new(), seed }
    }

    /// A read of the line at `address` was taken, which ends in cycle `due`.
    pub(crate) fn read(&mut self, shape: &Shape, address: u64, due: u64, random: &mut Random) {
        let line = (0..1 << shape.line_bits).map(|word| self.word(shape, address + 8 * word));
        let words: Vec<u64> = line.collect();
        self.reads.push_back(Read { due, words: (!random.chance(2)).then_some(words) });
    }

    fn word(&mut self, shape: &Shape, address: u64) -> u64 {
        let mut random = Random::new(self.seed ^ address.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        *self.words.entry(address).or_insert_with(|| {
            self.known.push(address);
            leaf_word(shape, &mut random)
        })
    }

    /// Another word where one was read, if any was.
    pub(crate) fn change(&mut self, shape: &Shape, random: &mut Random) {
        if !self.known.is_empty() {
            let address = self.known[random.below(self.known.len() as u64) as usize];
            self.words.insert(address, leaf_word(shape, random));
        }
    }

    /// The line of the oldest read, if that is due.
    pub(crate) fn due(&self, now: u64) -> Option<Option<&[u64]>> {
        let read = self.reads.front().filter(|read| read.due <= now)?;
        Some(read.words.as_deref())
    }

    /// Nobody waits for the reads under way any more.
    pub(crate) fn forget_reads(&mut self) {
        self.reads.clear();
    }

    /// It was taken.
    pub(crate) fn taken(&mut self) -> Option<Vec<u64>> {
        self.reads.pop_front().and_then(|read| read.words)
    }
}

/// A word of the root: most often of a table, else of a run.
pub(crate) fn root_word(shape: &Shape, random: &mut Random) -> u64 {
    let leaf_bits = shape.window_page_bits() - shape.root_bits;
    if random.chance(70) {
        let table = 1 + random.below(TABLES);
        word(random, leaf_bits, 1 << 16, table)
    } else {
        let run = random.below(1 << shape.frame_bits()) & !((1 << leaf_bits) - 1);
        word(random, leaf_bits, 0, run)
    }
}

/// A word of a page.
fn leaf_word(shape: &Shape, random: &mut Random) -> u64 {
    let leaf_bits = shape.window_page_bits() - shape.root_bits;
    let size = random.below(leaf_bits + 1);
    let frame = random.below(1 << shape.frame_bits());
    word(random, size, 0, frame)
}

/// A word as an allocator may write it, or, seldom, as none does; bits without a meaning are random.
fn word(random: &mut Random, mut size: u64, mut table: u64, mut number: u64) -> u64 {
    let rest = random.next() & 0xffff_fc18 & !(1 << 16) | random.next() & 0b10;
    let mut valid = 1;
    let mut own = 1 << 2;
    match random.below(25) {
        0 | 1 => valid = 0,
        2 => own = 0,
        3 => table ^= 1 << 16,
        4 => size = random.below(32),
        5 => number ^= 1 << random.below(32),
        _ => {}
    }
    rest | valid | own | table | size << 5 | (number & 0xffff_ffff) << 32
}
