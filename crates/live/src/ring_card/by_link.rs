//! The way to a card at the other end of a link, beside which a [`FarEnd`](crate::far::FarEnd) is.
//!
//! The driver's rings lie in this program's memory as ever. A thread of the connection's own takes what
//! the driver publishes and sends it, puts what arrives into the rings, and moves pages
//! ([`super::link_worker`]); nobody who has the driver's lock waits for it. The card reaches no memory of
//! the program's, and nothing of the other end does: pages are read and written here.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farside_card::interface::{pci, register};
use farside_fabric::InsertError;
use farside_link::frame::{DATA_BYTES_MAX, MapRights, READ_BYTES_MAX};
use farside_link::{Config, Frame, Lease};
use farside_linux::shared::SharedMemory;

use super::calls::ConnectError;
use super::link_fetch::Neighbour;
use super::link_shared::Shared;
use super::link_worker;
use super::messages::Dialled;
use super::transport::{
    DmaPiece, LaunchNews, MoveOrder, Moved, PageMover, Transport, TransportError, Watch,
};
use crate::far::{
    DIRECT_LINKS, DialLine, Line, NoLine, PeerAdmission, PeerPlace, PeerWay, READS_BEHIND,
};
use crate::lease::{self, NotReached, WantedBack, WhyGone};

/// A link to an end beside a card.
pub struct ByLink {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread: not a child made by fork.
    pid: rustix::process::Pid,
    /// Says why the link is over, where more is known than the link says.
    why_gone: Option<WhyGone>,
    /// Says how soon the card is wanted back, if anybody can.
    recall: Option<WantedBack>,
    /// The lender's end, where others may find it.
    place: Option<PeerPlace>,
}

impl fmt::Debug for ByLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByLink")
    }
}

impl ByLink {
    /// Connects by whatever makes the stream.
    pub(crate) fn dial(place: &Dialled) -> Result<ByLink, ConnectError> {
        let first = Line::new(place.stream()?)?;
        let again = place.clone();
        let dial = move || again.stream().and_then(Line::new).map_err(passes);
        let mut link =
            ByLink::over(&place.to_string(), Config::new(Lease::none()), first, Arc::new(dial))?;
        link.place = place.end().cloned();
        let place = place.clone();
        link.recall = Some(Box::new(move || place.wanted_back()));
        Ok(link)
    }

    /// Connects to a card that is borrowed.
    pub(crate) fn borrow(folder: &Path) -> Result<ByLink, ConnectError> {
        let borrowed = lease::connect(folder)?;
        let lease::Borrowed { name, link: config, place, stream, why_gone, wanted_back } = borrowed;
        let again = folder.to_owned();
        let dial = move || {
            let borrowed = lease::connect(&again).map_err(|not| match not {
                NotReached::Over(why) => NoLine::Never(why),
                NotReached::Absent(error) => NoLine::Later(error),
                NotReached::Busy => NoLine::Later(io::ErrorKind::ResourceBusy.into()),
            })?;
            Ok(Line::new(borrowed.stream)?)
        };
        let first = Line::new(stream)?;
        let mut link = ByLink::over(&name, config, first, Arc::new(dial))?;
        link.why_gone = Some(why_gone);
        link.recall = Some(wanted_back);
        link.place = place;
        Ok(link)
    }

    /// Whether its lender's end may have direct links to others.
    pub(crate) fn may_have_direct_links(&self) -> bool {
        self.place.is_some() && self.shared.capabilities() & DIRECT_LINKS != 0
    }

    /// Has the lender's end of this card make a direct link to that of another, whose memory is in this window
    /// of this one's bus from here on. `number` is this pair's. It may take seconds. `failed` is called each
    /// time that something did not come by it.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn link_to(
        &self,
        from: &ByLink,
        number: u32,
        window: Range<u64>,
        failed: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<(), TransportError> {
        let what = "making a direct link between two cards";
        let unfit = || TransportError::Unfit { what: format!("{what}: an end cannot have one") };
        let (own, other) =
            (self.place.as_ref().ok_or_else(unfit)?, from.place.as_ref().ok_or_else(unfit)?);
        let session = link_worker::session();
        let admission = PeerAdmission { session, certificate: own.certificate.clone() };
        let way = PeerWay { session, place: other.clone() };
        let json = |error: serde_json::Error| TransportError::Unfit { what: error.to_string() };
        let data = serde_json::to_vec(&admission).map_err(json)?;
        from.post(what, Frame::PeerAdmit { peer: number, data })?;
        from.shared.ask(what, Frame::Barrier)?;
        let data = serde_json::to_vec(&way).map_err(json)?;
        self.post(what, Frame::PeerReach { peer: number, data })?;
        self.shared.ask_within(DIRECT_LIMIT, what, Frame::PeerReady { peer: number })?;
        let link = Arc::clone(&from.shared);
        self.shared.has_neighbour(Neighbour { number, window, link, failed });
        Ok(())
    }

    fn over(
        name: &str,
        config: Config,
        first: Line,
        dial: DialLine,
    ) -> Result<ByLink, ConnectError> {
        let shared = Arc::new(Shared::new()?);
        let with_thread = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("farside-link".into());
        let thread = builder.spawn(move || link_worker::run(&with_thread, config, first, dial))?;
        let pid = rustix::process::getpid();
        let link =
            ByLink { shared, thread: Some(thread), pid, recall: None, why_gone: None, place: None };
        match link.shared.ask("agreeing with the other end of the link", Frame::Barrier) {
            Ok(_) => Ok(link),
            Err(error) => Err(link.not_reached(name, error)),
        }
    }

    /// Why there is no card at the other end.
    fn not_reached(&self, name: &str, error: TransportError) -> ConnectError {
        ConnectError::Failed(match self.shared.why_over() {
            None => error,
            Some(ended) if ended.is_for_good => TransportError::Unfit { what: ended.why },
            Some(ended) => {
                let closed = "the connection was closed before anybody answered; who serves it has \
                              just ended, or its lease has";
                let why = if self.shared.was_up() { ended.why } else { closed.to_owned() };
                TransportError::NotServed { by: name.to_owned(), why }
            }
        })
    }

    fn post(&self, what: &'static str, frame: Frame<Vec<u8>>) -> Result<(), TransportError> {
        self.shared.post(what, frame)
    }
}

/// Whether a stream that could not be made may be made later.
fn passes(error: io::Error) -> NoLine {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound};
    match error.kind() {
        NotFound | ConnectionRefused | ConnectionReset => NoLine::Later(error),
        _ => NoLine::Never(error.to_string()),
    }
}

/// The region of a card's registers.
const REGISTERS: u32 = pci::BAR_REGISTERS as u32;

/// How long two lenders' ends may take to agree on a direct link.
const DIRECT_LIMIT: Duration = Duration::from_secs(15);

/// Bytes of the card's memory that are sent before it is waited until they have arrived.
const WRITE_BYTES: usize = 1 << 20;

fn shared(piece: &DmaPiece<'_>) -> Result<SharedMemory, TransportError> {
    let unfit = |error: String| TransportError::Unfit { what: format!("sharing memory: {error}") };
    let file = piece.file.try_clone_to_owned().map_err(|error| unfit(error.to_string()))?;
    let memory = SharedMemory::of_file(file, piece.offset, piece.bytes);
    memory.map_err(|error| unfit(error.to_string()))
}

impl Transport for ByLink {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), TransportError> {
        let what = "reading a register";
        let bytes = into.len() as u32;
        let read = Frame::RegionRead { region: REGISTERS, offset, bytes };
        let value = self.shared.ask(what, read)?;
        if value.len() != into.len() {
            return Err(TransportError::Unfit { what: format!("{what}: no value came") });
        }
        into.copy_from_slice(&value);
        Ok(())
    }

    /// Posted, as on PCIe: in front of whatever is read later. What the card refuses ends the link.
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), TransportError> {
        let mut bytes = [0; 8];
        bytes[..from.len().min(8)].copy_from_slice(&from[..from.len().min(8)]);
        let value = u64::from_le_bytes(bytes);
        if offset == register::CONTROL {
            // There before the card may write to the rings.
            self.shared.control_is_written(value as u32)?;
        } else {
            self.shared.register_is_written(offset, value);
        }
        let write = Frame::RegionWrite { region: REGISTERS, offset, data: from.to_vec() };
        self.post("writing a register", write)
    }

    fn ring_doorbell(&self) -> bool {
        self.shared.ring();
        true
    }

    fn limit(&self, end: Option<Instant>) {
        self.shared.limit(end);
    }

    /// Nothing of it goes over the link: pages are moved from and to it here.
    fn map(&self, piece: &DmaPiece<'_>) -> Result<(), TransportError> {
        let memory = shared(piece)?;
        self.shared.reach().insert(piece.bus, memory).map_err(|error| match error {
            InsertError::Closed => TransportError::Gone { what: "sharing memory" },
            other => TransportError::Unfit { what: format!("sharing memory: {other}") },
        })
    }

    fn map_rings(&self, piece: &DmaPiece<'_>) -> Result<(), TransportError> {
        self.shared.has_rings(Arc::new(shared(piece)?), piece.bus);
        let rights = MapRights { read: true, write: true };
        let map = Frame::DmaMap { address: piece.bus, bytes: piece.bytes, rights };
        self.post("setting up rings", map)
    }

    fn mover(&self) -> Option<&dyn PageMover> {
        Some(self)
    }

    fn unmap(&self, bus: u64, bytes: u64) -> Result<(), TransportError> {
        self.shared.reach().remove(bus, bytes);
        Ok(())
    }

    fn is_by_messages(&self) -> bool {
        true
    }

    fn as_link(&self) -> Option<&ByLink> {
        Some(self)
    }

    fn memory(&self, _bytes: u64) -> Result<(OwnedFd, u64), TransportError> {
        let what = "the card's memory is at the other end of a link and cannot be mapped";
        Err(TransportError::Unfit { what: what.to_owned() })
    }

    fn read_memory(&self, offset: u64, into: &mut [u8]) -> Result<(), TransportError> {
        let what = "reading the card's memory";
        let most = READ_BYTES_MAX as usize;
        for (offset, part) in (offset..).step_by(most).zip(into.chunks_mut(most)) {
            let read = Frame::MemoryRead { offset, bytes: part.len() as u32 };
            let read = self.shared.ask(what, read)?;
            if read.len() != part.len() {
                return Err(TransportError::Unfit { what: format!("{what}: cut off") });
            }
            part.copy_from_slice(&read);
        }
        Ok(())
    }

    fn write_memory(&self, offset: u64, from: &[u8]) -> Result<(), TransportError> {
        let what = "writing the card's memory";
        self.shared.launch(LaunchNews::Begins);
        let pieces = |offset, bytes: &[u8]| -> Result<(), TransportError> {
            let offsets = (offset..).step_by(DATA_BYTES_MAX);
            for (offset, data) in offsets.zip(bytes.chunks(DATA_BYTES_MAX)) {
                self.post(what, Frame::MemoryWrite { offset, data: data.to_vec() })?;
            }
            Ok(())
        };
        for (offset, part) in (offset..).step_by(WRITE_BYTES).zip(from.chunks(WRITE_BYTES)) {
            pieces(offset, part)?;
            // The answer comes from behind the bytes.
            self.shared.ask(what, Frame::Barrier)?;
        }
        Ok(())
    }

    fn interrupt_by(&self, events: &[BorrowedFd<'_>]) -> Result<(), TransportError> {
        let own: io::Result<Vec<OwnedFd>> =
            events.iter().map(|event| event.try_clone_to_owned()).collect();
        let own = own.map_err(|error| TransportError::Unfit {
            what: format!("setting up interrupts: {error}"),
        })?;
        self.shared.reach().signal_by(own);
        Ok(())
    }

    fn wanted_back(&self) -> Option<Duration> {
        self.recall.as_ref().and_then(|recall| recall())
    }

    fn watch(&self) -> Option<Watch<'_>> {
        Some(Watch::Event(self.shared.watched()))
    }

    fn is_gone(&self) -> bool {
        self.shared.why_over().is_some()
    }

    fn why_gone(&self) -> Option<String> {
        let link = self.shared.why_over().map(|ended| ended.why);
        self.why_gone.as_ref().map(|why| why(link.as_deref())).or(link)
    }

    /// From here on no memory of the program's is read or written.
    fn stop(&self) {
        self.shared.end();
    }
}

impl PageMover for ByLink {
    fn start(&self, order: MoveOrder) {
        self.shared.start(order);
    }

    fn launch(&self, news: LaunchNews) {
        if self.shared.capabilities() & READS_BEHIND != 0 {
            self.shared.launch(news);
        }
    }

    fn moved(&self) -> Vec<Moved> {
        self.shared.moved()
    }

    fn has_moved(&self) -> bool {
        self.shared.has_moved()
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
