//! What a run is measured by: numbers with names, as data (serde), as a table, and as files.

mod display;
mod error;
mod names;
mod registry;
mod table;
mod write;

use farside_svm::Stats;
use farside_svm::placement::PageMode;
use farside_types::Span;
use serde::{Deserialize, Serialize};

use crate::Spec;
pub use error::StatsError;
pub use names::{Statistic, markdown};
pub(crate) use names::{driver_statistics, gpu_statistics};
pub use registry::Description;
pub(crate) use registry::counters;
pub use table::{Cells, write_parquet};
pub use write::{Format, write};

counters! {
    /// What one GPU counted.
    pub struct GpuCounts {
        /// Line reads carried out.
        reads: u64 = "reads", "count";
        /// Line writes carried out.
        writes: u64 = "writes", "count";
        /// Accesses to the GPU's own memory or its caches of it.
        local: u64 = "local", "count";
        /// Accesses over a link, to the host or to a peer.
        remote: u64 = "remote", "count";
        /// Lookups that a compute unit's own TLB served.
        l1_tlb_hits: u64 = "tlb.l1.hits", "count";
        /// Lookups that the shared TLB served.
        l2_tlb_hits: u64 = "tlb.l2.hits", "count";
        /// Page table walks; lookups that shared one are not counted.
        walks: u64 = "walks", "count";
        /// Faults reported to the driver: one per page that the GPU waits for, also those anew.
        faults: u64 = "faults.reported", "count";
        /// Accesses that waited in a fault.
        faulted_accesses: u64 = "faults.accesses", "count";
        /// Of these, writes to a page that is mapped for reading (page protection faults).
        protection_faults: u64 = "faults.protection", "count";
        /// Accesses that found no translation when they were replayed, and faulted anew.
        refaults: u64 = "faults.again", "count";
        /// Time from fault to replay, summed over the accesses that waited.
        fault_wait: Span = "faults.wait", "ps";
        /// Faults that found the buffer full.
        faults_held_back: u64 = "faults.held_back", "count";
        /// Loads that the vector caches served.
        vector_hits: u64 = "cache.vector.hits", "count";
        /// Loads that they did not.
        vector_misses: u64 = "cache.vector.misses", "count";
        /// Loads that the scalar caches served.
        scalar_hits: u64 = "cache.scalar.hits", "count";
        /// Loads that they did not.
        scalar_misses: u64 = "cache.scalar.misses", "count";
        /// Lines of code that had to be waited for.
        fetches: u64 = "cache.instruction.misses", "count";
        /// Accesses, by whomever, that the GPU's L2 cache served.
        l2_hits: u64 = "cache.l2.hits", "count";
        /// Accesses that it did not.
        l2_misses: u64 = "cache.l2.misses", "count";
        /// Dirty lines that had to go for others.
        l2_write_backs: u64 = "cache.l2.write_backs", "count";
        /// Invalidations, each with a flush.
        flushes: u64 = "flush.count", "count";
        /// Dirty lines that these wrote back.
        flushed_lines: u64 = "flush.lines", "count";
        /// Time in which no compute unit could issue because of them.
        stalled: Span = "flush.stalled", "ps";
        /// Levels of the page table that walks read.
        walk_levels: u64 = "walk.levels", "count";
        /// Time that walks waited for a walker, summed over walks.
        walk_queue: Span = "walk.waited", "ps";
        /// Page handling, local: walks after misses of the L2 TLB (GRIT, Figure 3).
        handling_local: Span = "handling.local", "ps";
        /// Page handling, host: faults until the driver has decided, or to the end if it only maps.
        handling_host: Span = "handling.host", "ps";
        /// Page handling, page migration: faults after that, until the replay (GRIT, Figure 3).
        handling_migration: Span = "handling.migration", "ps";
        /// Page handling, page duplication (GRIT, Figure 3).
        handling_duplication: Span = "handling.duplication", "ps";
        /// Page handling, write collapse (GRIT, Figure 3).
        handling_collapse: Span = "handling.collapse", "ps";
        /// Misses of the L2 TLB on pages that move to whoever touches them (GRIT, Figure 19).
        scheme_on_touch: u64 = "scheme.on_touch", "count";
        /// Misses of the L2 TLB on pages with access counters (GRIT, Figure 19).
        scheme_counter: u64 = "scheme.counter", "count";
        /// Misses of the L2 TLB on pages that readers get copies of (GRIT, Figure 19).
        scheme_duplication: u64 = "scheme.duplication", "count";
        /// Page handling, remote: accesses over a link (GRIT, Figure 3).
        handling_remote: Span = "handling.remote", "ps";
        /// Counter notices sent.
        notices: u64 = "counter.notices", "count";
        /// Lines sent to other GPUs that have a copy of the page that is written.
        broadcasts: u64 = "stores.broadcast", "count";
    }
}

impl GpuCounts {
    /// Accesses carried out.
    pub fn accesses(&self) -> u64 {
        self.reads + self.writes
    }

    /// Counts a miss of the L2 TLB on a page that this rules.
    pub(crate) fn count_scheme(&mut self, scheme: PageMode) {
        let count = match scheme {
            PageMode::OnTouch => &mut self.scheme_on_touch,
            PageMode::AccessCounter => &mut self.scheme_counter,
            PageMode::Duplication => &mut self.scheme_duplication,
        };
        *count += 1;
    }

    /// Counts a lookup of a compute unit's own cache: 0 vector, 1 scalar, 2 code.
    pub(crate) fn count_l1(&mut self, cache: usize, hit: bool) {
        let count = match (cache, hit) {
            (0, true) => &mut self.vector_hits,
            (0, false) => &mut self.vector_misses,
            (1, true) => &mut self.scalar_hits,
            (1, false) => &mut self.scalar_misses,
            _ => &mut self.fetches,
        };
        *count += 1;
    }
}

/// What came out of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The placement scheme.
    pub placement: String,
    /// The trace.
    pub trace: String,
    /// From the first launch until the end of the last job is known, in picoseconds.
    pub time: Span,
    /// The same in cycles of the GPUs' clock.
    pub cycles: u64,
    /// Per launch: when it was over, in picoseconds from the start.
    pub launches: Vec<Span>,
    /// All GPUs together.
    pub total: GpuCounts,
    /// Each GPU.
    pub gpus: Vec<GpuCounts>,
    /// Time the ports between GPUs were busy, summed over ports.
    pub nvlink_busy: Span,
    /// Time the ports to and from the host were busy, summed over ports.
    pub pcie_busy: Span,
    /// Time the driver's processor was busy.
    pub host_busy: Span,
    /// Pages of the program's in the shared address space.
    pub pages: u64,
    /// Of these, those that lost their copies to a write and were copied again.
    pub copied_again: u64,
    /// Events that the simulator took from its queue.
    pub events: u64,
    /// The machine it ran on, every value spelled out.
    pub spec: Spec,
    /// What the driver counted, without the placing of all pages on the host at the beginning.
    pub driver: Stats,
}

impl Outcome {
    /// As JSON, indented. The same specification, trace and scheme give the same text to the byte.
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }
}

/// Several schemes on the same trace and machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// One outcome per scheme, in the order asked for.
    pub outcomes: Vec<Outcome>,
}

impl Comparison {
    /// As JSON, indented; see [`Outcome::to_json`].
    #[must_use]
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// How many times faster each scheme is than the first one.
    pub fn speedups(&self) -> Vec<f64> {
        let base = self.outcomes.first().map_or(0.0, |first| first.time.0 as f64);
        self.outcomes.iter().map(|outcome| base / outcome.time.0.max(1) as f64).collect()
    }
}

fn json(value: &impl Serialize) -> String {
    // Numbers, strings, lists and maps with plain keys: writing them has no way to fail.
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// What the driver counted since `before`, as far as the beginning touches it: host faults and
/// the zero fills that they are answered with.
pub(crate) fn since(after: &Stats, before: &Stats) -> Stats {
    let mut stats = Stats {
        host_faults: after.host_faults - before.host_faults,
        duplicate_faults: after.duplicate_faults - before.duplicate_faults,
        migrations: after.migrations - before.migrations,
        chains: after.chains - before.chains,
        ..after.clone()
    };
    for (key, pages) in before.moves.iter() {
        stats.moves.get_mut(key).into_iter().for_each(|now| *now -= pages);
    }
    for (key, pages) in before.by_reason.iter() {
        stats.by_reason.get_mut(key).into_iter().for_each(|now| *now -= pages);
    }
    stats.moves.retain(|_, pages| *pages > 0);
    stats.by_reason.retain(|_, pages| *pages > 0);
    stats
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_types::{MemoryId, Reason};

    pub(super) fn outcome(placement: &str, time: u64) -> Outcome {
        let mut driver = Stats { migrations: 3, ..Stats::default() };
        driver.moves.insert((Some(MemoryId::HOST), MemoryId(1)), 17);
        driver.by_reason.insert(Reason::Demand, 17);
        Outcome {
            placement: placement.to_owned(),
            trace: "mm".to_owned(),
            time: Span(time),
            cycles: time / 1_000,
            launches: vec![Span(time)],
            total: GpuCounts { reads: 5, local: 5, ..GpuCounts::default() },
            gpus: Vec::new(),
            nvlink_busy: Span::ZERO,
            pcie_busy: Span::ZERO,
            host_busy: Span::ZERO,
            pages: 4,
            copied_again: 0,
            events: 9,
            spec: Spec::default(),
            driver,
        }
    }

    #[test]
    fn the_table_has_a_column_per_scheme_and_a_speedup() {
        let outcomes = vec![outcome("on-touch", 3_000_000), outcome("duplication", 1_500_000)];
        let text = Comparison { outcomes }.to_string();
        let row = |name: &str| {
            let found = text.lines().find(|line| line.starts_with(name)).expect(name);
            found.split_whitespace().rev().take(2).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row("mm"), ["duplication", "on-touch"]);
        assert_eq!(row("speedup"), ["2.000", "1.000"]);
        assert_eq!(row("cycles"), ["1500", "3000"]);
        assert_eq!(row("pages host->card"), ["17", "17"]);
        assert_eq!(row("pages by demand"), ["17", "17"]);
        assert!(!text.contains("pages by eviction"));
    }

    #[test]
    fn an_outcome_survives_json() {
        let outcome = outcome("on-touch", 3_000_000);
        assert_eq!(serde_json::from_str::<Outcome>(&outcome.to_json()).unwrap(), outcome);
        let both = Comparison { outcomes: vec![outcome.clone(), outcome] };
        assert_eq!(serde_json::from_str::<Comparison>(&both.to_json()).unwrap(), both);
    }

    #[test]
    fn the_beginning_is_not_counted() {
        let mut before = Stats { host_faults: 10, chains: 10, ..Stats::default() };
        before.moves.insert((None, MemoryId::HOST), 10);
        before.by_reason.insert(Reason::Demand, 10);
        let mut after = before.clone();
        after.migrations = 4;
        *after.by_reason.get_mut(&Reason::Demand).unwrap() += 4;
        after.moves.insert((Some(MemoryId::HOST), MemoryId(2)), 4);
        let counted = since(&after, &before);
        assert_eq!((counted.host_faults, counted.chains, counted.migrations), (0, 0, 4));
        assert_eq!(counted.moves.len(), 1);
        assert_eq!(counted.by_reason[&Reason::Demand], 4);
    }
}
