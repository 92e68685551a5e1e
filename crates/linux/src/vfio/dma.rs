//! Memory that a device may reach, and at which addresses.

use super::abi::{self, IommuInfo};
use super::reply::{Reply, pairs};

/// What the device may do with memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read it.
    Read,
    /// Write it.
    Write,
    /// Both.
    ReadWrite,
}

impl Access {
    pub(super) const fn flags(self) -> u32 {
        match self {
            Access::Read => abi::DMA_READ,
            Access::Write => abi::DMA_WRITE,
            Access::ReadWrite => abi::DMA_READ | abi::DMA_WRITE,
        }
    }
}

/// Addresses a device can be given, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoRange {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

/// What the IOMMU in front of a device can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Iommu {
    /// A bit for each size of page it maps; bit 12 is 4 KiB.
    pub page_sizes: u64,
    /// The addresses that may be chosen; empty if the kernel does not say.
    pub ranges: Vec<IoRange>,
    /// How many more ranges can be mapped, if the kernel says.
    pub maps_left: Option<u32>,
}

impl Iommu {
    /// `None` if the kernel's list is cut short.
    pub(super) fn from_reply(reply: &Reply<IommuInfo>) -> Option<Iommu> {
        let info = reply.fixed;
        let capability = |id| {
            let has = info.flags & abi::IOMMU_HAS_CAPS != 0;
            if has { reply.capability(info.cap_offset, id) } else { None }
        };
        let ranges = match capability(abi::IOMMU_CAP_IOVA_RANGE) {
            None => Vec::new(),
            Some(body) => {
                pairs(body)?.into_iter().map(|(first, last)| IoRange { first, last }).collect()
            }
        };
        let maps_left = match capability(abi::IOMMU_CAP_DMA_AVAIL) {
            None => None,
            Some(body) => Some(bytemuck::pod_read_unaligned(body.get(..4)?)),
        };
        let known = info.flags & abi::IOMMU_HAS_PAGE_SIZES != 0;
        let page_sizes = if known { info.page_sizes } else { 0 };
        Some(Iommu { page_sizes, ranges, maps_left })
    }
}

#[cfg(test)]
mod tests {
    use bytemuck::bytes_of;

    use super::*;
    use crate::vfio::abi::CapHeader;

    #[test]
    fn ranges_and_the_number_of_maps_left_are_read() {
        let flags = abi::IOMMU_HAS_PAGE_SIZES | abi::IOMMU_HAS_CAPS;
        let info = IommuInfo { argsz: 0, flags, page_sizes: 0x1000, cap_offset: 24, pad: 0 };
        let mut bytes = bytes_of(&info).to_vec();
        bytes.extend(bytes_of(&CapHeader { id: abi::IOMMU_CAP_IOVA_RANGE, version: 1, next: 56 }));
        for word in [1u64, 0, 0xfedf_ffff] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(bytes_of(&CapHeader { id: abi::IOMMU_CAP_DMA_AVAIL, version: 1, next: 0 }));
        bytes.extend(65535u32.to_ne_bytes());

        let iommu = Iommu::from_reply(&Reply::new(bytes.clone()).unwrap()).unwrap();
        assert_eq!(iommu.ranges, [IoRange { first: 0, last: 0xfedf_ffff }]);
        assert_eq!((iommu.page_sizes, iommu.maps_left), (0x1000, Some(65535)));
        bytes.truncate(bytes.len() - 1);
        assert_eq!(Iommu::from_reply(&Reply::new(bytes).unwrap()), None);
    }
}
