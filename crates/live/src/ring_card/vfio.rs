//! The way to a card that is a PCIe device of this machine: the kernel's VFIO.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use farside_card::interface::{pci, register};
use rustix::event::EventfdFlags;
use rustix::io::Errno;

use super::transport::{DmaPiece, Transport, TransportError, Watch};
use farside_linux::vfio::{
    Access, Device, InterruptKind, PciAddress, RegionIndex, RegionMapping, VfioError,
};

/// A device and its registers.
#[derive(Debug)]
pub(crate) struct Vfio {
    device: Device,
    /// BAR0. Registers of 64 bits are read and written whole only through a mapping: the kernel's
    /// system calls may split them.
    registers: RegionMapping,
    /// The kernel says here that it wants the device back, or that it has failed.
    leave: OwnedFd,
    /// It has said so.
    left: AtomicBool,
}

/// Takes a device that is bound to `vfio-pci`.
///
/// # Errors
/// [`VfioError`] says what is missing and how to get it.
pub(crate) fn open(address: &str) -> Result<Vfio, VfioError> {
    let address: PciAddress = address.parse()?;
    let device = Device::open(address)?;
    device.set_bus_master(true)?;
    let registers = device.map(RegionIndex::Bar0, 0, pci::BAR_REGISTERS_BYTES)?;
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let leave = rustix::event::eventfd(0, flags).map_err(|errno| VfioError::Call {
        address,
        call: "eventfd",
        errno,
    })?;
    for kind in [InterruptKind::Request, InterruptKind::Error] {
        match device.set_interrupts(kind, &[Some(leave.as_fd())]) {
            // Not every device reports errors, and older kernels ask for none.
            Ok(()) | Err(VfioError::Call { errno: Errno::INVAL | Errno::NOTTY, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Vfio { device, registers, leave, left: AtomicBool::new(false) })
}

fn failure(what: &'static str) -> impl Fn(VfioError) -> TransportError {
    move |error| match error {
        VfioError::Call { errno: Errno::NODEV, .. } => TransportError::Gone { what },
        VfioError::Call { errno, .. } => TransportError::Refused { what, errno },
        other => TransportError::Unfit { what: format!("{what} failed: {other}") },
    }
}

fn no_register(what: &str, offset: u64, bytes: usize) -> TransportError {
    TransportError::Unfit { what: format!("{what} {bytes} bytes at {offset:#x}: no such register") }
}

impl Transport for Vfio {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), TransportError> {
        let at = offset as usize;
        match into.len() {
            4 => into.copy_from_slice(&self.registers.read_u32(at).to_le_bytes()),
            8 => into.copy_from_slice(&self.registers.read_u64(at).to_le_bytes()),
            bytes => return Err(no_register("reading", offset, bytes)),
        }
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), TransportError> {
        let at = offset as usize;
        if let Ok(bytes) = from.try_into() {
            self.registers.write_u32(at, u32::from_le_bytes(bytes));
        } else if let Ok(bytes) = from.try_into() {
            self.registers.write_u64(at, u64::from_le_bytes(bytes));
        } else {
            return Err(no_register("writing", offset, from.len()));
        }
        Ok(())
    }

    fn ring_doorbell(&self) -> bool {
        self.registers.write_u32(register::DOORBELL as usize, 1);
        true
    }

    fn map(&self, piece: &DmaPiece<'_>) -> Result<(), TransportError> {
        let what = "sharing memory with the card";
        let memory = NonNull::new(piece.address)
            .ok_or(TransportError::Refused { what, errno: Errno::INVAL })?;
        // SAFETY: the piece is a mapping that the runtime keeps until the card is unmapped from it
        // or dropped, and touches through raw pointers and atomics only.
        unsafe { self.device.map_dma(piece.bus, memory, piece.bytes, Access::ReadWrite) }
            .map_err(failure(what))
    }

    fn unmap(&self, bus: u64, bytes: u64) -> Result<(), TransportError> {
        self.device.unmap_dma(bus, bytes).map_err(failure("taking memory back from the card"))
    }

    fn memory(&self, _bytes: u64) -> Result<(OwnedFd, u64), TransportError> {
        let what = "mapping the card's memory";
        let (file, offset) = self.device.region_file(RegionIndex::Bar2);
        let file = file.try_clone_to_owned().map_err(|error| TransportError::Refused {
            what,
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })?;
        Ok((file, offset))
    }

    fn interrupt_by(&self, events: &[BorrowedFd<'_>]) -> Result<(), TransportError> {
        let what = "setting up interrupts";
        self.device.clear_interrupts(InterruptKind::MsiX).map_err(failure(what))?;
        let events: Vec<_> = events.iter().copied().map(Some).collect();
        self.device.set_interrupts(InterruptKind::MsiX, &events).map_err(failure(what))
    }

    fn watch(&self) -> Option<Watch<'_>> {
        Some(Watch::Event(self.leave.as_fd()))
    }

    fn is_gone(&self) -> bool {
        if rustix::io::read(&self.leave, &mut [0; 8]).is_ok() {
            self.left.store(true, Ordering::SeqCst);
        }
        // A device that is gone reads as all ones.
        let magic = self.registers.read_u32(register::MAGIC as usize);
        self.left.load(Ordering::SeqCst) || magic == u32::MAX
    }

    fn stop(&self) {
        // One that does not let itself be stopped is gone. The kernel resets it when it is closed,
        // if this does not.
        if let Err(error) = self.device.set_bus_master(false).and_then(|()| self.device.reset()) {
            tracing::debug!(%error, "a device that is given up is not reset yet");
        }
    }
}
