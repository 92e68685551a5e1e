//! A lender, its disk and some borrowers under virtual time, with a network that delivers at once
//! unless it is cut.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use farside_lease::borrower::{self, Borrower};
use farside_lease::lender::{
    Action, Event, FenceOutcome, FenceReason, Lender, Renewal, Status, WriteKind,
};
use farside_lease::{BootId, BootTime, LeaseId, Ledger, Limits, RequestId, Text};

use super::{
    BOOT, device, devices, fresh_ledger, heard_by_borrower, heard_by_lender, host, seconds,
};

/// What somebody did, for tests to compare.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    Lender(Action),
    Borrower(String, borrower::Action),
}

pub(crate) struct World {
    pub(crate) now: BootTime,
    pub(crate) lender: Lender,
    pub(crate) disk: Vec<u8>,
    pub(crate) disk_is_full: bool,
    pub(crate) borrowers: BTreeMap<String, Borrower>,
    /// Hosts whose messages do not arrive, either way.
    pub(crate) cut: BTreeSet<String>,
    /// Devices that do not reset.
    pub(crate) stuck: BTreeSet<String>,
    /// Devices that are gone.
    pub(crate) gone: BTreeSet<String>,
    /// Devices whose reset does not end.
    pub(crate) hung: BTreeSet<String>,
    /// Everything since the last look.
    pub(crate) log: Vec<Said>,
    generation: u64,
    limits: Limits,
    boot: BootId,
}

impl World {
    /// A lender of devices, which are clean, and borrowers.
    pub(crate) fn new(limits: Limits, devices: &[&str], hosts: &[&str]) -> Self {
        let now = BootTime(1_000_000_000);
        let ledger = fresh_ledger();
        let mut world = Self {
            now,
            disk: ledger.bytes(),
            lender: Lender::new(limits.clone(), ledger, BOOT, now),
            disk_is_full: false,
            borrowers: BTreeMap::new(),
            cut: BTreeSet::new(),
            stuck: BTreeSet::new(),
            gone: BTreeSet::new(),
            hung: BTreeSet::new(),
            log: Vec::new(),
            generation: 0,
            limits,
            boot: BOOT,
        };
        for name in hosts {
            world.start_borrower(name, 0);
        }
        for name in devices {
            world.lender(Event::DeviceAdded { device: device(name) });
        }
        world.log.clear();
        world
    }

    pub(crate) fn start_borrower(&mut self, name: &str, last_request: u64) {
        let config = borrower::Config::default();
        let borrower = Borrower::new(config, RequestId(last_request), self.now);
        self.borrowers.insert(name.to_owned(), borrower);
    }

    /// Something happens to the lender, and everything that follows at once.
    pub(crate) fn lender(&mut self, event: Event) {
        self.lender.handle(self.now, event);
        self.settle();
    }

    /// A host asks for devices.
    pub(crate) fn borrow(&mut self, name: &str, wanted: &[&str], wait: Duration) -> RequestId {
        let now = self.now;
        let request =
            self.borrower(name).borrow(now, None, devices(wanted), None, wait).expect("room");
        self.settle();
        request
    }

    pub(crate) fn borrower(&mut self, name: &str) -> &mut Borrower {
        self.borrowers.get_mut(name).expect("a host")
    }

    /// The lease that a host has of a device and may use.
    pub(crate) fn has(&self, name: &str, wanted: &str) -> Option<LeaseId> {
        let borrower = &self.borrowers[name];
        let id = borrower.leases().map(|(id, _)| id).find(|id| id.device == device(wanted))?;
        borrower.usable_until(id).map(|_| id.clone())
    }

    pub(crate) fn give_back(&mut self, name: &str, wanted: &str) {
        let lease = self.has(name, wanted).expect("it has it");
        let now = self.now;
        self.borrower(name).give_back(now, &lease);
        self.settle();
    }

    /// Time passes; everybody is called when it asked to be.
    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.now.after(span);
        loop {
            let soonest = self.borrowers.values().filter_map(Borrower::poll_timeout);
            let soonest = soonest.chain(self.lender.poll_timeout()).min();
            self.now = soonest.map_or(end, |at| at.min(end).max(self.now));
            let now = self.now;
            self.borrowers.values_mut().for_each(|b| b.handle(now, borrower::Event::Tick));
            self.lender.handle(now, Event::Tick);
            self.settle();
            if self.now >= end {
                return;
            }
        }
    }

    /// The lender's daemon is killed and starts again, on the same run of the machine or another.
    pub(crate) fn restart_lender(&mut self, boot: BootId, added: &[&str]) {
        let ledger = Ledger::read(&self.disk).expect("the ledger is whole");
        self.boot = boot;
        self.lender = Lender::new(self.limits.clone(), ledger, boot, self.now);
        for name in added {
            self.lender(Event::DeviceAdded { device: device(name) });
        }
    }

    /// Carries out everything until nobody has anything to do.
    pub(crate) fn settle(&mut self) {
        loop {
            let mut quiet = true;
            while let Some(action) = self.lender.poll_action() {
                quiet = false;
                self.carry_out(action);
            }
            for name in self.borrowers.keys().cloned().collect::<Vec<_>>() {
                while let Some(action) = self.borrower(&name).poll_action() {
                    quiet = false;
                    self.log.push(Said::Borrower(name.clone(), action.clone()));
                    if let borrower::Action::Send(message) = action {
                        if !self.cut.contains(&name) {
                            let event = heard_by_lender(&host(&name), message);
                            self.lender.handle(self.now, event);
                        }
                    }
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn carry_out(&mut self, action: Action) {
        self.log.push(Said::Lender(action.clone()));
        if let Some((to, event)) = heard_by_borrower(&action) {
            let now = self.now;
            if !self.cut.contains(to.as_str()) {
                if let Some(borrower) = self.borrowers.get_mut(to.as_str()) {
                    borrower.handle(now, event);
                }
            }
        }
        let answer = match action {
            Action::Store { write, .. } if self.disk_is_full => {
                Event::StoreFailed { write, why: Text::from("no space left on device") }
            }
            Action::Store { write, kind, bytes } => {
                match kind {
                    WriteKind::Append => self.disk.extend(bytes),
                    WriteKind::Replace => self.disk = bytes,
                }
                Event::Stored { write }
            }
            Action::Fence { device, .. } if self.hung.contains(device.as_str()) => return,
            Action::Fence { fence, device, .. } => {
                let outcome = if self.stuck.contains(device.as_str()) {
                    FenceOutcome::DoesNotReset { why: Text::from("it is stuck") }
                } else if self.gone.contains(device.as_str()) {
                    FenceOutcome::NotThere { why: Text::from("it died") }
                } else {
                    self.generation += 1;
                    FenceOutcome::Clean { generation: self.generation }
                };
                Event::Fenced { fence, device, outcome }
            }
            _ => return,
        };
        self.lender.handle(self.now, answer);
    }

    /// What was refused since the last look, by request.
    pub(crate) fn refusals(&self) -> Vec<(String, u64, String)> {
        let of = |said: &Said| match said {
            Said::Lender(Action::Refused { borrower, request, why }) => {
                Some((borrower.host.to_string(), request.0, why.to_string()))
            }
            _ => None,
        };
        self.log.iter().filter_map(of).collect()
    }

    /// Why devices were fenced since the last look.
    pub(crate) fn fences(&self) -> Vec<(String, FenceReason)> {
        let of = |said: &Said| match said {
            Said::Lender(Action::Fence { device, why, .. }) => {
                Some((device.to_string(), why.clone()))
            }
            _ => None,
        };
        self.log.iter().filter_map(of).collect()
    }

    /// The answers to renewals since the last look.
    pub(crate) fn renewals(&self) -> Vec<Renewal> {
        let of = |said: &Said| match said {
            Said::Lender(Action::Renewed { renewals, .. }) => Some(renewals.clone()),
            _ => None,
        };
        self.log.iter().filter_map(of).flatten().collect()
    }

    /// What a borrower told its programs since the last look.
    pub(crate) fn told(&self, name: &str) -> Vec<borrower::Action> {
        let of = |said: &Said| match said {
            Said::Borrower(from, action)
                if from == name && !matches!(action, borrower::Action::Send(_)) =>
            {
                Some(action.clone())
            }
            _ => None,
        };
        self.log.iter().filter_map(of).collect()
    }

    pub(crate) fn status(&self, wanted: &str) -> Status<'_> {
        let wanted = device(wanted);
        self.lender.devices().find(|view| *view.name == wanted).expect("it is lent").status
    }
}

/// Waits of no length and of an hour.
pub(crate) const NOT: Duration = Duration::ZERO;
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// The end of a lease of ten seconds by the lender's count.
pub(crate) fn lenders_ten() -> Duration {
    Limits::default().drift.lengthen(seconds(10))
}
