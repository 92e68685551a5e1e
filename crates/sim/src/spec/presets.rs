//! Machines that have a name.

use super::Spec;
use crate::SpecError;

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
        assert_eq!((spec.link.nvlink_gb_per_s, spec.link.pcie_gb_per_s), (300, 32));
        assert_eq!((spec.counter.threshold, spec.counter.group_bytes), (256, 65_536));
    }

    #[test]
    fn an_unknown_preset_is_answered_with_those_there_are() {
        let error = Spec::preset("grit").unwrap_err().to_string();
        assert!(error.contains("grit-table-1"), "{error}");
    }
}
