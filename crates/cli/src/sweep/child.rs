//! One run as a process of its own, which ends with this one.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use serde::de::DeserializeOwned;

/// What our messages begin with.
const OURS: &str = "farside: ";
/// The most of what a failed process said that is passed on, in bytes.
const SAID_MAX: usize = 2_000;
/// The most of what a process says that is kept, in bytes.
const KEPT_MAX: usize = 1 << 16;

/// So many seconds a process may be stopped by a signal while this one runs. It cannot end itself then.
const STOPPED_MOST_S: u32 = 10;

/// The variable by which glibc's allocator is told what to do, and that it is to ask for large pages. A simulated machine
/// has more pages of 4 KiB than a processor has translations for: a tenth of the time is theirs (docs/performance.md).
const TUNABLES: &str = "GLIBC_TUNABLES";
const LARGE_PAGES: &str = "glibc.malloc.hugetlb";

/// What a process printed.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Standard output, as bytes.
    pub printed: Vec<u8>,
}

impl Answer {
    /// What was printed, as JSON.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, String> {
        if self.printed.is_empty() {
            return Err(
                "it ended without a result, as if all were well: a scheme must not call exit"
                    .to_owned(),
            );
        }
        serde_json::from_slice(&self.printed)
            .map_err(|error| format!("its output cannot be read: {error}"))
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// In words.
    pub why: String,
    /// Its exit code; none if a signal ended it.
    pub code: Option<i32>,
}

/// Runs `binary` with these arguments. `started` gets the process as soon as it is there. What it says on standard
/// error is passed on as it comes, but for the message by which it fails. Nobody waits for what it started itself.
///
/// # Errors
/// [`Failed`]: what it said, or how it ended.
pub fn run_child(
    binary: &Path,
    arguments: &[String],
    started: impl FnOnce(&Child),
) -> Result<Answer, Failed> {
    let failed = |why| Failed { why, code: None };
    let lost = |error: io::Error| failed(format!("it cannot be waited for: {error}"));
    let mut child = Command::new(binary)
        .args(arguments)
        .args(["--end-with-parent", &std::process::id().to_string()])
        .env(TUNABLES, with_large_pages(std::env::var(TUNABLES).ok()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("cannot run {}: {error}", binary.display())))?;
    started(&child);
    let end = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let end = end.map_err(|error| lost(error.into()))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut printed = Vec::new();
    let (read, said, stopped) = std::thread::scope(|scope| {
        let end = end.as_fd();
        let guard = scope.spawn(move || end_if_stopped(end));
        let listener = scope.spawn(move || {
            stderr.map(|stderr| listen(UntilEnd::new(stderr, end), &mut io::stderr()))
        });
        let read = stdout.map_or(Ok(0), |out| UntilEnd::new(out, end).read_to_end(&mut printed));
        (read, listener.join(), guard.join())
    });
    let status = read.and_then(|_| child.wait()).map_err(lost)?;
    let Said { kept, held } = said.ok().flatten().unwrap_or_default();
    if status.success() {
        // Without a standard error nobody is told.
        let _ = io::stderr().write_all(&held);
        return Ok(Answer { printed });
    }
    let said = String::from_utf8_lossy(&kept);
    let how = match stopped {
        Ok(true) => format!("it was stopped by a signal for {STOPPED_MOST_S} s, and ended"),
        _ => ended(status),
    };
    let why = why(&said, &how);
    Err(Failed { why, code: status.code() })
}

/// Waits until the process ends, and ends it if it is stopped for too long; whether it was.
fn end_if_stopped(process: BorrowedFd<'_>) -> bool {
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    let is_stopped = || {
        let look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::PidFd(process), look).is_ok_and(|status| status.is_some())
    };
    let mut stopped = 0;
    while stopped < STOPPED_MOST_S {
        let mut ended = [PollFd::from_borrowed_fd(process, PollFlags::IN)];
        match poll(&mut ended, Some(&second)) {
            Ok(0) => stopped = if is_stopped() { stopped + 1 } else { 0 },
            Err(rustix::io::Errno::INTR) => {}
            _ => return false,
        }
    }
    pidfd_send_signal(process, Signal::KILL).is_ok()
}

/// The tunables that there are, and large pages if they say nothing of these.
fn with_large_pages(tunables: Option<String>) -> String {
    match tunables {
        Some(own) if own.contains(LARGE_PAGES) => own,
        Some(own) if !own.is_empty() => format!("{own}:{LARGE_PAGES}=1"),
        _ => format!("{LARGE_PAGES}=1"),
    }
}

/// A process's end of a pipe, until the process has ended: one that it forked may hold the pipe for ever.
struct UntilEnd<'a, R> {
    pipe: R,
    /// The process.
    end: BorrowedFd<'a>,
    /// Bytes that were in the pipe when it ended, and are still to be read.
    left: Option<u64>,
}

impl<'a, R> UntilEnd<'a, R> {
    fn new(pipe: R, end: BorrowedFd<'a>) -> UntilEnd<'a, R> {
        UntilEnd { pipe, end, left: None }
    }
}

impl<R: Read + AsFd> Read for UntilEnd<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.left.is_none() {
            let mut ready = [
                PollFd::new(&self.pipe, PollFlags::IN),
                PollFd::from_borrowed_fd(self.end, PollFlags::IN),
            ];
            poll(&mut ready, None)?;
            if !ready[1].revents().is_empty() {
                self.left = Some(rustix::io::ioctl_fionread(&self.pipe)?);
            }
        }
        let most = self.left.map_or(into.len(), |left| into.len().min(left as usize));
        let bytes = self.pipe.read(&mut into[..most])?;
        self.left = self.left.map(|left| left - bytes as u64);
        Ok(bytes)
    }
}

/// What a process said.
#[derive(Debug, Default)]
struct Said {
    /// The end of it.
    kept: Vec<u8>,
    /// What was not passed on: a message of ours with which it ends, and what comes after its first line.
    held: Vec<u8>,
}

/// Passes on to `to` what `from` says, line by line.
fn listen(from: impl Read, to: &mut impl Write) -> Said {
    let mut from = BufReader::new(from);
    let (mut said, mut line) = (Said::default(), Vec::new());
    loop {
        line.clear();
        // A line without an end comes in pieces.
        let piece = from.by_ref().take(KEPT_MAX as u64).read_until(b'\n', &mut line);
        if !piece.is_ok_and(|bytes| bytes > 0) {
            return said;
        }
        let ours = line.starts_with(OURS.as_bytes());
        // Without a standard error nobody is told.
        if ours || said.held.len() > KEPT_MAX {
            let _ = to.write_all(&std::mem::take(&mut said.held));
        }
        if ours || !said.held.is_empty() {
            said.held.extend(&line);
        } else {
            let _ = to.write_all(&line);
        }
        said.kept.extend(&line);
        if said.kept.len() > 2 * KEPT_MAX {
            said.kept.drain(..said.kept.len() - KEPT_MAX);
        }
    }
}

fn ended(status: ExitStatus) -> String {
    format!("it ended by {status}")
}

/// What is told of a process that failed: its own last message, or how it ended and what else it said.
pub(super) fn why(said: &str, status: &str) -> String {
    let said = said.trim();
    // Of several the last one; its further lines belong to it.
    let later = said.rfind(&format!("\n{OURS}")).map(|at| at + 1);
    let last = later.or_else(|| said.starts_with(OURS).then_some(0));
    match last {
        Some(at) => said[at + OURS.len()..].to_owned(),
        None if said.is_empty() => status.to_owned(),
        None => {
            let from = said.len().saturating_sub(SAID_MAX);
            let from = (from..=said.len()).find(|&at| said.is_char_boundary(at)).unwrap_or(0);
            format!("{status}; the last that it said: {}", &said[from..])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_says_is_passed_on_but_for_its_last_message() {
        let heard = |text: &str| {
            let mut passed = Vec::new();
            let said = listen(text.as_bytes(), &mut passed);
            assert!(said.kept.len() <= 2 * KEPT_MAX && said.held.len() <= 2 * KEPT_MAX);
            assert!(
                text.as_bytes().ends_with(&said.kept)
                    && passed.len() + said.held.len() == text.len()
            );
            (String::from_utf8(passed).unwrap(), String::from_utf8(said.held).unwrap())
        };
        for (passed, held) in [
            ("debug\nmore", ""),
            ("debug\n", "farside: stuck\nGPU 0 waits"),
            ("farside: a warning\ndebug\n", "farside: an error"),
        ] {
            assert_eq!(heard(&format!("{passed}{held}")), (passed.to_owned(), held.to_owned()));
        }
        heard(&"a debug print\n".repeat(100_000));
        heard(&format!("farside: a warning\n{}", "a debug print\n".repeat(100_000)));
        heard(&"no end".repeat(100_000));
    }

    #[test]
    fn a_failed_process_is_told_of_by_its_own_message_or_by_how_it_ended() {
        for (said, told) in [
            ("farside: no such scheme\n", "no such scheme"),
            ("debug\nfarside: stuck\nGPU 0 waits", "stuck\nGPU 0 waits"),
            ("farside: a warning\nfarside: an error", "an error"),
            ("", "signal 11"),
            ("oops\n", "signal 11; the last that it said: oops"),
        ] {
            assert_eq!(why(said, "signal 11"), told, "{said:?}");
        }
        let long = "ü".repeat(SAID_MAX);
        assert!(why(&long, "signal 11").len() < SAID_MAX + 100);
    }

    #[test]
    fn nobody_waits_for_what_a_process_has_forked() {
        let script = "sleep 20 & printf %0200000d 7; echo told >&2; printf end; exit $1";
        let run = |code: &str| {
            let arguments = ["-c", script, "sh", code].map(str::to_owned);
            run_child(Path::new("/bin/sh"), &arguments, |_| ())
        };
        let begun = std::time::Instant::now();
        let printed = run("0").unwrap().printed;
        assert!(printed.len() == 200_003 && printed.ends_with(b"7end"), "{}", printed.len());
        let failed = run("3").unwrap_err();
        assert!(failed.code == Some(3) && failed.why.ends_with("told"), "{failed:?}");
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_process_that_is_stopped_is_ended() {
        let run = |script: &str| {
            run_child(Path::new("/bin/sh"), &["-c", script].map(str::to_owned), |_| ())
        };
        let why = run("kill -STOP $$").unwrap_err().why;
        assert!(why.contains("stopped by a signal for 10 s"), "{why}");
        let goes_on = run("(sleep 3; kill -CONT $$) & kill -STOP $$; printf on").unwrap();
        assert_eq!(goes_on.printed, b"on");
    }

    #[test]
    fn a_process_has_large_pages_unless_it_is_said_otherwise() {
        let arguments = ["-c".to_owned(), format!("printf %s ${TUNABLES}")];
        let answer = run_child(Path::new("/bin/sh"), &arguments, |_| ()).unwrap();
        let printed = String::from_utf8(answer.printed).unwrap();
        assert!(printed.contains(LARGE_PAGES), "{printed}");
        let given = |own: &str| with_large_pages(Some(own.to_owned()));
        assert_eq!(given("glibc.malloc.hugetlb=0"), "glibc.malloc.hugetlb=0");
        assert_eq!(given("glibc.malloc.check=1"), "glibc.malloc.check=1:glibc.malloc.hugetlb=1");
        assert_eq!(given(""), with_large_pages(None));
    }
}
