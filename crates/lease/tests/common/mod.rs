//! Words that the tests share: names, and how what one side says reaches the other.
#![allow(dead_code, reason = "no test file uses all of it")]

pub(crate) mod world;

use std::time::Duration;

use farside_lease::borrower::{Answer, Event as Heard, Message};
use farside_lease::lender::{Action, Event};
use farside_lease::{
    BootId, BorrowerId, DeviceName, DeviceSet, Epoch, HostName, LeaseId, Ledger, Text,
};

/// The run of the machine that the tests begin with.
pub(crate) const BOOT: BootId = BootId([1; 16]);

pub(crate) fn device(name: &str) -> DeviceName {
    DeviceName::new(name).expect("a name")
}

pub(crate) fn host(name: &str) -> HostName {
    HostName::new(name).expect("a name")
}

pub(crate) fn devices(names: &[&str]) -> DeviceSet {
    DeviceSet::new(names.iter().map(|name| device(name))).expect("a set")
}

pub(crate) fn lease(name: &str, epoch: u64) -> LeaseId {
    LeaseId { device: device(name), epoch: Epoch(epoch) }
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn fresh_ledger() -> Ledger {
    Ledger::fresh(BOOT, Epoch(0))
}

/// What a lender hears of a borrower's message.
pub(crate) fn heard_by_lender(from: &HostName, message: Message) -> Event {
    match message {
        Message::Borrow { request, user, devices, duration, wait } => {
            let borrower = BorrowerId { host: from.clone(), user };
            Event::Borrow { request, borrower, devices, duration, wait }
        }
        Message::Withdraw { request } => Event::Withdraw { host: from.clone(), request },
        Message::Renew { request, leases } => Event::Renew { request, host: from.clone(), leases },
        Message::Return { leases } => Event::Return { host: from.clone(), leases },
    }
}

/// What a borrower hears of a lender's action, and which borrower; `None` if it is for nobody.
pub(crate) fn heard_by_borrower(action: &Action) -> Option<(HostName, Heard)> {
    let text = |why: &dyn std::fmt::Display| Text::from(why.to_string());
    Some(match action.clone() {
        Action::Queued { borrower, request, before } => {
            (borrower.host, Heard::Queued { request, before })
        }
        Action::Granted { borrower, request, leases, duration } => {
            let leases = leases.into_iter().map(|lease| lease.id).collect();
            (borrower.host, Heard::Granted { request, leases, duration })
        }
        Action::Refused { borrower, request, why } => {
            (borrower.host, Heard::Refused { request, why: text(&why) })
        }
        Action::Renewed { host, request, renewals } => {
            let answers = renewals.into_iter().map(|renewal| Answer {
                lease: renewal.lease,
                result: renewal.result.map_err(|why| text(&why)),
                recalled_within: renewal.recalled_within,
            });
            (host, Heard::Renewed { request, answers: answers.collect() })
        }
        Action::Recalled { lease, borrower, within, by } => {
            (borrower.host, Heard::Recalled { lease, within, by })
        }
        Action::Ended { lease, why } => {
            (lease.borrower.host, Heard::Ended { lease: lease.id, why: text(&why) })
        }
        _ => return None,
    })
}
