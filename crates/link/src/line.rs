//! A connection for an [`Endpoint`]: a TCP socket, with TLS or plain. It never waits; whoever drives it
//! polls the socket.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustls::Connection;
use thiserror::Error;

use crate::endpoint::{Endpoint, Event, Load};

/// Bytes that the socket takes before it has sent what it has: bulk waits in the endpoint, where little
/// is ahead of a register access.
const UNSENT_BYTES_MAX: libc::c_int = 128 << 10;
/// Bytes that wait in TLS.
const TLS_BYTES_MAX: usize = 128 << 10;
/// Reads in a row: then it is the turn of what is to be sent.
const READS_MAX: usize = 8;

/// Why a connection is of no use any more. The link may go on over another.
#[derive(Debug, Error)]
pub enum Broken {
    /// The other end has closed it.
    #[error("the other end has closed the connection")]
    Closed,
    /// TLS does not accept it: the other end is not who it has to be, or speaks nonsense.
    #[error("the other end is refused: {0}")]
    Tls(#[from] rustls::Error),
    /// The system failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

/// See the module.
pub struct Line {
    socket: TcpStream,
    tls: Option<Connection>,
}

impl Line {
    /// Over TCP as it is: for networks that nobody else is in.
    ///
    /// # Errors
    /// Those of `setsockopt`.
    pub fn plain(socket: TcpStream) -> io::Result<Line> {
        Line::new(socket, None)
    }

    /// Over TLS, as [`crate::tls`] sets it up.
    ///
    /// # Errors
    /// Those of `setsockopt`.
    pub fn tls(socket: TcpStream, tls: impl Into<Connection>) -> io::Result<Line> {
        let mut tls = tls.into();
        tls.set_buffer_limit(Some(TLS_BYTES_MAX));
        Line::new(socket, Some(tls))
    }

    fn new(socket: TcpStream, tls: Option<Connection>) -> io::Result<Line> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        limit_unsent(&socket)?;
        Ok(Line { socket, tls })
    }

    /// What to poll the socket for. `is_all_sent` is what [`send`](Self::send) gave last.
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
            loop {
                let load = match end.poll_event(now) {
                    None => break,
                    Some(event) => on(event),
                };
                if let Some(load) = load {
                    end.done(load);
                }
            }
            match read {
                Ok(0) => return Err(Broken::Closed),
                Ok(_) => {}
                Err(Broken::Io(error)) if is_later(&error) => return Ok(()),
                Err(broken) => return Err(broken),
            }
        }
        Ok(())
    }

    fn read(&mut self, into: &mut [u8]) -> Result<usize, Broken> {
        let Some(tls) = &mut self.tls else { return Ok(self.socket.read(into)?) };
        loop {
            match tls.reader().read(into) {
                Err(error) if is_later(&error) => {}
                other => return Ok(other?),
            }
            if tls.read_tls(&mut self.socket)? == 0 {
                return Err(Broken::Closed);
            }
            if let Err(error) = tls.process_new_packets() {
                // The other end is told why, if it still listens.
                let _ = tls.write_tls(&mut self.socket);
                return Err(error.into());
            }
        }
    }

    /// Sends what the end has to say, as far as the socket takes it; whether that was all.
    ///
    /// # Errors
    /// The connection is over.
    pub fn send(&mut self, now: Duration, end: &mut Endpoint) -> Result<bool, Broken> {
        loop {
            let flushed = self.flush()?;
            if !self.is_agreed() {
                // The other end's turn: what there is to say is for it alone.
                return Ok(flushed);
            }
            let transmit = end.transmit(now);
            if transmit.is_empty() || !flushed {
                return Ok(transmit.is_empty() && flushed);
            }
            let written = self.write(transmit.slices());
            match written {
                Ok(count) => end.transmitted(now, count),
                Err(error) if is_later(&error) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.write_vectored(slices),
            Some(tls) => tls.writer().write_vectored(slices),
        }
    }

    /// Whether nothing waits in TLS.
    fn flush(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        while tls.wants_write() {
            match tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if is_later(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether both ends have shown who they are, as far as TLS knows.
    #[must_use]
    pub fn is_agreed(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| !tls.is_handshaking())
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Has a socket take no more than it can send soon: what else there is waits where something may still go
/// before it.
///
/// # Errors
/// Those of `setsockopt`.
pub fn limit_unsent(socket: &TcpStream) -> io::Result<()> {
    let value = UNSENT_BYTES_MAX;
    let bytes = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the socket is open, and the value is an int that lives until the call is over.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            std::ptr::from_ref(&value).cast(),
            bytes,
        )
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
