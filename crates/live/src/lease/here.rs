//! The way to a borrowed card of this machine. Whoever listens in the folder of its lease answers each
//! program with one packet: an error's number or 0, and then beside it a connection to the card's process.
//!
//! Nobody is between the program and the card from then on: both map each other's memory. A mapping cannot
//! be taken back; when the lease is over the card's process ends the connection and gives the function new
//! memory, so that an old mapping reaches nothing that anybody else uses.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farside_vfio_user::Transmit;
use farside_vfio_user::unix::Connection;
use rustix::io::Errno;

use super::connection::{open, words};
use super::{NotReached, Ticket, WantedBack, WhyGone};

/// How long a card may take to hand a function out, or a lender's host to take a connection.
const ANSWER_LIMIT: Duration = Duration::from_secs(4);

/// A connection to a card's process.
pub(crate) struct Handed {
    pub(crate) stream: UnixStream,
    /// Says why it has ended, once it has.
    pub(crate) why_gone: WhyGone,
    /// Says how soon the lender wants the card back, if it does.
    pub(crate) wanted_back: WantedBack,
}

/// Whether the card of a lease is one of this machine.
pub(crate) fn is_here(folder: &Path) -> bool {
    folder.join(Ticket::CARD).exists()
}

/// Connects to the card of the lease in `folder`, by what connects to a socket.
pub(crate) fn connect_here(
    folder: &Path,
    connect: impl FnOnce(&Path) -> io::Result<UnixStream>,
) -> Result<Handed, NotReached> {
    let (ticket, term) = open(folder)?;
    let handing = connect(&folder.join(Ticket::CARD)).map_err(NotReached::Absent)?;
    let stream = receive(handing).map(UnixStream::from).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => NotReached::Busy,
        _ => NotReached::Absent(error),
    })?;
    let (why_gone, wanted_back) = words(ticket, term);
    Ok(Handed { stream, why_gone, wanted_back })
}

/// Takes the connection that is handed on.
pub(super) fn receive(handing: UnixStream) -> io::Result<OwnedFd> {
    let connection = Connection::new(handing);
    connection.set_time_limit(Some(ANSWER_LIMIT))?;
    let (mut errno, mut fds) = ([0; 4], Vec::new());
    let count = connection.receive(&mut errno, &mut fds)?;
    match (u32::from_ne_bytes(errno), fds.pop()) {
        (0, Some(function)) if count == errno.len() => Ok(function),
        (0, _) => Err(io::ErrorKind::ConnectionReset.into()),
        (errno, _) => Err(Errno::from_raw_os_error(errno as i32).into()),
    }
}

/// Answers a program: with a connection to its card, or to the lender's end, or why there is none. Never
/// waits.
///
/// # Errors
/// The program is gone, or takes nothing.
pub fn hand(program: BorrowedFd<'_>, connection: Result<OwnedFd, Errno>) -> io::Result<()> {
    let program = Connection::new(program.try_clone_to_owned()?.into());
    let (errno, fds) = match connection {
        Ok(connection) => (0, vec![Arc::new(connection)]),
        Err(errno) => (errno.raw_os_error(), Vec::new()),
    };
    program.send(Transmit { bytes: &errno.to_ne_bytes(), fds: &fds }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_program_gets_its_connection_or_why_there_is_none() {
        let pair = || UnixStream::pair().unwrap();
        let ((program, daemon), (near, card)) = (pair(), pair());
        hand(daemon.as_fd(), Ok(near.into())).unwrap();
        let got = receive(program).unwrap();
        rustix::io::write(&card, b"hello").unwrap();
        let mut bytes = [0; 5];
        rustix::io::read(&got, &mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");

        let (program, daemon) = pair();
        hand(daemon.as_fd(), Err(Errno::BUSY)).unwrap();
        assert_eq!(receive(program).unwrap_err().kind(), io::ErrorKind::ResourceBusy);

        // Whoever is gone, or sends nothing beside a promise.
        let (program, daemon) = pair();
        drop(daemon);
        assert!(receive(program).is_err());
        let (program, daemon) = pair();
        rustix::io::write(&daemon, &[0; 4]).unwrap();
        assert!(receive(program).is_err());
    }
}
