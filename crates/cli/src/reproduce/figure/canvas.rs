//! What figures are drawn on: rectangles, lines, marks and text in logical pixels, on any backend.

use std::sync::Once;

use plotters::coord::Shift;
use plotters::drawing::IntoDrawingArea;
use plotters::element::{Circle, PathElement, Polygon, Rectangle};
use plotters::prelude::{DrawingArea, DrawingBackend, FontStyle, FontTransform, IntoFont};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, RGBColor, TextStyle, register_font};

use super::{HEIGHT, WIDTH};

/// The family that figures name; in PNG it is the font that comes with the program.
const FONT: &str = "sans-serif";

pub(super) const INK: RGBColor = RGBColor(40, 40, 40);
pub(super) const FAINT: RGBColor = RGBColor(222, 222, 222);
/// Colours that people with any colour vision tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(240, 228, 66),
    RGBColor(130, 130, 130),
];

/// The colour of series or part number `index`.
pub(super) fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// Where a text stands relative to its point.
#[derive(Clone, Copy)]
pub(super) enum Align {
    /// To the right of it, at its height.
    Left,
    /// Around it.
    Centre,
    /// To the left of it, at its height.
    Right,
    /// Below it.
    Below,
    /// Around it, turned to be read from the right.
    Turned,
}

/// A drawing surface of [`WIDTH`] times [`HEIGHT`] logical pixels.
pub(super) struct Canvas<B: DrawingBackend> {
    area: DrawingArea<B, Shift>,
    scale: f64,
    /// How far the backend puts the middle of a text too high, as a share of its size.
    lift: f64,
}

/// What drawing gives: nothing, or why it does not go.
pub(super) type Drawn = Result<(), String>;

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The font for PNG, and for the widths of texts in both.
fn load_font() {
    static LOADED: Once = Once::new();
    LOADED.call_once(|| {
        // A font that cannot be read shows as an error of the first text.
        let _ = register_font(FONT, FontStyle::Normal, dejavu::sans::regular());
        let _ = register_font(FONT, FontStyle::Bold, dejavu::sans::bold());
    });
}

impl<B: DrawingBackend> Canvas<B> {
    /// A white surface; `scale` pixels of the backend are a logical one, and it puts the middle of
    /// a text too high by `lift` of its size.
    pub(super) fn new(backend: B, scale: f64, lift: f64) -> Result<Self, String> {
        load_font();
        let area = backend.into_drawing_area();
        area.fill(&RGBColor(255, 255, 255)).map_err(said)?;
        Ok(Canvas { area, scale, lift })
    }

    pub(super) const fn width(&self) -> f64 {
        WIDTH as f64
    }

    pub(super) const fn height(&self) -> f64 {
        HEIGHT as f64
    }

    fn at(&self, (x, y): (f64, f64)) -> (i32, i32) {
        ((x * self.scale).round() as i32, (y * self.scale).round() as i32)
    }

    fn stroke(&self, width: f64) -> u32 {
        (width * self.scale).round().max(1.0) as u32
    }

    /// A filled rectangle between two corners.
    pub(super) fn rectangle(&self, a: (f64, f64), b: (f64, f64), colour: RGBColor) -> Drawn {
        let (from, to) = (self.at(a), self.at(b));
        self.area.draw(&Rectangle::new([from, to], colour.filled())).map_err(said)
    }

    pub(super) fn line(&self, points: &[(f64, f64)], colour: RGBColor, width: f64) -> Drawn {
        let points: Vec<_> = points.iter().map(|point| self.at(*point)).collect();
        let style = colour.stroke_width(self.stroke(width));
        self.area.draw(&PathElement::new(points, style)).map_err(said)
    }

    pub(super) fn dot(&self, at: (f64, f64), radius: f64, colour: RGBColor) -> Drawn {
        let radius = (radius * self.scale).round() as i32;
        self.area.draw(&Circle::new(self.at(at), radius, colour.filled())).map_err(said)
    }

    /// A diamond with a white rim: what the paper says.
    pub(super) fn diamond(&self, (x, y): (f64, f64), colour: RGBColor) -> Drawn {
        for (radius, colour) in [(6.5, RGBColor(255, 255, 255)), (4.8, colour)] {
            let corners = [(x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y)];
            let corners: Vec<_> = corners.iter().map(|corner| self.at(*corner)).collect();
            self.area.draw(&Polygon::new(corners, colour.filled())).map_err(said)?;
        }
        Ok(())
    }

    fn style(&self, size: f64, bold: bool) -> TextStyle<'static> {
        let style = if bold { FontStyle::Bold } else { FontStyle::Normal };
        (FONT, size * self.scale, style).into_font().color(&INK)
    }

    pub(super) fn text(&self, at: (f64, f64), text: &str, size: f64, align: Align) -> Drawn {
        self.written(self.lowered(at, size, align), text, self.style(size, false), align)
    }

    pub(super) fn bold(&self, at: (f64, f64), text: &str, size: f64, align: Align) -> Drawn {
        self.written(self.lowered(at, size, align), text, self.style(size, true), align)
    }

    fn lowered(&self, (x, y): (f64, f64), size: f64, align: Align) -> (f64, f64) {
        match align {
            Align::Turned => (x + self.lift * size, y),
            Align::Below => (x, y),
            _ => (x, y + self.lift * size),
        }
    }

    fn written(&self, at: (f64, f64), text: &str, style: TextStyle, align: Align) -> Drawn {
        let (horizontal, vertical, turned) = match align {
            Align::Left => (HPos::Left, VPos::Center, false),
            Align::Centre => (HPos::Center, VPos::Center, false),
            Align::Right => (HPos::Right, VPos::Center, false),
            Align::Below => (HPos::Center, VPos::Top, false),
            Align::Turned => (HPos::Center, VPos::Center, true),
        };
        let transform = if turned { FontTransform::Rotate270 } else { FontTransform::None };
        let style = style.pos(Pos::new(horizontal, vertical)).transform(transform);
        self.area.draw_text(text, &style, self.at(at)).map_err(said)
    }

    /// How wide a text is.
    pub(super) fn text_width(&self, text: &str, size: f64) -> Result<f64, String> {
        let (width, _) =
            self.area.estimate_text_size(text, &self.style(size, false)).map_err(said)?;
        Ok(f64::from(width) / self.scale)
    }

    pub(super) fn present(&self) -> Drawn {
        self.area.present().map_err(said)
    }
}
