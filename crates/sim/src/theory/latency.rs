//! Unloaded latencies: one wavefront, one access at a time.

use farside_types::Span;

use super::bench::Bench;
use super::{Probe, Sum};
use crate::time::bytes_time;
use crate::{SimError, Spec};
use farside_workloads::{LINE_BYTES, Step};

/// The parts of a way, named by their keys.
pub(super) struct Parts<'a>(pub(super) &'a Spec);

impl Parts<'_> {
    fn cycles(&self, name: &str, cycles: u64) -> Sum {
        Sum::default().and(name, self.0.cycles(cycles))
    }

    /// Translation in the compute unit's own TLB.
    pub(super) fn l1_tlb(&self) -> Sum {
        self.cycles("tlb.l1_cycles", self.0.tlb.l1_cycles)
    }

    /// Translation in the shared TLB.
    pub(super) fn l2_tlb(&self) -> Sum {
        self.l1_tlb().plus(self.cycles("tlb.l2_cycles", self.0.tlb.l2_cycles))
    }

    /// Translation by a walk that reads so many levels.
    pub(super) fn walk(&self, levels: u64) -> Sum {
        let name = format!("{levels} × walk.level_cycles");
        self.l2_tlb().plus(self.cycles(&name, levels * self.0.walk.level_cycles))
    }

    /// Levels of the page table.
    pub(super) fn levels(&self) -> u64 {
        (self.0.walk.levels - u64::from(self.0.page.bytes > 4_096)).max(1)
    }

    pub(super) fn l1(&self) -> Sum {
        self.cycles("cache.l1_cycles", self.0.cache.l1_cycles)
    }

    pub(super) fn l2(&self) -> Sum {
        self.cycles("cache.l2_cycles", self.0.cache.l2_cycles)
    }

    pub(super) fn memory(&self) -> Sum {
        Sum::default().ns("gpu.memory_ns", self.0.gpu.memory_ns)
    }

    /// There and back between GPUs, with a line in one direction.
    pub(super) fn nvlink(&self) -> Sum {
        let link = &self.0.link;
        Sum::default()
            .and("2 × link.nvlink_ns", Span::from_nanos(2 * link.nvlink_ns))
            .and("64 B / link.nvlink_gb_per_s", bytes_time(LINE_BYTES, link.nvlink_gb_per_s))
    }

    /// There and back between GPU and host, with a line in one direction.
    pub(super) fn host(&self) -> Sum {
        let link = &self.0.link;
        Sum::default()
            .and("2 × link.pcie_ns", Span::from_nanos(2 * link.pcie_ns))
            .and("64 B / link.pcie_gb_per_s", bytes_time(LINE_BYTES, link.pcie_gb_per_s))
            .ns("link.host_memory_ns", link.host_memory_ns)
    }
}

pub(super) fn probes(spec: &Spec) -> Result<Vec<Probe>, SimError> {
    let mut list = own(spec)?;
    list.extend(translation(spec)?);
    list.extend(peer(spec)?);
    list.extend(host(spec)?);
    Ok(list)
}

/// Caches and memory of the GPU itself.
fn own(spec: &Spec) -> Result<Vec<Probe>, SimError> {
    let bench = Bench::small(spec, "on-touch", 1);
    let parts = Parts(&bench.spec);
    let near = || parts.l1_tlb().plus(parts.l1());
    let first = bench.load(0, 0);
    let cost = |more: &[Step]| bench.cost(&first, more);
    let line = |line| vec![bench.line(0, line)];
    let scalar = |index| [Step::LoadScalar(line(index)), Step::Wait];
    let compute = Sum::default().and("100 cycles", bench.spec.cycles(100));
    Ok(vec![
        compute.against("arithmetic", cost(&[Step::Compute(100)])?),
        near().against("load, L1 cache", cost(&bench.load(0, 0))?),
        // What the vector cache has fetched, the scalar cache finds in the L2 cache.
        near().plus(parts.l2()).against("load, L2 cache", cost(&scalar(0))?),
        near()
            .plus(parts.l2())
            .plus(parts.memory())
            .against("load, own memory", cost(&bench.load(0, 9))?),
        near()
            .plus(parts.l2())
            .plus(parts.memory())
            .against("scalar load, own memory", cost(&scalar(9))?),
        near().plus(parts.l2()).against("store, own memory", {
            // The first load is for reading and writing: the page is the GPU's.
            cost(&[Step::Store(line(9))])?
        }),
    ])
}

/// The levels of translation, for a line in the GPU's own memory.
fn translation(spec: &Spec) -> Result<Vec<Probe>, SimError> {
    // Two pages that push each other out of a TLB of one entry.
    let far_page = 512;
    let mut bench = Bench::small(spec, "on-touch", u64::from(far_page) + 1);
    (bench.spec.tlb.l1_entries, bench.spec.tlb.l1_ways) = (1, 1);
    let parts = Parts(&bench.spec);
    let rest = || parts.l1().plus(parts.l2()).plus(parts.memory());
    let steps = |other| [bench.load(0, 0), bench.load(other, 0)].concat();
    let in_l2 = bench.cost(&steps(1), &bench.load(0, 9))?;
    let mut walks = bench.clone();
    (walks.spec.tlb.l2_entries, walks.spec.tlb.l2_ways) = (1, 1);
    let one = walks.cost(&steps(1), &bench.load(0, 9))?;
    // The other page's entry of the lowest level pushes this one's out of a walk cache of two.
    walks.spec.walk.cache_entries = 2;
    let two = walks.cost(&steps(far_page), &bench.load(0, 9))?;
    let levels = parts.levels().min(2);
    Ok(vec![
        parts.l2_tlb().plus(rest()).against("load, translation in the L2 TLB", in_l2),
        parts.walk(1).plus(rest()).against("load, walk of one level", one),
        parts.walk(levels).plus(rest()).against("load, walk of two levels", two),
    ])
}

/// Lines in the memory of another GPU.
fn peer(spec: &Spec) -> Result<Vec<Probe>, SimError> {
    let bench = Bench::small(spec, "first-touch", 1);
    let bench = bench.clone().after(1, bench.load(0, 0));
    let parts = Parts(&bench.spec);
    let near = || parts.l1_tlb().plus(parts.l1());
    let first = bench.load(0, 1);
    let cost = |more: &[Step]| bench.cost(&first, more);
    let line = |line| vec![bench.line(0, line)];
    let there = || near().plus(parts.nvlink()).plus(parts.l2());
    Ok(vec![
        there().against("load, L2 cache of another GPU", {
            cost(&[Step::LoadScalar(line(1)), Step::Wait])?
        }),
        there()
            .plus(parts.memory())
            .against("load, memory of another GPU", cost(&bench.load(0, 9))?),
        there().against("store, memory of another GPU", cost(&[Step::Store(line(9))])?),
        near().against("load, L1 cache, of another GPU", cost(&bench.load(0, 1))?),
    ])
}

/// Lines in the host's memory.
fn host(spec: &Spec) -> Result<Vec<Probe>, SimError> {
    let bench = Bench::small(spec, "access-counter:map-host=on", 1);
    let parts = Parts(&bench.spec);
    let way = || parts.l1_tlb().plus(parts.l1()).plus(parts.host());
    let first = bench.load(0, 0);
    let store = [Step::Store(vec![bench.line(0, 9)])];
    Ok(vec![
        way().against("load, host memory", bench.cost(&first, &bench.load(0, 9))?),
        way().against("store, host memory", bench.cost(&first, &store)?),
    ])
}
