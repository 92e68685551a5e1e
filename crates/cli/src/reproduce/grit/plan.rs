//! What is run: experiments from the list, at a scale, as cells.

use std::collections::BTreeMap;
use std::fmt;

use farside_sim::Spec;
use serde::Deserialize;

use crate::sweep::{Cell, Program};

const LIST: &str = include_str!("../../../outside/experiments.toml");
const MB: u64 = 1 << 20;

/// The list of experiments.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Table II.
    pub(super) megabytes: BTreeMap<String, u64>,
    /// Values of the machine that are not those of the preset.
    machine: BTreeMap<String, String>,
    #[serde(rename = "indifferent")]
    pub(super) indifferences: Vec<Indifference>,
    /// Those of the list, and one for each reading.
    #[serde(rename = "experiment")]
    pub(super) experiments: Vec<Experiment>,
    readings: Option<Readings>,
    pub(super) sensitivity: Option<Sensitivity>,
    pub(super) sharing: Option<SharingPlan>,
}

/// A value of the machine that makes no difference to some.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Indifference {
    pub(super) key: String,
    #[serde(default)]
    pub(super) schemes: Vec<String>,
    #[serde(default)]
    pub(super) workloads: Vec<String>,
}

impl Indifference {
    /// Whether it is about this cell. A scheme with parameters or a modifier is another one.
    fn concerns(&self, cell: &Cell) -> bool {
        let runs = |name: &String| matches!(&cell.program, Program::Workload { name: it, .. } if it == name);
        self.schemes.contains(&cell.scheme) || self.workloads.iter().any(runs)
    }
}

/// A figure of the paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Experiment {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) measure: Measure,
    pub(super) over: String,
    pub(super) columns: Vec<String>,
    pub(super) labels: Vec<String>,
    /// None: those of Table II.
    workloads: Option<Vec<String>>,
    /// A machine by name in the place of the one for all, which then has nothing to say.
    preset: Option<String>,
    #[serde(default)]
    pub(super) machine: BTreeMap<String, String>,
    /// Programs that run in the place of others.
    #[serde(default)]
    pub(super) instead: BTreeMap<String, String>,
    size: Option<Size>,
    /// What a scaled run divides its footprints by besides.
    #[serde(default = "one")]
    further: u64,
    #[serde(default, rename = "claim")]
    pub(super) claims: Vec<Stated>,
}

impl Experiment {
    /// These schemes too, and what is measured of each: of the paper there is no number.
    pub(super) fn add(&mut self, schemes: &[String]) {
        let new: Vec<&String> = schemes.iter().filter(|it| !self.columns.contains(it)).collect();
        for scheme in new {
            self.columns.push(scheme.clone());
            self.labels.push(scheme.clone());
            let whole = || Some(scheme.clone());
            let (gain, fewer) = match self.measure {
                Measure::Performance => (whole(), None),
                Measure::Faults => (None, whole()),
                Measure::Handling | Measure::Schemes => continue,
            };
            self.claims.push(Stated {
                id: format!("{}.{scheme}", self.name),
                gain,
                fewer,
                source: format!("{}, a scheme that is not in the paper", self.title),
                ..Stated::default()
            });
        }
    }
}

fn one() -> u64 {
    1
}

/// An experiment again with other values of the machine, one reading of its sources at a time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Readings {
    /// The experiment.
    of: String,
    /// What a scaled run divides its footprints by besides.
    further: u64,
    /// Those of its columns that are run.
    columns: Vec<String>,
    each: Vec<Reading>,
}

/// What is otherwise.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reading {
    name: String,
    title: String,
    /// Why it is open.
    source: String,
    #[serde(default)]
    machine: BTreeMap<String, String>,
    #[serde(default)]
    instead: BTreeMap<String, String>,
}

impl Reading {
    /// The experiment in this reading.
    fn experiment(self, whole: &Experiment, readings: &Readings) -> Experiment {
        let Reading { name, title, source, machine, instead } = self;
        let runs = |scheme: &String| readings.columns.contains(scheme);
        let columns = whole.columns.iter().zip(&whole.labels).filter(|(column, _)| runs(column));
        let (columns, labels) = columns.map(|(a, b)| (a.clone(), b.clone())).unzip();
        let claims = whole.claims.iter().filter(|claim| claim.schemes().all(runs)).cloned();
        let claims = claims.map(|claim| Stated {
            id: claim.id.replacen(&whole.name, &format!("{}-{name}", whole.name), 1),
            source: format!("{}; {source}", claim.source),
            ..claim
        });
        Experiment {
            name: format!("{}-{name}", whole.name),
            title: format!("{title}: performance"),
            columns,
            labels,
            machine,
            instead,
            further: readings.further,
            claims: claims.collect(),
            ..whole.clone()
        }
    }
}

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Measure {
    Performance,
    Faults,
    Handling,
    Schemes,
}

/// Sizes other than those of Table II.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Size {
    factor: u64,
    at_least_megabytes: u64,
    at_most_megabytes: u64,
}

/// A number of the text. Exactly one of the first five after the name is there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stated {
    pub(super) id: String,
    pub(super) gain: Option<String>,
    pub(super) fewer: Option<String>,
    pub(super) evicted: Option<String>,
    pub(super) again: Option<String>,
    pub(super) fastest: Option<String>,
    #[serde(default)]
    pub(super) among: Vec<String>,
    pub(super) over: Option<String>,
    pub(super) workload: Option<String>,
    pub(super) paper: Option<f64>,
    pub(super) source: String,
}

impl Stated {
    /// The schemes that it is about.
    pub(super) fn schemes(&self) -> impl Iterator<Item = &String> {
        let kinds = [&self.gain, &self.fewer, &self.evicted, &self.again, &self.fastest];
        kinds.into_iter().flatten().chain(&self.among).chain(&self.over)
    }
}

/// What the latencies that the paper does not give would change.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sensitivity {
    pub(super) columns: Vec<String>,
    pub(super) factors: Vec<f64>,
    /// What a scaled run divides its footprints by besides.
    #[serde(default = "one")]
    further: u64,
    #[serde(rename = "group")]
    pub(super) groups: Vec<Group>,
}

/// Values of the machine that change together.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    pub(super) label: String,
    pub(super) keys: Vec<String>,
}

/// Figures 4 to 10, and what the text says about them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SharingPlan {
    #[serde(rename = "claim")]
    pub(super) claims: Vec<SharingClaim>,
}

/// A share of a workload's pages.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SharingClaim {
    pub(super) id: String,
    pub(super) workload: String,
    pub(super) pages: PageKind,
    pub(super) paper: Option<f64>,
    pub(super) source: String,
}

/// Which pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PageKind {
    Private,
    Shared,
    SharedWritten,
}

/// How large the workloads are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// As in Table II.
    Full,
    /// The footprints of Table II divided by this.
    Divided(u64),
}

impl Scale {
    /// Divided by this besides, unless it is whole.
    fn further(self, by: u64) -> Scale {
        match self {
            Scale::Full => Scale::Full,
            Scale::Divided(divided) => Scale::Divided(divided * by),
        }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scale::Full => write!(f, "Footprints are those of Table II."),
            Scale::Divided(by) => write!(
                f,
                "Footprints are those of Table II divided by {by}; `--full` runs them whole. The \
                 paper's numbers are of the whole ones."
            ),
        }
    }
}

impl Plan {
    /// The list that comes with the program.
    pub(super) fn bundled() -> Plan {
        let plan: Result<Plan, _> = toml::from_str(LIST);
        let mut plan = plan.unwrap_or_else(|error| panic!("the list of experiments: {error}"));
        if let Some(readings) = plan.readings.take() {
            let whole = plan.experiments.iter().find(|it| it.name == readings.of).cloned();
            let whole = whole.unwrap_or_else(|| panic!("readings of no experiment: {readings:?}"));
            let each = readings.each.iter().cloned();
            plan.experiments.extend(each.map(|reading| reading.experiment(&whole, &readings)));
        }
        plan
    }

    pub(super) fn keep(&mut self, names: &[impl AsRef<str>]) -> Result<(), String> {
        let mut known: Vec<&str> = self.experiments.iter().map(|e| e.name.as_str()).collect();
        known.extend(["sensitivity", "sharing"]);
        let unknown = names.iter().find(|name| !known.contains(&name.as_ref()));
        if let Some(unknown) = unknown {
            return Err(format!(
                "there is no experiment {:?}; there are {}",
                unknown.as_ref(),
                known.join(", ")
            ));
        }
        let wanted = |name: &str| names.iter().any(|wanted| wanted.as_ref() == name);
        self.experiments.retain(|experiment| wanted(&experiment.name));
        self.sensitivity = self.sensitivity.take().filter(|_| wanted("sensitivity"));
        self.sharing = self.sharing.take().filter(|_| wanted("sharing"));
        Ok(())
    }

    /// What a scaled run has smaller than the rest, in a sentence; none if nothing.
    pub(super) fn divided_further(&self) -> Option<String> {
        let experiments = self.experiments.iter().map(|e| (e.name.as_str(), e.further));
        let sensitivity = self.sensitivity.iter().map(|s| ("sensitivity", s.further));
        let smaller: Vec<String> = experiments
            .chain(sensitivity)
            .filter(|(_, further)| *further > 1)
            .map(|(name, further)| format!("{name} by {further}"))
            .collect();
        let told = format!("To save time these are divided further: {}.", smaller.join(", "));
        (!smaller.is_empty()).then_some(told)
    }

    /// The workloads of an experiment.
    pub(super) fn workloads(&self, experiment: &Experiment) -> Vec<String> {
        let all = || self.megabytes.keys().cloned().collect();
        experiment.workloads.clone().unwrap_or_else(all)
    }

    /// The cell of a workload under a scheme in an experiment.
    pub(super) fn cell(
        &self,
        experiment: &Experiment,
        workload: &str,
        scheme: &str,
        scale: Scale,
    ) -> Cell {
        let scale = scale.further(experiment.further);
        let bytes = self.bytes(experiment.size, workload, scale);
        let common = self.machine.iter().filter(|_| experiment.preset.is_none());
        let set = common.chain(&experiment.machine);
        let program = experiment.instead.get(workload).map_or(workload, String::as_str);
        let cell = Cell::workload(program, bytes, scheme);
        let cell = experiment.preset.iter().fold(cell, |cell, preset| cell.on(preset));
        self.plain(set.fold(cell, |cell, (key, value)| cell.with(key, value)))
    }

    /// A cell without the values that make no difference to it: runs of which the same must come out are one.
    fn plain(&self, mut cell: Cell) -> Cell {
        for indifference in &self.indifferences {
            if indifference.concerns(&cell) {
                cell.set.remove(&indifference.key);
            }
        }
        cell
    }

    pub(super) fn bytes(&self, size: Option<Size>, workload: &str, scale: Scale) -> Option<u64> {
        let divide = match scale {
            Scale::Full => 1,
            Scale::Divided(by) => by,
        };
        let megabytes = *self.megabytes.get(workload)?;
        let megabytes = size.map_or(megabytes, |size| {
            (megabytes * size.factor).clamp(size.at_least_megabytes, size.at_most_megabytes)
        });
        Some(megabytes * MB / divide)
    }

    pub(super) fn cells(&self, experiment: &Experiment, scale: Scale) -> Vec<Cell> {
        let workloads = self.workloads(experiment);
        let of = |workload: &String| {
            let cell = |scheme: &String| self.cell(experiment, workload, scheme, scale);
            experiment.columns.iter().map(cell).collect::<Vec<_>>()
        };
        workloads.iter().flat_map(of).collect()
    }

    pub(super) fn sensitivity_cells(&self, scale: Scale) -> Vec<Cell> {
        let Some(sensitivity) = &self.sensitivity else { return Vec::new() };
        let mut cells = Vec::new();
        for workload in self.megabytes.keys() {
            for scheme in &sensitivity.columns {
                cells.push(self.changed(workload, scheme, None, scale));
                for group in &sensitivity.groups {
                    let cell = |factor: &f64| {
                        self.changed(workload, scheme, Some((group, *factor)), scale)
                    };
                    cells.extend(sensitivity.factors.iter().map(cell));
                }
            }
        }
        cells
    }

    /// The cell of a workload under a scheme on the machine with a group of values changed.
    pub(super) fn changed(
        &self,
        workload: &str,
        scheme: &str,
        change: Option<(&Group, f64)>,
        scale: Scale,
    ) -> Cell {
        let scale = scale.further(self.sensitivity.as_ref().map_or(1, |s| s.further));
        let cell = Cell::workload(workload, self.bytes(None, workload, scale), scheme);
        let cell = self.machine.iter().fold(cell, |cell, (key, value)| cell.with(key, value));
        let Some((group, factor)) = change else { return cell };
        let changed = group.keys.iter().fold(cell, |cell, key| {
            let value = preset_value(key).map_or(0.0, |value| (value as f64 * factor).round());
            cell.with(key, value as u64)
        });
        self.plain(changed)
    }
}

/// A number of the preset.
pub(super) fn preset_value(key: &str) -> Option<i64> {
    let table = toml::Table::try_from(Spec::default()).ok()?;
    let (section, name) = key.split_once('.')?;
    table.get(section)?.get(name)?.as_integer()
}

/// About how long a cell takes, in no unit: bytes, times how often the workload comes back to them.
pub(super) fn weight(cell: &Cell) -> u64 {
    match &cell.program {
        Program::Workload { name, bytes } => {
            let passes = match name.as_str() {
                "bs" => 128,
                "bfs" => 32,
                "mm" | "gemm" | "st" => 4,
                _ => 1,
            };
            bytes.unwrap_or(64 * MB) * passes
        }
        Program::Trace(_) | Program::Bundled(_) => 0,
    }
}
