//! Processes made by fork: the one home of the calls that make, watch and end them.
//!
//! A card's supervisor is single-threaded, so what it forks is a whole and consistent program: its
//! kernels (closures too) exist there without being named, and no lock is held by a thread that is
//! not there.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, getppid, pidfd_open,
    pidfd_send_signal, waitid,
};

/// The exit code of a child that panicked.
const PANICKED: i32 = 101;

/// A child of this process that nobody else waits for.
#[derive(Debug)]
pub(super) struct Child {
    pid: Pid,
    pidfd: OwnedFd,
}

/// Makes a child that runs `body` and never returns: nothing of the parent is dropped in it.
///
/// # Safety
/// In the child only the calling thread exists. Where this process has other threads, `body` must
/// need no lock that one of them may hold at this moment, other than the allocator's.
///
/// # Errors
/// Those of `fork` and `pidfd_open`: too many processes or descriptors.
pub(super) unsafe fn fork(body: impl FnOnce() -> i32) -> io::Result<Child> {
    // SAFETY: passed on to the caller.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = std::panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or(PANICKED);
            // SAFETY: ends the child at once, without what the parent would do at its end.
            unsafe { libc::_exit(code) }
        }
        pid => {
            let pid = Pid::from_raw(pid).expect("fork gives the child's number");
            match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(pidfd) => Ok(Child { pid, pidfd }),
                Err(errno) => {
                    let _ = rustix::process::kill_process(pid, Signal::KILL);
                    let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
                    Err(errno.into())
                }
            }
        }
    }
}

/// How a child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// It said so itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl Child {
    /// Its number.
    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Kills it, if it still runs.
    pub(super) fn kill(&self) {
        // It fails only for one that has ended.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// How it ended, if it has. Its number is free afterwards.
    pub(super) fn reap(&self) -> Option<Ended> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        match waitid(WaitId::PidFd(self.pidfd.as_fd()), options) {
            Ok(status) => status.map(|status| ended(&status)),
            Err(rustix::io::Errno::INTR) => None,
            // Somebody else has waited for it.
            Err(_) => Some(Ended::Code(0)),
        }
    }

    /// Whether it still runs. It can be reaped afterwards as well.
    pub(super) fn is_running(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(WaitId::PidFd(self.pidfd.as_fd()), options), Ok(None))
    }

    /// Waits for its end, until `deadline` at most.
    pub(super) fn await_end(&self, deadline: Instant) -> Option<Ended> {
        loop {
            if let Some(ended) = self.reap() {
                return Some(ended);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
            // Every outcome means: look.
            let _ = poll(&mut polled, Timespec::try_from(left).ok().as_ref());
        }
    }
}

impl AsFd for Child {
    /// Readable when the child has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

fn ended(status: &WaitIdStatus) -> Ended {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ended::Code(code),
        (None, signal) => Ended::Signal(signal.unwrap_or(0)),
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Code(code) => write!(f, "exit code {code}"),
            Ended::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// Has this process killed when its parent, which has one thread, ends. False if it has already.
pub(super) fn die_with(parent: u32) -> bool {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    getppid().is_some_and(|pid| pid.as_raw_nonzero().get().unsigned_abs() == parent)
}

/// Closes every descriptor but these and standard error.
pub(super) fn keep_only(kept: &[BorrowedFd<'_>]) {
    let mut numbers: Vec<u32> = kept.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    numbers.extend([0, 1, 2]);
    numbers.sort_unstable();
    let mut first = 0;
    for number in numbers {
        if first < number {
            close_range(first, number - 1);
        }
        first = number + 1;
    }
    close_range(first, u32::MAX);
}

fn close_range(first: u32, last: u32) {
    // SAFETY: the callers are children that were just made; they own no descriptor but those that
    // they keep, and drop nothing of their parent's.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

/// Standard input and output lead nowhere from now on: they are the parent's.
pub(super) fn let_go_of_stdio() -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

/// Signals act as in a fresh process, but for those that others send, which are kept away: a copy of
/// a program must not run its handlers.
pub(super) fn reset_signals() {
    farside_linux::signals::block_for_whole_thread();
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: the default action runs none of the program's code. Those that cannot be changed
        // are refused, which changes nothing.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Names this process for people.
pub(super) fn set_name(name: &str) {
    let name = std::ffi::CString::new(name).unwrap_or_default();
    let _ = rustix::thread::set_name(&name);
}

/// Waits for every child of this process, until `deadline`.
pub(super) fn reap_all(deadline: Instant) {
    while Instant::now() < deadline {
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// # Safety
    /// As [`fork`].
    unsafe fn run(body: impl FnOnce() -> i32) -> Option<Ended> {
        // SAFETY: passed on.
        let child = unsafe { fork(body) }.unwrap();
        child.await_end(Instant::now() + Duration::from_secs(10))
    }

    #[test]
    fn children_end_as_they_say_and_keep_what_they_are_told_to_keep() {
        let (kept, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (kept, other) = (OwnedFd::from(kept), OwnedFd::from(other));
        // SAFETY: the bodies take no lock but the allocator's.
        unsafe {
            assert_eq!(run(|| 7), Some(Ended::Code(7)));
            assert_eq!(run(|| panic!("as it was told")), Some(Ended::Code(PANICKED)));
            let open = |fd: &OwnedFd| rustix::io::fcntl_getfd(fd).is_ok();
            let left = run(|| {
                keep_only(&[kept.as_fd()]);
                i32::from(open(&kept)) + 2 * i32::from(open(&other))
            });
            assert_eq!(left, Some(Ended::Code(1)));
            assert!(open(&kept) && open(&other));
        }
    }

    #[test]
    fn a_child_that_does_not_end_is_killed_and_waited_for() {
        // SAFETY: the body takes no lock.
        let child = unsafe {
            fork(|| {
                loop {
                    std::thread::park()
                }
            })
        }
        .unwrap();
        assert_eq!(child.await_end(Instant::now() + Duration::from_millis(20)), None);
        child.kill();
        let ended = child.await_end(Instant::now() + Duration::from_secs(10));
        assert_eq!(ended, Some(Ended::Signal(libc::SIGKILL)));
    }
}
