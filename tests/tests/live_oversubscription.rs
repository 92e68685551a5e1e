//! More memory than a card has, live: it is streamed through, or refused with a reason.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use farside::{
    AtomicSpan, KernelContext, KernelError, Read, ReadView, Shared, Space, Write, WriteSpan,
    WriteView,
};
use farside_svm::{Eviction, Mutation};
use harness::live::{must_be_caught, seconds, within};

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;
/// Pages of a card.
const CARD: usize = 128;

/// Pages for the tables of a card: none, as on cards of before; no room for any page, because a tree has
/// tables above its leaves; room for one leaf or two; all that it needs.
const TABLES: [Option<u32>; 4] = [Some(0), Some(1), Some(4), None];

fn space(cards: usize, pes: u16) -> Space {
    space_with(cards, pes, None)
}

fn space_with(cards: usize, pes: u16, table_pages: Option<u32>) -> Space {
    let builder = Space::builder()
        .cards(cards)
        .card_memory((CARD * 4096) as u64)
        .processing_elements(pes)
        .address_space(32 << 20);
    match table_pages {
        Some(pages) => builder.card_table_pages(pages).build().unwrap(),
        None => builder.build().unwrap(),
    }
}

/// Adds one to every word, `step` pages at a time.
fn stream(k: &mut KernelContext, mut data: WriteSpan<u64>, step: usize) -> Result<(), KernelError> {
    let words = step * PAGE;
    for at in (0..data.len()).step_by(words) {
        let part = data.slice(at..(at + words).min(data.len()));
        k.with(part, |mut part: WriteView<u64>| part.iter_mut().for_each(|word| *word += 1))?;
    }
    Ok(())
}

#[test]
fn twice_a_cards_memory_is_read_and_written_through_it() {
    within(LIMIT, "stream", || stream_twice_a_card(&space(2, 1)));
}

#[test]
fn twice_a_cards_memory_streams_through_whatever_tables_it_has() {
    within(LIMIT * TABLES.len() as u32, "stream with tables", || {
        TABLES.into_iter().for_each(|pages| stream_twice_a_card(&space_with(2, 1, pages)));
    });
}

#[test]
fn control_evicting_without_a_copy_is_noticed() {
    must_be_caught("control_evicting_without_a_copy_is_noticed", || {
        let space = space(2, 1);
        space.mutate(Mutation::EvictWithoutCopy).map_err(|error| error.to_string())?;
        stream_twice_a_card(&space);
        Ok(())
    });
}

fn stream_twice_a_card(space: &Space) {
    let mut data = space.alloc::<u64>(2 * CARD * PAGE).unwrap();
    data.iter_mut().enumerate().for_each(|(i, word)| *word = i as u64);
    let end = std::time::Instant::now() + seconds() / 2;
    let mut rounds = 0u64;
    while rounds < 4 || std::time::Instant::now() < end {
        for (card, step) in space.cards().zip([16, 100]) {
            let body = move |k: &mut KernelContext, data| stream(k, data, step);
            space.kernel("stream").on(card).run(Write(&mut data), body).unwrap();
        }
        rounds += 2;
        let sum = space
            .kernel("sum")
            .run(Read(&data), |k, data| {
                let mut sum = 0;
                for at in (0..data.len()).step_by(32 * PAGE) {
                    let part = data.slice(at..at + 32 * PAGE);
                    sum += k.with(part, |part: ReadView<u64>| part.iter().sum::<u64>())?;
                }
                Ok(sum)
            })
            .unwrap();
        let n = data.len() as u64;
        assert_eq!(sum, n * (n - 1) / 2 + n * rounds);
    }
    assert!(data.iter().enumerate().all(|(i, &word)| word == i as u64 + rounds));
    let stats = space.report().stats;
    assert!(stats.evictions > 0, "{stats:?}");
    assert!(stats.clean_departures > 0, "pages only read leave without a copy: {stats:?}");
    space.check().unwrap();
}

#[test]
fn single_words_are_reached_beyond_a_cards_memory_whatever_tables_it_has() {
    within(LIMIT * TABLES.len() as u32, "words", || {
        TABLES.into_iter().for_each(|pages| single_words(&space_with(1, 1, pages)));
    });
}

fn single_words(space: &Space) {
    let mut data = space.alloc::<u64>(3 * CARD * PAGE).unwrap();
    space
        .kernel("words")
        .run(Write(&mut data), |k, data| {
            for round in 0..2u64 {
                for page in 0..3 * CARD {
                    let at = data.ptr(page * PAGE);
                    let value = k.load(at)?;
                    k.store(at, value + page as u64 + round)?;
                }
            }
            Ok(())
        })
        .unwrap();
    for page in 0..3 * CARD {
        assert_eq!(data[page * PAGE], 2 * page as u64 + 1);
    }
    assert!(space.report().stats.evictions > 0);
    space.check().unwrap();
}

/// Words of pages all over a card that has them all. Gives how often the driver was asked for a page that was
/// there.
fn refills(table_pages: Option<u32>) -> u64 {
    // More than the TLBs know one by one, in pieces that take no entry of flexible length.
    const PAGES: usize = 4096;
    let builder = Space::builder().cards(1).card_memory(32 << 20).address_space(64 << 20);
    let builder = match table_pages {
        Some(pages) => builder.card_table_pages(pages),
        None => builder,
    };
    let space = builder.build().unwrap();
    let words = space.alloc_atomic::<AtomicU64>(PAGES * PAGE, "words").unwrap();
    // Every other page first, so that no run of frames is one of pages.
    for odd in [0, 1] {
        for page in (odd..PAGES).step_by(2) {
            let one = &words[page * PAGE..(page + 1) * PAGE];
            space.migrate(one, space.card(0).unwrap()).unwrap();
        }
    }
    let before = space.report().stats;
    let body = |k: &mut KernelContext, words: AtomicSpan<AtomicU64>| {
        for round in 0..2 {
            for page in 0..PAGES {
                k.fetch_add(words, page * 7 % PAGES * PAGE + round, 1)?;
            }
        }
        Ok(())
    };
    space.kernel("words").run(Shared(&words), body).unwrap();
    let after = space.report().stats;
    let touched = words.chunks(PAGE).map(|page| page[0].load(SeqCst) + page[1].load(SeqCst));
    assert!(touched.eq(std::iter::repeat_n(2, PAGES)));
    space.check().unwrap();
    after.refills - before.refills
}

#[test]
fn pages_that_find_no_room_in_the_tables_are_served_by_refills_and_others_ask_nobody() {
    within(LIMIT, "refills", || {
        let [none, no_room, some, all] = TABLES.map(refills);
        assert!(none > 0 && no_room > 0, "{none} and {no_room} refills without tables");
        assert!(some > 0 && some < no_room, "{some} refills with few tables, {no_room} without");
        assert_eq!(all, 0);
    });
}

/// Pages that come to a card that reads half as much again as it holds, in so many passes.
fn loop_over(space: &Space, passes: u64) -> u64 {
    let mut data = space.alloc::<u64>(CARD * 3 / 2 * PAGE).unwrap();
    data.iter_mut().enumerate().for_each(|(i, word)| *word = i as u64);
    let n = data.len() as u64;
    let sum = space.kernel("loop").run(Read(&data), move |k, data| {
        let mut sum = 0;
        for _ in 0..passes {
            for at in (0..data.len()).step_by(4 * PAGE) {
                let part = data.slice(at..at + 4 * PAGE);
                sum += k.with(part, |part: ReadView<u64>| part.iter().sum::<u64>())?;
            }
        }
        Ok(sum)
    });
    assert_eq!(sum.unwrap(), passes * n * (n - 1) / 2);
    space.check().unwrap();
    space.report().stats.by_direction().host_to_card
}

#[test]
fn of_a_loop_over_more_than_a_card_has_stays_what_fits() {
    within(LIMIT, "loop", || {
        let (pages, card, passes) = (CARD as u64 * 3 / 2, CARD as u64, 8);
        let came = loop_over(&space(1, 1), passes);
        let bound = pages + (passes - 1) * (pages - card);
        assert!(came <= bound + passes * card / 8, "{came} pages came, Belady's bound is {bound}");
    });
}

#[test]
fn control_with_a_clock_nothing_of_it_stays() {
    within(LIMIT, "loop", || {
        let builder = Space::builder().cards(1).card_memory((CARD * 4096) as u64);
        let builder = builder.processing_elements(1).address_space(32 << 20);
        let space = builder.tune(|config| config.eviction = Eviction::Clock).build().unwrap();
        assert_eq!(loop_over(&space, 8), 8 * CARD as u64 * 3 / 2);
    });
}

#[test]
fn a_request_larger_than_the_card_is_refused_with_a_reason() {
    within(LIMIT, "too large", || {
        let space = space(1, 1);
        let mut data = space.alloc::<u64>(2 * CARD * PAGE).unwrap();
        data.fill(4);
        let error = space
            .kernel("greedy")
            .run(Write(&mut data), |k, data| k.with(data, |_: WriteView<u64>| ()))
            .unwrap_err();
        assert!(error.to_string().contains("ask for less"), "{error}");
        let card = space.card(0).unwrap();
        let error = space.migrate(&data, card).unwrap_err();
        assert!(error.to_string().contains("frames"), "{error}");
        // A prefetch brings what there is room for.
        assert!(space.prefetch(&data, card).unwrap() <= CARD as u64);
        assert!(data.iter().all(|&word| word == 4));
        space.check().unwrap();
    });
}

#[test]
fn two_kernels_whose_groups_do_not_fit_together_take_turns() {
    within(LIMIT, "turns", || {
        let space = space(1, 2);
        let mut data = space.alloc::<u64>(2 * (CARD - 28) * PAGE).unwrap();
        let half = data.len() / 2;
        let rounds = 30;
        let (low, high) = data.split_at_mut(half);
        space.scope(|s| {
            for part in [low, high] {
                s.kernel("large")
                    .launch(Write(part), move |k, mut part: WriteSpan<u64>| {
                        for _ in 0..rounds {
                            k.with(part.slice(..), |mut part: WriteView<u64>| {
                                part.iter_mut().for_each(|word| *word += 1);
                            })?;
                        }
                        Ok(())
                    })
                    .unwrap();
            }
        });
        assert!(data.iter().all(|&word| word == rounds));
        space.check().unwrap();
    });
}

#[test]
fn a_card_full_of_pinned_pages_says_so_and_goes_on_when_they_are_unpinned() {
    within(LIMIT, "pinned", || fill_with_pins(&space(1, 1)));
}

#[test]
fn control_evicting_pinned_pages_is_noticed() {
    must_be_caught("control_evicting_pinned_pages_is_noticed", || {
        let space = space(1, 1);
        space.mutate(Mutation::EvictPinned).map_err(|error| error.to_string())?;
        fill_with_pins(&space);
        Ok(())
    });
}

fn fill_with_pins(space: &Space) {
    let card = space.card(0).unwrap();
    let mut pinned = space.alloc::<u64>(CARD * PAGE).unwrap();
    let mut other = space.alloc::<u64>(4 * PAGE).unwrap();
    pinned.fill(1);
    other.fill(1);
    space.pin(&pinned, card).unwrap();
    let run = |other: &mut [u64]| {
        let part = Write(other);
        space.kernel("squeezed").run(part, |k, data| stream(k, data, 4))
    };
    let error = run(&mut other).unwrap_err().to_string();
    assert!(error.contains("card0") || error.contains("card 0"), "{error}");
    assert!(error.contains("pinned"), "{error}");
    assert!(space.migrate(&other, card).is_err());
    assert!(other.iter().all(|&word| word == 1));
    space.unpin(&pinned).unwrap();
    run(&mut other).unwrap();
    assert!(other.iter().all(|&word| word == 2));
    assert!(pinned.iter().all(|&word| word == 1));
    space.check().unwrap();
}

/// Writes on the card, gives the memory back, and reads new memory in the same frames.
fn see_old_contents(space: &Space) {
    for round in 0..4 {
        let mut old = space.alloc::<u64>(CARD * PAGE).unwrap();
        let fill = |k: &mut KernelContext, data| {
            k.with(data, |mut data: WriteView<u64>| data.iter_mut().for_each(|word| *word = 77))
        };
        space.kernel("fill").run(Write(&mut old), fill).unwrap();
        drop(old);
        let new = space.alloc::<u64>(CARD * PAGE).unwrap();
        let seen = space
            .kernel("look")
            .run(Read(&new), |k, data| {
                k.with(data, |data: ReadView<u64>| data.iter().filter(|&&word| word != 0).count())
            })
            .unwrap();
        assert_eq!(seen, 0, "words of old contents in round {round}");
        assert!(new.iter().all(|&word| word == 0));
        space.trim().unwrap();
    }
}

#[test]
fn invariant_5_new_memory_is_zero_on_a_card_and_on_the_host() {
    within(LIMIT, "zeros", || see_old_contents(&space(1, 1)));
}

#[test]
fn control_leaving_out_the_zero_fill_shows_old_contents() {
    must_be_caught("control_leaving_out_the_zero_fill_shows_old_contents", || {
        let space = space(1, 1);
        space.mutate(Mutation::SkipZeroFill).map_err(|error| error.to_string())?;
        see_old_contents(&space);
        Ok(())
    });
}
