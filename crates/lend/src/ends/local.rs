//! The memory that the local client shares, and its eventfds.

use std::sync::atomic::{Ordering, fence};

use farside_linux::shared::SharedMemory;
use farside_vfio_user::unix::Interrupts;
use farside_vfio_user::{DeviceInfo, DmaMap, Errno, SetIrqs};

/// What the borrower's end needs of its client beside messages.
pub trait Local {
    /// Memory that the client shares.
    type Place;

    /// Takes memory that the client shares.
    ///
    /// # Errors
    /// What the client is told.
    fn share(&mut self, map: DmaMap) -> Result<Self::Place, Errno>;

    /// Reads shared memory.
    ///
    /// # Errors
    /// What the device is told.
    fn read(&mut self, place: &Self::Place, offset: u64, into: &mut [u8]) -> Result<(), Errno>;

    /// Writes shared memory; what is raised afterwards is seen after it.
    ///
    /// # Errors
    /// What the device is told.
    fn write(&mut self, place: &Self::Place, offset: u64, from: &[u8]) -> Result<(), Errno>;

    /// The client sets up interrupts.
    ///
    /// # Errors
    /// What the client is told.
    fn set_irqs(&mut self, set: SetIrqs<'_>) -> Result<(), Errno>;

    /// Raises one, if the client listens.
    ///
    /// # Errors
    /// There is none of that number.
    fn raise(&mut self, index: u32, vector: u32) -> Result<(), Errno>;
}

/// Memory by descriptors, interrupts by eventfds.
pub struct ByDescriptors {
    interrupts: Interrupts,
}

impl ByDescriptors {
    /// For a client of a device.
    #[must_use]
    pub fn new(info: &DeviceInfo) -> ByDescriptors {
        ByDescriptors { interrupts: Interrupts::new(info) }
    }
}

impl Local for ByDescriptors {
    type Place = SharedMemory;

    fn share(&mut self, map: DmaMap) -> Result<SharedMemory, Errno> {
        let file = map.fd.ok_or(Errno::NOTSUP)?;
        SharedMemory::of_file(file, map.offset, map.size).map_err(|_| Errno::INVAL)
    }

    fn read(&mut self, place: &SharedMemory, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        fence(Ordering::SeqCst);
        if into.len() == 4 && offset % 4 == 0 {
            let word = place.load(offset).ok_or(Errno::FAULT)?;
            into.copy_from_slice(&word.to_le_bytes());
            return Ok(());
        }
        place.read(offset, into).ok_or(Errno::FAULT)
    }

    fn write(&mut self, place: &SharedMemory, offset: u64, from: &[u8]) -> Result<(), Errno> {
        let done = match from.try_into() {
            Ok(word) if offset % 4 == 0 => place.store(offset, u32::from_le_bytes(word)),
            _ => place.write(offset, from),
        };
        fence(Ordering::SeqCst);
        done.ok_or(Errno::FAULT)
    }

    fn set_irqs(&mut self, set: SetIrqs<'_>) -> Result<(), Errno> {
        self.interrupts.apply(set)
    }

    fn raise(&mut self, index: u32, vector: u32) -> Result<(), Errno> {
        self.interrupts.raise(index, vector).map(drop)
    }
}
