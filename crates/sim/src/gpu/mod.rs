//! A GPU: compute units with resident wavefronts, TLBs, caches, page table, walkers, counters, and
//! the buffers in which faults and counter notices wait for the driver.
//!
//! It owns the state of one GPU and what can be answered from it alone. Banks, channels and links,
//! the command ring and the order of events are the machine's.

mod cache;
mod compute_unit;
mod counters;
mod page_table;
mod tlb;
mod walkers;

use std::collections::VecDeque;

use farside_svm::CardFault;
use farside_types::{MemoryId, PageNo, Span, Time};
use serde::{Deserialize, Serialize};

use crate::state::state;
use crate::{GpuCounts, Spec};
pub(crate) use cache::Cache;
pub(crate) use compute_unit::{ComputeUnit, Group, Wave, WaveState};
use counters::Counters;
pub(crate) use page_table::{Mapping, PageTable};
use tlb::Tlb;
use walkers::Walkers;

/// Places of the table of accesses in flight by page.
const FLIGHTS: usize = 1 << 12;

/// One GPU.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub(crate) memory: MemoryId,
    pub(crate) units: Vec<ComputeUnit>,
    pub(crate) table: PageTable,
    pub(crate) counters: Counters,
    pub(crate) l2_cache: Cache,
    /// Faults that the driver has not fetched.
    pub(crate) faults: Vec<CardFault>,
    /// Faults for which the buffer has no room.
    pub(crate) held_back: VecDeque<CardFault>,
    /// Groups, by their first page, whose notice the driver has not fetched.
    pub(crate) notices: Vec<PageNo>,
    /// An interrupt is on its way, and will find what is in the buffers by then.
    pub(crate) interrupting: bool,
    /// No compute unit issues before this: an invalidation drains the pipelines.
    pub(crate) stalled_until: Time,
    /// Migrations until whose end nothing issues (`flush.until`).
    pub(crate) stops: u32,
    /// What goes on then.
    pub(crate) parked: Vec<Parked>,
    /// When the last access in flight is over.
    pub(crate) in_flight: Time,
    /// The same by page, which several pages share.
    flights: Box<[Time; FLIGHTS]>,
    /// Flushes of everything.
    flushes: u64,
    /// Work-groups that are resident.
    pub(crate) resident: u32,
    /// When it can start the next work-group.
    pub(crate) next_dispatch: Time,
    pub(crate) counts: GpuCounts,
    l2_tlb: Tlb,
    /// When the L2 TLB can look the next page up.
    l2_free: Time,
    walkers: Walkers,
    cycle: Span,
    l1_latency: Span,
    l2_latency: Span,
}

state!(Gpu {
    values: faults, held_back, notices, interrupting, stalled_until, stops, parked, in_flight, flushes, resident,
        next_dispatch, counts, l2_free;
    fixed: flights;
    parts: units, table, counters, l2_cache, l2_tlb, walkers;
    made: memory, cycle, l1_latency, l2_latency;
});

/// What waits on a GPU that stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Parked {
    /// A wavefront.
    Wave { unit: u8, slot: u8 },
    /// A walk that is over.
    Walk { page: u32 },
}

/// Where a translation is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// In a TLB, at this time.
    Hit(Time),
    /// By a walk of the page table that begins when a walk is asked for at this time.
    Miss(Time),
}

impl Gpu {
    /// With an arena of `pages` pages; `check` says whether the coherence checker is on.
    pub(crate) fn new(spec: &Spec, memory: MemoryId, pages: usize, check: bool) -> Gpu {
        let units = spec.gpu.compute_units as usize;
        let (tlb, cache, counter) = (&spec.tlb, &spec.cache, &spec.counter);
        let group_pages = (counter.group_bytes / spec.page.bytes).max(1);
        Gpu {
            memory,
            units: vec![ComputeUnit::new(spec); units],
            table: PageTable::new(pages, check),
            counters: Counters::new(pages, group_pages, counter.threshold),
            l2_cache: Cache::new(cache.l2_bytes, cache.l2_ways),
            faults: Vec::new(),
            held_back: VecDeque::new(),
            notices: Vec::new(),
            interrupting: false,
            stalled_until: Time::ZERO,
            stops: 0,
            parked: Vec::new(),
            in_flight: Time::ZERO,
            flights: Box::new([Time::ZERO; FLIGHTS]),
            flushes: 0,
            resident: 0,
            next_dispatch: Time::ZERO,
            counts: GpuCounts::default(),
            l2_tlb: Tlb::new(tlb.l2_entries, tlb.l2_ways),
            l2_free: Time::ZERO,
            walkers: Walkers::new(spec),
            cycle: spec.cycles(1),
            l1_latency: spec.cycles(tlb.l1_cycles),
            l2_latency: spec.cycles(tlb.l2_cycles),
        }
    }

    /// A compute unit, after it has caught up with the flushes.
    #[inline]
    pub(crate) fn unit(&mut self, unit: usize) -> &mut ComputeUnit {
        let cu = &mut self.units[unit];
        if cu.flushes != self.flushes {
            cu.flushes = self.flushes;
            cu.flush();
        }
        cu
    }

    /// Looks `page` up for a compute unit.
    #[inline]
    pub(crate) fn lookup(&mut self, at: Time, unit: usize, page: u32) -> Lookup {
        let after = at + self.l1_latency;
        if self.unit(unit).tlb.lookup(page) {
            self.counts.l1_tlb_hits += 1;
            return Lookup::Hit(after);
        }
        let begun = after.max(self.l2_free);
        self.l2_free = begun + self.cycle;
        let after = begun + self.l2_latency;
        if self.l2_tlb.lookup(page) {
            self.counts.l2_tlb_hits += 1;
            self.units[unit].tlb.insert(page);
            return Lookup::Hit(after);
        }
        Lookup::Miss(after)
    }

    /// Walks the page table for `page`; when that ends. While the queue is full, the L2 TLB takes
    /// nothing.
    pub(crate) fn walk(&mut self, at: Time, page: u32) -> Time {
        let walk = self.walkers.walk(at, page);
        self.l2_free = self.l2_free.max(walk.queued);
        self.counts.walks += 1;
        self.counts.walk_levels += u64::from(walk.levels);
        self.counts.walk_queue += walk.begun.since(at);
        self.counts.handling_local += walk.end.since(at);
        walk.end
    }

    /// Takes a translation that a walk or a replay found into the TLBs.
    pub(crate) fn fill(&mut self, unit: usize, page: u32) {
        self.l2_tlb.insert(page);
        self.unit(unit).tlb.insert(page);
    }

    /// An access to `page` is under way until `end`.
    #[inline]
    pub(crate) fn use_until(&mut self, page: u32, end: Time) {
        self.in_flight = self.in_flight.max(end);
        let flight = &mut self.flights[page as usize % FLIGHTS];
        *flight = (*flight).max(end);
    }

    /// When the last access to `page` so far is over, or to one that shares its place.
    pub(crate) fn page_in_flight(&self, page: u32) -> Time {
        self.flights[page as usize % FLIGHTS]
    }

    /// Empties all caches and TLBs. Returns how many lines of the L2 cache must be written back.
    pub(crate) fn flush(&mut self) -> u32 {
        self.flushes += 1;
        self.l2_tlb.flush();
        self.l2_cache.flush()
    }

    /// Drops the lines of `page`, `lines` from `first` on, and its translation. Returns how many
    /// must be written back.
    pub(crate) fn flush_page(
        &mut self,
        page: u32,
        first: farside_workloads::Line,
        lines: u32,
    ) -> u32 {
        self.l2_tlb.invalidate(page);
        self.units.iter_mut().for_each(|unit| unit.flush_page(page, first, lines));
        self.l2_cache.flush_page(first, lines)
    }

    /// Empties the caches of the compute units: a kernel begins.
    pub(crate) fn begin_kernel(&mut self) {
        for unit in &mut self.units {
            unit.caches.iter_mut().for_each(|cache| {
                cache.flush();
            });
        }
    }

    /// Whether a wavefront is resident.
    pub(crate) fn busy_units(&self) -> usize {
        self.units.iter().filter(|unit| unit.busy()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_workloads::Line;

    fn gpu() -> Gpu {
        Gpu::new(&Spec::default(), MemoryId(1), 64, false)
    }

    #[test]
    fn a_lookup_costs_what_the_levels_it_takes_cost() {
        let mut gpu = gpu();
        let ns = Time::from_nanos;
        assert_eq!(gpu.lookup(ns(0), 0, 9), Lookup::Miss(ns(1 + 10)));
        assert_eq!(gpu.walk(ns(11), 9), ns(11 + 400));
        gpu.fill(0, 9);
        assert_eq!(gpu.lookup(ns(500), 0, 9), Lookup::Hit(ns(501)));
        assert_eq!(gpu.lookup(ns(500), 1, 9), Lookup::Hit(ns(511)), "the L2 TLB is shared");
        assert_eq!(gpu.lookup(ns(500), 1, 9), Lookup::Hit(ns(501)), "and fills the L1");
    }

    #[test]
    fn a_flush_reaches_every_tlb() {
        for whole in [true, false] {
            let mut gpu = gpu();
            (0..64).for_each(|unit| gpu.fill(unit, 9));
            if whole {
                gpu.flush();
            } else {
                gpu.flush_page(9, Line(9 * 64), 64);
            }
            for unit in 0..64 {
                assert!(matches!(gpu.lookup(Time(200), unit, 9), Lookup::Miss(_)));
            }
        }
    }

    #[test]
    fn the_last_access_to_a_page_is_known() {
        let mut gpu = gpu();
        gpu.use_until(9, Time(123));
        gpu.use_until(9, Time(50));
        gpu.use_until(10, Time(400));
        assert_eq!((gpu.page_in_flight(9), gpu.in_flight), (Time(123), Time(400)));
    }
}
