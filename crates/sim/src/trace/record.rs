//! One record: 16 bytes, little endian.
//!
//! | bytes | meaning |
//! |---|---|
//! | 0-7 | bits 0-39 virtual byte address, bits 40-63 kernel launch, counted from 1 |
//! | 8-11 | cycle or sequence number; not used in replay |
//! | 12 | GPU |
//! | 13 | compute unit |
//! | 14 | flags: 1 write, 2 scalar, 0x80 marker (not an access) |
//! | 15 | bytes requested |

use super::sidecar::Layout;
use crate::TraceError;

/// Bytes of a record.
pub(super) const RECORD_BYTES: usize = 16;
/// Most compute units of a GPU that the format is used with.
const COMPUTE_UNITS_MAX: usize = 64;
/// Most launches of a trace; a larger number means that the record is garbage.
const LAUNCHES_MAX: u64 = 1 << 16;

const ADDRESS_BITS: u32 = 40;
const FLAG_WRITE: u8 = 0x01;
const FLAG_SCALAR: u8 = 0x02;
const FLAG_MARKER: u8 = 0x80;

/// One access of a compute unit, after the coalescer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The page, counted from 0 over the trace's allocations in order.
    pub page: u32,
    /// Bytes requested, within one 64-byte line.
    pub bytes: u8,
    /// Whether it writes.
    pub write: bool,
}

/// A record as it is in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    word: u64,
    pub(super) gpu: u8,
    pub(super) cu: u8,
    flags: u8,
    bytes: u8,
}

impl Record {
    pub(super) fn parse(raw: &[u8; RECORD_BYTES]) -> Record {
        let [word @ .., _, _, _, _, _, _, _, _] = *raw;
        Record {
            word: u64::from_le_bytes(word),
            gpu: raw[12],
            cu: raw[13],
            flags: raw[14],
            bytes: raw[15],
        }
    }

    pub(super) fn is_marker(&self) -> bool {
        self.flags & FLAG_MARKER != 0
    }

    /// The launch, counted from 0.
    pub(super) fn launch(&self, record: u64) -> Result<usize, TraceError> {
        let value = self.word >> ADDRESS_BITS;
        if value == 0 || value > LAUNCHES_MAX {
            let why = "launches are counted from 1 to 65536";
            return Err(TraceError::Record { record, field: "launch", value, why });
        }
        Ok(value as usize - 1)
    }

    pub(super) fn access(&self, record: u64, layout: &Layout) -> Result<Access, TraceError> {
        if self.flags & !(FLAG_WRITE | FLAG_SCALAR) != 0 {
            let value = u64::from(self.flags);
            let why = "only the flags 1, 2 and 0x80 are known";
            return Err(TraceError::Record { record, field: "flags", value, why });
        }
        let value = self.word & ((1 << ADDRESS_BITS) - 1);
        let Some(page) = layout.page_of(value) else {
            let why = "which is in no allocation of the trace's description";
            return Err(TraceError::Record { record, field: "address", value, why });
        };
        Ok(Access { page, bytes: self.bytes, write: self.flags & FLAG_WRITE != 0 })
    }
}

/// Index of a stream within a launch.
pub(super) const fn place(gpu: usize, cu: usize) -> usize {
    gpu * COMPUTE_UNITS_MAX + cu
}

pub(super) fn check_place(record: u64, gpu: u8, cu: u8, gpus: usize) -> Result<(), TraceError> {
    if usize::from(gpu) >= gpus {
        let why = "more than the trace's description has";
        return Err(TraceError::Record { record, field: "GPU", value: u64::from(gpu), why });
    }
    if usize::from(cu) >= COMPUTE_UNITS_MAX {
        let why = "compute units are counted from 0 to 63";
        return Err(TraceError::Record { record, field: "CU", value: u64::from(cu), why });
    }
    Ok(())
}

pub(super) fn check_page(record: u64, access: Access, pages: u64) -> Result<(), TraceError> {
    let value = u64::from(access.page);
    if value < pages {
        return Ok(());
    }
    Err(TraceError::Record { record, field: "page", value, why: "beyond the last allocation" })
}
