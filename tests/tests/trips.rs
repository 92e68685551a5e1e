//! Awaited round trips to a card are the latency, so they are budgeted. Every number here is
//! exact: a chain that waits once more, or once less, fails its test.

use farside_svm::Request;
use farside_types::{CardId, JobId, MemoryId, MemorySet, PageNo, PageRange, StreamId};
use harness::{Failure, Fate, Script, Setup, WordAccess, World};

const A: CardId = CardId(0);
const B: CardId = CardId(1);

/// What a test returns: the rule that was broken, with the log.
type Checked = Result<(), Failure>;

/// Trips that `act` costs, until everything rests.
fn trips(world: &mut World, act: impl FnOnce(&mut World) -> Checked) -> Result<u64, Failure> {
    world.drive()?;
    let before = world.trips();
    act(world)?;
    world.drive()?;
    Ok(world.trips() - before)
}

fn writes(range: PageRange) -> Vec<WordAccess> {
    range.pages().map(|page| WordAccess::increment(page, 0)).collect()
}

fn loads(range: PageRange) -> Vec<WordAccess> {
    range.pages().map(|page| WordAccess::load(page, 0)).collect()
}

/// A kernel wrote the pages, and ended.
fn written_by_idle(world: &mut World, card: CardId, range: PageRange) -> Checked {
    world.launch(card, StreamId(u32::from(card.0)), Script::accesses(writes(range), 1))?;
    world.drive()
}

/// A kernel wrote the pages, and still runs.
fn written_by_running(world: &mut World, card: CardId, range: PageRange) -> Result<JobId, Failure> {
    let script = Script::accesses(writes(range), 1).lingering();
    let job = world.launch(card, StreamId(u32::from(card.0)), script)?;
    world.drive()?;
    Ok(job)
}

fn cpu_reads(page: PageNo) -> impl FnOnce(&mut World) -> Checked {
    move |world| {
        world.cpu([WordAccess::load(page, 0)]);
        Ok(())
    }
}

fn migrate(range: PageRange, to: MemoryId) -> impl FnOnce(&mut World) -> Checked {
    move |world| {
        let answer = world.ask(Request::Migrate { range, to })?;
        assert!(answer.is_ok(), "{answer:?}");
        Ok(())
    }
}

#[test]
fn a_host_fault_on_a_page_of_an_idle_card_waits_for_no_card() -> Checked {
    let mut world = World::new(Setup::plain(&[32]));
    let range = world.alloc(4)?;
    written_by_idle(&mut world, A, range)?;
    assert_eq!(trips(&mut world, cpu_reads(range.start))?, 0);
    Ok(())
}

#[test]
fn a_host_fault_on_a_page_of_a_running_card_waits_once() -> Checked {
    let mut world = World::new(Setup::plain(&[32]));
    let range = world.alloc(4)?;
    written_by_running(&mut world, A, range)?;
    assert_eq!(trips(&mut world, cpu_reads(range.start))?, 1);
    Ok(())
}

#[test]
fn a_page_on_loan_costs_no_trip_more() -> Checked {
    for (runs, expected) in [(false, 0), (true, 1)] {
        let mut setup = Setup::plain(&[32]);
        setup.lends = 1000;
        setup.config.capabilities.tells = MemorySet::only(A.memory());
        let mut world = World::new(setup);
        let range = world.alloc(4)?;
        world.cpu(writes(range));
        let read = |world: &mut World| {
            let script = Script::accesses(loads(range), 1).lingering();
            let job = world.launch(A, StreamId(0), script)?;
            world.drive()?;
            world.give_work(job, writes(range));
            if !runs {
                world.stop_job(job);
            }
            Ok(())
        };
        assert_eq!(trips(&mut world, read)?, 0);
        assert_eq!(world.driver.stats().lent, 4);
        assert_eq!(trips(&mut world, cpu_reads(range.start))?, expected);
    }
    Ok(())
}

#[test]
fn the_first_touch_of_a_page_waits_for_no_card() -> Checked {
    let mut world = World::new(Setup::plain(&[32]));
    let range = world.alloc(8)?;
    assert_eq!(trips(&mut world, cpu_reads(range.start))?, 0);
    let on_card = PageRange::new(range.start.offset(4), 4);
    let launch = |world: &mut World| written_by_idle(world, A, on_card);
    assert_eq!(trips(&mut world, launch)?, 0);
    Ok(())
}

#[test]
fn a_migration_from_the_host_to_a_card_waits_for_no_card() -> Checked {
    let mut world = World::new(Setup::plain(&[32]));
    let range = world.alloc(8)?;
    world.cpu(writes(range));
    assert_eq!(trips(&mut world, migrate(range, A.memory()))?, 0);
    Ok(())
}

#[test]
fn a_migration_to_a_running_card_waits_for_no_card() -> Checked {
    let mut world = World::new(Setup::plain(&[32]));
    let range = world.alloc(8)?;
    world.cpu(writes(range));
    world.launch(A, StreamId(0), Script::default().lingering())?;
    assert_eq!(trips(&mut world, migrate(range, A.memory()))?, 0);
    Ok(())
}

#[test]
fn a_migration_by_the_card_s_dma_waits_for_the_copy_alone() -> Checked {
    let mut world = World::new(Setup::with_dma(&[32], true));
    let range = world.alloc(8)?;
    world.cpu(writes(range));
    assert_eq!(trips(&mut world, migrate(range, A.memory()))?, 1);
    assert_eq!(trips(&mut world, migrate(range, MemoryId::HOST))?, 1);
    Ok(())
}

#[test]
fn a_demand_fault_of_a_card_waits_for_no_card() -> Checked {
    let mut world = World::new(Setup::plain(&[32]));
    let range = world.alloc(4)?;
    world.cpu(writes(range));
    let launch = |world: &mut World| written_by_running(world, A, range).map(|_| ());
    assert_eq!(trips(&mut world, launch)?, 0);
    Ok(())
}

#[test]
fn a_move_from_card_to_card_waits_only_for_a_source_that_runs() -> Checked {
    let mut world = World::new(Setup::plain(&[32, 32]));
    let range = world.alloc(4)?;
    written_by_idle(&mut world, A, range)?;
    assert_eq!(trips(&mut world, migrate(range, B.memory()))?, 0);
    assert_eq!(trips(&mut world, migrate(range, A.memory()))?, 0);
    written_by_running(&mut world, A, range)?;
    assert_eq!(trips(&mut world, migrate(range, B.memory()))?, 1);
    Ok(())
}

#[test]
fn a_bounced_copy_between_cards_waits_for_each_half() -> Checked {
    let mut world = World::new(Setup::with_dma(&[32, 32], false));
    let range = world.alloc(4)?;
    written_by_idle(&mut world, A, range)?;
    assert_eq!(trips(&mut world, migrate(range, B.memory()))?, 2);
    Ok(())
}

#[test]
fn a_refill_of_the_tlb_waits_for_nothing_and_moves_nothing() -> Checked {
    let mut world = World::new(Setup::plain(&[32]));
    let range = world.alloc(4)?;
    let job = written_by_running(&mut world, A, range)?;
    let moved = world.driver.stats().moves.clone();
    let refill = |world: &mut World| {
        world.forget(A, range.start);
        world.give_work(job, [WordAccess::increment(range.start, 0)]);
        Ok(())
    };
    assert_eq!(trips(&mut world, refill)?, 0);
    assert_eq!(world.driver.stats().refills, 1);
    assert_eq!(world.driver.stats().moves, moved);
    assert_eq!(world.word(range.start, 0), 2);
    Ok(())
}

#[test]
fn an_eviction_waits_only_for_a_card_that_runs() -> Checked {
    let mut setup = Setup::plain(&[8]);
    setup.config.limits.evict_pages = 1;
    let mut world = World::new(setup);
    let range = world.alloc(10)?;
    let (full, next) = (PageRange::new(range.start, 8), PageRange::new(range.start.offset(8), 1));
    written_by_idle(&mut world, A, full)?;
    assert_eq!(trips(&mut world, migrate(next, A.memory()))?, 0);
    assert_eq!(world.driver.stats().evictions, 1);

    let job = world.launch(A, StreamId(0), Script::default().lingering())?;
    let one_more = |world: &mut World| {
        world.give_work(job, [WordAccess::increment(range.start.offset(9), 0)]);
        Ok(())
    };
    assert_eq!(trips(&mut world, one_more)?, 1);
    assert_eq!(world.driver.stats().evictions, 2);
    Ok(())
}

#[test]
fn a_write_to_a_duplicated_page_waits_once_for_each_reader_that_runs() -> Checked {
    for (running, budget) in [(0, 0), (1, 1), (2, 2)] {
        let mut setup = Setup::plain(&[16, 16]);
        setup.scheme = "duplication".to_owned();
        let mut world = World::new(setup);
        let range = world.alloc(1)?;
        world.cpu(writes(range));
        world.drive()?;
        for card in [A, B] {
            let mut script = Script::accesses(loads(range), 1);
            if u32::from(card.0) < running {
                script = script.lingering();
            }
            world.launch(card, StreamId(u32::from(card.0)), script)?;
        }
        let write = |world: &mut World| {
            world.cpu(writes(range));
            Ok(())
        };
        assert_eq!(trips(&mut world, write)?, budget, "{running} readers run");
    }
    Ok(())
}

#[test]
fn a_free_waits_only_for_a_card_that_runs() -> Checked {
    for (runs, budget) in [(false, 0), (true, 1)] {
        let mut world = World::new(Setup::plain(&[16]));
        let range = world.alloc(4)?;
        if runs {
            written_by_running(&mut world, A, range)?;
        } else {
            written_by_idle(&mut world, A, range)?;
        }
        let free = |world: &mut World| {
            let answer = world.ask(Request::Free { addr: range.start.addr() })?;
            assert!(answer.is_ok(), "{answer:?}");
            Ok(())
        };
        assert_eq!(trips(&mut world, free)?, budget, "the card runs: {runs}");
    }
    Ok(())
}

/// A card of which both ways to the host's memory go over a link.
fn behind_link() -> Setup {
    let mut setup = Setup::plain(&[600]);
    setup.config.capabilities.put_behind_link(A);
    setup
}

/// Round trips that the driver counts for `act`, until everything rests.
fn counted(world: &mut World, act: impl FnOnce(&mut World) -> Checked) -> Result<u64, Failure> {
    world.drive()?;
    let before = world.driver.stats().awaited_trips;
    act(world)?;
    world.drive()?;
    Ok(world.driver.stats().awaited_trips - before)
}

#[test]
fn pages_on_their_way_to_a_card_behind_a_link_wait_for_no_round_trip() -> Checked {
    let mut world = World::new(behind_link());
    let range = world.alloc(300)?;
    let launch = |world: &mut World| written_by_idle(world, A, range);
    assert_eq!(counted(&mut world, launch)?, 0, "the first touch");
    assert_eq!(counted(&mut world, migrate(range, MemoryId::HOST))?, 1, "the bytes themselves");
    assert_eq!(counted(&mut world, migrate(range, A.memory()))?, 0, "the way there");
    Ok(())
}

#[test]
fn a_host_fault_on_a_page_behind_a_link_brings_a_window_in_one_round_trip() -> Checked {
    let mut world = World::new(behind_link());
    let range = world.alloc(500)?;
    written_by_idle(&mut world, A, range)?;
    let reads = |world: &mut World| {
        world.cpu(loads(range));
        Ok(())
    };
    assert_eq!(counted(&mut world, reads)?, 2, "two windows of 256 pages");
    Ok(())
}

/// Negative control: with the window of a near card.
#[test]
fn control_without_the_wider_window_a_link_costs_a_round_trip_for_every_sixteen_pages() -> Checked {
    let mut setup = behind_link();
    setup.config.capabilities.far_window_pages = 1;
    setup.config.prefetch.host_fault_around = 16;
    let mut world = World::new(setup);
    let range = world.alloc(500)?;
    written_by_idle(&mut world, A, range)?;
    let reads = |world: &mut World| {
        world.cpu(loads(range));
        Ok(())
    };
    assert_eq!(counted(&mut world, reads)?, 32);
    Ok(())
}

#[test]
fn a_direct_link_between_cards_costs_one_trip_and_two_from_when_it_has_failed() -> Checked {
    let mut setup = Setup::with_dma(&[32, 32], false);
    setup.config.capabilities.set_link(A, B, true);
    let mut world = World::new(setup);
    let one = |world: &mut World, fates: &[Fate]| {
        let range = world.alloc(4)?;
        written_by_idle(world, A, range)?;
        world.plan(fates.iter().copied());
        trips(world, migrate(range, B.memory()))
    };
    assert_eq!(one(&mut world, &[])?, 1);
    assert_eq!(one(&mut world, &[Fate::Fails(1)])?, 3, "it was tried");
    assert_eq!(one(&mut world, &[])?, 2, "it is not tried any more");
    Ok(())
}
