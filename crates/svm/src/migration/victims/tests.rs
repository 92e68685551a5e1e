//! What stays on a full card, by misses: under LIRS, and under the clock as the control.

use farside_types::{CardId, MemoryId, PageRange};

use crate::api::event::Request;
use crate::placement::fixture::Fixture;
use crate::tables::frames::Frames;
use crate::{Eviction, Outcome};

const FRAMES: u64 = 256;

/// A full card's driver; the card tells which pages it uses.
fn fixture(eviction: Eviction, pages: u64) -> Fixture {
    let mut fixture = Fixture::new("on-touch", 1, FRAMES as u32, pages);
    let driver = &mut fixture.driver;
    driver.config.eviction = eviction;
    driver.config.capabilities.tells = [MemoryId(1)].into_iter().collect();
    driver.cards[0].frames = Frames::of_card(FRAMES as u32, eviction);
    fixture.launch(0);
    fixture.quick();
    fixture
}

/// Reads pages by number, and counts those that had to be brought.
fn misses(fixture: &mut Fixture, pages: impl IntoIterator<Item = u64>) -> u64 {
    let before = fixture.brought();
    for index in pages {
        let page = fixture.page(index);
        fixture.read(0, page);
    }
    fixture.brought() - before
}

/// Misses of each of `passes` passes over `pages`.
fn passes(fixture: &mut Fixture, pages: std::ops::Range<u64>, passes: u64) -> Vec<u64> {
    (0..passes).map(|_| misses(fixture, pages.clone())).collect()
}

/// Numbers below `end` that look random, the same each time.
fn random(end: u64) -> impl Iterator<Item = u64> {
    let mut state = 7u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % end
    })
}

#[test]
fn a_loop_over_more_than_fits_keeps_what_fits() {
    for pages in [280, 400, 1024] {
        let mut fixture = fixture(Eviction::Lirs, pages);
        let found = passes(&mut fixture, 0..pages, 6);
        // Belady's bound of a loop: in each pass as much is missed as does not fit.
        let bound = pages - FRAMES;
        for missed in &found[1..] {
            assert!(missed - bound <= FRAMES / 16, "{pages} pages: {found:?}, bound {bound}");
        }
        assert!(fixture.driver.stats().spared > 0);
    }
}

#[test]
fn control_a_clock_keeps_nothing_of_such_a_loop() {
    let mut fixture = fixture(Eviction::Clock, 400);
    assert_eq!(passes(&mut fixture, 0..400, 6), [400; 6]);
    assert_eq!(fixture.driver.stats().spared, 0);
}

#[test]
fn a_pause_changes_nothing() {
    let mut fixture = fixture(Eviction::Lirs, 400);
    passes(&mut fixture, 0..400, 3);
    for _ in 0..4 {
        fixture.later();
        let missed = misses(&mut fixture, 0..400);
        assert!(missed <= 400 - FRAMES + FRAMES / 16, "{missed}");
    }
}

#[test]
fn what_is_used_no_more_makes_room() {
    let mut fixture = fixture(Eviction::Lirs, 480);
    passes(&mut fixture, 0..240, 4);
    let found = passes(&mut fixture, 240..480, 12);
    assert!(found[11] <= 4, "the new loop fits, and misses {found:?}");
}

#[test]
fn a_scan_spares_what_is_used_again_and_again() {
    let run = |eviction| {
        let mut fixture = fixture(eviction, 150 + 20 * 200);
        let mut hot = 0;
        for round in 0..20 {
            let missed = misses(&mut fixture, 0..150);
            hot += if round == 0 { 0 } else { missed };
            let first = 150 + round * 200;
            misses(&mut fixture, first..first + 200);
        }
        hot
    };
    assert_eq!(run(Eviction::Lirs), 0);
    let lost = run(Eviction::Clock);
    assert!(lost > 1000, "control: the clock has lost {lost}");
}

#[test]
fn without_a_pattern_it_is_no_worse_than_a_clock() {
    let run = |eviction| {
        let mut fixture = fixture(eviction, 512);
        misses(&mut fixture, random(512).take(10_000))
    };
    let (lirs, clock) = (run(Eviction::Lirs), run(Eviction::Clock));
    assert!(lirs * 100 <= clock * 105, "{lirs} misses, a clock's are {clock}");
}

#[test]
fn a_hot_half_is_found_though_the_cold_half_came_first() {
    let mut fixture = fixture(Eviction::Lirs, 1024);
    misses(&mut fixture, 0..1024);
    // Nine of ten accesses are to 225 pages that are not those which stayed.
    let accesses = |count: usize| {
        let numbers = random(1024).zip(random(225).skip(1)).enumerate().take(count);
        numbers.map(|(at, (cold, hot))| if at % 10 == 0 { cold } else { 750 + hot })
    };
    misses(&mut fixture, accesses(20_000));
    let missed = misses(&mut fixture, accesses(10_000));
    let best = 10_000 / 10 * (1024 - FRAMES) / 1024;
    assert!(missed <= 2 * best, "{missed} misses of 10,000 accesses, {best} at best");
}

#[test]
fn regression_a_card_full_of_pages_in_use_makes_room_for_a_request() {
    for eviction in [Eviction::Lirs, Eviction::Clock] {
        let mut fixture = fixture(eviction, 2 * FRAMES);
        passes(&mut fixture, 0..FRAMES, 2);
        // Whoever is to be refused otherwise asks once.
        let mut found = Vec::new();
        fixture.driver.victims(CardId(0), FRAMES as u32, None, &mut found);
        assert_eq!(found.len() as u64, FRAMES, "{eviction:?}");
        let range = PageRange::new(fixture.page(FRAMES), FRAMES);
        let moved = fixture.ask(Request::Migrate { range, to: MemoryId(1) });
        assert_eq!(moved, Ok(Outcome::Done { pages_moved: FRAMES }), "{eviction:?}");
    }
}

/// Without an answer of the card every stayer looks idle: what is not known to be used makes room.
#[test]
fn a_card_that_does_not_tell_is_served_no_worse_than_by_a_clock() {
    let run = |eviction| {
        let mut fixture = fixture(eviction, 150 + 20 * 200);
        fixture.driver.config.capabilities.tells = [].into_iter().collect();
        let mut hot = 0;
        for round in 0..20 {
            hot += misses(&mut fixture, 0..150);
            let first = 150 + round * 200;
            misses(&mut fixture, first..first + 200);
        }
        let stats = fixture.driver.stats();
        assert!(stats.spared <= stats.evictions, "{stats:?}");
        (hot, misses(&mut fixture, random(150 + 4000).take(10_000)))
    };
    let (lirs, clock) = (run(Eviction::Lirs), run(Eviction::Clock));
    assert!(lirs.0 <= clock.0, "the hot pages: {lirs:?} misses, a clock's are {clock:?}");
    assert!(lirs.1 * 100 <= clock.1 * 105, "at random: {lirs:?} misses, a clock's are {clock:?}");
}

#[test]
fn a_card_that_is_slow_to_tell_is_asked_about_each_of_its_pages_once_at_most() {
    let mut fixture = fixture(Eviction::Lirs, 1024);
    passes(&mut fixture, 0..1024, 1);
    fixture.unanswered = Some(0);
    passes(&mut fixture, 0..1024, 6);
    let asked = fixture.unanswered.unwrap_or(0);
    assert!((1..=FRAMES).contains(&asked), "{asked} pages of {FRAMES}");
}
