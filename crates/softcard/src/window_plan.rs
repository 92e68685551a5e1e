//! The sizes of a software card's own window: what follows from how much memory it has.

use farside_card::window::{AllocatorConfig, WindowGeometry, WindowGeometryError};
use farside_types::PAGE_SIZE;

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

/// A window over so many frames. Its pages come from memory 0, its tables have memory 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowPlan {
    frames: u32,
    pages_bits: u32,
}

impl WindowPlan {
    /// A window over `frames` frames; `None`: they are more than [`WINDOW_FRAMES_MAX`].
    pub fn new(frames: u32) -> Option<WindowPlan> {
        if frames > WINDOW_FRAMES_MAX {
            return None;
        }
        let wanted = frames.next_power_of_two().trailing_zeros() + SPARE_BITS;
        Some(WindowPlan { frames, pages_bits: wanted.clamp(PAGES_BITS.0, PAGES_BITS.1) })
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
        Ok(AllocatorConfig {
            geometry: WindowGeometry::new(PAGE_BITS, &levels, PAGE_BITS + u32::BITS)?,
            base,
            memories: vec![self.frames, self.table_frames()],
            tables: 1,
            ready_tables: READY_TABLES,
        })
    }
}
