//! Groups of bars made of parts.

use plotters::prelude::DrawingBackend;

use super::canvas::{Align, Canvas, Drawn, FAINT, colour};
use super::frame::{Frame, Key, SMALL_SIZE, Sign, TEXT_SIZE};
use super::{Bar, Figure};

/// Share of a group's width that is left free.
const GAP: f64 = 0.16;

pub(super) fn draw<B: DrawingBackend>(
    canvas: &Canvas<B>,
    figure: &Figure,
    groups: &[String],
    parts: &[String],
    bars: &[Bar],
) -> Drawn {
    let most = bars.iter().map(|bar| bar.parts.iter().sum()).fold(0.0, f64::max);
    let labelled = bars.iter().any(|bar| !bar.label.is_empty());
    let below = if labelled { 44.0 } else { 26.0 };
    let frame = Frame::draw(canvas, figure, &keys(parts), ((0.0, 1.0), (0.0, most)), below)?;
    let width = (frame.right - frame.left) / groups.len().max(1) as f64;
    let fullest = (0..groups.len()).map(|group| of(bars, group).count()).max().unwrap_or(1);
    // Bars that stand alone, as over time, need no gap.
    let gap = if fullest > 1 || groups.len() <= 20 { GAP } else { 0.0 };
    for (group, name) in groups.iter().enumerate() {
        let left = frame.left + width * group as f64;
        let middle = left + width / 2.0;
        canvas.text((middle, canvas.height() - 40.0), name, TEXT_SIZE, Align::Centre)?;
        let bar_width = width * (1.0 - gap) / fullest.max(1) as f64;
        for (index, bar) in of(bars, group).enumerate() {
            let left = left + width * gap / 2.0 + bar_width * index as f64;
            one(canvas, &frame, bar, (left, bar_width))?;
        }
        if group > 0 && labelled {
            canvas.line(&[(left, frame.bottom), (left, frame.bottom + 40.0)], FAINT, 1.0)?;
        }
    }
    frame.draw_edges(canvas)
}

fn of(bars: &[Bar], group: usize) -> impl Iterator<Item = &Bar> {
    bars.iter().filter(move |bar| bar.group == group)
}

fn one<B: DrawingBackend>(
    canvas: &Canvas<B>,
    frame: &Frame,
    bar: &Bar,
    (left, width): (f64, f64),
) -> Drawn {
    let inset = if width > 12.0 { 1.5 } else { 0.0 };
    let mut below = 0.0;
    for (part, height) in bar.parts.iter().enumerate() {
        let (from, to) = (frame.y(below), frame.y(below + height));
        if from - to >= 0.25 {
            canvas.rectangle((left + inset, to), (left + width - inset, from), colour(part))?;
        }
        below += height;
    }
    if bar.label.is_empty() {
        return Ok(());
    }
    let at = (left + width / 2.0, frame.bottom + 8.0);
    canvas.text(at, &bar.label, SMALL_SIZE, Align::Below)
}

fn keys(parts: &[String]) -> Vec<Key> {
    let key = |(index, label): (usize, &String)| Key {
        label: label.clone(),
        colour: colour(index),
        sign: Sign::Box,
    };
    parts.iter().enumerate().map(key).collect()
}
