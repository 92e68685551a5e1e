//! Calls over vfio-user, one at a time, and how long they may take.

use std::io;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use farside_card::interface::pci;
use farside_vfio_user::unix::{BlockingClient, CallError, Stream};
use farside_vfio_user::{DmaUnmap, Errno as WireErrno};
use rustix::io::Errno;

use super::transport::TransportError;
use crate::lease::NotReached;
use farside_linux::lock::lock;

/// How long a message may take. Messages are rare where memory is shared: at the beginning, at the
/// end, and when memories change.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(2);

/// A client for all threads.
pub(super) struct Calls<S> {
    client: Mutex<BlockingClient<S>>,
    /// When what is under way has to be over.
    limit: Mutex<Option<Instant>>,
}

impl<S: Stream> Calls<S> {
    pub(super) fn new(client: BlockingClient<S>) -> Calls<S> {
        Calls { client: Mutex::new(client), limit: Mutex::new(None) }
    }

    /// The client; calls wait meanwhile.
    pub(super) fn client(&self) -> MutexGuard<'_, BlockingClient<S>> {
        lock(&self.client)
    }

    /// All calls together have to be over until `end`; `None`: each in its own time.
    pub(super) fn limit(&self, end: Option<Instant>) {
        *lock(&self.limit) = end;
        if end.is_none() {
            // It can fail for a limit of zero only.
            let _ = self.client().set_time_limit(CALL_LIMIT);
        }
    }

    /// Calls, within the limit; `what` it is for is part of the error.
    pub(super) fn call<T>(
        &self,
        what: &'static str,
        call: impl FnOnce(&mut BlockingClient<S>) -> Result<T, CallError>,
    ) -> Result<T, TransportError> {
        let mut client = self.client();
        if let Some(end) = *lock(&self.limit) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(TransportError::TimedOut { what });
            }
            let limited = client.set_time_limit(left.min(CALL_LIMIT));
            limited.map_err(|error| failure(what, &CallError::Io(error)))?;
        }
        call(&mut client).map_err(|error| failure(what, &error))
    }

    pub(super) fn read_register(&self, at: u64, into: &mut [u8]) -> Result<(), TransportError> {
        self.call("reading a register", |client| {
            client.region_read(pci::BAR_REGISTERS as u32, at, into)
        })
    }

    pub(super) fn write_register(&self, at: u64, from: &[u8]) -> Result<(), TransportError> {
        self.call("writing a register", |client| {
            client.region_write(pci::BAR_REGISTERS as u32, at, from)
        })
    }

    pub(super) fn unmap(&self, bus: u64, bytes: u64) -> Result<(), TransportError> {
        let range = DmaUnmap::Range { address: bus, size: bytes };
        self.call("taking memory back from the card", |client| client.dma_unmap(range))
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// Another program uses the function, or the card is at work to clean up after one.
    Busy,
    /// Nobody listens there.
    Absent(io::Error),
    /// The system lets nobody connect there, or not this program.
    Socket(Errno),
    /// It is a lease that cannot be used any more.
    Over(String),
    /// The server is there and something else is wrong.
    Failed(TransportError),
}

impl From<io::Error> for ConnectError {
    /// There is no stream.
    fn from(error: io::Error) -> ConnectError {
        match error.raw_os_error() {
            _ if is_absent(&error) => ConnectError::Absent(error),
            Some(code) => ConnectError::Socket(Errno::from_raw_os_error(code)),
            None => ConnectError::Failed(failure("connecting", &CallError::Io(error))),
        }
    }
}

impl From<NotReached> for ConnectError {
    fn from(error: NotReached) -> ConnectError {
        match error {
            NotReached::Over(why) => ConnectError::Over(why),
            // The lender's host may come back.
            NotReached::Absent(error) => ConnectError::Absent(error),
            NotReached::Busy => ConnectError::Busy,
        }
    }
}

impl From<CallError> for ConnectError {
    /// There is a stream, and no version is agreed.
    fn from(error: CallError) -> ConnectError {
        match error {
            CallError::Refused(WireErrno::BUSY) => ConnectError::Busy,
            CallError::Io(error) if is_absent(&error) => ConnectError::Absent(error),
            CallError::Closed => ConnectError::Failed(TransportError::TurnedAway),
            other => ConnectError::Failed(failure("connecting", &other)),
        }
    }
}

fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof)
}

/// The error of a number that somebody else has sent. Those that are none make [`Errno`] panic.
pub(super) fn errno_of(code: u32) -> Errno {
    let code = i32::try_from(code).ok().filter(|code| (1..4096).contains(code));
    code.map_or(Errno::IO, Errno::from_raw_os_error)
}

pub(super) fn failure(what: &'static str, error: &CallError) -> TransportError {
    match error {
        CallError::Refused(errno) => {
            TransportError::Refused { what, errno: errno_of(errno.code()) }
        }
        CallError::TimedOut(_) => TransportError::TimedOut { what },
        CallError::Closed => TransportError::Gone { what },
        CallError::Io(error) => match error.raw_os_error() {
            _ if is_absent(error) => TransportError::Gone { what },
            Some(code) => TransportError::Refused { what, errno: Errno::from_raw_os_error(code) },
            None => TransportError::Unfit { what: format!("{what} failed: {error}") },
        },
        other => TransportError::Unfit { what: format!("{what} failed: {other}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_number_a_card_answers_with_is_an_error() {
        for code in [0, 4096, 1 << 16, u32::MAX, i32::MAX as u32 + 2] {
            let error = failure("asking", &CallError::Refused(WireErrno::new(code)));
            assert_eq!(error, TransportError::Refused { what: "asking", errno: Errno::IO });
        }
        assert_eq!(errno_of(22), Errno::INVAL);
        assert_eq!(errno_of(4095).raw_os_error(), 4095);
    }
}
