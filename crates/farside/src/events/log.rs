//! A log that is written.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use farside_events::{About, EventLog, Full, WriteError, Written};
use farside_svm::Journal;
use farside_types::{PAGE_SIZE, Time};

use crate::{Error, files};

/// The log of a space. It is complete when the last handle of the space goes.
#[derive(Debug)]
pub(crate) struct Events {
    log: Mutex<Option<EventLog>>,
    /// In a child made by fork the log is its parent's, and its lock may have been held.
    process: u32,
}

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
        Ok(Events { log: Mutex::new(Some(log?)), process: std::process::id() })
    }

    /// Whether another log is being written in that file.
    pub(crate) fn is_being_written(path: &Path) -> bool {
        EventLog::is_being_written(path)
    }

    /// The log; nothing of it in a child made by fork.
    fn log(&self) -> Option<MutexGuard<'_, Option<EventLog>>> {
        let ours = self.process == std::process::id();
        ours.then(|| self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where the driver's notes go.
    pub(crate) fn journal(&self) -> Box<dyn Journal> {
        let log = self.log().expect("a space is opened by one process");
        let log = log.as_ref().expect("it has not ended before its space is opened");
        log.journal(Time::ZERO, PAGE_SIZE as u64, Full::Drop)
    }

    /// Writes what has happened so far, and gives the file. Nothing of a log that has ended.
    ///
    /// # Errors
    /// [`Error::Events`] if the file takes no more.
    pub(crate) fn write_so_far(&self) -> Result<Option<PathBuf>, Error> {
        let log = self.log();
        let Some(log) = log.as_ref().and_then(|log| log.as_ref()) else { return Ok(None) };
        log.write_so_far()?;
        Ok(Some(log.path().to_owned()))
    }

    /// Where it is; `None`, when it has ended.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.log()?.as_ref().map(|log| log.path().to_owned())
    }

    /// Completes the file. Gives nothing when that has been done.
    ///
    /// # Errors
    /// [`Error::Events`] says what is missing.
    pub(crate) fn finish(&self) -> Result<Written, Error> {
        let log = self.log().and_then(|mut log| log.take());
        Ok(log.map(EventLog::finish).transpose()?.unwrap_or_default())
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            files::say_incomplete(&error);
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
