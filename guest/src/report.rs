//! What the host reads: `FARSIDE-GUEST ok NAME`, `FARSIDE-GUEST FAILED NAME: WHY`, `FARSIDE-GUEST not run NAME: WHY`,
//! and at the end `FARSIDE-GUEST done`.

use std::process::ExitCode;

use crate::Failure;

/// A check by its name.
pub(crate) type Check<T> = (&'static str, fn(&mut T) -> Result<(), Failure>);

/// The results so far.
#[derive(Default)]
pub(crate) struct Report {
    failed: bool,
}

impl Report {
    /// Notes a result; what was made, if it went well.
    pub(crate) fn note<T>(&mut self, name: &str, result: Result<T, Failure>) -> Option<T> {
        match result {
            Ok(made) => {
                println!("FARSIDE-GUEST ok {name}");
                Some(made)
            }
            Err(why) => {
                self.failed = true;
                // One line, whatever the error says.
                let why = why.to_string().replace('\n', " ");
                println!("FARSIDE-GUEST FAILED {name}: {why}");
                None
            }
        }
    }

    /// Says why something that this machine does not have was not tried.
    pub(crate) fn not_run(&self, name: &str, why: &str) {
        println!("FARSIDE-GUEST not run {name}: {}", why.replace('\n', " "));
    }

    /// Runs checks one after the other; one that fails does not keep the others from running.
    pub(crate) fn run<T>(&mut self, checks: &[Check<T>], subject: &mut T) {
        for (name, check) in checks {
            self.note(name, check(subject));
        }
    }

    /// Says that every check has been run.
    pub(crate) fn end(self) -> ExitCode {
        println!("FARSIDE-GUEST done");
        if self.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}
