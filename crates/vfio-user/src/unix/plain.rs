//! A socket that carries bytes and no descriptors.

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{Shutdown, shutdown};

use super::connection::{receive_once, send_slices, send_some, wait_for};
use super::{Ready, Stream};
use crate::outbox::Transmit;

/// One end of a stream socket without descriptors, such as TCP. Whatever else the socket could carry is
/// left alone.
#[derive(Debug)]
pub struct Plain<T> {
    socket: T,
}

impl Plain<TcpStream> {
    /// A TCP connection. Small messages are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// Those of `setsockopt`.
    pub fn tcp(stream: TcpStream) -> io::Result<Plain<TcpStream>> {
        stream.set_nodelay(true)?;
        Ok(Plain { socket: stream })
    }
}

impl<T: AsFd> Plain<T> {
    /// Any connected stream socket, of which only the bytes are used.
    #[must_use]
    pub fn new(socket: T) -> Plain<T> {
        Plain { socket }
    }
}

impl<T: AsFd> Stream for Plain<T> {
    fn carries_descriptors(&self) -> bool {
        false
    }

    fn receive(&mut self, space: &mut [u8], _fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
        receive_once(self.socket.as_fd(), space)
    }

    fn send(&mut self, transmit: Transmit<'_>) -> io::Result<usize> {
        if !transmit.fds.is_empty() {
            let text = "descriptors do not travel on this stream; tell the engine so";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        send_some(self.socket.as_fd(), transmit.bytes)
    }

    fn send_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        send_slices(self.socket.as_fd(), slices)
    }

    fn wait(&mut self, wanted: Ready, deadline: Option<Instant>) -> io::Result<Ready> {
        wait_for(self.socket.as_fd(), wanted, deadline)
    }

    fn set_time_limit(&mut self, limit: Option<Duration>) -> io::Result<()> {
        // The kernel reads zero as "for ever".
        let limit = limit.map(|limit| limit.max(Duration::from_micros(1)));
        Ok(sockopt::set_socket_timeout(&self.socket, Timeout::Recv, limit)?)
    }

    fn time_limit(&self) -> io::Result<Option<Duration>> {
        Ok(sockopt::socket_timeout(&self.socket, Timeout::Recv)?)
    }

    fn shutdown(&mut self) -> io::Result<()> {
        Ok(shutdown(&self.socket, Shutdown::Both)?)
    }
}

impl<T: AsFd> AsFd for Plain<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
