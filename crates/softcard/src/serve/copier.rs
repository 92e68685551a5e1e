//! Page DMA in software: a thread that copies and fills, in the order of the commands.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use farside_card::TransferFailed;
use farside_card::interface::{DmaAddr, Extent};
use farside_types::{CommandId, PAGE_SIZE};

use super::plane::{Plane, frames};
use farside_linux::card_memory::stream_pages;
use farside_linux::lock::lock;
use farside_linux::signals::block_for_whole_thread;
use farside_linux::wait::Gate;

/// Bytes of a page, on the bus.
const PAGE: u64 = PAGE_SIZE as u64;

/// Copies of at least this many pages go past the caches: they are larger than a processor's own.
const STREAM_PAGES: usize = 512;

/// Something to be done with bytes.
#[derive(Debug)]
pub(super) enum Order {
    Copy { id: CommandId, extents: Vec<Extent> },
    Fill { id: CommandId, extents: Vec<Extent>, pattern: u64 },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Copier {
    shared: Arc<Shared>,
    plane: Weak<Plane>,
    started: AtomicBool,
}

#[derive(Debug, Default)]
struct Shared {
    orders: Mutex<VecDeque<Order>>,
    gate: Gate,
    closed: AtomicBool,
}

impl Copier {
    pub(super) fn new(plane: Weak<Plane>) -> Copier {
        Copier { shared: Arc::default(), plane, started: AtomicBool::new(false) }
    }

    /// Takes an order. The first starts the thread.
    pub(super) fn order(&self, order: Order) {
        lock(&self.shared.orders).push_back(order);
        if !self.started.swap(true, Ordering::SeqCst) {
            let (shared, plane) = (Arc::clone(&self.shared), self.plane.clone());
            let body = move || work(&shared, &plane);
            if let Err(error) = std::thread::Builder::new().name("farside-dma".into()).spawn(body) {
                tracing::error!(%error, "a card has no thread for page DMA; copies will time out");
            }
        }
        self.shared.gate.notify();
    }

    /// Ends the thread after what it is at.
    pub(super) fn close(&self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.gate.notify();
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        self.close();
    }
}

fn work(shared: &Shared, plane: &Weak<Plane>) {
    block_for_whole_thread();
    loop {
        let order = shared.gate.wait(None, || {
            if shared.closed.load(Ordering::SeqCst) {
                return Some(None);
            }
            lock(&shared.orders).pop_front().map(Some)
        });
        let Some(Some(order)) = order else { return };
        let Some(plane) = plane.upgrade() else { return };
        let (id, result) = carry_out(&plane, &order);
        plane.copied(id, result);
    }
}

fn carry_out(plane: &Plane, order: &Order) -> (CommandId, Result<(), TransferFailed>) {
    let (id, extents) = match order {
        Order::Copy { id, extents } | Order::Fill { id, extents, .. } => (*id, extents),
    };
    let mut pages_done = 0;
    for extent in extents {
        let done = match order {
            Order::Copy { .. } => copy(plane, extent),
            Order::Fill { pattern, .. } => fill(plane, extent, *pattern),
        };
        if done.is_none() {
            return (id, Err(TransferFailed { pages_done }));
        }
        pages_done += extent.count;
    }
    (id, Ok(()))
}

/// Where an end of a copy is. What the client has taken away meanwhile leads to nowhere.
fn end(plane: &Plane, at: DmaAddr, count: u32, write: bool) -> Option<*mut u8> {
    match at {
        DmaAddr::Own(frame) => frames(plane, frame, count).map(NonNull::as_ptr),
        DmaAddr::Bus(page) => {
            let (address, bytes) = (u64::from(page) * PAGE, u64::from(count) * PAGE);
            let there = plane.windows.reaches(address, bytes, write);
            there.then(|| plane.windows.pointer(address).as_ptr())
        }
    }
}

fn copy(plane: &Plane, extent: &Extent) -> Option<()> {
    let from = end(plane, extent.src, extent.count, false)?;
    let to = end(plane, extent.dst, extent.count, true)?;
    let pages = extent.count as usize;
    if pages >= STREAM_PAGES && from.addr().abs_diff(to.addr()) >= pages * PAGE_SIZE {
        // SAFETY: as below; the two do not overlap here, and where one memory has two addresses any
        // mixture of bytes is as good.
        unsafe { stream_pages(from, to, pages) };
        return Some(());
    }
    // SAFETY: both ends cover `count` pages that stay mapped as long as the plane. They may overlap
    // (a bus address may lead to the function's own memory), which `copy` allows; other processes
    // that race with it see any mixture of bytes, as with a card of silicon.
    unsafe { std::ptr::copy(from, to, pages * PAGE_SIZE) };
    Some(())
}

fn fill(plane: &Plane, extent: &Extent, pattern: u64) -> Option<()> {
    let to = end(plane, extent.dst, extent.count, true)?;
    let words = extent.count as usize * PAGE_SIZE / 8;
    let pattern = pattern.to_le();
    for index in 0..words {
        // SAFETY: as in `copy`; the words lie within the pages and are aligned.
        unsafe { to.cast::<u64>().add(index).write(pattern) };
    }
    Some(())
}
