//! Pages on loan: a card reads them first and may write them at once, and the host's bytes are good for as long as
//! it has not (invariant 48).

use farside_svm::{Command, Mutation, PageState, Reply, Request, RingOp};
use farside_types::{Access, JobId, MemoryId, PageRange, Rights, StreamId};
use harness::{Failure, Fate, Script, Setup, World};

use super::{A, B, Checked, all_at, all_in, loads, migrate, stream, sub, write_all, writes};

/// Cards that tell what they have written, and a scheme that lends whatever may be lent.
fn lending(frames: &[u32]) -> Setup {
    let mut setup = Setup::plain(frames).lending();
    setup.lends = 1000;
    setup
}

/// A world with pages that the host has written and card A has read; its kernel runs on.
fn lent(setup: Setup, pages: u64) -> Result<(World, PageRange, JobId), Failure> {
    let mut world = World::new(setup);
    let range = world.alloc(pages)?;
    write_all(&mut world, range)?;
    let script = Script::accesses(loads(range), 1).lingering();
    let job = world.launch(A, stream(A), script)?;
    world.drive()?;
    Ok((world, range, job))
}

fn moved(world: &World, from: MemoryId, to: MemoryId) -> u64 {
    world.driver.stats().moves.get(&(Some(from), to)).copied().unwrap_or(0)
}

fn came_home(world: &World) -> u64 {
    moved(world, A.memory(), MemoryId::HOST)
}

fn read_by_host(world: &mut World, range: PageRange) -> Checked {
    world.cpu(loads(range));
    world.drive()
}

#[test]
fn a_page_that_is_read_may_be_written_at_once_and_nobody_else_maps_it() -> Checked {
    let (mut world, range, job) = lent(lending(&[8]), 2)?;
    let view = world.driver.page(range.start);
    assert_eq!((view.state, view.copies.len()), (PageState::Card, 1));
    assert_eq!((view.mappers, view.writers), (view.writers, [A.agent()].into_iter().collect()));
    world.give_work(job, writes(range));
    world.drive()?;
    let stats = world.driver.stats();
    assert_eq!((stats.protection_faults, stats.lent), (0, 2), "{stats:?}");
    read_by_host(&mut world, range)?;
    let stats = world.driver.stats();
    assert_eq!((came_home(&world), stats.lent_written, stats.lent_clean), (2, 2, 0));
    assert_eq!(world.word(range.start, 0), 2);
    Ok(())
}

/// What the host has after a kernel has read it that the program lets write nothing, and the card is lost.
fn read_and_lost(setup: Setup) -> Checked {
    let mut world = World::new(setup);
    let range = world.alloc(2)?;
    write_all(&mut world, range)?;
    let script = Script::accesses(loads(range), 1).reading().lingering();
    world.launch(A, stream(A), script)?;
    world.drive()?;
    assert_eq!(moved(&world, MemoryId::HOST, A.memory()), 2);
    world.lose_card(A)?;
    assert!(
        all_in(&world, range, PageState::Host),
        "what a kernel only reads is lost with its card"
    );
    read_by_host(&mut world, range)
}

#[test]
fn what_a_kernel_only_reads_is_not_lost_with_its_card() -> Checked {
    read_and_lost(lending(&[8]))
}

#[test]
#[should_panic(expected = "is lost with its card")]
fn control_what_is_lent_to_readers_is_lost() {
    let _ = read_and_lost(lending(&[8]).mutated(Mutation::LendToReaders));
}

#[test]
fn what_a_kernel_may_write_is_lent_to_those_that_read_it_meanwhile_and_after_its_end_no_more()
-> Checked {
    let mut world = World::new(lending(&[8]));
    let range = world.alloc(3)?;
    write_all(&mut world, range)?;
    let writer = world.launch(A, stream(A), Script::default().lingering())?;
    let reads = |page| Script::accesses(loads(sub(range, page, 1)), 1).reading();
    let own = StreamId(7);
    world.launch(A, own, reads(0))?;
    world.drive()?;
    assert_eq!(world.driver.stats().lent, 1);
    world.stop_job(writer);
    world.drive()?;
    world.launch(A, own, reads(1))?;
    world.drive()?;
    assert_eq!(world.driver.stats().lent, 1, "nobody could write it");
    read_by_host(&mut world, range)
}

#[test]
fn control_without_bits_the_first_write_is_a_fault() -> Checked {
    let mut setup = lending(&[8]);
    setup.config.capabilities.tells = [].into_iter().collect();
    let (mut world, range, job) = lent(setup, 2)?;
    world.give_work(job, writes(range));
    world.drive()?;
    assert_eq!((world.driver.stats().protection_faults, world.driver.stats().lent), (2, 0));
    Ok(())
}

#[test]
fn a_lent_page_that_was_not_written_goes_home_without_a_copy() -> Checked {
    for pages in [1, 5] {
        let (mut world, range, _) = lent(lending(&[8]), pages)?;
        read_by_host(&mut world, range)?;
        let stats = world.driver.stats();
        assert_eq!((came_home(&world), stats.lent_clean), (0, pages), "{stats:?}");
        assert!(all_in(&world, range, PageState::Host));
    }
    Ok(())
}

#[test]
fn of_pages_that_go_home_together_those_are_copied_that_were_written() -> Checked {
    let (mut world, range, job) = lent(lending(&[16]), 8)?;
    world.give_work(job, [1, 4, 5].into_iter().flat_map(|page| writes(sub(range, page, 1))));
    world.drive()?;
    world.record = true;
    migrate(&mut world, range, MemoryId::HOST)?;
    assert_eq!((came_home(&world), world.driver.stats().lent_clean), (3, 5));
    let copied = world.commands.iter().filter(|command| matches!(command, Command::Transfer(..)));
    assert_eq!(copied.map(Command::pages).sum::<u64>(), 3);
    assert_eq!(world.driver.stats().by_direction().card_to_host, 3);
    read_by_host(&mut world, range)
}

#[test]
fn a_full_card_lets_lent_pages_go_without_a_copy_unless_they_were_written() -> Checked {
    let (mut world, range, job) = lent(lending(&[8]), 8)?;
    world.give_work(job, writes(sub(range, 0, 2)));
    world.drive()?;
    let more = world.alloc(24)?;
    write_all(&mut world, more)?;
    world.give_work(job, loads(more));
    world.drive()?;
    let stats = world.driver.stats().clone();
    assert!(stats.evictions >= 24, "{stats:?}");
    assert_eq!(came_home(&world) + stats.clean_departures, stats.evictions);
    assert_eq!(stats.lent_clean, stats.clean_departures);
    migrate(&mut world, range, MemoryId::HOST)?;
    assert_eq!(came_home(&world), 2, "what was written, whoever sent it home");
    read_by_host(&mut world, range)
}

#[test]
fn an_idle_card_is_not_waited_for_and_what_it_tells_too_late_is_counted() -> Checked {
    let (mut world, range, job) = lent(lending(&[8]), 2)?;
    world.give_work(job, writes(sub(range, 0, 1)));
    world.stop_job(job);
    world.drive()?;
    let before = world.trips();
    read_by_host(&mut world, range)?;
    let stats = world.driver.stats();
    assert_eq!(world.trips(), before);
    assert_eq!((came_home(&world), stats.lent_clean, stats.lent_written), (2, 0, 1));
    Ok(())
}

#[test]
fn a_loan_ends_when_its_way_home_fails() -> Checked {
    let (mut world, range, job) = lent(lending(&[8]), 4)?;
    world.give_work(job, writes(sub(range, 0, 2)));
    world.drive()?;
    // Half of a page of two is copied: the host's frame is neither the old nor the new.
    world.plan([Fate::Fails(1)]);
    assert!(world.ask(Request::Migrate { range, to: MemoryId::HOST })?.is_err());
    world.unplan();
    assert!(all_at(&world, range, A.memory()));
    // The card maps them anew, with clean bits.
    world.give_work(job, loads(range));
    world.drive()?;
    read_by_host(&mut world, range)?;
    assert_eq!((came_home(&world), world.driver.stats().lent_clean), (4, 0));
    Ok(())
}

#[test]
fn a_page_that_another_card_writes_over_the_bus_was_written() -> Checked {
    let mut setup = lending(&[8, 8]);
    setup.scheme = "access-counter".to_owned();
    let (mut world, range, _) = lent(setup, 2)?;
    let written = sub(range, 0, 1);
    world.launch(B, stream(B), Script::accesses(writes(written), 1).lingering())?;
    world.drive()?;
    assert!(world.driver.page(range.start).mappers.contains(B.agent()));
    read_by_host(&mut world, range)?;
    assert_eq!((came_home(&world), world.driver.stats().lent_clean), (1, 1));
    assert_eq!(world.word(range.start, 0), 2);
    Ok(())
}

#[test]
fn a_page_that_others_map_is_not_lent() -> Checked {
    let mut setup = lending(&[8, 8]);
    setup.scheme = "access-counter:map-host=on".to_owned();
    let (mut world, range, _) = lent(setup, 1)?;
    assert!(all_at(&world, range, MemoryId::HOST));
    world.launch(B, stream(B), Script::accesses(loads(range), 1))?;
    world.drive()?;
    assert_eq!(world.driver.stats().lent, 0);
    Ok(())
}

#[test]
fn what_the_program_has_said_comes_before_a_loan() -> Checked {
    for said in 0..3 {
        let mut world = World::new(lending(&[8]));
        let range = world.alloc(2)?;
        write_all(&mut world, range)?;
        let advice = farside_svm::Advice::ReadMostly(true);
        let request = [
            Request::Advise { range, advice },
            Request::Protect { range, rights: Rights::Read },
            Request::Pin { range, at: MemoryId::HOST },
        ];
        assert!(world.ask(request[said].clone())?.is_ok());
        world.launch(A, stream(A), Script::accesses(loads(range), 1).lingering())?;
        world.drive()?;
        assert_eq!(world.driver.stats().lent, 0, "{:?}", request[said]);
        assert!(world.driver.page(range.start).copies.contains(MemoryId::HOST));
    }
    Ok(())
}

#[test]
fn a_lent_page_whose_host_frame_was_given_back_is_copied_home() -> Checked {
    let (mut world, range, _) = lent(lending(&[8]), 3)?;
    assert!(world.ask(Request::Trim)?.is_ok());
    read_by_host(&mut world, range)?;
    assert_eq!((came_home(&world), world.driver.stats().lent_clean), (3, 0));
    Ok(())
}

#[test]
fn a_lent_page_is_lost_with_its_card_whether_it_was_written_or_not() -> Checked {
    let (mut world, range, job) = lent(lending(&[8, 8]), 2)?;
    world.give_work(job, writes(sub(range, 0, 1)));
    world.drive()?;
    world.lose_card(A)?;
    world.drive()?;
    assert!(all_in(&world, range, PageState::Lost));
    Ok(())
}

#[test]
fn a_lent_page_goes_on_to_another_card_as_one_that_was_written() -> Checked {
    let (mut world, range, job) = lent(lending(&[8, 8]), 2)?;
    world.give_work(job, writes(sub(range, 0, 1)));
    world.launch(B, stream(B), Script::accesses(loads(range), 1).lingering())?;
    world.drive()?;
    assert!(all_at(&world, range, B.memory()));
    assert_eq!(moved(&world, A.memory(), B.memory()), 2);
    // Only a page of the host's is lent.
    read_by_host(&mut world, range)?;
    assert_eq!(moved(&world, B.memory(), MemoryId::HOST), 2);
    assert_eq!(world.driver.stats().lent_clean, 0);
    Ok(())
}

#[test]
fn what_a_card_tells_of_an_unmap_that_was_given_up_is_not_believed() -> Checked {
    let (mut world, range, job) = lent(lending(&[8]), 2)?;
    world.give_work(job, writes(sub(range, 0, 1)));
    world.drive()?;
    world.stall_card(A);
    world.leave_suspects();
    world.cpu(loads(range));
    while world.news.is_empty() && world.step()? {}
    assert!(matches!(world.news[..], [Reply::CardSuspect { card: A, .. }, ..]), "{:?}", world.news);
    // It goes on, and tells of an unmap that was given up.
    world.drive()?;
    assert!(all_in(&world, range, PageState::Host));
    assert_eq!((came_home(&world), world.driver.stats().lent_clean), (2, 0));
    Ok(())
}

#[test]
fn lent_pages_are_freed_and_their_addresses_are_new() -> Checked {
    let (mut world, range, job) = lent(lending(&[8]), 4)?;
    world.give_work(job, writes(sub(range, 0, 2)));
    world.drive()?;
    world.stop_job(job);
    assert!(world.ask(Request::Free { addr: range.start.addr() })?.is_ok());
    let again = world.alloc(4)?;
    assert_eq!(again, range);
    let script = Script::accesses(loads(again), 1).lingering();
    world.launch(A, StreamId(7), script)?;
    world.drive()?;
    read_by_host(&mut world, again)
}

#[test]
fn a_group_that_holds_lent_pages_leaves_the_loan() -> Checked {
    let (mut world, range, _) = lent(lending(&[8]), 2)?;
    let more = world.alloc(2)?;
    write_all(&mut world, more)?;
    let both = vec![(range, Access::Read), (more, Access::Read)];
    world.launch(A, StreamId(7), Script::group(both))?;
    world.drive()?;
    read_by_host(&mut world, range)?;
    assert_eq!((came_home(&world), world.driver.stats().lent_clean), (0, 2));
    Ok(())
}

#[test]
fn a_running_card_is_asked_once_and_only_of_what_it_has_on_loan() -> Checked {
    let (mut world, range, job) = lent(lending(&[16]), 4)?;
    let own = world.alloc(4)?;
    world.give_work(job, writes(own));
    world.drive()?;
    world.record = true;
    migrate(&mut world, own, MemoryId::HOST)?;
    migrate(&mut world, range, MemoryId::HOST)?;
    let asked: Vec<PageRange> = world
        .commands
        .iter()
        .filter_map(|command| match command {
            Command::Ring(_, step) => match &step.op {
                RingOp::Unmap { runs, tells: true } => Some(runs[0].pages()),
                _ => None,
            },
            _ => None,
        })
        .collect();
    assert_eq!(asked, [range]);
    Ok(())
}

/// Bytes of the host's that are not the page's are seen with each rule broken that keeps them from it.
#[test]
fn controls_of_every_rule_of_loans() {
    let remote = |mutation| -> Checked {
        let mut setup = lending(&[8, 8]).mutated(mutation);
        setup.scheme = "access-counter".to_owned();
        let (mut world, range, _) = lent(setup, 2)?;
        world.launch(B, stream(B), Script::accesses(writes(range), 1).lingering())?;
        world.drive()?;
        read_by_host(&mut world, range)
    };
    assert!(remote(Mutation::IgnoreRemoteWriters).is_err());
    let written = |mutation, idle: bool| -> Checked {
        let (mut world, range, job) = lent(lending(&[8]).mutated(mutation), 2)?;
        world.give_work(job, writes(range));
        world.drive()?;
        if idle {
            world.stop_job(job);
        }
        read_by_host(&mut world, range)
    };
    assert!(written(Mutation::WrittenIsClean, false).is_err());
    assert!(written(Mutation::UntoldIsClean, true).is_err());
    assert!(written(Mutation::LentStaysMapped, false).is_err());
    let lost = || -> Checked {
        let (mut world, range, job) = lent(lending(&[8]).mutated(Mutation::LoanOutlivesCard), 2)?;
        world.give_work(job, writes(range));
        world.drive()?;
        world.lose_card(A)?;
        read_by_host(&mut world, range)
    };
    assert!(lost().is_err());
    let moved_on = || -> Checked {
        let setup = lending(&[8, 8]).mutated(Mutation::LoanOutlivesUnmap);
        let (mut world, range, job) = lent(setup, 2)?;
        world.give_work(job, writes(range));
        world.launch(B, stream(B), Script::accesses(loads(range), 1).lingering())?;
        world.drive()?;
        read_by_host(&mut world, range)
    };
    assert!(moved_on().is_err());
    let trimmed = || -> Checked {
        let (mut world, range, _) = lent(lending(&[8]).mutated(Mutation::LoanOutlivesTrim), 2)?;
        assert!(world.ask(Request::Trim)?.is_ok());
        read_by_host(&mut world, range)
    };
    assert!(trimmed().is_err());
}
