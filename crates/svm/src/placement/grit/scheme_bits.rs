//! Scheme bits and group bits of every page, as the page table keeps them (GRIT, tables IV and V).

use farside_types::{BLOCK_PAGES, IndexMap, PageNo, PageRange};
use serde::{Deserialize, Serialize};

use crate::placement::PageMode;

/// Scheme bits (table IV).
const ON_TOUCH: u8 = 0b01;
const ACCESS_COUNTER: u8 = 0b10;
const DUPLICATION: u8 = 0b11;
const SCHEME_MASK: u8 = 0b11;
/// The group bits are beside the scheme bits.
const GROUP_SHIFT: u8 = 2;

/// A byte per page of the blocks that have a page whose scheme was decided: bits 0-1 the scheme,
/// bits 2-3 the group.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct SchemeBits {
    /// By block number. Looked up only: no result depends on its order.
    blocks: IndexMap<u64, Vec<u8>>,
}

impl SchemeBits {
    fn byte(&self, page: PageNo) -> u8 {
        let block = self.blocks.get(&page.block().0);
        block.map_or(ON_TOUCH, |bytes| bytes[(page.0 % BLOCK_PAGES) as usize])
    }

    fn byte_mut(&mut self, page: PageNo) -> &mut u8 {
        let fresh = || vec![ON_TOUCH; BLOCK_PAGES as usize];
        let block = self.blocks.entry(page.block().0).or_insert_with(fresh);
        &mut block[(page.0 % BLOCK_PAGES) as usize]
    }

    /// The scheme of a page: on-touch until another is decided.
    pub(super) fn mode(&self, page: PageNo) -> PageMode {
        match self.byte(page) & SCHEME_MASK {
            ACCESS_COUNTER => PageMode::AccessCounter,
            DUPLICATION => PageMode::Duplication,
            _ => PageMode::OnTouch,
        }
    }

    pub(super) fn set_scheme(&mut self, page: PageNo, scheme: PageMode) {
        let bits = match scheme {
            PageMode::OnTouch => ON_TOUCH,
            PageMode::AccessCounter => ACCESS_COUNTER,
            PageMode::Duplication => DUPLICATION,
        };
        let byte = self.byte_mut(page);
        *byte = *byte & !SCHEME_MASK | bits;
    }

    /// The group bits of a page; they mean something at the base page of a group.
    pub(super) fn group(&self, page: PageNo) -> u8 {
        self.byte(page) >> GROUP_SHIFT
    }

    pub(super) fn set_group(&mut self, page: PageNo, level: u8) {
        let byte = self.byte_mut(page);
        *byte = *byte & SCHEME_MASK | level << GROUP_SHIFT;
    }

    /// Pages that are freed start anew.
    pub(super) fn forget(&mut self, pages: PageRange) {
        if self.blocks.is_empty() {
            return;
        }
        let mut page = pages.start;
        while page < pages.end() {
            let next = page.align_down(BLOCK_PAGES).offset(BLOCK_PAGES).min(pages.end());
            if let Some(bytes) = self.blocks.get_mut(&page.block().0) {
                let from = (page.0 % BLOCK_PAGES) as usize;
                bytes[from..from + (next.0 - page.0) as usize].fill(ON_TOUCH);
            }
            page = next;
        }
    }
}
