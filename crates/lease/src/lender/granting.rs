//! From a free device to a lease: epochs are taken, written, and only then told.

use std::time::Duration;

use super::devices::State;
use super::{Action, FenceReason, Lease, Lender, WriteId};
use crate::ids::{BorrowerId, DeviceName, Epoch, LeaseId, RequestId};
use crate::ledger::Record;
use crate::mutation::Mutation;
use crate::queue::Waiting;
use crate::refusal::{EndReason, Refusal};
use crate::text::Text;

/// A grant that is not durable yet, so that nobody knows of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Grant {
    borrower: BorrowerId,
    duration_ns: u64,
    pub(super) leases: Vec<LeaseId>,
    write: WriteId,
    /// Why it will be told to nobody.
    pub(super) spoiled: Option<Spoiled>,
}

/// What happened to a grant while it was written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Spoiled {
    /// Nobody waits for it.
    Unwanted,
    /// One of its devices is lost.
    Lost(DeviceName, Text),
}

impl Lender {
    /// Grants what can be granted, in the order of the queue.
    pub(super) fn dispatch(&mut self) {
        loop {
            let mut queue = std::mem::take(&mut self.queue);
            let next = queue.next(self.limits.overtakes_max, |device| self.is_grantable(device));
            self.queue = queue;
            match next {
                Some(entry) => self.grant(entry),
                None => return,
            }
        }
    }

    /// Takes an epoch for each device, and has them written.
    fn grant(&mut self, entry: Waiting) {
        let first = self.ledger.last_epoch().0;
        if first.checked_add(entry.devices.len() as u64).is_none() {
            let why = Refusal::Ledger { why: Text::from("all epochs are used up") };
            return self.refuse(entry.borrower, entry.request, why);
        }
        let leases: Vec<LeaseId> = entry
            .devices
            .iter()
            .zip(first + 1..)
            .map(|(device, epoch)| LeaseId { device: device.clone(), epoch: Epoch(epoch) })
            .collect();
        for device in entry.devices.iter() {
            self.set_state(device, State::Granting);
        }
        let write = self.record(Record::Granted {
            request: entry.request,
            borrower: entry.borrower.clone(),
            duration_ns: entry.duration_ns,
            leases: leases.clone(),
        });
        let key = (entry.borrower.host.clone(), entry.request);
        let (borrower, duration_ns) = (entry.borrower, entry.duration_ns);
        let grant = Grant { borrower, duration_ns, leases, write, spoiled: None };
        self.grants.insert(key, grant);
        if self.mutated.on(Mutation::GrantBeforeStored) {
            self.told(write);
        }
    }

    /// A device of a grant is lost: none of it is told.
    pub(super) fn spoil_grant(&mut self, device: &DeviceName, why: &Text) {
        for grant in self.grants.values_mut() {
            let is_lost = |lease: &LeaseId| lease.device == *device;
            if self.mutated.on(Mutation::GrantInPart) {
                grant.leases.retain(|lease| !is_lost(lease));
            } else if grant.leases.iter().any(is_lost) {
                grant.spoiled.get_or_insert(Spoiled::Lost(device.clone(), why.clone()));
            }
        }
    }

    /// Tells the grants that are durable now.
    pub(super) fn told(&mut self, write: WriteId) {
        for (request, grant) in self.grants_of(write) {
            let leases = self.lease_all(request, &grant);
            match grant.spoiled {
                None => {
                    let duration = Duration::from_nanos(grant.duration_ns);
                    let borrower = grant.borrower;
                    self.stats.granted += leases.len() as u64;
                    self.emit(Action::Granted { borrower, request, leases, duration });
                    for lease in &grant.leases {
                        self.tell_recall(&lease.device);
                    }
                }
                Some(spoiled) => {
                    if let Spoiled::Lost(device, why) = spoiled {
                        let why = Refusal::Withdrawn { device, why };
                        self.refuse(grant.borrower, request, why);
                    }
                    for lease in &grant.leases {
                        // Nobody was told, so nobody believes in it.
                        self.end(&lease.device, EndReason::Unwanted, true);
                    }
                }
            }
        }
    }

    /// Refuses the grants whose epochs could not be written. Their epochs are not used again.
    pub(super) fn untold(&mut self, write: WriteId, why: &Text) {
        for (request, grant) in self.grants_of(write) {
            for lease in &grant.leases {
                self.ledger.apply(&Record::Ended { lease: lease.clone() });
                self.set_state(&lease.device, State::Free);
                self.let_go(&lease.device);
            }
            if let Some(Spoiled::Lost(device, why)) = &grant.spoiled {
                self.fence(device, FenceReason::Lost(why.clone()));
            }
            if grant.spoiled != Some(Spoiled::Unwanted) {
                let why = Refusal::Ledger { why: why.clone() };
                self.refuse(grant.borrower, request, why);
            }
        }
    }

    /// Takes the grants out that were written together.
    fn grants_of(&mut self, write: WriteId) -> Vec<(RequestId, Grant)> {
        let with: Vec<_> = self
            .grants
            .iter()
            .filter(|(_, grant)| grant.write == write)
            .map(|(key, _)| key.clone())
            .collect();
        with.into_iter().filter_map(|key| self.grants.remove(&key).map(|g| (key.1, g))).collect()
    }

    /// Starts the leases of a grant, all from now.
    fn lease_all(&mut self, request: RequestId, grant: &Grant) -> Vec<Lease> {
        let duration = Duration::from_nanos(grant.duration_ns);
        let end = self.lenders_end(duration);
        let leases = grant.leases.iter().map(|id| Lease {
            id: id.clone(),
            borrower: grant.borrower.clone(),
            request,
            duration,
            since: self.now,
            end,
        });
        let leases: Vec<Lease> = leases.collect();
        for lease in &leases {
            self.set_state(&lease.id.device, State::Lent(lease.clone()));
        }
        leases
    }

    pub(super) fn set_state(&mut self, device: &DeviceName, state: State) {
        if let Some(device) = self.devices.get_mut(device) {
            device.state = state;
        }
    }
}
