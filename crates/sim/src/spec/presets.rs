//! Machines that have a name: what each has otherwise than [`Spec::default`], and where from.

use super::Spec;
use crate::SpecError;

/// A value of a preset.
pub(super) struct Given {
    pub(super) key: &'static str,
    pub(super) value: &'static str,
    /// Where it is from; begins with "assumed" where it is.
    pub(super) source: &'static str,
}

const fn is(key: &'static str, value: &'static str, source: &'static str) -> Given {
    Given { key, value, source }
}

/// The machine of the GRIT paper as its text and the published simulator (MGPUSim v3.0.0, and Akita
/// v3.0.0-alpha.31, which that names in its go.mod) have it. The authors' own version of the simulator is not published.
const GRIT_PAPER: &[Given] = &[
    is("gpu.capacity_percent", "70", "Table I"),
    is(
        "gpu.capacity_of",
        "total",
        "assumed: Figure 3 and section VI-C2 (eviction, re-duplication, oversubscription); III-B can be read either way",
    ),
    is(
        "gpu.dispatch",
        "chunks",
        "assumed: section III-B (a GPU is filled before the next) with Figure 4 (all GPUs share)",
    ),
    is(
        "gpu.constants",
        "each",
        "MGPUSim v3.0.0, benchmarks/heteromark/fir/fir.go:119, amdappsdk/simpleconvolution/simpleconvolution.go:127: one for each GPU",
    ),
    is(
        "link.nvlink_ns",
        "140",
        "assumed: the paper gives none; a switch of PCIe has 140 cycles in MGPUSim v3.0.0, samples/runner/timingplatform.go:295",
    ),
    is(
        "command.launch_ns",
        "0",
        "MGPUSim v3.0.0, timing/cp/internal/dispatching/builder.go:90: no overhead but the way there",
    ),
    is(
        "host.threads",
        "16",
        "Akita v3.0.0-alpha.31, mem/vm/mmu/builder.go:24: translations in service at a time",
    ),
    is(
        "host.fault_ns",
        "1000",
        "assumed: not published; wangw42/try_mgpusim has 1000, MGPUSim v3.0.0 a walk of 100 (timingplatform.go:332)",
    ),
    is(
        "host.migrations",
        "1",
        "MGPUSim v3.0.0, driver/driver.go:538 (isCurrentlyHandlingMigrationReq)",
    ),
    is(
        "flush.until",
        "moved",
        "MGPUSim v3.0.0, driver/driver.go:740 (restart when the pages have been copied)",
    ),
    is("flush.demote", "page", "section II-B3: a flush at the collapse alone"),
    is("flush.counter", "all", "section II-B2, step 4: every GPU"),
];

/// A driver on one processor of the host: interrupt and scheduling 10.1 us; per migration 2.9 us of
/// setup and 2.8 us of finalize; 0.37 us a page; 5 us for a copy between endpoints (multi-FPGA SVM
/// paper, Tables I and II, fitted).
const LINUX_DRIVER: &[Given] = &[
    is("host.threads", "1", FITTED),
    is("host.interrupt_ns", "10100", FITTED),
    is("host.batch_ns", "5700", FITTED),
    is("host.fault_ns", "370", FITTED),
    is("host.sample_ns", "370", "assumed: as a fault"),
    is("driver.fault_batch", "256", "NVIDIA's driver (open-gpu-kernel-modules)"),
    is("host.operation_ns", "1000", "assumed"),
    is("host.operation_page_ns", "100", "assumed"),
    is("copy.latency_ns", "5000", FITTED),
    is("command.launch_ns", "15400", FITTED),
];
const FITTED: &str = "multi-FPGA SVM paper, Tables I and II, fitted";

/// Defaults of NVIDIA's driver for unified memory (open-gpu-kernel-modules).
const AS_SHIPPED: &[Given] = &[
    is("driver.density_percent", "51", NVIDIA),
    is("driver.thrash_window_ns", "500000", NVIDIA),
    is("counter.group_bytes", "2097152", NVIDIA),
];
const NVIDIA: &str = "NVIDIA's driver (open-gpu-kernel-modules)";

/// NVIDIA's driver 580 on an H100 behind PCIe 5 (docs/measurements/managed-h100.md): a lone fault that maps
/// a page where it is takes 24.2 us, one that moves it 30.1; a fault more costs 0.75 us beside others in one block of 2 MiB,
/// 2.7 us in another group of 64 KiB, 11.5 us in another block.
const MANAGED_H100: &[Given] = &[
    is(
        "host.interrupt_ns",
        "12700",
        "measured: a lone fault that maps (24.2 us) less a block's service and the fault's own",
    ),
    is(
        "host.batch_ns",
        "10750",
        "measured: a fault more in a block of its own (11.5 us) less the fault's own",
    ),
    is("host.fault_ns", "750", "measured: a fault more in the same 64 KiB"),
    is(
        "host.migrations",
        "1",
        "assumed: faults in other blocks take as much longer as if one block were served after the other",
    ),
    is(
        "host.migration_ns",
        "1950",
        "measured: a fault more in another 64 KiB (2.7 us) less the fault's own",
    ),
    is(
        "copy.latency_ns",
        "3950",
        "measured: a lone fault that moves (30.1 us) less one that maps (24.2) and the migration's own",
    ),
    is("command.launch_ns", "8600", "measured: an empty kernel, launched and waited for"),
    is("link.pcie_gb_per_s", "55", "measured: copies of pinned memory, either way"),
    is(
        "link.pcie_ns",
        "400",
        "measured: a dependent read of the host's memory (1261 ns) less one of the GPU's own (335), less the host's memory, both ways",
    ),
    is(
        "link.host_memory_ns",
        "126",
        "assumed: the processor's own latency, of which 400 ns one way leave this",
    ),
];

/// What a preset has otherwise than the default, in steps of which a later one wins; none if there is no such preset.
fn steps(preset: &str) -> Option<[&'static [Given]; 3]> {
    match preset {
        "grit-table-1" => Some([&[], &[], &[]]),
        "grit-paper" => Some([GRIT_PAPER, &[], &[]]),
        "linux-driver" => Some([LINUX_DRIVER, &[], &[]]),
        "as-shipped" => Some([LINUX_DRIVER, AS_SHIPPED, &[]]),
        "managed-h100" => Some([LINUX_DRIVER, AS_SHIPPED, MANAGED_H100]),
        _ => None,
    }
}

/// The value of a key that a preset has otherwise than the default.
pub(super) fn given(preset: &str, key: &str) -> Option<&'static Given> {
    let mut all = steps(preset)?.into_iter().flatten().rev();
    all.find(|it| it.key == key)
}

impl Spec {
    /// Names that [`Spec::preset`] knows.
    pub const PRESETS: &'static [&'static str] =
        &["grit-table-1", "grit-paper", "linux-driver", "as-shipped", "managed-h100"];

    /// The preset of this name.
    ///
    /// - `grit-table-1`: the baseline of the GRIT paper, Table I, with a fast host as in the simulators
    ///   that this line of papers uses.
    /// - `grit-paper`: what the paper's text and the published simulator say besides: a driver that
    ///   carries out one migration at a time, and GPUs that stand still until it is over.
    /// - `linux-driver`: the same GPUs under a driver that costs what a measured one costs on
    ///   Linux: that of the multi-FPGA SVM paper (constants fitted on its Tables I and II).
    /// - `as-shipped`: `linux-driver` with what NVIDIA's driver does by default: tree prefetch at
    ///   51 %, thrash detection (3 moves within 500 us), access counters on groups of 2 MiB.
    /// - `managed-h100`: `as-shipped` with what that driver's managed memory costs on an H100, measured.
    ///
    /// # Errors
    /// [`SpecError::NoSuchPreset`].
    pub fn preset(name: &str) -> Result<Spec, SpecError> {
        let no_such = || SpecError::NoSuchPreset { name: name.to_owned() };
        let given = steps(name).ok_or_else(no_such)?.into_iter().flatten();
        let pairs: Vec<_> = given.map(|it| (it.key, it.value)).collect();
        Spec::default().with_overrides(&pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!((spec.link.nvlink_gb_per_s, spec.link.pcie_gb_per_s), (150, 32));
        assert_eq!((spec.counter.threshold, spec.counter.group_bytes), (256, 65_536));
    }

    #[test]
    fn an_unknown_preset_is_answered_with_those_there_are() {
        let error = Spec::preset("grit").unwrap_err().to_string();
        assert!(error.contains("grit-table-1"), "{error}");
    }
}
