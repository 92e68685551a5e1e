//! The end of a direct link that gets the pieces: reads what another lender's end is told to lend, into the
//! memory of the card beside this one.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farside_link::endpoint::Load;
use farside_link::{Config, Endpoint, Event, Frame, Outgoing, Tag};
use farside_linux::lock::lock;
use farside_linux::shared::SharedMemory;
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno;
use thiserror::Error;

use super::super::carry::{Carried, Rest, Side, lines};
use super::super::line::Line;
use super::lent::Piece;

/// How long another lender's end may give nothing of what it was asked for.
const FETCH_LIMIT: Duration = Duration::from_secs(4);
/// How often it is looked whether it has taken longer.
const LOOK: Duration = Duration::from_millis(500);

/// Answers to the borrower, by whose requests, with the number of an error if there was one.
pub(super) type Answers = Vec<(Tag, Result<(), Errno>)>;

/// A piece that is fetched.
#[derive(Clone, Copy, Debug)]
struct Order {
    /// The borrower's request.
    tag: Tag,
    transfer: u64,
    /// Where it goes.
    into: Piece,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Dialling,
    Up,
    Down(Errno),
}

#[derive(Debug)]
struct Orders {
    state: State,
    new: VecDeque<Order>,
    /// Those that were asked for, by number.
    open: HashMap<u64, Order>,
    /// When something of them came, or the first of them was asked for.
    progress: Instant,
    /// Requests for when the link is there.
    waiting: Vec<Tag>,
    answers: Answers,
    bytes: u64,
}

/// What the borrower's link and the direct one share.
#[derive(Debug)]
pub(super) struct Fetching {
    orders: Mutex<Orders>,
    /// Has the direct link look.
    bell: OwnedFd,
    /// Has the borrower's look.
    answered: Arc<OwnedFd>,
}

impl Fetching {
    pub(super) fn new(answered: Arc<OwnedFd>) -> io::Result<Fetching> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let orders = Orders {
            state: State::Dialling,
            new: VecDeque::new(),
            open: HashMap::new(),
            progress: Instant::now(),
            waiting: Vec::new(),
            answers: Answers::new(),
            bytes: 0,
        };
        Ok(Fetching { orders: Mutex::new(orders), bell, answered })
    }

    /// The borrower wants to know when the link is there.
    pub(super) fn is_ready(&self, tag: Tag) {
        let mut orders = lock(&self.orders);
        match orders.state {
            State::Dialling => orders.waiting.push(tag),
            State::Up => orders.answers.push((tag, Ok(()))),
            State::Down(errno) => orders.answers.push((tag, Err(errno))),
        }
        self.say_answered();
    }

    /// The borrower wants a piece.
    pub(super) fn fetch(&self, tag: Tag, transfer: u64, into: Piece) {
        let mut orders = lock(&self.orders);
        if let State::Down(errno) = orders.state {
            orders.answers.push((tag, Err(errno)));
            return self.say_answered();
        }
        orders.new.push_back(Order { tag, transfer, into });
        drop(orders);
        self.ring();
    }

    /// The borrower wants no more of a piece. When this returns nothing of it is written.
    pub(super) fn end(&self, transfer: u64) {
        let mut orders = lock(&self.orders);
        let is_it = |order: &Order| order.transfer == transfer;
        let mut ended: Vec<Order> = orders.new.iter().copied().filter(is_it).collect();
        orders.new.retain(|order| !is_it(order));
        ended.extend(orders.open.values().copied().filter(is_it));
        orders.open.retain(|_, order| !is_it(order));
        orders.answers.extend(ended.iter().map(|order| (order.tag, Err(Errno::CANCELED))));
        drop(orders);
        self.say_answered();
    }

    /// The link is there no more. When this returns nothing is written.
    pub(super) fn is_down(&self, errno: Errno) {
        let mut orders = lock(&self.orders);
        if !matches!(orders.state, State::Down(_)) {
            orders.state = State::Down(errno);
        }
        let Orders { new, open, waiting, answers, .. } = &mut *orders;
        let tags = new.drain(..).chain(open.drain().map(|(_, order)| order));
        let tags = tags.map(|order| order.tag).chain(waiting.drain(..));
        answers.extend(tags.map(|tag| (tag, Err(errno))));
        drop(orders);
        self.say_answered();
        self.ring();
    }

    /// What is to be told to the borrower.
    pub(super) fn take_answers(&self) -> Answers {
        std::mem::take(&mut lock(&self.orders).answers)
    }

    /// Bytes that were fetched.
    pub(super) fn bytes(&self) -> u64 {
        lock(&self.orders).bytes
    }

    fn is_up(&self) {
        let mut orders = lock(&self.orders);
        if orders.state != State::Dialling {
            return;
        }
        orders.state = State::Up;
        let waiting = std::mem::take(&mut orders.waiting);
        orders.answers.extend(waiting.into_iter().map(|tag| (tag, Ok(()))));
        drop(orders);
        self.say_answered();
    }

    fn say_answered(&self) {
        // Full means that it is going to look.
        let _ = rustix::io::write(&self.answered, &1u64.to_ne_bytes());
    }

    fn ring(&self) {
        // As above.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

/// Why a direct link is of no use any more.
#[derive(Debug, Error)]
enum Gone {
    #[error("nobody fetches anything any more")]
    Over,
    #[error("the other lender's end has not given a piece in time")]
    Late,
    #[error("the other lender's end sent what it may not")]
    Nonsense,
}

/// See the module.
struct Fetch {
    fetching: Arc<Fetching>,
    memory: Arc<SharedMemory>,
    next: u64,
    out: Outgoing,
    failed: Option<Gone>,
}

/// Connects by `reach`, and fetches until the link is over, however that comes.
pub(super) fn run(
    config: Config,
    session: u64,
    reach: impl FnOnce() -> io::Result<Line>,
    fetching: &Arc<Fetching>,
    memory: Arc<SharedMemory>,
) {
    let line = reach().inspect_err(|error| tracing::info!(%error, "no direct link"));
    let (line, (new, lines)) = match (line, lines()) {
        (Ok(line), Ok(lines)) => (line, lines),
        (Err(error), _) | (_, Err(error)) => {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::HOSTUNREACH);
            return fetching.is_down(errno);
        }
    };
    let mut fetch = Fetch {
        fetching: Arc::clone(fetching),
        memory,
        next: 1,
        out: Outgoing::default(),
        failed: None,
    };
    // One that breaks is not replaced: what was not fetched goes by another way.
    let end = Endpoint::borrower(config, session);
    let mut carried = Carried::new(end, line, &lines, &|| false);
    let over = carried.carry(&mut fetch);
    tracing::debug!(%over, "a direct link to another lender's end has ended");
    fetching.is_down(Errno::CONNRESET);
    drop(new);
}

impl Side for Fetch {
    type Gone = Gone;

    fn frame(&mut self, event: Event<'_>) -> Option<Load> {
        match event {
            Event::Up { .. } => self.fetching.is_up(),
            Event::Reply { tag, frame, is_last } => self.reply(tag.0, &frame, is_last),
            Event::Request { .. } => self.failed = Some(Gone::Nonsense),
            Event::Posted { load, .. } => {
                self.failed = Some(Gone::Nonsense);
                return Some(load);
            }
            Event::Lost(_) | Event::Ended(_) => {}
        }
        None
    }

    fn turn(&mut self, link: &mut Endpoint, is_ready: bool) -> Result<(), Gone> {
        if is_ready {
            // It does not block.
            let _ = rustix::io::read(&self.fetching.bell, &mut [0; 8]);
        }
        self.take_orders()?;
        self.out.flush(link);
        self.failed.take().map_or(Ok(()), Err)
    }

    fn has_waiting(&self) -> bool {
        !self.out.is_empty()
    }

    fn polled(&mut self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        vec![(self.fetching.bell.as_fd(), PollFlags::IN)]
    }

    fn rest(&mut self) -> Rest {
        let is_idle = lock(&self.fetching.orders).open.is_empty();
        if is_idle { Rest::Sleep } else { Rest::Nap(LOOK) }
    }

    fn ends_with_connection(&self) -> bool {
        true
    }
}

impl Fetch {
    fn take_orders(&mut self) -> Result<(), Gone> {
        let mut orders = lock(&self.fetching.orders);
        if matches!(orders.state, State::Down(_)) {
            return Err(Gone::Over);
        }
        if orders.open.is_empty() {
            orders.progress = Instant::now();
        } else if orders.progress.elapsed() > FETCH_LIMIT {
            return Err(Gone::Late);
        }
        while let Some(order) = orders.new.pop_front() {
            let Order { transfer, into: Piece { bytes, .. }, .. } = order;
            self.out.push(Tag(self.next), Frame::PeerRead { transfer, bytes });
            orders.open.insert(self.next, order);
            self.next += 1;
        }
        Ok(())
    }

    /// A piece of a piece has come: the link has seen to it that it was asked for, and is no longer than that.
    /// What nobody wants any more goes nowhere: it is written under the lock under which that is said.
    fn reply(&mut self, number: u64, frame: &Frame<&[u8]>, is_last: bool) {
        let mut orders = lock(&self.fetching.orders);
        orders.progress = Instant::now();
        let Some(&order) = orders.open.get(&number) else { return };
        let written = match *frame {
            Frame::Data { offset, data, .. } => {
                self.memory.write(order.into.offset + u64::from(offset), data).ok_or(Errno::FAULT)
            }
            Frame::Failed { errno } => Err(Errno::from_raw_os_error(errno.clamp(1, 4095) as i32)),
            _ => Err(Errno::PROTO),
        };
        if !is_last && written.is_ok() {
            return;
        }
        orders.open.remove(&number);
        orders.bytes += if written.is_ok() { u64::from(order.into.bytes) } else { 0 };
        orders.answers.push((order.tag, written));
        drop(orders);
        self.fetching.say_answered();
    }
}
