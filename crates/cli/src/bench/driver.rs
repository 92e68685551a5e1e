//! The driver alone: what a fault costs it in cache misses, and the size of its tables.

use std::time::Instant;

use farside::Error;
use farside_svm::{
    CardFault, Command, Config, Driver, Event, Need, Outcome, Reply, Request, RingOp, Step,
    placement::OnTouch,
};
use farside_types::{
    Access, CardId, FaultId, MemoryId, PAGE_SIZE, PageNo, PageRange, RequestId, Time,
};

use super::{Effort, Row, Target, cache_miss, median, pin, two_cpus};

const RANGES: u64 = 10_000;
const RANGE_PAGES: u64 = 100;
const PAGES: u64 = RANGES * RANGE_PAGES;
/// Faults per sample.
const FAULTS: usize = 200_000;

pub(crate) fn run(effort: Effort) -> Result<Vec<Row>, Error> {
    let (program, _) = two_cpus();
    let _pinned = pin(program);
    let mut bench = Fixture::new()?;
    let bytes = bench.driver.table_bytes() as f64 / PAGES as f64;
    let scattered = bench.measure(effort, 256, false);
    let runs = bench.measure(effort, 256, true);
    let single = bench.measure(effort, 1, false);
    drop(bench);
    let miss = cache_miss::seconds(effort);
    let row = |name, seconds: f64, most: f64| {
        let detail = format!(
            "{:.0} ns a fault; a load that misses every cache {:.0} ns; 10^6 pages in 10^4 ranges",
            seconds * 1e9,
            miss * 1e9
        );
        Row::new(name, seconds / miss, Target::AtMost(most), "x cache miss", detail)
    };
    Ok(vec![
        row("driver alone, a fault, batches of 256, random pages", scattered, 5.0),
        row("driver alone, a fault, batches of 256, runs of 16 pages", runs, 5.0),
        row("driver alone, a fault, one by one, random pages", single, 14.0),
        Row::new(
            "driver's tables",
            bytes,
            Target::AtMost(32.0),
            "B/page",
            "10^6 mapped pages in 10^4 ranges on a card".to_owned(),
        ),
    ])
}

/// A driver with a million mapped pages, and a machine that does everything at once.
struct Fixture {
    driver: Driver,
    ranges: Vec<PageRange>,
    now: Time,
    next: u64,
    random: u64,
}

impl Fixture {
    fn new() -> Result<Fixture, Error> {
        let arena = PageRange::new(PageNo(1 << 20), 1 << 21);
        let mut config = Config::embedded(arena, vec![PAGES as u32 + 1024; 2]);
        config.prefetch.density_percent = 100;
        // Pages that go back and forth are what is measured here, not a fight to be damped.
        config.thrash.throttle_after = u8::MAX;
        config.thrash.contests = false;
        let driver = Driver::new(config, Box::new(OnTouch)).map_err(farside::LiveError::from)?;
        let (ranges, now) = (Vec::new(), Time::from_nanos(1));
        let mut fixture = Fixture { driver, ranges, now, next: 0, random: 0x9e37_79b9_7f4a_7c15 };
        for _ in 0..RANGES {
            let bytes = RANGE_PAGES * PAGE_SIZE as u64;
            let request = Request::Alloc { bytes, name: "".into() };
            if let Some(Outcome::Allocated(range)) = fixture.request(request) {
                fixture.ranges.push(range);
            }
        }
        for range in fixture.ranges.clone() {
            fixture.request(Request::Migrate { range, to: CardId(0).memory() });
        }
        Ok(fixture)
    }

    fn request(&mut self, request: Request) -> Option<Outcome> {
        self.next += 1;
        let id = RequestId(self.next);
        self.driver.handle(self.now, Event::Request { id, request, after: &[] });
        self.carry_out();
        match self.driver.poll_reply() {
            Some(Reply::Request { result: Ok(outcome), .. }) => Some(outcome),
            _ => None,
        }
    }

    /// Does everything at once. Gives the faults resumed.
    fn carry_out(&mut self) -> usize {
        let mut resumed = 0;
        while let Some(command) = self.driver.poll_command() {
            if let Command::Ring(_, Step { op: RingOp::Resume { faults }, .. }) = &command {
                resumed += faults.len();
            }
            self.driver.handle(self.now, command.header().done(Ok(())));
        }
        resumed
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((u128::from(self.random) * u128::from(below)) >> 64) as u64
    }

    /// A page, and the card that does not have it.
    fn elsewhere(&self, page: PageNo) -> CardId {
        let at_first = self.driver.page(page).owner == Some(MemoryId(1));
        CardId(u8::from(at_first))
    }

    /// A batch of faults of one card on pages that are on the other. Gives the card.
    fn batch(&mut self, size: usize, runs: bool, faults: &mut Vec<CardFault>) -> CardId {
        faults.clear();
        let mut card = None;
        while faults.len() < size {
            let pick = self.random(RANGES) as usize;
            let range = self.ranges[pick];
            let run = if runs { 16 } else { 1 };
            let first = range.start.offset(self.random(RANGE_PAGES - run + 1));
            if *card.get_or_insert(self.elsewhere(first)) == self.elsewhere(first) {
                for page in PageRange::new(first, run).pages() {
                    self.next += 1;
                    let need = Need::Page(page, Access::Write);
                    faults.push(CardFault { id: FaultId(self.next), need });
                }
            }
        }
        card.unwrap_or(CardId(0))
    }

    /// Seconds of a fault, the making of the batches not counted.
    fn measure(&mut self, effort: Effort, size: usize, runs: bool) -> f64 {
        let mut faults = Vec::new();
        let mut samples = Vec::new();
        for _ in 0..effort.samples {
            let (mut resolved, mut spent) = (0, 0.0);
            while resolved < FAULTS {
                let card = self.batch(size, runs, &mut faults);
                self.now = self.now + farside_types::Span::from_micros(1);
                let start = Instant::now();
                self.driver.handle(self.now, Event::CardFaults { card, faults: &faults });
                resolved += self.carry_out();
                spent += start.elapsed().as_secs_f64();
            }
            samples.push(spent / resolved as f64);
        }
        median(samples)
    }
}
