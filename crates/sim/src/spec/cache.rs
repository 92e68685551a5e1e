//! Caches.

use serde::{Deserialize, Serialize};

/// `[cache]`: caches of 64-byte lines; replacement is least recently used.
///
/// The vector cache writes through and does not allocate on a write; the L2 cache writes back, and
/// a write does not fetch the rest of the line (AMD, "Graphics Cores Next Architecture", 2012). A
/// line of another memory is held by the L1 caches only. Each compute unit has an instruction
/// cache of its own, where GCN shares one among four. L1 caches are emptied when a kernel begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheSpec {
    /// Bytes of a compute unit's vector cache. Default 16384 (Table I).
    pub vector_bytes: u32,
    /// Its ways. Default 4 (Table I).
    pub vector_ways: u32,
    /// Bytes of a compute unit's scalar cache. Default 16384 (Table I).
    pub scalar_bytes: u32,
    /// Its ways. Default 4 (Table I).
    pub scalar_ways: u32,
    /// Bytes of the instruction cache. Default 32768 (Table I).
    pub instruction_bytes: u32,
    /// Its ways. Default 4 (Table I).
    pub instruction_ways: u32,
    /// Cycles of these three. Default 28 (Tesla V100; Jia et al., 2018, table 3.1).
    pub l1_cycles: u64,
    /// Bytes of a GPU's L2 cache. Default 262144 (Table I).
    pub l2_bytes: u32,
    /// Its ways. Default 16 (Table I).
    pub l2_ways: u32,
    /// Cycles of the L2 cache besides those of the L1 cache. Default 165: 193 in all (Tesla V100;
    /// Jia et al., 2018, table 3.1).
    pub l2_cycles: u64,
    /// Banks of the L2 cache; each takes a line a cycle, neighbouring lines are in different ones.
    /// Default 16 (AMD R9 Nano, MGPUSim's GPU).
    pub l2_banks: u32,
}

impl Default for CacheSpec {
    fn default() -> CacheSpec {
        CacheSpec {
            vector_bytes: 16 << 10,
            vector_ways: 4,
            scalar_bytes: 16 << 10,
            scalar_ways: 4,
            instruction_bytes: 32 << 10,
            instruction_ways: 4,
            l1_cycles: 28,
            l2_bytes: 256 << 10,
            l2_ways: 16,
            l2_cycles: 165,
            l2_banks: 16,
        }
    }
}
