//! Figures: what they show, and drawing them as PNG and SVG without any help of the machine.

mod bars;
mod canvas;
mod frame;
mod lines;
mod map;
mod stacked;

use plotters::prelude::{BitMapBackend, SVGBackend};
use serde::Serialize;

use canvas::Canvas;

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

/// Logical size: pixels of the SVG, half of the PNG's.
const WIDTH: u32 = 960;
const HEIGHT: u32 = 440;
/// Pixels of the PNG per logical one: sharp on dense screens and on paper.
const PNG_SCALE: u32 = 2;
/// Pixels are centred by the height of the font's line, below which there is room for descenders.
const PNG_LIFT: f64 = 0.17;

impl Figure {
    /// As an SVG document.
    ///
    /// # Errors
    /// Why it cannot be drawn.
    pub fn to_svg(&self) -> Result<String, String> {
        let mut text = String::new();
        {
            let backend = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT));
            self.draw(&Canvas::new(backend, 1.0, 0.0)?)?;
        }
        Ok(text)
    }

    /// As a PNG file.
    ///
    /// # Errors
    /// Why it cannot be drawn.
    pub fn to_png(&self) -> Result<Vec<u8>, String> {
        let (width, height) = (WIDTH * PNG_SCALE, HEIGHT * PNG_SCALE);
        let mut pixels = vec![0; (width * height * 3) as usize];
        {
            let backend = BitMapBackend::with_buffer(&mut pixels, (width, height));
            self.draw(&Canvas::new(backend, f64::from(PNG_SCALE), PNG_LIFT)?)?;
        }
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(|error| error.to_string())?;
        writer.write_image_data(&pixels).map_err(|error| error.to_string())?;
        writer.finish().map_err(|error| error.to_string())?;
        Ok(file)
    }

    fn draw<B: plotters::prelude::DrawingBackend>(&self, canvas: &Canvas<B>) -> Result<(), String> {
        match &self.drawing {
            Drawing::Bars { groups, series, baseline } => {
                bars::draw(canvas, self, groups, series, *baseline)?;
            }
            Drawing::Stacked { groups, parts, bars } => {
                stacked::draw(canvas, self, groups, parts, bars)?;
            }
            Drawing::Lines(lines) => lines::draw(canvas, self, lines)?,
            Drawing::Map(cells) => map::draw(canvas, self, cells)?,
        }
        canvas.present()
    }
}

#[cfg(test)]
mod tests;
