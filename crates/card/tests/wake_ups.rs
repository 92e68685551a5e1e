//! No wake-up is lost between the card and a driver, in whatever order their steps take effect.
//!
//! The card's side is the real [`farside_card::Function`]; the driver's side is the few steps of the
//! specification. Every access of the card to a watched word is a point where driver steps may come
//! first, and each side's writes stay in a buffer of its own until they are flushed, a fence at the
//! latest, as processors do it. Every order is tried. The negative controls leave out a fence or the
//! second look, and the lost wake-up is found.

mod rig;

use std::collections::VecDeque;

use farside_card::interface::{Operation, RingHeader, RingKind};
use farside_card::{Bus, BusError, Geometry};
use farside_types::Asid;
use rig::{Memory, Rig};

/// One step of the driver.
#[derive(Clone, Copy)]
enum Step {
    Store(u64, u32),
    Fence,
    /// Goes on if the word is the value, else ends awake.
    OnlyIf(u64, u32),
    /// Tells the card, and ends awake.
    Doorbell,
    /// Waits for an interrupt.
    Sleep,
}

/// What is left out, on purpose.
#[derive(Clone, Copy, Default, PartialEq)]
struct Without {
    card_fence: bool,
    driver_fence: bool,
    second_look: bool,
}

/// Choices made so far, and those to make again.
#[derive(Default)]
struct Choices {
    /// (taken, of how many)
    trail: Vec<(usize, usize)>,
    next: usize,
}

impl Choices {
    fn choose(&mut self, of: usize) -> usize {
        if self.next == self.trail.len() {
            self.trail.push((0, of));
        }
        let (taken, expected) = self.trail[self.next];
        assert_eq!(expected, of, "the run is deterministic");
        self.next += 1;
        taken
    }

    /// The next trail; `false` when all were tried.
    fn advance(&mut self) -> bool {
        self.next = 0;
        while let Some((taken, of)) = self.trail.pop() {
            if taken + 1 < of {
                self.trail.push((taken + 1, of));
                return true;
            }
        }
        false
    }
}

struct Interleaved<'a> {
    memory: &'a mut Memory,
    choices: &'a mut Choices,
    without: Without,
    watched: Vec<u64>,
    card_stores: VecDeque<(u64, Vec<u8>)>,
    driver_stores: VecDeque<(u64, u32)>,
    steps: VecDeque<Step>,
    driver_sleeps: bool,
    doorbell: bool,
    /// What the card last read of each word, for a second look that does not look.
    seen: Vec<(u64, u32)>,
    fenced: bool,
}

impl Interleaved<'_> {
    fn flush_card(&mut self) {
        if let Some((address, bytes)) = self.card_stores.pop_front() {
            self.memory.put(address, &bytes);
        }
    }

    fn flush_driver(&mut self) {
        if let Some((address, value)) = self.driver_stores.pop_front() {
            self.memory.set_word(address, value);
        }
    }

    fn driver_reads(&self, address: u64) -> u32 {
        let own = self.driver_stores.iter().rev().find(|(at, _)| *at == address);
        own.map_or_else(|| self.memory.word(address), |&(_, value)| value)
    }

    fn driver_step(&mut self) {
        let Some(step) = self.steps.pop_front() else {
            return;
        };
        match step {
            Step::Store(address, value) => self.driver_stores.push_back((address, value)),
            Step::Fence if self.without.driver_fence => {}
            Step::Fence => {
                while !self.driver_stores.is_empty() {
                    self.flush_driver();
                }
            }
            Step::OnlyIf(address, value) if self.driver_reads(address) != value => {
                self.steps.clear();
            }
            Step::OnlyIf(..) => {}
            Step::Doorbell => self.doorbell = true,
            Step::Sleep => self.driver_sleeps = true,
        }
    }

    /// Lets other things happen, in every combination, until the choice is to go on.
    fn others(&mut self) {
        loop {
            let mut options: Vec<fn(&mut Self)> = Vec::new();
            if !self.steps.is_empty() {
                options.push(Self::driver_step);
            }
            // When the driver reads no more, it makes no difference when the card's writes land.
            let reads = self.steps.iter().any(|step| matches!(step, Step::OnlyIf(..)));
            if reads && !self.card_stores.is_empty() {
                options.push(Self::flush_card);
            }
            if !self.driver_stores.is_empty() {
                options.push(Self::flush_driver);
            }
            if options.is_empty() {
                return;
            }
            match self.choices.choose(options.len() + 1) {
                0 => return,
                other => options[other - 1](self),
            }
        }
    }

    /// The driver ends, and every write takes effect.
    fn finish(&mut self) {
        while !self.steps.is_empty() {
            self.others();
            self.driver_step();
        }
        while !(self.card_stores.is_empty() && self.driver_stores.is_empty()) {
            self.flush_card();
            self.flush_driver();
        }
    }
}

impl Bus for Interleaved<'_> {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.memory.read(address, into)
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), BusError> {
        self.card_stores.push_back((address, from.to_vec()));
        Ok(())
    }

    fn load(&mut self, address: u64) -> Result<u32, BusError> {
        if self.watched.contains(&address) {
            self.others();
        }
        let known = self.seen.iter_mut().find(|(at, _)| *at == address);
        if let (true, true, Some((_, value))) = (self.without.second_look, self.fenced, &known) {
            return Ok(*value);
        }
        let own = self.card_stores.iter().rev().find(|(at, _)| *at == address);
        let value = match own {
            Some((_, bytes)) => u32::from_le_bytes(bytes[..4].try_into().unwrap()),
            None => self.memory.word(address),
        };
        match known {
            Some(known) => known.1 = value,
            None => self.seen.push((address, value)),
        }
        Ok(value)
    }

    fn store(&mut self, address: u64, value: u32) -> Result<(), BusError> {
        // It goes into the buffer, which nobody sees: no order to try here.
        self.card_stores.push_back((address, value.to_le_bytes().to_vec()));
        Ok(())
    }

    fn fence(&mut self) {
        self.others();
        self.fenced = true;
        if !self.without.card_fence {
            while !self.card_stores.is_empty() {
                self.flush_card();
            }
        }
    }

    fn reaches(&mut self, address: u64, bytes: u64, write: bool) -> bool {
        self.memory.reaches(address, bytes, write)
    }

    fn interrupt(&mut self, vector: u16) {
        self.memory.interrupt(vector);
    }
}

struct Scenario {
    /// Makes the rig ready: the ring that is watched, and the driver's steps.
    prepare: fn(&mut Rig) -> (RingKind, Vec<Step>),
    /// What the card does: [`until_it_sleeps`] or [`one_round`].
    card: fn(&mut Rig, &mut Interleaved),
    /// Whether somebody waits for something that is there already.
    lost: fn(&mut Rig, driver_sleeps: bool, doorbell: bool) -> bool,
}

fn until_it_sleeps(rig: &mut Rig, bus: &mut Interleaved) {
    while !rig.function.prepare_to_sleep(&mut rig.card, bus) {
        rig.function.process(&mut rig.card, bus);
    }
}

fn one_round(rig: &mut Rig, bus: &mut Interleaved) {
    rig.function.process(&mut rig.card, bus);
}

/// Tries every order, or until a wake-up is lost. Returns how many were tried, and whether one was.
fn explore(scenario: &Scenario, without: Without) -> (usize, bool) {
    let mut choices = Choices::default();
    let mut orders = 0;
    let small = Geometry { pes: 1, l2_entries: 4, l2_ways: 4, ..Geometry::default() };
    let mut prepared = Rig::sized(small, [8; 4], 0, 32 << 10);
    let (watched, steps) = (scenario.prepare)(&mut prepared);
    loop {
        let mut rig = prepared.clone();
        let base = rig.rings[watched.index()].base;
        let words = [
            RingHeader::PRODUCER,
            RingHeader::PRODUCER_WAITS,
            RingHeader::CONSUMER,
            RingHeader::CONSUMER_SLEEPS,
        ];
        let mut memory = std::mem::replace(&mut rig.bus, Memory::new(0));
        memory.interrupts.clear();
        let seen = words.map(|word| (base + word, memory.word(base + word)));
        let mut bus = Interleaved {
            memory: &mut memory,
            choices: &mut choices,
            without,
            watched: words.map(|word| base + word).to_vec(),
            card_stores: VecDeque::new(),
            driver_stores: VecDeque::new(),
            steps: steps.clone().into(),
            driver_sleeps: false,
            doorbell: false,
            seen: seen.to_vec(),
            fenced: false,
        };
        (scenario.card)(&mut rig, &mut bus);
        bus.finish();
        let (driver_sleeps, doorbell) = (bus.driver_sleeps, bus.doorbell);
        rig.bus = memory;
        orders += 1;
        let lost = (scenario.lost)(&mut rig, driver_sleeps, doorbell);
        if lost || !choices.advance() {
            return (orders, lost);
        }
    }
}

fn header(rig: &Rig, kind: RingKind, word: u64) -> u64 {
    rig.rings[kind.index()].base + word
}

fn index(rig: &Rig, kind: RingKind, word: u64) -> u32 {
    rig.bus.word(header(rig, kind, word))
}

/// The card goes to sleep while the driver gives it a command.
const A_COMMAND_FOR_A_SLEEPING_CARD: Scenario = Scenario {
    prepare: |rig| {
        rig.submit(Asid(0), Operation::Nop);
        let producer = header(rig, RingKind::Command, RingHeader::PRODUCER);
        rig.bus.set_word(producer, 0);
        let sleeps = header(rig, RingKind::Command, RingHeader::CONSUMER_SLEEPS);
        let steps =
            vec![Step::Store(producer, 1), Step::Fence, Step::OnlyIf(sleeps, 1), Step::Doorbell];
        (RingKind::Command, steps)
    },
    card: until_it_sleeps,
    lost: |rig, _, doorbell| index(rig, RingKind::Command, RingHeader::CONSUMER) == 0 && !doorbell,
};

/// The driver goes to sleep while the card writes a completion.
const A_COMPLETION_FOR_A_SLEEPING_DRIVER: Scenario = Scenario {
    prepare: |rig| {
        rig.submit(Asid(0), Operation::Nop);
        let producer = header(rig, RingKind::Completion, RingHeader::PRODUCER);
        let sleeps = header(rig, RingKind::Completion, RingHeader::CONSUMER_SLEEPS);
        let steps = vec![
            Step::OnlyIf(producer, 0),
            Step::Store(sleeps, 1),
            Step::Fence,
            Step::OnlyIf(producer, 0),
            Step::Sleep,
        ];
        (RingKind::Completion, steps)
    },
    card: one_round,
    lost: |rig, driver_sleeps, _| driver_sleeps && rig.bus.interrupts.is_empty(),
};

/// The card waits for room in the completion ring while the driver makes it.
const ROOM_FOR_A_WAITING_CARD: Scenario = Scenario {
    prepare: |rig| {
        for _ in 0..8 {
            rig.submit(Asid(0), Operation::Nop);
        }
        rig.doorbell();
        rig.submit(Asid(0), Operation::Nop);
        let consumer = header(rig, RingKind::Completion, RingHeader::CONSUMER);
        let waits = header(rig, RingKind::Completion, RingHeader::PRODUCER_WAITS);
        let steps =
            vec![Step::Store(consumer, 1), Step::Fence, Step::OnlyIf(waits, 1), Step::Doorbell];
        (RingKind::Completion, steps)
    },
    card: until_it_sleeps,
    lost: |rig, _, doorbell| {
        index(rig, RingKind::Completion, RingHeader::PRODUCER) == 8 && !doorbell
    },
};

/// The driver waits for room in the command ring while the card makes it.
const ROOM_FOR_A_WAITING_DRIVER: Scenario = Scenario {
    prepare: |rig| {
        for _ in 0..8 {
            rig.submit(Asid(0), Operation::Nop);
        }
        let consumer = header(rig, RingKind::Command, RingHeader::CONSUMER);
        let waits = header(rig, RingKind::Command, RingHeader::PRODUCER_WAITS);
        let steps =
            vec![Step::Store(waits, 1), Step::Fence, Step::OnlyIf(consumer, 0), Step::Sleep];
        (RingKind::Command, steps)
    },
    card: one_round,
    lost: |rig, driver_sleeps, _| driver_sleeps && rig.bus.interrupts.is_empty(),
};

const ALL: [Scenario; 4] = [
    A_COMMAND_FOR_A_SLEEPING_CARD,
    A_COMPLETION_FOR_A_SLEEPING_DRIVER,
    ROOM_FOR_A_WAITING_CARD,
    ROOM_FOR_A_WAITING_DRIVER,
];

#[test]
fn no_wake_up_is_lost_in_any_order() {
    for scenario in &ALL {
        let (orders, lost) = explore(scenario, Without::default());
        assert!(orders > 20, "only {orders} orders were tried");
        assert!(!lost, "in order {orders}");
    }
}

#[test]
fn control_without_the_cards_fence_a_wake_up_is_lost() {
    for scenario in &ALL {
        let (orders, lost) = explore(scenario, Without { card_fence: true, ..Without::default() });
        assert!(lost, "none of {orders}");
    }
}

#[test]
fn control_without_the_drivers_fence_a_wake_up_is_lost() {
    for scenario in &ALL {
        let (orders, lost) =
            explore(scenario, Without { driver_fence: true, ..Without::default() });
        assert!(lost, "none of {orders}");
    }
}

#[test]
fn control_without_the_cards_second_look_a_wake_up_is_lost() {
    for scenario in [&A_COMMAND_FOR_A_SLEEPING_CARD, &ROOM_FOR_A_WAITING_CARD] {
        let (orders, lost) = explore(scenario, Without { second_look: true, ..Without::default() });
        assert!(lost, "none of {orders}");
    }
}
