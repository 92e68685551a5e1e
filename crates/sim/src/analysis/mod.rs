//! What a workload's accesses look like before any machine runs them: who shares which pages, and
//! who writes them. The GRIT paper's Figures 4 to 10 show these numbers.
//!
//! There is no time here. Where the paper divides a run into intervals of cycles, these are
//! intervals of equal numbers of accesses, in the order of [`farside_workloads::order::accesses`].

mod choose;
mod over_time;
mod sharing;
mod text;

pub use over_time::{Attributes, PageOverTime};
pub use sharing::{Extent, Kind, Share, Sharing, SharingOptions, Touch};
