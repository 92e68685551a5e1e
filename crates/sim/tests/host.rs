//! What the host's part of a fault costs: its threads, and the tables of a placement scheme.

use std::sync::Arc;

use farside_sim::{Outcome, Simulation, Spec};
use farside_svm::placement::by_name;
use farside_workloads::{Group, Line, Place, Script, Step, Workload};

const PAGE_LINES: u32 = 64;

/// Four GPUs, each of which loads pages of its own, `pages` each: 64 at a time.
fn private(pages: u32) -> Script {
    let group = |gpu: u32, first: u32| {
        let lines = (first..first + 64).map(|page| Line((gpu * pages + page) * PAGE_LINES));
        let wave = vec![Step::Load(lines.collect()), Step::Wait];
        let place = Place { gpu: gpu as u8, unit: (first / 64 % 64) as u8 };
        Group { place: Some(place), waves: vec![wave] }
    };
    let groups = (0..4).flat_map(|gpu| (0..pages).step_by(64).map(move |at| (gpu, at)));
    let groups = groups.map(|(gpu, at)| group(gpu, at)).collect();
    Script::new("private", &[4 * 4096 * u64::from(pages)]).with_launch(groups)
}

/// A wavefront alone on a GPU.
fn on(gpu: u8, steps: Vec<Step>) -> Group {
    Group { place: Some(Place { gpu, unit: 0 }), waves: vec![steps] }
}

fn run(spec: &Spec, scheme: &str, pages: u32) -> Outcome {
    let scheme = by_name(scheme).unwrap();
    let program: Arc<dyn Workload> = Arc::new(private(pages));
    let run = Simulation::with_placement(spec, &program, scheme, true).unwrap();
    run.run(|_| ()).unwrap()
}

/// GRIT, section V-E: the PA-Table is looked up beside the walk of the page table. Where every page
/// is private, GRIT does what on-touch migration does, and takes the time that it takes.
#[test]
fn where_every_page_is_private_grit_takes_as_long_as_on_touch() {
    for threads in ["1", "32"] {
        let spec = Spec::default().with_overrides(&[("host.threads", threads)]).unwrap();
        let [on_touch, grit] = ["on-touch", "grit"].map(|scheme| run(&spec, scheme, 1_024));
        assert_eq!(on_touch.total.faults, 4 * 1_024);
        let ratio = grit.time.0 as f64 / on_touch.time.0 as f64;
        assert!((0.98..=1.02).contains(&ratio), "{threads} threads: {ratio}");
    }
}

/// Lookups that take longer than the walk are waited for: the part that is longer, on each thread.
#[test]
fn a_lookup_that_takes_longer_than_the_walk_is_waited_for() {
    let given = [("host.threads", "1"), ("host.fault_ns", "1000"), ("host.table_ns", "3000")];
    let spec = Spec::default().with_overrides(&given).unwrap();
    let [on_touch, grit] = ["on-touch", "grit:cache=off"].map(|scheme| run(&spec, scheme, 64));
    // An entry is read and written back: two accesses of 3 us beside a walk of 1 us.
    let longer = (grit.time.0 - on_touch.time.0) / 1_000;
    let expected = 256 * 5_000;
    assert!(longer.abs_diff(expected) < expected / 20, "{longer} ns instead of {expected}");
}

/// What the PA-Cache holds is not looked up in the table. Four GPUs want each page in turn: with the cache the first of
/// four faults looks it up, without it each does, and writes it back. Where a lookup takes longer than the walk, the
/// cache must gain all that the others would have waited; where it does not (section V-E), nothing.
#[test]
fn the_pa_cache_gains_the_lookups_that_take_longer_than_the_walk() {
    const PAGES: u32 = 64;
    let lines = || Step::Load((0..PAGES).map(|page| Line(page * PAGE_LINES)).collect());
    let turns = (0..4).fold(Script::new("turns", &[4096 * u64::from(PAGES)]), |script, gpu| {
        script.with_launch(vec![on(gpu, vec![lines(), Step::Wait])])
    });
    let program: Arc<dyn Workload> = Arc::new(turns);
    let time = |table: &str, scheme: &str| {
        let given = [("host.threads", "1"), ("host.table_ns", table)];
        let spec = Spec::default().with_overrides(&given).unwrap();
        let run = Simulation::with_placement(&spec, &program, by_name(scheme).unwrap(), true);
        run.unwrap().run(|_| ()).unwrap().time.0 / 1_000
    };
    // The scheme changes at no fault before the last of a page.
    let gain = |table| time(table, "grit:cache=off") as i64 - time(table, "grit") as i64;
    // A fault without the cache: two accesses, 6 us beside a walk of 1 us. With it the first of a page: one access, 2 us
    // longer than the walk; then none.
    let least = i64::from(PAGES) * (4 * 5_000 - 2_000) * 3 / 4;
    assert!(gain("3000") > least, "{} ns, at least {least}", gain("3000"));
    assert_eq!(gain("100"), 0, "hidden behind the walk");
}

/// However many faults there are, the host serves threads / latency.
#[test]
fn a_saturated_host_serves_as_many_faults_as_its_threads_can() {
    for threads in [1u64, 4, 16] {
        let given = [
            ("host.threads", threads.to_string()),
            ("host.fault_ns", "8000".to_owned()),
            ("host.operation_ns", "0".to_owned()),
            ("host.operation_page_ns", "0".to_owned()),
        ];
        let given: Vec<_> = given.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let spec = Spec::default().with_overrides(&given).unwrap();
        let (pages, faults) = (1_024, 4 * 1_024);
        let time = run(&spec, "on-touch", pages).time.0 / 1_000;
        let least = faults * 8_000 / threads;
        assert!((least..least + least / 50 + 20_000).contains(&time), "{threads}: {time} {least}");
    }
}

/// A driver that carries out one migration at a time (MGPUSim v3.0.0, driver/driver.go:538): the steps of
/// one follow those of the one before.
#[test]
fn one_migration_at_a_time_takes_the_sum_of_their_times() {
    let time = |migrations: Option<&str>| {
        let given = migrations.map(|most| ("host.migrations", most));
        let spec = Spec::default().with_overrides(given.as_slice()).unwrap();
        run(&spec, "on-touch", 256).time.0 as f64 / 1e6
    };
    let [one, two, all] = [Some("1"), Some("2"), None].map(time);
    // Each takes the CPU's mapping away, copies 4 KiB over PCIe, maps and replays.
    let least = 1_024.0 * (0.110 + 0.628 + 0.2);
    assert!(one > least, "{one} us, at least {least}");
    assert!((1.8..2.05).contains(&(one / two)), "two at a time: {one} {two}");
    assert!(all < one / 10.0, "{all} {one}");
}

/// The driver's own time for a migration (`host.migration_ns`) is one after the other where migrations are, and
/// beside each other where they are not.
#[test]
fn the_driver_s_own_time_for_a_migration_is_part_of_it() {
    let time = |migrations: &str, own: &str| {
        let given = [("host.migrations", migrations), ("host.migration_ns", own)];
        let spec = Spec::default().with_overrides(&given).unwrap();
        run(&spec, "on-touch", 256).time.0 / 1_000
    };
    let longer = time("1", "20000") - time("1", "0");
    let expected = 1_024 * 20_000;
    assert!(longer.abs_diff(expected) < 20_000, "{longer} ns for 1024 moves");
    let beside = time("65536", "20000") - time("65536", "0");
    // Less than once in full: while it passes, other faults wait for the host anyway.
    assert!((10_000..40_000).contains(&beside), "{beside} ns");
}

/// A mapping of a page where it is copies nothing, and waits for no migration: which is assumed.
#[test]
fn a_remote_mapping_waits_for_no_migration() {
    let one = Spec::default().with_overrides(&[("host.migrations", "1")]).unwrap();
    let far = "access-counter:map-host=on";
    let [gated, free] = [&one, &Spec::default()].map(|spec| run(spec, far, 256).time);
    assert_eq!(gated, free);
}

/// GPU 0 has a page and GPU 1 maps it. While page after page of GPU 2 moves, one at a time, GPU 1's accesses go on,
/// or each waits for the end of a migration (`flush.far`).
#[test]
fn accesses_to_another_gpu_wait_for_a_migration_or_do_not() {
    let time = |far: &str, moving: u32| {
        let given = [("flush.far", far), ("host.migrations", "1"), ("gpu.count", "3")];
        let spec = Spec::default().with_overrides(&given).unwrap();
        let first = vec![Step::Store(vec![Line(0)])];
        let mut reads = vec![Step::Load(vec![Line(0)]), Step::Wait];
        for line in 1..33 {
            reads.extend([Step::Load(vec![Line(line)]), Step::Wait]);
        }
        let moves = (1..=moving).map(|page| Line(page * PAGE_LINES)).collect();
        let script = Script::new("far", &[4096 * 65]).with_launch(vec![on(0, first)]);
        let script = script.with_launch(vec![on(1, reads), on(2, vec![Step::Load(moves)])]);
        let program: Arc<dyn Workload> = Arc::new(script);
        let scheme = by_name("first-touch").unwrap();
        let run = Simulation::with_placement(&spec, &program, scheme, true).unwrap();
        let outcome = run.run(|_| ()).unwrap();
        assert_eq!(outcome.gpus[1].remote, 33);
        outcome.time.0 / 1_000
    };
    let longer = |moving| time("closed", moving) - time("open", moving);
    // A migration takes about 1 us. An access waits for one at most.
    assert!(longer(1) < 1_500, "{} ns", longer(1));
    assert!(longer(64) > 10_000, "{} ns", longer(64));
}

/// GPU 0 has a page, GPU 1 and GPU 2 map it, and GPU 2's counter has it come. Every GPU is told of the migration once
/// (GRIT, section II-B2, step 4), whether it has the page or not, and stands still until it is over, if at all.
#[test]
fn every_gpu_is_told_of_a_counter_s_migration_once() {
    for gpus in ["3", "4"] {
        for until in ["drained", "moved"] {
            let given = [
                ("flush.counter", "all"),
                ("flush.until", until),
                ("copy.latency_ns", "50000"),
                ("gpu.count", gpus),
                ("counter.threshold", "40"),
            ];
            let spec = Spec::default().with_overrides(&given).unwrap();
            let busy = || vec![Step::Compute(300_000)];
            let first = vec![Step::Store(vec![Line(0)])];
            let reads = |count| {
                let each = |line| [Step::Load(vec![Line(line)]), Step::Wait];
                (0..count).flat_map(each).chain(busy()).collect::<Vec<_>>()
            };
            let script = Script::new("told", &[4096]).with_launch(vec![on(0, first)]);
            let second = (3..spec.gpu.count).map(|gpu| on(gpu as u8, busy()));
            let second =
                [on(0, busy()), on(1, reads(1)), on(2, reads(50))].into_iter().chain(second);
            let program: Arc<dyn Workload> = Arc::new(script.with_launch(second.collect()));
            let scheme = by_name("access-counter").unwrap();
            let run = Simulation::with_placement(&spec, &program, scheme, true).unwrap();
            let outcome = run.run(|_| ()).unwrap();
            assert_eq!(outcome.total.notices, 1);
            for (gpu, counts) in outcome.gpus.iter().enumerate() {
                assert_eq!(counts.flushes, 1, "GPU {gpu} of {gpus}, {until}");
                let stood = counts.stalled.0 / 1_000;
                let moved = (50_000..53_000).contains(&stood);
                assert_eq!(moved, until == "moved", "GPU {gpu} of {gpus}, {until}: {stood} ns");
            }
        }
    }
}

/// A page that two GPUs use in turn. The one that loses it stands still until its invalidation is
/// over, or until the page has arrived (driver/driver.go:747): the copy is the difference.
#[test]
fn a_gpu_that_loses_a_page_stands_still_until_it_has_moved() {
    let stalled = |until: &str| {
        let given = [("flush.until", until), ("copy.latency_ns", "50000"), ("gpu.count", "2")];
        let spec = Spec::default().with_overrides(&given).unwrap();
        let mut first = vec![Step::Load(vec![Line(0)]), Step::Wait];
        // Busy with itself for 200 us after it has the page.
        first.extend(std::iter::repeat_n(Step::Compute(1_000), 200));
        let late = vec![Step::Compute(100_000), Step::Load(vec![Line(0)]), Step::Wait];
        let script = Script::new("pair", &[4096]).with_launch(vec![on(0, first), on(1, late)]);
        let program: Arc<dyn Workload> = Arc::new(script);
        let scheme = by_name("on-touch").unwrap();
        let run = Simulation::with_placement(&spec, &program, scheme, true).unwrap();
        run.run(|_| ()).unwrap().gpus[0].stalled.0 / 1_000
    };
    let [drained, moved] = ["drained", "moved"].map(stalled);
    assert!(drained < 1_000, "{drained} ns");
    assert!((50_000..53_000).contains(&moved), "{moved} ns");
}

/// A GPU that keeps its page for reading while another gets a copy is emptied, or not (GRIT, II-B3).
#[test]
fn a_copy_of_a_written_page_empties_its_writer_or_not() {
    let stalled = |demote: &str| {
        let given = [("flush.demote", demote), ("gpu.count", "2")];
        let spec = Spec::default().with_overrides(&given).unwrap();
        let first = vec![Step::Store(vec![Line(0)]), Step::Compute(200_000)];
        let late = vec![Step::Compute(100_000), Step::Load(vec![Line(0)]), Step::Wait];
        let script = Script::new("pair", &[4096]).with_launch(vec![on(0, first), on(1, late)]);
        let program: Arc<dyn Workload> = Arc::new(script);
        let scheme = by_name("duplication").unwrap();
        let run = Simulation::with_placement(&spec, &program, scheme, true).unwrap();
        run.run(|_| ()).unwrap().gpus[0].stalled.0
    };
    assert!(stalled("pipeline") > 0);
    assert_eq!(stalled("page"), 0);
}
