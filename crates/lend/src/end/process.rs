//! The lender's end of a lease as its daemon sees it: a process to talk to, and to kill.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::control::{Begin, Hello, Order, Said, receive, send};
use super::tally::{Counted, TallyReader};

/// The arguments by which this program becomes the end of a lease.
const ARGUMENTS: [&str; 2] = ["lend", "end"];

/// How long an end that runs may take to say which process it is.
const HELLO_LIMIT: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct EndProcess {
    control: OwnedFd,
    pidfd: OwnedFd,
    pid: Pid,
    tally: TallyReader,
}

/// The socket of the end of a lease, in a folder of the daemon.
fn socket_path(folder: &Path, epoch: u64) -> PathBuf {
    folder.join(format!("end-{epoch}.sock"))
}

/// The file that says which process the end of a lease is.
fn pid_path(folder: &Path, epoch: u64) -> PathBuf {
    folder.join(format!("end-{epoch}.pid"))
}

/// What tells a process from a later one with the same number: when it was started, in ticks since the
/// machine was.
fn started_at(pid: Pid) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // Its name is in brackets, and may have any in it. Behind it, the state is the third field.
    stat.rsplit_once(')')?.1.split_whitespace().nth(22 - 3)?.parse().ok()
}

/// Notes which process it is.
fn note(folder: &Path, epoch: u64, pid: Pid) -> io::Result<()> {
    let started = started_at(pid).ok_or(io::ErrorKind::NotFound)?;
    std::fs::write(pid_path(folder, epoch), format!("{} {started}", pid.as_raw_nonzero()))
}

fn packets() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

impl EndProcess {
    /// Starts the end of the lease with this epoch.
    pub(crate) fn start(folder: &Path, epoch: u64, begin: Begin) -> io::Result<EndProcess> {
        let path = socket_path(folder, epoch);
        let _ = std::fs::remove_file(&path);
        let address = SocketAddrUnix::new(&path)?;
        let tally = TallyReader::new().map_err(io::Error::other)?;
        let listener = packets()?;
        bind(&listener, &address)?;
        listen(&listener, 4)?;
        let mut child = Command::new("/proc/self/exe")
            .args(ARGUMENTS)
            .stdin(Stdio::from(listener))
            .stdout(Stdio::null())
            .spawn()?;
        let pid = Pid::from_child(&child);
        let started = move || -> io::Result<EndProcess> {
            let control = packets()?;
            connect(&control, &address)?;
            let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
            // One that is not noted has not begun.
            note(folder, epoch, pid)?;
            send(control.as_fd(), &Order::Begin(Box::new(begin)), Some(tally.file()))?;
            Ok(EndProcess { control, pidfd, pid, tally })
        };
        started().inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })
    }

    /// Finds the end of a lease that a former daemon started, if it still runs, and says what it is.
    pub(crate) fn find(folder: &Path, epoch: u64) -> Option<(EndProcess, Hello)> {
        let control = packets().ok()?;
        let address = SocketAddrUnix::new(socket_path(folder, epoch)).ok()?;
        connect(&control, &address).ok()?;
        set_socket_timeout(&control, Timeout::Recv, Some(HELLO_LIMIT)).ok()?;
        // The socket's own credentials are those of the daemon that made it.
        let (Said::Hello(hello), tally) = receive(&control).ok()?? else { return None };
        let tally = TallyReader::of(tally?);
        let pid = Pid::from_raw(i32::try_from(hello.pid).ok()?)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        Some((EndProcess { control, pidfd, pid, tally }, hello))
    }

    /// The epoch of the lease whose end listens at a socket of that name.
    pub(crate) fn epoch_of(name: &OsStr) -> Option<u64> {
        name.to_str()?.strip_prefix("end-")?.strip_suffix(".sock")?.parse().ok()
    }

    /// Kills the end of a lease that does not say which process it is: it may be stopped, and touch the
    /// device when it wakes. `false` if it is still there at the end of `limit`.
    pub(crate) fn kill_unheard(folder: &Path, epoch: u64, limit: Duration) -> bool {
        let noted = std::fs::read_to_string(pid_path(folder, epoch)).unwrap_or_default();
        let Some((pid, started)) = noted.split_once(' ') else { return true };
        let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) else { return true };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
        // Looked at behind the descriptor, which holds on to whoever has the number now.
        if started_at(pid) != started.parse().ok() {
            return true;
        }
        kill(&pidfd, pid, limit)
    }

    /// Removes the files of an end that is gone.
    pub(crate) fn forget(folder: &Path, epoch: u64) {
        let _ = std::fs::remove_file(socket_path(folder, epoch));
        let _ = std::fs::remove_file(pid_path(folder, epoch));
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Where it says what it wants.
    pub(crate) fn socket(&self) -> Option<OwnedFd> {
        self.control.try_clone().ok()
    }

    /// What it has counted so far, also when it is gone.
    pub(crate) fn counted(&self) -> Counted {
        self.tally.read()
    }

    /// The lease runs until then, in nanoseconds of CLOCK_BOOTTIME.
    pub(crate) fn set_until(&self, until: u64) -> io::Result<()> {
        send(self.control.as_fd(), &Order::Until(until), None)
    }

    /// Hands a connection of the borrower over.
    pub(crate) fn connect(&self, connection: BorrowedFd<'_>) -> io::Result<()> {
        send(self.control.as_fd(), &Order::Connection, Some(connection))
    }

    /// Has it serve the programs of this host that come to `listener`.
    pub(crate) fn serve_programs(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        send(self.control.as_fd(), &Order::Programs, Some(listener))
    }

    /// Kills it, and waits until it is gone: nothing of the lease reaches the device any more. `false`
    /// if it is still there at the end of `limit`.
    pub(crate) fn kill(&self, limit: Duration) -> bool {
        kill(&self.pidfd, self.pid, limit)
    }
}

fn kill(pidfd: &OwnedFd, pid: Pid, limit: Duration) -> bool {
    // It fails only for one that has ended.
    let _ = pidfd_send_signal(pidfd, Signal::KILL);
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
        let pause = Timespec::try_from(left).ok();
        match poll(&mut polled, pause.as_ref()) {
            Ok(0) => return false,
            Ok(_) => break,
            Err(_) if left.is_zero() => return false,
            Err(_) => {}
        }
    }
    // A child of a former daemon is somebody else's to wait for.
    let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG);
    true
}
