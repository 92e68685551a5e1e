//! The table store: leaf tables, packed into frames.

use std::collections::BTreeSet;

use super::super::geometry::WORD_SHIFT;
use super::bits::Bits;
use super::config::Layout;
use super::frames::FrameStore;

/// A table of the leaf level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Table {
    /// Where it lies in the tables' memory.
    pub(super) address: u64,
    /// Where it is packed; the root of a window of one level is not.
    chunk: Option<(usize, u64)>,
}

impl Table {
    /// One that is always there.
    pub(super) fn fixed(address: u64) -> Table {
        Table { address, chunk: None }
    }

    pub(super) fn is_fixed(self) -> bool {
        self.chunk.is_none()
    }
}

/// An aligned run of frames, with as many tables as fit.
#[derive(Clone, Debug)]
struct Chunk {
    frame: u32,
    taken: Bits,
    tables: u64,
}

/// Where leaf tables are packed, and which are ready.
#[derive(Clone, Debug)]
pub(super) struct TableStore {
    memory: u8,
    page_bits: u32,
    table_shift: u32,
    /// Frames of a chunk, as a power of two.
    chunk_size: u32,
    tables_per_chunk: u64,
    /// `None`: has been given back, its place may be used again.
    chunks: Vec<Option<Chunk>>,
    /// The first frames of chunks.
    chunk_frames: BTreeSet<u32>,
    /// Frames from 0 on of what is always there.
    fixed_frames: u64,
    ready: Vec<Table>,
    ready_max: usize,
}

impl TableStore {
    pub(super) fn new(layout: &Layout, memory: u8, ready_max: u32) -> TableStore {
        let table_shift = layout.leaf_bits + WORD_SHIFT;
        let chunk_shift = table_shift.max(layout.page_bits);
        TableStore {
            memory,
            page_bits: layout.page_bits,
            table_shift,
            chunk_size: chunk_shift - layout.page_bits,
            tables_per_chunk: 1 << (chunk_shift - table_shift),
            chunks: Vec::new(),
            chunk_frames: BTreeSet::new(),
            fixed_frames: layout.fixed_frames,
            ready: Vec::new(),
            // A window of one level has no tables but its root.
            ready_max: if layout.levels == 1 { 0 } else { ready_max as usize },
        }
    }

    /// The number by which a directory word leads to a table.
    pub(super) fn number(&self, table: Table) -> u32 {
        (table.address >> self.table_shift) as u32
    }

    /// A table, and whether all of its words are 0. `None`: there is no frame for one.
    pub(super) fn take(&mut self, frames: &mut FrameStore) -> Option<(Table, bool)> {
        if let Some(table) = self.ready.pop() {
            return Some((table, true));
        }
        self.take_unready(frames).map(|table| (table, false))
    }

    /// A table whose words may be anything; a ready one only where there is no frame for another.
    pub(super) fn take_any(&mut self, frames: &mut FrameStore) -> Option<(Table, bool)> {
        match self.take_unready(frames) {
            Some(table) => Some((table, false)),
            None => self.ready.pop().map(|table| (table, true)),
        }
    }

    fn take_unready(&mut self, frames: &mut FrameStore) -> Option<Table> {
        let has_room = |chunk: &Option<Chunk>| {
            chunk.as_ref().is_some_and(|chunk| chunk.tables < self.tables_per_chunk)
        };
        let index = match self.chunks.iter().position(has_room) {
            Some(index) => index,
            None => self.add_chunk(frames)?,
        };
        let chunk = self.chunks[index].as_mut()?;
        let slot = chunk.taken.find(1, 0, 0)?;
        chunk.taken.set(slot, 1);
        chunk.tables += 1;
        let address = (u64::from(chunk.frame) << self.page_bits) + (slot << self.table_shift);
        Some(Table { address, chunk: Some((index, slot)) })
    }

    fn add_chunk(&mut self, frames: &mut FrameStore) -> Option<usize> {
        let frame = frames.take(self.memory, self.chunk_size, None)?;
        self.chunk_frames.insert(frame);
        let chunk = Some(Chunk { frame, taken: Bits::new(self.tables_per_chunk), tables: 0 });
        let index = self.chunks.iter().position(Option::is_none).unwrap_or(self.chunks.len());
        if index == self.chunks.len() {
            self.chunks.push(chunk);
        } else {
            self.chunks[index] = chunk;
        }
        Some(index)
    }

    /// A table that leads nowhere and to which nothing leads.
    pub(super) fn give_back(&mut self, table: Table, is_zero: bool, frames: &mut FrameStore) {
        if is_zero && self.ready.len() < self.ready_max {
            self.ready.push(table);
            return;
        }
        let Some((index, slot)) = table.chunk else { return };
        let Some(chunk) = self.chunks[index].as_mut() else { return };
        chunk.taken.clear(slot, 1);
        chunk.tables -= 1;
        if chunk.tables == 0 {
            frames.give_back(self.memory, chunk.frame, self.chunk_size);
            self.chunk_frames.remove(&chunk.frame);
            self.chunks[index] = None;
        }
    }

    /// Whether a zeroed table more should be kept ready.
    pub(super) fn wants_ready(&self) -> bool {
        self.ready.len() < self.ready_max
    }

    /// A table to be zeroed, to be given back then.
    pub(super) fn take_to_zero(&mut self, frames: &mut FrameStore) -> Option<Table> {
        self.take_unready(frames)
    }

    /// Whether a frame is one of those that tables have.
    pub(super) fn has_frame(&self, memory: u8, frame: u32) -> bool {
        let first = frame >> self.chunk_size << self.chunk_size;
        memory == self.memory
            && (u64::from(frame) < self.fixed_frames || self.chunk_frames.contains(&first))
    }

    /// Frames that tables take.
    pub(super) fn frames(&self) -> u64 {
        (self.chunks.iter().flatten().count() as u64) << self.chunk_size
    }

    /// Tables in use, ready ones too.
    pub(super) fn tables(&self) -> u64 {
        self.chunks.iter().flatten().map(|chunk| chunk.tables).sum()
    }

    /// Tables that are ready.
    pub(super) fn ready(&self) -> u64 {
        self.ready.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::WindowGeometry;
    use super::super::config::AllocatorConfig;
    use super::*;

    fn store(page_bits: u32, leaf_bits: u32) -> (TableStore, FrameStore) {
        let geometry = WindowGeometry::new(page_bits, &[3, leaf_bits], 32).unwrap();
        let memories = vec![64];
        let config = AllocatorConfig { geometry, base: 0, memories, tables: 0, ready_tables: 1 };
        let frames = FrameStore::new(&config.memories);
        (TableStore::new(&Layout::new(&config).unwrap(), 0, 1), frames)
    }

    #[test]
    fn tables_share_a_frame_which_is_given_back_with_the_last() {
        let (mut tables, mut frames) = store(12, 6);
        let taken: Vec<Table> = (0..9).map(|_| tables.take(&mut frames).unwrap().0).collect();
        let numbers: Vec<u32> = taken.iter().map(|&table| tables.number(table)).collect();
        assert_eq!(numbers, (0..9).collect::<Vec<_>>());
        assert_eq!((tables.frames(), tables.tables(), frames.free(0)), (2, 9, 62));
        tables.give_back(taken[8], false, &mut frames);
        assert_eq!((tables.frames(), frames.free(0)), (1, 63));
        tables.give_back(taken[3], false, &mut frames);
        assert_eq!(tables.take(&mut frames), Some((taken[3], false)), "no frame for it");
        taken[..8].iter().for_each(|&table| tables.give_back(table, false, &mut frames));
        assert_eq!((tables.frames(), tables.tables(), frames.free(0)), (0, 0, 64));
    }

    #[test]
    fn a_table_may_take_several_frames_aligned_to_its_size() {
        let (mut tables, mut frames) = store(12, 11);
        frames.take(0, 0, None);
        let (table, is_zero) = tables.take(&mut frames).unwrap();
        assert_eq!((table.address, tables.number(table), is_zero), (4 << 12, 1, false));
        assert_eq!((tables.frames(), frames.free(0)), (4, 59));
        let has: Vec<u32> = (0..64).filter(|&frame| tables.has_frame(0, frame)).collect();
        let fixed: Vec<u32> = (0..tables.fixed_frames as u32).collect();
        assert_eq!(has, [&fixed[..], &[4, 5, 6, 7]].concat());
        assert!(!tables.has_frame(1, 4));
    }

    #[test]
    fn zeroed_tables_are_kept_ready_and_used_first_where_words_must_be_0() {
        let (mut tables, mut frames) = store(12, 6);
        assert!(tables.wants_ready());
        let table = tables.take_to_zero(&mut frames).unwrap();
        tables.give_back(table, true, &mut frames);
        assert!(!tables.wants_ready());
        assert_eq!((tables.ready(), tables.frames()), (1, 1));
        let other = tables.take_any(&mut frames).unwrap();
        assert!(other.0 != table && !other.1);
        assert_eq!(tables.take(&mut frames), Some((table, true)));
    }
}
