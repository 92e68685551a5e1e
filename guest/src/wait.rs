//! Waits that end.

use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;

/// Emulation is slow, and so is a busy host; nothing here takes a second by itself.
const LIMIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_micros(200);

/// Waits until `done` gives something.
pub(crate) fn wait_for<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> Result<T, Failure> {
    let start = Instant::now();
    loop {
        if let Some(value) = done() {
            return Ok(value);
        }
        if start.elapsed() > LIMIT {
            return Err(format!("{what}: not within {} s", LIMIT.as_secs()).into());
        }
        thread::sleep(PAUSE);
    }
}

/// Waits until `done` holds.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) -> Result<(), Failure> {
    wait_for(what, || done().then_some(()))
}

/// An error unless the two are equal.
pub(crate) fn expect<T: PartialEq + std::fmt::LowerHex>(
    what: &str,
    found: T,
    wanted: T,
) -> Result<(), Failure> {
    if found == wanted {
        return Ok(());
    }
    Err(format!("{what} is {found:#x}, not {wanted:#x}").into())
}
