//! Page DMA in software: a thread that copies and fills, in the order of the commands.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use farside_card::TransferFailed;
use farside_card::interface::{DmaAddr, Extent};
use farside_types::{CommandId, PAGE_SIZE};

use super::leased_function::{LeasedFunction, frames};
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
    leased: Weak<LeasedFunction>,
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
    pub(super) fn new(leased: Weak<LeasedFunction>) -> Copier {
        Copier { shared: Arc::default(), leased, started: AtomicBool::new(false) }
    }

    /// Takes an order. The first starts the thread.
    pub(super) fn order(&self, order: Order) {
        let stops = self.shared.stops.load(Ordering::SeqCst);
        lock(&self.shared.orders).push_back((stops, order));
        if !self.started.swap(true, Ordering::SeqCst) {
            let (shared, leased) = (Arc::clone(&self.shared), self.leased.clone());
            let body = move || work(&shared, &leased);
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

fn work(shared: &Shared, leased: &Weak<LeasedFunction>) {
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
        let Some(leased) = leased.upgrade() else { return };
        let mut mover = Mover { shared, leased: &leased, stops, since_look: &mut since_look };
        let (id, result) = mover.move_all(&order);
        leased.copied(id, result);
    }
}

/// Carries an order out, piece by piece.
struct Mover<'a> {
    shared: &'a Shared,
    leased: &'a LeasedFunction,
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
            for piece in pieces(extent, PIECE_PAGES) {
                let streams = extent.count >= STREAM_PAGES;
                let done = if self.may_write(&piece) {
                    self.move_piece(order, &piece, streams)
                } else {
                    0
                };
                pages_done += done;
                if done < piece.count {
                    return (id, Err(TransferFailed { pages_done }));
                }
            }
        }
        (id, Ok(()))
    }

    /// Moves a piece, or as many of its pages as there are before the first that cannot be reached.
    /// Gives how many.
    fn move_piece(&self, order: &Order, piece: &Extent, streams: bool) -> u32 {
        if self.move_whole(order, piece, streams).is_some() {
            return piece.count;
        }
        let pages =
            pieces(piece, 1).take_while(|page| self.move_whole(order, page, false).is_some());
        pages.count() as u32
    }

    /// Moves a piece; nothing of it if the client has taken an end of it away.
    fn move_whole(&self, order: &Order, piece: &Extent, streams: bool) -> Option<()> {
        match order {
            _ if staging::concerns(self.leased, piece, order.copies()) => {
                staging::carry_out(self.leased, piece, order.pattern())
            }
            Order::Copy { .. } => copy(self.leased, piece, streams),
            Order::Fill { pattern, .. } => fill(self.leased, piece, *pattern),
        }
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
        let may = !self.leased.is_over_shared();
        if may {
            *self.since_look = 0;
        }
        may
    }
}

/// An extent in pieces of at most so many pages.
fn pieces(extent: &Extent, pages_max: u32) -> impl Iterator<Item = Extent> + use<> {
    let whole = *extent;
    let starts = (0..whole.count).step_by(pages_max as usize);
    starts.map(move |start| Extent {
        page: 0,
        count: pages_max.min(whole.count - start),
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
fn end(
    leased: &LeasedFunction,
    at: DmaAddr,
    count: u32,
    write: bool,
) -> Option<(*mut u8, Option<BusPart>)> {
    match at {
        DmaAddr::Own(frame) => Some((frames(leased, frame, count)?.as_ptr(), None)),
        DmaAddr::Bus(page) => {
            let (address, bytes) = (u64::from(page) * PAGE, u64::from(count) * PAGE);
            let pointer = leased.windows.pointer(address).as_ptr();
            Some((pointer, Some(BusPart { address, bytes, write })))
        }
    }
}

/// Copies a piece; nothing if the client has taken one of its ends away.
fn copy(leased: &LeasedFunction, piece: &Extent, streams: bool) -> Option<()> {
    let (from, from_bus) = end(leased, piece.src, piece.count, false)?;
    let (to, to_bus) = end(leased, piece.dst, piece.count, true)?;
    let pages = piece.count as usize;
    let apart = from.addr().abs_diff(to.addr()) >= pages * PAGE_SIZE;
    let parts: Vec<BusPart> = [from_bus, to_bus].into_iter().flatten().collect();
    let moved = leased.windows.while_mapped(&parts, || {
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
fn fill(leased: &LeasedFunction, piece: &Extent, pattern: u64) -> Option<()> {
    let (to, bus) = end(leased, piece.dst, piece.count, true)?;
    let words = piece.count as usize * PAGE_SIZE / 8;
    let pattern = pattern.to_le();
    let filled = leased.windows.while_mapped(bus.as_slice(), || {
        for index in 0..words {
            // SAFETY: as in `copy`; the words lie within the pages and are aligned.
            unsafe { to.cast::<u64>().add(index).write(pattern) };
        }
    });
    filled.ok()
}

#[cfg(test)]
mod tests {
    use farside_linux::shared::SharedMemory;
    use farside_vfio_user::DmaUnmap;

    use super::*;
    use crate::serve::tests::Fixture;

    /// Pages of each order: several pieces, none of which ends where an extent does.
    const PAGES: u32 = 1200;
    /// Where each order fails.
    const FAILURES: [u32; 8] = [0, 1, 511, 512, 513, 700, 1023, PAGES - 1];
    const ID: CommandId = CommandId(7);
    /// What nobody may have written.
    const UNTOUCHED: u64 = 0xeeee_eeee_eeee_eeee;
    /// Where the client's pages are on the bus.
    const BUS_PAGE: u32 = 1 << 22;

    struct Bench {
        fixture: Fixture,
        client: SharedMemory,
    }

    /// A word of page `page` that no other page has.
    fn word_of(page: u32) -> u64 {
        u64::from(page) * 3 + 1
    }

    impl Bench {
        /// A client whose pages before `at` may be read and written; what may be done with those from
        /// there on is in `rest`: whether they are there, and written.
        fn new(at: u32, rest: Option<bool>) -> Bench {
            let fixture = Fixture::new();
            let client = SharedMemory::new(u64::from(PAGES) * PAGE).unwrap();
            let (bus, split) = (u64::from(BUS_PAGE) * PAGE, u64::from(at) * PAGE);
            if split > 0 {
                fixture.share(bus, &client, 0, split, true);
            }
            if let Some(writable) = rest {
                fixture.share(bus + split, &client, split, client.bytes() - split, writable);
            }
            Bench { fixture, client }
        }

        fn put_client(&self, word: impl Fn(u32) -> u64) {
            for page in 0..PAGES {
                let bytes = word(page).to_le_bytes().repeat(PAGE_SIZE / 8);
                self.client.write(u64::from(page) * PAGE, &bytes).unwrap();
            }
        }

        /// Every word of each page of the client's, which must all be the same.
        fn client_words(&self) -> Vec<u64> {
            let mut bytes = vec![0; PAGE_SIZE];
            let words = (0..PAGES).map(|page| {
                self.client.read(u64::from(page) * PAGE, &mut bytes).unwrap();
                same_word(&bytes)
            });
            words.collect()
        }

        fn own(&self, page: u32) -> *mut u8 {
            frames(&self.fixture.leased, page, 1).unwrap().as_ptr()
        }

        fn put_own(&self, word: impl Fn(u32) -> u64) {
            for page in 0..PAGES {
                let bytes = word(page).to_le_bytes().repeat(PAGE_SIZE / 8);
                // SAFETY: the frame is one of the function's, which only this test uses.
                unsafe { self.own(page).copy_from_nonoverlapping(bytes.as_ptr(), PAGE_SIZE) };
            }
        }

        fn own_words(&self) -> Vec<u64> {
            let mut bytes = vec![0; PAGE_SIZE];
            let words = (0..PAGES).map(|page| {
                // SAFETY: as in `put_own`.
                unsafe { self.own(page).copy_to_nonoverlapping(bytes.as_mut_ptr(), PAGE_SIZE) };
                same_word(&bytes)
            });
            words.collect()
        }

        fn carry_out(&self, order: &Order) -> Result<(), TransferFailed> {
            let shared = Shared::default();
            self.carry_out_after(&shared, order)
        }

        fn carry_out_after(&self, shared: &Shared, order: &Order) -> Result<(), TransferFailed> {
            let leased = &self.fixture.leased;
            let mut mover = Mover { shared, leased, stops: 0, since_look: &mut 0 };
            let (id, result) = mover.move_all(order);
            assert_eq!(id, ID);
            result
        }
    }

    fn same_word(bytes: &[u8]) -> u64 {
        assert!(bytes.chunks_exact(8).all(|word| word == &bytes[..8]), "half a page was moved");
        u64::from_le_bytes(bytes[..8].try_into().unwrap())
    }

    /// All pages, in two extents.
    fn extents(src: DmaAddr, dst: DmaAddr) -> Vec<Extent> {
        let first = Extent { page: 0, count: 600, src, dst };
        let second = Extent { src: behind(src, 600), dst: behind(dst, 600), ..first };
        vec![first, second]
    }

    const OWN: DmaAddr = DmaAddr::Own(0);
    const BUS: DmaAddr = DmaAddr::Bus(BUS_PAGE);

    /// What `found` must be if the order failed at page `at`.
    #[track_caller]
    fn check(found: &[u64], at: u32, done: impl Fn(u32) -> u64) {
        for (page, &word) in (0..PAGES).zip(found) {
            let wanted = if page < at { done(page) } else { UNTOUCHED };
            assert_eq!(word, wanted, "page {page} of an order that failed at page {at}");
        }
    }

    #[test]
    fn a_copy_to_the_card_that_fails_at_a_page_has_moved_those_before_and_touched_none_after() {
        for at in FAILURES {
            let bench = Bench::new(at, None);
            bench.put_client(word_of);
            bench.put_own(|_| UNTOUCHED);
            let outcome = bench.carry_out(&Order::Copy { id: ID, extents: extents(BUS, OWN) });
            assert_eq!(outcome, Err(TransferFailed { pages_done: at }));
            check(&bench.own_words(), at, word_of);
        }
    }

    #[test]
    fn a_copy_from_the_card_that_fails_at_a_page_has_moved_those_before_and_touched_none_after() {
        for at in FAILURES {
            let bench = Bench::new(at, Some(false));
            bench.put_client(|_| UNTOUCHED);
            bench.put_own(word_of);
            let outcome = bench.carry_out(&Order::Copy { id: ID, extents: extents(OWN, BUS) });
            assert_eq!(outcome, Err(TransferFailed { pages_done: at }));
            check(&bench.client_words(), at, word_of);
        }
    }

    #[test]
    fn a_fill_that_fails_at_a_page_has_filled_those_before_and_touched_none_after() {
        for at in FAILURES {
            let bench = Bench::new(at, Some(false));
            bench.put_client(|_| UNTOUCHED);
            let order = Order::Fill { id: ID, extents: extents(BUS, BUS), pattern: 5 };
            assert_eq!(bench.carry_out(&order), Err(TransferFailed { pages_done: at }));
            check(&bench.client_words(), at, |_| 5);
        }
    }

    #[test]
    fn a_copy_whose_page_k_was_taken_away_stops_there_and_a_retry_moves_all() {
        for at in FAILURES {
            for to_card in [false, true] {
                let bench = Bench::new(at, Some(true));
                let (src, dst) = if to_card { (BUS, OWN) } else { (OWN, BUS) };
                let order = Order::Copy { id: ID, extents: extents(src, dst) };
                if to_card {
                    bench.put_client(word_of);
                    bench.put_own(|_| UNTOUCHED);
                } else {
                    bench.put_own(word_of);
                    bench.put_client(|_| UNTOUCHED);
                }
                let words = |card| if card { bench.own_words() } else { bench.client_words() };
                let (bus, split) = (u64::from(BUS_PAGE) * PAGE, u64::from(at) * PAGE);
                let size = bench.client.bytes() - split;
                let taken = DmaUnmap::Range { address: bus + split, size };
                bench.fixture.leased.windows.unmap(taken);
                assert_eq!(bench.carry_out(&order), Err(TransferFailed { pages_done: at }));
                check(&words(to_card), at, word_of);
                check(&words(!to_card), PAGES, word_of);
                bench.fixture.share(bus + split, &bench.client, split, size, true);
                assert_eq!(bench.carry_out(&order), Ok(()));
                check(&words(to_card), PAGES, word_of);
            }
        }
    }

    #[test]
    fn an_order_from_before_a_stop_moves_nothing_and_is_answered() {
        let bench = Bench::new(PAGES - 1, Some(true));
        bench.put_client(|_| UNTOUCHED);
        let shared = Shared::default();
        shared.stops.fetch_add(1, Ordering::SeqCst);
        let order = Order::Fill { id: ID, extents: extents(BUS, BUS), pattern: 5 };
        let outcome = bench.carry_out_after(&shared, &order);
        assert_eq!(outcome, Err(TransferFailed { pages_done: 0 }));
        check(&bench.client_words(), 0, |_| 5);
    }
}
