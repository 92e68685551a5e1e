//! Theory against measured: these are simulated numbers, so equal means equal.

use farside_sim::Spec;
use farside_sim::theory::{Relation, probes, table};

/// Every latency is the sum of its parameters: on the machine of Table I, and on machines where
/// each parameter has another value, so that no two of them can stand for each other.
#[test]
fn unloaded_latencies_are_the_sums_of_their_parameters() {
    let other = [
        ("gpu.clock_mhz", "500"),
        ("tlb.l1_cycles", "3"),
        ("tlb.l2_cycles", "17"),
        ("walk.level_cycles", "61"),
        ("cache.l1_cycles", "35"),
        ("cache.l2_cycles", "211"),
        ("gpu.memory_ns", "307"),
        ("link.nvlink_ns", "503"),
        ("link.nvlink_gb_per_s", "7"),
        ("link.pcie_ns", "1009"),
        ("link.pcie_gb_per_s", "3"),
        ("link.host_memory_ns", "77"),
        ("command.submit_ns", "701"),
        ("command.complete_ns", "811"),
        ("command.base_ns", "131"),
        ("command.page_ns", "19"),
        ("command.invalidate_ns", "2003"),
        ("copy.latency_ns", "4001"),
        ("host.interrupt_ns", "9001"),
        ("host.batch_ns", "6007"),
        ("host.fault_ns", "401"),
        ("host.operation_ns", "1103"),
        ("host.operation_page_ns", "107"),
    ];
    let other = Spec::default().with_overrides(&other).unwrap();
    for spec in [Spec::default(), other] {
        let probes = probes(&spec).unwrap();
        let latencies: Vec<_> =
            probes.into_iter().filter(|probe| probe.relation == Relation::Equal).collect();
        assert!(latencies.len() >= 19);
        assert!(latencies.iter().all(|probe| probe.holds()), "\n{}", table(&latencies));
    }
}
