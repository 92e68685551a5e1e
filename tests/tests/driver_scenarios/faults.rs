//! Faults: who is served, who is told that it cannot be, and who fights.

use farside_svm::Request;
use farside_types::{Access, CancelReason, PageNo, PageRange, Rights, Span, StreamId, VirtAddr};
use harness::{Failure, JobFailure, JobStep, Script, Setup, WordAccess, World};

use super::{A, B, Checked, loads, stream, sub, write_all, writes};

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

/// 64 pages that a card has written, whose host faults bring windows of 16.
fn on_a_card_with_windows() -> Result<(World, PageRange), Failure> {
    let mut setup = Setup::plain(&[64]);
    setup.config.prefetch.host_fault_around = 16;
    let mut world = World::new(setup);
    let range = world.alloc(64)?;
    world.launch(A, StreamId(0), Script::accesses(writes(range), 1))?;
    world.drive()?;
    Ok((world, range))
}

/// Pages that the CPU reads, in this order; gives the faults, and the pages that came.
fn read_in_order(world: &mut World, pages: &[PageNo]) -> Result<(u64, u64), Failure> {
    for &page in pages {
        world.cpu([WordAccess::load(page, 0)]);
        world.drive()?;
    }
    let stats = world.driver.stats();
    Ok((stats.host_faults, stats.by_direction().card_to_host))
}

#[test]
fn a_host_that_goes_through_memory_gets_windows_and_one_that_jumps_gets_pages() -> Checked {
    let (mut world, range) = on_a_card_with_windows()?;
    let in_order: Vec<PageNo> = range.pages().collect();
    let read = read_in_order(&mut world, &in_order)?;
    assert_eq!(read, (5, 64), "a page, what is left of its window, and three windows");

    let (mut world, range) = on_a_card_with_windows()?;
    let backwards: Vec<PageNo> = range.pages().rev().collect();
    assert_eq!(read_in_order(&mut world, &backwards)?, (5, 64));

    let (mut world, range) = on_a_card_with_windows()?;
    let jumps = [40, 8, 24, 56].map(|page| range.start.offset(page));
    assert_eq!(read_in_order(&mut world, &jumps)?, (4, 4), "nothing that nobody wants");
    // Who comes back to a window wants more of it.
    let back = [range.start.offset(10), range.start.offset(3)];
    assert_eq!(read_in_order(&mut world, &back)?, (5, 4 + 15));
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

/// Two cards and the CPU increment a word of `page`, each 400 times.
fn three_fight_over(world: &mut World, page: PageNo) -> Checked {
    for card in [A, B] {
        let accesses = vec![WordAccess::increment(page, 0); 400];
        world.launch(card, stream(card), Script::accesses(accesses, 1))?;
    }
    world.cpu(vec![WordAccess::increment(page, 0); 400]);
    world.drive()?;
    assert_eq!(world.word(page, 0), 1200);
    Ok(())
}

/// Moves that a three-way fight of 1200 accesses may take.
const MOVES_MAX: u64 = 400;

#[test]
fn scenario_19_a_three_way_fight_is_throttled_pinned_released_and_named() -> Checked {
    let mut setup = Setup::plain(&[8, 8]);
    setup.config.thrash.pin_for = Span::from_micros(5_000);
    setup.config.thrash.contests = false;
    let mut world = World::new(setup);
    let page = world.alloc(4)?.start.offset(2);
    three_fight_over(&mut world, page)?;
    let stats = world.driver.stats();
    assert!(stats.throttles > 0, "{stats:?}");
    assert!(stats.thrash_pins > 0, "{stats:?}");
    let fights = world.driver.fights();
    let fight = fights.first().expect("a fight is named");
    assert_eq!((fight.page, fight.agents.len()), (page, 3));
    assert!(fight.throttles > 0 && fight.pins > 0);
    assert!(stats.migrations < MOVES_MAX, "the fight is damped: {stats:?}");

    world.wait(Span::from_millis(50))?;
    world.launch(A, stream(A), Script::accesses([WordAccess::increment(page, 0)], 1))?;
    world.drive()?;
    assert_eq!(world.driver.page(page).owner, Some(A.memory()), "the pin is over");
    Ok(())
}

#[test]
fn a_three_way_fight_over_an_allocation_is_settled_and_named() -> Checked {
    let mut setup = Setup::plain(&[8, 8]);
    setup.config.thrash.window = Span::ZERO;
    let mut world = World::new(setup);
    let page = world.alloc(4)?.start.offset(2);
    three_fight_over(&mut world, page)?;
    let (stats, fights) = (world.driver.stats(), world.driver.fights());
    assert_eq!(stats.settled_fights, 1, "{stats:?}");
    assert!(stats.migrations < MOVES_MAX, "{stats:?}");
    let fight = fights.first().expect("a fight is named");
    assert_eq!((fight.page, fight.settled), (page, 1));
    assert!(fight.agents.len() >= 2, "{fights:?}");
    Ok(())
}

/// What the bounds of the two tests above stand on.
#[test]
fn control_19_a_fight_that_nobody_damps_moves_its_page_more_often() -> Checked {
    let mut setup = Setup::plain(&[8, 8]);
    setup.config.thrash.window = Span::ZERO;
    setup.config.thrash.contests = false;
    let mut world = World::new(setup);
    let page = world.alloc(1)?.start;
    three_fight_over(&mut world, page)?;
    let stats = world.driver.stats();
    assert_eq!((stats.throttles, stats.thrash_pins), (0, 0));
    assert!(stats.migrations > MOVES_MAX, "{stats:?}");
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
            Script { steps: steps.into(), width: 1, ..Script::default() }
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
