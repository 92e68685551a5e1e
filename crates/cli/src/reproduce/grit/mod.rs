//! The GRIT paper's experiments: the cells that they need, and what the paper says beside what
//! comes out. `experiments/grit/experiments.toml` is the list.

mod claims;
mod figures;
mod handling;
mod measured;
mod plan;
mod sensitivity;
mod sharing;

use farside_sim::analysis::Sharing;

use crate::sweep::{Cell, Finished};

use super::Report;

pub use claims::Claim;
pub use plan::{Plan, Scale};

use measured::Measured;

/// The plan of all experiments, or of those whose names are given, at a scale.
#[derive(Clone, Debug)]
pub struct Reproduction {
    plan: Plan,
    scale: Scale,
}

impl Reproduction {
    /// Every experiment at this scale.
    pub fn new(scale: Scale) -> Reproduction {
        Reproduction { plan: Plan::bundled(), scale }
    }

    /// Only these experiments, by name: `figure-17`, `sensitivity`.
    ///
    /// # Errors
    /// The names there are, if one of them is not.
    pub fn only(mut self, names: &[impl AsRef<str>]) -> Result<Reproduction, String> {
        self.plan.keep(names)?;
        Ok(self)
    }

    /// These schemes too, beside those of the paper in every experiment that compares schemes.
    #[must_use]
    pub fn beside(mut self, schemes: &[String]) -> Reproduction {
        self.plan.experiments.iter_mut().for_each(|experiment| experiment.add(schemes));
        self
    }

    /// Only these of the workloads of Table II.
    #[must_use]
    pub fn workloads(mut self, names: &[&str]) -> Reproduction {
        self.plan.megabytes.retain(|name, _| names.contains(&name.as_str()));
        self
    }

    /// A workload with this footprint, before it is divided, in the place of that of Table II or of
    /// its own.
    #[must_use]
    pub fn size(mut self, workload: &str, megabytes: u64) -> Reproduction {
        self.plan.megabytes.insert(workload.to_owned(), megabytes);
        self
    }

    /// The runs that it needs; the same run may be in several experiments.
    pub fn cells(&self) -> Vec<Cell> {
        let experiments = self.plan.experiments.iter();
        let mut cells: Vec<Cell> =
            experiments.flat_map(|experiment| self.plan.cells(experiment, self.scale)).collect();
        cells.extend(self.plan.sensitivity_cells(self.scale));
        cells.sort();
        cells.dedup();
        // The long ones first, so that no worker is left alone with one at the end.
        cells.sort_by_key(|cell| std::cmp::Reverse(plan::weight(cell)));
        cells
    }

    /// Who shares which pages of each workload, looked at by so many threads; nothing if that is
    /// not part of it.
    pub fn sharings(&self, jobs: usize) -> Vec<Sharing> {
        sharing::look(&self.plan, self.scale, jobs)
    }

    /// Every number that the paper prints, beside ours, as far as the cells give it.
    pub fn claims(&self, done: &[Finished], sharings: &[Sharing]) -> Vec<Claim> {
        let measured = Measured::new(done);
        let experiments = self.plan.experiments.iter();
        let of = |experiment| claims::of(&self.plan, experiment, self.scale, &measured);
        let mut claims: Vec<Claim> = experiments.flat_map(of).collect();
        claims.extend(sharing::claims(&self.plan, sharings));
        claims
    }

    /// The report: claims, figures, notes.
    pub fn report(&self, done: &[Finished], sharings: &[Sharing]) -> Report {
        let measured = Measured::new(done);
        let mut figures = Vec::new();
        for experiment in &self.plan.experiments {
            figures.extend(figures::of(&self.plan, experiment, self.scale, &measured));
        }
        figures.extend(sharing::figures(sharings));
        figures.extend(sensitivity::figures(&self.plan, self.scale, &measured));
        Report {
            title: "GRIT, reproduced".to_owned(),
            rows: self.claims(done, sharings).into_iter().map(|claim| claim.row).collect(),
            figures,
            notes: self.notes(done),
        }
    }

    fn notes(&self, done: &[Finished]) -> Vec<String> {
        let mut notes = vec![self.scale.to_string(), MEANS.to_owned(), GAINS.to_owned()];
        if self.scale != Scale::Full {
            notes.extend(self.plan.divided_further());
        }
        let failed = done.iter().filter(|cell| cell.outcome.is_err());
        let failed: Vec<String> = failed
            .map(|cell| {
                format!("- {}: {}", cell.cell, cell.outcome.as_ref().err().map_or("", |e| e))
            })
            .collect();
        if !failed.is_empty() {
            notes.push(format!(
                "**{} of {} runs failed; numbers that need them are means over the others or \
                 missing:**\n\n{}",
                failed.len(),
                done.len(),
                failed.join("\n")
            ));
        }
        notes
    }
}

const MEANS: &str = "Performance is 1 / time. A mean over workloads is the arithmetic mean of the \
    ratios of each workload, the paper does not say which it takes; the geometric mean stands \
    beside it in the last column, with the least and the greatest arithmetic mean without one of the workloads.";

const GAINS: &str = "Rows in % of a gain are (mean of time of the other / time of the scheme) - 1. \
    Rows in x of a fastest scheme are the time of the fastest other over its time: 1 and more \
    means that it is the fastest, as the paper says.";

#[cfg(test)]
mod tests;
