//! A heap: a buffer lies in one piece, and is copied into one of twice the size when it is full (section 3.2).

use std::collections::HashMap;

use crate::holes::{Extent, Holes};
use crate::{Buffer, Refused, Technique};

/// Of the new size to the old one: the thesis's *d*.
const GROWN: u64 = 2;

pub(crate) struct Heap {
    memory: u64,
    holes: Holes,
    /// Where a buffer lies, and how many bytes of it are written.
    buffers: HashMap<Buffer, (Extent, u64)>,
    /// Whether the memory behind a buffer is taken where it is free.
    in_place: bool,
}

impl Heap {
    pub(crate) fn new(memory: u64, in_place: bool) -> Heap {
        Heap { memory, holes: Holes::new(memory), buffers: HashMap::new(), in_place }
    }

    /// A larger place for a buffer whose bytes are not enough; how many had to be copied.
    fn enlarge(&mut self, old: Extent, written: u64, bytes: u64) -> Result<(Extent, u64), Refused> {
        let wanted = bytes.max(GROWN * old.bytes);
        let more = wanted - old.bytes;
        if self.in_place && self.holes.behind(old.end()) >= more {
            self.holes.take_at(old.end(), more);
            return Ok((Extent { bytes: wanted, ..old }, 0));
        }
        let new = self.holes.take(wanted).ok_or(Refused)?;
        self.holes.give(old);
        Ok((new, written))
    }
}

impl Technique for Heap {
    fn grow(&mut self, buffer: Buffer, bytes: u64) -> Result<u64, Refused> {
        let (extent, copied) = match self.buffers.get(&buffer) {
            None => (self.holes.take(bytes).ok_or(Refused)?, 0),
            Some(&(old, _)) if old.bytes >= bytes => (old, 0),
            Some(&(old, written)) => self.enlarge(old, written, bytes)?,
        };
        self.buffers.insert(buffer, (extent, bytes));
        Ok(copied)
    }

    fn free(&mut self, buffer: Buffer) {
        if let Some((extent, _)) = self.buffers.remove(&buffer) {
            self.holes.give(extent);
        }
    }

    fn taken(&self) -> u64 {
        self.memory - self.holes.free()
    }

    /// The address is the place.
    fn steps(&self, _: Buffer) -> u64 {
        0
    }
}
