//! A client engine on a stream, with calls that wait for their replies.
//!
//! Every wait has a limit, whatever the server sends meanwhile.

mod calls;
mod several;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Connection, Ready, Stream};
use crate::client::{Client, ClientEvent, Reply};
use crate::errno::Errno;
use crate::error::{ProtocolError, RequestError};
use crate::limits::Limits;
use crate::pending::RequestId;
use crate::version::{Capabilities, Negotiated};
use crate::wire::Command;

pub use several::OpenCall;

use several::Calls;

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

/// The client's memory as the server reaches it by messages, and what else the server may ask.
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

    /// A command of the server that the engine does not know. The reply is empty before, and has 4096
    /// bytes at most.
    ///
    /// # Errors
    ///
    /// What the server is told; ENOTSUP for a command that is not known here either.
    fn other(&mut self, command: Command, data: &[u8], reply: &mut Vec<u8>) -> Result<(), Errno> {
        let _ = (command, data, reply);
        Err(Errno::NOTSUP)
    }
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
/// Calls take `&mut self`; put it behind a mutex to share it between threads. Calls that are
/// [started](BlockingClient::start_read) and finished later can be open at the same time.
pub struct BlockingClient<S> {
    connection: S,
    client: Client,
    memory: Box<dyn DmaMemory + Send>,
    time_limit: Duration,
    calls: Calls,
}

/// A client on an AF_UNIX socket.
pub type UnixClient = BlockingClient<Connection>;

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
}

impl<S: Stream> BlockingClient<S> {
    /// Agrees on a version over a fresh connection.
    ///
    /// # Errors
    ///
    /// The server refused, or gave no answer in time.
    pub fn new(
        connection: S,
        limits: Limits,
        time_limit: Duration,
        memory: Box<dyn DmaMemory + Send>,
    ) -> Result<BlockingClient<S>, CallError> {
        let none = Capabilities::new();
        BlockingClient::with_capabilities(connection, limits, time_limit, memory, &none)
    }

    /// Agrees on a version over a fresh connection, with capabilities of the user's own.
    ///
    /// # Errors
    ///
    /// The server refused, or gave no answer in time.
    pub fn with_capabilities(
        mut connection: S,
        limits: Limits,
        time_limit: Duration,
        memory: Box<dyn DmaMemory + Send>,
        capabilities: &Capabilities,
    ) -> Result<BlockingClient<S>, CallError> {
        connection.set_time_limit(Some(time_limit))?;
        let mut engine = Client::new(limits);
        if !connection.carries_descriptors() {
            engine.without_descriptors();
        }
        let calls = Calls::new(limits.max_outstanding);
        let mut client = BlockingClient { connection, client: engine, memory, time_limit, calls };
        let request = client.client.negotiate_with(capabilities)?;
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

    /// The server's capabilities beyond those that the engine knows.
    #[must_use]
    pub fn peer_capabilities(&self) -> &Capabilities {
        self.client.peer_capabilities()
    }

    /// The stream, for instance to shut it down or to see who serves.
    #[must_use]
    pub fn connection(&self) -> &S {
        &self.connection
    }

    /// Answers what the server asks, for as long as `limit` while no call does: DMA messages, and
    /// commands of the users' own. Call it when the descriptor is readable. Returns when one read has
    /// been dealt with; false if nothing came.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn serve_dma(&mut self, limit: Duration) -> Result<bool, CallError> {
        if !self.client.has_work() {
            let wanted = Ready { readable: true, writable: false };
            if self.connection.wait(wanted, Some(Instant::now() + limit))?.is_none() {
                return Ok(false);
            }
            self.fill()?;
        }
        self.take_all()?;
        self.send_all(Instant::now() + self.time_limit)?;
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
        let deadline = Instant::now() + self.time_limit;
        let mut read = Some(read);
        let mut first = true;
        loop {
            let all_sent = self.flush()?;
            // The first read ends by the stream's own time limit, which saves a system call.
            if first && all_sent && !self.client.has_work() {
                self.fill()?;
            } else {
                self.wait_and_fill(all_sent, deadline)?;
            }
            first = false;
            let mut result = None;
            while result.is_none() {
                let taken = self.take(|id, reply| {
                    let read = if id == request { read.take() } else { None };
                    match read {
                        Some(read) => Ok(reply.map_err(CallError::Refused).and_then(read)),
                        None => Err(reply),
                    }
                })?;
                match taken {
                    Some(taken) => result = taken,
                    None => break,
                }
            }
            if let Some(result) = result {
                // What came with the reply: no descriptor tells of it any more.
                self.take_all()?;
                self.send_all(deadline)?;
                return result;
            }
        }
    }

    /// Waits until the server sends or, if there is more to send, reads; and reads if it sent. A server
    /// that sends without end, and never what is waited for, does not lengthen the wait.
    fn wait_and_fill(&mut self, all_sent: bool, deadline: Instant) -> Result<(), CallError> {
        if Instant::now() >= deadline {
            return Err(CallError::TimedOut(self.time_limit));
        }
        if self.client.has_work() {
            return Ok(());
        }
        let wanted = Ready { readable: self.client.wants_input(), writable: !all_sent };
        let ready = self.connection.wait(wanted, Some(deadline))?;
        if ready.is_none() {
            return Err(CallError::TimedOut(self.time_limit));
        }
        if ready.readable { self.fill() } else { Ok(()) }
    }

    /// Sends all that is queued. While the server does not read, what it sends is dealt with.
    fn send_all(&mut self, deadline: Instant) -> Result<(), CallError> {
        while !self.flush()? {
            self.wait_and_fill(false, deadline)?;
            self.take_all()?;
        }
        Ok(())
    }

    /// Deals with everything that came while no call waits: a reply belongs to a call that was started,
    /// or to one that gave up.
    fn take_all(&mut self) -> Result<(), CallError> {
        while self.take(|_, reply| Err::<(), _>(reply))?.is_some() {}
        Ok(())
    }

    /// Deals with one event: a request of the server is answered, a reply is given to `on_reply`. If
    /// that gives it back, it is kept for the call that was started with it. None if there is no event;
    /// what `on_reply` made of it if it took it.
    fn take<T>(
        &mut self,
        on_reply: impl for<'a> FnOnce(
            RequestId,
            Result<Reply<'a>, Errno>,
        ) -> Result<T, Result<Reply<'a>, Errno>>,
    ) -> Result<Option<Option<T>>, CallError> {
        let Some(event) = self.client.poll()? else { return Ok(None) };
        match event {
            ClientEvent::Reply { request, reply } => match on_reply(request, reply) {
                Ok(value) => return Ok(Some(Some(value))),
                Err(reply) => self.calls.keep(request, reply),
            },
            ClientEvent::DmaRead { token, address, .. } => {
                let memory = &mut self.memory;
                self.client.complete(token, |data| memory.read(address, data));
            }
            ClientEvent::DmaWrite { token, address, data } => {
                let result = self.memory.write(address, data);
                self.client.complete(token, |_| result);
            }
            ClientEvent::Other { token, command, data } => {
                let mut reply = Vec::new();
                let result = self.memory.other(command, data, &mut reply);
                self.client.complete_other(token, result.map(|()| reply.as_slice()));
            }
        }
        Ok(Some(None))
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

impl<S: AsFd> AsFd for BlockingClient<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// The engine matches replies to requests, so this is the server's nonsense.
fn wrong_reply() -> CallError {
    CallError::Refused(Errno::PROTO)
}
