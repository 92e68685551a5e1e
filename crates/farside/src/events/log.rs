//! A log that is written.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use farside_events::{About, EventLog, Full, WriteError, Written};
use farside_svm::Journal;
use farside_types::{PAGE_SIZE, Time};

use crate::Error;

/// The log of a space. It is complete when the last handle of the space goes.
#[derive(Debug)]
pub(crate) struct Events(Mutex<Option<EventLog>>);

impl Events {
    /// Begins one of a space with this placement scheme, and with cards of so many bytes each, where they are known.
    ///
    /// # Errors
    /// [`Error::Events`] if there can be no such file.
    pub(crate) fn new(path: PathBuf, scheme: &str, cards: &[Option<u64>]) -> Result<Events, Error> {
        let about = About {
            program: program(),
            machine: "live".to_owned(),
            scheme: scheme.to_owned(),
            page_bytes: PAGE_SIZE as u64,
            memories: About::memories("card", cards.iter().copied()),
        };
        // A handler of the program that ran on the log's thread might touch shared memory, which the log is about.
        let log = EventLog::create(&path, &about, farside_live::block_for_whole_thread);
        Ok(Events(Mutex::new(Some(log?))))
    }

    /// Where the driver's notes go.
    pub(crate) fn journal(&self) -> Box<dyn Journal> {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let log = log.as_ref().expect("it has not ended before its space is opened");
        log.journal(Time::ZERO, PAGE_SIZE as u64, Full::Drop)
    }

    /// Writes what has happened so far, and gives the file. Nothing of a log that has ended.
    ///
    /// # Errors
    /// [`Error::Events`] if the file takes no more.
    pub(crate) fn write_so_far(&self) -> Result<Option<PathBuf>, Error> {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(log) = log.as_ref() else { return Ok(None) };
        log.write_so_far()?;
        Ok(Some(log.path().to_owned()))
    }

    /// Where it is; `None`, when it has ended.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.as_ref().map(|log| log.path().to_owned())
    }

    /// Completes the file. Gives nothing when that has been done.
    ///
    /// # Errors
    /// [`Error::Events`] says what is missing.
    pub(crate) fn finish(&self) -> Result<Written, Error> {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(log.map(EventLog::finish).transpose()?.unwrap_or_default())
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::error!(%error, "an event log is not complete");
            if !tracing::dispatcher::has_been_set() {
                eprintln!("farside: {error}");
            }
        }
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Error {
        let path = error.path.clone();
        let lost = match error.lost {
            0 => String::new(),
            events => {
                format!("; {events} events are not in it, what was written before can be read")
            }
        };
        Error::Events { path, why: format!("{}{lost}", error.why) }
    }
}

/// The name of the program that runs.
fn program() -> String {
    let name = std::env::current_exe().ok();
    let name = name.as_deref().and_then(|path| path.file_name()).unwrap_or_default();
    name.to_string_lossy().into_owned()
}
