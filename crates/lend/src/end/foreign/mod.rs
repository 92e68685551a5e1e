//! The ends of a lease of a vfio-user device of whoever's making, in their processes: sockets, descriptors
//! and time for the pure ends of [`crate::ends`].
//!
//! `client_side` is the local client's connection and its [`BorrowerEnd`](crate::ends::borrower::BorrowerEnd),
//! `device_side` the device's and its [`LenderEnd`](crate::ends::lender::LenderEnd). Across machines each has
//! an end of a link ([`Carried`](farside_live::far::Carried)) in the process `near` or `lender`; connections
//! that break are replaced. On one machine both are in the lender's process, with the link between them in its memory
//! (`here`).

mod client_side;
mod describe;
mod device_side;
mod here;
#[cfg(test)]
mod hostile_device;
#[cfg(test)]
mod hostile_tests;
mod lender;
#[cfg(test)]
mod lender_tests;
mod near;
mod raises;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use farside_vfio_user::unix::{CallError, UnixClient};
use farside_vfio_user::{Errno, ProtocolError};

pub(super) use lender::Lender;
pub(super) use near::Near;

/// How often a device is looked for that is about to be served again.
const LOOK: Duration = Duration::from_millis(10);

/// Resets a device that nobody uses. One that is not there may come, until `limit` is over: its server may
/// have ended with its client, and be started again, or still be busy with that client, which has gone.
///
/// # Errors
/// It is not there, in use, or does not reset.
pub(crate) fn reset(socket: &Path, limit: Duration) -> Result<(), String> {
    let outcome = await_served(
        limit,
        |error| match error {
            CallError::Io(error) => is_absent(error),
            CallError::Refused(errno) => *errno == Errno::BUSY,
            CallError::Closed => true,
            _ => false,
        },
        || UnixClient::connect(socket, limit),
    );
    outcome
        .and_then(|mut client| client.reset())
        .map_err(|error| format!("it does not reset: {error}"))
}

/// Connects as soon as somebody serves, until `limit` is over.
fn await_served<T, E>(
    limit: Duration,
    is_absent: impl Fn(&E) -> bool,
    mut connect: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let end = Instant::now() + limit;
    loop {
        match connect() {
            Err(error) if is_absent(&error) && Instant::now() < end => std::thread::sleep(LOOK),
            other => return other,
        }
    }
}

/// Whether a device may be there in a moment.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, NotFound, ResourceBusy,
    };
    // What ends a connection that nothing was said over is the end of a server that had another client.
    let ended = matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset);
    ended || matches!(error.kind(), NotFound | ConnectionRefused | ResourceBusy)
}

/// Why a side goes on no more.
#[derive(Debug, thiserror::Error)]
enum Gone {
    /// The local client, or the device, has closed its connection.
    #[error("its connection has ended")]
    Closed,
    /// Its connection failed.
    #[error("its connection failed: {0}")]
    Io(#[from] io::Error),
    /// It speaks nonsense.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// Reads of a connection in a row: then it is somebody else's turn.
const READS_MAX: usize = 16;
