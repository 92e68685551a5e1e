//! Figures: what they show. `report.json` has them, and the Python package draws them (`farside.plot`).

use serde::Serialize;

/// A figure: a drawing with its words.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The stem of its files' names.
    pub name: String,
    /// Its title.
    pub title: String,
    /// What the report says below it.
    pub note: Option<String>,
    /// The horizontal axis. Bars take its label alone.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn.
    pub drawing: Drawing,
}

/// An axis.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Axis {
    /// What it measures, with its unit.
    pub label: String,
    /// Logarithmic: every value must be greater than 0.
    pub log: bool,
    /// Its ends; where there is none, what the data need.
    pub from: Option<f64>,
    /// See `from`.
    pub to: Option<f64>,
    /// Values that are written at it; none: round numbers.
    pub ticks: Vec<(f64, String)>,
}

/// What a figure shows.
#[derive(Clone, Debug, Serialize)]
pub enum Drawing {
    /// Groups of bars, one bar per series.
    Bars {
        /// Below the axis.
        groups: Vec<String>,
        /// One colour each.
        series: Vec<Series>,
        /// A line across, as at 1 for what is relative to something.
        baseline: Option<f64>,
    },
    /// Groups of bars that are made of parts.
    Stacked {
        /// Below the axis.
        groups: Vec<String>,
        /// What the parts are; one colour each, from below.
        parts: Vec<String>,
        /// The bars, from left to right.
        bars: Vec<Bar>,
    },
    /// Lines and points.
    Lines(Vec<Line>),
    /// A field of cells, each of one class.
    Map(Cells),
}

/// Bars of one colour.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// What they are.
    pub label: String,
    /// One per group; `None` leaves a gap.
    pub values: Vec<Option<f64>>,
    /// What the paper prints: a mark beside the bar. May be shorter than `values`.
    pub paper: Vec<Option<f64>>,
}

/// A bar of parts.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    /// Which group it stands in.
    pub group: usize,
    /// Written below it; empty: nothing.
    pub label: String,
    /// The heights of its parts.
    pub parts: Vec<f64>,
}

/// A line, or the points of a paper.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// What it is.
    pub label: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
    /// The paper's: marks without a line, in the colour of the line before it.
    pub paper: bool,
}

/// The cells of a map, row by row from below.
#[derive(Clone, Debug, Serialize)]
pub struct Cells {
    /// How many side by side.
    pub columns: usize,
    /// The classes by number; one colour each. The first is drawn nearly white.
    pub classes: Vec<String>,
    /// The class of each.
    pub cells: Vec<u8>,
}

impl Figure {
    /// Whether it can be drawn: every value is a number, and has its place.
    ///
    /// # Errors
    /// What cannot be drawn, and why.
    pub fn check(&self) -> Result<(), String> {
        match &self.drawing {
            Drawing::Bars { groups, series, .. } => {
                series.iter().try_for_each(|series| self.check_series(series, groups.len()))
            }
            Drawing::Stacked { groups, parts, bars } => {
                bars.iter().try_for_each(|bar| self.check_bar(bar, groups.len(), parts.len()))
            }
            Drawing::Lines(lines) => lines.iter().try_for_each(|line| self.check_line(line)),
            Drawing::Map(cells) => {
                let unknown =
                    cells.cells.iter().find(|&&cell| usize::from(cell) >= cells.classes.len());
                unknown.map_or(Ok(()), |cell| {
                    Err(format!("a cell is of class {cell}, which there is not"))
                })
            }
        }
    }

    fn check_series(&self, series: &Series, groups: usize) -> Result<(), String> {
        if series.values.len() > groups || series.paper.len() > groups {
            return Err(format!("{} has more values than there are groups", series.label));
        }
        let values = series.values.iter().chain(&series.paper).flatten();
        values.copied().try_for_each(|value| check_value(&self.y, value, &series.label))
    }

    fn check_bar(&self, bar: &Bar, groups: usize, parts: usize) -> Result<(), String> {
        if bar.group >= groups || bar.parts.len() > parts {
            return Err(format!(
                "bar {:?} is in group {} and has {} parts",
                bar.label,
                bar.group,
                bar.parts.len()
            ));
        }
        bar.parts.iter().try_for_each(|&part| check_value(&Axis::default(), part, &bar.label))
    }

    fn check_line(&self, line: &Line) -> Result<(), String> {
        line.points.iter().try_for_each(|&(x, y)| {
            check_value(&self.x, x, &line.label)?;
            check_value(&self.y, y, &line.label)
        })
    }
}

fn check_value(axis: &Axis, value: f64, what: &str) -> Result<(), String> {
    if !value.is_finite() || axis.log && value <= 0.0 {
        let scale = if axis.log { "a logarithmic" } else { "an" };
        return Err(format!("{what}: {value} is not on {scale} axis"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(log: bool, drawing: Drawing) -> Figure {
        let (name, title) = ("figure-17".to_owned(), "performance".to_owned());
        let y = Axis { log, ..Axis::default() };
        Figure { name, title, note: None, x: Axis::default(), y, drawing }
    }

    fn bars(values: &[Option<f64>], paper: &[Option<f64>]) -> Drawing {
        let label = "GRIT".to_owned();
        let series = Series { label, values: values.to_vec(), paper: paper.to_vec() };
        let groups = vec!["BFS".to_owned(), "BS".to_owned()];
        Drawing::Bars { groups, series: vec![series], baseline: Some(1.0) }
    }

    fn line(point: (f64, f64)) -> Drawing {
        Drawing::Lines(vec![Line { label: "ours".to_owned(), points: vec![point], paper: false }])
    }

    fn stacked(group: usize, parts: &[f64]) -> Drawing {
        let bar = Bar { group, label: "OT".to_owned(), parts: parts.to_vec() };
        Drawing::Stacked {
            groups: vec!["BFS".into()],
            parts: vec!["local".into()],
            bars: vec![bar],
        }
    }

    fn map(cells: &[u8]) -> Drawing {
        let classes = vec!["none".to_owned(), "private".to_owned()];
        Drawing::Map(Cells { columns: 2, classes, cells: cells.to_vec() })
    }

    #[test]
    fn what_can_be_drawn_is_told_from_what_cannot() {
        let good = [
            figure(false, bars(&[Some(1.0), None], &[None, Some(0.0)])),
            figure(true, line((0.0, 1.0))),
            figure(false, stacked(0, &[0.5])),
            figure(false, map(&[0, 1, 1])),
        ];
        for figure in good {
            assert_eq!(figure.check(), Ok(()), "{figure:?}");
        }
        let bad = [
            figure(false, bars(&[Some(f64::NAN)], &[])),
            figure(false, bars(&[None; 3], &[])),
            figure(false, bars(&[None], &[None; 3])),
            figure(true, bars(&[None], &[Some(0.0)])),
            figure(true, line((1.0, 0.0))),
            figure(false, line((f64::INFINITY, 0.0))),
            figure(false, stacked(1, &[0.5])),
            figure(false, stacked(0, &[0.5, 0.5])),
            figure(false, stacked(0, &[f64::NAN])),
            figure(false, map(&[2])),
        ];
        for figure in bad {
            assert!(figure.check().is_err(), "{figure:?}");
        }
    }
}
