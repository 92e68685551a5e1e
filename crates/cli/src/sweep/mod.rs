//! Sweeps: many runs of the simulator, each in a process of its own, and none of them twice.
//!
//! A [`Cell`] is one run: a workload or a trace, a scheme, a machine. [`Grid`] reads cells from a
//! TOML file. [`run`] carries them out, on this machine or on a Ray cluster, and puts each result
//! into a [`Cache`] under a hash of everything it depends on, so that a sweep that was ended in
//! any way goes on where it was. [`Table`] writes the results as JSON, CSV or Parquet.

mod cache;
mod cell;
mod child;
mod error;
mod grid;
mod pool;
mod ray;
mod table;

pub use cache::{Cache, Key};
pub use cell::{Cell, Program};
pub use child::{Answer, Failed, run_child};
pub use error::SweepError;
pub use grid::{Grid, parse_size};
pub use pool::{Finished, Options, Place, Progress, run, run_alone};
pub use table::Table;

#[cfg(test)]
pub(crate) use cache::tests::outcome as test_outcome;
