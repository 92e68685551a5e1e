//! The ledger against bytes that a disk, a crash or a person may leave.

mod common;

use common::world::{HOUR, NOT, World};
use common::{fresh_ledger, seconds};
use farside_lease::ledger::EPOCHS_SKIPPED;
use farside_lease::{Epoch, Ledger, LedgerError, Limits};
use proptest::collection::vec;
use proptest::prelude::*;

/// A file that grew: after each durable write its length, and the highest epoch that was told then.
fn grown() -> (Vec<u8>, Vec<(usize, Epoch)>) {
    let mut world = World::new(Limits::default(), &["card0", "card1"], &["a", "b"]);
    let mut written = vec![];
    for round in 0..6 {
        world.borrow("a", &["card0", "card1"], NOT);
        written.push((world.disk.len(), world.lender.last_epoch()));
        world.borrow("b", &["card1"], HOUR);
        world.give_back("a", "card1");
        written.push((world.disk.len(), world.lender.last_epoch()));
        world.give_back("a", "card0");
        world.give_back("b", "card1");
        world.pass(seconds(round));
        written.push((world.disk.len(), world.lender.last_epoch()));
    }
    (world.disk, written)
}

#[test]
fn a_ledger_says_what_was_written() {
    let (bytes, written) = grown();
    let ledger = Ledger::read(&bytes).expect("it is whole");
    assert_eq!(ledger.last_epoch(), written.last().expect("some").1);
    assert_eq!(ledger.last_epoch(), Epoch(18));
    assert_eq!(ledger.leases().count(), 0, "all were given back");
    assert_eq!(Ledger::read(&ledger.bytes()).as_ref(), Ok(&ledger), "shorter, and the same");
    assert!(ledger.bytes().len() < bytes.len() / 4);
}

#[test]
fn the_file_stays_short_however_much_is_borrowed() {
    let mut world = World::new(Limits::default(), &["card0"], &["a"]);
    let mut longest = 0;
    for _ in 0..5000 {
        world.borrow("a", &["card0"], NOT);
        world.give_back("a", "card0");
        world.log.clear();
        longest = longest.max(world.disk.len());
    }
    assert!((100_000..300_000).contains(&longest), "{longest} bytes");
    assert!(world.disk.len() < longest, "it was replaced by a shorter one");
    assert_eq!(Ledger::read(&world.disk).expect("it is whole").last_epoch(), Epoch(5000));
}

#[test]
fn a_write_that_was_cut_off_at_any_byte_is_ignored_and_no_epoch_is_given_again() {
    let (bytes, written) = grown();
    let first = fresh_ledger().bytes().len();
    for length in 0..bytes.len() {
        let read = Ledger::read(&bytes[..length]);
        let durable = written.iter().filter(|(end, _)| *end <= length).map(|(_, epoch)| *epoch);
        let durable = durable.max().unwrap_or_default();
        match read {
            Ok(ledger) => assert!(ledger.last_epoch() >= durable, "cut at {length}"),
            Err(_) => assert!(length < first + 64, "cut at {length}: nothing was granted yet"),
        }
    }
}

#[test]
fn no_flipped_bit_gives_back_an_epoch() {
    let (bytes, written) = grown();
    let last = written.last().expect("some").1;
    let (mut refused, mut skipped) = (0, 0);
    for at in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[at / 8] ^= 1 << (at % 8);
        match Ledger::read(&bytes) {
            Err(_) => refused += 1,
            Ok(ledger) => {
                let above = ledger.last_epoch().0.saturating_sub(last.0);
                assert!(above > EPOCHS_SKIPPED / 2, "bit {at} was believed");
                skipped += 1;
            }
        }
    }
    assert!(refused > 0 && skipped > 0, "{refused} refused, {skipped} at the end");
}

#[test]
fn damage_in_the_middle_is_named_with_its_place() {
    let (mut bytes, _) = grown();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    let error = Ledger::read(&bytes).expect_err("it is damaged");
    let LedgerError::Damaged { offset, .. } = error else { panic!("{error}") };
    assert!(offset <= middle && middle - offset < 200, "{offset}");
    assert_eq!(Ledger::read(b""), Err(LedgerError::NotALedger));
    assert_eq!(Ledger::read(&bytes[1..]), Err(LedgerError::NotALedger));
    assert_eq!(Ledger::read(&bytes[..8]), Err(LedgerError::NoBeginning { offset: 0 }));
}

#[test]
fn after_a_damaged_end_nothing_is_granted_until_the_longest_lease_is_over() {
    let mut world = World::new(Limits::default(), &["card0"], &["a", "b"]);
    world.borrow("a", &["card0"], NOT);
    world.give_back("a", "card0");
    world.borrow("a", &["card0"], NOT);
    world.cut.insert("a".into());
    // The last write, the grant of the lease that a holds, is gone.
    let torn = world.disk.len() - 3;
    world.disk.truncate(torn);
    world.restart_lender(common::BOOT, &["card0"]);
    world.borrow("b", &["card0"], HOUR);
    world.pass(seconds(59));
    assert_eq!(world.has("a", "card0"), None);
    assert_eq!(world.has("b", "card0"), None);
    world.pass(seconds(2));
    let lease = world.has("b", "card0").expect("the longest lease is over");
    assert!(lease.epoch.0 > EPOCHS_SKIPPED);
}

#[test]
fn zeros_behind_the_end_are_a_write_that_never_arrived() {
    let (mut bytes, _) = grown();
    bytes.extend([0; 4096]);
    let ledger = Ledger::read(&bytes).expect("a file system may leave zeros");
    assert_eq!(ledger.last_epoch(), Epoch(18 + EPOCHS_SKIPPED));
}

proptest! {
    #[test]
    fn random_bytes_are_no_ledger_and_no_panic(
        bytes in vec(any::<u8>(), 0..300),
        whole in any::<bool>(),
    ) {
        let start = if whole { fresh_ledger().bytes() } else { b"FSLEASE1".to_vec() };
        let file = [start, bytes].concat();
        let _ = Ledger::read(&file);
    }

    #[test]
    fn several_damages_at_once_are_refused_or_skipped_over(
        places in vec((any::<prop::sample::Index>(), 1..=255u8), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let (mut bytes, written) = grown();
        let whole = bytes.len();
        for (at, change) in &places {
            let at = at.index(whole);
            bytes[at] ^= change;
        }
        // Cut behind the first damage, so that it may be at the end.
        let length = whole - cut.index(64);
        bytes.truncate(length);
        let durable = written.iter().filter(|(end, _)| *end <= length).map(|(_, e)| *e).max();
        if let Ok(ledger) = Ledger::read(&bytes) {
            prop_assert!(ledger.last_epoch() >= durable.unwrap_or_default());
        }
    }
}
