//! A server engine on a connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use super::{Connection, Ready};
use crate::error::ProtocolError;
use crate::server::{Device, Server};

/// Why a session ended badly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The socket failed.
    #[error("the connection to the client failed: {0}")]
    Io(#[from] io::Error),
    /// The client broke the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// One client of a device.
pub struct Session {
    /// The socket.
    pub connection: Connection,
    /// The engine.
    pub server: Server,
}

impl Session {
    /// A session of an engine on a connection.
    #[must_use]
    pub fn new(connection: Connection, server: Server) -> Session {
        Session { connection, server }
    }

    /// Serves the client until it closes the connection or another thread shuts it down. The socket
    /// must block.
    ///
    /// # Errors
    ///
    /// The socket failed (`WouldBlock` if a time limit was set and the client was silent, or did not
    /// read, for so long), or the client broke the protocol.
    pub fn run(&mut self, device: &mut impl Device) -> Result<(), SessionError> {
        loop {
            if self.server.queued_bytes() > 0 {
                self.wait()?;
            }
            if !self.step(device)? {
                return Ok(());
            }
        }
    }

    /// The client does not read: waits until it does, or until it sends something else.
    fn wait(&self) -> io::Result<()> {
        let deadline = self.connection.time_limit()?.map(|limit| Instant::now() + limit);
        let wanted = Ready { readable: self.server.wants_input(), writable: true };
        if self.connection.wait(wanted, deadline)?.is_none() {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "the client reads no answers"));
        }
        Ok(())
    }

    /// Sends what is queued as far as the client reads, reads once, serves what came, sends the
    /// answers. False when the client has closed the connection.
    ///
    /// For use with `poll`: call it when the descriptor is readable, or writable while
    /// [`queued_bytes`](Server::queued_bytes) is not 0.
    ///
    /// # Errors
    ///
    /// As for [`run`](Session::run). On a non-blocking socket `WouldBlock` means that there was nothing
    /// to read.
    pub fn step(&mut self, device: &mut impl Device) -> Result<bool, SessionError> {
        match self.try_step(device) {
            Err(SessionError::Io(error)) if is_closed(&error) => Ok(false),
            other => other,
        }
    }

    fn try_step(&mut self, device: &mut impl Device) -> Result<bool, SessionError> {
        let all_sent = self.flush()?;
        if !self.server.wants_input() {
            // A command waited for room in the queue.
            self.serve(device)?;
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

    /// Reads once. False when the client has closed the connection.
    ///
    /// # Errors
    ///
    /// Those of the socket; more descriptors than agreed.
    pub fn fill(&mut self) -> Result<bool, SessionError> {
        let mut fds = Vec::new();
        let count = self.connection.receive(self.server.space(), &mut fds)?;
        self.server.received(count, fds)?;
        Ok(count > 0)
    }

    /// Gives the device what has been read, and sends the answers as far as the client reads.
    ///
    /// # Errors
    ///
    /// As for [`run`](Session::run).
    pub fn serve(&mut self, device: &mut impl Device) -> Result<(), SessionError> {
        loop {
            let served = self.server.serve(device);
            // An engine that fails has told the client why.
            let all_sent = self.flush();
            served?;
            if !all_sent? || self.server.wants_input() {
                return Ok(());
            }
        }
    }

    /// Sends what is queued as far as the client reads; whether that was all.
    ///
    /// # Errors
    ///
    /// Those of the socket.
    pub fn flush(&mut self) -> io::Result<bool> {
        while let Some(transmit) = self.server.transmit() {
            match self.connection.send(transmit) {
                Ok(count) => self.server.sent(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
