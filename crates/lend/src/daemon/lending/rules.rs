//! The administrators' rules: who may have what, and when what may be held for a while only is recalled.

use std::sync::Arc;
use std::time::Duration;

use farside_lease::lender::{Event, Lease};
use farside_lease::{BootTime, BorrowerId, DeviceName, DeviceSet, HostName, RequestId, Text};
use farside_linux::lock::lock;
use tonic::Status;

use super::super::audit::{Act, Record};
use super::{Core, Lending};
use crate::config::{Allowed, Asked};

/// A lease that a rule limits.
pub(super) struct Limited {
    lease: Lease,
    recall_at: BootTime,
    within: Duration,
    by: Text,
}

/// Somebody and a device, as they are had.
type Had = (BorrowerId, DeviceName);

fn asked((borrower, device): &Had) -> Asked<'_> {
    let user = borrower.user.as_ref().map_or("", |user| user.as_str());
    Asked { host: borrower.host.as_str(), user, device: device.as_str() }
}

impl Core {
    /// What everybody has or waits for, but for one request.
    fn had(&self, except: &(HostName, RequestId)) -> Vec<Had> {
        let leases = self.devices.keys().filter_map(|device| self.lender.lease(device));
        let is_asking = |lease: &Lease| {
            let key = (lease.borrower.host.clone(), lease.request);
            key == *except || self.asking.contains_key(&key)
        };
        let has = leases
            .filter(|lease| !is_asking(lease))
            .map(|lease| (lease.borrower.clone(), lease.id.device.clone()));
        let waiting =
            self.asking.iter().filter(|(key, _)| *key != except).flat_map(|(_, asking)| {
                asking.devices.iter().map(|device| (asking.borrower.clone(), device.clone()))
            });
        has.chain(waiting).collect()
    }
}

impl Lending {
    /// Asks the rules. The caller has the lock, so that nobody is counted twice or not at all.
    pub(super) fn allowed(
        &self,
        core: &Core,
        request: RequestId,
        borrower: &BorrowerId,
        devices: &DeviceSet,
    ) -> Result<Vec<Allowed>, Status> {
        let config = self.configured.get();
        let had = core.had(&(borrower.host.clone(), request));
        let had: Vec<Asked<'_>> = had.iter().map(asked).collect();
        let wanted: Vec<Had> =
            devices.iter().map(|device| (borrower.clone(), device.clone())).collect();
        let wanted: Vec<Asked<'_>> = wanted.iter().map(asked).collect();
        config.rules.judge(&wanted, &had).map_err(|why| {
            tracing::info!(%borrower, %why, "a rule refuses");
            let record = Record::of(Act::RuleRefused).borrower(borrower);
            let record = devices.iter().fold(record, Record::device);
            self.observed.note(record.rule(why.rule()).why(&why));
            self.observed.count(|counts| counts.refused("rule"));
            Status::permission_denied(why.to_string())
        })
    }
}

impl Core {
    /// Notes when a lease has to be recalled, if its rule says so.
    pub(super) fn limit(&mut self, lease: &Lease, allowed: &Allowed) {
        let (Some((after, within)), Some(longest)) = (allowed.recall(), allowed.longest) else {
            return;
        };
        let rule = allowed.rule.as_deref().unwrap_or_default();
        let by = Text::from(format!("rule `{rule}`: {} s at most", longest.as_secs()));
        let recall_at = lease.since.after(after);
        let device = lease.id.device.clone();
        self.limited.insert(device, Limited { lease: lease.clone(), recall_at, within, by });
    }

    /// When the next one has to be recalled.
    pub(super) fn next_recall(&self) -> Option<BootTime> {
        self.limited.values().map(|limited| limited.recall_at).min()
    }
}

impl Lending {
    /// Limits a lease that a former daemon granted by the rule that is about it now, from now on.
    pub(super) fn limit_again(&self, lease: &Lease) {
        let had = (lease.borrower.clone(), lease.id.device.clone());
        // What was granted is not taken back because a rule has changed.
        let Ok(allowed) = self.configured.get().rules.judge(&[asked(&had)], &[]) else { return };
        if let Some(allowed) = allowed.first() {
            lock(&self.core).limit(lease, allowed);
        }
    }

    /// Recalls what has been held for as long as its rule says.
    pub(super) fn recall_limited(self: &Arc<Self>) {
        let now = self.machine.now();
        let due: Vec<Limited> = {
            let mut core = lock(&self.core);
            let devices: Vec<DeviceName> = core
                .limited
                .iter()
                .filter(|(_, limited)| limited.recall_at <= now)
                .map(|(device, _)| device.clone())
                .collect();
            let due = devices.iter().filter_map(|device| core.limited.remove(device));
            due.collect::<Vec<_>>()
        };
        for Limited { lease, within, by, .. } in due {
            if lock(&self.core).lender.is_current(&lease.id) {
                self.tell(Event::Recall { device: lease.id.device, within, by });
            }
        }
    }
}
