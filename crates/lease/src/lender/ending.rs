//! How leases end: by their borrower's word, by its silence, or by the lender's need.

use std::time::Duration;

use super::devices::{Believer, Recall, State};
use super::{Action, Lease, Lender};
use crate::ids::{DeviceName, HostName, LeaseId};
use crate::ledger::Record;
use crate::mutation::Mutation;
use crate::refusal::EndReason;
use crate::text::Text;

impl Lender {
    /// Ends the lease of a device. `known` says that its borrower has stopped, or never started.
    pub(super) fn end(&mut self, name: &DeviceName, why: EndReason, known: bool) {
        let Some(lease) = self.devices.get(name).and_then(|device| device.lease()).cloned() else {
            return;
        };
        match why {
            EndReason::Returned | EndReason::HungUp => self.stats.returned += 1,
            EndReason::Silent => self.stats.silent += 1,
            _ => self.stats.cut += 1,
        }
        let id = lease.id.clone();
        let believer = (!known && lease.end > self.now).then(|| Believer {
            host: lease.borrower.host.clone(),
            epoch: id.epoch,
            until: lease.end,
        });
        let write = self.record(match believer {
            Some(_) => Record::Cut { lease: id },
            None => Record::Ended { lease: id },
        });
        let device = self.devices.get_mut(name).expect("it has a lease");
        device.state = State::Ending(why.clone(), write);
        device.recall = None;
        device.believer = believer;
        self.emit(Action::Ended { lease, why });
    }

    pub(super) fn give_back(&mut self, host: &HostName, leases: &[LeaseId]) {
        for lease in leases.iter().take(self.limits.leases_per_message_max) {
            self.stop(lease, Some(host), EndReason::Returned);
        }
    }

    pub(super) fn hang_up(&mut self, lease: &LeaseId) {
        self.stop(lease, None, EndReason::HungUp);
    }

    /// The borrower of a lease has stopped: it says so itself, or `host` is `None` and its link does.
    fn stop(&mut self, id: &LeaseId, host: Option<&HostName>, why: EndReason) {
        let is_its = |holder: &HostName| host.is_none_or(|host| host == holder);
        let unchecked = self.mutated.on(Mutation::EpochUnchecked);
        let Some(device) = self.devices.get_mut(&id.device) else {
            self.stats.strays += 1;
            return;
        };
        let current = |l: &Lease| (l.id == *id || unchecked) && is_its(&l.borrower.host);
        if device.lease().is_some_and(current) {
            return self.end(&id.device, why, true);
        }
        let believes = |b: &Believer| b.epoch == id.epoch && is_its(&b.host);
        if device.believer.take_if(|believer| believes(believer)).is_some() {
            self.record(Record::Ended { lease: id.clone() });
        } else {
            self.stats.strays += 1;
        }
    }

    /// Asks for a device back. What was promised to its holder stays promised.
    pub(super) fn recall(&mut self, name: &DeviceName, within: Duration, by: Text) {
        let deadline = self.now.after(within);
        let Some(device) = self.devices.get_mut(name) else { return };
        if !matches!(device.state, State::Lent(_) | State::Granting) {
            return;
        }
        if device.recall.as_ref().is_none_or(|recall| recall.deadline > deadline) {
            device.recall = Some(Recall { deadline, by });
            self.stats.recalled += 1;
            self.tell_recall(name);
        }
    }

    /// Tells the holder of a device that it is wanted back, if it is.
    pub(super) fn tell_recall(&mut self, name: &DeviceName) {
        let Some(device) = self.devices.get(name) else { return };
        if let (Some(lease), Some(recall)) = (device.lease(), &device.recall) {
            let within = self.now.until(recall.deadline.max(lease.end));
            let (borrower, by) = (lease.borrower.clone(), recall.by.clone());
            let lease = lease.id.clone();
            self.emit(Action::Recalled { lease, borrower, within, by });
        }
    }
}
