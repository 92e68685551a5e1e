//! Why statistics cannot be written.

use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use thiserror::Error;

/// Why statistics cannot be written.
#[derive(Debug, Error)]
pub enum StatsError {
    /// The name does not tell the format.
    #[error("{path} does not say its format; end its name with .txt, .json or .parquet")]
    Format {
        /// The name given.
        path: PathBuf,
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
    pub(crate) fn write(path: &Path, source: std::io::Error) -> StatsError {
        StatsError::Write { path: path.to_owned(), source }
    }
}
