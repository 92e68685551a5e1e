//! The leases' own words in those of the protocol, and back.

use farside_lease::lender::{DeviceView, Renewal, Status as DeviceStatus};
use farside_lease::{
    BootTime, DeviceName, EndReason, Epoch, HostName, LeaseId, Refusal, RequestId,
};
use tonic::Status;

use super::super::audit::Act;
use super::{Core, End, Plain};
use crate::end::{Count, link_name};
use crate::proto::{self, BorrowEvent};
use crate::words::refused_accesses;

/// The name by which connections are led to the end of a lease.
pub(in super::super) fn link_of(epoch: Epoch) -> String {
    link_name(epoch.0)
}

pub(super) fn epoch_of(link: &str) -> Option<Epoch> {
    link.strip_prefix("lease-")?.strip_suffix(".farside")?.parse().ok().map(Epoch)
}

impl Core {
    pub(super) fn described(&self, view: &DeviceView<'_>, now: BootTime) -> proto::Device {
        use proto::device::State;
        let known = self.devices.get(view.name);
        let mut device = proto::Device {
            name: view.name.to_string(),
            description: known.map(|known| known.description.clone()).unwrap_or_default(),
            waiting: u32::try_from(view.waiting).unwrap_or(u32::MAX),
            ..proto::Device::default()
        };
        let state = match &view.status {
            DeviceStatus::Free => State::Free,
            DeviceStatus::Granting => State::Granting,
            DeviceStatus::Lent(lease) => {
                device.holder = lease.borrower.to_string();
                device.epoch = lease.id.epoch.0;
                device.left_ns = now.until(lease.end).as_nanos() as u64;
                State::Lent
            }
            DeviceStatus::Cleaning => State::Cleaning,
            DeviceStatus::Quarantined(why) => {
                device.why = why.to_string();
                State::Quarantined
            }
        };
        let end = self.ends.get(view.name).filter(|end| end.lease.epoch.0 == device.epoch);
        device.plain = end.is_some_and(|end| end.plain != Plain::No);
        device.set_state(state);
        device
    }
}

pub(super) fn traffic(end: &End) -> proto::Traffic {
    let counted = end.process.counted();
    proto::Traffic {
        device: end.lease.device.to_string(),
        epoch: end.lease.epoch.0,
        bytes_in: counted.of(Count::BytesIn),
        bytes_out: counted.of(Count::BytesOut),
        programs: counted.of(Count::Programs),
        connections: counted.of(Count::Connections),
        resumed: counted.of(Count::Resumed),
        refused: refused_accesses(&counted),
    }
}

pub(super) fn told(request: RequestId, event: proto::borrow_event::Event) -> BorrowEvent {
    BorrowEvent { request: request.0, event: Some(event) }
}

/// For whoever is refused.
pub(super) fn refused(why: &Refusal) -> proto::Refused {
    proto::Refused {
        why: why.to_string(),
        answered_before: matches!(why, Refusal::Repeated { .. }),
        not_yet: matches!(why, Refusal::NotYet { .. }),
    }
}

pub(super) fn described_renewal(renewal: Renewal) -> proto::Renewal {
    use proto::renewal::Result as Renewed;
    let result = match renewal.result {
        Ok(duration) => Renewed::DurationNs(duration.as_nanos() as u64),
        Err(why) => Renewed::Refused(refused(&why)),
    };
    proto::Renewal {
        device: renewal.lease.device.to_string(),
        epoch: renewal.lease.epoch.0,
        result: Some(result),
        // At least something: 0 says that it is not wanted back.
        recalled_within_ns: renewal.recalled_within.map_or(0, |d| (d.as_nanos() as u64).max(1)),
    }
}

/// What a refusal is counted as.
pub(super) fn refusal_name(why: &Refusal) -> &'static str {
    match why {
        Refusal::NoSuchDevice { .. } => "no-such-device",
        Refusal::Quarantined { .. } => "quarantined",
        Refusal::Withdrawn { .. } => "withdrawn",
        Refusal::Busy { .. } => "busy",
        Refusal::NotYet { .. } => "not-yet",
        Refusal::TimedOut { .. } => "timed-out",
        Refusal::Repeated { .. } => "repeated",
        Refusal::QueueFull { .. } => "queue-full",
        Refusal::TooMuch { .. } => "too-much",
        Refusal::TooLong { .. } => "too-long",
        Refusal::TooManyHosts { .. } => "too-many-hosts",
        Refusal::Ledger { .. } => "ledger",
        Refusal::Ended { .. } => "ended",
    }
}

/// What the end of a lease is in the audit log, and counted as.
pub(super) fn end_name(why: &EndReason) -> (Act, &'static str) {
    match why {
        EndReason::Returned => (Act::Returned, "returned"),
        EndReason::HungUp => (Act::Returned, "hung-up"),
        EndReason::Silent => (Act::Expired, "silent"),
        EndReason::Recalled { .. } => (Act::Revoked, "recalled"),
        EndReason::Unwanted => (Act::Revoked, "unwanted"),
        EndReason::DeviceLost { .. } => (Act::Revoked, "device-lost"),
    }
}

fn invalid(error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(error.to_string())
}

pub(super) fn device_name(name: &str) -> Result<DeviceName, Status> {
    DeviceName::new(name).map_err(invalid)
}

pub(super) fn host_name(name: &str) -> Result<HostName, Status> {
    HostName::new(name).map_err(invalid)
}

pub(super) fn lease_ids(leases: &[proto::LeaseId]) -> Result<Vec<LeaseId>, Status> {
    let id = |lease: &proto::LeaseId| {
        Ok(LeaseId { device: device_name(&lease.device)?, epoch: Epoch(lease.epoch) })
    };
    leases.iter().map(id).collect()
}
