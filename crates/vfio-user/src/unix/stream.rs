//! What a session or a client needs of the stream below it.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::Ready;
use crate::outbox::Transmit;

/// A connected stream of bytes, with descriptors beside them or without: an AF_UNIX socket
/// ([`Connection`](super::Connection)), TCP ([`Plain`](super::Plain)), or what encrypts one.
///
/// On a stream without descriptors both engines announce that they take none. Then regions cannot be
/// mapped, doorbells are written by messages, and the client's memory is reached by DMA messages.
pub trait Stream {
    /// Whether descriptors travel beside the bytes.
    fn carries_descriptors(&self) -> bool;

    /// Reads once into `space`: how many bytes, 0 at the end of the stream. Descriptors are appended to
    /// `fds`.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing came within the time limit, or at once on a stream that does not block.
    fn receive(&mut self, space: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize>;

    /// Reads once, for when no descriptors are due: any that come are closed.
    ///
    /// # Errors
    ///
    /// As for [`receive`](Stream::receive).
    fn receive_bytes(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.receive(space, &mut Vec::new())
    }

    /// Sends as much as the stream takes now, and never waits: how many bytes. The descriptors go with
    /// the first of them; there are none on a stream that carries none.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if it takes nothing now.
    fn send(&mut self, transmit: Transmit<'_>) -> io::Result<usize>;

    /// Sends some of several pieces of bytes, in order, as [`send`](Stream::send) does.
    ///
    /// # Errors
    ///
    /// As for [`send`](Stream::send).
    fn send_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let first = slices.iter().find(|slice| !slice.is_empty());
        first.map_or(Ok(0), |bytes| self.send(Transmit { bytes, fds: &[] }))
    }

    /// Sends what the stream has taken and holds back, as one that encrypts may; whether all of it has
    /// left.
    ///
    /// # Errors
    ///
    /// The stream failed.
    fn flush(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    /// Waits until what is asked for is possible, or the other end closed (then both are). At the
    /// deadline neither is.
    ///
    /// # Errors
    ///
    /// The stream failed.
    fn wait(&mut self, wanted: Ready, deadline: Option<Instant>) -> io::Result<Ready>;

    /// How long a blocking read may take, and how long a session waits for the other side to read; none
    /// is for ever.
    ///
    /// # Errors
    ///
    /// The stream failed.
    fn set_time_limit(&mut self, limit: Option<Duration>) -> io::Result<()>;

    /// The time limit.
    ///
    /// # Errors
    ///
    /// The stream failed.
    fn time_limit(&self) -> io::Result<Option<Duration>>;

    /// Ends the connection for both sides.
    ///
    /// # Errors
    ///
    /// The stream failed, or has ended already.
    fn shutdown(&mut self) -> io::Result<()>;
}

impl<S: Stream + ?Sized> Stream for Box<S> {
    fn carries_descriptors(&self) -> bool {
        (**self).carries_descriptors()
    }

    fn receive(&mut self, space: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
        (**self).receive(space, fds)
    }

    fn receive_bytes(&mut self, space: &mut [u8]) -> io::Result<usize> {
        (**self).receive_bytes(space)
    }

    fn send(&mut self, transmit: Transmit<'_>) -> io::Result<usize> {
        (**self).send(transmit)
    }

    fn send_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        (**self).send_slices(slices)
    }

    fn flush(&mut self) -> io::Result<bool> {
        (**self).flush()
    }

    fn wait(&mut self, wanted: Ready, deadline: Option<Instant>) -> io::Result<Ready> {
        (**self).wait(wanted, deadline)
    }

    fn set_time_limit(&mut self, limit: Option<Duration>) -> io::Result<()> {
        (**self).set_time_limit(limit)
    }

    fn time_limit(&self) -> io::Result<Option<Duration>> {
        (**self).time_limit()
    }

    fn shutdown(&mut self) -> io::Result<()> {
        (**self).shutdown()
    }
}
