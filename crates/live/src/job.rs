//! A job: one launched kernel, from its launch to its result.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use farside_types::{Access, CardId, JobId, PeId, Rights, Span, Time};

use crate::error::KernelError;
use crate::kernel::KernelContext;
use crate::runtime::{Runtime, lock};
use crate::signals::BlockedSignals;
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

const WANTED: u8 = 0;
const CANCELLED: u8 = 1;
const TIMED_OUT: u8 = 2;
const HUNG: u8 = 3;
const CARD_GONE: u8 = 4;

/// One launched kernel.
pub struct Job {
    pub(crate) id: JobId,
    pub(crate) card: CardId,
    pub(crate) name: Arc<str>,
    pub(crate) grants: Box<[Granted]>,
    pub(crate) deadline: Option<Time>,
    body: Mutex<Option<KernelBody>>,
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
        Arc::new(Job {
            id: JobId(runtime.fresh_id()),
            card,
            name,
            grants: grants.into(),
            deadline: limit.map(|span| runtime.clock.now() + span),
            body: Mutex::new(Some(body)),
            stop: AtomicU8::new(WANTED),
            done: AtomicBool::new(false),
            state: Mutex::new(State::default()),
            gate: Gate::new(),
        })
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
            lock(&self.body).take()
        };
        drop(body);
        Some(result)
    }

    /// Tells it to stop; it does at its next access to memory, or its next
    /// [`KernelContext::checkpoint`].
    pub fn cancel(&self, runtime: &Runtime) {
        self.ask_to_stop(runtime, CANCELLED);
    }

    /// Its card is about to go: from here on it does not begin, and gets no memory. Gives whether
    /// it has to be stopped, by [`Job::stop_for_card`].
    pub(crate) fn mark_card_gone(&self) -> bool {
        self.mark(CARD_GONE)
    }

    /// Stops a job that was marked.
    pub(crate) fn stop_for_card(&self, runtime: &Runtime) {
        self.stop_marked(runtime, CARD_GONE);
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
            TIMED_OUT => KernelError::TimedOut { kernel },
            HUNG => KernelError::Hung { kernel, card },
            CARD_GONE => KernelError::Dropped { kernel, card },
            _ => KernelError::Cancelled { kernel },
        }
    }

    fn ask_to_stop(&self, runtime: &Runtime, reason: u8) {
        // A handler of the program that touched shared memory under one of the runtime's locks
        // would wait for itself.
        let _signals = BlockedSignals::block();
        if self.mark(reason) {
            self.stop_marked(runtime, reason);
        }
    }

    /// Notes that it has to stop, unless that has been noted before.
    fn mark(&self, reason: u8) -> bool {
        self.stop.compare_exchange(WANTED, reason, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn stop_marked(&self, runtime: &Runtime, reason: u8) {
        if self.done.load(Ordering::SeqCst) {
            return;
        }
        let slot = &runtime.cards[self.card.0 as usize];
        if slot.take_queued(self.id) {
            // No processing element has taken it, and none will.
            runtime.job_done(self.id);
            return self.finish(Err(self.stop_error(reason)));
        }
        let waiting = lock(&slot.model).interrupt(self.id);
        slot.answer(waiting.unwrap_or_default());
        slot.space_in_queue.notify();
        runtime.job_cancel(self.id);
        let at = runtime.clock.now() + Span::from_nanos(runtime.grace.as_nanos() as u64);
        runtime.look_again(at, self.id);
    }

    /// Its time limit, or the grace after it was told to stop, has passed.
    pub(crate) fn overdue(self: &Arc<Job>, runtime: &Runtime) {
        if self.stop.load(Ordering::SeqCst) == WANTED {
            return self.ask_to_stop(runtime, TIMED_OUT);
        }
        if !self.done.load(Ordering::SeqCst) {
            self.give_up(runtime);
        }
    }

    /// It does not stop. Its result is an error, another thread takes the place of its processing
    /// element, and what it holds is never given to anybody else.
    fn give_up(&self, runtime: &Runtime) {
        let slot = &runtime.cards[self.card.0 as usize];
        let model = lock(&slot.model);
        let mut state = lock(&self.state);
        let Some(pe) = state.pe.filter(|_| state.result.is_none()) else {
            return;
        };
        // Set under the card's lock: from here on the kernel gets no memory any more.
        self.stop.store(HUNG, Ordering::SeqCst);
        let holds = model.in_flight().holds(pe);
        drop(model);
        state.result = Some(Err(self.stop_error(HUNG)));
        self.done.store(true, Ordering::SeqCst);
        let thread = state.thread;
        drop(state);
        thread.into_iter().for_each(|thread| runtime.note_hung(thread));
        tracing::error!(job = ?self, holds, "a kernel hangs; its processing element is given up");
        crate::threads::replace(runtime, self.card);
        if !holds {
            // It holds nothing and will get nothing: for the driver it has ended. One that holds
            // memory keeps its card running, so that every drain of that memory is waited for and
            // times out, and the frames are quarantined.
            runtime.job_done(self.id);
        }
        self.gate.notify();
    }

    /// Takes the kernel out to run it on `pe`.
    pub(crate) fn begin(&self, pe: PeId) -> Option<KernelBody> {
        let mut state = lock(&self.state);
        state.pe = Some(pe);
        state.thread = Some(std::thread::current().id());
        drop(state);
        lock(&self.body).take()
    }

    /// Whether its processing element was given up.
    pub(crate) fn was_given_up(&self) -> bool {
        self.stop.load(Ordering::SeqCst) == HUNG
    }

    /// Enters the result and wakes those who wait.
    pub(crate) fn finish(&self, result: Result<(), KernelError>) {
        lock(&self.state).result.get_or_insert(result);
        self.done.store(true, Ordering::SeqCst);
        self.gate.notify();
    }

    /// The driver has dropped it: it never starts, or its card is gone. Gives whether it has ended.
    pub(crate) fn dropped(&self) -> bool {
        self.mark(CARD_GONE);
        let started = lock(&self.state).pe.is_some();
        if !started {
            let reason = self.stop.load(Ordering::SeqCst);
            self.finish(Err(self.stop_error(reason)));
        }
        !started
    }
}
