//! A GPU: compute units that replay their records, TLBs, page table, walkers, counters, and the
//! buffers in which faults and counter notices wait for the driver.
//!
//! It owns the state of one GPU and what can be answered from it alone. Links, the command ring
//! and the order of events are the machine's.

mod compute_unit;
mod counters;
mod page_table;
mod tlb;
mod walkers;

use farside_svm::CardFault;
use farside_types::{MemoryId, PageNo, Rights, Span, Time};

use crate::{GpuCounts, Spec};
pub(crate) use compute_unit::ComputeUnit;
use counters::Counters;
pub(crate) use page_table::{Mapping, PageTable};
use tlb::Tlb;
use walkers::Walkers;

/// One GPU.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub(crate) memory: MemoryId,
    pub(crate) units: Vec<ComputeUnit>,
    pub(crate) table: PageTable,
    pub(crate) counters: Counters,
    /// Faults that the driver has not fetched.
    pub(crate) faults: Vec<CardFault>,
    /// Groups, by their first page, whose notice the driver has not fetched.
    pub(crate) notices: Vec<PageNo>,
    /// An interrupt is on its way, and will find what is in the buffers by then.
    pub(crate) interrupting: bool,
    /// Accesses of the running launch that are not over.
    pub(crate) left: u64,
    pub(crate) counts: GpuCounts,
    l1: Vec<Tlb>,
    l2: Tlb,
    walkers: Walkers,
    l1_latency: Span,
    l2_latency: Span,
}

/// Where a translation is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// In a TLB, after this long.
    Hit(Span),
    /// By a walk of the page table that ends then.
    Walk(Time),
}

impl Gpu {
    pub(crate) fn new(spec: &Spec, memory: MemoryId, pages: usize) -> Gpu {
        let units = spec.gpu.compute_units as usize;
        let (tlb, walk, counter) = (&spec.tlb, &spec.walk, &spec.counter);
        let walk_latency = spec.cycles(walk.levels * walk.level_cycles);
        Gpu {
            memory,
            units: vec![ComputeUnit::default(); units],
            table: PageTable::new(pages),
            counters: Counters::new(pages, counter.group_pages, counter.threshold),
            faults: Vec::new(),
            notices: Vec::new(),
            interrupting: false,
            left: 0,
            counts: GpuCounts::default(),
            l1: vec![Tlb::new(tlb.l1_entries, tlb.l1_ways); units],
            l2: Tlb::new(tlb.l2_entries, tlb.l2_ways),
            walkers: Walkers::new(walk.walkers, walk_latency, pages),
            l1_latency: spec.cycles(tlb.l1_cycles),
            l2_latency: spec.cycles(tlb.l1_cycles + tlb.l2_cycles),
        }
    }

    /// Looks `page` up for a compute unit.
    pub(crate) fn lookup(&mut self, now: Time, unit: usize, page: u32) -> Lookup {
        if self.l1[unit].lookup(page) {
            self.counts.l1_tlb_hits += 1;
            return Lookup::Hit(self.l1_latency);
        }
        if self.l2.lookup(page) {
            self.counts.l2_tlb_hits += 1;
            self.l1[unit].insert(page);
            return Lookup::Hit(self.l2_latency);
        }
        let (end, new) = self.walkers.walk(now + self.l2_latency, page);
        self.counts.walks += u64::from(new);
        Lookup::Walk(end)
    }

    /// Takes a translation that a walk or a replay found into the TLBs.
    pub(crate) fn fill(&mut self, unit: usize, page: u32) {
        self.l2.insert(page);
        self.l1[unit].insert(page);
    }

    /// Takes the translation of `page` away and returns when its last access is over.
    pub(crate) fn unmap(&mut self, page: u32) -> Time {
        self.shoot_down(page);
        self.table.unmap(page);
        self.table.drained_at(page)
    }

    /// Changes the rights of `page` and returns when accesses with the old ones are over.
    pub(crate) fn protect(&mut self, page: u32, rights: Rights) -> Time {
        self.shoot_down(page);
        self.table.protect(page, rights);
        self.table.drained_at(page)
    }

    fn shoot_down(&mut self, page: u32) {
        self.l2.invalidate(page);
        self.l1.iter_mut().for_each(|tlb| tlb.invalidate(page));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_types::FrameNo;

    fn gpu() -> Gpu {
        Gpu::new(&Spec::default(), MemoryId(1), 64)
    }

    #[test]
    fn a_lookup_costs_what_the_levels_it_takes_cost() {
        let mut gpu = gpu();
        let cycles = |n| Span::from_nanos(n);
        assert_eq!(gpu.lookup(Time::ZERO, 0, 9), Lookup::Walk(Time::from_nanos(1 + 10 + 400)));
        gpu.fill(0, 9);
        assert_eq!(gpu.lookup(Time::ZERO, 0, 9), Lookup::Hit(cycles(1)));
        assert_eq!(gpu.lookup(Time::ZERO, 1, 9), Lookup::Hit(cycles(11)), "the L2 TLB is shared");
        assert_eq!(gpu.lookup(Time::ZERO, 1, 9), Lookup::Hit(cycles(1)), "and fills the L1");
    }

    #[test]
    fn an_unmap_reaches_every_tlb_and_reports_the_drain() {
        let mut gpu = gpu();
        let mapping = Mapping { memory: MemoryId(1), frame: FrameNo(0), rights: Rights::ReadWrite };
        gpu.table.map(9, mapping);
        (0..64).for_each(|unit| gpu.fill(unit, 9));
        gpu.table.use_until(9, Time(123));
        assert_eq!(gpu.unmap(9), Time(123));
        for unit in 0..64 {
            assert!(matches!(gpu.lookup(Time(200), unit, 9), Lookup::Walk(_)));
        }
        assert_eq!(gpu.table.get(9), None);
    }
}
