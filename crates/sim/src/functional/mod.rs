//! Functional replay: a workload's accesses in a fixed order, one at a time, without time.
//!
//! The driver of `farside-svm` serves every fault and every notice at once, and all that it orders
//! is done before the next access. What a placement scheme does is then fixed by its definition
//! alone, down to the number of faults, migrations and remote accesses: an oracle for tests, for
//! other simulators, and for schemes under development.
//!
//! # What is fixed
//!
//! - The order of the accesses: [`farside_workloads::order`].
//! - Before the first access the CPU has written every page, so all pages are on the host.
//! - An access to a page that the GPU has not mapped is a local fault; a write to one that it may
//!   only read is a protection fault. Then the driver decides, the page is mapped, and the access
//!   is carried out.
//! - Every access that reaches another memory than the GPU's own counts for the group of pages
//!   (64 KiB); the 256th since the last notice is one (GRIT, section II-B2). There are no caches:
//!   each access counts.
//! - Buffers of which every GPU has its own copy
//!   ([`BufferKind::Launch`](farside_workloads::BufferKind::Launch): code, arguments, queue packets) are left
//!   out: no access to them counts, and the driver never hears of one ([`shared_accesses`]).
//! - Pages are 4 KiB. No prefetch, no answer to thrashing, no clean copies on the host other than
//!   those of duplication.
//! - A GPU holds all pages, unless [`Options::capacity_percent`] says otherwise.
//! - The clock that schemes see counts accesses, one nanosecond each. The uniform schemes do not
//!   look at it.

mod error;
mod machine;
mod report;

#[cfg(test)]
mod tests;

pub use error::ReplayError;
pub use report::{Counts, PageCounts, Report, Table};

use farside_svm::PlacementScheme;
use farside_svm::placement::Costs;
use farside_workloads::Workload;
use farside_workloads::order::shared_accesses;

use crate::scheme;
use machine::Machine;

/// What a functional replay is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// GPUs; `None`: as many as the workload was recorded on, or 4.
    pub gpus: Option<u32>,
    /// Compute units of each GPU.
    pub units: u32,
    /// Pages that a GPU holds, in percent of the workload's pages; `None`: all.
    pub capacity_percent: Option<u32>,
    /// Remote accesses to a group that make a notice.
    pub counter_threshold: u32,
    /// Pages of a group of the access counters, a power of two.
    pub counter_group_pages: u32,
    /// Count for every page as well.
    pub per_page: bool,
    /// What the scheme is told of costs.
    pub costs: Option<Costs>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            gpus: None,
            units: 64,
            capacity_percent: None,
            counter_threshold: 256,
            counter_group_pages: 16,
            per_page: false,
            costs: None,
        }
    }
}

impl Options {
    /// The GPUs of a replay of `workload`.
    pub fn gpus_for(&self, workload: &dyn Workload) -> u32 {
        const GPUS: u32 = 4;
        self.gpus.unwrap_or(match workload.gpus() {
            0 => GPUS,
            recorded => recorded,
        })
    }
}

/// Replays a workload under the scheme of this name ([`scheme::by_name`]).
///
/// # Errors
/// [`ReplayError`]: an unknown scheme, an option that cannot be, an access beyond the workload's
/// buffers, a scheme that leaves an access without its page.
pub fn replay(
    workload: &dyn Workload,
    scheme: &str,
    options: &Options,
) -> Result<Report, ReplayError> {
    let placement = scheme::by_name(scheme)?;
    replay_with(workload, placement, options, |_| ())
}

/// Replays a workload under any scheme. `progress` gets the number of accesses so far, every
/// 65536.
///
/// # Errors
/// [`ReplayError`]: an option that cannot be, an access beyond the workload's buffers, a scheme that
/// leaves an access without its page.
pub fn replay_with(
    workload: &dyn Workload,
    placement: Box<dyn PlacementScheme>,
    options: &Options,
    mut progress: impl FnMut(u64),
) -> Result<Report, ReplayError> {
    const PROGRESS_EVERY: u64 = 1 << 16;
    let scheme = placement.name();
    let gpus = options.gpus_for(workload);
    let mut machine = Machine::new(workload, placement, options)?;
    let mut launch = None;
    for (number, access) in (0..).zip(shared_accesses(workload, gpus, options.units)) {
        if number % PROGRESS_EVERY == 0 {
            progress(number);
        }
        if launch != Some(access.launch) {
            machine.begin_launch(u64::from(access.launch))?;
            launch = Some(access.launch);
        }
        machine.access(access)?;
    }
    machine.finish(scheme)
}
