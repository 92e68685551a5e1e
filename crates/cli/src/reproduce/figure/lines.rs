//! Lines with points, and the paper's points beside them.

use plotters::prelude::DrawingBackend;

use super::bars::ends;
use super::canvas::{Canvas, Drawn, colour};
use super::frame::{Frame, Key, Sign};
use super::{Axis, Figure, Line};

pub(super) fn draw<B: DrawingBackend>(
    canvas: &Canvas<B>,
    figure: &Figure,
    lines: &[Line],
) -> Drawn {
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = points().map(|point| point.0).fold((f64::INFINITY, f64::NEG_INFINITY), ends);
    let y = points().map(|point| point.1).fold(start(&figure.y), ends);
    let colours = colours(lines);
    let keys: Vec<Key> =
        lines.iter().zip(&colours).map(|(line, index)| key(line, *index)).collect();
    let frame = Frame::draw(canvas, figure, &keys, (x, y), 26.0)?;
    frame.draw_x(canvas, &figure.x)?;
    frame.draw_edges(canvas)?;
    for (line, index) in lines.iter().zip(&colours) {
        let points: Vec<_> = line.points.iter().map(|(x, y)| (frame.x(*x), frame.y(*y))).collect();
        if line.paper {
            points.iter().try_for_each(|point| canvas.diamond(*point, colour(*index)))?;
        } else {
            canvas.line(&points, colour(*index), 2.0)?;
            points.iter().try_for_each(|point| canvas.dot(*point, 3.5, colour(*index)))?;
        }
    }
    Ok(())
}

/// A linear axis begins at 0.
fn start(axis: &Axis) -> (f64, f64) {
    if axis.log { (f64::INFINITY, f64::NEG_INFINITY) } else { (0.0, 0.0) }
}

/// A paper's points have the colour of the line before them.
fn colours(lines: &[Line]) -> Vec<usize> {
    let mut next = 0;
    let mut colours = Vec::new();
    for line in lines {
        let before = colours.last().copied().filter(|_| line.paper);
        colours.push(before.unwrap_or(next));
        next += usize::from(before.is_none());
    }
    colours
}

fn key(line: &Line, index: usize) -> Key {
    let sign = if line.paper { Sign::Diamond } else { Sign::Line };
    Key { label: line.label.clone(), colour: colour(index), sign }
}
