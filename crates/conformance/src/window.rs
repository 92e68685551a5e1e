//! The card's own window: what is allocated there without a driver.

use std::ops::RangeInclusive;

use farside_types::Rights;

use super::client::{Client, NO_ASID, ensure, needs, reset, same};
use super::{Outcome, Target};
use farside_card::interface::{AllocRequest, Operation, Status, register};

/// The sizes of a window.
pub(super) struct Window {
    base: u64,
    bytes: u64,
    pub(super) page: u64,
}

impl Window {
    pub(super) fn of(client: &mut Client) -> Result<Window, String> {
        let base = client.target.read64(register::WINDOW_BASE);
        let bytes = client.target.read64(register::WINDOW_BYTES);
        let page = 1 << client.read32(register::WINDOW_PAGE).min(63);
        ensure!(bytes.is_power_of_two() && page <= bytes, "{bytes} bytes of {page} a page");
        same("WINDOW_BASE beside its size", base % bytes, 0)?;
        ensure!(client.read32(register::WINDOW_MEMORIES) > 0, "the window has no memory");
        Ok(Window { base, bytes, page })
    }
}

fn alloc(bytes: u64, lazy: bool) -> Operation {
    alloc_in(0, bytes, lazy)
}

pub(super) fn alloc_in(memory: u8, bytes: u64, lazy: bool) -> Operation {
    Operation::Allocate(AllocRequest::Malloc { bytes, memory, rights: Rights::ReadWrite, lazy })
}

fn allocate(client: &mut Client, bytes: u64) -> Result<u64, String> {
    Ok(client.ok(NO_ASID, alloc(bytes, false))?.value)
}

pub(super) fn free(client: &mut Client, address: u64) -> Result<(), String> {
    client.ok(NO_ASID, Operation::Allocate(AllocRequest::Free { address })).map(drop)
}

/// Waits until so many frames are free.
fn wait_free(client: &mut Client, frames: RangeInclusive<u64>) -> Result<(), String> {
    let free = |client: &mut Client| client.target.read64(register::WINDOW_FRAMES_FREE);
    let is_so = |client: &mut Client| Ok(frames.contains(&free(client)));
    let waited = client.until("free frames", is_so);
    waited.map_err(|_| format!("{} frames are free, and {frames:?} must be", free(client)))
}

pub(super) fn allocations_are_apart_grow_and_come_back(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_ALLOC);
    let Window { base, bytes, page } = Window::of(&mut client)?;
    // What is kept ready has its frames when something has come and gone.
    let address = allocate(&mut client, 1)?;
    free(&mut client, address)?;
    client.settle()?;
    let before = client.target.read64(register::WINDOW_FRAMES_FREE);
    let total = client.target.read64(register::WINDOW_FRAMES);
    ensure!(before > 16 && before <= total, "{before} of {total} frames are free");
    let mut all: Vec<(u64, u64)> = Vec::new();
    for pages in [1, 2, 1, 5, 3] {
        all.push((allocate(&mut client, pages * page - page / 2)?, pages));
    }
    let lazy = client.ok(NO_ASID, alloc(4 * page, true))?.value;
    all.push((lazy, 4));
    for (index, new) in [(0, 2), (3, 2), (2, 1)] {
        let (address, _) = all[index];
        let realloc =
            Operation::Allocate(AllocRequest::Realloc { address, bytes: new * page, lazy: false });
        all[index] = (client.ok(NO_ASID, realloc)?.value, new);
    }
    // Each memory has frames, and gives its own.
    for memory in 0..client.read32(register::WINDOW_MEMORIES).min(16) as u8 {
        all.push((client.ok(NO_ASID, alloc_in(memory, page, false))?.value, 1));
    }
    let mut sorted = all.clone();
    sorted.sort_unstable();
    for (index, &(address, pages)) in sorted.iter().enumerate() {
        let end = sorted.get(index + 1).map_or(base + bytes, |next| next.0);
        let is_inside = address >= base && address % page == 0 && address + pages * page <= end;
        ensure!(is_inside, "{pages} pages at {address:#x} are not alone in the window");
    }
    let left = client.target.read64(register::WINDOW_FRAMES_FREE);
    ensure!(left < before, "pages take no frame: {left} of {before} are free");
    for (address, _) in all {
        free(&mut client, address)?;
    }
    wait_free(&mut client, before..=before)?;
    client.finish()
}

pub(super) fn commands_for_the_window_that_make_no_sense_are_refused(
    target: &mut dyn Target,
) -> Outcome {
    let mut client = Client::open(target)?;
    if !client.can(register::CAP_ALLOC) {
        // A card without a window, or of before there were any.
        let done = client.run(NO_ASID, alloc(1, false))?;
        let unknown = |status| [Status::Unsupported, Status::UnknownOpcode].contains(&status);
        ensure!(unknown(done.status), "ALLOC without a window completes with {:?}", done.status);
        let done = client.run(NO_ASID, Operation::TakeOver { address: 0, bytes: 1 })?;
        ensure!(
            unknown(done.status),
            "TAKE_OVER without a window completes with {:?}",
            done.status
        );
    }
    needs!(client, CAP_ALLOC);
    let Window { base, bytes, page } = Window::of(&mut client)?;
    let address = allocate(&mut client, 3 * page)?;
    let none = client.read32(register::WINDOW_MEMORIES).min(255) as u8;
    let rights = Rights::Read;
    let of_none =
        Operation::Allocate(AllocRequest::Malloc { bytes: 1, memory: none, rights, lazy: false });
    let free = |address| Operation::Allocate(AllocRequest::Free { address });
    let take_over = |address, bytes| Operation::TakeOver { address, bytes };
    let realloc =
        |address, bytes| Operation::Allocate(AllocRequest::Realloc { address, bytes, lazy: false });
    for (operation, status, detail) in [
        (alloc(0, false), Status::BadOperand, 2),
        (alloc(bytes + 1, true), Status::BadOperand, 2),
        (alloc(u64::MAX, true), Status::BadOperand, 2),
        (of_none, Status::BadOperand, 3),
        (realloc(address, 0), Status::BadOperand, 3),
        (free(address + 1), Status::InsideAllocation, address + 1),
        (free(address + page), Status::InsideAllocation, address + page),
        (realloc(address + page, 1), Status::InsideAllocation, address + page),
        (free(base.wrapping_sub(page)), Status::NotAllocated, base.wrapping_sub(page)),
        (free(base.wrapping_add(bytes)), Status::NotAllocated, base.wrapping_add(bytes)),
        (free(0), Status::NotAllocated, 0),
        // The driver's own, which no kernel has handed over.
        (take_over(address, 1), Status::NotAllocated, address),
        (take_over(address + page, 1), Status::NotAllocated, address + page),
        (take_over(0, u64::MAX), Status::NotAllocated, 0),
        (take_over(address, 0), Status::BadOperand, 3),
    ] {
        let done = client.run(NO_ASID, operation.clone())?;
        same(&format!("{operation:x?}"), (done.status, done.detail), (status, detail))?;
        client.expect_errors(register::ERROR_COMMAND)?;
    }
    client.ok(NO_ASID, free(address))?;
    let done = client.run(NO_ASID, free(address))?;
    same("a second FREE", (done.status, done.detail), (Status::NotAllocated, address))?;
    client.expect_errors(register::ERROR_COMMAND)?;
    client.finish()
}

/// Fills memory 0 with pieces, ever smaller ones where the last was refused: the registers do not say how much of all
/// frames it has. Returns them with their pages.
fn fill(client: &mut Client, page: u64) -> Result<Vec<(u64, u64)>, String> {
    let mut piece = (client.target.read64(register::WINDOW_FRAMES_FREE) / 8).max(1);
    let mut all = Vec::new();
    while piece > 0 {
        let done = client.run(NO_ASID, alloc(piece * page, false))?;
        match done.status {
            Status::Ok => all.push((done.value, piece)),
            Status::NoFrames | Status::NoSpace => piece /= 2,
            other => return Err(format!("{piece} pages of a memory that fills are {other:?}")),
        }
        ensure!(all.len() < 1000, "there is no end of the memory");
    }
    Ok(all)
}

pub(super) fn a_full_window_memory_is_an_error_and_serves_again(
    target: &mut dyn Target,
) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_ALLOC);
    let Window { page, .. } = Window::of(&mut client)?;
    let total = client.target.read64(register::WINDOW_FRAMES);
    let before = client.target.read64(register::WINDOW_FRAMES_FREE);
    let all = fill(&mut client, page)?;
    same("ERRORS of a full memory", client.errors(), 0)?;
    let &(address, piece) = all.first().ok_or("memory 0 has no room for a page")?;
    let is_one = client.read32(register::WINDOW_MEMORIES) == 1;
    ensure!(!is_one || all.len() > 2, "after {} pieces the only memory is full", all.len());
    let left = client.target.read64(register::WINDOW_FRAMES_FREE);
    let pages: u64 = all.iter().map(|(_, pages)| pages).sum();
    ensure!(left + pages <= before, "{pages} pages, but of {before} free frames {left} are left");
    free(&mut client, address)?;
    // Those of tables may come back as well.
    wait_free(&mut client, left + piece..=total)?;
    allocate(&mut client, piece * page)?;
    // All of it is there again behind a reset.
    drop(client);
    reset(target)?;
    let mut client = Client::open(target)?;
    for (_, piece) in all {
        allocate(&mut client, piece * page)?;
    }
    let base = client.target.read64(register::WINDOW_BASE);
    client.target.write64(register::WINDOW_BASE, base);
    client.expect_errors(register::ERROR_REGISTER)?;
    client.finish()
}
