//! Decompression: zstd frames in, whole records out, without holding the stream in memory.

use std::io::{Error, Read};

use super::record::RECORD_BYTES;
use crate::TraceError;

/// Bytes decompressed at a time: fits into a first or second level cache.
const CHUNK_BYTES: usize = 128 << 10;

/// Hands every record to `take` with its number; returns how many there were. A file may consist
/// of several frames.
pub(super) fn records(
    stream: impl Read,
    take: impl FnMut(u64, &[u8; RECORD_BYTES]) -> Result<(), TraceError>,
) -> Result<u64, TraceError> {
    let mut records = Records { take, count: 0, chunk: vec![0; CHUNK_BYTES], filled: 0 };
    let mut decoder = records.io(zstd::stream::read::Decoder::new(stream))?;
    while records.fill(&mut decoder)? {}
    match records.filled {
        0 => Ok(records.count),
        bytes => Err(TraceError::Truncated { record: records.count, bytes }),
    }
}

/// Cuts what is decompressed into records.
struct Records<F> {
    take: F,
    count: u64,
    chunk: Vec<u8>,
    /// Bytes at the start of `chunk` that belong to a record of which more is to come.
    filled: usize,
}

impl<F: FnMut(u64, &[u8; RECORD_BYTES]) -> Result<(), TraceError>> Records<F> {
    fn io<T>(&self, result: Result<T, Error>) -> Result<T, TraceError> {
        result.map_err(|source| TraceError::Stream { record: self.count, source })
    }

    /// Reads on; `false` at the end of the stream.
    fn fill(&mut self, stream: &mut impl Read) -> Result<bool, TraceError> {
        let read = stream.read(&mut self.chunk[self.filled..]);
        let read = self.io(read)?;
        let end = self.filled + read;
        let mut whole = self.chunk[..end].chunks_exact(RECORD_BYTES);
        for raw in &mut whole {
            let mut record = [0; RECORD_BYTES];
            record.copy_from_slice(raw);
            (self.take)(self.count, &record)?;
            self.count += 1;
        }
        self.filled = whole.remainder().len();
        self.chunk.copy_within(end - self.filled..end, 0);
        Ok(read != 0)
    }
}
