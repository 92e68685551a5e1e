//! The end of a link beside the card: a client of the card on behalf of a program elsewhere.
//!
//! One thread, which waits for the link, the card's interrupts and the card's end, and for nobody else:
//! what the program does not take is left with the card, which then waits itself.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use farside_card::interface::{pci, register};
use farside_link::endpoint::{Counters, Load};
use farside_link::error::End;
use farside_link::frame::DATA_BYTES_MAX;
use farside_link::{Class, Config, Endpoint, Event, Frame, Kind, Outgoing, Tag};
use farside_linux::mapping::MemoryError;
use farside_linux::shared::SharedMemory;
use farside_types::PAGE_SIZE;
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno;
use thiserror::Error;

use super::behind::{Behind, Read};
use super::carry::{Carried, Lines, Over, Rest, Side};
use super::line::Line;
use super::peers::{PeerWays, Peers};
use super::rings::RingRegisters;
use super::shadow::{CardBroken, Refusal, Shadow};
use super::{CARD_BY_RINGS, DIRECT_LINKS, Farewell, READS_BEHIND};
use crate::ring_card::{DmaPiece, Identity, Transport, TransportError, Watch};

/// Memory for rings and lists, at most.
const RINGS_BYTES_MAX: u64 = 16 << 20;

/// How soon completions are looked for that raise no interrupt. Usually the next that does brings them.
const LOOK_AFTER: Duration = Duration::from_millis(20);

/// Interrupts in a row with which nothing came, at most.
const EMPTY_INTERRUPTS_MAX: u32 = 20_000;

/// How long a program may say nothing: it may be stopped, and its card is its own for as long as its lease
/// runs. If it is its connection that is dead, its next one takes the place.
const SILENCE: Duration = Duration::from_secs(24 * 3600);

/// Frames that wait for credit, at most, before more is taken out of the card's rings.
const WAITING_MAX: usize = 64;

/// Why an end beside a card ended, other than by the program's wish.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FarEndError {
    /// The program did what it may not.
    #[error("{0}; its connection is ended")]
    Refused(#[from] Refusal),
    /// The card could not be used.
    #[error("the card: {0}")]
    Card(#[from] TransportError),
    /// The card has gone.
    #[error("the card's process is gone")]
    CardGone,
    /// The card writes nonsense, or interrupts without end.
    #[error("the card makes no sense: {0}")]
    CardBroken(String),
    /// Memory could not be had.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The program does not keep to the protocol of the link, or is gone without a word.
    #[error("the link: {0}")]
    Link(#[from] End),
    /// The system failed.
    #[error("the system failed: {0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for FarEndError {
    fn from(errno: Errno) -> FarEndError {
        FarEndError::Io(errno.into())
    }
}

/// What has gone through an end beside a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FarEndReport {
    /// Commands that the card was given.
    pub commands: u64,
    /// Completions, faults and notices that the program was given.
    pub entries: u64,
    /// Bytes that were put into the card's memory.
    pub bytes_in: u64,
    /// Bytes that were read from it.
    pub bytes_out: u64,
    /// Bytes of it that were filled.
    pub bytes_filled: u64,
    /// Bytes of it that other lenders' ends have read.
    pub bytes_to_peers: u64,
    /// Bytes that were put into it and came from other lenders' ends.
    pub bytes_from_peers: u64,
    /// Bytes of data that came, in whatever frames.
    pub bytes_received: u64,
    /// Bytes of data that were sent.
    pub bytes_sent: u64,
    /// Frames that were refused.
    pub refusals: u64,
    /// Of them, those that break the protocol of the link.
    pub violations: u64,
    /// What the card has refused of what it was asked.
    pub refused_by_card: u64,
    /// Connections by which the program came, one after the other.
    pub connections: u64,
    /// Frames that came again over a new connection, and were dropped.
    pub duplicates: u64,
}

/// A read of the card's memory that goes on.
#[derive(Clone, Copy, Debug)]
struct Get {
    read: Read,
    done: u32,
}

/// Hears how far a link is, while it goes on.
type Watcher = Box<dyn FnMut(&FarEndReport) + Send>;

/// See the module.
pub struct FarEnd {
    beside: Beside,
    ways: Option<Arc<dyn PeerWays>>,
}

impl std::fmt::Debug for FarEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FarEnd").field("report", &self.beside.report).finish_non_exhaustive()
    }
}

impl FarEnd {
    /// An end beside a card whose memory can be mapped, as [`connect`](crate::ring_card::connect) finds
    /// it.
    ///
    /// # Errors
    /// [`FarEndError`]: the card's memory, or a descriptor, cannot be had.
    pub fn new(card: Arc<dyn Transport>, identity: &Identity) -> Result<FarEnd, FarEndError> {
        let bytes = u64::from(identity.frames) * PAGE_SIZE as u64;
        let (file, offset) = card.memory(bytes)?;
        let memory = Arc::new(SharedMemory::of_file(file, offset, bytes)?);
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let beside = Beside {
            card,
            memory,
            control: None,
            registers: RingRegisters::default(),
            shadow: None,
            event,
            empty_interrupts: 0,
            out: Outgoing::default(),
            gets: VecDeque::new(),
            behind: Behind::default(),
            peers: None,
            report: FarEndReport::default(),
            watched: FarEndReport::default(),
            watcher: None,
            failed: None,
        };
        Ok(FarEnd { beside, ways: None })
    }

    /// The same, which may have direct links to the ends of other lenders.
    #[must_use]
    pub fn with_peers(self, ways: Arc<dyn PeerWays>) -> FarEnd {
        FarEnd { ways: Some(ways), ..self }
    }

    /// Has somebody told what has gone through, whenever there is more.
    pub fn watched(&mut self, watcher: impl FnMut(&FarEndReport) + Send + 'static) {
        self.beside.watcher = Some(Box::new(watcher));
    }

    /// What has gone through so far.
    #[must_use]
    pub fn report(&self) -> FarEndReport {
        self.beside.report
    }

    /// Serves the program that has connected by `first`, until it hangs up. A connection that breaks is
    /// replaced by one of `lines`, and the program goes on as if nothing had been. When this returns
    /// nothing of the program reaches the card any more; the card itself goes on until this is dropped,
    /// and its client with it.
    ///
    /// # Errors
    /// [`FarEndError`]. The program is told.
    pub fn serve(&mut self, config: Config, first: Line, lines: &Lines) -> Result<(), FarEndError> {
        let capabilities = CARD_BY_RINGS | READS_BEHIND;
        let mut config = Config { capabilities, silence: SILENCE, ..config };
        if let Some(ways) = &self.ways {
            config.capabilities |= DIRECT_LINKS;
            let (ways, memory) = (Arc::clone(ways), Arc::clone(&self.beside.memory));
            self.beside.peers = Some(Peers::new(ways, config.lease.clone(), memory)?);
        }
        let mut carried = Carried::new(Endpoint::lender(config), first, lines, &|| true);
        let over = carried.carry(&mut self.beside);
        let counters = carried.end().counters();
        let report = &mut self.beside.report;
        report.refusals += counters.violations;
        if let Over::Side(FarEndError::Refused(refusal)) = &over {
            report.refusals += 1;
            tracing::error!(%refusal, "a program is disconnected from its card");
        }
        self.beside.watch(&counters);
        self.beside.peers = None;
        self.beside.card.stop();
        match over {
            Over::Done | Over::HungUp | Over::Link(End::PeerClosed(0)) => Ok(()),
            Over::Link(end) => Err(end.into()),
            Over::Side(error) => Err(error),
        }
    }
}

/// What is beside the card: the side of the link that is not the program's.
struct Beside {
    card: Arc<dyn Transport>,
    /// The card's memory.
    memory: Arc<SharedMemory>,
    /// Memory for the rings, and its bus address, once the program has asked for it.
    control: Option<(Arc<SharedMemory>, u64)>,
    registers: RingRegisters,
    shadow: Option<Shadow>,
    /// The card's interrupts.
    event: OwnedFd,
    empty_interrupts: u32,
    /// What waits for credit.
    out: Outgoing,
    gets: VecDeque<Get>,
    behind: Behind,
    /// Direct links, where there may be any.
    peers: Option<Peers>,
    report: FarEndReport,
    /// What its watcher knows.
    watched: FarEndReport,
    watcher: Option<Watcher>,
    /// Why there is no going on.
    failed: Option<FarEndError>,
}

impl Side for Beside {
    type Gone = FarEndError;

    fn frame(&mut self, event: Event<'_>) -> Option<Load> {
        match event {
            Event::Posted { frame, load } => {
                let done = self.posted(&frame);
                self.fail_if(done);
                Some(load)
            }
            Event::Request { tag, frame } => {
                let done = self.request(tag, &frame);
                self.fail_if(done);
                None
            }
            _ => None,
        }
    }

    fn turn(&mut self, link: &mut Endpoint, is_ready: bool) -> Result<(), FarEndError> {
        if is_ready {
            self.look()?;
        }
        self.tell()?;
        if let Some(peers) = self.peers.as_mut().filter(|_| is_ready) {
            peers.answers().for_each(|(tag, answer)| self.out.push(tag, answer));
        }
        self.out.flush(link);
        self.send_data(link)?;
        self.watch(&link.counters());
        self.failed.take().map_or(Ok(()), Err)
    }

    fn has_waiting(&self) -> bool {
        !self.out.is_empty() || !self.gets.is_empty()
    }

    fn polled(&mut self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut polled = vec![(self.event.as_fd(), PollFlags::IN)];
        match self.card.watch() {
            Some(Watch::Connection(fd)) => polled.push((fd, PollFlags::RDHUP)),
            Some(Watch::Event(fd)) => polled.push((fd, PollFlags::IN)),
            None => {}
        }
        polled.extend(self.peers.as_ref().map(|peers| (peers.bell(), PollFlags::IN)));
        polled
    }

    fn rest(&mut self) -> Rest {
        let Some(shadow) = &self.shadow else { return Rest::Sleep };
        if !shadow.may_sleep() && self.has_room() {
            return Rest::Work;
        }
        if shadow.expects_quiet_news() { Rest::Nap(LOOK_AFTER) } else { Rest::Sleep }
    }

    /// A connection that was cut is another matter.
    fn ends_with_connection(&self) -> bool {
        true
    }

    fn code(&self, gone: &FarEndError) -> u32 {
        let farewell = match gone {
            FarEndError::Refused(_) => Farewell::Refused,
            _ => Farewell::NoCard,
        };
        farewell as u32
    }
}

impl Beside {
    /// Notes what the link has counted, and tells whoever watches.
    fn watch(&mut self, link: &Counters) {
        let report = &mut self.report;
        if let Some(peers) = &self.peers {
            (report.bytes_to_peers, report.bytes_from_peers) = peers.bytes();
        }
        (report.connections, report.duplicates) = (link.connections, link.duplicates);
        (report.bytes_received, report.bytes_sent) = (link.received_bytes, link.sent_bytes);
        report.violations = link.violations;
        if self.watched != *report {
            self.watched = *report;
            if let Some(watcher) = &mut self.watcher {
                watcher(report);
            }
        }
    }

    fn fail_if(&mut self, done: Result<(), FarEndError>) {
        if let Err(error) = done {
            self.failed.get_or_insert(error);
        }
    }

    fn posted(&mut self, frame: &Frame<&[u8]>) -> Result<(), FarEndError> {
        // Of a program that is given up nothing counts any more.
        if self.failed.is_some() {
            return Ok(());
        }
        if let Some(peers) = &mut self.peers {
            if peers.posted(frame)? {
                return Ok(());
            }
        }
        match *frame {
            Frame::RegionWrite { region, offset, data } if is_registers(region) => {
                self.write(offset, data)
            }
            Frame::MemoryWrite { offset, data } => {
                self.memory.write(offset, data).ok_or(Refusal::Memory)?;
                self.report.bytes_in += data.len() as u64;
                Ok(())
            }
            Frame::MemoryFill { offset, bytes, value } => self.fill(offset, bytes, value),
            Frame::DmaMap { address, bytes, .. } => self.map_rings(address, bytes),
            _ => self.ring_frame(frame),
        }
    }

    /// What is about the rings.
    fn ring_frame(&mut self, frame: &Frame<&[u8]>) -> Result<(), FarEndError> {
        let is_entries = frame.kind() == Kind::RingEntries;
        let shadow = self.shadow.as_mut().ok_or(Refusal::Order)?;
        match shadow.frame(frame)? {
            None => return Err(Refusal::Malformed.into()),
            Some(true) => self.ring_doorbell()?,
            Some(false) => {}
        }
        let entries = frame.data().map_or(0, |data| data.len() / 64);
        self.report.commands += if is_entries { entries as u64 } else { 0 };
        Ok(())
    }

    fn request(&mut self, tag: Tag, frame: &Frame<&[u8]>) -> Result<(), FarEndError> {
        if self.failed.is_some() {
            return Ok(());
        }
        if let Some(peers) = &self.peers {
            if peers.request(tag, frame)? {
                return Ok(());
            }
        }
        match *frame {
            Frame::RegionRead { region, offset, bytes } if is_registers(region) => {
                let reply = self.read(offset, bytes)?;
                self.out.push(tag, reply);
            }
            Frame::MemoryRead { offset, bytes } => {
                self.check(offset, bytes.into())?;
                self.gets.push_back(Get { read: Read { tag, offset, bytes }, done: 0 });
            }
            Frame::MemoryReadBehind { command, offset, bytes } => {
                self.check(offset, bytes.into())?;
                if self.shadow.as_ref().is_some_and(|shadow| shadow.is_open(command)) {
                    self.behind.push(command, Read { tag, offset, bytes });
                } else {
                    self.out.push(tag, Frame::Failed { errno: errno(Errno::NOENT) });
                }
            }
            // What was posted before it is done.
            Frame::Barrier => self.out.push(tag, Frame::Done),
            _ => return Err(Refusal::Malformed.into()),
        }
        Ok(())
    }

    /// Whether bytes lie in the card's memory.
    fn check(&self, offset: u64, bytes: u64) -> Result<(), Refusal> {
        let end = offset.checked_add(bytes);
        let fits = bytes > 0 && end.is_some_and(|end| end <= self.memory.bytes());
        fits.then_some(()).ok_or(Refusal::Memory)
    }

    fn fill(&mut self, offset: u64, bytes: u64, value: u8) -> Result<(), FarEndError> {
        self.check(offset, bytes)?;
        let page = [value; PAGE_SIZE];
        for done in (0..bytes).step_by(PAGE_SIZE) {
            let part = &page[..(bytes - done).min(PAGE_SIZE as u64) as usize];
            self.memory.write(offset + done, part).ok_or(Refusal::Memory)?;
        }
        self.report.bytes_filled += bytes;
        Ok(())
    }

    fn ring_doorbell(&self) -> Result<(), FarEndError> {
        if self.card.ring_doorbell() {
            return Ok(());
        }
        Err(FarEndError::CardBroken("it makes those wait who ring its doorbell".to_owned()))
    }

    /// Reads a register. What the card refuses is told.
    fn read(&mut self, offset: u64, bytes: u32) -> Result<Frame<Vec<u8>>, FarEndError> {
        let mut data = vec![0; width(bytes as usize)?];
        match self.card.read(offset, &mut data) {
            Ok(()) => Ok(Frame::Data { offset: 0, last: true, data }),
            Err(error @ TransportError::Gone { .. }) => Err(error.into()),
            Err(error) => {
                self.report.refused_by_card += 1;
                Ok(Frame::Failed { errno: errno_of(&error) })
            }
        }
    }

    /// Writes a register. What the card refuses is told.
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), FarEndError> {
        let mut value = [0; 8];
        value[..width(data.len())?].copy_from_slice(data);
        let value = u64::from_le_bytes(value);
        if offset == register::CONTROL {
            let value = value as u32;
            if value & register::CONTROL_RESET != 0 {
                (self.shadow, self.registers) = (None, RingRegisters::default());
                self.forget_launches();
            } else if value & register::CONTROL_ENABLE != 0 {
                let (memory, bus) = self.control.as_ref().ok_or(Refusal::Order)?;
                let shadow = Shadow::new(Arc::clone(memory), *bus, &self.registers);
                self.shadow = Some(shadow.ok_or(Refusal::Order)?);
                self.forget_launches();
            }
        } else if self.shadow.is_none() {
            self.registers.note(offset, value);
        }
        let written = self.card.write(offset, data);
        self.tell_refused(Kind::RegionWrite, offset, data.len() as u64, written)
    }

    /// There are none any more: nothing is read behind them.
    fn forget_launches(&mut self) {
        for tag in self.behind.clear() {
            self.out.push(tag, Frame::Failed { errno: errno(Errno::CANCELED) });
        }
    }

    /// Tells the program what the card has refused of what it posted.
    fn tell_refused(
        &mut self,
        kind: Kind,
        address: u64,
        bytes: u64,
        done: Result<(), TransportError>,
    ) -> Result<(), FarEndError> {
        match done {
            Ok(()) => Ok(()),
            Err(error @ TransportError::Gone { .. }) => Err(error.into()),
            Err(error) => {
                let (kind, errno) = (kind.number(), errno_of(&error));
                self.report.refused_by_card += 1;
                self.out.post(Frame::Refused { kind, errno, address, bytes });
                Ok(())
            }
        }
    }

    /// Gives the card memory for rings, at the bus address at which the program has its own.
    fn map_rings(&mut self, bus: u64, bytes: u64) -> Result<(), FarEndError> {
        let is_fit = bytes > 0 && bytes <= RINGS_BYTES_MAX && (bytes | bus) % PAGE_SIZE as u64 == 0;
        if !is_fit || self.control.is_some() || bus.checked_add(bytes).is_none() {
            return Err(Refusal::Order.into());
        }
        let memory = Arc::new(SharedMemory::new(bytes)?);
        let piece = DmaPiece { bus, bytes, address: memory.base(), file: memory.file(), offset: 0 };
        let mapped = self
            .card
            .map(&piece)
            .and_then(|()| self.card.interrupt_by(&[self.event.as_fd(); pci::VECTORS as usize]));
        if mapped.is_ok() {
            self.control = Some((memory, bus));
        }
        self.tell_refused(Kind::DmaMap, bus, bytes, mapped)
    }

    fn has_room(&self) -> bool {
        self.out.waiting(Class::Posted) < WAITING_MAX
    }

    /// Takes what the card has written to its rings.
    fn tell(&mut self) -> Result<(), FarEndError> {
        let Some(shadow) = &mut self.shadow else { return Ok(()) };
        shadow.awake();
        while self.out.waiting(Class::Posted) < WAITING_MAX {
            let broken = |error: CardBroken| FarEndError::CardBroken(error.to_string());
            let Some(news) = shadow.poll().map_err(broken)? else { break };
            self.empty_interrupts = 0;
            let out = &mut self.out;
            self.report.entries += news.runs.iter().map(|run| run.items.len() as u64).sum::<u64>();
            news.post(|frame| out.post(frame));
        }
        // Behind the completions.
        let reads = shadow.ended().into_iter().flat_map(|launch| self.behind.completed(launch));
        self.gets.extend(reads.map(|read| Get { read, done: 0 }));
        if shadow.has_made_room() {
            self.ring_doorbell()?;
        }
        Ok(())
    }

    /// Sends what was asked for of the card's memory, in order, as long as little is ahead: what else there
    /// is goes in front of what is not read yet.
    fn send_data(&mut self, link: &mut Endpoint) -> Result<(), FarEndError> {
        while let Some(Get { read, done }) = self.gets.front_mut() {
            let left = read.bytes - *done;
            let bytes = left.min(DATA_BYTES_MAX as u32);
            if link.may_send(Class::Reply, bytes as usize).is_err() {
                break;
            }
            let mut data = link.room(bytes as usize);
            let at = read.offset + u64::from(*done);
            self.memory.read(at, &mut data).ok_or(Refusal::Memory)?;
            let (tag, last) = (read.tag, bytes == left);
            let piece = Frame::Data { offset: *done, last, data };
            if link.send(tag, piece).is_err() {
                // The link is over, which is seen by whoever drives it.
                break;
            }
            *done += bytes;
            self.report.bytes_out += u64::from(bytes);
            if last {
                self.gets.pop_front();
            }
        }
        Ok(())
    }

    /// Looks why this was woken.
    fn look(&mut self) -> Result<(), FarEndError> {
        if self.card.is_gone() {
            return Err(FarEndError::CardGone);
        }
        // It does not block.
        if rustix::io::read(&self.event, &mut [0; 8]).is_ok() {
            self.empty_interrupts += 1;
            if self.empty_interrupts > EMPTY_INTERRUPTS_MAX {
                let what = "it raises interrupts without end".to_owned();
                return Err(FarEndError::CardBroken(what));
            }
        }
        Ok(())
    }
}

fn is_registers(region: u32) -> bool {
    region == pci::BAR_REGISTERS as u32
}

/// How wide a register is, if one is so wide.
fn width(bytes: usize) -> Result<usize, Refusal> {
    matches!(bytes, 4 | 8).then_some(bytes).ok_or(Refusal::Malformed)
}

fn errno_of(error: &TransportError) -> u32 {
    let errno = match error {
        TransportError::Refused { errno, .. } => *errno,
        TransportError::TimedOut { .. } => Errno::TIMEDOUT,
        TransportError::Gone { .. }
        | TransportError::TurnedAway
        | TransportError::NotServed { .. } => Errno::IO,
        TransportError::Unfit { .. } => Errno::INVAL,
    };
    self::errno(errno)
}

fn errno(errno: Errno) -> u32 {
    errno.raw_os_error() as u32
}
