//! The capabilities that the builder knows.

use super::builder::BuildError;

/// Message-signalled interrupts with a table in a BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Msix {
    /// Interrupts, 1 to 2048.
    pub vectors: u16,
    /// BAR of the table.
    pub table_bar: u8,
    /// Where the table begins in it, a multiple of 8 bytes.
    pub table_offset: u32,
    /// BAR of the pending bits.
    pub pba_bar: u8,
    /// Where they begin in it, a multiple of 8 bytes.
    pub pba_offset: u32,
}

impl Msix {
    /// `vectors` interrupts, with the table at the start of a BAR and the pending bits behind it.
    #[must_use]
    pub fn in_bar(bar: u8, vectors: u16) -> Msix {
        let table = u32::from(vectors) * 16;
        Msix {
            vectors,
            table_bar: bar,
            table_offset: 0,
            pba_bar: bar,
            pba_offset: table.next_multiple_of(0x1000),
        }
    }

    /// Bytes of the table.
    #[must_use]
    pub fn table_size(&self) -> u32 {
        u32::from(self.vectors) * 16
    }

    /// Bytes of the pending bits.
    #[must_use]
    pub fn pba_size(&self) -> u32 {
        u32::from(self.vectors).div_ceil(64) * 8
    }

    /// The table's and the pending bits' places lie in their BARs, do not overlap, and are aligned.
    pub(super) fn check(&self, bar_sizes: &[u64; 6]) -> Result<(), BuildError> {
        let inside = |bar: u8, offset: u32, size: u32| {
            let limit = bar_sizes.get(usize::from(bar)).copied().unwrap_or(0);
            u64::from(offset) + u64::from(size) <= limit
        };
        let aligned = self.table_offset % 8 == 0 && self.pba_offset % 8 == 0;
        let apart = self.table_bar != self.pba_bar
            || self
                .table_offset
                .checked_add(self.table_size())
                .is_some_and(|e| e <= self.pba_offset)
            || self.pba_offset.checked_add(self.pba_size()).is_some_and(|e| e <= self.table_offset);
        let good = (1..=2048).contains(&self.vectors)
            && inside(self.table_bar, self.table_offset, self.table_size())
            && inside(self.pba_bar, self.pba_offset, self.pba_size())
            && aligned
            && apart;
        if good { Ok(()) } else { Err(BuildError::Msix) }
    }

    pub(super) fn encode(&self) -> Capability {
        let mut bytes = vec![0x11, 0];
        bytes.extend_from_slice(&(self.vectors - 1).to_le_bytes());
        bytes.extend_from_slice(&(self.table_offset | u32::from(self.table_bar)).to_le_bytes());
        bytes.extend_from_slice(&(self.pba_offset | u32::from(self.pba_bar)).to_le_bytes());
        let mut capability = Capability::read_only(bytes);
        capability.allow(2, &0xc000u16.to_le_bytes());
        capability
    }
}

/// Message-signalled interrupts with address and data in configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Msi {
    /// Interrupts: 1, 2, 4, 8, 16 or 32.
    pub vectors: u8,
}

impl Msi {
    pub(super) fn check(self) -> Result<(), BuildError> {
        let good = self.vectors.is_power_of_two() && self.vectors <= 32;
        if good { Ok(()) } else { Err(BuildError::Msi) }
    }

    /// 64-bit addresses, no masks for single interrupts.
    pub(super) fn encode(self) -> Capability {
        let capable = (self.vectors.trailing_zeros() as u16) << 1;
        let mut bytes = vec![0x05, 0];
        bytes.extend_from_slice(&(capable | 1 << 7).to_le_bytes());
        bytes.resize(14, 0);
        let mut capability = Capability::read_only(bytes);
        capability.allow(2, &0x0071u16.to_le_bytes());
        capability.allow(4, &0xffff_fffcu32.to_le_bytes());
        capability.allow(8, &u32::MAX.to_le_bytes());
        capability.allow(12, &u16::MAX.to_le_bytes());
        capability
    }
}

/// A PCI Express endpoint; configuration space then has 4096 bytes. It can be reset by itself: see
/// [`Changes::function_reset`](super::Changes::function_reset).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Express {
    /// Speed of the link: 1 is 2.5 GT/s, 2 is 5, 3 is 8, 4 is 16, 5 is 32.
    pub link_speed: u8,
    /// Lanes: 1, 2, 4, 8, 12, 16 or 32.
    pub link_width: u8,
}

impl Express {
    pub(super) fn check(self) -> Result<(), BuildError> {
        let good = (1..=6).contains(&self.link_speed)
            && matches!(self.link_width, 1 | 2 | 4 | 8 | 12 | 16 | 32);
        if good { Ok(()) } else { Err(BuildError::Express) }
    }

    pub(super) fn encode(self) -> Capability {
        let link = u32::from(self.link_speed) | u32::from(self.link_width) << 4;
        let mut bytes = vec![0; 60];
        bytes[0] = 0x10;
        // Version 2, endpoint.
        bytes[2] = 0x02;
        // Payloads of 256 bytes, role-based error reporting, function-level reset.
        bytes[4..8].copy_from_slice(&(1u32 | 1 << 15 | 1 << 28).to_le_bytes());
        // Relaxed order and no-snoop are allowed, reads ask for 512 bytes.
        bytes[8..10].copy_from_slice(&0x2810u16.to_le_bytes());
        bytes[12..16].copy_from_slice(&link.to_le_bytes());
        bytes[18..20].copy_from_slice(&(link as u16).to_le_bytes());
        let speeds = (2u32 << self.link_speed) - 2;
        bytes[44..48].copy_from_slice(&speeds.to_le_bytes());
        bytes[48..50].copy_from_slice(&u16::from(self.link_speed).to_le_bytes());
        let mut capability = Capability::read_only(bytes);
        capability.allow(8, &0x7fffu16.to_le_bytes());
        capability.clear_by_ones(10, &0x000fu16.to_le_bytes());
        capability.allow(16, &0x01fbu16.to_le_bytes());
        capability.allow(40, &0x001fu16.to_le_bytes());
        capability
    }
}

/// The bytes of a capability: values, writable bits, bits cleared by writing ones.
#[derive(Clone, Debug)]
pub(super) struct Capability {
    pub(super) bytes: Vec<u8>,
    pub(super) writable: Vec<u8>,
    pub(super) clearable: Vec<u8>,
}

impl Capability {
    pub(super) fn read_only(bytes: Vec<u8>) -> Capability {
        let zeros = vec![0; bytes.len()];
        Capability { bytes, writable: zeros.clone(), clearable: zeros }
    }

    fn allow(&mut self, at: usize, bits: &[u8]) {
        self.writable[at..at + bits.len()].copy_from_slice(bits);
    }

    fn clear_by_ones(&mut self, at: usize, bits: &[u8]) {
        self.clearable[at..at + bits.len()].copy_from_slice(bits);
    }
}
