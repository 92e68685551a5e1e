//! Fights over allocations, under every scheme that live programs have, and with each of their rules
//! broken, which the test of that rule must see.

use std::cell::Cell;

use farside_types::{Access, PageNo, PageRange};

use super::ground::tests::CONTROLS;
use crate::placement::SCHEMES;
use crate::placement::fixture::Fixture;
use crate::{Event, Mutation};

const FRAMES: u32 = 4096;

thread_local! {
    /// The rule that drivers of this thread break.
    static BROKEN: Cell<Option<Mutation>> = const { Cell::new(None) };
}

/// Two cards, both of which run, and an allocation that the host has written.
pub(super) fn fixture(scheme: &str, pages: u64) -> Fixture {
    let mut fixture = Fixture::new(scheme, 2, FRAMES, pages);
    if let Some(broken) = BROKEN.get() {
        fixture.driver.mutated.set(broken);
    }
    fixture.launch(0);
    fixture.launch(1);
    fixture.quick();
    fixture
}

/// Numbers below `end` that look random.
pub(super) fn random(state: &mut u64, end: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*state >> 33) % end
}

/// Both cards change words all over the allocation.
pub(super) fn change_at_random(fixture: &mut Fixture, times: u64) {
    let (mut state, pages) = (7, fixture.pages.count);
    for _ in 0..times {
        let card = random(&mut state, 2) as u8;
        let page = fixture.page(random(&mut state, pages));
        fixture.write(card, page);
    }
}

#[test]
fn one_page_that_two_cards_change_for_ever_moves_four_times_at_most() {
    for scheme in SCHEMES {
        let mut fixture = fixture(scheme.name, 1);
        let (before, page) = (fixture.moved(), fixture.page(0));
        for _ in 0..1000 {
            fixture.write(0, page);
            fixture.write(1, page);
        }
        assert!(fixture.moved() - before <= 4, "{}: {}", scheme.name, fixture.moved() - before);
        assert_eq!(fixture.mapped_by(page), [0, 1], "{}", scheme.name);
    }
}

#[test]
fn control_without_contests_such_a_page_moves_with_every_access() {
    let mut fixture = fixture("on-touch", 1);
    fixture.driver.config.thrash.contests = false;
    let (before, page) = (fixture.moved(), fixture.page(0));
    for _ in 0..100 {
        fixture.write(0, page);
        fixture.write(1, page);
    }
    assert_eq!(fixture.moved() - before, 200);
    // The first came from the host.
    assert_eq!(fixture.driver.stats().taken_from_running, 199);
}

#[test]
fn one_verdict_is_enough_for_all_pages_of_an_allocation() {
    for scheme in SCHEMES {
        let mut fixture = fixture(scheme.name, 2048);
        let before = fixture.moved();
        change_at_random(&mut fixture, 50_000);
        let moved = fixture.moved() - before;
        // Each page comes from the host once, and the fight moves less than the allocation again.
        assert!(moved <= 2 * 2048, "{}: {moved}", scheme.name);
        assert!(fixture.driver.stats().settled_fights <= 1, "{}", scheme.name);
        let settled = fixture.moved();
        change_at_random(&mut fixture, 50_000);
        assert_eq!(fixture.moved(), settled, "{}", scheme.name);
    }
}

#[test]
fn control_without_contests_every_page_fights_its_own_fight() {
    let mut fixture = fixture("on-touch", 512);
    fixture.driver.config.thrash.contests = false;
    let before = fixture.moved();
    change_at_random(&mut fixture, 20_000);
    assert!(fixture.moved() - before > 9_000);
}

#[test]
fn data_that_is_handed_on_moves_every_time() {
    let mut fixture = Fixture::new("on-touch", 2, FRAMES, 64);
    fixture.quick();
    let before = fixture.moved();
    for round in 0..20u8 {
        let job = fixture.launch(round % 2);
        for index in 0..64 {
            let page = fixture.page(index);
            fixture.write(round % 2, page);
        }
        fixture.end(job);
    }
    assert_eq!(fixture.moved() - before, 20 * 64);
    let stats = fixture.driver.stats();
    assert_eq!((stats.settled_fights, stats.taken_from_running), (0, 0));
}

#[test]
fn what_is_only_read_is_copied() {
    let mut fixture = fixture("on-touch", 256);
    // As in live programs: what a card reads may leave it without a copy, so nobody may write it.
    fixture.driver.config.keep_clean_copies = true;
    let before = fixture.moved();
    for round in 0..20u8 {
        for index in 0..256 {
            let page = fixture.page(index);
            fixture.read(round % 2, page);
        }
    }
    // There, back until it is seen, and copies for both.
    let moved = fixture.moved() - before;
    assert!(moved <= 4 * 256, "{moved}");
    let page = fixture.page(9);
    assert_eq!((fixture.mapped_by(page), fixture.copies(page)), (vec![0, 1], vec![0, 1, 2]));
}

#[test]
fn pages_that_nobody_has_fought_over_are_settled_with_those_that_were() {
    let mut fixture = fixture("on-touch", 512);
    // Card 0 has all of it, and two pages of it are fought over.
    for index in 0..512 {
        let page = fixture.page(index);
        fixture.write(0, page);
    }
    for index in [3, 4] {
        let page = fixture.page(index);
        fixture.write(1, page);
        fixture.write(0, page);
    }
    assert_eq!(fixture.driver.stats().settled_fights, 1);
    let (moved, faults) = (fixture.moved(), fixture.driver.stats().card_faults);
    for index in 0..512 {
        let page = fixture.page(index);
        fixture.write(1, page);
    }
    assert_eq!(fixture.moved(), moved, "a page moves though the fight is settled");
    let faults = fixture.driver.stats().card_faults - faults;
    assert!(faults <= 8, "{faults} faults, where those of a block are mapped together");
}

/// A group that card 0 has and card 1 uses from afar, after a fight.
fn settled() -> (Fixture, PageRange) {
    let mut fixture = fixture("on-touch", 64);
    change_at_random(&mut fixture, 5_000);
    assert_eq!(fixture.driver.stats().settled_fights, 1);
    let group = PageRange::new(fixture.page(0), 16);
    (fixture, group)
}

/// Whether a card has all of these, and nobody has lost any that had them `before`.
fn has(fixture: &Fixture, card: u8, pages: PageRange, before: &[u8]) -> bool {
    let kept = |(page, owner)| {
        let copies = fixture.copies(page);
        copies.contains(&(card + 1)) && copies.contains(owner)
    };
    pages.pages().zip(before).all(kept)
}

fn owner(fixture: &Fixture, pages: PageRange) -> Vec<u8> {
    pages.pages().flat_map(|page| fixture.copies(page)).collect()
}

#[test]
fn a_counter_copies_its_group_only_after_a_while_and_then_freely_until_somebody_objects() {
    let (mut fixture, group) = settled();
    let before = owner(&fixture, group);
    fixture.counter(1, group);
    assert_eq!(owner(&fixture, group), before, "the fight was a moment ago");
    fixture.later();
    fixture.counter(1, group);
    assert!(has(&fixture, 1, group, &before), "a probe");
    let next = PageRange::new(fixture.page(16), 16);
    let of_next = owner(&fixture, next);
    fixture.counter(1, next);
    assert!(has(&fixture, 1, next, &of_next), "nobody has objected");
    // What was copied to card 1 it writes, and has it alone: that is what was to be seen.
    let copied = |page: &PageNo| fixture.copies(*page) == [1, 2];
    let written = group.pages().find(copied).expect("card 0 had one");
    fixture.write(1, written);
    assert_eq!((fixture.copies(written), fixture.mapped_by(written)), (vec![2], vec![1]));
    let fourth = PageRange::new(fixture.page(48), 16);
    let of_fourth = owner(&fixture, fourth);
    fixture.counter(1, fourth);
    assert!(has(&fixture, 1, fourth, &of_fourth), "nobody else has objected");
    // Card 0 wants that one back: it is mapped there, and the next probe waits.
    fixture.write(0, written);
    assert_eq!((fixture.copies(written), fixture.mapped_by(written)), (vec![2], vec![0, 1]));
    let third = PageRange::new(fixture.page(32), 16);
    let before = owner(&fixture, third);
    fixture.counter(1, third);
    assert_eq!(owner(&fixture, third), before, "somebody has objected");
}

#[test]
fn what_is_only_read_after_a_fight_is_copied_as_soon_as_kernels_have_ended() {
    let (mut fixture, group) = settled();
    let jobs = fixture.running();
    for job in jobs {
        fixture.end(job);
    }
    fixture.launch(0);
    fixture.launch(1);
    let (before, of_group) = (fixture.moved(), owner(&fixture, group));
    fixture.counter(1, group);
    assert!(has(&fixture, 1, group, &of_group), "nobody has waited");
    for page in group.pages() {
        fixture.read(0, page);
        fixture.read(1, page);
    }
    let next = PageRange::new(fixture.page(16), 16);
    let of_next = owner(&fixture, next);
    fixture.counter(0, next);
    assert!(has(&fixture, 0, next, &of_next), "both take part");
    assert!(fixture.moved() - before <= 32, "and nothing went to and fro");
}

#[test]
fn a_fight_that_goes_on_after_kernels_have_ended_is_probed_once() {
    let (mut fixture, group) = settled();
    let before = fixture.moved();
    for round in 0..20u8 {
        for job in fixture.running() {
            fixture.end(job);
        }
        fixture.launch(0);
        fixture.launch(1);
        fixture.counter(round % 2, group);
        for page in group.pages() {
            fixture.write(0, page);
            fixture.write(1, page);
        }
    }
    let moved = fixture.moved() - before;
    assert!(moved <= 4 * 16, "{moved}");
}

#[test]
fn probes_into_a_fight_that_goes_on_become_rare() {
    let (mut fixture, group) = settled();
    let before = fixture.moved();
    // A hundred seconds, a notice each second; card 0 goes on changing what is taken.
    for second in 0..100u8 {
        fixture.later();
        fixture.counter(second % 2, group);
        for page in group.pages() {
            fixture.write(0, page);
            fixture.write(1, page);
        }
    }
    let moved = fixture.moved() - before;
    assert!((16..=16 * 16).contains(&moved), "{moved}");
}

#[test]
fn nobody_gets_at_what_a_kernel_holds_that_hangs() {
    for scheme in SCHEMES {
        let mut fixture = fixture(scheme.name, 4);
        let page = fixture.page(0);
        for _ in 0..4 {
            fixture.write(0, page);
            fixture.write(1, page);
        }
        let owner = fixture.copies(page)[0] - 1;
        let hangs = fixture.launch(owner);
        fixture.handle(Event::JobHung { job: hangs });
        // Another page that its card has alone.
        let held = fixture.page(1);
        fixture.write(owner, held);
        fixture.write(1 - owner, held);
        assert_eq!(fixture.mapped_by(held), [1 - owner], "{}: it was taken", scheme.name);
    }
}

#[test]
fn what_the_program_has_said_of_a_page_comes_first() {
    let mut fixture = fixture("on-touch", 4);
    let page = fixture.page(0);
    fixture.driver.table.get_mut(page).set(crate::tables::page::flag::READ_MOSTLY, true);
    for _ in 0..20 {
        fixture.write(0, page);
        fixture.write(1, page);
    }
    assert_eq!(fixture.driver.stats().settled_fights, 0);
    fixture.cpu(page, Access::Read);
}

/// Whether a test sees that a rule is broken.
fn sees(broken: Mutation, test: fn()) -> bool {
    BROKEN.set(Some(broken));
    let seen = std::panic::catch_unwind(test).is_err();
    BROKEN.set(None);
    seen
}

#[test]
fn control_each_broken_rule_of_fights_is_seen_by_its_test() {
    let controls: [(Mutation, fn()); Mutation::FIGHTS.len() - CONTROLS.len()] = [
        (Mutation::FightForever, one_page_that_two_cards_change_for_ever_moves_four_times_at_most),
        (
            Mutation::VerdictPerPage,
            pages_that_nobody_has_fought_over_are_settled_with_those_that_were,
        ),
        (
            Mutation::MapPageByPage,
            pages_that_nobody_has_fought_over_are_settled_with_those_that_were,
        ),
        (Mutation::ReadersShareOneCopy, what_is_only_read_is_copied),
        (
            Mutation::ProbeAtOnce,
            a_counter_copies_its_group_only_after_a_while_and_then_freely_until_somebody_objects,
        ),
        (
            Mutation::NeverProbe,
            a_counter_copies_its_group_only_after_a_while_and_then_freely_until_somebody_objects,
        ),
        (Mutation::IgnoreObjections, probes_into_a_fight_that_goes_on_become_rare),
    ];
    for ((broken, test), known) in controls.into_iter().chain(CONTROLS).zip(Mutation::FIGHTS) {
        assert_eq!(broken, known);
        assert!(sees(broken, test), "{broken:?} was not seen");
    }
}
