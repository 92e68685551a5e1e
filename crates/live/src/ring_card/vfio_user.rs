//! The way to a card that is a process: vfio-user over a UNIX socket.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farside_card::interface::{pci, register};
use farside_vfio_user::client::MapRequest;
use farside_vfio_user::device::irq;
use farside_vfio_user::unix::{CallError, Connection, NoMemory, UnixClient};
use farside_vfio_user::{IrqAction, Limits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::ReadWriteFlags;

use super::calls::{CALL_LIMIT, Calls, ConnectError, failure};
use super::transport::{DmaPiece, Transport, TransportError, Watch};
use super::{descriptors, hangs_up};
use crate::lease::{Handed, WantedBack, WhyGone, connect_here};

/// A connection to a function of a card's process.
pub(crate) struct VfioUser {
    calls: Calls<Connection>,
    /// The socket once more, to be watched without the lock.
    socket: OwnedFd,
    /// Wakes the card; written to by every command that finds it asleep.
    doorbell: OwnedFd,
    /// Beginnings and ends of rings: odd while a thread rings.
    rings: AtomicU64,
    /// What [`Transport::free_doorbell`] saw of it last.
    seen: AtomicU64,
    /// It has ended a ring that waited.
    was_freed: AtomicBool,
    /// What is known of the lease of a card that is borrowed.
    lease: Option<(WhyGone, WantedBack)>,
}

impl std::fmt::Debug for VfioUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VfioUser")
    }
}

impl VfioUser {
    /// Connects to the socket of a function.
    pub(crate) fn connect(path: &Path) -> Result<VfioUser, ConnectError> {
        VfioUser::on(socket(path)?)
    }

    /// Connects to a card of this machine that is borrowed.
    pub(crate) fn borrow(folder: &Path) -> Result<VfioUser, ConnectError> {
        let Handed { stream, why_gone, wanted_back } = connect_here(folder, socket)?;
        let mut card = VfioUser::on(stream)?;
        card.lease = Some((why_gone, wanted_back));
        Ok(card)
    }

    fn on(stream: UnixStream) -> Result<VfioUser, ConnectError> {
        let (connection, memory) = (Connection::new(stream), Box::new(NoMemory));
        let client = UnixClient::new(connection, Limits::default(), CALL_LIMIT, memory)?;
        VfioUser::over(client).map_err(ConnectError::Failed)
    }

    fn over(mut client: UnixClient) -> Result<VfioUser, TransportError> {
        let what = "asking for the doorbell";
        let parts = client
            .region_io_fds(pci::BAR_REGISTERS as u32)
            .map_err(|error| failure(what, &error))?;
        let mut fds: Vec<Option<OwnedFd>> = parts.fds.into_iter().map(Some).collect();
        let given = parts
            .parts
            .iter()
            .find(|part| part.offset == register::DOORBELL)
            .and_then(|part| fds.get_mut(part.fd_index as usize)?.take())
            .ok_or(TransportError::Unfit { what: "the card gives no doorbell".to_owned() })?;
        let doorbell = descriptors::doorbell(given)?;
        let socket = client
            .connection()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| failure(what, &CallError::Io(error)))?;
        let calls = Calls::new(client);
        let (rings, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        let was_freed = AtomicBool::new(false);
        Ok(VfioUser { calls, socket, doorbell, rings, seen, was_freed, lease: None })
    }

    /// Whether a ring would wait now. A card that lies may have made its doorbell one that waits when it
    /// is full; full means that it has been rung often enough. Asking for the flag costs half of what
    /// asking for room does, and honest cards leave it set.
    fn would_wait(&self) -> bool {
        let flags = rustix::fs::fcntl_getfl(&self.doorbell);
        if flags.is_ok_and(|flags| flags.contains(OFlags::NONBLOCK)) {
            return false;
        }
        let mut polled = [PollFd::new(&self.doorbell, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(poll(&mut polled, Some(&now)), Ok(1..))
    }
}

/// Connects within [`CALL_LIMIT`]: a server that accepts nobody would otherwise be waited for without
/// end.
pub(super) fn socket(path: &Path) -> std::io::Result<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
    let address = SocketAddrUnix::new(path)?;
    let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(CALL_LIMIT))?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket.into())
}

impl Transport for VfioUser {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), TransportError> {
        self.calls.read_register(offset, into)
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), TransportError> {
        self.calls.write_register(offset, from)
    }

    fn ring_doorbell(&self) -> bool {
        if self.would_wait() {
            return true;
        }
        self.rings.fetch_add(1, Ordering::SeqCst);
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        self.rings.fetch_add(1, Ordering::SeqCst);
        !self.was_freed.swap(false, Ordering::SeqCst)
    }

    fn free_doorbell(&self) {
        let now = self.rings.load(Ordering::SeqCst);
        let before = self.seen.swap(now, Ordering::SeqCst);
        if now % 2 == 0 || now != before {
            return;
        }
        self.was_freed.store(true, Ordering::SeqCst);
        // It was filled between the look at it and the ring. Whoever empties it lets the ring end;
        // this read waits for nothing, whatever the descriptor's flags say.
        let mut count = [0; 8];
        let mut into = [std::io::IoSliceMut::new(&mut count)];
        let _ = rustix::io::preadv2(&self.doorbell, &mut into, u64::MAX, ReadWriteFlags::NOWAIT);
    }

    fn limit(&self, end: Option<Instant>) {
        self.calls.limit(end);
    }

    fn map(&self, piece: &DmaPiece<'_>) -> Result<(), TransportError> {
        let request = MapRequest {
            address: piece.bus,
            size: piece.bytes,
            readable: true,
            writable: true,
            offset: piece.offset,
        };
        self.calls.call("sharing memory with the card", |client| {
            client.dma_map(&request, Some(piece.file))
        })
    }

    fn unmap(&self, bus: u64, bytes: u64) -> Result<(), TransportError> {
        self.calls.unmap(bus, bytes)
    }

    fn memory(&self, bytes: u64) -> Result<(OwnedFd, u64), TransportError> {
        let info = self
            .calls
            .call("asking for the card's memory", |c| c.region_info(pci::BAR_MEMORY as u32))?;
        let unfit = || TransportError::Unfit { what: "the card's memory has no file".to_owned() };
        let (file, offset) = (info.fd.ok_or_else(unfit)?, info.offset);
        descriptors::check_memory(&file, offset, bytes)?;
        Ok((file, offset))
    }

    fn interrupt_by(&self, events: &[BorrowedFd<'_>]) -> Result<(), TransportError> {
        let what = "setting up interrupts";
        let events: Result<Vec<_>, std::io::Error> =
            events.iter().map(|event| event.try_clone_to_owned().map(Arc::new)).collect();
        let events = events.map_err(|error| failure(what, &CallError::Io(error)))?;
        self.calls
            .call(what, |client| client.irqs_assign(irq::MSIX, 0, &events, IrqAction::Trigger))
    }

    fn watch(&self) -> Option<Watch<'_>> {
        Some(Watch::Connection(self.socket.as_fd()))
    }

    fn is_gone(&self) -> bool {
        hangs_up(&self.socket)
    }

    fn wanted_back(&self) -> Option<Duration> {
        self.lease.as_ref().and_then(|(_, wanted_back)| wanted_back())
    }

    fn why_gone(&self) -> Option<String> {
        self.lease.as_ref().map(|(why_gone, _)| why_gone(None))
    }

    // The function is stopped by its server when the connection ends.
    fn stop(&self) {}
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use farside_softcard::serve::{CardConfig, CardServer, socket_name};

    use super::*;

    /// How long something may take that takes no time.
    const SOON: Duration = Duration::from_secs(5);

    /// A card whose doorbell is full, and made to wait for whoever empties it: nobody.
    fn full() -> (CardServer, Arc<VfioUser>) {
        let name = format!("fb{}-{:?}", std::process::id(), std::thread::current().id());
        let folder = std::env::temp_dir().join(name.replace(['(', ')'], ""));
        let server = CardServer::start(CardConfig { functions: 1, ..CardConfig::new(&folder) });
        let server = server.expect("a card is served");
        let card = VfioUser::connect(&folder.join(socket_name(0))).expect("it can be used");
        rustix::io::write(&card.doorbell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        rustix::io::ioctl_fionbio(&card.doorbell, false).unwrap();
        (server, Arc::new(card))
    }

    /// Whether `body` ends in time, beside this.
    fn ends(body: impl FnOnce() + Send + 'static) -> std::sync::mpsc::Receiver<()> {
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            body();
            let _ = done.send(());
        });
        is_done
    }

    #[test]
    fn ringing_a_doorbell_that_is_full_waits_for_nobody() {
        let (server, card) = full();
        let rings = Arc::clone(&card);
        let rung = ends(move || assert!(rings.ring_doorbell()));
        assert!(rung.recv_timeout(SOON).is_ok(), "it waits for the card");
        let _ = std::fs::remove_dir_all(&server.config().folder);
    }

    #[test]
    fn a_ring_that_waits_all_the_same_is_freed_and_says_that_the_card_lies() {
        let (server, card) = full();
        // It was filled between the look at it and the ring.
        let rings = Arc::clone(&card);
        let rung = ends(move || {
            rings.rings.fetch_add(1, Ordering::SeqCst);
            let _ = rustix::io::write(&rings.doorbell, &1u64.to_ne_bytes());
            rings.rings.fetch_add(1, Ordering::SeqCst);
        });
        // The second look that finds the same ring frees it, and not a ring that has just begun.
        let end = Instant::now() + SOON;
        while rung.recv_timeout(Duration::from_millis(10)).is_err() {
            assert!(Instant::now() < end, "it waits for the card");
            card.free_doorbell();
        }
        rustix::io::ioctl_fionbio(&card.doorbell, true).unwrap();
        assert!(!card.ring_doorbell(), "nobody is told that the card made it wait");
        assert!(card.ring_doorbell(), "it is told once");
        let _ = std::fs::remove_dir_all(&server.config().folder);
    }
}
