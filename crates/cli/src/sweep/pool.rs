//! Carrying out cells: what the cache has is taken from there, the rest runs in processes of its
//! own, here or on a Ray cluster, and each result is kept before anybody is told of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use farside_sim::Outcome;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Deserialize;

use super::cache::hash_file;
use super::child::{Answer, Failed, run_child};
use super::{Cache, Cell, Key, SweepError, ray};
use crate::own_scheme;

/// How cells are carried out.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where results are kept.
    pub cache: Cache,
    /// The `farside` command.
    pub binary: PathBuf,
    /// Where the cells run.
    pub place: Place,
}

/// Where cells run.
#[derive(Clone, Debug)]
pub enum Place {
    /// In processes of this machine.
    Local {
        /// How many at a time; 0: one per processor.
        jobs: usize,
    },
    /// In tasks of a Ray cluster.
    Ray {
        /// The cluster's address, `auto` for the one that runs here; none: Ray starts one.
        address: Option<String>,
        /// The Python interpreter, which has the package `ray`.
        python: PathBuf,
    },
}

/// A cell that is over.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The cell.
    pub cell: Cell,
    /// What came out, or what the process said when it failed.
    pub outcome: Result<Outcome, String>,
    /// The result was there already.
    pub cached: bool,
}

/// How far a sweep is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Cells that are over.
    pub done: usize,
    /// Of these, cells whose result was there already.
    pub cached: usize,
    /// Of these, cells that failed.
    pub failed: usize,
    /// All cells.
    pub total: usize,
    /// The one that was over last.
    pub last: String,
}

/// A cell that has to run, and all indices that want its result.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) cell: Cell,
    pub(super) key: Key,
    wanted: Vec<usize>,
}

/// Carries out cells, equal ones once. Gives them in the order asked for; a cell that fails does
/// not keep the others from running. `watch` hears of each that is over.
///
/// # Errors
/// [`SweepError`]: a machine that cannot be, a file that cannot be read or written, no Ray.
pub fn run(
    cells: &[Cell],
    options: &Options,
    mut watch: impl FnMut(&Progress),
) -> Result<Vec<Finished>, SweepError> {
    check_libraries(cells, &options.binary)?;
    let binary = hash_file(&options.binary)?;
    let mut tasks: BTreeMap<String, Task> = BTreeMap::new();
    for (index, cell) in cells.iter().enumerate() {
        let key = cell.key(&binary)?;
        let new = || Task { cell: cell.clone(), key: key.clone(), wanted: Vec::new() };
        tasks.entry(key.hash().to_owned()).or_insert_with(new).wanted.push(index);
    }
    let mut tasks: Vec<Task> = tasks.into_values().collect();
    tasks.sort_by_key(|task| task.wanted[0]);

    let mut results = Results::new(cells);
    let (there, missing): (Vec<_>, Vec<_>) = tasks
        .into_iter()
        .map(|task| (options.cache.get(&task.key), task))
        .partition(|(outcome, _)| outcome.is_some());
    for (outcome, task) in there {
        let outcome = outcome.ok_or_else(String::new);
        results.put(&task, outcome, true, &mut watch);
    }
    let missing: Vec<Task> = missing.into_iter().map(|(_, task)| task).collect();
    let (sender, receiver) = channel();
    let error = std::thread::scope(|scope| {
        let carrier = scope.spawn(|| match &options.place {
            Place::Local { jobs } => local(&missing, options, *jobs, sender),
            Place::Ray { address, python } => {
                ray::run(&missing, options, address.as_deref(), python, &binary, sender)
            }
        });
        for (index, outcome) in receiver {
            results.put(&missing[index], outcome, false, &mut watch);
        }
        carrier.join()
    });
    match error {
        Ok(result) => result?,
        Err(panic) => std::panic::resume_unwind(panic),
    }
    Ok(results.finished())
}

struct Results<'a> {
    cells: &'a [Cell],
    slots: Vec<Option<Finished>>,
    progress: Progress,
}

impl<'a> Results<'a> {
    fn new(cells: &'a [Cell]) -> Results<'a> {
        let (total, last) = (cells.len(), String::new());
        let progress = Progress { done: 0, cached: 0, failed: 0, total, last };
        Results { cells, slots: vec![None; total], progress }
    }

    fn put(
        &mut self,
        task: &Task,
        outcome: Result<Outcome, String>,
        cached: bool,
        watch: &mut impl FnMut(&Progress),
    ) {
        let count = task.wanted.len();
        self.progress.done += count;
        self.progress.cached += if cached { count } else { 0 };
        self.progress.failed += if outcome.is_err() { count } else { 0 };
        self.progress.last = task.cell.to_string();
        for &index in &task.wanted {
            let (cell, outcome) = (self.cells[index].clone(), outcome.clone());
            self.slots[index] = Some(Finished { cell, outcome, cached });
        }
        watch(&self.progress);
    }

    /// All of them: whoever carries cells out answers for each, or the sweep has failed.
    fn finished(self) -> Vec<Finished> {
        self.slots.into_iter().flatten().collect()
    }
}

/// Which task, and what came of it.
pub(super) type Done = (usize, Result<Outcome, String>);

/// Runs tasks in processes of this machine, each worker on a processor of its own.
fn local(
    tasks: &[Task],
    options: &Options,
    jobs: usize,
    sender: Sender<Done>,
) -> Result<(), SweepError> {
    let processors = processors();
    let jobs = if jobs == 0 { processors.len().max(1) } else { jobs };
    let next = AtomicUsize::new(0);
    let error = Mutex::new(None);
    std::thread::scope(|scope| {
        for worker in 0..jobs.min(tasks.len()) {
            let (next, error, sender) = (&next, &error, sender.clone());
            // More workers than processors share them as the kernel likes.
            let processor = processors.get(worker).copied().filter(|_| jobs <= processors.len());
            scope.spawn(move || {
                while let Some((index, task)) = take(next, tasks) {
                    let outcome = one(task, options, processor);
                    if let Err(told) = keep(task, &outcome, options) {
                        *error.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(told);
                        next.store(tasks.len(), Ordering::Relaxed);
                        return;
                    }
                    // Nobody listens any more: the sweep has failed.
                    if sender.send((index, outcome)).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let error = error.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    error.map_or(Ok(()), Err)
}

fn take<'a>(next: &AtomicUsize, tasks: &'a [Task]) -> Option<(usize, &'a Task)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    tasks.get(index).map(|task| (index, task))
}

/// Puts a good result into the cache. What failed is tried again by the next sweep.
pub(super) fn keep(
    task: &Task,
    outcome: &Result<Outcome, String>,
    options: &Options,
) -> Result<(), SweepError> {
    outcome.as_ref().map_or(Ok(()), |outcome| options.cache.put(&task.key, outcome))
}

fn one(task: &Task, options: &Options, processor: Option<usize>) -> Result<Outcome, String> {
    let pin = |child: &Child| {
        if let Some(processor) = processor {
            let mut set = CpuSet::new();
            set.set(processor);
            // Elsewhere it runs as well, only less evenly.
            let _ = sched_setaffinity(Some(Pid::from_child(child)), &set);
        }
    };
    let answer = run_child(&options.binary, &task.cell.arguments(), pin);
    outcome(&answer.map_err(|failed| failed.why)?)
}

/// Runs one cell as a process of its own, with more arguments of `farside sim`; gives what came out.
///
/// # Errors
/// Why it failed.
pub fn run_alone(binary: &Path, cell: &Cell, more: &[String]) -> Result<Outcome, Failed> {
    let answer = run_child(binary, &[cell.arguments(), more.to_vec()].concat(), |_| ())?;
    outcome(&answer).map_err(|why| Failed { why, code: Some(0) })
}

#[derive(Deserialize)]
struct Printed {
    traces: Vec<PrintedTrace>,
}

#[derive(Deserialize)]
struct PrintedTrace {
    outcomes: Vec<Outcome>,
}

/// The one outcome that a process printed.
pub(super) fn outcome(answer: &Answer) -> Result<Outcome, String> {
    let printed: Printed = answer.json()?;
    let mut outcomes = printed.traces.into_iter().flat_map(|trace| trace.outcomes);
    outcomes.next().ok_or_else(|| "it printed no outcome".to_owned())
}

/// Refuses the schemes from libraries that cannot be, before anything runs. One that crashes is not told of
/// here: its cells are.
fn check_libraries(cells: &[Cell], binary: &Path) -> Result<(), SweepError> {
    let names: BTreeSet<&str> = cells.iter().filter_map(Cell::library).collect();
    names.into_iter().try_for_each(|name| {
        own_scheme::check(binary, name).map_err(|why| SweepError::Scheme { why })
    })
}

/// The processors that this process may use.
fn processors() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect()
}
