//! Which steps there are in a state, and where each leads.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use farside_lease::lender::{Event, FenceOutcome, Status};
use farside_lease::{BootId, BootTime, Text};
use stateright::Model;

use super::common::{BOOT, devices, fresh_ledger};
use super::machine::{
    BORROWER_TICK, Card, History, Host, LENDER_TICK, Leasing, State, Step, Wire, Written,
};

impl Model for Leasing {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let ledger = fresh_ledger();
        let mut state = State {
            tick: 0,
            boot: (BOOT, 0),
            disk: ledger.bytes(),
            lender: self.lender(ledger, BOOT, BootTime(0)),
            storing: None,
            fencing: BTreeMap::new(),
            cards: BTreeMap::new(),
            wants: self.wants.iter().map(|names| devices(names)).collect(),
            hosts: self.wants.iter().map(|_| self.new_host()).collect(),
            net: BTreeSet::new(),
            left: self.budgets,
            history: History::default(),
        };
        state.devices_are_there(self);
        // They are clean at first: nobody gains by seeing those fences in every order.
        for device in self.device_names() {
            state = self.step(state, Step::Fenced(device)).expect("it is fenced first");
        }
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        let left = &state.left;
        if left.ticks > 0 {
            steps.push(Step::Tick);
            if left.pauses > 0 {
                steps.push(Step::TickWithoutLender);
                steps.extend((0..state.hosts.len()).map(Step::TickWithout));
            }
        }
        for (who, host) in state.hosts.iter().enumerate() {
            // Of two that are alike, the first is the one that asks first.
            let alike = (0..who).find(|other| self.wants[*other] == self.wants[who]);
            let begun =
                alike.is_none_or(|other| state.hosts[other].requests < self.budgets.requests);
            if host.requests > 0 && host.borrower.is_idle() && begun {
                steps.push(Step::Borrow(who));
            }
            for lease in state.believed(who) {
                if left.returns > 0 {
                    steps.push(Step::GiveBack(lease.clone(), who));
                }
                if left.hang_ups > 0 {
                    steps.push(Step::HangUp(lease.clone(), who));
                }
            }
            if left.borrower_crashes > 0 && !host.borrower.is_idle() {
                steps.push(Step::CrashBorrower(who));
            }
        }
        for wire in &state.net {
            steps.push(Step::Deliver(wire.clone()));
            // As long as there is room, what is lost need only never arrive.
            if state.net.len() == left.on_the_way {
                steps.push(Step::Lose(wire.clone()));
            }
            if left.repeats > 0 {
                steps.push(Step::Repeat(wire.clone()));
            }
        }
        if state.storing.is_some() {
            steps.push(Step::Stored);
            if left.full_disks > 0 {
                steps.push(Step::DiskFull);
            }
        }
        steps.extend(state.fencing.keys().cloned().map(Step::Fenced));
        if left.absences > 0 {
            steps.extend(state.fencing.keys().cloned().map(Step::NotThere));
        }
        for device in self.device_names() {
            if state.lender.devices().all(|view| *view.name != device) {
                steps.push(Step::BackAgain(device));
            }
        }
        for view in state.lender.devices() {
            let is_lent = matches!(view.status, Status::Lent(_));
            if is_lent && left.recalls > 0 {
                steps.push(Step::Recall(view.name.clone()));
            }
            if (is_lent || view.status == Status::Granting) && left.lost_devices > 0 {
                steps.push(Step::DeviceLost(view.name.clone()));
            }
        }
        if left.lender_crashes > 0 {
            let on_disk: &[Written] = match state.storing {
                Some(_) => &[Written::No, Written::Half, Written::Yes],
                None => &[Written::No],
            };
            steps.extend(on_disk.iter().map(|written| Step::CrashLender(*written)));
            steps.extend(on_disk.iter().map(|written| Step::Reboot(*written)));
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = self.step(last.clone(), step)?;
        while let Some(step) = prompt_step(&state).filter(|_| self.prompt) {
            state = self.step(state, step)?;
        }
        Some(state)
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        super::properties::all()
    }
}

/// What a disk and devices that take no time do at once.
fn prompt_step(state: &State) -> Option<Step> {
    let fenced = || state.fencing.keys().next().cloned().map(Step::Fenced);
    if state.storing.is_some() { Some(Step::Stored) } else { fenced() }
}

impl Leasing {
    fn new_host(&self) -> Host {
        self.host(0, self.budgets.requests, BootTime(0))
    }

    fn step(&self, mut state: State, step: Step) -> Option<State> {
        match step {
            Step::Tick => {
                state.left.ticks -= 1;
                state.tick(true, None);
            }
            Step::TickWithoutLender => {
                state.left.ticks -= 1;
                state.left.pauses -= 1;
                state.tick(false, None);
            }
            Step::TickWithout(who) => {
                state.left.ticks -= 1;
                state.left.pauses -= 1;
                state.tick(true, Some(who));
            }
            Step::Borrow(who) => {
                let now = state.borrowers_now();
                let host = &mut state.hosts[who];
                host.requests -= 1;
                let wait = Duration::from_nanos(6 * BORROWER_TICK);
                let set = state.wants[who].clone();
                host.borrower.borrow(now, None, set, None, wait).expect("it is idle");
                state.drain_borrower(who);
            }
            Step::GiveBack(lease, who) => {
                state.left.returns -= 1;
                let now = state.borrowers_now();
                state.hosts[who].borrower.give_back(now, &lease);
                state.drain_borrower(who);
            }
            Step::HangUp(lease, who) => {
                state.left.hang_ups -= 1;
                let now = state.borrowers_now();
                state.hosts[who].borrower.give_back(now, &lease);
                // The link's word, instead of the daemon's.
                while state.hosts[who].borrower.poll_action().is_some() {}
                state.send(Wire::HangUp(lease));
            }
            Step::Deliver(wire) => {
                state.net.remove(&wire);
                state.deliver(wire);
            }
            Step::Repeat(wire) => {
                state.left.repeats -= 1;
                state.deliver(wire);
            }
            Step::Lose(wire) => {
                state.net.remove(&wire);
            }
            Step::Stored => {
                let write = state.write(Written::Yes)?;
                state.lender_hears(Event::Stored { write });
            }
            Step::DiskFull => {
                state.left.full_disks -= 1;
                let write = state.write(Written::Half)?;
                let why = Text::from("no space left on device");
                state.lender_hears(Event::StoreFailed { write, why });
            }
            Step::Fenced(device) => {
                let fence = state.fencing.remove(&device)?;
                state.cards.insert(device.clone(), Card::default());
                let outcome = FenceOutcome::Clean { generation: 1 };
                state.lender_hears(Event::Fenced { fence, device, outcome });
            }
            Step::NotThere(device) => {
                state.left.absences -= 1;
                let fence = state.fencing.remove(&device)?;
                state.cards.insert(device.clone(), Card::default());
                let outcome = FenceOutcome::NotThere { why: Text::from("it died") };
                state.lender_hears(Event::Fenced { fence, device, outcome });
            }
            Step::BackAgain(device) => state.lender_hears(Event::DeviceAdded { device }),
            Step::Recall(device) => {
                state.left.recalls -= 1;
                let within = Duration::from_nanos(LENDER_TICK);
                let by = Text::from("me");
                state.lender_hears(Event::Recall { device, within, by });
            }
            Step::DeviceLost(device) => {
                state.left.lost_devices -= 1;
                let why = Text::from("died");
                state.lender_hears(Event::DeviceLost { device, why });
            }
            Step::CrashBorrower(who) => {
                state.left.borrower_crashes -= 1;
                let host = &state.hosts[who];
                state.hosts[who] = self.host(host.runs + 1, host.requests, state.borrowers_now());
            }
            Step::CrashLender(written) => {
                state.left.lender_crashes -= 1;
                state.restart_lender(self, written);
            }
            Step::Reboot(written) => {
                state.left.lender_crashes -= 1;
                state.boot = (BootId([2; 16]), state.tick);
                state.cards.values_mut().for_each(|card| card.let_in.clear());
                state.restart_lender(self, written);
            }
        }
        Some(state)
    }
}
