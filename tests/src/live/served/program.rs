//! A program in a process of its own, while it runs: this test binary once more, in a role.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a program may take to say or do what it is waited for.
const LIMIT: Duration = Duration::from_secs(30);

/// A program that runs; killed when dropped.
#[derive(Debug)]
pub struct Program {
    child: std::process::Child,
    lines: Receiver<String>,
    heard: Vec<String>,
}

impl Program {
    /// Starts the test `test` of this binary in the role `role`.
    pub fn start(test: &str, role: &str) -> Program {
        let program = std::env::current_exe().expect("the test binary has a path");
        let mut child = Command::new(program)
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(crate::live::child::ROLE, role)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test binary starts");
        let out = child.stdout.take().expect("it was piped");
        let (line_to, lines) = channel();
        // Ends with the program.
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if line_to.send(line).is_err() {
                    return;
                }
            }
        });
        Program { child, lines, heard: Vec::new() }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it prints a line that contains `text`.
    ///
    /// # Panics
    /// If it ends before, or takes more than 30 seconds.
    #[track_caller]
    pub fn await_line(&mut self, text: &str) {
        let end = Instant::now() + LIMIT;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let found = line.contains(text);
                    self.heard.push(line);
                    if found {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("it never says `{text}`: {:?}", self.heard)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("it ended before it said `{text}`: {:?}", self.heard)
                }
            }
        }
    }

    /// Kills it, and waits until it is gone.
    ///
    /// # Panics
    /// If it has ended by itself before, or does not end.
    #[track_caller]
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let (code, said) = self.await_end();
        assert_eq!(code, -libc::SIGKILL, "it ended by itself: {said}");
    }

    /// Waits for its end. Gives its exit code or the signal that ended it, negative, and what it
    /// said.
    ///
    /// # Panics
    /// If it takes more than 30 seconds.
    #[track_caller]
    pub fn await_end(&mut self) -> (i32, String) {
        let end = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("the child is this process's own") {
                break status;
            }
            if Instant::now() > end {
                let _ = self.child.kill();
                self.heard.extend(self.lines.try_iter());
                panic!("the program hangs: {:?}", self.heard);
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        // To the end of the stream: the reader lets go of its side then.
        self.heard.extend(self.lines.iter());
        let code = status.code().or(status.signal().map(|signal| -signal));
        (code.expect("a process exits or is ended by a signal"), self.heard.join("\n"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
