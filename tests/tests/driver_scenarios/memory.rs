//! Memory: full cards, allocations, ranges, and what is freed while it is used.

use std::sync::Arc;

use farside_svm::{Eviction, Outcome, Request, RequestError};
use farside_types::{CancelReason, MemoryId, PAGE_SIZE, PageNo, PageRange, StreamId, VirtAddr};
use harness::{Failure, Fate, JobFailure, Script, Setup, World};

use super::{A, Checked, EVICTIONS, all_at, loads, migrate, sub, write_all, writes};

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

/// A world whose card is full of pages that have not gone home when others asked for room, and what asked
/// has been refused. Nothing fails any more.
fn full_of_pages_that_did_not_leave(eviction: Eviction) -> Result<(World, PageRange), Failure> {
    let mut setup = Setup::plain(&[8]);
    setup.config.eviction = eviction;
    let mut world = World::new(setup);
    let range = world.alloc(16)?;
    let comes = sub(range, 8, 8);
    write_all(&mut world, range)?;
    migrate(&mut world, sub(range, 0, 8), A.memory())?;
    world.plan((0..64).map(|_| Fate::Fails(0)));
    let refused = world.ask(Request::Migrate { range: comes, to: A.memory() })?;
    assert!(matches!(refused, Err(RequestError::DoesNotFit { .. })), "{refused:?}");
    world.unplan();
    assert!(all_at(&world, sub(range, 0, 8), A.memory()));
    Ok((world, comes))
}

#[test]
fn pages_that_did_not_leave_a_full_card_do_so_for_the_next_request() -> Checked {
    for eviction in EVICTIONS {
        let (mut world, comes) = full_of_pages_that_did_not_leave(eviction)?;
        migrate(&mut world, comes, A.memory())?;
    }
    Ok(())
}

#[test]
fn pages_that_did_not_leave_a_full_card_do_so_for_the_next_kernel() -> Checked {
    for eviction in EVICTIONS {
        let (mut world, comes) = full_of_pages_that_did_not_leave(eviction)?;
        let job = world.launch(A, StreamId(0), Script::accesses(writes(comes), 1))?;
        world.drive()?;
        assert_eq!(world.job(job).failed, None);
        // What is used once does not stay where something else does.
        assert_eq!(all_at(&world, comes, A.memory()), eviction == Eviction::Clock);
    }
    Ok(())
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
    assert_eq!(first.end(), second.start, "this test wants neighbours");
    let across = PageRange::new(first.start.offset(2), 4);
    migrate(&mut world, across, A.memory())?;
    assert!(all_at(&world, across, A.memory()));
    let odd = world.ask(Request::Alloc { bytes: PAGE_SIZE as u64 + 1, name: Arc::from("") })?;
    assert!(matches!(odd, Ok(Outcome::Allocated(range)) if range.count == 2), "{odd:?}");
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
