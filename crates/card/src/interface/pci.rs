//! How the function looks to PCI enumeration.

/// Vendor id: the one that is free for virtual devices without a vendor.
pub const VENDOR: u16 = 0x1234;
/// Device id.
pub const DEVICE: u16 = 0xfa51;
/// Class: processing accelerator.
pub const CLASS: u32 = 0x12_00_00;
/// Registers.
pub const BAR_REGISTERS: usize = 0;
/// This function's card memory, prefetchable, 64 bit.
pub const BAR_MEMORY: usize = 2;
/// MSI-X table and pending bits.
pub const BAR_MSIX: usize = 4;
/// Bytes of BAR0.
pub const BAR_REGISTERS_BYTES: u64 = 0x1_0000;
/// Bytes of BAR4.
pub const BAR_MSIX_BYTES: u64 = 0x2000;
/// Offset of the MSI-X table in BAR4.
pub const MSIX_TABLE: u32 = 0;
/// Offset of the pending bits in BAR4.
pub const MSIX_PENDING: u32 = 0x1000;
/// Interrupt vectors: one per ring that the card writes, and one for errors.
pub const VECTORS: u16 = 4;
/// The vector for errors; a ring may use it too.
pub const ERROR_VECTOR: u16 = 3;

/// Bytes of BAR2 for a memory of `frames` frames: a power of two, as PCI wants it. Frames beyond the
/// memory read as ones and swallow writes.
pub const fn bar_memory_bytes(frames: u32) -> u64 {
    (frames as u64 * 4096).next_power_of_two()
}
