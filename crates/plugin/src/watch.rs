//! Who sees that a call does not return, and that an answer made no sense.
//!
//! The scheme leaves a mark when it goes into the library and when it comes back. A thread of its own looks once
//! a second; it never allocates while it watches, takes no lock of the program, and writes by system calls only:
//! whoever is stuck may hold malloc's lock.

use core::fmt;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use farside_linux::signals::block_for_whole_thread;

use crate::PluginError;
use crate::answer::Wrong;

/// Seconds after which a call that has not returned ends the process.
pub const LIMIT_VARIABLE: &str = "FARSIDE_SCHEME_SECONDS";
const SECONDS: u32 = 10;
const SECONDS_MAX: u32 = 3600;

/// Between two looks.
const TICK: Duration = Duration::from_secs(1);

/// Who is told of the first answer that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Standard error: the program goes on.
    Everybody,
    /// Whoever asks [`Complaints`]: a simulation fails with it.
    Caller,
}

/// A function of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Open,
    Create,
    SampleEvery,
    Fault,
    Counter,
    Alloc,
    Free,
    Written,
    Mode,
    Samples,
    Save,
    Restore,
    Destroy,
}

impl Call {
    const ALL: [Call; 13] = [
        Call::Open,
        Call::Create,
        Call::SampleEvery,
        Call::Fault,
        Call::Counter,
        Call::Alloc,
        Call::Free,
        Call::Written,
        Call::Mode,
        Call::Samples,
        Call::Save,
        Call::Restore,
        Call::Destroy,
    ];

    fn name(self) -> &'static str {
        match self {
            Call::Open => "farside_scheme_export or a constructor",
            Call::Create => "create",
            Call::SampleEvery => "sample_every_ns",
            Call::Fault => "on_fault",
            Call::Counter => "on_counter",
            Call::Alloc => "on_alloc",
            Call::Free => "on_free",
            Call::Written => "on_written",
            Call::Mode => "mode",
            Call::Samples => "on_samples",
            Call::Save => "save",
            Call::Restore => "restore",
            Call::Destroy => "destroy",
        }
    }
}

/// What the scheme leaves for others to see.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Entries and returns: odd while the library runs.
    beats: AtomicU64,
    /// Which of [`Call::ALL`].
    call: AtomicU32,
    closed: AtomicBool,
    /// Answers that made no sense.
    wrong: AtomicU64,
    first: Mutex<Option<(Call, u64, Wrong)>>,
}

impl Marks {
    /// The library is called.
    pub(crate) fn enter(&self, call: Call) {
        self.call.store(call as u32, Ordering::Relaxed);
        self.step();
    }

    /// It has returned.
    pub(crate) fn leave(&self) {
        self.step();
    }

    /// Calls it by `what`.
    pub(crate) fn during<T>(&self, call: Call, what: impl FnOnce() -> T) -> T {
        self.enter(call);
        let result = what();
        self.leave();
        result
    }

    /// Calls come one at a time: nobody else writes, and no locked instruction is needed.
    fn step(&self) {
        let beats = self.beats.load(Ordering::Relaxed);
        self.beats.store(beats.wrapping_add(1), Ordering::Relaxed);
    }

    /// An answer about a page made no sense.
    pub(crate) fn complain(&self, call: Call, page: u64, wrong: Wrong) {
        if self.wrong.fetch_add(1, Ordering::Relaxed) == 0 {
            *self.first.lock().unwrap_or_else(PoisonError::into_inner) = Some((call, page, wrong));
        }
    }

    fn first(&self) -> Option<(Call, u64, Wrong)> {
        *self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers of a scheme that made no sense. The driver got the default instead of each.
#[derive(Clone, Debug)]
pub struct Complaints {
    marks: Arc<Marks>,
    who: Arc<str>,
}

impl Complaints {
    /// How many there were so far.
    pub fn count(&self) -> u64 {
        self.marks.wrong.load(Ordering::Relaxed)
    }

    /// The first one, in words; `None` if there was none.
    pub fn first(&self) -> Option<String> {
        let (call, page, wrong) = self.marks.first()?;
        Some(Complaint { who: &self.who, call, page, wrong }.to_string())
    }
}

struct Complaint<'a> {
    who: &'a str,
    call: Call,
    page: u64,
    wrong: Wrong,
}

impl fmt::Display for Complaint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Complaint { who, call, page, wrong } = self;
        let call = call.name();
        write!(
            f,
            "the placement scheme {who} answered nonsense: {call} of page {page:#x} gave {wrong}"
        )
    }
}

/// The thread that looks. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    marks: Arc<Marks>,
    who: Arc<str>,
    thread: Option<JoinHandle<()>>,
    /// Whose the thread is: a child made by fork has none.
    process: u32,
}

impl Watch {
    /// Begins to watch the scheme that is called `who`.
    pub(crate) fn start(who: String, told: Told) -> Result<Watch, PluginError> {
        let seconds = seconds()?;
        let (marks, who): (Arc<Marks>, Arc<str>) = (Arc::default(), who.into());
        let looker = Looker { marks: Arc::clone(&marks), who: Arc::clone(&who), seconds, told };
        let builder = std::thread::Builder::new().name("farside-scheme".to_owned());
        let thread =
            builder.spawn(move || looker.watch()).map_err(|error| PluginError::Library {
                path: who.to_string(),
                why: crate::LibraryError::File(format!("no thread to watch it: {error}")),
            })?;
        Ok(Watch { marks, who, thread: Some(thread), process: std::process::id() })
    }

    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }

    pub(crate) fn complaints(&self) -> Complaints {
        Complaints { marks: Arc::clone(&self.marks), who: Arc::clone(&self.who) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.marks.closed.store(true, Ordering::SeqCst);
        let Some(thread) = self.thread.take() else { return };
        if std::process::id() == self.process {
            thread.thread().unpark();
            let _ = thread.join();
        } else {
            std::mem::forget(thread);
        }
    }
}

fn seconds() -> Result<u32, PluginError> {
    let Some(value) = std::env::var_os(LIMIT_VARIABLE) else { return Ok(SECONDS) };
    let value = value.to_string_lossy().into_owned();
    let seconds = value.parse().ok().filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
    seconds.ok_or(PluginError::Limit { value })
}

struct Looker {
    marks: Arc<Marks>,
    who: Arc<str>,
    seconds: u32,
    told: Told,
}

impl Looker {
    fn watch(self) {
        block_for_whole_thread();
        let (mut seen, mut looks, mut named) = (0, 0, self.told == Told::Caller);
        loop {
            let closed = self.marks.closed.load(Ordering::SeqCst);
            if !named && let Some((call, page, wrong)) = self.marks.first() {
                let complaint = Complaint { who: &self.who, call, page, wrong };
                say(format_args!(
                    "farside: {complaint}; the page moved to who asked, as with every such answer \
                     from now on; correct the scheme\n"
                ));
                named = true;
            }
            if closed {
                return;
            }
            std::thread::park_timeout(TICK);
            let beats = self.marks.beats.load(Ordering::Relaxed);
            // Looks are counted, not time: a machine that was asleep has not been watched.
            looks = if beats % 2 == 1 && beats == seen { looks + 1 } else { 0 };
            seen = beats;
            if looks >= self.seconds {
                self.end();
            }
        }
    }

    /// Nobody can take a call back.
    fn end(&self) -> ! {
        let call = Call::ALL[self.marks.call.load(Ordering::Relaxed) as usize].name();
        say(format_args!(
            "farside: the placement scheme {} has not returned from {call} for {} s, and this \
             process ends; correct the scheme, or give it more time by {LIMIT_VARIABLE}\n",
            self.who, self.seconds
        ));
        // SAFETY: it ends the process and has no other effect; handlers of its end may wait for who is stuck.
        unsafe { libc::_exit(1) }
    }
}

/// Writes to standard error without allocating, and without std's lock of it, which who is stuck may hold.
fn say(text: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 1024], used: 0 };
    // What does not fit is cut.
    let _ = fmt::write(&mut line, text);
    let mut left = &line.bytes[..line.used];
    while !left.is_empty() {
        // SAFETY: the bytes are there while it reads them.
        let written = unsafe { libc::write(2, left.as_ptr().cast(), left.len()) };
        match usize::try_from(written) {
            Ok(written) if written > 0 => left = &left[written.min(left.len())..],
            Err(_) if std::io::Error::last_os_error().kind() == ErrorKind::Interrupted => {}
            // Without a standard error nobody is told.
            _ => return,
        }
    }
}

/// A line on the stack.
struct Line {
    bytes: [u8; 1024],
    used: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.used;
        let take = text.len().min(room);
        self.bytes[self.used..self.used + take].copy_from_slice(&text.as_bytes()[..take]);
        self.used += take;
        Ok(())
    }
}
