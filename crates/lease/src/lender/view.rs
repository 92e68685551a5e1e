//! What a lender says about its devices.

use super::devices::{Device, State};
use super::{Lease, Lender};
use crate::ids::{DeviceName, HostName, LeaseId, RequestId};
use crate::text::Text;
use crate::time::BootTime;

/// One device, as its owner and those who might borrow it see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceView<'a> {
    /// Which.
    pub name: &'a DeviceName,
    /// What state it is in.
    pub status: Status<'a>,
    /// When it has to be back, if it is wanted back.
    pub recalled: Option<BootTime>,
    /// How many wait for it.
    pub waiting: usize,
}

/// The state of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status<'a> {
    /// It can be borrowed.
    Free,
    /// It is being lent.
    Granting,
    /// Somebody has it.
    Lent(&'a Lease),
    /// It is being cut off, reset and scrubbed, or an earlier borrower may still believe in it.
    Cleaning,
    /// It did not reset.
    Quarantined(&'a Text),
}

impl Lender {
    /// The devices that are to be lent, by name.
    pub fn devices(&self) -> impl Iterator<Item = DeviceView<'_>> {
        self.devices.iter().filter(|(_, device)| device.present).map(|(name, device)| DeviceView {
            name,
            status: self.status(device),
            recalled: device.lease().and_then(|lease| {
                device.recall.as_ref().map(|recall| recall.deadline.max(lease.end))
            }),
            waiting: self.queue.iter().filter(|entry| entry.devices.contains(name)).count(),
        })
    }

    /// Whether a lease is the one that its device has: whoever shows another is let in nowhere.
    #[must_use]
    pub fn is_current(&self, lease: &LeaseId) -> bool {
        self.lease(&lease.device).is_some_and(|current| current.id == *lease)
    }

    /// The lease of a device.
    #[must_use]
    pub fn lease(&self, device: &DeviceName) -> Option<&Lease> {
        self.devices.get(device)?.lease()
    }

    /// How many requests wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// How many are to be served before a request, if it waits.
    #[must_use]
    pub fn place(&self, host: &HostName, request: RequestId) -> Option<usize> {
        self.queue.place(host, request)
    }

    fn status<'a>(&self, device: &'a Device) -> Status<'a> {
        match &device.state {
            State::Free if device.believer.is_none() && self.held_until <= self.now => Status::Free,
            State::Granting => Status::Granting,
            State::Lent(lease) => Status::Lent(lease),
            State::Quarantined(why) => Status::Quarantined(why),
            State::Free | State::Dirty(_) | State::Ending(..) | State::Fencing { .. } => {
                Status::Cleaning
            }
        }
    }
}
