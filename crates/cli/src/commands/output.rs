//! Writing to standard output.

use std::io::{ErrorKind, Write};

use serde::Serialize;

use super::Failure;

/// Writes text. A reader that has gone (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(Failure::Output),
    }
}

/// Writes a value as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value);
    print(&(text.map_err(|error| Failure::Output(error.into()))? + "\n"))
}
