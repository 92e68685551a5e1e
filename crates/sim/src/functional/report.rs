//! What a functional replay counted: text and JSON.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::screen::side_by_side;
use crate::stats::counters;

counters! {
    /// What one GPU did, or all of them together. Moves count for the GPU whose access caused them.
    pub struct Counts {
        /// Lines read.
        reads: u64 = "reads", "count";
        /// Lines written.
        writes: u64 = "writes", "count";
        /// Accesses that reached the GPU's own memory.
        local: u64 = "local", "count";
        /// Accesses that reached the host's or another GPU's memory.
        remote: u64 = "remote", "count";
        /// Faults on pages that the GPU had not mapped.
        local_faults: u64 = "faults.local", "count";
        /// Faults of writes on pages that the GPU had mapped for reading.
        protection_faults: u64 = "faults.protection", "count";
        /// Pages that changed their only location.
        migrations: u64 = "migrations", "pages";
        /// Copies made beside an existing one.
        duplications: u64 = "duplications", "pages";
        /// Pages whose other copies a write took away.
        collapses: u64 = "collapses", "pages";
        /// Pages mapped in another memory.
        remote_maps: u64 = "remote_maps", "pages";
        /// Pages that left a full GPU.
        evictions: u64 = "evictions", "pages";
        /// Notices of the access counters.
        notices: u64 = "notices", "count";
    }
}

impl Counts {
    /// All accesses.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.reads + self.writes
    }

    /// All faults.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.local_faults + self.protection_faults
    }
}

/// What happened to one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageCounts {
    /// GPUs that accessed it, a bit each.
    pub gpus: u16,
    /// Lines read.
    pub reads: u32,
    /// Lines written.
    pub writes: u32,
    /// Accesses from another memory's GPU.
    pub remote: u32,
    /// Faults of both kinds.
    pub faults: u32,
    /// Times its bytes were copied, to wherever.
    pub copies: u32,
}

/// The counts of a functional replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The workload.
    pub workload: String,
    /// The placement scheme.
    pub scheme: String,
    /// Pages of the workload's buffers that GPUs share.
    pub pages: u64,
    /// All GPUs together.
    pub total: Counts,
    /// Each GPU.
    pub gpus: Vec<Counts>,
    /// Each page that was accessed, by its number from the first of the workload; empty unless
    /// asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_page: Vec<(u32, PageCounts)>,
}

/// The reports of one workload as a table: a column per scheme.
pub struct Table<'a>(pub &'a [Report]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workload = self.0.first().map_or("", |report| report.workload.as_str());
        let names = std::iter::once(workload).chain(Counts::DESCRIPTIONS.iter().map(|it| it.name));
        let column = |report: &Report| {
            let counts = report.total.values().into_iter().map(|value| value.to_string());
            std::iter::once(report.scheme.clone()).chain(counts).collect()
        };
        let columns: Vec<Vec<String>> = self.0.iter().map(column).collect();
        f.write_str(&side_by_side(&names.map(str::to_owned).collect::<Vec<_>>(), &columns))
    }
}
