//! Moves that nobody waits for: the program asks, goes on, and hears of the end later. What the host's
//! processors have to do for them is done by a thread that is there from the first of them: the porter.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use farside_linux::ending::Ending;
use farside_linux::lock::lock;
use farside_linux::signals::{BlockedSignals, block_for_whole_thread};
use farside_linux::wait::Gate;
use farside_svm::{Event, Outcome, Request, RequestError, Task};
use farside_types::{PageRange, Reason, RequestId};

use super::carry_out::AbortOnPanic;
use super::order::{Failed, Predecessor, open_tasks};
use super::{Core, Runtime};
use crate::adopted::Departure;
use crate::error::LiveError;
use crate::execute::HostWork;
use crate::threads::is_fault_reader;

/// A move under way.
#[derive(Debug)]
pub struct Move {
    id: RequestId,
    range: PageRange,
    result: Mutex<Option<Result<u64, MoveError>>>,
    end: Ending,
}

/// Why a move failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// The driver's reason.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// It was to come after something that has failed.
    #[error("{pages} were not moved: {after}, which that was to come after, failed: {why}")]
    NotBegun {
        /// The pages.
        pages: PageRange,
        /// What failed: the first that did, where one came after the other.
        after: String,
        /// Why that failed.
        why: String,
    },
}

impl Move {
    pub(super) fn id(&self) -> RequestId {
        self.id
    }

    /// Its end.
    pub fn end(&self) -> &Ending {
        &self.end
    }

    /// Waits for the end, until `deadline` at most (`None`: for ever), and gives the pages that moved.
    /// `None`: it is not over.
    pub fn wait(&self, deadline: Option<Instant>) -> Option<Result<u64, MoveError>> {
        if !self.end.wait(deadline) {
            return None;
        }
        let _signals = BlockedSignals::block();
        lock(&self.result).clone()
    }

    pub(super) fn went_well(&self) -> Option<bool> {
        lock(&self.result).as_ref().map(Result::is_ok)
    }

    pub(super) fn failure(&self) -> Failed {
        match &*lock(&self.result) {
            Some(Err(MoveError::NotBegun { after, why, .. })) => {
                Failed { what: after.clone(), why: why.clone() }
            }
            result => {
                let error = result.as_ref().and_then(|result| result.as_ref().err());
                let why = error.map_or_else(String::new, ToString::to_string);
                Failed { what: format!("the move of {}", self.range), why }
            }
        }
    }

    fn finish(&self, result: Result<u64, MoveError>) {
        *lock(&self.result) = Some(result);
        self.end.come();
    }
}

/// The thread that carries the host's part of moves out.
#[derive(Debug, Default)]
pub(super) struct Porter {
    thread: Mutex<Option<JoinHandle<()>>>,
    /// It is there.
    hired: AtomicBool,
    /// There may be something to be carried out.
    wanted: AtomicBool,
    closed: AtomicBool,
    gate: Gate,
}

impl Porter {
    fn call(&self) {
        self.wanted.store(true, Ordering::SeqCst);
        self.gate.notify();
    }

    /// Whether there is something to do; `false`: it is the end.
    fn await_work(&self) -> bool {
        self.gate.wait_for(|| {
            let wanted = self.wanted.swap(false, Ordering::SeqCst);
            (wanted || self.closed.load(Ordering::SeqCst)).then_some(wanted)
        })
    }
}

impl Core {
    /// The next command for the host's processors. The fault reader leaves moves that the program asked for
    /// to the porter, if there is one: threads wait for what it does, and nobody waits for these.
    pub(super) fn next_host_work<'a>(
        &mut self,
        runtime: &'a Runtime,
    ) -> Option<(HostWork, Departure<'a>)> {
        let porter = &runtime.porter;
        let leaves = is_fault_reader() && porter.hired.load(Ordering::Relaxed);
        let asked_for =
            |work: &HostWork| matches!(work.header().reason, Reason::User | Reason::Prefetch);
        let mut began = None;
        let next = self.host.iter().position(|work| {
            if !(leaves && asked_for(work)) {
                began = runtime.may_begin(work);
            }
            began.is_some()
        });
        if next.is_none() && leaves && !self.host.is_empty() {
            porter.call();
        }
        Some((self.host.remove(next?)?, began?))
    }

    /// A request has ended that nobody may be waiting for. Gives its result back if it is none.
    pub(super) fn end_move(
        &mut self,
        id: RequestId,
        result: Result<Outcome, RequestError>,
    ) -> Option<Result<Outcome, RequestError>> {
        let Some(moved) = self.moves.remove(&id) else { return Some(result) };
        let task = Task::Request(id);
        let result = match result {
            Ok(Outcome::Done { pages_moved }) => Ok(pages_moved),
            Ok(Outcome::Allocated(_)) => Ok(0),
            Err(RequestError::NotBegun { because }) => {
                Err(not_begun(moved.range, self.why_not_begun(task, because)))
            }
            Err(error) => Err(error.into()),
        };
        self.after.remove(&task);
        moved.finish(result);
        None
    }
}

fn not_begun(pages: PageRange, Failed { what, why }: Failed) -> MoveError {
    MoveError::NotBegun { pages, after: what, why }
}

impl Runtime {
    /// Asks for a move of `range` and does not wait for it. It begins when all of `after` have ended well.
    ///
    /// # Errors
    /// [`LiveError::WrongProcess`] after a fork; [`LiveError::Thread`]. What the driver has against it comes
    /// out of the wait.
    pub fn begin_move(
        &self,
        range: PageRange,
        request: Request,
        after: &[Predecessor],
    ) -> Result<Arc<Move>, LiveError> {
        self.check_process()?;
        let _signals = BlockedSignals::block();
        self.hire_porter()?;
        let _whole = AbortOnPanic::new();
        let id = RequestId(self.fresh_id());
        let (result, end) = (Mutex::new(None), Ending::default());
        let moved = Arc::new(Move { id, range, result, end });
        let mut core = lock(&self.core);
        match open_tasks(after) {
            Err(failed) => moved.finish(Err(not_begun(range, failed))),
            Ok(tasks) => {
                core.moves.insert(id, Arc::clone(&moved));
                core.remember_order(Task::Request(id), after, &tasks);
                let event = Event::Request { id, request, after: &tasks };
                core.driver.0.handle(self.clock.now(), event);
                self.leave_to_porter(core);
            }
        }
        Ok(moved)
    }

    /// Has the porter carry out what the driver wants.
    fn leave_to_porter(&self, mut core: std::sync::MutexGuard<'_, Core>) {
        self.drain_driver(&mut core);
        self.mind_timeout(&mut core);
        if !core.host.is_empty() {
            self.porter.call();
        }
    }

    fn hire_porter(&self) -> Result<(), LiveError> {
        let mut thread = lock(&self.porter.thread);
        let Some(runtime) = self.shared().filter(|_| thread.is_none()) else { return Ok(()) };
        let body = move || {
            block_for_whole_thread();
            while runtime.porter.await_work() {
                let _whole = AbortOnPanic::new();
                runtime.carry_out(lock(&runtime.core));
            }
        };
        let builder = std::thread::Builder::new().name("farside-porter".to_owned());
        *thread = Some(builder.spawn(body).map_err(LiveError::Thread)?);
        self.porter.hired.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Ends the porter, if there is one. What is carried out is carried out to its end.
    pub(crate) fn dismiss_porter(&self) {
        self.porter.hired.store(false, Ordering::SeqCst);
        self.porter.closed.store(true, Ordering::SeqCst);
        self.porter.gate.notify();
        let thread = lock(&self.porter.thread).take();
        thread.into_iter().for_each(|thread| drop(thread.join()));
    }
}
