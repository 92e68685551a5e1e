//! Where a device is on its machine's PCI buses.

use core::fmt;
use core::str::FromStr;
use std::path::PathBuf;
use std::{fs, io};

use super::VfioError;

const DEVICES: &str = "/sys/bus/pci/devices";

/// Domain, bus, device and function, written `0000:00:03.0`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PciAddress {
    /// The domain (segment), 0 on most machines.
    pub domain: u32,
    /// The bus.
    pub bus: u8,
    /// The device on the bus, below 32.
    pub device: u8,
    /// The function of the device, below 8.
    pub function: u8,
}

impl PciAddress {
    /// The devices of this machine with these ids, in order of address.
    ///
    /// # Errors
    /// If the kernel's list cannot be read.
    pub fn find(vendor: u16, device: u16) -> io::Result<Vec<PciAddress>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(DEVICES)? {
            let name = entry?.file_name();
            let Some(address) = name.to_str().and_then(|name| name.parse::<PciAddress>().ok())
            else {
                continue;
            };
            if address.id("vendor") == Some(vendor) && address.id("device") == Some(device) {
                found.push(address);
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// The folder by which the kernel shows the device.
    pub fn folder(self) -> PathBuf {
        PathBuf::from(format!("{DEVICES}/{self}"))
    }

    /// The name of the driver that has the device, if one has.
    pub fn driver(self) -> Option<String> {
        self.link("driver")
    }

    /// The last part of what a link in the device's folder points to.
    pub(super) fn link(self, name: &str) -> Option<String> {
        let target = fs::read_link(self.folder().join(name)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    fn id(self, name: &str) -> Option<u16> {
        let text = fs::read_to_string(self.folder().join(name)).ok()?;
        u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddress { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl FromStr for PciAddress {
    type Err = VfioError;

    /// Reads `0000:00:03.0`, or `00:03.0` in domain 0.
    fn from_str(text: &str) -> Result<PciAddress, VfioError> {
        parse(text).ok_or_else(|| VfioError::Address { text: text.chars().take(40).collect() })
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
    let address = PciAddress {
        domain: hexadecimal(domain, 8)?,
        bus: hexadecimal(bus, 2)? as u8,
        device: hexadecimal(device, 2)? as u8,
        function: hexadecimal(function, 1)? as u8,
    };
    (address.device < 32 && address.function < 8).then_some(address)
}

/// At most `digits` digits and nothing else, no sign in particular.
fn hexadecimal(text: &str, digits: usize) -> Option<u32> {
    let plain = text.len() <= digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_as_lspci_does() {
        let address: PciAddress = "0001:af:1f.7".parse().unwrap();
        assert_eq!(address, PciAddress { domain: 1, bus: 0xaf, device: 31, function: 7 });
        assert_eq!(address.to_string(), "0001:af:1f.7");
        assert_eq!("00:03.0".parse::<PciAddress>().unwrap().to_string(), "0000:00:03.0");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "3", "00:03", "00:20.0", "00:03.8", "100:03.0", "+0:03.0", "00:é.0", ":.0"]
        {
            let error = text.parse::<PciAddress>().unwrap_err();
            assert!(error.to_string().contains("0000:00:03.0"), "{error}");
        }
    }
}
