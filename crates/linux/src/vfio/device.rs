//! A device: its regions, registers, DMA maps, interrupts and reset.

use core::ptr::NonNull;
use std::os::fd::{AsFd, BorrowedFd};

use bytemuck::Zeroable;
use rustix::io::Errno;

use super::abi::{self, request};
use super::dma::{Access, Iommu};
use super::interrupt::{InterruptKind, clear_request, set_request};
use super::ioctl::{ioctl, number_ioctl, query};
use super::open::{Opened, open};
use super::region::{Region, RegionIndex, RegionMapping};
use super::{PciAddress, VfioError};

/// Where the command register is in configuration space.
const COMMAND: u64 = 4;
/// Its bit that lets the device read and write memory and send MSI and MSI-X.
const BUS_MASTER: u16 = 1 << 2;

/// A PCIe device that this process drives. When it and its [`RegionMapping`]s have been dropped, the
/// kernel resets the device and ends its DMA and its interrupts.
#[derive(Debug)]
pub struct Device {
    address: PciAddress,
    opened: Opened,
    resets: bool,
    regions: Vec<Region>,
}

impl Device {
    /// Takes the device that is bound to `vfio-pci`.
    ///
    /// # Errors
    /// Says what is missing and how to get it: the device, its driver, an IOMMU, rights, or that
    /// another process has it.
    pub fn open(address: PciAddress) -> Result<Device, VfioError> {
        let opened = open(address)?;
        let mut info = abi::DeviceInfo::zeroed();
        info.argsz = size_of_val(&info) as u32;
        // SAFETY: the request fills in a DeviceInfo.
        unsafe { ioctl(opened.device.as_fd(), request::DEVICE_GET_INFO, &raw mut info) }
            .map_err(|errno| VfioError::Call { address, call: "DEVICE_GET_INFO", errno })?;
        if info.flags & abi::DEVICE_IS_PCI == 0 {
            return Err(VfioError::Unsupported { address, missing: "PCI" });
        }
        let resets = info.flags & abi::DEVICE_RESETS != 0;
        let mut device = Device { address, opened, resets, regions: Vec::new() };
        for index in RegionIndex::ALL {
            let region = device.query_region(index, info.regions)?;
            device.regions.push(region);
        }
        Ok(device)
    }

    /// Where it is.
    pub fn address(&self) -> PciAddress {
        self.address
    }

    /// Whether an IOMMU keeps the device to the memory mapped for it. Without one there are no
    /// DMA maps either.
    pub fn isolated(&self) -> bool {
        self.opened.isolated
    }

    /// A region; of length 0 where the device has none of this index.
    pub fn region(&self, index: RegionIndex) -> &Region {
        &self.regions[index as usize]
    }

    /// The descriptor by which regions are mapped, and where in it a region begins.
    pub fn region_file(&self, index: RegionIndex) -> (BorrowedFd<'_>, u64) {
        (self.opened.device.as_fd(), self.region(index).file_offset)
    }

    /// Maps a part of a region into this process: whole pages of an area that can be mapped.
    ///
    /// # Errors
    /// [`VfioError::Region`] with what is in the way.
    pub fn map(
        &self,
        index: RegionIndex,
        offset: u64,
        bytes: u64,
    ) -> Result<RegionMapping, VfioError> {
        let region = self.region(index);
        if let Some(why) = region.obstacle(offset, bytes) {
            return Err(self.region_error(index, offset, bytes, "mapped", why));
        }
        RegionMapping::new(self.address, self.opened.device.as_fd(), region, offset, bytes)
    }

    /// Reads a part of a region by system calls. The kernel splits it into accesses of 1 to 8
    /// bytes. Aligned accesses of 1, 2 and 4 bytes stay whole, those of 8 only in newer kernels (in
    /// 6.12, not in 6.1): a register of 64 bits that is to be read whole is better mapped.
    ///
    /// # Errors
    /// [`VfioError::Region`]: outside the region, or not to be read.
    pub fn read(&self, index: RegionIndex, offset: u64, bytes: &mut [u8]) -> Result<(), VfioError> {
        let region = self.region(index);
        let failed =
            |why, bytes: &[u8]| self.region_error(index, offset, bytes.len() as u64, "read", why);
        if !region.readable || !region.contains(offset, bytes.len() as u64) {
            return Err(failed("it is not there, or write only", bytes));
        }
        let mut done = 0;
        while done < bytes.len() {
            let at = region.file_offset + offset + done as u64;
            match rustix::io::pread(self, &mut bytes[done..], at) {
                Ok(0) => return Err(failed("the device gives nothing", bytes)),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.call_error("read", errno)),
            }
        }
        Ok(())
    }

    /// Writes a part of a region by system calls, split like those of [`Device::read`].
    ///
    /// # Errors
    /// [`VfioError::Region`]: outside the region, or not to be written.
    pub fn write(&self, index: RegionIndex, offset: u64, bytes: &[u8]) -> Result<(), VfioError> {
        let region = self.region(index);
        let failed = |why| self.region_error(index, offset, bytes.len() as u64, "written", why);
        if !region.writable || !region.contains(offset, bytes.len() as u64) {
            return Err(failed("it is not there, or read only"));
        }
        let mut done = 0;
        while done < bytes.len() {
            let at = region.file_offset + offset + done as u64;
            match rustix::io::pwrite(self, &bytes[done..], at) {
                Ok(0) => return Err(failed("the device takes nothing")),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.call_error("write", errno)),
            }
        }
        Ok(())
    }

    /// Lets the device read and write memory and send MSI and MSI-X, or stops it. Off after
    /// opening.
    ///
    /// # Errors
    /// If configuration space cannot be read or written.
    pub fn set_bus_master(&self, on: bool) -> Result<(), VfioError> {
        let mut command = [0; 2];
        self.read(RegionIndex::Config, COMMAND, &mut command)?;
        let old = u16::from_le_bytes(command);
        let new = if on { old | BUS_MASTER } else { old & !BUS_MASTER };
        self.write(RegionIndex::Config, COMMAND, &new.to_le_bytes())
    }

    /// What the IOMMU in front of the device can do.
    ///
    /// # Errors
    /// [`VfioError::NoGroup`] if there is none.
    pub fn iommu(&self) -> Result<Iommu, VfioError> {
        self.check_isolated()?;
        let question = abi::IommuInfo::zeroed();
        let container = self.opened.container.as_fd();
        // SAFETY: the request takes an IommuInfo, which begins with its length.
        let reply = unsafe { query(container, request::IOMMU_GET_INFO, question) };
        let reply = reply.map_err(|errno| self.call_error("IOMMU_GET_INFO", errno))?;
        reply.as_ref().and_then(Iommu::from_reply).ok_or(VfioError::Answer {
            address: self.address,
            call: "IOMMU_GET_INFO",
            why: "a list that is cut short or too long",
        })
    }

    /// Lets the device reach `bytes` bytes at `memory`, at its addresses from `iova` on. The memory
    /// is locked until it is taken away or the device closed.
    ///
    /// # Errors
    /// [`VfioError::NoGroup`] without an IOMMU, else [`VfioError::Call`] with advice: addresses
    /// that are no multiples of a page or outside [`Iommu::ranges`], ranges that are mapped
    /// already, limits.
    ///
    /// # Safety
    /// The memory is mapped in this process and stays so until [`Device::unmap_dma`], or until the
    /// device and its mappings have been dropped; meanwhile the device may change it at any time
    /// (read it, if [`Access::Read`]), so no Rust reference may point to it.
    pub unsafe fn map_dma(
        &self,
        iova: u64,
        memory: NonNull<u8>,
        bytes: u64,
        access: Access,
    ) -> Result<(), VfioError> {
        self.check_isolated()?;
        if bytes == 0 || iova.checked_add(bytes - 1).is_none() {
            return Err(self.dma_error(
                iova,
                bytes,
                "mapped for DMA",
                "it is empty or wraps around",
            ));
        }
        let mut map = abi::DmaMap {
            argsz: size_of::<abi::DmaMap>() as u32,
            flags: access.flags(),
            vaddr: memory.as_ptr() as u64,
            iova,
            size: bytes,
        };
        // SAFETY: the request reads a DmaMap; the memory it names is the caller's promise.
        unsafe { ioctl(self.opened.container.as_fd(), request::IOMMU_MAP_DMA, &raw mut map) }
            .map_err(|errno| self.call_error("MAP_DMA", errno))?;
        Ok(())
    }

    /// Takes memory away from the device. The range covers whole ranges of [`Device::map_dma`];
    /// afterwards the device is refused there.
    ///
    /// # Errors
    /// [`VfioError::Dma`] if less was mapped than was to be unmapped; what was mapped is unmapped.
    pub fn unmap_dma(&self, iova: u64, bytes: u64) -> Result<(), VfioError> {
        self.check_isolated()?;
        let argsz = size_of::<abi::DmaUnmap>() as u32;
        let mut unmap = abi::DmaUnmap { argsz, flags: 0, iova, size: bytes };
        // SAFETY: the request reads and writes a DmaUnmap.
        unsafe { ioctl(self.opened.container.as_fd(), request::IOMMU_UNMAP_DMA, &raw mut unmap) }
            .map_err(|errno| self.call_error("UNMAP_DMA", errno))?;
        if unmap.size != bytes {
            let why = "not all of it was mapped";
            return Err(self.dma_error(iova, bytes, "unmapped", why));
        }
        Ok(())
    }

    /// How many vectors of this kind the device has.
    ///
    /// # Errors
    /// [`VfioError::Call`]; with `EINVAL` for kinds that such a device cannot have.
    pub fn interrupt_count(&self, kind: InterruptKind) -> Result<u32, VfioError> {
        let mut info = abi::IrqInfo::zeroed();
        info.argsz = size_of_val(&info) as u32;
        info.index = kind as u32;
        // SAFETY: the request reads and fills in an IrqInfo.
        unsafe { ioctl(self.as_fd(), request::DEVICE_GET_IRQ_INFO, &raw mut info) }
            .map_err(|errno| self.call_error("GET_IRQ_INFO", errno))?;
        Ok(info.count)
    }

    /// Switches interrupts of this kind on: vector `i` adds one to the eventfd `vectors[i]`, if
    /// there is one. Clear them before setting others, of this kind or another. MSI and MSI-X need
    /// the bus master as well.
    ///
    /// # Errors
    /// [`VfioError::Vectors`] if the device has fewer, or none are given.
    pub fn set_interrupts(
        &self,
        kind: InterruptKind,
        vectors: &[Option<BorrowedFd<'_>>],
    ) -> Result<(), VfioError> {
        let has = self.interrupt_count(kind)?;
        let wanted = vectors.len();
        if wanted == 0 || wanted > has as usize {
            let (address, kind) = (self.address, kind.name());
            return Err(VfioError::Vectors { address, kind, has, wanted });
        }
        self.set_irqs(set_request(kind, vectors))
    }

    /// Switches interrupts of this kind off. Nothing if they are off.
    ///
    /// # Errors
    /// [`VfioError::Call`].
    pub fn clear_interrupts(&self, kind: InterruptKind) -> Result<(), VfioError> {
        match self.set_irqs(clear_request(kind)) {
            // The kernel refuses to switch off what is off.
            Err(VfioError::Call { errno: Errno::INVAL, .. }) => Ok(()),
            other => other,
        }
    }

    fn set_irqs(&self, mut words: Vec<u32>) -> Result<(), VfioError> {
        // SAFETY: the request reads an IrqSet and the data after it, as long as its first word says.
        unsafe { ioctl(self.as_fd(), request::DEVICE_SET_IRQS, words.as_mut_ptr()) }
            .map_err(|errno| self.call_error("SET_IRQS", errno))?;
        Ok(())
    }

    /// Returns the device to the state after power-on. DMA maps stay; interrupts and the bus master
    /// are to be set again.
    ///
    /// # Errors
    /// [`VfioError::NoReset`] if it cannot be reset by itself.
    pub fn reset(&self) -> Result<(), VfioError> {
        if !self.resets {
            return Err(VfioError::NoReset { address: self.address });
        }
        number_ioctl(self.as_fd(), request::DEVICE_RESET, 0)
            .map_err(|errno| self.call_error("DEVICE_RESET", errno))?;
        Ok(())
    }

    fn query_region(&self, index: RegionIndex, regions: u32) -> Result<Region, VfioError> {
        if index as u32 >= regions {
            return Ok(Region::absent(index));
        }
        let mut question = abi::RegionInfo::zeroed();
        question.index = index as u32;
        // SAFETY: the request takes a RegionInfo, which begins with its length.
        let reply = unsafe { query(self.as_fd(), request::DEVICE_GET_REGION_INFO, question) };
        let call = "GET_REGION_INFO";
        let answer = |why| VfioError::Answer { address: self.address, call, why };
        match reply {
            Ok(Some(reply)) => Region::from_reply(index, &reply).map_err(answer),
            Ok(None) => Err(answer("it is too long")),
            // The kernel refuses to speak of some regions that a device lacks.
            Err(Errno::INVAL) => Ok(Region::absent(index)),
            Err(errno) => Err(self.call_error(call, errno)),
        }
    }

    fn check_isolated(&self) -> Result<(), VfioError> {
        let address = self.address;
        if self.opened.isolated { Ok(()) } else { Err(VfioError::NoGroup { address }) }
    }

    fn call_error(&self, call: &'static str, errno: Errno) -> VfioError {
        VfioError::Call { address: self.address, call, errno }
    }

    fn region_error(
        &self,
        index: RegionIndex,
        offset: u64,
        bytes: u64,
        operation: &'static str,
        why: &'static str,
    ) -> VfioError {
        let (address, region) = (self.address, index as u32);
        VfioError::Region { address, region, offset, bytes, operation, why }
    }

    fn dma_error(
        &self,
        iova: u64,
        bytes: u64,
        operation: &'static str,
        why: &'static str,
    ) -> VfioError {
        VfioError::Dma { address: self.address, iova, bytes, operation, why }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.opened.device.as_fd()
    }
}
