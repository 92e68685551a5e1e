//! A stream that is cut without a word, as a cable is: whoever has it sees a reset, not an end.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside_vfio_user::Transmit;
use farside_vfio_user::unix::{Plain, Ready, Stream};

/// When streams are cut.
#[derive(Debug)]
pub(super) struct Fragility {
    /// Bytes until then, over all streams and both ways.
    left: AtomicI64,
    cuts: AtomicU64,
}

impl Default for Fragility {
    fn default() -> Fragility {
        Fragility { left: AtomicI64::new(i64::MAX), cuts: AtomicU64::new(0) }
    }
}

impl Fragility {
    pub(super) fn cut_after(&self, bytes: u64) {
        self.left.store(bytes as i64, SeqCst);
    }

    pub(super) fn cuts(&self) -> u64 {
        self.cuts.load(SeqCst)
    }

    /// How many of so many bytes may still go: fewer are the last of their stream.
    fn take(&self, bytes: usize) -> usize {
        let left = self.left.load(SeqCst);
        if left == i64::MAX {
            return bytes;
        }
        let taken = (bytes as i64).min(left);
        if taken == bytes as i64 {
            self.left.fetch_sub(taken, SeqCst);
        } else {
            self.left.store(i64::MAX, SeqCst);
            self.cuts.fetch_add(1, SeqCst);
        }
        taken.max(0) as usize
    }
}

/// See the module.
pub(super) struct Fragile {
    stream: Plain<UnixStream>,
    fragility: Arc<Fragility>,
    is_cut: bool,
}

impl Fragile {
    pub(super) fn new(stream: UnixStream, fragility: &Arc<Fragility>) -> Fragile {
        let fragility = Arc::clone(fragility);
        Fragile { stream: Plain::new(stream), fragility, is_cut: false }
    }

    /// How many of so many bytes still go.
    fn pass(&mut self, bytes: usize) -> io::Result<usize> {
        if self.is_cut {
            return Err(ErrorKind::ConnectionReset.into());
        }
        let passed = self.fragility.take(bytes);
        self.is_cut = passed < bytes;
        if self.is_cut {
            // The other end is to notice.
            let _ = self.stream.shutdown();
        }
        if passed == 0 { Err(ErrorKind::ConnectionReset.into()) } else { Ok(passed) }
    }
}

impl Stream for Fragile {
    fn carries_descriptors(&self) -> bool {
        false
    }

    fn receive(&mut self, space: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
        if self.is_cut {
            return Err(ErrorKind::ConnectionReset.into());
        }
        let count = self.stream.receive(space, fds)?;
        // What is beyond the cut is lost on its way.
        if count == 0 { Ok(0) } else { self.pass(count) }
    }

    fn send(&mut self, transmit: Transmit<'_>) -> io::Result<usize> {
        if self.is_cut {
            return Err(ErrorKind::ConnectionReset.into());
        }
        let count = self.stream.send(transmit)?;
        self.pass(count)
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

impl AsFd for Fragile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
