//! Fights that end on the host: of cards that do not reach each other's memory, and of the host with cards.

use farside_types::{Access, CardId, MemoryId, PageNo, PageRange};

use super::super::tests::{change_at_random, fixture, random};
use crate::Mutation;
use crate::placement::SCHEMES;
use crate::placement::fixture::Fixture;

/// What sees that a rule of meeting on the host is broken.
pub(in super::super) const CONTROLS: [(Mutation, fn()); 3] = [
    (Mutation::FightWithoutPeers, cards_that_do_not_reach_each_other_meet_on_the_host),
    (Mutation::IgnoreTheHost, what_the_host_and_a_running_card_change_stays_on_the_host),
    (Mutation::LeaveCommonGround, a_page_on_the_host_is_not_moved_by_the_next_card_that_asks),
];

/// Two cards that run and reach the host's memory, and not each other's.
fn without_peers(scheme: &str, pages: u64) -> Fixture {
    let mut fixture = fixture(scheme, pages);
    let maps = &mut fixture.driver.config.capabilities.maps;
    for card in [CardId(0), CardId(1)] {
        maps[card.0 as usize + 1] = maps[0].with(card.memory());
    }
    fixture
}

#[test]
fn cards_that_do_not_reach_each_other_meet_on_the_host() {
    for scheme in SCHEMES {
        let mut fixture = without_peers(scheme.name, 1);
        let (before, page) = (fixture.moved(), fixture.page(0));
        for _ in 0..1000 {
            fixture.write(0, page);
            fixture.write(1, page);
        }
        assert!(fixture.moved() - before <= 5, "{}: {}", scheme.name, fixture.moved() - before);
        let (mapped, copies) = (fixture.mapped_by(page), fixture.copies(page));
        assert_eq!((mapped, copies), (vec![0, 1], vec![0]), "{}", scheme.name);
    }
}

#[test]
fn one_verdict_is_enough_for_all_pages_where_cards_do_not_reach_each_other() {
    for scheme in SCHEMES {
        let mut fixture = without_peers(scheme.name, 512);
        let before = fixture.moved();
        change_at_random(&mut fixture, 8_000);
        let moved = fixture.moved() - before;
        // Each page comes once, and meets once on the host; before the verdict some moved more often.
        assert!(moved <= 2 * 512 + 128, "{}: {moved}", scheme.name);
        assert_eq!(fixture.driver.stats().settled_fights, 1, "{}", scheme.name);
        let (settled, faults) = (fixture.moved(), fixture.driver.stats().card_faults);
        change_at_random(&mut fixture, 4_000);
        assert_eq!(fixture.moved(), settled, "{}", scheme.name);
        assert!(fixture.driver.stats().card_faults - faults < 100, "{}", scheme.name);
    }
}

#[test]
fn readers_that_do_not_reach_each_other_get_copies() {
    let mut fixture = without_peers("on-touch", 256);
    fixture.driver.config.keep_clean_copies = true;
    let before = fixture.moved();
    for round in 0..20u8 {
        for index in 0..256 {
            let page = fixture.page(index);
            fixture.read(round % 2, page);
        }
    }
    assert!(fixture.moved() - before <= 4 * 256, "{}", fixture.moved() - before);
    let page = fixture.page(9);
    assert_eq!((fixture.mapped_by(page), fixture.copies(page)), (vec![0, 1], vec![0, 1, 2]));
}

#[test]
fn cards_without_a_place_to_meet_take_pages_from_each_other() {
    let mut fixture = fixture("on-touch", 1);
    for card in [CardId(0), CardId(1)] {
        fixture.driver.config.capabilities.seclude(card);
    }
    let page = fixture.page(0);
    for _ in 0..100 {
        for card in [0, 1] {
            fixture.write(card, page);
            assert_eq!(fixture.copies(page), [card + 1]);
        }
    }
}

#[test]
fn what_the_host_and_a_running_card_change_stays_on_the_host() {
    for scheme in SCHEMES {
        let mut fixture = fixture(scheme.name, 1);
        let (before, page) = (fixture.moved(), fixture.page(0));
        for _ in 0..1000 {
            fixture.write(0, page);
            fixture.cpu_if_unmapped(page, Access::Write);
        }
        assert!(fixture.moved() - before <= 7, "{}: {}", scheme.name, fixture.moved() - before);
        let (mapped, copies) = (fixture.mapped_by(page), fixture.copies(page));
        assert_eq!((mapped, copies), (vec![0], vec![0]), "{}", scheme.name);
    }
}

#[test]
fn what_the_host_reads_again_and_again_while_a_card_changes_it_stays_on_the_host() {
    for scheme in SCHEMES {
        let mut fixture = fixture(scheme.name, 1);
        let (before, page) = (fixture.moved(), fixture.page(0));
        for _ in 0..1000 {
            fixture.write(0, page);
            fixture.cpu_if_unmapped(page, Access::Read);
        }
        assert!(fixture.moved() - before <= 7, "{}: {}", scheme.name, fixture.moved() - before);
    }
}

/// The host changes a page, or the card with the number before that.
fn change(fixture: &mut Fixture, agent: u64, page: PageNo) {
    match agent {
        0 => fixture.cpu_if_unmapped(page, Access::Write),
        card => fixture.write(card as u8 - 1, page),
    }
}

#[test]
fn the_host_and_two_cards_that_change_all_of_an_allocation_settle_it_once() {
    for scheme in SCHEMES {
        let mut fixture = fixture(scheme.name, 256);
        let (before, mut state) = (fixture.moved(), 7);
        for _ in 0..8_000 {
            let page = fixture.page(random(&mut state, 256));
            change(&mut fixture, random(&mut state, 3), page);
        }
        let moved = fixture.moved() - before;
        assert!(moved <= 3 * 256, "{}: {moved}", scheme.name);
        assert_eq!(fixture.driver.stats().settled_fights, 1, "{}", scheme.name);
        let settled = fixture.moved();
        for _ in 0..4_000 {
            let page = fixture.page(random(&mut state, 256));
            change(&mut fixture, random(&mut state, 3), page);
        }
        assert_eq!(fixture.moved(), settled, "{}", scheme.name);
    }
}

#[test]
fn the_host_may_look_at_each_page_once_while_a_kernel_runs() {
    let mut fixture = fixture("farside", 64);
    for index in 0..64 {
        let page = fixture.page(index);
        fixture.write(0, page);
        fixture.cpu_if_unmapped(page, Access::Read);
    }
    assert_eq!(fixture.driver.stats().settled_fights, 0);
    // What the card takes again is its own.
    let page = fixture.page(5);
    fixture.write(0, page);
    assert_eq!(fixture.copies(page), [1]);
}

/// Pages that were put on the host to end a fight with card 0, which goes on running.
fn met() -> (Fixture, PageRange) {
    let mut fixture = fixture("farside", 64);
    let pages = PageRange::new(fixture.page(0), 16);
    for _ in 0..10 {
        for page in pages.pages() {
            fixture.write(0, page);
            fixture.cpu_if_unmapped(page, Access::Write);
        }
    }
    assert!(pages.pages().all(|page| fixture.copies(page) == [0]));
    (fixture, pages)
}

#[test]
fn a_page_on_the_host_is_not_moved_by_the_next_card_that_asks() {
    let (mut fixture, pages) = met();
    let before = fixture.moved();
    for page in pages.pages() {
        fixture.write(1, page);
        fixture.write(0, page);
    }
    assert_eq!(fixture.moved(), before);
    assert_eq!(fixture.mapped_by(pages.start), [0, 1]);
}

#[test]
fn a_card_that_uses_such_pages_alone_gets_them_back() {
    let (mut fixture, pages) = met();
    fixture.later();
    fixture.counter(0, pages);
    for page in pages.pages() {
        assert_eq!(fixture.copies(page), [0, 1], "a probe");
        fixture.write(0, page);
        assert_eq!(fixture.copies(page), [1], "nobody has objected");
    }
    // The host does now: the next probe waits.
    fixture.cpu(pages.start, Access::Write);
    fixture.write(0, pages.start);
    assert_eq!(fixture.copies(pages.start), [0]);
    fixture.counter(0, pages);
    assert_eq!(fixture.copies(pages.start), [0], "somebody has objected");
}

#[test]
fn data_that_the_host_and_idle_cards_hand_on_moves_every_time() {
    let mut fixture = Fixture::new("farside", 2, 4096, 64);
    fixture.quick();
    let pages = fixture.pages;
    for _ in 0..20 {
        let job = fixture.launch(0);
        for page in pages.pages() {
            fixture.write(0, page);
            assert_eq!(fixture.copies(page), [1]);
        }
        fixture.end(job);
        for page in pages.pages() {
            fixture.cpu(page, Access::Write);
            assert_eq!(fixture.copies(page), [MemoryId::HOST.0]);
        }
    }
    assert_eq!(fixture.driver.stats().settled_fights, 0);
}
