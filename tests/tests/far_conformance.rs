//! The conformance suite of the card interface on cards that are served: by threads of this process,
//! and by a process of their own.
//!
//! A check that fails is reported by its name with what it saw; all others are run all the same.

use std::time::Duration;

use farside::CardPlace;
use farside_conformance::live::CardUnderTest;
use farside_conformance::{Verdict, checks};
use farside_softcard::WindowMemory;
use farside_softcard::serve::CardConfig;
use harness::live::served::{CardProcess, TempDir, config, place, serve, serve_if_asked};
use harness::live::within;

const LIMIT: Duration = Duration::from_secs(300);

/// Runs every check on the card at a place; all must pass.
fn conforms(place: &CardPlace) {
    let mut card = CardUnderTest::open(place).unwrap();
    let (mut failed, mut ran) = (Vec::new(), 0);
    let whole = card.run(|check, found| {
        ran += 1;
        match found {
            Ok(Verdict::Passed) => {}
            Ok(Verdict::NotRun(why)) => failed.push(format!("{}: not run: {why}", check.name)),
            Err(error) => failed.push(format!("{}: {error}", check.name)),
        }
    });
    assert!(failed.is_empty(), "{} of {ran} checks:\n{}", failed.len(), failed.join("\n"));
    assert_eq!(whole, Ok(()));
    assert_eq!(ran, checks().len());
}

/// A card whose kernels allocate too: there is a check for everything that it can.
fn with_window(config: CardConfig) -> CardConfig {
    CardConfig { window: vec![WindowMemory::plain(128), WindowMemory::plain(128)], ..config }
}

#[test]
fn a_card_served_by_threads_conforms() {
    within(LIMIT, "the checks on threads", || {
        let folder = TempDir::new();
        let server = serve(with_window(config(&folder, 0)));
        conforms(&place(&server));
    });
}

#[test]
fn a_card_served_by_a_process_conforms() {
    serve_if_asked(with_window);
    within(LIMIT, "the checks on a process", || {
        let folder = TempDir::new();
        let process =
            CardProcess::start("a_card_served_by_a_process_conforms", &config(&folder, 0));
        conforms(&process.place());
    });
}

/// Nothing is shared, not even an event: DMA, card memory, doorbell and interrupts go by messages.
#[test]
fn a_card_that_is_reached_by_messages_conforms() {
    let name = "a_card_that_is_reached_by_messages_conforms";
    serve_if_asked(with_window);
    within(LIMIT, "the checks by messages", || {
        let folder = TempDir::new();
        let process = CardProcess::start(name, &config(&folder, 0));
        conforms(&process.place_by_messages());
        // The next client shares memory again.
        conforms(&process.place());
    });
}

/// Negative control: a card that goes in the middle is an error of the bus, never a pass.
#[test]
fn control_a_card_that_goes_away_passes_nothing_more() {
    let name = "control_a_card_that_goes_away_passes_nothing_more";
    serve_if_asked(with_window);
    within(LIMIT, "a card that goes away", || {
        let folder = TempDir::new();
        let mut process = CardProcess::start(name, &config(&folder, 0));
        let mut card = CardUnderTest::open(&process.place()).unwrap();
        process.crash_to_the_last();
        let mut passed = 0;
        let whole = card.run(|_, found| passed += u32::from(found == &Ok(Verdict::Passed)));
        assert!(whole.is_err());
        assert_eq!(passed, 0);
    });
}
