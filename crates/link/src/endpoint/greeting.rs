//! Control frames that have come: who is there, from where to go on, what may be sent.

use std::time::Duration;

use super::receive::Cut;
use super::{Endpoint, Event, Side, State};
use crate::control::{Control, HELLO, Hello, VERSION};
use crate::error::{End, Violation};

impl Endpoint {
    pub(super) fn say_hello(&mut self) {
        let hello = Hello {
            versions: (VERSION, VERSION),
            session: self.session.unwrap_or_default(),
            epoch: self.config.lease.epoch,
            received: self.receiver.expected,
            capabilities: self.config.capabilities,
            device: self.config.lease.device.as_bytes(),
        };
        self.sender.say(&Control::Hello(hello), self.receiver.expected);
    }

    pub(super) fn control(
        &mut self,
        now: Duration,
        cut: &Cut,
    ) -> Result<Option<Event<'static>>, Violation> {
        let number = cut.header.kind;
        let is_up = self.state == State::Up;
        if cut.header.sequence != 0 || cut.header.tag != 0 {
            return Err(Violation::Header);
        }
        let payload = self.receiver.bytes(cut.payload.clone());
        // What a greeting says of frames is looked at when it is known from whom it is.
        let nonsense = if number == HELLO { Violation::NoLink } else { Violation::Header };
        match (Control::decode(number, payload).ok_or(nonsense)?, self.side, is_up) {
            (Control::Hello(hello), Side::Lender, false) => {
                let accepted = Accepted::of(&hello, &self.config, self.session)?;
                self.sender.resume(accepted.received)?;
                self.session = Some(accepted.session);
                let welcome = Control::Welcome {
                    version: VERSION,
                    received: self.receiver.expected,
                    capabilities: self.config.capabilities,
                };
                self.sender.say(&welcome, self.receiver.expected);
                Ok(Some(self.up(now, accepted.capabilities)))
            }
            (Control::Welcome { version, received, capabilities }, Side::Borrower, false) => {
                if version != VERSION {
                    return Err(Violation::Version);
                }
                self.sender.resume(received)?;
                Ok(Some(self.up(now, capabilities)))
            }
            (Control::Refuse { code }, Side::Borrower, false) => {
                self.end(End::Refused(code));
                Ok(self.first.take())
            }
            (Control::Close { code }, ..) => {
                self.end(End::PeerClosed(code));
                Ok(self.first.take())
            }
            (Control::Credit(amounts), _, true) => {
                self.sender.acknowledged(cut.header.acknowledged)?;
                self.sender.granted(amounts)?;
                Ok(None)
            }
            (Control::Alive, _, true) => {
                self.sender.acknowledged(cut.header.acknowledged)?;
                Ok(None)
            }
            _ => Err(Violation::Unexpected(number)),
        }
    }

    fn up(&mut self, now: Duration, capabilities: u64) -> Event<'static> {
        self.state = State::Up;
        self.down_since = None;
        self.last_said = now;
        self.counters.connections += 1;
        // The other end may have missed what it was told before.
        self.say_credit();
        Event::Up { is_again: self.counters.connections > 1, capabilities }
    }
}

/// What is taken from a borrower's greeting.
pub(crate) struct Accepted {
    pub(crate) session: u64,
    received: u64,
    capabilities: u64,
}

impl Accepted {
    pub(crate) fn of(
        hello: &Hello<'_>,
        config: &super::Config,
        session: Option<u64>,
    ) -> Result<Accepted, Violation> {
        let (least, most) = hello.versions;
        if !(least..=most).contains(&VERSION) {
            return Err(Violation::Version);
        }
        if hello.device != config.lease.device.as_bytes() {
            return Err(Violation::Device);
        }
        let (theirs, ours) = (hello.epoch, config.lease.epoch);
        if theirs != ours {
            return Err(Violation::Epoch { theirs, ours });
        }
        if session.is_some_and(|known| known != hello.session) {
            return Err(Violation::Session);
        }
        let Hello { session, received, capabilities, .. } = *hello;
        Ok(Accepted { session, received, capabilities })
    }
}
