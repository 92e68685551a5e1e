//! Which pages lost their copies to a write and were copied again afterwards (GRIT, section IV-A).

use farside_types::{Reason, Rights};

use crate::state::state;

/// What has become of a page's copies. The order is that of a page's life.
const NOTHING: u8 = 0;
const COLLAPSED: u8 = 1;
const COPIED_AGAIN: u8 = 2;

/// The copies of every page of the arena.
#[derive(Debug)]
pub(super) struct Copies {
    pages: Vec<u8>,
    again: u64,
}

state!(Copies {
    values: again;
    fixed: pages;
});

impl Copies {
    /// Of an arena of `pages` pages.
    pub(super) fn new(pages: usize) -> Copies {
        Copies { pages: vec![NOTHING; pages], again: 0 }
    }

    /// A GPU has mapped `page` in its own memory.
    pub(super) fn mapped(&mut self, page: u32, rights: Rights, reason: Reason) {
        let story = &mut self.pages[page as usize];
        match rights {
            Rights::ReadWrite if reason == Reason::Collapse && *story == NOTHING => {
                *story = COLLAPSED;
            }
            Rights::Read if *story == COLLAPSED => {
                *story = COPIED_AGAIN;
                self.again += 1;
            }
            _ => {}
        }
    }

    /// Pages that collapsed at least once and were copied afterwards.
    pub(super) fn again(&self) -> u64 {
        self.again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_counts_once_it_is_copied_after_a_collapse() {
        let mut copies = Copies::new(2);
        let read = (Rights::Read, Reason::Demand);
        let write = (Rights::ReadWrite, Reason::Collapse);
        let mut again = |page, (rights, reason)| {
            copies.mapped(page, rights, reason);
            copies.again()
        };
        assert_eq!([again(0, read), again(0, write), again(1, read)], [0, 0, 0]);
        assert_eq!([again(0, read), again(0, write), again(0, read)], [1, 1, 1]);
        assert_eq!([again(1, (Rights::ReadWrite, Reason::Demand)), again(1, read)], [1, 1]);
    }
}
