//! Groups of bars, with the paper's values as diamonds on them.

use plotters::prelude::DrawingBackend;

use super::canvas::{Align, Canvas, Drawn, INK, colour};
use super::frame::{Frame, Key, SMALL_SIZE, Sign, TEXT_SIZE};
use super::{Figure, Series};

/// Share of a group's width that is left free.
const GAP: f64 = 0.22;
/// Bars at least this wide have their value written above them.
const LABELLED_WIDTH: f64 = 27.0;
/// What a letter below the axis takes, about, and a line of them.
const LETTER: (f64, f64) = (6.6, 15.0);

pub(super) fn draw<B: DrawingBackend>(
    canvas: &Canvas<B>,
    figure: &Figure,
    groups: &[String],
    series: &[Series],
    baseline: Option<f64>,
) -> Drawn {
    let values = series.iter().flat_map(|series| series.values.iter().chain(&series.paper));
    let (least, most) = values.flatten().copied().chain(baseline).fold((0.0, 0.0), ends);
    let width = f64::from(super::WIDTH) * 0.92 / groups.len().max(1) as f64;
    let names: Vec<_> = groups.iter().map(|name| lines_of(name, width)).collect();
    let broken = names.iter().any(|(_, second)| second.is_some());
    let below = 26.0 + if broken { LETTER.1 } else { 0.0 };
    let frame = Frame::draw(canvas, figure, &keys(series), ((0.0, 1.0), (least, most)), below)?;
    let width = (frame.right - frame.left) / groups.len().max(1) as f64;
    let bar = width * (1.0 - GAP) / series.len().max(1) as f64;
    for (group, (first, second)) in names.into_iter().enumerate() {
        let left = frame.left + width * group as f64;
        for (line, text) in [Some(first), second].into_iter().flatten().enumerate() {
            let y = frame.bottom + 9.0 + LETTER.1 * line as f64;
            canvas.text((left + width / 2.0, y), text, TEXT_SIZE, Align::Below)?;
        }
        for (index, series) in series.iter().enumerate() {
            let left = left + width * GAP / 2.0 + bar * index as f64;
            one(canvas, &frame, series, group, (left, bar, index))?;
        }
    }
    if let Some(value) = baseline {
        let at = frame.y(value);
        canvas.line(&[(frame.left, at), (frame.right, at)], INK, 1.0)?;
    }
    frame.draw_edges(canvas)
}

/// A name in one line, or in two, broken at the space nearest to its middle, if it is wider than `width`.
fn lines_of(name: &str, width: f64) -> (&str, Option<&str>) {
    let middle = name.len() / 2;
    let spaces = name.match_indices(' ').map(|(at, _)| at);
    match spaces.min_by_key(|at| at.abs_diff(middle)) {
        Some(at) if name.len() as f64 * LETTER.0 > width => (&name[..at], Some(&name[at + 1..])),
        _ => (name, None),
    }
}

fn one<B: DrawingBackend>(
    canvas: &Canvas<B>,
    frame: &Frame,
    series: &Series,
    group: usize,
    (left, width, index): (f64, f64, usize),
) -> Drawn {
    let middle = left + width / 2.0;
    let value = series.values.get(group).copied().flatten();
    let paper = series.paper.get(group).copied().flatten();
    if let Some(value) = value {
        let inset = (width * 0.06).min(1.5);
        let (a, b) = ((left + inset, frame.y(value)), (left + width - inset, frame.y(0.0)));
        canvas.rectangle(a, b, colour(index))?;
        if width >= LABELLED_WIDTH {
            // Above the paper's mark where that would be in the way.
            let near = |paper: f64| (frame.y(paper) - frame.y(value) + 10.0).abs() < 14.0;
            let top = match paper {
                Some(paper) if near(paper) => frame.y(paper).min(frame.y(value)) - 16.0,
                _ => frame.y(value) - 9.0,
            };
            canvas.text((middle, top), &format!("{value:.2}"), SMALL_SIZE, Align::Centre)?;
        }
    }
    paper.map_or(Ok(()), |paper| canvas.diamond((middle, frame.y(paper)), INK))
}

fn keys(series: &[Series]) -> Vec<Key> {
    let bar = |(index, series): (usize, &Series)| Key {
        label: series.label.clone(),
        colour: colour(index),
        sign: Sign::Box,
    };
    let mut keys: Vec<Key> = series.iter().enumerate().map(bar).collect();
    if series.iter().any(|series| series.paper.iter().any(Option::is_some)) {
        keys.push(Key { label: "paper".to_owned(), colour: INK, sign: Sign::Diamond });
    }
    keys
}

pub(super) fn ends((least, most): (f64, f64), value: f64) -> (f64, f64) {
    (least.min(value), most.max(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_wide_is_broken_near_its_middle() {
        assert_eq!(lines_of("matrix product", 200.0), ("matrix product", None));
        assert_eq!(lines_of("join beside stream", 90.0), ("join beside", Some("stream")));
        assert_eq!(lines_of("k-means, then BFS", 90.0), ("k-means,", Some("then BFS")));
        assert_eq!(lines_of("unbreakable-as-it-is", 20.0), ("unbreakable-as-it-is", None));
    }
}
