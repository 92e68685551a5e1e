//! What can be wrong with a log, and where.

use std::path::PathBuf;

/// Why a log is not written, or no further.
#[derive(Debug, thiserror::Error)]
#[error("the event log {} cannot be written: {why}{}", path.display(), missing(*lost))]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
    /// Events that are not in it.
    pub lost: u64,
}

fn missing(events: u64) -> String {
    match events {
        0 => String::new(),
        events => format!("; {events} events are not in it, what was written before can be read"),
    }
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is no event log.
    #[error("{} is no event log: {what}; `farside demo --events FILE` and FARSIDE_EVENTS=FILE write one", path.display())]
    NotOne {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// It is cut before anything of it was whole.
    #[error("{} was cut before its first row group was whole: nothing of its {bytes} bytes can be read", path.display())]
    Cut {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// It is an event log of another version.
    #[error("{} is an event log of version {found}; this release reads version {}", path.display(), crate::VERSION)]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: String,
    },
    /// Something in it cannot be.
    #[error("{}: row group {row_group}, row {row}, column {column}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The row group, from 0.
        row_group: usize,
        /// The row of it, from 0.
        row: usize,
        /// The column.
        column: &'static str,
        /// What is wrong there.
        what: String,
    },
}
