//! Regions of a device: what it has, and parts of them mapped into this process.

use core::fmt;
use core::ptr::{self, NonNull};
use std::os::fd::BorrowedFd;

use farside_types::PAGE_SIZE;
use rustix::mm::{MapFlags, ProtFlags};

use super::abi::{REGION_CAP_SPARSE_MMAP, RegionInfo, region_flag};
use super::reply::{Reply, pairs};
use super::{PciAddress, VfioError};

/// A region of a PCI device, numbered as VFIO does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u32)]
pub enum RegionIndex {
    /// BAR 0.
    Bar0 = 0,
    /// BAR 1, or the upper half of a 64-bit BAR 0: then of no size.
    Bar1 = 1,
    /// BAR 2.
    Bar2 = 2,
    /// BAR 3, or the upper half of a 64-bit BAR 2.
    Bar3 = 3,
    /// BAR 4.
    Bar4 = 4,
    /// BAR 5, or the upper half of a 64-bit BAR 4.
    Bar5 = 5,
    /// The expansion ROM.
    Rom = 6,
    /// Configuration space. The kernel answers for parts of it.
    Config = 7,
}

impl RegionIndex {
    pub(super) const ALL: [RegionIndex; 8] = [
        RegionIndex::Bar0,
        RegionIndex::Bar1,
        RegionIndex::Bar2,
        RegionIndex::Bar3,
        RegionIndex::Bar4,
        RegionIndex::Bar5,
        RegionIndex::Rom,
        RegionIndex::Config,
    ];
}

/// A part of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Area {
    /// Bytes into the region.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// What a region is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// Which one.
    pub index: RegionIndex,
    /// Its length in bytes; 0 where the device has none of this index.
    pub bytes: u64,
    /// It can be read by [`Device::read`](super::Device::read).
    pub readable: bool,
    /// It can be written by [`Device::write`](super::Device::write).
    pub writable: bool,
    /// What of it can be mapped: nothing, everything, or parts of it.
    pub areas: Vec<Area>,
    /// Where it begins in the device's descriptor.
    pub(super) file_offset: u64,
}

impl Region {
    pub(super) fn absent(index: RegionIndex) -> Region {
        let areas = Vec::new();
        Region { index, bytes: 0, readable: false, writable: false, areas, file_offset: 0 }
    }

    /// What is wrong with the kernel's answer is the error.
    pub(super) fn from_reply(
        index: RegionIndex,
        reply: &Reply<RegionInfo>,
    ) -> Result<Region, &'static str> {
        let info = reply.fixed;
        let flag = |bit| info.flags & bit != 0;
        if info.offset.checked_add(info.size).is_none_or(|end| end > i64::MAX as u64) {
            return Err("a region beyond the end of its file");
        }
        let sparse = if flag(region_flag::CAPS) {
            reply.capability(info.cap_offset, REGION_CAP_SPARSE_MMAP)
        } else {
            None
        };
        let areas = match sparse {
            _ if !flag(region_flag::MMAP) || info.size == 0 => Vec::new(),
            None => vec![Area { offset: 0, bytes: info.size }],
            Some(body) => pairs(body)
                .ok_or("a list of areas that is cut short")?
                .into_iter()
                .map(|(offset, bytes)| Area { offset, bytes })
                .collect(),
        };
        let inside =
            |area: &Area| area.offset.checked_add(area.bytes).is_some_and(|end| end <= info.size);
        if !areas.iter().all(inside) {
            return Err("an area outside its region");
        }
        let (readable, writable) = (flag(region_flag::READ), flag(region_flag::WRITE));
        Ok(Region { index, bytes: info.size, readable, writable, areas, file_offset: info.offset })
    }

    /// Whether `bytes` bytes from `offset` on are part of it.
    pub(super) fn contains(&self, offset: u64, bytes: u64) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }

    /// What keeps `bytes` bytes from `offset` on from being mapped.
    pub(super) fn obstacle(&self, offset: u64, bytes: u64) -> Option<&'static str> {
        let page = PAGE_SIZE as u64;
        if bytes == 0 || !self.contains(offset, bytes) {
            return Some("it is empty or reaches beyond the region");
        }
        if offset % page != 0 || bytes % page != 0 {
            return Some("offset and length must be multiples of 4096");
        }
        let inside =
            |area: &Area| area.offset <= offset && offset + bytes <= area.offset + area.bytes;
        if !self.areas.iter().any(inside) {
            return Some("the kernel does not let it be mapped: use read and write");
        }
        None
    }
}

/// A part of a region in this process's memory. Unmapped on drop.
///
/// Registers are read and written with one access of exactly their size. Everything here may be
/// changed by the device at any time, so there are no references into it.
pub struct RegionMapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is memory of the process, not of a thread; all accesses are volatile ones to
// memory that no Rust reference points to.
unsafe impl Send for RegionMapping {}
// SAFETY: as above.
unsafe impl Sync for RegionMapping {}

impl RegionMapping {
    /// `offset` and `bytes` have passed [`Region::obstacle`].
    pub(super) fn new(
        address: PciAddress,
        device: BorrowedFd<'_>,
        region: &Region,
        offset: u64,
        bytes: u64,
    ) -> Result<RegionMapping, VfioError> {
        let mut protection = ProtFlags::empty();
        protection.set(ProtFlags::READ, region.readable);
        protection.set(ProtFlags::WRITE, region.writable);
        let start = region.file_offset + offset;
        // SAFETY: a new mapping at an address that the kernel chooses touches nothing.
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                bytes as usize,
                protection,
                MapFlags::SHARED,
                device,
                start,
            )
        };
        let base = base.map_err(|errno| VfioError::Call { address, call: "mmap", errno })?;
        let base = NonNull::new(base.cast()).ok_or(VfioError::Answer {
            address,
            call: "mmap",
            why: "address 0",
        })?;
        Ok(RegionMapping { base, bytes: bytes as usize })
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its first byte. What is done through the pointer is the caller's to answer for; it is valid
    /// while the mapping lives and the device decodes its memory.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Reads a 32-bit register, little-endian.
    ///
    /// # Panics
    /// If the offset is no multiple of 4 or outside the mapping.
    pub fn read_u32(&self, offset: usize) -> u32 {
        // SAFETY: `register` has checked bounds and alignment.
        u32::from_le(unsafe { self.register::<u32>(offset).read_volatile() })
    }

    /// Writes a 32-bit register, little-endian.
    ///
    /// # Panics
    /// If the offset is no multiple of 4 or outside the mapping.
    pub fn write_u32(&self, offset: usize, value: u32) {
        // SAFETY: `register` has checked bounds and alignment.
        unsafe { self.register::<u32>(offset).write_volatile(value.to_le()) }
    }

    /// Reads a 64-bit register, little-endian.
    ///
    /// # Panics
    /// If the offset is no multiple of 8 or outside the mapping.
    pub fn read_u64(&self, offset: usize) -> u64 {
        // SAFETY: `register` has checked bounds and alignment.
        u64::from_le(unsafe { self.register::<u64>(offset).read_volatile() })
    }

    /// Writes a 64-bit register, little-endian.
    ///
    /// # Panics
    /// If the offset is no multiple of 8 or outside the mapping.
    pub fn write_u64(&self, offset: usize, value: u64) {
        // SAFETY: `register` has checked bounds and alignment.
        unsafe { self.register::<u64>(offset).write_volatile(value.to_le()) }
    }

    fn register<T>(&self, offset: usize) -> *mut T {
        let size = size_of::<T>();
        let inside = offset.checked_add(size).is_some_and(|end| end <= self.bytes);
        assert!(
            inside && offset % size == 0,
            "no register of {size} bytes at {offset:#x} of a mapping of {:#x} bytes",
            self.bytes
        );
        self.base.as_ptr().wrapping_add(offset).cast()
    }
}

impl fmt::Debug for RegionMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegionMapping({:p}, {:#x} bytes)", self.base, self.bytes)
    }
}

impl Drop for RegionMapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new` and nobody has a reference into it.
        let outcome = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        if let Err(errno) = outcome {
            tracing::warn!(%errno, "a region of a device could not be unmapped");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfio::abi::CapHeader;

    const SIZE: u64 = 0x4000;

    /// A kernel's answer for a region of 16 KiB, with these areas if it is sparse.
    fn reply(flags: u32, areas: Option<&[(u64, u64)]>) -> Reply<RegionInfo> {
        let caps = if areas.is_some() { region_flag::CAPS } else { 0 };
        let info = RegionInfo {
            argsz: 0,
            flags: flags | caps,
            index: 0,
            cap_offset: 32,
            size: SIZE,
            offset: 1 << 40,
        };
        let mut bytes = bytemuck::bytes_of(&info).to_vec();
        if let Some(areas) = areas {
            let header = CapHeader { id: REGION_CAP_SPARSE_MMAP, version: 1, next: 0 };
            bytes.extend(bytemuck::bytes_of(&header));
            bytes.extend((areas.len() as u64).to_le_bytes());
            for (offset, size) in areas {
                bytes.extend(offset.to_ne_bytes());
                bytes.extend(size.to_ne_bytes());
            }
        }
        Reply::new(bytes).unwrap()
    }

    const ALL: u32 = region_flag::READ | region_flag::WRITE | region_flag::MMAP;

    #[test]
    fn a_plain_region_can_be_mapped_anywhere_in_whole_pages() {
        let region = Region::from_reply(RegionIndex::Bar0, &reply(ALL, None)).unwrap();
        assert_eq!(region.areas, [Area { offset: 0, bytes: SIZE }]);
        assert_eq!(region.obstacle(0x1000, 0x3000), None);
        for (offset, bytes) in [(0, 0), (0, 0x5000), (0x800, 0x1000), (0, 8), (u64::MAX, 0x1000)] {
            assert!(region.obstacle(offset, bytes).is_some(), "{offset:#x} {bytes:#x}");
        }
    }

    #[test]
    fn only_the_areas_of_a_sparse_region_can_be_mapped() {
        let areas = [(0, 0x1000), (0x2000, 0x2000)];
        let region = Region::from_reply(RegionIndex::Bar4, &reply(ALL, Some(&areas))).unwrap();
        assert_eq!(region.obstacle(0x2000, 0x2000), None);
        assert!(region.obstacle(0x1000, 0x1000).is_some());
        assert!(region.obstacle(0, 0x3000).is_some());
    }

    #[test]
    fn a_region_without_the_flag_cannot_be_mapped() {
        let region = Region::from_reply(RegionIndex::Rom, &reply(region_flag::READ, None)).unwrap();
        assert!(region.readable && !region.writable && region.areas.is_empty());
        assert!(region.obstacle(0, 0x1000).is_some());
    }

    #[test]
    fn an_answer_that_cannot_be_is_refused() {
        let beyond = [(0x3000, 0x2000)];
        Region::from_reply(RegionIndex::Bar0, &reply(ALL, Some(&beyond))).unwrap_err();
        let mut far = reply(ALL, None);
        far.fixed.offset = u64::MAX - 1;
        Region::from_reply(RegionIndex::Bar0, &far).unwrap_err();
    }
}
