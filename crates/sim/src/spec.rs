//! The machine's specification: every number of the timing model, with its source.
//!
//! A specification is immutable and read from TOML. A key that is left out has the value of the
//! preset `grit-table-1`: the machine of Table I of the GRIT paper. What that table does not give
//! is marked *assumed* or carries another source; none of it is fitted to a workload.

use std::path::Path;

use farside_types::{MAX_CARDS, Span};
use serde::{Deserialize, Serialize};

use crate::SpecError;

/// A machine: a host and GPUs of one kind, every GPU linked to every other and to the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spec {
    /// The GPUs.
    pub gpu: GpuSpec,
    /// Translation lookaside buffers.
    pub tlb: TlbSpec,
    /// Page table walks.
    pub walk: WalkSpec,
    /// Pages.
    pub page: PageSpec,
    /// Caches.
    pub cache: CacheSpec,
    /// Links.
    pub link: LinkSpec,
    /// The GPUs' command rings.
    pub command: CommandSpec,
    /// Page copies.
    pub copy: CopySpec,
    /// The driver's processor on the host.
    pub host: HostSpec,
    /// Fault buffers of the GPUs.
    pub fault: FaultSpec,
    /// What an invalidation waits for.
    pub flush: FlushSpec,
    /// Stores to pages that others have copies of.
    pub store: StoreSpec,
    /// Access counters.
    pub counter: CounterSpec,
    /// What the driver does besides its placement scheme.
    pub driver: DriverSpec,
    /// How the simulator itself works.
    pub engine: EngineSpec,
}

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
    /// one wavefront at a time. Default 4 (likewise).
    pub simds: u32,
    /// Which GPU and compute unit a work-group gets. Default `partition`; see [`Dispatch`].
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
    /// `each`; the paper does not say which.
    pub capacity_of: CapacityOf,
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
    /// Round the compute units of a GPU until it holds no more, then the next GPU; later each GPU
    /// takes the next group when one of its own has ended (GRIT, section III-B).
    Fill,
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

/// `[page]`: pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PageSpec {
    /// Bytes of a page: 4096 or 2097152. Default 4096 (GRIT, section III-B).
    pub bytes: u32,
}

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

/// `[link]`: what joins the memories. Every GPU has one port per direction and kind of link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkSpec {
    /// Bandwidth between GPUs in GB/s, per GPU and direction. Default 300 (Table I).
    pub nvlink_gb_per_s: u64,
    /// One way between GPUs, in ns. Default 150; assumed, the paper gives none.
    pub nvlink_ns: u64,
    /// Bandwidth between host and a GPU in GB/s, per direction. Default 32 (Table I).
    pub pcie_gb_per_s: u64,
    /// One way between host and GPU, in ns. Default 150 (wangw42/try_mgpusim, mmu.go).
    pub pcie_ns: u64,
    /// Latency of host memory as a GPU's remote access sees it behind the link, in ns.
    /// Default 100; assumed.
    pub host_memory_ns: u64,
}

/// `[command]`: a GPU's command ring. Commands run one after the other, in ring order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CommandSpec {
    /// From the driver's doorbell until the GPU sees the command, in ns. Default 150: one way
    /// over PCIe (`link.pcie_ns`).
    pub submit_ns: u64,
    /// From the end of a command until the driver sees it, in ns. Default 150, likewise.
    pub complete_ns: u64,
    /// Every command, in ns. Default 20; assumed.
    pub base_ns: u64,
    /// Per page mapped, unmapped or protected, in ns. Default 10; assumed.
    pub page_ns: u64,
    /// Flush of pipeline and caches and shootdown of the TLBs, per invalidating command, in ns,
    /// besides the drain of accesses in flight (GRIT, section II-B: steps; no number). Default
    /// 100; assumed.
    pub invalidate_ns: u64,
    /// Start of a kernel, in ns. Default 5000: a few microseconds are usual on today's GPUs; assumed.
    pub launch_ns: u64,
}

/// `[copy]`: page copies by the GPUs' copy engines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CopySpec {
    /// Latency of a copy or fill besides the time on the link, in ns; copies overlap in it.
    /// Default 500: a copy engine that reads a first line over the link, memory included; assumed.
    pub latency_ns: u64,
}

/// `[host]`: the driver's processor. It does one thing at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostSpec {
    /// From a fault or counter notice in a GPU's empty buffer until the driver runs, in ns.
    /// Default 662: 150 cycles over PCIe and 512 in which a batch is collected (the published
    /// simulator of wangw42/try_mgpusim, mmu.go, for a machine with the same walkers and walk
    /// cache as Table I).
    pub interrupt_ns: u64,
    /// Batches and operations in service at a time. Default 32 (likewise).
    pub threads: u32,
    /// Service of a batch, in ns. Default 1000 (likewise).
    pub batch_ns: u64,
    /// Service of each fault or notice in a batch, in ns. Default 31: 1000 cycles on one of 32
    /// threads (likewise).
    pub fault_ns: u64,
    /// A memory access to the placement scheme's own table, in ns: a PA-Table lookup that the
    /// PA-Cache does not hold (GRIT, section V-C: one memory access). Default 100:
    /// `link.host_memory_ns`.
    pub table_ns: u64,
    /// An operation on the CPU's own page table, in ns. Default 100: a memory access; assumed.
    pub operation_ns: u64,
    /// Per page of such an operation, in ns. Default 10; assumed.
    pub operation_page_ns: u64,
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

/// `[fault]`: the buffer in which a GPU reports faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultSpec {
    /// Faults that it holds; more wait until the driver has fetched some. Default 256: one batch
    /// of the driver; assumed.
    pub buffer_entries: u32,
    /// A fault on a page that another GPU has mapped gets its translation from there, over the link
    /// between GPUs, and does not take the host's time for a walk (Trans-FW, HPCA 2023). Default
    /// false.
    pub forwarding: bool,
}

/// `[store]`: stores to pages that others have copies of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSpec {
    /// How. Default `exclusive`; see [`StoreMode`].
    pub mode: StoreMode,
}

/// What a store to a page does of which the GPU has a copy among others.
///
/// The coherence checker knows the driver's rule only, one writer or many readers, and is off in
/// the other two modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreMode {
    /// It faults: the driver takes the other copies away first.
    #[default]
    Exclusive,
    /// It goes to all GPUs that have a copy (GPS, MICRO 2021): a GPU without one faults as for
    /// reading. The host's copy is not kept up to date.
    Broadcast,
    /// It costs nothing, wherever the page is (GRIT's ideal, section I). A GPU without a copy
    /// faults as for reading.
    Ideal,
}

/// `[flush]`: what an invalidation waits for, and what it empties.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FlushSpec {
    /// How. Default `pipeline`; see [`FlushMode`].
    pub mode: FlushMode,
}

/// What a GPU does when a translation, or the right to write, is taken away from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlushMode {
    /// No compute unit issues until all accesses in flight are over, dirty lines are written back
    /// and caches and TLBs are empty (GRIT, section II-B).
    #[default]
    Pipeline,
    /// Only accesses to these pages are waited for, and only their lines and translations go:
    /// asynchronous compute unit draining (Griffin; GRIT, section VI-C).
    Page,
}

/// `[engine]`: how the simulator itself works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSpec {
    /// How a line's way is timed. Default `reservation`; see [`EngineMode`].
    pub mode: EngineMode,
    /// Cycles that a wavefront may run ahead of the others between two looks at the clock: fewer
    /// events, a slightly different order. Default 64.
    pub run_ahead_cycles: u64,
}

/// How a line's way through banks, channels and links is timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineMode {
    /// All of it is reserved when the line is issued: no event on the way.
    #[default]
    Reservation,
    /// Every hop is an event, and whoever comes to a resource first is served first: slower, and
    /// what the other mode is checked against.
    Events,
}

/// `[driver]`: what the driver does besides its placement scheme. The defaults switch everything
/// off that the GRIT paper's baselines do not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DriverSpec {
    /// Most faults of a batch. Default 256 (NVIDIA's driver).
    pub fault_batch: u32,
    /// Moves nearer to each other than this are a fight, in ns. Default 0: no thrash handling.
    pub thrash_window_ns: u64,
    /// Tree prefetch: fill a subtree that is more than this full, in percent. Default 100: off.
    pub density_percent: u8,
    /// Keep the host's frame as a clean copy of a page that a GPU only reads. Default false.
    pub keep_clean_copies: bool,
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
        }
    }
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

impl Default for WalkSpec {
    fn default() -> WalkSpec {
        WalkSpec { walkers: 8, levels: 4, level_cycles: 100, cache_entries: 128, queue_entries: 64 }
    }
}

impl Default for PageSpec {
    fn default() -> PageSpec {
        PageSpec { bytes: 4_096 }
    }
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

impl Default for FaultSpec {
    fn default() -> FaultSpec {
        FaultSpec { buffer_entries: 256, forwarding: false }
    }
}

impl Default for EngineSpec {
    fn default() -> EngineSpec {
        EngineSpec { mode: EngineMode::default(), run_ahead_cycles: 64 }
    }
}

impl Default for LinkSpec {
    fn default() -> LinkSpec {
        LinkSpec {
            nvlink_gb_per_s: 300,
            nvlink_ns: 150,
            pcie_gb_per_s: 32,
            pcie_ns: 150,
            host_memory_ns: 100,
        }
    }
}

impl Default for CommandSpec {
    fn default() -> CommandSpec {
        CommandSpec {
            submit_ns: 150,
            complete_ns: 150,
            base_ns: 20,
            page_ns: 10,
            invalidate_ns: 100,
            launch_ns: 5_000,
        }
    }
}

impl Default for CopySpec {
    fn default() -> CopySpec {
        CopySpec { latency_ns: 500 }
    }
}

impl Default for HostSpec {
    fn default() -> HostSpec {
        HostSpec {
            interrupt_ns: 662,
            threads: 32,
            batch_ns: 1_000,
            fault_ns: 31,
            table_ns: 100,
            operation_ns: 100,
            operation_page_ns: 10,
        }
    }
}

impl Default for CounterSpec {
    fn default() -> CounterSpec {
        CounterSpec { threshold: 256, group_bytes: 65_536 }
    }
}

impl Default for DriverSpec {
    fn default() -> DriverSpec {
        DriverSpec {
            fault_batch: 256,
            thrash_window_ns: 0,
            density_percent: 100,
            keep_clean_copies: false,
        }
    }
}

/// A driver on one processor of the host: interrupt and scheduling 10.1 us; per migration 2.9 us of
/// setup and 2.8 us of finalize; 0.37 us a page; 5 us for a copy between endpoints (multi-FPGA SVM
/// paper, Tables I and II, fitted).
const LINUX_DRIVER: &[(&str, &str)] = &[
    ("host.threads", "1"),
    ("host.interrupt_ns", "10100"),
    ("host.batch_ns", "5700"),
    ("host.fault_ns", "370"),
    ("host.operation_ns", "1000"),
    ("host.operation_page_ns", "100"),
    ("copy.latency_ns", "5000"),
    ("command.launch_ns", "15400"),
];

/// Defaults of NVIDIA's driver for unified memory (open-gpu-kernel-modules).
const AS_SHIPPED: &[(&str, &str)] = &[
    ("driver.density_percent", "51"),
    ("driver.thrash_window_ns", "500000"),
    ("counter.group_bytes", "2097152"),
];

/// Longest latency that is accepted, in ns or cycles: one second at 1 GHz. Sums of a few of them
/// cannot overflow.
const LATENCY_MAX: u64 = 1_000_000_000;

/// Each value with its key, least and greatest value, and what it must be.
type Bound = (&'static str, u64, u64, u64, &'static str);

impl Spec {
    /// Names that [`Spec::preset`] knows.
    pub const PRESETS: &'static [&'static str] = &["grit-table-1", "linux-driver", "as-shipped"];

    /// The preset of this name.
    ///
    /// - `grit-table-1`: the baseline of the GRIT paper, Table I, with a host as in the simulators
    ///   that this line of papers uses.
    /// - `linux-driver`: the same GPUs under a driver that costs what a measured one costs on
    ///   Linux: that of the multi-FPGA SVM paper (constants fitted on its Tables I and II).
    /// - `as-shipped`: `linux-driver` with what NVIDIA's driver does by default: tree prefetch at
    ///   51 %, thrash detection (3 moves within 500 us), access counters on groups of 2 MiB.
    ///
    /// # Errors
    /// [`SpecError::NoSuchPreset`].
    pub fn preset(name: &str) -> Result<Spec, SpecError> {
        match name {
            "grit-table-1" => Ok(Spec::default()),
            "linux-driver" => Spec::default().with_overrides(LINUX_DRIVER),
            "as-shipped" => {
                Spec::default().with_overrides(LINUX_DRIVER)?.with_overrides(AS_SHIPPED)
            }
            _ => Err(SpecError::NoSuchPreset { name: name.to_owned() }),
        }
    }

    /// Reads TOML. Keys that are left out have the value of `grit-table-1`.
    ///
    /// # Errors
    /// [`SpecError`] that names the key: unknown keys, wrong types, values that cannot work.
    pub fn from_toml(text: &str) -> Result<Spec, SpecError> {
        let spec: Spec = toml::from_str(text)?;
        spec.check()?;
        Ok(spec)
    }

    /// Reads a TOML file.
    ///
    /// # Errors
    /// [`SpecError`] that names the file or the key.
    pub fn open(path: &Path) -> Result<Spec, SpecError> {
        let unreadable = |source| SpecError::Read { path: path.to_owned(), source };
        Spec::from_toml(&std::fs::read_to_string(path).map_err(unreadable)?)
    }

    /// The whole specification as TOML, as it is written beside results.
    pub fn to_toml(&self) -> String {
        // Plain tables of integers and booleans: serialising them has no way to fail.
        toml::to_string(self).unwrap_or_default()
    }

    /// Whether a machine can have these values.
    ///
    /// # Errors
    /// [`SpecError::Value`] names the first key that cannot work.
    pub fn check(&self) -> Result<(), SpecError> {
        for (key, value, least, most, why) in self.counts().into_iter().chain(self.latencies()) {
            if value < least || value > most {
                return Err(SpecError::Value { key, value, why });
            }
        }
        let (tlb, cache) = (&self.tlb, &self.cache);
        let line = crate::workload::LINE_BYTES as u32;
        check_sets("tlb.l1_ways", tlb.l1_entries, tlb.l1_ways)?;
        check_sets("tlb.l2_ways", tlb.l2_entries, tlb.l2_ways)?;
        check_sets("cache.vector_ways", cache.vector_bytes / line, cache.vector_ways)?;
        check_sets("cache.scalar_ways", cache.scalar_bytes / line, cache.scalar_ways)?;
        check_sets(
            "cache.instruction_ways",
            cache.instruction_bytes / line,
            cache.instruction_ways,
        )?;
        check_sets("cache.l2_ways", cache.l2_bytes / line, cache.l2_ways)?;
        check_power("cache.l2_banks", cache.l2_banks)?;
        check_power("gpu.memory_channels", self.gpu.memory_channels)?;
        check_power("counter.group_bytes", self.counter.group_bytes)?;
        match self.page.bytes {
            4_096 | 2_097_152 => Ok(()),
            bytes => {
                let why = "it must be 4096 or 2097152";
                Err(SpecError::Value { key: "page.bytes", value: u64::from(bytes), why })
            }
        }
    }

    fn counts(&self) -> Vec<Bound> {
        let n = u64::from;
        let (gpu, tlb, link, cache) = (&self.gpu, &self.tlb, &self.link, &self.cache);
        let capacity = gpu.capacity_percent.map_or(100, n);
        let rate = "it must be 1 to 1000000 GB/s";
        let (size, ways) = ("it must be 64 to 2^24", "it must be 1 to 64");
        let (group, buffer) = ("it must be 4096 to 2097152", "it must be 1 to 2^20");
        vec![
            ("gpu.count", n(gpu.count), 1, MAX_CARDS as u64, "it must be 1 to 16"),
            ("gpu.compute_units", n(gpu.compute_units), 1, 256, "it must be 1 to 256"),
            ("gpu.clock_mhz", n(gpu.clock_mhz), 1, 100_000, "it must be 1 to 100000"),
            ("gpu.wavefronts", n(gpu.wavefronts), 1, 64, "it must be 1 to 64"),
            ("gpu.simds", n(gpu.simds), 1, 64, "it must be 1 to 64"),
            ("gpu.memory_channels", n(gpu.memory_channels), 1, 256, "it must be 1 to 256"),
            ("gpu.memory_gb_per_s", gpu.memory_gb_per_s, 1, 1_000_000, rate),
            ("gpu.capacity_percent", capacity, 1, 10_000, "it must be 1 to 10000"),
            ("tlb.l1_entries", n(tlb.l1_entries), 1, 65_536, "it must be 1 to 65536"),
            ("tlb.l1_ways", n(tlb.l1_ways), 1, n(tlb.l1_entries), "it must be 1 to tlb.l1_entries"),
            ("tlb.l2_entries", n(tlb.l2_entries), 1, 1 << 20, "it must be 1 to 1048576"),
            ("tlb.l2_ways", n(tlb.l2_ways), 1, n(tlb.l2_entries), "it must be 1 to tlb.l2_entries"),
            ("walk.walkers", n(self.walk.walkers), 1, 4_096, "it must be 1 to 4096"),
            ("walk.levels", self.walk.levels, 1, 8, "it must be 1 to 8"),
            ("link.nvlink_gb_per_s", link.nvlink_gb_per_s, 1, 1_000_000, rate),
            ("link.pcie_gb_per_s", link.pcie_gb_per_s, 1, 1_000_000, rate),
            ("counter.threshold", n(self.counter.threshold), 1, 1 << 30, "it must be 1 to 2^30"),
            ("walk.cache_entries", n(self.walk.cache_entries), 1, 4_096, "it must be 1 to 4096"),
            ("walk.queue_entries", n(self.walk.queue_entries), 1, 65_536, "it must be 1 to 65536"),
            ("cache.vector_bytes", n(cache.vector_bytes), 64, 1 << 24, size),
            ("cache.vector_ways", n(cache.vector_ways), 1, 64, ways),
            ("cache.scalar_bytes", n(cache.scalar_bytes), 64, 1 << 24, size),
            ("cache.scalar_ways", n(cache.scalar_ways), 1, 64, ways),
            ("cache.instruction_bytes", n(cache.instruction_bytes), 64, 1 << 24, size),
            ("cache.instruction_ways", n(cache.instruction_ways), 1, 64, ways),
            ("cache.l2_bytes", n(cache.l2_bytes), 64, 1 << 30, "it must be 64 to 2^30"),
            ("cache.l2_ways", n(cache.l2_ways), 1, 64, ways),
            ("cache.l2_banks", n(cache.l2_banks), 1, 256, "it must be 1 to 256"),
            ("counter.group_bytes", n(self.counter.group_bytes), 4_096, 2_097_152, group),
            ("fault.buffer_entries", n(self.fault.buffer_entries), 1, 1 << 20, buffer),
            ("driver.fault_batch", n(self.driver.fault_batch), 1, 65_536, "it must be 1 to 65536"),
            ("host.threads", n(self.host.threads), 1, 1_024, "it must be 1 to 1024"),
        ]
    }

    fn latencies(&self) -> Vec<Bound> {
        [
            ("gpu.memory_ns", self.gpu.memory_ns),
            ("gpu.dispatch_cycles", self.gpu.dispatch_cycles),
            ("cache.l1_cycles", self.cache.l1_cycles),
            ("cache.l2_cycles", self.cache.l2_cycles),
            ("engine.run_ahead_cycles", self.engine.run_ahead_cycles),
            ("tlb.l1_cycles", self.tlb.l1_cycles),
            ("tlb.l2_cycles", self.tlb.l2_cycles),
            ("walk.level_cycles", self.walk.level_cycles),
            ("link.nvlink_ns", self.link.nvlink_ns),
            ("link.pcie_ns", self.link.pcie_ns),
            ("link.host_memory_ns", self.link.host_memory_ns),
            ("command.submit_ns", self.command.submit_ns),
            ("command.complete_ns", self.command.complete_ns),
            ("command.base_ns", self.command.base_ns),
            ("command.page_ns", self.command.page_ns),
            ("command.invalidate_ns", self.command.invalidate_ns),
            ("command.launch_ns", self.command.launch_ns),
            ("copy.latency_ns", self.copy.latency_ns),
            ("host.interrupt_ns", self.host.interrupt_ns),
            ("host.batch_ns", self.host.batch_ns),
            ("host.fault_ns", self.host.fault_ns),
            ("host.table_ns", self.host.table_ns),
            ("host.operation_ns", self.host.operation_ns),
            ("host.operation_page_ns", self.host.operation_page_ns),
            ("driver.thrash_window_ns", self.driver.thrash_window_ns),
        ]
        .into_iter()
        .map(|(key, value)| (key, value, 0, LATENCY_MAX, "it must be at most 1000000000"))
        .collect()
    }

    /// log2 of the lines of a page.
    pub(crate) fn page_lines_shift(&self) -> u32 {
        self.page.bytes.trailing_zeros() - 6
    }

    /// The GPUs.
    pub(crate) fn gpus(&self) -> usize {
        self.gpu.count as usize
    }

    /// A number of cycles as a span.
    pub(crate) fn cycles(&self, cycles: u64) -> Span {
        Span(cycles * 1_000_000 / u64::from(self.gpu.clock_mhz))
    }

    /// A span as whole cycles of the GPUs' clock.
    pub(crate) fn in_cycles(&self, span: Span) -> u64 {
        (u128::from(span.0) * u128::from(self.gpu.clock_mhz) / 1_000_000) as u64
    }
}

fn check_power(key: &'static str, value: u32) -> Result<(), SpecError> {
    if value.is_power_of_two() {
        return Ok(());
    }
    Err(SpecError::Value { key, value: u64::from(value), why: "it must be a power of two" })
}

fn check_sets(key: &'static str, entries: u32, ways: u32) -> Result<(), SpecError> {
    if entries % ways == 0 && (entries / ways).is_power_of_two() {
        return Ok(());
    }
    let why = "the entries divided by the ways must be a power of two";
    Err(SpecError::Value { key, value: u64::from(ways), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Spec::from_toml(text).expect_err("must be refused").to_string()
    }

    #[test]
    fn an_empty_file_is_the_machine_of_table_1() {
        let spec = Spec::from_toml("").unwrap();
        assert_eq!(spec, Spec::preset("grit-table-1").unwrap());
        let (tlb, walk) = (&spec.tlb, &spec.walk);
        assert_eq!((spec.gpu.count, spec.gpu.compute_units, spec.gpu.clock_mhz), (4, 64, 1_000));
        assert_eq!((tlb.l1_entries, tlb.l1_ways, tlb.l1_cycles), (32, 32, 1));
        assert_eq!((tlb.l2_entries, tlb.l2_ways, tlb.l2_cycles), (512, 16, 10));
        assert_eq!((walk.walkers, walk.level_cycles), (8, 100));
        assert_eq!((walk.cache_entries, walk.queue_entries), (128, 64));
        let cache = &spec.cache;
        assert_eq!((cache.vector_bytes, cache.scalar_bytes), (16 << 10, 16 << 10));
        assert_eq!((cache.instruction_bytes, cache.l2_bytes), (32 << 10, 256 << 10));
        assert_eq!((cache.vector_ways, cache.l2_ways, spec.page.bytes), (4, 16, 4_096));
        assert_eq!((spec.link.nvlink_gb_per_s, spec.link.pcie_gb_per_s), (300, 32));
        assert_eq!((spec.counter.threshold, spec.counter.group_bytes), (256, 65_536));
    }

    #[test]
    fn what_is_written_beside_a_result_reads_back_as_the_same() {
        let mut spec = Spec::default();
        spec.gpu.capacity_percent = Some(70);
        spec.link.nvlink_ns = 777;
        assert_eq!(Spec::from_toml(&spec.to_toml()).unwrap(), spec);
        assert_eq!(Spec::from_toml(&Spec::default().to_toml()).unwrap(), Spec::default());
    }

    #[test]
    fn errors_name_the_key() {
        assert!(refused("[gpu]\ncuont = 4").contains("cuont"));
        assert!(refused("[gqu]\ncount = 4").contains("gqu"));
        assert!(refused("[gpu]\ncount = 17").contains("gpu.count is 17"));
        assert!(refused("[gpu]\ncount = -1").contains("-1"));
        assert!(refused("[tlb]\nl2_ways = 0").contains("tlb.l2_ways is 0"));
        assert!(refused("[tlb]\nl2_ways = 7").contains("tlb.l2_ways is 7"));
        assert!(refused("[counter]\ngroup_bytes = 5000").contains("counter.group_bytes is 5000"));
        assert!(refused("[link]\npcie_gb_per_s = 0").contains("link.pcie_gb_per_s is 0"));
        assert!(refused("[host]\nbatch_ns = 1000000001").contains("host.batch_ns"));
        assert!(refused("[gpu]\ncapacity_percent = 0").contains("gpu.capacity_percent"));
        assert!(refused("[flush]\nmode = \"none\"").contains("none"));
        assert!(refused("[page]\nbytes = 65536").contains("page.bytes is 65536"));
        assert!(refused("[cache]\nl2_banks = 3").contains("cache.l2_banks is 3"));
        assert!(refused("[gpu").contains("cannot be read"));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Spec::open(Path::new("no/such/machine.toml")).unwrap_err().to_string();
        assert!(error.contains("no/such/machine.toml"), "{error}");
    }

    #[test]
    fn an_unknown_preset_is_answered_with_those_there_are() {
        let error = Spec::preset("grit").unwrap_err().to_string();
        assert!(error.contains("grit-table-1"), "{error}");
    }

    #[test]
    fn cycles_are_of_the_clock() {
        let spec = Spec::from_toml("[gpu]\nclock_mhz = 2000").unwrap();
        assert_eq!(spec.cycles(10), Span::from_nanos(5));
        assert_eq!(spec.in_cycles(Span::from_nanos(5)), 10);
    }
}
