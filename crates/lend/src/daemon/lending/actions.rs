//! Carries the actions of the leases' state machine out, in their order.

use std::sync::Arc;
use std::time::Duration;

use farside_lease::lender::{Action, Event, Lease, Renewal, WriteId, WriteKind};
use farside_lease::{DeviceSet, EndReason, HostName, LeaseId, RequestId, Text};
use farside_linux::lock::lock;
use futures_util::FutureExt;
use tokio::task::spawn_blocking;

use super::super::audit::{Act, Record};
use super::super::metrics::Counts;
use super::Lending;
use super::judging::{Ended, Grant};
use super::words::{end_name, refusal_name, refused, told};
use crate::proto;
use crate::steps::{Step, at};

impl Lending {
    /// Carries out what is decided, for ever.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            let (action, judged, timeout) = {
                let mut core = lock(&self.core);
                let action = core.lender.poll_action();
                // What has happened to leases comes first.
                let judged = if action.is_none() { core.judged.pop_front() } else { None };
                let timeouts = [core.lender.poll_timeout(), core.next_recall()];
                (action, judged, timeouts.into_iter().flatten().min())
            };
            if let Some(action) = action {
                self.carry_out(action);
                continue;
            }
            if let Some(judged) = judged {
                self.judged(judged);
                continue;
            }
            self.changed.notify_one();
            let left = timeout.map_or(Duration::from_secs(3600), |at| self.machine.now().until(at));
            tokio::select! {
                () = self.wake.notified() => {}
                // A millisecond later than wanted, never earlier.
                () = tokio::time::sleep(left + Duration::from_millis(1)) => {
                    self.recall_limited();
                    self.tell(Event::Tick);
                }
            }
        }
    }

    fn carry_out(self: &Arc<Self>, action: Action) {
        match action {
            Action::Store { write, kind, bytes } => self.store(write, kind, bytes),
            Action::Fence { fence, device, epoch, why } => {
                tracing::info!(%device, %epoch, ?why, "a device is cut off and made clean");
                self.fence(fence, device, epoch);
            }
            Action::Queued { borrower, request, before } => {
                let event = proto::Queued { before: u32::try_from(before).unwrap_or(u32::MAX) };
                let core = lock(&self.core);
                if let Some(asking) = core.asking.get(&(borrower.host, request)) {
                    let event = proto::borrow_event::Event::Queued(event);
                    let _ = asking.events.try_send(Ok(told(request, event)));
                }
            }
            Action::Granted { borrower, request, leases, duration } => {
                self.judge(Grant { borrower, request, leases, duration });
            }
            Action::Refused { borrower, request, why } => {
                tracing::info!(%borrower, %why, "nothing is lent");
                let record = Record::of(Act::Refused).borrower(&borrower).why(&why);
                self.observed.count(|counts| counts.refused(refusal_name(&why)));
                let asking = lock(&self.core).asking.remove(&(borrower.host, request));
                let devices = asking.as_ref().map(|asking| asking.devices.clone());
                let devices = devices.iter().flat_map(DeviceSet::iter);
                self.observed.note(devices.fold(record, Record::device));
                if let Some(asking) = asking {
                    let event = proto::borrow_event::Event::Refused(refused(&why));
                    let _ = asking.events.try_send(Ok(told(request, event)));
                }
            }
            Action::Renewed { host, request, renewals } => self.renewed(host, request, renewals),
            Action::Recalled { lease, borrower, within, by } => {
                tracing::info!(%lease, %borrower, ?within, %by, "a lease is recalled");
                let record = Record::of(Act::Recalled).borrower(&borrower).lease(&lease);
                self.observed.note(record.why(format!("{by}, within {} s", within.as_secs())));
                self.observed.count(Counts::recalled);
                self.tell_holder(&lease, |id| {
                    proto::borrow_event::Event::Recalled(proto::Recalled {
                        device: id.device.to_string(),
                        epoch: id.epoch.0,
                        within_ns: within.as_nanos() as u64,
                    })
                });
            }
            Action::Ended { lease, why } => {
                tracing::info!(lease = %lease.id, borrower = %lease.borrower, %why, "a lease has ended");
                self.ended(&lease, &why);
                self.tell_holder(&lease.id, |id| {
                    proto::borrow_event::Event::Ended(proto::Ended {
                        device: id.device.to_string(),
                        epoch: id.epoch.0,
                        why: why.to_string(),
                    })
                });
            }
            Action::Kept { lease } => self.keep(lease),
            Action::Cleaned { device, .. } => {
                tracing::info!(%device, "a device is clean");
                at(Step::Lendable);
                self.observed.note(Record::of(Act::Reset).device(&device));
                self.observed.count(|counts| counts.cleaned("clean"));
                self.tell_hooks(&device, "clean");
            }
            Action::Quarantined { device, why } => {
                self.observed.note(Record::of(Act::Quarantined).device(&device).why(&why));
                self.observed.count(|counts| counts.cleaned("quarantined"));
                self.tell_hooks(&device, "quarantined");
                tracing::error!(%device, %why, "a device does not reset, and is lent to nobody until `farside lend release`");
            }
            Action::Absent { device, why } => {
                self.observed.note(Record::of(Act::Absent).device(&device).why(&why));
                self.observed.count(|counts| counts.cleaned("absent"));
                self.tell_hooks(&device, "absent");
                tracing::error!(%device, %why, "a device is gone, and is lent again when it is back");
            }
            Action::Released { device, by } => {
                tracing::warn!(%device, %by, "a device is released");
                self.observed.note(Record::of(Act::Released).device(&device).why(by));
            }
            Action::Removed { device } => {
                lock(&self.core).devices.remove(&device);
            }
            Action::NotAdded { device, allowed } => {
                tracing::error!(%device, allowed, "a device is not lent: there are too many");
                lock(&self.core).devices.remove(&device);
            }
        }
    }

    /// Notes the end of a lease that somebody had.
    fn ended(&self, lease: &Lease, why: &EndReason) {
        let mut core = lock(&self.core);
        core.limited.remove(&lease.id.device);
        if core.untold.remove(&lease.id) || *why == EndReason::Unwanted {
            return;
        }
        let (act, reason) = end_name(why);
        let ended = Ended { lease: lease.clone(), why: why.to_string() };
        core.ended.insert(lease.id.device.clone(), ended);
        drop(core);
        self.observed.note(Record::of(act).borrower(&lease.borrower).lease(&lease.id).why(why));
        self.observed.count(|counts| counts.ended(reason));
    }

    fn store(self: &Arc<Self>, write: WriteId, kind: WriteKind, bytes: Vec<u8>) {
        let lending = Arc::clone(self);
        let ledger = self.ledger.clone();
        let storing = async move {
            let writing = move || {
                let written = ledger.write(kind, &bytes);
                at(Step::LedgerWritten);
                written
            };
            let written = spawn_blocking(writing).await;
            let failed = match written {
                Ok(Ok(())) => return lending.tell(Event::Stored { write }),
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            tracing::error!(error = failed, "the ledger cannot be written, so nothing is lent");
            lending.tell(Event::StoreFailed { write, why: Text::from(failed) });
        };
        self.machine.spawn(storing.boxed());
    }

    fn renewed(&self, host: HostName, request: RequestId, renewals: Vec<Renewal>) {
        let mut core = lock(&self.core);
        for renewal in renewals.iter().filter(|renewal| renewal.result.is_ok()) {
            let end = core.lender.lease(&renewal.lease.device).map(|lease| lease.end);
            let known = core.ends.get(&renewal.lease.device);
            if let (Some(until), Some(end)) = (end, known.filter(|end| end.lease == renewal.lease))
            {
                if let Err(error) = end.process.set_until(until.0) {
                    tracing::warn!(lease = %end.lease, %error, "the lender's end of a lease is gone");
                }
            }
        }
        if let Some(answer) = core.renewing.remove(&(host, request)) {
            let _ = answer.send(renewals);
        }
    }

    fn tell_holder(
        &self,
        lease: &LeaseId,
        event: impl FnOnce(&LeaseId) -> proto::borrow_event::Event,
    ) {
        let core = lock(&self.core);
        let end = core.ends.get(&lease.device).filter(|end| end.lease == *lease);
        if let Some((request, events)) = end.and_then(|end| end.events.as_ref()) {
            let _ = events.try_send(Ok(told(*request, event(lease))));
        }
    }
}
