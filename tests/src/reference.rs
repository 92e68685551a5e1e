//! The flat memory: what every word must hold, in the order in which the machine wrote.
//!
//! It knows nothing of cards, frames or copies; that is what makes it a judge.

use farside_types::{PageNo, PageRange};

/// Words of a page that the harness looks at.
pub const WORDS: usize = 4;

/// The words of a page.
pub(crate) type Content = [u64; WORDS];

/// The flat memory of one arena.
#[derive(Debug)]
pub(crate) struct Reference {
    start: PageNo,
    pages: Vec<Content>,
}

impl Reference {
    pub(crate) fn new(arena: PageRange) -> Reference {
        Reference { start: arena.start, pages: vec![[0; WORDS]; arena.count as usize] }
    }

    /// What the page must hold.
    pub(crate) fn page(&self, page: PageNo) -> &Content {
        &self.pages[(page.0 - self.start.0) as usize]
    }

    /// A word was written.
    pub(crate) fn write(&mut self, page: PageNo, word: usize, value: u64) {
        self.pages[(page.0 - self.start.0) as usize][word] = value;
    }

    /// Pages were allocated: they read as zeros.
    pub(crate) fn clear(&mut self, range: PageRange) {
        for page in range.pages() {
            self.pages[(page.0 - self.start.0) as usize] = [0; WORDS];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_write_counts_and_an_allocation_starts_with_zeros() {
        let mut flat = Reference::new(PageRange::new(PageNo(512), 8));
        flat.write(PageNo(513), 2, 7);
        flat.write(PageNo(513), 2, 9);
        assert_eq!(flat.page(PageNo(513)), &[0, 0, 9, 0]);
        assert_eq!(flat.page(PageNo(514)), &[0; WORDS]);
        flat.clear(PageRange::new(PageNo(513), 1));
        assert_eq!(flat.page(PageNo(513)), &[0; WORDS]);
    }
}
