//! A configuration space in use: reads, writes, and what they mean.

use super::capability::{Capability, Msi, Msix};
use super::{command, register, status};
use crate::device::{self, DeviceInfo, Irq, Region};

/// First byte that a capability may take.
const FIRST_CAPABILITY: u16 = 0x40;

/// Bytes with, for each bit, whether it can be written or cleared.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    bytes: Vec<u8>,
    writable: Vec<u8>,
    clearable: Vec<u8>,
    /// Where the offset of the next capability goes.
    link: u16,
    free: u16,
    pub(super) msi: Option<u16>,
    pub(super) msix: Option<u16>,
    pub(super) express: Option<u16>,
}

impl Layout {
    pub(super) fn new(size: usize) -> Layout {
        Layout {
            bytes: vec![0; size],
            writable: vec![0; size],
            clearable: vec![0; size],
            link: register::CAPABILITIES,
            free: FIRST_CAPABILITY,
            msi: None,
            msix: None,
            express: None,
        }
    }

    pub(super) fn put(&mut self, at: u16, value: &[u8]) {
        copy(&mut self.bytes, at, value);
    }

    pub(super) fn allow(&mut self, at: u16, bits: &[u8]) {
        copy(&mut self.writable, at, bits);
    }

    pub(super) fn clear_by_ones(&mut self, at: u16, bits: &[u8]) {
        copy(&mut self.clearable, at, bits);
    }

    /// Appends a capability to the list; its offset, or none if there is no room.
    pub(super) fn capability(&mut self, capability: &Capability) -> Option<u16> {
        let at = self.free;
        let size = u16::try_from(capability.bytes.len()).ok()?;
        let end = at.checked_add(size)?;
        if end > 256 {
            return None;
        }
        self.put(at, &capability.bytes);
        self.allow(at, &capability.writable);
        self.clear_by_ones(at, &capability.clearable);
        self.put(at + 1, &[0]);
        self.put(self.link, &[at as u8]);
        let present = self.u16(register::STATUS) | status::CAPABILITIES;
        self.put(register::STATUS, &present.to_le_bytes());
        self.link = at + 1;
        self.free = end.next_multiple_of(4);
        Some(at)
    }

    fn u16(&self, at: u16) -> u16 {
        let at = usize::from(at);
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn u32(&self, at: u16) -> u32 {
        u32::from(self.u16(at)) | u32::from(self.u16(at + 2)) << 16
    }

    /// Writes one byte as hardware does.
    fn write(&mut self, at: usize, value: u8) {
        let writable = self.writable[at];
        let cleared = self.clearable[at] & value;
        self.bytes[at] = ((self.bytes[at] & !writable) | (value & writable)) & !cleared;
    }
}

fn copy(to: &mut [u8], at: u16, from: &[u8]) {
    let at = usize::from(at);
    to[at..at + from.len()].copy_from_slice(from);
}

/// What a write changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The command register: decoding, bus mastering, the pin.
    pub command: bool,
    /// An address of a BAR or of the ROM.
    pub addresses: bool,
    /// Anything in the MSI capability.
    pub msi: bool,
    /// Anything in the MSI-X capability.
    pub msix: bool,
    /// A function-level reset was asked for: reset the device, and this configuration space by
    /// [`ConfigSpace::reset`].
    pub function_reset: bool,
}

/// The configuration space of one device.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    layout: Layout,
    initial: Vec<u8>,
    bar_sizes: [u64; 6],
    rom_size: u32,
    pin: u8,
    msi_vectors: u8,
    msix_vectors: u16,
}

impl ConfigSpace {
    pub(super) fn new(
        layout: Layout,
        bar_sizes: [u64; 6],
        rom_size: u32,
        pin: u8,
        msi: Option<Msi>,
        msix: Option<Msix>,
    ) -> ConfigSpace {
        ConfigSpace {
            initial: layout.bytes.clone(),
            layout,
            bar_sizes,
            rom_size,
            pin,
            msi_vectors: msi.map_or(0, |msi| msi.vectors),
            msix_vectors: msix.map_or(0, |msix| msix.vectors),
        }
    }

    /// Bytes: 256, or 4096 with PCI Express.
    #[must_use]
    pub fn size(&self) -> usize {
        self.layout.bytes.len()
    }

    /// The regions and interrupts to offer: BARs and ROM to be read and written by messages, this
    /// configuration space, and the interrupts. Replace regions that can be mapped.
    #[must_use]
    pub fn describe(&self) -> DeviceInfo {
        let mut info = DeviceInfo::pci()
            .region(device::region::CONFIG, Region::read_write(self.size() as u64))
            .irq(device::irq::MSI, Irq::messages(u32::from(self.msi_vectors)))
            .irq(device::irq::MSIX, Irq::messages(u32::from(self.msix_vectors)))
            .irq(device::irq::ERROR, Irq::NOTICE)
            .irq(device::irq::REQUEST, Irq::NOTICE);
        if self.pin != 0 {
            info = info.irq(device::irq::INTX, Irq::INTX);
        }
        if self.rom_size != 0 {
            let rom = Region::read_only(u64::from(self.rom_size));
            info = info.region(device::region::ROM, rom);
        }
        for (index, &size) in (0..).zip(&self.bar_sizes) {
            if size != 0 {
                info = info.region(index, Region::read_write(size));
            }
        }
        info
    }

    /// Reads any bytes; what lies outside reads as ones.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        for (index, byte) in data.iter_mut().enumerate() {
            let at = start.saturating_add(index);
            *byte = self.layout.bytes.get(at).copied().unwrap_or(0xff);
        }
    }

    /// Writes any bytes; read-only bits and what lies outside stay.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Changes {
        let mut changes = Changes::default();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        for (index, &value) in data.iter().enumerate() {
            let at = start.saturating_add(index);
            let Some(&before) = self.layout.bytes.get(at) else { continue };
            changes.function_reset |= self.asks_for_reset(at, value);
            self.layout.write(at, value);
            if self.layout.bytes[at] != before {
                self.note(at as u16, &mut changes);
            }
        }
        changes
    }

    /// Bit 15 of an Express device's control register resets the function; it reads as 0.
    fn asks_for_reset(&self, at: usize, value: u8) -> bool {
        let upper_half = self.layout.express.map(|express| usize::from(express) + 9);
        upper_half == Some(at) && value & 0x80 != 0
    }

    fn note(&self, at: u16, changes: &mut Changes) {
        let within = |start: Option<u16>, size| {
            start.is_some_and(|start| (start..start + size).contains(&at))
        };
        changes.command |= within(Some(register::COMMAND), 2);
        changes.addresses |= within(Some(register::BAR0), 24) || within(Some(register::ROM), 4);
        changes.msi |= within(self.layout.msi, 14);
        changes.msix |= within(self.layout.msix, 12);
    }

    /// Everything as it was built: after a reset.
    pub fn reset(&mut self) {
        self.layout.bytes.copy_from_slice(&self.initial);
    }

    /// The command register.
    #[must_use]
    pub fn command(&self) -> u16 {
        self.layout.u16(register::COMMAND)
    }

    /// Whether the driver lets the device do DMA.
    #[must_use]
    pub fn is_bus_master(&self) -> bool {
        self.command() & command::BUS_MASTER != 0
    }

    /// Whether the pin may interrupt.
    #[must_use]
    pub fn pin_enabled(&self) -> bool {
        self.pin != 0 && self.command() & command::INTX_DISABLE == 0
    }

    /// Shows the pin's level in the status register. A driver that shares the line looks there.
    pub fn set_interrupt_status(&mut self, high: bool) {
        let cleared = self.layout.u16(register::STATUS) & !status::INTERRUPT;
        let value = if high { cleared | status::INTERRUPT } else { cleared };
        self.layout.put(register::STATUS, &value.to_le_bytes());
    }

    /// Whether the driver switched MSI on.
    #[must_use]
    pub fn msi_enabled(&self) -> bool {
        self.layout.msi.is_some_and(|at| self.layout.u16(at + 2) & 1 != 0)
    }

    /// Whether the driver switched MSI-X on.
    #[must_use]
    pub fn msix_enabled(&self) -> bool {
        self.layout.msix.is_some_and(|at| self.layout.u16(at + 2) & 1 << 15 != 0)
    }

    /// Whether the driver masked all of MSI-X.
    #[must_use]
    pub fn msix_masked(&self) -> bool {
        self.layout.msix.is_some_and(|at| self.layout.u16(at + 2) & 1 << 14 != 0)
    }

    /// Bytes of a BAR, 0 if there is none.
    #[must_use]
    pub fn bar_size(&self, index: u8) -> u64 {
        self.bar_sizes.get(usize::from(index)).copied().unwrap_or(0)
    }

    /// The address that was written to a BAR, without its flags; none if there is no such BAR.
    #[must_use]
    pub fn bar_address(&self, index: u8) -> Option<u64> {
        if self.bar_size(index) == 0 {
            return None;
        }
        let at = register::BAR0 + 4 * u16::from(index);
        let low = self.layout.u32(at);
        if low & 1 != 0 {
            return Some(u64::from(low & !3));
        }
        let wide = low & 4 != 0;
        let high = if wide { u64::from(self.layout.u32(at + 4)) } else { 0 };
        Some(high << 32 | u64::from(low & !15))
    }
}
