//! Placement schemes against the offline optimum of each page: a scheme that knows all accesses beforehand, given what
//! a fault, the copy of a page and an access to another memory cost. No contention, no capacity, no group of pages.
//!
//! The optimum is found by dynamic programming over where a page is and who maps it. What it may do is all that the
//! driver may do with a page, and more (nothing takes a mapping away but a move), so it is a bound from below.

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_sim::functional::{Options, replay};
use farside_types::{GROUP_PAGES, Span};
use farside_workloads::order::shared_accesses;
use farside_workloads::{
    BLOCK_LINES, Buffer, Cursor, Group, Instruction, LINES_MAX, Launch, Line, Lines, Place, Script,
    Step, Trace, Workload, catalog, first_lines,
};
use proptest::prelude::*;

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
        // Each access is paid for by itself.
        at_once: 1,
        ..Default::default()
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
    (2_000, [("mm", 1.00), ("st", 1.44), ("bfs", 2.98), ("fir", 1.00), ("mm", 1.00), ("st", 1.52)]),
    (
        20_000,
        [("mm", 1.00), ("st", 1.16), ("bfs", 2.97), ("fir", 1.00), ("mm", 1.00), ("st", 1.15)],
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

/// How many times the optimum schemes cost for BFS of a size.
fn of_bfs(bytes: u64, fault: u64, schemes: &[&str]) -> Vec<f64> {
    let workload = catalog::by_name("bfs", Some(bytes)).unwrap();
    let costs = Costs { fault, copy: 1_000, far: 500 };
    let best = optimum(&*workload, costs) as f64;
    let ratios: Vec<_> =
        schemes.iter().map(|it| cost(&*workload, it, costs) as f64 / best).collect();
    let named: Vec<_> =
        schemes.iter().zip(&ratios).map(|(it, ratio)| format!("{it} {ratio:.2}")).collect();
    println!("bfs of {} KiB, a fault {fault} ns: {}", bytes >> 10, named.join(", "));
    ratios
}

/// A program with each page of its buffers in a group of the access counters' by itself.
#[derive(Debug)]
struct Apart {
    of: Arc<dyn Workload>,
    buffers: Vec<Buffer>,
    /// The first lines of each buffer, together and apart.
    lines: Vec<(Line, Line)>,
}

impl Apart {
    fn new(of: Arc<dyn Workload>) -> Apart {
        let mut buffers = of.buffers().to_vec();
        buffers.iter_mut().for_each(|buffer| buffer.bytes *= GROUP_PAGES);
        let lines = first_lines(of.buffers()).into_iter().zip(first_lines(&buffers)).collect();
        Apart { of, buffers, lines }
    }

    fn apart(&self, line: Line) -> Line {
        let buffer = self.lines.partition_point(|&(first, _)| first <= line) - 1;
        let (first, apart) = self.lines[buffer];
        let within = line.0 - first.0;
        Line(apart.0 + within / 64 * 64 * GROUP_PAGES as u32 + within % 64)
    }
}

impl Workload for Apart {
    fn name(&self) -> &str {
        self.of.name()
    }

    fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    fn launches(&self) -> u32 {
        self.of.launches()
    }

    fn launch(&self, launch: u32) -> Launch {
        let launch = self.of.launch(launch);
        Launch { code: launch.code.map(|(line, count)| (self.apart(line), count)), ..launch }
    }

    fn next(&self, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        let mut together = Lines::new();
        let instruction = self.of.next(at, &mut together);
        together.iter().for_each(|&line| lines.push(self.apart(line)));
        instruction
    }
}

/// Where a notice is of one page and not of sixteen: BFS and ST, which miss the goal of 1.5 else, are at it.
#[test]
fn farside_is_near_the_optimum_where_pages_are_apart_from_each_other() {
    let programs = ["bfs", "fir", "mm", "st"];
    for (fault, expected) in [(2_000, [1.27, 1.00, 1.00, 1.50]), (20_000, [1.34, 1.00, 1.00, 1.07])]
    {
        let costs = Costs { fault, copy: 1_000, far: 500 };
        for (name, of_farside) in programs.into_iter().zip(expected) {
            let whole = catalog::by_name(name, Some(1 << 19)).unwrap();
            let best = optimum(&*whole, costs);
            let apart = Apart::new(whole);
            assert_eq!(optimum(&apart, costs), best, "what is known beforehand is the same");
            let ratios = SCHEMES.map(|scheme| cost(&apart, scheme, costs) as f64 / best as f64);
            let named = SCHEMES.iter().zip(ratios);
            let line: Vec<_> = named.map(|(scheme, it)| format!("{scheme} {it:.2}")).collect();
            println!("{name} apart, a fault {fault} ns: {}", line.join(", "));
            assert!((ratios[6] - of_farside).abs() < 0.0051, "{line:?}: it was {of_farside}");
        }
    }
}

/// Counters tell of groups, and of those with pages of several GPUs a larger BFS has a smaller part.
#[test]
fn a_larger_bfs_is_closer_to_the_optimum() {
    let farside = of_bfs(1 << 21, 2_000, &["farside"])[0];
    assert!((farside - 1.83).abs() < 0.0051, "{farside}");
}

#[test]
#[ignore = "half a minute: the table of docs/placement.md"]
fn bfs_of_many_sizes() {
    for bytes in [1 << 19, 1 << 21, 1 << 22, 1 << 23] {
        for fault in [2_000, 20_000] {
            let ratios = of_bfs(bytes, fault, &["first-touch", "grit", "copy-move-map", "farside"]);
            assert!(ratios.iter().all(|&ratio| ratio >= 1.0), "less than the least");
        }
    }
}

/// A GPU accesses lines of a page, so many times, in a launch of their own. Each page is an allocation.
fn launch(script: Script, page: u32, run: Run) -> Script {
    let lines = (0..run.count).map(|line| Line(page * BLOCK_LINES + line as u32 % 64)).collect();
    let step = lines_of(lines, run.write);
    script.with_launch(vec![Group {
        place: Some(Place { gpu: run.gpu, unit: 0 }),
        waves: vec![step],
    }])
}

fn lines_of(lines: Vec<Line>, write: bool) -> Vec<Step> {
    let step = |lines: &[Line]| match write {
        true => Step::Store(lines.to_vec()),
        false => Step::Load(lines.to_vec()),
    };
    lines.chunks(LINES_MAX).map(step).collect()
}

fn script(runs: &[(u32, Run)]) -> Script {
    let pages = runs.iter().map(|(page, _)| page + 1).max().unwrap_or(1);
    let empty = Script::new("bound", &vec![4096; pages as usize]);
    runs.iter().fold(empty, |script, &(page, run)| launch(script, page, run))
}

/// What pages may cost that are only read, or that one GPU alone uses: for each GPU, the least, or 64 over its
/// accesses times the least if that is more, and two times the least where bringing costs more than 64 accesses. And a
/// fault for the rights where it reads first and writes then.
fn bound(runs: &[(u32, Run)], costs: Costs) -> u64 {
    let mut users: BTreeMap<(u32, u8), Vec<Run>> = BTreeMap::new();
    for &(page, run) in runs {
        users.entry((page, run.gpu)).or_default().push(run);
    }
    let of = |runs: &Vec<Run>| {
        let accesses: u64 = runs.iter().map(|run| run.count).sum();
        let upgrades = !runs[0].write && runs.iter().any(|run| run.write);
        let fault = if upgrades { costs.fault } else { 0 };
        let least = least(runs, costs);
        let dear = costs.fault + costs.copy > 64 * costs.far;
        fault + if dear { 2 * least } else { least.max((64 * least).div_ceil(accesses)) }
    };
    users.values().map(of).sum()
}

/// Pages that several GPUs read, and pages that one has for itself, in any order. A GPU accesses a page a few times, or up
/// to `most`.
fn unshared_writes(most: u64) -> impl Strategy<Value = Vec<(u32, Run)>> {
    let count = prop_oneof![1..5u64, 1..most / 4 + 1];
    let run = (0u32..8, 0u8..4, any::<bool>(), count).prop_map(|(page, gpu, write, count)| {
        // Half of the pages are read by all, the others written by one.
        let (gpu, write) = if page % 2 == 0 { (gpu, false) } else { (page as u8 / 2, write) };
        (page, Run { gpu, write, count })
    });
    prop::collection::vec(run, 1..24).prop_map(move |runs| {
        let mut left: BTreeMap<(u32, u8), u64> = BTreeMap::new();
        let fits = |&(page, run): &(u32, Run)| {
            let left = left.entry((page, run.gpu)).or_insert(most);
            let fits = run.count <= *left;
            *left -= if fits { run.count } else { 0 };
            fits
        };
        runs.into_iter().filter(fits).collect()
    })
}

proptest! {
    /// The bound of docs/placement.md for bringing a page, where that costs less than 64 accesses.
    #[test]
    fn what_is_cheap_to_bring_costs_at_most_64_over_its_accesses_times_the_optimum(
        runs in unshared_writes(400),
        (fault, copy, far) in (1u64..20_000, 1u64..5_000, 1u64..1_000),
    ) {
        let costs = Costs { fault, copy, far: far.max((fault + copy).div_ceil(64)) };
        let paid = cost(&script(&runs), "farside", costs);
        prop_assert!(paid <= bound(&runs, costs), "{paid}, and not {}", bound(&runs, costs));
    }

    /// The same where it costs more, as long as nobody accesses a page more than 64 times.
    #[test]
    fn what_is_dear_to_bring_costs_at_most_twice_the_optimum(
        runs in unshared_writes(64),
        (fault, copy, far) in (1u64..20_000, 1u64..5_000, 1u64..1_000),
    ) {
        let costs = Costs { fault, copy, far: far.min((fault + copy - 1) / 64) };
        prop_assume!(costs.far > 0);
        let paid = cost(&script(&runs), "farside", costs);
        prop_assert!(paid <= bound(&runs, costs), "{paid}, and not {}", bound(&runs, costs));
    }
}

/// Each turn is a GPU's write of a page, so many times.
fn turns(gpus: impl Iterator<Item = u8>, count: u64) -> Vec<(u32, Run)> {
    gpus.map(|gpu| (0, Run { gpu, write: true, count })).collect()
}

#[test]
fn the_bound_is_missed_without_costs_and_where_two_write_a_page() {
    let costs = Costs { fault: 10_000, copy: 60_000, far: 10 };
    let once = turns([0].into_iter(), 1);
    assert_eq!(cost(&script(&once), "farside", costs), 10_010);
    assert!(cost(&script(&once), "farside:costs=off", costs) > bound(&once, costs));
    // Taken twice too early it is mapped for good, however cheap it is to bring.
    let costs = Costs { fault: 1_000, copy: 1_000, far: 1_000 };
    let both = turns((0..40).map(|turn| turn % 2), 200);
    let runs: Vec<_> = both.iter().map(|(_, run)| *run).collect();
    let (paid, least) = (cost(&script(&both), "farside", costs), least(&runs, costs));
    assert_eq!((paid, least), (3_731_000, 80_000), "47 times");
}
