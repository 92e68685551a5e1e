//! The configuration space of a PCI device: registers that a driver probes and programs.
//!
//! Pure and independent of the engines. [`Builder`] lays out a type 0 header with BARs and
//! capabilities; [`ConfigSpace`] then answers reads and writes as hardware does: read-only bits stay,
//! BARs can be sized, status bits are cleared by writing ones. [`ConfigSpace::describe`] gives the
//! regions and interrupts to offer with it.

mod builder;
mod capability;
mod space;

pub use builder::{Bar, BuildError, Builder, Identity};
pub use capability::{Express, Msi, Msix};
pub use space::{Changes, ConfigSpace};

/// Offsets of the registers of a type 0 header, in bytes.
pub mod register {
    /// Vendor, 16 bits.
    pub const VENDOR: u16 = 0x00;
    /// Device, 16 bits.
    pub const DEVICE: u16 = 0x02;
    /// Command, 16 bits.
    pub const COMMAND: u16 = 0x04;
    /// Status, 16 bits.
    pub const STATUS: u16 = 0x06;
    /// Revision, 8 bits, and class, 24 bits.
    pub const REVISION: u16 = 0x08;
    /// Cache line size, 8 bits.
    pub const CACHE_LINE: u16 = 0x0c;
    /// Header type, 8 bits.
    pub const HEADER_TYPE: u16 = 0x0e;
    /// BAR 0, 32 bits; BARs 1 to 5 follow.
    pub const BAR0: u16 = 0x10;
    /// Subsystem vendor, 16 bits.
    pub const SUBSYSTEM_VENDOR: u16 = 0x2c;
    /// Subsystem, 16 bits.
    pub const SUBSYSTEM: u16 = 0x2e;
    /// Expansion ROM, 32 bits.
    pub const ROM: u16 = 0x30;
    /// First capability, 8 bits.
    pub const CAPABILITIES: u16 = 0x34;
    /// Interrupt line, 8 bits.
    pub const INTERRUPT_LINE: u16 = 0x3c;
    /// Interrupt pin, 8 bits.
    pub const INTERRUPT_PIN: u16 = 0x3d;
}

/// Bits of the command register.
pub mod command {
    /// The device answers to I/O ports.
    pub const IO: u16 = 1 << 0;
    /// The device answers to memory.
    pub const MEMORY: u16 = 1 << 1;
    /// The device may do DMA and raise MSI and MSI-X.
    pub const BUS_MASTER: u16 = 1 << 2;
    /// Parity errors are answered.
    pub const PARITY: u16 = 1 << 6;
    /// System errors are raised.
    pub const SERR: u16 = 1 << 8;
    /// The interrupt pin is off.
    pub const INTX_DISABLE: u16 = 1 << 10;
}

/// Bits of the status register.
pub mod status {
    /// The pin's level is high (whether or not the pin is off).
    pub const INTERRUPT: u16 = 1 << 3;
    /// There is a list of capabilities.
    pub const CAPABILITIES: u16 = 1 << 4;
    /// Errors, cleared by writing ones.
    pub const ERRORS: u16 = 0xf900;
}
