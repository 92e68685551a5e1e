//! Connections that have broken are replaced, beside whoever carries frames.

use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farside_linux::lock::lock;

use super::carry::NewLines;
use super::line::Line;

/// How soon after the first attempt to connect, or a connection that was over at once, the next is made; then
/// after twice as long each.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Pauses between attempts, at most.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// A connection that broke sooner than this was over at once: whoever took it may have nobody to lead it to.
const STEADY: Duration = Duration::from_secs(1);

/// Makes a connection to the lender's end.
pub type DialLine = Arc<dyn Fn() -> Result<Line, NoLine> + Send + Sync>;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum NoLine {
    /// There may be one later.
    #[error(transparent)]
    Later(#[from] io::Error),
    /// There will not be.
    #[error("{0}")]
    Never(String),
}

/// Connects, again and again, for as long as it is wanted.
///
/// # Errors
/// Why there was none at last.
pub fn dial(dial: &DialLine, is_wanted: impl Fn() -> bool) -> Result<Line, NoLine> {
    let mut pause = FIRST_PAUSE;
    loop {
        match dial() {
            Err(NoLine::Later(error)) if is_wanted() => {
                tracing::debug!(%error, "the lender's end is not reached yet");
            }
            other => return other,
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// See the module.
pub struct Redial {
    dial: DialLine,
    state: Arc<Dialling>,
}

struct Dialling {
    /// Where connections go, as long as there may be any.
    new: Mutex<Option<NewLines>>,
    pauses: Mutex<Pauses>,
    is_on: AtomicBool,
    is_over: AtomicBool,
}

/// How long to wait before a connection that was over at once is replaced: somebody who takes connections and
/// closes them is not called without end.
#[derive(Debug, Default)]
struct Pauses {
    made: Option<Instant>,
    last: Duration,
}

impl Pauses {
    /// A connection was made.
    fn made(&mut self, now: Instant) {
        self.made = Some(now);
    }

    /// Another is wanted; how long to wait before.
    fn next(&mut self, now: Instant) -> Duration {
        let at_once = self.made.is_some_and(|made| now.duration_since(made) < STEADY);
        self.last =
            if at_once { (self.last * 2).clamp(FIRST_PAUSE, PAUSE_MAX) } else { Duration::ZERO };
        self.last
    }
}

impl Redial {
    /// Gives the connections that `dial` makes to whoever has the other end of `new`.
    #[must_use]
    pub fn new(dial: DialLine, new: NewLines) -> Redial {
        let state = Dialling {
            new: Mutex::new(Some(new)),
            pauses: Mutex::default(),
            is_on: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        };
        Redial { dial, state: Arc::new(state) }
    }

    /// Has a connection made; whether there may be one.
    #[must_use]
    pub fn start(&self) -> bool {
        if lock(&self.state.new).is_none() {
            return false;
        }
        if self.state.is_on.swap(true, Ordering::SeqCst) {
            return true;
        }
        let (dial_by, state) = (Arc::clone(&self.dial), Arc::clone(&self.state));
        let redial = move || {
            farside_linux::signals::block_for_whole_thread();
            let pause = lock(&state.pauses).next(Instant::now());
            std::thread::sleep(pause);
            let line = dial(&dial_by, || !state.is_over.load(Ordering::SeqCst));
            lock(&state.pauses).made(Instant::now());
            // From here on another may be asked for.
            state.is_on.store(false, Ordering::SeqCst);
            let mut new = lock(&state.new);
            match (line, new.as_ref()) {
                (Ok(line), Some(new)) => drop(new.give(line)),
                (Err(NoLine::Never(why)), _) => {
                    tracing::debug!(why, "the lender's end is not reached again");
                    *new = None;
                }
                _ => {}
            }
        };
        let started = std::thread::Builder::new().name("farside-dial".into()).spawn(redial);
        if let Err(error) = &started {
            // The link is over when it has had no connection for long enough.
            tracing::error!(%error, "no thread to connect to the lender's end");
        }
        true
    }
}

impl Drop for Redial {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_are_over_at_once_are_replaced_later_each_time_and_others_soon() {
        let mut pauses = Pauses::default();
        let mut now = Instant::now();
        assert_eq!(pauses.next(now), Duration::ZERO, "the first one was a good one");
        let mut waited = Vec::new();
        for _ in 0..7 {
            pauses.made(now);
            now += Duration::from_millis(1);
            waited.push(pauses.next(now).as_millis());
            now += pauses.last;
        }
        assert_eq!(waited, [20, 40, 80, 160, 320, 500, 500]);
        pauses.made(now);
        now += STEADY;
        assert_eq!(pauses.next(now), Duration::ZERO, "it was a good one");
    }
}
