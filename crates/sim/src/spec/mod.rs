//! The machine's specification: every number of the timing model, with its source.
//!
//! A specification is immutable and read from TOML. A key that is left out has the value of the
//! preset `grit-table-1`: the machine of Table I of the GRIT paper. What that table does not give
//! is marked *assumed* or carries another source; none of it is fitted to a workload.
//!
//! A file has one part of the machine, with the keys of its sections of the TOML.

use std::path::Path;

use farside_types::Span;
use serde::{Deserialize, Serialize};

use crate::SpecError;

mod cache;
mod checks;
mod engine;
mod gpu;
mod host;
mod link;
mod orders;
mod presets;
mod reports;
mod sources;
mod store;
mod translation;

pub use cache::CacheSpec;
pub use engine::{EngineMode, EngineSpec};
pub use gpu::{CapacityOf, Constants, Dispatch, GpuSpec};
pub use host::{DriverSpec, HostSpec};
pub use link::{CopySpec, LinkSpec};
pub use orders::{CommandSpec, Far, FlushMode, FlushSpec, Told, Until};
pub use reports::{CounterSpec, FaultSpec};
pub use store::{StoreMode, StoreSpec};
pub use translation::{PageSpec, TlbSpec, WalkSpec};

/// A machine: a host and GPUs of one kind, every GPU linked to every other and to the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spec {
    /// The GPUs.
    pub gpu: GpuSpec,
    /// Translation lookaside buffers.
    pub tlb: TlbSpec,
    /// Page table walks.
    pub walk: WalkSpec,
    /// Pages.
    pub page: PageSpec,
    /// Caches.
    pub cache: CacheSpec,
    /// Links.
    pub link: LinkSpec,
    /// The GPUs' command rings.
    pub command: CommandSpec,
    /// Page copies.
    pub copy: CopySpec,
    /// The driver's processor on the host.
    pub host: HostSpec,
    /// Fault buffers of the GPUs.
    pub fault: FaultSpec,
    /// What an invalidation waits for.
    pub flush: FlushSpec,
    /// Stores to pages that others have copies of.
    pub store: StoreSpec,
    /// Access counters.
    pub counter: CounterSpec,
    /// What the driver does besides its placement scheme.
    pub driver: DriverSpec,
    /// How the simulator itself works.
    pub engine: EngineSpec,
}

impl Spec {
    /// What an access of a GPU to another memory takes, the longer of the two ways: over the link and back, and the
    /// memory there.
    pub fn far_access(&self) -> Span {
        let LinkSpec { nvlink_ns, pcie_ns, host_memory_ns, .. } = self.link;
        let host = 2 * pcie_ns + host_memory_ns;
        Span::from_nanos(host.max(2 * nvlink_ns + self.gpu.memory_ns))
    }

    /// Reads TOML. Keys that are left out have the value of `grit-table-1`.
    ///
    /// # Errors
    /// [`SpecError`] that names the key: unknown keys, wrong types, values that cannot work.
    pub fn from_toml(text: &str) -> Result<Spec, SpecError> {
        let spec: Spec = toml::from_str(text)?;
        spec.check()?;
        Ok(spec)
    }

    /// Reads a TOML file.
    ///
    /// # Errors
    /// [`SpecError`] that names the file or the key.
    pub fn open(path: &Path) -> Result<Spec, SpecError> {
        let unreadable = |source| SpecError::Read { path: path.to_owned(), source };
        Spec::from_toml(&std::fs::read_to_string(path).map_err(unreadable)?)
    }

    /// The whole specification as TOML, as it is written beside results.
    pub fn to_toml(&self) -> String {
        // Plain tables of integers and booleans: serialising them has no way to fail.
        toml::to_string(self).unwrap_or_default()
    }

    /// log2 of the lines of a page.
    pub(crate) fn page_lines_shift(&self) -> u32 {
        self.page.bytes.trailing_zeros() - 6
    }

    /// The GPUs.
    pub(crate) fn gpus(&self) -> usize {
        self.gpu.count as usize
    }

    /// A number of cycles as a span.
    pub(crate) fn cycles(&self, cycles: u64) -> Span {
        Span(cycles * 1_000_000 / u64::from(self.gpu.clock_mhz))
    }

    /// A span as whole cycles of the GPUs' clock.
    pub(crate) fn in_cycles(&self, span: Span) -> u64 {
        (u128::from(span.0) * u128::from(self.gpu.clock_mhz) / 1_000_000) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_beside_a_result_reads_back_as_the_same() {
        let mut spec = Spec::default();
        spec.gpu.capacity_percent = Some(70);
        spec.link.nvlink_ns = 777;
        assert_eq!(Spec::from_toml(&spec.to_toml()).unwrap(), spec);
        assert_eq!(Spec::from_toml(&Spec::default().to_toml()).unwrap(), Spec::default());
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Spec::open(Path::new("no/such/machine.toml")).unwrap_err().to_string();
        assert!(error.contains("no/such/machine.toml"), "{error}");
    }

    #[test]
    fn cycles_are_of_the_clock() {
        let spec = Spec::from_toml("[gpu]\nclock_mhz = 2000").unwrap();
        assert_eq!(spec.cycles(10), Span::from_nanos(5));
        assert_eq!(spec.in_cycles(Span::from_nanos(5)), 10);
    }
}
