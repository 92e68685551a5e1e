//! What borrowers ask for: devices, and to keep them.

use std::time::Duration;

use super::granting::Spoiled;
use super::{Action, Known, Lease, Lender, Renewal};
use crate::ids::{BorrowerId, DeviceSet, HostName, LeaseId, RequestId};
use crate::mutation::Mutation;
use crate::queue::Waiting;
use crate::refusal::Refusal;
use crate::seen::Seen;
use crate::time::nanoseconds;

use super::devices::State;

impl Lender {
    pub(super) fn borrow(
        &mut self,
        request: RequestId,
        borrower: BorrowerId,
        devices: DeviceSet,
        duration: Option<Duration>,
        wait: Duration,
    ) {
        let keep = self.mutated.on(Mutation::KeepDuplicates);
        if !keep && self.is_repeated(request, &borrower) {
            return;
        }
        if let Err(why) = self.admit(request, &borrower, &devices) {
            return self.refuse(borrower, request, why);
        }
        let duration = duration
            .unwrap_or(self.limits.duration)
            .clamp(self.limits.duration_min, self.limits.duration_max);
        let until = self.now.after(wait.min(self.limits.wait_max));
        let host = borrower.host.clone();
        let duration = nanoseconds(duration);
        let waiting =
            Waiting::new(request, borrower.clone(), devices.clone(), duration, self.now, until);
        self.queue.insert(waiting);
        self.dispatch();
        let Some(before) = self.queue.place(&host, request) else { return };
        if wait.is_zero() {
            self.queue.remove(&host, request);
            let why = self.why_not_now(&devices);
            return self.refuse(borrower, request, why);
        }
        self.emit(Action::Queued { borrower, request, before });
    }

    /// Answers a request again that is known. Says whether it is one.
    fn is_repeated(&mut self, request: RequestId, borrower: &BorrowerId) -> bool {
        let borrower = borrower.clone();
        let answer = if let Some(before) = self.queue.place(&borrower.host, request) {
            Some(Action::Queued { borrower, request, before })
        } else if self.grants.contains_key(&(borrower.host.clone(), request)) {
            // It will be told when it is durable.
            None
        } else {
            let leases: Vec<Lease> = self.leases_for(&borrower.host, request);
            let Some(lease) = leases.first() else { return false };
            let duration = lease.duration;
            Some(Action::Granted { borrower, request, duration, leases })
        };
        self.stats.repeated += 1;
        if let Some(answer) = answer {
            self.emit(answer);
        }
        true
    }

    /// The leases that were granted for a request.
    fn leases_for(&self, host: &HostName, request: RequestId) -> Vec<Lease> {
        self.devices
            .values()
            .filter_map(|device| device.lease())
            .filter(|lease| lease.request == request && lease.borrower.host == *host)
            .cloned()
            .collect()
    }

    /// Whether a request may wait at all.
    fn admit(
        &mut self,
        request: RequestId,
        borrower: &BorrowerId,
        devices: &DeviceSet,
    ) -> Result<(), Refusal> {
        let keep = self.mutated.on(Mutation::KeepDuplicates);
        if !self.mark(request, &borrower.host)? && !keep {
            self.stats.repeated += 1;
            return Err(Refusal::Repeated { request });
        }
        for name in devices.iter() {
            let device = name.clone();
            match self.devices.get(name) {
                Some(known) if known.present && !known.leaving => {
                    if let State::Quarantined(why) = &known.state {
                        return Err(Refusal::Quarantined { device, why: why.clone() });
                    }
                }
                _ => return Err(Refusal::NoSuchDevice { device }),
            }
        }
        if self.queue.len() >= self.limits.queue_max {
            return Err(Refusal::QueueFull { waiting: self.queue.len() });
        }
        let waiting = self.queue.of(&borrower.host).count();
        if waiting >= self.limits.queue_per_host_max {
            return Err(Refusal::QueueFull { waiting });
        }
        let allowed = self.limits.devices_per_host_max;
        if self.devices_of(&borrower.host) + devices.len() > allowed {
            return Err(Refusal::TooMuch { allowed });
        }
        Ok(())
    }

    /// Marks a request as answered. Says whether it is new.
    fn mark(&mut self, request: RequestId, host: &HostName) -> Result<bool, Refusal> {
        if !self.hosts.contains_key(host) && self.hosts.len() >= self.limits.hosts_max {
            self.forget_a_host()?;
        }
        let nothing = Known { seen: Seen::nothing(), last: self.now };
        let known = self.hosts.entry(host.clone()).or_insert(nothing);
        known.last = self.now;
        Ok(known.seen.mark(request))
    }

    /// Forgets the host that has nothing here and was heard of least recently.
    fn forget_a_host(&mut self) -> Result<(), Refusal> {
        let idle = self.hosts.iter().filter(|(host, _)| self.devices_of(host) == 0);
        let oldest = idle.min_by_key(|(_, known)| known.last).map(|(host, _)| host.clone());
        let oldest = oldest.ok_or(Refusal::TooManyHosts { hosts: self.hosts.len() })?;
        self.hosts.remove(&oldest);
        self.ledger.answered.remove(&oldest);
        Ok(())
    }

    /// How many devices a host has, gets or waits for.
    fn devices_of(&self, host: &HostName) -> usize {
        let has = self.devices.values().filter_map(|device| device.lease());
        let gets = self.grants.iter().filter(|((other, _), _)| other == host);
        let waits: usize = self.queue.of(host).map(|entry| entry.devices.len()).sum();
        has.filter(|lease| lease.borrower.host == *host).count()
            + gets.map(|(_, grant)| grant.leases.len()).sum::<usize>()
            + waits
    }

    /// Why devices cannot be granted without waiting.
    fn why_not_now(&self, devices: &DeviceSet) -> Refusal {
        let lent = devices.iter().find_map(|device| self.devices.get(device)?.lease());
        if let Some(lease) = lent {
            let (device, holder) = (lease.id.device.clone(), lease.borrower.clone());
            return Refusal::Busy { device, holder };
        }
        let first = devices.iter().find(|device| !self.is_grantable(device));
        let device = first.or(devices.iter().next()).expect("a set is not empty").clone();
        Refusal::NotYet { device }
    }

    pub(super) fn refuse(&mut self, borrower: BorrowerId, request: RequestId, why: Refusal) {
        self.stats.refused += 1;
        self.emit(Action::Refused { borrower, request, why });
    }

    pub(super) fn withdraw(&mut self, host: &HostName, request: RequestId) {
        if self.queue.remove(host, request).is_none() {
            if let Some(grant) = self.grants.get_mut(&(host.clone(), request)) {
                grant.spoiled = Some(Spoiled::Unwanted);
            }
        }
    }

    pub(super) fn renew(&mut self, request: RequestId, host: HostName, leases: Vec<LeaseId>) {
        let allowed = self.limits.leases_per_message_max;
        let too_long = leases.len() > allowed;
        let renewals = leases.into_iter().take(allowed).map(|lease| {
            if too_long {
                let result = Err(Refusal::TooLong { allowed });
                Renewal { lease, result, recalled_within: None }
            } else {
                self.renew_one(&host, lease)
            }
        });
        let renewals: Vec<Renewal> = renewals.collect();
        let refused = renewals.iter().filter(|renewal| renewal.result.is_err()).count() as u64;
        self.stats.renewals_refused += refused;
        self.stats.renewed += renewals.len() as u64 - refused;
        self.emit(Action::Renewed { host, request, renewals });
    }

    /// Promises more time, but none past the deadline of a recall.
    fn renew_one(&mut self, host: &HostName, id: LeaseId) -> Renewal {
        let (now, drift) = (self.now, self.limits.drift);
        let unchecked = self.mutated.on(Mutation::EpochUnchecked);
        let device = self.devices.get_mut(&id.device);
        let recall = device.as_ref().and_then(|device| device.recall.clone());
        let lease = device.and_then(|device| match &mut device.state {
            State::Lent(lease) if (lease.id == id || unchecked) && lease.borrower.host == *host => {
                Some(lease)
            }
            _ => None,
        });
        let Some(lease) = lease else {
            let result = Err(Refusal::Ended { lease: id.clone() });
            return Renewal { lease: id, result, recalled_within: None };
        };
        let last = recall.as_ref().map(|recall| recall.deadline.max(lease.end));
        let duration = match last {
            Some(last) => lease.duration.min(drift.fits(now.until(last))),
            None => lease.duration,
        };
        lease.end = lease.end.max(drift.lenders_end(now, duration));
        let recalled_within = last.map(|last| now.until(last));
        Renewal { lease: id, result: Ok(duration), recalled_within }
    }
}
