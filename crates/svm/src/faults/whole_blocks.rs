//! Allocations that move in whole blocks of 2 MiB, beside others that do not.

use farside_types::{Access, BLOCK_PAGES, CardId, FaultId, MemoryId, PageRange};

use crate::Event;
use crate::api::event::{Advice, CardFault, Need, Request};
use crate::placement::fixture::Fixture;

/// A driver of two cards with `frames` frames each, and an allocation of two blocks and a half that
/// moves in blocks and was not touched.
fn fixture(frames: u32) -> Fixture {
    let mut fixture = Fixture::untouched("on-touch", 2, frames, 2 * BLOCK_PAGES + 256);
    let (range, advice) = (fixture.pages, Advice::WholeBlocks(true));
    fixture.ask(Request::Advise { range, advice }).unwrap();
    fixture
}

/// Pages of `range` of which `memory` has a copy.
fn at(fixture: &Fixture, range: PageRange, memory: u8) -> u64 {
    let there = range.pages().filter(|&page| fixture.copies(page).contains(&memory));
    there.count() as u64
}

fn block(fixture: &Fixture, number: u64) -> PageRange {
    PageRange::new(fixture.page(number * BLOCK_PAGES), BLOCK_PAGES)
}

#[test]
fn a_fault_brings_its_block_and_no_more() {
    let mut fixture = fixture(4096);
    fixture.cpu(fixture.page(700), Access::Write);
    assert_eq!(at(&fixture, fixture.pages, 0), BLOCK_PAGES);
    assert_eq!(at(&fixture, block(&fixture, 1), 0), BLOCK_PAGES);
    fixture.write(0, fixture.page(513));
    assert_eq!(at(&fixture, block(&fixture, 1), 1), BLOCK_PAGES);
    fixture.read(1, fixture.page(1023));
    assert_eq!(at(&fixture, block(&fixture, 1), 2), BLOCK_PAGES);
    // Of a block that is not all its own it is what is.
    fixture.write(1, fixture.page(2 * BLOCK_PAGES + 200));
    assert_eq!(at(&fixture, fixture.pages, 2), BLOCK_PAGES + 256);
    assert_eq!(fixture.driver.stats().chains, 4, "one for each fault");
}

#[test]
fn a_block_comes_whole_also_from_a_card_that_runs() {
    let mut fixture = fixture(4096);
    fixture.launch(0);
    fixture.write(0, fixture.page(3));
    fixture.write(1, fixture.page(4));
    assert_eq!(at(&fixture, block(&fixture, 0), 2), BLOCK_PAGES);
    assert_eq!(at(&fixture, block(&fixture, 0), 1), 0);
}

#[test]
fn a_group_brings_the_blocks_of_its_pages_as_far_as_there_is_room() {
    for (frames, brought) in [(4096, 2 * BLOCK_PAGES), (600, 600)] {
        let mut fixture = fixture(frames);
        // From the end of the first block to the beginning of the second, which has been on the other card.
        fixture.write(1, fixture.page(600));
        let range = PageRange::new(fixture.page(510), 4);
        let need = Need::Group([(range, Access::Write)].into());
        let fault = CardFault { id: FaultId(1 << 40), need };
        fixture.handle(Event::CardFaults { card: CardId(0), faults: &[fault] });
        assert_eq!(at(&fixture, range, 1), 4);
        assert_eq!(at(&fixture, fixture.pages, 1), brought, "{frames} frames");
    }
}

#[test]
fn others_in_the_same_space_move_by_pages() {
    let mut fixture = fixture(4096);
    let others = fixture.allocate(2 * BLOCK_PAGES);
    fixture.write(0, others.start.offset(5));
    assert_eq!(at(&fixture, others, 1), 1);
    fixture.write(0, fixture.page(5));
    assert_eq!(at(&fixture, others, 1), 1);
    assert_eq!(at(&fixture, fixture.pages, 1), BLOCK_PAGES);
}

#[test]
fn what_makes_room_takes_its_block_along() {
    // Room for one block and a few pages of others.
    let mut fixture = fixture(BLOCK_PAGES as u32 + 8);
    let others = fixture.allocate(8);
    for page in others.pages() {
        fixture.write(0, page);
    }
    fixture.write(0, fixture.page(0));
    assert_eq!(at(&fixture, block(&fixture, 0), 1), BLOCK_PAGES);
    let before = fixture.driver.stats().evictions;
    fixture.write(0, fixture.page(BLOCK_PAGES));
    assert_eq!(at(&fixture, block(&fixture, 0), 1), 0, "the first block has left, all of it");
    assert!(fixture.driver.stats().evictions - before >= BLOCK_PAGES);
    assert!(at(&fixture, block(&fixture, 1), 1) > 0);
}

#[test]
fn where_there_is_no_room_for_a_block_a_part_of_it_comes() {
    let mut fixture = fixture(100);
    for index in [7, 300, 511, 600] {
        fixture.write(0, fixture.page(index));
        let memory = MemoryId(1);
        assert!(fixture.driver.page(fixture.page(index)).copies.contains(memory), "page {index}");
    }
}

#[test]
fn a_freed_allocation_gives_the_frames_of_pages_back_that_nobody_touched() {
    let mut fixture = fixture(100);
    let before = fixture.driver.stats().chains;
    fixture.free();
    assert!(fixture.driver.stats().chains > before, "large pages are released like others");
}
