//! The machine with the real driver: latencies of each path, the counts that each scheme's
//! definition fixes, determinism, and the bundled excerpts. The coherence checker is on.

use std::path::Path;
use std::sync::Arc;

use farside_sim::time::bytes_time;
use farside_sim::{Access, Outcome, SCHEMES, SimError, Simulation, Spec, Trace, compare};
use farside_svm::placement::by_name;
use farside_types::{Reason, Span};

/// (gpu, compute unit, page, write): one access of 64 bytes.
type Step = (u8, u8, u32, bool);

const READ: bool = false;
const WRITE: bool = true;

fn trace(pages: u64, launches: &[&[Step]]) -> Arc<Trace> {
    let launches: Vec<Vec<_>> = launches
        .iter()
        .map(|steps| {
            let access = |&(gpu, cu, page, write)| (gpu, cu, Access { page, bytes: 64, write });
            steps.iter().map(access).collect()
        })
        .collect();
    Arc::new(Trace::from_accesses("hand-made", &[pages * 4096], &launches).unwrap())
}

fn excerpt(name: &str) -> Arc<Trace> {
    Arc::new(Trace::bundled(name).unwrap())
}

fn run(spec: &Spec, trace: &Arc<Trace>, scheme: &str) -> Outcome {
    let scheme = by_name(scheme).unwrap();
    let simulation = Simulation::with_placement(spec, trace, scheme, true).unwrap();
    simulation.run(|_| ()).unwrap()
}

/// `count` GPUs, one access at a time.
fn machine(count: u32) -> Spec {
    let mut spec = Spec::preset("grit-table-1").unwrap();
    spec.gpu.count = count;
    spec.gpu.outstanding = 1;
    spec
}

fn ns(ns: u64) -> Span {
    Span::from_nanos(ns)
}

/// What a launch costs besides its accesses.
fn launch_cost(spec: &Spec) -> Span {
    let command = &spec.command;
    ns(command.submit_ns + command.base_ns + command.launch_ns + command.complete_ns)
}

/// How long the last launch took, its fixed cost taken off.
fn last_launch(spec: &Spec, outcome: &Outcome) -> Span {
    let [.., before, last] = outcome.launches[..] else { panic!("two launches at least") };
    last - before - launch_cost(spec)
}

// Unloaded latency of each path: the sum of its parameters.

#[test]
fn local_access_after_an_l1_tlb_hit() {
    let spec = machine(1);
    let outcome = run(&spec, &trace(1, &[&[(0, 0, 0, READ)], &[(0, 0, 0, READ)]]), "on-touch");
    assert_eq!(last_launch(&spec, &outcome), ns(1 + spec.gpu.local_ns));
}

#[test]
fn local_access_after_an_l2_tlb_hit() {
    let spec = machine(1);
    let outcome = run(&spec, &trace(1, &[&[(0, 0, 0, READ)], &[(0, 1, 0, READ)]]), "on-touch");
    assert_eq!(last_launch(&spec, &outcome), ns(1 + 10 + spec.gpu.local_ns));
}

#[test]
fn local_access_after_a_walk() {
    let mut spec = machine(1);
    (spec.tlb.l1_entries, spec.tlb.l1_ways) = (1, 1);
    (spec.tlb.l2_entries, spec.tlb.l2_ways) = (1, 1);
    let steps: [&[Step]; 3] = [&[(0, 0, 0, READ)], &[(0, 0, 1, READ)], &[(0, 0, 0, READ)]];
    let outcome = run(&spec, &trace(2, &steps), "on-touch");
    assert_eq!(last_launch(&spec, &outcome), ns(1 + 10 + 4 * 100 + spec.gpu.local_ns));
}

#[test]
fn remote_access_to_a_peer() {
    let spec = machine(2);
    for kind in [READ, WRITE] {
        let steps: [&[Step]; 3] = [&[(1, 0, 0, WRITE)], &[(0, 0, 0, kind)], &[(0, 0, 0, kind)]];
        let outcome = run(&spec, &trace(1, &steps), "first-touch");
        let expected = ns(1 + 2 * spec.link.nvlink_ns + spec.gpu.local_ns)
            + bytes_time(64, spec.link.nvlink_gb_per_s);
        assert_eq!(last_launch(&spec, &outcome), expected);
        assert_eq!((outcome.total.local, outcome.total.remote), (1, 2));
    }
}

#[test]
fn remote_access_to_the_host() {
    let spec = machine(1);
    let steps: [&[Step]; 2] = [&[(0, 0, 0, READ)], &[(0, 0, 0, READ)]];
    let outcome = run(&spec, &trace(1, &steps), "access-counter");
    let expected = ns(1 + 2 * spec.link.pcie_ns + spec.link.host_memory_ns)
        + bytes_time(64, spec.link.pcie_gb_per_s);
    assert_eq!(last_launch(&spec, &outcome), expected);
    assert_eq!(outcome.driver.migrations, 0);
}

#[test]
fn first_touch_of_a_page_on_the_host() {
    let spec = machine(1);
    let outcome = run(&spec, &trace(1, &[&[], &[(0, 0, 0, READ)]]), "on-touch");
    let (host, command) = (&spec.host, &spec.command);
    let walk = 1 + 10 + 4 * 100;
    let service = host.interrupt_ns + host.batch_ns + host.fault_ns;
    let unmap = host.operation_ns + host.operation_page_ns;
    let map_and_resume = command.submit_ns + 2 * command.base_ns + command.page_ns;
    let copy = ns(spec.copy.latency_ns) + bytes_time(4096, spec.link.pcie_gb_per_s);
    let expected = ns(walk + service + unmap + map_and_resume + spec.gpu.local_ns) + copy;
    assert_eq!(last_launch(&spec, &outcome), expected);
    assert_eq!(outcome.total.fault_wait, expected - ns(walk + spec.gpu.local_ns));
}

#[test]
fn a_compute_unit_overlaps_as_many_accesses_as_it_may() {
    let steps: Vec<Step> = vec![(0, 0, 0, READ); 10];
    let launches: [&[Step]; 2] = [&[(0, 0, 0, READ)], &steps];
    let mut spec = machine(1);
    let one_by_one = run(&spec, &trace(1, &launches), "on-touch");
    assert_eq!(last_launch(&spec, &one_by_one), ns(10 * (1 + spec.gpu.local_ns)));
    spec.gpu.outstanding = 10;
    let together = run(&spec, &trace(1, &launches), "on-touch");
    // One is issued a cycle; the last one's latency comes on top of nine cycles.
    assert_eq!(last_launch(&spec, &together), ns(9 + 1 + spec.gpu.local_ns));
}

// Counts that a scheme's definition fixes (GRIT, section II-B).

#[test]
fn on_touch_moves_a_page_to_whoever_touches_it() {
    let steps: [&[Step]; 4] =
        [&[(0, 0, 0, READ)], &[(1, 0, 0, READ)], &[(0, 0, 0, WRITE)], &[(1, 0, 0, READ)]];
    let outcome = run(&machine(2), &trace(1, &steps), "on-touch");
    let moved = outcome.driver.by_direction();
    assert_eq!((moved.host_to_card, moved.card_to_card, moved.card_to_host), (1, 3, 0));
    assert_eq!((outcome.driver.migrations, outcome.driver.duplications), (4, 0));
    assert_eq!((outcome.total.faults, outcome.total.remote), (4, 0));
}

#[test]
fn duplication_gives_readers_copies_that_a_write_takes_away() {
    let readers: Vec<Step> = (0..4).map(|gpu| (gpu, 0, 0, READ)).collect();
    let steps: [&[Step]; 4] = [&readers, &readers, &[(2, 0, 0, WRITE)], &readers];
    let outcome = run(&machine(4), &trace(1, &steps), "duplication");
    assert_eq!(outcome.total.remote, 0);
    assert_eq!(outcome.driver.collapses, 1);
    // Four first copies; after the collapse the three others are copied again.
    assert_eq!(outcome.driver.duplications, 4 + 3);
    assert_eq!(outcome.total.faults, 4 + 1 + 3);
    assert_eq!(outcome.total.protection_faults, 1);
}

#[test]
fn counters_move_a_group_after_so_many_remote_accesses() {
    let mut spec = machine(1);
    spec.counter.threshold = 8;
    let steps: Vec<Step> = (0..8).map(|step| (0, 0, step % 4, READ)).collect();
    let outcome = run(&spec, &trace(32, &[&steps[..7], &[]]), "access-counter");
    assert_eq!((outcome.total.notices, outcome.driver.migrations), (0, 0));
    let outcome = run(&spec, &trace(32, &[&steps, &steps]), "access-counter");
    assert_eq!(outcome.total.notices, 1);
    assert_eq!(outcome.driver.by_reason[&Reason::Counter], 16, "the group of 64 KiB");
    assert_eq!(outcome.driver.remote_maps, 4);
}

#[test]
fn many_faults_on_one_page_are_one_move() {
    let steps: Vec<Step> = (0..64).map(|cu| (0, cu, 0, READ)).collect();
    let outcome = run(&machine(1), &trace(1, &[&steps]), "on-touch");
    assert_eq!((outcome.total.faulted_accesses, outcome.total.faults), (64, 1));
    assert_eq!((outcome.driver.fault_batches, outcome.driver.migrations), (1, 1));
}

// The excerpts of real traces.

#[test]
fn every_access_of_the_excerpts_is_carried_out_under_every_scheme() {
    for name in ["mm", "st"] {
        let trace = excerpt(name);
        for scheme in SCHEMES {
            let outcome = run(&Spec::default(), &trace, scheme);
            assert_eq!(outcome.total.accesses(), trace.accesses(), "{name} {scheme}");
            assert_eq!(outcome.total.local + outcome.total.remote, trace.accesses());
            assert_eq!(outcome.launches.len(), trace.launches());
            assert!(outcome.time > Span::ZERO && outcome.cycles == outcome.time.0 / 1_000);
        }
    }
}

#[test]
fn only_schemes_that_map_over_the_bus_access_over_the_bus() {
    let trace = excerpt("mm");
    let schemes = ["on-touch", "duplication", "access-counter"];
    let comparison = compare(&Spec::default(), &trace, &schemes, |_, _| ()).unwrap();
    let remote: Vec<_> = comparison.outcomes.iter().map(|o| o.total.remote > 0).collect();
    assert_eq!(remote, [false, false, true]);
    let [on_touch, duplication, counter] = &comparison.outcomes[..] else { panic!() };
    assert_eq!(on_touch.driver.duplications, 0);
    assert!(duplication.driver.duplications > 0);
    assert!(counter.driver.remote_maps > 0);
    // 97 % of the accesses go to pages that all four GPUs read: copies win (GRIT, Figure 1).
    assert!(duplication.time < on_touch.time);
    assert!(comparison.to_string().contains("speedup"));
}

#[test]
fn the_same_run_gives_the_same_json_to_the_byte() {
    let mut oversubscribed = Spec::default();
    oversubscribed.gpu.capacity_percent = Some(5);
    for spec in [Spec::default(), oversubscribed] {
        for scheme in SCHEMES {
            // The trace is read anew, and the runs are on threads of their own: no address, no
            // hash seed and no order of anything outside of the run comes in.
            let json = || run(&spec, &excerpt("st"), scheme).to_json();
            let (first, second) = std::thread::scope(|scope| {
                let other = scope.spawn(json);
                (json(), other.join().unwrap())
            });
            assert!(first == second, "{scheme}: two runs differ");
        }
    }
}

#[test]
fn a_bundled_trace_is_the_file_in_the_repository() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/mm.bin.zst");
    let (read, bundled) = (Arc::new(Trace::open(&path).unwrap()), excerpt("mm"));
    let spec = Spec::default();
    assert_eq!(run(&spec, &read, "on-touch"), run(&spec, &bundled, "on-touch"));
}

#[test]
fn the_checker_never_changes_a_result() {
    let trace = excerpt("st");
    let run = |check| {
        let scheme = by_name("duplication").unwrap();
        let spec = Spec::default();
        Simulation::with_placement(&spec, &trace, scheme, check).unwrap().run(|_| ()).unwrap()
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn oversubscribed_gpus_evict_and_finish() {
    let mut spec = Spec::default();
    spec.gpu.capacity_percent = Some(10);
    for name in ["mm", "st"] {
        for scheme in SCHEMES {
            let outcome = run(&spec, &excerpt(name), scheme);
            assert!(outcome.driver.evictions > 0, "{name} {scheme}");
        }
    }
}

/// A page that moved from GPU to GPU is still listed in its old frame until the chain that took it
/// has ended. The eviction hand once took such a page for one that can go, found nothing to do,
/// and was asked again at the same point in time, without end. Less and less memory, down to a
/// dozen frames for tens of compute units, must only cost time.
#[test]
fn hardly_any_memory_costs_time_and_nothing_else() {
    let mut spec = Spec::default();
    for name in ["mm", "st"] {
        let trace = excerpt(name);
        for percent in [7, 5, 3, 2] {
            spec.gpu.capacity_percent = Some(percent);
            for scheme in SCHEMES {
                let outcome = run(&spec, &trace, scheme);
                let total = outcome.total;
                assert_eq!(total.accesses(), trace.accesses(), "{name} {percent} % {scheme}");
            }
        }
    }
}

/// One batch has a read that needs a frame, and a write to the page in the only frame there is.
/// While the second is planned it cannot be evicted for the first, which is no reason to refuse
/// the first: it waits its turn.
#[test]
fn a_page_of_the_same_batch_is_no_reason_to_refuse_another() {
    let mut spec = machine(1);
    spec.gpu.capacity_percent = Some(1);
    let steps: [&[Step]; 2] = [&[(0, 0, 1, READ)], &[(0, 0, 0, READ), (0, 1, 1, WRITE)]];
    for scheme in SCHEMES {
        let outcome = run(&spec, &trace(96, &steps), scheme);
        assert_eq!((outcome.total.reads, outcome.total.writes), (2, 1), "{scheme}");
    }
}

#[test]
fn progress_reaches_the_end() {
    let trace = excerpt("st");
    let mut seen = Vec::new();
    let simulation = Simulation::new(&Spec::default(), &trace, "on-touch").unwrap();
    let outcome = simulation.run(|progress| seen.push(progress)).unwrap();
    assert!(seen.windows(2).all(|pair| pair[0].retired <= pair[1].retired));
    let last = seen.last().unwrap();
    assert_eq!((last.retired, last.total, last.time), (21_408, 21_408, outcome.time));
}

#[test]
fn what_does_not_fit_is_said_with_what_to_do() {
    let mut spec = Spec::default();
    spec.gpu.count = 2;
    let refused = Simulation::new(&spec, &excerpt("st"), "on-touch").err();
    assert!(matches!(refused, Some(SimError::TooSmall { key: "gpu.count", used: 4, .. })));
}

#[test]
fn a_write_that_joins_a_read_fault_gets_the_right_to_write() {
    let steps: [&[Step]; 2] = [&[(0, 0, 0, READ), (0, 1, 0, WRITE), (0, 2, 0, READ)], &[]];
    for scheme in SCHEMES {
        let outcome = run(&machine(1), &trace(1, &steps), scheme);
        assert_eq!((outcome.total.reads, outcome.total.writes), (2, 1), "{scheme}");
        assert!(outcome.total.faults <= 3, "{scheme}");
    }
}
