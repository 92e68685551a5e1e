//! The card through sysfs: no driver, no IOMMU, physical addresses.

use farside_card::interface::{Operation, RingKind, pci};
use farside_linux::vfio::PciAddress;
use farside_types::PAGE_SIZE;

use crate::card::{Card, DATA_PAGE};
use crate::checks::CHECKS;
use crate::memory::Mapping;
use crate::msix::Table;
use crate::report::{Check, Report};
use crate::rings::{Rings, vector};
use crate::sysfs::{self, Config};
use crate::wait::{expect, wait_until};
use crate::{Failure, physical};

const CLASS: u64 = 0x09;
const COMMAND: u64 = 0x04;
/// Memory is decoded; the device may read and write memory; no INTx.
const COMMAND_BITS: u16 = 1 << 1 | 1 << 2 | 1 << 10;

struct Function {
    address: PciAddress,
    config: Config,
}

const BEFORE: [Check<Function>; 3] =
    [("class", class), ("bars", bars), ("msix-capability", msix_capability)];

pub(crate) fn run(report: &mut Report) {
    let Some(mut function) = report.note("find", find()) else {
        return;
    };
    report.run(&BEFORE, &mut function);
    let Some(mut card) = report.note("open", open(&function)) else {
        return;
    };
    report.run(&CHECKS, &mut card);
    report.note("msix", msix(&function, &mut card));
    report.note("reset", card.reset());
}

fn find() -> Result<Function, Failure> {
    let address = sysfs::find(pci::VENDOR, pci::DEVICE)?;
    Ok(Function { address, config: Config::open(address)? })
}

fn class(function: &mut Function) -> Result<(), Failure> {
    expect("the class", function.config.read_u32(CLASS - 1)? >> 8, pci::CLASS)
}

fn bars(function: &mut Function) -> Result<(), Failure> {
    let bytes = |bar: usize| -> Result<u64, Failure> {
        let file = function.address.folder().join(format!("resource{bar}"));
        Ok(file.metadata().map_err(|error| format!("{}: {error}", file.display()))?.len())
    };
    expect("bytes of BAR 0", bytes(pci::BAR_REGISTERS)?, pci::BAR_REGISTERS_BYTES)?;
    expect("bytes of BAR 4", bytes(pci::BAR_MSIX)?, pci::BAR_MSIX_BYTES)?;
    if bytes(pci::BAR_MEMORY)?.is_power_of_two() {
        return Ok(());
    }
    Err("BAR 2 is not a power of two long".into())
}

fn msix_capability(function: &mut Function) -> Result<(), Failure> {
    let table = Table::read(&function.config)?;
    expect("the number of vectors", table.vectors, pci::VECTORS)?;
    expect("the table's BAR", table.bar, pci::BAR_MSIX as u32)?;
    expect("the table's offset", table.offset, pci::MSIX_TABLE)?;
    expect("the pending bits' BAR", table.pending_bar, pci::BAR_MSIX as u32)?;
    expect("the pending bits' offset", table.pending_offset, pci::MSIX_PENDING)
}

fn open(function: &Function) -> Result<Card, Failure> {
    let folder = function.address.folder();
    sysfs::write(&folder.join("enable"), "1")?;
    function.config.write_u16(COMMAND, COMMAND_BITS)?;
    let registers = Mapping::file(&folder.join(format!("resource{}", pci::BAR_REGISTERS)))?;
    let memory = Mapping::file(&folder.join(format!("resource{}", pci::BAR_MEMORY)))?;
    let (shared, physical) = physical::huge_page()?;
    Ok(Card::new(Box::new(registers), Box::new(memory), shared, physical))
}

fn msix(function: &Function, card: &mut Card) -> Result<(), Failure> {
    const MESSAGE: u32 = 0x0da7_a001;
    let at = (DATA_PAGE + 8) * PAGE_SIZE;
    let table = Table::read(&function.config)?;
    let vector = vector(RingKind::Completion) as u16;
    table.enable(function.address, &function.config, vector, card.bus + at as u64, MESSAGE)?;
    for _ in 0..3 {
        card.shared.write(at, 0u32);
        Rings::set_sleeping(&card.shared, true);
        card.submit(Operation::Nop)?;
        wait_until("the message", || card.shared.read::<u32>(at) == MESSAGE.to_le())?;
        card.completion()?;
    }
    Rings::set_sleeping(&card.shared, false);
    table.disable(&function.config)
}
