//! The library without the feature `events`: who asks for a log is told.

use std::path::PathBuf;

use farside_svm::Journal;

use crate::Error;

/// There is none.
#[derive(Debug)]
pub(crate) enum Events {}

impl Events {
    /// Refuses.
    ///
    /// # Errors
    /// [`Error::Events`], always.
    pub(crate) fn new(
        path: PathBuf,
        _scheme: &str,
        _cards: &[Option<u64>],
    ) -> Result<Events, Error> {
        let why = "this program was built without the feature `events` of the crate `farside`";
        Err(Error::Events { path, why: why.to_owned() })
    }

    pub(crate) fn is_being_written(_: &std::path::Path) -> bool {
        false
    }

    pub(crate) fn journal(&self) -> Box<dyn Journal> {
        match *self {}
    }
}
