//! What happens because time passes, and what happens to the clock.

use std::time::Duration;

use super::Lender;
use super::devices::State;
use crate::ids::{DeviceName, LeaseId};
use crate::ledger::Record;
use crate::mutation::Mutation;
use crate::refusal::{EndReason, Refusal};
use crate::text::Text;
use crate::time::BootTime;

impl Lender {
    /// Until when a lease of `duration` that is promised now is held.
    pub(super) fn lenders_end(&self, duration: Duration) -> BootTime {
        self.limits.drift.lenders_end(self.now, duration)
    }

    /// Takes the time in. It never goes back; after a long step nothing counts as over that was not
    /// over before, because a clock that jumped ahead looks the same as time that passed.
    pub(super) fn advance(&mut self, now: BootTime) {
        if now < self.now {
            self.stats.clock_back += 1;
            return;
        }
        let step = self.now.until(now);
        self.now = now;
        if step > self.limits.gap_max {
            self.stats.clock_gaps += 1;
            self.count_anew();
        }
    }

    /// Starts the time of everything that may be out there from now.
    fn count_anew(&mut self) {
        let (now, drift) = (self.now, self.limits.drift);
        let longest = drift.lenders_end(now, self.limits.duration_max);
        for device in self.devices.values_mut() {
            if let State::Lent(lease) = &mut device.state {
                lease.end = lease.end.max(drift.lenders_end(now, lease.duration));
            }
            if let Some(believer) = &mut device.believer {
                believer.until = believer.until.max(longest);
            }
        }
        if self.held_until > now || self.ledger.torn {
            self.held_until = self.held_until.max(longest);
        }
    }

    /// Ends what is over.
    pub(super) fn expire(&mut self) {
        let now = self.now;
        if self.held_until <= now {
            self.ledger.torn = false;
        }
        let names: Vec<DeviceName> = self.devices.keys().cloned().collect();
        for name in names {
            self.expire_device(&name);
        }
        for entry in self.queue.take(|entry| entry.until <= now) {
            let why = Refusal::TimedOut { request: entry.request };
            self.refuse(entry.borrower, entry.request, why);
        }
        if let Some((write, until)) = self.journal.under_way {
            if until <= now {
                self.store_failed(write, &Text::from("it takes too long"));
            }
        }
        self.share();
    }

    fn expire_device(&mut self, name: &DeviceName) {
        let now = self.now;
        let Some(device) = self.devices.get_mut(name) else { return };
        if let Some(believer) = device.believer.take_if(|believer| believer.until <= now) {
            let lease = LeaseId { device: name.clone(), epoch: believer.epoch };
            self.record(Record::Ended { lease });
        }
        let Some(device) = self.devices.get_mut(name) else { return };
        match &device.state {
            State::Lent(_) if self.mutated.on(Mutation::IgnoreSilence) => {}
            State::Lent(lease) if lease.end <= now => {
                let why = match &device.recall {
                    Some(recall) => EndReason::Recalled { by: recall.by.clone() },
                    None => EndReason::Silent,
                };
                self.end(name, why, true);
            }
            State::Fencing { until, .. } if *until <= now => {
                self.quarantine(name, Text::from("its reset does not end"));
            }
            _ => {}
        }
    }

    /// Time-sharing: recalls what somebody has waited for too long.
    fn share(&mut self) {
        let due: Vec<DeviceName> = self
            .sharing()
            .filter(|(_, at)| *at <= self.now)
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            self.recall(&name, self.limits.share_notice, Text::from("those who wait for it"));
        }
    }

    /// The devices that are to be shared, and when.
    fn sharing(&self) -> impl Iterator<Item = (&DeviceName, BootTime)> {
        let after = self.limits.share_after;
        let wanted = self
            .queue
            .iter()
            .flat_map(|entry| entry.devices.iter().map(move |device| (device, entry.since)));
        wanted.filter_map(move |(name, waits_since)| {
            let device = self.devices.get(name).filter(|device| device.recall.is_none())?;
            let since = device.lease()?.since.max(waits_since);
            Some((name, since.after(after?)))
        })
    }

    /// When [`Lender::handle`] has to be called at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<BootTime> {
        let mut soonest: Option<BootTime> = None;
        let mut at = |time: BootTime| soonest = Some(soonest.map_or(time, |other| other.min(time)));
        let mut counting = self.held_until > self.now;
        for device in self.devices.values() {
            match &device.state {
                State::Lent(lease) => at(lease.end),
                State::Fencing { until, .. } => at(*until),
                _ => {}
            }
            if let Some(believer) = &device.believer {
                at(believer.until);
            }
            counting |= device.lease().is_some() || device.believer.is_some();
        }
        self.queue.iter().for_each(|entry| at(entry.until));
        self.sharing().for_each(|(_, time)| at(time));
        if let Some((_, until)) = self.journal.under_way {
            at(until);
        }
        if counting {
            // Often enough that no step of the clock looks like a jump.
            at(self.now.after(self.limits.gap_max / 2));
        }
        soonest
    }
}
