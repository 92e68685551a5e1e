//! Hooks at the beginning and the end of leases. At the beginning they are asked before the borrower is
//! told, and no lender's end runs yet; at the end the device is clean before they are told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_lease::lender::{Event, Lease};
use farside_lease::{BorrowerId, DeviceName, RequestId, Text};
use farside_linux::lock::lock;
use futures_util::FutureExt;

use super::super::audit::{Act, Record};
use super::super::hooks::{self, Occasion};
use super::words::told;
use super::{Asking, Lending};
use crate::config::{GRANT_LIMIT_S, Hook, On};
use crate::proto;

/// A grant of which nobody has been told.
pub(super) struct Grant {
    pub(super) borrower: BorrowerId,
    pub(super) request: RequestId,
    pub(super) leases: Vec<Lease>,
    pub(super) duration: Duration,
}

/// What the hooks say of a grant.
pub(super) struct Judged {
    pub(super) grant: Grant,
    verdict: Result<(), String>,
}

/// A lease that has ended, whose device is being made clean.
pub(super) struct Ended {
    pub(super) lease: Lease,
    pub(super) why: String,
}

impl Lending {
    fn hooks(&self, on: On) -> Vec<Hook> {
        self.configured.get().hooks.iter().filter(|hook| hook.on == on).cloned().collect()
    }

    /// Asks the hooks, and goes on when they have said yes: the task takes `Judged` in its turn, behind
    /// whatever else has happened to the leases.
    pub(super) fn judge(self: &Arc<Self>, grant: Grant) {
        let key = (grant.borrower.host.clone(), grant.request);
        let hooks = self.hooks(On::Grant);
        let asks = {
            let mut core = lock(&self.core);
            if core.judging.contains(&key) {
                // It was asked for again meanwhile: one answer is enough.
                return;
            }
            let asks = !hooks.is_empty() && !core.is_told(&grant.leases);
            if asks {
                core.judging.insert(key.clone());
            }
            asks
        };
        if !asks {
            return self.grant(&grant);
        }
        let lending = Arc::clone(self);
        let asking = async move {
            let turn = lending.grant_hooks.acquire().await.expect("it is never closed");
            let verdict = ask(&hooks, &grant).await;
            drop(turn);
            let mut core = lock(&lending.core);
            core.judging.remove(&key);
            core.judged.push_back(Judged { grant, verdict });
            drop(core);
            lending.wake.notify_one();
        };
        self.machine.spawn(asking.boxed());
    }

    pub(super) fn judged(self: &Arc<Self>, Judged { grant, verdict }: Judged) {
        let is_over = {
            let core = lock(&self.core);
            grant.leases.iter().any(|lease| !core.lender.is_current(&lease.id))
        };
        let verdict = match verdict {
            Ok(()) if is_over => Err("the lease was over before its hooks were".to_owned()),
            verdict => verdict,
        };
        match verdict {
            Ok(()) => self.grant(&grant),
            Err(why) => self.refuse_granted(&grant, &why, Act::HookRefused, "hook"),
        }
    }

    /// Takes a grant back of which nobody was told, and says why.
    pub(super) fn refuse_granted(&self, grant: &Grant, why: &str, act: Act, reason: &'static str) {
        tracing::warn!(borrower = %grant.borrower, why, "a grant is taken back");
        let record = Record::of(act).borrower(&grant.borrower).why(why);
        self.observed.note(grant.leases.iter().fold(record, |r, lease| r.device(&lease.id.device)));
        self.observed.count(|counts| counts.refused(reason));
        let asking: Option<Asking> = {
            let mut core = lock(&self.core);
            core.untold.extend(grant.leases.iter().map(|lease| lease.id.clone()));
            core.asking.remove(&(grant.borrower.host.clone(), grant.request))
        };
        if let Some(asking) = asking {
            let refused = proto::Refused { why: why.to_owned(), ..proto::Refused::default() };
            let event = proto::borrow_event::Event::Refused(refused);
            let _ = asking.events.try_send(Ok(told(grant.request, event)));
        }
        let leases = grant.leases.iter().map(|lease| lease.id.clone()).collect();
        self.tell(Event::Return { host: grant.borrower.host.clone(), leases });
    }

    /// Tells the hooks of a lease that is over, one after the other, once its device is `outcome`.
    pub(super) fn tell_hooks(self: &Arc<Self>, device: &DeviceName, outcome: &'static str) {
        let Some(Ended { lease, why }) = lock(&self.core).ended.remove(device) else { return };
        let hooks = self.hooks(On::End);
        if hooks.is_empty() {
            return;
        }
        let about = occasion("end", &lease, why, outcome);
        let lending = Arc::clone(self);
        let telling = async move {
            // As many as there are devices at a time would be too many processes.
            let _turn = lending.end_hooks.acquire().await.expect("it is never closed");
            for hook in &hooks {
                if let Err(error) = hooks::run(hook, hook.limit, &about).await {
                    tracing::error!(lease = %lease.id, %error, "a hook failed at the end of a lease");
                    let record = Record::of(Act::HookFailed).borrower(&lease.borrower);
                    lending.observed.note(record.lease(&lease.id).why(error));
                    lending.observed.count(|counts| counts.hook_failed("end"));
                }
            }
        };
        self.machine.spawn(telling.boxed());
    }
}

/// Whether all hooks say yes to all leases of a grant, within the time for all of them.
async fn ask(hooks: &[Hook], grant: &Grant) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs(GRANT_LIMIT_S);
    for lease in &grant.leases {
        let about = occasion("grant", lease, String::new(), "");
        for hook in hooks {
            let left = end.saturating_duration_since(Instant::now());
            hooks::run(hook, left, &about)
                .await
                .map_err(|error| Text::from(format!("{}: {error}", lease.id.device)).to_string())?;
        }
    }
    Ok(())
}

fn occasion(event: &'static str, lease: &Lease, why: String, outcome: &'static str) -> Occasion {
    Occasion {
        event,
        host: lease.borrower.host.to_string(),
        user: lease.borrower.user.as_ref().map(ToString::to_string).unwrap_or_default(),
        device: lease.id.device.to_string(),
        epoch: lease.id.epoch.0,
        why,
        outcome,
    }
}
