//! A process that serves until it is told to end: signals, and systemd's notification.

use std::fmt;
use std::mem::MaybeUninit;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use super::log::say;

/// The environment variable in which systemd says where it listens.
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// The signals that end a service in an orderly way, SIGTERM and SIGINT, and the one that tells of the
/// end of a child, SIGCHLD.
pub(crate) struct EndSignals {
    set: libc::sigset_t,
}

/// A signal that has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Signal(libc::c_int);

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 == libc::SIGINT { "SIGINT" } else { "SIGTERM" })
    }
}

impl EndSignals {
    /// Keeps them from ending this thread, and those that it will start: they stay pending.
    pub(crate) fn block() -> EndSignals {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the first call makes the set, the others are given that set; the numbers are
        // signals, so that none of these calls can fail.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
            let set = set.assume_init();
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            set
        };
        EndSignals { set }
    }

    /// Waits until one of them has come; `None` if the children that serve have ended before, of which
    /// `serves` tells.
    pub(crate) fn wait(&self, serves: impl Fn() -> bool) -> Option<Signal> {
        while serves() {
            let mut signal = 0;
            // SAFETY: a set that was made above, and an integer to write to.
            let came = unsafe { libc::sigwait(&self.set, &mut signal) } == 0;
            if came && signal != libc::SIGCHLD {
                return Some(Signal(signal));
            }
        }
        None
    }
}

/// Tells systemd, if it has started this process, that it is ready. Where that fails, systemd will
/// say so; the service is there nevertheless.
pub(crate) fn notify_ready() {
    let Some(place) = std::env::var_os(NOTIFY_SOCKET) else { return };
    if let Err(error) = notify(place.as_bytes()) {
        say(&format!("farside: cannot tell {place:?} that the card is ready: {error}"));
    }
}

/// A name that begins with `@` is none of the file system.
fn notify(place: &[u8]) -> std::io::Result<()> {
    let address = match place.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(place))?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1\n", &address)?;
    Ok(())
}
