//! Requests that wait for an answer, each with the time before it was sent.

use std::time::Duration;

use super::{Action, Borrower, Message};
use crate::ids::{DeviceName, DeviceSet, LeaseId, RequestId, UserName};
use crate::mutation::Mutation;
use crate::text::Text;
use crate::time::BootTime;

/// A request without an answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Ask {
    /// For devices.
    Borrow {
        asked: BootTime,
        user: Option<UserName>,
        devices: DeviceSet,
        duration: Option<Duration>,
        /// Until when it may wait.
        until: BootTime,
        again: BootTime,
        give_up: BootTime,
    },
    /// For more time.
    Renew {
        asked: BootTime,
        leases: Vec<LeaseId>,
        /// When an answer would be worth nothing.
        give_up: BootTime,
    },
}

impl Ask {
    pub(super) fn timeout(&self) -> BootTime {
        match self {
            Ask::Borrow { again, give_up, .. } => *again.min(give_up),
            Ask::Renew { give_up, .. } => *give_up,
        }
    }
}

impl Borrower {
    pub(super) fn open_requests(&self) -> usize {
        self.asks.values().filter(|ask| matches!(ask, Ask::Borrow { .. })).count()
    }

    /// Whether a request for a device is open.
    pub(super) fn asks_for(&self, device: &DeviceName) -> bool {
        let for_it =
            |ask: &Ask| matches!(ask, Ask::Borrow { devices, .. } if devices.contains(device));
        self.asks.values().any(for_it)
    }

    pub(super) fn ask(
        &mut self,
        user: Option<UserName>,
        devices: DeviceSet,
        duration: Option<Duration>,
        wait: Duration,
    ) -> RequestId {
        let request = self.next_request();
        let asked = self.now;
        let until = asked.after(wait);
        let ask = Ask::Borrow {
            asked,
            user: user.clone(),
            devices: devices.clone(),
            duration,
            until,
            again: asked.after(self.config.ask_again),
            give_up: until.after(self.config.answer_max),
        };
        self.asks.insert(request, ask);
        self.send(Message::Borrow { request, user, devices, duration, wait });
        request
    }

    /// Asks again what has no answer yet, and gives up what waited too long.
    pub(super) fn ask_again(&mut self) {
        let now = self.now;
        let due: Vec<RequestId> =
            self.asks.iter().filter(|(_, ask)| ask.timeout() <= now).map(|(id, _)| *id).collect();
        for request in due {
            let next = now.after(self.config.ask_again);
            match self.asks.get_mut(&request) {
                Some(Ask::Borrow { user, devices, duration, until, again, give_up, .. })
                    if *give_up > now =>
                {
                    *again = next;
                    let (user, devices) = (user.clone(), devices.clone());
                    let (duration, wait) = (*duration, now.until(*until));
                    self.send(Message::Borrow { request, user, devices, duration, wait });
                }
                Some(Ask::Borrow { .. }) => {
                    self.drop_request(request);
                    let why = Text::from("the lender does not answer; is it there?");
                    self.emit(Action::Refused { request, why });
                }
                Some(Ask::Renew { .. }) | None => {
                    self.asks.remove(&request);
                }
            }
        }
    }

    pub(super) fn drop_request(&mut self, request: RequestId) {
        if self.asks.remove(&request).is_some() {
            self.send(Message::Withdraw { request });
        }
    }

    pub(super) fn queued(&mut self, request: RequestId, before: usize) {
        if matches!(self.asks.get(&request), Some(Ask::Borrow { .. })) {
            self.emit(Action::Queued { request, before });
        }
    }

    pub(super) fn refused(&mut self, request: RequestId, why: Text) {
        if matches!(self.asks.get(&request), Some(Ask::Borrow { .. })) {
            self.asks.remove(&request);
            self.emit(Action::Refused { request, why });
        }
    }

    /// Takes a grant for the request that it names. What nobody asked for goes back.
    pub(super) fn granted(&mut self, request: RequestId, leases: Vec<LeaseId>, duration: Duration) {
        let request = self.answered(request, |ask| matches!(ask, Ask::Borrow { .. }));
        let Some(Ask::Borrow { asked, devices, .. }) = self.asks.get(&request) else {
            return self.return_unknown(leases);
        };
        let (asked, devices) = (self.counted_from(*asked), devices.clone());
        self.asks.remove(&request);
        let all = DeviceSet::new(leases.iter().map(|lease| lease.device.clone()));
        if all.as_ref() != Ok(&devices) {
            self.return_unknown(leases);
            let why = Text::from("the lender granted other devices than those that were asked for");
            return self.emit(Action::Refused { request, why });
        }
        for lease in leases {
            self.hold(lease, request, asked, duration);
        }
        self.tell(request);
    }

    /// The request that a reply answers: the one that it names.
    pub(super) fn answered(&self, named: RequestId, kind: impl Fn(&Ask) -> bool) -> RequestId {
        if !self.mutated.on(Mutation::AnyReply) {
            return named;
        }
        let latest = self.asks.iter().rfind(|(_, ask)| kind(ask));
        latest.map_or(named, |(latest, _)| *latest)
    }

    /// From when a request's time is counted: from before it was sent.
    pub(super) fn counted_from(&self, asked: BootTime) -> BootTime {
        if self.mutated.on(Mutation::CountFromReply) { self.now } else { asked }
    }

    /// Returns what is not held.
    fn return_unknown(&mut self, leases: Vec<LeaseId>) {
        let leases: Vec<LeaseId> = leases.into_iter().filter(|lease| !self.holds(lease)).collect();
        if !leases.is_empty() {
            self.send(Message::Return { leases });
        }
    }
}
