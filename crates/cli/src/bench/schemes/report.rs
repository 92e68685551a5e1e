//! All schemes under all programs as figures and rows.

use farside_cli::reproduce::{Axis, Drawing, Figure, Report, Row, Series};

use super::Standing;

/// A program and how each scheme did under it. All have the same schemes in the same order.
pub(super) type Standings = (&'static str, Vec<Standing>);

pub(super) fn report(programs: &[Standings]) -> Report {
    let rows = programs.iter().flat_map(|(program, standings)| rows(program, standings)).collect();
    let time = figure(
        "schemes-time",
        "Time of each program under each scheme",
        "times the fastest scheme's",
        programs,
        |standing| standing.time,
    );
    let bytes = figure(
        "schemes-bytes",
        "Bytes between memories under each scheme",
        "times the least",
        programs,
        |standing| standing.share,
    );
    Report {
        title: "Placement schemes, live on two software cards".to_owned(),
        rows,
        figures: vec![time, bytes],
        notes: notes(),
    }
}

fn notes() -> Vec<String> {
    [
        "The schemes take turns; times and bytes are medians of their runs, and every result was checked.",
        "Bytes are pages that moved or were copied, and what cards reached in other memories: a line of 64 bytes \
         for each word, a page for each page of a `with`.",
        "Cards are threads of one program. A move costs them what the software costs, and no link's time.",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn rows(program: &str, standings: &[Standing]) -> Vec<Row> {
    let row = |what: String, unit: &str, ours: f64| Row {
        what,
        unit: unit.to_owned(),
        paper: None,
        ours,
        source: "live".to_owned(),
    };
    let of = |standing: &Standing| {
        let what = |what: &str| format!("{program}, {}, {what}", standing.scheme);
        [
            row(what("time"), "ms", standing.seconds * 1e3),
            row(what("bytes between memories"), "MiB", standing.bytes / f64::from(1 << 20)),
        ]
    };
    standings.iter().flat_map(of).collect()
}

/// A group of bars for each program, a bar for each scheme. Some are many times worse than others.
fn figure(
    name: &str,
    title: &str,
    y: &str,
    programs: &[Standings],
    value: fn(&Standing) -> f64,
) -> Figure {
    let schemes = programs.first().map_or(0, |(_, standings)| standings.len());
    let series = |scheme: usize| Series {
        label: programs[0].1[scheme].scheme.to_owned(),
        values: programs.iter().map(|(_, all)| all.get(scheme).map(value)).collect(),
        paper: Vec::new(),
    };
    let axis = |label: &str, log| Axis { label: label.to_owned(), log, ..Axis::default() };
    Figure {
        name: name.to_owned(),
        title: title.to_owned(),
        note: None,
        x: axis("program", false),
        y: axis(y, true),
        drawing: Drawing::Bars {
            groups: programs.iter().map(|&(program, _)| program.to_owned()).collect(),
            series: (0..schemes).map(series).collect(),
            baseline: Some(1.0),
        },
    }
}
