//! What the harness says when a rule was broken.

use std::fmt;

/// A rule that was broken, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A violation, with all that is needed to see it again.
#[derive(Clone)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// The step at which it was seen.
    pub step: u64,
    /// What was broken.
    pub violation: Violation,
    /// The configuration and the last lines of the log (see [`crate::log`] for its legend).
    pub log: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}\n{}\nseed {} step {}: {}\nreproduce with FARSIDE_SEED={}",
            self.log,
            "-".repeat(40),
            self.seed,
            self.step,
            self.violation,
            self.seed
        )
    }
}

/// As it is displayed, so that a test that returns it prints the log.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failure {}

/// Returns a [`Violation`] unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::violation::Violation(format!($($text)+)));
        }
    };
}

pub(crate) use ensure;
