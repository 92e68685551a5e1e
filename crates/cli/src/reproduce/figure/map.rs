//! A field of cells, as of pages over time.

use plotters::prelude::DrawingBackend;
use plotters::style::RGBColor;

use super::canvas::{Canvas, Drawn, colour};
use super::frame::{Frame, Key, Sign};
use super::{Cells, Figure};

const EMPTY: RGBColor = RGBColor(240, 240, 240);

pub(super) fn draw<B: DrawingBackend>(canvas: &Canvas<B>, figure: &Figure, cells: &Cells) -> Drawn {
    let columns = cells.columns.max(1);
    let rows = cells.cells.len().div_ceil(columns);
    let keys: Vec<Key> = cells
        .classes
        .iter()
        .enumerate()
        .map(|(class, label)| Key { label: label.clone(), colour: of(class), sign: Sign::Box })
        .collect();
    let ends = ((0.0, columns as f64), (0.0, rows as f64));
    let frame = Frame::draw(canvas, figure, &keys, ends, 26.0)?;
    let (width, height) = (frame.right - frame.left, frame.bottom - frame.top);
    let x = |column: usize| frame.left + width * column as f64 / columns as f64;
    let y = |row: usize| frame.bottom - height * row as f64 / rows.max(1) as f64;
    for (row, cells) in cells.cells.chunks(columns).enumerate() {
        // Neighbours of a class are one rectangle.
        let mut from = 0;
        for run in cells.chunk_by(|a, b| a == b) {
            let to = from + run.len();
            canvas.rectangle((x(from), y(row + 1)), (x(to), y(row)), of(usize::from(run[0])))?;
            from = to;
        }
    }
    frame.draw_x(canvas, &figure.x)?;
    frame.draw_edges(canvas)
}

fn of(class: usize) -> RGBColor {
    if class == 0 { EMPTY } else { colour(class - 1) }
}
