//! The words of Farside as types: addresses, pages, ranges, identifiers, rights and reasons, and the lists
//! that they travel in.
//!
//! This crate owns no behaviour beyond arithmetic that cannot overflow silently. Every other
//! crate speaks in these types, so that a page number is never taken for a frame number.

mod address;
mod error;
mod hash;
mod ids;
mod list;
mod range;
mod reason;
mod rights;
mod time;

pub use address::{
    BLOCK_PAGES, BLOCK_SIZE, BlockNo, FrameNo, GROUP_PAGES, GROUP_SIZE, PAGE_SHIFT, PAGE_SIZE,
    PageNo, VirtAddr,
};
pub use error::CancelReason;
pub use hash::{IndexHasher, IndexMap};
pub use ids::{
    AgentId, AgentSet, Asid, CardId, CommandId, Epoch, FaultId, JobId, MAX_CARDS, MemoryId,
    MemorySet, PeId, RequestId, StreamId,
};
pub use list::{List, Shelf, Shelved};
pub use range::{PageRange, RangeError};
pub use reason::Reason;
pub use rights::{Access, Rights};
pub use time::{Span, Time};
