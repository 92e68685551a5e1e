//! From a PCI address to a device's descriptor: sysfs, group, container.

use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use bytemuck::Zeroable;
use rustix::io::Errno;

use super::abi::{self, request};
use super::ioctl::{ioctl, number_ioctl};
use super::{PciAddress, VfioError};

const CONTAINER: &str = "/dev/vfio/vfio";

/// The three descriptors by which a device is held. The container is this device's alone.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) device: OwnedFd,
    pub(super) container: File,
    /// Closing it would take the device away.
    pub(super) _group: File,
    /// An IOMMU stands between the device and memory.
    pub(super) isolated: bool,
}

pub(super) fn open(address: PciAddress) -> Result<Opened, VfioError> {
    let failed = |call| move |errno| VfioError::Call { address, call, errno };
    check_bound(address)?;
    let number = address.link("iommu_group").ok_or(VfioError::NoGroup { address })?;
    let container = open_file(address, CONTAINER.to_owned())?;
    let isolated = !without_iommu(&number);
    let iommu = if isolated { abi::iommu::TYPE1_V2 } else { abi::iommu::NONE };
    check_container(address, &container, iommu)?;

    let name = if isolated { number.clone() } else { format!("noiommu-{number}") };
    let group = open_file(address, format!("/dev/vfio/{name}"))?;
    check_group(address, &group, number)?;
    let mut descriptor = container.as_raw_fd();
    // SAFETY: the request reads one int, the container's descriptor.
    unsafe { ioctl(group.as_fd(), request::GROUP_SET_CONTAINER, &raw mut descriptor) }
        .map_err(failed("SET_CONTAINER"))?;
    number_ioctl(container.as_fd(), request::SET_IOMMU, iommu).map_err(failed("SET_IOMMU"))?;

    let mut text = address.to_string().into_bytes();
    text.push(0);
    // SAFETY: the request reads a string that ends in zero.
    let device = unsafe { ioctl(group.as_fd(), request::GROUP_GET_DEVICE_FD, text.as_mut_ptr()) }
        .map_err(failed("GET_DEVICE_FD"))?;
    // SAFETY: the kernel has just made this descriptor for us.
    let device = unsafe { OwnedFd::from_raw_fd(device) };
    Ok(Opened { device, container, _group: group, isolated })
}

fn check_bound(address: PciAddress) -> Result<(), VfioError> {
    if !address.folder().exists() {
        return Err(VfioError::Absent { address });
    }
    match address.driver() {
        // Drivers for particular devices have names such as mlx5_vfio_pci.
        Some(name) if name.contains("vfio") => Ok(()),
        driver => Err(VfioError::NotBound { address, driver }),
    }
}

/// Whether the group only stands for "no IOMMU". The kernel says so in the group's name.
fn without_iommu(number: &str) -> bool {
    let file = Path::new("/sys/kernel/iommu_groups").join(number).join("name");
    fs::read_to_string(file).is_ok_and(|name| name.trim() == "vfio-noiommu")
}

fn open_file(address: PciAddress, path: String) -> Result<File, VfioError> {
    OpenOptions::new().read(true).write(true).open(&path).map_err(|error| VfioError::Open {
        address,
        path,
        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    })
}

fn check_container(address: PciAddress, container: &File, iommu: u32) -> Result<(), VfioError> {
    let failed = |call| move |errno| VfioError::Call { address, call, errno };
    let version = number_ioctl(container.as_fd(), request::GET_API_VERSION, 0)
        .map_err(failed("GET_API_VERSION"))?;
    if version != abi::API_VERSION {
        return Err(VfioError::Unsupported { address, missing: "VFIO of version 0" });
    }
    let has = number_ioctl(container.as_fd(), request::CHECK_EXTENSION, iommu)
        .map_err(failed("CHECK_EXTENSION"))?;
    if has == 0 {
        return Err(VfioError::Unsupported { address, missing: "DMA maps (type 1, version 2)" });
    }
    Ok(())
}

fn check_group(address: PciAddress, group: &File, number: String) -> Result<(), VfioError> {
    let mut status = abi::GroupStatus::zeroed();
    status.argsz = size_of_val(&status) as u32;
    // SAFETY: the request fills in a GroupStatus.
    unsafe { ioctl(group.as_fd(), request::GROUP_GET_STATUS, &raw mut status) }
        .map_err(|errno| VfioError::Call { address, call: "GET_STATUS", errno })?;
    if status.flags & abi::GROUP_VIABLE == 0 {
        return Err(VfioError::NotViable { address, group: number });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_an_error_with_its_address() {
        let address: PciAddress = "fffe:ff:1f.7".parse().unwrap();
        assert_eq!(open(address).unwrap_err(), VfioError::Absent { address });
    }

    #[test]
    fn a_device_of_another_driver_is_an_error_that_says_how_to_bind_it() {
        let address: PciAddress = "0000:00:03.0".parse().unwrap();
        let driver = Some("nvme".to_owned());
        let text = VfioError::NotBound { address, driver }.to_string();
        assert!(text.contains("belongs to driver nvme"), "{text}");
        assert!(text.contains("0000:00:03.0/driver/unbind"), "{text}");
        let text = VfioError::NotBound { address, driver: None }.to_string();
        assert!(text.contains("has no driver") && !text.contains("unbind"), "{text}");
    }
}
