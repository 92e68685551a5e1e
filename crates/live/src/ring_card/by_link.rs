//! The way to a card at the other end of a link, beside which a [`FarEnd`](crate::far::FarEnd) is.
//!
//! The driver's rings lie in this program's memory as ever. A thread of the connection's own takes what
//! the driver publishes and sends it, puts what arrives into the rings, and moves pages
//! ([`super::link_worker`]); nobody who has the driver's lock waits for it. The card reaches no memory of
//! the program's, and nothing of the other end does: pages are read and written here.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::calls::{ConnectError, errno_of};
use super::hangs_up;
use super::link_line::{Answer, Ask, Line};
use super::link_worker::Worker;
use super::messages::{CardStream, Dialled};
use super::transport::{DmaPiece, MoveOrder, Moved, PageMover, Transport, TransportError, Watch};
use crate::far::{BULK_BYTES, Call, VERSION};
use crate::lease::{self, WantedBack, WhyGone};
use farside_card::interface::register;
use farside_fabric::InsertError;
use farside_linux::shared::SharedMemory;
use farside_vfio_user::unix::Plain;

/// A connection to an end beside a card.
pub(crate) struct ByLink {
    line: Arc<Line>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread: not a child made by fork.
    pid: rustix::process::Pid,
    /// Says why the connection has ended, if anybody can.
    why_gone: Option<WhyGone>,
    /// Says how soon the card is wanted back, if anybody can.
    recall: Option<WantedBack>,
}

impl fmt::Debug for ByLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByLink")
    }
}

impl ByLink {
    /// Connects by whatever makes the stream.
    pub(crate) fn dial(place: &Dialled) -> Result<ByLink, ConnectError> {
        let mut link = ByLink::over(place.stream()?)?;
        let place = place.clone();
        link.recall = Some(Box::new(move || place.wanted_back()));
        Ok(link)
    }

    /// Connects to a card that is borrowed.
    pub(crate) fn borrow(folder: &Path) -> Result<ByLink, ConnectError> {
        let lease::Borrowed { stream, why_gone, wanted_back } = lease::connect(folder)?;
        let mut link = ByLink::over(Box::new(Plain::new(stream)))?;
        link.why_gone = Some(why_gone);
        link.recall = Some(wanted_back);
        Ok(link)
    }

    fn over(stream: Box<dyn CardStream>) -> Result<ByLink, ConnectError> {
        let line = Arc::new(Line::new(stream.as_fd())?);
        let worker = Worker::new(Arc::clone(&line), stream);
        let builder = std::thread::Builder::new().name("farside-link".into());
        let thread = builder.spawn(move || worker.run())?;
        let pid = rustix::process::getpid();
        let link = ByLink { line, thread: Some(thread), pid, recall: None, why_gone: None };
        match link.call("agreeing on a version", Call::Hello(VERSION)) {
            Ok(VERSION) => Ok(link),
            Ok(other) => {
                let what = format!(
                    "the end beside the card speaks version {other} of the link's messages, this \
                     program {VERSION}; use versions of Farside that go together"
                );
                Err(ConnectError::Failed(TransportError::Unfit { what }))
            }
            Err(TransportError::Gone { .. }) => {
                Err(ConnectError::Failed(TransportError::TurnedAway))
            }
            Err(error) => Err(ConnectError::Failed(error)),
        }
    }

    /// Asks the other end, and waits for its answer.
    fn call(&self, what: &'static str, call: Call) -> Result<u64, TransportError> {
        match self.line.ask(what, |id| Ask::Call(id, call))? {
            Answer::Value(0, value) => Ok(value),
            Answer::Value(errno, _) => {
                Err(TransportError::Refused { what, errno: errno_of(errno) })
            }
            Answer::Bytes(_) => Err(TransportError::Unfit { what: format!("{what}: no value") }),
        }
    }
}

fn shared(piece: &DmaPiece<'_>) -> Result<SharedMemory, TransportError> {
    let unfit = |error: String| TransportError::Unfit { what: format!("sharing memory: {error}") };
    let file = piece.file.try_clone_to_owned().map_err(|error| unfit(error.to_string()))?;
    let memory = SharedMemory::of_file(file, piece.offset, piece.bytes);
    memory.map_err(|error| unfit(error.to_string()))
}

impl Transport for ByLink {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), TransportError> {
        let value = self.call("reading a register", Call::Read(offset, into.len() as u8))?;
        let bytes = value.to_le_bytes();
        let read = bytes.get(..into.len()).ok_or_else(|| {
            let what = "registers are 4 or 8 bytes wide".to_owned();
            TransportError::Unfit { what }
        })?;
        into.copy_from_slice(read);
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), TransportError> {
        let mut bytes = [0; 8];
        bytes[..from.len().min(8)].copy_from_slice(&from[..from.len().min(8)]);
        let value = u64::from_le_bytes(bytes);
        if offset == register::CONTROL {
            // There before the card may write to the rings.
            self.line.control_is_written(value as u32)?;
        } else {
            self.line.register_is_written(offset, value);
        }
        let call = Call::Write(offset, from.len() as u8, value);
        self.call("writing a register", call).map(drop)
    }

    fn ring_doorbell(&self) -> bool {
        self.line.ring();
        true
    }

    fn limit(&self, end: Option<Instant>) {
        self.line.limit(end);
    }

    /// Nothing of it goes over the link: pages are moved from and to it here.
    fn map(&self, piece: &DmaPiece<'_>) -> Result<(), TransportError> {
        let memory = shared(piece)?;
        self.line.reach().insert(piece.bus, memory).map_err(|error| match error {
            InsertError::Closed => TransportError::Gone { what: "sharing memory" },
            other => TransportError::Unfit { what: format!("sharing memory: {other}") },
        })
    }

    fn map_rings(&self, piece: &DmaPiece<'_>) -> Result<(), TransportError> {
        self.line.has_rings(Arc::new(shared(piece)?), piece.bus);
        self.call("setting up rings", Call::MapRings(piece.bus, piece.bytes)).map(drop)
    }

    fn mover(&self) -> Option<&dyn PageMover> {
        Some(self)
    }

    fn unmap(&self, bus: u64, bytes: u64) -> Result<(), TransportError> {
        self.line.reach().remove(bus, bytes);
        Ok(())
    }

    fn is_by_messages(&self) -> bool {
        true
    }

    fn memory(&self, _bytes: u64) -> Result<(OwnedFd, u64), TransportError> {
        let what = "the card's memory is at the other end of a link and cannot be mapped";
        Err(TransportError::Unfit { what: what.to_owned() })
    }

    fn read_memory(&self, offset: u64, into: &mut [u8]) -> Result<(), TransportError> {
        let what = "reading the card's memory";
        for (at, part) in (offset..).step_by(BULK_BYTES).zip(into.chunks_mut(BULK_BYTES)) {
            let bytes = part.len() as u32;
            match self.line.ask(what, |id| Ask::Read(id, at, bytes))? {
                Answer::Bytes(read) if read.len() == part.len() => part.copy_from_slice(&read),
                _ => return Err(TransportError::Unfit { what: format!("{what}: cut off") }),
            }
        }
        Ok(())
    }

    fn write_memory(&self, offset: u64, from: &[u8]) -> Result<(), TransportError> {
        let what = "writing the card's memory";
        for (at, part) in (offset..).step_by(BULK_BYTES).zip(from.chunks(BULK_BYTES)) {
            // The answer comes from behind the bytes.
            self.line.ask(what, |id| Ask::Write(id, at, part.to_vec()))?;
        }
        Ok(())
    }

    fn interrupt_by(&self, events: &[BorrowedFd<'_>]) -> Result<(), TransportError> {
        let own: io::Result<Vec<OwnedFd>> =
            events.iter().map(|event| event.try_clone_to_owned()).collect();
        let own = own.map_err(|error| TransportError::Unfit {
            what: format!("setting up interrupts: {error}"),
        })?;
        self.line.reach().signal_by(own);
        Ok(())
    }

    fn wanted_back(&self) -> Option<Duration> {
        self.recall.as_ref().and_then(|recall| recall())
    }

    fn watch(&self) -> Option<Watch<'_>> {
        Some(Watch::Connection(self.line.socket()))
    }

    fn is_gone(&self) -> bool {
        hangs_up(self.line.socket_fd())
    }

    fn why_gone(&self) -> Option<String> {
        self.why_gone.as_ref().map(|why| why())
    }

    /// From here on no memory of the program's is read or written.
    fn stop(&self) {
        self.line.end();
    }
}

impl PageMover for ByLink {
    fn start(&self, order: MoveOrder) {
        self.line.start(order);
    }

    fn moved(&self) -> Vec<Moved> {
        self.line.moved()
    }

    fn has_moved(&self) -> bool {
        self.line.has_moved()
    }
}

impl Drop for ByLink {
    fn drop(&mut self) {
        if rustix::process::getpid() != self.pid {
            // The connection is the parent's, and the thread does not exist here.
            return std::mem::forget(self.thread.take());
        }
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
