//! A card behind registers and rings: the production driver of the card interface at one end, a
//! card's model with its front at the other, and between them rings in shared memory, a doorbell and
//! an interrupt.
//!
//! Everything that happens at a port is a [`Step`] on the agenda, so that either side may be slow at
//! any point, and both keep to the protocol: the driver looks at its rings when it is interrupted or
//! awake, the card when the doorbell rings or it is awake, and nobody otherwise. What a lost wake-up
//! leaves undone stays undone, and the run does not come to rest.
//!
//! - `far`: the card's side; `bus`: what it reaches, with a note of what it takes from its ring;
//! - `steps`: who sleeps and who wakes; `driving`: commands and events of the driver;
//! - `commands`: what the card has taken, and its jobs; `memory`: its accesses, grants and copies;
//! - `mutation`: rules that can be broken on purpose.

mod bus;
mod commands;
mod driving;
mod far;
mod memory;
mod mutation;
mod steps;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farside_card::interface::{DmaAddr, Extent, register};
use farside_live::harness::{Layout, RingDriver, RingSizes};
use farside_types::{CardId, CommandId, FrameNo, JobId, MemoryId, PAGE_SIZE, PageNo, PeId};

use crate::job::JobStep;
use crate::machine::{Machine, Work};
use crate::memory::Translation;
use crate::violation::{Violation, ensure};
pub use mutation::RingMutation;
use {far::FarSide, mutation::Broken};

/// Rings and lists that are full now and then.
const SIZES: RingSizes = RingSizes { entries: [8, 8, 8, 8], blocks: 16 };

/// What happens at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The card, awake, looks at its command ring.
    Process,
    /// The card wants to sleep.
    CardDozes,
    /// Processing elements have faulted.
    Publish,
    /// Accesses have ended, and drains with them.
    Drained,
    /// A kernel has ended.
    Ended(JobId),
    /// A copy or fill acts.
    Copy(CommandId),
    /// The driver, awake, takes what is in its rings.
    Receive,
    /// The driver wants to sleep.
    DriverDozes,
    /// The driver looks for completions that interrupt nobody.
    Look,
}

impl Step {
    /// Whether it is the card's.
    fn is_far(self) -> bool {
        !matches!(self, Step::Receive | Step::DriverDozes | Step::Look)
    }
}

/// What a processing element does.
#[derive(Debug)]
struct Stand {
    job: JobId,
    /// The step that stands in a fault.
    faulted: Option<JobStep>,
}

/// A copy, or a fill, as the card was told.
#[derive(Clone, Debug)]
struct FarCopy {
    extents: Vec<Extent>,
    fill: bool,
}

/// A page of a memory, or of a bounce buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spot {
    Memory(MemoryId, FrameNo),
    Bounce(u8, u32),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Port {
    far: Arc<Mutex<FarSide>>,
    driver: RingDriver,
    map: BusPages,
    /// Steps of former lives come to nothing.
    life: u64,
    card_awake: bool,
    driver_awake: bool,
    looks: bool,
    /// The card's steps while its ring stands still.
    held: Vec<Step>,
    /// Drains that ended and were not told to the function.
    drained: Vec<CommandId>,
    pes: BTreeMap<PeId, Stand>,
    copies: BTreeMap<CommandId, FarCopy>,
    /// Translations that were taken away by what the function has just taken.
    just_removed: Vec<(PageNo, Translation)>,
    broken: Broken,
    /// Commands and completions before this life.
    counted: (u64, u64),
}

impl Port {
    fn far(&self) -> MutexGuard<'_, FarSide> {
        self.far.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Walks of the card's tables, and pages that found no room there.
    #[cfg(test)]
    pub(crate) fn tables(&self) -> (u64, u64) {
        let far = self.far();
        (far.counter("walks"), far.counter("table_full"))
    }

    fn pe_of(&self, job: JobId) -> Option<PeId> {
        self.pes.iter().find(|(_, stand)| stand.job == job).map(|(&pe, _)| pe)
    }
}

/// What lies where on the bus, in pages.
#[derive(Clone, Debug)]
struct BusPages {
    own: MemoryId,
    /// First bus page, pages, what the first is.
    windows: Vec<(u64, u64, Spot)>,
}

impl BusPages {
    /// What a card calls by this name.
    fn spot(&self, at: DmaAddr) -> Option<Spot> {
        let page = match at {
            DmaAddr::Own(frame) => return Some(Spot::Memory(self.own, FrameNo(frame))),
            DmaAddr::Bus(page) => u64::from(page),
        };
        let inside =
            |&&(first, pages, _): &&(u64, u64, Spot)| first <= page && page < first + pages;
        let &(first, _, spot) = self.windows.iter().find(inside)?;
        let index = (page - first) as u32;
        Some(match spot {
            Spot::Memory(memory, frame) => Spot::Memory(memory, frame.offset(index)),
            Spot::Bounce(slot, page) => Spot::Bounce(slot, page + index),
        })
    }
}

impl Machine {
    /// Puts a card behind registers and rings; it is as new.
    pub(crate) fn plug_in(
        &mut self,
        card: CardId,
        mutation: Option<RingMutation>,
    ) -> Result<(), Violation> {
        let broken = Broken::new(mutation);
        let far = FarSide::new(self.frames_of(card), self.number(), broken);
        self.connect(card, Arc::new(Mutex::new(far)), broken)
    }

    /// Connects again to a card that was reset, or to another process that serves it now.
    fn connect_again(&mut self, card: CardId, former: Port) -> Result<(), Violation> {
        let Port { far, broken, driver, .. } = former;
        drop(driver);
        if self.rng.chance(500) {
            return self.connect(card, far, broken);
        }
        let fresh = FarSide::new(self.frames_of(card), self.number(), broken);
        self.connect(card, Arc::new(Mutex::new(fresh)), broken)
    }

    fn frames_of(&self, card: CardId) -> u32 {
        self.memory(card.memory()).frames.len() as u32
    }

    fn connect(
        &mut self,
        card: CardId,
        far: Arc<Mutex<FarSide>>,
        broken: Broken,
    ) -> Result<(), Violation> {
        let (layout, map) = self.bus_of(card);
        let bytes = |pages: u64| pages * PAGE_SIZE as u64;
        let windows = map.windows.iter();
        let windows = windows.map(|&(first, pages, _)| bytes(first)..bytes(first + pages));
        {
            let mut far = far.lock().unwrap_or_else(PoisonError::into_inner);
            far.bus.windows = windows.collect();
        }
        let other_end = Arc::clone(&far);
        let driver = RingDriver::open(card, other_end, &layout, SIZES)
            .map_err(|error| Violation(format!("{card} does not start: {error}")))?;
        let life = self.number();
        let mut port = Port {
            far,
            driver,
            map,
            life,
            card_awake: true,
            driver_awake: true,
            looks: false,
            held: Vec::new(),
            drained: Vec::new(),
            pes: BTreeMap::new(),
            copies: BTreeMap::new(),
            just_removed: Vec::new(),
            broken,
            counted: (0, 0),
        };
        port.counted = {
            let far = port.far();
            (far.counter("commands"), far.counter("completions"))
        };
        self.card_mut(card).port = Some(Box::new(port));
        self.step_later(card, Step::CardDozes);
        self.step_later(card, Step::DriverDozes);
        Ok(())
    }

    /// The bus of a card: the same windows on each.
    fn bus_of(&self, card: CardId) -> (Layout, BusPages) {
        let host = self.memory(MemoryId::HOST).frames.len() as u64;
        let bounces: Vec<u64> = self.bounces.iter().map(|slot| slot.len() as u64).collect();
        let ids = (0..self.cards.len()).map(|i| CardId(i as u8));
        let cards: Vec<u64> = ids.clone().map(|id| self.frames_of(id).into()).collect();
        let layout = Layout::new(SIZES, host, &bounces, &cards);
        let page = |address: u64| address / PAGE_SIZE as u64;
        let first = FrameNo(0);
        let mut windows = vec![(page(layout.host()), host, Spot::Memory(MemoryId::HOST, first))];
        for (slot, &pages) in bounces.iter().enumerate() {
            windows.push((page(layout.bounce(slot)), pages, Spot::Bounce(slot as u8, 0)));
        }
        for peer in ids.filter(|&peer| peer != card) {
            let spot = Spot::Memory(peer.memory(), first);
            windows.push((page(layout.card(peer)), cards[usize::from(peer.0)], spot));
        }
        (layout, BusPages { own: card.memory(), windows })
    }

    fn port(&mut self, card: CardId) -> Option<&mut Port> {
        self.card_mut(card).port.as_deref_mut()
    }

    /// Takes a card out of its port, or gives the port back; the driver hears no more of it.
    pub(crate) fn unplug(&mut self, card: CardId) -> Option<Box<Port>> {
        self.card_mut(card).port.take()
    }

    /// Plugs a card that was reset in again.
    pub(crate) fn plug_in_again(&mut self, card: CardId, former: Port) -> Result<(), Violation> {
        self.connect_again(card, former)
    }

    /// A step of a port, after a while.
    fn step_later(&mut self, card: CardId, step: Step) {
        let at = self.soon();
        self.step_at(at, card, step);
    }

    fn step_at(&mut self, at: farside_types::Time, card: CardId, step: Step) {
        let Some(life) = self.port(card).map(|port| port.life) else { return };
        self.agenda.at(at, Work::Port(card, life, step));
    }

    /// Checks a port at rest: no mistake of the driver (each is an error), one completion for each
    /// command.
    pub(crate) fn check_port(&mut self, card: CardId) -> Result<(), Violation> {
        let Some(port) = self.port(card) else { return Ok(()) };
        let counted = port.counted;
        let far = port.far();
        // An operation that no card knows is an error of the driver's, but for those that are the bus's.
        let made = if far.bus.has_refused { register::ERROR_COMMAND } else { 0 };
        let errors = far.read64(register::ERRORS) & !made;
        ensure!(errors == 0, "{card} says that errors {errors:#x} happened");
        let (commands, completions) = (far.counter("commands"), far.counter("completions"));
        let (taken, given) = (commands - counted.0, completions - counted.1);
        ensure!(taken == given, "{card} has taken {taken} commands and completed {given}");
        ensure!(far.copying.is_empty(), "{card} still copies {:?}", far.copying);
        Ok(())
    }
}

/// The place some pages further on.
fn advance(at: DmaAddr, pages: u32) -> DmaAddr {
    match at {
        DmaAddr::Own(frame) => DmaAddr::Own(frame + pages),
        DmaAddr::Bus(page) => DmaAddr::Bus(page + pages),
    }
}
