//! Why a functional replay cannot be set up, or stopped.

use farside_svm::placement::SchemeError;
use farside_svm::{ConfigError, RequestError};
use farside_types::CancelReason;
use thiserror::Error;

/// Why a functional replay cannot be set up, or stopped. Accesses are counted from 0.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The placement scheme.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// An option that cannot be.
    #[error("{name} is {value}, which cannot work: {why}")]
    Option {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: u64,
        /// What it must be.
        why: &'static str,
    },
    /// The driver refused the configuration.
    #[error("the driver refuses the machine: {0}")]
    Config(#[from] ConfigError),
    /// The driver refused a buffer of the workload.
    #[error("the driver refuses buffer {index} of the workload: {source}")]
    Buffer {
        /// Which, counted from 0.
        index: usize,
        /// Why.
        source: RequestError,
    },
    /// The workload accesses what it has not allocated.
    #[error(
        "access {access}: launch {launch} of {workload} accesses line {line} on GPU {gpu}, compute unit {unit}, which is in none of its buffers; correct the workload"
    )]
    Line {
        /// Which access.
        access: u64,
        /// The workload.
        workload: String,
        /// Its launch, from 0.
        launch: u32,
        /// Whose.
        gpu: u8,
        /// On which of its compute units.
        unit: u8,
        /// The line.
        line: u32,
    },
    /// The driver cancelled a fault: no access of a workload may fail.
    #[error("access {access}: GPU {gpu} cannot access page {page}: {reason}")]
    Cancelled {
        /// Which access.
        access: u64,
        /// Whose.
        gpu: u8,
        /// Its page, counted from the first of the workload.
        page: u32,
        /// Why.
        reason: CancelReason,
    },
    /// The driver broke a rule: a bug.
    #[error(
        "access {access}: {what}; this is a bug in the driver or in the scheme, please report it"
    )]
    Broken {
        /// During which access.
        access: u64,
        /// Which rule, and where.
        what: String,
    },
}
