//! The sizes of a software card's own window: what follows from how much memory it has.

use farside_card::interface::{MemoryKind, register};
use farside_card::window::{AllocatorConfig, WindowGeometry, WindowGeometryError};
use farside_types::PAGE_SIZE;
use thiserror::Error;

use crate::own_memory::{OwnMemoryId, memory_name};

const PAGE_BITS: u32 = PAGE_SIZE.trailing_zeros();
/// Pages of a region, as a power of two: allocations that are larger are made of whole regions.
const REGION_BITS: u32 = 13;
/// So many times as many addresses as there is memory, as a power of two: what grows reserves twice what it has.
const SPARE_BITS: u32 = 4;
/// Pages of a window at least and at most, as powers of two: 4 GiB and 4 TiB.
const PAGES_BITS: (u32, u32) = (20, 30);
/// Frames of the tables of one region, and of what there is for each region; of the rest.
const TABLE_FRAMES: (u32, u32) = (17, 64);
/// Zeroed tables that are kept ready.
const READY_TABLES: u32 = 2;
/// Frames of a card's own memory at most: there is an address for each of them.
pub const WINDOW_FRAMES_MAX: u32 = 1 << PAGES_BITS.1;
/// Memories of a card's own at most: the tables have one more.
pub const WINDOW_MEMORIES_MAX: usize = register::MEMORIES_MAX as usize - 1;

/// One of the memories that a card has for its own window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowMemory {
    /// What it is.
    pub kind: MemoryKind,
    /// Its frames.
    pub frames: u32,
}

/// A window over these memories. Its tables have one of their own behind them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WindowPlan {
    memories: Vec<WindowMemory>,
    pages_bits: u32,
}

/// Why a card cannot have such memories for its own window.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum WindowPlanError {
    /// Too many of them, or none.
    #[error(
        "a card has 1 to {WINDOW_MEMORIES_MAX} memories of its own, not {0}; join some of them"
    )]
    Count(usize),
    /// One without a page.
    #[error("{0} has no page; leave it out, or give it a multiple of {PAGE_SIZE} bytes")]
    Empty(String),
    /// One that ends within a page.
    #[error(
        "{kind} has {bytes} bytes, which are no whole pages; give it a multiple of {PAGE_SIZE}"
    )]
    NotPages {
        /// What it is.
        kind: MemoryKind,
        /// Its bytes.
        bytes: u64,
    },
    /// Too much in all.
    #[error(
        "a card has at most 4 TiB of its own memory in all, not {} bytes; give it less",
        .0 << PAGE_BITS
    )]
    TooLarge(u64),
}

impl WindowMemory {
    /// A memory of which nothing is said but how many frames it has.
    pub const fn plain(frames: u32) -> WindowMemory {
        WindowMemory { kind: MemoryKind::Plain, frames }
    }

    /// A memory of so many bytes.
    ///
    /// # Errors
    /// [`WindowPlanError::NotPages`], [`WindowPlanError::TooLarge`].
    pub fn of_bytes(kind: MemoryKind, bytes: u64) -> Result<WindowMemory, WindowPlanError> {
        if bytes % PAGE_SIZE as u64 != 0 {
            return Err(WindowPlanError::NotPages { kind, bytes });
        }
        let frames = bytes / PAGE_SIZE as u64;
        let frames = u32::try_from(frames).map_err(|_| WindowPlanError::TooLarge(frames))?;
        Ok(WindowMemory { kind, frames })
    }

    /// So many, as one memory; none if there is no frame.
    pub fn only(frames: u32) -> Vec<WindowMemory> {
        (frames > 0).then_some(WindowMemory::plain(frames)).into_iter().collect()
    }
}

/// Frames of memories together.
pub fn window_frames(memories: &[WindowMemory]) -> u64 {
    memories.iter().map(|memory| u64::from(memory.frames)).sum()
}

impl WindowPlan {
    /// A window over memories.
    ///
    /// # Errors
    /// [`WindowPlanError`].
    pub fn new(memories: &[WindowMemory]) -> Result<WindowPlan, WindowPlanError> {
        if !(1..=WINDOW_MEMORIES_MAX).contains(&memories.len()) {
            return Err(WindowPlanError::Count(memories.len()));
        }
        if let Some(empty) = memories.iter().position(|memory| memory.frames == 0) {
            let kinds: Vec<_> = memories.iter().map(|memory| memory.kind).collect();
            return Err(WindowPlanError::Empty(memory_name(&kinds, empty)));
        }
        let frames = window_frames(memories);
        if frames > WINDOW_FRAMES_MAX.into() {
            return Err(WindowPlanError::TooLarge(frames));
        }
        let wanted = frames.next_power_of_two().trailing_zeros() + SPARE_BITS;
        let pages_bits = wanted.clamp(PAGES_BITS.0, PAGES_BITS.1);
        Ok(WindowPlan { memories: memories.to_vec(), pages_bits })
    }

    /// Its memories.
    pub fn memories(&self) -> &[WindowMemory] {
        &self.memories
    }

    /// Where the frames of a memory begin among those of all of them.
    pub fn first_frame(&self, memory: OwnMemoryId) -> u32 {
        self.memories.iter().take(memory.0.into()).map(|memory| memory.frames).sum()
    }

    /// Pages of the window.
    pub fn pages(&self) -> u64 {
        1 << self.pages_bits
    }

    /// Bytes of the window: it begins at a multiple of them.
    pub fn bytes(&self) -> u64 {
        self.pages() << PAGE_BITS
    }

    fn regions(&self) -> u32 {
        1 << (self.pages_bits - REGION_BITS)
    }

    fn table_frames(&self) -> u32 {
        self.regions() * TABLE_FRAMES.0 + TABLE_FRAMES.1
    }

    /// Bytes of its tables, if all of it is allocated.
    pub fn table_bytes(&self) -> u64 {
        u64::from(self.table_frames()) << PAGE_BITS
    }

    /// Its allocator, where the window begins at `base`.
    ///
    /// # Errors
    /// There is no such window.
    pub fn allocator(&self, base: u64) -> Result<AllocatorConfig, WindowGeometryError> {
        let levels = [self.pages_bits - REGION_BITS, REGION_BITS];
        let frames = self.memories.iter().map(|memory| memory.frames);
        Ok(AllocatorConfig {
            geometry: WindowGeometry::new(PAGE_BITS, &levels, PAGE_BITS + u32::BITS)?,
            base,
            memories: frames.chain([self.table_frames()]).collect(),
            tables: self.memories.len() as u8,
            ready_tables: READY_TABLES,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_that_make_no_window_are_refused_and_say_which() {
        let of = |frames: &[u32]| {
            let memories: Vec<_> = frames.iter().map(|&it| WindowMemory::plain(it)).collect();
            WindowPlan::new(&memories)
        };
        assert_eq!(of(&[]), Err(WindowPlanError::Count(0)));
        assert_eq!(of(&[1; 16]), Err(WindowPlanError::Count(16)));
        let empty = of(&[1, 0]).unwrap_err().to_string();
        assert!(empty.starts_with("memory1 has no page"), "{empty}");
        let all = u64::from(WINDOW_FRAMES_MAX) + 1;
        assert_eq!(of(&[WINDOW_FRAMES_MAX, 1]), Err(WindowPlanError::TooLarge(all)));
        assert!(of(&[WINDOW_FRAMES_MAX]).is_ok());
        let plan = of(&[1; 15]).unwrap();
        let config = plan.allocator(0).unwrap();
        assert_eq!((config.memories.len(), config.tables), (16, 15), "the tables' is the last");
        assert_eq!(plan.first_frame(OwnMemoryId(3)), 3);
    }
}
