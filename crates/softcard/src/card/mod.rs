//! A card in software: the model behind a lock, processing elements that are threads, and the
//! answers to their faults.
//!
//! The same card runs in the program, where the runtime carries the driver's commands out on it
//! directly, and in a process of its own, behind registers and rings. What is around it is its
//! [`Embedder`].

mod embedder;
mod processing;

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_card::{Answer, Card, Geometry, GeometryError, Outcome};
use farside_types::{CardId, JobId, PeId};

pub use embedder::Embedder;

use crate::job::Job;
use farside_linux::lock::lock;
use farside_linux::wait::Gate;

/// See the module.
#[derive(Debug)]
pub struct SoftCard {
    /// Its number.
    pub id: CardId,
    /// The model. Whoever holds its lock takes no other.
    pub model: Mutex<Card>,
    /// Jobs that were started and that no processing element has taken yet.
    queue: Mutex<VecDeque<Queued>>,
    /// Processing elements wait here for jobs.
    gate: Gate,
    /// Answers to faults, by processing element.
    answers: Vec<AnswerSlot>,
    /// Those that found the fault queue full wait here.
    pub space_in_queue: Gate,
    /// Processing elements end when they have nothing left to do.
    closing: AtomicBool,
    /// Processing elements, with those that took the place of others.
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
    /// Threads whose kernels hang.
    hung: Mutex<Vec<std::thread::ThreadId>>,
}

/// A job for a thread: on any processing element, or on one that it has already.
#[derive(Debug)]
struct Queued {
    job: Arc<Job>,
    pe: Option<PeId>,
}

#[derive(Debug, Default)]
struct AnswerSlot {
    outcome: Mutex<Option<Outcome>>,
    gate: Gate,
}

impl SoftCard {
    /// A card in its known state, of `geometry`, with `pes` processing elements. No thread runs yet: see [`SoftCard::start`].
    ///
    /// # Errors
    /// [`GeometryError`].
    pub fn new(
        id: CardId,
        frames: u32,
        pes: u16,
        geometry: Geometry,
    ) -> Result<SoftCard, GeometryError> {
        Ok(SoftCard {
            id,
            model: Mutex::new(Card::new(id, frames, Geometry { pes, ..geometry })?),
            queue: Mutex::new(VecDeque::new()),
            gate: Gate::new(),
            answers: (0..pes).map(|_| AnswerSlot::default()).collect(),
            space_in_queue: Gate::new(),
            closing: AtomicBool::new(false),
            threads: Mutex::new(Vec::new()),
            hung: Mutex::new(Vec::new()),
        })
    }

    /// Gives a job to the next processing element that is idle.
    pub fn enqueue(&self, job: Arc<Job>) {
        lock(&self.queue).push_back(Queued { job, pe: None });
        self.gate.notify();
    }

    /// Runs a job on a processing element that the model has put it on.
    pub fn enqueue_on(&self, job: Arc<Job>, pe: PeId) {
        lock(&self.queue).push_back(Queued { job, pe: Some(pe) });
        self.gate.notify();
    }

    /// Takes a job back that no processing element has taken yet.
    pub fn take_queued(&self, job: JobId) -> bool {
        let mut queue = lock(&self.queue);
        let found = queue.iter().position(|queued| queued.job.id == job);
        found.and_then(|at| queue.remove(at)).is_some()
    }

    /// Ends the waiting of a job in faults, and has it look up from its words, so that it sees that it
    /// has to stop.
    pub fn interrupt(&self, job: JobId) {
        let mut model = lock(&self.model);
        // Words that need no lock are accessed without a look at the job.
        model.disturb_words();
        let waiting = model.interrupt(job);
        drop(model);
        self.answer(waiting.unwrap_or_default());
        self.space_in_queue.notify();
    }

    /// Hands answers over to the processing elements.
    pub fn answer(&self, answers: impl IntoIterator<Item = Answer>) {
        for answer in answers {
            let slot = &self.answers[answer.pe.0 as usize];
            *lock(&slot.outcome) = Some(answer.outcome);
            slot.gate.notify();
        }
        self.space_in_queue.notify();
    }

    /// Waits for the answer to a fault of a processing element.
    pub fn await_answer(&self, embedder: &dyn Embedder, pe: PeId) -> Outcome {
        let slot = &self.answers[pe.0 as usize];
        // Whether that has waited or not: what is left to wait for is waited for here.
        embedder.wait_instead(self, &mut || lock(&slot.outcome).is_some());
        slot.gate.wait_for(|| lock(&slot.outcome).take())
    }

    /// Threads whose kernels were given up and still run.
    pub(crate) fn hung_threads(&self) -> usize {
        let hung = lock(&self.hung);
        let threads = lock(&self.threads);
        let runs = |thread: &&std::thread::JoinHandle<()>| {
            hung.contains(&thread.thread().id()) && !thread.is_finished()
        };
        threads.iter().filter(runs).count()
    }

    /// Waits until nothing is in flight, for `limit` at most.
    pub fn await_quiet(&self, limit: Duration) {
        let end = std::time::Instant::now() + limit;
        while lock(&self.model).in_flight().accesses() > 0 && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}
