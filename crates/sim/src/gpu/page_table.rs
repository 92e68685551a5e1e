//! A GPU's own page table, and until when its translations are in use.

use farside_types::{FrameNo, MemoryId, Rights, Time};

/// Where a page is, for one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) memory: MemoryId,
    pub(crate) frame: FrameNo,
    pub(crate) rights: Rights,
}

/// One entry per page of the arena.
#[derive(Clone, Debug)]
pub(crate) struct PageTable {
    entries: Vec<Option<Mapping>>,
    /// When the last access through a translation that was ever given out is over.
    in_flight: Vec<Time>,
}

impl PageTable {
    pub(crate) fn new(pages: usize) -> PageTable {
        PageTable { entries: vec![None; pages], in_flight: vec![Time::ZERO; pages] }
    }

    pub(crate) fn get(&self, page: u32) -> Option<Mapping> {
        self.entries[page as usize]
    }

    pub(crate) fn map(&mut self, page: u32, mapping: Mapping) {
        self.entries[page as usize] = Some(mapping);
    }

    pub(crate) fn unmap(&mut self, page: u32) {
        self.entries[page as usize] = None;
    }

    /// Changes the rights of a page that is mapped.
    pub(crate) fn protect(&mut self, page: u32, rights: Rights) {
        if let Some(mapping) = &mut self.entries[page as usize] {
            mapping.rights = rights;
        }
    }

    /// An access through the translation of `page` is under way until `until`.
    pub(crate) fn use_until(&mut self, page: u32, until: Time) {
        let slot = &mut self.in_flight[page as usize];
        *slot = (*slot).max(until);
    }

    /// When every access so far through the translation of `page` is over: the drain.
    pub(crate) fn drained_at(&self, page: u32) -> Time {
        self.in_flight[page as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unmapped_page_is_drained_when_its_last_access_is_over() {
        let mut table = PageTable::new(2);
        let frame = FrameNo(5);
        table.map(1, Mapping { memory: MemoryId(1), frame, rights: Rights::ReadWrite });
        table.use_until(1, Time(90));
        table.use_until(1, Time(40));
        table.protect(1, Rights::Read);
        assert_eq!(table.get(1).map(|mapping| mapping.rights), Some(Rights::Read));
        table.unmap(1);
        assert_eq!(table.get(1), None);
        assert_eq!(table.drained_at(1), Time(90));
        assert_eq!(table.drained_at(0), Time::ZERO);
    }
}
