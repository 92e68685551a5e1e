//! The tables against a map from pages to what should be known of them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use farside_types::{Access, Asid, CardId, FrameNo, MemoryId, PageNo, PageRange, Rights};
use proptest::prelude::*;

use super::arena::Found;
use super::*;
use crate::{Location, MappedRun, Words};

pub(super) const OWN: MemoryId = CardId(0).memory();

fn own(frame: u32) -> Location {
    Location::new(OWN, FrameNo(frame))
}

fn bus(page: u32) -> Location {
    Location::new(MemoryId::HOST, FrameNo(page))
}

fn map(writer: &mut TableWriter, asid: u16, run: MappedRun, rights: Rights, written: bool) -> u64 {
    let mut without_room = 0;
    writer.map(Asid(asid), &run, rights, written, |part| without_room += u64::from(part.count));
    without_room
}

fn run(page: u64, count: u32, location: Location) -> MappedRun {
    MappedRun::new(PageNo(page), count, location)
}

fn location(writer: &TableWriter, asid: u16, page: u64) -> Option<Location> {
    match writer.tables().walk(Asid(asid), PageNo(page), Access::Read) {
        Walk::Found(walked) => Some(walked.location),
        _ => None,
    }
}

fn unmap(writer: &mut TableWriter, asid: u16, page: u64, count: u64) -> Vec<(u64, bool)> {
    let mut gone = Vec::new();
    writer.unmap(Asid(asid), PageRange::new(PageNo(page), count), |pages, entry| {
        gone.extend((pages.start.0..pages.end().0).map(|page| (page, entry.is_dirty())));
    });
    gone
}

#[test]
fn a_tree_grows_as_high_as_its_last_page_needs() {
    let mut writer = TableWriter::new(OWN, 64);
    let mut heights = Vec::new();
    for (index, page) in
        [3, 511, 512, 1 << 20, 1 << 30, 1 << 40, (1 << 48) - 2].into_iter().enumerate()
    {
        assert_eq!(map(&mut writer, 1, run(page, 1, own(index as u32)), Rights::Read, false), 0);
        heights.push(writer.tables().top(Asid(1)).unwrap().1);
    }
    assert_eq!(heights, [1, 1, 2, 3, 4, 5, 6]);
    assert_eq!(location(&writer, 1, 3), Some(own(0)), "what was there before it grew");
    assert_eq!(location(&writer, 1, (1 << 48) - 2), Some(own(6)));
    assert_eq!(location(&writer, 2, 3), None, "another address space");
    assert_eq!(location(&writer, 1, u64::MAX), None);
}

#[test]
fn a_walk_reads_a_word_of_each_table_on_its_way() {
    let mut writer = TableWriter::new(OWN, 64);
    let reads = |writer: &TableWriter, page| writer.tables().reads(Asid(1), PageNo(page));
    assert_eq!(reads(&writer, 5), 0, "no tree");
    map(&mut writer, 1, run(5, 1, own(0)), Rights::Read, false);
    assert_eq!((reads(&writer, 5), reads(&writer, 600)), (1, 0), "one table, and beyond it");
    map(&mut writer, 1, run(1 << 20, 1, own(1)), Rights::Read, false);
    map(&mut writer, 1, run(1024, 512, own(512)), Rights::ReadWrite, true);
    assert_eq!(reads(&writer, 1 << 20), 3);
    assert_eq!(reads(&writer, 1030), 2, "a run of 512 has its entry above the leaves");
    assert_eq!(reads(&writer, 2 << 18), 1, "the word on top leads nowhere");
}

#[test]
fn a_million_pages_take_at_most_8_1_bytes_each() {
    const PAGES: u32 = 1_000_000;
    let mut writer = TableWriter::new(OWN, PAGES / 512 + 16);
    assert_eq!(map(&mut writer, 1, run(1 << 30, PAGES, own(1)), Rights::ReadWrite, false), 0);
    let bytes = writer.tables().bytes() + writer.bytes_beside();
    let each = bytes as f64 / f64::from(PAGES);
    assert!(each <= 8.1, "{each} bytes a page");
    println!("{each:.3} bytes a page");
    assert_eq!(location(&writer, 1, (1 << 30) + 999_999), Some(own(1_000_000)));
}

#[test]
fn aligned_runs_of_512_that_count_as_written_take_one_entry_and_split() {
    let mut writer = TableWriter::new(OWN, 8);
    assert_eq!(map(&mut writer, 1, run(1024, 1024, own(512)), Rights::ReadWrite, true), 0);
    assert_eq!(writer.used(), 1, "the one directory, no leaf table");
    assert!(matches!(writer.tables().find(Asid(1), 1500), Found::Run { .. }));
    let gone = unmap(&mut writer, 1, 1030, 3);
    assert_eq!(gone, [(1030, true), (1031, true), (1032, true)]);
    assert_eq!(writer.used(), 2);
    assert_eq!(location(&writer, 1, 1031), None);
    for page in [1024, 1029, 1033, 1535, 1536, 2047] {
        assert_eq!(location(&writer, 1, page), Some(own(page as u32 - 512)), "page {page}");
    }
    check(&writer, &[1]);
}

#[test]
fn a_run_that_does_not_count_as_written_has_a_dirty_bit_for_each_page() {
    let mut writer = TableWriter::new(OWN, 8);
    map(&mut writer, 1, run(512, 512, own(0)), Rights::ReadWrite, false);
    let walk = writer.tables().walk(Asid(1), PageNo(700), Access::Write);
    assert!(matches!(walk, Walk::Found(Walked { rights: Rights::ReadWrite, .. })));
    let written = unmap(&mut writer, 1, 512, 512).into_iter().filter(|&(_, dirty)| dirty);
    assert_eq!(written.collect::<Vec<_>>(), [(700, true)]);
}

#[test]
fn a_walk_gives_the_right_to_write_to_a_tlb_only_after_a_write() {
    let mut writer = TableWriter::new(OWN, 8);
    map(&mut writer, 1, run(5, 1, own(0)), Rights::ReadWrite, false);
    let walk = |access| match writer.tables().walk(Asid(1), PageNo(5), access) {
        Walk::Found(walked) => walked.rights,
        other => panic!("{other:?}"),
    };
    assert_eq!(walk(Access::Read), Rights::Read);
    assert_eq!(walk(Access::Write), Rights::ReadWrite);
    assert_eq!(walk(Access::Read), Rights::ReadWrite);
}

#[test]
fn mapping_a_page_where_it_is_keeps_its_bits_and_elsewhere_does_not() {
    let mut writer = TableWriter::new(OWN, 8);
    map(&mut writer, 1, run(5, 2, own(0)), Rights::ReadWrite, false);
    for page in [5, 6] {
        assert!(matches!(
            writer.tables().walk(Asid(1), PageNo(page), Access::Write),
            Walk::Found(_)
        ));
    }
    writer.protect(Asid(1), PageRange::new(PageNo(5), 2));
    let refused = writer.tables().walk(Asid(1), PageNo(5), Access::Write);
    assert_eq!(refused, Walk::InsufficientRights);
    map(&mut writer, 1, run(5, 1, own(0)), Rights::ReadWrite, false);
    map(&mut writer, 1, run(6, 1, bus(9)), Rights::ReadWrite, false);
    assert_eq!(unmap(&mut writer, 1, 5, 2), [(5, true), (6, false)]);
}

#[test]
fn written_pages_that_are_mapped_read_only_where_they_are_stay_written() {
    let mut writer = TableWriter::new(OWN, 8);
    map(&mut writer, 1, run(512, 512, own(0)), Rights::ReadWrite, false);
    let _ = writer.tables().walk(Asid(1), PageNo(600), Access::Write);
    map(&mut writer, 1, run(512, 512, own(0)), Rights::Read, false);
    let written = unmap(&mut writer, 1, 512, 512).into_iter().filter(|&(_, dirty)| dirty);
    assert_eq!(written.count(), 1);
}

#[test]
fn full_tables_say_which_pages_found_no_room_and_empty_ones_are_reclaimed_first() {
    let mut writer = TableWriter::new(OWN, 3);
    for block in 0..2 {
        assert_eq!(map(&mut writer, 1, run(block * 512, 4, own(8)), Rights::Read, false), 0);
    }
    assert_eq!(map(&mut writer, 1, run(1024, 4, own(16)), Rights::Read, false), 4);
    assert_eq!(map(&mut writer, 2, run(0, 4, own(16)), Rights::Read, false), 4);
    unmap(&mut writer, 1, 512, 4);
    assert_eq!(map(&mut writer, 2, run(0, 4, own(16)), Rights::Read, false), 0);
    assert_eq!(location(&writer, 2, 3), Some(own(19)));
    assert_eq!(location(&writer, 1, 512), None);
    unmap(&mut writer, 1, 0, 1 << 48);
    unmap(&mut writer, 2, 0, 1 << 48);
    assert!(writer.reclaim() && writer.used() == 0, "{} in use", writer.used());
}

#[test]
fn pages_that_find_no_room_are_not_found_where_they_were_before() {
    let mut writer = TableWriter::new(OWN, 1);
    map(&mut writer, 1, run(0, 4, own(8)), Rights::Read, false);
    let elsewhere = Location::new(CardId(5).memory(), FrameNo(0));
    assert_eq!(map(&mut writer, 1, run(0, 4, elsewhere), Rights::Read, false), 4);
    assert_eq!(location(&writer, 1, 0), None, "a stale entry");
}

#[test]
fn pages_that_found_no_room_count_as_written_until_they_are_unmapped() {
    let mut writer = TableWriter::new(OWN, 1);
    map(&mut writer, 2, run(0, 1, own(0)), Rights::Read, false);
    assert_eq!(map(&mut writer, 1, run(5, 1, own(8)), Rights::ReadWrite, false), 1);
    unmap(&mut writer, 2, 0, 1);
    // It may have been written through a TLB meanwhile; the driver gives it once more.
    assert_eq!(map(&mut writer, 1, run(5, 1, own(8)), Rights::ReadWrite, false), 0);
    assert_eq!(unmap(&mut writer, 1, 5, 1), [(5, true)]);
    map(&mut writer, 1, run(5, 1, own(9)), Rights::ReadWrite, false);
    assert_eq!(unmap(&mut writer, 1, 5, 1), [(5, false)], "it is a new one now");
}

#[test]
fn splitting_without_a_free_page_forgets_the_run() {
    let mut writer = TableWriter::new(OWN, 1);
    // A page of a higher level makes the tree two levels high; then there is room for runs only.
    assert_eq!(map(&mut writer, 1, run(512, 512, own(0)), Rights::Read, false), 0);
    assert_eq!(unmap(&mut writer, 1, 600, 1), [(600, false)]);
    assert_eq!(location(&writer, 1, 512), None);
    check(&writer, &[1]);
}

#[test]
fn a_shared_table_page_is_used_again_when_every_user_has_to_look_around() {
    let mut writer = TableWriter::new(OWN, 2);
    let words = std::sync::Arc::<Words>::default();
    let mut user = words.user();
    let tables = writer.share(words);
    map(&mut writer, 1, run(512, 1, own(8)), Rights::Read, false);
    let Some(Near::Leaf(leaf)) = tables.near(Asid(1), PageNo(512)) else { panic!() };
    unmap(&mut writer, 1, 512, 1);
    assert!(user.begin().is_undisturbed(), "what it remembers says nothing");
    assert!(!TableEntry(leaf[0].load(Ordering::Acquire)).is_valid());
    assert_eq!(map(&mut writer, 2, run(0, 1, own(9)), Rights::Read, false), 0);
    assert!(!user.begin().is_undisturbed(), "what it remembers may be another's");
    assert_eq!(location(&writer, 2, 0), Some(own(9)));
}

#[test]
fn a_use_is_not_forgotten_when_pages_are_mapped_as_a_run_where_they_are() {
    let mut writer = TableWriter::new(OWN, 8);
    map(&mut writer, 1, run(512, 512, own(0)), Rights::ReadWrite, false);
    let _ = writer.tables().walk(Asid(1), PageNo(600), Access::Read);
    map(&mut writer, 1, run(512, 512, own(0)), Rights::Read, false);
    assert!(matches!(writer.tables().find(Asid(1), 600), Found::Run { .. }));
    let mut used = false;
    writer.take_accessed(Asid(1), PageRange::new(PageNo(600), 1), |_, accessed| used = accessed);
    assert!(used);
}

/// Ends the other thread, also when a check fails.
struct Ends<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Walks to write a page, beside a writer that maps it to another frame in each round and takes it away.
/// Gives the first round that was written and not told, or how many were told and how many not.
pub(super) fn race_walks_and_unmaps(writer: &mut TableWriter) -> Result<(u64, u64), u64> {
    const ROUNDS: u64 = 100_000;
    let tables = writer.share(std::sync::Arc::default());
    let wrote = std::sync::atomic::AtomicU64::new(0);
    let (mut last_told, mut told, mut untold) = (0, 0, 0);
    let finished = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !finished.load(Ordering::Acquire) {
                // A frame for each round: what the walk found says which.
                let walk = tables.walk(Asid(1), PageNo(7), Access::Write);
                if let Walk::Found(Walked { location, .. }) = walk {
                    wrote.fetch_max(u64::from(location.frame.0), Ordering::AcqRel);
                }
            }
        });
        let _ends = Ends(&finished);
        for round in 1..=ROUNDS {
            map(writer, 1, run(7, 1, own(round as u32)), Rights::ReadWrite, false);
            for _ in 0..round % 128 {
                std::hint::spin_loop();
            }
            if round % 16 == 0 {
                std::thread::yield_now();
            }
            let gone = unmap(writer, 1, 7, 1);
            if gone == [(7, true)] {
                (last_told, told) = (round, told + 1);
            } else {
                untold += 1;
            }
            let seen = wrote.load(Ordering::Acquire);
            if seen > last_told {
                return Err(seen);
            }
        }
        Ok((told, untold))
    })
}

/// One race, or as many as `FARSIDE_SECONDS` says.
#[test]
fn bits_that_walks_set_beside_an_unmap_are_in_what_it_returns_or_the_walk_found_nothing() {
    let asked = std::env::var("FARSIDE_SECONDS").ok().and_then(|text| text.parse().ok());
    let (mut told, mut untold) = (0, 0);
    for _ in 0..asked.unwrap_or(1) {
        let raced = race_walks_and_unmaps(&mut TableWriter::new(OWN, 4));
        let raced = raced.expect("what was written was told");
        (told, untold) = (told + raced.0, untold + raced.1);
    }
    assert!(told > 0 && untold > 0, "walks came in time and too late: {told}, {untold}");
}

/// The words are such as they may be, whatever was done.
fn check(writer: &TableWriter, asids: &[u16]) {
    for &asid in asids {
        super::fuzzing::words::entries(writer.tables(), Asid(asid)).unwrap();
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Map { asid: u16, run: MappedRun, rights: Rights, written: bool },
    Unmap { asid: u16, range: PageRange },
    Protect { asid: u16, range: PageRange },
    TakeAccessed { asid: u16, range: PageRange },
    Walk { asid: u16, page: u64, access: Access },
}

const PAGES: u64 = 2048;

fn ranges() -> impl Strategy<Value = (u64, u64)> {
    let free = (0..PAGES, 1..700u64);
    let aligned = (0..4u64, 1..3u64).prop_map(|(block, count)| (block * 512, count * 512));
    let small = (0..32u64, 0..6u32).prop_map(|(at, size)| (at << size, 1 << size));
    prop_oneof![free, aligned, small]
}

fn steps() -> impl Strategy<Value = Step> {
    let asid = || 1..3u16;
    let range = || ranges().prop_map(|(page, count)| PageRange::new(PageNo(page), count));
    let rights = prop_oneof![Just(Rights::Read), Just(Rights::ReadWrite)];
    let access = prop_oneof![Just(Access::Read), Just(Access::Write)];
    let place = (any::<bool>(), prop_oneof![0..4096u32, Just(0), Just(512)]);
    prop_oneof![
        3 => (asid(), ranges(), place, rights, any::<bool>()).prop_map(
            |(asid, (page, count), (is_own, number), rights, written)| {
                // Often aligned as the pages are.
                let number = number / 512 * 512 + (page % 512) as u32 + (number % 512) / 500;
                let location = if is_own { own(number) } else { bus(number) };
                Step::Map { asid, run: run(page, count as u32, location), rights, written }
            }
        ),
        2 => (asid(), range()).prop_map(|(asid, range)| Step::Unmap { asid, range }),
        1 => (asid(), range()).prop_map(|(asid, range)| Step::Protect { asid, range }),
        1 => (asid(), range()).prop_map(|(asid, range)| Step::TakeAccessed { asid, range }),
        6 => (asid(), 0..PAGES, access)
            .prop_map(|(asid, page, access)| Step::Walk { asid, page, access }),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Known {
    location: Location,
    rights: Rights,
    dirty: bool,
}

/// Does the steps with tables of so many pages, beside a map. What the tables have must be right, and
/// what they do not have must have been said to have no room, or be part of a run that was forgotten.
fn compare(table_pages: u32, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut writer = TableWriter::new(OWN, table_pages);
    let mut model: BTreeMap<(u16, u64), Known> = BTreeMap::new();
    let is_ample = table_pages >= 64;
    for step in steps {
        match step {
            Step::Map { asid, run, rights, written } => {
                let mut without_room = 0;
                writer.map(Asid(asid), &run, rights, written, |part| without_room += part.count);
                prop_assert!(!is_ample || without_room == 0);
                for index in 0..run.count {
                    let key = (asid, run.page.0 + u64::from(index));
                    let location = run.location.offset(index);
                    let before = model.get(&key).filter(|known| known.location == location);
                    let dirty = written || before.is_some_and(|known| known.dirty);
                    model.insert(key, Known { location, rights, dirty });
                }
            }
            Step::Unmap { asid, range } => {
                let mut wrong = None;
                writer.unmap(Asid(asid), range, |pages, entry| {
                    for page in pages.start.0..pages.end().0 {
                        let known = model.get(&(asid, page));
                        if !range.contains(PageNo(page))
                            || known.is_none_or(|known| known.dirty && !entry.is_dirty())
                        {
                            wrong = Some(page);
                        }
                    }
                });
                prop_assert_eq!(wrong, None, "not mapped, or a write was not told");
                model.retain(|&(of, page), _| of != asid || !range.contains(PageNo(page)));
            }
            Step::Protect { asid, range } => {
                writer.protect(Asid(asid), range);
                for page in range.start.0..range.end().0 {
                    if let Some(known) = model.get_mut(&(asid, page)) {
                        known.rights = Rights::Read;
                    }
                }
            }
            Step::TakeAccessed { asid, range } => {
                writer.take_accessed(Asid(asid), range, |_, _| {});
                let mut used = false;
                writer.take_accessed(Asid(asid), range, |_, accessed| used |= accessed);
                prop_assert!(!used, "an accessed bit that was read was not cleared");
            }
            Step::Walk { asid, page, access } => {
                let known = model.get_mut(&(asid, page));
                match (writer.tables().walk(Asid(asid), PageNo(page), access), known) {
                    (Walk::Found(walked), Some(known)) => {
                        prop_assert_eq!(walked.location, known.location);
                        prop_assert!(known.rights.allows(access));
                        known.dirty |= access.is_write();
                        let cached = if known.dirty { known.rights } else { Rights::Read };
                        let is_doubted = !is_ample && walked.rights == known.rights;
                        prop_assert!(walked.rights == cached || is_doubted);
                    }
                    (Walk::InsufficientRights, Some(known)) => {
                        prop_assert!(!known.rights.allows(access));
                    }
                    (Walk::Missing, known) => prop_assert!(known.is_none() || !is_ample),
                    (found, None) => {
                        prop_assert!(false, "page {} is not mapped: {:?}", page, found)
                    }
                }
            }
        }
        check(&writer, &[1, 2]);
    }
    for asid in [1, 2] {
        writer.unmap(Asid(asid), PageRange::new(PageNo(0), 1 << 48), |_, _| {});
    }
    writer.reclaim();
    prop_assert_eq!(writer.used(), 0, "a table page was lost");
    Ok(())
}

/// 200, or as many as `PROPTEST_CASES` says.
fn cases() -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(200),
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn tables_say_what_a_map_of_pages_says(steps in prop::collection::vec(steps(), 1..40)) {
        compare(64, steps)?;
    }

    #[test]
    fn tables_with_too_few_pages_forget_and_are_never_wrong(
        table_pages in 1..6u32,
        steps in prop::collection::vec(steps(), 1..40),
    ) {
        compare(table_pages, steps)?;
    }
}
