//! Theory against measured: these are simulated numbers, so equal means equal.

use farside_sim::Spec;
use farside_sim::theory::{Relation, curves, probes, table};

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
        assert_eq!(latencies.len(), 19, "as SPECIFICATION.md says");
        assert!(latencies.iter().all(|probe| probe.holds()), "\n{}", table(&latencies));
    }
}

/// Each bank, channel and link carries its bandwidth, and never more.
#[test]
fn everything_saturates_at_its_bandwidth() {
    let slow = [
        ("gpu.memory_gb_per_s", "200"),
        ("gpu.memory_channels", "4"),
        ("link.nvlink_gb_per_s", "50"),
        ("link.pcie_gb_per_s", "12"),
        ("cache.l2_banks", "8"),
    ];
    let slow = Spec::default().with_overrides(&slow).unwrap();
    for spec in [Spec::default(), slow] {
        let limits: Vec<_> = probes(&spec)
            .unwrap()
            .into_iter()
            .filter(|probe| probe.relation == Relation::Limit)
            .collect();
        assert_eq!(limits.len(), 8);
        assert!(limits.iter().all(|probe| probe.holds()), "\n{}", table(&limits));
    }
}

/// More and more wavefronts: first nobody waits for another, then the bandwidth is shared. The
/// number of loads under way is rate × latency all the time (Little's law), with the latency that
/// the machine counted access by access.
#[test]
fn loads_under_way_are_rate_times_latency() {
    for curve in curves(&Spec::default()).unwrap() {
        let last = curve.points.last().unwrap();
        assert!(last.throughput > 0.99 * curve.capacity, "{curve:?}");
        assert_eq!(curve.points[0].latency, curve.unloaded, "{curve:?}");
        for point in &curve.points {
            let bound = point.offered.min(curve.capacity);
            // What is below a half of the bandwidth hardly waits.
            let least = if point.offered < 0.5 * curve.capacity { 0.99 } else { 0.95 };
            let reached = point.throughput / bound;
            assert!((least..=1.0005).contains(&reached), "{}: {point:?}", curve.name);
            assert!(point.latency >= curve.unloaded, "{}: {point:?}", curve.name);
            if let Some(latency) = point.counted {
                let under_way = point.throughput / 64.0 * latency / f64::from(point.wavefronts);
                assert!((0.98..1.02).contains(&under_way), "{}: {point:?}", curve.name);
            }
        }
    }
}
