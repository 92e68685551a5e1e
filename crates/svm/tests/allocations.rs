//! Serving faults allocates nothing and gives nothing back to the allocator, from the first fault on: a
//! thread that waits for a page may be inside the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use farside_svm::placement::by_name;
use farside_svm::{
    Advice, CardFault, Command, Config, Driver, Event, Need, Outcome, Reply, Request, RingOp, Step,
};
use farside_types::{
    Access, CardId, FaultId, JobId, MemoryId, PageNo, PageRange, RequestId, Span, StreamId, Time,
};

struct Counting;

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn note() {
    // At the end of a thread there is nothing to be counted.
    let watched = WATCHED.try_with(Cell::get).unwrap_or(false);
    if watched {
        let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
    }
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note();
        // SAFETY: the caller's.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller's.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Calls of the allocator in `work`, on this thread.
fn calls(work: impl FnOnce()) -> u64 {
    CALLS.set(0);
    WATCHED.set(true);
    work();
    WATCHED.set(false);
    CALLS.get()
}

const FRAMES: u32 = 2048;
const PAGES: u64 = 4 * 512;

/// A driver of three cards whose commands are carried out at once.
struct World {
    driver: Driver,
    pages: PageRange,
    now: Time,
    next: u64,
    /// Pages that cards were asked about, whether they are in use.
    asked: u64,
}

impl World {
    fn new(scheme: &str, frames: u32) -> World {
        let arena = PageRange::new(PageNo(1 << 20), 1 << 20);
        let mut config = Config::embedded(arena, vec![frames; 3]);
        config.capabilities.tells = [1, 2, 3].map(MemoryId).into_iter().collect();
        let driver = Driver::new(config, by_name(scheme).unwrap()).unwrap();
        let pages = PageRange::new(arena.start, 0);
        let mut world = World { driver, pages, now: Time::ZERO, next: 0, asked: 0 };
        world.pages = world.allocate();
        world
    }

    fn allocate(&mut self) -> PageRange {
        let request = Request::Alloc { bytes: PAGES * 4096, name: "".into() };
        match self.ask(request) {
            Outcome::Allocated(range) => range,
            other => panic!("{other:?}"),
        }
    }

    fn ask(&mut self, request: Request) -> Outcome {
        self.next += 1;
        self.tell(Event::Request { id: RequestId(self.next), request, after: &[] });
        loop {
            match self.driver.poll_reply().expect("requests are answered") {
                Reply::Request { result, .. } => return result.unwrap(),
                _ => continue,
            }
        }
    }

    fn tell(&mut self, event: Event<'_>) {
        self.hear(event);
        self.carry_out();
    }

    fn hear(&mut self, event: Event<'_>) {
        self.now = self.now + Span::from_millis(1);
        self.driver.handle(self.now, event);
    }

    fn carry_out(&mut self) {
        while let Some(command) = self.driver.poll_command() {
            if let Command::Ring(_, Step { header, op }) = &command {
                let asks = matches!(op, RingOp::Accessed { .. });
                self.asked += if asks { op.pages() } else { 0 };
                if asks || matches!(op, RingOp::Unmap { tells: true, .. }) {
                    let (command, pages) = (header.id, op.pages());
                    // What is not told counts as used, or written: some are not, by turns.
                    self.next += 1;
                    let bits = &[0x5555 << (self.next % 2)];
                    let told = Event::Told { command, first: 0, pages, bits };
                    self.driver.handle(self.now, told);
                }
            }
            self.driver.handle(self.now, command.header().done(Ok(())));
        }
        if self.driver.poll_timeout().is_some_and(|at| at <= self.now) {
            self.driver.handle_timeout(self.now);
        }
    }

    fn page(&self, index: u64) -> PageNo {
        self.pages.start.offset(index)
    }

    fn host(&mut self, index: u64, access: Access) {
        self.tell(Event::HostFault { page: self.page(index), access });
    }

    /// As many faults in one batch as there are in `indices`.
    fn card<const N: usize>(&mut self, card: u8, indices: [u64; N], access: Access) {
        self.fault(card, indices, access);
        self.carry_out();
    }

    /// The same, and what the driver wants done about it waits.
    fn fault<const N: usize>(&mut self, card: u8, indices: [u64; N], access: Access) {
        let faults = indices.map(|index| {
            self.next += 1;
            let need = Need::Page(self.page(index), access);
            CardFault { id: FaultId(self.next), need }
        });
        self.hear(Event::CardFaults { card: CardId(card), faults: &faults });
    }

    fn group(&mut self, card: u8, ranges: &Arc<[(PageRange, Access)]>) {
        self.next += 1;
        let fault = CardFault { id: FaultId(self.next), need: Need::Group(Arc::clone(ranges)) };
        self.tell(Event::CardFaults { card: CardId(card), faults: &[fault] });
    }

    fn launch(&mut self, card: u8) {
        self.next += 1;
        let (job, stream) = (JobId(self.next), StreamId(card.into()));
        let writes = &[self.driver.config().arena];
        self.tell(Event::Launch { job, card: CardId(card), stream, after: &[], writes });
    }
}

/// Pages that do not lie beside each other, in another order than theirs.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|at| at * 997 % PAGES)
}

const SCHEMES: [&str; 5] = ["farside", "on-touch", "access-counter", "duplication", "first-touch"];

/// Does the same under every scheme, and counts.
fn none(what: &str, frames: u32, prepare: impl Fn(&mut World), work: impl Fn(&mut World)) {
    for scheme in SCHEMES {
        let mut world = World::new(scheme, frames);
        prepare(&mut world);
        let before = world.driver.stats().chains;
        let calls = calls(|| work(&mut world));
        assert_eq!(calls, 0, "{what}, {scheme}");
        world.driver.check().unwrap();
        assert!(world.driver.stats().chains > before, "{what}, {scheme}: nothing has happened");
    }
}

fn host_writes_all(world: &mut World) {
    (0..PAGES).for_each(|index| world.host(index, Access::Write));
}

#[test]
fn the_first_touch_of_pages_by_the_host_and_by_cards() {
    let untouched = |_: &mut World| {};
    none("host", FRAMES, untouched, |world| {
        scattered(500).for_each(|index| world.host(index, Access::Write));
    });
    none("card", FRAMES, untouched, |world| {
        scattered(500).for_each(|index| world.card(0, [index], Access::Write));
    });
}

#[test]
fn faults_of_a_card_on_pages_of_the_host() {
    none("one by one", FRAMES, host_writes_all, |world| {
        scattered(500).for_each(|index| world.card(0, [index], Access::Write));
    });
    none("in batches of pages that are not beside each other", FRAMES, host_writes_all, |world| {
        for at in 0..100 {
            world.card(0, std::array::from_fn::<u64, 16, _>(|i| at + 101 * i as u64), Access::Read);
        }
    });
}

#[test]
fn faults_of_the_host_on_pages_of_a_card() {
    let on_card = |world: &mut World| {
        let (range, to) = (world.pages, MemoryId(1));
        world.ask(Request::Migrate { range, to });
    };
    none("one by one", FRAMES, on_card, |world| {
        scattered(500).for_each(|index| world.host(index, Access::Read));
    });
    none("in order", FRAMES, on_card, |world| {
        (0..500).for_each(|index| world.host(index, Access::Write));
    });
}

#[test]
fn faults_of_a_card_on_pages_of_another() {
    let on_card = |world: &mut World| {
        let (range, to) = (world.pages, MemoryId(2));
        world.ask(Request::Migrate { range, to });
    };
    none("of a card that rests", FRAMES, on_card, |world| {
        scattered(500).for_each(|index| world.card(0, [index], Access::Write));
    });
    let running = |world: &mut World| {
        on_card(world);
        (0..2).for_each(|card| world.launch(card));
    };
    none("of one that runs, and takes them back", FRAMES, running, |world| {
        for index in scattered(300) {
            world.card(0, [index], Access::Write);
            world.card(1, [index], Access::Write);
        }
    });
}

#[test]
fn refills() {
    for scheme in SCHEMES {
        let mut world = World::new(scheme, FRAMES);
        scattered(PAGES).for_each(|index| world.card(0, [index], Access::Write));
        let before = world.driver.stats().refills;
        let calls = calls(|| {
            scattered(500).for_each(|index| world.card(0, [index], Access::Write));
            (0..100).for_each(|at| world.card(0, [at, at + 700, at + 1500], Access::Read));
        });
        assert_eq!((calls, world.driver.stats().refills - before), (0, 800), "{scheme}");
    }
}

#[test]
fn copies_beside_each_other_and_writes_that_end_them() {
    none("replicated", FRAMES, host_writes_all, |world| {
        for index in scattered(500) {
            world.card(0, [index], Access::Read);
            world.card(1, [index], Access::Read);
            world.host(index, Access::Read);
            world.card(0, [index], Access::Write);
        }
    });
}

#[test]
fn copies_that_are_made_at_the_same_time() {
    let mut world = World::new("farside", FRAMES);
    host_writes_all(&mut world);
    let calls = calls(|| {
        for index in scattered(500) {
            // The host is stopped for the first copy, and for the others nobody.
            world.card(0, [index], Access::Read);
            world.fault(1, [index], Access::Read);
            world.fault(2, [index], Access::Read);
            world.carry_out();
        }
    });
    let stats = world.driver.stats();
    // Most pages have come along with others by then.
    assert!(calls == 0 && stats.followed > 40, "{calls} calls, {stats:?}");
}

#[test]
fn evictions_from_a_full_card() {
    for scheme in SCHEMES {
        let mut world = World::new(scheme, 512);
        host_writes_all(&mut world);
        let random = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % PAGES;
        let count = calls(|| {
            (0..6000).for_each(|at| world.card(0, [random(at)], Access::Write));
            for at in (0..PAGES - 8).step_by(8) {
                world.card(0, [at, at + 2, at + 4, at + 6], Access::Write);
            }
        });
        assert_eq!(count, 0, "{scheme}");
        let stats = world.driver.stats();
        // A scheme that maps pages over the bus fills no card.
        assert!(stats.evictions > 1000 || stats.remote_maps > 1000, "{scheme}: {stats:?}");
        assert!(
            scheme != "farside" || world.asked > 1000,
            "{scheme}: nobody was asked about its pages"
        );
    }
}

#[test]
fn grouped_faults() {
    let ranges = |world: &World, first: u64| -> Arc<[(PageRange, Access)]> {
        let part = |at: u64, access| (PageRange::new(world.page(first + at), 40), access);
        [part(0, Access::Write), part(700, Access::Read), part(20, Access::Read)].into()
    };
    for scheme in SCHEMES {
        let mut world = World::new(scheme, FRAMES);
        host_writes_all(&mut world);
        let groups: Vec<_> = (0..10).map(|at| ranges(&world, at * 61)).collect();
        let count = calls(|| {
            for group in &groups {
                world.group(0, group);
                world.group(1, group);
            }
        });
        assert_eq!(count, 0, "{scheme}");
    }
}

#[test]
fn pages_on_loan_that_come_back_with_a_copy_and_without() {
    let mut world = World::new("farside", FRAMES);
    host_writes_all(&mut world);
    world.launch(0);
    let calls = calls(|| {
        for index in 0..PAGES {
            world.card(0, [index], Access::Read);
            world.card(0, [index], Access::Write);
        }
        (0..PAGES).for_each(|index| world.host(index, Access::Read));
    });
    let stats = world.driver.stats();
    assert_eq!(calls, 0, "{stats:?}");
    assert!(stats.lent_written > 100 && stats.lent_clean > 100, "{stats:?}");
}

#[test]
fn what_access_counters_ask_for() {
    none("counters", FRAMES, host_writes_all, |world| {
        for index in scattered(100) {
            world.card(0, [index], Access::Write);
            world.card(1, [index], Access::Write);
            let pages = PageRange::new(world.page(index & !15), 16);
            world.tell(Event::CounterNotice { card: CardId(0), pages, count: 256 });
        }
    });
}

#[test]
fn pages_that_move_in_blocks() {
    let blocks = |world: &mut World| {
        let (range, advice) = (world.pages, Advice::WholeBlocks(true));
        world.ask(Request::Advise { range, advice });
    };
    none("blocks", 1024, blocks, |world| {
        for at in 0..20 {
            world.card(0, [at * 700 % PAGES], Access::Write);
            world.host(at * 300 % PAGES, Access::Write);
        }
    });
}

#[test]
fn an_allocation_is_counted() {
    let mut kept = Vec::new();
    assert_eq!(calls(|| kept.push(1u64)), 1);
    assert_eq!(calls(|| drop(kept)), 1);
    // Nobody made room for what comes from nowhere.
    let mut world = World::new("on-touch", FRAMES);
    let request = || Request::Alloc { bytes: 4096, name: "".into() };
    let requested = calls(|| {
        world.ask(request());
    });
    assert!(requested > 0);
}
