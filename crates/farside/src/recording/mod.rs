//! A recording: who asks for one, and what it writes.

#[cfg(not(feature = "record"))]
mod absent;
#[cfg(feature = "record")]
mod trace;

use std::path::PathBuf;
use std::sync::Arc;

use crate::files::{self, Asked};
#[cfg(not(feature = "record"))]
pub(crate) use absent::Recording;
#[cfg(feature = "record")]
pub(crate) use trace::Recording;

/// The environment variable that has a program record what its kernels access: the file's name. A
/// program that opens several spaces writes `NAME.parquet`, `NAME.2.parquet` and so on, and a child made
/// by fork has the number of its process in the name. A program
/// that was built without the feature `record` refuses to open a space when it is set.
pub const RECORD_VARIABLE: &str = "FARSIDE_RECORD";

/// Completes the recording when the last handle of its space goes.
#[derive(Debug)]
pub(crate) struct Finish(pub(crate) Arc<Recording>);

#[cfg(feature = "record")]
impl Drop for Finish {
    fn drop(&mut self) {
        if let Err(error) = self.0.finish() {
            files::say_incomplete(&error);
        }
    }
}

/// The file that the environment asks for.
pub(crate) fn of_environment() -> Option<PathBuf> {
    static ASKED: Asked = Asked::nobody();
    files::of_environment(RECORD_VARIABLE, &ASKED, |_| false)
}
