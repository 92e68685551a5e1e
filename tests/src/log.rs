//! The log of a run: one line per event, the last lines kept.
//!
//! Legend. Each line is `time-in-ns mark text`:
//!
//! | mark | meaning |
//! |---|---|
//! | `>` | the driver hands out a command: id, executor, `A`waited or `P`osted, reason, operation, runs `page+count src->dst` |
//! | `x` | the machine carries a command out |
//! | `<` | the driver is told that a command is done, or how it failed |
//! | `e` | the driver is told of something else |
//! | `f` | an access faults |
//! | `a` | an access is performed: agent, operation, page.word, memory:frame, value |
//! | `q` | the program asks for something |
//! | `r` | the driver answers the program |
//! | `!` | hostility: a failure, a loss, a stall, an evicted translation |
//! | `=` | a quiet point was checked |

use std::collections::VecDeque;
use std::fmt::Write as _;

use farside_svm::{Command, HostOp, RingOp, TransferOp, Wait};
use farside_types::Time;

/// Lines kept.
const LINES: usize = 60;

/// The last lines.
#[derive(Debug, Default)]
pub(crate) struct Log {
    lines: VecDeque<String>,
    /// Keep every line (for a person who looks for a fault).
    pub(crate) unbounded: bool,
}

impl Log {
    /// Adds a line.
    pub(crate) fn line(&mut self, now: Time, mark: char, text: String) {
        if self.lines.len() >= LINES && !self.unbounded {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{:>10} {mark} {text}", now.0 / 1_000));
    }

    /// All lines kept.
    pub(crate) fn text(&self) -> String {
        self.lines.iter().fold(String::new(), |mut all, line| {
            all.push_str(line);
            all.push('\n');
            all
        })
    }
}

/// A command in one line.
pub(crate) fn describe(command: &Command) -> String {
    let header = command.header();
    let wait = if header.wait == Wait::Awaited { 'A' } else { 'P' };
    let (executor, name) = (command.executor(), command.name());
    let mut text = format!("{} {executor:?} {wait} {} {name}", header.id.0, header.reason);
    match command {
        Command::Host(step) => match &step.op {
            HostOp::Map { rights, .. } | HostOp::Protect { rights, .. } => {
                _ = write!(text, " {rights:?}");
            }
            HostOp::Unmap { .. } | HostOp::Release { .. } | HostOp::Poison { .. } => {}
        },
        Command::Ring(_, step) => match &step.op {
            RingOp::Map { memory, rights, .. } => _ = write!(text, " {memory} {rights:?}"),
            RingOp::Protect { rights, .. } => _ = write!(text, " {rights:?}"),
            RingOp::Resume { faults } => _ = write!(text, " {faults:?}"),
            RingOp::Cancel { faults, reason } => _ = write!(text, " {faults:?} {reason:?}"),
            RingOp::Launch { job } => _ = write!(text, " {job}"),
            RingOp::Unmap { .. } | RingOp::Accessed { .. } => {}
        },
        Command::Transfer(_, step) => match &step.op {
            TransferOp::Copy { from, to, .. } => _ = write!(text, " {from:?} to {to:?}"),
            TransferOp::Fill { memory, .. } => _ = write!(text, " {memory}"),
        },
    }
    for run in command.runs() {
        _ = write!(text, " {:#x}+{} {}->{}", run.page.0, run.count, run.src.0, run.dst.0);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut log = Log::default();
        for i in 0..100 {
            log.line(Time::from_nanos(i), 'a', format!("line {i}"));
        }
        assert_eq!(log.text().lines().count(), LINES);
        assert!(log.text().trim_end().ends_with("a line 99"));
    }
}
