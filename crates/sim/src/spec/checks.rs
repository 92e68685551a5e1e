//! Whether a machine can have its values.

use farside_types::MAX_CARDS;

use super::Spec;
use crate::SpecError;

/// Longest latency that is accepted, in ns or cycles: one second at 1 GHz. Sums of a few of them
/// cannot overflow.
const LATENCY_MAX: u64 = 1_000_000_000;

/// Each value with its key, least and greatest value, and what it must be.
type Bound = (&'static str, u64, u64, u64, &'static str);

impl Spec {
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
        let line = farside_workloads::LINE_BYTES as u32;
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
            (
                "host.migrations",
                self.host.migrations.map_or(1, n),
                1,
                65_536,
                "it must be 1 to 65536",
            ),
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
            ("host.migration_ns", self.host.migration_ns),
            ("host.batch_ns", self.host.batch_ns),
            ("host.fault_ns", self.host.fault_ns),
            ("host.table_ns", self.host.table_ns),
            ("host.sample_ns", self.host.sample_ns),
            ("host.operation_ns", self.host.operation_ns),
            ("host.operation_page_ns", self.host.operation_page_ns),
            ("driver.thrash_window_ns", self.driver.thrash_window_ns),
        ]
        .into_iter()
        .map(|(key, value)| (key, value, 0, LATENCY_MAX, "it must be at most 1000000000"))
        .collect()
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
    fn errors_name_the_key() {
        assert!(refused("[gpu]\ncuont = 4").contains("cuont"));
        assert!(refused("[gqu]\ncount = 4").contains("gqu"));
        assert!(refused("[gpu]\ncount = 17").contains("gpu.count is 17"));
        assert!(refused("[gpu]\ncount = 0").contains("gpu.count is 0"));
        assert!(refused("[gpu]\nwavefronts = 65").contains("gpu.wavefronts is 65"));
        assert!(Spec::from_toml("[gpu]\ncount = 16\nwavefronts = 64").is_ok());
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
}
