//! What a program may ask about its memory.

use std::sync::Arc;

use farside_types::{AgentSet, FrameNo, MemoryId, MemorySet, PageNo, PageRange, Reason, Time};
use serde::{Deserialize, Serialize};

use crate::PageState;

/// An allocation's number; never used twice.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct ObjectId(pub u32);

/// All the driver knows of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageView {
    /// The state.
    pub state: PageState,
    /// Where it is; `None` for pages that are nowhere.
    pub owner: Option<MemoryId>,
    /// The frame there. For the host: the page's index in the arena.
    pub frame: FrameNo,
    /// Memories with a valid copy.
    pub copies: MemorySet,
    /// Agents that have it mapped.
    pub mappers: AgentSet,
    /// Agents that may write it.
    pub writers: AgentSet,
    /// Whether the program pinned it.
    pub pinned: bool,
}

/// A part of a range whose pages are in the same place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// The pages.
    pub range: PageRange,
    /// Their state.
    pub state: PageState,
    /// Where they are; `None` for fresh, lost and unallocated ones.
    pub owner: Option<MemoryId>,
    /// Memories with a valid copy.
    pub copies: MemorySet,
    /// Why they came there last, if the history still knows.
    pub reason: Option<Reason>,
}

/// One move, as the history keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// When it was finished.
    pub at: Time,
    /// The pages.
    pub range: PageRange,
    /// Source; `None` if the pages were fresh.
    pub from: Option<MemoryId>,
    /// Destination.
    pub to: MemoryId,
    /// Why.
    pub reason: Reason,
}

/// An allocation, for reports and for error messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectView {
    /// Its number.
    pub id: ObjectId,
    /// Its name; may be empty.
    pub name: Arc<str>,
    /// Its pages.
    pub range: PageRange,
    /// Bytes asked for.
    pub bytes: u64,
    /// Pages moved within it so far.
    pub pages_moved: u64,
}

/// The allocation next to an address, for the message about a wild one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nearest {
    /// The allocation.
    pub object: ObjectView,
    /// Bytes from the allocation to the address: negative before it, 0 inside, positive past it.
    pub distance: i128,
}

/// A range that agents fought over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fight {
    /// The page.
    pub page: PageNo,
    /// Those who fought.
    pub agents: AgentSet,
    /// Times a fault on it had to wait.
    pub throttles: u32,
    /// Times it was pinned.
    pub pins: u32,
}
