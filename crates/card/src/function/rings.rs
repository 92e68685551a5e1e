//! The four rings of a function: their registers, and what is done with them while it is enabled.

use super::ring::{Consumer, Producer, RingError};
use super::{Bus, Function, OPEN_MAX, Phase, WORK_PER_CALL, Window};
use crate::Card;
use crate::interface::{RING_COUNT, RingKind, register};

/// The registers of one ring.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RingRegister {
    pub(super) base: u64,
    pub(super) entries: u32,
    pub(super) vector: u32,
    /// The index reached when the rings were last in use.
    pub(super) index: u32,
}

/// The registers of all rings.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RingRegisters([RingRegister; RING_COUNT]);

impl RingRegisters {
    pub(super) fn get(&self, kind: RingKind) -> &RingRegister {
        &self.0[kind.index()]
    }

    pub(super) fn get_mut(&mut self, kind: RingKind) -> &mut RingRegister {
        &mut self.0[kind.index()]
    }

    fn producer(&self, kind: RingKind, bus: &mut impl Bus) -> Result<Option<Producer>, RingError> {
        let &RingRegister { base, entries, vector, .. } = self.get(kind);
        if entries == 0 {
            return Ok(None);
        }
        Producer::open(base, entries, vector as u16, bus).map(Some)
    }
}

/// The rings in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rings {
    command: Consumer,
    completion: Producer,
    fault: Option<Producer>,
    notice: Option<Producer>,
}

impl Rings {
    fn open(registers: &RingRegisters, bus: &mut impl Bus) -> Result<Rings, RingError> {
        let command = registers.get(RingKind::Command);
        let completion = registers.producer(RingKind::Completion, bus)?;
        Ok(Rings {
            command: Consumer::open(command.base, command.entries, bus)?,
            completion: completion.ok_or(RingError::Nonsense(0))?,
            fault: registers.producer(RingKind::Fault, bus)?,
            notice: registers.producer(RingKind::Notice, bus)?,
        })
    }

    /// The index reached in a ring.
    pub(super) fn index(&self, kind: RingKind) -> u32 {
        let index = |ring: &Option<Producer>| ring.as_ref().map_or(0, Producer::index);
        match kind {
            RingKind::Command => self.command.index(),
            RingKind::Completion => self.completion.index(),
            RingKind::Fault => index(&self.fault),
            RingKind::Notice => index(&self.notice),
        }
    }
}

impl Function {
    /// Opens the rings that the registers describe.
    pub(super) fn enable(&mut self, card: &mut Card, bus: &mut impl Bus) {
        match Rings::open(&self.registers, bus) {
            Ok(rings) => {
                self.rings = Some(rings);
                self.phase = Phase::Enabled;
                self.process(card, bus);
            }
            Err(error) => self.fail(error, bus),
        }
    }

    /// Stops using the rings. What was begun goes on; its completions wait for rings.
    pub(super) fn disable(&mut self) {
        self.close_rings();
        self.phase = Phase::Disabled;
    }

    pub(super) fn close_rings(&mut self) {
        if let Some(rings) = self.rings.take() {
            for kind in RingKind::ALL {
                self.registers.get_mut(kind).index = rings.index(kind);
            }
        }
        self.stalled = false;
    }

    /// It touches no memory until it is reset.
    pub(super) fn stop_until_reset(&mut self) {
        self.close_rings();
        self.phase = Phase::Failed;
        self.window.iter_mut().for_each(Window::stop);
    }

    fn fail(&mut self, error: RingError, bus: &mut impl Bus) {
        self.stop_until_reset();
        match error {
            RingError::Bus(error) => self.report(register::ERROR_BUS, error.address, bus),
            RingError::Nonsense(address) => self.report(register::ERROR_RING, address, bus),
        }
    }

    /// Does something with the rings, if they are in use; an error of one stops the function.
    fn with_rings<B: Bus, T>(
        &mut self,
        bus: &mut B,
        work: impl FnOnce(&mut Function, &mut Rings, &mut B) -> Result<T, RingError>,
    ) -> Option<T> {
        let mut rings = self.rings.take()?;
        let result = work(self, &mut rings, bus);
        self.rings = Some(rings);
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.fail(error, bus);
                None
            }
        }
    }

    /// Takes commands while their completions find room, at most one ring full of them.
    pub(super) fn consume(&mut self, card: &mut Card, bus: &mut impl Bus) {
        let most = self.registers.get(RingKind::Command).entries;
        self.with_rings(bus, |function, rings, bus| {
            rings.command.wake(bus)?;
            for _ in 0..most {
                if function.work >= WORK_PER_CALL {
                    break;
                }
                function.start_waiting(card, bus);
                if !function.may_take(rings, bus)? {
                    function.stalled = true;
                    break;
                }
                let Some(entry) = rings.command.take(bus)? else {
                    break;
                };
                function.carry_out(&entry, card, bus);
            }
            if rings.command.release(bus)? {
                let vector = rings.completion.vector();
                function.interrupt(vector, bus);
            }
            Ok(())
        });
    }

    /// Whether one more command may begin: there is room for the completions of those that are
    /// over and one more, and not too many are under way.
    fn may_take(&mut self, rings: &mut Rings, bus: &mut impl Bus) -> Result<bool, RingError> {
        let backlog = self.ledger.backlog() as u32;
        if backlog >= rings.completion.entries() {
            return Ok(false);
        }
        Ok(self.ledger.open() < OPEN_MAX && rings.completion.has_room(backlog + 1, bus)?)
    }

    /// Writes completions, faults and notices as far as there is room.
    pub(super) fn flush(&mut self, card: &mut Card, bus: &mut impl Bus) {
        self.with_rings(bus, |function, rings, bus| {
            function.write_completions(&mut rings.completion, bus)?;
            if let Some(ring) = &mut rings.fault {
                function.write_faults(ring, card, bus)?;
            }
            if let Some(ring) = &mut rings.notice {
                function.write_notices(ring, card, bus)?;
            }
            Ok(())
        });
    }

    fn write_completions(
        &mut self,
        ring: &mut Producer,
        bus: &mut impl Bus,
    ) -> Result<(), RingError> {
        let mut quiet = true;
        while self.ledger.backlog() > 0 && ring.has_room(1, bus)? {
            if let Some(over) = self.ledger.pop_completion() {
                ring.put(&over.completion.to_entry(), bus)?;
                self.counts.completions += 1;
                quiet &= over.quiet;
            }
        }
        // A driver that sleeps on quiet completions is woken before they fill the ring.
        if quiet && ring.has_room(ring.entries() / 2, bus)? {
            return ring.show(bus);
        }
        self.show(ring, bus)
    }

    /// Shows the driver what was written, and wakes it if it sleeps.
    pub(super) fn show(
        &mut self,
        ring: &mut Producer,
        bus: &mut impl Bus,
    ) -> Result<(), RingError> {
        if ring.publish(bus)? {
            self.interrupt(ring.vector(), bus);
        }
        Ok(())
    }

    /// Whether there are commands that were not taken: for an embedder that looks at the ring for a
    /// while before it waits.
    pub fn has_commands(&mut self, bus: &mut impl Bus) -> bool {
        let more = self.with_rings(bus, |_, rings, bus| rings.command.has_more(bus));
        more.unwrap_or(false)
    }

    /// Call before waiting for the next doorbell or event. `true`: there is nothing to do; whatever
    /// comes up rings the doorbell, because the rings' headers say that the card sleeps or waits.
    /// `false`: there is more; call [`Function::process`], poll the actions, and ask again.
    pub fn prepare_to_sleep(&mut self, card: &mut Card, bus: &mut impl Bus) -> bool {
        self.settle(card, bus);
        let sleeps = self.with_rings(bus, |function, rings, bus| {
            let commands = function.sleep_on_commands(rings, bus)?;
            let faults = function.sleep_on_faults(rings, card, bus)?;
            Ok(commands && faults)
        });
        let is_busy = self.window.as_ref().is_some_and(Window::is_busy);
        sleeps.unwrap_or(true) && self.actions.is_empty() && !is_busy
    }

    /// Commands that cannot begin are waited for by waiting for what keeps them from it: room for
    /// completions, or the end of commands under way, which the embedder tells.
    fn sleep_on_commands(
        &mut self,
        rings: &mut Rings,
        bus: &mut impl Bus,
    ) -> Result<bool, RingError> {
        let room = rings.completion.has_room(1, bus)?;
        self.stalled = !(room && self.ledger.open() < OPEN_MAX) && rings.command.has_more(bus)?;
        if !room && (self.stalled || self.ledger.backlog() > 0) {
            let waits = rings.completion.wait(1, bus)?;
            return Ok(waits && (self.stalled || rings.command.sleep(bus)?));
        }
        Ok(self.stalled || rings.command.sleep(bus)?)
    }

    fn sleep_on_faults(
        &mut self,
        rings: &mut Rings,
        card: &Card,
        bus: &mut impl Bus,
    ) -> Result<bool, RingError> {
        let mut sleeps = true;
        if let Some(ring) = &mut rings.fault {
            let places = self.fault_places(card, ring.entries());
            sleeps &= places == 0 || ring.wait(places, bus)?;
        }
        if let Some(ring) = &mut rings.notice {
            sleeps &= !card.has_notices() || ring.wait(1, bus)?;
        }
        Ok(sleeps)
    }
}
