//! The way to a card that is a process: vfio-user over a UNIX socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_card::interface::{pci, register};
use farside_vfio_user::client::MapRequest;
use farside_vfio_user::device::irq;
use farside_vfio_user::unix::{CallError, UnixClient};
use farside_vfio_user::{DmaUnmap, Errno as WireErrno, IrqAction};
use rustix::io::Errno;

use super::hangs_up;
use super::transport::{DmaPiece, Transport, TransportError, Watch};
use farside_linux::lock::lock;

/// How long a message may take. Messages are rare: at the beginning, at the end, and when memories
/// change.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(2);

/// A connection to a function of a card's process.
pub(crate) struct VfioUser {
    client: Mutex<UnixClient>,
    /// The socket once more, to be watched without the lock.
    socket: OwnedFd,
    /// Wakes the card; written to by every command that finds it asleep.
    doorbell: OwnedFd,
}

impl std::fmt::Debug for VfioUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VfioUser")
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// Another program uses the function, or the card is at work to clean up after one.
    Busy,
    /// Nobody listens there.
    Absent(io::Error),
    /// The server is there and something else is wrong.
    Failed(TransportError),
}

impl VfioUser {
    /// Connects to the socket of a function.
    pub(crate) fn connect(path: &Path) -> Result<VfioUser, ConnectError> {
        let client = UnixClient::connect(path, CALL_LIMIT).map_err(|error| match error {
            CallError::Refused(WireErrno::BUSY) => ConnectError::Busy,
            CallError::Io(error) if is_absent(&error) => ConnectError::Absent(error),
            other => ConnectError::Failed(failure("connecting", &other)),
        })?;
        VfioUser::over(client).map_err(ConnectError::Failed)
    }

    fn over(mut client: UnixClient) -> Result<VfioUser, TransportError> {
        let what = "asking for the doorbell";
        let parts = client
            .region_io_fds(pci::BAR_REGISTERS as u32)
            .map_err(|error| failure(what, &error))?;
        let mut fds: Vec<Option<OwnedFd>> = parts.fds.into_iter().map(Some).collect();
        let doorbell = parts
            .parts
            .iter()
            .find(|part| part.offset == register::DOORBELL)
            .and_then(|part| fds.get_mut(part.fd_index as usize)?.take())
            .ok_or(TransportError::Unfit { what: "the card gives no doorbell".to_owned() })?;
        let socket = client
            .connection()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| failure(what, &CallError::Io(error)))?;
        Ok(VfioUser { client: Mutex::new(client), socket, doorbell })
    }

    fn call<T>(
        &self,
        what: &'static str,
        call: impl FnOnce(&mut UnixClient) -> Result<T, CallError>,
    ) -> Result<T, TransportError> {
        call(&mut lock(&self.client)).map_err(|error| failure(what, &error))
    }
}

fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof)
}

pub(super) fn failure(what: &'static str, error: &CallError) -> TransportError {
    match error {
        CallError::Refused(errno) => {
            let errno = Errno::from_raw_os_error(errno.code() as i32);
            TransportError::Refused { what, errno }
        }
        CallError::TimedOut(_) => TransportError::TimedOut { what },
        CallError::Closed | CallError::Io(_) => TransportError::Gone { what },
        other => TransportError::Unfit { what: format!("{what} failed: {other}") },
    }
}

impl Transport for VfioUser {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), TransportError> {
        self.call("reading a register", |client| {
            client.region_read(pci::BAR_REGISTERS as u32, offset, into)
        })
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), TransportError> {
        self.call("writing a register", |client| {
            client.region_write(pci::BAR_REGISTERS as u32, offset, from)
        })
    }

    fn ring_doorbell(&self) {
        // Full means that it has been rung often enough.
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
    }

    fn map(&self, piece: &DmaPiece<'_>) -> Result<(), TransportError> {
        let request = MapRequest {
            address: piece.bus,
            size: piece.bytes,
            readable: true,
            writable: true,
            offset: piece.offset,
        };
        self.call("sharing memory with the card", |client| {
            client.dma_map(&request, Some(piece.file))
        })
    }

    fn unmap(&self, bus: u64, bytes: u64) -> Result<(), TransportError> {
        let range = DmaUnmap::Range { address: bus, size: bytes };
        self.call("taking memory back from the card", |client| client.dma_unmap(range))
    }

    fn memory(&self) -> Result<(OwnedFd, u64), TransportError> {
        let info =
            self.call("asking for the card's memory", |c| c.region_info(pci::BAR_MEMORY as u32))?;
        let unfit = || TransportError::Unfit { what: "the card's memory has no file".to_owned() };
        let offset = info.offset;
        Ok((info.fd.ok_or_else(unfit)?, offset))
    }

    fn interrupt_by(&self, events: &[BorrowedFd<'_>]) -> Result<(), TransportError> {
        let what = "setting up interrupts";
        let events: Result<Vec<_>, io::Error> =
            events.iter().map(|event| event.try_clone_to_owned().map(Arc::new)).collect();
        let events = events.map_err(|error| failure(what, &CallError::Io(error)))?;
        self.call(what, |client| client.irqs_assign(irq::MSIX, 0, &events, IrqAction::Trigger))
    }

    fn watch(&self) -> Option<Watch<'_>> {
        Some(Watch::Connection(self.socket.as_fd()))
    }

    fn is_gone(&self) -> bool {
        hangs_up(&self.socket)
    }

    // The function is stopped by its server when the connection ends.
    fn stop(&self) {}
}
