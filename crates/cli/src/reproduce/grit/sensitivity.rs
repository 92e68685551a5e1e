//! What the latencies that the paper does not give would change: GRIT over each uniform scheme,
//! with a group of values at a quarter to four times what the preset has.

use super::Scale;
use super::measured::{Measured, mean};
use super::plan::{Group, Plan};
use crate::reproduce::{Axis, Drawing, Figure, Line};

/// A figure per group.
pub(super) fn figures(plan: &Plan, scale: Scale, measured: &Measured) -> Vec<Figure> {
    let Some(sensitivity) = &plan.sensitivity else { return Vec::new() };
    let figure = |group: &Group| {
        let lines: Vec<Line> = sensitivity
            .columns
            .iter()
            .filter(|column| *column != SUBJECT)
            .map(|over| line(plan, group, over, scale, measured))
            .filter(|line| !line.points.is_empty())
            .collect();
        (!lines.is_empty()).then(|| drawn(group, lines))
    };
    sensitivity.groups.iter().filter_map(figure).collect()
}

/// Whose gains are drawn.
const SUBJECT: &str = "grit";

fn line(plan: &Plan, group: &Group, over: &str, scale: Scale, measured: &Measured) -> Line {
    let factors = plan.sensitivity.as_ref().map_or(&[][..], |s| &s.factors);
    let mut points = Vec::new();
    for factor in factors.iter().copied().chain([1.0]) {
        let change = (factor != 1.0).then_some((group, factor));
        let speedup = |workload: &String| {
            let cell = |scheme| plan.changed(workload, scheme, change, scale);
            measured.speedup(&cell(SUBJECT), &cell(over))
        };
        let speedups: Vec<f64> = plan.megabytes.keys().filter_map(speedup).collect();
        points.extend(mean(&speedups).map(|mean| (factor, mean)));
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Line { label: format!("GRIT over {over}"), points, paper: false }
}

fn drawn(group: &Group, lines: Vec<Line>) -> Figure {
    let ticks = [(0.25, "1/4"), (0.5, "1/2"), (1.0, "1"), (2.0, "2"), (4.0, "4")];
    let name: String =
        group.label.chars().filter(|c| c.is_ascii_alphanumeric() || *c == ' ').collect();
    Figure {
        name: format!("sensitivity-{}", name.replace(' ', "-")),
        title: format!("Sensitivity: {} ({})", group.label, group.keys.join(", ")),
        note: None,
        x: Axis {
            label: "times the preset's values".to_owned(),
            log: true,
            from: Some(0.25),
            to: Some(4.0),
            ticks: ticks.map(|(value, text)| (value, text.to_owned())).into(),
        },
        y: Axis { label: "performance".to_owned(), ..Axis::default() },
        drawing: Drawing::Lines(lines),
    }
}
