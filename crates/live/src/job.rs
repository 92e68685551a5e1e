//! A job: one launched kernel, from its launch to its result.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use farside_card::interface::KernelArg;
use farside_types::Time;
use farside_types::{Access, Asid, CardId, JobId, PeId, Rights, Span};

use crate::error::KernelError;
use crate::kernel::KernelContext;
use crate::kernels::KernelArgs;
use crate::lock::lock;
use crate::runtime::{ASID, Runtime};
use crate::signals::BlockedSignals;
use crate::soft_card::{Backplane, SoftCard};
use crate::wait::Gate;

/// What a kernel runs: takes its context, says how it ended.
pub type KernelBody = Box<dyn FnOnce(&mut KernelContext) -> Result<(), KernelError> + Send>;

/// Bytes that a job may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// What it may do.
    pub rights: Rights,
}

impl Granted {
    /// Whether an access to `bytes` bytes at `addr` is allowed.
    #[inline]
    pub(crate) fn allows(&self, addr: u64, bytes: u64, access: Access) -> bool {
        addr >= self.start
            && addr.wrapping_add(bytes) <= self.end
            && addr <= self.end
            && self.rights.allows(access)
    }
}

/// Why a job has to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stop {
    /// The program no longer wants it.
    Cancelled = 1,
    /// Its time is up.
    TimedOut = 2,
    /// It did not stop when it was told to.
    Hung = 3,
    /// Its card is gone.
    CardGone = 4,
}

/// Nobody has told it to stop.
const WANTED: u8 = 0;

/// What becomes of the value of a kernel that ran elsewhere.
pub type Returned = Box<dyn FnOnce(u64) + Send>;

/// What is to be done for a job.
enum Work {
    /// Run this, here.
    Body(KernelBody),
    /// Have the card run the kernel of the job's name, and hand its value over.
    Call(Returned),
}

/// One launched kernel.
pub struct Job {
    pub(crate) id: JobId,
    pub(crate) card: CardId,
    /// The address space of its accesses.
    pub(crate) asid: Asid,
    pub(crate) name: Arc<str>,
    pub(crate) grants: Box<[Granted]>,
    pub(crate) deadline: Option<Time>,
    work: Mutex<Option<Work>>,
    /// Arguments, if the kernel is known by its name.
    args: Box<[KernelArg]>,
    /// What the kernel of a served job returned.
    value: AtomicU64,
    stop: AtomicU8,
    /// Whether the state has a result.
    done: AtomicBool,
    state: Mutex<State>,
    gate: Gate,
}

#[derive(Default)]
struct State {
    pe: Option<PeId>,
    thread: Option<std::thread::ThreadId>,
    result: Option<Result<(), KernelError>>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} `{}` on {}", self.id, self.name, self.card)
    }
}

impl Job {
    /// A job that has not been launched. `limit` counts from now.
    pub fn new(
        runtime: &Runtime,
        card: CardId,
        name: Arc<str>,
        grants: Vec<Granted>,
        limit: Option<Span>,
        body: KernelBody,
    ) -> Arc<Job> {
        let work = Work::Body(body);
        let id = JobId(runtime.fresh_id());
        let deadline = limit.map(|span| runtime.clock.now() + span);
        Arc::new(Job::with_work(id, card, name, grants, deadline, Box::default(), work))
    }

    /// A job for a card that is not in this program: the kernel of that name, with these
    /// arguments. `returned` gets what it returns, if it ends well.
    pub fn call(
        runtime: &Runtime,
        card: CardId,
        args: &KernelArgs,
        limit: Option<Span>,
        returned: Returned,
    ) -> Arc<Job> {
        let id = JobId(runtime.fresh_id());
        let deadline = limit.map(|span| runtime.clock.now() + span);
        let (name, records) = (Arc::clone(args.kernel()), args.records().into());
        let work = Work::Call(returned);
        Arc::new(Job::with_work(id, card, name, args.grants(), deadline, records, work))
    }

    fn with_work(
        id: JobId,
        card: CardId,
        name: Arc<str>,
        grants: Vec<Granted>,
        deadline: Option<Time>,
        args: Box<[KernelArg]>,
        work: Work,
    ) -> Job {
        Job {
            id,
            card,
            asid: ASID,
            name,
            grants: grants.into(),
            deadline,
            work: Mutex::new(Some(work)),
            args,
            value: AtomicU64::new(0),
            stop: AtomicU8::new(WANTED),
            done: AtomicBool::new(false),
            state: Mutex::new(State::default()),
            gate: Gate::new(),
        }
    }

    /// Waits for the end, until `deadline` at most (`None`: for ever). `None`: it still runs.
    pub fn wait(&self, deadline: Option<Instant>) -> Option<Result<(), KernelError>> {
        let result = self.gate.wait(deadline, || {
            if !self.done.load(Ordering::SeqCst) {
                return None;
            }
            // The runtime takes this lock as well: no handler of the program may run under it.
            let _signals = BlockedSignals::block();
            lock(&self.state).result.clone()
        })?;
        // A kernel that never ran may have captured a space or a buffer. They go here, in a thread
        // of the program, and never in one of the runtime's, which would wait for itself.
        let body = {
            let _signals = BlockedSignals::block();
            lock(&self.work).take()
        };
        drop(body);
        Some(result)
    }

    /// A job that a driver in another process has launched here. That driver minds the time.
    pub(crate) fn served(
        id: JobId,
        card: CardId,
        asid: Asid,
        name: Arc<str>,
        grants: Vec<Granted>,
        body: KernelBody,
    ) -> Arc<Job> {
        let work = Work::Body(body);
        let job = Job::with_work(id, card, name, grants, None, Box::default(), work);
        Arc::new(Job { asid, ..job })
    }

    /// Tells it to stop; it does at its next access to memory, or its next
    /// [`KernelContext::checkpoint`].
    pub fn cancel(&self, runtime: &Runtime) {
        runtime.stop_job(self, Stop::Cancelled);
    }

    /// What the kernel of a served job returned.
    pub(crate) fn value(&self) -> u64 {
        self.value.load(Ordering::SeqCst)
    }

    pub(crate) fn set_value(&self, value: u64) {
        self.value.store(value, Ordering::SeqCst);
    }

    /// The arguments of a kernel that is known by its name.
    pub(crate) fn args(&self) -> &[KernelArg] {
        &self.args
    }

    /// Whether it is a closure, which can run in this program only.
    pub(crate) fn is_closure(&self) -> bool {
        matches!(&*lock(&self.work), Some(Work::Body(_)))
    }

    /// The card has run its kernel to a good end.
    pub(crate) fn returned(&self, value: u64) {
        let work = lock(&self.work).take();
        if let Some(Work::Call(returned)) = work {
            returned(value);
        }
    }

    /// Why it has to stop, if it has to.
    #[inline]
    pub(crate) fn stopped(&self) -> Option<KernelError> {
        match self.stop.load(Ordering::Relaxed) {
            WANTED => None,
            reason => Some(self.stop_error(reason)),
        }
    }

    fn stop_error(&self, reason: u8) -> KernelError {
        let (kernel, card) = (self.name.clone(), self.card);
        match reason {
            reason if reason == Stop::TimedOut as u8 => KernelError::TimedOut { kernel },
            reason if reason == Stop::Hung as u8 => KernelError::Hung { kernel, card },
            reason if reason == Stop::CardGone as u8 => KernelError::Dropped { kernel, card },
            _ => KernelError::Cancelled { kernel },
        }
    }

    /// The error of a job that never ran.
    pub(crate) fn dropped_error(&self) -> KernelError {
        KernelError::Dropped { kernel: self.name.clone(), card: self.card }
    }

    /// Notes that it has to stop, unless that has been noted before.
    pub(crate) fn mark(&self, reason: Stop) -> bool {
        let reason = reason as u8;
        self.stop.compare_exchange(WANTED, reason, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether it has a result.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }

    /// Enters the reason why it was stopped as its result.
    pub(crate) fn finish_stopped(&self) {
        self.finish(Err(self.stop_error(self.stop.load(Ordering::SeqCst))));
    }

    /// It does not stop. Its result is an error, another thread takes the place of its processing
    /// element, and what it holds is never given to anybody else. Says whether it holds memory;
    /// `None` if it has ended or never begun.
    pub(crate) fn give_up(&self, plane: &Arc<dyn Backplane>, card: &Arc<SoftCard>) -> Option<bool> {
        let model = lock(&card.model);
        let mut state = lock(&self.state);
        let pe = state.pe.filter(|_| state.result.is_none())?;
        // Set under the card's lock: from here on the kernel gets no memory any more.
        self.stop.store(Stop::Hung as u8, Ordering::SeqCst);
        let holds = model.in_flight().holds(pe);
        drop(model);
        state.result = Some(Err(self.stop_error(Stop::Hung as u8)));
        let thread = state.thread;
        drop(state);
        tracing::error!(job = ?self, holds, "a kernel hangs; its processing element is given up");
        card.replace(plane, thread);
        plane.job_given_up(card, self, holds);
        self.done.store(true, Ordering::SeqCst);
        self.gate.notify();
        Some(holds)
    }

    /// Takes the kernel out to run it on `pe`.
    pub(crate) fn begin(&self, pe: PeId) -> Option<KernelBody> {
        let mut state = lock(&self.state);
        state.pe = Some(pe);
        state.thread = Some(std::thread::current().id());
        drop(state);
        match lock(&self.work).take() {
            Some(Work::Body(body)) => Some(body),
            Some(Work::Call(_)) | None => None,
        }
    }

    /// Whether its processing element was given up.
    pub(crate) fn was_given_up(&self) -> bool {
        self.stop.load(Ordering::SeqCst) == Stop::Hung as u8
    }

    /// It has run to its end: enters the result, tells the card's surroundings, and wakes those
    /// who wait.
    pub(crate) fn end_with(
        &self,
        plane: &dyn Backplane,
        card: &SoftCard,
        result: Result<(), KernelError>,
    ) {
        lock(&self.state).result.get_or_insert(result);
        plane.job_over(card, self);
        self.done.store(true, Ordering::SeqCst);
        self.gate.notify();
    }

    /// How it ended, if it has.
    pub(crate) fn result(&self) -> Option<Result<(), KernelError>> {
        lock(&self.state).result.clone()
    }

    /// Enters the result and wakes those who wait.
    pub(crate) fn finish(&self, result: Result<(), KernelError>) {
        lock(&self.state).result.get_or_insert(result);
        self.done.store(true, Ordering::SeqCst);
        self.gate.notify();
    }

    /// The driver has dropped it: it never starts, or its card is gone. Gives whether it has ended.
    pub(crate) fn dropped(&self) -> bool {
        self.mark(Stop::CardGone);
        let started = lock(&self.state).pe.is_some();
        if !started {
            self.finish_stopped();
        }
        !started
    }
}
