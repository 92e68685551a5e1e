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
    /// back the load of a posted frame that it has done.
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
            let read = self.read(end.space());
            if let Ok(count) = read {
                end.filled(now, count);
            }
            events(now, end, &mut on);
            match read {
                Ok(0) => return Err(Broken::HungUp),
                Ok(_) => {}
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
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
