//! `farside sim`: files about runs, and observers that watch one.

use std::fs::{File, write};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use clap::Args;
use farside_events::{EventLog, Full};
use farside_sim::observers::{PageHistory, Pages, Perfetto, Series, Shared, Units, Window};
use farside_sim::stats::{Format, StatsError};
use farside_sim::{Outcome, Simulation, Spec, stats};
use farside_types::{Span, Time};

use super::Failure;

/// What is written about runs besides their tables.
#[derive(Args, Debug)]
#[command(next_help_heading = "Files about the runs")]
pub(super) struct Watch {
    /// Write every counter of all runs, with their machines: .txt, .json or .parquet
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,

    /// Write a trace of the one run for <https://ui.perfetto.dev>: what wavefronts wait for, faults,
    /// copies, the driver
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,

    /// Compute units of each GPU whose wavefronts are in that trace
    #[arg(long, value_name = "N", default_value_t = 4, requires = "perfetto")]
    perfetto_units: u8,

    /// Most events in that trace
    #[arg(long, value_name = "N", default_value_t = EVENTS_MAX, requires = "perfetto")]
    perfetto_events: u64,

    /// Leave out of that trace what was before this simulated time, in microseconds
    #[arg(long, value_name = "US", default_value_t = 0, requires = "perfetto")]
    perfetto_from: u32,

    /// And what came after it [default: the end]
    #[arg(long, value_name = "US", requires = "perfetto")]
    perfetto_until: Option<u32>,

    /// Write all that the driver of the one run does as an event log into this Parquet file, for
    /// `farside report`
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,

    /// Write what happened to the pages that moved most in the one run: .txt or .json
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,

    /// How many pages that is
    #[arg(long, value_name = "N", default_value_t = 10, requires = "history")]
    history_pages: u16,

    /// Write statistics of the one run over time: .csv, .json or .parquet
    #[arg(long, value_name = "FILE")]
    series: Option<PathBuf>,

    /// Simulated time between two rows of it, in microseconds
    #[arg(long, value_name = "US", default_value_t = 10, requires = "series",
          value_parser = clap::value_parser!(u32).range(1..))]
    series_every: u32,

    /// Its statistics, by the names in docs/statistics.md, between commas
    #[arg(long, value_name = "LIST", requires = "series", value_delimiter = ',',
          default_values = Series::USUAL)]
    series_of: Vec<String>,
}

const EVENTS_MAX: u64 = Perfetto::<File>::EVENTS_MAX;

/// The observers of one run.
#[derive(Default)]
pub(super) struct Watching {
    perfetto: Option<Shared<Perfetto<BufWriter<File>>>>,
    history: Option<Shared<PageHistory>>,
    series: Option<Shared<Series>>,
    events: Option<EventLog>,
}

impl Watch {
    /// Refuses, before anything runs, what could not be written after it.
    pub(super) fn check(&self, runs: usize) -> Result<(), Failure> {
        if let Some(path) = &self.stats {
            Format::of(path)?;
        }
        if let Some(path) = &self.history {
            ends_with(path, &["txt", "json"], ".txt or .json")?;
        }
        if let Some(path) = &self.series {
            ends_with(path, &["csv", "json", "parquet"], ".csv, .json or .parquet")?;
        }
        let watchers = [
            ("events", &self.events),
            ("perfetto", &self.perfetto),
            ("history", &self.history),
            ("series", &self.series),
        ];
        match watchers.iter().find(|(_, path)| path.is_some()) {
            Some((name, _)) if runs != 1 => Err(Failure::Usage(format!(
                "--{name} watches one run, and these are {runs}: name one workload or trace, and \
                 one --scheme"
            ))),
            _ => Ok(()),
        }
    }

    /// The arguments of a process that watches the one run in the place of this one. Counters of all runs are written
    /// here.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut add = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
        let path = |path: &Path| path.display().to_string();
        if let Some(file) = &self.perfetto {
            add("perfetto", path(file));
            add("perfetto-units", self.perfetto_units.to_string());
            add("perfetto-events", self.perfetto_events.to_string());
            add("perfetto-from", self.perfetto_from.to_string());
            self.perfetto_until.iter().for_each(|until| add("perfetto-until", until.to_string()));
        }
        if let Some(file) = &self.events {
            add("events", path(file));
        }
        if let Some(file) = &self.history {
            add("history", path(file));
            add("history-pages", self.history_pages.to_string());
        }
        if let Some(file) = &self.series {
            add("series", path(file));
            add("series-every", self.series_every.to_string());
            add("series-of", self.series_of.join(","));
        }
        arguments
    }

    /// The observers that are asked for, on a machine.
    pub(super) fn start(
        &self,
        spec: &Spec,
        program: &str,
        scheme: &str,
    ) -> Result<Watching, Failure> {
        let log = |path: &PathBuf| super::events::of_simulation(path, spec, program, scheme);
        let events = self.events.as_ref().map(log).transpose()?;
        let perfetto = self.perfetto.as_deref().map(|path| self.trace(path)).transpose()?;
        let pages = Pages::MostMoved(usize::from(self.history_pages));
        let history = self.history.as_ref().map(|_| Shared::new(PageHistory::new(pages)));
        let names: Vec<&str> = self.series_of.iter().map(String::as_str).collect();
        let every = Span::from_nanos(1_000 * u64::from(self.series_every));
        let series = self.series.as_ref().map(|_| Series::new(spec, every, &names)).transpose()?;
        Ok(Watching { perfetto, history, series: series.map(Shared::new), events })
    }

    fn trace(&self, path: &Path) -> Result<Shared<Perfetto<BufWriter<File>>>, Failure> {
        let file = File::create(path).map_err(|source| failed(path, source))?;
        let at = |micros: u32| Time::from_nanos(1_000 * u64::from(micros));
        let until = self.perfetto_until.map_or(Time(u64::MAX), at);
        let window = Window { from: at(self.perfetto_from), until };
        let perfetto =
            Perfetto::new(BufWriter::new(file), window, Units::First(self.perfetto_units));
        Ok(Shared::new(perfetto.with_events_max(self.perfetto_events)))
    }

    /// Writes what the observers of the run have seen.
    pub(super) fn finish(&self, watching: Watching) -> Result<(), Failure> {
        if let (Some(path), Some(history)) = (&self.history, &watching.history) {
            let json = path.extension().is_some_and(|end| end == "json");
            let text = history.with(|it| if json { it.to_json() } else { it.to_string() });
            write(path, text).map_err(|source| failed(path, source))?;
        }
        if let (Some(path), Some(series)) = (&self.series, &watching.series) {
            series.with(|it| it.write(path))?;
        }
        if let Some(log) = watching.events {
            log.finish()?;
        }
        let perfetto = watching.perfetto.and_then(|shared| shared.into_inner().ok());
        if let (Some(path), Some(perfetto)) = (&self.perfetto, perfetto) {
            let (written, _) = perfetto.finish().map_err(|source| failed(path, source))?;
            if written.left_out > 0 {
                eprintln!(
                    "farside: {} has {} events; {} more are left out, see --perfetto-events",
                    path.display(),
                    written.events,
                    written.left_out
                );
            }
        }
        Ok(())
    }

    /// Writes the counters of all runs.
    pub(super) fn write_stats<'a>(
        &self,
        outcomes: impl Iterator<Item = &'a Outcome>,
    ) -> Result<(), Failure> {
        let Some(path) = &self.stats else {
            return Ok(());
        };
        let outcomes: Vec<Outcome> = outcomes.cloned().collect();
        Ok(stats::write(path, Format::of(path)?, &outcomes)?)
    }
}

impl Watching {
    /// The run with its observers.
    pub(super) fn of(&self, simulation: Simulation, page_bytes: u64) -> Simulation {
        let simulation = match &self.events {
            Some(log) => {
                let journal = log.journal(simulation.start(), page_bytes, Full::Wait);
                simulation.keep_journal(journal)
            }
            None => simulation,
        };
        let simulation = match &self.perfetto {
            Some(perfetto) => simulation.observe(Box::new(perfetto.clone())),
            None => simulation,
        };
        let simulation = match &self.history {
            Some(history) => simulation.observe(Box::new(history.clone())),
            None => simulation,
        };
        match &self.series {
            Some(series) => simulation.observe(Box::new(series.clone())),
            None => simulation,
        }
    }
}

fn failed(path: &Path, source: std::io::Error) -> StatsError {
    StatsError::Write { path: path.to_owned(), source }
}

fn ends_with(path: &Path, known: &[&str], endings: &'static str) -> Result<(), StatsError> {
    match path.extension().and_then(|end| end.to_str()) {
        Some(end) if known.contains(&end) => Ok(()),
        _ => Err(StatsError::Format { path: path.to_owned(), endings }),
    }
}
