//! The paper's bars.

use super::claims::FAULTS;
use super::measured::{Measured, mean};
use super::plan::{Experiment, Measure, Plan};
use super::{Scale, handling};
use crate::reproduce::{Axis, Drawing, Figure, Series};

/// The figure of an experiment, if any of its cells gave something to draw.
pub(super) fn of(
    plan: &Plan,
    experiment: &Experiment,
    scale: Scale,
    measured: &Measured,
) -> Option<Figure> {
    match experiment.measure {
        Measure::Performance | Measure::Faults => bars(plan, experiment, scale, measured),
        Measure::Handling => handling::latencies(plan, experiment, scale, measured),
        Measure::Schemes => handling::schemes(plan, experiment, scale, measured),
    }
}

fn bars(plan: &Plan, experiment: &Experiment, scale: Scale, measured: &Measured) -> Option<Figure> {
    let workloads = plan.workloads(experiment);
    let mut series = Vec::new();
    for (column, label) in experiment.columns.iter().zip(&experiment.labels) {
        let value = |workload: &String| {
            let cell = plan.cell(experiment, workload, column, scale);
            let over = plan.cell(experiment, workload, &experiment.over, scale);
            match experiment.measure {
                Measure::Faults => measured.ratio(FAULTS, &cell, &over),
                _ => measured.speedup(&cell, &over),
            }
        };
        let mut values: Vec<Option<f64>> = workloads.iter().map(value).collect();
        let mut paper: Vec<Option<f64>> =
            workloads.iter().map(|workload| printed(experiment, column, Some(workload))).collect();
        // A mean of two programs says nothing.
        if workloads.len() > 2 {
            values.push(mean(&values.iter().flatten().copied().collect::<Vec<_>>()));
            paper.push(printed(experiment, column, None));
        }
        series.push(Series { label: label.clone(), values, paper });
    }
    if series.iter().all(|series| series.values.iter().all(Option::is_none)) {
        return None;
    }
    let mut groups: Vec<String> = workloads.iter().map(|name| name.to_uppercase()).collect();
    if workloads.len() > 2 {
        groups.push("mean".to_owned());
    }
    let label = match experiment.measure {
        Measure::Faults => "page faults",
        _ => "performance",
    };
    Some(Figure {
        name: experiment.name.clone(),
        title: experiment.title.clone(),
        note: None,
        x: Axis::default(),
        y: Axis { label: label.to_owned(), ..Axis::default() },
        drawing: Drawing::Bars { groups, series, baseline: Some(1.0) },
    })
}

/// What the text prints for a bar, as a height: gains over the column that the figure is relative
/// to.
fn printed(experiment: &Experiment, column: &str, workload: Option<&String>) -> Option<f64> {
    let claim = experiment.claims.iter().find(|claim| {
        let scheme = match experiment.measure {
            Measure::Faults => &claim.fewer,
            _ => &claim.gain,
        };
        let over = claim.over.as_ref().is_none_or(|over| *over == experiment.over);
        scheme.as_deref() == Some(column) && over && claim.workload.as_ref() == workload
    })?;
    let percent = claim.paper?;
    Some(match experiment.measure {
        Measure::Faults => 1.0 - percent / 100.0,
        _ => 1.0 + percent / 100.0,
    })
}
