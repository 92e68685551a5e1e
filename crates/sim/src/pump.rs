//! How every simulated machine deals with the driver: tells it what happened, takes what it says
//! until it says nothing more, and calls it when it wants to be called.
//!
//! GPUs (`machine/`), cards (`cards/`) and replays without time (`functional/`) differ in what they
//! do about a command, and in what time is.

use farside_svm::{Command, Driver, Event, Reply};
use farside_types::Time;
use serde::{Deserialize, Serialize};

/// A machine that a driver runs in.
pub(crate) trait Pump {
    /// Why a run ends.
    type Error;

    fn driver(&mut self) -> &mut Driver;

    fn now(&self) -> Time;

    /// Starts with a command.
    fn dispatch(&mut self, command: Command) -> Result<(), Self::Error>;

    /// Takes an answer to the program.
    fn reply(&mut self, reply: Reply) -> Result<(), Self::Error>;

    /// The driver wants to be called at this time: [`Pump::time_out`].
    fn call_at(&mut self, at: Time);

    /// All that the driver said was taken.
    fn pumped(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Tells the driver what happened, and starts what it says.
    fn handle(&mut self, event: Event<'_>) -> Result<(), Self::Error> {
        let now = self.now();
        self.driver().handle(now, event);
        self.pump()?;
        self.pumped()
    }

    /// Calls the driver, if it is time, and starts what it says.
    fn time_out(&mut self) -> Result<(), Self::Error> {
        let now = self.now();
        if self.driver().poll_timeout().is_some_and(|at| at <= now) {
            self.driver().handle_timeout(now);
        }
        self.pump()?;
        self.pumped()
    }

    /// Takes what the driver says now.
    fn pump(&mut self) -> Result<(), Self::Error> {
        while let Some(command) = self.driver().poll_command() {
            self.dispatch(command)?;
        }
        while let Some(reply) = self.driver().poll_reply() {
            self.reply(reply)?;
        }
        if let Some(at) = self.driver().poll_timeout() {
            self.call_at(at);
        }
        Ok(())
    }
}

/// The next call of the driver that is in a queue of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Alarm(pub(crate) Option<Time>);

impl Alarm {
    /// Whether a call at `at` has to be put into the queue: none that is there comes as early.
    pub(crate) fn set(&mut self, at: Time) -> bool {
        let earlier = self.0.is_none_or(|armed| at < armed);
        if earlier {
            self.0 = Some(at);
        }
        earlier
    }

    /// A call has come. One that was meant for a later time may still be in the queue.
    pub(crate) fn ring(&mut self, now: Time) {
        self.0 = self.0.filter(|armed| *armed > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_is_set_for_the_earliest_time_only() {
        let mut alarm = Alarm::default();
        assert!(alarm.set(Time(10)));
        assert!(!alarm.set(Time(10)) && !alarm.set(Time(12)));
        assert!(alarm.set(Time(5)), "earlier than what is set");
        alarm.ring(Time(5));
        assert!(alarm.set(Time(10)));
        alarm.ring(Time(7));
        assert!(!alarm.set(Time(11)), "the one at 10 is still to come");
    }
}
