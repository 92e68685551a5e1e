//! The second-level TLB of a card: set-associative, one page per entry, shared by its processing
//! elements.

use farside_types::Rights;

use crate::Translation;
use crate::key::{Key, KeyRange};
use crate::recency::Recency;

#[derive(Clone, Debug)]
pub(crate) struct L2 {
    keys: Vec<Key>,
    slots: Vec<Translation>,
    recency: Vec<Recency>,
    ways: usize,
    evictions: u64,
}

impl L2 {
    /// `entries` is a multiple of `ways`, their quotient a power of two.
    pub(crate) fn new(entries: usize, ways: usize) -> L2 {
        L2 {
            keys: vec![Key::NONE; entries],
            slots: vec![Translation::VACANT; entries],
            recency: vec![Recency::default(); entries / ways],
            ways,
            evictions: 0,
        }
    }

    pub(crate) fn entries(&self) -> usize {
        self.keys.len()
    }

    /// Entries that had to make room so far.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Contiguous pages lie in different sets; address spaces are spread by an odd factor.
    fn set(&self, key: Key) -> usize {
        let mixed = key.0 ^ (key.0 >> 48).wrapping_mul(0x9e37);
        mixed as usize & (self.recency.len() - 1)
    }

    fn find(&self, key: Key) -> Option<usize> {
        let first = self.set(key) * self.ways;
        let way = self.keys[first..first + self.ways].iter().position(|&other| other == key)?;
        Some(first + way)
    }

    pub(crate) fn lookup(&mut self, key: Key) -> Option<Translation> {
        let index = self.find(key)?;
        self.recency[index / self.ways].touch(index % self.ways, self.ways);
        Some(self.slots[index])
    }

    pub(crate) fn insert(&mut self, key: Key, translation: Translation) {
        let set = self.set(key);
        let first = set * self.ways;
        let ways = &self.keys[first..first + self.ways];
        let way = ways
            .iter()
            .position(|&other| other == key)
            .or_else(|| ways.iter().position(|&other| other == Key::NONE))
            .unwrap_or_else(|| {
                self.evictions += 1;
                self.recency[set].victim(self.ways)
            });
        self.keys[first + way] = key;
        self.slots[first + way] = translation;
        self.recency[set].touch(way, self.ways);
    }

    pub(crate) fn remove(&mut self, keys: KeyRange) {
        self.visit(keys, |key, _| *key = Key::NONE);
    }

    pub(crate) fn protect(&mut self, keys: KeyRange, rights: Rights) {
        self.visit(keys, |_, slot| slot.rights = slot.rights.min(rights));
    }

    /// Calls `change` for every entry of `keys`: set by set for a short range, by a scan of the
    /// whole TLB for a long one, so that the length of a range costs nothing.
    fn visit(&mut self, keys: KeyRange, mut change: impl FnMut(&mut Key, &mut Translation)) {
        if keys.len() <= (self.recency.len() / 2) as u64 {
            for key in keys.start..keys.end {
                if let Some(index) = self.find(Key(key)) {
                    change(&mut self.keys[index], &mut self.slots[index]);
                }
            }
            return;
        }
        for (key, slot) in self.keys.iter_mut().zip(&mut self.slots) {
            if keys.contains(key.0) {
                change(key, slot);
            }
        }
    }
}
