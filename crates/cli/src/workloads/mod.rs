//! The demo's workloads: breadth-first search, PageRank and a pointer chase on shared memory.
//!
//! This module owns the kernels, the shared data structures they work on and their comparison with
//! [`farside_cli::graph::reference`]. It prints nothing and reads no file.
//!
//! The vertices are cut into one part per card ([`parts`]). A card works on its own part and hands
//! vertices of other parts over by mail ([`mail`]): memory that one card writes and the next reads.
//!
//! The kernels have names ([`kernels()`]), so that they also run on cards that are processes: all
//! that they know comes as values and in shared memory.

mod bfs_csr;
mod bfs_linked;
mod chase;
mod csr;
mod difference;
mod kernels;
mod linked;
mod mail;
mod pagerank;
mod parts;
mod segments;
mod session;

pub(crate) use bfs_csr::{Levels, bfs_csr};
pub(crate) use bfs_linked::bfs_linked;
pub(crate) use chase::{Chase, chase};
pub(crate) use csr::SharedCsr;
pub(crate) use difference::Difference;
pub(crate) use kernels::kernels;
pub(crate) use linked::LinkedGraph;
pub(crate) use mail::Mail;
pub(crate) use pagerank::{Ranks, pagerank};
pub(crate) use parts::Parts;
pub(crate) use segments::{Budget, contiguous};
pub(crate) use session::{Mode, Session};

#[cfg(test)]
mod tests;
