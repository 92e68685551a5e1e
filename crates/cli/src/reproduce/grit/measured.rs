//! What came out of the cells, by cell and name of the statistic.

use std::collections::BTreeMap;

use crate::sweep::{Cell, Finished};

/// Outcomes of cells.
pub(super) struct Measured(BTreeMap<Cell, BTreeMap<String, u64>>);

impl Measured {
    /// Of the cells that did not fail.
    pub(super) fn new(done: &[Finished]) -> Measured {
        let outcomes =
            done.iter().filter_map(|done| Some((&done.cell, done.outcome.as_ref().ok()?)));
        let statistics = outcomes.map(|(cell, outcome)| {
            let named = outcome.statistics().into_iter().map(|s| (s.name, s.value));
            (cell.clone(), named.collect())
        });
        Measured(statistics.collect())
    }

    /// A statistic; none where the cell failed or was not run, or does not count that.
    pub(super) fn value(&self, cell: &Cell, name: &str) -> Option<f64> {
        Some(*self.0.get(cell)?.get(name)? as f64)
    }

    /// A statistic of one cell over that of another.
    pub(super) fn ratio(&self, name: &str, above: &Cell, below: &Cell) -> Option<f64> {
        let below = self.value(below, name)?;
        (below > 0.0).then_some(self.value(above, name)? / below)
    }

    /// How many times faster `cell` is than `over`.
    pub(super) fn speedup(&self, cell: &Cell, over: &Cell) -> Option<f64> {
        self.ratio("time", over, cell)
    }
}

/// The arithmetic mean; none of nothing.
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The geometric mean; none of nothing.
pub(super) fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    mean(&logarithms).map(f64::exp)
}
