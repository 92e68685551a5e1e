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

/// A group of bars for each program, a bar for each scheme. Bars begin at 0, which no logarithmic axis has.
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
    let axis = |label: &str| Axis { label: label.to_owned(), ..Axis::default() };
    Figure {
        name: name.to_owned(),
        title: title.to_owned(),
        note: None,
        x: axis("program"),
        y: axis(y),
        drawing: Drawing::Bars {
            groups: programs.iter().map(|&(program, _)| program.to_owned()).collect(),
            series: (0..schemes).map(series).collect(),
            baseline: Some(1.0),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::counts::Counts;

    fn standing(scheme: &'static str, seconds: f64, bytes: f64) -> Standing {
        let counts = Counts::default();
        let (time, share) = (seconds / 0.5, bytes / 1024.0);
        Standing { scheme, seconds, time, work: seconds, moved: bytes, bytes, share, counts }
    }

    #[test]
    fn every_scheme_has_a_bar_in_every_program_and_two_rows() {
        let standings = || vec![standing("one", 0.5, 8192.0), standing("other", 1.0, 1024.0)];
        let report = report(&[("stream", standings()), ("join beside stream", standings())]);
        assert_eq!(report.rows.len(), 2 * 2 * 2);
        assert_eq!(report.rows[0].what, "stream, one, time");
        for (figure, wanted) in report.figures.iter().zip([[1.0, 2.0], [8.0, 1.0]]) {
            let Drawing::Bars { groups, series, .. } = &figure.drawing else { panic!("bars") };
            assert_eq!((groups.len(), series.len()), (2, 2));
            for (series, value) in series.iter().zip(wanted) {
                assert_eq!(series.values, [Some(value); 2], "{}", figure.name);
            }
            assert_eq!(figure.check(), Ok(()), "{}", figure.name);
        }
    }
}
