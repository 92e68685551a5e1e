//! Words for pages: with frames, or reserved.

use farside_types::Rights;

use super::super::geometry::WORD_SHIFT;
use super::allocator::{Allocator, Hint};
use super::bus::{TableBus, TableBusError, WindowPages};
use super::mutation::AllocMutation;
use super::status::AllocError;
use super::tables::Table;
use super::word::{PageWord, RUN_SIZES, runs_into};
use crate::tables::TableEntry;

/// What the words of an allocation's pages say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backing {
    pub(super) memory: u8,
    pub(super) rights: Rights,
    pub(super) lazy: bool,
    /// The first page of the allocation, if it is among them, and the allocation's pages.
    pub(super) first: Option<(u64, u64)>,
    /// The last page of the allocation.
    pub(super) last: u64,
}

impl Backing {
    fn mark(&self, page: u64, word: PageWord) -> PageWord {
        let first = self.first.filter(|&(first, _)| first == page);
        let word = word.bounding(first.is_some(), page == self.last);
        first.map_or(word, |(_, pages)| word.with_pages(pages))
    }
}

/// A word that a command has written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) address: u64,
    pub(super) page: u64,
    /// Of the run that it tells of.
    pub(super) size: u32,
    /// What it took for it.
    pub(super) frame: Option<(u8, u32)>,
}

impl Allocator {
    /// The words of `pages`, which lie in one region. So many frames are there.
    pub(super) fn back(
        &mut self,
        bus: &mut impl TableBus,
        table: Table,
        pages: WindowPages,
        backing: &Backing,
    ) -> Vec<Written> {
        let mut written = Vec::new();
        let mut page = pages.first;
        while page < pages.end() {
            let (frame, size) = match self.frame_for(page, pages.end() - page, backing) {
                Some((frame, size)) => (Some(frame), size),
                None if backing.lazy => (None, 0),
                None => break,
            };
            for within in 0..1u32 << size {
                let at = page + u64::from(within);
                let word = match frame {
                    Some(frame) => {
                        PageWord::mapped(backing.memory, frame + within, backing.rights, size)
                    }
                    None => PageWord::reserved(backing.memory, backing.rights),
                };
                let address = self.word_address(table, at);
                bus.write(address, backing.mark(at, word).0);
                let frame = frame.map(|frame| (backing.memory, frame + within));
                written.push(Written { address, page: at, size, frame });
            }
            page += 1 << size;
        }
        written
    }

    /// The longest run of frames for a page and those behind it.
    fn frame_for(&mut self, page: u64, left: u64, backing: &Backing) -> Option<(u32, u32)> {
        if backing.lazy {
            return None;
        }
        let longest = self.layout.run_size_max();
        let sizes = RUN_SIZES
            .iter()
            .filter(|&&size| size <= longest && left >= 1 << size && page % (1 << size) == 0);
        for &size in sizes {
            let hint = self.hint_for(page, backing.memory);
            if let Some(frame) = self.frames.take(backing.memory, size, hint) {
                self.note_frame(page + (1 << size), backing.memory, frame.wrapping_add(1 << size));
                return Some((frame, size));
            }
        }
        None
    }

    pub(super) fn hint_for(&self, page: u64, memory: u8) -> Option<u32> {
        self.hint.filter(|hint| hint.page == page && hint.memory == memory).map(|hint| hint.frame)
    }

    /// What comes next if the next page is the one behind.
    pub(super) fn note_frame(&mut self, page: u64, memory: u8, frame: u32) {
        self.hint = Some(Hint { page, memory, frame });
    }

    /// Writes 0 where a command has written, and gives the frames back. Returns the pages where that failed, and those of
    /// their runs, of which a walk of one tells: they and their frames stay in use.
    pub(super) fn unwrite(&mut self, bus: &mut impl TableBus, written: &[Written]) -> Vec<u64> {
        let forgets = self.mutated.on(AllocMutation::FailedWriteIsForgotten);
        let mut failed = Vec::new();
        for word in written {
            bus.write(word.address, 0);
            if bus.wait().is_err() && !forgets {
                failed.push(word.page);
            }
        }
        let mut held = Vec::new();
        for word in written {
            if runs_into(word.page, word.size, &failed) {
                held.push(word.page);
                self.regions.taint(self.layout.region_of(word.page));
            } else if let Some((memory, frame)) = word.frame {
                self.frames.give_back(memory, frame, 0);
            }
        }
        self.counts.quarantined += held.len() as u64;
        held
    }

    /// A table of zeroes: a ready one, or one that is zeroed now.
    pub(super) fn zeroed_table(&mut self, bus: &mut impl TableBus) -> Result<Table, AllocError> {
        let (table, is_zero) = self.tables.take(&mut self.frames).ok_or(AllocError::NoFrames)?;
        if !is_zero && self.zero(bus, table).is_err() {
            self.tables.give_back(table, false, &mut self.frames);
            return Err(AllocError::BusError);
        }
        Ok(table)
    }

    /// Zeroes all words of a table.
    pub(super) fn zero(&self, bus: &mut impl TableBus, table: Table) -> Result<(), TableBusError> {
        for word in 0..self.layout.region_pages() {
            bus.write(table.address + (word << WORD_SHIFT), 0);
        }
        bus.wait()
    }

    /// Writes a region's word of the directory.
    pub(super) fn direct(
        &self,
        bus: &mut impl TableBus,
        region: u64,
        word: u64,
    ) -> Result<(), TableBusError> {
        bus.write(self.layout.directory_word(region), word);
        bus.wait()
    }

    /// Makes a region's word of the directory lead nowhere. Tried twice: what stays cannot be used again.
    pub(super) fn unlink(&self, bus: &mut impl TableBus, region: u64) -> Result<(), TableBusError> {
        self.direct(bus, region, 0).or_else(|_| self.direct(bus, region, 0))
    }

    /// The word that leads to a table.
    pub(super) fn link_word(&self, table: Table) -> u64 {
        TableEntry::directory(self.tables.number(table)).0
    }
}
