//! What joins the memories: links, and the copies that go over them.

use serde::{Deserialize, Serialize};

/// `[link]`: what joins the memories. Every GPU has one port per direction and kind of link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkSpec {
    /// Bandwidth between GPUs in GB/s, per GPU and direction. Default 150: Table I's 300 GB/s of
    /// NVLink-v2 are both directions of six links of 25 GB/s each way (NVIDIA, "Tesla V100 GPU
    /// Architecture", 2017).
    pub nvlink_gb_per_s: u64,
    /// One way between GPUs, in ns. Default 150: assumed, the paper gives none; MGPUSim v3.0.0 has 140 cycles for a
    /// switch of PCIe (samples/runner/timingplatform.go:295).
    pub nvlink_ns: u64,
    /// Bandwidth between host and a GPU in GB/s, per direction. Default 32 (Table I).
    pub pcie_gb_per_s: u64,
    /// One way between host and GPU, in ns. Default 150 (wangw42/try_mgpusim, mmu.go).
    pub pcie_ns: u64,
    /// Latency of host memory as a GPU's remote access sees it behind the link, in ns.
    /// Default 100; assumed.
    pub host_memory_ns: u64,
}

impl Default for LinkSpec {
    fn default() -> LinkSpec {
        LinkSpec {
            nvlink_gb_per_s: 150,
            nvlink_ns: 150,
            pcie_gb_per_s: 32,
            pcie_ns: 150,
            host_memory_ns: 100,
        }
    }
}

/// `[copy]`: page copies by the GPUs' copy engines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CopySpec {
    /// Latency of a copy or fill besides the time on the link, in ns; copies overlap in it.
    /// Default 500: a copy engine that reads a first line over the link, memory included; assumed.
    pub latency_ns: u64,
}

impl Default for CopySpec {
    fn default() -> CopySpec {
        CopySpec { latency_ns: 500 }
    }
}
