//! Registers and memory of a device, however they are mapped.

use farside_linux::vfio::RegionMapping;

use crate::memory::Mapping;

/// Aligned accesses, each of exactly its width, little-endian. Outside the window they panic.
pub(crate) trait Registers {
    /// Length in bytes.
    fn bytes(&self) -> usize;
    fn read_u32(&self, offset: usize) -> u32;
    fn write_u32(&self, offset: usize, value: u32);
    fn read_u64(&self, offset: usize) -> u64;
    fn write_u64(&self, offset: usize, value: u64);
}

impl Registers for RegionMapping {
    fn bytes(&self) -> usize {
        RegionMapping::bytes(self)
    }

    fn read_u32(&self, offset: usize) -> u32 {
        RegionMapping::read_u32(self, offset)
    }

    fn write_u32(&self, offset: usize, value: u32) {
        RegionMapping::write_u32(self, offset, value);
    }

    fn read_u64(&self, offset: usize) -> u64 {
        RegionMapping::read_u64(self, offset)
    }

    fn write_u64(&self, offset: usize, value: u64) {
        RegionMapping::write_u64(self, offset, value);
    }
}

impl Registers for Mapping {
    fn bytes(&self) -> usize {
        Mapping::bytes(self)
    }

    fn read_u32(&self, offset: usize) -> u32 {
        u32::from_le(self.read(offset))
    }

    fn write_u32(&self, offset: usize, value: u32) {
        self.write(offset, value.to_le());
    }

    fn read_u64(&self, offset: usize) -> u64 {
        u64::from_le(self.read(offset))
    }

    fn write_u64(&self, offset: usize, value: u64) {
        self.write(offset, value.to_le());
    }
}
