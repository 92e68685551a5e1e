//! The card's memory as the walker sees it: random tables, reads that take their time.

use std::collections::{HashMap, VecDeque};

use super::{Random, Shape};

/// Tables of the leaf level that words of the root lead to.
const TABLES: u64 = 6;

/// A word on its way.
struct Read {
    due: u64,
    /// `None`: the memory answers with an error.
    word: Option<u64>,
}

/// Words that were written, and the reads under way of each id. What was never written is random, and
/// the same each time.
pub(crate) struct Memory {
    words: HashMap<u64, u64>,
    reads: [VecDeque<Read>; 2],
    seed: u64,
}

impl Memory {
    pub(crate) fn new(seed: u64) -> Memory {
        Memory { words: HashMap::new(), reads: [VecDeque::new(), VecDeque::new()], seed }
    }

    /// A read of the word at `address` was taken in cycle `now`.
    pub(crate) fn read(&mut self, shape: &Shape, id: usize, address: u64, now: u64, latency: u64) {
        let mut random = Random::new(self.seed ^ address.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let fails = random.chance(2);
        let word = *self.words.entry(address).or_insert_with(|| word(shape, id == 0, &mut random));
        self.reads[id].push_back(Read { due: now + latency, word: (!fails).then_some(word) });
    }

    /// Another word at `address`.
    pub(crate) fn change(
        &mut self,
        shape: &Shape,
        is_root: bool,
        address: u64,
        random: &mut Random,
    ) {
        self.words.insert(address, word(shape, is_root, random));
    }

    /// An address that was read, if there is one of the root or, as asked, of another table.
    pub(crate) fn some_address(
        &self,
        of_root: bool,
        root_bytes: u64,
        random: &mut Random,
    ) -> Option<u64> {
        let mut known: Vec<u64> = self
            .words
            .keys()
            .copied()
            .filter(|&address| (address < root_bytes) == of_root)
            .collect();
        known.sort_unstable();
        (!known.is_empty()).then(|| known[random.below(known.len() as u64) as usize])
    }

    /// The id and the word of a read that is due.
    pub(crate) fn due(&self, now: u64, random: &mut Random) -> Option<(usize, Option<u64>)> {
        let is_due = |id: &usize| self.reads[*id].front().is_some_and(|read| read.due <= now);
        let due: Vec<usize> = [0, 1].into_iter().filter(is_due).collect();
        let id = *due.get(random.below(due.len().max(1) as u64) as usize)?;
        Some((id, self.reads[id].front()?.word))
    }

    /// It was taken.
    pub(crate) fn taken(&mut self, id: usize) {
        self.reads[id].pop_front();
    }
}

/// A word as an allocator may write it, or, seldom, as none does; bits without a meaning are random.
fn word(shape: &Shape, is_root: bool, random: &mut Random) -> u64 {
    let leaf_bits = shape.window_page_bits() - shape.root_bits;
    let rest = random.next() & 0xffff_fc18 & !(1 << 16) | random.next() & 0b10;
    let frame_bits = shape.physical_bits() - u64::from(shape.geometry.page_bits());
    let mut valid = 1;
    let mut own = 1 << 2;
    let mut table = 0;
    let mut size = if is_root { leaf_bits } else { random.below(leaf_bits + 1) };
    let mut number = random.below(1 << frame_bits);
    if is_root && random.chance(70) {
        table = 1 << 16;
        number = 1 + random.below(TABLES);
    } else if is_root {
        number &= !((1 << leaf_bits) - 1);
    }
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
