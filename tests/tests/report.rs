//! What `farside report` says to do: each program here does one thing that costs for nothing, its log shows it and the
//! report names it; the remedy is applied as it stands, and the same program then costs less and it is named no more.
//! Counts, not time. And the log has all that the driver has counted.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use farside::{
    Advice, AtomicSpan, Buffer, KernelContext, KernelError, MemoryId, Read, ReadSpan, ReadView,
    Report, Shared, Space, SpaceBuilder, Write, WriteSpan, WriteView,
};
use farside_events::Reader;
use farside_report::{Facts, Remedy, Rule};
use farside_svm::Eviction;
use harness::live::within;

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;

fn builder() -> SpaceBuilder {
    Space::builder().address_space(256 << 20)
}

/// A file of a test's own, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        Scratch(std::env::temp_dir().join(format!("farside-report-{process}-{number}.parquet")))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a program with a log, compares the log with what the driver counted, and gives what the log says.
fn logged(builder: SpaceBuilder, program: impl FnOnce(&Space)) -> Facts {
    let file = Scratch::new();
    let space = builder.events(&file.0).build().unwrap();
    program(&space);
    let report = space.report();
    let written = space.end_events().unwrap();
    assert_eq!(written.dropped, 0);
    let reader = Reader::open(&file.0).unwrap();
    assert_eq!((reader.events(), reader.cut()), (written.events, None));
    let facts = farside_report::facts(&reader).unwrap();
    assert_complete(&facts, &report);
    facts
}

/// The log has every fault, and every page that moved, with its direction and reason.
fn assert_complete(facts: &Facts, report: &Report) {
    let (stats, totals) = (&report.stats, &facts.totals);
    assert_eq!(totals.faults, stats.card_faults + stats.host_faults, "{report}");
    assert_eq!(totals.refills, stats.refills);
    assert_eq!(totals.pages_evicted, stats.evictions);
    assert_eq!(totals.pages_mapped_afar, stats.remote_maps);
    let mut moves = BTreeMap::new();
    let mut reasons = BTreeMap::new();
    for it in &facts.moves {
        let pages = it.bytes / facts.log.page_bytes;
        *moves.entry((it.from.map(MemoryId), MemoryId(it.to))).or_default() += pages;
        *reasons.entry(it.reason).or_default() += pages;
    }
    let counted: BTreeMap<_, u64> = stats.moves.iter().map(|(&key, &pages)| (key, pages)).collect();
    assert_eq!(moves, counted);
    let counted: BTreeMap<_, u64> =
        stats.by_reason.iter().map(|(reason, &pages)| (reason.name(), pages)).collect();
    assert_eq!(reasons, counted);
}

/// The remedy of a rule, which must be the first one that is named.
fn first(facts: &Facts, rule: Rule) -> &Remedy {
    let first = facts.remedies.first().unwrap_or_else(|| panic!("nothing: {}", text(facts)));
    assert_eq!(first.rule, rule, "{}", text(facts));
    first
}

fn assert_not_named(facts: &Facts, rule: Rule) {
    assert!(facts.remedies.iter().all(|it| it.rule != rule), "{}", text(facts));
}

fn assert_nothing_named(facts: &Facts) {
    assert_eq!(facts.remedies, [], "{}", text(facts));
}

fn text(facts: &Facts) -> String {
    farside_report::text(std::slice::from_ref(facts))
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

/// Two cards change the same 16 pages by turns.
fn by_turns(prepare: impl FnOnce(&Space, &Buffer<u64>)) -> Facts {
    logged(builder().cards(2).card_memory(1 << 20).placement("on-touch"), |space| {
        let mut words = space.alloc_named::<u64>(16 * PAGE, "words").unwrap();
        words.fill(0);
        prepare(space, &words);
        for _ in 0..16 {
            for card in space.cards() {
                space.kernel("add").on(card).run(Write(&mut words), add_one).unwrap();
            }
        }
        assert!(words.iter().all(|&word| word == 32));
    })
}

#[test]
fn cards_that_fight_are_told_to_meet_on_the_host() {
    within(LIMIT, "a fight", || {
        let before = by_turns(|_, _| {});
        let remedy = first(&before, Rule::Fight);
        assert!(remedy.remedy.contains("space.pin(&words, MemoryId::HOST)"), "{}", remedy.remedy);
        assert_eq!(remedy.allocations, ["words"]);
        let after = by_turns(|space, words| space.pin(words, MemoryId::HOST).unwrap());
        assert_nothing_named(&after);
        assert!(before.totals.pages_handed >= 4 * 16, "{}", text(&before));
        assert_eq!((after.totals.pages_handed, after.totals.pages_copied), (0, 0));
    });
}

/// Each of two cards counts in words of its own; in one page or in pages of their own.
fn counters(apart: bool) -> Facts {
    logged(builder().cards(2).card_memory(1 << 20).placement("on-touch"), |space| {
        let mut both = space.alloc_named::<u64>(PAGE, "counters").unwrap();
        let mut other = space.alloc_named::<u64>(PAGE / 2, "other counters").unwrap();
        let (first, second) = both.split_at_mut(PAGE / 2);
        let second = if apart { &mut other[..] } else { second };
        for _ in 0..32 {
            let [a, b] = [0, 1].map(|card| space.card(card).unwrap());
            space.kernel("left").on(a).run(Write(&mut *first), add_one).unwrap();
            space.kernel("right").on(b).run(Write(&mut *second), add_one).unwrap();
        }
        assert!(first.iter().chain(&*second).all(|&word| word == 32));
    })
}

#[test]
fn what_only_shares_a_page_is_told_apart_from_a_fight() {
    within(LIMIT, "false sharing", || {
        let before = counters(false);
        let remedy = first(&before, Rule::FalseSharing);
        let says = "card 1 writes bytes 2048-4095 of it, card 0 bytes 0-2047";
        let or = "card 0 writes bytes 0-2047 of it, card 1 bytes 2048-4095";
        assert!(remedy.evidence.contains(says) || remedy.evidence.contains(or), "{remedy:?}");
        assert_not_named(&before, Rule::Fight);
        // The remedy: an allocation for each.
        let after = counters(true);
        assert_nothing_named(&after);
        assert!(before.totals.pages_handed >= 8, "{}", text(&before));
        assert_eq!(after.totals.pages_handed, 0, "{}", text(&after));
        // Cards that use the same bytes fight, and are not told to share better.
        assert_not_named(&by_turns(|_, _| {}), Rule::FalseSharing);
    });
}

/// A card looks things up in a table, and goes through a stream of twice its memory between.
fn scan(prepare: impl FnOnce(&Space, &Buffer<u64>)) -> Facts {
    let builder = builder().cards(1).card_memory(128 * 4096);
    logged(builder.tune(|config| config.eviction = Eviction::Clock), |space| {
        let mut table = space.alloc_named::<u64>(48 * PAGE, "table").unwrap();
        let mut stream = space.alloc_named::<u64>(256 * PAGE, "stream").unwrap();
        table.fill(1);
        stream.fill(1);
        prepare(space, &table);
        for _ in 0..6 {
            let found = space.kernel("look up").run(Read(&table), |k, words| sum(k, words, 48));
            assert_eq!(found.unwrap(), table.len() as u64);
            let found = space.kernel("stream").run(Read(&stream), |k, words| sum(k, words, 8));
            assert_eq!(found.unwrap(), stream.len() as u64);
        }
    })
}

#[test]
fn a_scan_that_drives_out_what_is_used_again_is_named_with_it() {
    within(LIMIT, "a scan", || {
        let before = scan(|_, _| {});
        let remedy = before.remedies.iter().find(|it| it.rule == Rule::Scan);
        let remedy = remedy.unwrap_or_else(|| panic!("{}", text(&before)));
        assert_eq!(remedy.allocations, ["table", "stream"]);
        assert!(remedy.remedy.contains("space.pin(&table, space.card(0)?)"), "{remedy:?}");
        let after = scan(|space, table| space.pin(table, space.card(0).unwrap()).unwrap());
        assert_not_named(&after, Rule::Scan);
        let moved = |facts: &Facts, name: &str| {
            let mut its = facts.allocations.iter().filter(|it| it.name == name);
            its.next().map(|it| it.pages_moved).unwrap()
        };
        assert!(moved(&before, "table") >= 5 * 48, "{}", text(&before));
        // Filled on the host, brought to the card, and no more.
        assert_eq!(moved(&after, "table"), 2 * 48, "{}", text(&after));
    });
}

/// A card reads 8 MiB five times.
fn five_passes(card_memory: u64) -> Facts {
    logged(builder().cards(1).card_memory(card_memory), |space| {
        let mut points = space.alloc_named::<u64>(2048 * PAGE, "points").unwrap();
        points.fill(1);
        for _ in 0..5 {
            let found = space.kernel("sum").run(Read(&points), |k, words| sum(k, words, 64));
            assert_eq!(found.unwrap(), points.len() as u64);
        }
    })
}

#[test]
fn a_card_that_is_too_small_is_told_how_large_to_be() {
    within(LIMIT, "a small card", || {
        let before = five_passes(4 << 20);
        let remedy = first(&before, Rule::SmallCard);
        assert!(remedy.remedy.contains(".card_memory(8 << 20)"), "{remedy:?}");
        assert!(remedy.evidence.contains("full cards of 4 MiB"), "{remedy:?}");
        let after = five_passes(8 << 20);
        assert_nothing_named(&after);
        assert!(before.totals.pages_returned > 2048 && after.totals.pages_evicted == 0);
        assert!(before.totals.pages_copied > 2 * after.totals.pages_copied);
    });
}

/// Two cards read each word and then write it, by turns, of what may be advised as mostly read.
fn read_then_written(read_mostly: bool) -> Facts {
    logged(builder().cards(2).card_memory(1 << 20).placement("on-touch"), |space| {
        let words = space.alloc_atomic::<AtomicU64>(64 * PAGE, "words").unwrap();
        if read_mostly {
            space.advise(&words, Advice::ReadMostly(true)).unwrap();
        }
        let body = |k: &mut KernelContext, words: AtomicSpan<AtomicU64>| {
            for page in 0..64 {
                let at = words.ptr(page * PAGE);
                let value = k.load(at)?;
                k.store(at, value + 1)?;
            }
            Ok(())
        };
        for _ in 0..2 {
            for card in space.cards() {
                space.kernel("count").on(card).run(Shared(&words), body).unwrap();
            }
        }
    })
}

#[test]
fn advice_that_is_not_so_is_told_to_be_left_out() {
    within(LIMIT, "wrong advice", || {
        let before = read_then_written(true);
        let remedy = first(&before, Rule::WrongHint);
        let says = "space.advise(&words, Advice::ReadMostly(false))";
        assert!(remedy.remedy.contains(says), "{remedy:?}");
        let after = read_then_written(false);
        assert_not_named(&after, Rule::WrongHint);
        let (faults, less) = (before.totals.faults, after.totals.faults);
        assert!(3 * less < 2 * faults, "{faults} faults with it, {less} without");
    });
}

/// The program brings data to one card, and a kernel on another reads it.
fn brought_to(card: usize) -> Facts {
    logged(builder().cards(2).card_memory(1 << 20).placement("on-touch"), |space| {
        let mut input = space.alloc_named::<u64>(128 * PAGE, "input").unwrap();
        input.fill(1);
        space.prefetch(&input, space.card(card).unwrap()).unwrap();
        let reader = space.card(1).unwrap();
        let run = space.kernel("sum").on(reader).run(Read(&input), |k, words| sum(k, words, 32));
        assert_eq!(run.unwrap(), input.len() as u64);
    })
}

#[test]
fn what_is_brought_where_nobody_uses_it_is_told_where_to() {
    within(LIMIT, "a wrong place", || {
        let before = brought_to(0);
        let remedy = first(&before, Rule::WrongHint);
        assert!(remedy.remedy.contains("space.prefetch(&input, space.card(1)?)"), "{remedy:?}");
        let after = brought_to(1);
        assert_nothing_named(&after);
        assert_eq!((before.totals.pages_copied, after.totals.pages_copied), (2 * 128, 128));
    });
}

/// A card reads 256 pages, one at a time.
fn page_by_page(prepare: impl FnOnce(&Space, &Buffer<u64>)) -> Facts {
    logged(builder().cards(1).card_memory(4 << 20), |space| {
        let mut input = space.alloc_named::<u64>(256 * PAGE, "input").unwrap();
        input.fill(1);
        prepare(space, &input);
        let found = space.kernel("sum").run(Read(&input), |k, words| sum(k, words, 1));
        assert_eq!(found.unwrap(), input.len() as u64);
    })
}

#[test]
fn data_that_is_taken_in_order_is_told_to_be_brought_before() {
    within(LIMIT, "page by page", || {
        let before = page_by_page(|_, _| {});
        let remedy = first(&before, Rule::Piecemeal);
        assert!(remedy.remedy.contains("space.prefetch(&input, space.card(0)?)"), "{remedy:?}");
        let after = page_by_page(|space, input| {
            space.prefetch(input, space.card(0).unwrap()).unwrap();
        });
        assert_nothing_named(&after);
        let by_card = |facts: &Facts| {
            facts.faults.iter().filter(|it| it.agent == 1).map(|it| it.reads + it.writes).sum()
        };
        assert_eq!((by_card(&before), by_card(&after)), (256u64, 0));
    });
}

#[test]
fn where_nothing_is_wrong_nothing_is_named_and_kernels_have_their_names() {
    within(LIMIT, "nothing is wrong", || {
        let facts = logged(builder().cards(2).card_memory(8 << 20), |space| {
            let mut data = space.alloc_named::<u64>(1024 * PAGE, "data").unwrap();
            data.fill(1);
            for card in space.cards() {
                space.migrate(&data, card).unwrap();
                let read = |k: &mut KernelContext, data| sum(k, data, 64);
                let found = space.kernel("sum it up").on(card).run(Read(&data), read);
                assert_eq!(found.unwrap(), data.len() as u64);
            }
            assert_eq!(data[0], 1);
        });
        assert_nothing_named(&facts);
        let [kernel] = &facts.kernels[..] else { panic!("{:?}", facts.kernels) };
        assert_eq!((kernel.name.as_str(), kernel.count, kernel.failed), ("sum it up", 2, 0));
        let [data] = &facts.allocations[..] else { panic!("{:?}", facts.allocations) };
        assert_eq!((data.name.as_str(), data.bytes), ("data", 4 << 20));
        // Where it was: on the host, on one card, on the other, and at the end the first page on the host.
        let places = |row: usize| {
            let mut places: Vec<char> = facts.heat.rows[row].places.chars().collect();
            places.dedup();
            places.into_iter().filter(|place| "abc".contains(*place)).collect::<String>()
        };
        assert!(places(1).starts_with('a') && places(1).ends_with('c'), "{}", places(1));
        assert_eq!(facts.totals.hints, 2);
    });
}

#[test]
fn what_the_program_moves_itself_is_no_fight() {
    within(LIMIT, "managed", || {
        let facts = logged(builder().cards(1).card_memory(1 << 20), |space| {
            let mut words = space.alloc_named::<u64>(64 * PAGE, "words").unwrap();
            let card = space.card(0).unwrap();
            for round in 1..=16 {
                space.migrate(&words, card).unwrap();
                space.kernel("add").on(card).run(Write(&mut words), add_one).unwrap();
                assert!(words.iter().all(|&word| word == round));
            }
        });
        assert_nothing_named(&facts);
    });
}

#[test]
fn a_log_that_cannot_be_written_loses_no_data() {
    within(LIMIT, "a full disk", || {
        let full = std::path::Path::new("/dev/full");
        let space = builder().cards(1).card_memory(1 << 20).events(full).build().unwrap();
        let mut words = space.alloc_named::<u64>(64 * PAGE, "words").unwrap();
        for _ in 0..4 {
            space.kernel("add").run(Write(&mut words), add_one).unwrap();
        }
        assert!(words.iter().all(|&word| word == 4));
        let error = space.end_events().unwrap_err().to_string();
        assert!(error.contains("/dev/full") && error.contains("events are not in it"), "{error}");
        let nowhere = builder().events("/nowhere/log.parquet").build().unwrap_err().to_string();
        assert!(nowhere.contains("/nowhere/log.parquet"), "{nowhere}");
    });
}
