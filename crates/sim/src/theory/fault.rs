//! Faults of an idle driver: from the fault to its replay, and the first access to a page.

use farside_types::Span;

use super::bench::{Bench, group};
use super::latency::Parts;
use super::{Probe, Sum};
use crate::time::bytes_time;
use crate::{SimError, Spec};
use farside_workloads::Step;

/// Longer than any of these faults takes, in cycles.
const LONG: u32 = 100_000_000;

impl Parts<'_> {
    /// From the fault until the driver has handled it.
    fn reported(&self) -> Sum {
        let host = &self.0.host;
        Sum::default()
            .ns("host.interrupt_ns", host.interrupt_ns)
            .ns("host.batch_ns", host.batch_ns)
            .ns("host.fault_ns", host.fault_ns)
    }

    /// The CPU's mapping is taken away.
    fn host_unmapped(&self) -> Sum {
        let host = &self.0.host;
        Sum::default()
            .ns("host.operation_ns", host.operation_ns)
            .ns("host.operation_page_ns", host.operation_page_ns)
    }

    /// A GPU's mapping is taken away, and the driver knows it.
    fn gpu_unmapped(&self) -> Sum {
        let command = &self.0.command;
        Sum::default()
            .ns("command.submit_ns", command.submit_ns)
            .ns("command.base_ns", command.base_ns)
            .ns("command.invalidate_ns", command.invalidate_ns)
            .ns("command.page_ns", command.page_ns)
            .ns("command.complete_ns", command.complete_ns)
    }

    fn copied(&self, link: &str, gb_per_s: u64) -> Sum {
        Sum::default()
            .and(&format!("page.bytes / {link}"), bytes_time(self.0.page.bytes.into(), gb_per_s))
            .ns("copy.latency_ns", self.0.copy.latency_ns)
    }

    /// The page is mapped, and the fault replayed: two commands of the ring.
    fn mapped(&self) -> Sum {
        let command = &self.0.command;
        Sum::default()
            .ns("command.submit_ns", command.submit_ns)
            .and("2 × command.base_ns", Span::from_nanos(2 * command.base_ns))
            .ns("command.page_ns", command.page_ns)
    }

    /// The driver's own part of a migration, before its first command.
    fn decided(&self) -> Sum {
        Sum::default().ns("host.migration_ns", self.0.host.migration_ns)
    }

    /// A migration from the host.
    fn migrated_from_host(&self) -> Sum {
        let pcie = self.copied("link.pcie_gb_per_s", self.0.link.pcie_gb_per_s);
        self.reported()
            .plus(self.decided())
            .plus(self.host_unmapped())
            .plus(pcie)
            .plus(self.mapped())
    }

    fn migrated_from_gpu(&self) -> Sum {
        let nvlink = self.copied("link.nvlink_gb_per_s", self.0.link.nvlink_gb_per_s);
        self.reported()
            .plus(self.decided())
            .plus(self.gpu_unmapped())
            .plus(nvlink)
            .plus(self.mapped())
    }
}

pub(super) fn probes(spec: &Spec) -> Result<Vec<Probe>, SimError> {
    let bench = Bench::small(spec, "on-touch", 2);
    let parts = Parts(&bench.spec);
    let first_access = parts
        .walk(parts.levels())
        .plus(parts.migrated_from_host())
        .plus(parts.l1())
        .plus(parts.l2())
        .plus(parts.memory());
    let remote = Bench::small(spec, "access-counter:map-host=on", 2);
    Ok(vec![
        first_access.against("first load of a page", bench.cost(&[], &bench.load(0, 0))?),
        parts.migrated_from_host().against("fault, page from the host", waited(&bench)?),
        parts.migrated_from_gpu().against("fault, page from a running GPU", from_running(&bench)?),
        parts
            .reported()
            .plus(parts.mapped())
            .against("fault, host page mapped over the link", waited(&remote)?),
    ])
}

/// How long a fault takes for which everything is on the host.
fn waited(bench: &Bench) -> Result<Span, SimError> {
    let (without, with) = bench.both(&bench.load(0, 0), &bench.load(1, 0))?;
    Ok(with.total.fault_wait - without.total.fault_wait)
}

/// How long a fault takes on a page that a GPU has which is busy: it must be stopped.
fn from_running(bench: &Bench) -> Result<Span, SimError> {
    let bench = bench.clone().after(1, bench.load(1, 0));
    let owner = || group(1, 0, vec![vec![Step::Compute(LONG)]]);
    let without = bench.run(vec![owner(), group(0, 0, vec![vec![]])])?;
    let with = bench.run(vec![owner(), group(0, 0, vec![bench.load(1, 0)])])?;
    Ok(with.total.fault_wait - without.total.fault_wait)
}
