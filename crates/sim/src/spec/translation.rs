//! Pages and their translation: TLBs and page table walks.

use serde::{Deserialize, Serialize};

/// `[page]`: pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PageSpec {
    /// Bytes of a page: 4096 or 2097152. Default 4096 (GRIT, section III-B).
    pub bytes: u32,
}

impl Default for PageSpec {
    fn default() -> PageSpec {
        PageSpec { bytes: 4_096 }
    }
}

/// `[tlb]`: translation lookaside buffers; replacement is least recently used (Table I).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlbSpec {
    /// Entries of a compute unit's own TLB. Default 32 (Table I).
    pub l1_entries: u32,
    /// Its ways. Default 32 (Table I).
    pub l1_ways: u32,
    /// Its lookup in cycles. Default 1 (Table I).
    pub l1_cycles: u64,
    /// Entries of the TLB that a GPU's compute units share. Default 512 (Table I).
    pub l2_entries: u32,
    /// Its ways. Default 16 (Table I).
    pub l2_ways: u32,
    /// Its lookup in cycles. Default 10 (Table I).
    pub l2_cycles: u64,
}

impl Default for TlbSpec {
    fn default() -> TlbSpec {
        TlbSpec {
            l1_entries: 32,
            l1_ways: 32,
            l1_cycles: 1,
            l2_entries: 512,
            l2_ways: 16,
            l2_cycles: 10,
        }
    }
}

/// `[walk]`: walks of a GPU's own page table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WalkSpec {
    /// Walks at a time in a GPU; more wait. Default 8 (Table I).
    pub walkers: u32,
    /// Levels of the page table. Default 4: 48-bit addresses, 4 KiB pages; assumed.
    pub levels: u64,
    /// Cycles per level that is not in the page walk cache. Default 100 (Table I).
    pub level_cycles: u64,
    /// Entries of the page walk cache, which holds entries of all levels but the last; least
    /// recently used goes first. Default 128 (Table I).
    pub cache_entries: u32,
    /// Walks that wait for a walker; while there are as many, the L2 TLB stands still. Default 64
    /// (Table I).
    pub queue_entries: u32,
}

impl Default for WalkSpec {
    fn default() -> WalkSpec {
        WalkSpec { walkers: 8, levels: 4, level_cycles: 100, cache_entries: 128, queue_entries: 64 }
    }
}
