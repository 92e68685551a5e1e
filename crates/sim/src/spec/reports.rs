//! What a GPU tells the driver of: faults and remote accesses.

use serde::{Deserialize, Serialize};

/// `[fault]`: the buffer in which a GPU reports faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultSpec {
    /// Faults that it holds; more wait until the driver has fetched some. Default 256: one batch
    /// of the driver; assumed.
    pub buffer_entries: u32,
    /// A fault on a page that another GPU has mapped gets its translation from there, over the link
    /// between GPUs, and does not take the host's time for a walk (Trans-FW, HPCA 2023). Default
    /// false: the GRIT paper's baselines do not have it (section VI-C3).
    pub forwarding: bool,
}

impl Default for FaultSpec {
    fn default() -> FaultSpec {
        FaultSpec { buffer_entries: 256, forwarding: false }
    }
}

/// `[counter]`: access counters (GRIT, section II-B2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CounterSpec {
    /// Remote accesses to a group after which the driver is told. Default 256 (Table I).
    pub threshold: u32,
    /// Bytes of a group, a power of two from 4096 to 2097152; at least a page. Default 65536
    /// (section II-B2).
    pub group_bytes: u32,
}

impl Default for CounterSpec {
    fn default() -> CounterSpec {
        CounterSpec { threshold: 256, group_bytes: 65_536 }
    }
}
