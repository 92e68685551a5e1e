//! The sizes of an allocator, and where its tables lie.

use thiserror::Error;

use super::super::WindowGeometry;
use super::super::geometry::WORD_SHIFT;
use super::word::RUN_SIZE_MAX;

/// Most bits of a region's pages: what a first word's count can say.
const LEAF_BITS_MAX: u32 = 15;
/// Most bits of the number of regions.
const REGION_BITS_MAX: u32 = 20;
const MEMORIES_MAX: usize = 16;
/// Words of a table at the least, so that a bitmap has whole words.
const BITMAP_WORD_BITS: u64 = 64;

/// What an allocator manages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllocatorConfig {
    /// The window's sizes.
    pub geometry: WindowGeometry,
    /// Where the window begins; aligned to its size.
    pub base: u64,
    /// Frames of each memory of the card, whose numbers are 0 to n-1: none of them is empty.
    pub memories: Vec<u32>,
    /// The memory that tables lie in. The root lies at its begin.
    pub tables: u8,
    /// Zeroed tables that are kept ready.
    pub ready_tables: u32,
}

/// Why there is no such allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AllocatorConfigError {
    /// Regions.
    #[error(
        "a table of the leaf level has at most 2^15 words, and there are at most 2^20 such tables"
    )]
    Regions,
    /// The base.
    #[error("the window begins at a multiple of its size")]
    Base,
    /// Memories.
    #[error(
        "there are 1 to 16 memories, each with a frame, and none with more than a frame's number can say"
    )]
    Memories,
    /// The tables' memory.
    #[error("the memory of the tables has too few frames for those that are always there")]
    Tables,
}

/// Where what is always there lies in the memory of the tables, in bytes.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) page_bits: u32,
    /// Bits of a page's number within its region.
    pub(super) leaf_bits: u32,
    pub(super) levels: usize,
    pub(super) regions: u64,
    /// Of each level above the leaves, from the root's on.
    pub(super) upper: Vec<u64>,
    /// Of the directory; of one level, of its table.
    pub(super) directory: u64,
    pub(super) bitmaps: u64,
    /// Frames from 0 on that all of this takes.
    pub(super) fixed_frames: u64,
}

impl Layout {
    pub(super) fn new(config: &AllocatorConfig) -> Result<Layout, AllocatorConfigError> {
        let geometry = &config.geometry;
        let levels = geometry.levels();
        let page_bits = geometry.page_bits();
        let pages_bits = geometry.window_bits() - page_bits;
        let leaf_bits = if levels == 1 { pages_bits } else { geometry.bits_below(levels - 2) };
        let region_bits = pages_bits - leaf_bits;
        if leaf_bits > LEAF_BITS_MAX || region_bits > REGION_BITS_MAX {
            return Err(AllocatorConfigError::Regions);
        }
        if config.base % (1 << geometry.window_bits()) != 0 {
            return Err(AllocatorConfigError::Base);
        }
        check_memories(config)?;
        let mut end = 0;
        let mut upper = Vec::new();
        for level in 0..levels.max(2) - 1 {
            // Tables of a level lie one behind the other; each is aligned to its size.
            let above = if level == 0 { 0 } else { pages_bits - geometry.bits_below(level - 1) };
            let words =
                if levels == 1 { leaf_bits } else { pages_bits - geometry.bits_below(level) };
            let begin = u64::next_multiple_of(end, 1 << (words - above + WORD_SHIFT));
            upper.push(begin);
            end = begin + (1 << (words + WORD_SHIFT));
        }
        let directory = upper[upper.len() - 1];
        let regions = 1 << region_bits;
        let bitmaps = end;
        let bitmap_words = u64::div_ceil(1 << leaf_bits, BITMAP_WORD_BITS);
        let end = bitmaps + ((regions * bitmap_words) << WORD_SHIFT);
        let fixed_frames = end.div_ceil(1 << page_bits);
        if fixed_frames > config.memories[usize::from(config.tables)].into() {
            return Err(AllocatorConfigError::Tables);
        }
        if levels == 1 {
            upper.clear();
        }
        Ok(Layout {
            page_bits,
            leaf_bits,
            levels,
            regions,
            upper,
            directory,
            bitmaps,
            fixed_frames,
        })
    }

    /// Pages of a region.
    pub(super) fn region_pages(&self) -> u64 {
        1 << self.leaf_bits
    }

    /// The longest run of frames that words of a table tell of, as a power of two.
    pub(super) fn run_size_max(&self) -> u32 {
        if self.levels == 1 { 0 } else { RUN_SIZE_MAX.min(self.leaf_bits) }
    }

    pub(super) fn region_of(&self, page: u64) -> u64 {
        page >> self.leaf_bits
    }

    pub(super) fn within(&self, page: u64) -> u64 {
        page & (self.region_pages() - 1)
    }

    /// Where a region's word of the directory lies.
    pub(super) fn directory_word(&self, region: u64) -> u64 {
        self.directory + (region << WORD_SHIFT)
    }

    /// Where a region's bitmap of places lies, and how many words it has.
    pub(super) fn bitmap(&self, region: u64) -> (u64, u64) {
        let words = self.region_pages().div_ceil(BITMAP_WORD_BITS);
        (self.bitmaps + ((region * words) << WORD_SHIFT), words)
    }
}

fn check_memories(config: &AllocatorConfig) -> Result<(), AllocatorConfigError> {
    let frames_max = 1u64 << config.geometry.frame_bits();
    let fits = |&frames: &u32| (1..=frames_max).contains(&frames.into());
    if config.memories.len() > MEMORIES_MAX || !config.memories.iter().all(fits) {
        return Err(AllocatorConfigError::Memories);
    }
    if usize::from(config.tables) < config.memories.len() {
        Ok(())
    } else {
        Err(AllocatorConfigError::Memories)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(levels: &[u32]) -> AllocatorConfig {
        let geometry = WindowGeometry::new(12, levels, 40).unwrap();
        AllocatorConfig { geometry, base: 0, memories: vec![1 << 20], tables: 0, ready_tables: 2 }
    }

    #[test]
    fn what_is_always_there_lies_one_behind_the_other() {
        let layout = Layout::new(&config(&[9, 9])).unwrap();
        assert_eq!((layout.directory, layout.bitmaps, layout.regions), (0, 4096, 512));
        assert_eq!((layout.bitmap(3), layout.fixed_frames), ((4096 + 3 * 64, 8), 9));
        let layout = Layout::new(&config(&[2, 9, 9])).unwrap();
        assert_eq!((&layout.upper[..], layout.bitmaps), (&[0, 4096][..], 5 * 4096));
        assert_eq!((layout.regions, layout.directory_word(513)), (2048, 4096 + 8 * 513));
        let layout = Layout::new(&config(&[9])).unwrap();
        assert_eq!((layout.regions, layout.directory, layout.bitmaps), (1, 0, 4096));
        assert!(layout.upper.is_empty());
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        use AllocatorConfigError::{Base, Memories, Regions, Tables};
        let check = |config: AllocatorConfig| Layout::new(&config).map(drop);
        assert_eq!(check(config(&[16])), Err(Regions));
        assert_eq!(check(config(&[12, 9, 9])), Err(Regions));
        assert_eq!(check(AllocatorConfig { base: 4096, ..config(&[9, 9]) }), Err(Base));
        assert_eq!(check(AllocatorConfig { memories: vec![], ..config(&[9, 9]) }), Err(Memories));
        assert_eq!(check(AllocatorConfig { tables: 1, ..config(&[9, 9]) }), Err(Memories));
        let empty = AllocatorConfig { memories: vec![1 << 20, 0], ..config(&[9, 9]) };
        assert_eq!(check(empty), Err(Memories));
        assert_eq!(check(AllocatorConfig { memories: vec![8], ..config(&[9, 9]) }), Err(Tables));
        let many = AllocatorConfig { memories: vec![1 << 29], ..config(&[9, 9]) };
        assert_eq!(check(many), Err(Memories));
    }
}
