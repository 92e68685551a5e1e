//! Why the card refuses a mapping or an access.

use farside_types::{FrameNo, JobId, MemoryId, PageNo, PeId};
use thiserror::Error;

use crate::need::NeedError;
use crate::{PAGES_MAX, PeState};

/// Why a mapping was refused. Nothing of the command was inserted.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum MapError {
    /// A run of nothing.
    #[error("the run at {page} has no page; leave empty runs out")]
    Empty {
        /// Where it would start.
        page: PageNo,
    },
    /// Pages that a card cannot translate.
    #[error(
        "{count} pages from {page} on end beyond {PAGES_MAX:#x}, the last page a card can \
         translate; map lower addresses"
    )]
    BeyondAddressSpace {
        /// First page.
        page: PageNo,
        /// Number of pages.
        count: u32,
    },
    /// Frames that the memory does not have.
    #[error(
        "{count} frames from {frame:?} of {memory} on do not exist: it has {frames}; \
         the frame allocator and the card disagree about its size"
    )]
    BeyondMemory {
        /// The memory.
        memory: MemoryId,
        /// First frame.
        frame: FrameNo,
        /// Number of frames.
        count: u32,
        /// Frames that the memory has, as far as the card knows.
        frames: u64,
    },
}

/// Why a fault was not taken.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RaiseError {
    /// The access makes no sense.
    #[error(transparent)]
    Need(#[from] NeedError),
    /// There is no such processing element.
    #[error("this card has {pes} processing elements and no {pe}; use a lower number")]
    NoSuchPe {
        /// The number given.
        pe: PeId,
        /// How many there are.
        pes: usize,
    },
    /// The processing element does not run this job, or stands in another fault.
    #[error(
        "{pe} cannot fault for {job}: it is {state:?}; only a running job faults, once at a time"
    )]
    NotRunning {
        /// The processing element.
        pe: PeId,
        /// The job given.
        job: JobId,
        /// What the processing element does.
        state: PeState,
    },
    /// It still holds memory; if it waited now, two kernels could wait for each other for ever.
    #[error("{pe} still holds memory it acquired; end that access before it faults again")]
    HoldsMemory {
        /// The processing element.
        pe: PeId,
    },
}

/// Why memory was not acquired.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum AcquireError {
    /// A page has no translation with these rights: raise a fault.
    #[error("not every page is resident with the rights asked for; raise a fault for all of them")]
    NotResident,
    /// The access makes no sense.
    #[error(transparent)]
    Need(#[from] NeedError),
    /// There is no such processing element.
    #[error("this card has {pes} processing elements and no {pe}; use a lower number")]
    NoSuchPe {
        /// The number given.
        pe: PeId,
        /// How many there are.
        pes: usize,
    },
    /// Accesses do not nest.
    #[error("{pe} still holds memory it acquired; end that access first, accesses do not nest")]
    HoldsMemory {
        /// The processing element.
        pe: PeId,
    },
}

/// A copy or a fill failed; nothing of it is in flight any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the transfer failed after {pages_done} pages; the source is unchanged, try again")]
pub struct TransferFailed {
    /// Pages finished before the failure.
    pub pages_done: u32,
}
