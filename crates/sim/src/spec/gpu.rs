//! The GPUs: how many, how large, and which gets what work.

use serde::{Deserialize, Serialize};

/// `[gpu]`: the GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GpuSpec {
    /// Number of GPUs, 1 to 16. Default 4 (GRIT, section III).
    pub count: u32,
    /// Compute units of each. Default 64 (Table I).
    pub compute_units: u32,
    /// Clock in MHz; every latency in cycles is of this clock. Default 1000 (Table I).
    pub clock_mhz: u32,
    /// Wavefronts that are resident in a compute unit, at most 64. Default 40: a GCN compute unit
    /// has four SIMD units of ten (AMD, "Graphics Cores Next Architecture", 2012).
    pub wavefronts: u32,
    /// SIMD units of a compute unit; a wavefront's slot belongs to one, which does the arithmetic of
    /// one wavefront at a time. Default 4 (AMD, "Graphics Cores Next
    /// Architecture", 2012).
    pub simds: u32,
    /// Which GPU and compute unit a work-group gets. Default `partition`: MGPUSim's
    /// unified device (v3.0.0, driver/driver.go:427); see [`Dispatch`].
    pub dispatch: Dispatch,
    /// Cycles from one work-group to the next that a GPU starts. Default 1 (MGPUSim).
    pub dispatch_cycles: u64,
    /// Latency of the GPU's own memory in ns, behind the L2 cache. Default 182: an access that
    /// misses the L2 cache takes 375 cycles and one that hits it 193 on a Tesla V100 (Jia et al.,
    /// "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018, section 3).
    pub memory_ns: u64,
    /// Channels of that memory; neighbouring lines are on different ones. Default 16: two for each
    /// of the eight 128-bit channels of two HBM2 stacks; assumed.
    pub memory_channels: u32,
    /// Bandwidth of the GPU's own memory in GB/s, all channels together. Default 900 (Tesla V100,
    /// the GPU generation of Table I's NVLink).
    pub memory_gb_per_s: u64,
    /// Frames as a share of the program's footprint, in percent. Default: none, every GPU holds
    /// everything. The paper's setting is 70 (Table I).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_percent: Option<u32>,
    /// Whose frames that share is: `each` GPU has it, or all GPUs together (`total`). Default
    /// `each`: assumed, the paper does not say which.
    pub capacity_of: CapacityOf,
    /// Where the little data is that every wavefront reads: FIR's filter and SC's mask. Default `shared`: the traces recorded with the paper's simulator have the filter's page
    /// shared by all GPUs.
    pub constants: Constants,
}

impl Default for GpuSpec {
    fn default() -> GpuSpec {
        GpuSpec {
            count: 4,
            compute_units: 64,
            clock_mhz: 1_000,
            wavefronts: 40,
            simds: 4,
            dispatch: Dispatch::default(),
            dispatch_cycles: 1,
            memory_ns: 182,
            memory_channels: 16,
            memory_gb_per_s: 900,
            capacity_percent: None,
            capacity_of: CapacityOf::default(),
            constants: Constants::default(),
        }
    }
}

impl GpuSpec {
    /// Accesses to other memories that a GPU has under way at once, at least, while it runs a kernel that waits for them:
    /// one for each SIMD unit, which has a wavefront of its own.
    pub fn at_once(&self) -> u32 {
        self.compute_units.saturating_mul(self.simds)
    }
}

/// Which GPU and compute unit a work-group gets.
///
/// The GRIT paper (section III-B) says that a GPU is filled before the next one gets anything. A
/// launch that fits into one GPU then runs there alone, and with 64 compute units of 40 wavefronts
/// most of its programs do; but its Figures 4-8 show pages that all four GPUs share, and the
/// traces recorded with its simulator have the groups of each launch partitioned over the GPUs.
/// So `partition` is the default, and `fill` a knob.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dispatch {
    /// MGPUSim's unified device: GPU `i` of `n` gets the `i`th part of the groups; in a GPU each
    /// compute unit gets a part in turn, and takes from the others when its own is used up.
    #[default]
    Partition,
    /// The same over GPUs; in a GPU the groups go round the compute units.
    RoundRobin,
    /// Chunks of as many groups as a GPU holds, to the GPUs in turn: GPU `i` of `n` gets chunks `i`, `i + n`, …
    /// A reading of GRIT's section III-B ("Only when the GPU cannot accommodate more TBs, the
    /// scheduler moves to the next GPU") in which all GPUs have work, as in its Figure 4; assumed.
    Chunks,
    /// Round the compute units of a GPU until it holds no more, then the next GPU; later each GPU
    /// takes the next group when one of its own has ended (GRIT, section III-B).
    Fill,
}

/// Where the program's constants are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Constants {
    /// In pages like any others.
    #[default]
    Shared,
    /// Each GPU has a copy of its own, as MGPUSim's multi-GPU host code allocates it (v3.0.0,
    /// benchmarks/heteromark/fir/fir.go:119, amdappsdk/simpleconvolution/simpleconvolution.go:127). It
    /// never moves here, as a kernel's arguments do not; there it is a page that faults once.
    Each,
}

/// What [`GpuSpec::capacity_percent`] is a share of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityOf {
    /// Every GPU has that share of the footprint.
    #[default]
    Each,
    /// All GPUs together have it, in equal parts.
    Total,
}
