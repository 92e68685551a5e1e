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

/// What it says to a run of looks and changes, for the bench of that in VHDL
/// (`rtl/test/tb_flexible_tlb.vhd`), which has to say the same.
#[cfg(test)]
mod trace {
    use std::fmt::Write;
    use std::path::Path;

    use farside_types::{FrameNo, MemoryId};

    use super::*;

    const ENTRIES: usize = 5;
    const PAGES_MAX: u32 = 16;
    const KEYS: u64 = 1 << 8;
    const STEPS: usize = 4000;

    const REMOVE: u64 = 0;
    const PROTECT: u64 = 1;
    const INSERT: u64 = 2;
    const LOOK: u64 = 3;

    /// Numbers that look like chance, each below a bound.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 24) % bound
        }
    }

    /// A kind, the pages' first and bound, and for a run that is put in: rights, memory, frame.
    type Step = [u64; 6];

    fn step(numbers: &mut Numbers) -> Step {
        // Most in a few pages, so that runs meet.
        let keys = if numbers.below(3) == 0 { KEYS } else { 48 };
        let first = numbers.below(keys);
        let bound = (first + 1 + numbers.below(u64::from(PAGES_MAX))).min(KEYS);
        match numbers.below(20) {
            0..2 => [REMOVE, first, bound, 0, 0, 0],
            2 => [REMOVE, first, (first + numbers.below(KEYS)).min(KEYS), 0, 0, 0],
            3..5 => [PROTECT, first, bound, 0, 0, 0],
            5..10 => {
                let (rights, memory) = (u64::from(numbers.below(4) != 0), 2 + numbers.below(5) / 4);
                // Frames that lie as the pages do, so that runs continue one another, or any.
                let any = numbers.below(5) == 0;
                let frame = if any { numbers.below(700) } else { 100 + first };
                [INSERT, first, bound, rights, memory, frame]
            }
            _ => [LOOK, first, 0, 0, 0, 0],
        }
    }

    /// What is found: whether an entry has the page, rights, memory, frame, pages.
    fn carry_out(tlb: &mut Flexible, step: Step) -> [u64; 5] {
        let [kind, start, end, rights, memory, frame] = step;
        let keys = KeyRange { start, end };
        match kind {
            REMOVE => tlb.remove(keys),
            PROTECT => tlb.protect(keys, Rights::Read),
            INSERT => {
                let location = Location::new(MemoryId(memory as u8), FrameNo(frame as u32));
                let rights = if rights == 1 { Rights::ReadWrite } else { Rights::Read };
                tlb.remove(keys);
                tlb.insert(keys, Translation { location, rights });
            }
            _ => {
                if let Some((Translation { location, rights }, pages)) = tlb.lookup(Key(start)) {
                    let writable = u64::from(rights == Rights::ReadWrite);
                    let (memory, frame) = (location.memory.0.into(), location.frame.0.into());
                    return [1, writable, memory, frame, pages.into()];
                }
            }
        }
        [0; 5]
    }

    /// A line for each step: what is done, what is found, and how many entries had to go so far.
    fn trace() -> (String, usize) {
        let (mut tlb, mut numbers) =
            (Flexible::new(ENTRIES, PAGES_MAX), Numbers(0x9e37_79b9_7f4a_7c15));
        let (mut text, mut hits) = (String::new(), 0);
        for _ in 0..STEPS {
            let step = step(&mut numbers);
            let found = carry_out(&mut tlb, step);
            hits += found[0] as usize;
            for number in step.into_iter().chain(found) {
                write!(text, "{number} ").unwrap();
            }
            writeln!(text, "{}", tlb.evictions()).unwrap();
        }
        (text, hits)
    }

    /// `FARSIDE_WRITE_TRACE=1` writes the file anew.
    #[test]
    fn the_bench_has_what_the_model_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rtl/test/flexible_tlb.trace");
        let (trace, hits) = trace();
        if std::env::var_os("FARSIDE_WRITE_TRACE").is_some() {
            std::fs::write(&path, &trace).unwrap();
        }
        assert!(hits > STEPS / 10, "{hits} hits");
        let evictions = trace.lines().last().and_then(|line| line.rsplit(' ').next()).unwrap();
        assert!(evictions.parse::<usize>().unwrap() > STEPS / 50, "{evictions} had to go");
        assert!(std::fs::read_to_string(path).unwrap() == trace, "it is of another model");
    }
}
