//! The DMA maps of one client: which addresses it has shared, with which rights.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use crate::errno::Errno;

/// A range of the client's DMA addresses that the device may use from now on.
#[derive(Debug)]
pub struct DmaMap {
    /// First DMA address.
    pub address: u64,
    /// Bytes, not 0.
    pub size: u64,
    /// Whether the device may read it.
    pub readable: bool,
    /// Whether the device may write it.
    pub writable: bool,
    /// The memory, to be mapped at `offset`. Without it the range is reached by messages only.
    pub fd: Option<OwnedFd>,
    /// Where the range begins in `fd`, in bytes.
    pub offset: u64,
}

/// What the device may no longer use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaUnmap {
    /// Every map that lies in this range: several, one, or none. No map lies in it partly.
    Range {
        /// First DMA address.
        address: u64,
        /// Bytes.
        size: u64,
    },
    /// Every map.
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) size: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

#[derive(Default)]
pub(crate) struct Maps {
    extents: BTreeMap<u64, Extent>,
}

impl Maps {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Extent)> + '_ {
        self.extents.iter().map(|(&address, &extent)| (address, extent))
    }

    pub(crate) fn insert(&mut self, address: u64, extent: Extent, limit: u32) -> Result<(), Errno> {
        let last = extent.size.checked_sub(1).and_then(|rest| address.checked_add(rest));
        let Some(last) = last else { return Err(Errno::INVAL) };
        let below = self.extents.range(..=last).next_back();
        if below.is_some_and(|(&start, other)| start + (other.size - 1) >= address) {
            return Err(Errno::EXIST);
        }
        if self.extents.len() >= limit as usize {
            return Err(Errno::NOSPC);
        }
        self.extents.insert(address, extent);
        Ok(())
    }

    /// Takes out the map that was made with exactly this range.
    pub(crate) fn remove(&mut self, address: u64, size: u64) -> Result<Extent, Errno> {
        match self.extents.get(&address) {
            Some(extent) if extent.size == size => {
                let extent = *extent;
                self.extents.remove(&address);
                Ok(extent)
            }
            Some(_) => Err(Errno::INVAL),
            None => Err(Errno::NOENT),
        }
    }

    /// Takes out every map that lies in the range. There may be none: clients take away more than
    /// they have given. A range that cuts a map in two takes nothing away.
    pub(crate) fn remove_within(
        &mut self,
        address: u64,
        size: u64,
    ) -> Result<Vec<(u64, Extent)>, Errno> {
        let last = size.checked_sub(1).and_then(|rest| address.checked_add(rest));
        let Some(last) = last else { return Err(Errno::INVAL) };
        let end = |start: u64, extent: &Extent| start + (extent.size - 1);
        let below = self.extents.range(..address).next_back();
        let top = self.extents.range(address..=last).next_back();
        let cut = below.is_some_and(|(&start, extent)| end(start, extent) >= address)
            || top.is_some_and(|(&start, extent)| end(start, extent) > last);
        if cut {
            return Err(Errno::INVAL);
        }
        let within: Vec<_> = self.extents.range(address..=last).map(|(&a, &e)| (a, e)).collect();
        for (address, _) in &within {
            self.extents.remove(address);
        }
        Ok(within)
    }

    pub(crate) fn clear(&mut self) {
        self.extents.clear();
    }

    /// Whether all of the range is mapped with the right, in one map or in several that touch.
    pub(crate) fn allow(&self, address: u64, count: u64, write: bool) -> bool {
        let Some(rest) = count.checked_sub(1) else { return true };
        let Some(last) = address.checked_add(rest) else { return false };
        let mut next = address;
        loop {
            let Some((&start, extent)) = self.extents.range(..=next).next_back() else {
                return false;
            };
            let end = start + (extent.size - 1);
            let right = if write { extent.writable } else { extent.readable };
            if end < next || !right {
                return false;
            }
            if end >= last {
                return true;
            }
            next = end + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(size: u64) -> Extent {
        Extent { size, readable: true, writable: true }
    }

    #[test]
    fn overlaps_are_refused_on_both_sides() {
        let mut maps = Maps::default();
        maps.insert(0x2000, extent(0x2000), 10).unwrap();
        assert_eq!(maps.insert(0x1000, extent(0x1001), 10), Err(Errno::EXIST));
        assert_eq!(maps.insert(0x3fff, extent(1), 10), Err(Errno::EXIST));
        assert_eq!(maps.insert(0, extent(0x10000), 10), Err(Errno::EXIST));
        maps.insert(0x1000, extent(0x1000), 10).unwrap();
        maps.insert(0x4000, extent(0x1000), 10).unwrap();
    }

    #[test]
    fn the_ends_of_the_address_space() {
        let mut maps = Maps::default();
        assert_eq!(maps.insert(0, extent(0), 10), Err(Errno::INVAL));
        assert_eq!(maps.insert(u64::MAX, extent(2), 10), Err(Errno::INVAL));
        maps.insert(u64::MAX, extent(1), 10).unwrap();
        assert!(maps.allow(u64::MAX, 1, true));
        assert!(!maps.allow(u64::MAX, 2, true));
        assert!(!maps.allow(u64::MAX - 1, 2, true));
    }

    #[test]
    fn an_unmap_must_match() {
        let mut maps = Maps::default();
        maps.insert(0x1000, extent(0x2000), 10).unwrap();
        assert_eq!(maps.remove(0x1000, 0x1000), Err(Errno::INVAL));
        assert_eq!(maps.remove(0x2000, 0x1000), Err(Errno::NOENT));
        assert_eq!(maps.remove(0x1000, 0x2000), Ok(extent(0x2000)));
        assert_eq!(maps.iter().count(), 0);
    }

    #[test]
    fn an_unmap_takes_every_map_of_its_range_and_cuts_none() {
        let mut maps = Maps::default();
        for address in [0x1000, 0x2000, 0x8000] {
            maps.insert(address, extent(0x1000), 10).unwrap();
        }
        assert_eq!(maps.remove_within(0x1800, 0x4000), Err(Errno::INVAL));
        assert_eq!(maps.remove_within(0, 0x1800), Err(Errno::INVAL));
        assert_eq!(maps.remove_within(0, 0), Err(Errno::INVAL));
        assert_eq!(maps.remove_within(2, u64::MAX), Err(Errno::INVAL));
        assert_eq!(maps.remove_within(0x3000, 0x5000), Ok(vec![]));
        let pair = vec![(0x1000, extent(0x1000)), (0x2000, extent(0x1000))];
        assert_eq!(maps.remove_within(0, 0x8000), Ok(pair));
        assert_eq!(maps.iter().count(), 1);
    }

    #[test]
    fn a_range_over_touching_maps_is_allowed() {
        let mut maps = Maps::default();
        maps.insert(0x1000, extent(0x1000), 10).unwrap();
        maps.insert(0x2000, Extent { size: 0x1000, readable: true, writable: false }, 10).unwrap();
        maps.insert(0x4000, extent(0x1000), 10).unwrap();
        assert!(maps.allow(0x1800, 0x1000, false));
        assert!(!maps.allow(0x1800, 0x1000, true));
        assert!(!maps.allow(0x2800, 0x2000, false));
        assert!(maps.allow(0x9000, 0, true));
    }

    #[test]
    fn the_number_of_maps_is_bounded() {
        let mut maps = Maps::default();
        maps.insert(0, extent(1), 1).unwrap();
        assert_eq!(maps.insert(1, extent(1), 1), Err(Errno::NOSPC));
    }
}
