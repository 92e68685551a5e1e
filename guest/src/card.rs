//! A card and the memory that it shares with this program, whatever stands between them.

use farside_card::interface::{
    CompletionEntry, DmaAddr, Extent, ExtentArg, Operation, Status, register,
};
use farside_types::PAGE_SIZE;

use crate::Failure;
use crate::memory::Mapping;
use crate::registers::Registers;
use crate::rings::{RING_PAGES, Rings};
use crate::wait::wait_until;

/// Pages of the shared memory; the rings come first.
pub(crate) const SHARED_PAGES: usize = 64;
/// The first page that is free for data.
pub(crate) const DATA_PAGE: usize = 16;
const _: () = assert!(RING_PAGES <= DATA_PAGE);

/// A function of a card, as a driver sees it. The fields are dropped in their order: the shared memory
/// after the mappings that keep the device open.
pub(crate) struct Card {
    /// BAR0.
    pub(crate) registers: Box<dyn Registers>,
    /// BAR2.
    pub(crate) memory: Box<dyn Registers>,
    /// Memory of this program, at bus address `bus`.
    pub(crate) shared: Mapping,
    pub(crate) bus: u64,
    rings: Option<Rings>,
    tag: u64,
}

impl Card {
    pub(crate) fn new(
        registers: Box<dyn Registers>,
        memory: Box<dyn Registers>,
        shared: Mapping,
        bus: u64,
    ) -> Card {
        Card { registers, memory, shared, bus, rings: None, tag: 0x7a60 }
    }

    pub(crate) fn read_u32(&self, register: u64) -> u32 {
        self.registers.read_u32(register as usize)
    }

    pub(crate) fn read_u64(&self, register: u64) -> u64 {
        self.registers.read_u64(register as usize)
    }

    /// Frames of the function's memory.
    pub(crate) fn frames(&self) -> u32 {
        self.read_u32(register::FRAMES)
    }

    /// Returns the card to its known state. Rings are gone with it.
    pub(crate) fn reset(&mut self) -> Result<(), Failure> {
        self.rings = None;
        self.registers.write_u32(register::CONTROL as usize, register::CONTROL_RESET);
        let gone = register::STATUS_RESETTING | register::STATUS_ENABLED | register::STATUS_FAILED;
        wait_until("the end of the reset", || self.read_u32(register::STATUS) & gone == 0)
    }

    /// Makes rings and lets the card use them.
    pub(crate) fn enable(&mut self) -> Result<(), Failure> {
        self.rings = Some(Rings::new(&*self.registers, &self.shared, self.bus));
        self.registers.write_u32(register::CONTROL as usize, register::CONTROL_ENABLE);
        wait_until("the rings' use", || {
            self.read_u32(register::STATUS) & register::STATUS_ENABLED != 0
        })
    }

    /// Carries a command out and gives its completion, whatever its status.
    pub(crate) fn command(&mut self, operation: Operation) -> Result<CompletionEntry, Failure> {
        self.submit(operation)?;
        self.completion()
    }

    pub(crate) fn submit(&mut self, operation: Operation) -> Result<(), Failure> {
        self.tag += 1;
        let rings = self.rings.as_mut().ok_or("the rings are not in use")?;
        rings.submit(&*self.registers, &self.shared, self.tag, operation);
        Ok(())
    }

    pub(crate) fn completion(&mut self) -> Result<CompletionEntry, Failure> {
        let rings = self.rings.as_mut().ok_or("the rings are not in use")?;
        rings.completion(&self.shared, self.tag)
    }

    /// Carries a command out that must go well.
    pub(crate) fn expect_ok(&mut self, operation: Operation) -> Result<CompletionEntry, Failure> {
        let completion = self.command(operation)?;
        match completion.status {
            Status::Ok => Ok(completion),
            _ => Err(format!("the command ended with {completion:x?}").into()),
        }
    }

    /// The bus page of the shared memory's `page`th.
    pub(crate) fn bus_page(&self, page: usize) -> Result<DmaAddr, Failure> {
        bus_page(self.bus + (page * PAGE_SIZE) as u64)
    }
}

/// The page of a bus address, which must fit into a command.
pub(crate) fn bus_page(address: u64) -> Result<DmaAddr, Failure> {
    let page = u32::try_from(address / PAGE_SIZE as u64);
    Ok(DmaAddr::Bus(page.map_err(|_| format!("bus address {address:#x} is too high"))?))
}

/// `count` pages from `src` to `dst`, without an address space.
pub(crate) fn pages(src: DmaAddr, dst: DmaAddr, count: u32) -> ExtentArg {
    ExtentArg::Inline(Extent { page: 0, count, src, dst })
}
