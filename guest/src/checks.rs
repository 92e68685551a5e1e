//! What a card must do, however it is reached.

use farside_card::interface::{CompletionEntry, DmaAddr, Operation, Status, VERSION, register};
use farside_types::PAGE_SIZE;

use crate::Failure;
use crate::card::{Card, DATA_PAGE, bus_page, pages};
use crate::report::Check;
use crate::wait::{expect, wait_until};

/// Frames of the card's memory that the checks use.
const FRAMES_NEEDED: u32 = 8;
const WORDS: usize = PAGE_SIZE / 8;

/// In this order; each leaves the card as it found it.
pub(crate) const CHECKS: [Check<Card>; 11] = [
    ("identity", identity),
    ("registers-are-read-only", read_only),
    ("card-memory", card_memory),
    ("reset-and-enable", reset_and_enable),
    ("nop", nop),
    ("fill", fill),
    ("copy-to-card", copy_to_card),
    ("copy-to-host", copy_to_host),
    ("rings-wrap-around", wrap_around),
    ("foreign-frame-is-refused", foreign_frame),
    ("unmapped-address-is-refused", unmapped_address),
];

fn identity(card: &mut Card) -> Result<(), Failure> {
    expect("the magic number", card.read_u32(register::MAGIC), register::MAGIC_VALUE)?;
    expect("the major version", card.read_u32(register::VERSION) >> 16, VERSION >> 16)?;
    let capabilities = card.read_u64(register::CAPABILITIES);
    expect("the capability of DMA", capabilities & register::CAP_DMA, register::CAP_DMA)?;
    let bytes = card.frames() as usize * PAGE_SIZE;
    if card.frames() < FRAMES_NEEDED || bytes > card.memory.bytes() {
        return Err(format!("{bytes} bytes of memory, BAR 2 of {}", card.memory.bytes()).into());
    }
    Ok(())
}

fn read_only(card: &mut Card) -> Result<(), Failure> {
    card.registers.write_u32(register::MAGIC as usize, 0);
    expect("the magic number", card.read_u32(register::MAGIC), register::MAGIC_VALUE)?;
    sticky_error(card, register::ERROR_REGISTER)
}

fn card_memory(card: &mut Card) -> Result<(), Failure> {
    let last = card.frames() as usize * PAGE_SIZE - 8;
    for offset in [0, 8, PAGE_SIZE, 3 * PAGE_SIZE + 0x128, last] {
        card.memory.write_u64(offset, pattern(offset));
        card.memory.write_u32(offset + 4, 0x600d);
    }
    for offset in [0, 8, PAGE_SIZE, 3 * PAGE_SIZE + 0x128, last] {
        let wanted = pattern(offset) & 0xffff_ffff | 0x600d << 32;
        expect("a word of card memory", card.memory.read_u64(offset), wanted)?;
    }
    Ok(())
}

fn reset_and_enable(card: &mut Card) -> Result<(), Failure> {
    card.reset()?;
    expect("the sticky errors", card.read_u64(register::ERRORS), 0)?;
    card.enable()
}

fn nop(card: &mut Card) -> Result<(), Failure> {
    card.expect_ok(Operation::Nop)?;
    Ok(())
}

fn fill(card: &mut Card) -> Result<(), Failure> {
    let word = 0xf111_f111_0000_0001;
    card.memory.write_u64(3 * PAGE_SIZE, 7);
    let extent = pages(DmaAddr::Bus(0), DmaAddr::Own(1), 2);
    card.expect_ok(Operation::Fill(extent, word))?;
    for index in [0, 1, WORDS - 1, WORDS, 2 * WORDS - 1] {
        expect("a filled word", card.memory.read_u64(PAGE_SIZE + 8 * index), word)?;
    }
    expect("the word after the filled pages", card.memory.read_u64(3 * PAGE_SIZE), 7)
}

fn copy_to_card(card: &mut Card) -> Result<(), Failure> {
    for index in 0..2 * WORDS {
        card.shared.write(DATA_PAGE * PAGE_SIZE + 8 * index, pattern(index));
    }
    let extent = pages(card.bus_page(DATA_PAGE)?, DmaAddr::Own(4), 2);
    card.expect_ok(Operation::Copy(extent))?;
    for index in 0..2 * WORDS {
        expect("a word", card.memory.read_u64(4 * PAGE_SIZE + 8 * index), pattern(index))?;
    }
    Ok(())
}

fn copy_to_host(card: &mut Card) -> Result<(), Failure> {
    for index in 0..WORDS {
        card.memory.write_u64(6 * PAGE_SIZE + 8 * index, pattern(index + 99));
    }
    let page = DATA_PAGE + 4;
    let extent = pages(DmaAddr::Own(6), card.bus_page(page)?, 1);
    card.expect_ok(Operation::Copy(extent))?;
    for index in 0..WORDS {
        expect("a word", card.shared.read(page * PAGE_SIZE + 8 * index), pattern(index + 99))?;
    }
    Ok(())
}

fn wrap_around(card: &mut Card) -> Result<(), Failure> {
    const TIMES: usize = 100;
    for _ in 0..TIMES {
        card.expect_ok(Operation::Nop)?;
    }
    Ok(())
}

fn foreign_frame(card: &mut Card) -> Result<(), Failure> {
    let frames = card.frames();
    let extent = pages(DmaAddr::Bus(0), DmaAddr::Own(frames - 1), 2);
    let completion = card.command(Operation::Fill(extent, 0))?;
    if completion.status != Status::ForeignFrame {
        return Err(format!("the command ended with {completion:x?}").into());
    }
    sticky_error(card, register::ERROR_FOREIGN_FRAME)
}

fn unmapped_address(card: &mut Card) -> Result<(), Failure> {
    // The last page below 4 GiB is the firmware's: not memory a device may write, with or without
    // an IOMMU.
    let nowhere = bus_page(0xffff_f000)?;
    let completion = card.command(Operation::Copy(pages(DmaAddr::Own(0), nowhere, 1)))?;
    copy_failed(&completion)?;
    // It is still of use.
    nop(card)
}

/// The first page of a copy already could not be reached: seen before it began, or while it ran.
pub(crate) fn copy_failed(completion: &CompletionEntry) -> Result<(), Failure> {
    match (completion.status, completion.pages) {
        (Status::BadAddress | Status::CopyFailed, 0) => Ok(()),
        _ => Err(format!("the command ended with {completion:x?}").into()),
    }
}

/// An error stays until a one is written to its bit; reading does not clear it.
fn sticky_error(card: &mut Card, error: u64) -> Result<(), Failure> {
    wait_until("the sticky error", || card.read_u64(register::ERRORS) & error != 0)?;
    expect("the error, read again", card.read_u64(register::ERRORS) & error, error)?;
    card.registers.write_u64(register::ERRORS as usize, error);
    expect("the error, cleared", card.read_u64(register::ERRORS) & error, 0)
}

/// Different in every word.
pub(crate) fn pattern(index: usize) -> u64 {
    (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
