//! Memory that a driver shares with a card: the four rings, and blocks for lists and arguments.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use farside_card::interface::{
    ENTRY_BYTES, ENTRY_WORDS, Entry, RING_COUNT, RingHeader, RingKind, ring_bytes,
};
use farside_types::PAGE_SIZE;

use super::receive::BitWords;
use farside_linux::mapping::{Mapping, MemoryError, memory_file};

const WHAT: &str = "farside-rings";

/// Bytes of a block.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// How much a driver shares with a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Entries of each ring, powers of two.
    pub(crate) entries: [u32; RING_COUNT],
    /// Blocks for lists and arguments.
    pub(crate) blocks: u16,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { entries: [1024, 1024, 1024, 256], blocks: 256 }
    }
}

impl Sizes {
    fn entries(&self, kind: RingKind) -> u32 {
        self.entries[kind.index()]
    }

    fn ring_bytes(&self, kind: RingKind) -> u64 {
        ring_bytes(self.entries(kind)).next_multiple_of(PAGE_SIZE as u64)
    }

    /// Where a ring lies in the control memory.
    fn ring_offset(&self, kind: RingKind) -> u64 {
        RingKind::ALL.iter().take(kind.index()).map(|&kind| self.ring_bytes(kind)).sum()
    }

    fn blocks_offset(&self) -> u64 {
        self.ring_offset(RingKind::Notice) + self.ring_bytes(RingKind::Notice)
    }

    /// Bytes of the control memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks_offset() + u64::from(self.blocks) * BLOCK_BYTES as u64
    }
}

/// The control memory of one card. Both sides touch it by atomic operations only, since the other is
/// another process.
#[derive(Debug)]
pub(crate) struct Control {
    mapping: Mapping,
    file: OwnedFd,
    bus: u64,
    sizes: Sizes,
    /// Where each ring lies.
    offsets: [u64; RING_COUNT],
    free: Vec<u16>,
}

/// A block, to be given back by [`Control::release`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block(u16);

impl Control {
    /// Fresh memory, all zero, that the card is going to see at `bus`.
    pub(crate) fn new(bus: u64, sizes: Sizes) -> Result<Control, MemoryError> {
        let file = memory_file(WHAT, sizes.bytes())?;
        let mapping = Mapping::new(WHAT, &file, sizes.bytes() as usize, PAGE_SIZE)?;
        let offsets = RingKind::ALL.map(|kind| sizes.ring_offset(kind));
        let free = (0..sizes.blocks).rev().collect();
        Ok(Control { mapping, file, bus, sizes, offsets, free })
    }

    /// Its size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.sizes.bytes()
    }

    /// Entries of a ring.
    pub(crate) fn entries(&self, kind: RingKind) -> u32 {
        self.sizes.entries(kind)
    }

    /// The file.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Where this process has it.
    pub(crate) fn base(&self) -> *mut u8 {
        self.mapping.base()
    }

    /// Bus address of a ring.
    pub(crate) fn ring_bus(&self, kind: RingKind) -> u64 {
        self.bus + self.ring_offset(kind)
    }

    fn ring_offset(&self, kind: RingKind) -> u64 {
        self.offsets[kind.index()]
    }

    fn word32(&self, offset: u64) -> &AtomicU32 {
        debug_assert!(offset % 4 == 0 && offset + 4 <= self.bytes());
        // SAFETY: the offset is within the mapping, which lives as long as `self`, and aligned;
        // this process touches the rings' words by atomics only.
        unsafe { &*self.mapping.base().add(offset as usize).cast::<AtomicU32>() }
    }

    fn word64(&self, offset: u64) -> &AtomicU64 {
        debug_assert!(offset % 8 == 0 && offset + 8 <= self.bytes());
        // SAFETY: as in `word32`.
        unsafe { &*self.mapping.base().add(offset as usize).cast::<AtomicU64>() }
    }

    /// A word of a ring's header.
    pub(crate) fn header(&self, kind: RingKind, word: u64) -> &AtomicU32 {
        self.word32(self.ring_offset(kind) + word)
    }

    fn entry_offset(&self, kind: RingKind, index: u32) -> u64 {
        let slot = u64::from(index % self.entries(kind));
        self.ring_offset(kind) + RingHeader::BYTES + slot * ENTRY_BYTES
    }

    /// Puts an entry into a slot that the other side does not look at.
    pub(crate) fn put(&self, kind: RingKind, index: u32, entry: &Entry) {
        let offset = self.entry_offset(kind, index);
        for (word, at) in entry.iter().zip((offset..).step_by(8)) {
            self.word64(at).store(*word, Ordering::Relaxed);
        }
    }

    /// Takes an entry out of a slot that the other side has published.
    pub(crate) fn get(&self, kind: RingKind, index: u32) -> Entry {
        let offset = self.entry_offset(kind, index);
        let mut entry = [0; ENTRY_WORDS];
        for (word, at) in entry.iter_mut().zip((offset..).step_by(8)) {
            *word = self.word64(at).load(Ordering::Relaxed);
        }
        entry
    }

    /// Blocks in all.
    pub(crate) fn blocks(&self) -> usize {
        self.sizes.blocks.into()
    }

    /// Blocks that [`Control::take_block`] could still give.
    pub(crate) fn blocks_free(&self) -> usize {
        self.free.len()
    }

    /// A block, while there are any.
    pub(crate) fn take_block(&mut self) -> Option<Block> {
        self.free.pop().map(Block)
    }

    /// Gives a block back. The card does not use it any more.
    pub(crate) fn release(&mut self, block: Block) {
        self.free.push(block.0);
    }

    /// Bus address of a block.
    pub(crate) fn block_bus(&self, block: &Block) -> u64 {
        self.bus + self.block_offset(block)
    }

    fn block_offset(&self, block: &Block) -> u64 {
        self.sizes.blocks_offset() + u64::from(block.0) * BLOCK_BYTES as u64
    }

    /// Writes words to a block, from its word `first` on.
    pub(crate) fn write_block(
        &self,
        block: &Block,
        first: usize,
        words: impl IntoIterator<Item = u64>,
    ) {
        let start = self.block_offset(block) + first as u64 * 8;
        for (word, at) in words.into_iter().zip((start..).step_by(8)) {
            assert!(at + 8 <= self.block_offset(block) + BLOCK_BYTES as u64, "a block's end");
            self.word64(at).store(word, Ordering::Relaxed);
        }
    }

    /// Reads words of a block, from its word `first` on, as far as the block goes.
    pub(crate) fn read_words(&self, block: &Block, first: usize, words: u64) -> BitWords {
        let start = self.block_offset(block) + first as u64 * 8;
        let end = self.block_offset(block) + BLOCK_BYTES as u64;
        let words = (start..end).step_by(8).take(words as usize);
        words.map(|at| self.word64(at).load(Ordering::Relaxed)).collect()
    }

    /// Reads bytes of a block, from its word `first` on, as far as the block goes.
    pub(crate) fn read_block(&self, block: &Block, first: usize, bytes: usize) -> Vec<u8> {
        let room = BLOCK_BYTES - (first * 8).min(BLOCK_BYTES);
        let bytes = bytes.min(room);
        let start = self.block_offset(block) + first as u64 * 8;
        let words = (start..).step_by(8).take(bytes.div_ceil(8));
        let mut out: Vec<u8> =
            words.flat_map(|at| self.word64(at).load(Ordering::Relaxed).to_le_bytes()).collect();
        out.truncate(bytes);
        out
    }
}
