//! What is known of one page while a log is read.

use farside_types::{MemoryId, MemorySet};

/// Pages that are made together.
const BLOCK: usize = 512;

/// One page.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageState {
    /// Where it is.
    pub(crate) copies: MemorySet,
    /// Since when.
    pub(crate) since: u64,
    /// How it came there.
    pub(crate) came: Came,
    /// The card that it left because that was full, plus 1; 0: none.
    left: u8,
}

/// How a page came to where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Came {
    /// It was never anywhere else, or was evicted.
    #[default]
    Otherwise,
    /// Somebody touched it.
    Fetched,
    /// The program had it brought there.
    Hinted(MemoryId),
}

impl PageState {
    /// It left a full memory.
    pub(crate) fn leave(&mut self, memory: MemoryId) {
        self.left = memory.0 + 1;
    }

    /// It came to a memory; whether it comes back to one that it had to leave.
    pub(crate) fn comes_back(&mut self, to: MemoryId) -> bool {
        let back = self.left == to.0 + 1;
        if back {
            self.left = 0;
        }
        back
    }
}

/// The pages of an allocation; those that nothing happened to take no memory.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    blocks: Vec<Option<Box<[PageState; BLOCK]>>>,
}

impl Pages {
    /// The page of this number.
    pub(crate) fn at(&mut self, page: u64) -> &mut PageState {
        let (block, page) = (page as usize / BLOCK, page as usize % BLOCK);
        if block >= self.blocks.len() {
            self.blocks.resize_with(block + 1, || None);
        }
        let fresh = || Box::new([PageState::default(); BLOCK]);
        &mut self.blocks[block].get_or_insert_with(fresh)[page]
    }

    /// All pages that something happened to, with their numbers.
    pub(crate) fn known(&self) -> impl Iterator<Item = (u64, &PageState)> {
        self.blocks.iter().enumerate().flat_map(|(number, block)| {
            let pages = block.iter().flat_map(|block| block.iter().enumerate());
            pages.map(move |(page, state)| ((number * BLOCK + page) as u64, state))
        })
    }
}
