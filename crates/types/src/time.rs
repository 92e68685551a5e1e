//! Time as the driver knows it: what it was told.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// A point in time, in picoseconds since the machine started. Lasts 213 days.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Time(pub u64);

/// A length of time, in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Span(pub u64);

impl Time {
    /// The start of the machine.
    pub const ZERO: Time = Time(0);

    /// Nanoseconds since the start.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos.saturating_mul(1_000))
    }

    /// Time from `earlier` to here; zero if `earlier` is later.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// A span of nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Span {
        Span(nanos.saturating_mul(1_000))
    }

    /// A span of microseconds.
    pub const fn from_micros(micros: u64) -> Span {
        Span(micros.saturating_mul(1_000_000))
    }

    /// A span of milliseconds.
    pub const fn from_millis(millis: u64) -> Span {
        Span(millis.saturating_mul(1_000_000_000))
    }

    /// Whole nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0 / 1_000
    }

    /// Microseconds.
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e12
    }
}

impl From<Span> for u64 {
    /// Picoseconds.
    fn from(span: Span) -> u64 {
        span.0
    }
}

impl Add<Span> for Time {
    type Output = Time;

    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Add for Span {
    type Output = Span;

    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Span;

    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0 / 1_000)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0 / 1_000)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n < 1_000_000 => write!(f, "{} ns", n / 1_000),
            n if n < 1_000_000_000 => write!(f, "{:.1} µs", n as f64 / 1e6),
            n if n < 1_000_000_000_000 => write!(f, "{:.1} ms", n as f64 / 1e9),
            n => write!(f, "{:.2} s", n as f64 / 1e12),
        }
    }
}
