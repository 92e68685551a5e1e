//! Copies that fail or are never answered, and cards that go away.

use farside_svm::{PageState, Reply, Request, RequestError};
use farside_types::{CancelReason, MemoryId, StreamId};
use harness::{Fate, JobFailure, JobState, Script, Setup, World};

use super::{A, B, Checked, all_at, loads, migrate, stream, sub, write_all, writes};

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
