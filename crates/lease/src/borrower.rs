//! The borrower: asks one lender, keeps its leases alive, and knows until when each may be used.
//!
//! Owns one host's requests to one lender and the leases it has of it. Does no I/O: call
//! [`Borrower::handle`] with what the lender sent and with [`Event::Tick`] when
//! [`Borrower::poll_timeout`] is reached, and carry out what [`Borrower::poll_action`] gives. Read the
//! clock *before* each call: all time is counted from that reading.

mod asks;
mod held;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::ids::{DeviceName, DeviceSet, LeaseId, RequestId, UserName};
use crate::mutation::Mutated;
#[cfg(feature = "mutations")]
use crate::mutation::Mutation;
use crate::text::Text;
use crate::time::{BootTime, Drift};

use asks::Ask;
use held::Held;

/// Bounds of a borrower.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// How far the clocks of two hosts may run away from true time, each.
    pub drift: Drift,
    /// After how long a request without an answer is sent again.
    pub ask_again: Duration,
    /// How long after the end of its wait a request may stay unanswered before it is given up.
    pub answer_max: Duration,
    /// Requests for devices that are open at a time.
    pub requests_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            drift: Drift::ALLOWED,
            ask_again: Duration::from_secs(3),
            answer_max: Duration::from_secs(10),
            requests_max: 256,
        }
    }
}

/// Too many requests are open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{open} requests to this lender are open already; wait for one of them")]
pub struct TooManyRequests {
    /// How many.
    pub open: usize,
}

/// What a lender answered for one lease of a renewal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Answer {
    /// Which.
    pub lease: LeaseId,
    /// For how long it goes on, or why it does not.
    pub result: Result<Duration, Text>,
    /// It is wanted back in this time.
    pub recalled_within: Option<Duration>,
}

/// What happens to a borrower.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Event {
    /// A request waits.
    Queued {
        /// Which.
        request: RequestId,
        /// How many are before it.
        before: usize,
    },
    /// A request was granted.
    Granted {
        /// Which.
        request: RequestId,
        /// The leases.
        leases: Vec<LeaseId>,
        /// For how long, from before it was asked.
        duration: Duration,
    },
    /// A request was refused.
    Refused {
        /// Which.
        request: RequestId,
        /// Why.
        why: Text,
    },
    /// A renewal was answered.
    Renewed {
        /// Which request.
        request: RequestId,
        /// What became of each lease.
        answers: Vec<Answer>,
    },
    /// A device is wanted back.
    Recalled {
        /// Which lease of it.
        lease: LeaseId,
        /// In how long.
        within: Duration,
        /// Who wants it.
        by: Text,
    },
    /// The lender ended a lease.
    Ended {
        /// Which.
        lease: LeaseId,
        /// Why.
        why: Text,
    },
    /// Time has passed.
    Tick,
}

/// What a borrower wants sent to the lender.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    /// Wants devices. The same number again is the same request.
    Borrow {
        /// Names the reply.
        request: RequestId,
        /// For whom.
        user: Option<UserName>,
        /// Which.
        devices: DeviceSet,
        /// For how long each time; `None` is what the lender gives.
        duration: Option<Duration>,
        /// How long to wait.
        wait: Duration,
    },
    /// Waits for a request no longer.
    Withdraw {
        /// Which.
        request: RequestId,
    },
    /// Keeps leases.
    Renew {
        /// Names the reply.
        request: RequestId,
        /// Which.
        leases: Vec<LeaseId>,
    },
    /// Uses leases no more.
    Return {
        /// Which.
        leases: Vec<LeaseId>,
    },
}

/// What a borrower wants done.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Send this to the lender. What cannot be sent is lost; it is made up for.
    Send(Message),
    /// A request waits.
    Queued {
        /// Which.
        request: RequestId,
        /// How many are before it.
        before: usize,
    },
    /// The devices of a request may be used, each until [`Borrower::usable_until`].
    Got {
        /// Which request.
        request: RequestId,
        /// The leases.
        leases: Vec<LeaseId>,
    },
    /// A request will not be granted.
    Refused {
        /// Which.
        request: RequestId,
        /// Why.
        why: Text,
    },
    /// A lease may be used until another time than before.
    Extended {
        /// Which.
        lease: LeaseId,
        /// Until when.
        until: BootTime,
    },
    /// A device is wanted back.
    Recalled {
        /// Which lease of it.
        lease: LeaseId,
        /// When its lease ends whatever happens.
        deadline: BootTime,
        /// Who wants it.
        by: Text,
    },
    /// A lease is over: what is in the device is lost. Stop using it before anything else.
    Lost {
        /// Which.
        lease: LeaseId,
        /// Why.
        why: Text,
    },
}

/// The borrower's side of all leases that one host has of one lender.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Borrower {
    config: Config,
    now: BootTime,
    last_request: RequestId,
    asks: BTreeMap<RequestId, Ask>,
    held: BTreeMap<DeviceName, Held>,
    actions: VecDeque<Action>,
    mutated: Mutated,
}

impl Borrower {
    /// A borrower without leases.
    ///
    /// All its requests have numbers above `last_request`, which has to be at least the last one that
    /// this host ever sent to this lender: the nanoseconds since 1970 at the start will do.
    #[must_use]
    pub fn new(config: Config, last_request: RequestId, now: BootTime) -> Self {
        Self {
            config,
            now,
            last_request,
            asks: BTreeMap::new(),
            held: BTreeMap::new(),
            actions: VecDeque::new(),
            mutated: Mutated::default(),
        }
    }

    /// Asks for devices, all or none; waits for them as long as `wait`.
    ///
    /// # Errors
    /// If too many requests are open.
    pub fn borrow(
        &mut self,
        now: BootTime,
        user: Option<UserName>,
        devices: DeviceSet,
        duration: Option<Duration>,
        wait: Duration,
    ) -> Result<RequestId, TooManyRequests> {
        self.advance(now);
        let open = self.open_requests();
        if open >= self.config.requests_max {
            return Err(TooManyRequests { open });
        }
        Ok(self.ask(user, devices, duration, wait))
    }

    /// Waits for a request no longer. If it is granted all the same, it is given back.
    pub fn withdraw(&mut self, now: BootTime, request: RequestId) {
        self.advance(now);
        self.drop_request(request);
    }

    /// Gives a lease back. From now on it may not be used.
    pub fn give_back(&mut self, now: BootTime, lease: &LeaseId) {
        self.advance(now);
        if self.holds(lease) {
            self.held.remove(&lease.device);
            self.send(Message::Return { leases: vec![lease.clone()] });
        }
    }

    /// Takes in what happened, at `now` by CLOCK_BOOTTIME.
    pub fn handle(&mut self, now: BootTime, event: Event) {
        self.advance(now);
        match event {
            Event::Queued { request, before } => self.queued(request, before),
            Event::Granted { request, leases, duration } => self.granted(request, leases, duration),
            Event::Refused { request, why } => self.refused(request, why),
            Event::Renewed { request, answers } => self.renewed(request, answers),
            Event::Recalled { lease, within, by } => {
                let deadline = self.now.after(self.config.drift.shorten(within));
                self.recalled(&lease, deadline, by);
            }
            Event::Ended { lease, why } => self.ended(&lease, why),
            Event::Tick => {}
        }
        self.expire();
        self.ask_again();
        self.renew();
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Until when a lease may be used: nothing may be begun at or after it. `None` if it may not be
    /// used at all.
    #[must_use]
    pub fn usable_until(&self, lease: &LeaseId) -> Option<BootTime> {
        let held = self.held.get(&lease.device).filter(|held| held.id == *lease && held.told)?;
        (held.until > self.now).then_some(held.until)
    }

    /// The leases that may be used, and until when.
    pub fn leases(&self) -> impl Iterator<Item = (&LeaseId, BootTime)> {
        self.held.values().filter(|held| held.told).map(|held| (&held.id, held.until))
    }

    /// Whether nothing is asked for and nothing is held.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.held.is_empty() && self.open_requests() == 0
    }

    /// When [`Borrower::handle`] has to be called at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<BootTime> {
        let held = self.held.values().map(|held| held.until_given_up().min(held.renew_at));
        let asks = self.asks.values().map(Ask::timeout);
        held.chain(asks).min()
    }

    /// Breaks one rule on purpose (feature `mutations`).
    #[cfg(feature = "mutations")]
    pub fn mutate(&mut self, mutation: Mutation) {
        self.mutated.set(mutation);
    }

    /// Takes the time in. It never goes back.
    fn advance(&mut self, now: BootTime) {
        self.now = self.now.max(now);
    }

    fn emit(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    fn send(&mut self, message: Message) {
        self.emit(Action::Send(message));
    }

    fn next_request(&mut self) -> RequestId {
        self.last_request.0 += 1;
        self.last_request
    }
}
