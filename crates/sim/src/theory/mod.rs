//! Theory against measured: what the specification says a path must cost, and what small programs
//! on the machine find.
//!
//! - Unloaded, an access costs the sum of the parameters on its way, to the picosecond.
//! - Each bank, channel and link carries its bandwidth when enough wavefronts want it, and no more.
//! - Under any load, accesses under way = rate × latency (Little's law).
//!
//! The programs are written out step by step and run on the given machine with two of its GPUs.
//! This module owns programs and sums; everything measured comes out of [`crate::Simulation`].

mod bandwidth;
mod bench;
mod fault;
mod latency;
mod load;

use std::fmt;

use farside_types::Span;
use serde::Serialize;

use crate::{SimError, Spec, screen};

pub use load::{Curve, Point, curves};

/// How theory and measured must be related.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// They are equal.
    Equal,
    /// Theory is a limit, which the measured value comes near to.
    Limit,
}

/// A value that theory gives, and the same as measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Probe {
    /// What.
    pub name: &'static str,
    /// How theory gets at it: keys of the specification.
    pub sum: String,
    /// What it must be.
    pub theory: f64,
    /// What it is.
    pub measured: f64,
    /// `ns` or `GB/s`.
    pub unit: &'static str,
    /// How the two must be related.
    pub relation: Relation,
}

impl Probe {
    /// Whether theory and measured are related as they must: equal to the picosecond, or within 2 %
    /// below the limit and not above it by more than one line of the measurement.
    #[must_use]
    pub fn holds(&self) -> bool {
        match self.relation {
            Relation::Equal => self.theory == self.measured,
            Relation::Limit => (0.98..=1.0005).contains(&(self.measured / self.theory)),
        }
    }
}

/// All probes on a machine: latencies, faults, bandwidths.
///
/// # Errors
/// [`SimError`]: a machine that cannot be.
pub fn probes(spec: &Spec) -> Result<Vec<Probe>, SimError> {
    spec.check()?;
    let mut list = latency::probes(spec)?;
    list.extend(fault::probes(spec)?);
    list.extend(bandwidth::probes(spec)?);
    Ok(list)
}

/// Probes as a table for people.
#[must_use]
pub fn table(probes: &[Probe]) -> String {
    let header = ["", "theory", "measured", "", ""].map(String::from).to_vec();
    let row = |probe: &Probe| {
        let Probe { name, theory, measured, unit, .. } = probe;
        let sign = if probe.holds() { "" } else { "DIFFERS" };
        let (theory, measured) = (format!("{theory:.3}"), format!("{measured:.3}"));
        vec![(*name).to_owned(), theory, measured, (*unit).to_owned(), sign.to_owned()]
    };
    screen::table("lrrll", std::iter::once(header).chain(probes.iter().map(row)))
}

/// A sum of parameters, in words and as a span.
#[derive(Clone, Debug, Default)]
struct Sum {
    words: Vec<String>,
    span: Span,
}

impl Sum {
    fn and(mut self, name: &str, span: Span) -> Sum {
        self.words.push(name.to_owned());
        self.span += span;
        self
    }

    fn ns(self, name: &str, ns: u64) -> Sum {
        self.and(name, Span::from_nanos(ns))
    }

    fn plus(mut self, other: Sum) -> Sum {
        self.words.extend(other.words);
        self.span += other.span;
        self
    }

    /// The probe of this sum.
    fn against(self, name: &'static str, measured: Span) -> Probe {
        let ns = |span: Span| span.0 as f64 / 1_000.0;
        Probe {
            name,
            sum: self.to_string(),
            theory: ns(self.span),
            measured: ns(measured),
            unit: "ns",
            relation: Relation::Equal,
        }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words.join(" + "))
    }
}
