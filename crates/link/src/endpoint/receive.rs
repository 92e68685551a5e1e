//! What arrives: a buffer that the connection is read into, and frames cut from it in their order, each
//! once.

use std::ops::Range;

use super::send::account;
use crate::control::{Amounts, lengths};
use crate::error::Violation;
use crate::frame::{Class, DATA_BYTES_MAX, Kind};
use crate::mutation::{Mutation, on};
use crate::wire::{HEADER_BYTES, Header};

/// Bytes that are read at a time: a few pieces of bulk.
const BUFFER_BYTES: usize = 256 << 10;
/// Room that there is for reading at least.
const SPACE_BYTES_MIN: usize = HEADER_BYTES + DATA_BYTES_MAX;

/// A frame in the buffer.
pub(super) struct Cut {
    pub(super) header: Header,
    pub(super) payload: Range<usize>,
}

/// See the module.
pub(super) struct Receiver {
    buffer: Vec<u8>,
    filled: Range<usize>,
    /// The frame that has to come next.
    pub(super) expected: u64,
    /// What the other end was last told of that.
    pub(super) told: u64,
    limits: Amounts,
    came: Amounts,
    done: Amounts,
    announced: Amounts,
}

impl Receiver {
    pub(super) fn new(limits: Amounts) -> Receiver {
        Receiver {
            buffer: vec![0; BUFFER_BYTES],
            filled: 0..0,
            expected: 0,
            told: 0,
            limits,
            came: Amounts::default(),
            done: Amounts::default(),
            announced: Amounts::default(),
        }
    }

    /// Room for what the connection brings; not empty when every event has been taken.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.filled.is_empty() {
            self.filled = 0..0;
        }
        if self.buffer.len() - self.filled.end < SPACE_BYTES_MIN {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        &mut self.buffer[self.filled.end..]
    }

    pub(super) fn filled(&mut self, bytes: usize) {
        self.filled.end = (self.filled.end + bytes).min(self.buffer.len());
    }

    /// A new connection: what of a frame has come is void, its whole comes again.
    pub(super) fn begin(&mut self) {
        self.filled = 0..0;
    }

    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// The next frame that is there as a whole.
    pub(super) fn cut(&mut self) -> Result<Option<Cut>, Violation> {
        let there = &self.buffer[self.filled.clone()];
        let Some(header) = there.first_chunk() else { return Ok(None) };
        let header = Header::decode(header).ok_or(Violation::Header)?;
        let Header { kind, length, .. } = header;
        let (least, most) = match Kind::decode(kind) {
            Some(kind) => {
                let data = if kind.has_data() { DATA_BYTES_MAX } else { 0 };
                (kind.field_bytes(), kind.field_bytes() + data)
            }
            None => lengths(kind).ok_or(Violation::UnknownKind(kind))?,
        };
        if !(least..=most).contains(&(length as usize)) {
            return Err(Violation::Length { kind, length });
        }
        let bytes = HEADER_BYTES + length as usize;
        if there.len() < bytes {
            return Ok(None);
        }
        let start = self.filled.start;
        self.filled.start += bytes;
        Ok(Some(Cut { header, payload: start + HEADER_BYTES..start + bytes }))
    }

    /// Whether a frame with this number is handed on: one that came before is not.
    pub(super) fn is_next(&mut self, sequence: u64) -> Result<bool, Violation> {
        if sequence == self.expected {
            self.expected += 1;
            return Ok(true);
        }
        if sequence < self.expected {
            return Ok(on(Mutation::KeepDuplicates));
        }
        Err(Violation::Gap { expected: self.expected, got: sequence })
    }

    /// Counts a frame that has come against what its sender may.
    pub(super) fn count(&mut self, class: Class, bytes: usize) -> Result<(), Violation> {
        let at = account(class);
        let limit = self.announced[at];
        if !self.came[at].has_room(bytes as u64, limit) && !on(Mutation::KeepDuplicates) {
            return Err(Violation::Credit(class));
        }
        self.came[at].add(bytes as u64);
        Ok(())
    }

    /// A frame that has come takes no room any more.
    pub(super) fn done(&mut self, class: Class, bytes: usize) {
        self.done[account(class)].add(bytes as u64);
    }

    /// What the other end may send, since the link began.
    fn grants(&self) -> Amounts {
        std::array::from_fn(|at| self.done[at].saturating_add(self.limits[at]))
    }

    /// Whether the other end should hear of what it may send: a quarter of what it may at a time.
    pub(super) fn has_news(&self) -> bool {
        let grants = self.grants();
        (0..grants.len()).any(|at| {
            let (new, old, limit) = (grants[at], self.announced[at], self.limits[at]);
            let news = |new: u64, old: u64, limit: u64| new > old && (new - old) * 4 >= limit;
            news(new.frames, old.frames, limit.frames) || news(new.bytes, old.bytes, limit.bytes)
        })
    }

    /// What to tell the other end, which is now told.
    pub(super) fn announce(&mut self) -> Amounts {
        self.announced = self.grants();
        self.announced
    }
}
