//! A client engine on a connection, with calls that wait for their replies.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Connection, Ready};
use crate::client::{
    Client, ClientEvent, DeviceSummary, MapRequest, RegionInfo, RegionIoFds, Reply,
};
use crate::device::Irq;
use crate::errno::Errno;
use crate::error::{ProtocolError, RequestError};
use crate::irqs::IrqAction;
use crate::limits::Limits;
use crate::maps::DmaUnmap;
use crate::outbox::SharedFd;
use crate::pending::RequestId;
use crate::server::RegionAccess;
use crate::version::Negotiated;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server answered with an error. The connection is fine.
    #[error("the server refused: {0}")]
    Refused(Errno),
    /// The request could not be made. The connection is fine.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// No reply came in time. It is dropped if it comes later; the connection can still be used.
    #[error("the server gave no answer within {0:?}; it may hang, or raise the time limit")]
    TimedOut(Duration),
    /// Fewer bytes were read than asked for. The connection is fine.
    #[error("the server gave {got} of {wanted} bytes")]
    Short {
        /// Bytes asked for.
        wanted: usize,
        /// Bytes that came.
        got: usize,
    },
    /// The server closed the connection.
    #[error("the server closed the connection; connect again")]
    Closed,
    /// The socket failed.
    #[error("the connection to the server failed: {0}")]
    Io(#[from] io::Error),
    /// The server broke the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// The client's memory as the server reaches it by messages.
pub trait DmaMemory {
    /// The server reads.
    ///
    /// # Errors
    ///
    /// What the server is told, such as EFAULT for an address that is not shared.
    fn read(&mut self, address: u64, data: &mut [u8]) -> Result<(), Errno>;

    /// The server writes.
    ///
    /// # Errors
    ///
    /// What the server is told, such as EFAULT for an address that is not shared.
    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Errno>;
}

/// No memory: every DMA message is answered with EFAULT.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMemory;

impl DmaMemory for NoMemory {
    fn read(&mut self, _address: u64, _data: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::FAULT)
    }

    fn write(&mut self, _address: u64, _data: &[u8]) -> Result<(), Errno> {
        Err(Errno::FAULT)
    }
}

/// A client whose calls block until their reply is there, at most for the time limit. While they wait
/// they answer the server's DMA messages from the memory given.
///
/// Calls take `&mut self`; put it behind a mutex to share it between threads.
pub struct UnixClient {
    connection: Connection,
    client: Client,
    memory: Box<dyn DmaMemory + Send>,
    time_limit: Duration,
}

impl UnixClient {
    /// Connects and agrees on a version, with no memory for DMA messages.
    ///
    /// # Errors
    ///
    /// No server there, it refused, or it gave no answer in time.
    pub fn connect(path: impl AsRef<Path>, time_limit: Duration) -> Result<UnixClient, CallError> {
        let connection = Connection::connect(path)?;
        UnixClient::new(connection, Limits::default(), time_limit, Box::new(NoMemory))
    }

    /// Agrees on a version over a fresh connection.
    ///
    /// # Errors
    ///
    /// The server refused, or gave no answer in time.
    pub fn new(
        connection: Connection,
        limits: Limits,
        time_limit: Duration,
        memory: Box<dyn DmaMemory + Send>,
    ) -> Result<UnixClient, CallError> {
        connection.set_time_limit(Some(time_limit))?;
        let mut client = UnixClient { connection, client: Client::new(limits), memory, time_limit };
        let request = client.client.negotiate()?;
        client.wait(request, |_| Ok(()))?;
        Ok(client)
    }

    /// How long each call may wait from now on.
    ///
    /// # Errors
    ///
    /// Those of `setsockopt`.
    pub fn set_time_limit(&mut self, limit: Duration) -> io::Result<()> {
        self.time_limit = limit;
        self.connection.set_time_limit(Some(limit))
    }

    /// What was agreed.
    #[must_use]
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.client.negotiated()
    }

    /// The socket, for instance to shut it down or to see who serves.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// What the device has.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn device_info(&mut self) -> Result<DeviceSummary, CallError> {
        let request = self.client.device_info()?;
        self.wait(request, |reply| match reply {
            Reply::Device(summary) => Ok(summary),
            _ => Err(wrong_reply()),
        })
    }

    /// A region, with its sparse areas and the memory behind it.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn region_info(&mut self, index: u32) -> Result<RegionInfo, CallError> {
        // Room for one sparse area; a server that needs more says so.
        let region = self.ask_region(index, 64)?;
        if region.needed <= 64 {
            return Ok(region);
        }
        let needed = region.needed;
        self.ask_region(index, needed)
    }

    fn ask_region(&mut self, index: u32, room: u32) -> Result<RegionInfo, CallError> {
        let request = self.client.region_info(index, room)?;
        self.wait(request, |reply| match reply {
            Reply::Region(region) => Ok(region),
            _ => Err(wrong_reply()),
        })
    }

    /// The I/O descriptors of a region.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn region_io_fds(&mut self, index: u32) -> Result<RegionIoFds, CallError> {
        let first = self.ask_io_fds(index, 16)?;
        if first.needed <= 16 {
            return Ok(first);
        }
        self.ask_io_fds(index, first.needed)
    }

    fn ask_io_fds(&mut self, index: u32, room: u32) -> Result<RegionIoFds, CallError> {
        let request = self.client.region_io_fds(index, room)?;
        self.wait(request, |reply| match reply {
            Reply::IoFds(fds) => Ok(fds),
            _ => Err(wrong_reply()),
        })
    }

    /// An interrupt type.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn irq_info(&mut self, index: u32) -> Result<Irq, CallError> {
        let request = self.client.irq_info(index)?;
        self.wait(request, |reply| match reply {
            Reply::Irq(irq) => Ok(irq),
            _ => Err(wrong_reply()),
        })
    }

    /// Shares memory; with a descriptor if the server may map it.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn dma_map(
        &mut self,
        map: &MapRequest,
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<(), CallError> {
        let fd = fd.map(|fd| fd.try_clone_to_owned()).transpose()?;
        let request = self.client.dma_map(map, fd.map(Arc::new))?;
        self.wait_done(request)
    }

    /// Takes memory back. When this returns the server has let go of it.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn dma_unmap(&mut self, unmap: DmaUnmap) -> Result<(), CallError> {
        let request = self.client.dma_unmap(unmap)?;
        self.wait_done(request)
    }

    /// Masks, unmasks or raises interrupts now; see [`Client::irqs_now`].
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn irqs_now(
        &mut self,
        index: u32,
        start: u32,
        count: u32,
        action: IrqAction,
    ) -> Result<(), CallError> {
        let request = self.client.irqs_now(index, start, count, action)?;
        self.wait_done(request)
    }

    /// Masks, unmasks or raises some interrupts now; see [`Client::irqs_now_if`].
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn irqs_now_if(
        &mut self,
        index: u32,
        start: u32,
        which: &[u8],
        action: IrqAction,
    ) -> Result<(), CallError> {
        let request = self.client.irqs_now_if(index, start, which, action)?;
        self.wait_done(request)
    }

    /// Lets eventfds stand for an action, in as many messages as the server's limit asks for.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn irqs_assign(
        &mut self,
        index: u32,
        start: u32,
        eventfds: &[SharedFd],
        action: IrqAction,
    ) -> Result<(), CallError> {
        let negotiated = self.negotiated().ok_or(RequestError::NotReady)?;
        let most = (negotiated.peer_max_msg_fds as usize).max(1);
        let mut start = start;
        for some in eventfds.chunks(most) {
            let request = self.client.irqs_assign(index, start, some.to_vec(), action)?;
            self.wait_done(request)?;
            start = start.saturating_add(some.len() as u32);
        }
        Ok(())
    }

    /// Lets no eventfd stand for an action any more.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn irqs_unassign(
        &mut self,
        index: u32,
        start: u32,
        count: u32,
        action: IrqAction,
    ) -> Result<(), CallError> {
        let request = self.client.irqs_unassign(index, start, count, action)?;
        self.wait_done(request)
    }

    /// Reads a region: all of `data`, in one message.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn region_read(
        &mut self,
        region: u32,
        offset: u64,
        data: &mut [u8],
    ) -> Result<(), CallError> {
        let count = u32::try_from(data.len()).map_err(|_| self.too_large(data.len()))?;
        let request = self.client.region_read(RegionAccess { region, offset, count })?;
        self.wait(request, |reply| match reply {
            Reply::Data(bytes) if bytes.len() == data.len() => {
                data.copy_from_slice(bytes);
                Ok(())
            }
            Reply::Data(bytes) => Err(CallError::Short { wanted: data.len(), got: bytes.len() }),
            _ => Err(wrong_reply()),
        })
    }

    /// Writes a region in one message.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), CallError> {
        let request = self.client.region_write(region, offset, data)?;
        self.wait_done(request)
    }

    /// Writes a region and does not wait; the server's error is not heard of.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn region_write_posted(
        &mut self,
        region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), CallError> {
        self.client.region_write_posted(region, offset, data)?;
        self.send_all()
    }

    /// Does several small writes with one message: (region, offset, at most 8 bytes).
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn region_write_multi(&mut self, writes: &[(u32, u64, &[u8])]) -> Result<(), CallError> {
        let request = self.client.region_write_multi(writes)?;
        self.wait_done(request)
    }

    /// Resets the device.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn reset(&mut self) -> Result<(), CallError> {
        let request = self.client.reset()?;
        self.wait_done(request)
    }

    /// Answers the server's DMA messages for as long as `limit` while no call does. Call it when the
    /// descriptor is readable. Returns when one read has been dealt with; false if nothing came.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn serve_dma(&mut self, limit: Duration) -> Result<bool, CallError> {
        let wanted = Ready { readable: true, writable: false };
        if self.connection.wait(wanted, Some(Instant::now() + limit))?.is_none() {
            return Ok(false);
        }
        self.fill()?;
        self.take_all()?;
        self.send_all()?;
        Ok(true)
    }

    fn wait_done(&mut self, request: RequestId) -> Result<(), CallError> {
        self.wait(request, |reply| match reply {
            Reply::Done => Ok(()),
            _ => Err(wrong_reply()),
        })
    }

    /// Sends what is queued and waits for the reply to `request`.
    fn wait<T>(
        &mut self,
        request: RequestId,
        read: impl FnOnce(Reply<'_>) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let result = self.wait_until(request, read);
        if result.is_err() {
            self.client.forget(request);
        }
        result
    }

    fn wait_until<T>(
        &mut self,
        request: RequestId,
        read: impl FnOnce(Reply<'_>) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let mut read = Some(read);
        let mut deadline = None;
        loop {
            let all_sent = self.flush()?;
            match deadline {
                // The first read ends by the socket's own time limit, which saves a system call.
                None if all_sent => self.fill()?,
                Some(at) => self.wait_and_fill(all_sent, at)?,
                None => {}
            }
            deadline = deadline.or_else(|| Some(Instant::now() + self.time_limit));
            let mut result = None;
            while result.is_none() {
                let taken = self.take(|id, reply| {
                    let read = if id == request { read.take() } else { None };
                    read.map(|read| reply.map_err(CallError::Refused).and_then(read))
                })?;
                match taken {
                    Some(taken) => result = taken,
                    None => break,
                }
            }
            if let Some(result) = result {
                // Answers to DMA messages that came with the reply.
                self.send_all()?;
                return result;
            }
        }
    }

    /// Waits until the server sends or, if there is more to send, reads; and reads if it sent.
    fn wait_and_fill(&mut self, all_sent: bool, deadline: Instant) -> Result<(), CallError> {
        let wanted = Ready { readable: self.client.wants_input(), writable: !all_sent };
        let ready = self.connection.wait(wanted, Some(deadline))?;
        if ready.is_none() {
            return Err(CallError::TimedOut(self.time_limit));
        }
        if ready.readable { self.fill() } else { Ok(()) }
    }

    /// Sends all that is queued. While the server does not read, what it sends is dealt with.
    fn send_all(&mut self) -> Result<(), CallError> {
        let mut deadline = None;
        while !self.flush()? {
            let at = *deadline.get_or_insert_with(|| Instant::now() + self.time_limit);
            self.wait_and_fill(false, at)?;
            self.take_all()?;
        }
        Ok(())
    }

    /// Deals with everything that came while no call waits: a reply answers one that gave up.
    fn take_all(&mut self) -> Result<(), CallError> {
        while self.take(|_, _| ())?.is_some() {}
        Ok(())
    }

    /// Deals with one event: a DMA message is answered, a reply is given to `on_reply`. None if there
    /// is no event.
    fn take<T: Default>(
        &mut self,
        on_reply: impl FnOnce(RequestId, Result<Reply<'_>, Errno>) -> T,
    ) -> Result<Option<T>, CallError> {
        let Some(event) = self.client.poll()? else { return Ok(None) };
        match event {
            ClientEvent::Reply { request, reply } => Ok(Some(on_reply(request, reply))),
            ClientEvent::DmaRead { token, address, .. } => {
                let memory = &mut self.memory;
                self.client.complete(token, |data| memory.read(address, data));
                Ok(Some(T::default()))
            }
            ClientEvent::DmaWrite { token, address, data } => {
                let result = self.memory.write(address, data);
                self.client.complete(token, |_| result);
                Ok(Some(T::default()))
            }
        }
    }

    fn fill(&mut self) -> Result<(), CallError> {
        let mut fds = Vec::new();
        let received = if self.client.expects_fds() {
            self.connection.receive(self.client.space(), &mut fds)
        } else {
            self.connection.receive_bytes(self.client.space())
        };
        let count = match received {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(CallError::TimedOut(self.time_limit));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(error.into()),
        };
        if count == 0 {
            return Err(CallError::Closed);
        }
        Ok(self.client.received(count, fds)?)
    }

    /// Sends what is queued as far as the server reads; whether that was all.
    fn flush(&mut self) -> Result<bool, CallError> {
        while let Some(transmit) = self.client.transmit() {
            match self.connection.send(transmit) {
                Ok(count) => self.client.sent(count),
                Err(error) => {
                    return match error.kind() {
                        io::ErrorKind::WouldBlock => Ok(false),
                        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                            Err(CallError::Closed)
                        }
                        _ => Err(error.into()),
                    };
                }
            }
        }
        Ok(true)
    }

    fn too_large(&self, count: usize) -> CallError {
        let limit = self.negotiated().map_or(0, |negotiated| negotiated.max_data_xfer_size);
        CallError::Request(RequestError::TooLarge { count, limit })
    }
}

impl AsFd for UnixClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// The engine matches replies to requests, so this is the server's nonsense.
fn wrong_reply() -> CallError {
    CallError::Refused(Errno::PROTO)
}
