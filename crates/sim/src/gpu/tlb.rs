//! A translation lookaside buffer: set associative, least recently used goes first.
//!
//! It holds page numbers only. The translation itself is read from the page table, which agrees:
//! whatever changes an entry there shoots the page down here.

use crate::state::state;

/// A TLB.
#[derive(Clone, Debug)]
pub(crate) struct Tlb {
    /// Sets of `ways` entries, each from the most to the least recently used.
    entries: Vec<u32>,
    ways: usize,
    set_mask: u32,
}

state!(Tlb {
    fixed: entries;
    made: ways, set_mask;
});

/// No page: an arena has fewer pages.
const EMPTY: u32 = u32::MAX;

/// Where `page` is in a set. Compares several entries at once, which a search that ends at the
/// first match does not: a TLB that holds all of its pages in one set is searched at every access.
#[inline]
fn find(set: &[u32], page: u32) -> Option<usize> {
    const ENTRIES: usize = 8;
    let holds = |part: &[u32]| part.iter().fold(false, |any, &entry| any | (entry == page));
    let part = set.chunks(ENTRIES).position(holds)? * ENTRIES;
    set[part..].iter().position(|&entry| entry == page).map(|way| part + way)
}

impl Tlb {
    /// `entries` in sets of `ways`; the specification has checked that sets are a power of two.
    pub(crate) fn new(entries: u32, ways: u32) -> Tlb {
        Tlb {
            entries: vec![EMPTY; entries as usize],
            ways: ways as usize,
            set_mask: entries / ways - 1,
        }
    }

    /// Where the set of `page` begins.
    #[inline]
    fn start(&self, page: u32) -> usize {
        (page & self.set_mask) as usize * self.ways
    }

    #[inline]
    fn set(&mut self, page: u32) -> &mut [u32] {
        let start = self.start(page);
        &mut self.entries[start..start + self.ways]
    }

    /// Whether it holds `page`, which becomes the most recently used of its set.
    #[inline]
    pub(crate) fn lookup(&mut self, page: u32) -> bool {
        self.entries[self.start(page)] == page || self.bring_up(page)
    }

    /// The same for a page that was not used last.
    fn bring_up(&mut self, page: u32) -> bool {
        let set = self.set(page);
        match find(set, page) {
            Some(way) => {
                set.copy_within(..way, 1);
                set[0] = page;
                true
            }
            None => false,
        }
    }

    /// Forgets all.
    pub(crate) fn flush(&mut self) {
        self.entries.fill(EMPTY);
    }

    /// Takes `page` in; the least recently used of its set goes.
    pub(crate) fn insert(&mut self, page: u32) {
        if !self.lookup(page) {
            let set = self.set(page);
            set.copy_within(..set.len() - 1, 1);
            set[0] = page;
        }
    }

    /// Forgets `page`.
    pub(crate) fn invalidate(&mut self, page: u32) {
        let set = self.set(page);
        if let Some(way) = find(set, page) {
            set[way..].rotate_left(1);
            set[set.len() - 1] = EMPTY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut tlb = Tlb::new(4, 4);
        (0..4).for_each(|page| tlb.insert(page));
        assert!(tlb.lookup(0));
        tlb.insert(4);
        assert!(!tlb.lookup(1), "1 was used least recently");
        assert!([0, 2, 3, 4].into_iter().all(|page| tlb.lookup(page)));
    }

    #[test]
    fn pages_compete_only_within_their_set() {
        let mut tlb = Tlb::new(8, 2);
        [0, 4, 8, 1].into_iter().for_each(|page| tlb.insert(page));
        assert!(!tlb.lookup(0), "0, 4 and 8 share a set of two");
        assert!([4, 8, 1].into_iter().all(|page| tlb.lookup(page)));
    }

    #[test]
    fn an_invalidated_page_is_gone_and_its_place_is_used_next() {
        let mut tlb = Tlb::new(2, 2);
        tlb.insert(7);
        tlb.insert(9);
        tlb.invalidate(9);
        assert!(!tlb.lookup(9));
        tlb.insert(11);
        assert!(tlb.lookup(7) && tlb.lookup(11));
    }

    proptest! {
        /// Against a list per set, kept in order of use.
        #[test]
        fn behaves_like_a_list(steps in prop::collection::vec((0u8..3, 0u32..24), 0..300)) {
            let (mut tlb, mut lists) = (Tlb::new(16, 4), vec![Vec::new(); 4]);
            for (step, page) in steps {
                let list: &mut Vec<u32> = &mut lists[page as usize % 4];
                let held = list.iter().position(|&entry| entry == page);
                let held = held.map(|at| list.remove(at)).is_some();
                match step {
                    0 => prop_assert_eq!(tlb.lookup(page), held),
                    1 => tlb.insert(page),
                    _ => tlb.invalidate(page),
                }
                if step == 1 || (step == 0 && held) {
                    list.insert(0, page);
                    list.truncate(4);
                }
            }
        }
    }
}
