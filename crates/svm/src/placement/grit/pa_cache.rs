//! The Page Attribute Cache: keeps entries of the PA-Table at hand (GRIT, section V-C).
//!
//! 64 entries, 4 ways, least recently used out first, write-allocate, write-back. The lower 4 bits
//! of the page's number choose the set, the upper bits are the tag.

use farside_types::PageNo;
use serde::{Deserialize, Serialize};

use super::pa_table::Entry;

/// Entries of the cache.
pub(super) const ENTRIES: usize = 64;
/// Entries of a set.
pub(super) const WAYS: usize = 4;
const SETS: usize = ENTRIES / WAYS;

/// The PA-Cache. An entry in it is the newest: the table's, if there is one, is stale.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PaCache {
    /// Per set: the most recently used first.
    sets: Vec<Vec<(PageNo, Entry)>>,
}

impl PaCache {
    pub(super) fn new() -> PaCache {
        PaCache { sets: vec![Vec::new(); SETS] }
    }

    fn set_of(&mut self, page: PageNo) -> &mut Vec<(PageNo, Entry)> {
        &mut self.sets[(page.0 % SETS as u64) as usize]
    }

    /// Takes the entry of `page` out, if it is there.
    pub(super) fn take(&mut self, page: PageNo) -> Option<Entry> {
        let set = self.set_of(page);
        let at = set.iter().position(|&(of, _)| of == page)?;
        Some(set.remove(at).1)
    }

    /// Puts an entry in as the most recently used. Gives the one that had to go for it.
    pub(super) fn put(&mut self, page: PageNo, entry: Entry) -> Option<(PageNo, Entry)> {
        let set = self.set_of(page);
        let out = if set.len() == WAYS { set.pop() } else { None };
        set.insert(0, (page, entry));
        out
    }

    /// Forgets the pages for which `gone` holds.
    pub(super) fn forget(&mut self, gone: impl Fn(PageNo) -> bool) {
        for set in &mut self.sets {
            set.retain(|&(page, _)| !gone(page));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: Entry = Entry { faults: 1, written: false };

    #[test]
    fn the_lower_four_bits_choose_the_set_and_the_least_recently_used_goes() {
        let mut cache = PaCache::new();
        let page = |way: u64| PageNo(way << 4 | 5);
        for way in 0..4 {
            assert_eq!(cache.put(page(way), ENTRY), None);
        }
        assert_eq!(cache.put(PageNo(6), ENTRY), None, "another set");
        // The first one is used again: the second is now the oldest.
        let first = cache.take(page(0)).expect("it is there");
        cache.put(page(0), first);
        assert_eq!(cache.put(page(4), ENTRY), Some((page(1), ENTRY)));
        assert_eq!(cache.take(page(1)), None);
    }

    #[test]
    fn it_holds_64_entries() {
        let mut cache = PaCache::new();
        let evicted = (0..100).filter_map(|page| cache.put(PageNo(page), ENTRY)).count();
        assert_eq!(evicted, 100 - ENTRIES);
    }
}
