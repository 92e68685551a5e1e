//! A connection for an [`Endpoint`]: a stream of bytes, whatever it goes over. It never waits; whoever drives
//! it polls its descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use farside_link::endpoint::Load;
use farside_link::{Endpoint, Event};
use rustix::event::PollFlags;

use crate::ring_card::CardStream;

/// Reads in a row: then it is the turn of what is to be sent.
const READS_MAX: usize = 8;

/// See the module.
pub struct Line {
    stream: Box<dyn CardStream>,
    /// What was read from it before it became a line.
    early: Vec<u8>,
}

impl Line {
    /// Over a stream, which blocks no more from here on.
    ///
    /// # Errors
    /// Its descriptor cannot be set so.
    pub fn new(stream: Box<dyn CardStream>) -> io::Result<Line> {
        Line::after(stream, Vec::new())
    }

    /// The same of a stream from which these bytes have been read already.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn after(stream: Box<dyn CardStream>, early: Vec<u8>) -> io::Result<Line> {
        rustix::io::ioctl_fionbio(stream.as_fd(), true)?;
        Ok(Line { stream, early })
    }

    /// What to poll the descriptor for. `is_all_sent` is what [`send`](Self::send) gave last.
    #[must_use]
    pub fn wanted(&self, is_all_sent: bool) -> PollFlags {
        if is_all_sent { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
    }

    /// Reads what has come, as far as that takes not too long, and gives each event to `on`, which gives
    /// back the load of a posted frame that it has done. Whoever polls is woken for what is left.
    ///
    /// # Errors
    /// The connection is over; what came before was given.
    pub fn receive(
        &mut self,
        now: Duration,
        end: &mut Endpoint,
        mut on: impl FnMut(Event<'_>) -> Option<Load>,
    ) -> Result<(), Broken> {
        for _ in 0..READS_MAX {
            // Less than there was room for is all, mostly: to be told so would take another call, and
            // whoever waits for an answer waits for that too.
            if self.receive_once(now, end, &mut on)? != Came::Full {
                break;
            }
        }
        Ok(())
    }

    /// The same of a connection to which nothing can be sent any more: how the other end has left it comes
    /// last.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub(super) fn receive_last(
        &mut self,
        now: Duration,
        end: &mut Endpoint,
        mut on: impl FnMut(Event<'_>) -> Option<Load>,
    ) -> Result<(), Broken> {
        for _ in 0..READS_MAX {
            if self.receive_once(now, end, &mut on)? == Came::Nothing {
                break;
            }
        }
        Ok(())
    }

    fn receive_once(
        &mut self,
        now: Duration,
        end: &mut Endpoint,
        on: &mut impl FnMut(Event<'_>) -> Option<Load>,
    ) -> Result<Came, Broken> {
        let space = end.space();
        let room = space.len();
        let read = self.read(space);
        if let Ok(count) = read {
            end.filled(now, count);
        }
        events(now, end, on);
        match read {
            Ok(0) => Err(Broken::HungUp),
            Ok(count) => Ok(if count < room { Came::Some } else { Came::Full }),
            Err(error) if is_later(&error) => Ok(Came::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.early.is_empty() {
            return self.stream.receive_bytes(into);
        }
        let count = self.early.len().min(into.len());
        into[..count].copy_from_slice(&self.early[..count]);
        self.early.drain(..count);
        Ok(count)
    }

    /// Ends the connection in order.
    pub(super) fn hang_up(&mut self) {
        // It may have ended already.
        let _ = self.stream.shutdown();
    }

    /// Sends what the end has to say, as far as the stream takes it; whether that was all.
    ///
    /// # Errors
    /// The connection is over.
    pub fn send(&mut self, now: Duration, end: &mut Endpoint) -> Result<bool, Broken> {
        loop {
            let flushed = self.stream.flush()?;
            let transmit = end.transmit(now);
            if transmit.is_empty() || !flushed {
                return Ok(transmit.is_empty() && flushed);
            }
            match self.stream.send_slices(transmit.slices()) {
                Ok(0) => return Err(Broken::HungUp),
                Ok(count) => end.transmitted(now, count),
                Err(error) if is_later(&error) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

/// What one read has brought.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    Nothing,
    /// Less than there was room for.
    Some,
    /// As much as there was room for.
    Full,
}

/// Why a connection is of no use any more. The link may go on over another.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The other end has ended it, in order as far as the stream can tell.
    #[error("the other end has closed the connection")]
    HungUp,
    /// It was cut, or the system failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

/// Gives every event there is to `on`.
pub(super) fn events(
    now: Duration,
    end: &mut Endpoint,
    on: &mut impl FnMut(Event<'_>) -> Option<Load>,
) {
    loop {
        let load = match end.poll_event(now) {
            None => return,
            Some(event) => on(event),
        };
        if let Some(load) = load {
            end.done(load);
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use farside_link::{Config, Lease};
    use farside_vfio_user::Transmit;
    use farside_vfio_user::unix::{Ready, Stream};

    use super::*;

    /// Gives what it was told to, and what it was asked for.
    struct Told {
        socket: UnixStream,
        /// Bytes of each read; none: nothing has come.
        reads: VecDeque<Option<usize>>,
        asked: std::sync::Arc<std::sync::atomic::AtomicUsize>,
    }

    impl Stream for Told {
        fn carries_descriptors(&self) -> bool {
            false
        }

        fn receive(&mut self, space: &mut [u8], _: &mut Vec<OwnedFd>) -> io::Result<usize> {
            self.asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let bytes = self.reads.pop_front().flatten().ok_or(io::ErrorKind::WouldBlock)?;
            Ok(bytes.min(space.len()))
        }

        fn send(&mut self, _: Transmit<'_>) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn wait(&mut self, wanted: Ready, _: Option<Instant>) -> io::Result<Ready> {
            Ok(wanted)
        }

        fn set_time_limit(&mut self, _: Option<Duration>) -> io::Result<()> {
            Ok(())
        }

        fn time_limit(&self) -> io::Result<Option<Duration>> {
            Ok(None)
        }

        fn shutdown(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl AsFd for Told {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.socket.as_fd()
        }
    }

    type Receive = fn(&mut Line, &mut Endpoint) -> Result<(), Broken>;

    /// How it ends, and how often the stream was read.
    fn receive(reads: &[Option<usize>], by: Receive) -> (Result<(), Broken>, usize) {
        let asked = std::sync::Arc::default();
        let told = Told {
            socket: UnixStream::pair().unwrap().0,
            reads: reads.iter().copied().collect(),
            asked: std::sync::Arc::clone(&asked),
        };
        let mut line = Line::new(Box::new(told)).unwrap();
        // Without a connection it makes nothing of the bytes, and has all its room.
        let mut end = Endpoint::lender(Config::new(Lease::none()));
        let ended = by(&mut line, &mut end);
        (ended, asked.load(std::sync::atomic::Ordering::SeqCst))
    }

    fn usual(line: &mut Line, end: &mut Endpoint) -> Result<(), Broken> {
        line.receive(Duration::ZERO, end, |_| None)
    }

    fn last(line: &mut Line, end: &mut Endpoint) -> Result<(), Broken> {
        line.receive_last(Duration::ZERO, end, |_| None)
    }

    #[test]
    fn a_few_bytes_are_one_read_and_a_full_buffer_asks_for_the_next() {
        let whole = Some(usize::MAX);
        let cases = [
            (vec![Some(40), Some(40)], 1),
            (vec![None], 1),
            (vec![whole, Some(40), Some(40)], 2),
            (vec![whole, None, Some(40)], 2),
            (vec![whole; 20], READS_MAX),
        ];
        for (reads, asked) in cases {
            let (ended, was) = receive(&reads, usual);
            assert!(ended.is_ok(), "{reads:?}");
            assert_eq!(was, asked, "{reads:?}");
        }
        assert!(matches!(receive(&[Some(0)], usual).0, Err(Broken::HungUp)));
    }

    #[test]
    fn who_reads_for_the_last_time_reads_how_it_ended() {
        let reads = [Some(40), Some(40), Some(0)];
        assert!(matches!(receive(&reads, last).0, Err(Broken::HungUp)));
        // Negative control: by the usual way that would come with the next wake-up, which there is none of.
        assert!(receive(&reads, usual).0.is_ok());
        assert_eq!(receive(&[Some(40), None, Some(0)], last).1, 2);
    }
}
