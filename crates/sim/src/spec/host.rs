//! The host: its processor, and what the driver does on it.

use serde::{Deserialize, Serialize};

/// `[host]`: the driver's processor.
///
/// A thread takes up to `driver.fault_batch` faults and counter notices at a time out of a GPU's buffer,
/// and serves them one after the other. So at most `threads / fault_ns` are served, however many
/// there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostSpec {
    /// From a fault or counter notice in a GPU's empty buffer until the driver runs, in ns.
    /// Default 662: 150 cycles over PCIe and 512 in which a batch is collected (the published
    /// simulator of wangw42/try_mgpusim, mmu.go, for a machine with the same walkers and walk
    /// cache as Table I).
    pub interrupt_ns: u64,
    /// Threads: batches and operations in service at a time. Default 32
    /// (wangw42/try_mgpusim, mmu.go).
    pub threads: u32,
    /// Migrations that are carried out at a time. A mapping of a page where it is counts as none and waits for
    /// none: the published simulator answers translations while its driver migrates (Akita v3.0.0-alpha.31,
    /// mem/vm/mmu/mmu.go, `doPageWalkHit`); that the paper's driver does so too is assumed. Default: none,
    /// as many as there are. A driver of the published simulator carries out one (MGPUSim v3.0.0,
    /// driver/driver.go:538, `isCurrentlyHandlingMigrationReq`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrations: Option<u32>,
    /// The driver's own time for a migration before its first command, in ns; it is one of those under way
    /// meanwhile. Default 0: its commands, its copy and their answers are all that it takes; assumed.
    pub migration_ns: u64,
    /// Service of a batch besides its faults, in ns. Default 0: a thread takes one fault
    /// (wangw42/try_mgpusim, mmu.go).
    pub batch_ns: u64,
    /// Service of each fault or notice on its thread, in ns: the walk of the driver's page table. Default
    /// 1000 (wangw42/try_mgpusim, mmu.go).
    pub fault_ns: u64,
    /// A memory access to the placement scheme's own table, in ns: a PA-Table lookup that the
    /// PA-Cache does not hold (GRIT, section V-C: one memory access). It goes on beside the
    /// service of the fault (section V-E), and only what is longer than that is waited for; of a batch of
    /// several faults, what all lookups take longer than all services. Default 100: `link.host_memory_ns`.
    pub table_ns: u64,
    /// Each count of a sample of accesses, for schemes that ask for them (Griffin), in ns. Default 31;
    /// assumed.
    pub sample_ns: u64,
    /// An operation on the CPU's own page table, in ns. Default 100: a memory access; assumed.
    pub operation_ns: u64,
    /// Per page of such an operation, in ns. Default 10; assumed.
    pub operation_page_ns: u64,
}

impl Default for HostSpec {
    fn default() -> HostSpec {
        HostSpec {
            interrupt_ns: 662,
            threads: 32,
            migrations: None,
            migration_ns: 0,
            batch_ns: 0,
            fault_ns: 1_000,
            table_ns: 100,
            sample_ns: 31,
            operation_ns: 100,
            operation_page_ns: 10,
        }
    }
}

/// `[driver]`: what the driver does besides its placement scheme. The defaults switch everything
/// off that the GRIT paper's baselines do not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DriverSpec {
    /// Most faults and notices that a thread of the host takes at a time. Default 1 (wangw42/try_mgpusim,
    /// mmu.go: each on a thread of its own).
    pub fault_batch: u32,
    /// Moves nearer to each other than this are a fight, in ns. Default 0: no thrash handling; the GRIT paper's
    /// baselines have none.
    pub thrash_window_ns: u64,
    /// Settle what running GPUs fight over by allocations: its pages are mapped where they are, and the
    /// access counters find out when that is over. Default false: Farside's own; no paper's driver has it.
    pub contests: bool,
    /// Tree prefetch: fill a subtree that is more than this full, in percent. Default 100: off; the GRIT
    /// paper has it in section VI-E alone.
    pub density_percent: u8,
    /// Keep the host's frame as a clean copy of a page that a GPU only reads. Default false: a page has one
    /// place until it is duplicated (GRIT, section II-B).
    pub keep_clean_copies: bool,
}

impl Default for DriverSpec {
    fn default() -> DriverSpec {
        DriverSpec {
            fault_batch: 1,
            thrash_window_ns: 0,
            contests: false,
            density_percent: 100,
            keep_clean_copies: false,
        }
    }
}
