//! The machine with the real driver: latencies of each path, the counts that each scheme's
//! definition fixes, determinism, and the bundled excerpts. The coherence checker is on.

use std::sync::Arc;

use farside_sim::observe::{FaultParts, Observation, Observer, Sample};
use farside_sim::observers::Shared;
use farside_sim::time::bytes_time;
use farside_sim::{
    CapacityOf, Dispatch, EngineMode, FlushMode, Outcome, SCHEMES, SimError, Simulation, Spec,
    compare,
};
use farside_svm::placement::by_name;
use farside_types::{Reason, Span, Time};
use farside_workloads::Trace;
use farside_workloads::{Group, Line, Place, Script, Step, Workload};

/// (gpu, compute unit, page, write): one access to the first line of a page.
type Access = (u8, u8, u32, bool);

const READ: bool = false;
const WRITE: bool = true;

/// Steps of a wavefront that runs alone on a compute unit.
fn on(gpu: u8, unit: u8, steps: Vec<Step>) -> Group {
    Group { place: Some(Place { gpu, unit }), waves: vec![steps] }
}

fn step((_, _, page, write): Access) -> Step {
    let lines = vec![Line(page * 64)];
    if write { Step::Store(lines) } else { Step::Load(lines) }
}

/// Each access is a work-group of its own; those of a compute unit run one after the other.
fn program(pages: u64, launches: &[&[Access]]) -> Arc<dyn Workload> {
    let none = Script::new("hand-made", &[pages * 4096]);
    let launches = launches.iter().map(|accesses| {
        accesses.iter().map(|&it| on(it.0, it.1, vec![step(it)])).collect::<Vec<_>>()
    });
    Arc::new(launches.fold(none, |script, groups| script.with_launch(groups).groups_per_unit(1)))
}

fn excerpt(name: &str) -> Arc<dyn Workload> {
    Arc::new(Trace::bundled(name).unwrap())
}

fn run(spec: &Spec, program: &Arc<dyn Workload>, scheme: &str) -> Outcome {
    let scheme = by_name(scheme).unwrap();
    let simulation = Simulation::with_placement(spec, program, scheme, true).unwrap();
    simulation.run(|_| ()).unwrap()
}

fn machine(count: u32) -> Spec {
    let mut spec = Spec::preset("grit-table-1").unwrap();
    spec.gpu.count = count;
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

/// From issue to the line in the L2 cache, and in the memory behind it, after the TLB.
fn l2(spec: &Spec) -> u64 {
    spec.cache.l1_cycles + spec.cache.l2_cycles
}

// Unloaded latency of each path: the sum of its parameters.

#[test]
fn a_line_that_the_vector_cache_holds() {
    let spec = machine(1);
    let twice = vec![Step::Load(vec![Line(0)]), Step::Wait, Step::Load(vec![Line(0)])];
    let program: Arc<dyn Workload> = Arc::new(
        Script::new("s", &[4096])
            .with_launch(vec![on(0, 0, vec![])])
            .with_launch(vec![on(0, 0, twice)]),
    );
    // Once for the warm-up of the page, then the same launch again.
    let first = run(&spec, &program, "on-touch");
    let mut warm =
        Script::new("s", &[4096]).with_launch(vec![on(0, 0, vec![Step::Load(vec![Line(0)])])]);
    for _ in 0..2 {
        let twice = vec![Step::Load(vec![Line(0)]), Step::Wait, Step::Load(vec![Line(0)])];
        warm = warm.with_launch(vec![on(0, 0, twice)]);
    }
    let program: Arc<dyn Workload> = Arc::new(warm);
    let outcome = run(&spec, &program, "on-touch");
    // The L1 caches are empty when a kernel begins; the L2 cache is not.
    let expected = ns(1 + l2(&spec) + 1 + spec.cache.l1_cycles);
    assert_eq!(last_launch(&spec, &outcome), expected);
    assert_eq!((first.total.vector_hits, first.total.vector_misses), (1, 1));
}

#[test]
fn a_line_of_the_l2_cache_after_an_l1_and_an_l2_tlb_hit() {
    let spec = machine(1);
    let outcome = run(&spec, &program(1, &[&[(0, 0, 0, READ)], &[(0, 0, 0, READ)]]), "on-touch");
    assert_eq!(last_launch(&spec, &outcome), ns(1 + l2(&spec)));
    let outcome = run(&spec, &program(1, &[&[(0, 0, 0, READ)], &[(0, 1, 0, READ)]]), "on-touch");
    assert_eq!(last_launch(&spec, &outcome), ns(1 + 10 + l2(&spec)));
    assert_eq!((outcome.total.l2_hits, outcome.total.l2_misses), (1, 1));
}

#[test]
fn a_line_of_the_own_memory() {
    let spec = machine(1);
    let load = |line| on(0, 0, vec![Step::Load(vec![Line(line)])]);
    let script = Script::new("s", &[4096]).with_launch(vec![load(0)]).with_launch(vec![load(1)]);
    let program: Arc<dyn Workload> = Arc::new(script);
    let outcome = run(&spec, &program, "on-touch");
    assert_eq!(last_launch(&spec, &outcome), ns(1 + l2(&spec) + spec.gpu.memory_ns));
}

#[test]
fn a_walk_costs_the_levels_that_are_not_cached() {
    let mut spec = machine(1);
    (spec.tlb.l1_entries, spec.tlb.l1_ways) = (1, 1);
    (spec.tlb.l2_entries, spec.tlb.l2_ways) = (1, 1);
    let steps: [&[Access]; 3] = [&[(0, 0, 0, READ)], &[(0, 0, 1, READ)], &[(0, 0, 0, READ)]];
    let outcome = run(&spec, &program(2, &steps), "on-touch");
    // The upper levels are in the walk cache: one level is left to read.
    assert_eq!(last_launch(&spec, &outcome), ns(1 + 10 + 100 + l2(&spec)));
    assert_eq!((outcome.total.walks, outcome.total.walk_levels), (3, 4 + 1 + 1));
}

#[test]
fn remote_access_to_a_peer() {
    let spec = machine(2);
    for (kind, memory) in [(READ, 0), (WRITE, 0)] {
        let steps: [&[Access]; 3] = [&[(1, 0, 0, WRITE)], &[(0, 0, 0, kind)], &[(0, 0, 0, kind)]];
        let outcome = run(&spec, &program(1, &steps), "first-touch");
        let expected = ns(1 + l2(&spec) + memory + 2 * spec.link.nvlink_ns)
            + bytes_time(64, spec.link.nvlink_gb_per_s);
        assert_eq!(last_launch(&spec, &outcome), expected);
        assert_eq!((outcome.total.local, outcome.total.remote), (1, 2));
    }
}

#[test]
fn remote_access_to_the_host() {
    let spec = machine(1);
    for kind in [READ, WRITE] {
        let steps: [&[Access]; 2] = [&[(0, 0, 0, kind)], &[(0, 0, 0, kind)]];
        let outcome = run(&spec, &program(1, &steps), "access-counter:map-host=on");
        let link = &spec.link;
        let expected = ns(1 + spec.cache.l1_cycles + 2 * link.pcie_ns + link.host_memory_ns)
            + bytes_time(64, link.pcie_gb_per_s);
        assert_eq!(last_launch(&spec, &outcome), expected);
        assert_eq!(outcome.driver.migrations, 0);
    }
}

#[test]
fn first_touch_of_a_page_on_the_host() {
    let spec = machine(1);
    let outcome = run(&spec, &program(1, &[&[], &[(0, 0, 0, READ)]]), "on-touch");
    let (host, command) = (&spec.host, &spec.command);
    let walk = 1 + 10 + 4 * 100;
    let service = host.interrupt_ns + host.batch_ns + host.fault_ns;
    let unmap = host.operation_ns + host.operation_page_ns;
    let map_and_resume = command.submit_ns + 2 * command.base_ns + command.page_ns;
    let copy = ns(spec.copy.latency_ns) + bytes_time(4096, spec.link.pcie_gb_per_s);
    let access = l2(&spec) + spec.gpu.memory_ns;
    let expected = ns(walk + service + unmap + map_and_resume + access) + copy;
    assert_eq!(last_launch(&spec, &outcome), expected);
    assert_eq!(outcome.total.fault_wait, expected - ns(walk + access));
}

#[test]
fn loads_overlap_until_they_are_waited_for() {
    let spec = machine(1);
    let lines: Vec<Line> = (0..10).map(Line).collect();
    let one_by_one = lines.iter().flat_map(|&line| [Step::Load(vec![line]), Step::Wait]).collect();
    let together = vec![Step::Load(lines.clone()), Step::Wait];
    for (steps, expected) in [(one_by_one, 10 * (1 + l2(&spec))), (together, 9 + 1 + l2(&spec))] {
        let warm = on(0, 0, vec![Step::Load(lines.clone())]);
        let script =
            Script::new("s", &[4096]).with_launch(vec![warm]).with_launch(vec![on(0, 0, steps)]);
        let program: Arc<dyn Workload> = Arc::new(script);
        assert_eq!(last_launch(&spec, &run(&spec, &program, "on-touch")), ns(expected));
    }
}

#[test]
fn arithmetic_shares_the_simd_unit_of_a_slot() {
    let spec = machine(1);
    for (waves, expected) in [(1, 1_000), (4, 1_000), (5, 2_000), (8, 2_000)] {
        let waves = vec![vec![Step::Compute(1_000)]; waves];
        let group = Group { place: Some(Place { gpu: 0, unit: 0 }), waves };
        let script = Script::new("s", &[4096]).with_launch(vec![]).with_launch(vec![group]);
        let program: Arc<dyn Workload> = Arc::new(script);
        assert_eq!(last_launch(&spec, &run(&spec, &program, "on-touch")), ns(expected));
    }
}

#[test]
fn a_barrier_opens_when_the_last_wavefront_has_come_or_ended() {
    let spec = machine(1);
    let late = vec![Step::Compute(5_000), Step::Barrier, Step::Compute(10)];
    let early = vec![Step::Compute(10), Step::Barrier, Step::Compute(100)];
    let group = Group { place: Some(Place { gpu: 0, unit: 0 }), waves: vec![early, late, vec![]] };
    let script = Script::new("s", &[4096]).with_launch(vec![]).with_launch(vec![group]);
    let program: Arc<dyn Workload> = Arc::new(script);
    assert_eq!(last_launch(&spec, &run(&spec, &program, "on-touch")), ns(5_100));
}

// Counts that a scheme's definition fixes (GRIT, section II-B).

#[test]
fn on_touch_moves_a_page_to_whoever_touches_it() {
    let steps: [&[Access]; 4] =
        [&[(0, 0, 0, READ)], &[(1, 0, 0, READ)], &[(0, 0, 0, WRITE)], &[(1, 0, 0, READ)]];
    let outcome = run(&machine(2), &program(1, &steps), "on-touch");
    let moved = outcome.driver.by_direction();
    assert_eq!((moved.host_to_card, moved.card_to_card, moved.card_to_host), (1, 3, 0));
    assert_eq!((outcome.driver.migrations, outcome.driver.duplications), (4, 0));
    assert_eq!((outcome.total.faults, outcome.total.remote), (4, 0));
}

#[test]
fn duplication_gives_readers_copies_that_a_write_takes_away() {
    let readers: Vec<Access> = (0..4).map(|gpu| (gpu, 0, 0, READ)).collect();
    let steps: [&[Access]; 4] = [&readers, &readers, &[(2, 0, 0, WRITE)], &readers];
    let outcome = run(&machine(4), &program(1, &steps), "duplication");
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
    // Lines that no cache of a compute unit holds yet.
    let load = |index: u32| on(0, 0, vec![Step::Load(vec![Line(index % 4 * 64 + index)])]);
    let script = |count: u32| -> Arc<dyn Workload> {
        let none = Script::new("s", &[32 * 4096]);
        Arc::new(
            none.with_launch((0..count).map(load).collect()).with_launch(vec![]).groups_per_unit(1),
        )
    };
    let outcome = run(&spec, &script(7), "access-counter:map-host=on");
    assert_eq!((outcome.total.notices, outcome.driver.migrations), (0, 0));
    let outcome = run(&spec, &script(8), "access-counter:map-host=on");
    assert_eq!(outcome.total.notices, 1);
    assert_eq!(outcome.driver.by_reason[&Reason::Counter], 16, "the group of 64 KiB");
    assert_eq!(outcome.driver.remote_maps, 4);
}

#[test]
fn counters_leave_pages_on_the_host_to_their_first_card() {
    let steps: [&[Access]; 2] = [&[(0, 0, 0, READ)], &[(1, 0, 0, READ)]];
    let outcome = run(&machine(2), &program(1, &steps), "access-counter");
    assert_eq!(outcome.driver.by_reason[&Reason::Demand], 1);
    assert_eq!((outcome.driver.migrations, outcome.driver.remote_maps), (1, 1));
    assert_eq!((outcome.total.local, outcome.total.remote), (1, 1));
}

#[test]
fn many_faults_on_one_page_are_one_move() {
    let steps: Vec<Access> = (0..64).map(|cu| (0, cu, 0, READ)).collect();
    let outcome = run(&machine(1), &program(1, &[&steps]), "on-touch");
    assert_eq!((outcome.total.faulted_accesses, outcome.total.faults), (64, 1));
    assert_eq!((outcome.driver.fault_batches, outcome.driver.migrations), (1, 1));
}

// What the knobs do.

/// A wavefront of GPU 0 computes and loads from its own page while GPU 1 takes another page away.
fn bystander() -> Arc<dyn Workload> {
    let lines = |page: u32, line: u32| vec![Line(page * 64 + line)];
    let busy = (0..200).flat_map(|i| [Step::Load(lines(1, i % 64)), Step::Wait]).collect();
    let script = Script::new("s", &[8192])
        .with_launch(vec![on(0, 0, vec![Step::Load(lines(0, 0)), Step::Store(lines(1, 0))])])
        .with_launch(vec![on(0, 0, busy), on(1, 0, vec![Step::Store(lines(0, 0))])]);
    Arc::new(script)
}

#[test]
fn a_flush_of_the_pipeline_stalls_bystanders_and_one_of_a_page_does_not() {
    let mut spec = machine(2);
    let pipeline = run(&spec, &bystander(), "on-touch");
    spec.flush.mode = FlushMode::Page;
    let page = run(&spec, &bystander(), "on-touch");
    assert!(pipeline.total.stalled > Span::ZERO && pipeline.total.flushes == 1);
    assert_eq!((page.total.stalled, page.total.flushes), (Span::ZERO, 1));
    assert!(pipeline.total.flushed_lines >= 1, "line 0 of page 1 is dirty");
    assert!(pipeline.total.vector_misses > page.total.vector_misses);
}

#[test]
fn capacity_is_of_each_gpu_or_of_all_together() {
    let steps: Vec<Access> = (0..32).map(|page| (0, 0, page, WRITE)).collect();
    let program = program(32, &[&steps]);
    let evictions = |of| {
        let mut spec = machine(4);
        (spec.gpu.capacity_percent, spec.gpu.capacity_of) = (Some(100), of);
        run(&spec, &program, "on-touch").driver.evictions
    };
    assert_eq!(evictions(CapacityOf::Each), 0);
    assert!(evictions(CapacityOf::Total) >= 24);
}

#[test]
fn a_large_page_moves_as_a_whole() {
    let mut spec = machine(1);
    spec.page.bytes = 2 << 20;
    let load = |line| on(0, 0, vec![Step::Load(vec![Line(line)])]);
    let script =
        Script::new("s", &[4 << 20]).with_launch(vec![load(0)]).with_launch(vec![load(32_767)]);
    let program: Arc<dyn Workload> = Arc::new(script.with_launch(vec![load(32_768)]));
    let outcome = run(&spec, &program, "on-touch");
    assert_eq!((outcome.total.faults, outcome.driver.migrations), (2, 2));
    let page = bytes_time(2 << 20, spec.link.pcie_gb_per_s);
    assert!(outcome.pcie_busy >= page + page);
}

#[test]
fn groups_fill_a_gpu_or_are_partitioned() {
    let group = Group { place: None, waves: vec![vec![Step::Load(vec![Line(0)])]] };
    let script = Script::new("s", &[4096]).with_launch(vec![group; 8]);
    let program: Arc<dyn Workload> = Arc::new(script);
    let accesses = |dispatch| {
        let mut spec = machine(4);
        spec.gpu.dispatch = dispatch;
        let outcome = run(&spec, &program, "duplication");
        outcome.gpus.iter().map(|gpu| gpu.accesses()).collect::<Vec<_>>()
    };
    assert_eq!(accesses(Dispatch::Fill), [8, 0, 0, 0]);
    assert_eq!(accesses(Dispatch::Partition), [2, 2, 2, 2]);
    assert_eq!(accesses(Dispatch::RoundRobin), [2, 2, 2, 2]);
}

#[test]
fn code_is_fetched_through_the_instruction_cache() {
    let spec = machine(1);
    let steps = vec![Step::Compute(10); 40];
    let script = Script::new("s", &[8192]).with_launch(vec![on(0, 0, steps)]).code(Line(64), 3);
    let program: Arc<dyn Workload> = Arc::new(script);
    let outcome = run(&spec, &program, "on-touch");
    assert_eq!((outcome.total.fetches, outcome.total.faults), (3, 1));
}

#[test]
fn a_full_fault_buffer_holds_faults_back() {
    let mut spec = machine(1);
    spec.fault.buffer_entries = 2;
    spec.driver.fault_batch = 256;
    let steps: Vec<Access> = (0..9).map(|page| (0, page as u8, page, READ)).collect();
    let outcome = run(&spec, &program(9, &[&steps]), "on-touch");
    assert_eq!((outcome.total.faults, outcome.total.faults_held_back), (9, 7));
    assert_eq!(outcome.driver.fault_batches, 5);
}

// Reservation against an event for every hop.

fn by_both(spec: &Spec, program: &Arc<dyn Workload>, scheme: &str) -> (Outcome, Outcome) {
    let mut events = spec.clone();
    events.engine.mode = EngineMode::Events;
    (run(spec, program, scheme), run(&events, program, scheme))
}

#[test]
fn without_contention_both_engines_give_the_same_times() {
    // One wavefront, one line at a time: near, far and on the host; loads and stores.
    let line = |page: u32, line: u32| vec![Line(page * 64 + line)];
    let steps = |gpu: u32| {
        let loads = (0..40).flat_map(|i| [Step::Load(line((i * 7 + gpu) % 8, i)), Step::Wait]);
        let stores = (0..8).flat_map(|i| [Step::Store(line(i, 9)), Step::Compute(3_000)]);
        loads.chain(stores).collect::<Vec<_>>()
    };
    let script = Script::new("s", &[8 * 4096]);
    let script = (0..3).fold(script, |script, gpu| script.with_launch(vec![on(gpu, 0, steps(0))]));
    let program: Arc<dyn Workload> = Arc::new(script);
    for scheme in SCHEMES {
        let (reserved, stepped) = by_both(&machine(3), &program, scheme);
        assert_eq!(reserved.launches, stepped.launches, "{scheme}");
        assert_eq!(reserved.total, stepped.total, "{scheme}");
        assert!(stepped.events > reserved.events, "{scheme}");
    }
}

#[test]
fn under_contention_the_engines_agree_within_five_percent() {
    // Sixteen wavefronts on each of four GPUs, 32 lines at a time, all over 64 pages: banks,
    // channels and links are what they wait for.
    let wave = |seed: u32| {
        let lines =
            move |i: u32| (0..32).map(|k| Line((seed * 97 + i * 389 + k * 31) % 4_096)).collect();
        (0..12).flat_map(|i| [Step::Load(lines(i)), Step::Wait]).collect::<Vec<_>>()
    };
    let group = |gpu: u8| Group {
        place: Some(Place { gpu, unit: 0 }),
        waves: (0..16).map(|w| wave(u32::from(gpu) * 16 + w)).collect(),
    };
    let warm = (0..4).map(|gpu| {
        let pages = (0..16).map(|page| Step::Store(vec![Line((u32::from(gpu) * 16 + page) * 64)]));
        on(gpu, 0, pages.collect())
    });
    let script = Script::new("s", &[64 * 4096]).with_launch(warm.collect());
    let program: Arc<dyn Workload> = Arc::new(script.with_launch((0..4).map(group).collect()));
    let spec = machine(4);
    let (reserved, stepped) = by_both(&spec, &program, "first-touch");
    assert!(reserved.total.remote > 10_000);
    let (a, b) = (last_launch(&spec, &reserved).0 as f64, last_launch(&spec, &stepped).0 as f64);
    assert!((a / b - 1.0).abs() < 0.05, "reservation {a} ps, events {b} ps");
}

// Observers.

/// Counts observations by kind, and checks that the parts of faults add up.
#[derive(Debug, Default)]
struct Counting {
    faults: u64,
    replays: u64,
    begins: u64,
    ends: u64,
    launches: u64,
    samples: u64,
    waits: u64,
}

impl Observer for Counting {
    fn observe(&mut self, now: Time, what: &Observation) {
        match what {
            Observation::Fault { .. } => self.faults += 1,
            Observation::Replay { since, parts, .. } => {
                let FaultParts { reported, host, invalidation, copy, replay } = *parts;
                let sum = reported + host + invalidation + copy + replay;
                assert_eq!(sum, now.since(*since));
                self.replays += 1;
            }
            Observation::WaveBegin { .. } => self.begins += 1,
            Observation::WaveEnd { .. } => self.ends += 1,
            Observation::LaunchEnd { .. } => self.launches += 1,
            Observation::Wait { since, .. } => {
                assert!(*since < now);
                self.waits += 1;
            }
            _ => {}
        }
    }

    fn sample_every(&self) -> Option<Span> {
        Some(Span::from_micros(50))
    }

    fn sample(&mut self, _: Time, _: &Sample<'_>) {
        self.samples += 1;
    }
}

#[test]
fn observers_see_everything_and_change_nothing() {
    let program = excerpt("st");
    for scheme in SCHEMES {
        let counting = Shared::new(Counting::default());
        let simulation = Simulation::new(&Spec::default(), &program, scheme).unwrap();
        let outcome = simulation.observe(Box::new(counting.clone())).run(|_| ()).unwrap();
        assert_eq!(outcome, run(&Spec::default(), &program, scheme), "{scheme}");
        let Ok(seen) = counting.into_inner() else { panic!("the machine is gone") };
        let total = outcome.total;
        assert_eq!((seen.faults, seen.replays), (total.faults, total.faults), "{scheme}");
        assert!(seen.begins > 0 && seen.begins == seen.ends && seen.waits > 0, "{scheme}");
        assert_eq!(seen.launches, outcome.launches.len() as u64);
        assert_eq!(seen.samples, outcome.time.0 / Span::from_micros(50).0 + 1);
    }
}

#[test]
fn page_handling_is_told_apart_by_what_was_done() {
    let readers: Vec<Access> = (0..4).map(|gpu| (gpu, 0, 0, READ)).collect();
    let steps: [&[Access]; 2] = [&readers, &[(2, 0, 0, WRITE)]];
    let duplication = run(&machine(4), &program(1, &steps), "duplication").total;
    assert!(duplication.handling_duplication > Span::ZERO);
    assert!(duplication.handling_collapse > Span::ZERO);
    assert_eq!(duplication.handling_remote, Span::ZERO);
    assert_eq!((duplication.scheme_duplication, duplication.scheme_on_touch), (4, 0));
    let on_touch = run(&machine(4), &program(1, &steps), "on-touch").total;
    assert!(on_touch.handling_migration > Span::ZERO);
    assert_eq!(on_touch.handling_duplication, Span::ZERO);
    let counter = run(&machine(4), &program(1, &steps), "access-counter").total;
    assert!(counter.handling_remote > Span::ZERO && counter.handling_host > Span::ZERO);
    assert!(counter.handling_migration > Span::ZERO, "the first card takes the page");
    let mapped = run(&machine(4), &program(1, &steps), "access-counter:map-host=on").total;
    assert!(mapped.handling_remote > Span::ZERO && mapped.handling_host > Span::ZERO);
    assert_eq!(mapped.handling_migration, Span::ZERO);
}

// The excerpts of real traces.

#[test]
fn every_access_of_the_excerpts_is_carried_out_under_every_scheme() {
    for name in ["mm", "st"] {
        let trace = Trace::bundled(name).unwrap();
        let (accesses, launches) = (trace.accesses(), trace.launches());
        let program: Arc<dyn Workload> = Arc::new(trace);
        for scheme in SCHEMES {
            let outcome = run(&Spec::default(), &program, scheme);
            assert_eq!(outcome.total.accesses(), accesses, "{name} {scheme}");
            assert_eq!(outcome.total.local + outcome.total.remote, accesses);
            assert_eq!(outcome.launches.len(), launches);
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
fn the_checker_never_changes_a_result() {
    let trace = excerpt("st");
    let run = |check| {
        let scheme = by_name("duplication").unwrap();
        let spec = Spec::default();
        Simulation::with_placement(&spec, &trace, scheme, check).unwrap().run(|_| ()).unwrap()
    };
    assert_eq!(run(true), run(false));
}

/// A page that moved from GPU to GPU is still listed in its old frame until the chain that took it
/// has ended. The eviction hand once took such a page for one that can go, found nothing to do,
/// and was asked again at the same point in time, without end. Less and less memory, down to a
/// dozen frames for tens of compute units, must only cost time.
#[test]
fn hardly_any_memory_costs_time_and_nothing_else() {
    // Whole buffers of faults at once, from a host that hardly takes time; and both machines of the GRIT paper.
    let given = [("driver.fault_batch", "256"), ("host.batch_ns", "1000"), ("host.fault_ns", "31")];
    let at_once = Spec::default().with_overrides(&given).unwrap();
    with_hardly_any_memory(at_once, 10);
    // Faults that come one by one leave a GPU of these a tenth of the pages at most.
    with_hardly_any_memory(Spec::preset("grit-table-1").unwrap(), 5);
    with_hardly_any_memory(Spec::preset("grit-paper").unwrap(), 5);
}

/// With `too_small` percent of the pages for each GPU, or fewer, schemes that bring every page have to evict.
fn with_hardly_any_memory(mut spec: Spec, too_small: u32) {
    spec.gpu.capacity_of = CapacityOf::Each;
    for name in ["mm", "st"] {
        let trace = Trace::bundled(name).unwrap();
        let accesses = trace.accesses();
        let program: Arc<dyn Workload> = Arc::new(trace);
        for percent in [10, 5, 2] {
            spec.gpu.capacity_percent = Some(percent);
            for scheme in SCHEMES {
                let outcome = run(&spec, &program, scheme);
                assert_eq!(outcome.total.accesses(), accesses, "{name} {percent} % {scheme}");
                // The others may leave a page where it is.
                if percent <= too_small && ["on-touch", "duplication"].contains(scheme) {
                    assert!(outcome.driver.evictions > 0, "{name} {percent} % {scheme}");
                }
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
    spec.driver.fault_batch = 256;
    spec.gpu.capacity_percent = Some(1);
    let steps: [&[Access]; 2] = [&[(0, 0, 1, READ)], &[(0, 0, 0, READ), (0, 1, 1, WRITE)]];
    for scheme in SCHEMES {
        let outcome = run(&spec, &program(96, &steps), scheme);
        assert_eq!((outcome.total.reads, outcome.total.writes), (2, 1), "{scheme}");
    }
}

#[test]
fn progress_reaches_the_end() {
    let trace = excerpt("st");
    let mut seen = Vec::new();
    let simulation = Simulation::new(&Spec::default(), &trace, "on-touch").unwrap();
    let outcome = simulation.run(|progress| seen.push(progress)).unwrap();
    assert!(seen.windows(2).all(|pair| pair[0].groups <= pair[1].groups));
    let last = seen.last().unwrap();
    assert_eq!((last.accesses, last.time, last.percent()), (21_408, outcome.time, 100.0));
    assert_eq!(last.groups, last.total);
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
    let steps: [&[Access]; 2] = [&[(0, 0, 0, READ), (0, 1, 0, WRITE), (0, 2, 0, READ)], &[]];
    for scheme in SCHEMES {
        let outcome = run(&machine(1), &program(1, &steps), scheme);
        assert_eq!((outcome.total.reads, outcome.total.writes), (2, 1), "{scheme}");
        assert!(outcome.total.faults <= 3, "{scheme}");
    }
}
