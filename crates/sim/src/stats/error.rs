//! Why statistics cannot be written.

use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use thiserror::Error;

/// Why statistics cannot be written.
#[derive(Debug, Error)]
pub enum StatsError {
    /// The name does not tell the format.
    #[error("{path} does not say its format; end its name with {endings}")]
    Format {
        /// The name given.
        path: PathBuf,
        /// What it may end with.
        endings: &'static str,
    },
    /// The file cannot be written.
    #[error("cannot write {path}: {source}; check that its folder is there and has room")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The Parquet file cannot be written.
    #[error("cannot write {path} as Parquet: {source}; check that its folder has room")]
    Parquet {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: ParquetError,
    },
    /// No statistic has this name.
    #[error("there is no statistic named {name:?}; docs/statistics.md lists them")]
    NoSuchName {
        /// The name given.
        name: String,
    },
}

impl StatsError {
    pub(crate) fn format(path: &Path, endings: &'static str) -> StatsError {
        StatsError::Format { path: path.to_owned(), endings }
    }

    pub(crate) fn write(path: &Path, source: std::io::Error) -> StatsError {
        StatsError::Write { path: path.to_owned(), source }
    }
}
