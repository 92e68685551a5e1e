//! What the scheme does, through the driver.

use farside_types::{Access, CardId, GROUP_PAGES, MemoryId, PageRange, Span, Time};

use crate::KnownCosts;
use crate::Request;
use crate::placement::fixture::Fixture;
use crate::placement::{Costs, PageMode};

#[test]
fn a_write_brings_as_much_as_the_scheme_may_reach() {
    let mut fixture = Fixture::new("farside", 2, 1024, 512);
    fixture.write(0, fixture.page(5));
    assert_eq!(fixture.copies(fixture.page(4)), [0], "nobody is stopped: the page alone");
    let mut fixture = Fixture::new("farside:reach=4", 2, 1024, 512);
    fixture.write(0, fixture.page(5));
    assert_eq!(fixture.copies(fixture.page(4)), [1]);
    assert_eq!(fixture.copies(fixture.page(8)), [0]);
    let mut fixture = Fixture::new("farside:reach=512", 2, 1024, 512);
    fixture.write(0, fixture.page(5));
    assert_eq!(fixture.copies(fixture.page(15)), [1]);
    assert_eq!(fixture.copies(fixture.page(16)), [0]);
    fixture.write(0, fixture.page(16));
    fixture.write(0, fixture.page(32));
    assert_eq!(fixture.copies(fixture.page(63)), [1], "three of four groups: the fourth as well");
    let mut fixture = Fixture::new("farside:reach=512,prefetch=off", 2, 1024, 512);
    fixture.write(0, fixture.page(5));
    assert_eq!(fixture.copies(fixture.page(6)), [0]);
}

#[test]
fn what_is_read_is_copied_at_once_to_each_reader() {
    let mut fixture = Fixture::new("farside:reach=16", 4, 1024, 64);
    let page = fixture.page(0);
    fixture.read(0, page);
    fixture.read(1, page);
    assert_eq!(fixture.copies(page), [0, 1, 2]);
    assert_eq!(fixture.copies(fixture.page(9)), [0, 1, 2], "as far as the scheme may reach");
    assert_eq!(fixture.driver.page_mode(page), PageMode::Duplication);
}

#[test]
fn an_allocation_whose_readers_write_is_moved_at_once() {
    let moved = |text: &str| {
        let mut fixture = Fixture::new(text, 2, 1024, 512);
        for group in 0..8 {
            // Every other group: the subtree stays less than half full.
            let page = fixture.page(group * 2 * GROUP_PAGES);
            fixture.read(0, page);
            fixture.write(0, page);
        }
        let last = fixture.page(20 * GROUP_PAGES);
        fixture.read(0, last);
        fixture.copies(last) == [1]
    };
    assert!(moved("farside"));
    assert!(!moved("farside:objects=off"));
}

#[test]
fn data_that_is_handed_on_moves_as_a_group() {
    // The clock of the test goes a second ahead with each touch: everything has rested.
    let mut fixture = Fixture::new("farside", 2, 1024, 64);
    for page in 0..16 {
        fixture.write(0, fixture.page(page));
    }
    fixture.write(1, fixture.page(3));
    assert_eq!(fixture.copies(fixture.page(12)), [2], "the group came along");
    assert_eq!(fixture.driver.page_mode(fixture.page(12)), PageMode::OnTouch);
}

#[test]
fn a_group_that_is_fought_over_is_mapped_over_the_bus_until_a_counter_moves_it() {
    let mut fixture = Fixture::new("farside:residency_us=1000000", 2, 1024, 64);
    fixture.quick();
    let page = fixture.page(3);
    for card in [0, 1, 0, 1, 0] {
        fixture.write(card, page);
    }
    assert_eq!(fixture.driver.page_mode(page), PageMode::AccessCounter);
    let cards = fixture.mapped_by(page);
    assert_eq!(cards, [0, 1], "one of them over the bus");
    let group = PageRange::new(page.align_down(GROUP_PAGES), GROUP_PAGES);
    let before = fixture.copies(page);
    let other = 2 - before[0];
    fixture.counter(other, group);
    assert_eq!(fixture.copies(page), before, "it has not rested");
    fixture.later();
    fixture.counter(other, group);
    assert_ne!(fixture.copies(page), before);
}

#[test]
fn what_was_freed_is_unknown() {
    let mut fixture = Fixture::new("farside", 2, 1024, 64);
    fixture.write(0, fixture.page(0));
    fixture.free();
    fixture.allocate(64);
    assert_eq!(fixture.driver.page_mode(fixture.page(0)), PageMode::OnTouch);
    fixture.read(1, fixture.page(0));
    assert_eq!(fixture.driver.page_mode(fixture.page(0)), PageMode::Duplication, "never written");
}

/// A card that tells what it writes.
fn telling() -> Fixture {
    let mut fixture = Fixture::new("farside", 1, 1024, 512);
    fixture.driver.config.keep_clean_copies = true;
    fixture.driver.config.capabilities.tells = [MemoryId(1)].into_iter().collect();
    fixture
}

fn protection_faults(fixture: &Fixture) -> u64 {
    fixture.driver.stats().protection_faults
}

/// A kernel that may write all pages does this.
fn in_kernel(fixture: &mut Fixture, does: impl FnOnce(&mut Fixture)) {
    let job = fixture.launch(0);
    does(fixture);
    fixture.end(job);
}

/// A kernel reads each page, then writes it.
fn update(fixture: &mut Fixture, pages: std::ops::Range<u64>) {
    in_kernel(fixture, |fixture| {
        for index in pages {
            let page = fixture.page(index);
            fixture.read(0, page);
            fixture.write(0, page);
        }
    });
}

#[test]
fn what_is_read_and_then_written_costs_one_fault_for_rights_a_group_and_none_later() {
    let mut fixture = telling();
    update(&mut fixture, 0..48);
    assert_eq!(protection_faults(&fixture), 3);
    for _ in 0..2 {
        for index in 0..48 {
            let page = fixture.page(index);
            fixture.cpu(page, Access::Read);
        }
        update(&mut fixture, 0..48);
    }
    assert_eq!(protection_faults(&fixture), 3);
    let stats = fixture.driver.stats();
    assert_eq!((stats.lent, stats.lent_written), (3 * 48 - 3, 2 * 48 - 3), "the rest is there yet");
}

#[test]
fn an_allocation_whose_readers_write_is_lent_from_the_first_page_of_a_group_on() {
    let mut fixture = telling();
    update(&mut fixture, 0..512);
    assert_eq!(protection_faults(&fixture), 4, "so much evidence is wanted");
}

#[test]
fn what_is_only_read_is_never_lent() {
    let mut fixture = telling();
    in_kernel(&mut fixture, |fixture| {
        for index in 0..512 {
            let page = fixture.page(index);
            fixture.read(0, page);
        }
    });
    assert_eq!(fixture.driver.stats().lent, 0);
    assert_eq!(fixture.copies(fixture.page(7)), [0, 1]);
}

#[test]
fn a_group_that_came_back_as_it_went_is_copied_until_it_is_written_again() {
    let mut fixture = telling();
    update(&mut fixture, 0..16);
    let (first, second) = (fixture.page(0), fixture.page(1));
    for page in [first, second] {
        fixture.cpu(page, Access::Read);
    }
    in_kernel(&mut fixture, |fixture| fixture.read(0, first));
    assert_eq!(fixture.copies(first), [1], "lent");
    fixture.cpu(first, Access::Read);
    in_kernel(&mut fixture, |fixture| {
        fixture.read(0, first);
        assert_eq!(fixture.copies(first), [0, 1], "nobody has written it");
        fixture.write(0, first);
        fixture.read(0, second);
    });
    assert_eq!(fixture.copies(second), [1], "lent again");
}

#[test]
fn what_came_along_for_reading_is_lent_in_its_place_when_a_page_of_its_group_is_written() {
    let mut fixture = telling();
    fixture.launch(0);
    for index in 0..20 {
        let page = fixture.page(index);
        fixture.read(0, page);
    }
    let brought = fixture.brought();
    for index in [3, 7, 0, 15] {
        let page = fixture.page(index);
        fixture.write(0, page);
    }
    let stats = fixture.driver.stats();
    assert_eq!((protection_faults(&fixture), stats.lent, fixture.brought()), (1, 15, brought));
    assert_eq!(fixture.copies(fixture.page(16)), [0, 1], "another group");
    for index in 0..16 {
        let page = fixture.page(index);
        fixture.cpu(page, Access::Read);
    }
    let stats = fixture.driver.stats();
    assert_eq!((stats.lent_written, stats.lent_clean), (3, 12));
}

/// Two cards, on a machine where to bring a page costs as much as so many accesses to another memory.
fn priced(text: &str, accesses: u64) -> Fixture {
    let mut fixture = Fixture::new(text, 2, 1024, 64);
    let far = Span::from_nanos(500);
    let bring = Span(far.0 * accesses);
    fixture.driver.config.costs =
        KnownCosts::Fixed(Costs { bring, migration: bring, far, at_once: 256, ..Costs::default() });
    fixture
}

#[test]
fn what_costs_more_to_bring_than_to_reach_over_stays_where_it_is() {
    let mut fixture = priced("farside", 65);
    let (read, written) = (fixture.page(0), fixture.page(40));
    fixture.read(0, read);
    fixture.write(1, written);
    assert_eq!((fixture.copies(read), fixture.copies(written)), (vec![0], vec![0]));
    assert_eq!((fixture.mapped_by(read), fixture.mapped_by(written)), (vec![0], vec![1]));
    for (text, accesses) in [("farside", 64), ("farside:costs=off", 65)] {
        let mut fixture = priced(text, accesses);
        fixture.read(0, read);
        fixture.write(1, written);
        assert_eq!((fixture.copies(read), fixture.copies(written)), (vec![0, 1], vec![2]));
    }
}

#[test]
fn what_is_around_a_page_comes_along_where_those_who_wait_lose_less_than_a_fault() {
    let came = |text: &str, delay, saves| {
        let mut fixture = priced(text, 1);
        let KnownCosts::Fixed(costs) = &mut fixture.driver.config.costs else { unreachable!() };
        (costs.delay, costs.saves) = (Span(delay), Span(saves));
        let (read, written, last) = (fixture.page(3), fixture.page(20), fixture.page(15));
        fixture.read(0, read);
        fixture.write(0, written);
        let group = fixture.copies(last);
        assert_eq!(fixture.copies(fixture.page(16)) == [1], group == [0, 1], "both or neither");
        assert_eq!(fixture.copies(fixture.page(32)), [0], "another group");
        group == [0, 1]
    };
    assert!(came("farside", 99, 100));
    assert!(!came("farside", 100, 100));
    assert!(!came("farside:costs=off", 99, 100));
    assert!(!came("farside:prefetch=off", 99, 100));
}

#[test]
fn where_the_driver_brings_neighbours_itself_there_is_no_fault_to_save() {
    let saves = |percent| {
        let mut fixture = Fixture::untouched("farside", 1, 1024, 64);
        fixture.driver.config.costs = KnownCosts::Far(Span::from_nanos(500), 1);
        fixture.driver.config.prefetch.density_percent = percent;
        assert_eq!(fixture.driver.costs(), None, "no chain has ended");
        let chain = fixture.driver.prices.begin(Time::ZERO, 1);
        fixture.driver.prices.end(Time::ZERO + Span::from_micros(3), chain);
        fixture.driver.costs().map(|costs| costs.saves)
    };
    assert_eq!(saves(100), Some(Span::from_micros(3)));
    assert_eq!(saves(99), Some(Span(0)));
}

#[test]
fn who_copies_a_page_that_another_has_read_pays_for_no_loser() {
    let mut fixture = priced("farside", 33);
    let page = fixture.page(0);
    fixture.read(0, page);
    fixture.read(1, page);
    assert_eq!(fixture.copies(page), [0, 1, 2], "a copy takes nothing from anybody");
}

/// Where readers write, a page moves to its reader from other cards too.
#[test]
fn who_would_lose_a_page_to_a_reader_and_ask_for_it_again_counts() {
    let copies_of = |accesses| {
        let mut fixture = priced("farside", accesses);
        let page = fixture.page(0);
        fixture.read(0, page);
        for learnt in [16, 17, 18, 19].map(|index| fixture.page(index)) {
            fixture.read(0, learnt);
            fixture.write(0, learnt);
        }
        assert_eq!(fixture.copies(page), [0, 1]);
        fixture.read(1, page);
        assert!(fixture.mapped_by(page).contains(&1));
        fixture.copies(page)
    };
    assert_eq!(copies_of(32), [2], "taken");
    assert_eq!(copies_of(33), [0, 1], "reached over to");
}

#[test]
fn what_another_card_would_lose_is_reached_over_to_first_with_its_group_however_cheap_it_is() {
    for access in [Access::Read, Access::Write] {
        let found = |text: &str| {
            let mut fixture = priced(text, 1);
            let (page, neighbour) = (fixture.page(3), fixture.page(5));
            let (unused, elsewhere) = (fixture.page(7), fixture.page(16));
            [page, neighbour, elsewhere].into_iter().for_each(|page| fixture.write(0, page));
            match access {
                Access::Read => fixture.read(1, page),
                _ => fixture.write(1, page),
            }
            assert!(fixture.mapped_by(page).contains(&1));
            let beside =
                [neighbour, unused, elsewhere].map(|page| fixture.mapped_by(page).contains(&1));
            (fixture.copies(page), beside)
        };
        assert_eq!(found("farside"), (vec![1], [true, false, false]), "{access:?}");
        assert_eq!(found("farside:prefetch=off"), (vec![1], [false; 3]), "{access:?}");
        assert_ne!(found("farside:costs=off").0, [1], "{access:?}: brought");
    }
}

#[test]
fn what_a_card_has_read_and_another_writes_stays_there_and_is_not_copied() {
    for (text, stays) in [("farside", true), ("farside:costs=off", false)] {
        let mut fixture = priced(text, 1);
        let page = fixture.page(3);
        fixture.read(0, page);
        assert_eq!(fixture.copies(page), [0, 1], "it has a copy");
        let brought = fixture.brought();
        fixture.write(1, page);
        assert_eq!(fixture.copies(page), [if stays { 1 } else { 2 }]);
        assert_eq!(fixture.mapped_by(page), if stays { vec![0, 1] } else { vec![1] });
        assert_eq!(fixture.brought() == brought, stays, "{text}");
        fixture.read(1, fixture.page(40));
        fixture.read(0, fixture.page(40));
        fixture.write(1, fixture.page(40));
        assert_eq!(fixture.copies(fixture.page(40)), [2], "who has a copy keeps that");
    }
}

#[test]
fn a_group_goes_to_who_has_paid_for_it_and_twice_as_much_the_next_time() {
    // A group has 16 pages that another card uses as well: a move takes as long as 16 * 2 * 40 accesses, five notices, and
    // holds up 256 at once.
    let mut fixture = priced("farside", 40);
    let page = fixture.page(3);
    let group = PageRange::new(page.align_down(GROUP_PAGES), GROUP_PAGES);
    fixture.write(0, page);
    fixture.write(1, page);
    assert_eq!(fixture.copies(page), [1]);
    let notices = |fixture: &mut Fixture, card, to: [u8; 1]| {
        (1..10_000).find(|_| {
            fixture.counter(card, group);
            fixture.copies(page) == to
        })
    };
    assert_eq!(notices(&mut fixture, 1, [2]), Some(1280));
    assert_eq!(notices(&mut fixture, 0, [1]), Some(2560));
    for _ in 0..10_000 {
        fixture.counter(0, group);
        fixture.counter(1, group);
    }
    assert_eq!(fixture.copies(page), [1], "both use it alike");
}

#[test]
fn a_group_that_no_card_has_written_comes_as_a_copy_while_kernels_run() {
    // A copy of a group is worth 16 * 80 accesses, five notices.
    let mut fixture = priced("farside", 80);
    let page = fixture.page(3);
    let group = PageRange::new(page.align_down(GROUP_PAGES), GROUP_PAGES);
    let jobs = [0, 1].map(|card| fixture.launch(card));
    fixture.read(0, page);
    fixture.read(1, page);
    assert_eq!(fixture.copies(page), [0], "it is dear");
    for _ in 0..5 {
        assert_eq!(fixture.copies(page), [0]);
        fixture.counter(1, group);
    }
    assert_eq!(fixture.copies(page), [0, 2]);
    assert!(fixture.mapped_by(page).contains(&0), "who reached over to the host's goes on");
    for _ in 0..10 {
        assert_eq!(fixture.copies(page), [0, 2], "a second one costs twice as much");
        fixture.counter(0, group);
    }
    assert_eq!(fixture.copies(page), [0, 1, 2]);
    jobs.into_iter().for_each(|job| fixture.end(job));
}

#[test]
fn a_group_that_nobody_else_has_used_and_no_card_has_written_comes_when_it_has_been_paid_for_16_times()
 {
    let mut fixture = priced("farside", 80);
    let page = fixture.page(3);
    let group = PageRange::new(page.align_down(GROUP_PAGES), GROUP_PAGES);
    fixture.read(0, page);
    for _ in 0..16 * 5 {
        assert_eq!(fixture.copies(page), [0]);
        fixture.counter(0, group);
    }
    assert_eq!(fixture.copies(page), [1]);
}

/// Has a card write so many pages more than it has room for, which are all.
fn overfill(fixture: &mut Fixture, card: u8, more: u64) -> PageRange {
    let room = fixture.driver.room(CardId(card));
    let fills = fixture.allocate(u64::from(room) + more);
    fills.pages().for_each(|page| fixture.write(card, page));
    fills
}

#[test]
fn what_has_gone_from_a_full_card_is_reached_over_to_and_what_it_never_had_comes() {
    let asks_again = |text: &str| {
        let mut fixture = priced(text, 1);
        let fills = overfill(&mut fixture, 1, 1);
        let gone = fills.pages().find(|page| fixture.copies(*page) == [0]).expect("one left");
        fixture.read(1, gone);
        let left = fixture.copies(gone) == [0] && fixture.mapped_by(gone).contains(&1);
        let unknown = fixture.page(32);
        fixture.read(1, unknown);
        assert_eq!(fixture.copies(unknown), [0, 2]);
        left
    };
    assert!(asks_again("farside"));
    assert!(!asks_again("farside:costs=off"));
}

#[test]
fn what_has_gone_from_a_card_comes_back_to_it_when_there_is_room_and_may_go_again() {
    let mut fixture = priced("farside", 1);
    let first = fixture.allocate(512);
    first.pages().for_each(|page| fixture.write(1, page));
    let fills = overfill(&mut fixture, 1, 64);
    let gone = fills.pages().find(|page| fixture.copies(*page) == [0]).expect("some left");
    fixture.ask(Request::Free { addr: first.start.addr() }).unwrap();
    fixture.read(1, gone);
    assert!(fixture.copies(gone).contains(&2), "{:?}", fixture.copies(gone));
    fixture.write(1, gone);
    assert_eq!(fixture.copies(gone), [2]);
}

#[test]
fn for_a_copy_more_on_a_full_card_what_goes_for_it_is_paid_as_well() {
    let copies = |accesses, full: bool| {
        let mut fixture = priced("farside", accesses);
        let page = fixture.page(0);
        fixture.read(0, page);
        if full {
            overfill(&mut fixture, 1, 0);
        }
        fixture.read(1, page);
        fixture.copies(page)
    };
    assert_eq!(copies(32, true), [0, 1, 2]);
    assert_eq!(copies(33, true), [0, 1], "reached over to");
    assert_eq!(copies(64, false), [0, 1, 2]);
}

#[test]
fn a_reader_that_will_write_gets_the_page_alone_and_no_copy_beside_those_of_others() {
    let found = |text: &str| {
        let mut fixture = priced(text, 1);
        let (first, last) = (fixture.page(8), fixture.page(53));
        fixture.read(0, last);
        fixture.read(0, first);
        fixture.write(0, first);
        for index in [0, 16, 32] {
            let page = fixture.page(index);
            fixture.read(0, page);
            fixture.read(1, page);
            fixture.write(1, page);
        }
        fixture.read(1, last);
        fixture.copies(last)
    };
    assert_eq!(found("farside"), [2], "four readers have written");
    assert_eq!(found("farside:objects=off"), [0, 1, 2]);
}
