//! The library without the feature `record`: who asks for a recording is told.

use std::path::PathBuf;

use farside_softcard::{Recorder, Running, Taken};
use farside_types::PageRange;

use crate::Error;

/// There is none.
#[derive(Debug)]
pub(crate) enum Recording {}

impl Recording {
    /// Refuses.
    ///
    /// # Errors
    /// [`Error::Recording`], always.
    pub(crate) fn new(path: PathBuf, _cards: usize) -> Result<Recording, Error> {
        let why = "this program was built without the feature `record` of the crate `farside`";
        Err(Error::Recording { path, why: why.to_owned() })
    }

    pub(crate) fn allocated(&self, _pages: PageRange) {
        match *self {}
    }
}

impl Recorder for Recording {
    fn begin(&self, _who: Running) {
        match *self {}
    }

    fn take(&self, _who: Running, _taken: &[Taken]) {
        match *self {}
    }

    fn end(&self, _who: Running) {
        match *self {}
    }
}
