//! The numbers of `SPECIFICATION.md` that need no clock: sizes, limits and defaults.

use std::path::Path;

use farside::{Error, Space};
use farside_card::Geometry;
use farside_softcard::serve::{CardConfig, CardServer, FUNCTIONS_MAX};
use farside_svm::placement::OnTouch;
use farside_svm::{
    Config, ConfigError, Driver, Event, Limits, Outcome, PrefetchConfig, Reply, Request,
    RequestError, ThrashConfig,
};
use farside_types::{
    BLOCK_PAGES, BLOCK_SIZE, CardId, MAX_CARDS, MemoryId, PAGE_SIZE, PageNo, PageRange, RequestId,
    Span, Time,
};
use harness::live::served::TempDir;

/// A driver and a machine that does everything at once.
struct Fixture {
    driver: Driver,
    next: u64,
}

impl Fixture {
    fn new(frames: Vec<u32>, change: impl FnOnce(&mut Config)) -> Fixture {
        let arena = PageRange::new(PageNo(1 << 20), 1 << 21);
        let mut config = Config::embedded(arena, frames);
        change(&mut config);
        let driver = Driver::new(config, Box::new(OnTouch)).expect("the configuration is good");
        Fixture { driver, next: 0 }
    }

    fn ask(&mut self, request: Request) {
        self.next += 1;
        let now = Time::from_nanos(self.next);
        self.driver.handle(now, Event::Request { id: RequestId(self.next), request, after: &[] });
    }

    fn done(&mut self, request: Request) -> Outcome {
        self.ask(request);
        while let Some(command) = self.driver.poll_command() {
            self.driver.handle(Time::from_nanos(self.next), command.header().done(Ok(())));
        }
        match self.driver.poll_reply() {
            Some(Reply::Request { result: Ok(outcome), .. }) => outcome,
            other => panic!("expected success, got {other:?}"),
        }
    }

    fn alloc(&mut self, pages: u64) -> PageRange {
        let bytes = pages * PAGE_SIZE as u64;
        match self.done(Request::Alloc { bytes, name: "".into() }) {
            Outcome::Allocated(range) => range,
            other => panic!("expected a range, got {other:?}"),
        }
    }
}

#[test]
fn the_tables_take_at_most_32_bytes_per_mapped_page() {
    const RANGES: u64 = 10_000;
    const PAGES: u64 = 100;
    let frames = (RANGES * PAGES) as u32 + 1024;
    let mut fixture = Fixture::new(vec![frames; 2], |_| {});
    let ranges: Vec<PageRange> = (0..RANGES).map(|_| fixture.alloc(PAGES)).collect();
    for &range in &ranges {
        fixture.done(Request::Migrate { range, to: CardId(0).memory() });
    }
    let all_there = |range: &PageRange| {
        range.pages().all(|page| fixture.driver.page(page).owner == Some(MemoryId(1)))
    };
    assert!(ranges.iter().all(all_there), "a page that is not mapped takes no table");
    let bytes = fixture.driver.table_bytes() as f64 / (RANGES * PAGES) as f64;
    assert!(bytes <= 32.0, "{bytes:.1} bytes per mapped page");
    println!("{bytes:.1} bytes per mapped page");
}

#[test]
fn the_history_and_the_open_requests_are_bounded() {
    let mut fixture = Fixture::new(vec![64; 2], |config| {
        config.limits.history = 8;
        config.limits.requests = 2;
    });
    let range = fixture.alloc(4);
    for round in 0..20 {
        fixture.done(Request::Migrate { range, to: CardId(round % 2).memory() });
    }
    assert_eq!(fixture.driver.history(range).len(), 8);

    // Nothing is carried out, so both stay open.
    for card in [0, 1, 0] {
        fixture.ask(Request::Migrate { range, to: CardId(card).memory() });
    }
    let replies: Vec<Reply> = std::iter::from_fn(|| fixture.driver.poll_reply()).collect();
    let refused = |reply: &Reply| {
        matches!(
            reply,
            Reply::Request { result: Err(RequestError::TooManyRequests { open: 2 }), .. }
        )
    };
    assert!(replies.iter().any(refused), "{replies:?}");
}

#[test]
fn a_space_has_at_most_16_cards() {
    assert_eq!(MAX_CARDS, 16);
    let arena = PageRange::new(PageNo(1 << 20), BLOCK_PAGES);
    let open = |cards| Driver::new(Config::embedded(arena, vec![1; cards]), Box::new(OnTouch));
    assert!(open(16).is_ok());
    let config = Config { card_frames: vec![1; 17], ..Config::embedded(arena, vec![1]) };
    let refused = Driver::new(config, Box::new(OnTouch)).err();
    assert_eq!(refused, Some(ConfigError::TooManyCards { cards: 17 }));
    for cards in [0, 17] {
        let refused = Space::builder().cards(cards).build();
        assert!(matches!(refused, Err(Error::Setting { what: "cards", .. })), "{refused:?}");
    }
}

#[test]
fn a_served_card_has_1_to_64_functions() {
    let folder = TempDir::new();
    let config = |functions| CardConfig { functions, ..CardConfig::new(folder.join("card")) };
    assert_eq!((CardConfig::new("").functions, FUNCTIONS_MAX), (8, 64));
    for functions in [0, 65, u16::MAX] {
        let refused = CardServer::start(config(functions)).expect_err("no card has so many");
        assert!(refused.to_string().contains("1 to 64 functions"), "{refused}");
        assert!(!folder.join("card").exists());
    }
}

/// Name and value, as the specification writes them.
fn defaults() -> Vec<(&'static str, String)> {
    let limits = Limits::default();
    let thrash = ThrashConfig::default();
    let prefetch = PrefetchConfig::default();
    let card = Geometry::default();
    let micros = |span: Span| format!("{} µs", span.as_nanos() / 1_000);
    vec![
        ("page", format!("{PAGE_SIZE} B")),
        ("block", format!("{BLOCK_SIZE} B")),
        ("fault_batch", limits.fault_batch.to_string()),
        ("group_pages", limits.group_pages.to_string()),
        ("chain_pages", limits.chain_pages.to_string()),
        ("chains", limits.chains.to_string()),
        ("faults", limits.faults.to_string()),
        ("requests", limits.requests.to_string()),
        ("attempts", limits.attempts.to_string()),
        ("evict_pages", limits.evict_pages.to_string()),
        ("drain", micros(limits.drain)),
        ("copy", micros(limits.copy)),
        ("history", limits.history.to_string()),
        ("window", micros(thrash.window)),
        ("throttle_after", thrash.throttle_after.to_string()),
        ("minimum_residency", micros(thrash.minimum_residency)),
        ("pin_after", thrash.pin_after.to_string()),
        ("pin_for", micros(thrash.pin_for)),
        ("host_fault_around", prefetch.host_fault_around.to_string()),
        ("density_percent", prefetch.density_percent.to_string()),
        ("density_leaf_pages", prefetch.density_leaf_pages.to_string()),
        ("l1_entries", card.l1_entries.to_string()),
        ("l2_entries", card.l2_entries.to_string()),
        ("flexible_entries", card.flexible_entries.to_string()),
        ("flexible_pages_max", card.flexible_pages_max.to_string()),
        ("fault_entries", card.fault_entries.to_string()),
        ("counter_threshold", card.counter_threshold.to_string()),
        ("dma_commands_max", card.dma_commands_max.to_string()),
        ("dma_pages_max", card.dma_pages_max.to_string()),
    ]
}

#[test]
fn the_defaults_are_those_that_the_specification_lists() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../SPECIFICATION.md");
    let text = std::fs::read_to_string(&path).expect("the specification is there");
    for (name, value) in defaults() {
        let row = format!("| `{name}` | {value} |");
        assert!(text.lines().any(|line| line.starts_with(&row)), "no line starts with `{row}`");
    }
    // Nor does it list anything else.
    let section = text.split("## ").find(|part| part.starts_with("Defaults and limits"));
    let rows = section.expect("the section is there").lines();
    let rows = rows.filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, defaults().len(), "a row of the specification is of nothing in the code");
}

/// 63 GiB, as a program may reserve them without ever using them.
const UNTOUCHED: u64 = 63 << (30 - 12);

#[test]
fn memory_that_nobody_touched_costs_next_to_nothing() {
    let arena = PageRange::new(PageNo(1 << 20), 64 << (30 - 12));
    let mut fixture = Fixture::new(vec![1024], |config| config.arena = arena);
    let before = fixture.driver.table_bytes();
    let range = fixture.alloc(UNTOUCHED);
    let blocks = UNTOUCHED / BLOCK_PAGES;
    let bytes = (fixture.driver.table_bytes() - before) as u64;
    assert!(bytes <= 128 * blocks, "{bytes} bytes for {blocks} blocks");
    fixture.driver.check().unwrap();
    assert_eq!(fixture.driver.locate(range).len(), 1);
    // A page of it is used: that costs its block.
    let page = PageRange::page(range.start.offset(UNTOUCHED / 2));
    let moved = fixture.done(Request::Migrate { range: page, to: MemoryId(1) });
    assert_eq!(moved, Outcome::Done { pages_moved: 1 });
    let more = (fixture.driver.table_bytes() - before) as u64 - bytes;
    let dense = 16 * blocks + (64 << 10);
    assert!(more <= dense, "{more} bytes for one page");
    assert_eq!(fixture.driver.locate(range).len(), 3);
    for request in [
        Request::Trim,
        Request::Protect { range, rights: farside_types::Rights::Read },
        Request::Advise { range, advice: farside_svm::Advice::ReadMostly(true) },
    ] {
        fixture.done(request);
    }
    // Only the block that was used has anything to be given back.
    fixture.ask(Request::Free { addr: range.start.addr() });
    let mut pages = 0;
    while let Some(command) = fixture.driver.poll_command() {
        pages += command.pages();
        fixture.driver.handle(Time::from_nanos(1), command.header().done(Ok(())));
    }
    assert!(pages <= 3 * BLOCK_PAGES, "{pages} pages were given back");
    assert!(matches!(fixture.driver.poll_reply(), Some(Reply::Request { result: Ok(_), .. })));
    let total = (fixture.driver.table_bytes() - before) as u64;
    assert!(total <= bytes + dense, "{total} bytes are left");
    assert_eq!(fixture.alloc(UNTOUCHED).start, range.start);
    fixture.driver.check().unwrap();
}
