//! Page DMA in software: a thread that copies and fills, in the order of the commands.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use farside_card::TransferFailed;
use farside_card::interface::{DmaAddr, Extent};
use farside_types::{CommandId, PAGE_SIZE};

use super::plane::{Plane, frames};
use super::staging;
use super::windows::BusPart;
use farside_linux::card_memory::stream_pages;
use farside_linux::lock::lock;
use farside_linux::signals::block_for_whole_thread;
use farside_linux::wait::Gate;

/// Bytes of a page, on the bus.
const PAGE: u64 = PAGE_SIZE as u64;

/// Copies of at least this many pages go past the caches: they are larger than a processor's own.
const STREAM_PAGES: u32 = 512;

/// Pages that are moved at a time. Between two pieces windows may change, and the work be given up.
const PIECE_PAGES: u32 = 512;

/// Pages that are written to the client's memory between two looks at how much there is of it.
const LOOK_PAGES: u32 = 1024;

/// Something to be done with bytes.
#[derive(Debug)]
pub(super) enum Order {
    Copy { id: CommandId, extents: Vec<Extent> },
    Fill { id: CommandId, extents: Vec<Extent>, pattern: u64 },
}

impl Order {
    fn copies(&self) -> bool {
        matches!(self, Order::Copy { .. })
    }

    fn pattern(&self) -> Option<u64> {
        match self {
            Order::Copy { .. } => None,
            Order::Fill { pattern, .. } => Some(*pattern),
        }
    }
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
    /// With how often there had been a stop before.
    orders: Mutex<VecDeque<(u64, Order)>>,
    gate: Gate,
    closed: AtomicBool,
    /// How often everything that was ordered before was given up.
    stops: AtomicU64,
}

impl Copier {
    pub(super) fn new(plane: Weak<Plane>) -> Copier {
        Copier { shared: Arc::default(), plane, started: AtomicBool::new(false) }
    }

    /// Takes an order. The first starts the thread.
    pub(super) fn order(&self, order: Order) {
        let stops = self.shared.stops.load(Ordering::SeqCst);
        lock(&self.shared.orders).push_back((stops, order));
        if !self.started.swap(true, Ordering::SeqCst) {
            let (shared, plane) = (Arc::clone(&self.shared), self.plane.clone());
            let body = move || work(&shared, &plane);
            if let Err(error) = std::thread::Builder::new().name("farside-dma".into()).spawn(body) {
                tracing::error!(%error, "a card has no thread for page DMA; copies will time out");
            }
        }
        self.shared.gate.notify();
    }

    /// Gives up what was ordered until now, between two pieces of it. Each order is answered.
    pub(super) fn stop(&self) {
        self.shared.stops.fetch_add(1, Ordering::SeqCst);
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
    let mut since_look = 0;
    loop {
        let order = shared.gate.wait(None, || {
            if shared.closed.load(Ordering::SeqCst) {
                return Some(None);
            }
            lock(&shared.orders).pop_front().map(Some)
        });
        let Some(Some((stops, order))) = order else { return };
        let Some(plane) = plane.upgrade() else { return };
        let mut mover = Mover { shared, plane: &plane, stops, since_look: &mut since_look };
        let (id, result) = mover.move_all(&order);
        plane.copied(id, result);
    }
}

/// Carries an order out, piece by piece.
struct Mover<'a> {
    shared: &'a Shared,
    plane: &'a Plane,
    /// How often there had been a stop when the order was given.
    stops: u64,
    /// Pages written to the client's memory since the last look at how much there is of it.
    since_look: &'a mut u32,
}

impl Mover<'_> {
    fn move_all(&mut self, order: &Order) -> (CommandId, Result<(), TransferFailed>) {
        let (id, extents) = match order {
            Order::Copy { id, extents } | Order::Fill { id, extents, .. } => (*id, extents),
        };
        let mut pages_done = 0;
        for extent in extents {
            for piece in pieces(extent) {
                let done = self.may_write(&piece).then(|| match order {
                    _ if staging::concerns(self.plane, &piece, order.copies()) => {
                        staging::carry_out(self.plane, &piece, order.pattern())
                    }
                    Order::Copy { .. } => copy(self.plane, &piece, extent.count >= STREAM_PAGES),
                    Order::Fill { pattern, .. } => fill(self.plane, &piece, *pattern),
                });
                if done.flatten().is_none() {
                    return (id, Err(TransferFailed { pages_done }));
                }
                pages_done += piece.count;
            }
        }
        (id, Ok(()))
    }

    /// Whether the work goes on, and there may be more memory in the client's files.
    fn may_write(&mut self, piece: &Extent) -> bool {
        let is_stopped = self.shared.stops.load(Ordering::SeqCst) != self.stops;
        if is_stopped || self.shared.closed.load(Ordering::SeqCst) {
            return false;
        }
        if matches!(piece.dst, DmaAddr::Own(_)) {
            return true;
        }
        *self.since_look += piece.count;
        if *self.since_look < LOOK_PAGES {
            return true;
        }
        let may = !self.plane.is_over_shared();
        if may {
            *self.since_look = 0;
        }
        may
    }
}

/// An extent in pieces.
fn pieces(extent: &Extent) -> impl Iterator<Item = Extent> {
    let whole = *extent;
    let starts = (0..whole.count).step_by(PIECE_PAGES as usize);
    starts.map(move |start| Extent {
        page: 0,
        count: PIECE_PAGES.min(whole.count - start),
        src: behind(whole.src, start),
        dst: behind(whole.dst, start),
    })
}

fn behind(at: DmaAddr, pages: u32) -> DmaAddr {
    match at {
        // Both ends were checked: neither goes beyond what its number can say.
        DmaAddr::Own(frame) => DmaAddr::Own(frame.wrapping_add(pages)),
        DmaAddr::Bus(page) => DmaAddr::Bus(page.wrapping_add(pages)),
    }
}

/// Where an end of a piece is, and what must be mapped there.
fn end(plane: &Plane, at: DmaAddr, count: u32, write: bool) -> Option<(*mut u8, Option<BusPart>)> {
    match at {
        DmaAddr::Own(frame) => Some((frames(plane, frame, count)?.as_ptr(), None)),
        DmaAddr::Bus(page) => {
            let (address, bytes) = (u64::from(page) * PAGE, u64::from(count) * PAGE);
            let pointer = plane.windows.pointer(address).as_ptr();
            Some((pointer, Some(BusPart { address, bytes, write })))
        }
    }
}

/// Copies a piece; nothing if the client has taken one of its ends away.
fn copy(plane: &Plane, piece: &Extent, streams: bool) -> Option<()> {
    let (from, from_bus) = end(plane, piece.src, piece.count, false)?;
    let (to, to_bus) = end(plane, piece.dst, piece.count, true)?;
    let pages = piece.count as usize;
    let apart = from.addr().abs_diff(to.addr()) >= pages * PAGE_SIZE;
    let parts: Vec<BusPart> = [from_bus, to_bus].into_iter().flatten().collect();
    let moved = plane.windows.while_mapped(&parts, || {
        if streams && apart {
            // SAFETY: as below; the two do not overlap here, and where one memory has two addresses
            // any mixture of bytes is as good.
            unsafe { stream_pages(from, to, pages) };
        } else {
            // SAFETY: both ends cover `pages` pages that stay mapped until this ends. They may
            // overlap (a bus address may lead to the function's own memory), which `copy` allows;
            // other processes that race with it see any mixture of bytes, as with a card of silicon.
            unsafe { std::ptr::copy(from, to, pages * PAGE_SIZE) };
        }
    });
    moved.ok()
}

/// Fills a piece; nothing if the client has taken it away.
fn fill(plane: &Plane, piece: &Extent, pattern: u64) -> Option<()> {
    let (to, bus) = end(plane, piece.dst, piece.count, true)?;
    let words = piece.count as usize * PAGE_SIZE / 8;
    let pattern = pattern.to_le();
    let filled = plane.windows.while_mapped(bus.as_slice(), || {
        for index in 0..words {
            // SAFETY: as in `copy`; the words lie within the pages and are aligned.
            unsafe { to.cast::<u64>().add(index).write(pattern) };
        }
    });
    filled.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::CardConfig;
    use crate::serve::device::config_space;
    use farside_linux::card_memory::CardMemory;
    use farside_linux::mapping::{Mapping, memory_file};
    use farside_vfio_user::unix::Interrupts;
    use farside_vfio_user::{DmaMap, DmaUnmap};
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::OwnedFd;

    /// Pages of the client, each in a window of its own, and as many frames of the card.
    const PAGES: u32 = 6;
    /// The first of them on the bus.
    const FIRST: u32 = 1 << 20;
    const ID: CommandId = CommandId(7);

    /// A function and the memory that its client shares.
    struct Rig {
        plane: Arc<Plane>,
        file: OwnedFd,
        client: Mapping,
    }

    impl Rig {
        fn new() -> Rig {
            let config = CardConfig { frames: PAGES, ..CardConfig::new("unused") };
            let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
            let memory = CardMemory::new(PAGES).unwrap();
            let interrupts = Interrupts::new(&config_space(PAGES).describe());
            let plane = Plane::new(&config, 0, 1, memory, wake, interrupts).unwrap();
            let bytes = u64::from(PAGES) * PAGE;
            let file = memory_file("test", bytes).unwrap();
            let client = Mapping::new("test", &file, bytes as usize, PAGE_SIZE).unwrap();
            let rig = Rig { plane, file, client };
            (0..PAGES).for_each(|page| rig.share(page));
            rig
        }

        fn share(&self, page: u32) {
            let map = DmaMap {
                address: u64::from(FIRST + page) * PAGE,
                size: PAGE,
                readable: true,
                writable: true,
                fd: Some(self.file.try_clone().unwrap()),
                offset: u64::from(page) * PAGE,
            };
            self.plane.windows.map(map).unwrap();
        }

        fn take_away(&self, page: u32) {
            let address = u64::from(FIRST + page) * PAGE;
            self.plane.windows.unmap(DmaUnmap::Range { address, size: PAGE });
        }

        /// The first byte of each page at one end.
        fn bytes(&self, on_card: bool) -> [u8; PAGES as usize] {
            // SAFETY: the page lies within its memory, which nobody else uses.
            std::array::from_fn(|page| unsafe { self.page(on_card, page).read() })
        }

        /// Fills each page at one end with what `value` gives for it.
        fn fill(&self, on_card: bool, value: impl Fn(usize) -> u8) {
            for page in 0..PAGES as usize {
                // SAFETY: as above.
                unsafe { self.page(on_card, page).write_bytes(value(page), PAGE_SIZE) };
            }
        }

        fn page(&self, on_card: bool, page: usize) -> *mut u8 {
            let base = if on_card { self.plane.memory.base() } else { self.client.base() };
            base.wrapping_add(page * PAGE_SIZE)
        }

        /// Copies all pages to the card or from it, each an extent of its own.
        fn copy(&self, to_card: bool) -> Result<(), TransferFailed> {
            let extents = (0..PAGES).map(|page| {
                let (own, bus) = (DmaAddr::Own(page), DmaAddr::Bus(FIRST + page));
                let (src, dst) = if to_card { (bus, own) } else { (own, bus) };
                Extent { page: 0, count: 1, src, dst }
            });
            let order = Order::Copy { id: ID, extents: extents.collect() };
            let (shared, mut since_look) = (Shared::default(), 0);
            let (plane, since_look) = (&*self.plane, &mut since_look);
            let (id, done) =
                Mover { shared: &shared, plane, stops: 0, since_look }.move_all(&order);
            assert_eq!(id, ID);
            done
        }
    }

    #[test]
    fn a_copy_whose_page_k_was_taken_away_stops_there_and_a_retry_moves_all() {
        let rig = Rig::new();
        for (to_card, k) in
            [false, true].into_iter().flat_map(|to| (0..PAGES).map(move |k| (to, k)))
        {
            let (source, destination) = (!to_card, to_card);
            let good: [u8; PAGES as usize] = std::array::from_fn(|page| 1 + page as u8);
            rig.fill(source, |page| good[page]);
            rig.fill(destination, |_| 0xff);
            rig.take_away(k);
            assert_eq!(rig.copy(to_card), Err(TransferFailed { pages_done: k }));
            assert_eq!(rig.bytes(source), good, "the source is as it was");
            let mut until = [0xff; PAGES as usize];
            until[..k as usize].copy_from_slice(&good[..k as usize]);
            assert_eq!(rig.bytes(destination), until, "nothing is written from page {k} on");
            rig.share(k);
            assert_eq!(rig.copy(to_card), Ok(()));
            assert_eq!(rig.bytes(destination), good);
        }
    }
}
