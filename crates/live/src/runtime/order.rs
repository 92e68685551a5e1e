//! What comes after what, as far as the program has a say in it: what the driver is told to wait for, and
//! what is said of something that never began.

use std::sync::Arc;

use farside_svm::Task;
use farside_types::CardId;

use super::moves::Move;
use super::parallel::Parallel;
use super::{Core, Runtime};
use farside_softcard::{Job, KernelError};

/// What a launch or a move can come after.
#[derive(Clone, Debug)]
pub enum Predecessor {
    /// A launch.
    Job(Arc<Job>),
    /// A launch in pieces.
    Parallel(Arc<Parallel>),
    /// A move.
    Move(Arc<Move>),
}

/// What has failed, and why: for whatever came after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    /// What it was, as a part of a sentence.
    pub(super) what: String,
    /// Why it failed.
    pub(super) why: String,
}

/// How far something is that others come after.
enum State {
    Open,
    EndedWell,
    Failed,
}

impl Predecessor {
    fn task(&self) -> Task {
        match self {
            Predecessor::Job(job) => Task::Job(job.id),
            Predecessor::Parallel(parallel) => Task::Job(parallel.id()),
            Predecessor::Move(moved) => Task::Request(moved.id()),
        }
    }

    /// Asked under the driver's lock: what is open then, and known to the driver, is waited for; of what it does not
    /// know it lets nobody wait.
    fn state(&self) -> State {
        let result = match self {
            // One that has been told to stop, and has not ended, does not end well; the driver may have
            // forgotten it.
            Predecessor::Job(job) => {
                let ended = job.result().or_else(|| job.stopped().map(Err)).map(|r| r.is_ok());
                // One whose end the driver has not been told of is still to be waited for: nobody sees its end yet.
                ended.filter(|well| !well || job.end().has_come())
            }
            Predecessor::Parallel(parallel) => parallel.went_well(),
            Predecessor::Move(moved) => moved.went_well(),
        };
        match result {
            None => State::Open,
            Some(true) => State::EndedWell,
            Some(false) => State::Failed,
        }
    }

    /// What failed, and why. Of one that never began, what it came after.
    fn failure(&self) -> Failed {
        match self {
            Predecessor::Job(job) => {
                let error = job.result().and_then(Result::err).or_else(|| job.stopped());
                of_kernel(&job.name, job.card, error)
            }
            Predecessor::Parallel(parallel) => parallel.failure(),
            Predecessor::Move(moved) => moved.failure(),
        }
    }
}

/// What to say of a kernel that failed.
pub(super) fn of_kernel(name: &str, card: CardId, error: Option<KernelError>) -> Failed {
    match error {
        Some(KernelError::NotRun { after, why, .. }) => Failed { what: after, why },
        error => {
            let why = error.map_or_else(|| "it was stopped".to_owned(), |error| error.to_string());
            Failed { what: format!("kernel `{name}` on {card}"), why }
        }
    }
}

/// Those of `after` that have not ended, for the driver.
///
/// # Errors
/// The first that has ended badly, or will.
pub(super) fn open_tasks(after: &[Predecessor]) -> Result<Vec<Task>, Failed> {
    let mut tasks = Vec::new();
    for other in after {
        match other.state() {
            State::Open => tasks.push(other.task()),
            State::EndedWell => {}
            State::Failed => return Err(other.failure()),
        }
    }
    Ok(tasks)
}

impl Core {
    /// What to say of `task`, which never begins because of `because`.
    pub(super) fn why_not_begun(&self, task: Task, because: Task) -> Failed {
        let known = self.after.get(&task).into_iter().flatten();
        known.clone().find(|other| other.task() == because).map_or_else(
            || Failed { what: because.to_string(), why: "it has ended".to_owned() },
            Predecessor::failure,
        )
    }

    /// Remembers whom a task waits for, for what is said if it never begins.
    pub(super) fn remember_order(&mut self, task: Task, after: &[Predecessor], open: &[Task]) {
        if !open.is_empty() {
            let open = after.iter().filter(|other| open.contains(&other.task()));
            self.after.insert(task, open.cloned().collect());
        }
    }
}

impl Runtime {
    /// The error of a job that was to come after what has failed.
    pub(super) fn not_run(job: &Job, Failed { what, why }: Failed) -> KernelError {
        KernelError::NotRun { kernel: Arc::clone(&job.name), card: job.card, after: what, why }
    }
}
