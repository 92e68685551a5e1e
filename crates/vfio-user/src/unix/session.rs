//! A server engine on a stream.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::{Connection, Ready, Stream};
use crate::errno::Errno;
use crate::error::ProtocolError;
use crate::server::{Device, Server};

/// Commands that a device is given at a time: one client's backlog does not keep a loop that serves
/// others as well from them.
const COMMANDS_PER_STEP: usize = 64;

/// Why a session ended badly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The stream failed.
    #[error("the connection to the client failed: {0}")]
    Io(#[from] io::Error),
    /// The client broke the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// What a loop that polls waits for before it calls [`Session::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Commands wait that have been read already: do not wait at all.
    pub at_once: bool,
    /// What of the descriptor. Not readable while the client does not read its answers: a loop that
    /// then listened for more would spin.
    pub ready: Ready,
    /// When the client has had its time to read. Call `step` then; it ends the session.
    pub deadline: Option<Instant>,
}

/// One client of a device.
pub struct Session<S = Connection> {
    /// The stream.
    pub connection: S,
    /// The engine.
    pub server: Server,
    /// Since when the client has read nothing of what waits to be sent.
    stalled: Option<Instant>,
}

impl<S: Stream> Session<S> {
    /// A session of an engine on a fresh connection.
    #[must_use]
    pub fn new(connection: S, mut server: Server) -> Session<S> {
        if !connection.carries_descriptors() {
            server.without_descriptors();
        }
        Session { connection, server, stalled: None }
    }

    /// Serves the client until it closes the connection or another thread shuts it down. The stream
    /// must block.
    ///
    /// # Errors
    ///
    /// The stream failed (`WouldBlock` if a time limit was set and the client was silent, or did not
    /// read, for so long), or the client broke the protocol.
    pub fn run(&mut self, device: &mut impl Device) -> Result<(), SessionError> {
        loop {
            let wanted = self.wanted()?;
            if wanted.ready.writable && !wanted.at_once {
                self.connection.wait(wanted.ready, wanted.deadline)?;
            }
            if !self.step(device)? {
                return Ok(());
            }
        }
    }

    /// What to wait for before the next [`step`](Session::step).
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub fn wanted(&self) -> io::Result<Wanted> {
        let ready =
            Ready { readable: self.server.wants_input(), writable: self.server.queued_bytes() > 0 };
        let deadline = match self.stalled {
            Some(since) => self.connection.time_limit()?.map(|limit| since + limit),
            None => None,
        };
        Ok(Wanted { at_once: self.server.has_work(), ready, deadline })
    }

    /// Sends what is queued as far as the client reads; serves what has been read before, or else reads
    /// once and serves that; sends the answers. Gives the device 64 commands at most. False when the
    /// client has closed the connection.
    ///
    /// For use with `poll`: [`wanted`](Session::wanted) says when to call it.
    ///
    /// # Errors
    ///
    /// As for [`run`](Session::run). On a non-blocking stream `WouldBlock` means that there was nothing
    /// to read, unless the client's time to read is over.
    pub fn step(&mut self, device: &mut impl Device) -> Result<bool, SessionError> {
        match self.try_step(device) {
            Err(SessionError::Io(error)) if is_closed(&error) => Ok(false),
            other => other,
        }
    }

    fn try_step(&mut self, device: &mut impl Device) -> Result<bool, SessionError> {
        let all_sent = self.flush()?;
        self.check_stall()?;
        if self.server.has_work() {
            self.serve(device)?;
            return Ok(true);
        }
        if !self.server.wants_input() {
            // The client has to read first.
            return Ok(true);
        }
        if !all_sent {
            let wanted = Ready { readable: true, writable: false };
            if self.connection.wait(wanted, Some(Instant::now()))?.is_none() {
                return Ok(true);
            }
        }
        let open = self.fill()?;
        if open {
            self.serve(device)?;
        }
        Ok(open)
    }

    /// A client that has not read for its time limit is given up.
    pub(super) fn check_stall(&self) -> io::Result<()> {
        let Some(since) = self.stalled else { return Ok(()) };
        let limit = self.connection.time_limit()?;
        if limit.is_some_and(|limit| since.elapsed() >= limit) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "the client reads no answers"));
        }
        Ok(())
    }

    /// Reads once. False when the client has closed the connection.
    ///
    /// # Errors
    ///
    /// Those of the stream; more descriptors than agreed.
    pub fn fill(&mut self) -> Result<bool, SessionError> {
        let mut fds = Vec::new();
        let count = self.connection.receive(self.server.space(), &mut fds)?;
        self.server.received(count, fds)?;
        Ok(count > 0)
    }

    /// Gives the device what has been read, 64 commands at most, and sends the answers as far as the
    /// client reads.
    ///
    /// # Errors
    ///
    /// As for [`run`](Session::run).
    pub fn serve(&mut self, device: &mut impl Device) -> Result<(), SessionError> {
        let mut left = COMMANDS_PER_STEP;
        loop {
            let served = self.server.serve_some(device, left);
            // An engine that fails has told the client why.
            let all_sent = self.flush();
            let served = served?;
            left -= served;
            if !all_sent? || served == 0 || left == 0 || !self.server.has_work() {
                return Ok(());
            }
        }
    }

    /// Sends what is queued as far as the client reads; whether that was all.
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub fn flush(&mut self) -> io::Result<bool> {
        while let Some(transmit) = self.server.transmit() {
            match self.connection.send(transmit) {
                Ok(count) => {
                    self.server.sent(count);
                    self.stalled = None;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stalled.get_or_insert_with(Instant::now);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Takes the client's access away: answers what is open with `errno` and refuses what it still
    /// sends, until it closes the connection, or for the time `grace`; then the connection ends.
    ///
    /// # Errors
    ///
    /// Those of the stream; the connection has ended then as well.
    pub fn revoke(&mut self, errno: Errno, grace: Duration) -> io::Result<()> {
        self.server.revoke(errno);
        let refused = self.refuse_until(Instant::now() + grace);
        // It may be closed already.
        let _ = self.connection.shutdown();
        match refused {
            Err(error) if !is_closed(&error) => Err(error),
            _ => Ok(()),
        }
    }

    fn refuse_until(&mut self, end: Instant) -> io::Result<()> {
        while Instant::now() < end {
            // Nothing comes of it but refusals: the engine takes no command any more. One that breaks
            // the protocol has failed, and is told nothing more.
            let failed = self.server.poll().is_err();
            self.flush()?;
            if failed {
                return Ok(());
            }
            let wanted = Ready {
                readable: self.server.wants_input(),
                writable: self.server.queued_bytes() > 0,
            };
            let ready = self.connection.wait(wanted, Some(end))?;
            if ready.readable {
                match self.fill() {
                    Ok(true) => {}
                    Ok(false) | Err(SessionError::Protocol(_)) => return Ok(()),
                    Err(SessionError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(SessionError::Io(error)) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl<S: AsFd> AsFd for Session<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
