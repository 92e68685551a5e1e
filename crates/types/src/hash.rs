//! Hash tables by small numbers that this program counts itself: one multiplication an entry.
//!
//! The keys are indices, ids and tags of its own, not what a card or a file says, so nobody can aim for
//! collisions; and without a seed two runs are alike.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash table by own numbers.
pub type IndexMap<K, V> = HashMap<K, V, BuildHasherDefault<IndexHasher>>;

/// See the module.
#[derive(Default)]
pub struct IndexHasher(u64);

impl Hasher for IndexHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        // 2^64 over the golden ratio. A table uses both ends of a hash.
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::{BuildHasher, Hash};

    use super::*;

    fn hash(value: impl Hash) -> u64 {
        BuildHasherDefault::<IndexHasher>::default().hash_one(value)
    }

    /// Numbers that follow one another, alone and in pairs, fall into places of their own: at either end of
    /// the hash, because a table takes its place from one and its mark from the other.
    #[test]
    fn numbers_in_a_row_are_spread() {
        let singles: Vec<u64> = (0..4096_u64).map(hash).collect();
        let pairs: Vec<u64> = (0..4096_u32).map(|n| hash(((n % 8) as u8, n / 8))).collect();
        let blocks: Vec<u64> = (0..4096_u64).map(|n| hash(n << 32)).collect();
        for hashes in [singles, pairs, blocks] {
            let low: HashSet<u64> = hashes.iter().map(|hash| hash & 0xfff).collect();
            let high: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            assert!(low.len() > 2000, "{} of 4096 places", low.len());
            assert_eq!(high.len(), 128);
        }
    }
}
