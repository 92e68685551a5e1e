//! How a command fails: what is said, and the exit code.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use farside_cli::graph::GraphError;
use farside_cli::own_scheme::SchemeFailure;
use farside_cli::sweep::SweepError;
use farside_sim::SimError;
use farside_sim::functional::ReplayError;
use farside_sim::stats::StatsError;
use farside_softcard::serve::ServeError;

use super::log::say;
use super::text::paragraph;
use crate::workloads::Difference;

/// Why a command did not end well.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A setting or a kernel.
    #[error(transparent)]
    Farside(#[from] farside::Error),
    /// The graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The simulator.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// A placement scheme.
    #[error(transparent)]
    Scheme(#[from] SchemeFailure),
    /// The functional replay.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A card cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The lending daemon, or what it says.
    #[error(transparent)]
    Lend(#[from] farside_lend::LendError),
    /// Something that is measured.
    #[error(transparent)]
    Bench(#[from] crate::bench::BenchError),
    /// A file of statistics.
    #[error(transparent)]
    Stats(#[from] StatsError),
    /// A sweep.
    #[error(transparent)]
    Sweep(#[from] SweepError),
    /// The simulated cards.
    #[error(transparent)]
    Cards(#[from] farside_sim::cards::CardsError),
    /// An event log that is not written.
    #[error(transparent)]
    EventLog(#[from] farside_events::WriteError),
    /// An event log that cannot be read.
    #[error(transparent)]
    Events(#[from] farside_events::ReadError),
    /// A report.
    #[error(transparent)]
    Report(#[from] farside_cli::reproduce::ReportError),
    /// Another process serves a card there.
    #[error(
        "{folder} is in use: process {pid} serves card {card} there; end it, or choose another \
         folder",
        folder = .folder.display()
    )]
    InUse {
        /// Where.
        folder: PathBuf,
        /// The number of its card.
        card: u32,
        /// The process.
        pid: u32,
    },
    /// An input or an option that cannot be used.
    #[error("{0}")]
    Usage(String),
    /// Such an option, and what may be meant.
    #[error("{failure}; did you mean `{nearest}`?")]
    Near {
        /// What cannot be used.
        failure: Box<Failure>,
        /// A name that can.
        nearest: String,
    },
    /// A file that cannot be written.
    #[error("{path}: {source}", path = .path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A result is wrong.
    #[error(
        "{workload}, {mode}: {difference}; this is a bug in Farside, please report it with the \
         command line"
    )]
    Differs {
        /// What was computed.
        workload: &'static str,
        /// Who moved the pages.
        mode: &'static str,
        /// What differs.
        difference: Difference,
    },
    /// All has been said already.
    #[error("")]
    Told,
    /// The result cannot be written.
    #[error("cannot write the result: {0}")]
    Output(std::io::Error),
}

impl Failure {
    /// Says it on standard error: to people in lines that fit a screen, to programs in one.
    pub(crate) fn print(&self) {
        if matches!(self, Failure::Told) {
            return;
        }
        let line = format!("farside: {self}");
        let people = std::io::stderr().is_terminal();
        say(if people { paragraph("", &line) } else { line }.trim_end());
    }

    /// The same with the name that may be meant instead of `given`, if there is one like it.
    pub(crate) fn near<'a>(self, given: &str, known: impl IntoIterator<Item = &'a str>) -> Failure {
        match farside::nearest(given, known) {
            Some(nearest) => Failure::Near { failure: self.into(), nearest: nearest.to_owned() },
            None => self,
        }
    }

    /// See the command's help.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    fn code(&self) -> u8 {
        match self {
            Failure::Near { failure, .. } => failure.code(),
            // As if it were not of a scheme.
            Failure::Scheme(SchemeFailure::BuiltIn(error)) => sim_code(error),
            Failure::Farside(
                farside::Error::Setting { .. }
                | farside::Error::Scheme(_)
                | farside::Error::SchemeLibrary(_)
                | farside::Error::Cards { .. }
                | farside::Error::Kernels(_),
            )
            | Failure::Serve(ServeError::Setting { .. })
            | Failure::Graph(_)
            | Failure::Scheme(SchemeFailure::Library(_))
            | Failure::Sweep(
                SweepError::Grid { .. }
                | SweepError::Machine { .. }
                | SweepError::Cell { .. }
                | SweepError::Scheme { .. }
                | SweepError::Input { .. }
                | SweepError::Format { .. },
            )
            | Failure::Stats(StatsError::Format { .. } | StatsError::NoSuchName { .. })
            | Failure::Replay(
                ReplayError::Scheme(_)
                | ReplayError::Option { .. }
                | ReplayError::Line { .. }
                | ReplayError::Config(_)
                | ReplayError::Buffer { .. },
            )
            | Failure::Events(_)
            | Failure::Usage(_) => 2,
            Failure::Differs { .. } => 3,
            Failure::Sim(error) => sim_code(error),
            Failure::Farside(_)
            | Failure::Scheme(SchemeFailure::Nonsense { .. })
            | Failure::Replay(_)
            | Failure::Serve(_)
            | Failure::Lend(_)
            | Failure::Bench(_)
            | Failure::Stats(_)
            | Failure::Sweep(_)
            | Failure::Cards(_)
            | Failure::Report(_)
            | Failure::EventLog(_)
            | Failure::InUse { .. }
            | Failure::Write { .. }
            | Failure::Told
            | Failure::Output(_) => 1,
        }
    }
}

fn sim_code(error: &SimError) -> u8 {
    match error {
        SimError::Spec(_)
        | SimError::Trace(_)
        | SimError::Placement(_)
        | SimError::NoSuchModifier { .. }
        | SimError::Line { .. }
        | SimError::TooSmall { .. }
        | SimError::State(_)
        | SimError::Config(_)
        | SimError::Allocation { .. } => 2,
        SimError::Cancelled { .. } | SimError::Stuck { .. } | SimError::Broken { .. } => 1,
    }
}
