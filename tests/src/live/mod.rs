//! What the live tests share: time limits, children, controls.
//!
//! A live test races real threads, so its failure may be a hang: every test runs [`within`] a time
//! limit that ends the process. What would end the process (SIGBUS, SIGKILL, an abort) is tried in
//! a child, which is this test binary once more with one test chosen: see [`Child`].
//!
//! `FARSIDE_SECONDS` says how long each race runs (one second unless set).

mod child;
mod control;
mod forked;
pub mod hostile;
pub mod intruder;
pub mod mapped;
pub mod nth_call;
mod race;
pub mod served;

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use child::{Child, Ended, role};
pub use control::must_be_caught;
pub use forked::in_child;
pub use race::Race;

/// How long a race runs.
pub fn seconds() -> Duration {
    let asked = std::env::var("FARSIDE_SECONDS").ok().and_then(|text| text.parse::<f64>().ok());
    Duration::from_secs_f64(asked.filter(|&n| (0.0..=86_400.0).contains(&n)).unwrap_or(1.0))
}

/// One live test of a process at a time: they measure time, and the machine may be small.
static TURN: Mutex<()> = Mutex::new(());

/// Runs a test; ends the process if it takes longer than `limit` (and what [`seconds`] adds).
pub fn within<T>(limit: Duration, name: &str, test: impl FnOnce() -> T) -> T {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (done, is_done) = channel::<()>();
    let limit = limit + 4 * seconds();
    let what = name.to_owned();
    let guard = std::thread::spawn(move || {
        if is_done.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            eprintln!("`{what}` hangs: it did not end within {limit:?}");
            std::process::abort();
        }
    });
    let value = test();
    drop(done);
    let _ = guard.join();
    value
}
