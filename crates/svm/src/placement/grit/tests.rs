//! GRIT as the paper describes it (section V), through the driver.

use farside_types::{GROUP_PAGES, PageRange};

use crate::placement::PageMode;
use crate::placement::fixture::Fixture;

/// A page that cards 0 and 1 touch in turn, for `faults` faults.
fn shared(text: &str, faults: u32, write: bool) -> Fixture {
    let mut fixture = Fixture::new(text, 4, 1024, 8);
    let page = fixture.page(0);
    for fault in 0..faults {
        let card = (fault % 2) as u8;
        if write { fixture.write(card, page) } else { fixture.read(card, page) }
    }
    fixture
}

#[test]
fn every_page_starts_on_touch_and_a_private_one_stays_so() {
    let mut fixture = Fixture::new("grit", 4, 1024, 8);
    let page = fixture.page(0);
    for _ in 0..10 {
        fixture.write(2, page);
    }
    assert_eq!(fixture.driver.page_mode(page), PageMode::OnTouch);
    assert_eq!(fixture.copies(page), [3], "in the memory of card 2");
}

#[test]
fn the_fourth_fault_changes_the_scheme() {
    let fixture = shared("grit", 3, false);
    assert_eq!(fixture.driver.page_mode(fixture.page(0)), PageMode::OnTouch);
    assert_eq!(fixture.copies(fixture.page(0)), [1], "the page moved to whoever touched it");
    let fixture = shared("grit", 4, false);
    assert_eq!(fixture.driver.page_mode(fixture.page(0)), PageMode::Duplication);
    assert_eq!(
        fixture.copies(fixture.page(0)),
        [1, 2],
        "the fourth fault is served by the new scheme"
    );
}

#[test]
fn a_page_that_is_written_goes_to_access_counter_migration() {
    let fixture = shared("grit", 4, true);
    let page = fixture.page(0);
    assert_eq!(fixture.driver.page_mode(page), PageMode::AccessCounter);
    assert_eq!(fixture.copies(page), [1], "it stays where it is");
    assert_eq!(fixture.mapped_by(page), [0, 1], "card 1 maps it over the bus");
}

#[test]
fn one_write_among_the_faults_is_remembered() {
    let mut fixture = Fixture::new("grit", 4, 1024, 8);
    let page = fixture.page(0);
    fixture.write(0, page);
    for card in [1, 2, 3] {
        fixture.read(card, page);
    }
    assert_eq!(fixture.driver.page_mode(page), PageMode::AccessCounter);
}

#[test]
fn the_threshold_is_a_parameter() {
    let scheme = |text, faults| {
        let fixture = shared(text, faults, false);
        fixture.driver.page_mode(fixture.page(0))
    };
    assert_eq!(scheme("grit:threshold=2", 2), PageMode::Duplication);
    assert_eq!(scheme("grit:threshold=8", 7), PageMode::OnTouch);
    assert_eq!(scheme("grit:threshold=8", 8), PageMode::Duplication);
}

#[test]
fn a_producer_and_a_consumer_stay_with_on_touch() {
    // Section VI-A on C2D: such pages see two faults.
    let mut fixture = Fixture::new("grit", 4, 1024, 8);
    fixture.write(0, fixture.page(0));
    fixture.read(1, fixture.page(0));
    assert_eq!(fixture.driver.page_mode(fixture.page(0)), PageMode::OnTouch);
    assert_eq!(fixture.copies(fixture.page(0)), [2]);
}

#[test]
fn protection_faults_count_and_leaving_duplication_drops_the_replicas() {
    let mut fixture = shared("grit", 4, false);
    let page = fixture.page(0);
    // Each write is a protection fault and collapses the copies; each read makes one again.
    fixture.write(0, page);
    assert_eq!(fixture.copies(page), [1]);
    fixture.read(1, page);
    fixture.write(0, page);
    fixture.read(1, page);
    assert_eq!(
        fixture.driver.page_mode(page),
        PageMode::AccessCounter,
        "the fourth fault, two were writes"
    );
    assert_eq!(fixture.copies(page), [1]);
    assert_eq!(fixture.mapped_by(page), [0, 1]);
}

#[test]
fn a_read_that_ends_duplication_leaves_one_copy_with_the_reader() {
    let mut fixture = shared("grit", 4, false);
    let page = fixture.page(0);
    fixture.write(1, page);
    for card in [0, 2, 3] {
        fixture.read(card, page);
    }
    assert_eq!(fixture.driver.page_mode(page), PageMode::AccessCounter);
    assert_eq!(fixture.copies(page), [4], "the copies of cards 0, 1 and 2 are gone");
    assert_eq!(fixture.mapped_by(page), [3]);
}

#[test]
fn from_access_counter_migration_a_page_that_is_only_read_goes_to_duplication() {
    let mut fixture = shared("grit", 4, true);
    let page = fixture.page(0);
    for card in [2, 3] {
        fixture.read(card, page);
    }
    // A counter moves it; those who had it mapped fault again.
    fixture.counter(2, PageRange::new(page.align_down(GROUP_PAGES), GROUP_PAGES));
    assert_eq!(fixture.copies(page), [3]);
    fixture.read(0, page);
    assert_eq!(fixture.driver.page_mode(page), PageMode::AccessCounter);
    fixture.read(1, page);
    assert_eq!(fixture.driver.page_mode(page), PageMode::Duplication);
}

#[test]
fn a_counter_moves_only_pages_under_access_counter_migration() {
    let mut fixture = Fixture::new("grit:neighbours=off", 4, 1024, 16);
    let (counted, touched) = (fixture.page(0), fixture.page(1));
    for fault in 0..4 {
        fixture.write(fault % 2, counted);
    }
    fixture.write(0, touched);
    fixture.counter(1, PageRange::new(counted.align_down(GROUP_PAGES), GROUP_PAGES));
    assert_eq!(fixture.copies(counted), [2]);
    assert_eq!(fixture.copies(touched), [1]);
}

/// Reads pages by four cards in turn, so that each gets its scheme by itself.
fn read_by_all(fixture: &mut Fixture, pages: impl Iterator<Item = u64>) {
    for index in pages {
        let page = fixture.page(index);
        for card in 0..4 {
            fixture.read(card, page);
        }
    }
}

#[test]
fn neighbours_meet_the_predicted_scheme_at_their_next_fault() {
    let mut fixture = Fixture::new("grit", 4, 1024, 8);
    read_by_all(&mut fixture, 0..4);
    assert_eq!(fixture.driver.page_mode(fixture.page(7)), PageMode::OnTouch);
    read_by_all(&mut fixture, 4..5);
    let last = fixture.page(7);
    assert_eq!(fixture.driver.page_mode(last), PageMode::Duplication);
    assert_eq!(fixture.copies(last), [0], "a prediction moves nothing");
    fixture.read(0, last);
    fixture.read(1, last);
    assert_eq!(fixture.copies(last), [0, 1, 2], "two faults, two copies");
}

#[test]
fn without_the_prediction_neighbours_are_on_their_own() {
    let mut fixture = Fixture::new("grit:neighbours=off", 4, 1024, 8);
    read_by_all(&mut fixture, 0..7);
    assert_eq!(fixture.driver.page_mode(fixture.page(6)), PageMode::Duplication);
    assert_eq!(fixture.driver.page_mode(fixture.page(7)), PageMode::OnTouch);
}

#[test]
fn the_same_decision_again_does_not_pull_the_neighbours_back() {
    // The example of section V-D: eight pages under access-counter migration.
    let mut fixture = Fixture::new("grit", 4, 1024, 8);
    for index in 0..5 {
        let page = fixture.page(index);
        for card in 0..4 {
            fixture.write(card, page);
        }
    }
    let schemes = |fixture: &Fixture| {
        fixture.pages.pages().map(|page| fixture.driver.page_mode(page)).collect::<Vec<_>>()
    };
    assert_eq!(schemes(&fixture), [PageMode::AccessCounter; 8]);
    let group = PageRange::new(fixture.page(0).align_down(GROUP_PAGES), GROUP_PAGES);
    let fault_again = |fixture: &mut Fixture, index: u64, write: bool| {
        // A counter moves the group back and forth; whoever maps a page loses it.
        let page = fixture.page(index);
        for fault in 0..4 {
            fixture.counter(fault % 2, group);
            let card = 3 - fault % 2;
            if write { fixture.write(card, page) } else { fixture.read(card, page) }
        }
    };
    for index in 0..3 {
        fault_again(&mut fixture, index, false);
    }
    let three = |fixture: &Fixture| {
        schemes(fixture).iter().filter(|&&scheme| scheme == PageMode::Duplication).count()
    };
    assert_eq!(three(&fixture), 3, "each was degraded out of the group, none of them a majority");
    fault_again(&mut fixture, 4, true);
    assert_eq!(three(&fixture), 3, "access-counter migration again: no check of the group");
}

#[test]
fn lookups_that_miss_the_cache_are_charged() {
    let mut fixture = Fixture::new("grit", 4, 1024, 8);
    fixture.read(0, fixture.page(0));
    assert_eq!(fixture.driver.take_table_accesses(), 1);
    fixture.read(1, fixture.page(0));
    assert_eq!(fixture.driver.take_table_accesses(), 0);
    let mut fixture = Fixture::new("grit:cache=off", 4, 1024, 8);
    fixture.read(0, fixture.page(0));
    assert_eq!(fixture.driver.take_table_accesses(), 2);
}

#[test]
fn a_freed_allocation_is_forgotten() {
    let mut fixture = shared("grit", 4, false);
    fixture.read(0, fixture.page(1));
    fixture.free();
    let again = fixture.allocate(8);
    assert_eq!(again, fixture.pages, "the same addresses");
    assert_eq!(fixture.driver.page_mode(fixture.page(0)), PageMode::OnTouch);
    for card in [1, 2, 3] {
        fixture.read(card, fixture.page(1));
    }
    assert_eq!(
        fixture.driver.page_mode(fixture.page(1)),
        PageMode::OnTouch,
        "three faults of its own"
    );
}

#[test]
fn a_fault_that_waits_for_room_counts_once() {
    let mut fixture = Fixture::new("grit", 2, 4, 16);
    for index in 1..5 {
        fixture.write(0, fixture.page(index));
    }
    // The card is full: each of these waits until another page has left.
    let page = fixture.page(0);
    for card in [0, 1, 0] {
        fixture.read(card, page);
        if card == 0 {
            assert!(fixture.copies(page).contains(&1));
        }
        for index in 5..9 {
            fixture.write(card, fixture.page(index));
        }
    }
    assert_eq!(fixture.driver.page_mode(page), PageMode::OnTouch, "three faults");
}
