//! Runs of libraries' schemes, from both sides: the process that is started for one, and who starts it.

use std::fs::OpenOptions;
use std::io::Write;

use farside_cli::own_scheme;
use rustix::process::{Signal, getppid};

use super::Failure;
use super::output::keep_for_results;
use super::sweep::this_program;

/// This process was started for one run, by this one: it ends with it, so that nobody computes what nobody waits for.
/// What the library prints goes to standard error, and where memory is short this process is the one to go.
pub(super) fn begin(parent: i32) -> Result<(), Failure> {
    let asked = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    asked.map_err(|error| Failure::Usage(format!("--end-with-parent: {error}")))?;
    // It may have ended before that.
    if getppid().is_none_or(|now| now.as_raw_nonzero().get() != parent) {
        let why = format!("--end-with-parent: process {parent} is not the parent");
        return Err(Failure::Usage(why));
    }
    let first = OpenOptions::new().write(true).open("/proc/self/oom_score_adj");
    // A system without it has another way to choose.
    let _ = first.and_then(|mut first| first.write_all(b"1000"));
    keep_for_results()
}

/// Refuses libraries, or parameters of theirs, that cannot be, before the first run. A process of its own looks.
pub(super) fn check(schemes: &[String]) -> Result<(), Failure> {
    let libraries = schemes.iter().filter(|name| own_scheme::library(name).is_some());
    for name in libraries {
        own_scheme::check(&this_program()?, name).map_err(Failure::Usage)?;
    }
    Ok(())
}
