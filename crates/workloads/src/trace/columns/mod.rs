//! The compact format: Apache Parquet, a row for each run of consecutive lines of an instruction.
//! `docs/workloads.md` is the specification; the files of this folder are the writer and the reader.

mod at;
mod column;
mod describe;
mod plain;
mod read;
mod write;

#[cfg(test)]
mod foreign;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use serde::{Deserialize, Serialize};

pub(super) use describe::description;
pub(super) use plain::{PlainRows, are_plain};
pub(super) use read::read;
pub use write::{TraceRow, TraceWriteError, TraceWriter};

use super::Allocation;

/// The version of the format that is written, and the only one that is read.
pub(super) const VERSION: &str = "1";
/// First and last bytes of a Parquet file.
pub(super) const MAGIC: [u8; 4] = *b"PAR1";
/// Lines of a row, at most.
pub(super) const COUNT_MAX: u32 = 1 << 16;

/// Keys of the file's metadata.
pub(super) const KEY_VERSION: &str = "farside.trace.version";
pub(super) const KEY_DESCRIPTION: &str = "farside.trace";

/// The schema that is written. What is read may differ: see `column.rs`.
pub(super) const SCHEMA: &str = "
message farside_trace {
    required int32 launch (integer(32, false));
    required int32 gpu (integer(8, false));
    required int32 unit (integer(8, false));
    optional int32 group (integer(32, false));
    optional int32 wave (integer(16, false));
    required int32 sequence (integer(32, false));
    required int64 line (integer(64, false));
    required int32 count (integer(32, false));
    required int32 flags (integer(8, false));
    optional int64 time (integer(64, false));
}";

/// Whether a file ends as a Parquet file does.
pub(super) fn have_their_end(file: &mut File) -> std::io::Result<bool> {
    let mut end = [0; MAGIC.len()];
    let bytes = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(bytes.saturating_sub(end.len() as u64)))?;
    file.read_exact(&mut end)?;
    Ok(end == MAGIC && bytes > 2 * MAGIC.len() as u64)
}

/// Flags of a row.
pub(super) const FLAG_WRITE: u8 = 1;
pub(super) const FLAG_SCALAR: u8 = 2;

/// What the rows do not say; JSON in the file's metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceDescription {
    /// The trace's name.
    pub name: String,
    /// Bytes of a page; 4096.
    pub page_bytes: u64,
    /// GPUs that it was recorded on.
    pub gpus: u32,
    /// The column `sequence` has cycles of 1 ns, not numbers of instructions.
    pub cycles: bool,
    /// What the program allocated, in order.
    pub allocations: Vec<TraceAllocation>,
}

/// An allocation as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceAllocation {
    /// Its first byte.
    pub address: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// It was made for one GPU and stays there; false if it is not given.
    #[serde(default)]
    pub pinned: bool,
}

impl From<&Allocation> for TraceAllocation {
    fn from(allocation: &Allocation) -> TraceAllocation {
        let &Allocation { address, bytes, pinned, .. } = allocation;
        TraceAllocation { address, bytes, pinned }
    }
}
