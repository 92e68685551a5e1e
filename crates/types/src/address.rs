//! Virtual addresses, pages, blocks and frames.

use core::fmt;

use serde::{Deserialize, Serialize};

/// log2 of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
/// Bytes in a page: 4 KiB, the unit of every table.
pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;
/// Bytes in a block: 2 MiB, the unit of prefetch and of huge mappings.
pub const BLOCK_SIZE: usize = 2 << 20;
/// Pages in a block.
pub const BLOCK_PAGES: u64 = (BLOCK_SIZE / PAGE_SIZE) as u64;
/// Bytes in a group: 64 KiB, the unit of access counters (GRIT, section II-B2).
pub const GROUP_SIZE: usize = 64 << 10;
/// Pages in a group.
pub const GROUP_PAGES: u64 = (GROUP_SIZE / PAGE_SIZE) as u64;

/// A byte address in the shared virtual address space, the same on the host and on every card.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct VirtAddr(pub u64);

impl VirtAddr {
    /// The page that holds this address.
    pub const fn page(self) -> PageNo {
        PageNo(self.0 >> PAGE_SHIFT)
    }

    /// Offset in bytes within the page.
    pub const fn page_offset(self) -> usize {
        (self.0 as usize) & (PAGE_SIZE - 1)
    }

    /// The address `bytes` further on, or `None` past the end of the 64-bit space.
    pub const fn checked_add(self, bytes: u64) -> Option<VirtAddr> {
        match self.0.checked_add(bytes) {
            Some(sum) => Some(VirtAddr(sum)),
            None => None,
        }
    }
}

impl fmt::Debug for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A virtual page number: a virtual address divided by [`PAGE_SIZE`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct PageNo(pub u64);

impl PageNo {
    /// The address of the first byte.
    pub const fn addr(self) -> VirtAddr {
        VirtAddr(self.0 << PAGE_SHIFT)
    }

    /// The block that holds this page.
    pub const fn block(self) -> BlockNo {
        BlockNo(self.0 / BLOCK_PAGES)
    }

    /// The page `count` pages further on.
    ///
    /// # Panics
    /// In debug builds on overflow; callers add within a checked [`crate::PageRange`].
    pub const fn offset(self, count: u64) -> PageNo {
        PageNo(self.0 + count)
    }

    /// This page rounded down to a multiple of `pages` (a power of two).
    pub const fn align_down(self, pages: u64) -> PageNo {
        debug_assert!(pages.is_power_of_two());
        PageNo(self.0 & !(pages - 1))
    }
}

impl fmt::Debug for PageNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {:#x}", self.0)
    }
}

impl fmt::Display for PageNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A block number: a virtual address divided by [`BLOCK_SIZE`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct BlockNo(pub u64);

impl BlockNo {
    /// The first page of the block.
    pub const fn first_page(self) -> PageNo {
        PageNo(self.0 * BLOCK_PAGES)
    }
}

/// A frame: a page-sized slot of one memory, counted from 0 in that memory.
///
/// The host's frames are identical to the pages of the space: frame `n` of the host is the slot of
/// the `n`th page of the space in its backing file. A card's frames are handed out by the driver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct FrameNo(pub u32);

impl FrameNo {
    /// The frame `count` frames further on.
    pub const fn offset(self, count: u32) -> FrameNo {
        FrameNo(self.0 + count)
    }

    /// Offset in bytes from the start of the memory.
    pub const fn byte_offset(self) -> usize {
        (self.0 as usize) << PAGE_SHIFT
    }
}

impl fmt::Debug for FrameNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {}", self.0)
    }
}
