//! What can go wrong with a sweep as a whole. A cell that fails is no error of the sweep.

use std::path::{Path, PathBuf};

use farside_sim::SpecError;
use farside_sim::stats::StatsError;

/// Why a sweep cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The grid's file.
    #[error("{path}: {why}", path = .path.display())]
    Grid {
        /// Which.
        path: PathBuf,
        /// What is wrong, and where.
        why: String,
    },
    /// A machine that cannot be.
    #[error("{cell}: {source}")]
    Machine {
        /// The cell that has it.
        cell: String,
        /// What is wrong.
        source: SpecError,
    },
    /// A scheme, a workload or a size that cannot be.
    #[error("{cell}: {why}")]
    Cell {
        /// The cell that has it.
        cell: String,
        /// What is wrong.
        why: String,
    },
    /// A scheme's library that cannot be used, or does not want its parameters.
    #[error("{why}")]
    Scheme {
        /// What is wrong.
        why: String,
    },
    /// A grid or a trace that cannot be read.
    #[error("{path}: {source}", path = .path.display())]
    Input {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file that cannot be read or written.
    #[error("{path}: {source}", path = .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The table of results.
    #[error(transparent)]
    Table(#[from] StatsError),
    /// The table's name does not say its format.
    #[error("{path}: results are written as .json, .csv or .parquet", path = .path.display())]
    Format {
        /// The name.
        path: PathBuf,
    },
    /// The Ray cluster.
    #[error("Ray: {0}")]
    Ray(String),
}

impl SweepError {
    pub(super) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> SweepError {
        let path = path.to_owned();
        move |source| SweepError::File { path, source }
    }

    pub(super) fn input(path: &Path) -> impl FnOnce(std::io::Error) -> SweepError {
        let path = path.to_owned();
        move |source| SweepError::Input { path, source }
    }
}
