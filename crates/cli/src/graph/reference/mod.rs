//! The demo's algorithms on one host thread, in the plainest way: what cards compute must equal this.
//!
//! Everything here is deterministic to the last bit. Where a result depends on the order of
//! floating-point additions, that order is part of the documentation.

mod bfs;
mod chase;
mod pagerank;

pub use bfs::{BfsSource, UNREACHED, best_source, bfs_levels};
pub use chase::{CHASE_CHECKSUM_START, SplitMix64, chase_checksum, chase_cycle, chase_step};
pub use pagerank::{PageRank, pagerank, pagerank_base};
