//! What a log says, of logs that are written here event by event; and pages of names that nobody would choose.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use farside_events::{About, Event, Kind, LogWriter, Name, Names, Reader};
use farside_report::{Facts, facts, page};
use farside_types::{AgentId, MemoryId, MemorySet, Reason};

const PAGE: u64 = 4096;
const HOST: MemoryId = MemoryId::HOST;
const CARD: MemoryId = MemoryId(1);

/// The facts of a log of these events. Names stand for themselves.
fn facts_of(names: &Names, events: &[Event]) -> Facts {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let path: PathBuf = std::env::temp_dir().join(format!("farside-facts-{process}-{number}"));
    let memories = About::memories("card", [Some(64 * PAGE), Some(64 * PAGE)]);
    let about = About { program: "p".into(), page_bytes: PAGE, memories, ..About::default() };
    let mut writer = LogWriter::new(File::create(&path).unwrap(), &about).unwrap();
    writer.push(events, names).unwrap();
    writer.finish().unwrap();
    let facts = facts(&Reader::open(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    facts.unwrap()
}

fn alloc(at: u64, first: u64, pages: u64, name: Name) -> Event {
    Event { address: first * PAGE, bytes: pages * PAGE, name, ..Event::new(at, Kind::Alloc) }
}

fn free(at: u64, first: u64, pages: u64) -> Event {
    Event { address: first * PAGE, bytes: pages * PAGE, ..Event::new(at, Kind::Free) }
}

fn moved(at: u64, first: u64, pages: u64, from: Option<MemoryId>, to: MemoryId) -> Event {
    Event {
        reason: Some(Reason::Demand),
        agent: Some(to.agent()),
        address: first * PAGE,
        bytes: pages * PAGE,
        from,
        to: Some(to),
        before: from.map_or(MemorySet::EMPTY, MemorySet::only),
        after: MemorySet::only(to),
        ..Event::new(at, Kind::Migration)
    }
}

#[test]
fn of_a_long_name_the_page_has_the_beginning() {
    let mut names = Names::default();
    let (name, kernel) = (names.number(&"ü".repeat(1 << 18)), names.number(&"k".repeat(1 << 18)));
    let launch = Event { number: 1, name: kernel, ..Event::new(1, Kind::Launch) };
    let facts = facts_of(&names, &[alloc(0, 1, 2, name), launch, moved(5, 1, 2, None, HOST)]);
    let begins = format!("{}…", "ü".repeat(200));
    assert_eq!(facts.allocations[0].name, begins);
    let long = page(&[facts]).len();
    let nothing = page(&[facts_of(&Names::default(), &[])]).len();
    assert!(long < nothing + 50_000, "{long} bytes, where one of nothing has {nothing}");
}

#[test]
fn names_cannot_leave_the_script_that_they_are_in() {
    let mut names = Names::default();
    let name = names.number("</script><script>alert(1)</script>");
    let facts = facts_of(&names, &[alloc(0, 1, 2, name), moved(5, 1, 2, None, HOST)]);
    let page = page(&[facts]);
    assert!(!page.contains("<script>alert"), "it could be run");
    assert!(page.contains("\\u003c/script>"), "its name is there");
}

#[test]
fn freed_memory_is_nowhere_and_made_again_is_the_same() {
    let mut names = Names::default();
    let name = names.number("buffer");
    let events = [
        alloc(0, 16, 4, name),
        moved(0, 16, 4, None, HOST),
        free(2400, 16, 4),
        // What the driver notes later is of nobody.
        Event { before: MemorySet::only(HOST), ..Event::new(2401, Kind::Freed) },
        alloc(4800, 16, 4, name),
        moved(4800, 16, 4, None, CARD),
        Event::new(7199, Kind::Notice),
    ];
    let facts = facts_of(&names, &events);
    let [buffer] = &facts.allocations[..] else { panic!("{:?}", facts.allocations) };
    assert_eq!((buffer.times, buffer.pages_moved), (2, 8));
    let places = &facts.heat.rows[0].places;
    let at = |time: u64| places.as_bytes()[(time / facts.series.bin) as usize] as char;
    assert_eq!([at(1000), at(3000), at(6000)], ['a', '.', 'b'], "{places}");
}

#[test]
fn events_of_no_allocation_and_of_several_are_told_apart() {
    let mut names = Names::default();
    let (a, b) = (names.number("a"), names.number("b"));
    let events = [
        alloc(0, 10, 2, a),
        alloc(0, 14, 2, b),
        // From before the first to behind the last, over the gap.
        moved(1, 8, 10, Some(HOST), CARD),
        Event { agent: Some(AgentId(1)), ..Event::new(2, Kind::FaultRead) },
    ];
    let facts = facts_of(&names, &events);
    let moves: Vec<_> = facts.allocations.iter().map(|it| (&*it.name, it.pages_moved)).collect();
    assert_eq!(moves, [("a", 2), ("b", 2)]);
    assert_eq!((facts.totals.pages_moved, facts.totals.faults), (10, 1));
}

#[test]
fn what_cannot_be_followed_is_said_and_takes_no_memory() {
    let mut names = Names::default();
    let name = names.number("huge");
    let (all, most) = (1 << 30, 1 << 26);
    let last = moved(1, all - 10, 10, Some(HOST), CARD);
    let facts = facts_of(&names, &[alloc(0, 0, all, name), last]);
    assert_eq!(facts.totals.pages_not_followed, 10);
    assert_eq!(facts.allocations[0].pages_moved, 10, "sums are right all the same");
    let first = moved(1, most - 10, 10, Some(HOST), CARD);
    let facts = facts_of(&names, &[alloc(0, 0, all, name), first]);
    assert_eq!(facts.totals.pages_not_followed, 0);
}

#[test]
fn a_log_of_nothing_is_a_page_of_nothing() {
    let facts = facts_of(&Names::default(), &[]);
    assert_eq!((facts.log.events, facts.log.end, facts.heat.rows.len()), (0, 0, 0));
    assert!(page(&[facts.clone(), facts]).contains("Apache ECharts"));
}
