//! The rules of a lease, one after another, between one lender and its borrowers.

mod common;

use common::world::{HOUR, NOT, World, lenders_ten};
use common::{BOOT, device, devices, host, lease, seconds};
use farside_lease::borrower::{self, Answer, Borrower, Event as Heard, Message};
use farside_lease::lender::{Event, FenceReason, Status};
use farside_lease::{BootId, BootTime, EndReason, Limits, RequestId, Text};

fn world() -> World {
    World::new(Limits::default(), &["card0", "card1"], &["a", "b", "c"])
}

#[test]
fn a_device_is_lent_renewed_and_given_back() {
    let mut world = world();
    world.borrow("a", &["card0"], NOT);
    assert_eq!(world.has("a", "card0"), Some(lease("card0", 1)));
    world.pass(seconds(60));
    assert_eq!(world.has("a", "card0"), Some(lease("card0", 1)), "it is renewed for a minute");
    assert!(world.renewals().len() >= 17, "at a third of ten seconds each");
    world.give_back("a", "card0");
    assert_eq!(world.has("a", "card0"), None);
    assert_eq!(world.status("card0"), Status::Free);
    assert_eq!(world.fences(), [("card0".into(), FenceReason::Ended(EndReason::Returned))]);
    world.borrow("b", &["card0"], NOT);
    assert_eq!(world.has("b", "card0"), Some(lease("card0", 2)), "with another epoch");
}

#[test]
fn what_somebody_has_is_refused_or_waited_for() {
    let mut world = world();
    world.borrow("a", &["card0"], NOT);
    world.borrow("b", &["card0"], NOT);
    let why = "card0 is with a; wait for it, or borrow another";
    assert_eq!(world.refusals(), [("b".into(), 1, why.into())]);
    let waits = world.borrow("b", &["card0"], HOUR);
    assert!(world.told("b").contains(&borrower::Action::Queued { request: waits, before: 0 }));
    world.pass(seconds(120));
    world.give_back("a", "card0");
    assert_eq!(world.has("b", "card0"), Some(lease("card0", 2)));
    let got = borrower::Action::Got { request: waits, leases: vec![lease("card0", 2)] };
    assert!(world.told("b").contains(&got), "told when it was renewed, not before");
}

#[test]
fn several_devices_are_granted_together_or_not_at_all() {
    let mut world = world();
    world.borrow("a", &["card1"], NOT);
    world.borrow("b", &["card0", "card1"], HOUR);
    assert_eq!(world.has("b", "card0"), None, "it holds nothing while it waits");
    assert_eq!(world.status("card0"), Status::Free);
    world.give_back("a", "card1");
    assert_eq!(world.has("b", "card0"), Some(lease("card0", 2)));
    assert_eq!(world.has("b", "card1"), Some(lease("card1", 3)));
}

#[test]
fn a_borrower_that_loses_one_of_several_before_it_has_them_has_none() {
    let start = BootTime(0);
    let mut borrower = Borrower::new(borrower::Config::default(), RequestId(0), start);
    let wanted = devices(&["card0", "card1"]);
    let request = borrower.borrow(start, None, wanted, None, HOUR).expect("room");
    let late = start.after(seconds(100));
    let leases = vec![lease("card0", 1), lease("card1", 2)];
    let duration = seconds(10);
    borrower.handle(late, Heard::Granted { request, leases: leases.clone(), duration });
    let answer = |lease, result| Answer { lease, result, recalled_within: None };
    let answers = vec![
        answer(lease("card0", 1), Ok(duration)),
        answer(lease("card1", 2), Err(Text::from("gone"))),
    ];
    borrower.handle(late, Heard::Renewed { request: RequestId(2), answers });
    let done: Vec<_> = std::iter::from_fn(|| borrower.poll_action()).collect();
    let refused = borrower::Action::Refused { request, why: Text::from("gone") };
    assert!(done.contains(&refused));
    assert!(!done.iter().any(|action| matches!(action, borrower::Action::Got { .. })), "{done:?}");
    let Some(borrower::Action::Send(Message::Return { leases: mut back })) = done.last().cloned()
    else {
        panic!("{done:?}")
    };
    back.sort();
    assert_eq!(back, leases, "both go back");
    assert!(borrower.is_idle());
}

#[test]
fn silence_ends_a_lease_at_its_end_and_the_borrower_has_stopped_before() {
    let mut world = world();
    world.borrow("a", &["card0"], NOT);
    world.cut.insert("a".into());
    world.borrow("b", &["card0"], HOUR);
    world.pass(seconds(9));
    assert!(world.has("a", "card0").is_some(), "a lost connection ends nothing before");
    world.pass(seconds(1));
    assert_eq!(world.has("a", "card0"), None, "the borrower has stopped after 9.9 s");
    assert_eq!(world.has("b", "card0"), None, "the lender waits for 10.1 s");
    world.pass(lenders_ten() - seconds(10));
    assert_eq!(world.has("b", "card0"), Some(lease("card0", 2)));
    assert!(!world.lender.is_current(&lease("card0", 1)));
}

#[test]
fn a_hang_up_ends_a_lease_at_once() {
    let mut world = world();
    world.borrow("a", &["card0"], NOT);
    world.cut.insert("a".into());
    world.borrow("b", &["card0"], HOUR);
    world.lender(Event::HungUp { lease: lease("card0", 1) });
    assert_eq!(world.has("b", "card0"), Some(lease("card0", 2)));
    world.lender(Event::HungUp { lease: lease("card0", 1) });
    assert_eq!(world.has("b", "card0"), Some(lease("card0", 2)), "an old one ends nothing");
    assert_eq!(world.lender.take_stats().strays, 1);
}

#[test]
fn a_recall_leaves_what_was_promised_and_promises_no_more_than_its_deadline() {
    let mut world = world();
    world.borrow("a", &["card0"], NOT);
    world.borrow("b", &["card0"], HOUR);
    world.lender(Event::Recall { device: device("card0"), within: seconds(30), by: "me".into() });
    world.pass(seconds(29));
    assert!(world.has("a", "card0").is_some(), "it is renewed until the deadline");
    world.pass(seconds(1));
    assert_eq!(world.has("a", "card0"), None);
    assert_eq!(world.has("b", "card0"), Some(lease("card0", 2)), "thirty seconds, no more");
    let why = FenceReason::Ended(EndReason::Returned);
    assert_eq!(world.fences(), [("card0".into(), why)], "the borrower gave it back by itself");
}

#[test]
fn a_recall_at_once_waits_for_the_promise_of_a_borrower_that_does_not_hear() {
    let mut world = world();
    world.borrow("a", &["card0"], NOT);
    world.cut.insert("a".into());
    world.borrow("b", &["card0"], HOUR);
    world.lender(Event::Recall { device: device("card0"), within: NOT, by: "me".into() });
    world.pass(seconds(10));
    assert_eq!(world.has("b", "card0"), None);
    world.pass(seconds(1));
    assert_eq!(world.has("b", "card0"), Some(lease("card0", 2)));
    let why = EndReason::Recalled { by: "me".into() };
    assert_eq!(world.fences(), [("card0".into(), FenceReason::Ended(why))]);
}

#[test]
fn who_waits_too_long_is_shared_with_if_that_is_configured() {
    let limits = Limits { share_after: Some(seconds(60)), ..Limits::default() };
    let mut world = World::new(limits, &["card0"], &["a", "b"]);
    world.borrow("a", &["card0"], NOT);
    world.pass(seconds(300));
    world.borrow("b", &["card0"], HOUR);
    world.pass(seconds(59));
    assert!(!world.told("a").iter().any(|a| matches!(a, borrower::Action::Recalled { .. })));
    world.pass(seconds(32));
    assert!(world.told("a").iter().any(|a| matches!(a, borrower::Action::Recalled { .. })));
    assert!(world.has("b", "card0").is_some());
}

#[test]
fn a_device_that_does_not_reset_is_quarantined_and_named_until_it_is_released() {
    let mut world = world();
    world.borrow("a", &["card0"], NOT);
    world.borrow("b", &["card0"], HOUR);
    world.stuck.insert("card0".into());
    world.give_back("a", "card0");
    assert_eq!(world.status("card0"), Status::Quarantined(&Text::from("it is stuck")));
    let why = "card0 is quarantined (it is stuck); its owner has to look at it and release it";
    assert_eq!(world.refusals(), [("b".into(), 1, why.into())]);
    world.restart_lender(BOOT, &["card0", "card1"]);
    assert_eq!(world.status("card0"), Status::Quarantined(&Text::from("it is stuck")));
    world.lender(Event::Release { device: device("card0"), by: Text::from("me") });
    world.borrow("b", &["card0"], NOT);
    assert_eq!(world.has("b", "card0"), Some(lease("card0", 2)));
}

#[test]
fn a_device_that_is_gone_is_lent_to_nobody_until_it_is_back() {
    let mut world = world();
    world.borrow("a", &["card0"], NOT);
    world.borrow("b", &["card0"], HOUR);
    world.gone.insert("card0".into());
    world.lender(Event::DeviceLost { device: device("card0"), why: Text::from("it died") });
    world.pass(seconds(20));
    assert!(world.lender.devices().all(|view| view.name.as_str() != "card0"));
    world.borrow("a", &["card0"], NOT);
    assert_eq!(world.has("b", "card0"), None);
    assert_eq!(world.refusals().len(), 1, "who asks now is refused, who waits goes on waiting");
    world.gone.clear();
    world.lender(Event::DeviceAdded { device: device("card0") });
    assert_eq!(world.has("b", "card0"), Some(lease("card0", 2)));
}

#[test]
fn a_reset_that_does_not_end_is_a_device_that_does_not_reset() {
    let mut world = world();
    world.borrow("a", &["card0"], NOT);
    world.hung.insert("card0".into());
    world.give_back("a", "card0");
    world.pass(seconds(9));
    assert_eq!(world.status("card0"), Status::Cleaning);
    world.pass(seconds(1));
    assert_eq!(world.status("card0"), Status::Quarantined(&Text::from("its reset does not end")));
    assert_eq!(world.lender.take_stats().quarantined, 1);
}

#[test]
fn a_lost_device_is_granted_again_when_its_borrower_knows() {
    let mut world = world();
    world.borrow("a", &["card0"], NOT);
    world.borrow("b", &["card0"], HOUR);
    let lost = Event::DeviceLost { device: device("card0"), why: Text::from("its process died") };
    world.lender(lost.clone());
    assert_eq!(world.has("b", "card0"), Some(lease("card0", 2)), "a was told and said so");
    world.cut.insert("b".into());
    world.lender(lost);
    world.borrow("a", &["card0"], HOUR);
    assert_eq!(world.has("a", "card0"), None, "b may still believe that it has it");
    assert_eq!(world.status("card0"), Status::Cleaning);
    world.pass(seconds(11));
    assert_eq!(world.has("a", "card0"), Some(lease("card0", 3)));
}

#[test]
fn nothing_is_granted_while_the_ledger_cannot_be_written() {
    let mut world = world();
    world.disk_is_full = true;
    world.borrow("a", &["card0"], HOUR);
    assert_eq!(world.has("a", "card0"), None);
    let refusals = world.refusals();
    assert!(refusals[0].2.contains("(no space left on device), so it grants nothing"));
    world.disk_is_full = false;
    world.borrow("a", &["card0"], HOUR);
    assert_eq!(world.has("a", "card0"), Some(lease("card0", 2)), "the first epoch is not used");
}

#[test]
fn a_restarted_daemon_keeps_valid_leases_and_goes_on_above_all_epochs() {
    let mut world = world();
    world.borrow("a", &["card0"], NOT);
    world.borrow("b", &["card1"], NOT);
    world.give_back("b", "card1");
    world.pass(seconds(5));
    world.log.clear();
    world.restart_lender(BOOT, &["card0", "card1"]);
    world.pass(seconds(60));
    assert_eq!(world.has("a", "card0"), Some(lease("card0", 1)), "it goes on");
    assert_eq!(world.fences(), [("card1".into(), FenceReason::Added)]);
    world.borrow("b", &["card1"], NOT);
    assert_eq!(world.has("b", "card1"), Some(lease("card1", 3)));
}

#[test]
fn leases_end_with_the_run_of_the_machine_that_they_were_granted_in() {
    let mut world = world();
    world.borrow("a", &["card0"], NOT);
    world.cut.insert("a".into());
    world.restart_lender(BootId([2; 16]), &["card0", "card1"]);
    world.borrow("b", &["card0"], HOUR);
    assert_eq!(world.has("b", "card0"), None, "a may still believe that it has it");
    world.restart_lender(BootId([2; 16]), &["card0", "card1"]);
    world.pass(seconds(4));
    assert_eq!(world.has("b", "card0"), None, "also after another restart");
    world.pass(seconds(8));
    assert_eq!(world.has("b", "card0"), Some(lease("card0", 2)));
}

#[test]
fn a_withdrawn_request_gets_nothing() {
    let mut world = world();
    world.borrow("a", &["card0"], NOT);
    let request = world.borrow("b", &["card0"], HOUR);
    world.lender(Event::Withdraw { host: host("b"), request });
    world.give_back("a", "card0");
    assert_eq!(world.status("card0"), Status::Free);
    assert_eq!(world.lender.waiting(), 0);
}

#[test]
fn a_device_that_is_removed_leaves_when_its_lease_is_over() {
    let mut world = world();
    world.borrow("a", &["card0"], NOT);
    world.lender(Event::DeviceRemoved { device: device("card0"), within: seconds(20) });
    world.borrow("b", &["card0"], HOUR);
    assert_eq!(world.refusals().len(), 1, "nobody gets it any more");
    world.pass(seconds(19));
    assert!(world.has("a", "card0").is_some());
    world.pass(seconds(2));
    assert_eq!(world.lender.devices().count(), 1);
}

#[test]
fn a_clock_that_jumps_ahead_or_back_ends_no_lease_early() {
    let mut world = world();
    world.borrow("a", &["card0"], NOT);
    world.cut.insert("a".into());
    world.borrow("b", &["card0"], HOUR);
    let jumped = world.now.after(seconds(1000));
    world.lender.handle(jumped, Event::Tick);
    world.settle();
    assert_eq!(world.has("b", "card0"), None, "nobody knows whether the time has passed");
    let now = world.now;
    world.lender.handle(now, Event::Tick);
    let stats = world.lender.take_stats();
    assert_eq!((stats.clock_gaps, stats.clock_back), (1, 1));
    world.now = jumped;
    world.pass(seconds(11));
    assert_eq!(world.has("b", "card0"), Some(lease("card0", 2)));
}
