//! Keys: an address-space id and a page in one word, so that a TLB compares one number and a range
//! of pages of one address space is one interval of numbers.

use farside_types::{Asid, PageNo, PageRange, Shelf, Shelved};

const PAGE_BITS: u32 = 48;

/// Pages that a card translates per address space: 60 bits of address. Pages beyond are never
/// mapped; an access to one faults and the driver answers it.
pub const PAGES_MAX: u64 = (1 << PAGE_BITS) - 1;

/// `(asid, page)` in one word, ordered by asid, then page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    /// The key of no page: what an empty TLB entry holds.
    pub(crate) const NONE: Key = Key(u64::MAX);

    /// The key, or `None` beyond [`PAGES_MAX`].
    #[inline]
    pub(crate) const fn new(asid: Asid, page: PageNo) -> Option<Key> {
        if page.0 >= PAGES_MAX {
            return None;
        }
        Some(Key((asid.0 as u64) << PAGE_BITS | page.0))
    }

    /// The address space.
    pub(crate) const fn asid(self) -> Asid {
        Asid((self.0 >> PAGE_BITS) as u16)
    }

    /// The page.
    pub(crate) const fn page(self) -> PageNo {
        PageNo(self.0 & PAGES_MAX)
    }
}

/// The keys from `start` up to, without, `end`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct KeyRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Shelved for KeyRange {
    fn shelf() -> &'static Shelf<KeyRange> {
        static SHELF: Shelf<KeyRange> = Shelf::new();
        &SHELF
    }
}

impl KeyRange {
    /// The keys of a range, without what lies beyond [`PAGES_MAX`].
    pub(crate) fn new(asid: Asid, range: PageRange) -> KeyRange {
        let range = clamp(range);
        let base = u64::from(asid.0) << PAGE_BITS;
        KeyRange { start: base + range.start.0, end: base + range.end().0 }
    }

    /// Every key of an address space.
    pub(crate) fn whole(asid: Asid) -> KeyRange {
        KeyRange::new(asid, PageRange::new(PageNo(0), PAGES_MAX))
    }

    /// The pages of its keys, which are of one address space.
    pub(crate) const fn pages(self) -> PageRange {
        PageRange::new(Key(self.start).page(), self.len())
    }

    pub(crate) const fn len(self) -> u64 {
        self.end - self.start
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.start == self.end
    }

    pub(crate) const fn contains(self, key: u64) -> bool {
        self.start <= key && key < self.end
    }

    /// Whether both hold a key; an empty range overlaps nothing.
    pub(crate) const fn overlaps(self, other: KeyRange) -> bool {
        !self.is_empty() && !other.is_empty() && self.start < other.end && other.start < self.end
    }

    /// The smallest range that holds both.
    pub(crate) fn hull(self, other: KeyRange) -> KeyRange {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        KeyRange { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// The part of a range that can be mapped. Its end never overflows, whatever the caller gave.
pub(crate) fn clamp(range: PageRange) -> PageRange {
    let start = range.start.0.min(PAGES_MAX);
    let end = range.start.0.saturating_add(range.count).min(PAGES_MAX);
    PageRange::new(PageNo(start), end - start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_different_address_spaces_never_meet() {
        let last = Key::new(Asid(1), PageNo(PAGES_MAX - 1)).unwrap();
        let first = Key::new(Asid(2), PageNo(0)).unwrap();
        assert!(last < first);
        assert!(!KeyRange::whole(Asid(1)).contains(first.0));
        assert!(!KeyRange::whole(Asid(u16::MAX)).contains(Key::NONE.0));
    }

    #[test]
    fn a_range_that_would_wrap_is_cut_and_never_panics() {
        let wild = PageRange::new(PageNo(u64::MAX - 1), u64::MAX);
        assert!(KeyRange::new(Asid(3), wild).is_empty());
        let long = KeyRange::new(Asid(3), PageRange::new(PageNo(1), u64::MAX));
        assert_eq!(long.len(), PAGES_MAX - 1);
    }
}
