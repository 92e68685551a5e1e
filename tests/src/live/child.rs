//! Children: this test binary once more, with one test and a role in the environment.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(super) const ROLE: &str = "FARSIDE_LIVE_ROLE";

/// What this process is to do instead of the test's own part; `None` in the test itself.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// A child that is about to be started.
#[derive(Debug)]
pub struct Child {
    command: Command,
    limit: Duration,
}

/// How a child ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code, if it exited.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What it wrote, both streams.
    pub text: String,
    /// Its process id, which is free again.
    pub pid: u32,
}

impl Child {
    /// The test `test` of this binary in the role `role`.
    pub fn new(test: &str, role: &str) -> Child {
        let program = std::env::current_exe().expect("the test binary has a path");
        let mut command = Command::new(program);
        command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role);
        Child { command, limit: Duration::from_secs(40) }
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// If it takes too long, or writes more than fits a pipe: its end is then not its own.
    pub fn run(mut self) -> Ended {
        self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().expect("the test binary starts");
        let end = Instant::now() + self.limit;
        let status = loop {
            if let Some(status) = child.try_wait().expect("the child is this process's own") {
                break status;
            }
            if Instant::now() > end {
                let _ = child.kill();
                let _ = child.wait();
                panic!("the child hangs: {:?}", self.command);
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let mut text = Vec::new();
        let pid = child.id();
        child.stdout.take().map(|mut out| out.read_to_end(&mut text));
        child.stderr.take().map(|mut out| out.read_to_end(&mut text));
        let text = String::from_utf8_lossy(&text).into_owned();
        Ended { code: status.code(), signal: status.signal(), text, pid }
    }
}

impl Ended {
    /// Requires that all went well.
    ///
    /// # Panics
    /// If not, with what it wrote.
    #[track_caller]
    pub fn expect_success(&self) {
        assert_eq!((self.code, self.signal), (Some(0), None), "{}", self.text);
    }

    /// Requires that a signal ended it.
    ///
    /// # Panics
    /// If not, with what it wrote.
    #[track_caller]
    pub fn expect_signal(&self, signal: i32) {
        assert_eq!((self.code, self.signal), (None, Some(signal)), "{}", self.text);
    }
}
