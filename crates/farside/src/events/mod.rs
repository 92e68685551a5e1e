//! The event log of a space: who asks for one, and what it is about.

#[cfg(not(feature = "events"))]
mod absent;
#[cfg(feature = "events")]
mod log;

use std::path::PathBuf;

use crate::files::{self, Asked};
#[cfg(not(feature = "events"))]
pub(crate) use absent::Events;
#[cfg(feature = "events")]
pub(crate) use log::Events;

/// The environment variable that has a program write an event log: the file's name. A program that opens several
/// spaces writes `NAME.parquet`, `NAME.2.parquet` and so on; a child made by fork, and whoever finds that another process
/// writes that file, has the number of its process in the name, as in `NAME.4711.parquet`. A program that was built without the feature `events`
/// refuses to open a space when it is set.
pub const EVENTS_VARIABLE: &str = "FARSIDE_EVENTS";

/// The file that the environment asks for.
pub(crate) fn of_environment() -> Option<PathBuf> {
    static ASKED: Asked = Asked::nobody();
    files::of_environment(EVENTS_VARIABLE, &ASKED, Events::is_being_written)
}
