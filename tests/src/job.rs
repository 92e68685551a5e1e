//! Jobs: scripts of accesses that run on a card.

use std::collections::VecDeque;

use farside_types::{Access, CancelReason, CardId, JobId, PageRange, StreamId};

use crate::access::WordAccess;

/// One step of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobStep {
    /// An access to a word.
    Access(WordAccess),
    /// A `with`: these ranges at the same instant, then some accesses to them.
    Group(Vec<(PageRange, Access)>),
}

/// What a job does.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Its steps, begun in this order.
    pub steps: VecDeque<JobStep>,
    /// Accesses under way at a time (processing elements).
    pub width: u32,
    /// Keeps running with nothing to do when its steps are done, until it is told to stop.
    pub lingers: bool,
    /// The program has said that it writes nothing.
    pub only_reads: bool,
}

impl Script {
    /// These accesses, `width` of them at a time.
    pub fn accesses(accesses: impl IntoIterator<Item = WordAccess>, width: u32) -> Script {
        let steps = accesses.into_iter().map(JobStep::Access).collect();
        Script { steps, width, ..Script::default() }
    }

    /// One group.
    pub fn group(ranges: Vec<(PageRange, Access)>) -> Script {
        Script { steps: [JobStep::Group(ranges)].into(), width: 1, ..Script::default() }
    }

    /// Of which the program says that it writes nothing.
    #[must_use]
    pub fn reading(mut self) -> Script {
        self.only_reads = true;
        self
    }

    /// Runs until told to stop.
    #[must_use]
    pub fn lingering(mut self) -> Script {
        self.lingers = true;
        self.width = self.width.max(1);
        self
    }
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobState {
    /// The driver was asked to launch it.
    Asked,
    /// Its launch was handed out.
    Issued,
    /// It runs.
    Running,
    /// It ended.
    Done,
    /// It was never started.
    Dropped,
}

/// Why a job failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobFailure {
    /// One of its faults was cancelled.
    Cancelled(CancelReason),
    /// An access reached into a memory that was gone.
    BusError,
    /// Its card was lost or reset.
    CardGone,
    /// The program no longer wanted it.
    Aborted,
    /// It asked for what cannot be.
    Refused,
}

/// A job.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// Where it runs.
    pub card: CardId,
    /// Its stream.
    pub stream: StreamId,
    /// Jobs that have to end well before it starts.
    pub after: Vec<JobId>,
    /// What it does.
    pub script: Script,
    /// How far it is.
    pub state: JobState,
    /// Why it failed, if it did.
    pub failed: Option<JobFailure>,
    /// The program asked not to start it.
    pub cancelled: bool,
    /// Accesses and groups in flight.
    pub(crate) flights: u32,
    /// Faults that it waits for.
    pub(crate) waits: u32,
}

impl Job {
    /// Whether it has ended or will never start.
    pub fn is_over(&self) -> bool {
        self.state >= JobState::Done
    }
}
