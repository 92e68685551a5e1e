//! The way to a card over vfio-user when nothing but messages goes between: slow, and right.
//!
//! For a stream that carries no descriptors, such as TCP, or a card whose memory cannot be mapped. The
//! card's DMA comes as messages, which are answered from this side's memory ([`super::answers`]); its
//! memory and its doorbell are written by messages; and so it tells of interrupts, which the protocol
//! leaves to descriptors alone: both ends agree on a message for them in VERSION.
//!
//! A thread of the connection's own answers the card and rings its doorbell, so that nobody waits for
//! the card who has the driver's lock. Whoever calls meanwhile answers in its place.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farside_card::interface::by_messages::INTERRUPTS_CAPABILITY;
use farside_card::interface::{pci, register};
use farside_fabric::InsertError;
use farside_vfio_user::client::MapRequest;
use farside_vfio_user::unix::{BlockingClient, CallError, Plain, Stream};
use farside_vfio_user::{Capabilities, Limits};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};

use super::answers::{Answers, Reach};
use super::calls::{CALL_LIMIT, Calls, ConnectError, failure};
use super::hangs_up;
use super::transport::{DmaPiece, Transport, TransportError, Watch};
use super::vfio_user::socket;
use crate::far::PeerPlace;
use farside_linux::shared::SharedMemory;

/// A stream of bytes to a card, over a connected socket, whose descriptor it gives: to be waited for,
/// and to be shut down when the card is given up.
pub trait CardStream: Stream + AsFd + Send {}

impl<S: Stream + AsFd + Send> CardStream for S {}

/// Makes the streams by which a card is reached.
pub trait Dial: Send + Sync {
    /// A stream to a function of the card that nobody uses, each time another. A card that was lost is
    /// dialled again and again until it is back. It has to be over within a few seconds.
    ///
    /// # Errors
    /// There is none. Nobody listens (`NotFound`, `ConnectionRefused`, `ConnectionReset`) may pass;
    /// other errors count as lasting while a space is opened.
    fn dial(&self) -> io::Result<Box<dyn CardStream>>;

    /// How soon whoever has lent the card wants it back, if they do: it is given back in order by then.
    /// Asked about once a second, of [`CardPlace::Link`](super::CardPlace::Link) only.
    fn wanted_back(&self) -> Option<Duration> {
        None
    }
}

impl<F: Fn() -> io::Result<Box<dyn CardStream>> + Send + Sync> Dial for F {
    fn dial(&self) -> io::Result<Box<dyn CardStream>> {
        self()
    }
}

/// A card that is reached by streams of whatever kind, as in [`CardPlace`](super::CardPlace).
#[derive(Clone)]
pub struct Dialled {
    name: Arc<str>,
    dial: Arc<dyn Dial>,
    end: Option<PeerPlace>,
}

impl Dialled {
    /// A card by its name, for people, and the way to it.
    pub fn new(name: &str, dial: impl Dial + 'static) -> Dialled {
        Dialled { name: name.into(), dial: Arc::new(dial), end: None }
    }

    /// The same, to whose lender's end those of other lenders may make direct links.
    #[must_use]
    pub fn with_end(self, end: PeerPlace) -> Dialled {
        Dialled { end: Some(end), ..self }
    }

    /// The lender's end.
    pub(super) fn end(&self) -> Option<&PeerPlace> {
        self.end.as_ref()
    }

    /// As [`Dial::wanted_back`].
    pub(super) fn wanted_back(&self) -> Option<Duration> {
        self.dial.wanted_back()
    }

    /// Another stream.
    pub(super) fn stream(&self) -> io::Result<Box<dyn CardStream>> {
        self.dial.dial()
    }
}

impl fmt::Debug for Dialled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dialled").field(&self.name).finish()
    }
}

impl fmt::Display for Dialled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl PartialEq for Dialled {
    fn eq(&self, other: &Dialled) -> bool {
        Arc::ptr_eq(&self.dial, &other.dial)
    }
}

impl Eq for Dialled {}

/// A connection to a function that shares no memory.
pub(crate) struct ByMessages {
    line: Arc<Line>,
    answering: Option<JoinHandle<()>>,
    /// The process that has the thread: not a child made by fork.
    pid: rustix::process::Pid,
}

/// What the thread that answers shares with those that call.
struct Line {
    calls: Calls<Box<dyn CardStream>>,
    reach: Arc<Reach>,
    /// The socket once more, to be watched and shut down without a lock.
    socket: OwnedFd,
    /// Has the thread ring the card's doorbell.
    bell: OwnedFd,
    closing: AtomicBool,
}

impl fmt::Debug for ByMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByMessages")
    }
}

impl ByMessages {
    /// Connects to the socket of a function, of which only the bytes are used.
    pub(crate) fn connect(path: &Path) -> Result<ByMessages, ConnectError> {
        ByMessages::over(Box::new(Plain::new(socket(path)?)))
    }

    /// Connects by whatever makes the stream.
    pub(crate) fn dial(place: &Dialled) -> Result<ByMessages, ConnectError> {
        ByMessages::over(place.stream()?)
    }

    fn over(stream: Box<dyn CardStream>) -> Result<ByMessages, ConnectError> {
        // Descriptors may be left.
        let socket = stream.as_fd().try_clone_to_owned()?;
        let reach = Arc::new(Reach::default());
        let memory = Box::new(Answers(Arc::clone(&reach)));
        let mut wish = Capabilities::new();
        wish.insert(INTERRUPTS_CAPABILITY.to_owned(), true.into());
        let limits = Limits::default();
        let client = BlockingClient::with_capabilities(stream, limits, CALL_LIMIT, memory, &wish)?;
        if client.peer_capabilities().get(INTERRUPTS_CAPABILITY) != Some(&true.into()) {
            let what = "the card does not tell of interrupts by messages, so it needs a socket that \
                        carries descriptors; serve it with this version of Farside";
            return Err(ConnectError::Failed(TransportError::Unfit { what: what.to_owned() }));
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = eventfd(0, flags).map_err(io::Error::from)?;
        let calls = Calls::new(client);
        let line = Arc::new(Line { calls, reach, socket, bell, closing: AtomicBool::new(false) });
        let answering = {
            let line = Arc::clone(&line);
            let builder = std::thread::Builder::new().name("farside-answer".into());
            builder.spawn(move || line.answer())?
        };
        let pid = rustix::process::getpid();
        Ok(ByMessages { line, answering: Some(answering), pid })
    }

    /// Bytes of one message.
    fn most(&self) -> usize {
        let client = self.line.calls.client();
        let negotiated = client.negotiated().copied();
        negotiated.map_or(1, |negotiated| negotiated.max_data_xfer_size as usize).max(1)
    }
}

impl Line {
    fn call<T>(
        &self,
        what: &'static str,
        call: impl FnOnce(&mut BlockingClient<Box<dyn CardStream>>) -> Result<T, CallError>,
    ) -> Result<T, TransportError> {
        self.calls.call(what, |client| {
            let result = call(client);
            if result.as_ref().is_err_and(is_final) {
                self.hang_up();
            }
            result
        })
    }

    /// The body of the thread: answers the card and rings its doorbell until the connection ends. Then
    /// it is shut down, and whoever watches it sees that.
    fn answer(&self) {
        farside_linux::signals::block_for_whole_thread();
        while !self.closing.load(Ordering::SeqCst) {
            let mut polled =
                [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.bell, PollFlags::IN)];
            // What comes may be a reply, which the call that waits for it takes: then nothing is left
            // when that is over.
            let _ = rustix::event::poll(&mut polled, None);
            let rings = rustix::io::read(&self.bell, &mut [0; 8]).is_ok();
            let mut client = self.calls.client();
            let rung = if rings && !self.closing.load(Ordering::SeqCst) {
                let one = 1u32.to_le_bytes();
                client.region_write_posted(pci::BAR_REGISTERS as u32, register::DOORBELL, &one)
            } else {
                Ok(())
            };
            if let Err(error) = rung.and_then(|()| client.serve_dma(Duration::ZERO)) {
                tracing::debug!(%error, "a connection to a card has ended");
                return self.hang_up();
            }
        }
    }

    /// Ends the connection.
    fn hang_up(&self) {
        // It may have ended already.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

/// Whether nothing can come of the connection any more.
fn is_final(error: &CallError) -> bool {
    matches!(error, CallError::Closed | CallError::Io(_) | CallError::Protocol(_))
}

impl Transport for ByMessages {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), TransportError> {
        self.line.call("reading a register", |client| {
            client.region_read(pci::BAR_REGISTERS as u32, offset, into)
        })
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), TransportError> {
        self.line.call("writing a register", |client| {
            client.region_write(pci::BAR_REGISTERS as u32, offset, from)
        })
    }

    fn ring_doorbell(&self) -> bool {
        // Full means that it is going to be rung.
        let _ = rustix::io::write(&self.line.bell, &1u64.to_ne_bytes());
        true
    }

    fn limit(&self, end: Option<Instant>) {
        self.line.calls.limit(end);
    }

    fn map(&self, piece: &DmaPiece<'_>) -> Result<(), TransportError> {
        let what = "sharing memory with the card";
        let unfit = |error: String| TransportError::Unfit { what: format!("{what}: {error}") };
        let file = piece.file.try_clone_to_owned().map_err(|error| unfit(error.to_string()))?;
        let memory = SharedMemory::of_file(file, piece.offset, piece.bytes)
            .map_err(|error| unfit(error.to_string()))?;
        // There before the card may ask for it.
        self.line.reach.insert(piece.bus, memory).map_err(|error| match error {
            InsertError::Closed => TransportError::Gone { what },
            other => unfit(other.to_string()),
        })?;
        let request = MapRequest {
            address: piece.bus,
            size: piece.bytes,
            readable: true,
            writable: true,
            offset: 0,
        };
        let mapped = self.line.call(what, |client| client.dma_map(&request, None));
        if mapped.is_err() {
            self.line.reach.remove(piece.bus, piece.bytes);
        }
        mapped
    }

    fn unmap(&self, bus: u64, bytes: u64) -> Result<(), TransportError> {
        let unmapped = self.line.calls.unmap(bus, bytes);
        // Whatever the card says: it reaches nothing there any more.
        self.line.reach.remove(bus, bytes);
        unmapped
    }

    fn is_by_messages(&self) -> bool {
        true
    }

    fn memory(&self, _bytes: u64) -> Result<(OwnedFd, u64), TransportError> {
        let what = "the card's memory is reached by messages only and cannot be mapped".to_owned();
        Err(TransportError::Unfit { what })
    }

    fn read_memory(&self, offset: u64, into: &mut [u8]) -> Result<(), TransportError> {
        let most = self.most();
        for (at, part) in (offset..).step_by(most).zip(into.chunks_mut(most)) {
            self.line.call("reading the card's memory", |client| {
                client.region_read(pci::BAR_MEMORY as u32, at, part)
            })?;
        }
        Ok(())
    }

    fn write_memory(&self, offset: u64, from: &[u8]) -> Result<(), TransportError> {
        let most = self.most();
        for (at, part) in (offset..).step_by(most).zip(from.chunks(most)) {
            self.line.call("writing the card's memory", |client| {
                client.region_write(pci::BAR_MEMORY as u32, at, part)
            })?;
        }
        Ok(())
    }

    fn interrupt_by(&self, events: &[BorrowedFd<'_>]) -> Result<(), TransportError> {
        let own: io::Result<Vec<OwnedFd>> =
            events.iter().map(|event| event.try_clone_to_owned()).collect();
        let own = own.map_err(|error| failure("setting up interrupts", &CallError::Io(error)))?;
        self.line.reach.signal_by(own);
        Ok(())
    }

    fn watch(&self) -> Option<Watch<'_>> {
        Some(Watch::Connection(self.line.socket.as_fd()))
    }

    fn is_gone(&self) -> bool {
        hangs_up(&self.line.socket)
    }

    /// From here on nothing of the card is answered, so it reads and writes nothing.
    fn stop(&self) {
        self.line.closing.store(true, Ordering::SeqCst);
        self.line.reach.end();
        self.line.hang_up();
    }
}

impl Drop for ByMessages {
    fn drop(&mut self) {
        if rustix::process::getpid() != self.pid {
            // The connection is the parent's, and the thread does not exist here.
            return std::mem::forget(self.answering.take());
        }
        self.stop();
        // The thread may be on its way to sleep.
        self.ring_doorbell();
        if let Some(thread) = self.answering.take() {
            let _ = thread.join();
        }
    }
}
