//! `farside_linux::vfio` on QEMU's teaching device "edu", which has registers, DMA and MSI.
//!
//! Its registers are in QEMU's `docs/specs/edu.rst`.

use std::os::fd::{AsFd, OwnedFd};

use farside_linux::vfio::{Access, Device, InterruptKind, RegionIndex, RegionMapping, VfioError};
use farside_types::PAGE_SIZE;
use rustix::event::EventfdFlags;
use rustix::mm::MapFlags;

use crate::memory::Mapping;
use crate::report::{Check, Report};
use crate::wait::{expect, wait_for, wait_until};
use crate::{Failure, sysfs};

const VENDOR: u16 = 0x1234;
const DEVICE: u16 = 0x11e8;

const IDENTITY: usize = 0x00;
const INVERTER: usize = 0x04;
const RAISE: usize = 0x60;
const ACKNOWLEDGE: usize = 0x64;
const DMA_SOURCE: usize = 0x80;
const DMA_DESTINATION: usize = 0x88;
const DMA_COUNT: usize = 0x90;
const DMA_COMMAND: usize = 0x98;
const DMA_START: u64 = 1;
const DMA_TO_MEMORY: u64 = 2;
/// The device's own memory, as its DMA sees it.
const BUFFER: u64 = 0x4_0000;

/// The device's address for our memory; it has 28 bits of address.
const IOVA: u64 = 0x80_0000;

struct Edu {
    device: Device,
    registers: RegionMapping,
    memory: Mapping,
}

const CHECKS: [Check<Edu>; 8] = [
    ("registers", registers),
    ("system-calls", system_calls),
    ("iommu-says-what-it-can", iommu),
    ("dma", dma),
    ("dma-after-unmap-is-refused", dma_after_unmap),
    ("wrong-maps-are-refused", wrong_maps),
    ("interrupt", interrupt),
    ("too-many-vectors-are-refused", too_many_vectors),
];

pub(crate) fn run(report: &mut Report) {
    if let Some(mut edu) = report.note("open", open()) {
        report.run(&CHECKS, &mut edu);
    }
}

fn open() -> Result<Edu, Failure> {
    let address = sysfs::find(VENDOR, DEVICE)?;
    match Device::open(address) {
        Err(VfioError::NotBound { .. }) => {}
        other => return Err(format!("unbound, but: {other:?}").into()),
    }
    sysfs::bind_to_vfio(address)?;
    let device = Device::open(address)?;
    match Device::open(address) {
        Err(VfioError::Open { .. }) => {}
        other => return Err(format!("opened twice: {other:?}").into()),
    }
    device.set_bus_master(true)?;
    let bytes = device.region(RegionIndex::Bar0).bytes;
    let registers = device.map(RegionIndex::Bar0, 0, bytes)?;
    let memory = Mapping::anonymous(2 * PAGE_SIZE, MapFlags::empty())?;
    Ok(Edu { device, registers, memory })
}

fn registers(edu: &mut Edu) -> Result<(), Failure> {
    expect("the identity's lower half", edu.registers.read_u32(IDENTITY) & 0xffff, 0x00ed)?;
    edu.registers.write_u32(INVERTER, 0x1234_5678);
    expect("the inverted word", edu.registers.read_u32(INVERTER), !0x1234_5678)
}

fn system_calls(edu: &mut Edu) -> Result<(), Failure> {
    let mut word = [0; 4];
    edu.device.write(RegionIndex::Bar0, INVERTER as u64, &0xfau32.to_le_bytes())?;
    edu.device.read(RegionIndex::Bar0, INVERTER as u64, &mut word)?;
    expect("the inverted word", u32::from_le_bytes(word), !0xfa)?;
    let end = edu.device.region(RegionIndex::Bar0).bytes;
    match edu.device.read(RegionIndex::Bar0, end - 2, &mut word) {
        Err(VfioError::Region { .. }) => Ok(()),
        other => Err(format!("a read beyond the region gave {other:?}").into()),
    }
}

fn iommu(edu: &mut Edu) -> Result<(), Failure> {
    let iommu = edu.device.iommu()?;
    let fits = iommu.ranges.iter().any(|range| range.first <= IOVA && IOVA < range.last);
    if iommu.page_sizes & PAGE_SIZE as u64 == 0 || !fits || iommu.maps_left.is_none() {
        return Err(format!("{iommu:x?}").into());
    }
    Ok(())
}

fn dma(edu: &mut Edu) -> Result<(), Failure> {
    map(edu, IOVA)?;
    edu.memory.write(0, 0x0123_4567_89ab_cdefu64);
    copy(edu, IOVA, BUFFER, 0)?;
    copy(edu, BUFFER, IOVA + 0x800, DMA_TO_MEMORY)?;
    expect("the word that came back", edu.memory.read::<u64>(0x800), 0x0123_4567_89ab_cdef)?;
    Ok(edu.device.unmap_dma(IOVA, 2 * PAGE_SIZE as u64)?)
}

/// The device has written here before; once unmapped, it cannot.
fn dma_after_unmap(edu: &mut Edu) -> Result<(), Failure> {
    map(edu, IOVA)?;
    edu.memory.write(0, 0xfeed_u64);
    copy(edu, IOVA, BUFFER, 0)?;
    edu.device.unmap_dma(IOVA, 2 * PAGE_SIZE as u64)?;
    edu.memory.write(0x800, 0u64);
    copy(edu, BUFFER, IOVA + 0x800, DMA_TO_MEMORY)?;
    expect("the word that must not come", edu.memory.read::<u64>(0x800), 0)
}

fn wrong_maps(edu: &mut Edu) -> Result<(), Failure> {
    let refused = |result: Result<(), VfioError>, what: &str| match result {
        Err(VfioError::Call { .. } | VfioError::Dma { .. }) => Ok(()),
        other => Err(Failure::from(format!("{what} gave {other:?}"))),
    };
    refused(map(edu, IOVA + 8), "an address that is no page's")?;
    refused(map(edu, u64::MAX - 100), "a range that wraps around")?;
    map(edu, IOVA)?;
    refused(map(edu, IOVA + PAGE_SIZE as u64), "a range that overlaps")?;
    edu.device.unmap_dma(IOVA, 2 * PAGE_SIZE as u64)?;
    refused(edu.device.unmap_dma(IOVA, 2 * PAGE_SIZE as u64), "unmapping twice")
}

fn interrupt(edu: &mut Edu) -> Result<(), Failure> {
    let event = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
    edu.device.set_interrupts(InterruptKind::Msi, &[Some(event.as_fd())])?;
    for _ in 0..2 {
        edu.registers.write_u32(RAISE, 1);
        wait_for("the interrupt", || taken(&event))?;
        edu.registers.write_u32(ACKNOWLEDGE, 1);
    }
    edu.device.clear_interrupts(InterruptKind::Msi)?;
    Ok(edu.device.clear_interrupts(InterruptKind::Msi)?)
}

/// How often the event was raised since it was last asked.
pub(crate) fn taken(event: &OwnedFd) -> Option<u64> {
    let mut count = [0; 8];
    rustix::io::read(event, &mut count).ok().map(|_| u64::from_ne_bytes(count))
}

fn too_many_vectors(edu: &mut Edu) -> Result<(), Failure> {
    match edu.device.set_interrupts(InterruptKind::Msi, &[None; 2]) {
        Err(VfioError::Vectors { has: 1, wanted: 2, .. }) => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

fn map(edu: &Edu, iova: u64) -> Result<(), VfioError> {
    let bytes = edu.memory.bytes() as u64;
    // SAFETY: the memory is unmapped when `edu` is dropped, after its device; nobody refers to it.
    unsafe { edu.device.map_dma(iova, edu.memory.base(), bytes, Access::ReadWrite) }
}

fn copy(edu: &Edu, source: u64, destination: u64, direction: u64) -> Result<(), Failure> {
    edu.registers.write_u64(DMA_SOURCE, source);
    edu.registers.write_u64(DMA_DESTINATION, destination);
    edu.registers.write_u64(DMA_COUNT, 8);
    edu.registers.write_u64(DMA_COMMAND, DMA_START | direction);
    wait_until("the device's DMA", || edu.registers.read_u64(DMA_COMMAND) & DMA_START == 0)
}
