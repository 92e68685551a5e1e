//! Who sleeps at a port, and who wakes whom.

use farside_card::{Card as Model, Function};
use farside_types::{CardId, Span};

use super::Step;
use super::bus::FarBus;
use super::mutation::RingMutation;
use crate::machine::Machine;
use crate::violation::Violation;

/// How soon the driver looks for completions that interrupt nobody, as the live machine does.
const QUIET_LOOK: Span = Span::from_micros(1_000);

impl Machine {
    /// Something happens at a port.
    pub(crate) fn run_port(
        &mut self,
        card: CardId,
        life: u64,
        step: Step,
    ) -> Result<(), Violation> {
        let stalled = self.cards[usize::from(card.0)].stalled;
        let Some(port) = self.port(card).filter(|port| port.life == life) else {
            return Ok(());
        };
        if stalled && step.is_far() {
            port.held.push(step);
            return Ok(());
        }
        match step {
            Step::Process => {
                port.far().doorbell = false;
                self.far(card, |function, model, bus| function.process(model, bus))?;
                self.step_later(card, Step::CardDozes);
                Ok(())
            }
            Step::CardDozes => self.card_dozes(card),
            Step::Publish => self.notify(card, |function, model, bus| function.publish(model, bus)),
            Step::Drained => {
                let commands = std::mem::take(&mut port.drained);
                self.notify(card, |function, model, bus| function.drained(model, bus, &commands))
            }
            Step::Ended(job) => self.job_has_ended(card, job),
            Step::Copy(id) => self.far_copy(card, id),
            Step::Receive => self.receive(card),
            Step::DriverDozes => self.driver_dozes(card),
            Step::Look => {
                port.looks = false;
                if !std::mem::replace(&mut port.driver_awake, true) {
                    self.step_later(card, Step::Receive);
                }
                Ok(())
            }
        }
    }

    /// The card's ring goes on.
    pub(crate) fn unstall_port(&mut self, card: CardId) {
        let held = self.port(card).map(|port| std::mem::take(&mut port.held));
        for step in held.unwrap_or_default() {
            self.step_later(card, step);
        }
    }

    /// The function does something; what comes of it is dealt with.
    pub(super) fn far<T>(
        &mut self,
        card: CardId,
        work: impl FnOnce(&mut Function, &mut Model, &mut FarBus) -> T,
    ) -> Result<Option<T>, Violation> {
        let Some(port) = self.port(card) else { return Ok(None) };
        let value = port.far().with(work);
        self.settle(card)?;
        Ok(Some(value))
    }

    /// The function is told of something that no doorbell announced; then it has to doze again.
    pub(super) fn notify(
        &mut self,
        card: CardId,
        work: impl FnOnce(&mut Function, &mut Model, &mut FarBus),
    ) -> Result<(), Violation> {
        self.far(card, work)?;
        let Some(port) = self.port(card) else { return Ok(()) };
        if !std::mem::replace(&mut port.card_awake, true) {
            self.step_later(card, Step::CardDozes);
        }
        Ok(())
    }

    /// Deals with all that the function has taken, wants done and signals.
    fn settle(&mut self, card: CardId) -> Result<(), Violation> {
        loop {
            let Some(port) = self.port(card) else { return Ok(()) };
            let (taken, actions) = port.far().news();
            if taken.is_empty() && actions.is_empty() {
                break;
            }
            for command in taken {
                self.taken(card, command)?;
            }
            for action in actions {
                self.act_on(card, action)?;
            }
            if let Some(port) = self.port(card) {
                port.just_removed.clear();
            }
        }
        self.signals(card);
        Ok(())
    }

    /// Doorbell and interrupt wake those who sleep.
    pub(super) fn signals(&mut self, card: CardId) {
        let Some(port) = self.port(card) else { return };
        let (doorbell, interrupt) = {
            let far = port.far();
            (far.doorbell, far.bus.interrupt)
        };
        let wakes_card = doorbell && !port.card_awake;
        let wakes_driver = interrupt && !port.driver_awake;
        port.card_awake |= wakes_card;
        port.driver_awake |= wakes_driver;
        if wakes_card {
            self.step_later(card, Step::Process);
        }
        if wakes_driver {
            self.step_later(card, Step::Receive);
        }
    }

    fn card_dozes(&mut self, card: CardId) -> Result<(), Violation> {
        let asleep = self.far(card, |function, model, bus| {
            lose_a_fault(function, model, bus);
            function.prepare_to_sleep(model, bus)
        })?;
        let Some(port) = self.port(card) else { return Ok(()) };
        let blindly = port.broken.is(RingMutation::CardSleepsBlindly);
        if !blindly && (asleep != Some(true) || port.far().doorbell) {
            self.step_later(card, Step::Process);
            return Ok(());
        }
        port.card_awake = false;
        self.signals(card);
        Ok(())
    }

    fn driver_dozes(&mut self, card: CardId) -> Result<(), Violation> {
        let Some(port) = self.port(card) else { return Ok(()) };
        let blindly = port.broken.is(RingMutation::DriverSleepsBlindly);
        let may_sleep = port.driver.may_sleep();
        if !blindly && (!may_sleep || port.far().bus.interrupt) {
            self.step_later(card, Step::Receive);
            return Ok(());
        }
        port.driver_awake = false;
        self.will_look(card);
        self.signals(card);
        Ok(())
    }

    /// A driver that sleeps and expects completions that interrupt nobody looks for them.
    pub(super) fn will_look(&mut self, card: CardId) {
        let at = self.now + QUIET_LOOK;
        let Some(port) = self.port(card) else { return };
        if !port.driver_awake && port.driver.expects_quiet_news() && !port.looks {
            port.looks = true;
            self.step_at(at, card, Step::Look);
        }
    }
}

/// With that rule broken, a fault that finds its ring full is dropped.
fn lose_a_fault(function: &Function, model: &mut Model, bus: &mut FarBus) {
    if bus.broken.is(RingMutation::LoseFault) && function.is_held_up(model) {
        model.take_faults(1);
    }
}
