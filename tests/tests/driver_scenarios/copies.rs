//! Copies and moves: which bytes are where, in what order, and why.

use farside_svm::{Advice, Request};
use farside_types::{MemoryId, MemorySet, PageRange, Reason, StreamId};
use harness::{Fate, JobState, Script, Setup, World};

use super::{A, B, C, Checked, all_at, loads, migrate, stream, sub, write_all, writes};

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

/// With and without a third card that has a copy as well.
#[test]
fn scenario_06_what_a_card_has_read_and_another_writes_stays_there() -> Checked {
    for readers in [&[A][..], &[A, C]] {
        let mut world = World::new(Setup::with_dma(&[8, 8, 8], true).cheap_to_bring());
        let range = world.alloc(1)?;
        write_all(&mut world, range)?;
        for &card in readers {
            world.launch(card, stream(card), Script::accesses(loads(range), 1).lingering())?;
        }
        world.drive()?;
        let before = world.driver.stats().clone();
        assert_eq!(world.driver.page(range.start).copies.len() as usize, 1 + readers.len());
        world.launch(B, stream(B), Script::accesses(writes(range), 1).lingering())?;
        world.drive()?;
        let (view, stats) = (world.driver.page(range.start), world.driver.stats());
        assert_eq!((view.copies, view.owner), (MemorySet::only(A.memory()), Some(A.memory())));
        assert!(view.writers.contains(B.agent()) && view.mappers.contains(A.agent()));
        assert!(!view.mappers.contains(C.agent()));
        assert_eq!(stats.moves, before.moves, "nothing was copied");
        assert_eq!(world.word(range.start, 0), 2);
        world.launch(A, StreamId(9), Script::accesses(writes(range), 1))?;
        world.launch(C, StreamId(8), Script::accesses(loads(range), 1))?;
        world.drive()?;
        assert_eq!(world.word(range.start, 0), 3);
        assert!(world.ask(Request::Free { addr: range.start.addr() })?.is_ok());
    }
    Ok(())
}

#[test]
fn scenario_06_who_does_not_reach_the_reader_s_card_gets_what_it_writes() -> Checked {
    let mut setup = Setup::with_dma(&[8, 8, 8], true).cheap_to_bring();
    setup.config.capabilities.seclude(B);
    let mut world = World::new(setup);
    let range = world.alloc(1)?;
    write_all(&mut world, range)?;
    world.launch(A, stream(A), Script::accesses(loads(range), 1).lingering())?;
    world.drive()?;
    assert!(world.driver.page(range.start).copies.contains(A.memory()));
    world.launch(B, stream(B), Script::accesses(writes(range), 1))?;
    world.drive()?;
    let view = world.driver.page(range.start);
    assert_eq!((view.copies, view.owner), (MemorySet::only(B.memory()), Some(B.memory())));
    assert_eq!(world.word(range.start, 0), 2);
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
    let range = world.alloc(1)?;
    write_all(&mut world, range)?;
    migrate(&mut world, range, A.memory())?;
    world.cpu(loads(range));
    world.drive()?;
    let history = world.driver.history(range);
    let told: Vec<_> = history.iter().map(|m| (m.range, m.from, m.to, m.reason)).collect();
    let (home, card) = (MemoryId::HOST, A.memory());
    assert_eq!(
        told,
        [
            (range, None, home, Reason::Demand),
            (range, Some(home), card, Reason::User),
            (range, Some(card), home, Reason::Demand),
        ]
    );
    assert!(history.windows(2).all(|pair| pair[0].at <= pair[1].at), "newest last");
    Ok(())
}

/// Two cards with a direct link from the first to the second.
fn linked() -> World {
    let mut setup = Setup::with_dma(&[32, 32], false);
    setup.config.capabilities.set_link(A, B, true);
    World::new(setup)
}

#[test]
fn a_copy_that_a_direct_link_fails_goes_through_the_hosts_memory() -> Checked {
    for done in [0, 3, 11] {
        let mut world = linked();
        let range = world.alloc(12)?;
        write_all(&mut world, range)?;
        migrate(&mut world, range, A.memory())?;
        world.plan([Fate::Fails(done)]);
        migrate(&mut world, range, B.memory())?;
        assert!(all_at(&world, range, B.memory()));
        world.cpu(loads(range));
        world.drive()?;
    }
    Ok(())
}

#[test]
fn a_direct_link_that_does_not_answer_fails_the_copy_and_nothing_is_lost() -> Checked {
    let mut world = linked();
    let range = world.alloc(12)?;
    write_all(&mut world, range)?;
    migrate(&mut world, range, A.memory())?;
    world.plan([Fate::Silent]);
    assert!(world.ask(Request::Migrate { range, to: B.memory() })?.is_err());
    world.drive()?;
    world.cpu(loads(range));
    world.drive()
}
