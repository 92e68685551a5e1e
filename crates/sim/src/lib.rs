//! The simulated machine of Farside: the same driver, in virtual time.
//!
//! A [`Trace`] says what the compute units of several GPUs accessed; a [`Spec`] says what the
//! machine is like. A [`Simulation`] replays the trace on that machine under the driver of
//! `farside-svm` with one placement scheme and gives an [`Outcome`]; [`compare`] does so for
//! several schemes. Nothing but the driver decides where a page goes, and it is the same code
//! that serves a live program.
//!
//! ```no_run
//! use std::{path::Path, sync::Arc};
//! use farside_sim::{Spec, Trace, compare};
//!
//! let spec = Spec::preset("grit-table-1")?;
//! let trace = Arc::new(Trace::open(Path::new("mm.timing.bin.zst"))?);
//! let schemes = ["on-touch", "access-counter", "duplication"];
//! println!("{}", compare(&spec, &trace, &schemes, |_, _| ())?);
//! # Ok::<(), farside_sim::SimError>(())
//! ```
//!
//! Time is in integer picoseconds and every event has its place in one order, so a run repeats
//! itself to the bit. This crate owns time, the timing model and the reading of traces; it owns no
//! policy. Caches, walk caches and the compute between accesses are not modelled yet.
#![forbid(unsafe_code)]

mod coherence;
mod error;
mod gpu;
mod links;
mod machine;
mod simulation;
mod spec;
mod stats;
pub mod time;
mod trace;

pub use error::{SimError, SpecError, TraceError};
pub use simulation::{Progress, Simulation, compare};
pub use spec::{
    CommandSpec, CopySpec, CounterSpec, DriverSpec, GpuSpec, HostSpec, LinkSpec, Spec, TlbSpec,
    WalkSpec,
};
pub use stats::{Comparison, GpuCounts, Outcome};
pub use trace::{Access, Allocation, Trace};
