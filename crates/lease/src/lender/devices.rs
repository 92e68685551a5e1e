//! The devices of a lender: what state each is in, and how it gets there by fences.

use std::time::Duration;

use super::{Action, EndReason, FenceId, FenceOutcome, FenceReason, Lease, Lender, WriteId};
use crate::ids::{DeviceName, Epoch, HostName, LeaseId};
use crate::ledger::{BootId, Record};
use crate::mutation::Mutation;
use crate::refusal::Refusal;
use crate::text::Text;
use crate::time::BootTime;

/// One device.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Device {
    pub(super) state: State,
    /// The daemon has added it: it can be fenced.
    pub(super) present: bool,
    /// It is to be lent no more.
    pub(super) leaving: bool,
    /// It is wanted back from its holder.
    pub(super) recall: Option<Recall>,
    /// Who may still believe in the lease that the lender ended.
    pub(super) believer: Option<Believer>,
}

/// Where a device is between two leases.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum State {
    /// To be fenced as soon as it is present.
    Dirty(FenceReason),
    Free,
    /// Its next lease is being written to the ledger.
    Granting,
    Lent(Lease),
    /// The end of its lease is being written.
    Ending(EndReason, WriteId),
    Fencing {
        fence: FenceId,
        until: BootTime,
    },
    Quarantined(Text),
}

/// An order to give a device back.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Recall {
    pub(super) deadline: BootTime,
    pub(super) by: Text,
}

/// A host that was promised more time than it got.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Believer {
    pub(super) host: HostName,
    pub(super) epoch: Epoch,
    pub(super) until: BootTime,
}

impl Device {
    pub(super) fn new(state: State) -> Self {
        Self { state, present: false, leaving: false, recall: None, believer: None }
    }

    /// The lease that it has.
    pub(super) fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Lent(lease) => Some(lease),
            _ => None,
        }
    }
}

impl Lender {
    /// Whether a device can be granted now.
    pub(super) fn is_grantable(&self, device: &DeviceName) -> bool {
        self.devices.get(device).is_some_and(|device| {
            device.present
                && !device.leaving
                && device.state == State::Free
                && (device.believer.is_none() || self.mutated.on(Mutation::ForgetBelievers))
        }) && self.held_until <= self.now
    }

    /// Takes over what the ledger says.
    pub(super) fn restore(&mut self, boot: BootId) {
        let same_boot = self.ledger.boot == boot;
        self.ledger.boot = boot;
        if self.ledger.torn {
            self.held_until = self.lenders_end(self.limits.duration_max);
        }
        for (name, kept) in self.ledger.leases.clone() {
            let duration = Duration::from_nanos(kept.duration_ns);
            let end = self.lenders_end(duration);
            let id = LeaseId { device: name.clone(), epoch: kept.epoch };
            let device = if same_boot && !kept.cut {
                Device::new(State::Lent(Lease {
                    id,
                    borrower: kept.borrower,
                    request: kept.request,
                    duration,
                    since: self.now,
                    end,
                }))
            } else {
                self.record(Record::Cut { lease: id });
                let mut device = Device::new(State::Dirty(FenceReason::Added));
                let (host, epoch) = (kept.borrower.host, kept.epoch);
                device.believer = Some(Believer { host, epoch, until: end });
                device
            };
            self.devices.insert(name, device);
        }
    }

    pub(super) fn add_device(&mut self, name: DeviceName) {
        if !self.devices.contains_key(&name) {
            if self.devices.len() >= self.limits.devices_max {
                let allowed = self.limits.devices_max;
                return self.emit(Action::NotAdded { device: name, allowed });
            }
            let state = match self.ledger.quarantined.get(&name) {
                Some(why) => State::Quarantined(why.clone()),
                None => State::Dirty(FenceReason::Added),
            };
            self.devices.insert(name.clone(), Device::new(state));
        }
        let device = self.devices.get_mut(&name).expect("it is there");
        device.leaving = false;
        if device.present {
            return;
        }
        device.present = true;
        match device.state.clone() {
            State::Dirty(why) => self.fence(&name, why),
            State::Lent(lease) => self.emit(Action::Kept { lease }),
            State::Quarantined(why) => self.emit(Action::Quarantined { device: name, why }),
            _ => {}
        }
    }

    pub(super) fn remove_device(&mut self, name: &DeviceName, within: Duration) {
        let Some(device) = self.devices.get_mut(name) else { return };
        device.leaving = true;
        let why = Text::from("its owner lends it no more");
        self.recall(name, within, why.clone());
        self.refuse_waiting_for(name, |device| Refusal::Withdrawn { device, why: why.clone() });
        self.let_go(name);
    }

    pub(super) fn lose_device(&mut self, name: &DeviceName, why: Text) {
        let Some(device) = self.devices.get(name) else { return };
        match device.state {
            State::Lent(_) => self.end(name, EndReason::DeviceLost { why }, false),
            State::Granting => self.spoil_grant(name, &why),
            State::Free => self.fence(name, FenceReason::Lost(why)),
            _ => {}
        }
    }

    /// Starts to fence a device, or puts it off until it is there.
    pub(super) fn fence(&mut self, name: &DeviceName, why: FenceReason) {
        let Some(device) = self.devices.get_mut(name) else { return };
        if !device.present {
            device.state = State::Dirty(why);
            return;
        }
        self.last_fence.0 += 1;
        let fence = self.last_fence;
        let until = self.now.after(self.limits.fence_max);
        device.state = State::Fencing { fence, until };
        let epoch = self.ledger.last_epoch();
        self.emit(Action::Fence { fence, device: name.clone(), epoch, why });
    }

    pub(super) fn fenced(&mut self, fence: FenceId, name: &DeviceName, outcome: FenceOutcome) {
        let Some(device) = self.devices.get_mut(name) else { return };
        if !matches!(device.state, State::Fencing { fence: under_way, .. } if under_way == fence) {
            return;
        }
        match outcome {
            FenceOutcome::Clean { generation } => {
                device.state = State::Free;
                self.emit(Action::Cleaned { device: name.clone(), generation });
                self.let_go(name);
            }
            FenceOutcome::DoesNotReset { why } => self.quarantine(name, why),
            FenceOutcome::NotThere { why } => {
                // Whoever it is that comes back is fenced first.
                device.present = false;
                device.state = State::Dirty(FenceReason::Lost(why.clone()));
                self.emit(Action::Absent { device: name.clone(), why });
                self.let_go(name);
            }
        }
    }

    pub(super) fn quarantine(&mut self, name: &DeviceName, why: Text) {
        let Some(device) = self.devices.get_mut(name) else { return };
        device.state = State::Quarantined(why.clone());
        self.stats.quarantined += 1;
        self.record(Record::Quarantined { device: name.clone(), why: why.clone() });
        self.emit(Action::Quarantined { device: name.clone(), why: why.clone() });
        self.refuse_waiting_for(name, |device| Refusal::Quarantined { device, why: why.clone() });
        self.let_go(name);
    }

    pub(super) fn release(&mut self, name: &DeviceName, by: Text) {
        let Some(device) = self.devices.get_mut(name) else { return };
        if !matches!(device.state, State::Quarantined(_)) {
            return;
        }
        device.state = State::Free;
        self.record(Record::Released { device: name.clone() });
        self.emit(Action::Released { device: name.clone(), by });
    }

    /// Forgets a device that is to be lent no more, if nobody has it.
    pub(super) fn let_go(&mut self, name: &DeviceName) {
        let idle = |device: &Device| {
            device.leaving
                && matches!(device.state, State::Free | State::Dirty(_) | State::Quarantined(_))
        };
        if self.devices.get(name).is_some_and(idle) {
            self.devices.remove(name);
            self.emit(Action::Removed { device: name.clone() });
        }
    }

    /// Refuses every request that waits for a device.
    fn refuse_waiting_for(&mut self, name: &DeviceName, why: impl Fn(DeviceName) -> Refusal) {
        for entry in self.queue.take(|entry| entry.devices.contains(name)) {
            self.refuse(entry.borrower, entry.request, why(name.clone()));
        }
    }
}
