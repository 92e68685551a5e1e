//! What the report says is slow, and what to do: each program here is slow in one way, the report says so
//! and nothing else, the remedy that it names is applied as it stands, and the same program then costs
//! fewer faults or moves fewer pages, and the report has nothing to say. Counts, not time.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use farside::{
    AtomicSpan, Buffer, Error, KernelContext, KernelError, MemoryId, PageNo, PageRange, Read,
    ReadSpan, ReadView, Remedy, Report, Shared, Space, SpaceBuilder, Write, WriteSpan, WriteView,
};
use harness::live::within;

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;

fn builder() -> SpaceBuilder {
    Space::builder().address_space(256 << 20)
}

/// The only thing that is slow.
fn remedy_of(report: &Report, reason: &str) -> Remedy {
    let [slow] = &report.slow[..] else { panic!("not one thing is slow: {report}") };
    assert!(slow.reason.contains(reason), "{}", slow.reason);
    assert!(report.to_string().contains(&format!("slow: {}\n  do: ", slow.reason)), "{report}");
    for line in slow.to_string().lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    slow.remedy.clone()
}

fn assert_nothing_slow(report: &Report) {
    assert_eq!(report.slow, [], "{report}");
    assert!(!report.to_string().contains("slow:"), "{report}");
}

/// Does what a remedy says that is a call of the space.
fn apply<T>(remedy: &Remedy, space: &Space, name: &str, buffer: &[T]) -> Result<(), Error> {
    match remedy {
        Remedy::Pin { object, at, unpin } => {
            assert_eq!(object, name);
            if *unpin {
                space.unpin(buffer)?;
            }
            space.pin(buffer, *at)
        }
        Remedy::Prefetch { object, pages, to, .. } => {
            assert_eq!(object, name);
            let (first, count) = (pages.start.0 as usize * PAGE, pages.count as usize * PAGE);
            space.prefetch(&buffer[first..first + count], *to).map(drop)
        }
        Remedy::CardMemory { .. } => panic!("not a call of the space: {remedy}"),
    }
}

fn add_one(k: &mut KernelContext, words: WriteSpan<u64>) -> Result<(), KernelError> {
    k.with(words, |mut words: WriteView<u64>| words.iter_mut().for_each(|word| *word += 1))
}

/// Reads `step` pages at a time.
fn sum(k: &mut KernelContext, words: ReadSpan<u64>, step: usize) -> Result<u64, KernelError> {
    let mut sum = 0;
    for at in (0..words.len()).step_by(step * PAGE) {
        let part = words.slice(at..words.len().min(at + step * PAGE));
        sum += k.with(part, |part: ReadView<u64>| part.iter().sum::<u64>())?;
    }
    Ok(sum)
}

fn fetched(report: &Report) -> u64 {
    let d = report.directions;
    d.host_to_card + d.card_to_host + d.card_to_card
}

/// Two cards change the same 16 pages by turns. The default scheme would leave them where they are after a while.
fn by_turns(prepare: impl Fn(&Space, &Buffer<u64>)) -> Report {
    let builder = builder().cards(2).card_memory(1 << 20).placement("on-touch");
    let space = builder.build().unwrap();
    let mut words = space.alloc_named::<u64>(16 * PAGE, "words").unwrap();
    words.fill(0);
    prepare(&space, &words);
    for _ in 0..16 {
        for card in space.cards() {
            space.kernel("add").on(card).run(Write(&mut words), add_one).unwrap();
        }
    }
    let report = space.report();
    assert!(words.iter().all(|&word| word == 32));
    report
}

#[test]
fn agents_that_take_pages_from_each_other_are_told_to_pin_them() {
    within(LIMIT, "fights", || {
        let before = by_turns(|_, _| {});
        let remedy = remedy_of(&before, "the 16 pages of words went from agent to agent");
        let at = MemoryId::HOST;
        assert_eq!(remedy, Remedy::Pin { object: "words".into(), at, unpin: false });
        let after = by_turns(|space, words| apply(&remedy, space, "words", words).unwrap());
        assert_nothing_slow(&after);
        // How often they move before the driver steps in depends on how fast the turns are.
        assert!(fetched(&before) >= 4 * 16, "{before}");
        assert_eq!(fetched(&after), 0);
    });
}

/// A card reads 8 MiB five times.
fn five_passes(card_memory: u64) -> Report {
    let space = builder().cards(1).card_memory(card_memory).build().unwrap();
    let mut points = space.alloc_named::<u64>(2048 * PAGE, "points").unwrap();
    points.fill(1);
    for _ in 0..5 {
        let found = space.kernel("sum").run(Read(&points), |k, words| sum(k, words, 64)).unwrap();
        assert_eq!(found, points.len() as u64);
    }
    space.report()
}

#[test]
fn what_is_evicted_and_comes_back_is_told_to_get_more_memory() {
    within(LIMIT, "evictions", || {
        let before = five_passes(4 << 20);
        let remedy = remedy_of(&before, "of points left full cards and came back later");
        let Remedy::CardMemory { bytes } = remedy else { panic!("{remedy}") };
        assert_eq!(bytes, 8 << 20);
        let after = five_passes(bytes);
        assert_nothing_slow(&after);
        assert!(before.stats.evictions > 2048 && after.stats.evictions == 0, "{before}");
        assert!(fetched(&before) > 2 * fetched(&after), "{before}\n{after}");
    });
}

/// A card reads the pages from `first` on of 256, one at a time.
fn page_by_page(first: usize, prepare: impl Fn(&Space, &Buffer<u64>)) -> Report {
    let space = builder().cards(1).card_memory(4 << 20).build().unwrap();
    let mut input = space.alloc_named::<u64>(256 * PAGE, "input").unwrap();
    input.fill(1);
    prepare(&space, &input);
    let part = &input[first * PAGE..];
    let found = space.kernel("sum").run(Read(part), |k, words| sum(k, words, 1)).unwrap();
    assert_eq!(found, part.len() as u64);
    space.report()
}

#[test]
fn data_that_is_taken_in_order_page_by_page_is_told_to_be_brought_before() {
    within(LIMIT, "page by page", || {
        for first in [0, 128] {
            let before = page_by_page(first, |_, _| {});
            let remedy = remedy_of(&before, "card 0 took input in order by");
            let Remedy::Prefetch { pages, whole, .. } = &remedy else { panic!("{remedy}") };
            let expected = PageRange::new(PageNo(first as u64), 256 - first as u64);
            assert_eq!((*pages, *whole), (expected, first == 0));
            let after =
                page_by_page(first, |space, input| apply(&remedy, space, "input", input).unwrap());
            assert_nothing_slow(&after);
            assert_eq!(before.stats.card_faults, 256 - first as u64);
            assert_eq!(after.stats.card_faults, 0);
        }
    });
}

/// A card loads random words of 16 pages that are pinned to the host.
fn from_afar(prepare: impl Fn(&Space, &Buffer<AtomicU64>)) -> Report {
    let space = builder().cards(2).card_memory(1 << 20).build().unwrap();
    let table = space.alloc_atomic::<AtomicU64>(16 * PAGE, "table").unwrap();
    space.pin(&table, MemoryId::HOST).unwrap();
    prepare(&space, &table);
    let body = |k: &mut KernelContext, table: AtomicSpan<AtomicU64>| {
        let mut found = 0;
        for number in 0..100_000 {
            found += k.load(table.ptr(number * 7_919 % (16 * PAGE)))?;
        }
        Ok(found)
    };
    let card = space.card(1).unwrap();
    assert_eq!(space.kernel("load").on(card).run(Shared(&table), body).unwrap(), 0);
    space.report()
}

#[test]
fn pinned_data_that_one_card_reaches_from_afar_is_told_to_be_pinned_there() {
    within(LIMIT, "from afar", || {
        let before = from_afar(|_, _| {});
        let remedy = remedy_of(&before, "card 1 reached table, pinned to host, over the bus");
        let at = MemoryId(2);
        assert_eq!(remedy, Remedy::Pin { object: "table".into(), at, unpin: true });
        let after = from_afar(|space, table| apply(&remedy, space, "table", table).unwrap());
        assert_nothing_slow(&after);
        let remote = |report: &Report| report.cards.iter().map(|c| c.remote_accesses).sum::<u64>();
        assert!(remote(&before) > 90_000, "{before}");
        assert_eq!(remote(&after), 0);
    });
}

#[test]
fn where_nothing_is_slow_nothing_is_said() {
    within(LIMIT, "nothing is slow", || {
        // Moved before, and handed on from card to card a few times: as it should be.
        let space = builder().cards(2).card_memory(8 << 20).build().unwrap();
        let mut data = space.alloc_named::<u64>(1024 * PAGE, "data").unwrap();
        data.fill(1);
        for card in space.cards() {
            space.migrate(&data, card).unwrap();
            let found = space.kernel("sum").on(card).run(Read(&data), |k, data| sum(k, data, 64));
            assert_eq!(found.unwrap(), data.len() as u64);
        }
        assert_eq!(data[0], 1);
        assert_nothing_slow(&space.report());
    });
}

#[test]
fn what_the_program_moves_itself_is_no_fight() {
    within(LIMIT, "managed", || {
        let space = builder().cards(1).card_memory(1 << 20).build().unwrap();
        let mut words = space.alloc_named::<u64>(64 * PAGE, "words").unwrap();
        let card = space.card(0).unwrap();
        for round in 1..=16 {
            space.migrate(&words, card).unwrap();
            space.kernel("add").on(card).run(Write(&mut words), add_one).unwrap();
            // The host fetches it by its faults.
            assert!(words.iter().all(|&word| word == round));
        }
        let report = space.report();
        assert!(report.busiest[0].object.pages_fetched >= 15 * 64, "{report}");
        assert_nothing_slow(&report);
    });
}
