//! The program's threads and kernels on cards elsewhere write to the same pages while these move
//! about; nothing is lost.
//!
//! The negative controls run the same race with one protecting step of the driver left out and
//! require that the loss is seen.

use std::time::Duration;

use farside::{CardPlace, Space};
use farside_softcard::serve::CardConfig;
use farside_svm::Mutation;
use harness::live::served::{CardProcess, TempDir, config, place, serve, serve_if_asked};
use harness::live::{Race, must_be_caught, seconds, within};

const LIMIT: Duration = Duration::from_secs(60);

/// Frames of a card that has room for half of the pages, so that evictions happen all the time.
fn narrow(pages: usize) -> impl FnOnce(CardConfig) -> CardConfig {
    move |config| CardConfig { frames: pages as u32 / 2, ..config }
}

/// A race on cards anywhere. As few pages as it has, card DMA moves too.
fn on_cards(places: impl IntoIterator<Item = CardPlace>, scheme: &str, pages: usize) -> Race {
    let tune = |config: &mut farside_svm::Config| config.capabilities.dma_from_pages = 4;
    Race::new(Space::builder().cards_at(places).tune(tune), scheme, pages)
}

/// Races on two cards that are processes.
fn race(test: &str, scheme: &str) {
    const PAGES: usize = 48;
    serve_if_asked(narrow(PAGES));
    within(LIMIT, test, || {
        let folder = TempDir::new();
        let cards: Vec<_> =
            (0..2).map(|card| CardProcess::start(test, &config(&folder, card))).collect();
        let race = on_cards(cards.iter().map(CardProcess::place), scheme, PAGES);
        let counts = race.run(seconds()).unwrap();
        assert!(counts.iter().all(|&count| count > 0), "somebody starved: {counts:?}");
        let stats = race.space().report().stats;
        assert!(stats.migrations > 100, "the pages did not move: {stats:?}");
        race.space().check().unwrap();
    });
}

#[test]
fn nothing_is_lost_between_the_host_and_two_card_processes() {
    race("nothing_is_lost_between_the_host_and_two_card_processes", "on-touch");
}

#[test]
fn nothing_is_lost_while_pages_are_duplicated_on_card_processes() {
    race("nothing_is_lost_while_pages_are_duplicated_on_card_processes", "duplication");
}

#[test]
fn nothing_is_lost_while_cards_map_pages_over_the_bus() {
    race("nothing_is_lost_while_cards_map_pages_over_the_bus", "access-counter");
}

#[test]
fn nothing_is_lost_on_card_processes_under_first_touch() {
    race("nothing_is_lost_on_card_processes_under_first_touch", "first-touch");
}

#[test]
fn nothing_is_lost_between_a_card_in_the_program_and_one_elsewhere() {
    within(LIMIT, "mixed", || {
        let folder = TempDir::new();
        let server = serve(narrow(48)(config(&folder, 0)));
        let race = on_cards([CardPlace::InProgram { frames: 24 }, place(&server)], "on-touch", 48);
        race.run(seconds()).unwrap();
        race.space().check().unwrap();
    });
}

#[test]
fn nothing_is_lost_by_runs_of_words_on_card_processes() {
    const TEST: &str = "nothing_is_lost_by_runs_of_words_on_card_processes";
    const PAGES: usize = 48;
    serve_if_asked(narrow(PAGES));
    within(LIMIT, TEST, || {
        let folder = TempDir::new();
        let cards: Vec<_> =
            (0..2).map(|card| CardProcess::start(TEST, &config(&folder, card))).collect();
        let places = cards.iter().map(CardProcess::place);
        let race = on_cards(places, "access-counter", PAGES).by_runs();
        let counts = race.run(seconds()).unwrap();
        assert!(counts.iter().all(|&count| count > 0), "somebody starved: {counts:?}");
        race.space().check().unwrap();
    });
}

/// Runs the race in a child with a rule broken.
fn control(test: &str, mutation: Mutation) {
    control_of(test, mutation, |race| race);
}

fn control_of(test: &str, mutation: Mutation, kind: fn(Race) -> Race) {
    must_be_caught(test, || {
        let folder = TempDir::new();
        let servers = [0, 1].map(|card| serve(narrow(12)(config(&folder, card))));
        (0..20).try_for_each(|_| {
            let race = kind(on_cards(servers.iter().map(place), "on-touch", 12));
            race.space().mutate(mutation).map_err(|error| error.to_string())?;
            race.run(Duration::from_millis(400)).map(drop)
        })
    });
}

#[test]
fn control_copying_to_a_card_elsewhere_before_the_cpu_is_stopped_loses_writes() {
    control(
        "control_copying_to_a_card_elsewhere_before_the_cpu_is_stopped_loses_writes",
        Mutation::CopyBeforeUnmap,
    );
}

#[test]
fn control_not_waiting_for_the_accesses_of_a_card_elsewhere_loses_writes() {
    control(
        "control_not_waiting_for_the_accesses_of_a_card_elsewhere_loses_writes",
        Mutation::SkipDrain,
    );
}

#[test]
fn control_not_waiting_for_runs_on_a_card_elsewhere_loses_writes() {
    control_of(
        "control_not_waiting_for_runs_on_a_card_elsewhere_loses_writes",
        Mutation::SkipDrain,
        Race::by_runs,
    );
}

#[test]
fn control_mapping_on_a_card_elsewhere_before_the_copy_is_done_loses_writes() {
    control(
        "control_mapping_on_a_card_elsewhere_before_the_copy_is_done_loses_writes",
        Mutation::MapBeforeCopy,
    );
}
