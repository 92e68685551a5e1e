//! MSI-X without a driver: the message goes to a word of this program's memory.
//!
//! A vector's message is a plain write of 32 bits to the address in the device's table. Kernels put
//! the interrupt controller's address there; a program can take its own memory, and look whether the
//! word has come. That works wherever no IOMMU remaps interrupts, and needs no driver at all.

use farside_linux::vfio::PciAddress;

use crate::Failure;
use crate::memory::Mapping;
use crate::sysfs::Config;

const CAPABILITY: u8 = 0x11;
const CONTROL: u64 = 2;
const TABLE: u64 = 4;
const PENDING: u64 = 8;
const ENABLE: u16 = 1 << 15;
const ENTRY_BYTES: usize = 16;
const MASKED: u32 = 1;

/// Where a device's MSI-X table is.
pub(crate) struct Table {
    pub(crate) vectors: u16,
    pub(crate) bar: u32,
    pub(crate) offset: u32,
    pub(crate) pending_bar: u32,
    pub(crate) pending_offset: u32,
    control: u64,
}

impl Table {
    pub(crate) fn read(config: &Config) -> Result<Table, Failure> {
        let at = config.capability(CAPABILITY)?;
        let table = config.read_u32(at + TABLE)?;
        let pending = config.read_u32(at + PENDING)?;
        Ok(Table {
            vectors: (config.read_u16(at + CONTROL)? & 0x7ff) + 1,
            bar: table & 7,
            offset: table & !7,
            pending_bar: pending & 7,
            pending_offset: pending & !7,
            control: at + CONTROL,
        })
    }

    /// Lets vector `vector` write `data` to the bus address `to`; the others stay masked.
    pub(crate) fn enable(
        &self,
        address: PciAddress,
        config: &Config,
        vector: u16,
        to: u64,
        data: u32,
    ) -> Result<(), Failure> {
        let bar = Mapping::file(&address.folder().join(format!("resource{}", self.bar)))?;
        config.write_u16(self.control, ENABLE)?;
        for index in 0..self.vectors {
            let entry = self.offset as usize + usize::from(index) * ENTRY_BYTES;
            bar.write(entry, (to as u32).to_le());
            bar.write(entry + 4, ((to >> 32) as u32).to_le());
            bar.write(entry + 8, data.to_le());
            bar.write(entry + 12, if index == vector { 0 } else { MASKED.to_le() });
        }
        Ok(())
    }

    pub(crate) fn disable(&self, config: &Config) -> Result<(), Failure> {
        config.write_u16(self.control, 0)
    }
}
