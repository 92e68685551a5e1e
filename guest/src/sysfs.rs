//! The kernel's files about a PCI device.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use farside_linux::vfio::PciAddress;

use crate::Failure;
use crate::wait::wait_until;

/// The only device with these ids.
pub(crate) fn find(vendor: u16, device: u16) -> Result<PciAddress, Failure> {
    match PciAddress::find(vendor, device)?[..] {
        [address] => Ok(address),
        [] => Err(format!("there is no PCI device {vendor:04x}:{device:04x}").into()),
        _ => Err(format!("there are several PCI devices {vendor:04x}:{device:04x}").into()),
    }
}

/// Gives the device to `vfio-pci`.
pub(crate) fn bind_to_vfio(address: PciAddress) -> Result<(), Failure> {
    write(&address.folder().join("driver_override"), "vfio-pci")?;
    write(Path::new("/sys/bus/pci/drivers_probe"), &address.to_string())?;
    wait_until("the driver vfio-pci", || address.driver().as_deref() == Some("vfio-pci"))
}

/// Takes the device away, as if it were being unplugged. Returns when its driver has let it go.
pub(crate) fn remove(address: PciAddress) -> Result<(), Failure> {
    write(&address.folder().join("remove"), "1")
}

/// Looks for devices that have come.
pub(crate) fn rescan() -> Result<(), Failure> {
    write(Path::new("/sys/bus/pci/rescan"), "1")
}

/// Writes a file of the kernel's.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| format!("{text} to {}: {error}", path.display()).into())
}

/// The configuration space of a device.
pub(crate) struct Config {
    file: fs::File,
}

impl Config {
    pub(crate) fn open(address: PciAddress) -> Result<Config, Failure> {
        let path = address.folder().join("config");
        let file = OpenOptions::new().read(true).write(true).open(&path);
        Ok(Config { file: file.map_err(|error| format!("{}: {error}", path.display()))? })
    }

    pub(crate) fn read_u8(&self, offset: u64) -> Result<u8, Failure> {
        let mut bytes = [0];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes[0])
    }

    pub(crate) fn read_u16(&self, offset: u64) -> Result<u16, Failure> {
        let mut bytes = [0; 2];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(u16::from_le_bytes(bytes))
    }

    pub(crate) fn read_u32(&self, offset: u64) -> Result<u32, Failure> {
        let mut bytes = [0; 4];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(u32::from_le_bytes(bytes))
    }

    pub(crate) fn write_u16(&self, offset: u64, value: u16) -> Result<(), Failure> {
        Ok(self.file.write_all_at(&value.to_le_bytes(), offset)?)
    }

    /// Where the capability with this id is.
    pub(crate) fn capability(&self, id: u8) -> Result<u64, Failure> {
        const FIRST: u64 = 0x34;
        // As many as fit into configuration space.
        const STEPS_MAX: usize = 48;
        let mut at = u64::from(self.read_u8(FIRST)?) & 0xfc;
        for _ in 0..STEPS_MAX {
            if at == 0 {
                break;
            }
            if self.read_u8(at)? == id {
                return Ok(at);
            }
            at = u64::from(self.read_u8(at + 1)?) & 0xfc;
        }
        Err(format!("the device has no PCI capability {id:#x}").into())
    }
}
