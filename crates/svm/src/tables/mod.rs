//! What the driver knows: pages, frames, allocations, and where everything has been.

pub(crate) mod blocks;
pub(crate) mod frames;
pub(crate) mod history;
pub(crate) mod layout;
pub(crate) mod page;
pub(crate) mod page_table;
pub(crate) mod replacement;
pub(crate) mod residency;
pub(crate) mod sorted;
pub(crate) mod space;
