//! Negative controls: a test that cannot fail proves nothing.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use super::{Child, role, within};

const LIMIT: Duration = Duration::from_secs(60);

/// Runs `broken`, a test with a protecting step left out, in a child, and requires that it fails.
/// `test` is the name of the test that calls this.
///
/// # Panics
/// If nothing was noticed.
pub fn must_be_caught(test: &str, broken: impl FnOnce() -> Result<(), String>) {
    if role().is_some() {
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(broken));
        match outcome {
            Ok(Ok(())) => println!("nothing was noticed"),
            Ok(Err(what)) => println!("CAUGHT: {what}"),
            Err(_) => println!("CAUGHT by the assertion above"),
        }
        return;
    }
    within(LIMIT, test, || {
        let ended = Child::new(test, "broken").run();
        assert!(ended.text.contains("CAUGHT"), "the broken rule is not noticed: {}", ended.text);
    });
}
