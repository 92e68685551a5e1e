//! A GPU's own page table: a byte per page, so that large footprints fit.

use farside_types::{Access, FrameNo, MemoryId, Rights};

use crate::state::state;

/// Where a page is, for one GPU, and what it may do there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) memory: MemoryId,
    pub(crate) rights: Rights,
}

/// One entry per page of the arena.
///
/// An entry is 0, or the memory in bits 0-4, present in bit 6, may be written in bit 7. Frames are
/// kept only for the coherence checker: the timing model does not need them.
#[derive(Clone, Debug)]
pub(crate) struct PageTable {
    entries: Vec<u8>,
    frames: Vec<FrameNo>,
}

state!(PageTable {
    fixed: entries, frames;
});

const MEMORY: u8 = 0x1f;
const PRESENT: u8 = 0x40;
const WRITE: u8 = 0x80;

impl PageTable {
    /// With frames if the coherence checker is on.
    pub(crate) fn new(pages: usize, check: bool) -> PageTable {
        let frames = if check { vec![FrameNo(0); pages] } else { Vec::new() };
        PageTable { entries: vec![0; pages], frames }
    }

    /// The translation of `page`.
    pub(crate) fn get(&self, page: u32) -> Option<Mapping> {
        let entry = self.entries[page as usize];
        let rights = if entry & WRITE != 0 { Rights::ReadWrite } else { Rights::Read };
        (entry & PRESENT != 0).then_some(Mapping { memory: MemoryId(entry & MEMORY), rights })
    }

    /// The memory that `page` is in, if it is mapped with enough rights for `access`.
    #[inline]
    pub(crate) fn usable(&self, page: u32, access: Access) -> Option<MemoryId> {
        let entry = self.entries[page as usize];
        let needed = if access.is_write() { WRITE } else { PRESENT };
        (entry & needed != 0).then_some(MemoryId(entry & MEMORY))
    }

    /// The frame of `page`, if frames are kept.
    pub(crate) fn frame(&self, page: u32) -> FrameNo {
        self.frames.get(page as usize).copied().unwrap_or_default()
    }

    pub(crate) fn map(&mut self, page: u32, mapping: Mapping, frame: FrameNo) {
        let write = if mapping.rights == Rights::ReadWrite { WRITE } else { 0 };
        self.entries[page as usize] = mapping.memory.0 | PRESENT | write;
        if let Some(slot) = self.frames.get_mut(page as usize) {
            *slot = frame;
        }
    }

    pub(crate) fn unmap(&mut self, page: u32) {
        self.entries[page as usize] = 0;
    }

    /// Changes the rights of a page that is mapped.
    pub(crate) fn protect(&mut self, page: u32, rights: Rights) {
        let entry = &mut self.entries[page as usize];
        match rights {
            Rights::Read => *entry &= !WRITE,
            Rights::ReadWrite if *entry & PRESENT != 0 => *entry |= WRITE,
            Rights::ReadWrite => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_memory_rights_and_frame() {
        let mut table = PageTable::new(2, true);
        let mapping = Mapping { memory: MemoryId(16), rights: Rights::ReadWrite };
        table.map(1, mapping, FrameNo(5));
        assert_eq!((table.get(1), table.frame(1)), (Some(mapping), FrameNo(5)));
        assert_eq!(table.usable(1, Access::Write), Some(MemoryId(16)));
        table.protect(1, Rights::Read);
        assert_eq!(table.usable(1, Access::Write), None);
        assert_eq!(table.usable(1, Access::Read), Some(MemoryId(16)));
        table.protect(1, Rights::ReadWrite);
        assert_eq!(table.get(1), Some(mapping));
        table.unmap(1);
        table.protect(1, Rights::ReadWrite);
        assert_eq!(table.get(1), None);
    }
}
