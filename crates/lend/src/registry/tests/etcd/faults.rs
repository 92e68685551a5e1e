//! An etcd at which things go wrong, at each call.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use super::server::{Call, Fault};
use super::{Hosts, hosts};
use crate::proto::device::State;
use crate::registry::tests::conformance::{Rig, card, claim_of, host_name};
use crate::registry::tests::in_simulated_time;
use crate::registry::{PRESENCE, Published};

/// After this time without faults everybody knows everything: a list, and a try that failed before it.
const MENDED: Duration = Duration::from_secs(8);
/// No claim waits longer for an etcd that is not there.
const CLAIM_LIMIT: Duration = Duration::from_secs(12);

fn says(host: usize, epoch: u64) -> Published {
    let mut card = card("card0", State::Lent);
    card.epoch = epoch;
    Published { address: format!("10.0.0.{host}:7301"), devices: vec![card] }
}

/// Whether all know what all say.
fn all_know(rig: &Hosts, epoch: u64) -> bool {
    (0..rig.hosts()).all(|viewer| {
        let view = rig.host(viewer).view();
        (0..rig.hosts()).all(|host| {
            view.iter().any(|found| {
                found.host == host_name(host)
                    && found.said == says(host, epoch)
                    && found.is_present()
            })
        })
    })
}

async fn all_know_within(rig: &Hosts, epoch: u64, limit: Duration) -> Result<(), String> {
    let end = Instant::now() + limit;
    while !all_know(rig, epoch) {
        if Instant::now() > end {
            return Err(format!("after {limit:?}: {:?}", rig.host(1).view()));
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Claims race; those that fail are left. `Err`: two had their turn at once, or one took too long.
async fn race(rig: &Hosts) -> Result<usize, String> {
    let taken: Arc<Mutex<BTreeSet<&str>>> = Arc::default();
    let mut racing = JoinSet::new();
    for claimant in 0..6 {
        let (registry, taken) = (rig.host(claimant % rig.hosts()), Arc::clone(&taken));
        racing.spawn(async move {
            let mut turns = 0;
            for round in 0..4 {
                let devices: &[&str] = [&["a"][..], &["a", "b"], &["b"]][(claimant + round) % 3];
                let claim = claim_of(&[0, 1], devices);
                let turn = timeout(6 * CLAIM_LIMIT, registry.claim(&claim)).await;
                let Ok(turn) = turn.map_err(|_| "a claim hangs".to_owned())? else { continue };
                for device in devices {
                    if !taken.lock().expect("no panic").insert(device) {
                        return Err(format!("{device} is in two turns at a time"));
                    }
                }
                sleep(Duration::from_millis(40)).await;
                taken.lock().expect("no panic").retain(|device| !devices.contains(device));
                drop(turn);
                turns += 1;
            }
            Ok::<usize, String>(turns)
        });
    }
    let mut turns = 0;
    while let Some(raced) = racing.join_next().await {
        turns += raced.map_err(|error| error.to_string())??;
    }
    Ok(turns)
}

#[test]
fn whatever_fails_at_whatever_call_no_two_have_a_turn_and_all_is_well_afterwards() {
    let faults = [
        Fault::Error(Code::Unavailable),
        Fault::Error(Code::Internal),
        Fault::Late(Duration::from_millis(700)),
        Fault::Late(Duration::from_secs(4)),
        Fault::Silent,
        Fault::Lost,
        Fault::Broken,
        Fault::Stale(3),
        Fault::Forgets,
        Fault::Repeated,
    ];
    let mut turns = 0;
    for call in Call::ALL {
        for fault in faults {
            for every in [1, 3] {
                in_simulated_time(async {
                    let case = format!("{fault:?} at {call:?}, every {every}");
                    let rig = hosts(3).await;
                    (0..3).for_each(|host| rig.host(host).publish(says(host, 1)));
                    all_know_within(&rig, 1, MENDED).await.expect(&case);
                    rig.shared.follow(move |_, at, count| {
                        (at == call && count % every == 0).then_some(fault)
                    });
                    (0..3).for_each(|host| rig.host(host).publish(says(host, 2)));
                    turns += race(&rig).await.unwrap_or_else(|why| panic!("{case}: {why}"));
                    rig.shared.behave();
                    let known = all_know_within(&rig, 2, MENDED).await;
                    known.unwrap_or_else(|why| panic!("{case}: {why}"));
                    // A place whose withdrawal was lost runs out.
                    let (registry, claim) = (rig.host(0), claim_of(&[0], &["a"]));
                    let claimed = timeout(2 * PRESENCE, registry.claim(&claim)).await;
                    claimed.expect(&case).expect(&case);
                });
            }
        }
    }
    assert!(turns > 1_000, "only {turns} turns in all");
}

/// Everybody reads that nobody was there before.
fn forgotten_queues(_: usize, call: Call, _: u64) -> Option<Fault> {
    (call == Call::Range).then_some(Fault::Forgets)
}

#[test]
fn an_etcd_that_lies_about_its_queue_gives_no_turn_to_two() {
    in_simulated_time(async {
        let rig = hosts(3).await;
        rig.shared.follow(forgotten_queues);
        race(&rig).await.unwrap();
    });
}

#[test]
fn a_claim_that_ignores_the_compare_of_its_transaction_is_caught() {
    in_simulated_time(async {
        let rig = hosts(3).await;
        *rig.shared.compares.lock().unwrap() = false;
        rig.shared.follow(forgotten_queues);
        let caught = race(&rig).await.unwrap_err();
        assert!(caught.contains("two turns"), "{caught}");
    });
}

#[test]
fn a_compacted_watch_and_a_silent_one_are_made_up_for_by_lists() {
    for fault in [None, Some(Fault::Lost), Some(Fault::Error(Code::OutOfRange))] {
        in_simulated_time(async {
            let rig = hosts(3).await;
            rig.shared.follow(move |_, call, _| fault.filter(|_| call == Call::Watch));
            (0..3).for_each(|host| rig.host(host).publish(says(host, 1)));
            all_know_within(&rig, 1, MENDED).await.unwrap();
            if fault.is_none() {
                // It is away while what it has not seen is compacted.
                rig.cut(2);
                (0..2).for_each(|host| rig.host(host).publish(says(host, 2)));
                sleep(Duration::from_secs(5)).await;
                rig.shared.change(|store| store.compacted = store.revision);
                rig.mend(2);
            }
            (0..3).for_each(|host| rig.host(host).publish(says(host, 2)));
            all_know_within(&rig, 2, MENDED).await.unwrap();
        });
    }
}

#[test]
fn without_etcd_claims_end_by_their_limit_and_what_is_known_grows_old_and_says_so() {
    in_simulated_time(async {
        let rig = hosts(3).await;
        (0..3).for_each(|host| rig.host(host).publish(says(host, 1)));
        all_know_within(&rig, 1, MENDED).await.unwrap();
        assert_eq!(rig.host(0).trouble(), None);
        let first = rig.host(1).claim(&claim_of(&[0, 1], &["a"])).await.unwrap();
        let waiting = rig.host(0);
        let waiting = tokio::spawn(async move {
            let began = Instant::now();
            let claimed = waiting.claim(&claim_of(&[0, 1], &["a"])).await;
            (claimed.map(drop), began.elapsed())
        });
        sleep(Duration::from_secs(2)).await;
        rig.shared.follow(|_, _, _| Some(Fault::Silent));
        let (claimed, took) = waiting.await.unwrap();
        assert!(claimed.is_err() && took < Duration::from_secs(2) + CLAIM_LIMIT, "{took:?}");
        let began = Instant::now();
        let refused = rig.host(0).claim(&claim_of(&[1], &["b"])).await.unwrap_err();
        assert!(began.elapsed() < CLAIM_LIMIT && refused.message().contains("http://etcd:2379"));
        sleep(PRESENCE).await;
        let view = rig.host(0).view();
        assert_eq!(view.len(), 3);
        assert!(view[0].is_present() && !view[1].is_present(), "{view:?}");
        assert_eq!(view[1].said, says(1, 1));
        let trouble = rig.host(0).trouble().unwrap();
        assert!(
            trouble.contains("has not answered") && trouble.contains("leases go on"),
            "{trouble}"
        );
        drop(first);
        rig.shared.behave();
        all_know_within(&rig, 1, MENDED).await.unwrap();
        assert_eq!(rig.host(0).trouble(), None);
    });
}

#[test]
fn a_claimant_that_is_gone_is_waited_for_until_its_lease_in_etcd_has_run_out() {
    in_simulated_time(async {
        let rig = hosts(2).await;
        let turn = rig.host(0).claim(&claim_of(&[0], &["a"])).await.unwrap();
        rig.stop(0);
        let began = Instant::now();
        let next = rig.host(1).claim(&claim_of(&[0], &["a"])).await.unwrap();
        let took = began.elapsed();
        assert!(
            (Duration::from_secs(6)..PRESENCE + Duration::from_secs(2)).contains(&took),
            "{took:?}"
        );
        drop((turn, next));
    });
}

#[test]
fn a_claim_whose_lease_in_etcd_is_taken_away_says_so() {
    in_simulated_time(async {
        let rig = hosts(2).await;
        let first = rig.host(0).claim(&claim_of(&[0], &["a"])).await.unwrap();
        let waiting = rig.host(1);
        let waiting =
            tokio::spawn(async move { waiting.claim(&claim_of(&[0], &["a"])).await.map(drop) });
        sleep(Duration::from_secs(1)).await;
        // Leases: one of each host, then those of the claims.
        rig.shared.change(|store| (1..9).filter(|&id| store.revoke(id)).count());
        let ended = timeout(CLAIM_LIMIT, waiting).await.unwrap().unwrap();
        assert_eq!(ended.unwrap_err().code(), Code::Aborted);
        drop(first);
    });
}

#[test]
fn a_member_that_is_behind_is_not_believed_and_one_that_begins_anew_is_after_a_while() {
    in_simulated_time(async {
        let rig = hosts(2).await;
        (0..2).for_each(|host| rig.host(host).publish(says(host, 1)));
        all_know_within(&rig, 1, MENDED).await.unwrap();
        rig.shared.follow(|_, call, _| (call == Call::Range).then_some(Fault::Stale(i64::MAX / 2)));
        sleep(Duration::from_secs(8)).await;
        let view = rig.host(0).view();
        assert_eq!(view[1].said, says(1, 1), "an older answer was taken");
        assert!(rig.host(0).refused() > 0);
        rig.shared.behave();
        // Restored from an old copy: numbers begin anew, and all keys are gone.
        rig.shared.change(|store| *store = super::store::Store::default());
        sleep(Duration::from_secs(20)).await;
        (0..2).for_each(|host| rig.host(host).publish(says(host, 3)));
        all_know_within(&rig, 3, 2 * MENDED).await.unwrap();
    });
}
