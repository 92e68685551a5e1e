//! One line of the audit log.

use farside_lease::{BorrowerId, LeaseId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// The version of the lines, which each of them says.
const VERSION: u32 = 1;

/// What was decided or done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in super::super) enum Act {
    /// The daemon has started.
    Started,
    /// This host listens to others.
    Opened,
    /// It does not any more.
    Closed,
    /// The configuration was read anew.
    Configured,
    /// A token was given.
    Invited,
    /// A host has joined.
    Joined,
    /// A request was refused by the leases' own rules.
    Refused,
    /// By a rule of the administrators.
    RuleRefused,
    /// By a hook.
    HookRefused,
    /// A lease has begun.
    Granted,
    /// One that a former daemon granted goes on.
    Kept,
    /// A device is wanted back.
    Recalled,
    /// A lease has ended by its borrower's word.
    Returned,
    /// By its silence.
    Expired,
    /// By this host.
    Revoked,
    /// A device is clean again.
    Reset,
    /// It is not.
    Quarantined,
    /// It is gone, and was made clean by that.
    Absent,
    /// Somebody says that it is.
    Released,
    /// A hook failed at the end of a lease.
    HookFailed,
    /// Records are missing here.
    Lost,
}

impl Act {
    /// Whether it has to last before anything else is written.
    pub(super) fn lasts(self) -> bool {
        !matches!(self, Act::Refused | Act::RuleRefused | Act::HookRefused | Act::Recalled)
    }
}

/// A line. What does not apply is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Record {
    v: u32,
    #[serde(with = "time::serde::rfc3339")]
    time: OffsetDateTime,
    pub(in super::super) act: Act,
    /// The other host.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    /// The user there, or the one of this host who did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// One, or several that were asked for together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    devices: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
}

impl Record {
    pub(in super::super) fn of(act: Act) -> Record {
        let time = OffsetDateTime::now_utc();
        let (host, user, epoch, rule, why) = (None, None, None, None, None);
        Record { v: VERSION, time, act, host, user, devices: Vec::new(), epoch, rule, why }
    }

    pub(in super::super) fn host(self, host: impl Into<String>) -> Record {
        Record { host: Some(host.into()), ..self }
    }

    pub(in super::super) fn user(self, user: impl Into<String>) -> Record {
        Record { user: Some(user.into()), ..self }
    }

    pub(in super::super) fn borrower(self, borrower: &BorrowerId) -> Record {
        let user = borrower.user.as_ref().map(ToString::to_string);
        Record { host: Some(borrower.host.to_string()), user, ..self }
    }

    pub(in super::super) fn device(mut self, device: impl ToString) -> Record {
        self.devices.push(device.to_string());
        self
    }

    pub(in super::super) fn lease(self, lease: &LeaseId) -> Record {
        Record { epoch: Some(lease.epoch.0), ..self.device(&lease.device) }
    }

    pub(in super::super) fn rule(self, rule: Option<impl Into<String>>) -> Record {
        Record { rule: rule.map(Into::into), ..self }
    }

    pub(in super::super) fn why(self, why: impl ToString) -> Record {
        Record { why: Some(why.to_string()), ..self }
    }

    /// As it is written.
    pub(super) fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("a record is text");
        line.push(b'\n');
        line
    }
}
