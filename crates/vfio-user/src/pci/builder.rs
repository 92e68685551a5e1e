//! Lays out a configuration space.

use super::capability::{Capability, Express, Msi, Msix};
use super::space::{ConfigSpace, Layout};
use super::{command, register, status};

/// Who a device says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Identity {
    /// Vendor.
    pub vendor: u16,
    /// Device.
    pub device: u16,
    /// Subsystem vendor.
    pub subsystem_vendor: u16,
    /// Subsystem.
    pub subsystem: u16,
    /// Class, subclass, programming interface: 0xCCSSPP.
    pub class: u32,
    /// Revision.
    pub revision: u8,
}

/// A base address register. Sizes are powers of two, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    /// Memory below 4 GiB.
    Memory32 {
        /// Bytes, at least 16.
        size: u32,
        /// Whether reads have no side effects.
        prefetchable: bool,
    },
    /// Memory anywhere; takes the next register too.
    Memory64 {
        /// Bytes, at least 16.
        size: u64,
        /// Whether reads have no side effects.
        prefetchable: bool,
    },
    /// I/O ports.
    Io {
        /// Ports, 4 to 256.
        size: u32,
    },
}

impl Bar {
    pub(super) fn size(&self) -> u64 {
        match *self {
            Bar::Memory32 { size, .. } | Bar::Io { size } => u64::from(size),
            Bar::Memory64 { size, .. } => size,
        }
    }

    fn flags(&self) -> u32 {
        match *self {
            Bar::Memory32 { prefetchable, .. } => u32::from(prefetchable) << 3,
            Bar::Memory64 { prefetchable, .. } => 1 << 2 | u32::from(prefetchable) << 3,
            Bar::Io { .. } => 1,
        }
    }

    fn good(&self) -> bool {
        let least = if matches!(self, Bar::Io { .. }) { 4 } else { 16 };
        let most = if matches!(self, Bar::Io { .. }) { 256 } else { u64::MAX };
        self.size().is_power_of_two() && (least..=most).contains(&self.size())
    }
}

/// Why a configuration space cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A BAR's size or number is wrong, or two take one register.
    #[error(
        "BAR {index}: its size must be a power of two (memory from 16, ports from 4 to 256), and a \
         64-bit BAR takes two free registers below 6"
    )]
    Bar {
        /// Its number.
        index: u8,
    },
    /// The MSI-X table or its pending bits do not fit.
    #[error(
        "MSI-X: 1 to 2048 vectors; table and pending bits lie in their BARs, apart, aligned to 8"
    )]
    Msix,
    /// A wrong number of MSI vectors.
    #[error("MSI: the number of vectors must be 1, 2, 4, 8, 16 or 32")]
    Msi,
    /// An impossible link.
    #[error("PCI Express: the link's speed is 1 to 6, its width 1, 2, 4, 8, 12, 16 or 32")]
    Express,
    /// A pin that does not exist.
    #[error("the interrupt pin is 1 (A) to 4 (D)")]
    Pin,
    /// Capabilities need more than the 192 bytes there are.
    #[error("the capabilities do not fit below byte 256; leave one out")]
    Full,
    /// A capability of the embedder's own is malformed.
    #[error("a capability has at least 2 bytes, and as many writable bits as bytes")]
    Capability,
}

/// Lays out a configuration space.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    identity: Identity,
    bars: [Option<Bar>; 6],
    rom: Option<u32>,
    pin: u8,
    msi: Option<Msi>,
    msix: Option<Msix>,
    express: Option<Express>,
    others: Vec<(Vec<u8>, Vec<u8>)>,
    error: Option<BuildError>,
}

impl Builder {
    /// A device with nothing but its identity.
    #[must_use]
    pub fn new(identity: Identity) -> Builder {
        Builder { identity, ..Builder::default() }
    }

    /// The device with a BAR.
    #[must_use]
    pub fn bar(mut self, index: u8, bar: Bar) -> Builder {
        match self.bars.get_mut(usize::from(index)) {
            Some(slot) if slot.is_none() => *slot = Some(bar),
            _ => self.error = Some(BuildError::Bar { index }),
        }
        self
    }

    /// The device with an expansion ROM of this many bytes, a power of two from 2048.
    #[must_use]
    pub fn rom(mut self, size: u32) -> Builder {
        self.rom = Some(size);
        self
    }

    /// The device with an interrupt pin: 1 for A to 4 for D.
    #[must_use]
    pub fn interrupt_pin(mut self, pin: u8) -> Builder {
        self.pin = pin;
        self
    }

    /// The device with MSI.
    #[must_use]
    pub fn msi(mut self, msi: Msi) -> Builder {
        self.msi = Some(msi);
        self
    }

    /// The device with MSI-X.
    #[must_use]
    pub fn msix(mut self, msix: Msix) -> Builder {
        self.msix = Some(msix);
        self
    }

    /// The device as a PCI Express endpoint.
    #[must_use]
    pub fn express(mut self, express: Express) -> Builder {
        self.express = Some(express);
        self
    }

    /// The device with a capability of its own: its bytes, beginning with its id and a byte that is
    /// overwritten with the next one's offset; and which bits can be written.
    #[must_use]
    pub fn capability(mut self, bytes: &[u8], writable: &[u8]) -> Builder {
        if bytes.len() < 2 || bytes.len() != writable.len() {
            self.error = Some(BuildError::Capability);
        }
        self.others.push((bytes.to_vec(), writable.to_vec()));
        self
    }

    /// The configuration space.
    ///
    /// # Errors
    ///
    /// What does not fit together.
    pub fn build(self) -> Result<ConfigSpace, BuildError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let size = if self.express.is_some() { 4096 } else { 256 };
        let mut layout = Layout::new(size);
        self.header(&mut layout)?;
        let bar_sizes = self.lay_bars(&mut layout)?;
        self.lay_capabilities(&mut layout, &bar_sizes)?;
        let rom = self.rom.unwrap_or(0);
        Ok(ConfigSpace::new(layout, bar_sizes, rom, self.pin, self.msi, self.msix))
    }

    fn header(&self, layout: &mut Layout) -> Result<(), BuildError> {
        let id = &self.identity;
        layout.put(register::VENDOR, &id.vendor.to_le_bytes());
        layout.put(register::DEVICE, &id.device.to_le_bytes());
        layout.put(register::REVISION, &[id.revision]);
        layout.put(register::REVISION + 1, &id.class.to_le_bytes()[..3]);
        layout.put(register::SUBSYSTEM_VENDOR, &id.subsystem_vendor.to_le_bytes());
        layout.put(register::SUBSYSTEM, &id.subsystem.to_le_bytes());
        let writable = command::IO
            | command::MEMORY
            | command::BUS_MASTER
            | command::PARITY
            | command::SERR
            | command::INTX_DISABLE;
        layout.allow(register::COMMAND, &writable.to_le_bytes());
        layout.clear_by_ones(register::STATUS, &status::ERRORS.to_le_bytes());
        layout.allow(register::CACHE_LINE, &[0xff]);
        layout.allow(register::INTERRUPT_LINE, &[0xff]);
        if self.pin > 4 {
            return Err(BuildError::Pin);
        }
        layout.put(register::INTERRUPT_PIN, &[self.pin]);
        if let Some(size) = self.rom {
            if !size.is_power_of_two() || size < 2048 {
                return Err(BuildError::Bar { index: 6 });
            }
            layout.allow(register::ROM, &(!(size - 1) | 1).to_le_bytes());
        }
        Ok(())
    }

    fn lay_bars(&self, layout: &mut Layout) -> Result<[u64; 6], BuildError> {
        let mut sizes = [0; 6];
        let mut taken = false;
        for (index, bar) in (0u8..).zip(&self.bars) {
            let Some(bar) = bar else {
                taken = false;
                continue;
            };
            let wide = matches!(bar, Bar::Memory64 { .. });
            if taken || !bar.good() || (wide && index == 5) {
                return Err(BuildError::Bar { index });
            }
            let at = register::BAR0 + 4 * u16::from(index);
            let address = !(bar.size() - 1);
            layout.put(at, &bar.flags().to_le_bytes());
            layout.allow(at, &(address as u32).to_le_bytes());
            if wide {
                layout.allow(at + 4, &((address >> 32) as u32).to_le_bytes());
            }
            sizes[usize::from(index)] = bar.size();
            taken = wide;
        }
        Ok(sizes)
    }

    fn lay_capabilities(
        &self,
        layout: &mut Layout,
        bar_sizes: &[u64; 6],
    ) -> Result<(), BuildError> {
        if let Some(express) = self.express {
            express.check()?;
            layout.express = Some(layout.capability(&express.encode()).ok_or(BuildError::Full)?);
        }
        if let Some(msi) = self.msi {
            msi.check()?;
            layout.msi = Some(layout.capability(&msi.encode()).ok_or(BuildError::Full)?);
        }
        if let Some(msix) = self.msix {
            msix.check(bar_sizes)?;
            layout.msix = Some(layout.capability(&msix.encode()).ok_or(BuildError::Full)?);
        }
        for (bytes, writable) in &self.others {
            let mut capability = Capability::read_only(bytes.clone());
            capability.writable.clone_from(writable);
            // The id and the link to the next capability are read-only.
            capability.writable[..2].fill(0);
            layout.capability(&capability).ok_or(BuildError::Full)?;
        }
        Ok(())
    }
}
