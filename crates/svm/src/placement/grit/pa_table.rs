//! The Page Attribute Table: faults of a page and whether it was written, since its scheme was last
//! decided (GRIT, section V-C). Lives in the host's memory.

use farside_types::{PageNo, PageRange};
use serde::{Deserialize, Serialize};

use super::pa_cache::{ENTRIES, PaCache};
use super::sheets::Sheets;

/// Bits of a virtual page number in an entry of the table.
const PAGE_BITS: u32 = 45;
/// Bits of the tag in an entry of the cache: the page number without the bits of the set.
const TAG_BITS: u32 = 41;

/// What is known of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Local page faults and page protection faults.
    pub(super) faults: u16,
    /// One of them was a write. Stays once it is set.
    pub(super) written: bool,
}

/// The PA-Table with the PA-Cache in front of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PaTable {
    entries: Sheets<Entry>,
    cache: Option<PaCache>,
    /// Accesses to the table in memory that have not been asked for.
    accesses: u32,
}

impl PaTable {
    /// An empty table, with or without the cache.
    pub(super) fn new(cached: bool) -> PaTable {
        let cache = cached.then(PaCache::new);
        PaTable { entries: Sheets::new(), cache, accesses: 0 }
    }

    /// Counts a fault. When it is number `threshold`, the entry is deleted and what it said is
    /// given: whether the page was written.
    pub(super) fn count(&mut self, page: PageNo, write: bool, threshold: u16) -> Option<bool> {
        let known = self.find(page);
        let Entry { faults, written } = known.unwrap_or(Entry { faults: 0, written: false });
        let entry = Entry { faults: faults + 1, written: written || write };
        if entry.faults >= threshold {
            self.delete(page);
            return Some(entry.written);
        }
        self.store(page, entry);
        None
    }

    /// Takes the newest entry of `page` out of the cache, or looks it up in the table.
    fn find(&mut self, page: PageNo) -> Option<Entry> {
        if let Some(entry) = self.cache.as_mut().and_then(|cache| cache.take(page)) {
            return Some(entry);
        }
        self.accesses += 1;
        self.entries.get(page)
    }

    /// Keeps an entry: in the cache, where the least recently used one is written back for it.
    fn store(&mut self, page: PageNo, entry: Entry) {
        let to_table = match &mut self.cache {
            Some(cache) => cache.put(page, entry),
            None => Some((page, entry)),
        };
        if let Some((page, entry)) = to_table {
            self.accesses += 1;
            self.entries.insert(page, entry);
        }
    }

    fn delete(&mut self, page: PageNo) {
        if self.entries.remove(page).is_some() {
            self.accesses += 1;
        }
    }

    /// Pages that are freed have no attributes.
    pub(super) fn forget(&mut self, pages: PageRange) {
        if let Some(cache) = &mut self.cache {
            cache.forget(|page| pages.contains(page));
        }
        self.entries.forget(pages);
    }

    /// Memory accesses since this was last asked.
    pub(super) fn take_accesses(&mut self) -> u32 {
        std::mem::take(&mut self.accesses)
    }
}

/// Bits of the fault counter: it counts to the fault before the one that triggers.
fn counter_bits(threshold: u16) -> u32 {
    u16::BITS - (threshold - 1).leading_zeros()
}

/// Bits of an entry of the PA-Table: the page's number, the fault counter and the write bit.
pub fn table_entry_bits(threshold: u16) -> u32 {
    PAGE_BITS + counter_bits(threshold.max(1)) + 1
}

/// Bits of the whole PA-Cache: tag, fault counter and write bit of its entries.
pub fn cache_bits(threshold: u16) -> u32 {
    (TAG_BITS + counter_bits(threshold.max(1)) + 1) * ENTRIES as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: PageNo = PageNo(0x1000);

    #[test]
    fn the_fourth_fault_triggers_and_deletes_the_entry() {
        let mut table = PaTable::new(true);
        for _ in 0..3 {
            assert_eq!(table.count(PAGE, false, 4), None);
        }
        assert_eq!(table.count(PAGE, false, 4), Some(false));
        assert_eq!(table.count(PAGE, false, 4), None, "counting starts anew");
    }

    #[test]
    fn the_write_bit_stays_until_the_entry_is_deleted() {
        let mut table = PaTable::new(true);
        table.count(PAGE, true, 4);
        table.count(PAGE, false, 4);
        table.count(PAGE, false, 4);
        assert_eq!(table.count(PAGE, false, 4), Some(true), "written by the first of the faults");
        for _ in 0..3 {
            table.count(PAGE, false, 4);
        }
        assert_eq!(table.count(PAGE, false, 4), Some(false), "a new entry knows of no write");
    }

    #[test]
    fn a_miss_of_the_cache_reads_the_table_and_an_eviction_writes_it_back() {
        let mut table = PaTable::new(true);
        let page = |way: u64| PageNo(way << 4);
        for way in 0..4 {
            table.count(page(way), false, 4);
        }
        assert_eq!(table.take_accesses(), 4, "four lookups of pages that are not in the table");
        table.count(page(0), false, 4);
        assert_eq!(table.take_accesses(), 0, "a hit");
        table.count(page(4), false, 4);
        assert_eq!(table.take_accesses(), 2, "a lookup; page 1 is written back");
        table.count(page(1), true, 4);
        assert_eq!(table.take_accesses(), 2, "it is brought back for another");
        table.count(page(1), false, 4);
        assert_eq!(table.count(page(1), false, 4), Some(true), "with the fault it had before");
        assert_eq!(table.take_accesses(), 1, "the stale entry in the table is deleted");
    }

    #[test]
    fn without_the_cache_every_fault_reads_and_writes_the_table() {
        let mut table = PaTable::new(false);
        table.count(PAGE, false, 4);
        assert_eq!(table.take_accesses(), 2);
        table.count(PAGE, false, 4);
        table.count(PAGE, false, 4);
        assert_eq!(table.count(PAGE, false, 4), Some(false));
        assert_eq!(table.take_accesses(), 6);
    }

    #[test]
    fn sizes_are_those_of_the_paper_and_follow_the_threshold() {
        assert_eq!(table_entry_bits(4), 48);
        assert_eq!(cache_bits(4), 352 * 8);
        assert_eq!(table_entry_bits(2), 47);
        assert_eq!(table_entry_bits(8), 49);
        assert_eq!(table_entry_bits(16), 50);
    }
}
