//! The first-level TLB of one processing element: fully associative, one page per entry.
//!
//! Every word that a kernel touches is looked up here, so the entry that hit last is tried first
//! and the tags lie together.

use farside_types::Rights;

use crate::Translation;
use crate::key::{Key, KeyRange};
use crate::recency::Recency;

/// Most entries an L1 can have.
pub(crate) const L1_ENTRIES_MAX: usize = 64;
/// Tags compared in one go; the compiler turns it into vector instructions.
const LANES: usize = 8;

#[derive(Clone, Debug)]
pub(crate) struct L1 {
    keys: [Key; L1_ENTRIES_MAX],
    slots: [Translation; L1_ENTRIES_MAX],
    entries: usize,
    last: usize,
    recency: Recency,
    /// Holds every key in the TLB; lets an invalidation elsewhere pass with one comparison.
    hull: KeyRange,
}

impl L1 {
    pub(crate) fn new(entries: usize) -> L1 {
        L1 {
            keys: [Key::NONE; L1_ENTRIES_MAX],
            slots: [Translation::VACANT; L1_ENTRIES_MAX],
            entries,
            last: 0,
            recency: Recency::default(),
            hull: KeyRange { start: 0, end: 0 },
        }
    }

    #[inline]
    pub(crate) fn lookup(&mut self, key: Key) -> Option<Translation> {
        let last = self.last % L1_ENTRIES_MAX;
        if self.keys[last] == key {
            return Some(self.slots[last]);
        }
        let index = self.find(key)?;
        self.last = index;
        self.recency.touch(index, self.entries);
        Some(self.slots[index])
    }

    fn find(&self, key: Key) -> Option<usize> {
        for (group, keys) in self.keys.chunks_exact(LANES).enumerate() {
            let mut hits = 0u32;
            for (lane, &other) in keys.iter().enumerate() {
                hits |= u32::from(other == key) << lane;
            }
            if hits != 0 {
                return Some(group * LANES + hits.trailing_zeros() as usize);
            }
        }
        None
    }

    /// Takes a page in, in the place of one that was not used lately.
    pub(crate) fn insert(&mut self, key: Key, translation: Translation) {
        let used = &self.keys[..self.entries];
        let index = used
            .iter()
            .position(|&other| other == key)
            .or_else(|| used.iter().position(|&other| other == Key::NONE))
            .unwrap_or_else(|| self.recency.victim(self.entries));
        self.keys[index] = key;
        self.slots[index] = translation;
        self.last = index;
        self.recency.touch(index, self.entries);
        self.hull = self.hull.hull(KeyRange { start: key.0, end: key.0 + 1 });
    }

    pub(crate) fn remove(&mut self, keys: KeyRange) {
        if !self.hull.overlaps(keys) {
            return;
        }
        let mut hull = KeyRange { start: 0, end: 0 };
        for key in &mut self.keys[..self.entries] {
            if keys.contains(key.0) {
                *key = Key::NONE;
            } else if *key != Key::NONE {
                hull = hull.hull(KeyRange { start: key.0, end: key.0 + 1 });
            }
        }
        self.hull = hull;
    }

    pub(crate) fn protect(&mut self, keys: KeyRange, rights: Rights) {
        if !self.hull.overlaps(keys) {
            return;
        }
        for (key, slot) in self.keys.iter().zip(&mut self.slots).take(self.entries) {
            if keys.contains(key.0) {
                slot.rights = slot.rights.min(rights);
            }
        }
    }
}
