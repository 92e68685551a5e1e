//! Why a fault is answered with an error instead of memory.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::CardId;

/// Why the driver cancelled a fault. The job that raised it fails with this.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CancelReason {
    /// No allocation holds the address.
    Unallocated,
    /// The allocation was freed while the access waited.
    Freed,
    /// A write to memory that cards may only read.
    ReadOnly,
    /// The page was on a card that is gone.
    Lost,
    /// The copy failed as often as a copy is tried.
    CopyFailed,
    /// A kernel on this card does not let one of the pages go.
    Held(CardId),
    /// The card's memory is full of pages that may not leave it.
    OutOfMemory,
    /// One grouped fault asks for more pages than may be resident together.
    GroupTooLarge,
    /// The card itself is gone.
    CardLost(CardId),
    /// Too many faults are open at once.
    TooManyFaults,
    /// The page is pinned to the host, whose memory this card cannot map.
    PinnedElsewhere,
    /// The page is of adopted memory, and the host does not let it go.
    HostKeeps,
    /// The page is of a card's own window, allocated lazily, and its memory has no frame left.
    WindowFull,
}

impl fmt::Display for CancelReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CancelReason::Unallocated => f.write_str("no allocation holds this address"),
            CancelReason::Freed => f.write_str("the allocation was freed during the access"),
            CancelReason::ReadOnly => f.write_str("cards may only read this allocation"),
            CancelReason::Lost => f.write_str("the page was on a card that is gone"),
            CancelReason::CopyFailed => f.write_str("the copy of the page failed repeatedly"),
            CancelReason::Held(card) => {
                write!(f, "a kernel on {card} does not let one of the pages go; cancel it, or wait")
            }
            CancelReason::OutOfMemory => {
                f.write_str("the card's memory is full of pages that are pinned or in use")
            }
            CancelReason::GroupTooLarge => f.write_str(
                "the ranges asked for together exceed what may be resident at once; ask for less",
            ),
            CancelReason::CardLost(card) => write!(f, "{card} is gone"),
            CancelReason::TooManyFaults => f.write_str("too many faults are open at once"),
            CancelReason::HostKeeps => f.write_str(
                "the page is of adopted memory and stays on the host: a device of the program's has it pinned \
                 (O_DIRECT, io_uring), it is locked (mlock), or its rights are not read and write (mprotect)",
            ),
            CancelReason::WindowFull => f.write_str(
                "the page was allocated lazily, and the card's own memory for it has no free page left; free some, \
                 give the card more, or allocate eagerly, which is refused at once",
            ),
            CancelReason::PinnedElsewhere => f.write_str(
                "the page is pinned to the host, and this card does not reach the host's memory; \
                 unpin it first",
            ),
        }
    }
}
