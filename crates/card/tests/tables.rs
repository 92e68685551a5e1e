//! Translation tables as commands and accesses see them: a card that has them faults only on what is
//! not mapped, and tells what was written and used.

mod rig;

use std::collections::BTreeMap;

use farside_card::interface::{
    BITS_BYTES_MAX, BitsBuffer, CompletionEntry, DmaAddr, Extent, Operation, Status, register,
};
use farside_card::{
    Card, Drained, Geometry, Level, Location, Lookup, MappedRun, Mmu, Need, Outcome,
};
use farside_types::{
    Access, Asid, CardId, CommandId, FrameNo, JobId, MemoryId, PageNo, PageRange, PeId, Rights,
};
use proptest::prelude::*;
use rig::{ASID, Rig, pages, pages_at};

const PE: PeId = PeId(0);

/// TLBs that hold very little, so that nearly every access walks.
fn tiny() -> Geometry {
    Geometry {
        pes: 2,
        l1_entries: 2,
        l2_entries: 4,
        l2_ways: 4,
        flexible_entries: 1,
        table_pages: 64,
        ..Geometry::default()
    }
}

fn rig(geometry: Geometry) -> Rig {
    Rig::with_rings(geometry, [64, 64, 128, 64], 0)
}

fn own(page: u64, count: u32, frame: u32) -> farside_card::interface::ExtentArg {
    pages_at(page, count, DmaAddr::Own(frame))
}

fn access(rig: &mut Rig, page: u64, access: Access) -> Option<u32> {
    let location = rig.card.access(PE, ASID, PageNo(page), access)?;
    assert_eq!(location.memory, rig.card.memory());
    Some(location.frame.0)
}

/// Which of the first pages have a bit.
fn ones(completion: &CompletionEntry) -> Vec<u64> {
    let bit = |page: u64| completion.bits[(page / 64) as usize] >> (page % 64) & 1 == 1;
    (0..completion.value.min(192)).filter(|&page| bit(page)).collect()
}

fn scattered(step: u64) -> u64 {
    step * 7919 % 4096
}

#[test]
fn random_accesses_beyond_the_reach_of_the_tlbs_never_miss_with_tables_and_do_without() {
    let misses = [64, 0].map(|table_pages| {
        let mut rig = rig(Geometry { table_pages, ..Geometry::default() });
        // Odd pages alone, so that no entry of flexible length helps.
        for page in (1..4096).step_by(2) {
            rig.card
                .map(
                    ASID,
                    [MappedRun::new(
                        PageNo(page),
                        1,
                        Location::new(rig.card.memory(), FrameNo(page as u32)),
                    )]
                    .into_iter(),
                    Rights::ReadWrite,
                )
                .unwrap();
        }
        for step in 0..20_000 {
            let page = scattered(step) | 1;
            if let Some(frame) = access(&mut rig, page, Access::Write) {
                assert_eq!(u64::from(frame), page);
            }
        }
        (rig.counter("misses"), rig.counter("walks") > 0)
    });
    assert_eq!(misses[0], (0, true));
    assert!(misses[1].0 > 1000 && !misses[1].1, "{misses:?}");
}

#[test]
fn the_registers_say_what_tables_there_are() {
    let mut with = rig(tiny());
    assert_ne!(with.read64(register::CAPABILITIES) & register::CAP_TABLES, 0);
    assert_eq!(with.read32(register::TABLE_PAGES), 64);
    assert_eq!(with.read32(register::TABLE_PAGES_USED), 0);
    with.ok(ASID, Operation::Map(own(1000, 1, 1), Rights::Read));
    assert_eq!(with.read32(register::TABLE_PAGES_USED), 2);
    let without = rig(Geometry::default());
    assert_eq!(without.read64(register::CAPABILITIES) & register::CAP_TABLES, 0);
    assert_eq!(without.read32(register::TABLE_PAGES), u32::MAX, "no register");
    let software = Card::new(CardId(0), 1 << 14, Geometry::software()).unwrap();
    assert_eq!(software.geometry().table_pages, 128 + 64);
}

#[test]
fn a_card_without_tables_refuses_what_it_does_not_know_and_tells_no_bits() {
    let mut rig = rig(Geometry::default());
    let written = rig.run(ASID, Operation::MapWritten(own(1, 1, 1), Rights::Read));
    assert_eq!((written.status, written.detail), (Status::BadOperand, 7));
    let buffer = BitsBuffer { address: rig.free, bytes: 8 };
    let unmap = rig.run(ASID, Operation::UnmapTelling(pages(1, 1), buffer));
    assert_eq!((unmap.status, unmap.detail), (Status::BadOperand, 6));
    let accessed = rig.run(ASID, Operation::Accessed(pages(1, 1), None));
    assert_eq!(accessed.status, Status::Unsupported);
    rig.ok(ASID, Operation::Map(own(1, 1, 1), Rights::Read));
    let unmap = rig.ok(ASID, Operation::Unmap(pages(1, 1)));
    assert_eq!((unmap.value, unmap.bits), (0, [0; 3]));
}

#[test]
fn an_unmap_tells_which_pages_were_written_in_the_order_of_its_extents() {
    let mut rig = rig(tiny());
    rig.ok(ASID, Operation::Map(own(100, 8, 8), Rights::ReadWrite));
    rig.ok(ASID, Operation::Map(own(600, 8, 64), Rights::ReadWrite));
    access(&mut rig, 103, Access::Read).unwrap();
    for page in [101, 600, 607] {
        access(&mut rig, page, Access::Read).unwrap();
        access(&mut rig, page, Access::Write).unwrap();
    }
    let list = rig.free;
    let nowhere = DmaAddr::Bus(0);
    let extents = [(600, 8), (100, 8), (5000, 1)];
    let words: Vec<u8> = extents
        .iter()
        .flat_map(|&(page, count)| Extent { page, count, src: nowhere, dst: nowhere }.to_words())
        .flat_map(u64::to_le_bytes)
        .collect();
    rig.bus.put(list, &words);
    let list = farside_card::interface::ExtentList { address: list, count: 3 };
    let list = farside_card::interface::ExtentArg::List(list);
    let unmap = rig.ok(ASID, Operation::Unmap(list));
    assert_eq!(unmap.value, 17);
    assert_eq!(ones(&unmap), [0, 7, 9, 16], "and the page that has no entry");
}

#[test]
fn bits_of_more_pages_are_in_the_buffer_and_one_that_cannot_be_reached_undoes_nothing() {
    let mut rig = rig(tiny());
    let buffer = BitsBuffer { address: rig.free, bytes: 128 };
    rig.ok(ASID, Operation::Map(own(0, 1000, 0), Rights::ReadWrite));
    for page in [0, 191, 192, 999] {
        access(&mut rig, page, Access::Write).unwrap();
    }
    let wild = BitsBuffer { address: 8, bytes: 128 };
    let refused = rig.run(ASID, Operation::UnmapTelling(pages(0, 1000), wild));
    assert_eq!((refused.status, refused.detail), (Status::BadAddress, 8));
    assert_eq!(access(&mut rig, 500, Access::Read), Some(500), "nothing was done");
    let unmap = rig.ok(ASID, Operation::UnmapTelling(pages(0, 1000), buffer));
    assert_eq!((unmap.value, ones(&unmap)), (1000, vec![0, 191]));
    let bytes = rig.bus.get(buffer.address, 128).to_vec();
    let told = (0..1000).filter(|page| bytes[page / 8] >> (page % 8) & 1 == 1);
    assert_eq!(told.collect::<Vec<_>>(), [0, 191, 192, 999]);
    assert_eq!(bytes[125..], [0; 3], "bits behind the last page");
    assert_eq!(access(&mut rig, 500, Access::Read), None);
}

#[test]
fn without_a_buffer_the_first_192_pages_are_told() {
    let mut rig = rig(tiny());
    rig.ok(ASID, Operation::Map(own(0, 1000, 0), Rights::ReadWrite));
    let unmap = rig.ok(ASID, Operation::Unmap(pages(0, 1000)));
    assert_eq!((unmap.value, unmap.bits), (192, [0; 3]));
}

#[test]
fn the_bits_of_an_unmap_that_waits_are_in_its_completion() {
    let mut rig = rig(tiny());
    rig.ok(ASID, Operation::Map(own(4, 4, 4), Rights::ReadWrite));
    let need = [(PageRange::new(PageNo(5), 2), Access::Write)];
    let grant = rig.card.acquire(PE, ASID, &need).unwrap();
    rig.submit(ASID, Operation::Unmap(pages(4, 4)));
    rig.doorbell();
    assert_eq!(rig.completions(), [], "it is held");
    let drains = rig.card.end(grant.access);
    rig.function.drained(&mut rig.card, &mut rig.bus, &drains);
    let unmap = rig.completions().pop().unwrap();
    assert_eq!((unmap.value, ones(&unmap)), (4, vec![1, 2]));
}

#[test]
fn pages_that_count_as_written_are_told_as_written_and_take_one_entry_where_they_are_aligned() {
    let mut rig = rig(tiny());
    rig.ok(ASID, Operation::MapWritten(own(512, 512, 1024), Rights::ReadWrite));
    assert_eq!(rig.read32(register::TABLE_PAGES_USED), 1);
    assert_eq!(access(&mut rig, 700, Access::Write), Some(1212));
    let unmap = rig.ok(ASID, Operation::Unmap(pages(600, 2)));
    assert_eq!(ones(&unmap), [0, 1]);
    assert_eq!(access(&mut rig, 600, Access::Read), None, "the run was split");
    assert_eq!(access(&mut rig, 602, Access::Read), Some(1114));
}

#[test]
fn accessed_reads_and_clears_and_the_next_use_sets_the_bit_again() {
    let mut rig = rig(tiny());
    rig.ok(ASID, Operation::Map(own(8, 8, 8), Rights::Read));
    let accessed = |rig: &mut Rig| {
        let told = rig.ok(ASID, Operation::Accessed(pages(8, 8), None));
        assert_eq!((told.value, told.pages), (8, 8));
        ones(&told)
    };
    assert_eq!(accessed(&mut rig), []);
    for page in [9, 12] {
        access(&mut rig, page, Access::Read).unwrap();
    }
    assert_eq!(accessed(&mut rig), [1, 4]);
    assert_eq!(accessed(&mut rig), []);
    // The TLB knew it; had it kept it, nothing would be seen.
    access(&mut rig, 12, Access::Read).unwrap();
    assert_eq!(accessed(&mut rig), [4]);
    let unknown = rig.ok(ASID, Operation::Accessed(pages(100, 2), None));
    assert_eq!(ones(&unknown), [0, 1], "pages without an entry count as used");
}

#[test]
fn rights_are_lowered_in_the_tables_too() {
    let mut rig = rig(tiny());
    rig.ok(ASID, Operation::Map(own(0, 64, 0), Rights::ReadWrite));
    access(&mut rig, 3, Access::Write).unwrap();
    rig.ok(ASID, Operation::Protect(pages(0, 64), Rights::Read));
    for page in 0..64 {
        assert_eq!(access(&mut rig, page, Access::Write), None, "page {page}");
        assert_eq!(access(&mut rig, page, Access::Read), Some(page as u32));
    }
    let unmap = rig.ok(ASID, Operation::Unmap(pages(0, 64)));
    assert_eq!(ones(&unmap), [3], "a bit outlives the right");
}

#[test]
fn full_tables_are_no_error_and_such_pages_count_as_written() {
    let mut rig = rig(Geometry { table_pages: 1, ..tiny() });
    rig.ok(ASID, Operation::Map(own(0, 1, 1), Rights::ReadWrite));
    rig.ok(Asid(2), Operation::Map(own(0, 2, 2), Rights::ReadWrite));
    assert_eq!(rig.counter("table_full"), 2);
    let found = rig.card.access(PE, Asid(2), PageNo(1), Access::Write);
    assert_eq!(found.map(|location| location.frame.0), Some(3), "the TLBs have it");
    let unmap = rig.ok(Asid(2), Operation::Unmap(pages(0, 2)));
    assert_eq!((unmap.value, ones(&unmap)), (2, vec![0, 1]));
    assert_eq!(rig.card.access(PE, Asid(2), PageNo(1), Access::Read), None);
    rig.ok(ASID, Operation::UnmapAll);
    rig.ok(Asid(2), Operation::Map(own(0, 2, 2), Rights::ReadWrite));
    assert_eq!(rig.counter("table_full"), 2, "the empty table was taken");
}

#[test]
fn unmap_all_and_reset_leave_nothing_in_the_tables() {
    let mut rig = rig(tiny());
    for asid in [Asid(1), Asid(2)] {
        rig.ok(asid, Operation::Map(own(0, 2000, 0), Rights::ReadWrite));
    }
    rig.ok(ASID, Operation::UnmapAll);
    assert_eq!(access(&mut rig, 1999, Access::Read), None);
    assert!(rig.card.access(PE, Asid(2), PageNo(1999), Access::Read).is_some());
    rig.write32(register::CONTROL, register::CONTROL_RESET);
    for action in rig.actions() {
        if action == farside_card::Action::Reset {
            rig.function.reset_done(&mut rig.card);
        }
    }
    assert_eq!(rig.read32(register::TABLE_PAGES_USED), 0);
    assert_eq!(rig.card.access(PE, Asid(2), PageNo(1999), Access::Read), None);
}

#[test]
fn what_a_resume_grants_from_a_fault_sets_the_bits() {
    let mut rig = rig(tiny());
    rig.card.launch(PE, JobId(1)).unwrap();
    let need = Need::Page(PageNo(7), Access::Write);
    let _ = rig.card.raise(PE, JobId(1), ASID, need).unwrap();
    let fault = rig.card.take_faults(1).pop().unwrap();
    rig.ok(ASID, Operation::Map(own(7, 2, 7), Rights::ReadWrite));
    let answer = rig.card.resume(fault.id).pop().unwrap();
    let Outcome::Granted(grant) = answer.outcome else { panic!("{answer:?}") };
    let _ = rig.card.end(grant.access);
    let unmap = rig.ok(ASID, Operation::Unmap(pages(7, 2)));
    assert_eq!(ones(&unmap), [0]);
}

#[test]
fn a_group_that_is_written_has_every_bit_and_its_run_takes_one_lookup() {
    let geometry = Geometry { flexible_pages_min: 8, ..tiny() };
    let mut mmu = Mmu::with_tables(&geometry, CardId(0).memory()).unwrap();
    let run = MappedRun::new(PageNo(500), 64, Location::new(CardId(0).memory(), FrameNo(0)));
    mmu.insert(ASID, run, Rights::ReadWrite).unwrap();
    let hit = mmu.lookup_run(PE, ASID, PageNo(500), Access::Write, 64).unwrap();
    assert_eq!((hit.count, hit.level), (64, Level::Table), "over the border of two tables");
    let again = mmu.lookup_run(PE, ASID, PageNo(500), Access::Write, 64).unwrap();
    assert_eq!((again.count, again.level), (64, Level::Flexible));
}

#[test]
fn pages_of_a_memory_that_entries_cannot_name_are_in_the_tlbs_alone() {
    let mut mmu = Mmu::with_tables(&tiny(), CardId(0).memory()).unwrap();
    let elsewhere = Location::new(CardId(1).memory(), FrameNo(5));
    mmu.insert(ASID, MappedRun::new(PageNo(1), 1, elsewhere), Rights::Read).unwrap();
    let found = mmu.lookup(PE, ASID, PageNo(1), Access::Read);
    assert!(matches!(found, Lookup::Hit { location, .. } if location == elsewhere));
}

#[test]
fn a_hostile_buffer_is_refused_by_the_word() {
    let mut rig = rig(tiny());
    let whole = Operation::UnmapTelling(pages(1, 1), BitsBuffer { address: rig.free, bytes: 8 });
    let command = |rig: &mut Rig, word: usize, value: u64| {
        let tag = 1 << 40;
        let operation = whole.clone();
        let mut entry =
            farside_card::interface::CommandEntry { tag, asid: ASID, operation }.to_entry();
        entry[word] = value;
        rig.push(&entry);
        rig.doorbell();
        let completion = rig.completions().pop().unwrap();
        (completion.status, completion.detail)
    };
    let wrong = |word| (Status::BadOperand, word);
    assert_eq!(command(&mut rig, 6, 0x1_0000_0004), wrong(6));
    for bytes in [0, 4, u64::from(BITS_BYTES_MAX) + 8, 1 << 40] {
        assert_eq!(command(&mut rig, 7, bytes), wrong(7), "{bytes} bytes");
    }
    assert_eq!(command(&mut rig, 6, !7).0, Status::BadAddress);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Map { asid: u16, page: u64, count: u32, own: bool, frame: u32, rights: Rights, written: bool },
    Unmap { asid: u16, page: u64, count: u64 },
    Protect { asid: u16, page: u64, count: u64 },
    Accessed { asid: u16, page: u64, count: u64 },
    Access { pe: u16, asid: u16, page: u64, access: Access },
    Run { asid: u16, page: u64, count: u64, access: Access },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let asid = || 1..3u16;
    let page = || prop_oneof![0..40u64, 500..530u64, 0..1100u64];
    let count = || prop_oneof![1..20u64, Just(512), Just(64)];
    let rights = prop_oneof![Just(Rights::Read), Just(Rights::ReadWrite)];
    let access = || prop_oneof![Just(Access::Read), Just(Access::Write)];
    let step = prop_oneof![
        3 => (asid(), page(), count(), any::<bool>(), any::<bool>(), rights, any::<bool>())
            .prop_map(|(asid, page, count, own, shifted, rights, written)| {
                let page = if count == 512 { page / 512 * 512 } else { page };
                let frame = page as u32 + u32::from(shifted) * 2048;
                Step::Map { asid, page, count: count as u32, own, frame, rights, written }
            }),
        1 => (asid(), page(), count())
            .prop_map(|(asid, page, count)| Step::Unmap { asid, page, count }),
        1 => (asid(), page(), count())
            .prop_map(|(asid, page, count)| Step::Protect { asid, page, count }),
        1 => (asid(), page(), count())
            .prop_map(|(asid, page, count)| Step::Accessed { asid, page, count }),
        12 => (0..2u16, asid(), page(), access())
            .prop_map(|(pe, asid, page, access)| Step::Access { pe, asid, page, access }),
        2 => (asid(), page(), count(), access())
            .prop_map(|(asid, page, count, access)| Step::Run { asid, page, count, access }),
    ];
    prop::collection::vec(step, 1..80)
}

#[derive(Clone, Copy, Debug)]
struct Known {
    location: Location,
    rights: Rights,
    written: bool,
    used: bool,
    /// A group asked for it to write, and was not granted.
    wanted: bool,
}

/// A card beside a map of its pages. It never uses what was taken away, and never hides a write or a
/// use; with `ample` tables it never forgets either.
fn compare(geometry: Geometry, ample: bool, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut card = Card::new(CardId(0), 1 << 16, geometry).unwrap();
    let mut model: BTreeMap<(u16, u64), Known> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Map { asid, page, count, own, frame, rights, written } => {
                let memory = if own { card.memory() } else { MemoryId::HOST };
                let location = Location::new(memory, FrameNo(frame));
                let run = [MappedRun::new(PageNo(page), count, location)].into_iter();
                match written {
                    true => card.map_written(Asid(asid), run, rights).unwrap(),
                    false => card.map(Asid(asid), run, rights).unwrap(),
                }
                for index in 0..count {
                    let key = (asid, page + u64::from(index));
                    let location = location.offset(index);
                    let same = model.get(&key).filter(|known| known.location == location);
                    let written = written || same.is_some_and(|known| known.written);
                    let wanted = same.is_some_and(|known| known.wanted);
                    model.insert(key, Known { location, rights, written, used: false, wanted });
                }
            }
            Step::Unmap { asid, page, count } => {
                let range = PageRange::new(PageNo(page), count);
                let mut bits = farside_card::tables::PageBits::new(count, count);
                let ranges = std::iter::once(range);
                let drained = card.unmap_telling(CommandId(1), Asid(asid), ranges, &mut bits);
                prop_assert_eq!(drained, Drained::Now);
                for index in 0..count {
                    let known = model.remove(&(asid, page + index));
                    let written = known.is_none_or(|known| known.written);
                    let wanted = known.is_some_and(|known| known.wanted);
                    prop_assert!(bits.get(index) || !written, "a write was hidden");
                    prop_assert!(
                        !ample || bits.get(index) == written || wanted,
                        "a page is not known"
                    );
                }
            }
            Step::Protect { asid, page, count } => {
                let ranges = std::iter::once(PageRange::new(PageNo(page), count));
                let drained = card.protect(CommandId(1), Asid(asid), ranges, Rights::Read);
                prop_assert_eq!(drained, Drained::Now);
                for page in page..page + count {
                    if let Some(known) = model.get_mut(&(asid, page)) {
                        known.rights = Rights::Read;
                    }
                }
            }
            Step::Accessed { asid, page, count } => {
                let mut bits = farside_card::tables::PageBits::new(count, count);
                let ranges = std::iter::once(PageRange::new(PageNo(page), count));
                card.take_accessed(Asid(asid), ranges, &mut bits);
                for index in 0..count {
                    if let Some(known) = model.get_mut(&(asid, page + index)) {
                        prop_assert!(bits.get(index) || !known.used, "a use was hidden");
                    }
                }
                // A run of 512 has one bit, which is cleared for all of it.
                let block = |page: u64| page / 512;
                for (_, known) in model.iter_mut().filter(|((of, at), _)| {
                    *of == asid && (block(page)..=block(page + count)).contains(&block(*at))
                }) {
                    known.used = false;
                }
            }
            Step::Access { pe, asid, page, access } => {
                let found = card.access(PeId(pe), Asid(asid), PageNo(page), access);
                let known = model.get_mut(&(asid, page));
                let allowed = known.as_ref().is_some_and(|known| known.rights.allows(access));
                prop_assert!(found.is_none() || allowed, "it was taken away: {:?}", found);
                prop_assert!(found.is_some() || !allowed || !ample, "it faults for nothing");
                if let (Some(found), Some(known)) = (found, known) {
                    prop_assert_eq!(found, known.location);
                    known.written |= access.is_write();
                    known.used = true;
                }
            }
            Step::Run { asid, page, count, access } => {
                let need = [(PageRange::new(PageNo(page), count), access)];
                let Ok(grant) = card.acquire(PE, Asid(asid), &need) else {
                    for page in page..page + count {
                        if let Some(known) = model.get_mut(&(asid, page)) {
                            known.wanted |= access.is_write();
                        }
                    }
                    continue;
                };
                let locations = grant
                    .runs
                    .iter()
                    .flat_map(|run| (0..run.count).map(|index| run.location.offset(index)));
                for (page, location) in (page..page + count).zip(locations) {
                    let known = model.get_mut(&(asid, page));
                    prop_assert!(known.is_some(), "page {} was taken away", page);
                    if let Some(known) = known {
                        prop_assert_eq!(location, known.location);
                        prop_assert!(known.rights.allows(access));
                        known.written |= access.is_write();
                        known.used = true;
                    }
                }
                let _ = card.end(grant.access);
            }
        }
    }
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
    fn tlbs_and_tables_together_say_what_a_map_of_pages_says(steps in steps()) {
        compare(tiny(), true, steps)?;
    }

    #[test]
    fn tables_that_are_full_hide_nothing_and_keep_nothing(table_pages in 1..5u32, steps in steps()) {
        compare(Geometry { table_pages, ..tiny() }, false, steps)?;
    }
}
