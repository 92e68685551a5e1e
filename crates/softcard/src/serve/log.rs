//! What a client can have written to the log: as much as the log can bear.
//!
//! A client has it in its hands what its worker says, and how often one begins and ends. So a worker
//! writes into a pipe, and the lease's process passes on what the function has left of its allowance;
//! the rest is left out, and counted in a line where there is room for one. Writing into a full pipe does
//! not wait: then the worker's words are lost.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};

/// Bytes that a function may have logged at a time.
const BURST: u64 = 16 << 10;
/// Bytes that are added to that in a second.
const PER_SECOND: u64 = 1 << 10;
/// What a line that the server itself writes about a client counts.
const LINE: u64 = 160;
/// How long a lease waits before it looks at a pipe again that it has no allowance for.
const PAUSE: Duration = Duration::from_millis(500);
/// Bytes that are passed on at a time.
const PIECE: usize = 4 << 10;

/// Bytes that may be logged.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    bytes: u64,
    since: Instant,
}

impl Allowance {
    /// All that a function may have.
    pub(super) fn full() -> Allowance {
        Allowance { bytes: BURST, since: Instant::now() }
    }

    /// What time has added.
    fn refill(&mut self) {
        let seconds = self.since.elapsed().as_secs();
        if seconds > 0 {
            self.bytes = BURST.min(self.bytes.saturating_add(seconds.saturating_mul(PER_SECOND)));
            self.since += Duration::from_secs(seconds);
        }
    }

    /// Takes half of what there is, for a lease: the next one wants to be heard as well.
    pub(super) fn share(&mut self) -> Allowance {
        self.refill();
        let bytes = self.bytes / 2;
        self.bytes -= bytes;
        Allowance { bytes, since: Instant::now() }
    }

    /// Whether a line of the server's may be written.
    pub(super) fn take_line(&mut self) -> bool {
        self.refill();
        let may = self.bytes >= LINE;
        self.bytes = self.bytes.saturating_sub(LINE);
        may
    }
}

/// Where a worker's standard error leads.
#[derive(Debug)]
pub(super) struct LogPipe {
    reader: OwnedFd,
    writer: Option<OwnedFd>,
    allowance: Allowance,
    /// Bytes that nobody will see.
    left_out: u64,
    /// The worker has closed its end.
    is_over: bool,
}

impl LogPipe {
    /// A pipe that neither side waits for.
    pub(super) fn new(allowance: Allowance) -> io::Result<LogPipe> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(LogPipe { reader, writer: Some(writer), allowance, left_out: 0, is_over: false })
    }

    /// The worker's end.
    ///
    /// # Panics
    /// If it was closed: the worker is made before.
    pub(super) fn writer(&self) -> &OwnedFd {
        self.writer.as_ref().expect("the worker is made before the end is closed")
    }

    /// Leaves the worker's end to the worker.
    pub(super) fn close_writer(&mut self) {
        self.writer = None;
    }

    /// What is left of the allowance.
    pub(super) fn allowance(&mut self) -> &mut Allowance {
        &mut self.allowance
    }

    /// Whether it may be read now.
    pub(super) fn wants_input(&mut self) -> bool {
        self.allowance.refill();
        self.spare() > 0 && !self.is_over
    }

    /// What may be passed on. The line that tells of what is left out is not to be left out.
    fn spare(&self) -> u64 {
        self.allowance.bytes.saturating_sub(LINE)
    }

    /// When to ask again, if it may not.
    pub(super) fn next_refill(&mut self) -> Option<Instant> {
        (!self.wants_input() && !self.is_over).then(|| Instant::now() + PAUSE)
    }

    /// Passes on what has come, as far as is allowed. False at the end.
    pub(super) fn forward(&mut self) -> bool {
        let mut bytes = [0; PIECE];
        let count = match rustix::io::read(&self.reader, &mut bytes) {
            Ok(count @ 1..) => count,
            other => {
                self.is_over |= other.is_ok();
                return false;
            }
        };
        let allowed = count.min(usize::try_from(self.spare()).unwrap_or(count));
        write_all(&bytes[..allowed]);
        self.allowance.bytes -= allowed as u64;
        self.left_out += (count - allowed) as u64;
        true
    }

    /// The worker has ended: passes on what is left, and says how much was left out.
    pub(super) fn finish(&mut self) {
        while self.forward() {}
        // One line for each of many clients that come and go is too much as well.
        if self.left_out > 0 && self.allowance.take_line() {
            tracing::warn!(bytes = self.left_out, "a client's worker said too much; left out");
        }
    }
}

impl AsFd for LogPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

fn write_all(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match rustix::io::write(rustix::stdio::stderr(), bytes) {
            Ok(count) if count > 0 => bytes = &bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_allowed_until_too_many_and_again_after_a_while() {
        let mut allowance = Allowance::full();
        let lines = (0..1000).filter(|_| allowance.take_line()).count() as u64;
        assert_eq!(lines, BURST / LINE);
        allowance.since -= Duration::from_secs(3);
        assert!(allowance.take_line());
        allowance.since -= Duration::from_secs(1 << 40);
        assert_eq!(allowance.share().bytes, BURST / 2);
    }

    #[test]
    fn a_worker_that_talks_too_much_is_cut_off_and_never_waits() {
        let allowance = Allowance { bytes: LINE + 10, since: Instant::now() };
        let mut pipe = LogPipe::new(allowance).unwrap();
        // Far more than a pipe holds.
        let written = std::iter::from_fn(|| rustix::io::write(pipe.writer(), &[b'.'; 4096]).ok());
        let written: usize = written.sum();
        assert!(written >= 4096);
        pipe.close_writer();
        assert!(pipe.wants_input());
        assert!(pipe.forward());
        assert!(!pipe.wants_input() && pipe.next_refill().is_some());
        while pipe.forward() {}
        assert_eq!(pipe.left_out, written as u64 - 10);
        // It is told once, and then there is nothing left to tell it with.
        pipe.finish();
        assert_eq!(pipe.allowance.bytes, 0);
    }
}
