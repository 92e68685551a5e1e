//! What the scheme does, through the driver.

use farside_types::{GROUP_PAGES, PageRange};

use crate::placement::PageMode;
use crate::placement::fixture::Fixture;

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
