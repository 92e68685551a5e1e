//! What a function's front reaches over its bus.

use std::sync::atomic::{Ordering, fence};

use farside_card::{Bus, BusError};
use farside_vfio_user::device::irq;

use super::leased_function::LeasedFunction;
use farside_linux::lock::lock;

/// What the front reaches: the client's windows and interrupts.
pub(super) struct ClientBus<'a> {
    pub(super) leased: &'a LeasedFunction,
}

impl Bus for ClientBus<'_> {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.leased.read_bus(address, into)
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), BusError> {
        self.leased.write_bus(address, from)
    }

    fn load(&mut self, address: u64) -> Result<u32, BusError> {
        if self.leased.windows.is_by_messages(address, 4) && address % 4 == 0 {
            let mut word = [0; 4];
            self.leased.staging.read(address, &mut word)?;
            return Ok(u32::from_le_bytes(word));
        }
        self.leased.windows.load(address)
    }

    fn store(&mut self, address: u64, value: u32) -> Result<(), BusError> {
        if self.leased.windows.is_by_messages(address, 4) && address % 4 == 0 {
            return self.leased.staging.write(address, &value.to_le_bytes());
        }
        self.leased.windows.store(address, value)
    }

    fn fence(&mut self) {
        fence(Ordering::SeqCst);
    }

    fn reaches(&mut self, address: u64, bytes: u64, write: bool) -> bool {
        self.leased.windows.reaches(address, bytes, write)
    }

    fn freed(&mut self, first: u32, count: u32) {
        self.leased.own.scrub(&self.leased.memory, first, count);
    }

    fn interrupt(&mut self, vector: u16) {
        let raised = lock(&self.leased.interrupts).raise(irq::MSIX, vector.into());
        if let Err(errno) = raised {
            tracing::error!(?errno, vector, "an interrupt cannot be raised");
        }
    }
}
