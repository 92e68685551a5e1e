//! Named scenarios: what must always hold of the driver, one case at a time, on a world where
//! nothing is left to chance. Numbers in the names are those of the list of invariants.
//!
//! Every `drive` ends with the whole check of a quiet point: bytes against the flat memory, the
//! machine's tables against the directory, the residency map against the page table.

use std::sync::Arc;

use farside_svm::{Advice, Outcome, PageState, Reply, Request, RequestError};
use farside_types::{
    Access, CancelReason, CardId, MemoryId, PAGE_SIZE, PageNo, PageRange, Rights, Span, StreamId,
    VirtAddr,
};
use harness::{Failure, Fate, JobFailure, JobState, JobStep, Script, Setup, WordAccess, World};

const A: CardId = CardId(0);
const B: CardId = CardId(1);
const C: CardId = CardId(2);

/// What a test returns: the rule that was broken, with the log.
type Checked = Result<(), Failure>;

fn stream(card: CardId) -> StreamId {
    StreamId(u32::from(card.0))
}

fn writes(range: PageRange) -> Vec<WordAccess> {
    range.pages().map(|page| WordAccess::increment(page, 0)).collect()
}

/// The program has written every page once.
fn write_all(world: &mut World, range: PageRange) -> Checked {
    world.cpu(writes(range));
    world.drive()
}

fn loads(range: PageRange) -> Vec<WordAccess> {
    range.pages().map(|page| WordAccess::load(page, 0)).collect()
}

fn sub(range: PageRange, first: u64, count: u64) -> PageRange {
    PageRange::new(range.start.offset(first), count)
}

fn migrate(world: &mut World, range: PageRange, to: MemoryId) -> Checked {
    let answer = world.ask(Request::Migrate { range, to })?;
    assert!(answer.is_ok(), "{answer:?}");
    Ok(())
}

fn all_in(world: &World, range: PageRange, state: PageState) -> bool {
    range.pages().all(|page| world.driver.page(page).state == state)
}

fn all_at(world: &World, range: PageRange, memory: MemoryId) -> bool {
    range.pages().all(|page| world.driver.page(page).owner == Some(memory))
}

#[test]
fn scenario_06_a_write_to_a_duplicated_page_leaves_one_copy() -> Checked {
    let mut setup = Setup::plain(&[8, 8, 8]);
    setup.scheme = "duplication".to_owned();
    let mut world = World::new(setup);
    let range = world.alloc(1)?;
    write_all(&mut world, range)?;
    for card in [A, B, C] {
        world.launch(card, stream(card), Script::accesses(loads(range), 1).lingering())?;
    }
    world.drive()?;
    assert!(world.driver.page(range.start).copies.len() >= 3);
    let writer = world.launch(B, StreamId(9), Script::accesses(writes(range), 1))?;
    world.drive()?;
    let view = world.driver.page(range.start);
    assert_eq!((view.copies.len(), view.owner), (1, Some(B.memory())));
    assert_eq!(world.job(writer).failed, None);
    assert_eq!(world.word(range.start, 0), 2);
    assert!(world.driver.stats().collapses >= 1);
    Ok(())
}

#[test]
fn scenario_06_advice_alone_duplicates_what_is_mostly_read() -> Checked {
    let mut world = World::new(Setup::plain(&[8, 8]));
    let range = world.alloc(2)?;
    write_all(&mut world, range)?;
    let advice = Advice::ReadMostly(true);
    assert!(world.ask(Request::Advise { range, advice })?.is_ok());
    for card in [A, B] {
        world.launch(card, stream(card), Script::accesses(loads(range), 2))?;
    }
    world.drive()?;
    assert!(world.driver.page(range.start).copies.len() >= 2);
    write_all(&mut world, range)?;
    assert_eq!(world.driver.page(range.start).copies.len(), 1);
    Ok(())
}

#[test]
fn scenario_07_a_card_s_write_to_read_only_memory_fails_its_job_and_nothing_else() -> Checked {
    let mut world = World::new(Setup::plain(&[8]));
    let range = world.alloc(2)?;
    write_all(&mut world, range)?;
    assert!(world.ask(Request::Protect { range, rights: Rights::Read })?.is_ok());
    let writer = world.launch(A, StreamId(0), Script::accesses(writes(range), 1))?;
    let reader = world.launch(A, StreamId(1), Script::accesses(loads(range), 1))?;
    world.drive()?;
    assert_eq!(world.job(writer).failed, Some(JobFailure::Cancelled(CancelReason::ReadOnly)));
    assert_eq!(world.job(reader).failed, None);
    assert_eq!(world.word(range.start, 0), 1);
    assert!(world.ask(Request::Protect { range, rights: Rights::ReadWrite })?.is_ok());
    let again = world.launch(A, StreamId(0), Script::accesses(writes(range), 1))?;
    world.drive()?;
    assert_eq!(world.job(again).failed, None);
    assert_eq!(world.word(range.start, 0), 2);
    Ok(())
}

#[test]
fn scenario_08_a_scattered_source_gives_the_same_bytes_as_a_contiguous_one() -> Checked {
    for setup in [
        Setup::plain(&[32, 32, 32]),
        Setup::with_dma(&[32, 32, 32], true),
        Setup::with_dma(&[32, 32, 32], false),
    ] {
        let mut world = World::new(setup);
        let range = world.alloc(24)?;
        write_all(&mut world, range)?;
        migrate(&mut world, sub(range, 4, 4), A.memory())?;
        migrate(&mut world, sub(range, 9, 5), B.memory())?;
        migrate(&mut world, sub(range, 6, 1), B.memory())?;
        migrate(&mut world, sub(range, 20, 3), C.memory())?;
        migrate(&mut world, range, C.memory())?;
        assert!(all_at(&world, range, C.memory()));
        migrate(&mut world, range, MemoryId::HOST)?;
        world.cpu(loads(range));
        world.drive()?;
    }
    Ok(())
}

#[test]
fn scenario_13_two_cards_that_fault_on_one_page_both_progress() -> Checked {
    let mut world = World::new(Setup::plain(&[8, 8]));
    let range = world.alloc(1)?;
    let jobs = [A, B].map(|card| {
        let accesses = vec![WordAccess::increment(range.start, 1); 50];
        world.launch(card, stream(card), Script::accesses(accesses, 1))
    });
    world.drive()?;
    for job in jobs {
        assert_eq!(world.job(job?).failed, None);
    }
    assert_eq!(world.word(range.start, 1), 100);
    Ok(())
}

#[test]
fn scenario_14_ten_thousand_equal_faults_are_one_migration() -> Checked {
    let mut world = World::new(Setup::plain(&[8]));
    let range = world.alloc(1)?;
    write_all(&mut world, range)?;
    let job = world.launch(A, StreamId(0), Script::default().lingering())?;
    world.drive()?;
    world.raise(job, &vec![WordAccess::increment(range.start, 0); 10_000])?;
    world.drive()?;
    let stats = world.driver.stats();
    assert_eq!(stats.by_direction().host_to_card, 1);
    assert_eq!(stats.card_faults, 10_000);
    assert_eq!(world.word(range.start, 0), 10_001);
    Ok(())
}

#[test]
fn scenario_17_a_wild_address_fails_only_its_job() -> Checked {
    let mut world = World::new(Setup::plain(&[8]));
    let range = world.alloc(2)?;
    let wild = [WordAccess::load(range.end().offset(40), 0), WordAccess::load(PageNo(3), 0)];
    for address in wild {
        let bad = world.launch(A, StreamId(0), Script::accesses([address], 1))?;
        let good = world.launch(A, StreamId(1), Script::accesses(writes(range), 2))?;
        world.drive()?;
        let failed = Some(JobFailure::Cancelled(CancelReason::Unallocated));
        assert_eq!(world.job(bad).failed, failed);
        assert_eq!(world.job(good).failed, None);
    }
    let nearest = world.driver.nearest(VirtAddr(range.end().addr().0 + 8)).expect("an allocation");
    // The first byte past an allocation is 1 away: 0 is inside.
    assert_eq!((nearest.object.range, nearest.distance), (range, 9));
    Ok(())
}

#[test]
fn scenario_17_a_wild_access_of_the_cpu_ends_with_an_error_and_a_later_allocation_is_clean()
-> Checked {
    let mut world = World::new(Setup::plain(&[8]));
    let range = world.alloc(2)?;
    write_all(&mut world, range)?;
    assert!(world.ask(Request::Free { addr: range.start.addr() })?.is_ok());
    world.cpu([WordAccess::load(range.start, 0)]);
    world.drive()?;
    assert_eq!(world.cpu_errors(), [range.start]);
    let again = world.alloc(2)?;
    assert_eq!(again, range, "the first gap is given again");
    world.cpu(loads(again));
    world.drive()?;
    assert_eq!(world.cpu_errors().len(), 1);
    Ok(())
}

#[test]
fn scenario_18_a_page_that_moves_between_service_and_replay_is_served_again() -> Checked {
    for pause in 0..30 {
        let mut world = World::new(Setup::plain(&[8, 8]));
        let range = world.alloc(1)?;
        let job = world.launch(A, StreamId(0), Script::default().lingering())?;
        world.drive()?;
        world.give_work(job, vec![WordAccess::increment(range.start, 0); 3]);
        for _ in 0..pause {
            world.step()?;
        }
        let away = world.request(Request::Migrate { range, to: B.memory() })?;
        write_all(&mut world, range)?;
        assert!(matches!(world.answer(away), Some(Ok(_))), "{:?}", world.answer(away));
        assert_eq!(world.job(job).failed, None);
        assert_eq!(world.word(range.start, 0), 4, "pause of {pause} steps");
    }
    Ok(())
}

#[test]
fn scenario_19_a_three_way_fight_is_throttled_pinned_released_and_named() -> Checked {
    let mut setup = Setup::plain(&[8, 8]);
    setup.config.thrash.pin_for = Span::from_micros(5_000);
    let mut world = World::new(setup);
    let range = world.alloc(4)?;
    let page = range.start.offset(2);
    for card in [A, B] {
        let accesses = vec![WordAccess::increment(page, 0); 400];
        world.launch(card, stream(card), Script::accesses(accesses, 1))?;
    }
    world.cpu(vec![WordAccess::increment(page, 0); 400]);
    world.drive()?;
    assert_eq!(world.word(page, 0), 1200);
    let stats = world.driver.stats();
    assert!(stats.throttles > 0, "{stats:?}");
    assert!(stats.thrash_pins > 0, "{stats:?}");
    let fights = world.driver.fights();
    let fight = fights.first().expect("a fight is named");
    assert_eq!((fight.page, fight.agents.len()), (page, 3));
    assert!(fight.throttles > 0 && fight.pins > 0);
    assert!(stats.migrations < 400, "the fight is damped: {stats:?}");

    world.wait(Span::from_millis(50))?;
    world.launch(A, stream(A), Script::accesses([WordAccess::increment(page, 0)], 1))?;
    world.drive()?;
    assert_eq!(world.driver.page(page).owner, Some(A.memory()), "the pin is over");
    Ok(())
}

#[test]
fn scenario_26_a_lost_card_takes_its_pages_and_nothing_else() -> Checked {
    let mut world = World::new(Setup::plain(&[16, 16]));
    let range = world.alloc(6)?;
    write_all(&mut world, range)?;
    migrate(&mut world, sub(range, 0, 2), A.memory())?;
    world.launch(A, stream(A), Script::accesses(writes(sub(range, 0, 2)), 1))?;
    migrate(&mut world, sub(range, 2, 2), B.memory())?;
    let running = world.launch(A, stream(A), Script::default().lingering())?;
    world.drive()?;
    let waiting = world.launch(A, stream(A), Script::accesses(loads(range), 1))?;
    world.lose_card(A)?;
    world.drive()?;
    assert_eq!(world.job(running).failed, Some(JobFailure::CardGone));
    assert_eq!(world.job(waiting).state, JobState::Dropped);
    assert!(world.news.contains(&Reply::JobDropped { job: waiting }));
    let states: Vec<PageState> = range.pages().map(|page| world.driver.page(page).state).collect();
    assert_eq!(&states[..2], [PageState::Lost; 2]);
    assert!(!states[2..].contains(&PageState::Lost));

    world.cpu(loads(range));
    let job = world.launch(B, stream(B), Script::accesses(loads(sub(range, 1, 1)), 1))?;
    world.drive()?;
    assert_eq!(world.cpu_errors(), [range.start, range.start.offset(1)]);
    assert_eq!(world.job(job).failed, Some(JobFailure::Cancelled(CancelReason::Lost)));
    let answer = world.ask(Request::Migrate { range: sub(range, 0, 1), to: B.memory() })?;
    assert!(matches!(answer, Err(RequestError::Lost { .. })), "{answer:?}");
    let answer = world.ask(Request::Migrate { range: sub(range, 2, 1), to: A.memory() })?;
    assert!(matches!(answer, Err(RequestError::NoSuchMemory { .. })), "{answer:?}");
    assert!(world.ask(Request::Free { addr: range.start.addr() })?.is_ok());
    let again = world.alloc(6)?;
    world.cpu(loads(again));
    world.drive()?;
    assert_eq!(world.cpu_errors().len(), 2);
    Ok(())
}

#[test]
fn scenario_26_a_page_with_a_clean_copy_survives_its_card() -> Checked {
    let mut setup = Setup::plain(&[16, 16]);
    setup.scheme = "duplication".to_owned();
    let mut world = World::new(setup);
    let range = world.alloc(2)?;
    write_all(&mut world, range)?;
    for card in [A, B] {
        world.launch(card, stream(card), Script::accesses(loads(range), 1))?;
    }
    world.drive()?;
    world.lose_card(A)?;
    write_all(&mut world, range)?;
    assert!(world.cpu_errors().is_empty());
    assert_eq!(world.word(range.start, 0), 2);
    Ok(())
}

#[test]
fn scenario_28_a_copy_that_fails_half_way_harms_nothing_and_works_the_next_time() -> Checked {
    for k in [0, 3, 7] {
        let mut world = World::new(Setup::plain(&[8]));
        let range = world.alloc(8)?;
        write_all(&mut world, range)?;
        world.plan([Fate::Fails(k); 16]);
        let id = world.request(Request::Migrate { range, to: A.memory() })?;
        world.drive()?;
        let answer = world.answer(id);
        assert!(matches!(answer, Some(Err(RequestError::CopyFailed { .. }))), "{answer:?}");
        assert!(all_at(&world, range, MemoryId::HOST));
        assert!(world.driver.stats().rollbacks >= 1);
        world.unplan();
        write_all(&mut world, range)?;
        // The card has 8 frames: if one had been kept, 8 pages would not fit.
        migrate(&mut world, range, A.memory())?;
        assert!(all_at(&world, range, A.memory()));
        assert_eq!(world.word(range.start, 0), 2);
    }
    Ok(())
}

#[test]
fn scenario_28_a_fault_is_tried_again_but_not_for_ever() -> Checked {
    let mut world = World::new(Setup::plain(&[8]));
    let range = world.alloc(1)?;
    write_all(&mut world, range)?;
    world.plan([Fate::Fails(0)]);
    let lucky = world.launch(A, StreamId(0), Script::accesses(writes(range), 1))?;
    world.drive()?;
    assert_eq!(world.job(lucky).failed, None);

    migrate(&mut world, range, MemoryId::HOST)?;
    world.plan([Fate::Fails(0); 100]);
    let unlucky = world.launch(A, StreamId(0), Script::accesses(writes(range), 1))?;
    world.drive()?;
    let failed = Some(JobFailure::Cancelled(CancelReason::CopyFailed));
    assert_eq!(world.job(unlucky).failed, failed);
    world.unplan();
    let again = world.launch(A, StreamId(0), Script::accesses(writes(range), 1))?;
    world.drive()?;
    assert_eq!(world.job(again).failed, None);
    assert_eq!(world.word(range.start, 0), 3);
    Ok(())
}

#[test]
fn scenario_29_frames_of_a_copy_without_an_answer_stay_out_of_use_until_a_reset() -> Checked {
    let mut world = World::new(Setup::with_dma(&[8], true));
    let range = world.alloc(8)?;
    write_all(&mut world, range)?;
    world.plan([Fate::Silent]);
    let id = world.request(Request::Migrate { range: sub(range, 0, 4), to: A.memory() })?;
    // As far as the driver's time limit, not as far as the late answer.
    while world.answer(id).is_none() {
        world.step()?;
    }
    assert!(matches!(world.answer(id), Some(Err(_))), "{:?}", world.answer(id));
    let second = world.request(Request::Migrate { range, to: A.memory() })?;
    while world.answer(second).is_none() {
        world.step()?;
    }
    assert!(matches!(world.answer(second), Some(Err(_))), "8 pages in the 4 frames that are left");
    world.reset_card(A)?;
    world.drive()?;
    migrate(&mut world, range, A.memory())?;
    assert!(all_at(&world, range, A.memory()));
    Ok(())
}

#[test]
fn scenario_29_a_card_that_does_not_drain_is_named_and_its_reset_ends_it() -> Checked {
    let mut world = World::new(Setup::plain(&[8]));
    let range = world.alloc(2)?;
    let job = world.launch(A, StreamId(0), Script::accesses(writes(range), 1).lingering())?;
    world.drive()?;
    world.stall_card(A);
    world.cpu(loads(range));
    while !world.news.iter().any(|news| matches!(news, Reply::CardSuspect { card: A, .. })) {
        assert!(world.step()?, "the driver never says that the card is suspect");
    }
    world.drive()?;
    assert_eq!(world.job(job).failed, Some(JobFailure::CardGone));
    assert_eq!(world.cpu_errors().len(), 2, "the bytes went with the reset");
    let fresh = world.alloc(8)?;
    migrate(&mut world, fresh, A.memory())
}

#[test]
fn scenario_31_a_full_card_evicts_and_nothing_is_lost() -> Checked {
    for setup in [Setup::plain(&[8]), Setup::with_dma(&[8], false)] {
        let mut world = World::new(setup);
        let range = world.alloc(20)?;
        for _ in 0..3 {
            world.launch(A, StreamId(0), Script::accesses(writes(range), 4))?;
        }
        world.drive()?;
        assert!(range.pages().all(|page| world.word(page, 0) == 3));
        assert!(world.driver.stats().evictions >= 12);
        world.cpu(loads(range));
        world.drive()?;
    }
    Ok(())
}

#[test]
fn scenario_31_a_fragmented_card_still_serves() -> Checked {
    let mut world = World::new(Setup::plain(&[8]));
    let range = world.alloc(12)?;
    write_all(&mut world, range)?;
    migrate(&mut world, sub(range, 0, 8), A.memory())?;
    for odd in [1, 3, 5, 7] {
        migrate(&mut world, sub(range, odd, 1), MemoryId::HOST)?;
    }
    migrate(&mut world, sub(range, 8, 4), A.memory())?;
    assert!(all_at(&world, sub(range, 8, 4), A.memory()));
    assert!([0, 2, 4, 6].iter().all(|&i| all_at(&world, sub(range, i, 1), A.memory())));
    assert_eq!(world.driver.stats().evictions, 0, "there was room for all");
    Ok(())
}

#[test]
fn scenario_31_a_copy_that_fails_while_a_full_card_evicts_rolls_back() -> Checked {
    for failing in 0..4 {
        let mut setup = Setup::plain(&[8]);
        setup.config.limits.evict_pages = 2;
        let mut world = World::new(setup);
        let range = world.alloc(16)?;
        write_all(&mut world, range)?;
        migrate(&mut world, sub(range, 0, 8), A.memory())?;
        world.launch(A, StreamId(0), Script::accesses(writes(sub(range, 0, 8)), 4))?;
        world.drive()?;
        let fates = (0..failing).map(|_| Fate::Well).chain([Fate::Fails(0)]);
        world.plan(fates);
        world.ask(Request::Migrate { range: sub(range, 8, 8), to: A.memory() })?.ok();
        world.unplan();
        migrate(&mut world, sub(range, 8, 8), A.memory())?;
        world.cpu(loads(range));
        world.drive()?;
    }
    Ok(())
}

#[test]
fn scenario_31_what_cannot_fit_is_refused_and_stays_where_it_is() -> Checked {
    let mut world = World::new(Setup::plain(&[8]));
    let range = world.alloc(12)?;
    write_all(&mut world, range)?;
    let too_large = Request::Migrate { range: sub(range, 0, 9), to: A.memory() };
    let answer = world.ask(too_large)?;
    assert!(matches!(answer, Err(RequestError::DoesNotFit { .. })), "{answer:?}");
    assert!(all_at(&world, range, MemoryId::HOST));
    assert!(world.ask(Request::Pin { range: sub(range, 0, 6), at: A.memory() })?.is_ok());
    let beside_pins = Request::Migrate { range: sub(range, 6, 3), to: A.memory() };
    let answer = world.ask(beside_pins)?;
    assert!(matches!(answer, Err(RequestError::DoesNotFit { pinned: 6, .. })), "{answer:?}");
    migrate(&mut world, sub(range, 6, 2), A.memory())
}

#[test]
fn an_eviction_never_takes_a_pinned_page() -> Checked {
    let mut world = World::new(Setup::plain(&[8]));
    let range = world.alloc(24)?;
    let pinned = sub(range, 0, 5);
    assert!(world.ask(Request::Pin { range: pinned, at: A.memory() })?.is_ok());
    let job = world.launch(A, StreamId(0), Script::accesses(writes(range), 3))?;
    world.drive()?;
    assert_eq!(world.job(job).failed, None);
    assert!(all_at(&world, pinned, A.memory()));
    let elsewhere = world.ask(Request::Migrate { range: pinned, to: MemoryId::HOST })?;
    assert!(matches!(elsewhere, Err(RequestError::Pinned { .. })), "{elsewhere:?}");
    assert!(world.ask(Request::Unpin { range: pinned })?.is_ok());
    let twice = world.ask(Request::Unpin { range: pinned })?;
    assert!(matches!(twice, Err(RequestError::NotPinned { .. })), "{twice:?}");
    migrate(&mut world, pinned, MemoryId::HOST)
}

#[test]
fn a_card_full_of_pinned_pages_says_so() -> Checked {
    let mut world = World::new(Setup::with_dma(&[8], false));
    let range = world.alloc(12)?;
    assert!(world.ask(Request::Pin { range: sub(range, 0, 8), at: A.memory() })?.is_ok());
    world.cpu(writes(sub(range, 8, 1)));
    world.drive()?;
    let accesses = writes(sub(range, 8, 1));
    let job = world.launch(A, StreamId(0), Script::accesses(accesses, 1))?;
    world.drive()?;
    let failed = world.job(job).failed;
    let mapped = failed.is_none() && world.driver.page(range.start.offset(8)).owner.is_some();
    let refused = failed == Some(JobFailure::Cancelled(CancelReason::OutOfMemory));
    assert!(mapped || refused, "{failed:?}");
    Ok(())
}

#[test]
fn scenario_32_ranges_that_make_no_sense_are_refused_and_do_nothing() -> Checked {
    let mut world = World::new(Setup::plain(&[8]));
    let (first, second) = (world.alloc(4)?, world.alloc(4)?);
    write_all(&mut world, first)?;
    write_all(&mut world, second)?;
    let to = A.memory();
    let empty = world.ask(Request::Migrate { range: sub(first, 0, 0), to })?;
    assert!(matches!(empty, Err(RequestError::EmptyRange)), "{empty:?}");
    for range in [
        PageRange::new(PageNo(u64::MAX), 1),
        PageRange::new(PageNo(u64::MAX - 1), 7),
        PageRange::new(first.start, u64::MAX),
        PageRange::new(PageNo(first.start.0 - 1), 2),
        PageRange::new(second.start, 5),
    ] {
        let answer = world.ask(Request::Migrate { range, to })?;
        assert!(matches!(answer, Err(RequestError::Unallocated { .. })), "{range:?}: {answer:?}");
        let answer = world.ask(Request::Unpin { range })?;
        assert!(answer.is_err(), "{range:?}");
    }
    assert!(all_at(&world, first, MemoryId::HOST) && all_at(&world, second, MemoryId::HOST));

    let inside = VirtAddr(first.start.addr().0 + PAGE_SIZE as u64);
    for addr in [inside, VirtAddr(first.start.addr().0 + 1), VirtAddr(0), VirtAddr(u64::MAX)] {
        let answer = world.ask(Request::Free { addr })?;
        assert!(matches!(answer, Err(RequestError::NotAnAllocation { .. })), "{answer:?}");
    }
    let name: Arc<str> = Arc::from("none");
    let nothing = world.ask(Request::Alloc { bytes: 0, name: name.clone() })?;
    assert!(matches!(nothing, Err(RequestError::EmptyAllocation)), "{nothing:?}");
    let all = world.ask(Request::Alloc { bytes: u64::MAX, name })?;
    assert!(matches!(all, Err(RequestError::OutOfAddressSpace { .. })), "{all:?}");
    let nowhere = world.ask(Request::Migrate { range: first, to: MemoryId(9) })?;
    assert!(matches!(nowhere, Err(RequestError::NoSuchMemory { .. })), "{nowhere:?}");
    Ok(())
}

#[test]
fn scenario_32_a_range_may_reach_over_allocations_that_touch() -> Checked {
    let mut world = World::new(Setup::plain(&[16]));
    let (first, second) = (world.alloc(4)?, world.alloc(4)?);
    write_all(&mut world, first)?;
    if first.end() == second.start {
        let across = PageRange::new(first.start.offset(2), 4);
        migrate(&mut world, across, A.memory())?;
        assert!(all_at(&world, across, A.memory()));
    }
    let odd = world.ask(Request::Alloc { bytes: PAGE_SIZE as u64 + 1, name: Arc::from("") })?;
    assert!(matches!(odd, Ok(Outcome::Allocated(range)) if range.count == 2), "{odd:?}");
    Ok(())
}

#[test]
fn scenario_37_disjoint_migrations_go_in_parallel() -> Checked {
    let mut world = World::new(Setup::plain(&[16, 16]));
    let range = world.alloc(16)?;
    write_all(&mut world, range)?;
    world.record = true;
    let (low, high) = (sub(range, 0, 8), sub(range, 8, 8));
    world.request(Request::Migrate { range: low, to: A.memory() })?;
    world.request(Request::Migrate { range: high, to: B.memory() })?;
    let begun = |part: PageRange| {
        let mut runs = world.commands.iter().flat_map(|command| command.runs());
        runs.any(|run| run.pages().overlaps(part))
    };
    assert!(begun(low) && begun(high), "the second waits for the first");
    world.drive()?;
    assert!(all_at(&world, low, A.memory()) && all_at(&world, high, B.memory()));
    Ok(())
}

#[test]
fn scenario_38_cards_that_each_hold_half_of_what_the_other_wants_both_end() -> Checked {
    for setup in [Setup::plain(&[8, 8]), Setup::with_dma(&[8, 8], false)] {
        let mut world = World::new(setup);
        let range = world.alloc(8)?;
        let both = [sub(range, 0, 4), sub(range, 4, 4)];
        let group = |order: [usize; 2]| {
            let ranges = order.map(|i| (both[i], Access::Write)).to_vec();
            let steps = vec![JobStep::Group(ranges); 30];
            Script { steps: steps.into(), width: 1, lingers: false }
        };
        let a = world.launch(A, stream(A), group([0, 1]))?;
        let b = world.launch(B, stream(B), group([1, 0]))?;
        world.drive()?;
        assert_eq!((world.job(a).failed, world.job(b).failed), (None, None));
    }
    Ok(())
}

#[test]
fn a_group_that_can_never_be_resident_at_once_fails_its_job() -> Checked {
    let mut world = World::new(Setup::plain(&[8]));
    let range = world.alloc(10)?;
    let job = world.launch(A, StreamId(0), Script::group(vec![(range, Access::Write)]))?;
    world.drive()?;
    let failed = Some(JobFailure::Cancelled(CancelReason::GroupTooLarge));
    assert_eq!(world.job(job).failed, failed);
    Ok(())
}

#[test]
fn launches_of_a_stream_keep_their_order_and_other_streams_do_not_wait() -> Checked {
    let mut world = World::new(Setup::plain(&[8, 8]));
    let first = world.launch(A, StreamId(1), Script::default().lingering())?;
    let second = world.launch(B, StreamId(1), Script::default())?;
    let other = world.launch(A, StreamId(2), Script::default())?;
    world.drive()?;
    assert_eq!(world.job(first).state, JobState::Running);
    assert_eq!(world.job(second).state, JobState::Asked);
    assert_eq!(world.job(other).state, JobState::Done);
    let third = world.launch(A, StreamId(1), Script::default())?;
    world.cancel_job(third)?;
    world.drive()?;
    assert_eq!(world.job(third).state, JobState::Dropped);
    world.stop_job(first);
    world.drive()?;
    assert_eq!(world.job(second).state, JobState::Done);
    Ok(())
}

#[test]
fn a_free_during_a_move_wins_and_the_request_says_so() -> Checked {
    for pause in 0..12 {
        let mut world = World::new(Setup::plain(&[16]));
        let range = world.alloc(8)?;
        write_all(&mut world, range)?;
        let moving = world.request(Request::Migrate { range, to: A.memory() })?;
        for _ in 0..pause {
            world.step()?;
        }
        let freed = world.ask(Request::Free { addr: range.start.addr() })?;
        assert!(freed.is_ok(), "{freed:?}");
        let answer = world.answer(moving);
        let fits = matches!(answer, Some(Ok(_) | Err(RequestError::Freed { .. })));
        assert!(fits, "pause of {pause} steps: {answer:?}");
        let again = world.alloc(16)?;
        migrate(&mut world, again, A.memory())?;
        world.cpu(loads(again));
        world.drive()?;
    }
    Ok(())
}

#[test]
fn an_access_to_freed_memory_fails_its_job() -> Checked {
    let mut world = World::new(Setup::plain(&[16]));
    let range = world.alloc(4)?;
    let job = world.launch(A, StreamId(0), Script::accesses(writes(range), 1).lingering())?;
    world.drive()?;
    assert!(world.ask(Request::Free { addr: range.start.addr() })?.is_ok());
    world.give_work(job, loads(range));
    world.drive()?;
    let failed = world.job(job).failed;
    assert_eq!(failed, Some(JobFailure::Cancelled(CancelReason::Unallocated)));
    Ok(())
}

#[test]
fn a_first_write_after_a_clean_copy_is_a_cheap_second_fault() -> Checked {
    let mut world = World::new(Setup::plain(&[8]));
    let range = world.alloc(1)?;
    write_all(&mut world, range)?;
    let reads = Script::accesses(loads(range), 1).lingering();
    let job = world.launch(A, StreamId(0), reads)?;
    world.drive()?;
    assert_eq!(world.driver.page(range.start).copies.len(), 2, "the host's frame is kept");
    let moved = world.driver.stats().moves.clone();
    world.give_work(job, writes(range));
    world.drive()?;
    let stats = world.driver.stats();
    assert_eq!(stats.moves, moved, "nothing is copied for it");
    assert_eq!(stats.protection_faults, 1);
    assert_eq!(world.driver.page(range.start).copies.len(), 1);
    Ok(())
}

#[test]
fn every_move_is_in_the_history_with_its_reason() -> Checked {
    let mut world = World::new(Setup::plain(&[8]));
    let range = world.alloc(2)?;
    write_all(&mut world, range)?;
    migrate(&mut world, range, A.memory())?;
    world.cpu(loads(range));
    world.drive()?;
    let history = world.driver.history(range);
    assert!(history.iter().any(|m| m.to == A.memory() && m.reason == farside_types::Reason::User));
    assert!(history.iter().any(|m| m.to.is_host() && m.reason == farside_types::Reason::Demand));
    assert!(history.windows(2).all(|pair| pair[0].at <= pair[1].at), "newest last");
    Ok(())
}

#[test]
fn regression_freed_addresses_that_were_poisoned_are_fresh_when_they_are_allocated_again() -> Checked
{
    let mut world = World::new(Setup::plain(&[8]));
    let range = world.alloc(2)?;
    assert!(world.ask(Request::Free { addr: range.start.addr() })?.is_ok());
    world.cpu(loads(range));
    world.drive()?;
    assert_eq!(world.cpu_errors().len(), 2);
    // Wild accesses while the allocation is under way get nothing, and do no harm.
    let bytes = 2 * PAGE_SIZE as u64;
    let id = world.request(Request::Alloc { bytes, name: Arc::from("again") })?;
    let job = world.launch(A, stream(A), Script::accesses(loads(range), 1))?;
    world.cpu(loads(range));
    world.drive()?;
    assert_eq!(world.answer(id), Some(&Ok(Outcome::Allocated(range))));
    assert!(world.job(job).is_over());
    let errors = world.cpu_errors().len();
    write_all(&mut world, range)?;
    assert_eq!(world.cpu_errors().len(), errors, "the new allocation is not poisoned");
    assert_eq!(world.word(range.start, 0), 1);
    Ok(())
}

#[test]
fn regression_an_unpin_undoes_no_pin_that_is_still_under_way() -> Checked {
    let mut world = World::new(Setup::plain(&[8]));
    let range = world.alloc(2)?;
    write_all(&mut world, range)?;
    let pin = world.request(Request::Pin { range, at: A.memory() })?;
    let unpin = world.request(Request::Unpin { range })?;
    world.drive()?;
    assert!(world.answer(pin).is_some_and(Result::is_ok));
    let not_pinned = Err(RequestError::NotPinned { page: range.start });
    let refused = Some(&not_pinned);
    assert_eq!(world.answer(unpin), refused);
    assert!(world.ask(Request::Unpin { range })?.is_ok());
    assert!(!world.driver.page(range.start).pinned);
    Ok(())
}

#[test]
fn regression_pins_of_the_same_pages_take_their_frames_once() -> Checked {
    let mut world = World::new(Setup::plain(&[8]));
    let range = world.alloc(7)?;
    let pinned = sub(range, 0, 3);
    for _ in 0..2 {
        assert!(world.ask(Request::Pin { range: pinned, at: A.memory() })?.is_ok());
    }
    migrate(&mut world, sub(range, 3, 4), A.memory())
}

#[test]
fn regression_requests_that_hold_what_the_other_needs_both_succeed() -> Checked {
    let mut setup = Setup::plain(&[14]);
    setup.config.limits.chain_pages = 2;
    let mut world = World::new(setup);
    let range = world.alloc(23)?;
    write_all(&mut world, range)?;
    let (first, second) = (sub(range, 0, 11), sub(range, 11, 12));
    let ids = [
        world.request(Request::Migrate { range: first, to: A.memory() })?,
        world.request(Request::Migrate { range: second, to: A.memory() })?,
    ];
    world.drive()?;
    for id in ids {
        assert!(world.answer(id).is_some_and(Result::is_ok), "{:?}", world.answer(id));
    }
    Ok(())
}

#[test]
fn regression_a_card_that_is_lost_while_it_is_being_reset_stays_lost() -> Checked {
    let mut world = World::new(Setup::plain(&[8, 8]));
    let range = world.alloc(4)?;
    write_all(&mut world, range)?;
    let id = world.request(Request::Migrate { range, to: A.memory() })?;
    world.reset_card(A)?;
    assert!(!world.driver.is_usable(A.memory()), "the host still copies into its memory");
    world.lose_card(A)?;
    world.drive()?;
    assert!(!world.driver.is_usable(A.memory()));
    assert!(world.answer(id).is_some_and(Result::is_err));
    write_all(&mut world, range)
}

#[test]
fn regression_a_reset_card_is_usable_again_when_its_former_chains_have_ended() -> Checked {
    let mut world = World::new(Setup::plain(&[8]));
    let range = world.alloc(4)?;
    write_all(&mut world, range)?;
    let id = world.request(Request::Migrate { range, to: A.memory() })?;
    world.reset_card(A)?;
    let early = world.request(Request::Migrate { range, to: A.memory() })?;
    let refused = RequestError::NoSuchMemory { memory: A.memory() };
    assert_eq!(world.answer(early), Some(&Err(refused)));
    world.drive()?;
    assert!(world.answer(id).is_some_and(Result::is_err));
    migrate(&mut world, range, A.memory())
}

#[test]
fn regression_frames_that_a_silent_peer_may_write_are_free_again_after_its_reset() -> Checked {
    let mut setup = Setup::with_dma(&[8, 8], true);
    setup.scheme = "first-touch".to_owned();
    let mut world = World::new(setup);
    let range = world.alloc(1)?;
    world.launch(A, stream(A), Script::accesses(writes(range), 1))?;
    world.drive()?;
    world.launch(B, stream(B), Script::accesses(writes(range), 1).lingering())?;
    world.drive()?;
    assert!(world.driver.page(range.start).writers.contains(B.agent()), "B maps it remotely");
    world.stall_card(B);
    let id = world.request(Request::Free { addr: range.start.addr() })?;
    while world.news.is_empty() && world.step()? {}
    assert!(matches!(world.news[0], Reply::CardSuspect { card: B, .. }));
    world.drive()?;
    assert!(world.answer(id).is_some_and(Result::is_ok), "{:?}", world.answer(id));
    assert_eq!(world.driver.quarantined_frames(A), 0);
    assert_eq!(world.driver.free_frames(A), 8);
    Ok(())
}

#[test]
fn regression_addresses_whose_host_frames_a_silent_copy_may_write_are_not_given_out() -> Checked {
    let mut world = World::new(Setup::with_dma(&[8, 8], false));
    let range = world.alloc(2)?;
    write_all(&mut world, range)?;
    migrate(&mut world, range, A.memory())?;
    world.leave_suspects();
    world.plan([Fate::Silent]);
    let id = world.request(Request::Migrate { range, to: MemoryId::HOST })?;
    while world.answer(id).is_none() && world.step()? {}
    assert!(world.answer(id).is_some_and(Result::is_err));
    let freed = world.request(Request::Free { addr: range.start.addr() })?;
    let bytes = 2 * PAGE_SIZE as u64;
    while world.answer(freed).is_none() && world.step()? {}
    let id = world.request(Request::Alloc { bytes, name: Arc::from("next") })?;
    let Some(&Ok(Outcome::Allocated(next))) = world.answer(id) else {
        panic!("{:?}", world.answer(id));
    };
    assert!(!next.overlaps(range), "the host's frames of {range} are out of use");
    // What is there goes to another card and comes home.
    write_all(&mut world, next)?;
    migrate(&mut world, next, B.memory())?;
    world.cpu(loads(next));
    world.drive()?;
    assert_eq!(world.cpu_errors().len(), 0);
    world.reset_card(A)?;
    world.drive()?;
    assert_eq!(world.alloc(2)?, range, "after the reset they are in use again");
    Ok(())
}

#[test]
fn regression_a_bounce_buffer_that_a_silent_copy_may_write_is_not_used_before_the_reset() -> Checked
{
    let mut world = World::new(Setup::with_dma(&[8, 8], false));
    for _ in 0..3 {
        let range = world.alloc(2)?;
        write_all(&mut world, range)?;
        migrate(&mut world, range, A.memory())?;
        world.plan([Fate::Silent]);
        let id = world.request(Request::Migrate { range, to: B.memory() })?;
        while world.answer(id).is_none() && world.step()? {}
        assert!(world.answer(id).is_some_and(Result::is_err));
        world.drive()?;
    }
    assert!(world.news.iter().any(|news| matches!(news, Reply::CardSuspect { card: A, .. })));
    let fresh = world.alloc(2)?;
    migrate(&mut world, fresh, A.memory())?;
    migrate(&mut world, fresh, B.memory())
}

#[test]
fn regression_an_error_of_the_cpu_lasts_only_until_the_page_moves() -> Checked {
    let mut world = World::new(Setup::plain(&[8]));
    let range = world.alloc(1)?;
    migrate(&mut world, range, A.memory())?;
    world.plan([Fate::Fails(0); 8]);
    world.cpu(loads(range));
    world.drive()?;
    assert_eq!(world.cpu_errors(), [range.start]);
    world.unplan();
    migrate(&mut world, range, MemoryId::HOST)?;
    write_all(&mut world, range)?;
    assert_eq!(world.cpu_errors().len(), 1);
    assert_eq!(world.word(range.start, 0), 1);
    Ok(())
}

#[test]
fn regression_a_page_that_a_lost_peer_held_is_mapped_for_nobody() -> Checked {
    let mut setup = Setup::with_dma(&[8, 8], true);
    setup.scheme = "first-touch".to_owned();
    let mut world = World::new(setup);
    let range = world.alloc(2)?;
    world.launch(A, stream(A), Script::accesses(writes(range), 1))?;
    world.drive()?;
    world.launch(B, stream(B), Script::accesses(writes(range), 1).lingering())?;
    world.drive()?;
    world.lose_card(A)?;
    world.drive()?;
    assert!(all_in(&world, range, PageState::Lost));
    assert!(range.pages().all(|page| world.driver.page(page).mappers.is_empty()));
    Ok(())
}

#[test]
fn regression_a_write_to_replicas_on_a_card_that_goes_away_meanwhile_panics_nobody() -> Checked {
    let mut setup = Setup::plain(&[8, 8, 8]);
    setup.scheme = "duplication".to_owned();
    let mut world = World::new(setup);
    let range = world.alloc(2)?;
    write_all(&mut world, range)?;
    for card in [A, B, C] {
        world.launch(card, stream(card), Script::accesses(loads(range), 1).lingering())?;
    }
    world.drive()?;
    world.launch(C, StreamId(9), Script::accesses(writes(range), 2))?;
    for _ in 0..6 {
        world.step()?;
    }
    world.lose_card(A)?;
    world.drive()
}
