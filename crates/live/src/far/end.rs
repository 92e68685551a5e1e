//! The end of a link beside the card: a client of the card on behalf of a program elsewhere.
//!
//! One thread, which waits for the link, the card's interrupts and the card's end, and for nobody else:
//! what the program does not take is left with the card, which then waits itself.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use farside_card::interface::{pci, register};
use farside_linux::mapping::MemoryError;
use farside_linux::shared::SharedMemory;
use farside_types::PAGE_SIZE;
use farside_vfio_user::unix::Ready;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use thiserror::Error;

use super::boxes::{Bulk, Inbox, Outbox};
use super::rings::RingRegisters;
use super::shadow::{Refusal, Shadow};
use super::wire::{BULK_BYTES, Call, Message, VERSION};
use crate::ring_card::{CardStream, DmaPiece, Identity, Transport, TransportError, Watch};

/// What waits to be sent, at most, before more of the card's memory is read for it.
pub(crate) const BULK_WAITING_MAX: usize = 512 << 10;

/// The same before the program is listened to again.
const WAITING_MAX: usize = 2 << 20;

/// Reads of the card's memory that a program may ask for at a time.
pub(crate) const GETS_MAX: usize = 64;

/// Memory for rings and lists, at most.
const RINGS_BYTES_MAX: u64 = 16 << 20;

/// How soon completions are looked for that raise no interrupt. Usually the next that does brings them.
const LOOK_AFTER: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Interrupts in a row with which nothing came, at most.
const EMPTY_INTERRUPTS_MAX: u32 = 20_000;

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
    /// The link or the system failed.
    #[error("the link failed: {0}")]
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
    /// Bytes of it that were filled with zeros.
    pub bytes_zeroed: u64,
    /// Messages that were refused.
    pub refusals: u64,
}

/// A read of the card's memory that goes on.
#[derive(Clone, Copy, Debug)]
struct Get {
    id: u32,
    offset: u64,
    left: u64,
}

/// See the module.
pub struct FarEnd {
    stream: Box<dyn CardStream>,
    outbox: Outbox,
    card: Arc<dyn Transport>,
    /// The card's memory.
    memory: SharedMemory,
    /// Memory for the rings, and its bus address, once the program has asked for it.
    control: Option<(Arc<SharedMemory>, u64)>,
    registers: RingRegisters,
    shadow: Option<Shadow>,
    /// The card's interrupts.
    event: OwnedFd,
    empty_interrupts: u32,
    gets: VecDeque<Get>,
    report: FarEndReport,
}

impl std::fmt::Debug for FarEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FarEnd").field("report", &self.report).finish_non_exhaustive()
    }
}

impl FarEnd {
    /// An end between a link to a program and a card whose memory can be mapped, as
    /// [`connect`](crate::ring_card::connect) finds it.
    ///
    /// # Errors
    /// [`FarEndError`]: the card's memory, or a descriptor, cannot be had.
    pub fn new(
        stream: Box<dyn CardStream>,
        card: Arc<dyn Transport>,
        identity: &Identity,
    ) -> Result<FarEnd, FarEndError> {
        let bytes = u64::from(identity.frames) * PAGE_SIZE as u64;
        let (file, offset) = card.memory(bytes)?;
        let memory = SharedMemory::of_file(file, offset, bytes)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(FarEnd {
            stream,
            outbox: Outbox::default(),
            card,
            memory,
            control: None,
            registers: RingRegisters::default(),
            shadow: None,
            event,
            empty_interrupts: 0,
            gets: VecDeque::new(),
            report: FarEndReport::default(),
        })
    }

    /// What has gone through so far.
    pub fn report(&self) -> FarEndReport {
        self.report
    }

    /// Serves the program until it hangs up. When this returns nothing of the program reaches the card
    /// any more; the card itself goes on until this is dropped, and its client with it.
    ///
    /// # Errors
    /// [`FarEndError`]. The link is shut down.
    pub fn serve(&mut self) -> Result<(), FarEndError> {
        let ended = self.serve_until_it_ends();
        if let Err(FarEndError::Refused(refusal)) = &ended {
            self.report.refusals += 1;
            tracing::error!(%refusal, "a program is disconnected from its card");
        }
        self.card.stop();
        // It may have ended already.
        let _ = self.stream.shutdown();
        match ended {
            Err(FarEndError::Io(error)) if is_end(&error) => Ok(()),
            other => other,
        }
    }

    fn serve_until_it_ends(&mut self) -> Result<(), FarEndError> {
        let mut inbox = Inbox::default();
        loop {
            if self.listens() && !self.hear(&mut inbox)? {
                return Ok(());
            }
            self.tell()?;
            self.send_data()?;
            self.outbox.flush(&mut self.stream)?;
            if self.may_sleep() {
                self.sleep()?;
            }
        }
    }

    /// Whether there is room for answers.
    fn listens(&self) -> bool {
        self.outbox.len() < WAITING_MAX
    }

    /// Takes what has come from the program, if anything; `false` if it has hung up.
    fn hear(&mut self, inbox: &mut Inbox) -> Result<bool, FarEndError> {
        let wanted = Ready { readable: true, writable: false };
        if self.stream.wait(wanted, Some(Instant::now()))?.is_none() {
            return Ok(true);
        }
        let stream = &mut self.stream;
        match inbox.fill(|space| stream.receive_bytes(space)) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) => return Err(error.into()),
        }
        self.carry_out(inbox).map(|()| true)
    }

    fn carry_out(&mut self, inbox: &mut Inbox) -> Result<(), FarEndError> {
        while let Some(message) = inbox.next().map_err(|_| Refusal::Malformed)? {
            match message {
                Message::Call(id, call) => self.answer(id, call)?,
                Message::Entries(entries) => {
                    let commands = entries.items.len() as u64;
                    let shadow = self.shadow.as_mut().ok_or(Refusal::Order)?;
                    if shadow.arrived(entries)? {
                        self.ring_doorbell()?;
                    }
                    self.report.commands += commands;
                }
                Message::Put { offset, data } => {
                    self.memory.write(offset, data).ok_or(Refusal::Memory)?;
                    self.report.bytes_in += data.len() as u64;
                }
                Message::Zero { offset, bytes } => self.zero(offset, bytes)?,
                Message::Get { id, offset, bytes } => {
                    let left = u64::from(bytes);
                    self.check(offset, left)?;
                    if self.gets.len() >= GETS_MAX {
                        return Err(Refusal::Order.into());
                    }
                    self.gets.push_back(Get { id, offset, left });
                }
                Message::Answer { .. } | Message::Data { .. } => {
                    return Err(Refusal::Malformed.into());
                }
            }
        }
        Ok(())
    }

    /// Whether bytes lie in the card's memory.
    fn check(&self, offset: u64, bytes: u64) -> Result<(), Refusal> {
        let end = offset.checked_add(bytes);
        let fits = bytes > 0 && end.is_some_and(|end| end <= self.memory.bytes());
        fits.then_some(()).ok_or(Refusal::Memory)
    }

    fn zero(&mut self, offset: u64, bytes: u64) -> Result<(), FarEndError> {
        const ZEROS: [u8; PAGE_SIZE] = [0; PAGE_SIZE];
        self.check(offset, bytes)?;
        for done in (0..bytes).step_by(PAGE_SIZE) {
            let part = &ZEROS[..(bytes - done).min(PAGE_SIZE as u64) as usize];
            self.memory.write(offset + done, part).ok_or(Refusal::Memory)?;
        }
        self.report.bytes_zeroed += bytes;
        Ok(())
    }

    fn ring_doorbell(&self) -> Result<(), FarEndError> {
        if self.card.ring_doorbell() {
            return Ok(());
        }
        Err(FarEndError::CardBroken("it makes those wait who ring its doorbell".to_owned()))
    }

    /// Answers what the program asks. What the card refuses is told; what the program may not ask ends
    /// its connection.
    fn answer(&mut self, id: u32, call: Call) -> Result<(), FarEndError> {
        let result = match call {
            Call::Hello(_) => Ok(VERSION),
            Call::Read(offset, wide) => {
                let mut value = [0; 8];
                let into = value.get_mut(..wide.into()).ok_or(Refusal::Malformed)?;
                self.card.read(offset, into).map(|()| u64::from_le_bytes(value))
            }
            Call::Write(offset, wide, value) => self.write(offset, wide, value)?.map(|()| 0),
            Call::MapRings(bus, bytes) => self.map_rings(bus, bytes)?.map(|()| 0),
        };
        let (errno, value) = match result {
            Ok(value) => (0, value),
            Err(error @ TransportError::Gone { .. }) => return Err(error.into()),
            Err(error) => (errno_of(&error).raw_os_error() as u32, 0),
        };
        self.outbox.push(&Message::Answer { id, errno, value });
        Ok(())
    }

    /// Writes a register. The end of a write is inside, since the program's errors are outside.
    fn write(
        &mut self,
        offset: u64,
        wide: u8,
        value: u64,
    ) -> Result<Result<(), TransportError>, FarEndError> {
        if offset == register::CONTROL {
            let value = value as u32;
            if value & register::CONTROL_RESET != 0 {
                (self.shadow, self.registers) = (None, RingRegisters::default());
            } else if value & register::CONTROL_ENABLE != 0 {
                let (memory, bus) = self.control.as_ref().ok_or(Refusal::Order)?;
                let shadow = Shadow::new(Arc::clone(memory), *bus, &self.registers);
                self.shadow = Some(shadow.ok_or(Refusal::Order)?);
            }
        } else if self.shadow.is_none() {
            self.registers.note(offset, value);
        }
        let bytes = value.to_le_bytes();
        let from = bytes.get(..wide.into()).ok_or(Refusal::Malformed)?;
        Ok(self.card.write(offset, from))
    }

    /// Gives the card memory for rings, at the bus address at which the program has its own.
    fn map_rings(
        &mut self,
        bus: u64,
        bytes: u64,
    ) -> Result<Result<(), TransportError>, FarEndError> {
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
        Ok(mapped)
    }

    /// Sends what the card has written to its rings.
    fn tell(&mut self) -> Result<(), FarEndError> {
        let Some(shadow) = &mut self.shadow else { return Ok(()) };
        shadow.awake();
        while self.outbox.len() < WAITING_MAX {
            let broken =
                |error: super::shadow::CardBroken| FarEndError::CardBroken(error.to_string());
            let Some(entries) = shadow.poll().map_err(broken)? else { break };
            self.empty_interrupts = 0;
            self.report.entries += entries.items.len() as u64;
            self.outbox.push(&Message::Entries(entries));
        }
        if shadow.has_made_room() {
            self.ring_doorbell()?;
        }
        Ok(())
    }

    /// Sends what was asked for of the card's memory, in order, as long as little waits: entries go
    /// in front of what is not read yet.
    fn send_data(&mut self) -> Result<(), FarEndError> {
        while self.outbox.len() < BULK_WAITING_MAX {
            let Some(get) = self.gets.front_mut() else { break };
            let bytes = get.left.min(BULK_BYTES as u64);
            let (id, offset, memory) = (get.id, get.offset, &self.memory);
            let read = |into: &mut [u8]| memory.read(offset, into);
            self.outbox
                .push_bulk(&Bulk::Data { id }, bytes as usize, read)
                .ok_or(Refusal::Memory)?;
            get.offset += bytes;
            get.left -= bytes;
            self.report.bytes_out += bytes;
            if get.left == 0 {
                self.gets.pop_front();
            }
        }
        Ok(())
    }

    /// Whether there is nothing to do until something happens.
    fn may_sleep(&self) -> bool {
        let is_full = self.outbox.len() >= BULK_WAITING_MAX;
        (self.gets.is_empty() || is_full)
            && (self.shadow.as_ref().is_none_or(Shadow::may_sleep) || !self.listens())
    }

    fn sleep(&mut self) -> Result<(), FarEndError> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.listens());
        flags.set(PollFlags::OUT, self.outbox.len() > 0);
        let mut polled =
            vec![PollFd::new(&self.stream, flags), PollFd::new(&self.event, PollFlags::IN)];
        let card = self.card.watch();
        match &card {
            Some(Watch::Connection(fd)) => polled.push(PollFd::new(fd, PollFlags::RDHUP)),
            Some(Watch::Event(fd)) => polled.push(PollFd::new(fd, PollFlags::IN)),
            None => {}
        }
        let quiet = self.shadow.as_ref().is_some_and(Shadow::expects_quiet_news);
        match poll(&mut polled, quiet.then_some(&LOOK_AFTER)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let interrupted = polled[1].revents().contains(PollFlags::IN);
        let card_says = polled.get(2).is_some_and(|polled| !polled.revents().is_empty());
        if card_says && self.card.is_gone() {
            return Err(FarEndError::CardGone);
        }
        if interrupted {
            // It does not block.
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
            self.empty_interrupts += 1;
            if self.empty_interrupts > EMPTY_INTERRUPTS_MAX {
                let what = "it raises interrupts without end".to_owned();
                return Err(FarEndError::CardBroken(what));
            }
        }
        Ok(())
    }
}

/// Whether this is how a program goes.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

fn errno_of(error: &TransportError) -> Errno {
    match error {
        TransportError::Refused { errno, .. } => *errno,
        TransportError::TimedOut { .. } => Errno::TIMEDOUT,
        TransportError::Gone { .. } | TransportError::TurnedAway => Errno::IO,
        TransportError::Unfit { .. } => Errno::INVAL,
    }
}
