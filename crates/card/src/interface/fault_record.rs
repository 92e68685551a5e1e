//! Faults in the fault ring: one record for a page, several for a group.

use farside_types::{Access, Asid, FaultId, JobId, PageNo, PageRange, PeId};

use super::{DecodeError, Entry, PAGE_NUMBERS};

/// Ranges in one record that continues a group.
pub const RANGES_PER_RECORD: usize = 3;

/// The first record of a fault: words id, kind | access << 16 | PE << 32 | asid << 48, job, page,
/// count, 0, 0, 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultHead {
    /// Names the fault in `RESUME` and `CANCEL`.
    pub id: FaultId,
    /// Address space.
    pub asid: Asid,
    /// Who stands still; the first of them, if others have joined.
    pub pe: PeId,
    /// What it runs.
    pub job: JobId,
    /// What it wants.
    pub wants: FaultWants,
}

/// What a fault wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultWants {
    /// One page.
    Page(PageNo, Access),
    /// This many ranges together, in the records that follow.
    Group {
        /// Number of ranges.
        ranges: u32,
    },
}

/// One entry of the fault ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultRecord {
    /// A fault begins.
    Head(FaultHead),
    /// Up to three ranges of the group that began before: words id, kind, then page and
    /// count | access << 32 for each; a count of 0 is no range.
    Ranges(FaultId, [Option<(PageRange, Access)>; RANGES_PER_RECORD]),
}

const PAGE: u64 = 0;
const GROUP: u64 = 1;
const RANGES: u64 = 2;

fn access_code(access: Access) -> u64 {
    match access {
        Access::Read => 0,
        Access::Write => 1,
    }
}

fn access_of(code: u64) -> Option<Access> {
    match code {
        0 => Some(Access::Read),
        1 => Some(Access::Write),
        _ => None,
    }
}

impl FaultRecord {
    /// The entry.
    pub fn to_entry(&self) -> Entry {
        match *self {
            FaultRecord::Head(head) => head.to_entry(),
            FaultRecord::Ranges(id, ranges) => {
                let mut entry = [0; 8];
                entry[0] = id.0;
                entry[1] = RANGES;
                for (place, range) in entry[2..].chunks_exact_mut(2).zip(ranges) {
                    if let Some((range, access)) = range {
                        place[0] = range.start.0;
                        place[1] = range.count & 0xffff_ffff | access_code(access) << 32;
                    }
                }
                entry
            }
        }
    }

    /// The record of an entry.
    ///
    /// # Errors
    /// [`DecodeError::Word`].
    pub fn from_entry(entry: &Entry) -> Result<FaultRecord, DecodeError> {
        let wrong = |word: u8| DecodeError::Word { word, value: entry[usize::from(word)] };
        let head = entry[1];
        let access = access_of(head >> 16 & 0xffff).ok_or(wrong(1))?;
        let wants = match head & 0xffff {
            PAGE if entry[3] >= PAGE_NUMBERS => return Err(wrong(3)),
            PAGE => FaultWants::Page(PageNo(entry[3]), access),
            GROUP => {
                let ranges = u32::try_from(entry[4]).ok().filter(|&ranges| ranges > 0);
                FaultWants::Group { ranges: ranges.ok_or(wrong(4))? }
            }
            RANGES => return ranges_of(entry),
            _ => return Err(wrong(1)),
        };
        Ok(FaultRecord::Head(FaultHead {
            id: FaultId(entry[0]),
            asid: Asid((head >> 48) as u16),
            pe: PeId((head >> 32) as u16),
            job: JobId(entry[2]),
            wants,
        }))
    }
}

fn ranges_of(entry: &Entry) -> Result<FaultRecord, DecodeError> {
    let mut ranges = [None; RANGES_PER_RECORD];
    for (index, range) in ranges.iter_mut().enumerate() {
        let (page, word) = (entry[2 + 2 * index], entry[3 + 2 * index]);
        let wrong = DecodeError::Word { word: 3 + 2 * index as u8, value: word };
        let count = word & 0xffff_ffff;
        let access = access_of(word >> 32).ok_or(wrong)?;
        if page.checked_add(count).is_none_or(|end| end > PAGE_NUMBERS) {
            return Err(DecodeError::Word { word: 2 + 2 * index as u8, value: page });
        }
        if count > 0 {
            *range = Some((PageRange::new(PageNo(page), count), access));
        }
    }
    Ok(FaultRecord::Ranges(FaultId(entry[0]), ranges))
}

impl FaultHead {
    fn to_entry(self) -> Entry {
        let place = u64::from(self.pe.0) << 32 | u64::from(self.asid.0) << 48;
        let (head, page, count) = match self.wants {
            FaultWants::Page(page, access) => (PAGE | access_code(access) << 16, page.0, 1),
            FaultWants::Group { ranges } => (GROUP, 0, u64::from(ranges)),
        };
        [self.id.0, head | place, self.job.0, page, count, 0, 0, 0]
    }
}
