//! Writing to standard output, and files that are there whole or not at all.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::OnceLock;

use rustix::stdio::{dup2_stdout, stderr, stdout};
use serde::Serialize;

use super::Failure;

/// Where results go if not to standard output.
static KEPT: OnceLock<File> = OnceLock::new();

/// Keeps standard output for results: what others' code prints in this process goes to standard error from now on.
pub(crate) fn keep_for_results() -> Result<(), Failure> {
    let failed = |error: rustix::io::Errno| Failure::Output(error.into());
    let kept = rustix::io::fcntl_dupfd_cloexec(stdout(), 3).map_err(failed)?;
    dup2_stdout(stderr()).map_err(failed)?;
    KEPT.get_or_init(|| kept.into());
    Ok(())
}

/// Writes text. A reader that has gone (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_on(text).map(|_| ())
}

/// Writes text; whether somebody reads it still.
pub(crate) fn print_on(text: &str) -> Result<bool, Failure> {
    let mut out: Box<dyn Write> = match KEPT.get() {
        Some(kept) => Box::new(kept),
        None => Box::new(std::io::stdout().lock()),
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::Output(error)),
    }
}

/// Writes a file: beside its place until all of it is there, so that what there was stays if it cannot be. What is no file (a pipe, a
/// device) is written as it is.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |source| Failure::Write { path: path.to_owned(), source };
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return std::fs::write(path, bytes).map_err(failed);
    }
    // What a link leads to, not the link.
    let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut part = place.clone().into_os_string();
    part.push(".part");
    let written = std::fs::write(&part, bytes).and_then(|()| std::fs::rename(&part, &place));
    written.map_err(|source| {
        // What went wrong is worth more than that this may not work either.
        let _ = std::fs::remove_file(&part);
        failed(source)
    })
}

/// Writes a value as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value);
    print(&(text.map_err(|error| Failure::Output(error.into()))? + "\n"))
}
