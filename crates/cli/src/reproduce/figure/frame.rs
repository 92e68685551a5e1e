//! What all figures have: title, legend outside of the plot, axes with round numbers.

use plotters::prelude::DrawingBackend;
use plotters::style::RGBColor;

use super::canvas::{Align, Canvas, Drawn, FAINT, INK};
use super::{Axis, Figure};

/// A line of the legend.
pub(super) struct Key {
    pub(super) label: String,
    pub(super) colour: RGBColor,
    pub(super) sign: Sign,
}

/// How the legend shows it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    Box,
    Line,
    Diamond,
}

/// The rectangle of the plot, and the values at its edges.
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
    x: Scale,
    y: Scale,
}

/// From values to a share of an axis.
#[derive(Clone, Copy)]
struct Scale {
    from: f64,
    to: f64,
    log: bool,
}

impl Scale {
    fn share(&self, value: f64) -> f64 {
        let place = |v: f64| if self.log { v.max(f64::MIN_POSITIVE).ln() } else { v };
        let (from, to) = (place(self.from), place(self.to));
        ((place(value) - from) / (to - from)).clamp(0.0, 1.0)
    }
}

const LEFT: f64 = 72.0;
const MARGIN: f64 = 18.0;
const TITLE_SIZE: f64 = 16.0;
pub(super) const TEXT_SIZE: f64 = 13.0;
pub(super) const SMALL_SIZE: f64 = 11.0;
const KEY_HEIGHT: f64 = 21.0;

impl Frame {
    /// Draws title, legend and axes around data between `x` and `y`; `below` logical pixels are kept
    /// free below the plot for what the drawing writes there itself.
    pub(super) fn draw<B: DrawingBackend>(
        canvas: &Canvas<B>,
        figure: &Figure,
        keys: &[Key],
        (x, y): ((f64, f64), (f64, f64)),
        below: f64,
    ) -> Result<Frame, String> {
        canvas.bold((MARGIN, 20.0), &figure.title, TITLE_SIZE, Align::Left)?;
        let top = legend(canvas, keys)? + 12.0;
        let frame = Frame {
            left: LEFT,
            right: canvas.width() - MARGIN,
            top,
            bottom: canvas.height() - below - 24.0,
            x: scale(&figure.x, x),
            y: scale(&figure.y, y),
        };
        let middle = (frame.left + frame.right) / 2.0;
        canvas.text((middle, canvas.height() - 14.0), &figure.x.label, TEXT_SIZE, Align::Centre)?;
        let middle = (frame.top + frame.bottom) / 2.0;
        canvas.text((16.0, middle), &figure.y.label, TEXT_SIZE, Align::Turned)?;
        for (value, text) in ticks(&figure.y, frame.y) {
            let at = frame.y(value);
            canvas.line(&[(frame.left, at), (frame.right, at)], FAINT, 1.0)?;
            canvas.text((frame.left - 8.0, at), &text, TEXT_SIZE, Align::Right)?;
        }
        Ok(frame)
    }

    /// The numbers of the horizontal axis.
    pub(super) fn draw_x<B: DrawingBackend>(&self, canvas: &Canvas<B>, axis: &Axis) -> Drawn {
        for (value, text) in ticks(axis, self.x) {
            let at = self.x(value);
            canvas.line(&[(at, self.bottom), (at, self.bottom + 5.0)], INK, 1.0)?;
            canvas.text((at, self.bottom + 9.0), &text, TEXT_SIZE, Align::Below)?;
        }
        Ok(())
    }

    /// The two lines of the axes, over the data.
    pub(super) fn draw_edges<B: DrawingBackend>(&self, canvas: &Canvas<B>) -> Drawn {
        let corner = (self.left, self.bottom);
        canvas.line(&[(self.left, self.top), corner, (self.right, self.bottom)], INK, 1.2)
    }

    pub(super) fn x(&self, value: f64) -> f64 {
        self.left + self.x.share(value) * (self.right - self.left)
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        self.bottom - self.y.share(value) * (self.bottom - self.top)
    }
}

/// Draws the legend below the title, in as many lines as it takes; gives where it ends.
fn legend<B: DrawingBackend>(canvas: &Canvas<B>, keys: &[Key]) -> Result<f64, String> {
    let (mut x, mut y) = (MARGIN, 46.0);
    if keys.is_empty() {
        return Ok(32.0);
    }
    for key in keys {
        let width = 26.0 + canvas.text_width(&key.label, TEXT_SIZE)? + 20.0;
        if x + width > canvas.width() - MARGIN && x > MARGIN {
            (x, y) = (MARGIN, y + KEY_HEIGHT);
        }
        match key.sign {
            Sign::Box => canvas.rectangle((x, y - 6.0), (x + 18.0, y + 6.0), key.colour)?,
            Sign::Line => {
                canvas.line(&[(x, y), (x + 18.0, y)], key.colour, 2.0)?;
                canvas.dot((x + 9.0, y), 3.5, key.colour)?;
            }
            Sign::Diamond => canvas.diamond((x + 9.0, y), key.colour)?,
        }
        canvas.text((x + 25.0, y), &key.label, TEXT_SIZE, Align::Left)?;
        x += width;
    }
    Ok(y + KEY_HEIGHT / 2.0)
}

/// The ends of an axis: as asked for, else round numbers around the data.
fn scale(axis: &Axis, (least, most): (f64, f64)) -> Scale {
    let some = least.is_finite() && most.is_finite();
    let (mut from, mut to) = if some { (least, most) } else { (1.0, 10.0) };
    if axis.log {
        from = 10f64.powf(from.max(f64::MIN_POSITIVE).log10().floor());
        to = 10f64.powf(to.max(f64::MIN_POSITIVE).log10().ceil());
    } else {
        let step = step(from, to);
        (from, to) = ((from / step).floor() * step, (to / step).ceil() * step);
    }
    let (from, to) = (axis.from.unwrap_or(from), axis.to.unwrap_or(to));
    let least = if axis.log { from * 10.0 } else { from + 1.0 };
    Scale { from, to: if to > from { to } else { least }, log: axis.log }
}

/// A round distance that divides the range into about six parts.
fn step(from: f64, to: f64) -> f64 {
    let range = to - from;
    // Also what is not a number has no round distance.
    if !(range > 0.0 && range.is_finite()) {
        return 1.0;
    }
    let power = 10f64.powf((range / 6.0).log10().floor());
    let rough = range / 6.0 / power;
    let round = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|step| rough <= *step);
    power * round.unwrap_or(10.0)
}

fn ticks(axis: &Axis, scale: Scale) -> Vec<(f64, String)> {
    if !axis.ticks.is_empty() {
        return axis.ticks.clone();
    }
    let mut values = Vec::new();
    if scale.log {
        let mut value = 10f64.powf(scale.from.log10().ceil());
        while value <= scale.to * 1.001 {
            values.push((value, plain(value, 0)));
            value *= 10.0;
        }
        return values;
    }
    let step = step(scale.from, scale.to);
    let digits = digits(step);
    let first = (scale.from / step).ceil() as i64;
    for index in first..first + 20 {
        let value = index as f64 * step;
        if value > scale.to + step / 1e6 {
            break;
        }
        values.push((value, plain(value, digits)));
    }
    values
}

/// How many decimals multiples of a round distance need.
fn digits(step: f64) -> usize {
    let power = (step.log10() + 1e-9).floor();
    let quarter = (step / 10f64.powf(power) - 2.5).abs() < 1e-6;
    (-power + f64::from(u8::from(quarter))).max(0.0) as usize
}

fn plain(value: f64, digits: usize) -> String {
    if value != 0.0 && value.abs() < 1.0 && digits == 0 {
        return value.to_string();
    }
    format!("{value:.digits$}")
}
