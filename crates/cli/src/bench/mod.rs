//! `farside bench`: each promised number beside the limit it is measured against, in one run.
//!
//! A time is a ratio of medians, to something that is measured in the same run, so that this machine's
//! speed cancels out: a copy of a page, a bare call, a load that misses every cache, a plain thread. What
//! is counted (calls, moves, bytes of a table) is promised as a number. Threads are pinned: the program to
//! one processor, those who answer its faults to another.

pub(crate) mod against;
mod cache_miss;
mod card_process;
mod counts;
mod driver;
mod events;
mod far;
mod far_steps;
mod faults;
mod files;
mod lend;
mod migrate;
mod moves;
mod own;
mod own_scheme;
mod programs;
mod raw;
mod schemes;
mod steps;
mod stream;
mod words;

use std::borrow::Cow;
use std::time::{Duration, Instant};

use farside_cli::reproduce::Report;
use serde::{Deserialize, Serialize};

use counts::Counts;
pub(crate) use schemes::Standing;

/// One promised number.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// What is measured.
    pub(crate) name: Cow<'static, str>,
    /// What Farside reached; nothing if it was not measured.
    pub(crate) reached: Option<f64>,
    /// What was promised.
    pub(crate) target: Target,
    /// What the number means: `x` a ratio to what follows, or what was counted.
    pub(crate) unit: &'static str,
    /// What it was compared with, and both sides in absolute terms; or why it was not measured.
    pub(crate) detail: String,
    /// Whether the promise is kept in this run; nothing if it was not measured.
    pub(crate) kept: Option<bool>,
    /// What the driver counted meanwhile; nothing where no driver was there.
    pub(crate) counts: Counts,
    /// All that took part, where several schemes did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) standings: Vec<Standing>,
}

/// A promise.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Target {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

impl Row {
    pub(crate) fn new(
        name: impl Into<Cow<'static, str>>,
        reached: f64,
        target: Target,
        unit: &'static str,
        detail: String,
    ) -> Row {
        let kept = match target {
            Target::AtMost(most) => reached <= most,
            Target::AtLeast(least) => reached >= least,
        };
        let name = name.into();
        let (reached, kept, counts) = (Some(reached), Some(kept), Counts::default());
        Row { name, reached, target, unit, detail, kept, counts, standings: Vec::new() }
    }

    /// A row that this machine cannot measure, and why.
    pub(crate) fn not_measured(
        name: impl Into<Cow<'static, str>>,
        target: Target,
        unit: &'static str,
        why: String,
    ) -> Row {
        let name = name.into();
        let (reached, kept, counts) = (None, None, Counts::default());
        Row { name, reached, target, unit, detail: why, kept, counts, standings: Vec::new() }
    }

    /// The same row with what was counted while it was measured.
    pub(crate) fn counting(mut self, counts: Counts) -> Row {
        self.counts = counts;
        self
    }

    /// The same row with all that took part.
    pub(crate) fn beside(mut self, standings: Vec<Standing>) -> Row {
        self.standings = standings;
        self
    }
}

/// A group of numbers that are measured together.
pub(crate) struct Bench {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// Measures.
    pub(crate) run: fn(Effort) -> Result<Outcome, BenchError>,
}

/// What a group gives.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The promised numbers.
    pub(crate) rows: Vec<Row>,
    /// What else there is to see: tables for a terminal.
    pub(crate) text: String,
    /// The same with figures, for files and programs.
    pub(crate) report: Option<Report>,
}

impl From<Vec<Row>> for Outcome {
    fn from(rows: Vec<Row>) -> Outcome {
        Outcome { rows, ..Outcome::default() }
    }
}

/// Why something cannot be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// A space or a kernel.
    #[error(transparent)]
    Farside(#[from] farside::Error),
    /// A card.
    #[error(transparent)]
    Live(#[from] farside::LiveError),
    /// What is asked of a card.
    #[error(transparent)]
    Card(#[from] farside_live::TransportError),
    /// A lending daemon, or what it says.
    #[error(transparent)]
    Lend(#[from] farside_lend::LendError),
    /// The graph.
    #[error(transparent)]
    Graph(#[from] farside_cli::graph::GraphError),
    /// An event log that is not written.
    #[error(transparent)]
    EventLog(#[from] farside_events::WriteError),
    /// An event log that cannot be read.
    #[error(transparent)]
    Events(#[from] farside_events::ReadError),
    /// The system.
    #[error("measuring failed: {0}")]
    Io(#[from] std::io::Error),
    /// Something that is measured does not do what it is there for.
    #[error("measuring failed: {0}")]
    Failed(String),
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Samples per number.
    pub(crate) samples: usize,
}

/// All groups.
pub(crate) const ALL: [Bench; 14] = [
    Bench { name: "faults", run: |effort| Ok(faults::run(effort)?.into()) },
    Bench { name: "moves", run: |effort| Ok(moves::run(effort)?.into()) },
    Bench { name: "migrate", run: migrate::run },
    Bench { name: "stream", run: |effort| Ok(stream::run(effort)?.into()) },
    Bench { name: "words", run: |effort| Ok(words::run(effort)?.into()) },
    Bench { name: "own", run: |effort| Ok(own::run(effort)?.into()) },
    Bench { name: "programs", run: |effort| Ok(programs::run(effort)?.into()) },
    Bench { name: "schemes", run: schemes::run },
    Bench { name: "own-scheme", run: |effort| Ok(own_scheme::run(effort)?.into()) },
    Bench { name: "driver", run: |effort| Ok(driver::run(effort)?.into()) },
    Bench { name: "events", run: |effort| Ok(events::run(effort)?.into()) },
    Bench { name: "files", run: |effort| Ok(files::run(effort)?.into()) },
    Bench { name: "far", run: |effort| Ok(far::run(effort)?.into()) },
    Bench { name: "lend", run: |effort| Ok(lend::run(effort)?.into()) },
];

/// The median; the samples are not empty.
pub(crate) fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Seconds that `body` takes.
pub(crate) fn timed(body: impl FnOnce()) -> f64 {
    let start = Instant::now();
    body();
    start.elapsed().as_secs_f64()
}

/// Processor time of the whole process that `body` takes, in seconds.
pub(crate) fn processor_time(body: impl FnOnce()) -> f64 {
    let before = process_clock();
    body();
    (process_clock() - before).as_secs_f64()
}

fn process_clock() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Two processors to pin to: the program's, and that of those who serve it.
pub(crate) fn two_cpus() -> (usize, usize) {
    let cpus = farside_linux::affinity::allowed_cpus();
    let first = cpus.first().copied().unwrap_or(0);
    (cpus.get(1).copied().unwrap_or(first), first)
}

/// Pins the calling thread; new threads inherit it. Where the kernel forbids it, it says so once.
pub(crate) fn pin(cpu: usize) -> Option<farside_linux::affinity::Pinned> {
    match farside_linux::affinity::pin(cpu) {
        Ok(pinned) => Some(pinned),
        Err(error) => {
            eprintln!("farside bench: {error}; numbers will be noisy");
            None
        }
    }
}
