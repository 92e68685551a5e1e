//! Interrupts of a device, delivered as eventfds.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::abi::{self, irq_flag};

/// A way for a PCI device to interrupt: of the first three one at a time is in use. The others are the
/// kernel's own messages about the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum InterruptKind {
    /// A wire. One vector, masked by the kernel each time it has fired.
    Intx = 0,
    /// MSI.
    Msi = 1,
    /// MSI-X.
    MsiX = 2,
    /// The device has reported an error that it cannot recover from. One vector, PCI Express only.
    Error = 3,
    /// The kernel wants the device back: it is to be unplugged, or bound to another driver. One
    /// vector; the kernel waits until the device is closed.
    Request = 4,
}

impl InterruptKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            InterruptKind::Intx => "INTx",
            InterruptKind::Msi => "MSI",
            InterruptKind::MsiX => "MSI-X",
            InterruptKind::Error => "errors",
            InterruptKind::Request => "requests to let it go",
        }
    }
}

/// The request that gives each vector its eventfd.
pub(super) fn set_request(kind: InterruptKind, vectors: &[Option<BorrowedFd<'_>>]) -> Vec<u32> {
    let none = -1i32 as u32;
    let data = vectors.iter().map(|fd| fd.map_or(none, |fd| fd.as_raw_fd() as u32));
    request(kind, irq_flag::DATA_EVENTFD, data.collect())
}

/// The request that switches the kind off.
pub(super) fn clear_request(kind: InterruptKind) -> Vec<u32> {
    request(kind, irq_flag::DATA_NONE, Vec::new())
}

fn request(kind: InterruptKind, data_flag: u32, data: Vec<u32>) -> Vec<u32> {
    let head = abi::IrqSet {
        argsz: (size_of::<abi::IrqSet>() + size_of_val(data.as_slice())) as u32,
        flags: data_flag | irq_flag::ACTION_TRIGGER,
        index: kind as u32,
        start: 0,
        count: data.len() as u32,
    };
    let mut words: Vec<u32> = bytemuck::cast::<_, [u32; 5]>(head).to_vec();
    words.extend(data);
    words
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_request_holds_a_descriptor_per_vector() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let words = set_request(InterruptKind::MsiX, &[Some(file.as_fd()), None]);
        assert_eq!(words[..5], [28, 0x24, 2, 0, 2]);
        assert_eq!(words[5..], [file.as_raw_fd() as u32, u32::MAX]);
        assert_eq!(clear_request(InterruptKind::Msi), [20, 0x21, 1, 0, 0]);
    }
}
