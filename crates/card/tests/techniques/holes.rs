//! The free memory of a heap: holes by where they begin, no two side by side.

use std::collections::BTreeMap;

/// A range of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    pub(crate) begin: u64,
    pub(crate) bytes: u64,
}

impl Extent {
    pub(crate) fn end(self) -> u64 {
        self.begin + self.bytes
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Holes {
    holes: BTreeMap<u64, u64>,
    free: u64,
}

impl Holes {
    pub(crate) fn new(memory: u64) -> Holes {
        Holes { holes: BTreeMap::from([(0, memory)]), free: memory }
    }

    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// So many bytes from the smallest hole that has them (best fit).
    pub(crate) fn take(&mut self, bytes: u64) -> Option<Extent> {
        let fits = self.holes.iter().filter(|&(_, &hole)| hole >= bytes);
        let (&begin, _) = fits.min_by_key(|&(_, &hole)| hole)?;
        self.take_at(begin, bytes).then_some(Extent { begin, bytes })
    }

    /// All of the largest hole, or as much of it as is wanted.
    pub(crate) fn take_some(&mut self, wanted: u64) -> Option<Extent> {
        let (&begin, &hole) = self.holes.iter().max_by_key(|&(_, &hole)| hole)?;
        let bytes = hole.min(wanted);
        self.take_at(begin, bytes).then_some(Extent { begin, bytes })
    }

    /// The bytes from `begin` on; `false`: they are not all free, or no hole begins there.
    pub(crate) fn take_at(&mut self, begin: u64, bytes: u64) -> bool {
        let Some(&hole) = self.holes.get(&begin) else { return false };
        if hole < bytes {
            return false;
        }
        self.holes.remove(&begin);
        if hole > bytes {
            self.holes.insert(begin + bytes, hole - bytes);
        }
        self.free -= bytes;
        true
    }

    /// How much is free from `begin` on.
    pub(crate) fn behind(&self, begin: u64) -> u64 {
        self.holes.get(&begin).copied().unwrap_or(0)
    }

    /// Gives an extent back. It must not be free.
    pub(crate) fn give(&mut self, mut extent: Extent) {
        self.free += extent.bytes;
        let overlaps = self.holes.range(..extent.end()).next_back();
        let before = overlaps.map(|(&begin, &bytes)| Extent { begin, bytes });
        assert!(before.is_none_or(|hole| hole.end() <= extent.begin), "{extent:?} in {before:?}");
        if let Some(behind) = self.holes.remove(&extent.end()) {
            extent.bytes += behind;
        }
        match before.filter(|hole| hole.end() == extent.begin) {
            Some(hole) => self.holes.insert(hole.begin, hole.bytes + extent.bytes),
            None => self.holes.insert(extent.begin, extent.bytes),
        };
    }
}

#[test]
fn holes_side_by_side_become_one() {
    let mut holes = Holes::new(100);
    let extents = [30, 30, 40].map(|bytes| holes.take(bytes).unwrap());
    assert_eq!((holes.free(), holes.take(1)), (0, None));
    for which in [0, 2, 1] {
        holes.give(extents[which]);
    }
    assert_eq!((holes.free(), holes.behind(0)), (100, 100));
}
