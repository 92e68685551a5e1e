//! More memory than cards have that other processes serve, with tables of every size: for all of their
//! pages, for some, for none, and cards of before there were any.

use std::time::Duration;

use farside::{CardPlace, Space, Write};
use farside_softcard::serve::CardConfig;
use harness::live::served::{
    TempDir, config, place, place_by_messages, serve, test_kernels, with_table_pages,
};
use harness::live::within;

const LIMIT: Duration = Duration::from_secs(240);
/// Words of a page.
const PAGE: usize = 512;
/// Pages of a card.
const CARD: u32 = 128;
/// Pages for the tables of a card. A tree has tables above its leaves, so one is room for nothing.
const TABLES: [Option<u32>; 4] = [Some(0), Some(1), Some(4), None];

/// Adds to three times what a card has, a few pages at a time, on two cards in turn.
fn stream(places: [CardPlace; 2]) {
    let builder = Space::builder().cards_at(places).address_space(16 << 20);
    let space = builder.kernels(test_kernels()).build().unwrap();
    let mut data = space.alloc::<u64>(3 * CARD as usize * PAGE).unwrap();
    data.iter_mut().enumerate().for_each(|(index, word)| *word = index as u64);
    for round in 0..4 {
        let card = space.card(round % 2).unwrap();
        for part in data.chunks_mut([16, 48][round / 2] * PAGE) {
            space.kernel("farside.increment").on(card).call(Write(part)).unwrap();
        }
    }
    assert!(data.iter().enumerate().all(|(index, &word)| word == index as u64 + 4));
    assert!(space.report().stats.evictions > 0);
    space.check().unwrap();
}

fn stream_with(
    table_pages: Option<u32>,
    place: fn(&farside_softcard::serve::CardServer) -> CardPlace,
) {
    let folder = TempDir::new();
    let small = |card| CardConfig { frames: CARD, ..config(&folder, card) };
    let first = match table_pages {
        Some(pages) => with_table_pages(small(0), pages),
        None => small(0),
    };
    let servers = [serve(first), serve(small(1))];
    stream(servers.each_ref().map(place));
}

#[test]
fn three_times_a_cards_memory_streams_through_whatever_tables_it_has() {
    within(LIMIT, "oversubscription", || {
        TABLES.into_iter().for_each(|pages| stream_with(pages, place));
    });
}

#[test]
fn three_times_a_cards_memory_streams_through_by_messages_whatever_tables_it_has() {
    within(LIMIT, "oversubscription by messages", || {
        TABLES.into_iter().for_each(|pages| stream_with(pages, place_by_messages));
    });
}
