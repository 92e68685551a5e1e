//! What can go wrong with a VFIO device, and what to do about it.

use rustix::io::Errno;

use super::PciAddress;

/// A VFIO operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VfioError {
    /// Not a PCI address.
    #[error("'{text}' is no PCI address; write it like 0000:00:03.0, as `lspci -D` does")]
    Address {
        /// What was given, its first characters.
        text: String,
    },
    /// There is no such device.
    #[error("there is no PCI device {address}; `lspci -D` lists those there are")]
    Absent {
        /// The address.
        address: PciAddress,
    },
    /// The device has no driver, or one that is not for user space.
    #[error("PCI device {address} {}", bind_advice(*.address, .driver.as_deref()))]
    NotBound {
        /// The device.
        address: PciAddress,
        /// The driver that has it.
        driver: Option<String>,
    },
    /// The device is in no IOMMU group.
    #[error(
        "PCI device {address} is behind no IOMMU; enable it in the firmware and with \
         intel_iommu=on or amd_iommu=on on the kernel's command line"
    )]
    NoGroup {
        /// The device.
        address: PciAddress,
    },
    /// A file of `/dev/vfio` cannot be opened.
    #[error("{path}, for PCI device {address}, cannot be opened: {errno}; {}", open_advice(*.errno))]
    Open {
        /// The device.
        address: PciAddress,
        /// The file.
        path: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The kernel's VFIO is of another version or lacks what is needed.
    #[error(
        "for PCI device {address} the kernel offers no {missing}; load the module that has it: \
         modprobe vfio_iommu_type1"
    )]
    Unsupported {
        /// The device.
        address: PciAddress,
        /// What is not there.
        missing: &'static str,
    },
    /// Other devices of the group are in use by the kernel.
    #[error(
        "PCI device {address} shares IOMMU group {group} with devices that have other drivers; bind \
         them to vfio-pci as well, or to none (ls /sys/kernel/iommu_groups/{group}/devices)"
    )]
    NotViable {
        /// The device.
        address: PciAddress,
        /// Its group.
        group: String,
    },
    /// A system call failed.
    #[error("{call} of PCI device {address} failed: {errno}; {}", call_advice(call, *.errno))]
    Call {
        /// The device.
        address: PciAddress,
        /// Which call.
        call: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The kernel's answer makes no sense.
    #[error("{call} of PCI device {address} gave an answer that cannot be: {why}")]
    Answer {
        /// The device.
        address: PciAddress,
        /// Which call.
        call: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Part of a region that the device does not have, or that cannot be mapped.
    #[error(
        "{bytes} bytes at {offset:#x} of region {region} of PCI device {address} cannot be \
         {operation}: {why}"
    )]
    Region {
        /// The device.
        address: PciAddress,
        /// The number of the region, as in a PCI header.
        region: u32,
        /// Bytes into the region.
        offset: u64,
        /// How many.
        bytes: u64,
        /// "read", "written" or "mapped".
        operation: &'static str,
        /// What is in the way.
        why: &'static str,
    },
    /// A range that cannot be mapped for DMA.
    #[error("{bytes} bytes at {iova:#x} of PCI device {address} cannot be {operation}: {why}")]
    Dma {
        /// The device.
        address: PciAddress,
        /// The device's address for the range.
        iova: u64,
        /// Its length.
        bytes: u64,
        /// "mapped for DMA" or "unmapped".
        operation: &'static str,
        /// What is in the way.
        why: &'static str,
    },
    /// More interrupt vectors than the device has.
    #[error("PCI device {address} has {has} vectors of {kind}, not {wanted}")]
    Vectors {
        /// The device.
        address: PciAddress,
        /// Which kind.
        kind: &'static str,
        /// How many it has.
        has: u32,
        /// How many were asked for.
        wanted: usize,
    },
    /// The device cannot be reset on its own.
    #[error(
        "PCI device {address} cannot be reset by itself; remove and rescan it, or restart the machine"
    )]
    NoReset {
        /// The device.
        address: PciAddress,
    },
}

impl VfioError {
    /// Whether it may pass by itself: the device is being let go or plugged in.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            VfioError::Absent { .. }
                | VfioError::Open { errno: Errno::BUSY, .. }
                | VfioError::Call { errno: Errno::BUSY, .. }
        )
    }
}

fn bind_advice(address: PciAddress, driver: Option<&str>) -> String {
    let folder = address.folder();
    let folder = folder.display();
    let (state, unbind) = match driver {
        None => ("has no driver".to_owned(), String::new()),
        Some(name) => (
            format!("belongs to driver {name}"),
            format!("echo {address} > {folder}/driver/unbind; "),
        ),
    };
    format!(
        "{state}; bind it to vfio-pci (as root): modprobe vfio-pci; \
         echo vfio-pci > {folder}/driver_override; {unbind}\
         echo {address} > /sys/bus/pci/drivers_probe"
    )
}

fn open_advice(errno: Errno) -> &'static str {
    match errno {
        Errno::NOENT => "load the driver: modprobe vfio-pci",
        Errno::ACCESS | Errno::PERM => "give this user the file (chown), or run as root",
        Errno::BUSY => "another process uses a device of this group: end it first",
        _ => "see the kernel's log (dmesg)",
    }
}

fn call_advice(call: &str, errno: Errno) -> &'static str {
    match (call, errno) {
        ("MAP_DMA", Errno::NOMEM) => "it locks memory: raise the limit (ulimit -l), or map less",
        ("MAP_DMA", Errno::NOSPC) => "too many ranges are mapped: map fewer, larger ones",
        ("MAP_DMA", Errno::EXIST) => "part of the range is mapped already: unmap it first",
        ("MAP_DMA", Errno::INVAL) => {
            "addresses and length must be multiples of the IOMMU's page size and lie in its ranges"
        }
        ("MAP_DMA", Errno::FAULT) => "the memory is not mapped, or not writable, in this process",
        ("SET_IOMMU", Errno::PERM) => {
            "the machine cannot isolate interrupts; if you trust the device: \
             echo 1 > /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"
        }
        (_, Errno::BUSY) => "another process uses the device: end it first",
        (_, Errno::NODEV | Errno::IO) => {
            "the device does not answer or is gone: see the kernel's log (dmesg)"
        }
        _ => "see the kernel's log (dmesg)",
    }
}
