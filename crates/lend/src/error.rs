//! What can go wrong on this side of a peer.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::config::ConfigError;
use crate::pki::PkiError;

/// Why the daemon, or a command that talks to it, cannot go on.
#[derive(Debug, Error)]
pub enum LendError {
    /// No folder for this host's daemon.
    #[error("there is no folder for what the lending daemon keeps: set HOME, or FARSIDE_LEND_HOME")]
    NoHome,
    /// A file or folder.
    #[error("{path}: {error}", path = .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Keys and certificates.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// What the administrators have written.
    #[error("{0}; the lending daemon does not start with it: mend it, or take it away")]
    Config(#[from] ConfigError),
    /// Another daemon serves this host.
    #[error("a lending daemon serves this host already (its lock is {path})", path = .path.display())]
    Served {
        /// The lock it holds.
        path: PathBuf,
    },
    /// It does not start.
    #[error("the lending daemon does not start; its log is {log}: {why}", log = .log.display())]
    NotStarted {
        /// What it said.
        log: PathBuf,
        /// The last line of it.
        why: String,
    },
    /// A daemon says no, or cannot be reached.
    #[error("{0}")]
    Refused(String),
    /// The system.
    #[error("{what}: {error}")]
    System {
        /// What was to be done.
        what: &'static str,
        /// Why it cannot be.
        error: io::Error,
    },
}

impl LendError {
    pub(crate) fn file(path: &Path, error: io::Error) -> LendError {
        LendError::File { path: path.to_owned(), error }
    }

    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> LendError {
        move |error| LendError::System { what, error }
    }
}

impl From<tonic::Status> for LendError {
    fn from(status: tonic::Status) -> LendError {
        LendError::Refused(status.message().to_owned())
    }
}
