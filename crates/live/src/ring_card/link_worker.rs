//! A link's thread beside a program: what it sends, and what it does with what comes.
//!
//! It waits for the link and for a bell, and for nobody else. What it was given to send goes in order: pages
//! before the commands that were published after them. What waits to be sent is bounded; what has no room yet
//! stays where it is, in the program's memory and in its rings.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use farside_card::interface::{DmaAddr, Extent, register};
use farside_types::PAGE_SIZE;
use farside_vfio_user::unix::Ready;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use thiserror::Error;

use super::link_line::{Answer, Ask, Line};
use super::messages::CardStream;
use super::transport::{MoveOrder, Moved};
use crate::far::{
    BULK_BYTES, BULK_WAITING_MAX, Bulk, Call, GETS_MAX, Inbox, Message, Mirror, Nonsense, Outbox,
    WireError,
};

/// Bytes of one read of the card's memory, at most: more are several.
const GET_BYTES_MAX: u64 = 4 << 20;

/// Messages in a row with which nothing came, at most.
const EMPTY_MESSAGES_MAX: u32 = 20_000;

const PAGE: u64 = PAGE_SIZE as u64;

/// Why a connection ended.
#[derive(Debug, Error)]
enum Failure {
    #[error("the link failed: {0}")]
    Io(#[from] io::Error),
    #[error("the end beside the card is gone")]
    Gone,
    #[error("the end beside the card makes no sense: {0}")]
    Wire(#[from] WireError),
    #[error("the end beside the card makes no sense: {0}")]
    Rings(#[from] Nonsense),
    #[error("the end beside the card makes no sense: {0}")]
    Other(&'static str),
}

/// A part of a move, or commands, in the order in which they are sent.
#[derive(Debug)]
enum Work {
    /// Bytes of the program's memory for the card's: bus address, offset there, how many.
    Put {
        tag: u64,
        bus: u64,
        offset: u64,
        left: u64,
    },
    Zero {
        tag: u64,
        offset: u64,
        bytes: u64,
    },
    /// Commands up to this index.
    Commands(u32),
}

/// Bytes of the card's memory that were asked for, or are to be.
#[derive(Debug)]
struct Get {
    sink: Sink,
    offset: u64,
    bytes: u64,
}

/// Where they go.
#[derive(Debug)]
enum Sink {
    /// To the program's memory, from this bus address on, for this move.
    Memory { tag: u64, bus: u64 },
    /// To somebody who waits for them.
    Answer { id: u32, bytes: Vec<u8> },
}

/// A move that is under way.
#[derive(Debug)]
struct UnderWay {
    parts_left: usize,
    pages: u64,
    failed: bool,
}

/// The thread.
pub(super) struct Worker {
    line: Arc<Line>,
    stream: Box<dyn CardStream>,
    outbox: Outbox,
    mirror: Option<Mirror>,
    /// Commands up to this index are in `work`, or sent.
    known: u32,
    work: VecDeque<Work>,
    /// Reads of the card's memory that wait for their turn. Nothing behind them waits for them.
    to_get: VecDeque<Get>,
    /// Those that were asked for, by number; answered in order.
    getting: VecDeque<(u32, Get)>,
    next_get: u32,
    under_way: HashMap<u64, UnderWay>,
    empty_messages: u32,
}

impl Worker {
    pub(super) fn new(line: Arc<Line>, stream: Box<dyn CardStream>) -> Worker {
        Worker {
            line,
            stream,
            outbox: Outbox::default(),
            mirror: None,
            known: 0,
            work: VecDeque::new(),
            to_get: VecDeque::new(),
            getting: VecDeque::new(),
            next_get: 0,
            under_way: HashMap::new(),
            empty_messages: 0,
        }
    }

    /// The body of the thread. When it ends the socket is shut down, and whoever watches it sees that.
    pub(super) fn run(mut self) {
        farside_linux::signals::block_for_whole_thread();
        if let Err(error) = self.run_until_it_ends() {
            tracing::debug!(%error, "a link to a card has ended");
        }
        self.line.is_over();
    }

    fn run_until_it_ends(&mut self) -> Result<(), Failure> {
        let mut inbox = Inbox::default();
        while !self.line.is_closing() {
            if let Some(mirror) = &self.mirror {
                mirror.awake();
            }
            self.hear(&mut inbox)?;
            self.take_asks();
            self.take_work();
            self.send();
            self.outbox.flush(&mut self.stream)?;
            if self.may_sleep() {
                self.sleep()?;
            }
        }
        Ok(())
    }

    /// Takes what has come, if anything.
    fn hear(&mut self, inbox: &mut Inbox) -> Result<(), Failure> {
        let wanted = Ready { readable: true, writable: false };
        if self.stream.wait(wanted, Some(Instant::now()))?.is_none() {
            return Ok(());
        }
        let stream = &mut self.stream;
        match inbox.fill(|space| stream.receive_bytes(space)) {
            Ok(0) => return Err(Failure::Gone),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        while let Some(message) = inbox.next()? {
            match message {
                Message::Answer { id, errno, value } => {
                    if !self.line.answer(id, Answer::Value(errno, value)) {
                        self.is_empty()?;
                    }
                }
                Message::Entries(entries) => {
                    if entries.items.is_empty() {
                        self.is_empty()?;
                    } else {
                        self.empty_messages = 0;
                    }
                    let mirror = self.mirror.as_mut();
                    let mirror = mirror.ok_or(Failure::Other("entries before there are rings"))?;
                    if mirror.arrived(&entries)? {
                        self.line.reach().signal();
                    }
                }
                Message::Data { id, data } => self.data(id, data)?,
                _ => return Err(Failure::Other("a message that only a program sends")),
            }
        }
        Ok(())
    }

    /// A message with which no entry came: these are few.
    fn is_empty(&mut self) -> Result<(), Failure> {
        self.empty_messages += 1;
        if self.empty_messages > EMPTY_MESSAGES_MAX {
            return Err(Failure::Other("messages without end, and nothing in them"));
        }
        Ok(())
    }

    /// Bytes of the card's memory have come.
    fn data(&mut self, id: u32, data: &[u8]) -> Result<(), Failure> {
        let unasked = Failure::Other("bytes that were not asked for");
        let Some((asked, get)) = self.getting.front_mut() else { return Err(unasked) };
        let bytes = data.len() as u64;
        if *asked != id || bytes > get.bytes {
            return Err(unasked);
        }
        self.empty_messages = 0;
        match &mut get.sink {
            Sink::Memory { tag, bus } => {
                if self.line.reach().write(*bus, data).is_none() {
                    // The card was given up, or the memory taken away.
                    self.under_way.get_mut(tag).into_iter().for_each(|moves| moves.failed = true);
                }
                *bus += bytes;
            }
            Sink::Answer { bytes, .. } => bytes.extend_from_slice(data),
        }
        get.bytes -= bytes;
        if get.bytes == 0 {
            match self.getting.pop_front().map(|(_, get)| get.sink) {
                Some(Sink::Memory { tag, .. }) => self.part_done(tag),
                Some(Sink::Answer { id, bytes }) => {
                    self.line.answer(id, Answer::Bytes(bytes));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn part_done(&mut self, tag: u64) {
        let Some(moves) = self.under_way.get_mut(&tag) else { return };
        moves.parts_left -= 1;
        if moves.parts_left == 0 {
            let pages = (!moves.failed).then_some(moves.pages);
            self.under_way.remove(&tag);
            self.line.has_ended(Moved { tag, pages });
        }
    }

    /// What somebody asks goes at once, in front of pages that wait.
    fn take_asks(&mut self) {
        if let Some(change) = self.line.take_rings() {
            self.mirror = change;
            self.known = 0;
        }
        let asks = self.line.take_asks();
        for ask in asks {
            match ask {
                Ask::Call(id, call) => self.outbox.push(&Message::Call(id, call)),
                Ask::Read(id, offset, bytes) => {
                    let sink = Sink::Answer { id, bytes: Vec::new() };
                    self.to_get.push_back(Get { sink, offset, bytes: bytes.into() });
                }
                Ask::Write(id, offset, data) => {
                    self.outbox.push(&Message::Put { offset, data: &data });
                    let call = Call::Read(register::MAGIC, 4);
                    self.outbox.push(&Message::Call(id, call));
                }
            }
        }
    }

    /// Takes moves and commands, in an order that puts no command in front of pages that were there when
    /// it was published: first it is looked how far commands are published, then which moves there are.
    fn take_work(&mut self) {
        let published = self.mirror.as_ref().map_or(self.known, Mirror::published);
        let orders = self.line.take_orders();
        orders.into_iter().for_each(|order| self.take_order(order));
        if published != self.known {
            self.known = published;
            self.work.push_back(Work::Commands(published));
        }
    }

    fn take_order(&mut self, order: MoveOrder) {
        let MoveOrder { tag, fills, extents } = order;
        let pages = extents.iter().map(|extent| u64::from(extent.count)).sum();
        let (mut parts_left, mut failed) = (1, false);
        for Extent { count, src, dst, .. } in extents {
            let bytes = u64::from(count) * PAGE;
            parts_left += 1;
            match (src, dst) {
                (_, DmaAddr::Own(frame)) if fills => {
                    let offset = u64::from(frame) * PAGE;
                    self.work.push_back(Work::Zero { tag, offset, bytes });
                }
                (DmaAddr::Bus(page), DmaAddr::Own(frame)) => {
                    let (bus, offset) = (u64::from(page) * PAGE, u64::from(frame) * PAGE);
                    self.work.push_back(Work::Put { tag, bus, offset, left: bytes });
                }
                (DmaAddr::Own(frame), DmaAddr::Bus(page)) if !fills => {
                    let (bus, offset) = (u64::from(page) * PAGE, u64::from(frame) * PAGE);
                    for done in (0..bytes).step_by(GET_BYTES_MAX as usize) {
                        let sink = Sink::Memory { tag, bus: bus + done };
                        let bytes = (bytes - done).min(GET_BYTES_MAX);
                        self.to_get.push_back(Get { sink, offset: offset + done, bytes });
                        parts_left += usize::from(done > 0);
                    }
                }
                _ => {
                    // Nobody at this end reaches both.
                    failed = true;
                    parts_left -= 1;
                }
            }
        }
        self.under_way.insert(tag, UnderWay { parts_left, pages, failed });
        // The part that stands for the order itself.
        self.part_done(tag);
    }

    /// Puts into the outbox what has room there.
    fn send(&mut self) {
        while self.getting.len() < GETS_MAX {
            let Some(get) = self.to_get.pop_front() else { break };
            let id = self.next_get;
            self.next_get = id.wrapping_add(1);
            let (offset, bytes) = (get.offset, get.bytes as u32);
            self.outbox.push(&Message::Get { id, offset, bytes });
            self.getting.push_back((id, get));
        }
        while self.outbox.len() < BULK_WAITING_MAX {
            let Some(work) = self.work.pop_front() else { break };
            if let Some(rest) = self.send_work(work) {
                let waits = matches!(rest, Work::Commands(_));
                self.work.push_front(rest);
                if waits {
                    break;
                }
            }
        }
        if !matches!(self.work.front(), Some(Work::Commands(_))) {
            let until = self.mirror.as_ref().map_or(0, Mirror::sent);
            self.tell(until);
        }
    }

    /// Sends a part; gives back what is left of it.
    fn send_work(&mut self, work: Work) -> Option<Work> {
        match work {
            Work::Commands(until) => {
                self.tell(until);
                let all = self.mirror.as_ref().is_none_or(|mirror| mirror.has_sent(until));
                (!all).then_some(Work::Commands(until))
            }
            Work::Zero { tag, offset, bytes } => {
                self.outbox.push(&Message::Zero { offset, bytes });
                self.part_done(tag);
                None
            }
            Work::Put { tag, bus, offset, left } => {
                let bytes = left.min(BULK_BYTES as u64);
                let (head, reach) = (Bulk::Put { offset }, self.line.reach());
                let put =
                    self.outbox.push_bulk(&head, bytes as usize, |into| reach.read(bus, into));
                if put.is_none() {
                    // The card was given up, or the memory taken away.
                    self.under_way.get_mut(&tag).into_iter().for_each(|moves| moves.failed = true);
                }
                let left = if put.is_none() { 0 } else { left - bytes };
                if left > 0 {
                    return Some(Work::Put { tag, bus: bus + bytes, offset: offset + bytes, left });
                }
                // All of it has left the program's memory, and goes in front of what is sent later.
                self.part_done(tag);
                None
            }
        }
    }

    /// Sends commands up to an index, and what the driver has taken.
    fn tell(&mut self, until: u32) {
        let Some(mirror) = &mut self.mirror else { return };
        while let Some(entries) = mirror.poll(until) {
            let is_sent = !entries.items.is_empty();
            self.outbox.push(&Message::Entries(entries));
            if is_sent && mirror.driver_waits() {
                self.line.reach().signal();
            }
        }
    }

    /// Whether there is nothing to do until something happens.
    fn may_sleep(&self) -> bool {
        let is_full = self.outbox.len() >= BULK_WAITING_MAX;
        let waits = matches!(self.work.front(), None | Some(Work::Commands(_)));
        let Some(mirror) = &self.mirror else { return is_full || waits };
        mirror.may_sleep(self.known) && !mirror.has_news() && (is_full || waits)
    }

    fn sleep(&mut self) -> Result<(), Failure> {
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, self.outbox.len() > 0);
        let mut polled =
            [PollFd::new(&self.stream, flags), PollFd::new(self.line.bell(), PollFlags::IN)];
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
        if polled[1].revents().contains(PollFlags::IN) {
            // It does not block.
            let _ = rustix::io::read(self.line.bell(), &mut [0; 8]);
        }
        Ok(())
    }
}
