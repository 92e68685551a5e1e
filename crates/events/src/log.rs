//! A log that is being written: a bounded buffer, and a thread that empties it into the file.
//!
//! Events come from whoever holds the driver's lock, one at a time. The buffer's own lock is held for a copy of one event,
//! or for an exchange of two chunks; never while anything is encoded, written or allocated.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farside_svm::{Journal, Note};
use farside_types::Time;
use parquet::errors::ParquetError;

use self::alone::Alone;
use crate::buffer::Buffer;
use crate::chunk::{Filling, room};
use crate::note::Scale;
use crate::write::dropped;
use crate::{About, Event, LogWriter, Names, WriteError};

/// How often the thread looks for events where they are few.
const LOOK: Duration = Duration::from_millis(100);
/// How long events wait for their row group, at least.
const GROUP_EVERY: Duration = Duration::from_secs(1);
/// The same as a part of the time since the beginning: so a long run has no more groups than can be read.
const GROUP_PART: u32 = 16;

/// Why nobody answers.
const PANICKED: &str = "its thread panicked (a bug)";

/// What becomes of an event that finds the buffer full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// It is left out, and counted: a program is not to wait for its log.
    Drop,
    /// Whoever has it waits: simulated time does not mind.
    Wait,
}

/// What came of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Events in the file.
    pub events: u64,
    /// Events that found no room.
    pub dropped: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// A log that is being written. Without [`EventLog::finish`] it is finished when it is dropped.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    shared: Arc<Shared>,
    writer: Option<JoinHandle<Result<Written, WriteError>>>,
    /// A child made by fork has no such thread.
    process: u32,
}

#[derive(Debug)]
struct Shared {
    buffer: Mutex<Buffer>,
    /// Of allocations and kernels. Apart, because a new one takes memory: nobody who serves a fault waits for it.
    names: Mutex<Names>,
    /// There is something to write.
    filled: Condvar,
    /// There is room again.
    emptied: Condvar,
}

impl EventLog {
    /// Begins a log. Its thread calls `begin` first: a program has it block signals, whose handlers might touch what
    /// the log is about.
    ///
    /// # Errors
    /// [`WriteError`] if there can be no such file, or no thread.
    pub fn create(path: &Path, about: &About, begin: fn()) -> Result<EventLog, WriteError> {
        let failed = |why: String| WriteError { path: path.to_owned(), why, lost: 0 };
        let (file, alone) = Alone::open(path).map_err(|error| failed(error.to_string()))?;
        let writer = LogWriter::new(BufWriter::new(file), about);
        let writer = writer.map_err(|error| failed(error.to_string()))?;
        let shared = Arc::new(Shared::new());
        let (ours, at) = (Arc::clone(&shared), path.to_owned());
        let run = move || {
            begin();
            let written = ours.write(writer, &at);
            drop(alone);
            written
        };
        let thread = std::thread::Builder::new().name("farside-events".to_owned()).spawn(run);
        let writer = Some(thread.map_err(|error| failed(error.to_string()))?);
        Ok(EventLog { path: path.to_owned(), shared, writer, process: std::process::id() })
    }

    /// What a driver notes goes into the log. Times count from `start`.
    pub fn journal(&self, start: Time, page_bytes: u64, full: Full) -> Box<dyn Journal> {
        let (shared, scale) = (Arc::clone(&self.shared), Scale { start, page_bytes });
        match full {
            Full::Drop => Box::new(Keeper { shared, scale }),
            Full::Wait => Box::new(Collector { shared, scale, events: Filling::new() }),
        }
    }

    /// Whether a log is being written in that file, by this process or another one.
    pub fn is_being_written(path: &Path) -> bool {
        alone::is_locked(path)
    }

    /// Where it is written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Events that have found no room so far.
    pub fn left_out(&self) -> u64 {
        self.shared.lock().left_out()
    }

    /// Writes what there is, so that a reader finds it, and goes on.
    ///
    /// # Errors
    /// [`WriteError`] if the file takes no more.
    pub fn write_so_far(&self) -> Result<(), WriteError> {
        if self.process != std::process::id() {
            // Its thread is the parent's, and so is the file.
            return Ok(());
        }
        let mut buffer = self.shared.lock();
        let mine = buffer.ask();
        self.shared.filled.notify_one();
        // A thread that panicked answers nobody.
        let runs = || self.writer.as_ref().is_some_and(|it| !it.is_finished());
        while !buffer.is_answered(mine) && buffer.failed().is_none() && runs() {
            let waited = self.shared.emptied.wait_timeout(buffer, LOOK);
            buffer = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if buffer.is_answered(mine) {
            return Ok(());
        }
        let why = buffer.failed().unwrap_or(PANICKED).to_owned();
        Err(WriteError { path: self.path.clone(), why, lost: buffer.left_out() })
    }

    /// Writes what there is, and ends the file. What is noted later is left out.
    ///
    /// # Errors
    /// [`WriteError`] says why the file is not complete, and how much is missing.
    pub fn finish(mut self) -> Result<Written, WriteError> {
        self.end()
    }

    fn end(&mut self) -> Result<Written, WriteError> {
        let Some(writer) = self.writer.take().filter(|_| self.process == std::process::id()) else {
            return Ok(Written::default());
        };
        self.shared.lock().close();
        self.shared.filled.notify_one();
        writer.join().unwrap_or_else(|_| {
            let why = PANICKED.to_owned();
            Err(WriteError { path: self.path.clone(), why, lost: 0 })
        })
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        // Who wants to know of it calls `finish`.
        let _ = self.end();
    }
}

/// Puts the notes of a driver that waits for nothing into the buffer, each at once.
#[derive(Debug)]
struct Keeper {
    shared: Arc<Shared>,
    scale: Scale,
}

/// Puts the notes of a driver that can wait into the buffer, many at a time, and the last of them when it goes.
#[derive(Debug)]
struct Collector {
    shared: Arc<Shared>,
    scale: Scale,
    events: Filling,
}

impl Journal for Keeper {
    fn note(&mut self, at: Time, note: Note<'_>) {
        let mut buffer = self.shared.lock();
        if !buffer.takes_one() {
            buffer.leave_out();
            return;
        }
        let event = self.scale.event(at, note, |name| self.shared.names().number(name));
        // What is missing takes the place of this event, which is then one of those.
        let event = buffer.missing_with(1).map_or(event, |missing| dropped(event.at, missing));
        if buffer.put(event) {
            self.shared.filled.notify_one();
        }
    }
}

impl Journal for Collector {
    fn note(&mut self, at: Time, note: Note<'_>) {
        let event = self.scale.event(at, note, |name| self.shared.names().number(name));
        self.events.push(event);
        if self.events.is_full() {
            self.hand_over();
        }
    }
}

impl Collector {
    fn hand_over(&mut self) {
        self.shared.room().put_chunk(&mut self.events);
        self.shared.filled.notify_one();
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if !self.events.is_empty() {
            self.hand_over();
        }
    }
}

impl Shared {
    fn new() -> Shared {
        Shared {
            buffer: Mutex::new(Buffer::new()),
            names: Mutex::new(Names::default()),
            filled: Condvar::new(),
            emptied: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the buffer has room for a chunk, or takes no more.
    fn room(&self) -> MutexGuard<'_, Buffer> {
        let waits = |buffer: &mut Buffer| !buffer.takes_chunk();
        self.emptied.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread: takes what there is until the log is closed.
    fn write(
        &self,
        mut writer: LogWriter<BufWriter<File>>,
        path: &Path,
    ) -> Result<Written, WriteError> {
        let mut taken = Taken::new();
        loop {
            let open = self.take(&mut taken);
            let written = taken.write(&mut writer);
            if let Err(error) = written {
                return Err(self.fail(path, &error, &taken));
            }
            self.answer(taken.asked);
            if !open {
                break;
            }
        }
        let last = self.last_words();
        let written = writer.push(&last, &taken.names).and_then(|()| writer.finish());
        match written.map(|file| file.into_inner()) {
            Ok(Ok(file)) => Ok(Written {
                events: taken.written + last.len() as u64,
                dropped: self.lock().left_out(),
                bytes: file.metadata().map_or(0, |it| it.len()),
            }),
            Ok(Err(error)) => Err(self.fail(path, &error.into_error().into(), &taken)),
            Err(error) => Err(self.fail(path, &error, &taken)),
        }
    }

    /// Waits for events and exchanges a chunk of them for the empty one that is there; whether more may come.
    fn take(&self, taken: &mut Taken) -> bool {
        let waits = |buffer: &mut Buffer| buffer.is_filling();
        let waited = self.filled.wait_timeout_while(self.lock(), LOOK, waits);
        let (mut buffer, _) = waited.unwrap_or_else(PoisonError::into_inner);
        taken.asked = buffer.exchange(&mut taken.events);
        let more = !buffer.is_done();
        drop(buffer);
        self.emptied.notify_all();
        taken.names.follow(&self.names());
        more
    }

    /// What was asked for is in the file, if it was.
    fn answer(&self, asked: Option<u64>) {
        if let Some(asked) = asked {
            self.lock().answer(asked);
            self.emptied.notify_all();
        }
    }

    /// What is to be said of events that were left out at the very end.
    fn last_words(&self) -> Vec<Event> {
        let missing = self.lock().missing_with(0);
        missing.map(|missing| dropped(0, missing)).into_iter().collect()
    }

    /// Nobody is to wait for this log any more, and no event comes into it.
    fn fail(&self, path: &Path, error: &ParquetError, taken: &Taken) -> WriteError {
        // What was written behind the last footer is not found by a reader.
        let others = taken.events.len() as u64 + taken.written - taken.safe;
        let why = farside_parquet::said(error);
        let lost = self.lock().fail(why.clone(), others);
        self.emptied.notify_all();
        WriteError { path: path.to_owned(), why, lost }
    }
}

/// What the thread has taken.
struct Taken {
    events: Vec<Event>,
    names: Names,
    /// Who asked for what there is has all of it with this chunk.
    asked: Option<u64>,
    written: u64,
    /// Of these, those that a reader finds whatever happens.
    safe: u64,
    begun: Instant,
    /// When it wrote a group last.
    grouped: Instant,
}

impl Taken {
    fn new() -> Taken {
        let now = Instant::now();
        Taken {
            events: room(),
            names: Names::default(),
            asked: None,
            written: 0,
            safe: 0,
            begun: now,
            grouped: now,
        }
    }

    fn write(&mut self, writer: &mut LogWriter<BufWriter<File>>) -> Result<(), ParquetError> {
        writer.push(&self.events, &self.names)?;
        self.safe = writer.safe();
        self.written += self.events.len() as u64;
        self.events.clear();
        let patience = GROUP_EVERY.max(self.begun.elapsed() / GROUP_PART);
        let due = writer.waiting() > 0 && self.grouped.elapsed() >= patience;
        if due || self.asked.is_some() {
            writer.flush()?;
            writer.foot()?;
            self.safe = writer.safe();
            self.grouped = Instant::now();
        }
        Ok(())
    }
}

mod alone;
#[cfg(test)]
mod tests;
