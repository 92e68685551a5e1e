//! From a fault to a plan: who needs which pages, and what is brought along.

pub(crate) mod batch;
pub(crate) mod contest;
pub(crate) mod follow;
pub(crate) mod group;
pub(crate) mod host;
pub(crate) mod open;
pub(crate) mod prefetch;
pub(crate) mod proposals;
pub(crate) mod thrash;

#[cfg(test)]
mod whole_blocks;
