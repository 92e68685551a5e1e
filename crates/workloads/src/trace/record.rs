//! One record: 16 bytes, little endian.
//!
//! | bytes | meaning |
//! |---|---|
//! | 0-7 | bits 0-39 virtual byte address, bits 40-63 kernel launch, counted from 1 |
//! | 8-11 | cycle, or number of the wavefront's memory instruction |
//! | 12 | GPU |
//! | 13 | compute unit |
//! | 14 | flags: 1 write, 2 scalar, 0x80 marker: not an access, the address is work-group * 256 + wavefront |
//! | 15 | bytes requested |

use super::builder::UNITS_MAX;
use super::store::{Kind, NO_GROUP};
use crate::Place;
use crate::TraceError;

/// Bytes of a record.
pub(super) const RECORD_BYTES: usize = 16;
/// Most launches of a trace; a larger number means that the record is garbage.
const LAUNCHES_MAX: u64 = 1 << 16;

const ADDRESS_BITS: u32 = 40;
const FLAG_WRITE: u8 = 0x01;
const FLAG_SCALAR: u8 = 0x02;
const FLAG_MARKER: u8 = 0x80;
const MARKER_WAVE_BITS: u32 = 8;

/// One access of a compute unit, after the coalescer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The page, counted from 0 over the trace's allocations in order.
    pub page: u32,
    /// Bytes requested, within one 64-byte line. Replay takes the whole line.
    pub bytes: u8,
    /// Whether it writes.
    pub write: bool,
}

/// A record as it is in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    word: u64,
    pub(super) sequence: u32,
    pub(super) place: Place,
    flags: u8,
}

impl Record {
    #[inline]
    pub(super) fn parse(raw: &[u8; RECORD_BYTES]) -> Record {
        let whole = u128::from_le_bytes(*raw);
        let (word, rest) = (whole as u64, (whole >> 64) as u64);
        Record {
            word,
            sequence: rest as u32,
            place: Place { gpu: (rest >> 32) as u8, unit: (rest >> 40) as u8 },
            flags: (rest >> 48) as u8,
        }
    }

    pub(super) fn is_marker(&self) -> bool {
        self.flags & FLAG_MARKER != 0
    }

    /// Byte address of an access.
    pub(super) fn address(&self) -> u64 {
        self.word & ((1 << ADDRESS_BITS) - 1)
    }

    /// Work-group and wavefront of a marker.
    pub(super) fn marked(&self) -> (u32, u16) {
        let address = self.address();
        ((address >> MARKER_WAVE_BITS) as u32, (address & ((1 << MARKER_WAVE_BITS) - 1)) as u16)
    }

    /// The launch, counted from 0.
    #[inline]
    pub(super) fn launch(&self, record: u64) -> Result<usize, TraceError> {
        check_launch(record, self.word >> ADDRESS_BITS)
    }

    #[inline]
    pub(super) fn kind(&self, record: u64) -> Result<Kind, TraceError> {
        match self.flags {
            0 => Ok(Kind::Load),
            FLAG_SCALAR => Ok(Kind::LoadScalar),
            // Scalar stores go the way of the others.
            FLAG_WRITE | 3 => Ok(Kind::Store),
            flags => {
                let value = u64::from(flags);
                let why = "only the flags 1, 2 and 0x80 are known";
                Err(TraceError::Record { record, field: "flags", value, why })
            }
        }
    }
}

/// A launch as it is written, counted from 1; gives it counted from 0.
pub(super) fn check_launch(record: u64, value: u64) -> Result<usize, TraceError> {
    if value == 0 || value > LAUNCHES_MAX {
        let why = "launches are counted from 1 to 65536";
        return Err(TraceError::Record { record, field: "launch", value, why });
    }
    Ok(value as usize - 1)
}

/// Work-groups of a marker: all but the number that means none.
pub(super) fn check_group(record: u64, group: u32) -> Result<(), TraceError> {
    if group == NO_GROUP {
        let (value, why) = (u64::from(group), "more than a launch can have");
        return Err(TraceError::Record { record, field: "work-group", value, why });
    }
    Ok(())
}

pub(super) fn check_place(record: u64, place: Place, gpus: usize) -> Result<(), TraceError> {
    if usize::from(place.gpu) >= gpus {
        let why = "more than the trace's description has";
        return Err(TraceError::Record { record, field: "GPU", value: u64::from(place.gpu), why });
    }
    if usize::from(place.unit) >= UNITS_MAX {
        let why = "compute units are counted from 0 to 63";
        return Err(TraceError::Record { record, field: "CU", value: u64::from(place.unit), why });
    }
    Ok(())
}
