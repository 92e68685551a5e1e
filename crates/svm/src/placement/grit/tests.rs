//! GRIT as the paper describes it (section V), through the driver.

use farside_types::{GROUP_PAGES, PageRange};

use crate::placement::Scheme;
use crate::placement::bed::Bed;

/// A page that cards 0 and 1 touch in turn, for `faults` faults.
fn shared(text: &str, faults: u32, write: bool) -> Bed {
    let mut bed = Bed::new(text, 4, 1024, 8);
    let page = bed.page(0);
    for fault in 0..faults {
        let card = (fault % 2) as u8;
        if write { bed.write(card, page) } else { bed.read(card, page) }
    }
    bed
}

#[test]
fn every_page_starts_on_touch_and_a_private_one_stays_so() {
    let mut bed = Bed::new("grit", 4, 1024, 8);
    let page = bed.page(0);
    for _ in 0..10 {
        bed.write(2, page);
    }
    assert_eq!(bed.driver.scheme(page), Scheme::OnTouch);
    assert_eq!(bed.copies(page), [3], "in the memory of card 2");
}

#[test]
fn the_fourth_fault_changes_the_scheme() {
    let bed = shared("grit", 3, false);
    assert_eq!(bed.driver.scheme(bed.page(0)), Scheme::OnTouch);
    assert_eq!(bed.copies(bed.page(0)), [1], "the page moved to whoever touched it");
    let bed = shared("grit", 4, false);
    assert_eq!(bed.driver.scheme(bed.page(0)), Scheme::Duplication);
    assert_eq!(bed.copies(bed.page(0)), [1, 2], "the fourth fault is served by the new scheme");
}

#[test]
fn a_page_that_is_written_goes_to_access_counter_migration() {
    let bed = shared("grit", 4, true);
    let page = bed.page(0);
    assert_eq!(bed.driver.scheme(page), Scheme::AccessCounter);
    assert_eq!(bed.copies(page), [1], "it stays where it is");
    assert_eq!(bed.mapped_by(page), [0, 1], "card 1 maps it over the bus");
}

#[test]
fn one_write_among_the_faults_is_remembered() {
    let mut bed = Bed::new("grit", 4, 1024, 8);
    let page = bed.page(0);
    bed.write(0, page);
    for card in [1, 2, 3] {
        bed.read(card, page);
    }
    assert_eq!(bed.driver.scheme(page), Scheme::AccessCounter);
}

#[test]
fn the_threshold_is_a_parameter() {
    let scheme = |text, faults| {
        let bed = shared(text, faults, false);
        bed.driver.scheme(bed.page(0))
    };
    assert_eq!(scheme("grit:threshold=2", 2), Scheme::Duplication);
    assert_eq!(scheme("grit:threshold=8", 7), Scheme::OnTouch);
    assert_eq!(scheme("grit:threshold=8", 8), Scheme::Duplication);
}

#[test]
fn a_producer_and_a_consumer_stay_with_on_touch() {
    // Section VI-A on C2D: such pages see two faults.
    let mut bed = Bed::new("grit", 4, 1024, 8);
    bed.write(0, bed.page(0));
    bed.read(1, bed.page(0));
    assert_eq!(bed.driver.scheme(bed.page(0)), Scheme::OnTouch);
    assert_eq!(bed.copies(bed.page(0)), [2]);
}

#[test]
fn protection_faults_count_and_leaving_duplication_drops_the_replicas() {
    let mut bed = shared("grit", 4, false);
    let page = bed.page(0);
    // Each write is a protection fault and collapses the copies; each read makes one again.
    bed.write(0, page);
    assert_eq!(bed.copies(page), [1]);
    bed.read(1, page);
    bed.write(0, page);
    bed.read(1, page);
    assert_eq!(bed.driver.scheme(page), Scheme::AccessCounter, "the fourth fault, two were writes");
    assert_eq!(bed.copies(page), [1]);
    assert_eq!(bed.mapped_by(page), [0, 1]);
}

#[test]
fn a_read_that_ends_duplication_leaves_one_copy_with_the_reader() {
    let mut bed = shared("grit", 4, false);
    let page = bed.page(0);
    bed.write(1, page);
    for card in [0, 2, 3] {
        bed.read(card, page);
    }
    assert_eq!(bed.driver.scheme(page), Scheme::AccessCounter);
    assert_eq!(bed.copies(page), [4], "the copies of cards 0, 1 and 2 are gone");
    assert_eq!(bed.mapped_by(page), [3]);
}

#[test]
fn from_access_counter_migration_a_page_that_is_only_read_goes_to_duplication() {
    let mut bed = shared("grit", 4, true);
    let page = bed.page(0);
    for card in [2, 3] {
        bed.read(card, page);
    }
    // A counter moves it; those who had it mapped fault again.
    bed.counter(2, PageRange::new(page.align_down(GROUP_PAGES), GROUP_PAGES));
    assert_eq!(bed.copies(page), [3]);
    bed.read(0, page);
    assert_eq!(bed.driver.scheme(page), Scheme::AccessCounter);
    bed.read(1, page);
    assert_eq!(bed.driver.scheme(page), Scheme::Duplication);
}

#[test]
fn a_counter_moves_only_pages_under_access_counter_migration() {
    let mut bed = Bed::new("grit:neighbours=off", 4, 1024, 16);
    let (counted, touched) = (bed.page(0), bed.page(1));
    for fault in 0..4 {
        bed.write(fault % 2, counted);
    }
    bed.write(0, touched);
    bed.counter(1, PageRange::new(counted.align_down(GROUP_PAGES), GROUP_PAGES));
    assert_eq!(bed.copies(counted), [2]);
    assert_eq!(bed.copies(touched), [1]);
}

/// Reads pages by four cards in turn, so that each gets its scheme by itself.
fn read_by_all(bed: &mut Bed, pages: impl Iterator<Item = u64>) {
    for index in pages {
        let page = bed.page(index);
        for card in 0..4 {
            bed.read(card, page);
        }
    }
}

#[test]
fn neighbours_meet_the_predicted_scheme_at_their_next_fault() {
    let mut bed = Bed::new("grit", 4, 1024, 8);
    read_by_all(&mut bed, 0..4);
    assert_eq!(bed.driver.scheme(bed.page(7)), Scheme::OnTouch);
    read_by_all(&mut bed, 4..5);
    let last = bed.page(7);
    assert_eq!(bed.driver.scheme(last), Scheme::Duplication);
    assert_eq!(bed.copies(last), [0], "a prediction moves nothing");
    bed.read(0, last);
    bed.read(1, last);
    assert_eq!(bed.copies(last), [0, 1, 2], "two faults, two copies");
}

#[test]
fn without_the_prediction_neighbours_are_on_their_own() {
    let mut bed = Bed::new("grit:neighbours=off", 4, 1024, 8);
    read_by_all(&mut bed, 0..7);
    assert_eq!(bed.driver.scheme(bed.page(6)), Scheme::Duplication);
    assert_eq!(bed.driver.scheme(bed.page(7)), Scheme::OnTouch);
}

#[test]
fn the_same_decision_again_does_not_pull_the_neighbours_back() {
    // The example of section V-D: eight pages under access-counter migration.
    let mut bed = Bed::new("grit", 4, 1024, 8);
    for index in 0..5 {
        let page = bed.page(index);
        for card in 0..4 {
            bed.write(card, page);
        }
    }
    let schemes =
        |bed: &Bed| bed.pages.pages().map(|page| bed.driver.scheme(page)).collect::<Vec<_>>();
    assert_eq!(schemes(&bed), [Scheme::AccessCounter; 8]);
    let group = PageRange::new(bed.page(0).align_down(GROUP_PAGES), GROUP_PAGES);
    let fault_again = |bed: &mut Bed, index: u64, write: bool| {
        // A counter moves the group back and forth; whoever maps a page loses it.
        let page = bed.page(index);
        for fault in 0..4 {
            bed.counter(fault % 2, group);
            let card = 3 - fault % 2;
            if write { bed.write(card, page) } else { bed.read(card, page) }
        }
    };
    for index in 0..3 {
        fault_again(&mut bed, index, false);
    }
    let three =
        |bed: &Bed| schemes(bed).iter().filter(|&&scheme| scheme == Scheme::Duplication).count();
    assert_eq!(three(&bed), 3, "each was degraded out of the group, none of them a majority");
    fault_again(&mut bed, 4, true);
    assert_eq!(three(&bed), 3, "access-counter migration again: no check of the group");
}

#[test]
fn lookups_that_miss_the_cache_are_charged() {
    let mut bed = Bed::new("grit", 4, 1024, 8);
    bed.read(0, bed.page(0));
    assert_eq!(bed.driver.take_table_accesses(), 1);
    bed.read(1, bed.page(0));
    assert_eq!(bed.driver.take_table_accesses(), 0);
    let mut bed = Bed::new("grit:cache=off", 4, 1024, 8);
    bed.read(0, bed.page(0));
    assert_eq!(bed.driver.take_table_accesses(), 2);
}

#[test]
fn a_freed_allocation_is_forgotten() {
    let mut bed = shared("grit", 4, false);
    bed.read(0, bed.page(1));
    bed.free();
    let again = bed.allocate(8);
    assert_eq!(again, bed.pages, "the same addresses");
    assert_eq!(bed.driver.scheme(bed.page(0)), Scheme::OnTouch);
    for card in [1, 2, 3] {
        bed.read(card, bed.page(1));
    }
    assert_eq!(bed.driver.scheme(bed.page(1)), Scheme::OnTouch, "three faults of its own");
}

#[test]
fn a_fault_that_waits_for_room_counts_once() {
    let mut bed = Bed::new("grit", 2, 4, 16);
    for index in 1..5 {
        bed.write(0, bed.page(index));
    }
    // The card is full: each of these waits until another page has left.
    let page = bed.page(0);
    for card in [0, 1, 0] {
        bed.read(card, page);
        if card == 0 {
            assert!(bed.copies(page).contains(&1));
        }
        for index in 5..9 {
            bed.write(card, bed.page(index));
        }
    }
    assert_eq!(bed.driver.scheme(page), Scheme::OnTouch, "three faults");
}
