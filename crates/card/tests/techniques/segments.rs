//! Segments: a buffer is a list of extents, each in one piece (section 3.3).

use std::collections::HashMap;

use crate::holes::{Extent, Holes};
use crate::{Buffer, MIB, Refused, Technique};

/// What a buffer gets at the least, so that not each write asks for an extent.
const PORTION: u64 = 4 * MIB;

pub(crate) struct Segments {
    memory: u64,
    holes: Holes,
    buffers: HashMap<Buffer, Vec<Extent>>,
}

impl Segments {
    pub(crate) fn new(memory: u64) -> Segments {
        Segments { memory, holes: Holes::new(memory), buffers: HashMap::new() }
    }
}

impl Technique for Segments {
    fn grow(&mut self, buffer: Buffer, bytes: u64) -> Result<u64, Refused> {
        let extents = self.buffers.entry(buffer).or_default();
        let had: u64 = extents.iter().map(|extent| extent.bytes).sum();
        let mut missing = bytes.next_multiple_of(PORTION).saturating_sub(had);
        if missing > self.holes.free() {
            return Err(Refused);
        }
        // Behind the last extent, in one piece, and at last in as few as there are.
        if let Some(last) = extents.last_mut() {
            let more = self.holes.behind(last.end()).min(missing);
            if more > 0 && self.holes.take_at(last.end(), more) {
                last.bytes += more;
                missing -= more;
            }
        }
        while missing > 0 {
            let found = self.holes.take(missing).or_else(|| self.holes.take_some(missing));
            let extent = found.ok_or(Refused)?;
            missing -= extent.bytes;
            extents.push(extent);
        }
        Ok(0)
    }

    fn free(&mut self, buffer: Buffer) {
        for extent in self.buffers.remove(&buffer).into_iter().flatten() {
            self.holes.give(extent);
        }
    }

    fn taken(&self) -> u64 {
        self.memory - self.holes.free()
    }

    /// A binary search of the extents.
    fn steps(&self, buffer: Buffer) -> u64 {
        let extents = self.buffers.get(&buffer).map_or(0, Vec::len) as u64;
        u64::from(u64::BITS - extents.saturating_sub(1).leading_zeros())
    }
}
