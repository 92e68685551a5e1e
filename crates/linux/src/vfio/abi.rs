//! The kernel's VFIO interface: structures, request numbers, flag bits.
//!
//! Owns the numbers, nothing else. Source: `include/uapi/linux/vfio.h` of Linux 6.1, the part that
//! PCI devices behind a type 1 IOMMU need.

use core::mem::size_of;

use bytemuck::{Pod, Zeroable};

/// `VFIO_API_VERSION`.
pub const API_VERSION: i32 = 0;

/// Kinds of IOMMU, for [`request::CHECK_EXTENSION`] and [`request::SET_IOMMU`].
pub mod iommu {
    /// `VFIO_TYPE1v2_IOMMU`.
    pub const TYPE1_V2: u32 = 3;
    /// `VFIO_NOIOMMU_IOMMU`: none.
    pub const NONE: u32 = 8;
}

/// `VFIO_GROUP_FLAGS_VIABLE`: no device of the group has another driver.
pub const GROUP_VIABLE: u32 = 1 << 0;

/// `VFIO_DEVICE_FLAGS_RESET`: [`request::DEVICE_RESET`] works.
pub const DEVICE_RESETS: u32 = 1 << 0;
/// `VFIO_DEVICE_FLAGS_PCI`.
pub const DEVICE_IS_PCI: u32 = 1 << 1;

/// Bits of [`RegionInfo::flags`].
pub mod region_flag {
    /// Can be read.
    pub const READ: u32 = 1 << 0;
    /// Can be written.
    pub const WRITE: u32 = 1 << 1;
    /// Can be mapped.
    pub const MMAP: u32 = 1 << 2;
    /// Capabilities follow.
    pub const CAPS: u32 = 1 << 3;
}

/// `VFIO_REGION_INFO_CAP_SPARSE_MMAP`: only some areas can be mapped.
pub const REGION_CAP_SPARSE_MMAP: u16 = 1;

/// Bits of [`IrqSet::flags`].
pub mod irq_flag {
    /// No data follow.
    pub const DATA_NONE: u32 = 1 << 0;
    /// An `i32` descriptor of an eventfd per vector follows, -1 for none.
    pub const DATA_EVENTFD: u32 = 1 << 2;
    /// The request is about raising.
    pub const ACTION_TRIGGER: u32 = 1 << 5;
}

/// `VFIO_IOMMU_INFO_PGSIZES`: [`IommuInfo::page_sizes`] is filled in.
pub const IOMMU_HAS_PAGE_SIZES: u32 = 1 << 0;
/// `VFIO_IOMMU_INFO_CAPS`: capabilities follow.
pub const IOMMU_HAS_CAPS: u32 = 1 << 1;
/// `VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE`.
pub const IOMMU_CAP_IOVA_RANGE: u16 = 1;
/// `VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL`.
pub const IOMMU_CAP_DMA_AVAIL: u16 = 3;

/// `VFIO_DMA_MAP_FLAG_READ`: the device may read.
pub const DMA_READ: u32 = 1 << 0;
/// `VFIO_DMA_MAP_FLAG_WRITE`: the device may write.
pub const DMA_WRITE: u32 = 1 << 1;

/// `struct vfio_group_status`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct GroupStatus {
    /// Bytes of the structure.
    pub argsz: u32,
    /// [`GROUP_VIABLE`].
    pub flags: u32,
}

/// `struct vfio_device_info`, as far as every kernel has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct DeviceInfo {
    /// Bytes of the structure.
    pub argsz: u32,
    /// [`DEVICE_RESETS`], [`DEVICE_IS_PCI`].
    pub flags: u32,
    /// How many regions there are.
    pub regions: u32,
    /// How many kinds of interrupts there are.
    pub irqs: u32,
}

/// `struct vfio_region_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct RegionInfo {
    /// Bytes of the structure; out: bytes of the whole reply.
    pub argsz: u32,
    /// Bits of [`region_flag`].
    pub flags: u32,
    /// In: which region.
    pub index: u32,
    /// Where the first capability is in the reply.
    pub cap_offset: u32,
    /// Bytes of the region.
    pub size: u64,
    /// Where it begins in the device's descriptor.
    pub offset: u64,
}

/// `struct vfio_info_cap_header`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct CapHeader {
    /// Which capability.
    pub id: u16,
    /// Its version.
    pub version: u16,
    /// Where the next one is in the reply; 0: nowhere.
    pub next: u32,
}

/// `struct vfio_irq_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct IrqInfo {
    /// Bytes of the structure.
    pub argsz: u32,
    /// What the kind can do.
    pub flags: u32,
    /// In: which kind.
    pub index: u32,
    /// How many vectors it has.
    pub count: u32,
}

/// `struct vfio_irq_set`; data follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct IrqSet {
    /// Bytes of the structure and its data.
    pub argsz: u32,
    /// Bits of [`irq_flag`].
    pub flags: u32,
    /// Which kind.
    pub index: u32,
    /// The first vector.
    pub start: u32,
    /// How many vectors.
    pub count: u32,
}

/// `struct vfio_iommu_type1_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct IommuInfo {
    /// Bytes of the structure; out: bytes of the whole reply.
    pub argsz: u32,
    /// [`IOMMU_HAS_PAGE_SIZES`], [`IOMMU_HAS_CAPS`].
    pub flags: u32,
    /// A bit for each size of page.
    pub page_sizes: u64,
    /// Where the first capability is in the reply.
    pub cap_offset: u32,
    /// Zero.
    pub pad: u32,
}

/// `struct vfio_iommu_type1_dma_map`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct DmaMap {
    /// Bytes of the structure.
    pub argsz: u32,
    /// [`DMA_READ`], [`DMA_WRITE`].
    pub flags: u32,
    /// Address in this process.
    pub vaddr: u64,
    /// Address for the device.
    pub iova: u64,
    /// Bytes.
    pub size: u64,
}

/// `struct vfio_iommu_type1_dma_unmap`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct DmaUnmap {
    /// Bytes of the structure.
    pub argsz: u32,
    /// Zero.
    pub flags: u32,
    /// Address for the device.
    pub iova: u64,
    /// Bytes; out: bytes that were unmapped.
    pub size: u64,
}

const _: () = {
    assert!(size_of::<GroupStatus>() == 8);
    assert!(size_of::<DeviceInfo>() == 16);
    assert!(size_of::<RegionInfo>() == 32);
    assert!(size_of::<CapHeader>() == 8);
    assert!(size_of::<IrqInfo>() == 16);
    assert!(size_of::<IrqSet>() == 20);
    assert!(size_of::<IommuInfo>() == 24);
    assert!(size_of::<DmaMap>() == 32);
    assert!(size_of::<DmaUnmap>() == 24);
};

/// Full request numbers for `ioctl`. VFIO encodes neither size nor direction in them.
pub mod request {
    const TYPE: u32 = b';' as u32;

    const fn number(nr: u32) -> libc::Ioctl {
        libc::_IO(TYPE, 100 + nr)
    }

    /// `VFIO_GET_API_VERSION`, of a container.
    pub const GET_API_VERSION: libc::Ioctl = number(0);
    /// `VFIO_CHECK_EXTENSION`, of a container.
    pub const CHECK_EXTENSION: libc::Ioctl = number(1);
    /// `VFIO_SET_IOMMU`, of a container.
    pub const SET_IOMMU: libc::Ioctl = number(2);
    /// `VFIO_GROUP_GET_STATUS`.
    pub const GROUP_GET_STATUS: libc::Ioctl = number(3);
    /// `VFIO_GROUP_SET_CONTAINER`.
    pub const GROUP_SET_CONTAINER: libc::Ioctl = number(4);
    /// `VFIO_GROUP_GET_DEVICE_FD`.
    pub const GROUP_GET_DEVICE_FD: libc::Ioctl = number(6);
    /// `VFIO_DEVICE_GET_INFO`.
    pub const DEVICE_GET_INFO: libc::Ioctl = number(7);
    /// `VFIO_DEVICE_GET_REGION_INFO`.
    pub const DEVICE_GET_REGION_INFO: libc::Ioctl = number(8);
    /// `VFIO_DEVICE_GET_IRQ_INFO`.
    pub const DEVICE_GET_IRQ_INFO: libc::Ioctl = number(9);
    /// `VFIO_DEVICE_SET_IRQS`.
    pub const DEVICE_SET_IRQS: libc::Ioctl = number(10);
    /// `VFIO_DEVICE_RESET`.
    pub const DEVICE_RESET: libc::Ioctl = number(11);
    /// `VFIO_IOMMU_GET_INFO`, of a container.
    pub const IOMMU_GET_INFO: libc::Ioctl = number(12);
    /// `VFIO_IOMMU_MAP_DMA`, of a container.
    pub const IOMMU_MAP_DMA: libc::Ioctl = number(13);
    /// `VFIO_IOMMU_UNMAP_DMA`, of a container.
    pub const IOMMU_UNMAP_DMA: libc::Ioctl = number(14);
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::request;

    #[test]
    fn request_numbers_are_those_of_the_kernel_header() {
        assert_eq!(request::GET_API_VERSION, 0x3b64);
        assert_eq!(request::GROUP_GET_DEVICE_FD, 0x3b6a);
        assert_eq!(request::DEVICE_SET_IRQS, 0x3b6e);
        assert_eq!(request::IOMMU_UNMAP_DMA, 0x3b72);
    }
}
