//! Bars of parts: where the time of page handling goes (Figure 3), and which scheme ruled the
//! accesses under GRIT (Figure 19).

use super::Scale;
use super::measured::Measured;
use super::plan::{Experiment, Plan};
use crate::reproduce::{Axis, Bar, Drawing, Figure};

/// The paper's six parts with their statistics.
pub(super) const LATENCIES: [(&str, &str); 6] = [
    ("local", "total.handling.local"),
    ("host", "total.handling.host"),
    ("page migration", "total.handling.migration"),
    ("remote access", "total.handling.remote"),
    ("page duplication", "total.handling.duplication"),
    ("write collapse", "total.handling.collapse"),
];

/// The schemes with their statistics: accesses that missed the L2 TLB, by the page's scheme.
pub(super) const SCHEMES: [(&str, &str); 3] = [
    ("on-touch", "total.scheme.on_touch"),
    ("access counter", "total.scheme.counter"),
    ("duplication", "total.scheme.duplication"),
];

pub(super) fn latencies(
    plan: &Plan,
    experiment: &Experiment,
    scale: Scale,
    measured: &Measured,
) -> Option<Figure> {
    let whole = |workload: &str| {
        let cell = plan.cell(experiment, workload, &experiment.over, scale);
        parts(measured, &cell, &LATENCIES).map(|parts| parts.iter().sum())
    };
    stacked(plan, experiment, scale, measured, &LATENCIES, whole, "latency")
}

pub(super) fn schemes(
    plan: &Plan,
    experiment: &Experiment,
    scale: Scale,
    measured: &Measured,
) -> Option<Figure> {
    let whole = |workload: &str| {
        let cell = plan.cell(experiment, workload, &experiment.over, scale);
        parts(measured, &cell, &SCHEMES).map(|parts| parts.iter().sum::<f64>() / 100.0)
    };
    stacked(plan, experiment, scale, measured, &SCHEMES, whole, "accesses, %")
}

/// Bars of parts, each divided by what is the whole for its workload. None if a cell does not
/// count them.
fn stacked(
    plan: &Plan,
    experiment: &Experiment,
    scale: Scale,
    measured: &Measured,
    named: &[(&str, &str)],
    whole: impl Fn(&str) -> Option<f64>,
    label: &str,
) -> Option<Figure> {
    let workloads = plan.workloads(experiment);
    let mut bars = Vec::new();
    for (group, workload) in workloads.iter().enumerate() {
        let Some(whole) = whole(workload).filter(|whole| *whole > 0.0) else { continue };
        for (column, label) in experiment.columns.iter().zip(&experiment.labels) {
            let cell = plan.cell(experiment, workload, column, scale);
            if let Some(parts) = parts(measured, &cell, named) {
                let parts = parts.into_iter().map(|part| part / whole).collect();
                bars.push(Bar { group, label: label.clone(), parts });
            }
        }
    }
    if bars.is_empty() {
        return None;
    }
    let groups = workloads.iter().map(|name| name.to_uppercase()).collect();
    let parts = named.iter().map(|(label, _)| (*label).to_owned()).collect();
    Some(Figure {
        name: experiment.name.clone(),
        title: experiment.title.clone(),
        note: None,
        x: Axis::default(),
        y: Axis { label: label.to_owned(), ..Axis::default() },
        drawing: Drawing::Stacked { groups, parts, bars },
    })
}

fn parts(
    measured: &Measured,
    cell: &crate::sweep::Cell,
    named: &[(&str, &str)],
) -> Option<Vec<f64>> {
    named.iter().map(|(_, name)| measured.value(cell, name)).collect()
}
