//! A PCIe device driven from user space: the kernel's VFIO (`/dev/vfio`, type 1).
//!
//! Owns the descriptors of one device, its regions, DMA maps and interrupts. Knows nothing of cards:
//! what the registers mean is for the caller. This is the path for silicon, and the one by which a
//! guest drives a card that its hypervisor attached.
//!
//! The kernel must own no other driver for the device: it is bound to `vfio-pci` first. Behind an
//! IOMMU ([`Device::isolated`]) the device reaches exactly the memory given to
//! [`Device::map_dma`], at the addresses chosen there. Without one (`vfio` loaded with
//! `enable_unsafe_noiommu_mode`) registers and interrupts work, and nothing is mapped for DMA.
//!
//! ```no_run
//! use farside_linux::vfio::{Device, RegionIndex};
//!
//! # fn main() -> Result<(), farside_linux::vfio::VfioError> {
//! let device = Device::open("0000:00:03.0".parse()?)?;
//! device.set_bus_master(true)?;
//! let registers = device.map(RegionIndex::Bar0, 0, 4096)?;
//! println!("identity {:#x}", registers.read_u32(0));
//! # Ok(())
//! # }
//! ```

pub mod abi;
mod address;
mod device;
mod dma;
mod error;
mod interrupt;
mod ioctl;
mod open;
mod region;
mod reply;

pub use address::PciAddress;
pub use device::Device;
pub use dma::{Access, IoRange, Iommu};
pub use error::VfioError;
pub use interrupt::InterruptKind;
pub use region::{Area, Region, RegionIndex, RegionMapping};
