//! The numbers of the text, beside ours.

use super::Scale;
use super::measured::{Measured, geometric_mean, mean};
use super::plan::{Experiment, Plan, Stated};
use crate::reproduce::Row;

/// A number of the text with what it is called in tests.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Its name: `grit.on-touch`.
    pub id: String,
    /// What the paper prints, and ours.
    pub row: Row,
    /// How many workloads ours is the mean of.
    pub workloads: usize,
}

/// Ours for a claim: a percentage or a ratio, and the ratios of each workload behind it.
struct Ours {
    value: f64,
    ratios: Vec<f64>,
}

/// The claims of an experiment, as far as its cells give them.
pub(super) fn of(
    plan: &Plan,
    experiment: &Experiment,
    scale: Scale,
    measured: &Measured,
) -> Vec<Claim> {
    let one = |stated: &Stated| {
        let look = Look { plan, experiment, stated, scale, measured };
        let ours = look.ours()?;
        let mut source = stated.source.clone();
        if stated.gain.is_some() && ours.ratios.len() > 1 {
            let geometric = 100.0 * (geometric_mean(&ours.ratios)? - 1.0);
            let without = without_one(&look.workloads(), &ours.ratios);
            source = format!("{source} (geometric mean of ours: {geometric:.1} %{without})");
        }
        let row = Row {
            what: look.what(),
            unit: if stated.fastest.is_some() { "x" } else { "%" }.to_owned(),
            paper: stated.paper,
            ours: ours.value,
            source,
        };
        Some(Claim { id: stated.id.clone(), row, workloads: ours.ratios.len() })
    };
    experiment.claims.iter().filter_map(one).collect()
}

/// How far the mean goes when one of the workloads is left out; nothing where some have failed.
fn without_one(workloads: &[String], ratios: &[f64]) -> String {
    if workloads.len() != ratios.len() || ratios.len() < 3 {
        return String::new();
    }
    let sum: f64 = ratios.iter().sum();
    let others = (ratios.len() - 1) as f64;
    let mean =
        |(name, ratio): (&String, &f64)| (100.0 * ((sum - ratio) / others - 1.0), name.clone());
    let mut means: Vec<_> = workloads.iter().zip(ratios).map(mean).collect();
    means.sort_by(|a, b| a.0.total_cmp(&b.0));
    let told =
        |(mean, name): &(f64, String)| format!("{mean:.1} % without {}", name.to_uppercase());
    format!("; {} to {}", told(&means[0]), told(&means[means.len() - 1]))
}

/// A claim with everything that it is looked up in.
struct Look<'a> {
    plan: &'a Plan,
    experiment: &'a Experiment,
    stated: &'a Stated,
    scale: Scale,
    measured: &'a Measured,
}

impl Look<'_> {
    fn over(&self) -> &str {
        self.stated.over.as_deref().unwrap_or(&self.experiment.over)
    }

    fn workloads(&self) -> Vec<String> {
        match &self.stated.workload {
            Some(workload) => vec![workload.clone()],
            None => self.plan.workloads(self.experiment),
        }
    }

    /// A ratio per workload, of those that have it.
    fn ratios(&self, ratio: impl Fn(&str) -> Option<f64>) -> Vec<f64> {
        self.workloads().iter().filter_map(|workload| ratio(workload)).collect()
    }

    fn cell(&self, workload: &str, scheme: &str) -> crate::sweep::Cell {
        self.plan.cell(self.experiment, workload, scheme, self.scale)
    }

    fn speedup(&self, workload: &str, scheme: &str, over: &str) -> Option<f64> {
        self.measured.speedup(&self.cell(workload, scheme), &self.cell(workload, over))
    }

    fn ours(&self) -> Option<Ours> {
        let stated = self.stated;
        if let Some(scheme) = &stated.gain {
            let ratios = self.ratios(|workload| self.speedup(workload, scheme, self.over()));
            return Some(Ours { value: 100.0 * (mean(&ratios)? - 1.0), ratios });
        }
        if let Some(scheme) = &stated.fewer {
            let ratios = self.ratios(|workload| {
                let (cell, over) = (self.cell(workload, scheme), self.cell(workload, self.over()));
                self.measured.ratio(FAULTS, &cell, &over)
            });
            return Some(Ours { value: 100.0 * (1.0 - mean(&ratios)?), ratios });
        }
        if let Some(scheme) = &stated.evicted {
            let total = |scheme: &str| {
                self.ratios(|workload| {
                    self.measured.value(&self.cell(workload, scheme), "driver.evictions")
                })
            };
            let (ours, over) = (total(scheme), total(self.over()));
            let below = over.iter().sum::<f64>();
            let ratio = (below > 0.0).then(|| ours.iter().sum::<f64>() / below)?;
            return Some(Ours { value: 100.0 * (ratio - 1.0), ratios: ours });
        }
        if let Some(scheme) = &stated.again {
            let ratios = self.ratios(|workload| {
                let cell = self.cell(workload, scheme);
                let pages = self.measured.value(&cell, PAGES)?;
                Some(self.measured.value(&cell, COPIED_AGAIN)? / pages)
            });
            return Some(Ours { value: 100.0 * mean(&ratios)?, ratios });
        }
        let scheme = stated.fastest.as_ref()?;
        let ratios = self.ratios(|workload| {
            let speedup = |over: &String| self.speedup(workload, scheme, over);
            let speedups: Option<Vec<f64>> = stated.among.iter().map(speedup).collect();
            speedups?.into_iter().reduce(f64::min)
        });
        Some(Ours { value: mean(&ratios)?, ratios })
    }

    fn label(&self, scheme: &str) -> String {
        let columns = self.experiment.columns.iter().zip(&self.experiment.labels);
        let found = columns.clone().find(|(column, _)| *column == scheme);
        found.map_or(scheme, |(_, label)| label).to_owned()
    }

    fn what(&self) -> String {
        let stated = self.stated;
        let over = self.label(self.over());
        let text = if let Some(scheme) = &stated.gain {
            format!("{} over {over}", self.label(scheme))
        } else if let Some(scheme) = &stated.fewer {
            format!("fewer faults: {} than {over}", self.label(scheme))
        } else if let Some(scheme) = &stated.evicted {
            format!("more pages evicted: {} than {over}", self.label(scheme))
        } else if let Some(scheme) = &stated.again {
            format!("pages that collapse and are copied again under {}", self.label(scheme))
        } else {
            let among: Vec<String> = stated.among.iter().map(|scheme| self.label(scheme)).collect();
            let scheme = stated.fastest.as_deref().unwrap_or_default();
            format!("{} is faster than {}", self.label(scheme), among.join(" and "))
        };
        let title = self.experiment.title.split(':').next().unwrap_or_default();
        match &stated.workload {
            Some(workload) => format!("{title}, {}: {text}", workload.to_uppercase()),
            None => format!("{title}: {text}"),
        }
    }
}

/// Faults of all GPUs: local page faults and page protection faults.
pub(super) const FAULTS: &str = "total.faults.reported";

/// Pages of the program, and those that lost their copies to a write and were copied again.
pub(super) const PAGES: &str = "pages";
pub(super) const COPIED_AGAIN: &str = "pages.copied_again";
