//! For each kind of decision the fewest touches that lead to it.

use farside_types::{CardId, GROUP_PAGES};

use super::*;
use crate::placement::SCHEMES;
use crate::placement::fixture::Fixture;
use crate::{Advice, Request};

fn why(fixture: &Fixture, page: PageNo) -> Why {
    fixture.driver.why(page.addr()).expect("it is allocated")
}

fn cards(cards: &[u8]) -> AgentSet {
    cards.iter().fold(AgentSet::EMPTY, |set, &card| set.with(CardId(card).agent()))
}

fn group(why: &Why) -> GroupFacts {
    let mut groups = why.evidence.iter().filter_map(|evidence| match evidence {
        Evidence::Group(group) => Some(*group),
        _ => None,
    });
    groups.next_back().expect("the scheme knows the group")
}

#[test]
fn a_scheme_that_learns_nothing_has_its_name_only() {
    let mut fixture = Fixture::new("on-touch", 2, 64, 16);
    fixture.write(0, fixture.page(3));
    let why = why(&fixture, fixture.page(3));
    assert_eq!((why.verdict, why.by, why.evidence.len()), (Verdict::Moves, Judge::Scheme, 0));
    assert_eq!((why.scheme.as_str(), why.owner), ("on-touch", Some(CardId(0).memory())));
    let came = why.came.expect("it moved");
    assert_eq!((came.to, came.reason), (CardId(0).memory(), Reason::Demand));
    let text = why.to_string();
    assert!(text.contains("page 3 of (unnamed), which has 16: on card 0"), "{text}");
    assert!(text.contains("it moves to the card that asks (scheme on-touch)"), "{text}");
}

#[test]
fn what_is_only_read_is_copied_and_says_who_had_it() {
    let mut fixture = Fixture::new("farside", 4, 1024, 64);
    let page = fixture.page(0);
    fixture.read(0, page);
    fixture.read(1, page);
    let why = why(&fixture, page);
    assert_eq!((why.verdict, why.by), (Verdict::Copies, Judge::Scheme));
    let group = group(&why);
    assert_eq!((group.had, group.written, group.taken_at), (cards(&[0, 1]), false, None));
    assert!(why.to_string().contains("only read, and never taken from anybody"), "{why}");
}

#[test]
fn a_page_inherits_from_its_allocation_that_readers_write() {
    let mut fixture = Fixture::new("farside", 2, 1024, 512);
    for group in 0..8 {
        let page = fixture.page(group * 2 * GROUP_PAGES);
        fixture.read(0, page);
        fixture.write(0, page);
    }
    let untouched = why(&fixture, fixture.page(20 * GROUP_PAGES));
    assert_eq!((untouched.verdict, untouched.by), (Verdict::Moves, Judge::Scheme));
    let Some(Evidence::Object(object)) = untouched.evidence.first() else {
        panic!("{untouched:?}");
    };
    assert!(object.written_by_reader >= 4 && object.read_first >= 4, "{object:?}");
    let read = why(&Fixture::new("farside", 2, 1024, 512), fixture.page(20 * GROUP_PAGES));
    assert_eq!(read.verdict, Verdict::Copies, "nothing is known of another allocation");
}

#[test]
fn a_group_that_cards_fought_over_stays_and_says_when() {
    let mut fixture = Fixture::new("farside:residency_us=1000000", 2, 1024, 64);
    fixture.quick();
    let page = fixture.page(3);
    for card in [0, 1, 0, 1, 0] {
        fixture.write(card, page);
    }
    let why = why(&fixture, page);
    assert_eq!((why.verdict, why.by), (Verdict::Stays, Judge::Scheme));
    let group = group(&why);
    assert!(group.fights > 2 && group.written && group.taken_at.is_some(), "{group:?}");
    assert_eq!(group.had, cards(&[0, 1]));
}

#[test]
fn a_fight_that_the_driver_settled_comes_before_the_scheme() {
    for scheme in ["on-touch", "farside"] {
        let mut fixture = Fixture::new(scheme, 2, 1024, 64);
        let jobs = [fixture.launch(0), fixture.launch(1)];
        let page = fixture.page(0);
        for card in [0, 1, 0, 1, 0, 1] {
            fixture.write(card, page);
        }
        let seen = why(&fixture, page);
        assert_eq!((seen.verdict, seen.by), (Verdict::Stays, Judge::Driver), "{scheme}");
        let Some(Evidence::Contested(contested)) = seen.evidence.first() else {
            panic!("{seen:?}");
        };
        assert_eq!((contested.agents, contested.taken_back), (cards(&[0, 1]), 2));
        assert!(contested.taken > 2 && contested.since > Time::ZERO);
        let still_on_the_host = why(&fixture, fixture.page(40));
        assert_eq!(still_on_the_host.by, Judge::Scheme, "it comes as before");
        for job in jobs {
            fixture.end(job);
        }
    }
}

#[test]
fn what_came_along_says_with_which_range() {
    let mut fixture = Fixture::new("farside:reach=4", 2, 1024, 512);
    fixture.write(0, fixture.page(5));
    let came = why(&fixture, fixture.page(6)).came.expect("it came along");
    assert_eq!((came.reason, came.range), (Reason::Prefetch, PageRange::new(fixture.page(6), 2)));
    let text = why(&fixture, fixture.page(6)).to_string();
    assert!(text.contains("with its range, pages 6 to 7, prefetched"), "{text}");
    let came = why(&fixture, fixture.page(9)).came.map(|came| came.to);
    assert_eq!(came, Some(MemoryId::HOST), "as zeros, and it stayed there");
}

#[test]
fn the_programs_word_comes_first() {
    let mut fixture = Fixture::new("farside", 2, 64, 16);
    let range = fixture.pages;
    let mut asked = |request, expected: (Verdict, Evidence)| {
        fixture.ask(request).expect("it can be done");
        let why = why(&fixture, range.start);
        assert_eq!((why.verdict, why.by), (expected.0, Judge::Program));
        assert_eq!(why.evidence, [expected.1]);
    };
    let at = CardId(1).memory();
    let preferred = Advice::Preferred(Some(at));
    let advise = |advice| Request::Advise { range, advice };
    asked(advise(preferred), (Verdict::Stays, Evidence::Preferred { at }));
    asked(advise(Advice::ReadMostly(true)), (Verdict::Copies, Evidence::ReadMostly));
    asked(Request::Pin { range, at }, (Verdict::Stays, Evidence::Pinned { at }));
}

#[test]
fn an_address_without_an_allocation_has_no_answer() {
    let mut fixture = Fixture::new("farside", 1, 64, 16);
    let behind = fixture.pages.end().addr();
    assert_eq!(fixture.driver.why(behind), None);
    assert_eq!(fixture.driver.why(VirtAddr(0)), None);
    assert_eq!(fixture.driver.why(VirtAddr(u64::MAX)), None);
    fixture.free();
    assert_eq!(fixture.driver.why(fixture.page(0).addr()), None, "it was freed");
}

/// What a card found that did not have a page, as far as it can be seen.
fn found(fixture: &Fixture, page: PageNo, card: u8, write: bool, before: &Why) -> Vec<Verdict> {
    let after = fixture.driver.page(page);
    let home = CardId(card).memory();
    let mut fits = Vec::new();
    if after.owner == before.owner && !after.copies.contains(home) {
        fits.push(Verdict::Stays);
    }
    if after.owner == Some(home) {
        fits.push(Verdict::Moves);
    }
    let kept = before.copies.minus(after.copies).is_empty() && after.copies.contains(home);
    if if write { after.copies.len() == 1 } else { kept } {
        fits.push(Verdict::Copies);
    }
    fits
}

#[test]
fn what_is_said_is_what_is_done() {
    const PAGES: u64 = 48;
    for (scheme, fights) in
        SCHEMES.iter().flat_map(|scheme| [(scheme.name, false), (scheme.name, true)])
    {
        let text = if scheme == "farside" { "farside:residency_us=1000000" } else { scheme };
        let mut fixture = Fixture::new(text, 3, 1024, PAGES);
        if fights {
            for card in 0..3 {
                fixture.launch(card);
            }
        }
        fixture.quick();
        let (mut state, mut asked) = (11u64, 0);
        let mut random = |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % end
        };
        for _ in 0..1_500 {
            let (page, card) = (fixture.page(random(PAGES)), random(3) as u8);
            let write = random(3) == 0;
            let (before, mode) = (why(&fixture, page), fixture.driver.page_mode(page));
            let touch = if write { Fixture::write } else { Fixture::read };
            let has = before.copies.contains(CardId(card).memory())
                || before.mappers.contains(CardId(card).agent());
            touch(&mut fixture, card, page);
            // A fault that was itself what was missing changes what is done, and nobody could say so before.
            if has || fixture.driver.page_mode(page) != mode {
                continue;
            }
            asked += 1;
            let found = found(&fixture, page, card, write, &before);
            let said = before.verdict;
            assert!(found.contains(&said), "{text}: {before}\nsaid {said:?}, found {found:?}");
        }
        assert!(asked > 50, "{text}: {asked}");
    }
}
