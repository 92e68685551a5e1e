//! The state of the model and its steps.
//!
//! Time passes in ticks of the true clock. In each the lender's clock advances by six and the
//! borrowers' by four: each runs away from five by as much as the drift allows here, the way round
//! that is dangerous. Everything else happens between two ticks, in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use farside_lease::borrower::{self, Borrower, Event as Heard, Message};
use farside_lease::lender::{Action, Event, FenceId, Lender, WriteId, WriteKind};
use farside_lease::{
    BootId, BootTime, DeviceName, DeviceSet, Drift, EndReason, Epoch, HostName, LeaseId, Ledger,
    Limits, Mutation, RequestId,
};

use super::common::{device, heard_by_borrower, heard_by_lender, host};

/// The borrowers' hosts; a model has the first few of them.
pub(crate) const HOSTS: [&str; 3] = ["a", "b", "c"];

/// What the lender's clock advances in a tick.
pub(crate) const LENDER_TICK: u64 = 6;

/// What true time advances in a tick.
const TRUE_TICK: u64 = 5;

/// What a borrower's clock advances in a tick.
pub(crate) const BORROWER_TICK: u64 = 4;

/// How often what may happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Budgets {
    pub(crate) ticks: u8,
    /// Messages on their way; what is sent beyond is lost.
    pub(crate) on_the_way: usize,
    /// Requests of each borrower.
    pub(crate) requests: u8,
    pub(crate) returns: u8,
    pub(crate) repeats: u8,
    pub(crate) pauses: u8,
    pub(crate) recalls: u8,
    pub(crate) hang_ups: u8,
    pub(crate) lost_devices: u8,
    /// Devices that are gone when they are fenced.
    pub(crate) absences: u8,
    pub(crate) lender_crashes: u8,
    pub(crate) borrower_crashes: u8,
    pub(crate) full_disks: u8,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            ticks: 6,
            on_the_way: 2,
            requests: 1,
            returns: 4,
            repeats: 0,
            pauses: 0,
            recalls: 0,
            hang_ups: 0,
            lost_devices: 0,
            absences: 0,
            lender_crashes: 0,
            borrower_crashes: 0,
            full_disks: 0,
        }
    }
}

/// The model: what may happen, and what is broken.
pub(crate) struct Leasing {
    pub(crate) budgets: Budgets,
    pub(crate) devices: &'static [&'static str],
    /// What each host borrows, all or none.
    pub(crate) wants: &'static [&'static [&'static str]],
    /// How many ticks a lease lasts, by either clock.
    pub(crate) lease_ticks: u8,
    /// The disk and the reset take no time, so that nothing happens in between.
    pub(crate) prompt: bool,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) drift_allowed: bool,
    pub(crate) looked_at: super::properties::LookedAt,
}

/// A message on its way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Wire {
    ToLender(usize, Message),
    /// The borrower's end of the link says that it is done.
    HangUp(LeaseId),
    ToBorrower(usize, Heard),
}

/// The device itself, which knows nothing of leases but the epochs that are let in.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Card {
    pub(crate) let_in: BTreeSet<Epoch>,
    /// Its memory shows what somebody wrote.
    pub(crate) written: bool,
}

/// What must not have happened.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct History {
    /// Every epoch that was told, and for which request of whom.
    pub(crate) told: BTreeMap<Epoch, Told>,
    pub(crate) epoch_repeated: bool,
    pub(crate) old_let_in: bool,
    pub(crate) granted_twice: bool,
    /// Somebody was granted some of what it asked for.
    pub(crate) granted_in_part: bool,
    pub(crate) renewed: bool,
}

/// An epoch that was told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Told {
    device: DeviceName,
    pub(crate) to: HostName,
    request: RequestId,
}

/// A write of the ledger on its way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Storing {
    pub(crate) write: WriteId,
    pub(super) kind: WriteKind,
    pub(super) bytes: Vec<u8>,
}

/// One borrower's daemon.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Host {
    pub(crate) borrower: Borrower,
    pub(super) requests: u8,
    /// How often it was started.
    pub(super) runs: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    pub(crate) tick: u8,
    /// The tick at which the lender's machine was started.
    pub(super) boot: (BootId, u8),
    pub(crate) lender: Lender,
    pub(super) disk: Vec<u8>,
    pub(crate) storing: Option<Storing>,
    pub(crate) fencing: BTreeMap<DeviceName, FenceId>,
    pub(super) cards: BTreeMap<DeviceName, Card>,
    /// What each host borrows.
    pub(super) wants: Vec<DeviceSet>,
    pub(crate) hosts: Vec<Host>,
    pub(super) net: BTreeSet<Wire>,
    pub(super) left: Budgets,
    pub(crate) history: History,
}

/// A step.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    Tick,
    /// A tick in which the lender does not run.
    TickWithoutLender,
    /// A tick in which a borrower does not run.
    TickWithout(usize),
    Borrow(usize),
    GiveBack(LeaseId, usize),
    HangUp(LeaseId, usize),
    Deliver(Wire),
    /// A message arrives and is still on its way.
    Repeat(Wire),
    Lose(Wire),
    Stored,
    DiskFull,
    Fenced(DeviceName),
    NotThere(DeviceName),
    BackAgain(DeviceName),
    Recall(DeviceName),
    DeviceLost(DeviceName),
    CrashBorrower(usize),
    /// The lender's daemon dies and starts again; what it was writing is on the disk or is not, or
    /// half of it.
    CrashLender(Written),
    /// So does its machine.
    Reboot(Written),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Written {
    No,
    Half,
    Yes,
}

impl Leasing {
    pub(crate) fn new(budgets: Budgets) -> Self {
        Self {
            budgets,
            devices: &["card"],
            wants: &[&["card"], &["card"]],
            lease_ticks: 3,
            prompt: false,
            mutation: None,
            drift_allowed: true,
            looked_at: Default::default(),
        }
    }

    /// The devices' names.
    pub(crate) fn device_names(&self) -> impl Iterator<Item = DeviceName> {
        self.devices.iter().map(|name| device(name))
    }

    pub(super) fn drift(&self) -> Drift {
        Drift::thousandths(if self.drift_allowed { 200 } else { 0 })
    }

    pub(super) fn limits(&self) -> Limits {
        let forever = Duration::from_secs(1);
        let duration = Duration::from_nanos(u64::from(self.lease_ticks) * TRUE_TICK);
        Limits {
            duration,
            duration_min: duration,
            duration_max: duration,
            drift: self.drift(),
            gap_max: forever,
            fence_max: forever,
            store_max: forever,
            ..Limits::default()
        }
    }

    pub(super) fn lender(&self, ledger: Ledger, boot: BootId, now: BootTime) -> Lender {
        let mut lender = Lender::new(self.limits(), ledger, boot, now);
        if let Some(mutation) = self.mutation {
            lender.mutate(mutation);
        }
        lender
    }

    pub(super) fn host(&self, runs: u64, requests: u8, now: BootTime) -> Host {
        let config = borrower::Config {
            drift: self.drift(),
            // What is lost stays lost: that a request comes twice is a step of its own.
            ask_again: Duration::from_secs(1),
            answer_max: Duration::from_nanos(BORROWER_TICK),
            ..borrower::Config::default()
        };
        let mut borrower = Borrower::new(config, RequestId(runs * 100), now);
        if let Some(mutation) = self.mutation {
            borrower.mutate(mutation);
        }
        Host { borrower, requests, runs }
    }
}

/// Which of the hosts it is.
fn place_of(name: &HostName) -> usize {
    HOSTS.iter().position(|known| host(known) == *name).expect("one of them")
}

/// Whether a message can change anything: places in the queue, and the ends of leases whose borrowers
/// have stopped, are news for people.
fn matters(action: &Action) -> bool {
    match action {
        Action::Queued { .. } => false,
        Action::Ended { why, .. } => matches!(why, EndReason::DeviceLost { .. }),
        _ => true,
    }
}

impl State {
    /// What the lender's clock shows.
    pub(crate) fn lenders_now(&self) -> BootTime {
        BootTime(u64::from(self.tick - self.boot.1) * LENDER_TICK)
    }

    /// What a borrower's clock shows.
    pub(crate) fn borrowers_now(&self) -> BootTime {
        BootTime(u64::from(self.tick) * BORROWER_TICK)
    }

    /// The leases that a borrower believes in at this instant.
    pub(crate) fn believed(&self, who: usize) -> impl Iterator<Item = &LeaseId> {
        let now = self.borrowers_now();
        self.hosts[who].borrower.leases().filter(move |(_, until)| now < *until).map(|(id, _)| id)
    }

    pub(super) fn send(&mut self, wire: Wire) {
        if self.net.len() < self.left.on_the_way {
            self.net.insert(wire);
        }
    }

    pub(super) fn lender_hears(&mut self, event: Event) {
        let now = self.lenders_now();
        self.lender.handle(now, event);
        self.drain_lender();
    }

    pub(super) fn borrower_hears(&mut self, who: usize, event: Heard) {
        let now = self.borrowers_now();
        self.hosts[who].borrower.handle(now, event);
        self.drain_borrower(who);
    }

    pub(super) fn drain_borrower(&mut self, who: usize) {
        while let Some(action) = self.hosts[who].borrower.poll_action() {
            match action {
                borrower::Action::Send(message) => self.send(Wire::ToLender(who, message)),
                borrower::Action::Extended { .. } => self.history.renewed = true,
                _ => {}
            }
        }
    }

    fn drain_lender(&mut self) {
        while let Some(action) = self.lender.poll_action() {
            if let Action::Granted { borrower, request, leases, .. } = &action {
                let granted: BTreeSet<_> = leases.iter().map(|held| &held.id.device).collect();
                let wanted = &self.wants[place_of(&borrower.host)];
                self.history.granted_in_part |= !granted.into_iter().eq(wanted.iter());
                for lease in leases {
                    self.told(&lease.id, &borrower.host, *request);
                }
            }
            if let Some((to, event)) = heard_by_borrower(&action).filter(|_| matters(&action)) {
                let who = place_of(&to);
                self.send(Wire::ToBorrower(who, event));
            }
            match action {
                Action::Store { write, kind, bytes } => {
                    assert_eq!(self.storing, None, "one write at a time");
                    self.storing = Some(Storing { write, kind, bytes });
                }
                Action::Fence { fence, device, .. } => {
                    self.fencing.insert(device, fence);
                }
                _ => {}
            }
        }
        // Counts are no part of the state.
        self.lender.take_stats();
    }

    /// A grant is told: its epoch is let in. (A grant that is told again lets nobody new in.)
    fn told(&mut self, lease: &LeaseId, to: &HostName, request: RequestId) {
        let history = &mut self.history;
        let told = Told { device: lease.device.clone(), to: to.clone(), request };
        match history.told.get(&lease.epoch) {
            Some(before) if *before == told => return,
            Some(_) => history.epoch_repeated = true,
            None => {}
        }
        history.granted_twice |= history.told.values().any(|before| *before == told);
        history.told.insert(lease.epoch, told);
        let card = self.cards.entry(lease.device.clone()).or_default();
        history.old_let_in |= card.written || card.let_in.iter().any(|e| *e != lease.epoch);
        card.let_in.insert(lease.epoch);
        card.written = true;
    }

    pub(super) fn deliver(&mut self, wire: Wire) {
        match wire {
            Wire::ToLender(from, message) => {
                self.lender_hears(heard_by_lender(&host(HOSTS[from]), message));
            }
            Wire::HangUp(lease) => self.lender_hears(Event::HungUp { lease }),
            Wire::ToBorrower(to, event) => self.borrower_hears(to, event),
        }
    }

    pub(super) fn tick(&mut self, lender: bool, without: Option<usize>) {
        self.tick += 1;
        for who in (0..self.hosts.len()).filter(|who| Some(*who) != without) {
            self.borrower_hears(who, Heard::Tick);
        }
        if lender {
            self.lender_hears(Event::Tick);
        }
    }

    /// What a write leaves on the disk.
    pub(super) fn write(&mut self, written: Written) -> Option<WriteId> {
        let Storing { write, kind, bytes } = self.storing.take()?;
        match (kind, written) {
            (_, Written::No) | (WriteKind::Replace, Written::Half) => {}
            (WriteKind::Replace, Written::Yes) => self.disk = bytes,
            (WriteKind::Append, Written::Half) => self.disk.extend(&bytes[..bytes.len() / 2]),
            (WriteKind::Append, Written::Yes) => self.disk.extend(bytes),
        }
        Some(write)
    }

    pub(super) fn restart_lender(&mut self, model: &Leasing, written: Written) {
        self.write(written);
        self.fencing.clear();
        let ledger = Ledger::read(&self.disk).expect("a crash leaves a ledger that can be read");
        self.lender = model.lender(ledger, self.boot.0, self.lenders_now());
        self.devices_are_there(model);
    }

    pub(super) fn devices_are_there(&mut self, model: &Leasing) {
        for device in model.device_names() {
            self.lender_hears(Event::DeviceAdded { device });
        }
    }
}
