//! A stream that lasts as long as its lease: what has come is not handed on after that, and nothing is sent.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use farside_vfio_user::Transmit;
use farside_vfio_user::unix::{Ready, Stream};

use crate::ring_card::CardStream;

/// See the module. `lasts` is asked before anything moves: the process may have stood still for long.
pub struct Lasting<L> {
    /// What it goes over.
    pub stream: Box<dyn CardStream>,
    /// Whether the lease runs.
    pub lasts: L,
}

impl<L: Fn() -> bool> Lasting<L> {
    fn check(&self) -> io::Result<()> {
        if (self.lasts)() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the lease is over"))
    }
}

impl<L: Fn() -> bool> Stream for Lasting<L> {
    fn carries_descriptors(&self) -> bool {
        self.stream.carries_descriptors()
    }

    fn receive(&mut self, space: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
        let count = self.stream.receive(space, fds)?;
        self.check()?;
        Ok(count)
    }

    fn send(&mut self, transmit: Transmit<'_>) -> io::Result<usize> {
        self.check()?;
        self.stream.send(transmit)
    }

    fn send_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.check()?;
        self.stream.send_slices(slices)
    }

    fn flush(&mut self) -> io::Result<bool> {
        self.check()?;
        self.stream.flush()
    }

    fn wait(&mut self, wanted: Ready, deadline: Option<Instant>) -> io::Result<Ready> {
        self.stream.wait(wanted, deadline)
    }

    fn set_time_limit(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.set_time_limit(limit)
    }

    fn time_limit(&self) -> io::Result<Option<Duration>> {
        self.stream.time_limit()
    }

    fn shutdown(&mut self) -> io::Result<()> {
        self.stream.shutdown()
    }
}

impl<L> AsFd for Lasting<L> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use farside_vfio_user::unix::Plain;

    use super::*;

    #[test]
    fn nothing_moves_once_the_lease_is_over() {
        let (near, far) = UnixStream::pair().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let stream = Box::new(Plain::new(far));
        let mut lasting = Lasting { stream, lasts: move || !is_over.load(Ordering::SeqCst) };
        let mut near = Plain::new(near);
        let say = |stream: &mut dyn Stream| stream.send(Transmit { bytes: b"a", fds: &[] });
        say(&mut near).unwrap();
        assert_eq!(lasting.receive_bytes(&mut [0; 8]).unwrap(), 1);
        say(&mut lasting).unwrap();
        say(&mut near).unwrap();
        over.store(true, Ordering::SeqCst);
        assert!(lasting.receive_bytes(&mut [0; 8]).is_err());
        assert!(say(&mut lasting).is_err());
        assert_eq!(near.receive_bytes(&mut [0; 8]).unwrap(), 1, "what was sent before");
    }
}
