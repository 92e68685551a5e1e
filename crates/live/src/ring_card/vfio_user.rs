//! The way to a card that is a process: vfio-user over a UNIX socket.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_card::interface::{pci, register};
use farside_vfio_user::client::MapRequest;
use farside_vfio_user::device::irq;
use farside_vfio_user::unix::{CallError, Connection, NoMemory, UnixClient};
use farside_vfio_user::{IrqAction, Limits};

use super::calls::{CALL_LIMIT, Calls, ConnectError, failure};
use super::doorbell::Doorbell;
use super::transport::{DmaPiece, Transport, TransportError, Watch};
use super::{descriptors, hangs_up};
use crate::lease::{Handed, WantedBack, WhyGone, connect_here};

/// A connection to a function of a card's process.
pub(crate) struct VfioUser {
    calls: Calls<Connection>,
    /// The socket once more, to be watched without the lock.
    socket: OwnedFd,
    /// Wakes the card; written to by every command that finds it asleep.
    doorbell: Doorbell,
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
        let doorbell = Doorbell::new(descriptors::doorbell(given)?);
        let socket = client
            .connection()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| failure(what, &CallError::Io(error)))?;
        let calls = Calls::new(client);
        Ok(VfioUser { calls, socket, doorbell, lease: None })
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
        self.doorbell.ring()
    }

    fn free_doorbell(&self) {
        self.doorbell.free();
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
