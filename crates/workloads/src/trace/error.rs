//! Why a trace is refused, and what to do about it.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a trace is refused. Records are counted from 0.
#[derive(Debug, Error)]
pub enum TraceError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}; check that the file is there and readable")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A pipe, which cannot be read twice.
    #[error("{path} is a pipe, and a trace is read twice: write it to a file first")]
    Pipe {
        /// Which.
        path: PathBuf,
    },
    /// The description of a recording of records cannot be read.
    #[error(
        "cannot read {path}, which lies beside {of} and describes it: {source}; take both from where the trace came from"
    )]
    Beside {
        /// The description.
        path: PathBuf,
        /// The recording.
        of: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file is refused.
    #[error("{path}: {error}")]
    In {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<TraceError>,
    },
    /// The name does not tell where the description is.
    #[error(
        "{path} is compressed with zstd and not named NAME.bin.zst, as a trace that lies beside its NAME.json; what another \
         tool wrote, decompress first (zstd -d)"
    )]
    Name {
        /// The name given.
        path: PathBuf,
    },
    /// No excerpt that comes with the crate has this name.
    #[error("there is no bundled trace named {name:?}; bundled are: {}", super::Trace::BUNDLED.join(", "))]
    NotBundled {
        /// The name given.
        name: String,
    },
    /// The JSON description is malformed.
    #[error("the trace's description cannot be read: {0}; take it from where the trace came from")]
    Sidecar(#[from] serde_json::Error),
    /// The description contradicts itself.
    #[error("allocation {index} of the trace's description {why}")]
    Allocation {
        /// Which, counted from 0.
        index: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// The description's page size is not ours.
    #[error("the trace has pages of {bytes} bytes; only 4096 is supported")]
    PageSize {
        /// Its page size.
        bytes: u64,
    },
    /// The compressed stream is broken.
    #[error(
        "record {record} cannot be read, the compressed stream is broken before or in it ({source}); fetch the trace again"
    )]
    Stream {
        /// The first record that was not handed out; the damage is there or a window before it.
        record: u64,
        /// What the decoder says.
        source: std::io::Error,
    },
    /// The stream ends within a record.
    #[error("record {record}: only {bytes} of its 16 bytes are there; the trace is cut off")]
    Truncated {
        /// Which.
        record: u64,
        /// Bytes that are there.
        bytes: usize,
    },
    /// Records are missing or left over.
    #[error("the trace has {found} records and its description says {expected}; fetch both again")]
    Count {
        /// Records read.
        found: u64,
        /// Records promised.
        expected: u64,
    },
    /// A Parquet file without its end, where it says what is in it.
    #[error(
        "the Parquet file has no end: it was cut off, or never written to its end; fetch or record it again"
    )]
    CutOff,
    /// A Parquet file as a whole.
    #[error("the Parquet file cannot be used: {what}")]
    Footer {
        /// What is wrong with it.
        what: String,
    },
    /// A value of a Parquet file cannot be read, or cannot be.
    #[error("row group {row_group}, row {row}, column {column}: {what}")]
    Columns {
        /// The row group, from 0.
        row_group: usize,
        /// The row in it, from 0; values are decoded some thousand at a time, and damage that the
        /// decoder finds is somewhere from there on.
        row: u64,
        /// The column.
        column: &'static str,
        /// What is wrong.
        what: String,
    },
    /// A recording of another tool of too much.
    #[error(
        "it touches more than 16 GiB, the most that is supported; record a smaller run of the program"
    )]
    TooLarge,
    /// A recording of another tool that touches too many places.
    #[error(
        "what it touches lies in {pieces} pieces with more than 64 KiB between them, and each takes 2 MiB or more of the \
         64 GiB of addresses that are supported; put a program's addresses closer together, or record a smaller run"
    )]
    Scattered {
        /// How many.
        pieces: usize,
    },
    /// A recording of another tool without a single access to data, or an empty file.
    #[error(
        "{path} has no access to data; check how it was recorded (docs/workloads.md), and that it is not cut off"
    )]
    NoAccesses {
        /// The file.
        path: PathBuf,
    },
    /// A line of a text cannot be.
    #[error("{path}, line {line}: {why}")]
    Text {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        why: Cow<'static, str>,
    },
    /// What begins at a byte of a file, decompressed, cannot be.
    #[error("{path}, byte {byte}: {why}")]
    Byte {
        /// The file.
        path: PathBuf,
        /// The byte, from 0.
        byte: u64,
        /// What is wrong.
        why: Cow<'static, str>,
    },
    /// A file was not the same when it was read again.
    #[error("{path} has changed while it was read; read it again when nobody writes it")]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A trace cannot be written.
    #[error(transparent)]
    Write(#[from] super::TraceWriteError),
    /// A field of a record cannot be.
    #[error("record {record}: {field} is {value:#x}, {why}")]
    Record {
        /// Which.
        record: u64,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What it must be.
        why: &'static str,
    },
}

impl TraceError {
    /// Says in which file it is, if that is not said.
    pub(super) fn of(self, path: &Path) -> TraceError {
        match self {
            TraceError::Read { .. }
            | TraceError::Pipe { .. }
            | TraceError::Beside { .. }
            | TraceError::In { .. }
            | TraceError::Name { .. }
            | TraceError::NoAccesses { .. }
            | TraceError::Text { .. }
            | TraceError::Byte { .. }
            | TraceError::Changed { .. }
            | TraceError::Write(_) => self,
            error => TraceError::In { path: path.to_owned(), error: Box::new(error) },
        }
    }
}
