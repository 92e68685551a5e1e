//! What a device is, as its lender tells the borrower's end: regions and interrupts.

use crate::wire::Fields;

/// Most regions of a device.
pub const REGIONS_MAX: usize = 64;
/// Most types of interrupts of a device.
pub const IRQS_MAX: usize = 16;
/// Most bytes of a description.
pub const BYTES_MAX: u32 = (16 + 12 * REGIONS_MAX + 8 * IRQS_MAX) as u32;

/// A region that is reached by messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Region {
    /// Bytes; 0 if there is none.
    pub size: u64,
    /// It may be read.
    pub readable: bool,
    /// It may be written.
    pub writable: bool,
}

/// A type of interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Irq {
    /// How many; 0 if the device has none.
    pub count: u32,
    /// They may be masked.
    pub maskable: bool,
    /// It masks itself when it is raised.
    pub automasked: bool,
    /// They are set up all together.
    pub noresize: bool,
}

/// What a device is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Description {
    /// It is a PCI device.
    pub pci: bool,
    /// It can be reset.
    pub resettable: bool,
    /// It reaches bus addresses below this; 0 means all.
    pub dma_end: u64,
    /// Its regions, by index.
    pub regions: Vec<Region>,
    /// Its types of interrupts, by index.
    pub irqs: Vec<Irq>,
}

fn bits<const N: usize>(flags: [bool; N]) -> u32 {
    flags.iter().enumerate().fold(0, |bits, (at, &flag)| bits | u32::from(flag) << at)
}

fn flags<const N: usize>(bits: u32) -> Option<[bool; N]> {
    (bits < 1 << N).then(|| std::array::from_fn(|at| bits >> at & 1 != 0))
}

impl Description {
    /// Its bytes; `None` if it has more regions or types of interrupts than are allowed.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        if self.regions.len() > REGIONS_MAX || self.irqs.len() > IRQS_MAX {
            return None;
        }
        let counts = self.regions.len() as u32 | (self.irqs.len() as u32) << 16;
        let mut bytes = bits([self.pci, self.resettable]).to_le_bytes().to_vec();
        bytes.extend(counts.to_le_bytes());
        bytes.extend(self.dma_end.to_le_bytes());
        for region in &self.regions {
            bytes.extend(region.size.to_le_bytes());
            bytes.extend(bits([region.readable, region.writable]).to_le_bytes());
        }
        for irq in &self.irqs {
            bytes.extend(irq.count.to_le_bytes());
            bytes.extend(bits([irq.maskable, irq.automasked, irq.noresize]).to_le_bytes());
        }
        Some(bytes)
    }

    /// Reads one; `None` if the bytes are none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Description> {
        let mut from = Fields(bytes);
        let [pci, resettable] = flags(from.u32()?)?;
        let (regions, irqs) = (usize::from(from.u16()?), usize::from(from.u16()?));
        if regions > REGIONS_MAX || irqs > IRQS_MAX {
            return None;
        }
        let dma_end = from.u64()?;
        let region = |from: &mut Fields<'_>| {
            let size = from.u64()?;
            let [readable, writable] = flags(from.u32()?)?;
            Some(Region { size, readable, writable })
        };
        let regions = (0..regions).map(|_| region(&mut from)).collect::<Option<_>>()?;
        let irq = |from: &mut Fields<'_>| {
            let count = from.u32()?;
            let [maskable, automasked, noresize] = flags(from.u32()?)?;
            Some(Irq { count, maskable, automasked, noresize })
        };
        let irqs = (0..irqs).map(|_| irq(&mut from)).collect::<Option<_>>()?;
        from.end(Description { pci, resettable, dma_end, regions, irqs })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_description() -> impl Strategy<Value = Description> {
        let region = (any::<u64>(), any::<bool>(), any::<bool>())
            .prop_map(|(size, readable, writable)| Region { size, readable, writable });
        let irq = (any::<u32>(), any::<[bool; 3]>()).prop_map(|(count, flags)| {
            let [maskable, automasked, noresize] = flags;
            Irq { count, maskable, automasked, noresize }
        });
        let regions = proptest::collection::vec(region, 0..=REGIONS_MAX);
        let irqs = proptest::collection::vec(irq, 0..=IRQS_MAX);
        (any::<[bool; 2]>(), any::<u64>(), regions, irqs).prop_map(
            |([pci, resettable], dma_end, regions, irqs)| Description {
                pci,
                resettable,
                dma_end,
                regions,
                irqs,
            },
        )
    }

    proptest! {
        #[test]
        fn a_description_reads_back_and_a_cut_one_is_none(described in any_description()) {
            let bytes = described.encode().unwrap();
            prop_assert!(bytes.len() <= BYTES_MAX as usize);
            for cut in 0..bytes.len() {
                prop_assert_eq!(Description::decode(&bytes[..cut]), None);
            }
            prop_assert_eq!(Description::decode(&bytes), Some(described));
        }

        #[test]
        fn any_bytes_are_a_description_or_none(bytes in proptest::collection::vec(0..8u8, 0..80)) {
            if let Some(described) = Description::decode(&bytes) {
                prop_assert_eq!(described.encode(), Some(bytes));
            }
        }
    }

    #[test]
    fn too_much_is_refused() {
        let regions = vec![Region::default(); REGIONS_MAX + 1];
        assert_eq!(Description { regions, ..Description::default() }.encode(), None);
    }
}
