//! Machines and programs drawn at random: whatever the values are, every access is carried out,
//! sees the newest version of its page (the coherence checker is on), and the driver's tables are
//! right in the end. `PROPTEST_CASES=20000` runs more of them.

use std::sync::Arc;

use farside_sim::{
    CapacityOf, Dispatch, EngineMode, Far, FlushMode, SCHEMES, Simulation, Spec, Told, Until,
};
use farside_svm::placement::by_name;
use farside_workloads::{BLOCK_LINES, Group, Line, Script, Step, Workload};
use proptest::prelude::*;

/// Pages of the two buffers: moves never cross from one into the other.
const PAGES: [u32; 2] = [32, 64];

fn line() -> impl Strategy<Value = Line> {
    (0..PAGES[0] + PAGES[1], 0u32..64).prop_map(|(page, line)| {
        // Half of all accesses go to a few pages, so that there is something to fight over.
        let page = if page % 2 == 0 { page % 8 } else { page };
        let first = if page < PAGES[0] { 0 } else { BLOCK_LINES - PAGES[0] * 64 };
        Line(first + page * 64 + line)
    })
}

fn step() -> impl Strategy<Value = Step> {
    let lines = || prop::collection::vec(line(), 1..6);
    prop_oneof![
        4 => lines().prop_map(Step::Load),
        2 => lines().prop_map(Step::Store),
        1 => lines().prop_map(Step::LoadScalar),
        2 => Just(Step::Wait),
        1 => (0u32..3_000).prop_map(Step::Compute),
        1 => Just(Step::Barrier),
    ]
}

/// Up to three launches of a dozen work-groups of one to three wavefronts.
fn programs() -> impl Strategy<Value = Script> {
    let wave = prop::collection::vec(step(), 0..14);
    let group = prop::collection::vec(wave, 1..4).prop_map(|waves| Group { place: None, waves });
    let launch = (prop::collection::vec(group, 0..12), 1u16..4, any::<bool>());
    prop::collection::vec(launch, 1..4).prop_map(|launches| {
        let sizes = PAGES.map(|pages| u64::from(pages) * 4_096);
        launches.into_iter().fold(Script::new("random", &sizes), |script, (groups, limit, code)| {
            let script = script.with_launch(groups).groups_per_unit(limit);
            if code { script.code(Line(BLOCK_LINES + 64), 5) } else { script }
        })
    })
}

/// Lines that a program accesses, code apart.
fn accesses(script: &Script) -> u64 {
    let mut count = 0;
    let mut lines = farside_workloads::Lines::new();
    for launch in 0..script.launches() {
        let shape = script.launch(launch);
        for (group, wave) in
            (0..shape.groups).flat_map(|group| (0..shape.waves).map(move |wave| (group, wave)))
        {
            let mut at = farside_workloads::Cursor { launch, group, wave, ..Default::default() };
            loop {
                lines.clear();
                match script.next(&mut at, &mut lines) {
                    farside_workloads::Instruction::End => break,
                    _ => count += lines.len() as u64,
                }
            }
        }
    }
    count
}

fn specs() -> impl Strategy<Value = Spec> {
    let gpu = (
        1u32..=4,
        prop::sample::select(vec![2u32, 5, 20, 70, 300]),
        prop::sample::select(vec![CapacityOf::Each, CapacityOf::Total]),
        3u32..9,
        prop::sample::select(vec![
            Dispatch::Partition,
            Dispatch::RoundRobin,
            Dispatch::Chunks,
            Dispatch::Fill,
        ]),
    );
    let counter = (1u32..64, 12u32..18);
    let driver = (
        prop::sample::select(vec![1u32, 3, 256]),
        prop::sample::select(vec![0u64, 50_000, 2_000_000]),
        prop::sample::select(vec![20u8, 50, 100]),
        any::<bool>(),
    );
    let rest = (
        prop::sample::select(vec![FlushMode::Pipeline, FlushMode::Page]),
        prop::sample::select(vec![1u32, 2, 256]),
        prop::sample::select(vec![0u64, 64]),
        prop::sample::select(vec![EngineMode::Reservation, EngineMode::Events]),
    );
    let moves = (
        prop::sample::select(vec![None, Some(1u32), Some(3)]),
        prop::sample::select(vec![Until::Drained, Until::Moved]),
        prop::sample::select(vec![FlushMode::Pipeline, FlushMode::Page]),
        prop::sample::select(vec![Told::Users, Told::All]),
        prop::sample::select(vec![Far::Open, Far::Closed]),
        prop::sample::select(vec![0u64, 700]),
    );
    (gpu, counter, driver, rest, moves).prop_map(|(gpu, counter, driver, rest, moves)| {
        let mut spec = Spec::default();
        spec.gpu.count = gpu.0;
        spec.gpu.compute_units = 2;
        (spec.gpu.capacity_percent, spec.gpu.capacity_of) = (Some(gpu.1), gpu.2);
        (spec.gpu.wavefronts, spec.gpu.dispatch) = (gpu.3, gpu.4);
        (spec.tlb.l2_entries, spec.tlb.l2_ways) = (16, 4);
        (spec.walk.walkers, spec.walk.queue_entries) = (2, 2);
        (spec.cache.l2_bytes, spec.cache.l2_ways) = (4_096, 4);
        (spec.counter.threshold, spec.counter.group_bytes) = (counter.0, 1 << counter.1);
        spec.driver.fault_batch = driver.0;
        spec.driver.thrash_window_ns = driver.1;
        spec.driver.density_percent = driver.2;
        spec.driver.keep_clean_copies = driver.3;
        spec.flush.mode = rest.0;
        (spec.host.migrations, spec.host.migration_ns) = (moves.0, moves.5);
        (spec.flush.until, spec.flush.demote, spec.flush.counter) = (moves.1, moves.2, moves.3);
        spec.flush.far = moves.4;
        spec.fault.buffer_entries = rest.1;
        (spec.engine.run_ahead_cycles, spec.engine.mode) = (rest.2, rest.3);
        spec
    })
}

proptest! {
    #[test]
    fn every_access_is_carried_out_and_sees_the_newest_version(
        spec in specs(), script in programs(),
    ) {
        let expected = accesses(&script);
        let program: Arc<dyn Workload> = Arc::new(script);
        for name in SCHEMES {
            let scheme = by_name(name).unwrap();
            let simulation = Simulation::with_placement(&spec, &program, scheme, true).unwrap();
            match simulation.run(|_| ()) {
                Ok(outcome) => {
                    let total = outcome.total;
                    prop_assert_eq!(total.accesses() - total.fetches, expected);
                    prop_assert_eq!(total.local + total.remote, total.accesses());
                }
                Err(error) => prop_assert!(false, "{}: {}", name, error),
            }
        }
    }
}
