//! Pages on loan, live: on cards in the program and on served ones, by rings and by messages
//! (`docs/internals.md`, pages on loan).

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use farside::{Buffer, CardId, PageState, Read, Shared, Space, SpaceBuilder, Stats, Value, Write};
use farside_softcard::serve::{CardConfig, CardServer};
use farside_svm::Mutation;
use harness::live::served::{
    CardProcess, TempDir, config, place, place_by_messages, serve, serve_if_asked, test_kernels,
    with_table_pages,
};
use harness::live::{must_be_caught, within};

const LIMIT: Duration = Duration::from_secs(120);
/// Words of a page.
const PAGE: usize = 512;
/// Pages of a card.
const CARD: usize = 128;

fn builder() -> SpaceBuilder {
    Space::builder().address_space(16 << 20).kernels(test_kernels())
}

/// A space with one card in the program.
fn in_program() -> Space {
    builder().cards(1).card_memory((CARD as u64) << 12).build().unwrap()
}

/// A card of another process, with its server.
struct Served {
    space: Space,
    _server: CardServer,
    _folder: TempDir,
}

fn served(by_messages: bool, change: impl FnOnce(CardConfig) -> CardConfig) -> Served {
    let folder = TempDir::new();
    let server = serve(change(CardConfig { frames: CARD as u32, ..config(&folder, 0) }));
    let place = if by_messages { place_by_messages(&server) } else { place(&server) };
    let space = builder().cards_at([place]).build().unwrap();
    Served { space, _server: server, _folder: folder }
}

/// The same on a card of each kind.
fn on_every_card(test: impl Fn(&Space)) {
    test(&in_program());
    test(&served(false, |config| config).space);
    test(&served(true, |config| config).space);
}

/// Pages whose first words the host has written.
fn pages(space: &Space, count: usize) -> Buffer<AtomicU64> {
    let data = space.alloc_atomic::<AtomicU64>(count * PAGE, "data").unwrap();
    data.iter().step_by(PAGE).enumerate().for_each(|(i, word)| word.store(i as u64, SeqCst));
    data
}

fn add_one(space: &Space, data: &[AtomicU64]) {
    let one = Value(1u64);
    space.kernel("test.affine").call((Shared(data), one, one)).unwrap();
}

/// Reads each page and adds one to every n-th, to none if n is 0; gives the sum of what was read.
fn sparse(space: &Space, data: &[AtomicU64], every: u64) -> u64 {
    space.kernel("test.sparse").call((Shared(data), Value(every))).unwrap()
}

fn stats(space: &Space) -> Stats {
    space.report().stats
}

fn assert_first_words(data: &[AtomicU64], expected: impl Fn(usize) -> u64) {
    for (page, word) in data.iter().step_by(PAGE).enumerate() {
        assert_eq!(word.load(SeqCst), expected(page), "page {page}");
    }
}

#[test]
fn what_is_read_and_written_costs_one_fault_for_rights_a_group_and_then_none() {
    within(LIMIT, "rights", || {
        on_every_card(|space| {
            let data = pages(space, 64);
            for round in 1..=3 {
                add_one(space, &data);
                assert_first_words(&data, |page| page as u64 + round);
                let found = stats(space);
                // A write that comes while the rights are on their way counts as a refill.
                // The host may read a page before the end of the kernel is known: who fights is not lent to.
                let (refills, fights) = (found.refills, found.taken_from_running);
                assert!(found.protection_faults <= 4 + refills + fights, "{round}: {found:?}");
                assert!(found.lent + fights >= 60 * round, "round {round}: {found:?}");
            }
            space.check().unwrap();
        });
    });
}

#[test]
fn a_card_without_tables_asks_for_every_page() {
    within(LIMIT, "without tables", || {
        let old = served(false, |config| with_table_pages(config, 0));
        let data = pages(&old.space, 64);
        add_one(&old.space, &data);
        assert_first_words(&data, |page| page as u64 + 1);
        assert_eq!(stats(&old.space).lent, 0);
        assert!(stats(&old.space).protection_faults > 0);
    });
}

/// Three times what the card has: all of it is written, then every fourth page, and the host reads what came out.
fn stream(space: &Space) -> Result<(), String> {
    const PAGES: usize = 3 * CARD;
    let data = pages(space, PAGES);
    add_one(space, &data);
    for round in 0..4u64 {
        let writes = if round == 0 { 1 } else { 4 };
        let _ = sparse(space, &data, writes);
    }
    for (page, word) in data.iter().step_by(PAGE).enumerate() {
        let expected = page as u64 + 2 + if page % 4 == 0 { 3 } else { 0 };
        let found = word.load(SeqCst);
        if found != expected {
            return Err(format!("page {page} has {found} in place of {expected}"));
        }
    }
    space.check().map_err(|error| error.to_string())
}

#[test]
fn a_stream_over_more_than_a_card_has_is_exact_and_what_was_only_read_is_not_copied() {
    within(LIMIT, "stream", || {
        on_every_card(|space| {
            stream(space).unwrap();
            let found = stats(space);
            assert!(found.lent_written > 0 && found.lent_clean > 0, "{found:?}");
            assert!(found.clean_departures >= found.lent_clean, "{found:?}");
        });
    });
}

#[test]
fn a_stream_is_exact_whatever_tables_the_card_has() {
    within(LIMIT, "tables", || {
        for table_pages in [0, 1, 2, 4] {
            stream(&served(false, |config| with_table_pages(config, table_pages)).space).unwrap();
        }
    });
}

#[test]
fn control_pages_that_were_written_and_count_as_clean_are_noticed() {
    must_be_caught("control_pages_that_were_written_and_count_as_clean_are_noticed", || {
        let space = in_program();
        space.mutate(Mutation::WrittenIsClean).map_err(|error| error.to_string())?;
        stream(&space)
    });
}

#[test]
fn input_that_is_only_read_is_not_lost_with_a_card_in_the_program() {
    within(LIMIT, "input", || {
        let space = in_program();
        let input = read_input_and_write_output(&space);
        space.fail_card(CardId(0)).unwrap();
        assert_first_words(&input, |page| page as u64);
    });
}

#[test]
fn input_that_is_only_read_is_not_lost_with_a_card_process() {
    const NAME: &str = "input_that_is_only_read_is_not_lost_with_a_card_process";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let mut card = CardProcess::start(NAME, &config(&folder, 0));
        let space = builder().cards_at([card.place()]).build().unwrap();
        let input = read_input_and_write_output(&space);
        card.crash();
        while space.kernel("farside.nop").call(()).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_first_words(&input, |page| page as u64);
    });
}

/// A card reads its input word by word and as slices, and writes another allocation meanwhile.
fn read_input_and_write_output(space: &Space) -> Buffer<AtomicU64> {
    let input = pages(space, 24);
    let plain = space.alloc::<u64>(8 * PAGE).unwrap();
    let output = pages(space, 48);
    for _ in 0..3 {
        add_one(space, &output);
        assert_eq!(sparse(space, &input, 0), (0..24).sum::<u64>());
        assert_eq!(space.kernel("farside.sum").call(Read(&plain)).unwrap(), 0);
        // It goes home, and is lent when it comes again.
        let _ = output.iter().step_by(PAGE).map(|word| word.load(SeqCst)).sum::<u64>();
    }
    assert!(stats(space).lent > 0, "the output is lent: {:?}", stats(space));
    input
}

/// The card writes pages, the host writes them anew, a kernel of the card reads them, and the card fails.
fn written_anew_read_and_lost(space: &Space) -> Result<(), String> {
    let mut words = space.alloc::<u64>(20 * PAGE).unwrap();
    space.kernel("farside.increment").call(Write(&mut words)).unwrap();
    words.fill(5);
    let sum = space.kernel("farside.sum").call(Read(&words)).unwrap();
    assert_eq!(sum, 5 * words.len() as u64);
    space.fail_card(CardId(0)).unwrap();
    let parts = space.locate(&words).unwrap();
    match parts.iter().find(|part| part.state == PageState::Lost) {
        Some(part) => Err(format!("what the host had written is lost: {part:?}")),
        None if words.iter().all(|&word| word == 5) => Ok(()),
        None => Err("the host reads something else than it has written".to_owned()),
    }
}

#[test]
fn what_the_host_has_written_is_not_lost_with_a_card_whose_kernel_reads_it() {
    within(LIMIT, "written anew", || {
        on_every_card(|space| written_anew_read_and_lost(space).unwrap());
    });
}

#[test]
fn control_what_is_lent_to_a_kernel_that_reads_is_lost_with_the_card() {
    must_be_caught("control_what_is_lent_to_a_kernel_that_reads_is_lost_with_the_card", || {
        let space = in_program();
        space.mutate(Mutation::LendToReaders).map_err(|error| error.to_string())?;
        written_anew_read_and_lost(&space)
    });
}
