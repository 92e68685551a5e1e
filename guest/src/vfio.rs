//! The card through `farside_linux::vfio`, behind an IOMMU.

use std::os::fd::{AsFd, OwnedFd};

use farside_card::interface::{DmaAddr, Operation, RingKind, pci, register};
use farside_linux::vfio::{Access, Device, InterruptKind, RegionIndex, RegionMapping};
use farside_types::PAGE_SIZE;
use rustix::event::EventfdFlags;
use rustix::mm::MapFlags;

use crate::card::{Card, DATA_PAGE, SHARED_PAGES, bus_page, pages};
use crate::checks::{CHECKS, copy_failed, pattern};
use crate::edu::taken;
use crate::memory::Mapping;
use crate::report::{Check, Report};
use crate::rings::{Rings, vector};
use crate::wait::{expect, wait_for};
use crate::{Failure, sysfs};

/// The card's address for the shared memory: low, and no physical address of it.
const IOVA: u64 = 0x1000_0000;

/// Dropped in this order: the device lets go of the memory before that is unmapped.
struct Session {
    device: Device,
    card: Card,
}

const AFTER: [Check<Session>; 5] = [
    ("registers-by-system-calls", system_calls),
    ("dma-after-unmap-is-refused", dma_after_unmap),
    ("read-only-map", read_only_map),
    ("msix", msix),
    ("function-reset", function_reset),
];

pub(crate) fn run(report: &mut Report) {
    let Some(mut session) = report.note("open", open()) else {
        return;
    };
    report.run(&CHECKS, &mut session.card);
    report.run(&AFTER, &mut session);
}

fn open() -> Result<Session, Failure> {
    let address = sysfs::find(pci::VENDOR, pci::DEVICE)?;
    sysfs::bind_to_vfio(address)?;
    let device = Device::open(address)?;
    if !device.isolated() {
        return Err("the device is behind no IOMMU".into());
    }
    device.set_bus_master(true)?;
    let registers = whole(&device, RegionIndex::Bar0)?;
    let memory = whole(&device, RegionIndex::Bar2)?;
    let shared = Mapping::anonymous(SHARED_PAGES * PAGE_SIZE, MapFlags::empty())?;
    map(&device, IOVA, &shared, Access::ReadWrite)?;
    let card = Card::new(Box::new(registers), Box::new(memory), shared, IOVA);
    Ok(Session { device, card })
}

fn whole(device: &Device, index: RegionIndex) -> Result<RegionMapping, Failure> {
    Ok(device.map(index, 0, device.region(index).bytes)?)
}

fn map(device: &Device, iova: u64, memory: &Mapping, access: Access) -> Result<(), Failure> {
    // SAFETY: nobody refers to the memory, and it outlives the session's device and mappings or is
    // taken from the device first. Where a check fails in between, the kernel still keeps the pages
    // for the device alone, so that nothing of this program is written.
    unsafe { device.map_dma(iova, memory.base(), memory.bytes() as u64, access) }?;
    Ok(())
}

/// Registers are read and written whole, at their own width, also those of 64 bits.
fn system_calls(session: &mut Session) -> Result<(), Failure> {
    let Session { card, device } = session;
    let mut word = [0; 8];
    device.read(RegionIndex::Bar0, register::MAGIC, &mut word[..4])?;
    expect(
        "the magic number",
        u32::from_le_bytes([word[0], word[1], word[2], word[3]]),
        register::MAGIC_VALUE,
    )?;
    device.read(RegionIndex::Bar0, register::GENERATION, &mut word)?;
    let generation = card.read_u64(register::GENERATION);
    expect("the lease generation", u64::from_le_bytes(word), generation)?;
    device.write(RegionIndex::Bar0, register::ERRORS, &u64::MAX.to_le_bytes())?;
    expect("the errors", card.read_u64(register::ERRORS), 0)
}

/// Memory that the card has written is out of its reach once it is unmapped.
fn dma_after_unmap(session: &mut Session) -> Result<(), Failure> {
    let Session { card, device } = session;
    let lent = Mapping::anonymous(PAGE_SIZE, MapFlags::empty())?;
    let iova = IOVA + 0x100_0000;
    map(device, iova, &lent, Access::ReadWrite)?;
    card.memory.write_u64(0, pattern(1));
    let extent = pages(DmaAddr::Own(0), bus_page(iova)?, 1);
    card.expect_ok(Operation::Copy(extent))?;
    expect("the word that was copied", lent.read(0), pattern(1))?;

    device.unmap_dma(iova, PAGE_SIZE as u64)?;
    lent.write(0, 0u64);
    copy_failed(&card.command(Operation::Copy(extent))?)?;
    expect("the word that must not come", lent.read(0), 0u64)
}

/// Memory that the card may only read.
fn read_only_map(session: &mut Session) -> Result<(), Failure> {
    let Session { card, device } = session;
    let lent = Mapping::anonymous(PAGE_SIZE, MapFlags::empty())?;
    let iova = IOVA + 0x200_0000;
    map(device, iova, &lent, Access::Read)?;
    lent.write(0, pattern(2));
    let there = bus_page(iova)?;
    card.expect_ok(Operation::Copy(pages(there, DmaAddr::Own(2), 1)))?;
    expect("the word that was read", card.memory.read_u64(2 * PAGE_SIZE), pattern(2))?;

    lent.write(0, 0u64);
    copy_failed(&card.command(Operation::Copy(pages(DmaAddr::Own(2), there, 1)))?)?;
    expect("the word that must not be written", lent.read(0), 0u64)?;
    Ok(device.unmap_dma(iova, PAGE_SIZE as u64)?)
}

fn msix(session: &mut Session) -> Result<(), Failure> {
    let Session { card, device } = session;
    let count = device.interrupt_count(InterruptKind::MsiX)?;
    expect("the number of vectors", count, pci::VECTORS.into())?;
    let events: Vec<OwnedFd> = (0..count)
        .map(|_| rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC))
        .collect::<Result<_, _>>()?;
    let vectors: Vec<_> = events.iter().map(|event| Some(event.as_fd())).collect();
    device.set_interrupts(InterruptKind::MsiX, &vectors)?;
    let mine = vector(RingKind::Completion) as usize;
    for _ in 0..3 {
        Rings::set_sleeping(&card.shared, true);
        card.submit(Operation::Nop)?;
        wait_for("the interrupt", || taken(&events[mine]))?;
        card.completion()?;
    }
    Rings::set_sleeping(&card.shared, false);
    for (index, event) in events.iter().enumerate() {
        if index != mine && taken(event).is_some() {
            return Err(format!("vector {index} was raised as well").into());
        }
    }
    Ok(device.clear_interrupts(InterruptKind::MsiX)?)
}

/// A reset by the kernel stops the card, keeps its memory, and leaves it of use.
fn function_reset(session: &mut Session) -> Result<(), Failure> {
    let Session { card, device } = session;
    let generation = card.read_u64(register::GENERATION);
    card.memory.write_u64(7 * PAGE_SIZE, pattern(6));
    device.reset()?;
    let enabled = card.read_u32(register::STATUS) & register::STATUS_ENABLED;
    expect("the bit of rings in use", enabled, 0)?;
    device.set_bus_master(true)?;
    card.reset()?;
    card.enable()?;
    card.expect_ok(Operation::Nop)?;
    card.shared.write(DATA_PAGE * PAGE_SIZE, pattern(5));
    let extent = pages(card.bus_page(DATA_PAGE)?, DmaAddr::Own(3), 1);
    card.expect_ok(Operation::Copy(extent))?;
    expect("a word after the reset", card.memory.read_u64(3 * PAGE_SIZE), pattern(5))?;
    expect("a word from before the reset", card.memory.read_u64(7 * PAGE_SIZE), pattern(6))?;
    expect("the lease generation", card.read_u64(register::GENERATION), generation)
}
