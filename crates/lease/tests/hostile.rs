//! A host that says whatever it likes to a lender: it harms itself at most.

mod common;

use std::time::Duration;

use common::world::{NOT, World};
use common::{device, devices, host, lease, seconds};
use farside_lease::lender::{Event, FenceId, FenceOutcome, Status, WriteId};
use farside_lease::{BorrowerId, LeaseId, Limits, RequestId, Text};
use proptest::collection::vec;
use proptest::prelude::*;

fn any_lease() -> impl Strategy<Value = LeaseId> {
    (0..4usize, 0..6u64).prop_map(|(device, epoch)| lease(&format!("card{device}"), epoch))
}

/// What a host may send: its name is proved by its certificate, all else it chooses.
fn message() -> impl Strategy<Value = Event> {
    let leases = || vec(any_lease(), 0..300);
    prop_oneof![
        (any::<u64>(), 0..4usize, any::<u64>(), any::<Option<u64>>()).prop_map(
            |(request, wanted, wait, duration)| Event::Borrow {
                request: RequestId(request),
                borrower: BorrowerId { host: host("x"), user: None },
                devices: devices(&[&format!("card{wanted}")]),
                duration: duration.map(Duration::from_nanos),
                wait: Duration::from_nanos(wait),
            }
        ),
        (any::<u64>(), leases()).prop_map(|(request, leases)| Event::Renew {
            request: RequestId(request),
            host: host("x"),
            leases,
        }),
        leases().prop_map(|leases| Event::Return { host: host("x"), leases }),
        (0..5u64)
            .prop_map(|request| Event::Withdraw { host: host("x"), request: RequestId(request) }),
    ]
}

/// Answers that belong to nothing that is under way.
fn stray_answer() -> impl Strategy<Value = Event> {
    let why = || Text::from("why not");
    prop_oneof![
        (100..u64::MAX).prop_map(|write| Event::Stored { write: WriteId(write) }),
        (100..u64::MAX)
            .prop_map(move |write| Event::StoreFailed { write: WriteId(write), why: why() }),
        (100..u64::MAX).prop_map(|fence| Event::Fenced {
            fence: FenceId(fence),
            device: device("card0"),
            outcome: FenceOutcome::Clean { generation: 0 },
        }),
        (100..u64::MAX).prop_map(|epoch| Event::HungUp { lease: lease("card0", epoch) }),
    ]
}

proptest! {
    #[test]
    fn another_host_keeps_its_lease_and_is_served(
        events in vec(prop_oneof![4 => message(), 1 => stray_answer()], 1..60),
    ) {
        let mut world =
            World::new(Limits::default(), &["card0", "card1", "card2"], &["a", "b", "x"]);
        world.borrow("a", &["card0"], NOT);
        let of_a = world.has("a", "card0").expect("it is free");
        for event in events {
            world.lender(event);
            prop_assert!(world.lender.is_current(&of_a), "a has its lease");
            prop_assert!(world.lender.waiting() <= 64, "x waits with no more than it may");
            world.pass(Duration::from_millis(700));
        }
        prop_assert_eq!(world.has("a", "card0"), Some(of_a));
        // x waits for card1 with as much as it may; b comes after one of them.
        world.borrow("b", &["card1"], seconds(1000));
        world.pass(seconds(400));
        prop_assert!(world.has("b", "card1").is_some(), "{:?}", world.status("card1"));
    }
}

#[test]
fn a_renewal_that_names_too_many_leases_renews_none() {
    let mut world = World::new(Limits::default(), &["card0"], &["a"]);
    world.borrow("a", &["card0"], NOT);
    world.log.clear();
    let leases = vec![lease("card0", 1); 257];
    world.lender(Event::Renew { request: RequestId(9), host: host("a"), leases });
    let renewals = world.renewals();
    assert_eq!(renewals.len(), 256, "the answer is bounded too");
    assert!(renewals.iter().all(|renewal| renewal.result.is_err()));
    assert!(matches!(world.status("card0"), Status::Lent(_)));
}
