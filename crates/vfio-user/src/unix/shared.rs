//! A session whose device reaches the client's memory by messages, from any thread.
//!
//! A device that answers a command may need the client's memory for that, and so may its other threads,
//! whatever the session is at. So the engine lies behind a lock that is never held while a device works
//! or a peer is waited for. Who waits for an answer reads the stream itself if nobody else does: answers
//! go to those who wait for them, commands are put aside for the thread that serves the session, in
//! their order.
//!
//! Slower than a [`Session`], whose commands are served where they lie in the input: for clients that
//! share memory without descriptors.

mod owned;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::connection::wait_for;
use super::{Ready, Session, SessionError, Stream, Wanted};
use crate::errno::Errno;
use crate::error::{ProtocolError, RequestError};
use crate::limits::Limits;
use crate::pending::RequestId;
use crate::server::{Device, Event, Server};
use crate::wire::Command;

use owned::Owned;

/// Commands that a device is given at a time, as in a [`Session`].
const COMMANDS_PER_STEP: usize = 64;

/// Bytes of commands that are put aside: past this the client is not listened to until some are served.
const ASIDE_BYTES_MAX: usize = 8 << 20;

/// Why the client's memory was not reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DmaError {
    /// It cannot be asked for: not mapped so, or too much is asked already.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The client answered with an error.
    #[error("the client refused: {0}")]
    Refused(Errno),
    /// The client gave no answer in time.
    #[error("the client gave no answer within {0:?}")]
    TimedOut(Duration),
    /// The client has gone.
    #[error("the client is gone")]
    Gone,
    /// The stream failed.
    #[error("the connection to the client failed: {0}")]
    Io(#[from] io::Error),
    /// The client broke the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// See the module.
pub struct SharedSession<S> {
    inner: Mutex<Inner<S>>,
    /// Something has come, or nobody reads the stream any more.
    changed: Condvar,
    /// The stream once more, to be waited for without the lock.
    poll: OwnedFd,
    /// Called when commands were put aside by a thread that does not serve them.
    wake: Box<dyn Fn() + Send + Sync>,
    /// How long an answer is waited for.
    limit: Duration,
}

struct Inner<S> {
    session: Session<S>,
    /// Commands that nobody has served yet, in order.
    aside: VecDeque<Owned>,
    aside_bytes: usize,
    /// Requests of this side, and their answers once they have come.
    answers: HashMap<RequestId, Option<Result<Vec<u8>, Errno>>>,
    /// A thread waits for the stream.
    is_read: bool,
    ended: Option<Ended>,
}

/// How the connection ended.
#[derive(Clone, Copy, Debug)]
enum Ended {
    Closed,
    Failed(ProtocolError),
}

impl Ended {
    fn error(self) -> DmaError {
        match self {
            Ended::Closed => DmaError::Gone,
            Ended::Failed(error) => DmaError::Protocol(error),
        }
    }
}

impl<S: Stream + AsFd> SharedSession<S> {
    /// Takes a session over. `wake` is called, from any thread, when [`step`](SharedSession::step) has
    /// something to do that no descriptor tells of; `limit` is how long each answer of the client's is
    /// waited for.
    ///
    /// # Errors
    ///
    /// No more descriptors.
    pub fn new(
        session: Session<S>,
        limit: Duration,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<SharedSession<S>> {
        let poll = session.as_fd().try_clone_to_owned()?;
        let inner = Inner {
            session,
            aside: VecDeque::new(),
            aside_bytes: 0,
            answers: HashMap::new(),
            is_read: false,
            ended: None,
        };
        let wake = Box::new(wake);
        Ok(SharedSession { inner: Mutex::new(inner), changed: Condvar::new(), poll, wake, limit })
    }

    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the client's memory.
    ///
    /// # Errors
    ///
    /// [`DmaError`]; `into` may then hold part of it.
    pub fn dma_read(&self, address: u64, into: &mut [u8]) -> Result<(), DmaError> {
        let most = self.most();
        for (at, part) in (0u64..).step_by(most).zip(into.chunks_mut(most)) {
            let count = part.len() as u32;
            let data = self.ask(|server| server.bus().dma_read(address + at, count))?;
            if data.len() != part.len() {
                return Err(DmaError::Refused(Errno::PROTO));
            }
            part.copy_from_slice(&data);
        }
        Ok(())
    }

    /// Writes the client's memory. When this returns the client has done so.
    ///
    /// # Errors
    ///
    /// [`DmaError`]; part of it may have been written.
    pub fn dma_write(&self, address: u64, from: &[u8]) -> Result<(), DmaError> {
        let most = self.most();
        for (at, part) in (0u64..).step_by(most).zip(from.chunks(most)) {
            self.ask(|server| server.bus().dma_write(address + at, part))?;
        }
        Ok(())
    }

    /// Sends a command of the users' own, and wants no answer. Waits for nobody: what the client does
    /// not take now, the thread that serves the session sends.
    ///
    /// # Errors
    ///
    /// [`DmaError`]; the client is gone, or leaves too much unread.
    pub fn notify(&self, command: Command, data: &[u8]) -> Result<(), DmaError> {
        let mut inner = self.lock();
        if let Some(ended) = inner.ended {
            return Err(ended.error());
        }
        inner.session.server.bus().notify(command, data)?;
        inner.flush()?;
        let is_left = inner.session.server.queued_bytes() > 0;
        drop(inner);
        if is_left {
            (self.wake)();
        }
        Ok(())
    }

    /// Bytes of one message.
    fn most(&self) -> usize {
        let negotiated = self.lock().session.server.negotiated().copied();
        negotiated.map_or(1, |negotiated| negotiated.max_data_xfer_size as usize).max(1)
    }

    /// Asks, and waits for the answer.
    fn ask(
        &self,
        ask: impl FnOnce(&mut Server) -> Result<RequestId, RequestError>,
    ) -> Result<Vec<u8>, DmaError> {
        let deadline = Instant::now() + self.limit;
        let mut inner = self.lock();
        if let Some(ended) = inner.ended {
            return Err(ended.error());
        }
        let request = ask(&mut inner.session.server)?;
        inner.answers.insert(request, None);
        let answer = self.wait(inner, request, deadline);
        if answer.is_err() {
            let mut inner = self.lock();
            inner.answers.remove(&request);
            inner.session.server.bus().forget(request);
        }
        answer?.map_err(DmaError::Refused)
    }

    fn wait<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner<S>>,
        request: RequestId,
        deadline: Instant,
    ) -> Result<Result<Vec<u8>, Errno>, DmaError> {
        loop {
            if let Some(Some(_)) = inner.answers.get(&request) {
                // It has just been seen.
                return inner.answers.remove(&request).flatten().ok_or(DmaError::Gone);
            }
            if let Some(ended) = inner.ended {
                return Err(ended.error());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(DmaError::TimedOut(self.limit));
            }
            if inner.is_read {
                let waited = self.changed.wait_timeout(inner, left);
                inner = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            inner = self.read_once(inner, deadline)?;
        }
    }

    /// Waits for the stream without the lock, then deals with what came.
    fn read_once<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner<S>>,
        deadline: Instant,
    ) -> Result<MutexGuard<'a, Inner<S>>, DmaError> {
        let flushed = inner.flush();
        let wanted = inner.wanted();
        if flushed.is_err() || wanted.is_none() {
            // Nothing can come before commands are served: by the thread that does so, if it can.
            flushed?;
            (self.wake)();
            let waited = self.changed.wait_timeout(inner, Duration::from_millis(1));
            return Ok(waited.unwrap_or_else(PoisonError::into_inner).0);
        }
        inner.is_read = true;
        drop(inner);
        let ready = wait_for(self.poll.as_fd(), wanted, Some(deadline));
        let mut inner = self.lock();
        inner.is_read = false;
        let before = inner.aside.len();
        let result = ready.and_then(|_| inner.take_in());
        let more = inner.aside.len() > before;
        self.changed.notify_all();
        if more || inner.ended.is_some() {
            (self.wake)();
        }
        result?;
        Ok(inner)
    }

    /// What the thread that serves the session waits for before the next
    /// [`step`](SharedSession::step).
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub fn wanted(&self) -> io::Result<Wanted> {
        let inner = self.lock();
        let mut wanted = inner.session.wanted()?;
        wanted.at_once = !inner.aside.is_empty() || inner.ended.is_some() || inner.has_work();
        wanted.ready = inner.wanted();
        Ok(wanted)
    }

    /// Serves what was put aside and what has come, 64 commands at most; the device is called without
    /// any lock, and may use the client's memory. Does not wait. False when the client has closed the
    /// connection.
    ///
    /// # Errors
    ///
    /// The stream failed or the client broke the protocol.
    pub fn step(&self, device: &mut impl Device) -> Result<bool, SessionError> {
        let mut inner = self.lock();
        if inner.aside.is_empty() && !inner.is_read {
            // While another thread reads, what comes must not be taken away from under it: it would
            // go on waiting for what is there already.
            inner.take_in()?;
            self.changed.notify_all();
        }
        inner.session.check_stall()?;
        // A device makes no requests by its bus here: it has this session for them.
        let mut nowhere = Server::refusing(Errno::NODEV, Limits::default());
        for _ in 0..COMMANDS_PER_STEP {
            let Some(command) = inner.aside.pop_front() else { break };
            inner.aside_bytes = inner.aside_bytes.saturating_sub(command.bytes());
            drop(inner);
            let answer = command.give(device, &mut nowhere.bus());
            inner = self.lock();
            answer.complete(&mut inner.session.server);
            inner.flush()?;
        }
        self.changed.notify_all();
        match inner.ended {
            Some(Ended::Failed(error)) if inner.aside.is_empty() => Err(error.into()),
            Some(_) if inner.aside.is_empty() => Ok(false),
            _ => Ok(true),
        }
    }

    /// Works on the session itself, for instance to revoke the client.
    pub fn with<T>(&self, body: impl FnOnce(&mut Session<S>) -> T) -> T {
        body(&mut self.lock().session)
    }
}

impl<S: Stream + AsFd> Inner<S> {
    /// What of the stream can be gone on with.
    fn wanted(&self) -> Ready {
        let server = &self.session.server;
        let open = self.ended.is_none();
        Ready {
            readable: open && server.wants_input() && self.aside_bytes <= ASIDE_BYTES_MAX,
            writable: open && server.queued_bytes() > 0,
        }
    }

    /// Sends what the client takes.
    fn flush(&mut self) -> io::Result<()> {
        match self.session.flush() {
            Err(error) if is_closed(&error) => {
                self.ended.get_or_insert(Ended::Closed);
                Ok(())
            }
            other => other.map(drop),
        }
    }

    /// Whether the engine has something that was read before.
    fn has_work(&self) -> bool {
        self.session.server.has_work() && self.aside_bytes <= ASIDE_BYTES_MAX
    }

    /// Reads what is there now, if anything, and sorts it.
    fn take_in(&mut self) -> io::Result<()> {
        self.flush()?;
        self.sort();
        let Ready { readable, .. } = self.wanted();
        if !readable {
            return Ok(());
        }
        let wanted = Ready { readable: true, writable: false };
        if self.session.connection.wait(wanted, Some(Instant::now()))?.is_none() {
            return Ok(());
        }
        match self.session.fill() {
            Ok(true) => {}
            Ok(false) => self.ended = Some(Ended::Closed),
            Err(SessionError::Io(error)) if is_closed(&error) => self.ended = Some(Ended::Closed),
            Err(SessionError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(SessionError::Io(error)) => return Err(error),
            Err(SessionError::Protocol(error)) => self.ended = Some(Ended::Failed(error)),
        }
        self.sort();
        self.flush()
    }

    /// Gives answers to those who wait for them, and puts commands aside.
    fn sort(&mut self) {
        while self.aside_bytes <= ASIDE_BYTES_MAX {
            let (request, result) = match self.session.server.poll() {
                Ok(Some(
                    Event::DmaDone { request, result } | Event::Answered { request, result },
                )) => (request, result.map(<[u8]>::to_vec)),
                Ok(Some(event)) => {
                    let Some(command) = Owned::of(event) else { continue };
                    self.aside_bytes += command.bytes();
                    self.aside.push_back(command);
                    continue;
                }
                Ok(None) => return,
                Err(error) => {
                    self.ended = Some(Ended::Failed(error));
                    return;
                }
            };
            if let Some(answer) = self.answers.get_mut(&request) {
                *answer = Some(result);
            }
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl<S> AsFd for SharedSession<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poll.as_fd()
    }
}
