//! What went wrong once, and must not again.

use std::sync::Arc;

use farside_svm::{
    Advice, Command, Eviction, Outcome, PageState, Reply, Request, RequestError, StepErrorKind,
};
use farside_types::{Access, MemoryId, MemorySet, PAGE_SIZE, PageRange, Span, StreamId};
use harness::{Failure, Fate, Sabotage, Script, Setup, World};

use super::{
    A, B, C, Checked, EVICTIONS, all_at, all_in, loads, migrate, stream, sub, write_all, writes,
};

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

/// A world whose card is full of pages that the program could not free: the host did not give their
/// frames back.
fn full_of_half_freed_pages(
    pinned: bool,
    eviction: Eviction,
) -> Result<(World, PageRange), Failure> {
    let mut setup = Setup::plain(&[8]);
    setup.config.eviction = eviction;
    let mut world = World::new(setup);
    let range = world.alloc(8)?;
    write_all(&mut world, range)?;
    let to = A.memory();
    let comes =
        if pinned { Request::Pin { range, at: to } } else { Request::Migrate { range, to } };
    assert!(world.ask(comes)?.is_ok());
    // The card lets go first, and then the host's frames are given back.
    world.sabotage(Sabotage { at: 1, kind: StepErrorKind::Os(12), times: u32::MAX });
    let freed = world.ask(Request::Free { addr: range.start.addr() })?;
    assert!(matches!(freed, Err(RequestError::NotReleased { .. })), "{freed:?}");
    assert!(world.end_sabotage().0.iter().all(|name| *name == "host-release"));
    assert_eq!(world.driver.free_frames(A), 0);
    Ok((world, range))
}

#[test]
fn regression_pages_whose_free_has_failed_leave_a_full_card_for_a_request() -> Checked {
    for (pinned, eviction) in
        [false, true].into_iter().flat_map(|pinned| EVICTIONS.map(|eviction| (pinned, eviction)))
    {
        let (mut world, freed) = full_of_half_freed_pages(pinned, eviction)?;
        let range = world.alloc(8)?;
        write_all(&mut world, range)?;
        migrate(&mut world, range, A.memory())?;
        assert!(all_at(&world, range, A.memory()));
        let again = world.ask(Request::Free { addr: freed.start.addr() })?;
        assert!(again.is_ok(), "{again:?}");
        world.tidy_up()?;
    }
    Ok(())
}

#[test]
fn regression_pages_whose_free_has_failed_leave_a_full_card_for_a_kernel() -> Checked {
    for eviction in EVICTIONS {
        let (mut world, _) = full_of_half_freed_pages(false, eviction)?;
        let range = world.alloc(8)?;
        let job = world.launch(A, stream(A), Script::accesses(writes(range), 1))?;
        world.drive()?;
        assert_eq!(world.job(job).failed, None);
        assert_eq!(all_at(&world, range, A.memory()), eviction == Eviction::Clock);
        world.tidy_up()?;
    }
    Ok(())
}

/// A translation that the card gets while it lets the page go too late is as good as the one that it
/// has: what it reads is nobody's until it has let go.
#[test]
fn regression_a_late_reader_that_is_mapped_the_page_again_before_it_lets_go_harms_nobody() -> Checked
{
    let mut setup = Setup::plain(&[8]);
    setup.scheme = "duplication".to_owned();
    let mut world = World::new(setup);
    let range = world.alloc(1)?;
    write_all(&mut world, range)?;
    let job = world.launch(A, stream(A), Script::accesses(loads(range), 1).lingering())?;
    world.drive()?;
    world.leave_suspects();
    // It asks for what it has, and stands still before it gets it.
    world.record = true;
    world.raise(job, &loads(range))?;
    let mapped = |command: &Command| command.name() == "card-map";
    while !world.commands.iter().any(mapped) && world.step()? {}
    world.stall_card(A);
    world.cpu(writes(range));
    while world.news.is_empty() && world.step()? {}
    assert!(matches!(world.news[..], [Reply::CardSuspect { card: A, .. }]), "{:?}", world.news);
    for _ in 0..100 {
        world.cpu(writes(range));
    }
    world.drive()?;
    assert_eq!(world.word(range.start, 0), 102);
    Ok(())
}

#[test]
fn regression_a_page_that_is_pinned_elsewhere_leaves_a_full_card() -> Checked {
    let mut world = World::new(Setup::with_dma(&[8, 8], false));
    let range = world.alloc(9)?;
    let pinned = sub(range, 0, 1);
    assert!(world.ask(Request::Pin { range: pinned, at: B.memory() })?.is_ok());
    world.launch(A, stream(A), Script::accesses(writes(pinned), 1))?;
    world.drive()?;
    assert!(all_at(&world, pinned, A.memory()), "its user does not reach it at B");
    migrate(&mut world, sub(range, 1, 8), A.memory())?;
    assert!(world.driver.page(pinned.start).pinned);
    write_all(&mut world, range)
}

/// It is at B because B does not reach A. A has it mapped there, and loses that with B's frame.
#[test]
fn regression_who_maps_its_own_pin_elsewhere_lets_go_when_it_leaves_there() -> Checked {
    let mut setup = Setup::with_dma(&[8, 8], true);
    let reached = &mut setup.config.capabilities.maps[usize::from(B.agent().0)];
    *reached = reached.without(A.memory());
    let mut world = World::new(setup);
    let range = world.alloc(9)?;
    let pinned = sub(range, 0, 1);
    assert!(world.ask(Request::Pin { range: pinned, at: A.memory() })?.is_ok());
    let advice = Advice::AccessedBy(A.agent(), true);
    world.launch(B, stream(B), Script::accesses(writes(pinned), 1))?;
    world.drive()?;
    assert!(all_at(&world, pinned, B.memory()), "its user does not reach it at A");
    assert!(world.ask(Request::Advise { range: pinned, advice })?.is_ok());
    assert!(world.driver.page(pinned.start).mappers.contains(A.agent()));
    migrate(&mut world, sub(range, 1, 8), B.memory())?;
    assert!(!all_at(&world, pinned, B.memory()));
    write_all(&mut world, range)
}

#[test]
fn regression_pages_that_cannot_go_home_keep_no_others_on_a_full_card() -> Checked {
    let mut world = World::new(Setup::with_dma(&[8], false));
    let range = world.alloc(9)?;
    let (held, last) = (sub(range, 0, 3), sub(range, 8, 1));
    write_all(&mut world, range)?;
    migrate(&mut world, sub(range, 0, 8), A.memory())?;
    world.leave_suspects();
    // Their frames on the host may be written yet.
    world.plan([Fate::Silent]);
    let id = world.request(Request::Migrate { range: held, to: MemoryId::HOST })?;
    while world.answer(id).is_none() && world.step()? {}
    assert!(world.answer(id).is_some_and(Result::is_err));
    let id = world.request(Request::Migrate { range: last, to: A.memory() })?;
    while world.answer(id).is_none() && world.step()? {}
    assert!(world.answer(id).is_some_and(Result::is_ok), "{:?}", world.answer(id));
    assert!(all_at(&world, held, A.memory()) && all_at(&world, last, A.memory()));
    world.reset_card(A)?;
    world.drive()
}

/// A card that maps the copy of another one does so still when a third card is lost with its copy.
#[test]
fn regression_who_maps_a_copy_that_is_left_keeps_it_when_a_card_is_lost() -> Checked {
    let mut setup = Setup::with_dma(&[8, 8, 8], true);
    setup.scheme = "duplication".to_owned();
    let mut world = World::new(setup);
    let range = world.alloc(1)?;
    migrate(&mut world, range, A.memory())?;
    world.launch(C, stream(C), Script::accesses(loads(range), 1).lingering())?;
    world.drive()?;
    world.cpu(loads(range));
    world.drive()?;
    let advice = Advice::Preferred(Some(A.memory()));
    assert!(world.ask(Request::Advise { range, advice })?.is_ok());
    world.launch(B, stream(B), Script::accesses(loads(range), 1).lingering())?;
    world.drive()?;
    let view = world.driver.page(range.start);
    let copies = MemorySet::only(MemoryId::HOST).with(A.memory()).with(C.memory());
    assert_eq!((view.copies, view.owner), (copies, Some(A.memory())));
    assert!(view.mappers.contains(B.agent()));
    // It may not be asked to let go without being waited for.
    world.leave_suspects();
    world.stall_card(B);
    world.lose_card(C)?;
    assert!(world.driver.page(range.start).mappers.contains(B.agent()));
    world.request(Request::Free { addr: range.start.addr() })?;
    let late = |news: &Reply| matches!(news, Reply::CardSuspect { card: B, .. });
    while !world.news.iter().any(late) && world.step()? {}
    assert!(world.news.iter().any(late), "{:?}", world.news);
    let others = world.alloc(7)?;
    migrate(&mut world, others, A.memory())?;
    world.reset_card(B)?;
    world.drive()?;
    assert_eq!(world.driver.free_frames(A), 1);
    Ok(())
}

/// A card reads the pages, and its ring stands still when it is told to map the first of them.
fn stand_still_at_the_map(world: &mut World, range: PageRange) -> Checked {
    world.leave_suspects();
    world.record = true;
    world.launch(A, stream(A), Script::accesses(loads(range), 3).lingering())?;
    let mapped = |command: &Command| command.name() == "card-map";
    while !world.commands.iter().any(mapped) && world.step()? {}
    world.stall_card(A);
    Ok(())
}

/// The card gets the page while it is told to let it go, and is late: it may read it until then.
#[test]
fn regression_a_late_reader_that_is_not_mapped_the_page_yet_harms_nobody() -> Checked {
    let mut setup = Setup::plain(&[8]);
    setup.scheme = "duplication".to_owned();
    let mut world = World::new(setup);
    let range = world.alloc(1)?;
    write_all(&mut world, range)?;
    stand_still_at_the_map(&mut world, range)?;
    world.cpu(writes(range));
    while world.news.is_empty() && world.step()? {}
    assert!(matches!(world.news[..], [Reply::CardSuspect { card: A, .. }]), "{:?}", world.news);
    for _ in 0..100 {
        world.cpu(writes(range));
    }
    world.drive()?;
    assert_eq!(world.word(range.start, 0), 102);
    Ok(())
}

/// The driver's patience ends while the ring that stood still is at the map, the replay or the unmap
/// of a page that was freed meanwhile: what the card reads until the unmap is nobody's.
#[test]
fn regression_a_late_reader_of_a_freed_page_may_read_until_its_ring_has_come_to_the_unmap()
-> Checked {
    let mut early = 0;
    for before in 0..100 {
        let setup = Setup::plain(&[8]);
        let drain = setup.config.limits.drain;
        let mut world = World::new(setup);
        let range = world.alloc(1)?;
        stand_still_at_the_map(&mut world, range)?;
        let freed = world.request(Request::Free { addr: range.start.addr() })?;
        while !world.commands.iter().any(|command| command.name() == "card-unmap") {
            assert!(world.step()?, "the card is never told to let the page go");
        }
        let microseconds = drain.as_nanos() / 1000 - before;
        world.go_on_at(A, world.now() + Span::from_micros(microseconds));
        while world.answer(freed).is_none() && world.step()? {}
        early += u64::from(world.news.is_empty());
        world.drive()?;
        assert!(matches!(world.answer(freed), Some(Ok(_))), "{:?}", world.answer(freed));
    }
    assert!((1..99).contains(&early), "{early} of 100 times the ring is early enough");
    Ok(())
}

/// A card that runs nothing is brought a copy of a page that it has mapped in another card's memory. Its ring
/// has not come to the unmap when the other card gives the frame to another page (drawn seed 4138263335).
#[test]
fn regression_an_idle_card_has_let_go_of_a_copy_that_stays_before_its_own_one_is_there() -> Checked
{
    let mut setup = Setup::plain(&[8, 8]);
    setup.scheme = "duplication".to_owned();
    let mut world = World::new(setup);
    let range = world.alloc(1)?;
    migrate(&mut world, range, A.memory())?;
    let prefer = |at| Request::Advise { range, advice: Advice::Preferred(at) };
    assert!(world.ask(prefer(Some(A.memory())))?.is_ok());
    world.launch(B, stream(B), Script::accesses(loads(range), 1))?;
    world.drive()?;
    let view = world.driver.page(range.start);
    assert_eq!((view.copies, view.owner), (MemorySet::only(A.memory()), Some(A.memory())));
    assert!(view.mappers.contains(B.agent()));
    assert!(world.ask(prefer(None))?.is_ok());
    let others = world.alloc(8)?;
    world.stall_card(B);
    world.go_on_at(B, world.now() + Span::from_micros(1000));
    let prefetch = Request::Prefetch { range, to: B.memory(), access: Access::Read };
    let prefetched = world.request(prefetch)?;
    let moved = world.request(Request::Migrate { range: others, to: A.memory() })?;
    while world.answer(moved).is_none() && world.step()? {}
    world.drive()?;
    assert!(world.answer(prefetched).is_some_and(Result::is_ok));
    assert_eq!(world.driver.page(range.start).copies, MemorySet::only(B.memory()));
    Ok(())
}
