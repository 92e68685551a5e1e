//! The conformance suite on the model in this process, and on broken ones, each of which it finds.

mod conforming;

use std::collections::BTreeSet;

use conforming::{Flaw, Model};
use farside_card::CardMutation;
use farside_card::interface::register;
use farside_conformance::{Verdict, checks};

/// Names of the checks that fail, with what they say.
fn failures(flaw: Option<Flaw>) -> Vec<(&'static str, String)> {
    let mut model = Model::new(flaw);
    let mut failures = Vec::new();
    for check in checks() {
        if let Err(error) = (check.run)(&mut model) {
            failures.push((check.name, error));
        }
    }
    failures
}

#[test]
fn the_model_conforms() {
    let mut model = Model::new(None);
    for check in checks() {
        let verdict = (check.run)(&mut model);
        assert_eq!(verdict, Ok(Verdict::Passed), "{}", check.name);
    }
}

/// What must come may come late: checks that looked once refused a card by messages on a busy machine.
#[test]
fn a_card_that_is_late_conforms() {
    let mut model = Model::late();
    let found = checks().iter().map(|check| (check.name, (check.run)(&mut model)));
    let failed: Vec<_> = found.filter(|(_, verdict)| *verdict != Ok(Verdict::Passed)).collect();
    assert_eq!(failed, []);
}

#[test]
fn a_card_without_tables_conforms_and_its_tables_are_not_run() {
    let mut model = Model::without_tables();
    let mut not_run = 0;
    for check in checks() {
        match (check.run)(&mut model) {
            Ok(Verdict::Passed) => {}
            Ok(Verdict::NotRun(why)) => {
                assert!(why.is_capability(register::CAP_TABLES), "{}: {why}", check.name);
                not_run += 1;
            }
            Err(error) => panic!("{}: {error}", check.name),
        }
    }
    assert_eq!(not_run, 12);
}

/// An old card: its driver may know of windows.
#[test]
fn a_card_without_a_window_conforms_and_its_window_is_not_run() {
    let mut model = Model::without_window();
    let mut not_run = 0;
    for check in checks() {
        match (check.run)(&mut model) {
            Ok(Verdict::Passed) => {}
            Ok(Verdict::NotRun(why)) => {
                assert!(why.is_capability(register::CAP_ALLOC), "{}: {why}", check.name);
                not_run += 1;
            }
            Err(error) => panic!("{}: {error}", check.name),
        }
    }
    assert_eq!(not_run, 4);
}

#[test]
fn every_check_starts_from_whatever_the_last_one_left() {
    let mut model = Model::new(None);
    for check in checks().iter().rev() {
        let verdict = (check.run)(&mut model);
        assert_eq!(verdict, Ok(Verdict::Passed), "{}", check.name);
    }
}

#[test]
fn control_every_flaw_is_found_and_every_check_finds_one() {
    let mut useful = BTreeSet::new();
    for flaw in Flaw::ALL {
        let failures = failures(Some(flaw));
        assert!(!failures.is_empty(), "{flaw:?} was not found");
        useful.extend(failures.into_iter().map(|(name, _)| name));
    }
    for check in checks() {
        assert!(useful.contains(check.name), "no flaw makes {} fail", check.name);
    }
}

#[test]
fn control_memories_that_are_mixed_up_or_do_not_add_up_are_found_by_their_check() {
    for flaw in [Flaw::MemoryIgnored, Flaw::MemoryTooLarge] {
        let found = failures(Some(flaw));
        let own = "each_memory_gives_its_own_frames_and_gets_them_back";
        assert!(found.iter().any(|(name, _)| name.ends_with(own)), "{flaw:?}: {found:?}");
    }
}

/// Rules of the tables that can be seen from outside, each broken in the card's own model. The others are for
/// its own tests: of walks beside changes, of sizes of entries, of caches that this model does not have.
const BROKEN: [CardMutation; 13] = [
    CardMutation::UnmapLeavesTable,
    CardMutation::UnmapLeavesTlbs,
    CardMutation::ProtectLeavesTable,
    CardMutation::ProtectLeavesTlbs,
    CardMutation::WalkIgnoresRights,
    CardMutation::AccessedNotSet,
    CardMutation::DirtyNotSet,
    CardMutation::TlbWritesUnseen,
    CardMutation::AccessedLeavesTlbs,
    CardMutation::ResumeSetsNoBits,
    CardMutation::MapForgetsBits,
    CardMutation::SpacesShareTables,
    CardMutation::TrustPagesWithoutRoom,
];

#[test]
fn control_every_broken_rule_of_the_tables_that_can_be_seen_is_found() {
    for mutation in BROKEN {
        let mut model = Model::mutated(mutation);
        let found = checks().iter().filter(|check| (check.run)(&mut model).is_err());
        let found: Vec<_> = found.map(|check| check.name).collect();
        println!("{mutation:?}: {found:?}");
        assert!(!found.is_empty(), "{mutation:?} was not found");
    }
}

#[test]
fn a_card_without_kernels_or_capabilities_is_not_said_to_pass_what_was_not_run() {
    let mut model = Model::bare();
    let mut not_run = 0;
    for check in checks() {
        match (check.run)(&mut model) {
            Ok(Verdict::Passed) => {}
            Ok(Verdict::NotRun(_)) => not_run += 1,
            Err(error) => panic!("{}: {error}", check.name),
        }
    }
    assert!(not_run > 10, "{not_run} checks need a kernel");
}
