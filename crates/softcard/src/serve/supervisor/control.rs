//! What the owner of a card does with its functions: hands one to somebody, takes it back whoever has it
//! by then.
//!
//! A function is handed on as one end of a connection. From then on its client is served as one that
//! came by itself, and this is out of its way. What was handed on for a [`HolderId`] is taken back by it:
//! the client reaches the function no more, jobs stop, memory is scrubbed and replaced. The client has no
//! say in that, and may stand still.
//!
//! Only the user whose card it is (or root) is heard, by the socket's credentials, before anything is
//! read.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_vfio_user::Transmit;
use farside_vfio_user::unix::{Connection, Listener, Peer};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::bind;
use crate::serve::{CONTROL_SOCKET, CardConfig, HolderId, ServeError};

/// How long whoever asks may take.
const CALLER_LIMIT: Duration = Duration::from_secs(1);

/// Who may ask at a time.
const CALLERS_MAX: usize = 16;

/// How long a card may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Bytes of a request: the verb, then the holder.
const REQUEST_BYTES: usize = 16;
/// Bytes of an answer: an error's number or 0, then how many functions.
const ANSWER_BYTES: usize = 8;

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request {
    Give(HolderId),
    TakeBack(HolderId),
}

impl Request {
    fn to_bytes(self) -> [u8; REQUEST_BYTES] {
        let (verb, holder) = match self {
            Request::Give(holder) => (1u64, holder),
            Request::TakeBack(holder) => (2, holder),
        };
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..8].copy_from_slice(&verb.to_ne_bytes());
        bytes[8..].copy_from_slice(&holder.0.to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; REQUEST_BYTES]) -> Option<Request> {
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let holder = HolderId(word(8));
        match word(0) {
            1 => Some(Request::Give(holder)),
            2 => Some(Request::TakeBack(holder)),
            _ => None,
        }
    }
}

/// What has come of it.
pub(super) enum Answer {
    Given(OwnedFd),
    TakenBack(u32),
    Refused(Errno),
}

/// Somebody who may ask.
#[derive(Debug)]
pub(super) struct Caller {
    connection: Connection,
    pub(super) peer: Peer,
    until: Instant,
}

impl Caller {
    /// Answers. Whoever does not take it is given nothing: the function's connection ends with this.
    pub(super) fn answer(self, answer: Answer) {
        let (errno, count, fds) = match answer {
            Answer::Given(function) => (0, 1, vec![Arc::new(function)]),
            Answer::TakenBack(count) => (0, count, Vec::new()),
            Answer::Refused(errno) => (errno.raw_os_error() as u32, 0, Vec::new()),
        };
        let mut bytes = [0; ANSWER_BYTES];
        bytes[..4].copy_from_slice(&errno.to_ne_bytes());
        bytes[4..].copy_from_slice(&count.to_ne_bytes());
        let _ = self.connection.send(Transmit { bytes: &bytes, fds: &fds });
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct ControlDesk {
    listener: Listener,
    callers: Vec<Caller>,
}

impl ControlDesk {
    pub(super) fn open(config: &CardConfig) -> Result<ControlDesk, ServeError> {
        let listener = bind(&config.folder.join(CONTROL_SOCKET))?;
        Ok(ControlDesk { listener, callers: Vec::new() })
    }

    /// Where callers come, if one more can be dealt with.
    pub(super) fn listener(&self) -> Option<BorrowedFd<'_>> {
        (self.callers.len() < CALLERS_MAX).then(|| self.listener.as_fd())
    }

    /// Those who have not asked yet.
    pub(super) fn callers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.callers.iter().map(|caller| caller.connection.as_fd())
    }

    /// When one is late.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.callers.iter().map(|caller| caller.until).min()
    }

    /// Lets the next one in, if it may ask.
    pub(super) fn accept(&mut self) {
        let Ok(connection) = self.listener.accept() else { return };
        let Ok(peer) = connection.peer() else { return };
        if peer.uid != 0 && peer.uid != rustix::process::geteuid().as_raw() {
            // It sees that it is hung up on. Nothing that it sends is read.
            return;
        }
        let until = Instant::now() + CALLER_LIMIT;
        self.callers.push(Caller { connection, peer, until });
    }

    /// What was asked since this was called before, and by whom. Those who are late or make no sense
    /// are hung up on.
    pub(super) fn requests(&mut self) -> Vec<(Caller, Request)> {
        let now = Instant::now();
        let mut asked = Vec::new();
        for caller in std::mem::take(&mut self.callers) {
            let mut bytes = [0; REQUEST_BYTES];
            match recv(&caller.connection, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((REQUEST_BYTES, _)) => {
                    asked.extend(Request::from_bytes(bytes).map(|request| (caller, request)));
                }
                Err(Errno::AGAIN | Errno::INTR) if caller.until > now => self.callers.push(caller),
                _ => {}
            }
        }
        asked
    }
}

/// Asks the card in a folder for a function.
pub(in crate::serve) fn give(folder: &Path, holder: HolderId) -> io::Result<OwnedFd> {
    let (_, mut given) = ask(folder, Request::Give(holder))?;
    given.pop().ok_or_else(|| io::Error::other("the card gives no connection"))
}

/// Has the card in a folder end what a holder has of it.
pub(in crate::serve) fn take_back(folder: &Path, holder: HolderId) -> io::Result<u32> {
    ask(folder, Request::TakeBack(holder)).map(|(count, _)| count)
}

fn ask(folder: &Path, request: Request) -> io::Result<(u32, Vec<OwnedFd>)> {
    let stream = UnixStream::connect(folder.join(CONTROL_SOCKET))?;
    let connection = Connection::new(stream);
    connection.set_time_limit(Some(ANSWER_LIMIT))?;
    connection.send(Transmit { bytes: &request.to_bytes(), fds: &[] })?;
    let (mut answer, mut fds) = ([0; ANSWER_BYTES], Vec::new());
    if connection.receive(&mut answer, &mut fds)? < ANSWER_BYTES {
        return Err(io::Error::other("the card hears its owner alone, and gives no answer"));
    }
    let word = |at: usize| u32::from_ne_bytes(answer[at..at + 4].try_into().expect("4 bytes"));
    match word(0) {
        0 => Ok((word(4), fds)),
        errno => Err(Errno::from_raw_os_error(errno as i32).into()),
    }
}
