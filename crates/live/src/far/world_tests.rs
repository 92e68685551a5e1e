//! Both halves of a link together, in one thread: a driver, a mirror, messages on their way, a shadow,
//! and a card. Who sleeps is run only when it was woken, so that a wake-up that is lost is seen.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use farside_card::interface::{RING_COUNT, RingHeader, RingKind};
use farside_linux::shared::SharedMemory;
use proptest::prelude::*;

use super::entries::News;
use super::mirror::{INCOMING, Mirror};
use super::rings::Rings;
use super::shadow::Shadow;
use super::tests::{BUS, ENTRIES, carry, done, memory, nop, registers};

/// The driver's side of rings, as `ring_card` has it.
struct Driver {
    rings: Rings,
    put: u32,
    taken: [u32; RING_COUNT],
    room_made: bool,
    /// Commands that are to be put, and completions that came.
    to_put: VecDeque<u64>,
    done: Vec<u64>,
    sleeps: bool,
}

impl Driver {
    /// Puts and takes what it can; whether it rings. Afterwards it sleeps, if it may.
    fn run(&mut self, limit: usize) -> bool {
        let rings = &self.rings;
        let mut rung = false;
        for kind in INCOMING {
            rings.set_word(kind, RingHeader::CONSUMER_SLEEPS, 0);
        }
        for kind in INCOMING {
            let mut left = limit;
            while left > 0 && rings.word(kind, RingHeader::PRODUCER) != self.taken[kind.index()] {
                let waiting =
                    rings.word(kind, RingHeader::PRODUCER).wrapping_sub(self.taken[kind.index()]);
                let entry = rings.entry(kind, self.taken[kind.index()]);
                self.taken[kind.index()] = self.taken[kind.index()].wrapping_add(1);
                rings.set_word(kind, RingHeader::CONSUMER, self.taken[kind.index()]);
                self.room_made |=
                    waiting == ENTRIES || rings.word(kind, RingHeader::PRODUCER_WAITS) != 0;
                if kind == RingKind::Completion {
                    self.done.push(entry[0]);
                }
                left -= 1;
            }
        }
        let room = |put: u32| {
            ENTRIES - put.wrapping_sub(rings.word(RingKind::Command, RingHeader::CONSUMER))
        };
        while let Some(&tag) = self.to_put.front() {
            rings.set_word(RingKind::Command, RingHeader::PRODUCER_WAITS, 0);
            if room(self.put) == 0 {
                rings.set_word(RingKind::Command, RingHeader::PRODUCER_WAITS, 1);
                fence(Ordering::SeqCst);
                if room(self.put) == 0 {
                    break;
                }
                continue;
            }
            rings.put(RingKind::Command, self.put, &nop(tag));
            self.put = self.put.wrapping_add(1);
            self.to_put.pop_front();
        }
        if rings.word(RingKind::Command, RingHeader::PRODUCER) != self.put {
            rings.set_word(RingKind::Command, RingHeader::PRODUCER, self.put);
            fence(Ordering::SeqCst);
            rung = rings.word(RingKind::Command, RingHeader::CONSUMER_SLEEPS) != 0;
        }
        rung |= std::mem::take(&mut self.room_made);
        for kind in INCOMING {
            rings.set_word(kind, RingHeader::CONSUMER_SLEEPS, 1);
        }
        fence(Ordering::SeqCst);
        let is_news =
            |kind: RingKind| rings.word(kind, RingHeader::PRODUCER) != self.taken[kind.index()];
        let has_room = !self.to_put.is_empty() && room(self.put) > 0;
        self.sleeps = !INCOMING.into_iter().any(is_news) && !has_room;
        rung
    }
}

/// The card's side of rings: completes commands in order, and writes as many faults.
struct Card {
    rings: Rings,
    taken: u32,
    written: [u32; RING_COUNT],
    /// Completions that have no room yet.
    owed: VecDeque<u64>,
    sleeps: bool,
}

impl Card {
    /// Takes commands and completes them, as far as there is room; whether it interrupts.
    fn run(&mut self, limit: usize) -> bool {
        let rings = &self.rings;
        rings.set_word(RingKind::Command, RingHeader::CONSUMER_SLEEPS, 0);
        let mut interrupts = false;
        let mut left = limit;
        while left > 0 && rings.word(RingKind::Command, RingHeader::PRODUCER) != self.taken {
            self.owed.push_back(rings.entry(RingKind::Command, self.taken)[0]);
            self.taken = self.taken.wrapping_add(1);
            rings.set_word(RingKind::Command, RingHeader::CONSUMER, self.taken);
            fence(Ordering::SeqCst);
            interrupts |= rings.word(RingKind::Command, RingHeader::PRODUCER_WAITS) != 0;
            left -= 1;
        }
        let kind = RingKind::Completion;
        let index = kind.index();
        rings.set_word(kind, RingHeader::PRODUCER_WAITS, 0);
        while let Some(&tag) = self.owed.front() {
            let room =
                ENTRIES - self.written[index].wrapping_sub(rings.word(kind, RingHeader::CONSUMER));
            if room == 0 {
                if rings.word(kind, RingHeader::PRODUCER_WAITS) == 1 {
                    break;
                }
                rings.set_word(kind, RingHeader::PRODUCER_WAITS, 1);
                fence(Ordering::SeqCst);
                continue;
            }
            rings.put(kind, self.written[index], &done(tag));
            self.written[index] = self.written[index].wrapping_add(1);
            rings.set_word(kind, RingHeader::PRODUCER, self.written[index]);
            fence(Ordering::SeqCst);
            interrupts |= rings.word(kind, RingHeader::CONSUMER_SLEEPS) != 0;
            self.owed.pop_front();
        }
        rings.set_word(RingKind::Command, RingHeader::CONSUMER_SLEEPS, 1);
        fence(Ordering::SeqCst);
        self.sleeps = rings.word(RingKind::Command, RingHeader::PRODUCER) == self.taken;
        interrupts
    }
}

/// All of it.
struct World {
    driver: Driver,
    mirror: Mirror,
    known: u32,
    mirror_sleeps: bool,
    out: VecDeque<News>,
    back: VecDeque<News>,
    shadow: Shadow,
    shadow_sleeps: bool,
    card: Card,
}

impl World {
    fn new(tags: u64) -> World {
        let (near, far) = (memory(), memory());
        let rings =
            |memory: &Arc<SharedMemory>| Rings::new(Arc::clone(memory), BUS, &registers()).unwrap();
        let driver = Driver {
            rings: rings(&near),
            put: 0,
            taken: [0; RING_COUNT],
            room_made: false,
            to_put: (1..=tags).collect(),
            done: Vec::new(),
            sleeps: false,
        };
        let card = Card {
            rings: rings(&far),
            taken: 0,
            written: [0; RING_COUNT],
            owed: VecDeque::new(),
            sleeps: false,
        };
        World {
            driver,
            mirror: Mirror::new(near, BUS, &registers()).unwrap(),
            known: 0,
            mirror_sleeps: false,
            out: VecDeque::new(),
            back: VecDeque::new(),
            shadow: Shadow::new(far, BUS, &registers()).unwrap(),
            shadow_sleeps: false,
            card,
        }
    }

    /// The thread beside the program, if it is awake: a message that came, then what there is to send.
    fn run_mirror(&mut self) {
        self.mirror.awake();
        if let Some(message) = self.back.pop_front() {
            let wakes = carry(message, |frame| self.mirror.frame(frame)).unwrap();
            self.driver.sleeps &= !wakes;
        }
        self.known = self.mirror.published();
        while let Some(message) = self.mirror.poll(self.known) {
            let took = !message.runs.is_empty();
            self.out.push_back(message);
            if took && self.mirror.driver_waits() {
                self.driver.sleeps = false;
            }
        }
        self.mirror_sleeps = self.mirror.may_sleep(self.known) && !self.mirror.has_news();
    }

    /// The end beside the card, if it is awake.
    fn run_shadow(&mut self) {
        self.shadow.awake();
        if let Some(message) = self.out.pop_front() {
            let rings = carry(message, |frame| self.shadow.frame(frame)).unwrap();
            self.card.sleeps &= !rings;
        }
        while let Some(message) = self.shadow.poll().unwrap() {
            self.back.push_back(message);
        }
        self.card.sleeps &= !self.shadow.has_made_room();
        self.shadow_sleeps = self.shadow.may_sleep();
    }

    /// Runs one of the four, if it is awake; whether it was.
    fn step(&mut self, who: u8, limit: usize) -> bool {
        match who % 4 {
            0 if !self.driver.sleeps => {
                let rings = self.driver.run(limit);
                self.mirror_sleeps &= !rings;
            }
            1 if !self.mirror_sleeps || !self.back.is_empty() => self.run_mirror(),
            2 if !self.shadow_sleeps || !self.out.is_empty() => self.run_shadow(),
            3 if !self.card.sleeps => {
                let interrupts = self.card.run(limit);
                self.shadow_sleeps &= !interrupts;
            }
            _ => return false,
        }
        true
    }

    /// Until all sleep.
    fn rest(&mut self) {
        for _ in 0..100_000 {
            let ran = [0, 1, 2, 3].map(|who| self.step(who, 3));
            if !ran.contains(&true) {
                return;
            }
        }
        panic!("they never rest");
    }
}

#[test]
fn every_command_is_completed_once_and_in_order_through_rings_that_are_too_small() {
    let mut world = World::new(500);
    world.rest();
    assert_eq!(world.driver.done, (1..=500).collect::<Vec<_>>());
}

proptest! {
    /// Whoever is run when, and however little it does at a time: nothing is lost, and nobody sleeps over
    /// what there is for him.
    #[test]
    fn no_order_of_steps_loses_an_entry_or_a_wake_up(
        steps in prop::collection::vec((0u8..4, 1usize..6), 0..400),
        tags in 1u64..120,
    ) {
        let mut world = World::new(tags);
        for (who, limit) in steps {
            world.step(who, limit);
        }
        world.rest();
        prop_assert_eq!(&world.driver.done, &(1..=tags).collect::<Vec<_>>());
    }
}

/// A driver that is awake when a completion is sent, and asleep when it arrives.
fn completion_that_meets_a_driver_asleep() -> (World, bool) {
    let mut world = World::new(1);
    while world.back.is_empty() {
        // The driver puts its command and goes on looking by itself.
        for who in [0, 1, 3, 2] {
            world.step(who, 1);
            if world.back.is_empty() {
                world.driver.sleeps = false;
            }
        }
    }
    // What the end beside the card could know: that the driver looks by itself.
    let was_awake = !world.driver.sleeps;
    world.driver.run(1);
    assert!(world.driver.sleeps && was_awake);
    (world, was_awake)
}

#[test]
fn a_completion_that_was_sent_while_the_driver_was_awake_wakes_it_when_it_arrives() {
    let (mut world, _) = completion_that_meets_a_driver_asleep();
    world.rest();
    assert_eq!(world.driver.done, [1]);
}

/// Negative control: with the wake-up decided at the other end, by what it knew when it sent, the driver
/// sleeps over its completion for ever.
#[test]
fn control_a_wake_up_that_is_suppressed_across_the_link_is_slept_over() {
    let (mut world, was_awake) = completion_that_meets_a_driver_asleep();
    let message = world.back.pop_front().unwrap();
    let _decided_here = carry(message, |frame| world.mirror.frame(frame)).unwrap();
    if !was_awake {
        world.driver.sleeps = false;
    }
    world.rest();
    assert!(world.driver.sleeps && world.driver.done.is_empty(), "nobody noticed");
    world.driver.run(1);
    assert_eq!(world.driver.done, [1], "it was there all the time");
}
