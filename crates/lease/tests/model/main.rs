//! Every order in which some borrowers, a lender, its disk, its devices and the network between them
//! can do what they do, within bounds: the model checker `stateright` over the very structs.
//!
//! `machine` is the state and its steps, `properties` what must hold. Each test prints how many
//! states it looked at. The controls break one rule each and must be caught.

#[path = "../common/mod.rs"]
mod common;
mod machine;
mod properties;
mod steps;

use std::time::Instant;

use farside_lease::Mutation;
use machine::{Budgets, Leasing};
use stateright::{Checker, HasDiscoveries, Model};

/// Looks at every state; fails with the way to a state that must not be.
fn holds_everywhere(name: &str, model: Leasing) {
    let start = Instant::now();
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!(
        "model {name}: {} states, {} of them different, {} steps deep at most, {:.1} s",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        start.elapsed().as_secs_f64(),
    );
    assert!(checker.is_done(), "every state was looked at");
    checker.assert_properties();
}

/// Looks until something is wrong, which it must be, and that it is `what`.
fn is_caught(name: &str, model: Leasing, what: &'static str) {
    let start = Instant::now();
    let first = HasDiscoveries::AnyOf([what].into());
    let checker = model.checker().threads(2).finish_when(first).spawn_bfs().join();
    println!(
        "control {name}: caught after {} states, {:.1} s",
        checker.unique_state_count(),
        start.elapsed().as_secs_f64(),
    );
    let path = checker.discovery(what).unwrap_or_else(|| {
        panic!("{name} is not caught: {:?}", checker.discoveries().keys().collect::<Vec<_>>())
    });
    println!("  {} steps: {:?}", path.clone().into_actions().len(), path.into_actions());
}

/// A network that loses, reorders, delays and repeats.
fn network() -> Leasing {
    let budgets = Budgets { ticks: 4, repeats: 1, ..Budgets::default() };
    Leasing { prompt: true, ..Leasing::new(budgets) }
}

/// A lease that is renewed more than once before it ends, and another after it.
fn long() -> Leasing {
    let budgets = Budgets { ticks: 6, returns: 0, ..Budgets::default() };
    Leasing { prompt: true, lease_ticks: 4, ..Leasing::new(budgets) }
}

/// Daemons that pause, for long enough that a renewed lease ends and another begins.
fn pauses() -> Leasing {
    let budgets = Budgets { ticks: 5, pauses: 1, on_the_way: 1, ..Budgets::default() };
    Leasing { prompt: true, ..Leasing::new(budgets) }
}

/// Two leases of one borrower, so that words of the first may reach the second.
fn again() -> Leasing {
    let budgets = Budgets { ticks: 2, requests: 2, returns: 2, repeats: 1, ..Budgets::default() };
    Leasing { prompt: true, ..Leasing::new(budgets) }
}

/// Leases that end by other words than their borrower's return.
fn words() -> Leasing {
    let budgets =
        Budgets { ticks: 2, recalls: 1, hang_ups: 1, lost_devices: 1, ..Budgets::default() };
    Leasing { prompt: true, ..Leasing::new(budgets) }
}

/// Crashes at every step, the disk's and the reset's among them.
fn crashes() -> Leasing {
    let budgets = Budgets {
        ticks: 2,
        lender_crashes: 1,
        borrower_crashes: 1,
        full_disks: 1,
        ..Budgets::default()
    };
    Leasing::new(budgets)
}

/// A device that is gone when it is fenced, and comes back.
fn absences() -> Leasing {
    let budgets = Budgets { ticks: 2, lost_devices: 1, absences: 1, ..Budgets::default() };
    Leasing::new(budgets)
}

/// Two devices, and three borrowers: of both, of one, and of the other.
fn sets() -> Leasing {
    let budgets = Budgets { ticks: 2, returns: 2, ..Budgets::default() };
    let wants: &[&[&str]] = &[&["x", "y"], &["x"], &["y"]];
    Leasing { prompt: true, devices: &["x", "y"], wants, ..Leasing::new(budgets) }
}

/// Two borrowers of the same two devices, whose lender crashes or loses a device.
fn sets_and_crashes() -> Leasing {
    let budgets = Budgets {
        ticks: 2,
        returns: 0,
        lost_devices: 1,
        lender_crashes: 1,
        on_the_way: 1,
        ..Budgets::default()
    };
    let wants: &[&[&str]] = &[&["x", "y"], &["x", "y"]];
    Leasing { devices: &["x", "y"], wants, ..Leasing::new(budgets) }
}

#[test]
fn what_is_asked_for_together_is_granted_together() {
    holds_everywhere("sets", sets());
}

#[test]
fn what_is_asked_for_together_is_granted_together_whatever_crashes() {
    holds_everywhere("sets and crashes", sets_and_crashes());
}

#[test]
fn never_two_holders_whatever_the_network_does() {
    holds_everywhere("network", network());
}

#[test]
fn never_two_holders_whoever_pauses() {
    holds_everywhere("pauses", pauses());
}

#[test]
fn never_two_holders_with_recalls_hang_ups_and_lost_devices() {
    holds_everywhere("words", words());
}

#[test]
fn never_two_holders_of_a_device_that_comes_and_goes() {
    holds_everywhere("absences", absences());
}

#[test]
fn never_two_holders_after_renewals() {
    holds_everywhere("long", long());
}

#[test]
fn never_two_holders_whoever_crashes() {
    holds_everywhere("crashes", crashes());
}

#[test]
fn never_two_holders_when_one_borrows_again() {
    holds_everywhere("again", again());
}

#[test]
fn control_an_epoch_that_is_not_checked_is_caught() {
    let model = Leasing { mutation: Some(Mutation::EpochUnchecked), ..again() };
    is_caught("epoch unchecked", model, properties::ONE_HOLDER);
}

#[test]
fn control_a_lease_that_is_counted_from_the_reply_is_caught() {
    let model = Leasing { mutation: Some(Mutation::CountFromReply), ..network() };
    is_caught("counted from the reply", model, properties::ONE_HOLDER);
}

#[test]
fn control_duplicates_that_are_kept_are_caught() {
    let model = Leasing { mutation: Some(Mutation::KeepDuplicates), ..network() };
    is_caught("duplicates kept", model, properties::GRANTED_ONCE);
}

#[test]
fn control_a_reply_that_counts_for_another_request_is_caught() {
    let model = Leasing { mutation: Some(Mutation::AnyReply), ..long() };
    is_caught("reply for another request", model, properties::ONE_HOLDER);
}

#[test]
fn control_silence_that_ends_nothing_is_caught() {
    let model = Leasing { mutation: Some(Mutation::IgnoreSilence), ..network() };
    is_caught("silence ignored", model, properties::LENDABLE);
}

#[test]
fn control_a_fence_that_is_skipped_is_caught() {
    let model = Leasing { mutation: Some(Mutation::SkipFence), ..network() };
    is_caught("fence skipped", model, properties::OLD_EPOCHS_ARE_OUT);
}

#[test]
fn control_drift_that_is_ignored_is_caught() {
    let model = Leasing { drift_allowed: false, ..network() };
    is_caught("drift ignored", model, properties::ONE_HOLDER);
}

#[test]
fn control_an_epoch_that_is_not_stored_before_the_grant_is_caught() {
    let model = Leasing { mutation: Some(Mutation::GrantBeforeStored), ..crashes() };
    is_caught("epoch not stored", model, properties::EPOCHS_ARE_NEW);
}

#[test]
fn control_a_believer_that_is_forgotten_is_caught() {
    let model = Leasing { mutation: Some(Mutation::ForgetBelievers), ..words() };
    is_caught("believer forgotten", model, properties::ONE_HOLDER);
}

#[test]
fn control_a_set_that_is_granted_in_part_is_caught() {
    let model = Leasing { mutation: Some(Mutation::GrantInPart), ..sets_and_crashes() };
    is_caught("granted in part", model, properties::ALL_OR_NONE);
}
