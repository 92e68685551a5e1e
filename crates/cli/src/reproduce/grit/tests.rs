use std::collections::BTreeSet;

use super::plan::Experiment;
use super::*;
use crate::sweep::Finished;

fn plan() -> Plan {
    Plan::bundled()
}

#[test]
fn every_claim_is_about_columns_and_workloads_of_its_experiment() {
    let plan = plan();
    let mut ids = BTreeSet::new();
    for experiment in &plan.experiments {
        assert_eq!(experiment.columns.len(), experiment.labels.len(), "{}", experiment.name);
        assert!(experiment.columns.contains(&experiment.over), "{}", experiment.name);
        for claim in &experiment.claims {
            assert!(ids.insert(&claim.id), "{} comes twice", claim.id);
            let kinds = [&claim.gain, &claim.fewer, &claim.evicted, &claim.again, &claim.fastest];
            assert_eq!(kinds.iter().filter(|kind| kind.is_some()).count(), 1, "{}", claim.id);
            for scheme in claim.schemes() {
                assert!(experiment.columns.contains(scheme), "{}: {scheme}", claim.id);
            }
            assert_eq!(claim.fastest.is_some(), !claim.among.is_empty(), "{}", claim.id);
            assert!(!claim.source.is_empty(), "{}", claim.id);
            let no_number = claim.fastest.is_some() || claim.source.starts_with("not in the paper");
            assert_eq!(no_number, claim.paper.is_none(), "{}", claim.id);
            let workloads = plan.workloads(experiment);
            assert!(claim.workload.iter().all(|name| workloads.contains(name)), "{}", claim.id);
        }
    }
}

#[test]
fn a_reading_is_its_experiment_with_other_values_or_other_programs() {
    let plan = plan();
    let find = |name: &str| plan.experiments.iter().find(|it| it.name == name).unwrap();
    let (paper, same) = (find("paper"), find("paper-as-is"));
    let scale = Scale::Divided(4);
    let smaller = plan.cell(paper, "fir", "grit", Scale::Divided(16));
    assert_eq!(plan.cell(same, "fir", "grit", scale), smaller);
    let dispatch = plan.cell(find("paper-dispatch"), "fir", "grit", scale);
    assert_eq!(dispatch, smaller.with("gpu.dispatch", "partition"));
    let untiled = plan.cell(find("paper-untiled"), "gemm", "grit", scale);
    let tiled = plan.cell(same, "gemm", "grit", scale).machine().unwrap();
    assert_eq!(untiled.machine().unwrap(), tiled);
    assert!(untiled.to_string().contains("gemm-untiled"), "{untiled}");
    let ids = |experiment: &Experiment| experiment.claims.iter().map(|it| it.id.clone()).collect();
    let (of_paper, of_reading): (Vec<_>, Vec<_>) = (ids(paper), ids(same));
    assert!(of_paper.contains(&"paper.best.bfs".to_owned()));
    assert!(of_reading.contains(&"paper-as-is.best.bfs".to_owned()));
    assert!(!of_reading.iter().any(|id| id.contains("first-touch")), "no column of it");
    let readings: Vec<_> =
        plan.experiments.iter().filter(|it| it.name.starts_with("paper-")).collect();
    assert!(readings.len() > 10);
    for reading in readings {
        let changes = reading.machine.len() + usize::from(!reading.instead.is_empty());
        assert_eq!(changes, usize::from(reading.name != "paper-as-is"), "one thing at a time");
    }
}

#[test]
fn every_machine_can_be() {
    for scale in [Scale::Full, Scale::Divided(4)] {
        for cell in Reproduction::new(scale).cells() {
            cell.machine().unwrap();
        }
    }
}

#[test]
fn every_statistic_of_the_figures_of_parts_is_counted() {
    let counted = crate::sweep::test_outcome().statistics();
    let counted: BTreeSet<String> = counted.into_iter().map(|counter| counter.name).collect();
    for (_, name) in handling::LATENCIES.iter().chain(&handling::SCHEMES) {
        assert!(counted.contains(*name), "{name}");
    }
    assert!(counted.contains(claims::FAULTS) && counted.contains("driver.evictions"));
    assert!(counted.contains(claims::PAGES) && counted.contains(claims::COPIED_AGAIN));
}

#[test]
fn every_latency_of_the_sensitivity_is_a_number_of_the_preset() {
    let sensitivity = plan().sensitivity.unwrap();
    for key in sensitivity.groups.iter().flat_map(|group| &group.keys) {
        assert!(plan::preset_value(key).is_some_and(|value| value > 0), "{key}");
    }
}

/// What comes out on a small machine like the paper's, but for the machine itself, with a value of it changed.
fn outcome_with(workload: &str, scheme: &str, key: &str, value: &str) -> farside_sim::Outcome {
    let small = [("gpu.compute_units", "4"), ("gpu.capacity_percent", "70"), (key, value)];
    let machine = farside_sim::Spec::preset("grit-paper").unwrap().with_overrides(&small).unwrap();
    // There is no smaller C2D.
    let bytes = if workload.starts_with("c2d") { 1_441_792 } else { 1 << 18 };
    let workload = farside_workloads::catalog::by_name(workload, Some(bytes)).unwrap();
    let simulation = farside_sim::Simulation::new(&machine, &workload, scheme).unwrap();
    let outcome = simulation.run(|_| ()).unwrap();
    farside_sim::Outcome { spec: farside_sim::Spec::default(), ..outcome }
}

#[test]
fn what_a_cell_leaves_out_makes_no_difference_to_it() {
    let values = |key: &str| match key {
        "gpu.constants" => ["shared", "each"],
        "host.table_ns" => ["100", "50000"],
        "flush.counter" => ["users", "all"],
        "flush.demote" => ["pipeline", "page"],
        "flush.far" => ["open", "closed"],
        "link.nvlink_ns" => ["150", "5000"],
        _ => panic!("{key} has no values here"),
    };
    let differs = |workload: &str, scheme: &str, key: &str| {
        let [one, other] = values(key).map(|value| outcome_with(workload, scheme, key, value));
        one != other
    };
    for plan::Indifference { key, schemes, workloads } in plan().indifferences {
        for scheme in &schemes {
            for workload in ["bfs", "st", "sc"] {
                assert!(!differs(workload, scheme, &key), "{key}, {workload}, {scheme}");
            }
        }
        for workload in &workloads {
            assert!(!differs(workload, "grit", &key), "{key}, {workload}");
        }
    }
    // And where they are not left out they do.
    assert!(differs("sc", "grit", "gpu.constants"));
    for key in ["host.table_ns", "flush.demote", "flush.far", "link.nvlink_ns"] {
        assert!(differs("bfs", "grit", key), "{key}");
    }
    assert!(differs("sc", "access-counter:map-host=on", "flush.counter"));
}

#[test]
fn a_cell_without_what_makes_no_difference_to_it_is_one_with_its_equals() {
    let plan = plan();
    let find = |name: &str| plan.experiments.iter().find(|it| it.name == name).unwrap();
    let (constants, main) = (find("constants"), find("figure-17"));
    let cell = |experiment, workload| plan.cell(experiment, workload, "grit", Scale::Full);
    assert_eq!(cell(constants, "bs"), cell(main, "bs"));
    assert_ne!(cell(constants, "fir"), cell(main, "fir"));
    let groups = &plan.sensitivity.as_ref().unwrap().groups;
    let table = groups.iter().find(|group| group.label == "PA-Table").unwrap();
    let tables = |scheme| plan.changed("st", scheme, Some((table, 4.0)), Scale::Full);
    assert!(!tables("on-touch").set.contains_key("host.table_ns"));
    assert!(tables("grit").set.contains_key("host.table_ns"));
    assert!(tables("grit+acud").set.contains_key("host.table_ns"), "another scheme");
}

/// Outcomes whose time is what `time` says, and as many faults.
fn outcomes(cells: &[Cell], time: impl Fn(&Cell) -> u64) -> Vec<Finished> {
    let finished = |cell: &Cell| {
        let mut outcome = crate::sweep::test_outcome();
        outcome.time = farside_types::Span(time(cell));
        outcome.total.faults = time(cell) / 10;
        Finished { cell: cell.clone(), outcome: Ok(outcome), cached: false }
    };
    cells.iter().map(finished).collect()
}

fn reproduction(name: &str) -> Reproduction {
    Reproduction::new(Scale::Divided(4)).only(&[name]).unwrap()
}

fn time(cell: &Cell) -> u64 {
    match cell.scheme.as_str() {
        "grit" => 1_000,
        "on-touch" => 1_600,
        "access-counter" => 1_490,
        _ => 1_290,
    }
}

#[test]
fn claims_are_computed_as_the_paper_says() {
    let whole = Reproduction::new(Scale::Full).only(&["figure-17", "figure-18"]).unwrap();
    let done = outcomes(&whole.cells(), time);
    let claims = whole.claims(&done, &[]);
    let ours = |id: &str| claims.iter().find(|claim| claim.id == id).unwrap().row.ours;
    let near =
        |id: &str, value: f64| assert!((ours(id) - value).abs() < 1e-6, "{id}: {}", ours(id));
    near("grit.on-touch", 60.0);
    near("grit.access-counter", 49.0);
    near("grit.duplication", 29.0);
    near("faults.on-touch", 37.5);
}

#[test]
fn a_mean_says_how_far_it_goes_without_one_of_its_workloads() {
    let whole = Reproduction::new(Scale::Full).only(&["figure-17"]).unwrap();
    let slower = |cell: &Cell| match cell.to_string().contains("bfs") {
        true if cell.scheme == "on-touch" => 9_600,
        _ => time(cell),
    };
    let claims = whole.claims(&outcomes(&whole.cells(), slower), &[]);
    let source = &claims.iter().find(|claim| claim.id == "grit.on-touch").unwrap().row.source;
    // Seven of 1.6 and one of 9.6. Without another than BFS it is (6 * 1.6 + 9.6) / 7; ST is the last of these seven.
    assert!(source.contains("; 60.0 % without BFS to 174.3 % without ST"), "{source}");
}

#[test]
fn a_cell_that_failed_is_left_out_and_named() {
    let whole = reproduction("figure-17");
    let mut done = outcomes(&whole.cells(), time);
    let failed = done.iter().position(|done| done.cell.scheme == "grit").unwrap();
    done[failed].outcome = Err("no such thing".to_owned());
    let claims = whole.claims(&done, &[]);
    assert_eq!(claims[0].workloads, 7);
    let report = whole.report(&done, &[]);
    assert!(report.to_markdown().contains("no such thing"));
    assert!(whole.report(&[], &[]).rows.is_empty());
}

#[test]
fn the_figure_has_the_papers_marks() {
    let whole = reproduction("figure-17");
    let report = whole.report(&outcomes(&whole.cells(), time), &[]);
    let crate::reproduce::Drawing::Bars { groups, series, .. } = &report.figures[0].drawing else {
        panic!("bars");
    };
    assert_eq!(groups.last().unwrap(), "mean");
    let grit = series.iter().find(|series| series.label == "GRIT").unwrap();
    assert_eq!(grit.paper.last().unwrap(), &Some(1.6));
    assert!(grit.paper[..8].iter().all(Option::is_none), "those are over duplication");
}

#[test]
fn an_experiment_that_there_is_not_is_answered_with_those_there_are() {
    let error = Reproduction::new(Scale::Full).only(&["figure-2"]).unwrap_err();
    assert!(error.contains("figure-2") && error.contains("figure-17"), "{error}");
}

#[test]
fn pages_are_counted_and_drawn() {
    let whole = Reproduction::new(Scale::Divided(64)).only(&["sharing"]).unwrap();
    let sharings = whole.workloads(&["fir", "st"]).sharings(2);
    let names: Vec<&str> = sharings.iter().map(|sharing| sharing.workload.as_str()).collect();
    assert_eq!(names, ["fir", "st"]);
    let whole = Reproduction::new(Scale::Divided(64)).only(&["sharing"]).unwrap();
    let claims = whole.claims(&[], &sharings);
    let private = claims.iter().find(|claim| claim.id == "pages.private.fir").unwrap();
    assert!(private.row.ours > 90.0, "{}", private.row.ours);
    let report = whole.report(&[], &sharings);
    let names: Vec<&str> = report.figures.iter().map(|figure| figure.name.as_str()).collect();
    assert_eq!(names, ["figure-4", "figure-5b", "figure-8", "figure-9", "figure-10"]);
    report.figures.iter().for_each(|figure| assert_eq!(figure.check(), Ok(()), "{}", figure.name));
}

#[test]
fn a_scheme_of_ones_own_is_in_every_table_and_figure_that_compares_schemes() {
    let own = ["./libmine.so:after=2".to_owned(), "grit".to_owned()];
    let names = ["figure-17", "figure-18", "figure-19"];
    let plain = Reproduction::new(Scale::Divided(64)).only(&names).unwrap().workloads(&["fir"]);
    let whole = plain.clone().beside(&own);
    let finished =
        |cell: Cell| Finished { cell, outcome: Ok(crate::sweep::test_outcome()), cached: true };
    let done: Vec<Finished> = whole.cells().into_iter().map(finished).collect();
    let runs = |name: &str| done.iter().filter(|done| done.cell.scheme == name).count();
    assert_eq!((runs(&own[0]), runs("grit")), (1, 1), "one that is there already is not run twice");
    let (report, before) = (whole.report(&done, &[]), plain.report(&done, &[]));
    assert_eq!(report.figures.len(), before.figures.len());
    for figure in &report.figures {
        let text = serde_json::to_string(figure).unwrap();
        assert_eq!(text.matches(&own[0]).count(), 1, "{text}");
    }
    let rows = report.rows.iter().filter(|row| row.what.contains("libmine"));
    let sources: Vec<_> = rows.filter(|row| row.paper.is_none()).map(|row| &row.source).collect();
    assert!(sources.len() >= 2, "performance and faults: {sources:?}");
    assert_eq!(report.rows.len(), before.rows.len() + sources.len());
    assert!(sources.iter().all(|source| source.contains("not in the paper")), "{sources:?}");
}
