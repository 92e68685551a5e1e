//! A compute unit: wavefront slots, its caches and TLB, and what it issues through.

use farside_types::{Span, Time};
use serde::{Deserialize, Serialize};

use super::cache::Cache;
use super::tlb::Tlb;
use crate::Spec;
use crate::observe::WaitsFor;
use crate::state::state;
use farside_workloads::{Cursor, Line};

/// What a wavefront does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WaveState {
    /// There is none in the slot.
    #[default]
    Idle,
    /// Its next event is in the queue.
    Running,
    /// Waits until its loads have been answered.
    Loads,
    /// Stands still because an access waits in a fault.
    Fault,
    /// Waits for the others of its work-group.
    Barrier,
    /// Has ended, and accesses are under way.
    Ending,
}

/// A wavefront in its slot.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Wave {
    pub(crate) cursor: Cursor,
    /// When all loads so far are answered, those that are `pending` apart.
    pub(crate) loads_end: Time,
    /// The same of stores.
    pub(crate) stores_end: Time,
    /// Loads and stores that wait in a walk or a fault: nobody knows yet when they end.
    pub(crate) pending: [u32; 2],
    /// Of these, those that wait in a fault.
    pub(crate) faults: u32,
    /// Since when it waits.
    pub(crate) since: Time,
    pub(crate) state: WaveState,
    /// Its work-group among those of the compute unit.
    pub(crate) group: u8,
    /// Instructions fetched.
    pub(crate) fetched: u32,
    /// What it waits for, if it does, and the page that it is about.
    pub(crate) cause: WaitsFor,
    pub(crate) page: u32,
}

impl Wave {
    /// What it will wait for if it has to.
    pub(crate) fn waits(&mut self, cause: WaitsFor, page: u32) {
        self.cause = cause;
        self.page = page;
    }
}

/// A work-group that is resident in a compute unit.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Group {
    /// Wavefronts that have not ended; 0: the place is free.
    pub(crate) alive: u16,
    /// Wavefronts that wait at the barrier.
    pub(crate) arrived: u16,
    /// When the last of these arrived.
    pub(crate) arrived_at: Time,
}

/// A compute unit.
#[derive(Clone, Debug)]
pub(crate) struct ComputeUnit {
    pub(crate) waves: Vec<Wave>,
    pub(crate) groups: Vec<Group>,
    /// Free slots, a bit each.
    pub(crate) free: u64,
    /// Work-groups that are resident.
    pub(crate) resident: u16,
    /// It issues one line a cycle: not before this.
    pub(crate) next_issue: Time,
    /// When each SIMD unit is free.
    pub(crate) simds: Vec<Time>,
    pub(crate) tlb: Tlb,
    /// Vector, scalar and instruction cache.
    pub(crate) caches: [Cache; 3],
    /// Flushes of the GPU that this compute unit has carried out.
    pub(crate) flushes: u64,
}

state!(ComputeUnit {
    values: free, resident, next_issue, flushes;
    fixed: waves, groups, simds;
    parts: tlb, caches;
});

impl ComputeUnit {
    pub(crate) fn new(spec: &Spec) -> ComputeUnit {
        let slots = spec.gpu.wavefronts as usize;
        let (tlb, cache) = (&spec.tlb, &spec.cache);
        ComputeUnit {
            waves: vec![Wave::default(); slots],
            groups: vec![Group::default(); slots],
            free: u64::MAX >> (64 - slots),
            resident: 0,
            next_issue: Time::ZERO,
            simds: vec![Time::ZERO; spec.gpu.simds as usize],
            tlb: Tlb::new(tlb.l1_entries, tlb.l1_ways),
            caches: [
                Cache::new(cache.vector_bytes, cache.vector_ways),
                Cache::new(cache.scalar_bytes, cache.scalar_ways),
                Cache::new(cache.instruction_bytes, cache.instruction_ways),
            ],
            flushes: 0,
        }
    }

    /// Whether a group of `waves` wavefronts fits, of which at most `limit` may be resident.
    pub(crate) fn has_room(&self, waves: u16, limit: u16) -> bool {
        self.resident < limit.max(1) && self.free.count_ones() >= u32::from(waves)
    }

    /// Occupies a SIMD unit for a wavefront's arithmetic from `at` on; when that is over.
    pub(crate) fn compute(&mut self, slot: usize, at: Time, span: Span) -> Time {
        let simds = self.simds.len();
        let free = &mut self.simds[slot % simds];
        *free = at.max(*free) + span;
        *free
    }

    /// Empties caches and TLB.
    pub(crate) fn flush(&mut self) {
        self.tlb.flush();
        for cache in &mut self.caches {
            cache.flush();
        }
    }

    /// Drops the lines of a page and its translation.
    pub(crate) fn flush_page(&mut self, page: u32, first: Line, lines: u32) {
        self.tlb.invalidate(page);
        for cache in &mut self.caches {
            cache.flush_page(first, lines);
        }
    }

    /// Whether a wavefront is resident.
    pub(crate) fn busy(&self) -> bool {
        self.resident > 0
    }
}
