//! The words of the leaf level, as the allocator writes and reads them.

use farside_types::Rights;

use crate::tables::{Place, TableEntry};

/// Bits of a word that is not valid (`docs/rtl/allocator.md`); in valid ones of the window they are 0.
const RESERVED: u64 = 1 << 3;
const FREED: u64 = 1 << 4;
const VALID: u64 = 1;

/// Lengths of runs of frames in a table, as powers of two, and alignments of places: a word of the frames' bits, a beat
/// of words, one.
pub(super) const RUN_SIZES: [u32; 3] = [RUN_SIZE_MAX, 3, 0];
/// The longest of them.
pub(super) const RUN_SIZE_MAX: u32 = 6;

/// What a word says about its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PageState {
    /// No allocation has it.
    Free,
    /// It has a frame.
    Mapped,
    /// It gets a frame when it is touched.
    Reserved,
    /// It begins an allocation that was freed.
    Freed,
}

/// A word of a leaf table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PageWord(pub(super) u64);

impl PageWord {
    /// A page in a frame, part of an aligned run of 2^`size` pages.
    pub(super) fn mapped(memory: u8, frame: u32, rights: Rights, size: u32) -> PageWord {
        PageWord(TableEntry::leaf(Place::Own(frame), rights, false, size).in_memory(memory).0)
    }

    /// A page that gets a frame when it is touched.
    pub(super) fn reserved(memory: u8, rights: Rights) -> PageWord {
        PageWord(PageWord::mapped(memory, 0, rights, 0).0 & !VALID | RESERVED)
    }

    pub(super) fn state(self) -> PageState {
        match (self.entry().is_valid(), self.0 & FREED != 0, self.0 & RESERVED != 0) {
            (true, _, _) => PageState::Mapped,
            (false, true, _) => PageState::Freed,
            (false, false, true) => PageState::Reserved,
            (false, false, false) => PageState::Free,
        }
    }

    /// Whether an allocation has the page.
    pub(super) fn is_allocated(self) -> bool {
        matches!(self.state(), PageState::Mapped | PageState::Reserved)
    }

    pub(super) fn entry(self) -> TableEntry {
        TableEntry(self.0)
    }

    /// The memory and the number of the frame that the page has, or had before it was freed.
    pub(super) fn frame(self) -> Option<(u8, u32)> {
        let has = match self.state() {
            PageState::Mapped => true,
            PageState::Freed => self.0 & RESERVED == 0,
            PageState::Free | PageState::Reserved => false,
        };
        has.then(|| (self.entry().memory(), self.entry().place().number()))
    }

    /// A reserved page after it was touched.
    pub(super) fn with_frame(self, frame: u32) -> PageWord {
        PageWord(self.entry().at(Place::Own(frame)).0 & !RESERVED | VALID)
    }

    /// The first word of an allocation after it was freed.
    pub(super) fn freed(self) -> PageWord {
        PageWord(self.0 & !VALID | FREED)
    }

    pub(super) fn bounding(self, first: bool, last: bool) -> PageWord {
        PageWord(self.entry().bounding(first, last).0)
    }

    pub(super) fn with_size(self, size: u32) -> PageWord {
        PageWord(self.entry().with_size(size).0)
    }

    pub(super) fn with_pages(self, pages: u64) -> PageWord {
        PageWord(self.entry().of_pages(pages as u32).0)
    }
}

/// The largest aligned run of at most 2^`size` pages around `page` that ends at or before `end`.
pub(super) fn size_before(page: u64, size: u32, end: u64) -> u32 {
    (0..=size).rev().find(|&size| (page >> size) < end >> size).unwrap_or(0)
}

/// Whether the run of 2^`size` pages around `page` has one of these pages.
pub(super) fn runs_into(page: u64, size: u32, pages: &[u64]) -> bool {
    pages.iter().any(|other| other >> size == page >> size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_goes_through_its_states() {
        let word = PageWord::reserved(3, Rights::ReadWrite).bounding(true, false).with_pages(5);
        assert_eq!(
            (word.state(), word.frame(), word.is_allocated()),
            (PageState::Reserved, None, true)
        );
        let gone = word.freed();
        assert_eq!(
            (gone.state(), gone.frame(), gone.is_allocated()),
            (PageState::Freed, None, false)
        );
        let mapped = word.with_frame(9);
        assert_eq!((mapped.state(), mapped.frame()), (PageState::Mapped, Some((3, 9))));
        let plain =
            PageWord::mapped(3, 9, Rights::ReadWrite, 0).bounding(true, false).with_pages(5);
        assert_eq!(mapped, plain);
        assert_eq!(mapped.entry().pages(), 5);
        let gone = mapped.freed();
        assert_eq!((gone.state(), gone.frame()), (PageState::Freed, Some((3, 9))));
        assert_eq!((PageWord(0).state(), PageWord(0).frame()), (PageState::Free, None));
    }

    #[test]
    fn a_run_that_is_cut_is_told_only_as_far_as_it_goes() {
        let sizes: Vec<u32> = (8..14).map(|page| size_before(page, 3, 14)).collect();
        assert_eq!(sizes, [2, 2, 2, 2, 1, 1]);
        assert_eq!(size_before(8, 3, 16), 3);
        assert_eq!(size_before(8, 0, 9), 0);
    }
}
