//! Placement schemes against the offline optimum of each page: a scheme that knows all accesses beforehand, given what
//! a fault, the copy of a page and an access to another memory cost. No contention, no capacity, no group of pages.
//!
//! The optimum is found by dynamic programming over where a page is and who maps it. What it may do is all that the
//! driver may do with a page, and more (nothing takes a mapping away but a move), so it is a bound from below.

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_sim::functional::{Options, replay};
use farside_types::Span;
use farside_workloads::order::shared_accesses;
use farside_workloads::{Trace, Workload, catalog};

/// What things cost, in ns.
#[derive(Clone, Copy, Debug)]
struct Costs {
    fault: u64,
    /// A page that is copied, to stay beside the other or in its place.
    copy: u64,
    /// An access to a line of another memory.
    far: u64,
}

/// Neighbouring accesses of one GPU for one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    gpu: u8,
    write: bool,
    count: u64,
}

/// Where a page is and who maps it there: a bit for the host and for each GPU, and a bit for each GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    places: u8,
    mappers: u8,
}

const HOST: State = State { places: 1, mappers: 0 };

impl State {
    const ALL: usize = 1 << 9;

    fn index(self) -> usize {
        usize::from(self.places) << 4 | usize::from(self.mappers)
    }

    fn at(index: usize) -> State {
        State { places: (index >> 4) as u8, mappers: (index & 15) as u8 }
    }
}

/// What a state can become by a run of one of four GPUs, and what that costs.
fn ways(from: State, run: Run, costs: Costs, mut way: impl FnMut(State, u64)) {
    let (home, me) = (2 << run.gpu, 1 << run.gpu);
    let State { places, mappers } = from;
    let (local, mapped) = (places & home != 0, mappers & me != 0);
    let alone = places.count_ones() == 1;
    let others = State { places, mappers: mappers & !me };
    let far = run.count * costs.far;
    let brought = if local { 0 } else { costs.copy };
    let kept = if local { others.mappers } else { 0 };
    way(State { places: home, mappers: kept }, costs.fault + brought);
    if (local || mapped) && (alone || !run.write) {
        way(from, if local { 0 } else { far });
    }
    if !local && !run.write {
        way(State { places: places | home, ..others }, costs.fault + costs.copy);
    }
    if !local && !mapped {
        let mut map = |places| way(State { places, mappers: mappers | me }, costs.fault + far);
        let single = (0..5).map(|bit| 1 << bit).filter(|bit| places & bit != 0);
        match run.write {
            true => single.for_each(map),
            false => map(places),
        }
    }
}

/// The least that the accesses to a page can cost.
fn least(runs: &[Run], costs: Costs) -> u64 {
    const NEVER: u64 = u64::MAX / 2;
    let mut states = [NEVER; State::ALL];
    states[HOST.index()] = 0;
    for &run in runs {
        let mut next = [NEVER; State::ALL];
        let reached = states.iter().enumerate().filter(|(_, cost)| **cost < NEVER);
        for (from, so_far) in reached {
            ways(State::at(from), run, costs, |to, cost| {
                let least = &mut next[to.index()];
                *least = (*least).min(so_far + cost);
            });
        }
        states = next;
    }
    states.into_iter().min().unwrap_or(0)
}

/// The runs of each page.
fn runs(workload: &dyn Workload, options: &Options) -> BTreeMap<u32, Vec<Run>> {
    let mut pages: BTreeMap<u32, Vec<Run>> = BTreeMap::new();
    for access in shared_accesses(workload, options.gpus_for(workload), options.units) {
        let (gpu, write) = (access.place.gpu, access.write);
        let runs = pages.entry(access.line.0 / 64).or_default();
        match runs.last_mut() {
            Some(run) if (run.gpu, run.write) == (gpu, write) => run.count += 1,
            _ => runs.push(Run { gpu, write, count: 1 }),
        }
    }
    pages
}

fn optimum(workload: &dyn Workload, costs: Costs) -> u64 {
    let pages = runs(workload, &Options::default());
    pages.values().map(|runs| least(runs, costs)).sum()
}

/// What a scheme's faults, notices, copies and far accesses cost.
fn cost(workload: &dyn Workload, scheme: &str, costs: Costs) -> u64 {
    let Costs { fault, copy, far } = costs;
    let known = farside_svm::placement::Costs {
        bring: Span::from_nanos(fault + copy),
        migration: Span::from_nanos(fault + copy),
        far: Span::from_nanos(far),
    };
    let options = Options { per_page: true, costs: Some(known), ..Options::default() };
    let report = replay(workload, scheme, &options).unwrap();
    let copies: u64 = report.by_page.iter().map(|(_, page)| u64::from(page.copies)).sum();
    let asked = report.total.faults() + report.total.notices;
    asked * costs.fault + copies * costs.copy + report.total.remote * costs.far
}

#[test]
fn the_optimum_of_a_few_accesses_is_the_one_found_by_hand() {
    let costs = Costs { fault: 100, copy: 10, far: 7 };
    let run = |gpu, write, count| Run { gpu, write, count };
    let least = |runs: &[Run]| least(runs, costs);
    assert_eq!(least(&[run(0, false, 1)]), 107, "one access: it is mapped on the host");
    assert_eq!(least(&[run(0, true, 50)]), 110, "many: it comes");
    let both = [run(0, false, 50), run(1, false, 50), run(0, false, 50), run(1, false, 50)];
    assert_eq!(least(&both), 220, "a copy each");
    let mut turns = vec![];
    (0..20).for_each(|_| turns.extend([run(0, true, 1), run(1, true, 1)]));
    assert_eq!(least(&turns), 110 + 100 + 20 * 7, "one has it, the other maps it");
}

const SCHEMES: [&str; 7] = [
    "on-touch",
    "first-touch",
    "access-counter",
    "duplication",
    "grit",
    "copy-move-map",
    "farside",
];

/// How much more than the optimum Farside's scheme costs: exact, so that a change either way is seen. The goal is 1.5
/// (`docs/experiments.md` says why BFS and ST miss it).
const FARSIDE: [(u64, [(&str, f64); 6]); 2] = [
    (2_000, [("mm", 1.00), ("st", 1.45), ("bfs", 3.32), ("fir", 1.00), ("mm", 1.01), ("st", 1.52)]),
    (
        20_000,
        [("mm", 1.00), ("st", 1.16), ("bfs", 2.96), ("fir", 1.00), ("mm", 1.00), ("st", 1.16)],
    ),
];

#[test]
fn no_scheme_costs_less_than_the_optimum_and_farside_as_much_more_as_is_said() {
    let small = |name: &str| catalog::by_name(name, Some(1 << 19)).unwrap();
    let recorded = |name: &str| Arc::new(Trace::bundled(name).unwrap()) as Arc<dyn Workload>;
    let mut programs: Vec<_> = ["mm", "st"].map(recorded).into();
    programs.extend(["bfs", "fir", "mm", "st"].map(small));
    for (fault, expected) in FARSIDE {
        let costs = Costs { fault, copy: 1_000, far: 500 };
        for (program, (name, of_farside)) in programs.iter().zip(expected) {
            let best = optimum(&**program, costs);
            let ratio = |scheme| cost(&**program, scheme, costs) as f64 / best as f64;
            let ratios = SCHEMES.map(ratio);
            let named = SCHEMES.iter().zip(ratios);
            let line: Vec<_> = named.map(|(scheme, it)| format!("{scheme} {it:.2}")).collect();
            let line = format!("{name}, a fault {fault} ns: {}", line.join(", "));
            println!("{line}");
            assert_eq!(program.name(), name);
            assert!(ratios.iter().all(|&it| it >= 1.0), "{line}: less than the least");
            assert!((ratios[6] - of_farside).abs() < 0.0051, "{line}: it was {of_farside}");
        }
    }
}
