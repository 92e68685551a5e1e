//! One run as a process of its own, which ends with this one.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use serde::de::DeserializeOwned;

/// What our messages begin with.
const OURS: &str = "farside: ";
/// The most of what a failed process said that is passed on, in bytes.
const SAID_MAX: usize = 2_000;

/// What a process printed and said.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Standard output, as bytes.
    pub printed: Vec<u8>,
    /// Standard error.
    pub said: String,
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

/// Runs `binary` with these arguments. `started` gets the process as soon as it is there.
///
/// # Errors
/// [`Failed`]: what it said, or how it ended.
pub fn run_child(
    binary: &Path,
    arguments: &[String],
    started: impl FnOnce(&Child),
) -> Result<Answer, Failed> {
    let failed = |why| Failed { why, code: None };
    let child = Command::new(binary)
        .args(arguments)
        .args(["--end-with-parent", &std::process::id().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("cannot run {}: {error}", binary.display())))?;
    started(&child);
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        return Ok(Answer { printed: output.stdout, said });
    }
    let why = why(&said, &ended(output.status));
    Err(Failed { why, code: output.status.code() })
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
}
