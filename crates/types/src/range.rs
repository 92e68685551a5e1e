//! Ranges of pages.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{PAGE_SIZE, PageNo, Shelf, Shelved, VirtAddr};

/// `count` pages from `start` on. Never wraps around the address space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct PageRange {
    /// First page.
    pub start: PageNo,
    /// Number of pages.
    pub count: u64,
}

/// Why bytes do not make a range of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeError {
    /// The range has no byte.
    Empty {
        /// Where it would start.
        addr: VirtAddr,
    },
    /// The range ends beyond the 64-bit address space.
    Overflow {
        /// Where it starts.
        addr: VirtAddr,
        /// Its length in bytes.
        bytes: u64,
    },
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RangeError::Empty { addr } => {
                write!(f, "the range at {addr} is empty; give at least one byte")
            }
            RangeError::Overflow { addr, bytes } => write!(
                f,
                "{bytes} bytes from {addr} on end beyond the address space; give a shorter range"
            ),
        }
    }
}

impl std::error::Error for RangeError {}

impl Shelved for PageRange {
    fn shelf() -> &'static Shelf<PageRange> {
        static SHELF: Shelf<PageRange> = Shelf::new();
        &SHELF
    }
}

impl PageRange {
    /// `count` pages from `start` on.
    pub const fn new(start: PageNo, count: u64) -> PageRange {
        PageRange { start, count }
    }

    /// One page.
    pub const fn page(page: PageNo) -> PageRange {
        PageRange::new(page, 1)
    }

    /// The pages that `bytes` bytes from `addr` on touch.
    ///
    /// # Errors
    /// [`RangeError`] if `bytes` is 0 or the range would wrap.
    pub const fn covering(addr: VirtAddr, bytes: u64) -> Result<PageRange, RangeError> {
        if bytes == 0 {
            return Err(RangeError::Empty { addr });
        }
        let Some(last) = addr.checked_add(bytes - 1) else {
            return Err(RangeError::Overflow { addr, bytes });
        };
        let start = addr.page();
        Ok(PageRange::new(start, last.page().0 - start.0 + 1))
    }

    /// One past the last page.
    pub const fn end(self) -> PageNo {
        PageNo(self.start.0 + self.count)
    }

    /// Whether the range has no page.
    pub const fn is_empty(self) -> bool {
        self.count == 0
    }

    /// Length in bytes.
    pub const fn bytes(self) -> u64 {
        self.count * PAGE_SIZE as u64
    }

    /// Whether `page` is in the range.
    pub const fn contains(self, page: PageNo) -> bool {
        page.0 >= self.start.0 && page.0 < self.start.0 + self.count
    }

    /// Whether every page of `other` is in this range.
    pub const fn covers(self, other: PageRange) -> bool {
        other.start.0 >= self.start.0 && other.end().0 <= self.end().0
    }

    /// Whether the two ranges share a page.
    pub const fn overlaps(self, other: PageRange) -> bool {
        self.start.0 < other.end().0 && other.start.0 < self.end().0
    }

    /// The pages in both ranges; empty if there are none.
    #[must_use]
    pub fn intersection(self, other: PageRange) -> PageRange {
        let start = self.start.max(other.start);
        let end = self.end().min(other.end());
        PageRange::new(start, end.0.saturating_sub(start.0))
    }

    /// The pages in ascending order.
    pub fn pages(self) -> impl DoubleEndedIterator<Item = PageNo> + ExactSizeIterator {
        let start = self.start.0;
        (0..self.count as usize).map(move |i| PageNo(start + i as u64))
    }
}

impl fmt::Debug for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pages {:#x}+{}", self.start.0, self.count)
    }
}

impl fmt::Display for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covering_rounds_outwards_to_pages() {
        let range = PageRange::covering(VirtAddr(0x1fff), 2).unwrap();
        assert_eq!(range, PageRange::new(PageNo(1), 2));
        let exact = PageRange::covering(VirtAddr(0x2000), 0x1000).unwrap();
        assert_eq!(exact, PageRange::new(PageNo(2), 1));
    }

    #[test]
    fn empty_and_overflowing_ranges_are_refused() {
        assert!(matches!(PageRange::covering(VirtAddr(0x1000), 0), Err(RangeError::Empty { .. })));
        assert!(matches!(
            PageRange::covering(VirtAddr(u64::MAX), 2),
            Err(RangeError::Overflow { .. })
        ));
        assert!(PageRange::covering(VirtAddr(u64::MAX), 1).is_ok());
    }

    #[test]
    fn intersection_of_disjoint_ranges_is_empty() {
        let a = PageRange::new(PageNo(0), 4);
        let b = PageRange::new(PageNo(8), 4);
        assert!(a.intersection(b).is_empty());
        assert!(!a.overlaps(b));
        assert_eq!(a.intersection(PageRange::new(PageNo(2), 9)), PageRange::new(PageNo(2), 2));
    }
}
