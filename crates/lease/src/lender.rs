//! The lender: decides about the devices of its host, alone.
//!
//! Owns the state of every device, the queue and what the ledger has to say. Does no I/O: call
//! [`Lender::handle`] with each event and the time, then carry out what [`Lender::poll_action`] gives,
//! in its order, and answer it by events. Call `handle` with [`Event::Tick`] when
//! [`Lender::poll_timeout`] is reached.

mod asking;
mod devices;
mod ending;
mod granting;
mod journal;
mod messages;
mod timing;
mod view;

use std::collections::{BTreeMap, VecDeque};

use crate::ids::{DeviceName, Epoch, HostName, RequestId};
use crate::ledger::{BootId, Ledger};
use crate::limits::{Limits, Stats};
use crate::mutation::Mutated;
#[cfg(feature = "mutations")]
use crate::mutation::Mutation;
use crate::queue::Queue;
use crate::refusal::EndReason;
use crate::seen::Seen;
use crate::time::BootTime;

use devices::Device;
use granting::Grant;
use journal::Journal;

pub use messages::{
    Action, Event, FenceId, FenceOutcome, FenceReason, Lease, Renewal, WriteId, WriteKind,
};
pub use view::{DeviceView, Status};

/// The lender's side of all leases of one host's devices.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lender {
    limits: Limits,
    /// The latest reading of the clock.
    now: BootTime,
    devices: BTreeMap<DeviceName, Device>,
    queue: Queue,
    /// Grants that wait for the ledger.
    grants: BTreeMap<(HostName, RequestId), Grant>,
    hosts: BTreeMap<HostName, Known>,
    /// What the file says once everything that was emitted is written.
    ledger: Ledger,
    journal: Journal,
    last_fence: FenceId,
    /// Nothing is granted before: a lease may be out there of which nothing is known.
    held_until: BootTime,
    actions: VecDeque<Action>,
    stats: Stats,
    mutated: Mutated,
}

/// What is remembered of a host.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Known {
    seen: Seen,
    last: BootTime,
}

impl Lender {
    /// A lender that goes on where the ledger left off.
    ///
    /// Leases of the same run of the machine go on, each for its full duration from now, because their
    /// last renewals are not in the ledger. Those of an earlier run have ended with it; their devices
    /// are fenced, and not granted before the borrowers must have stopped.
    #[must_use]
    pub fn new(limits: Limits, ledger: Ledger, boot: BootId, now: BootTime) -> Self {
        let hosts = ledger.answered.iter().map(|(host, request)| {
            (host.clone(), Known { seen: Seen::all_to(*request), last: now })
        });
        let mut lender = Self {
            now,
            devices: BTreeMap::new(),
            queue: Queue::default(),
            grants: BTreeMap::new(),
            hosts: hosts.collect(),
            journal: Journal::default(),
            last_fence: FenceId(0),
            held_until: now,
            actions: VecDeque::new(),
            stats: Stats::default(),
            mutated: Mutated::default(),
            ledger,
            limits,
        };
        lender.restore(boot);
        lender
    }

    /// Takes in what happened, at `now` by CLOCK_BOOTTIME.
    pub fn handle(&mut self, now: BootTime, event: Event) {
        self.advance(now);
        self.expire();
        match event {
            Event::DeviceAdded { device } => self.add_device(device),
            Event::DeviceRemoved { device, within } => self.remove_device(&device, within),
            Event::DeviceLost { device, why } => self.lose_device(&device, why),
            Event::Borrow { request, borrower, devices, duration, wait } => {
                self.borrow(request, borrower, devices, duration, wait);
            }
            Event::Withdraw { host, request } => self.withdraw(&host, request),
            Event::Renew { request, host, leases } => self.renew(request, host, leases),
            Event::Return { host, leases } => self.give_back(&host, &leases),
            Event::HungUp { lease } => self.hang_up(&lease),
            Event::Recall { device, within, by } => self.recall(&device, within, by),
            Event::Stored { write } => self.stored(write),
            Event::StoreFailed { write, why } => self.store_failed(write, &why),
            Event::Fenced { fence, device, outcome } => self.fenced(fence, &device, outcome),
            Event::Release { device, by } => self.release(&device, by),
            Event::Tick => {}
        }
        self.dispatch();
        self.flush();
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The counts since the last call.
    pub fn take_stats(&mut self) -> Stats {
        std::mem::take(&mut self.stats)
    }

    /// The bounds that it keeps.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The highest epoch that it gave.
    #[must_use]
    pub fn last_epoch(&self) -> Epoch {
        self.ledger.last_epoch()
    }

    /// Breaks one rule on purpose (feature `mutations`).
    #[cfg(feature = "mutations")]
    pub fn mutate(&mut self, mutation: Mutation) {
        self.mutated.set(mutation);
    }

    fn emit(&mut self, action: Action) {
        self.actions.push_back(action);
    }
}
