//! The simulated machine of Farside: the same driver, in virtual time.
//!
//! A [`Workload`](farside_workloads::Workload) says what the wavefronts of a program do: a recorded
//! trace, or one
//! that is generated. A [`Spec`] says what the machine is like. A [`Simulation`] runs the program
//! on that machine under the driver of
//! `farside-svm` with one placement scheme and gives an [`Outcome`]; [`compare`] does so for
//! several schemes. Nothing but the driver decides where a page goes, and it is the same code
//! that serves a live program.
//!
//! ```
//! use std::sync::Arc;
//! use farside_sim::{Spec, compare};
//! use farside_workloads::{Trace, Workload};
//!
//! // A recorded trace: Trace::open(path) reads NAME.bin.zst and the NAME.json beside it.
//! let trace: Arc<dyn Workload> = Arc::new(Trace::bundled("mm")?);
//! // The machine of the GRIT paper's Table I, with two values changed.
//! let spec = Spec::preset("grit-table-1")?
//!     .with_overrides(&[("gpu.capacity_percent", "70"), ("link.pcie_gb_per_s", "16")])?;
//!
//! let schemes = ["on-touch", "access-counter", "duplication"];
//! let comparison = compare(&spec, &trace, &schemes, |scheme, progress| {
//!     eprint!("\r{scheme}: {:.0} %", progress.percent());
//! })?;
//!
//! println!("{comparison}"); // a table, a column per scheme
//! let json = comparison.to_json(); // every counter, and the machine it ran on
//! # assert!(json.contains("\"capacity_percent\": 70"));
//! // The pages that all GPUs read are best copied to each of them.
//! assert!(comparison.speedups()[2] > 1.0);
//! # Ok::<(), farside_sim::SimError>(())
//! ```
//!
//! # The parts
//!
//! | what | where |
//! |---|---|
//! | machines: presets, TOML files, single values by key | [`Spec::PRESETS`], [`Spec::open`], [`Spec::with_overrides`], [`Spec::keys`] |
//! | programs: recorded traces, generated ones | the crate [`farside_workloads`] |
//! | schemes: by name, or one of your own | [`SCHEMES`], [`scheme`], [`Simulation::new`], [`Simulation::with_placement`] |
//! | watching a run: page histories, traces, series | [`Simulation::observe`], [`observers`] |
//! | who shares pages, without a machine | [`analysis`] |
//! | replay without time | [`functional`] |
//! | results: a table (`Display`), JSON, numbers | [`Outcome`], [`Comparison`] |
//!
//! # What is modelled
//!
//! Per GPU: compute units with resident wavefronts that issue coalesced lines, stall on their own
//! loads and retire; vector, scalar and instruction caches, an L2 cache in banks,
//! memory in channels; two levels of TLBs, a page walk cache, a walk queue and walkers; access
//! counters; a fault buffer; a command ring, whose invalidations drain and flush. Between them:
//! links with latency and bandwidth, a port per direction. On the host: the driver's processor,
//! which takes one batch of faults at a time, and the CPU's page table. What a value is and where
//! it comes from is written beside it in [`Spec`].
//!
//! Time is in integer picoseconds and every event has its place in one order, so a run repeats
//! itself to the bit. A coherence checker can watch: each access must see the page's newest
//! version in a frame that is the page's own. It never changes a result, and is on in builds with
//! debug assertions.
//!
//! This crate owns time and the timing model; it owns no policy, and programs are given to it.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod cards;
mod coherence;
mod error;
pub mod functional;
mod gpu;
mod links;
mod machine;
pub mod observe;
pub mod observers;
mod overrides;
mod pump;
pub mod scheme;
pub mod screen;
mod simulation;
mod spec;
mod state;
pub mod stats;
pub mod theory;
pub mod time;

pub use error::{SimError, SpecError, StateError};
pub use simulation::{Progress, SCHEMES, Simulation, Stop, compare};
pub use spec::{
    CacheSpec, CapacityOf, CommandSpec, Constants, CopySpec, CounterSpec, Dispatch, DriverSpec,
    EngineMode, EngineSpec, Far, FaultSpec, FlushMode, FlushSpec, GpuSpec, HostSpec, LinkSpec,
    PageSpec, Spec, StoreMode, StoreSpec, TlbSpec, Told, Until, WalkSpec,
};
pub use stats::{Comparison, GpuCounts, Outcome};
