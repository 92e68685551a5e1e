//! The description of a device: its regions and interrupts, as a server offers them.

use crate::errno::Errno;
use crate::error::RequestError;
use crate::limits::Limits;
use crate::maps::DmaMap;
use crate::outbox::SharedFd;
use crate::wire;

/// Region numbers of a PCI device.
pub mod region {
    /// BAR 0; BARs 1 to 5 follow.
    pub const BAR0: u32 = 0;
    /// BAR 1.
    pub const BAR1: u32 = 1;
    /// BAR 2.
    pub const BAR2: u32 = 2;
    /// BAR 3.
    pub const BAR3: u32 = 3;
    /// BAR 4.
    pub const BAR4: u32 = 4;
    /// BAR 5.
    pub const BAR5: u32 = 5;
    /// Expansion ROM.
    pub const ROM: u32 = 6;
    /// Configuration space.
    pub const CONFIG: u32 = 7;
    /// VGA ranges.
    pub const VGA: u32 = 8;
    /// How many regions every PCI device has.
    pub const COUNT: u32 = 9;
}

/// Interrupt types of a PCI device.
pub mod irq {
    /// The pin.
    pub const INTX: u32 = 0;
    /// MSI.
    pub const MSI: u32 = 1;
    /// MSI-X.
    pub const MSIX: u32 = 2;
    /// The device reports an error.
    pub const ERROR: u32 = 3;
    /// The device asks to be given back.
    pub const REQUEST: u32 = 4;
    /// How many types every PCI device has.
    pub const COUNT: u32 = 5;
}

/// A range of a region that may be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SparseArea {
    /// First byte, from the start of the region.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// The memory behind a mappable region.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// What the client maps.
    pub fd: SharedFd,
    /// Where the region begins in it, in bytes.
    pub offset: u64,
    /// The parts that may be mapped; none means the whole region.
    pub areas: Vec<SparseArea>,
}

/// How a descriptor tells the server of writes to a part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoFdKind {
    /// KVM adds one to an eventfd.
    IoEventFd {
        /// The value to match, if the flags say so.
        datamatch: u64,
    },
    /// KVM sends a message.
    IoRegionFd {
        /// Passed back in each message.
        user_data: u64,
    },
}

/// A descriptor that stands for a part of a region (DEVICE_GET_REGION_IO_FDS).
#[derive(Clone, Debug)]
pub struct IoFd {
    /// First byte, from the start of the region.
    pub offset: u64,
    /// Bytes; 0 where the size of an access does not matter.
    pub size: u64,
    /// Flags of KVM_IOEVENTFD or of the ioregion.
    pub flags: u32,
    /// What the descriptor is.
    pub kind: IoFdKind,
    /// The descriptor. Several parts may share one.
    pub fd: SharedFd,
}

/// One region.
#[derive(Clone, Debug, Default)]
pub struct Region {
    /// Bytes; 0 means that the device has no such region.
    pub size: u64,
    /// Whether the client may read it.
    pub readable: bool,
    /// Whether the client may write it.
    pub writable: bool,
    /// The memory behind it, if the client may map it.
    pub mapping: Option<Mapping>,
    /// Descriptors for parts of it.
    pub io_fds: Vec<IoFd>,
}

impl Region {
    /// A region that is read and written by messages.
    #[must_use]
    pub fn read_write(size: u64) -> Region {
        Region { size, readable: true, writable: true, ..Region::default() }
    }

    /// A region that is only read, by messages.
    #[must_use]
    pub fn read_only(size: u64) -> Region {
        Region { size, readable: true, ..Region::default() }
    }

    /// The region with memory that the client may map: all of it if `areas` is empty.
    #[must_use]
    pub fn mapped(
        mut self,
        fd: impl Into<SharedFd>,
        offset: u64,
        areas: Vec<SparseArea>,
    ) -> Region {
        self.mapping = Some(Mapping { fd: fd.into(), offset, areas });
        self
    }

    /// The region with descriptors for parts of it.
    #[must_use]
    pub fn io_fds(mut self, io_fds: Vec<IoFd>) -> Region {
        self.io_fds = io_fds;
        self
    }

    pub(crate) fn flags(&self) -> u32 {
        let mut flags = 0;
        if self.readable {
            flags |= wire::REGION_READABLE;
        }
        if self.writable {
            flags |= wire::REGION_WRITABLE;
        }
        if let Some(mapping) = &self.mapping {
            flags |= wire::REGION_MAPPABLE;
            if !mapping.areas.is_empty() {
                flags |= wire::REGION_CAPS;
            }
        }
        flags
    }
}

/// One interrupt type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Irq {
    /// How many interrupts of it there are; 0 if the device has none.
    pub count: u32,
    /// Whether the client may mask and unmask it by messages.
    pub maskable: bool,
    /// Whether it masks itself when it is raised, until the client unmasks it.
    pub automasked: bool,
    /// Whether its interrupts are set up all together.
    pub noresize: bool,
}

impl Irq {
    /// A type the device does not have.
    pub const NONE: Irq = Irq { count: 0, maskable: false, automasked: false, noresize: false };
    /// The pin: level triggered, masks itself.
    pub const INTX: Irq = Irq { count: 1, maskable: true, automasked: true, noresize: false };

    /// One interrupt that tells the client something of the device as a whole: [`irq::ERROR`] or
    /// [`irq::REQUEST`].
    pub const NOTICE: Irq = Irq { count: 1, maskable: false, automasked: false, noresize: true };

    /// `count` MSI or MSI-X interrupts. The client may mask each by itself: one that is raised while it
    /// is masked waits, as in a device with pending bits.
    #[must_use]
    pub const fn messages(count: u32) -> Irq {
        Irq { count, maskable: true, automasked: false, noresize: true }
    }

    pub(crate) fn flags(&self) -> u32 {
        let mut flags = 0;
        if self.count > 0 {
            flags |= wire::IRQ_EVENTFD;
        }
        for (on, flag) in [
            (self.maskable, wire::IRQ_MASKABLE),
            (self.automasked, wire::IRQ_AUTOMASKED),
            (self.noresize, wire::IRQ_NORESIZE),
        ] {
            if on {
                flags |= flag;
            }
        }
        flags
    }
}

/// Something that a device can do besides (DEVICE_FEATURE). Its data is the device's own affair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its number, as in `<linux/vfio.h>`.
    pub number: u16,
    /// Whether the client may ask for its value.
    pub readable: bool,
    /// Whether the client may change it.
    pub writable: bool,
}

/// Everything a client can ask about a device.
#[derive(Clone, Debug, Default)]
pub struct DeviceInfo {
    /// Whether DEVICE_RESET does anything.
    pub resettable: bool,
    /// Whether it is a PCI device; QEMU takes no other.
    pub pci: bool,
    /// Regions by index.
    pub regions: Vec<Region>,
    /// Interrupt types by index.
    pub irqs: Vec<Irq>,
    /// What it can do besides.
    pub features: Vec<Feature>,
    /// The device's bus reaches DMA addresses below this; none means all. A map beyond is refused with
    /// ERANGE.
    pub dma_end: Option<u64>,
    /// The device sends no DMA messages: a map without a descriptor is refused with ENOTSUP, since
    /// nothing could reach it.
    pub dma_needs_fd: bool,
}

impl DeviceInfo {
    /// A resettable PCI device with 9 empty regions and 5 empty interrupt types, to be filled in.
    #[must_use]
    pub fn pci() -> DeviceInfo {
        DeviceInfo {
            resettable: true,
            pci: true,
            regions: vec![Region::default(); region::COUNT as usize],
            irqs: vec![Irq::NONE; irq::COUNT as usize],
            ..DeviceInfo::default()
        }
    }

    /// The device with this feature.
    #[must_use]
    pub fn feature(mut self, feature: Feature) -> DeviceInfo {
        self.features.push(feature);
        self
    }

    /// The device with a bus that reaches DMA addresses below `end`.
    #[must_use]
    pub fn dma_end(mut self, end: u64) -> DeviceInfo {
        self.dma_end = Some(end);
        self
    }

    /// The device, which sends no DMA messages.
    #[must_use]
    pub fn dma_needs_fd(mut self) -> DeviceInfo {
        self.dma_needs_fd = true;
        self
    }

    /// Whether the device could use a map at all.
    pub(crate) fn reaches(&self, map: &DmaMap) -> Result<(), Errno> {
        // A range that is empty or wraps is refused for that.
        let last = map.size.checked_sub(1).and_then(|rest| map.address.checked_add(rest));
        let beyond = |end: u64| last.is_some_and(|last| last >= end);
        if self.dma_end.is_some_and(beyond) {
            return Err(Errno::RANGE);
        }
        if self.dma_needs_fd && map.fd.is_none() { Err(Errno::NOTSUP) } else { Ok(()) }
    }

    /// The device with this region at `index`. Regions between are empty.
    #[must_use]
    pub fn region(mut self, index: u32, region: Region) -> DeviceInfo {
        let index = index as usize;
        if self.regions.len() <= index {
            self.regions.resize(index + 1, Region::default());
        }
        self.regions[index] = region;
        self
    }

    /// The device with this interrupt type at `index`. Types between are empty.
    #[must_use]
    pub fn irq(mut self, index: u32, irq: Irq) -> DeviceInfo {
        let index = index as usize;
        if self.irqs.len() <= index {
            self.irqs.resize(index + 1, Irq::NONE);
        }
        self.irqs[index] = irq;
        self
    }

    pub(crate) fn flags(&self) -> u32 {
        let mut flags = 0;
        if self.resettable {
            flags |= wire::DEVICE_RESETTABLE;
        }
        if self.pci {
            flags |= wire::DEVICE_PCI;
        }
        flags
    }

    /// Checks that the description stays within `limits` and that each area lies in its region.
    ///
    /// # Errors
    ///
    /// `Invalid` with what is wrong.
    pub fn check(&self, limits: &Limits) -> Result<(), RequestError> {
        let fail = |reason| Err(RequestError::Invalid { reason });
        if self.regions.len() > limits.max_regions as usize {
            return fail("the device has more regions than max_regions");
        }
        if self.irqs.len() > limits.max_irq_types as usize {
            return fail("the device has more interrupt types than max_irq_types");
        }
        if self.irqs.iter().any(|irq| irq.count > limits.max_irq_vectors) {
            return fail("the device has more interrupts of a type than max_irq_vectors");
        }
        let twice = |(at, feature): (usize, &Feature)| {
            self.features[..at].iter().any(|other| other.number == feature.number)
        };
        if self.features.iter().enumerate().any(twice) {
            return fail("the device describes a feature twice");
        }
        for region in &self.regions {
            check_region(region, limits)?;
        }
        Ok(())
    }
}

fn check_region(region: &Region, limits: &Limits) -> Result<(), RequestError> {
    let fail = |reason| Err(RequestError::Invalid { reason });
    let inside =
        |offset: u64, size: u64| offset.checked_add(size).is_some_and(|end| end <= region.size);
    if region.io_fds.len() > limits.max_io_fds as usize {
        return fail("a region has more I/O descriptors than max_io_fds");
    }
    if !region.io_fds.iter().all(|io| inside(io.offset, io.size)) {
        return fail("an I/O descriptor stands for bytes outside its region");
    }
    let Some(mapping) = &region.mapping else { return Ok(()) };
    if mapping.areas.len() > limits.max_sparse_areas as usize {
        return fail("a region has more sparse areas than max_sparse_areas");
    }
    if !mapping.areas.iter().all(|area| inside(area.offset, area.size)) {
        return fail("a sparse area lies outside its region");
    }
    if mapping.offset.checked_add(region.size).is_none() {
        return fail("a mapping's offset and size wrap around");
    }
    Ok(())
}
