//! One end of a link, without I/O and without a clock: bytes in, bytes out, time as an argument.
//!
//! It owns order, credit, sequence numbers, and what has to be sent again after a connection was lost.
//! What the frames mean is their users' business. Whoever drives it does this, in a loop:
//!
//! 1. reads from the connection into [`space`](Endpoint::space) and says
//!    [`filled`](Endpoint::filled);
//! 2. takes every event there is ([`poll_event`](Endpoint::poll_event)), always: what cannot be done yet
//!    is kept by the user, who bounds that by the credit it gives ([`done`](Endpoint::done));
//! 3. sends what it has to ([`send`](Endpoint::send)); what is not taken is tried again after the next
//!    event or after something has left;
//! 4. writes what [`transmit`](Endpoint::transmit) gives and says how much
//!    [`transmitted`](Endpoint::transmitted), nothing else in between. So that bulk waits here and not
//!    in the system's buffer, where nothing overtakes it, the socket has `TCP_NOTSENT_LOWAT`;
//! 5. sleeps until the connection can do more, or [`poll_timeout`](Endpoint::poll_timeout), and then
//!    says [`handle_timeout`](Endpoint::handle_timeout).
//!
//! A connection that is lost ([`Event::Lost`], or its end: [`disconnected`](Endpoint::disconnected)) is
//! replaced by another: [`connected`](Endpoint::connected). Nothing is lost and nothing done twice.
//!
//! Times are since any moment, on a clock that both goes on while the machine sleeps and never jumps.

mod config;
mod greeting;
mod receive;
mod requests;
mod send;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use config::{Config, Lease};
pub(crate) use greeting::Accepted;
pub use send::{Transmit, Why};

use crate::control::Control;
use crate::error::{End, Lost, Violation};
use crate::frame::{Class, DATA_BYTES_MAX, Frame, Kind, READ_BYTES_MAX, Tag};
use receive::{Cut, Receiver};
use requests::{Fits, Requests};
use send::Sender;

/// Bytes of bulk that wait to leave at most: what is sent next waits for no more than these, and what the
/// way holds.
pub const BULK_AHEAD_BYTES_MAX: usize = 512 << 10;
/// The same where others on the way hold bulk too, as a process that encrypts does.
pub const BULK_AHEAD_BYTES: usize = BULK_AHEAD_BYTES_MAX / 2;
/// Longest that the other end is not told what has come, when nothing else is sent.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(50);
/// Frames after which it is told at once.
const ACKNOWLEDGE_FRAMES: u64 = 256;

/// Something has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// Both ends know one another, over this connection.
    Up {
        /// It is another connection than before.
        is_again: bool,
        /// What the other end can do.
        capabilities: u64,
    },
    /// A posted frame. To be done before the posted frames that come behind it; then
    /// [`Endpoint::done`] has to be told its load.
    Posted {
        /// The frame.
        frame: Frame<&'a [u8]>,
        /// The room it takes until it is done.
        load: Load,
    },
    /// A request. To be answered when all that was posted before it is done, by `Data` pieces, the last
    /// of which says so, or by `Done`, or by `Failed`.
    Request {
        /// To be sent with the replies.
        tag: Tag,
        /// The frame; no request has data.
        frame: Frame<&'a [u8]>,
    },
    /// A reply to a request of this end, or a piece of one, in order. What was posted before it came
    /// before.
    Reply {
        /// The request's.
        tag: Tag,
        /// The frame.
        frame: Frame<&'a [u8]>,
        /// Nothing more comes with this tag.
        is_last: bool,
    },
    /// The connection is of no use: what there is to [`transmit`](Endpoint::transmit) may be tried once,
    /// and it is to be closed. Another may replace it.
    Lost(Lost),
    /// Nothing goes over this link any more. Comes once.
    Ended(End),
}

/// The room that a posted frame takes at the end where it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "credit is given back by `done`"]
pub struct Load {
    bytes: usize,
}

/// A frame that was not taken, and why. It comes back whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotSent {
    /// Not now: to be tried again later.
    Later(Frame<Vec<u8>>, Why),
    /// The link is over.
    Over(Frame<Vec<u8>>),
    /// This cannot be sent ever: too much data, a tag in use, a reply that fits no request.
    Wrong(Frame<Vec<u8>>),
}

/// What an end has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Frames that were taken to be sent.
    pub sent_frames: u64,
    /// Bytes of data that were taken to be sent.
    pub sent_bytes: u64,
    /// Frames that came and were handed on.
    pub received_frames: u64,
    /// Bytes of data that were handed on.
    pub received_bytes: u64,
    /// Frames that came again and were dropped.
    pub duplicates: u64,
    /// Connections on which both ends knew one another.
    pub connections: u64,
    /// Connections that were lost by silence.
    pub silences: u64,
    /// What the other end did that it must not.
    pub violations: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No connection.
    Down,
    /// A connection, and nobody knows who is there.
    Greeting(Duration),
    Up,
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Borrower,
    Lender,
}

/// See the module.
pub struct Endpoint {
    side: Side,
    config: Config,
    state: State,
    /// Since when both ends have not known one another, once they have: connections that come to nothing do
    /// not count.
    down_since: Option<Duration>,
    /// The program that borrows, by a number that it drew.
    session: Option<u64>,
    sender: Sender,
    receiver: Receiver,
    asked: Requests,
    serving: Requests,
    /// Something to be said before what has come is looked at.
    first: Option<Event<'static>>,
    last_heard: Duration,
    last_said: Duration,
    /// Since when the other end is not told what has come.
    untold: Option<Duration>,
    counters: Counters,
}

impl Endpoint {
    /// The end of the program that borrows. `session` is drawn at random, for this link alone.
    #[must_use]
    pub fn borrower(config: Config, session: u64) -> Endpoint {
        Endpoint::new(Side::Borrower, config, Some(session))
    }

    /// The end of the lender, which has the device.
    #[must_use]
    pub fn lender(config: Config) -> Endpoint {
        Endpoint::new(Side::Lender, config, None)
    }

    fn new(side: Side, config: Config, session: Option<u64>) -> Endpoint {
        let config = config.sane();
        Endpoint {
            side,
            state: State::Down,
            down_since: None,
            session,
            sender: Sender::new(config.bulk_ahead_bytes),
            receiver: Receiver::new(config.credits),
            config,
            asked: Requests::default(),
            serving: Requests::default(),
            first: None,
            last_heard: Duration::ZERO,
            last_said: Duration::ZERO,
            untold: None,
            counters: Counters::default(),
        }
    }

    /// There is a connection; one that was there before counts as lost.
    pub fn connected(&mut self, now: Duration) {
        if self.state == State::Over {
            return;
        }
        self.sender.begin();
        self.receiver.begin();
        self.state = State::Greeting(now);
        (self.last_heard, self.last_said) = (now, now);
        if self.side == Side::Borrower {
            self.say_hello();
        }
    }

    /// The connection has ended.
    pub fn disconnected(&mut self, now: Duration) {
        if matches!(self.state, State::Greeting(_) | State::Up) {
            self.state = State::Down;
            self.down_since.get_or_insert(now);
            self.sender.begin();
            self.receiver.begin();
        }
    }

    /// Room for what the connection brings. Not empty when every event was taken.
    pub fn space(&mut self) -> &mut [u8] {
        self.receiver.space()
    }

    /// So many bytes were read into [`space`](Self::space).
    pub fn filled(&mut self, now: Duration, bytes: usize) {
        if matches!(self.state, State::Greeting(_) | State::Up) {
            self.receiver.filled(bytes);
            self.last_heard = now;
        }
    }

    /// The next thing that has happened. To be called until there is nothing.
    pub fn poll_event(&mut self, now: Duration) -> Option<Event<'_>> {
        if let Some(event) = self.first.take() {
            return Some(event);
        }
        let found = match self.next_frame(now) {
            Ok(found) => found?,
            Err(violation) => {
                self.violated(now, violation);
                return self.first.take();
            }
        };
        match found {
            Found::Event(event) => Some(event),
            Found::Frame(kind, cut) => {
                let tag = Tag(cut.header.tag);
                // It was read once already.
                let frame = Frame::decode(kind, self.receiver.bytes(cut.payload)).ok()?;
                let bytes = frame.data().map_or(0, |data| data.len());
                Some(match kind.class() {
                    Class::Posted => Event::Posted { frame, load: Load { bytes } },
                    Class::Request => Event::Request { tag, frame },
                    Class::Reply => Event::Reply { tag, is_last: !self.asked.has(tag), frame },
                })
            }
        }
    }

    fn next_frame(&mut self, now: Duration) -> Result<Option<Found>, Violation> {
        while matches!(self.state, State::Greeting(_) | State::Up) {
            let Some(cut) = self.receiver.cut()? else { return Ok(None) };
            let Some(kind) = Kind::decode(cut.header.kind) else {
                if let Some(event) = self.control(now, &cut)? {
                    return Ok(Some(Found::Event(event)));
                }
                continue;
            };
            if self.state != State::Up {
                return Err(Violation::NoLink);
            }
            self.sender.acknowledged(cut.header.acknowledged)?;
            if !self.receiver.is_next(cut.header.sequence)? {
                self.counters.duplicates += 1;
                continue;
            }
            self.untold.get_or_insert(now);
            self.came(kind, &cut)?;
            return Ok(Some(Found::Frame(kind, cut)));
        }
        Ok(None)
    }

    /// Checks a frame that has come, and counts it.
    fn came(&mut self, kind: Kind, cut: &Cut) -> Result<(), Violation> {
        let tag = Tag(cut.header.tag);
        let payload = self.receiver.bytes(cut.payload.clone());
        let frame = Frame::decode(kind, payload).map_err(|_| Violation::Malformed(kind))?;
        let bytes = frame.data().map_or(0, |data| data.len());
        match kind.class() {
            Class::Posted => {}
            Class::Request => {
                if !self.serving.begin(tag, &frame) {
                    return Err(Violation::TagInUse(tag.0));
                }
            }
            Class::Reply => {
                let fits = self.asked.fits(tag, &frame).ok_or(Violation::Reply(tag.0))?;
                self.asked.count(tag, fits, bytes);
            }
        }
        self.receiver.count(kind.class(), bytes)?;
        if kind.class() == Class::Reply {
            // What a request reads has its place: it takes no room longer than it is looked at.
            self.receiver.done(Class::Reply, bytes);
        }
        self.counters.received_frames += 1;
        self.counters.received_bytes += bytes as u64;
        Ok(())
    }

    /// A posted frame is done: its room may be used again.
    pub fn done(&mut self, load: Load) {
        self.receiver.done(Class::Posted, load.bytes);
    }

    /// Whether a frame of this class with so much data would be taken now: so that nothing is copied in
    /// vain.
    ///
    /// # Errors
    /// Why not.
    pub fn may_send(&self, class: Class, bytes: usize) -> Result<(), Why> {
        self.sender.may(class, bytes)
    }

    /// Room for the data of a frame that is going to be sent, with whatever in it: to be written over as a
    /// whole. Cheaper than to make some.
    #[must_use]
    pub fn room(&mut self, bytes: usize) -> Vec<u8> {
        self.sender.room(bytes)
    }

    /// Takes a frame to be sent, behind all that were taken before. `tag` is of a request's own choice,
    /// different from those that wait, and its reply's; [`Tag::NONE`] in posted frames.
    ///
    /// # Errors
    /// It was not taken, and comes back.
    pub fn send(&mut self, tag: Tag, frame: Frame<Vec<u8>>) -> Result<(), NotSent> {
        if self.state == State::Over {
            return Err(NotSent::Over(frame));
        }
        let bytes = frame.data().map_or(0, Vec::len);
        let class = frame.class();
        let fits = (class == Class::Reply).then(|| self.serving.fits(tag, &frame));
        let is_right = match class {
            Class::Posted => tag == Tag::NONE,
            Class::Request => !self.asked.has(tag),
            Class::Reply => fits.flatten().is_some(),
        };
        let wanted = frame.wanted_bytes().unwrap_or(0);
        if !is_right || bytes > DATA_BYTES_MAX || wanted > READ_BYTES_MAX {
            return Err(NotSent::Wrong(frame));
        }
        if let Err(why) = self.sender.may(class, bytes) {
            return Err(NotSent::Later(frame, why));
        }
        if class == Class::Request {
            self.asked.begin(tag, &frame);
        }
        if let Some(fits) = fits.flatten() {
            self.serving.count(tag, fits, bytes);
            if fits == Fits::Whole {
                self.receiver.done(Class::Request, 0);
            }
        }
        self.sender.take(tag, frame);
        self.counters.sent_frames += 1;
        self.counters.sent_bytes += bytes as u64;
        Ok(())
    }

    /// What is to be written to the connection. When an end or a refusal is all that is left, so it is.
    pub fn transmit(&mut self, now: Duration) -> Transmit<'_> {
        let is_up = self.state == State::Up;
        if is_up {
            self.tell(now);
        }
        self.sender.transmit(self.receiver.expected, is_up)
    }

    /// So many of the bytes that [`transmit`](Self::transmit) gave were written.
    pub fn transmitted(&mut self, now: Duration, bytes: usize) {
        self.sender.transmitted(bytes);
        if bytes > 0 {
            self.last_said = now;
        }
    }

    /// Says what the other end has to hear and no frame would bring.
    fn tell(&mut self, now: Duration) {
        // What was said is not read yet: a peer that sends and never reads would make it grow for ever.
        if self.sender.has_control() {
            return;
        }
        let expected = self.receiver.expected;
        let untold = expected - self.receiver.told;
        let is_due = self.untold.is_some_and(|since| now >= since + ACKNOWLEDGE_WITHIN);
        let silent = now >= self.last_said + self.config.heartbeat;
        if self.receiver.has_news() || untold >= ACKNOWLEDGE_FRAMES || is_due {
            self.say_credit();
        } else if silent {
            self.sender.say(&Control::Alive, expected);
        }
    }

    fn say_credit(&mut self) {
        let amounts = self.receiver.announce();
        let expected = self.receiver.expected;
        self.sender.say(&Control::Credit(amounts), expected);
        self.receiver.told = expected;
        self.untold = None;
    }

    /// When [`handle_timeout`](Self::handle_timeout) has to be called, if nothing happens before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        match self.state {
            State::Down => self.over_at(),
            State::Greeting(since) => {
                let greeted_by = since + self.config.greeting;
                Some(self.over_at().map_or(greeted_by, |over| over.min(greeted_by)))
            }
            State::Up => {
                let silence = self.last_heard + self.config.silence;
                if self.sender.has_control() {
                    // It is said already, and waits for the connection.
                    return Some(silence);
                }
                let beat = self.last_said + self.config.heartbeat;
                let told = self.untold.map_or(beat, |since| since + ACKNOWLEDGE_WITHIN);
                Some(silence.min(beat).min(told))
            }
            State::Over => None,
        }
    }

    /// When a link is over that has no connection.
    fn over_at(&self) -> Option<Duration> {
        self.down_since.map(|since| since + self.config.without_connection)
    }

    /// Time has passed. Then there may be events, and something to transmit.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.poll_timeout().is_none_or(|at| now < at) {
            return;
        }
        match self.state {
            State::Down | State::Greeting(_) if self.over_at().is_some_and(|at| now >= at) => {
                self.end(End::NoConnection);
            }
            State::Greeting(_) => self.lose(now, Lost::NoGreeting),
            State::Up if now >= self.last_heard + self.config.silence => {
                self.counters.silences += 1;
                self.lose(now, Lost::Silent);
            }
            State::Down | State::Up | State::Over => {}
        }
    }

    fn lose(&mut self, now: Duration, why: Lost) {
        self.disconnected(now);
        self.first = Some(Event::Lost(why));
    }

    /// Ends the link, and says so to the other end with a code of the programs' own. What was sent and
    /// has not left is not sent any more.
    pub fn close(&mut self, code: u32) {
        if self.state == State::Over {
            return;
        }
        self.bid_farewell(&Control::Close { code });
        self.end(End::Closed);
    }

    fn violated(&mut self, now: Duration, violation: Violation) {
        self.counters.violations += 1;
        let code = violation.code();
        let is_stranger = self.side == Side::Lender && matches!(self.state, State::Greeting(_));
        if !is_stranger {
            self.bid_farewell(&Control::Close { code });
            return self.end(End::Violation(violation));
        }
        self.bid_farewell(&Control::Refuse { code });
        if matches!(violation, Violation::Resume { .. }) {
            return self.end(End::Violation(violation));
        }
        // Whoever this was: the one that has the lease may still come.
        self.state = State::Down;
        self.down_since.get_or_insert(now);
        self.first = Some(Event::Lost(Lost::Stranger(violation)));
    }

    /// What is the last to leave: a frame that has begun cannot be ended any more, so then the end of
    /// the connection has to say it.
    fn bid_farewell(&mut self, control: &Control<'_>) {
        if !self.sender.is_amid() && matches!(self.state, State::Greeting(_) | State::Up) {
            self.sender.say(control, self.receiver.expected);
        }
    }

    fn end(&mut self, end: End) {
        self.state = State::Over;
        self.first = Some(Event::Ended(end));
        self.sender.clear();
        self.asked.clear();
        self.serving.clear();
    }

    /// Whether the link is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Whether both ends know one another now.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Requests of this end that wait for replies.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.asked.len()
    }

    /// Bytes of bulk that wait to leave.
    #[must_use]
    pub fn bulk_ahead_bytes(&self) -> usize {
        self.sender.bulk_ahead()
    }

    /// Bytes of data that are kept until the other end says that it has them.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        self.sender.kept_bytes()
    }

    /// What has been counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

/// What [`Endpoint::poll_event`] has found.
enum Found {
    Event(Event<'static>),
    Frame(Kind, Cut),
}
