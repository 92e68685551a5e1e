//! The third TLB: few entries of flexible length, for long runs of pages in contiguous frames
//! (multi-FPGA SVM paper, section II-B; 32 entries of up to 32768 pages).

use farside_types::Rights;

use crate::key::{Key, KeyRange};
use crate::recency::Recency;
use crate::{Location, Translation};

/// One mapped run. Free when it has no key.
#[derive(Clone, Copy, Debug)]
struct Entry {
    keys: KeyRange,
    location: Location,
    rights: Rights,
}

impl Entry {
    const FREE: Entry = Entry {
        keys: KeyRange { start: 0, end: 0 },
        location: Translation::VACANT.location,
        rights: Rights::Read,
    };

    fn count(&self) -> u32 {
        self.keys.len() as u32
    }

    /// The part of the entry in `keys`; free if there is none.
    fn clip(&self, keys: KeyRange) -> Entry {
        let start = self.keys.start.max(keys.start);
        let end = self.keys.end.min(keys.end);
        if start >= end {
            return Entry::FREE;
        }
        let skipped = (start - self.keys.start) as u32;
        Entry {
            keys: KeyRange { start, end },
            location: self.location.offset(skipped),
            rights: self.rights,
        }
    }

    fn before(&self, keys: KeyRange) -> Entry {
        self.clip(KeyRange { start: 0, end: keys.start })
    }

    fn behind(&self, keys: KeyRange) -> Entry {
        self.clip(KeyRange { start: keys.end, end: u64::MAX })
    }

    /// Both in one entry of at most `pages_max` pages, if `next` continues this one.
    fn joined(&self, next: &Entry, pages_max: u32) -> Option<Entry> {
        let continues = !self.keys.is_empty()
            && !next.keys.is_empty()
            && self.keys.end == next.keys.start
            && self.rights == next.rights
            && self.location.is_followed_by(self.count(), next.location)
            && self.keys.len() + next.keys.len() <= u64::from(pages_max);
        let keys = self.keys.hull(next.keys);
        continues.then_some(Entry { keys, ..*self })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Flexible {
    entries: Vec<Entry>,
    pages_max: u32,
    last: usize,
    recency: Recency,
    evictions: u64,
}

impl Flexible {
    pub(crate) fn new(entries: usize, pages_max: u32) -> Flexible {
        Flexible {
            entries: vec![Entry::FREE; entries],
            pages_max,
            last: 0,
            recency: Recency::default(),
            evictions: 0,
        }
    }

    pub(crate) fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Entries, or parts of split ones, that found no room so far.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// The translation of a page, and how many pages the entry goes on for, this one included.
    pub(crate) fn lookup(&mut self, key: Key) -> Option<(Translation, u32)> {
        let hit = |entry: &Entry| entry.keys.contains(key.0);
        let index = match self.entries.get(self.last) {
            Some(entry) if hit(entry) => self.last,
            _ => self.entries.iter().position(hit)?,
        };
        self.last = index;
        self.recency.touch(index, self.entries.len());
        let entry = &self.entries[index];
        let skipped = (key.0 - entry.keys.start) as u32;
        let translation =
            Translation { location: entry.location.offset(skipped), rights: entry.rights };
        Some((translation, entry.count() - skipped))
    }

    /// Takes a run in, joined with entries that it continues. Its keys are in no other entry.
    pub(crate) fn insert(&mut self, keys: KeyRange, translation: Translation) {
        let mut run = Entry { keys, location: translation.location, rights: translation.rights };
        for entry in &mut self.entries {
            let joined = entry.joined(&run, self.pages_max);
            if let Some(joined) = joined.or_else(|| run.joined(entry, self.pages_max)) {
                run = joined;
                *entry = Entry::FREE;
            }
        }
        let index = self.free().unwrap_or_else(|| {
            self.evictions += 1;
            self.recency.victim(self.entries.len())
        });
        self.entries[index] = run;
        self.recency.touch(index, self.entries.len());
    }

    pub(crate) fn remove(&mut self, keys: KeyRange) {
        for index in 0..self.entries.len() {
            let entry = self.entries[index];
            if entry.keys.overlaps(keys) {
                self.replace(index, [entry.before(keys), entry.behind(keys)]);
            }
        }
    }

    pub(crate) fn protect(&mut self, keys: KeyRange, rights: Rights) {
        for index in 0..self.entries.len() {
            let entry = self.entries[index];
            if entry.keys.overlaps(keys) && entry.rights > rights {
                let lowered = Entry { rights, ..entry.clip(keys) };
                self.replace(index, [entry.before(keys), lowered, entry.behind(keys)]);
            }
        }
    }

    /// Puts what remains of an entry in its place: the longest part there, the others where an
    /// entry is free. Parts without room are dropped; a TLB may forget.
    fn replace<const N: usize>(&mut self, index: usize, mut parts: [Entry; N]) {
        self.entries[index] = Entry::FREE;
        parts.sort_by_key(|part| core::cmp::Reverse(part.keys.len()));
        let mut room = Some(index);
        for part in parts.into_iter().filter(|part| !part.keys.is_empty()) {
            match room.take().or_else(|| self.free()) {
                Some(index) => self.entries[index] = part,
                None => self.evictions += 1,
            }
        }
    }

    fn free(&self) -> Option<usize> {
        self.entries.iter().position(|entry| entry.keys.is_empty())
    }
}
