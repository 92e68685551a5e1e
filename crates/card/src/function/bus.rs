//! What a function reaches over its bus.

use thiserror::Error;

/// A bus address that nothing answers at, or that may not be reached this way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("nothing answers at bus address {address:#x}; map it for this function, then reset it")]
pub struct BusError {
    /// The first byte that could not be reached.
    pub address: u64,
}

/// What a function reaches over its bus: the driver's memory, peers, interrupts.
///
/// An implementation bounds every access by what is mapped for this function; addresses come from a
/// driver that may be hostile.
pub trait Bus {
    /// Reads bytes. Not ordered with other accesses.
    ///
    /// # Errors
    /// [`BusError`] if one of the bytes cannot be reached; `into` is then undefined.
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), BusError>;

    /// Writes bytes. Not ordered with other accesses, except that they are before a later
    /// [`Bus::store`].
    ///
    /// # Errors
    /// [`BusError`] if one of the bytes cannot be reached; any of the others may be written.
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), BusError>;

    /// Reads a word; what its writer wrote before it is seen by later accesses (acquire). The
    /// address is a multiple of 4.
    ///
    /// # Errors
    /// [`BusError`].
    fn load(&mut self, address: u64) -> Result<u32, BusError>;

    /// Writes a word after everything that was read and written before (release). The address is a
    /// multiple of 4.
    ///
    /// # Errors
    /// [`BusError`].
    fn store(&mut self, address: u64, value: u32) -> Result<(), BusError>;

    /// Orders every access before it with every access behind it, a write and a later read
    /// included.
    fn fence(&mut self);

    /// Whether all of these bytes can be reached, for writing if `write`. Asked before a page is
    /// mapped and before a copy begins; the copy itself may still fail.
    fn reaches(&mut self, address: u64, bytes: u64, write: bool) -> bool;

    /// Frames of the window have become free: `count` pages of BAR2 from `first` on, which nobody has and nobody gets before
    /// this returns. What they hold next begins with what is left here.
    fn freed(&mut self, first: u32, count: u32) {
        let _ = (first, count);
    }

    /// Signals an interrupt vector, below [`crate::interface::pci::VECTORS`].
    fn interrupt(&mut self, vector: u16);
}
