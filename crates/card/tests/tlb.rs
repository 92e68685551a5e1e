//! The MMU against a flat reference map: a hit is always right, and nothing hits after it was
//! taken away.

use std::collections::HashMap;

use farside_card::{
    AcquireError, Card, Drained, Geometry, Level, Location, Lookup, MapError, MappedRun, Mmu,
    PAGES_MAX,
};
use farside_types::{
    Access, Asid, CardId, CommandId, FrameNo, MemoryId, PageNo, PageRange, PeId, Rights,
};
use proptest::prelude::*;

const ASID: Asid = Asid(3);
const PE: PeId = PeId(0);

fn at(frame: u32) -> Location {
    Location::new(MemoryId(1), FrameNo(frame))
}

fn run(page: u64, count: u32, frame: u32) -> MappedRun {
    MappedRun::new(PageNo(page), count, at(frame))
}

fn pages(start: u64, count: u64) -> PageRange {
    PageRange::new(PageNo(start), count)
}

fn hit(mmu: &mut Mmu, page: u64) -> Option<(Location, Level)> {
    match mmu.lookup(PE, ASID, PageNo(page), Access::Read) {
        Lookup::Hit { location, level, .. } => Some((location, level)),
        _ => None,
    }
}

/// Small, so that everything is evicted, split and joined often.
fn small() -> Geometry {
    Geometry {
        pes: 2,
        l1_entries: 4,
        l2_entries: 16,
        l2_ways: 2,
        flexible_entries: 4,
        flexible_pages_min: 8,
        flexible_pages_max: 32,
        ..Geometry::default()
    }
}

const LENGTHS: [u64; 7] = [1, 63, 64, 65535, 65536, 131072, 1 << 20];

#[test]
fn invariant_9_after_invalidate_range_of_n_pages_none_of_them_hits() {
    for n in LENGTHS {
        let mut mmu = Mmu::new(&Geometry::default()).unwrap();
        let first = 1000;
        mmu.insert(ASID, run(first - 500, n as u32 + 1000, 0), Rights::ReadWrite).unwrap();
        for page in [first, first + n / 2, first + n - 1] {
            let single = run(page, 1, 5_000_000 + page as u32);
            mmu.insert(ASID, single, Rights::ReadWrite).unwrap();
            assert!(hit(&mut mmu, page).is_some(), "in the L1 and the L2, n = {n}");
        }
        mmu.invalidate(ASID, pages(first, n));
        for page in first..first + n {
            assert_eq!(hit(&mut mmu, page), None, "page {page} of {n}");
        }
    }
}

#[test]
fn invariant_9_invalidation_spares_the_pages_on_both_sides() {
    for n in LENGTHS {
        let mut mmu = Mmu::new(&Geometry::default()).unwrap();
        let first = 40_000;
        mmu.insert(ASID, run(first, n as u32, 80), Rights::Read).unwrap();
        mmu.insert(ASID, run(first - 70, 70, 10), Rights::Read).unwrap();
        let end = first + n;
        mmu.insert(ASID, run(end, 70, 80 + n as u32), Rights::Read).unwrap();
        mmu.invalidate(ASID, pages(first, n));
        assert!(hit(&mut mmu, first - 1).is_some(), "before, n = {n}");
        assert!(hit(&mut mmu, end).is_some(), "behind, n = {n}");
    }
}

#[test]
fn invariant_11_partial_invalidation_splits_a_flexible_entry() {
    let mut mmu = Mmu::new(&Geometry::default()).unwrap();
    mmu.insert(ASID, run(0, 1000, 5000), Rights::ReadWrite).unwrap();
    mmu.invalidate(ASID, pages(400, 100));
    assert_eq!(hit(&mut mmu, 399), Some((at(5399), Level::Flexible)));
    assert_eq!(hit(&mut mmu, 500), Some((at(5500), Level::Flexible)));
    for page in 400..500 {
        assert_eq!(hit(&mut mmu, page), None);
    }
}

#[test]
fn invariant_11_a_split_without_a_free_entry_keeps_the_longer_part_and_drops_the_other() {
    let geometry = Geometry { flexible_entries: 1, ..Geometry::default() };
    let mut mmu = Mmu::new(&geometry).unwrap();
    mmu.insert(ASID, run(0, 1000, 5000), Rights::ReadWrite).unwrap();
    mmu.invalidate(ASID, pages(300, 100));
    assert_eq!(hit(&mut mmu, 400), Some((at(5400), Level::Flexible)));
    assert_eq!(hit(&mut mmu, 299), None);
}

#[test]
fn invariant_11_partial_protection_of_a_flexible_entry_lowers_that_part_only() {
    let mut mmu = Mmu::new(&Geometry::default()).unwrap();
    mmu.insert(ASID, run(0, 1000, 5000), Rights::ReadWrite).unwrap();
    mmu.protect(ASID, pages(400, 100), Rights::Read);
    let mut write = |page| mmu.lookup(PE, ASID, PageNo(page), Access::Write);
    assert!(matches!(write(399), Lookup::Hit { .. }));
    assert_eq!(write(400), Lookup::InsufficientRights);
    assert_eq!(write(499), Lookup::InsufficientRights);
    assert!(matches!(write(500), Lookup::Hit { .. }));
    assert_eq!(hit(&mut mmu, 450).unwrap().0, at(5450));
}

#[test]
fn protection_never_gives_rights() {
    let mut mmu = Mmu::new(&Geometry::default()).unwrap();
    mmu.insert(ASID, run(0, 100, 0), Rights::Read).unwrap();
    mmu.insert(ASID, run(200, 1, 200), Rights::Read).unwrap();
    mmu.protect(ASID, pages(0, 300), Rights::ReadWrite);
    for page in [0, 99, 200] {
        let found = mmu.lookup(PE, ASID, PageNo(page), Access::Write);
        assert_eq!(found, Lookup::InsufficientRights);
    }
}

#[test]
fn invalidate_all_takes_one_address_space_and_no_other() {
    let mut mmu = Mmu::new(&Geometry::default()).unwrap();
    for asid in [Asid(0), ASID, Asid(u16::MAX)] {
        mmu.insert(asid, run(0, 100, 0), Rights::Read).unwrap();
        mmu.insert(asid, run(PAGES_MAX - 1, 1, 7), Rights::Read).unwrap();
    }
    mmu.invalidate_all(ASID);
    for (asid, stays) in [(Asid(0), true), (ASID, false), (Asid(u16::MAX), true)] {
        for page in [0, 99, PAGES_MAX - 1] {
            let found = mmu.lookup(PE, asid, PageNo(page), Access::Read);
            assert_eq!(found != Lookup::Miss, stays, "{asid} page {page:#x}");
        }
    }
}

#[test]
fn the_second_access_hits_in_the_l1_and_each_pe_has_its_own() {
    let mut mmu = Mmu::new(&Geometry::default()).unwrap();
    mmu.insert(ASID, run(5, 1, 9), Rights::Read).unwrap();
    assert_eq!(hit(&mut mmu, 5), Some((at(9), Level::L2)));
    assert_eq!(hit(&mut mmu, 5), Some((at(9), Level::L1)));
    let other = mmu.lookup(PeId(1), ASID, PageNo(5), Access::Read);
    assert!(matches!(other, Lookup::Hit { level: Level::L2, .. }));
}

#[test]
fn a_read_only_entry_that_is_upgraded_serves_writes_at_once() {
    let mut mmu = Mmu::new(&Geometry::default()).unwrap();
    mmu.insert(ASID, run(5, 1, 9), Rights::Read).unwrap();
    hit(&mut mmu, 5);
    mmu.insert(ASID, run(5, 1, 9), Rights::ReadWrite).unwrap();
    let found = mmu.lookup(PE, ASID, PageNo(5), Access::Write);
    assert!(matches!(found, Lookup::Hit { .. }));
}

#[test]
fn neighbouring_runs_in_neighbouring_frames_become_one_entry() {
    let mut mmu = Mmu::new(&Geometry::default()).unwrap();
    mmu.insert(ASID, run(100, 64, 100), Rights::Read).unwrap();
    mmu.insert(ASID, run(228, 64, 228), Rights::Read).unwrap();
    mmu.insert(ASID, run(164, 64, 164), Rights::Read).unwrap();
    let found = mmu.lookup_run(PE, ASID, PageNo(100), Access::Read, 1000);
    assert_eq!(found.unwrap().count, 192);
    let part = mmu.lookup_run(PE, ASID, PageNo(110), Access::Read, 20);
    assert_eq!(part.unwrap().count, 20);
}

#[test]
fn runs_that_cannot_be_are_refused_and_never_panic() {
    let mut mmu = Mmu::new(&Geometry::default()).unwrap();
    let mut insert = |run| mmu.insert(ASID, run, Rights::Read).unwrap_err();
    assert!(matches!(insert(run(5, 0, 0)), MapError::Empty { .. }));
    let beyond = [run(PAGES_MAX, 1, 0), run(PAGES_MAX - 1, 2, 0), run(u64::MAX, 1, 0)];
    for wild in beyond {
        assert!(matches!(insert(wild), MapError::BeyondAddressSpace { .. }));
    }
    let frames = insert(run(5, 2, u32::MAX));
    assert!(matches!(frames, MapError::BeyondMemory { .. }));
    mmu.invalidate(ASID, pages(u64::MAX, u64::MAX));
    mmu.protect(ASID, pages(u64::MAX - 3, 9), Rights::Read);
    assert_eq!(hit(&mut mmu, u64::MAX), None);
    let nobody = mmu.lookup(PeId(999), ASID, PageNo(0), Access::Read);
    assert_eq!(nobody, Lookup::Miss);
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, u64, u32, u32, Rights),
    Protect(u16, u64, u64),
    Invalidate(u16, u64, u64),
    InvalidateAll(u16),
    Touch(u16, u16, u64, Access),
}

fn step() -> impl Strategy<Value = Step> {
    let asid = 0..2u16;
    let rights = prop_oneof![Just(Rights::Read), Just(Rights::ReadWrite)];
    let access = prop_oneof![Just(Access::Read), Just(Access::Write)];
    let frame = prop_oneof![Just(0u32), 0..100u32];
    prop_oneof![
        4 => (asid.clone(), 0..96u64, 1..48u32, frame, rights)
            .prop_map(|(a, p, c, f, r)| Step::Insert(a, p, c, f + p as u32, r)),
        2 => (asid.clone(), 0..96u64, 0..64u64).prop_map(|(a, p, c)| Step::Protect(a, p, c)),
        2 => (asid.clone(), 0..96u64, 0..64u64).prop_map(|(a, p, c)| Step::Invalidate(a, p, c)),
        1 => asid.clone().prop_map(Step::InvalidateAll),
        8 => (0..2u16, asid, 0..144u64, access).prop_map(|(e, a, p, x)| Step::Touch(e, a, p, x)),
    ]
}

type Reference = HashMap<(u16, u64), (Location, Rights)>;

fn apply(mmu: &mut Mmu, reference: &mut Reference, step: &Step) {
    match *step {
        Step::Insert(asid, page, count, frame, rights) => {
            mmu.insert(Asid(asid), run(page, count, frame), rights).unwrap();
            for i in 0..count {
                reference.insert((asid, page + u64::from(i)), (at(frame + i), rights));
            }
        }
        Step::Protect(asid, page, count) => {
            mmu.protect(Asid(asid), pages(page, count), Rights::Read);
            for page in page..page + count {
                reference.entry((asid, page)).and_modify(|e| e.1 = Rights::Read);
            }
        }
        Step::Invalidate(asid, page, count) => {
            mmu.invalidate(Asid(asid), pages(page, count));
            reference.retain(|&(a, p), _| a != asid || !(page..page + count).contains(&p));
        }
        Step::InvalidateAll(asid) => {
            mmu.invalidate_all(Asid(asid));
            reference.retain(|&(a, _), _| a != asid);
        }
        Step::Touch(pe, asid, page, access) => {
            mmu.lookup(PeId(pe), Asid(asid), PageNo(page), access);
        }
    }
}

/// Every page, as every processing element sees it, and every run. The lookups are made on a copy,
/// so that looking does not change what is evicted.
fn check(mmu: &Mmu, reference: &Reference) {
    let mut mmu = mmu.clone();
    for (pe, asid, page) in
        (0..2u16).flat_map(|e| (0..2u16).flat_map(move |a| (0..160u64).map(move |p| (e, a, p))))
    {
        let known = reference.get(&(asid, page)).copied();
        let hit = mmu.lookup_run(PeId(pe), Asid(asid), PageNo(page), Access::Read, 1000);
        for i in 0..hit.map_or(0, |hit| hit.count) {
            let hit = hit.unwrap();
            let known = reference.get(&(asid, page + u64::from(i))).copied();
            assert_eq!(known, Some((hit.location.offset(i), hit.rights)));
        }
        match mmu.lookup(PeId(pe), Asid(asid), PageNo(page), Access::Write) {
            Lookup::Hit { location, rights, .. } => assert_eq!(known, Some((location, rights))),
            Lookup::InsufficientRights => assert_eq!(known.unwrap().1, Rights::Read),
            Lookup::Miss => {}
        }
    }
}

/// What the comparison stands on: an entry that an invalidation leaves behind is noticed, whether it
/// is of a page or of a range.
#[test]
fn control_an_entry_that_an_invalidation_leaves_behind_is_noticed() {
    for count in [1, 32] {
        let (mut mmu, mut reference) = (Mmu::new(&small()).unwrap(), Reference::new());
        apply(&mut mmu, &mut reference, &Step::Insert(0, 8, count, 5, Rights::ReadWrite));
        check(&mmu, &reference);
        // An invalidation of one page, which reaches the reference only.
        assert!(reference.remove(&(0, 8 + u64::from(count / 2))).is_some());
        let noticed = std::panic::catch_unwind(|| check(&mmu, &reference)).is_err();
        assert!(noticed, "an entry of {count} pages");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_hit_always_equals_the_reference_and_nothing_hits_after_invalidation(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        let mut mmu = Mmu::new(&small()).unwrap();
        let mut reference = Reference::new();
        for step in &steps {
            apply(&mut mmu, &mut reference, step);
            check(&mmu, &reference);
        }
    }
}

#[test]
fn ports_that_share_an_l1_tlb_find_there_what_another_port_left() {
    for (shared, level) in [(true, Level::L1), (false, Level::L2)] {
        let geometry = Geometry { pes: 2, l1_shared: shared, ..Geometry::default() };
        let mut card = Card::new(CardId(0), 64, geometry).unwrap();
        let run = MappedRun::new(PageNo(5), 1, Location::new(card.memory(), FrameNo(3)));
        card.map(Asid(1), std::iter::once(run), Rights::ReadWrite).unwrap();
        let mut take = |pe| card.acquire_page(PeId(pe), Asid(1), PageNo(5), Access::Write);
        assert_eq!(take(0).unwrap().1, Level::L2, "the first one finds it below");
        let (grant, found) = take(1).unwrap();
        assert_eq!((found, grant.runs), (level, [run].into()));
        assert_eq!(take(1), Err(AcquireError::HoldsMemory { pe: PeId(1) }));
        assert!(matches!(take(2), Err(AcquireError::NoSuchPe { .. })));
        let page = std::iter::once(PageRange::page(PageNo(5)));
        assert_eq!(card.unmap(CommandId(9), Asid(1), page), Drained::Waiting(2));
        assert_eq!(card.end(grant.access), []);
    }
}
