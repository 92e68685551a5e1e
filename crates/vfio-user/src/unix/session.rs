//! A server engine on a connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::Connection;
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
    /// The socket failed (`WouldBlock` if a time limit was set and the client was silent for so
    /// long), or the client broke the protocol.
    pub fn run(&mut self, device: &mut impl Device) -> Result<(), SessionError> {
        while self.step(device)? {}
        Ok(())
    }

    /// Reads once, serves what came, sends the answers. False when the client has closed the
    /// connection. For use with `poll`: call it when the descriptor is readable.
    ///
    /// # Errors
    ///
    /// As for [`run`](Session::run). On a non-blocking socket `WouldBlock` means: wait until it is
    /// readable, or writable if [`queued_bytes`](Server::queued_bytes) is not 0, and call again.
    pub fn step(&mut self, device: &mut impl Device) -> Result<bool, SessionError> {
        self.flush()?;
        if !self.fill()? {
            return Ok(false);
        }
        self.serve(device)?;
        Ok(true)
    }

    /// Reads once. False when the client has closed the connection.
    ///
    /// # Errors
    ///
    /// Those of the socket; more descriptors than agreed.
    pub fn fill(&mut self) -> Result<bool, SessionError> {
        let mut fds = Vec::new();
        let count = match self.connection.receive(self.server.space(), &mut fds) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(error.into()),
        };
        self.server.received(count, fds)?;
        Ok(count > 0)
    }

    /// Gives the device what has been read, and sends the answers.
    ///
    /// # Errors
    ///
    /// As for [`run`](Session::run).
    pub fn serve(&mut self, device: &mut impl Device) -> Result<(), SessionError> {
        loop {
            let served = self.server.serve(device);
            // An engine that fails has told the client why.
            let flushed = self.flush();
            served?;
            flushed?;
            if self.server.wants_input() {
                return Ok(());
            }
        }
    }

    /// Sends what is queued.
    ///
    /// # Errors
    ///
    /// Those of the socket.
    pub fn flush(&mut self) -> io::Result<()> {
        while let Some(transmit) = self.server.transmit() {
            let count = self.connection.send(transmit)?;
            self.server.sent(count);
        }
        Ok(())
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
