//! Records as bytes: each has its length, a checksum of the length, its payload, and a checksum of
//! that.
//!
//! The length has its own checksum so that a damaged one in the middle is never taken for a record
//! that the end of the file cut off.

use super::Record;

/// Length (4 bytes, little endian) and its checksum.
const HEAD: usize = 8;

/// Checksum behind the payload.
const TAIL: usize = 4;

/// The longest payload: a grant of 16 devices with the longest names takes less.
const PAYLOAD_MAX: usize = 4096;

/// What a file begins with.
pub(super) const MAGIC: &[u8; 8] = b"FSLEASE1";

/// Why a ledger is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LedgerError {
    /// it is no ledger
    #[error(
        "this is no ledger of leases, version 1: move it away, or use the Farside that wrote it"
    )]
    NotALedger,
    /// its first record is missing
    #[error(
        "the ledger has no first record (byte {offset}): move it away and wait one lease before lending again"
    )]
    NoBeginning {
        /// Where it should be.
        offset: usize,
    },
    /// it is damaged before its end
    #[error(
        "the ledger is damaged at byte {offset} ({what}), and more follows: restore it, or move it away and wait one lease before lending again"
    )]
    Damaged {
        /// Where the record begins that cannot be read.
        offset: usize,
        /// What about it.
        what: &'static str,
    },
}

/// The bytes of records. A file is what [`super::Ledger::bytes`] makes of its first ones.
pub(super) fn encode(records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(Record::Begun { .. }) = records.first() {
        bytes.extend_from_slice(MAGIC);
    }
    for record in records {
        let payload = postcard::to_extend(record, Vec::new()).expect("a record is plain data");
        let length = u32::try_from(payload.len()).expect("a record is short").to_le_bytes();
        bytes.extend_from_slice(&length);
        bytes.extend_from_slice(&crc32fast::hash(&length).to_le_bytes());
        bytes.extend_from_slice(&payload);
        bytes.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
    }
    bytes
}

/// A record, and where it begins.
type Found = (usize, Record);

/// All records with their places, and whether the end is torn.
pub(super) fn decode(bytes: &[u8]) -> Result<(Vec<Found>, bool), LedgerError> {
    if bytes.get(..MAGIC.len()) != Some(MAGIC) {
        return Err(LedgerError::NotALedger);
    }
    let mut records = Vec::new();
    let mut offset = MAGIC.len();
    while offset < bytes.len() {
        match one(&bytes[offset..]) {
            Ok((record, length)) => {
                records.push((offset, record));
                offset += length;
            }
            Err(Bad::Torn) => return Ok((records, true)),
            Err(Bad::Damaged(what)) => return Err(LedgerError::Damaged { offset, what }),
        }
    }
    Ok((records, false))
}

/// What is wrong with a record.
enum Bad {
    /// It is the last one, and a crash cut it off.
    Torn,
    Damaged(&'static str),
}

/// The record that `rest` begins with, and how many bytes it takes.
fn one(rest: &[u8]) -> Result<(Record, usize), Bad> {
    // A file system that had made the file longer and not written the bytes yet leaves zeros.
    if rest.len() < HEAD || rest.iter().all(|byte| *byte == 0) {
        return Err(Bad::Torn);
    }
    let length = word(rest, 0);
    if crc32fast::hash(&length.to_le_bytes()) != word(rest, 4) {
        return Err(Bad::Damaged("the length of a record"));
    }
    let length = length as usize;
    if length > PAYLOAD_MAX {
        return Err(Bad::Damaged("a record too long"));
    }
    let end = HEAD + length + TAIL;
    if rest.len() < end {
        return Err(Bad::Torn);
    }
    let payload = &rest[HEAD..HEAD + length];
    if crc32fast::hash(payload) != word(rest, HEAD + length) {
        let last = rest[end..].iter().all(|byte| *byte == 0);
        return Err(if last { Bad::Torn } else { Bad::Damaged("a record's checksum") });
    }
    match postcard::take_from_bytes(payload) {
        Ok((record, [])) => Ok((record, end)),
        _ => Err(Bad::Damaged("a record of another version")),
    }
}

/// The four bytes at `at`, which are there.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
