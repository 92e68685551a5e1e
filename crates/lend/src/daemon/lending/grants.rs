//! Granting: a lender's end is started for each lease, then the borrower is told.

use std::sync::Arc;
use std::time::Duration;

use farside_lease::lender::{Event, Lease};
use farside_lease::{BorrowerId, RequestId, Text};
use farside_linux::lock::lock;

use super::super::audit::{Act, Record};
use super::fence::KILL_LIMIT;
use super::judging::Grant;
use super::words::{link_of, told};
use super::{Asking, End, Lending, Plain};
use crate::LendError;
use crate::end::plain::Greeting;
use crate::end::{Begin, Kind};
use crate::steps::{Step, at};
use crate::{pki, proto};

impl End {
    /// For its borrower.
    fn described(&self) -> proto::Lease {
        proto::Lease {
            device: self.lease.device.to_string(),
            epoch: self.lease.epoch.0,
            link: link_of(self.lease.epoch),
            end: self.certificate.clone().unwrap_or_default(),
            plain_secret: match &self.plain {
                Plain::By(secret) => secret.to_vec(),
                Plain::No | Plain::Unknown => Vec::new(),
            },
            kind: match self.kind {
                Kind::Card => proto::lease::Kind::Card,
                Kind::Foreign => proto::lease::Kind::Foreign,
            }
            .into(),
        }
    }
}

impl Lending {
    /// Begins leases that nobody has a say in any more, and tells their borrower.
    pub(super) fn grant(self: &Arc<Self>, grant: &Grant) {
        let Grant { borrower, request, leases, duration } = grant;
        let (request, duration) = (*request, *duration);
        let asking = lock(&self.core).asking.remove(&(borrower.host.clone(), request));
        if self.granted_again(request, leases, duration, asking.as_ref()) {
            return;
        }
        // If nobody waits any more it is nobody's.
        let Some(asking) = asking else {
            return self.refuse_granted(grant, "nobody waits for it", Act::Refused, "unwanted");
        };
        let ends = match self.begin(borrower, leases, &asking) {
            Ok(ends) => ends,
            Err(error) => {
                let key = (borrower.host.clone(), request);
                lock(&self.core).asking.insert(key, asking);
                let why = format!("the lender's end cannot be started: {error}");
                return self.refuse_granted(grant, &why, Act::Refused, "end");
            }
        };
        at(Step::EndStarted);
        self.observed.count(|counts| counts.granted(leases.len(), asking.since.elapsed()));
        let mut granted =
            proto::Granted { leases: Vec::new(), duration_ns: duration.as_nanos() as u64 };
        let mut core = lock(&self.core);
        for ((mut end, lease), allowed) in ends.into_iter().zip(leases).zip(&asking.allowed) {
            let record = Record::of(Act::Granted).borrower(borrower).lease(&lease.id);
            self.observed.note(record.rule(allowed.rule.clone()));
            core.limit(lease, allowed);
            let (lease, pid) = (&end.lease, end.process.pid());
            let plain = end.plain != Plain::No;
            tracing::info!(%lease, %borrower, pid, plain, "a device is lent");
            end.events = Some((request, asking.events.clone()));
            self.connect_for(&end.lease, end.process.socket());
            granted.leases.push(end.described());
            core.ends.insert(end.lease.device.clone(), end);
        }
        let event = proto::borrow_event::Event::Granted(granted);
        // Whoever does not take it does not renew it.
        let _ = asking.events.try_send(Ok(told(request, event)));
        drop(core);
        at(Step::GrantSent);
    }

    /// Tells a grant once more whose ends have begun already: the first answer may be lost. Says whether
    /// it is such a one.
    fn granted_again(
        &self,
        request: RequestId,
        leases: &[Lease],
        duration: Duration,
        asking: Option<&Asking>,
    ) -> bool {
        let mut core = lock(&self.core);
        let mut told_again = Vec::new();
        for lease in leases {
            let end = core.ends.get_mut(&lease.id.device).filter(|end| end.lease == lease.id);
            let Some(end) = end else { return false };
            if let Some(asking) = asking {
                end.events = Some((request, asking.events.clone()));
            }
            told_again.push(end.described());
        }
        if let Some(asking) = asking {
            let duration_ns = duration.as_nanos() as u64;
            let granted = proto::Granted { leases: told_again, duration_ns };
            let event = proto::borrow_event::Event::Granted(granted);
            let _ = asking.events.try_send(Ok(told(request, event)));
        }
        true
    }

    /// Starts the ends of leases: all or none.
    fn begin(
        &self,
        borrower: &BorrowerId,
        leases: &[Lease],
        asking: &Asking,
    ) -> Result<Vec<End>, LendError> {
        let mut ends = Vec::new();
        for lease in leases {
            match self.begin_one(borrower, lease, asking) {
                Ok(end) => ends.push(end),
                Err(error) => {
                    ends.iter().for_each(|end: &End| {
                        end.process.kill(KILL_LIMIT);
                    });
                    return Err(error);
                }
            }
        }
        Ok(ends)
    }

    fn begin_one(
        &self,
        borrower: &BorrowerId,
        lease: &Lease,
        asking: &Asking,
    ) -> Result<End, LendError> {
        let own = pki::link_credentials()?;
        let known = lock(&self.core)
            .devices
            .get(&lease.id.device)
            .map(|known| (known.path.clone(), known.device.kind()));
        let (path, kind) =
            known.ok_or_else(|| LendError::Refused("the device is gone".to_owned()))?;
        let plain = if asking.plain { Plain::By(pki::random()) } else { Plain::No };
        let greeting = match plain {
            Plain::By(secret) => Some(Greeting { epoch: lease.id.epoch.0, secret }),
            Plain::No | Plain::Unknown => None,
        };
        let begin = Begin {
            name: format!("{}, lent to {borrower}", lease.id),
            epoch: lease.id.epoch.0,
            device: lease.id.device.to_string(),
            kind,
            path,
            certificate: own.certificate.clone(),
            key: own.key,
            peer: asking.certificate.clone(),
            plain: greeting,
            until: lease.end.0,
        };
        let started = self.machine.start_end(&self.folder, lease.id.epoch.0, begin);
        let process = started.map_err(LendError::system("starting the lender's end of a lease"))?;
        let certificate = Some(own.certificate);
        Ok(End { lease: lease.id.clone(), kind, process, certificate, plain, events: None })
    }

    /// Takes the end of a lease over that a former daemon has started.
    pub(super) fn keep(self: &Arc<Self>, lease: Lease) {
        match self.machine.find_end(&self.folder, lease.id.epoch.0) {
            Some((process, hello)) => {
                tracing::info!(lease = %lease.id, borrower = %lease.borrower, "a lease goes on");
                let record = Record::of(Act::Kept).borrower(&lease.borrower).lease(&lease.id);
                self.observed.note(record);
                self.limit_again(&lease);
                let device = lease.id.device.clone();
                let plain = if hello.plain { Plain::Unknown } else { Plain::No };
                let (kind, certificate) = (hello.kind, None);
                self.connect_for(&lease.id, process.socket());
                let end = End { lease: lease.id, kind, process, certificate, plain, events: None };
                lock(&self.core).ends.insert(device, end);
            }
            None => {
                tracing::warn!(lease = %lease.id, "the lender's end of a lease is gone, so that it ends");
                lock(&self.core).unheard.insert(lease.id.device.clone(), lease.id.epoch);
                // Not a hang-up: whoever borrowed it has not stopped, and may still believe in it.
                let (device, why) =
                    (lease.id.device, Text::from("the lender's end of its lease is gone"));
                self.tell(Event::DeviceLost { device, why });
            }
        }
    }
}
