//! How a command fails: what is said, and the exit code.

use std::path::PathBuf;
use std::process::ExitCode;

use farside_cli::graph::GraphError;
use farside_cli::sweep::SweepError;
use farside_sim::SimError;
use farside_sim::functional::ReplayError;
use farside_sim::stats::StatsError;
use farside_softcard::serve::ServeError;

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
    /// The functional replay.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A card cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A file of statistics.
    #[error(transparent)]
    Stats(#[from] StatsError),
    /// A sweep.
    #[error(transparent)]
    Sweep(#[from] SweepError),
    /// The simulated cards.
    #[error(transparent)]
    Cards(#[from] farside_sim::cards::CardsError),
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
    /// Says it on standard error.
    pub(crate) fn tell(&self) {
        if !matches!(self, Failure::Told) {
            eprintln!("farside: {self}");
        }
    }

    /// See the command's help.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Farside(
                farside::Error::Setting { .. }
                | farside::Error::Scheme(_)
                | farside::Error::Cards { .. }
                | farside::Error::Kernels(_),
            )
            | Failure::Serve(ServeError::Setting { .. })
            | Failure::Graph(_)
            | Failure::Sim(
                SimError::Spec(_)
                | SimError::Trace(_)
                | SimError::Placement(_)
                | SimError::NoSuchModifier { .. }
                | SimError::Line { .. }
                | SimError::TooSmall { .. },
            )
            | Failure::Sweep(
                SweepError::Grid { .. } | SweepError::Machine { .. } | SweepError::Format { .. },
            )
            | Failure::Stats(StatsError::Format { .. } | StatsError::NoSuchName { .. })
            | Failure::Replay(
                ReplayError::Scheme(_) | ReplayError::Option { .. } | ReplayError::Line { .. },
            )
            | Failure::Usage(_) => 2,
            Failure::Differs { .. } => 3,
            Failure::Farside(_)
            | Failure::Sim(_)
            | Failure::Replay(_)
            | Failure::Serve(_)
            | Failure::Stats(_)
            | Failure::Sweep(_)
            | Failure::Cards(_)
            | Failure::Report(_)
            | Failure::InUse { .. }
            | Failure::Told
            | Failure::Output(_) => 1,
        })
    }
}
