//! Finding a log's last footer: at the end of a whole file, earlier in one that was cut.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};

/// First and last bytes of a Parquet file.
const MAGIC: [u8; 4] = *b"PAR1";
/// The length of a footer, and the magic bytes behind it.
const TAIL: u64 = 8;
/// Bytes that are looked through at a time.
const STRIDE: u64 = 1 << 16;

/// The first bytes of a file that end with a footer.
pub(crate) struct Whole {
    file: File,
    bytes: u64,
}

/// Whether a file begins as a Parquet file does.
pub(crate) fn begins_well(file: &File) -> io::Result<bool> {
    let mut magic = [0; 4];
    match file.read_exact_at(&mut magic, 0) {
        Ok(()) => Ok(magic == MAGIC),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Looks from the end of a file backwards for a footer, and gives where it ends; nothing if there is none.
pub(crate) fn last_footer(file: &File, bytes: u64) -> io::Result<Option<u64>> {
    // Blocks overlap, so that no magic bytes lie across two of them.
    let mut end = bytes;
    while end >= TAIL + MAGIC.len() as u64 {
        let start = end.saturating_sub(STRIDE);
        let mut block = vec![0; (end - start) as usize];
        file.read_exact_at(&mut block, start)?;
        let places = block.windows(4).enumerate().rev().filter(|(_, it)| **it == MAGIC);
        for (place, _) in places {
            let end = start + place as u64 + 4;
            if is_footer(file, end)? {
                return Ok(Some(end));
            }
        }
        if start == 0 {
            break;
        }
        end = start + MAGIC.len() as u64 - 1;
    }
    Ok(None)
}

/// Whether a footer that can be decoded ends here.
fn is_footer(file: &File, end: u64) -> io::Result<bool> {
    let Some(at) = end.checked_sub(TAIL).filter(|&at| at > MAGIC.len() as u64) else {
        return Ok(false);
    };
    let mut length = [0; 4];
    file.read_exact_at(&mut length, at)?;
    let length = u64::from(u32::from_le_bytes(length));
    let Some(start) = at.checked_sub(length).filter(|&at| at >= MAGIC.len() as u64 && length > 0)
    else {
        return Ok(false);
    };
    let mut footer = vec![0; length as usize];
    file.read_exact_at(&mut footer, start)?;
    let usable = || {
        let decoded = ParquetMetaDataReader::decode_metadata(&footer);
        decoded.is_ok_and(|it| lies_before(&it, start))
    };
    // What only looks like a footer may be anything; the Parquet library panics at some of it.
    Ok(catch_unwind(AssertUnwindSafe(usable)).unwrap_or(false))
}

/// Whether all that a footer tells of lies before it.
fn lies_before(metadata: &ParquetMetaData, footer: u64) -> bool {
    let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    columns
        .map(|column| column.byte_range())
        .all(|(start, length)| start.checked_add(length).is_some_and(|end| end <= footer))
}

impl Whole {
    pub(crate) fn new(file: File, bytes: u64) -> Whole {
        Whole { file, bytes }
    }
}

impl Length for Whole {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for Whole {
    type T = At;

    fn get_read(&self, start: u64) -> Result<At, ParquetError> {
        let left = self.bytes.saturating_sub(start);
        Ok(At { file: self.file.try_clone()?, at: start, left })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<bytes::Bytes, ParquetError> {
        let beyond = start.checked_add(length as u64).is_none_or(|end| end > self.bytes);
        if beyond {
            let what = format!("bytes {start} to {start}+{length} of {}", self.bytes);
            return Err(ParquetError::EOF(what));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// Reads on from a place.
pub(crate) struct At {
    file: File,
    at: u64,
    left: u64,
}

impl Read for At {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let room = into.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut into[..room], self.at)?;
        (self.at, self.left) = (self.at + read as u64, self.left - read as u64);
        Ok(read)
    }
}
