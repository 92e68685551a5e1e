//! What the scheme does, through the driver.

use farside_types::{GROUP_PAGES, PageRange};

use crate::placement::Scheme;
use crate::placement::bed::Bed;

#[test]
fn a_write_brings_as_much_as_the_scheme_may_reach() {
    let mut bed = Bed::new("farside", 2, 1024, 512);
    bed.write(0, bed.page(5));
    assert_eq!(bed.copies(bed.page(4)), [0], "nobody is stopped: the page alone");
    let mut bed = Bed::new("farside:reach=4", 2, 1024, 512);
    bed.write(0, bed.page(5));
    assert_eq!(bed.copies(bed.page(4)), [1]);
    assert_eq!(bed.copies(bed.page(8)), [0]);
    let mut bed = Bed::new("farside:reach=512", 2, 1024, 512);
    bed.write(0, bed.page(5));
    assert_eq!(bed.copies(bed.page(15)), [1]);
    assert_eq!(bed.copies(bed.page(16)), [0]);
    bed.write(0, bed.page(16));
    bed.write(0, bed.page(32));
    assert_eq!(bed.copies(bed.page(63)), [1], "three of four groups: the fourth as well");
    let mut bed = Bed::new("farside:reach=512,prefetch=off", 2, 1024, 512);
    bed.write(0, bed.page(5));
    assert_eq!(bed.copies(bed.page(6)), [0]);
}

#[test]
fn what_is_read_is_copied_at_once_to_each_reader() {
    let mut bed = Bed::new("farside:reach=16", 4, 1024, 64);
    let page = bed.page(0);
    bed.read(0, page);
    bed.read(1, page);
    assert_eq!(bed.copies(page), [0, 1, 2]);
    assert_eq!(bed.copies(bed.page(9)), [0, 1, 2], "as far as the scheme may reach");
    assert_eq!(bed.driver.scheme(page), Scheme::Duplication);
}

#[test]
fn an_allocation_whose_readers_write_is_moved_at_once() {
    let moved = |text: &str| {
        let mut bed = Bed::new(text, 2, 1024, 512);
        for group in 0..8 {
            // Every other group: the subtree stays less than half full.
            let page = bed.page(group * 2 * GROUP_PAGES);
            bed.read(0, page);
            bed.write(0, page);
        }
        let last = bed.page(20 * GROUP_PAGES);
        bed.read(0, last);
        bed.copies(last) == [1]
    };
    assert!(moved("farside"));
    assert!(!moved("farside:objects=off"));
}

#[test]
fn data_that_is_handed_on_moves_as_a_group() {
    // The clock of the test goes a second ahead with each touch: everything has rested.
    let mut bed = Bed::new("farside", 2, 1024, 64);
    for page in 0..16 {
        bed.write(0, bed.page(page));
    }
    bed.write(1, bed.page(3));
    assert_eq!(bed.copies(bed.page(12)), [2], "the group came along");
    assert_eq!(bed.driver.scheme(bed.page(12)), Scheme::OnTouch);
}

#[test]
fn a_group_that_is_fought_over_is_mapped_over_the_bus_until_a_counter_moves_it() {
    let mut bed = Bed::new("farside:residency_us=1000000", 2, 1024, 64);
    bed.quick();
    let page = bed.page(3);
    for card in [0, 1, 0, 1, 0] {
        bed.write(card, page);
    }
    assert_eq!(bed.driver.scheme(page), Scheme::AccessCounter);
    let cards = bed.mapped_by(page);
    assert_eq!(cards, [0, 1], "one of them over the bus");
    let group = PageRange::new(page.align_down(GROUP_PAGES), GROUP_PAGES);
    let before = bed.copies(page);
    let other = 2 - before[0];
    bed.counter(other, group);
    assert_eq!(bed.copies(page), before, "it has not rested");
    bed.later();
    bed.counter(other, group);
    assert_ne!(bed.copies(page), before);
}

#[test]
fn what_was_freed_is_unknown() {
    let mut bed = Bed::new("farside", 2, 1024, 64);
    bed.write(0, bed.page(0));
    bed.free();
    bed.allocate(64);
    assert_eq!(bed.driver.scheme(bed.page(0)), Scheme::OnTouch);
    bed.read(1, bed.page(0));
    assert_eq!(bed.driver.scheme(bed.page(0)), Scheme::Duplication, "never written");
}
