//! The leases that a borrower has: until when each may be used, and how it is kept.

use std::collections::BTreeSet;
use std::time::Duration;

use super::asks::Ask;
use super::{Action, Answer, Borrower, Message};
use crate::ids::{LeaseId, RequestId};
use crate::text::Text;
use crate::time::BootTime;

/// A lease.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Held {
    pub(super) id: LeaseId,
    request: RequestId,
    duration: Duration,
    /// Nothing may be begun at or after it.
    pub(super) until: BootTime,
    /// When to ask for more time.
    pub(super) renew_at: BootTime,
    /// The program knows of it. A lease that waited in a queue for longer than it runs is renewed
    /// before the program hears of it.
    pub(super) told: bool,
    /// When it is given up although the program never heard of it.
    untold_until: BootTime,
    recalled: bool,
}

impl Held {
    pub(super) fn until_given_up(&self) -> BootTime {
        if self.told { self.until } else { self.untold_until }
    }
}

impl Borrower {
    /// Whether this very lease is held.
    pub(super) fn holds(&self, lease: &LeaseId) -> bool {
        self.held.get(&lease.device).is_some_and(|held| held.id == *lease)
    }

    pub(super) fn hold(
        &mut self,
        id: LeaseId,
        request: RequestId,
        asked: BootTime,
        duration: Duration,
    ) {
        let drift = self.config.drift;
        let held = Held {
            id: id.clone(),
            request,
            duration,
            until: drift.borrowers_end(asked, duration),
            renew_at: asked.after(duration / 3),
            told: false,
            untold_until: drift.lenders_end(self.now, duration),
            recalled: false,
        };
        if let Some(older) = self.held.insert(id.device.clone(), held) {
            let why = Text::from("the lender granted the device anew");
            self.emit(Action::Lost { lease: older.id, why });
        }
    }

    /// Tells the program of a request's leases when all of them may be used.
    pub(super) fn tell(&mut self, request: RequestId) {
        let now = self.now;
        let mut of = self.held.values_mut().filter(|held| held.request == request);
        let mut leases = Vec::new();
        if of.by_ref().all(|held| {
            leases.push(held.id.clone());
            !held.told && held.until > now
        }) && !leases.is_empty()
        {
            for lease in &leases {
                self.held.get_mut(&lease.device).expect("it was just there").told = true;
            }
            self.emit(Action::Got { request, leases });
        }
    }

    /// Asks for more time for all leases that are due, in one message.
    pub(super) fn renew(&mut self) {
        let now = self.now;
        let mut leases = Vec::new();
        let mut longest = Duration::ZERO;
        for held in self.held.values_mut().filter(|held| held.renew_at <= now) {
            held.renew_at = now.after(held.duration / 9);
            longest = longest.max(held.duration);
            leases.push(held.id.clone());
        }
        if leases.is_empty() {
            return;
        }
        let request = self.next_request();
        let give_up = self.config.drift.lenders_end(now, longest);
        self.asks.insert(request, Ask::Renew { asked: now, leases: leases.clone(), give_up });
        self.send(Message::Renew { request, leases });
    }

    /// Takes an answer for the renewal that it names, counted from before that one was sent.
    pub(super) fn renewed(&mut self, request: RequestId, answers: Vec<Answer>) {
        let request = self.answered(request, |ask| matches!(ask, Ask::Renew { .. }));
        let Some(Ask::Renew { asked, leases, .. }) = self.asks.get(&request).cloned() else {
            return;
        };
        self.asks.remove(&request);
        let asked = self.counted_from(asked);
        let mut requests = BTreeSet::new();
        for answer in answers.into_iter().filter(|answer| leases.contains(&answer.lease)) {
            if !self.holds(&answer.lease) {
                continue;
            }
            match answer.result {
                Ok(duration) => {
                    requests.extend(self.extend(&answer.lease, asked, duration));
                    if let Some(within) = answer.recalled_within {
                        let deadline = asked.after(self.config.drift.shorten(within));
                        self.recalled(&answer.lease, deadline, Text::from("its lender"));
                    }
                }
                Err(why) => self.lose(&answer.lease, why),
            }
        }
        requests.into_iter().for_each(|request| self.tell(request));
    }

    /// Lets a lease go on. Says for which request it was granted if the program is still to hear of it.
    fn extend(
        &mut self,
        lease: &LeaseId,
        asked: BootTime,
        duration: Duration,
    ) -> Option<RequestId> {
        let until = self.config.drift.borrowers_end(asked, duration);
        let held = self.held.get_mut(&lease.device)?;
        held.renew_at = held.renew_at.max(asked.after(held.duration / 3));
        if until <= held.until {
            return (!held.told).then_some(held.request);
        }
        held.until = until;
        if !held.told {
            return Some(held.request);
        }
        self.emit(Action::Extended { lease: lease.clone(), until });
        None
    }

    pub(super) fn recalled(&mut self, lease: &LeaseId, deadline: BootTime, by: Text) {
        if !self.holds(lease) {
            return;
        }
        let held = self.held.get_mut(&lease.device).expect("it is held");
        if !held.recalled {
            held.recalled = true;
            self.emit(Action::Recalled { lease: lease.clone(), deadline, by });
        }
    }

    /// The lender ended a lease, and waits for the word that it is not used any more.
    pub(super) fn ended(&mut self, lease: &LeaseId, why: Text) {
        if self.holds(lease) {
            self.lose(lease, why);
        } else if !self.asks_for(&lease.device) {
            self.send(Message::Return { leases: vec![lease.clone()] });
        }
        // If the device is asked for, the grant of this lease may be still to come, having been
        // overtaken, and would be believed: the lender hears nothing then, and waits for its end.
    }

    /// A lease is over. Saying so to the lender frees the device sooner.
    pub(super) fn lose(&mut self, lease: &LeaseId, why: Text) {
        let Some(held) = self.held.remove(&lease.device) else { return };
        let mut leases = vec![lease.clone()];
        if held.told {
            self.emit(Action::Lost { lease: lease.clone(), why });
        } else {
            // All or nothing: the program never hears of the others.
            leases.extend(self.drop_untold(held.request));
            self.emit(Action::Refused { request: held.request, why });
        }
        self.send(Message::Return { leases });
    }

    /// Takes the leases of a request away that the program does not know of.
    fn drop_untold(&mut self, request: RequestId) -> Vec<LeaseId> {
        let untold = |held: &Held| held.request == request && !held.told;
        let dropped = self.held.values().filter(|held| untold(held)).map(|held| held.id.clone());
        let dropped = dropped.collect();
        self.held.retain(|_, held| !untold(held));
        dropped
    }

    /// Stops the use of what is over.
    pub(super) fn expire(&mut self) {
        let now = self.now;
        let over = self.held.values().filter(|held| held.until_given_up() <= now);
        let over: Vec<LeaseId> = over.map(|held| held.id.clone()).collect();
        for lease in over {
            self.lose(&lease, Text::from("it could not be renewed in time"));
        }
    }
}
