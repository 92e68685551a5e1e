//! What a function's front reaches over its bus.

use std::sync::atomic::{Ordering, fence};

use farside_card::{Bus, BusError};
use farside_vfio_user::device::irq;

use super::plane::Plane;
use farside_linux::lock::lock;

/// What the front reaches: the client's windows and interrupts.
pub(super) struct PlaneBus<'a> {
    pub(super) plane: &'a Plane,
}

impl Bus for PlaneBus<'_> {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.plane.windows.read_bytes(address, into)
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), BusError> {
        self.plane.windows.write_bytes(address, from)
    }

    fn load(&mut self, address: u64) -> Result<u32, BusError> {
        self.plane.windows.load(address)
    }

    fn store(&mut self, address: u64, value: u32) -> Result<(), BusError> {
        self.plane.windows.store(address, value)
    }

    fn fence(&mut self) {
        fence(Ordering::SeqCst);
    }

    fn reaches(&mut self, address: u64, bytes: u64, write: bool) -> bool {
        self.plane.windows.reaches(address, bytes, write)
    }

    fn interrupt(&mut self, vector: u16) {
        let raised = lock(&self.plane.interrupts).raise(irq::MSIX, vector.into());
        if let Err(errno) = raised {
            tracing::error!(?errno, vector, "an interrupt cannot be raised");
        }
    }
}
