//! A connected socket: bytes and descriptors, both ways.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno as SystemError;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, send, sendmsg, sockopt,
};
use rustix::time::Timespec;

use super::Stream;
use crate::outbox::{SharedFd, Transmit};

/// What the kernel passes with one message at most.
const SCM_MAX_FD: usize = 253;
/// A closed connection is an error and never a signal; a send never waits.
const SEND_FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);
const RECEIVE_SPACE: usize = rustix::cmsg_space!(ScmRights(SCM_MAX_FD));

/// One end of an AF_UNIX stream socket, close-on-exec.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
}

/// The process at the other end, as it was when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id.
    pub pid: u32,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// What can be done on a connection without blocking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// There is something to read, or the end.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
}

impl Ready {
    /// Neither.
    #[must_use]
    pub fn is_none(self) -> bool {
        !self.readable && !self.writable
    }
}

impl Connection {
    /// Connects to a listening socket.
    ///
    /// # Errors
    ///
    /// Those of `connect`.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Connection> {
        UnixStream::connect(path).map(Connection::new)
    }

    /// A connection over a connected socket.
    #[must_use]
    pub fn new(stream: UnixStream) -> Connection {
        Connection { stream }
    }

    /// Two ends of a new connection.
    ///
    /// # Errors
    ///
    /// Those of `socketpair`.
    pub fn pair() -> io::Result<(Connection, Connection)> {
        let (a, b) = UnixStream::pair()?;
        Ok((Connection::new(a), Connection::new(b)))
    }

    /// Reads once into `space`: how many bytes, 0 at the end of the stream. Descriptors are appended
    /// to `fds`, close-on-exec.
    ///
    /// # Errors
    ///
    /// `WouldBlock` after the time limit, or at once on a non-blocking socket. `InvalidData` if
    /// descriptors were lost because this process may open no more. Others of `recvmsg`.
    pub fn receive(&self, space: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
        let mut control = [MaybeUninit::uninit(); RECEIVE_SPACE];
        let mut control = RecvAncillaryBuffer::new(&mut control);
        let mut slices = [IoSliceMut::new(space)];
        let received = loop {
            match recvmsg(&self.stream, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(SystemError::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(received) => break received,
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                fds.extend(passed);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            let text =
                "descriptors of a message were lost; raise the limit of open files (ulimit -n)";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(received.bytes)
    }

    /// Reads once into `space`, for when no descriptors are due: the kernel closes any that come. A
    /// little faster than [`receive`](Connection::receive).
    ///
    /// # Errors
    ///
    /// As for [`receive`](Connection::receive).
    pub fn receive_bytes(&self, space: &mut [u8]) -> io::Result<usize> {
        receive_once(self.stream.as_fd(), space)
    }

    /// Sends as much as the socket takes now: how many bytes. The descriptors go with the first of
    /// them. Never blocks: a side that blocks in a send while the other does so too would never read.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the socket takes nothing now; wait with [`wait`](Connection::wait). Others of
    /// `sendmsg`. A closed connection is EPIPE and never a signal.
    pub fn send(&self, transmit: Transmit<'_>) -> io::Result<usize> {
        if transmit.fds.is_empty() {
            return send_some(self.stream.as_fd(), transmit.bytes);
        }
        loop {
            match self.send_with_fds(transmit)? {
                Err(SystemError::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    fn send_with_fds(&self, transmit: Transmit<'_>) -> io::Result<Result<usize, SystemError>> {
        let fds = borrowed(transmit.fds)?;
        let mut space = [MaybeUninit::uninit(); RECEIVE_SPACE];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(too_many(transmit.fds.len()));
        }
        let slices = [IoSlice::new(transmit.bytes)];
        Ok(sendmsg(&self.stream, &slices, &mut control, SEND_FLAGS))
    }

    /// Waits until what is asked for is possible, or the other end closed (then both are).
    ///
    /// # Errors
    ///
    /// Those of `poll`.
    pub fn wait(&self, wanted: Ready, deadline: Option<Instant>) -> io::Result<Ready> {
        wait_for(self.stream.as_fd(), wanted, deadline)
    }

    /// How long a blocking read may take, and how long a [`Session`](super::Session) may wait for the
    /// other side to read; none is for ever.
    ///
    /// # Errors
    ///
    /// Those of `setsockopt`.
    pub fn set_time_limit(&self, limit: Option<Duration>) -> io::Result<()> {
        // The kernel reads zero as "for ever".
        let limit = limit.map(|limit| limit.max(Duration::from_micros(1)));
        self.stream.set_read_timeout(limit)
    }

    /// The time limit, if there is one.
    ///
    /// # Errors
    ///
    /// Those of `getsockopt`.
    pub fn time_limit(&self) -> io::Result<Option<Duration>> {
        self.stream.read_timeout()
    }

    /// Whether reads return at once.
    ///
    /// # Errors
    ///
    /// Those of `ioctl`.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        self.stream.set_nonblocking(on)
    }

    /// Who is at the other end.
    ///
    /// # Errors
    ///
    /// Those of `getsockopt`.
    pub fn peer(&self) -> io::Result<Peer> {
        let credentials = sockopt::socket_peercred(&self.stream)?;
        Ok(Peer {
            pid: credentials.pid.as_raw_nonzero().get().unsigned_abs(),
            uid: credentials.uid.as_raw(),
            gid: credentials.gid.as_raw(),
        })
    }

    /// Another handle to the same connection, for instance to shut it down from another thread.
    ///
    /// # Errors
    ///
    /// No more descriptors.
    pub fn try_clone(&self) -> io::Result<Connection> {
        self.stream.try_clone().map(Connection::new)
    }

    /// Ends the connection for both sides; blocked reads return.
    ///
    /// # Errors
    ///
    /// Those of `shutdown`.
    pub fn shutdown(&self) -> io::Result<()> {
        self.stream.shutdown(std::net::Shutdown::Both)
    }
}

impl Stream for Connection {
    fn carries_descriptors(&self) -> bool {
        true
    }

    fn receive(&mut self, space: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
        Connection::receive(self, space, fds)
    }

    fn receive_bytes(&mut self, space: &mut [u8]) -> io::Result<usize> {
        Connection::receive_bytes(self, space)
    }

    fn send(&mut self, transmit: Transmit<'_>) -> io::Result<usize> {
        Connection::send(self, transmit)
    }

    fn wait(&mut self, wanted: Ready, deadline: Option<Instant>) -> io::Result<Ready> {
        Connection::wait(self, wanted, deadline)
    }

    fn set_time_limit(&mut self, limit: Option<Duration>) -> io::Result<()> {
        Connection::set_time_limit(self, limit)
    }

    fn time_limit(&self) -> io::Result<Option<Duration>> {
        Connection::time_limit(self)
    }

    fn shutdown(&mut self) -> io::Result<()> {
        Connection::shutdown(self)
    }
}

/// Reads once: how many bytes, 0 at the end of the stream.
pub(super) fn receive_once(socket: BorrowedFd<'_>, space: &mut [u8]) -> io::Result<usize> {
    loop {
        match recv(socket, &mut *space, RecvFlags::empty()) {
            Err(SystemError::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok((count, _)) => return Ok(count),
        }
    }
}

/// Sends as much as the socket takes now.
pub(super) fn send_some(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match send(socket, bytes, SEND_FLAGS) {
            Err(SystemError::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// The same of several pieces.
pub(super) fn send_slices(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    loop {
        match sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), SEND_FLAGS) {
            Err(SystemError::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Waits until what is asked for is possible, or the other end closed.
pub(super) fn wait_for(
    socket: BorrowedFd<'_>,
    wanted: Ready,
    deadline: Option<Instant>,
) -> io::Result<Ready> {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, wanted.readable);
    flags.set(PollFlags::OUT, wanted.writable);
    loop {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = left.map(timespec);
        let mut fds = [PollFd::new(&socket, flags)];
        match poll(&mut fds, timeout.as_ref()) {
            Err(SystemError::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => {
                let found = fds[0].revents();
                let closed = found.intersects(PollFlags::HUP | PollFlags::ERR);
                return Ok(Ready {
                    readable: wanted.readable && (closed || found.contains(PollFlags::IN)),
                    writable: wanted.writable && (closed || found.contains(PollFlags::OUT)),
                });
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn borrowed(fds: &[SharedFd]) -> io::Result<Vec<BorrowedFd<'_>>> {
    if fds.len() > SCM_MAX_FD {
        return Err(too_many(fds.len()));
    }
    Ok(fds.iter().map(|fd| fd.as_fd()).collect())
}

fn too_many(count: usize) -> io::Error {
    let text = format!("{count} descriptors in one message; the kernel passes {SCM_MAX_FD}");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
