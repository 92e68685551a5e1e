//! The ready-made observers on real runs: what they tell is what the run has counted, and watching
//! changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_sim::observers::{
    Entry, Happened, PageHistory, Pages, Perfetto, Series, Shared, Units, Window,
};
use farside_sim::{Outcome, Simulation, Spec};
use farside_types::{MemoryId, PageNo, PageRange, Span, Time};
use farside_workloads::Trace;
use farside_workloads::Workload;
use farside_workloads::catalog;
use serde_json::Value;

/// A run with its observers.
struct Watched {
    outcome: Outcome,
    plain: Outcome,
    trace: Vec<Value>,
    history: PageHistory,
    most_moved: PageHistory,
    series: Series,
}

const EVERYTHING: PageRange = PageRange { start: PageNo(0), count: u64::MAX };

fn watched(program: &Arc<dyn Workload>, scheme: &str) -> Watched {
    let spec = Spec::default().with_overrides(&[("gpu.capacity_percent", "60")]).unwrap();
    let names: Vec<String> = statistics(&run(&spec, program, scheme, |s| s))
        .into_keys()
        .filter(|name| ["total.", "gpu.", "driver."].iter().any(|start| name.starts_with(start)))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let window = Window { from: Time::ZERO, until: Time(u64::MAX) };
    let trace = Shared::new(Perfetto::new(Vec::new(), window, Units::First(3)));
    let history = Shared::new(PageHistory::new(Pages::Range(EVERYTHING)));
    let most_moved = Shared::new(PageHistory::new(Pages::MostMoved(8)));
    let series = Shared::new(Series::new(&spec, Span::from_nanos(7_000), &names).unwrap());
    let outcome = run(&spec, program, scheme, |simulation| {
        simulation
            .observe(Box::new(trace.clone()))
            .observe(Box::new(history.clone()))
            .observe(Box::new(series.clone()))
            .observe(Box::new(most_moved.clone()))
    });
    let (written, bytes) = trace.into_inner().unwrap().finish().unwrap();
    assert_eq!(written.left_out, 0);
    Watched {
        outcome,
        plain: run(&spec, program, scheme, |simulation| simulation),
        trace: serde_json::from_slice(&bytes).unwrap(),
        history: history.into_inner().unwrap(),
        most_moved: most_moved.into_inner().unwrap(),
        series: series.into_inner().unwrap(),
    }
}

fn run(
    spec: &Spec,
    program: &Arc<dyn Workload>,
    scheme: &str,
    watch: impl FnOnce(Simulation) -> Simulation,
) -> Outcome {
    let simulation = Simulation::new(spec, program, scheme).unwrap();
    watch(simulation).run(|_| ()).unwrap()
}

fn statistics(outcome: &Outcome) -> BTreeMap<String, u64> {
    outcome.statistics().into_iter().map(|one| (one.name, one.value)).collect()
}

/// Programs and schemes that fault, move, copy, collapse, evict and map remotely.
fn runs() -> Vec<Watched> {
    let excerpt: Arc<dyn Workload> = Arc::new(Trace::bundled("st").unwrap());
    let stencil = catalog::by_name("st", Some(1 << 20)).unwrap();
    vec![
        watched(&excerpt, "on-touch"),
        watched(&excerpt, "grit"),
        watched(&stencil, "duplication"),
        watched(&stencil, "access-counter"),
    ]
}

#[test]
fn observers_tell_what_the_run_counted() {
    for run in runs() {
        let name = format!("{} under {}", run.outcome.trace, run.outcome.placement);
        assert_eq!(run.outcome, run.plain, "{name}: watching changes nothing");
        a_series_adds_up(&run, &name);
        histories_have_every_move(&run, &name);
        slices_nest(&run.trace, &name);
        faults_are_those_that_were_replayed(&run, &name);
    }
}

fn a_series_adds_up(run: &Watched, name: &str) {
    let totals = statistics(&run.outcome);
    let rows = run.series.intervals();
    assert!(rows.len() > 10, "{name}: {} rows", rows.len());
    assert_eq!(rows.last().unwrap().end, Time(run.outcome.time.0), "{name}");
    for (column, statistic) in run.series.names().enumerate() {
        let sum: u64 = rows.iter().map(|row| row.grown[column]).sum();
        assert_eq!(sum, totals[statistic], "{name}: {statistic}");
    }
}

/// When it happened; a move, when it began.
fn begun(entry: &Entry) -> Time {
    match entry.what {
        Happened::Move { since, .. } => since,
        _ => entry.at,
    }
}

/// By way: the moves in the histories of all pages, and those that the driver counted.
fn histories_have_every_move(run: &Watched, name: &str) {
    let stories = run.history.stories();
    let mut ways: BTreeMap<(Option<MemoryId>, MemoryId), u64> = BTreeMap::new();
    for (page, story) in &stories {
        assert_eq!(story.left_out, 0, "{name}: page {page:?}");
        assert!(story.entries.windows(2).all(|pair| begun(&pair[0]) <= begun(&pair[1])), "{name}");
        for entry in &story.entries {
            if let Happened::Move { from, to, .. } = entry.what {
                *ways.entry((from, to)).or_default() += 1;
            }
        }
    }
    let counted: BTreeMap<_, _> =
        run.outcome.driver.moves.iter().map(|(&way, &n)| (way, n)).collect();
    assert_eq!(ways, counted, "{name}");
    let faults = stories.iter().flat_map(|(_, story)| &story.entries);
    let faults = faults.filter(|entry| matches!(entry.what, Happened::Fault { .. })).count() as u64;
    assert_eq!(faults, run.outcome.total.faults, "{name}");
    if run.outcome.placement == "on-touch" {
        let moves: u64 = stories.iter().map(|(_, story)| story.moves).sum();
        assert_eq!(moves, run.outcome.driver.migrations, "{name}");
    }

    // Those that move most are those that move most in the histories of all.
    let mut most: Vec<(u64, PageNo)> =
        stories.iter().map(|(page, story)| (story.moves, *page)).collect();
    most.sort_by_key(|&(moves, page)| (std::cmp::Reverse(moves), page));
    let found: Vec<u64> = run.most_moved.stories().iter().map(|(_, story)| story.moves).collect();
    assert_eq!(found, most[..8].iter().map(|it| it.0).collect::<Vec<_>>(), "{name}");
}

/// On every track begins and ends match, and a slice lies in the one around it.
fn slices_nest(trace: &[Value], name: &str) {
    let ns = |value: &Value| (value.as_f64().unwrap() * 1_000.0).round() as u64;
    let mut tracks: BTreeMap<(u64, u64), Vec<&Value>> = BTreeMap::new();
    for event in trace.iter().filter(|event| ["B", "E", "X"].contains(&text(event, "ph"))) {
        let track = (number(event, "pid"), number(event, "tid"));
        tracks.entry(track).or_default().push(event);
    }
    assert!(tracks.len() > 4, "{name}: {} tracks", tracks.len());
    for events in tracks.into_values() {
        let (mut depth, mut filled, mut begun) = (0, 0, 0);
        for event in events {
            let at = ns(&event["ts"]);
            assert!(at >= filled, "{name}: {event} begins before {filled}");
            match text(event, "ph") {
                "B" => (depth, begun) = (depth + 1, at),
                "E" => depth -= 1,
                _ => assert!(depth == 0 || at >= begun, "{name}: {event}"),
            }
            assert!((0..=1).contains(&depth), "{name}: {event}");
            filled = at + event.get("dur").map_or(0, ns);
        }
        assert_eq!(depth, 0, "{name}");
    }
}

fn faults_are_those_that_were_replayed(run: &Watched, name: &str) {
    let begun = |event: &&Value| text(event, "ph") == "b" && event["cat"] == "fault";
    let faults: Vec<&Value> = run.trace.iter().filter(begun).collect();
    assert!(faults.len() as u64 <= run.outcome.total.faults, "{name}");
    assert!(faults.len() as u64 * 10 >= run.outcome.total.faults * 9, "{name}: {}", faults.len());
    let ids: std::collections::BTreeSet<u64> = faults.iter().map(|it| number(it, "id")).collect();
    assert_eq!(ids.len(), faults.len(), "{name}");
}

fn text<'a>(event: &'a Value, key: &str) -> &'a str {
    event[key].as_str().unwrap()
}

fn number(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap()
}
