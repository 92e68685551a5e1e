//! The runtime: the driver behind a lock, and whoever has something for it carries its commands
//! out.
//!
//! There is no thread that owns the driver. A thread that brings an event (the fault reader, a
//! processing element that faulted, the program with a request) takes the lock, tells the driver,
//! and then carries out commands until none is left: those of the cards' rings at once and in
//! order, under the lock, because they only change tables; those of the host's processors
//! (paging calls, copies) with the lock released, so that disjoint migrations run side by side
//! and nothing is held across a copy. A request thus costs no change of threads.
//!
//! Lock order: the driver, then one card. A thread that holds a card's lock takes no other.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use farside_card::{Answer, Card, Drained, Geometry, Outcome as FaultOutcome};
use farside_svm::{
    Capabilities, CardFault, Command, Config, Driver, Event, Executor, Need, Op, Outcome,
    Placement, Reply, Request, RequestError,
};
use farside_types::{
    Asid, CardId, CommandId, Epoch, JobId, PageRange, PeId, RequestId, Rights, Span, Time, VirtAddr,
};

use crate::arena::Arena;
use crate::card_memory::CardMemory;
use crate::clock::Clock;
use crate::error::LiveError;
use crate::job::Job;
use crate::memories::Memories;
use crate::signals::BlockedSignals;
use crate::times::{TimeSpent, Times};
use crate::wait::Gate;

/// The one address space of a runtime on its cards.
pub(crate) const ASID: Asid = Asid(0);

/// Processing elements that can take the place of one whose kernel hangs.
const SPARE_PES: u16 = 8;

/// What a runtime is made with.
#[derive(Debug)]
pub struct RuntimeConfig {
    /// Bytes of address space; a multiple of 2 MiB.
    pub arena_bytes: u64,
    /// Frames of each card.
    pub card_frames: Vec<u32>,
    /// Processing elements of each card.
    pub pes: u16,
    /// The cards' sizes; `pes` is set from above.
    pub geometry: Geometry,
    /// The placement scheme.
    pub placement: Box<dyn Placement>,
    /// Changes to the driver's configuration (limits, prefetch, thrashing).
    pub tune: fn(&mut Config),
    /// Whether cards reach each other's memory; without it copies bounce through the host.
    pub peer: bool,
    /// How long a kernel that was cancelled may go on before it counts as hung.
    pub grace: Duration,
    /// Write to all card memory at the start, so that no first touch is paid for later.
    pub warm: bool,
}

/// The runtime of one space. Shared by the program's threads, the fault reader and the cards.
#[derive(Debug)]
pub struct Runtime {
    pub(crate) memories: Memories,
    pub(crate) clock: Clock,
    pub(crate) cards: Vec<CardSlot>,
    core: Mutex<Core>,
    pub(crate) times: Times,
    /// Wakes the fault reader: a timer moved, or the end.
    pub(crate) bell: rustix::fd::OwnedFd,
    /// Processing elements end when they have nothing left to do.
    pub(crate) closing: AtomicBool,
    /// The fault reader ends.
    pub(crate) closed: AtomicBool,
    pub(crate) grace: Duration,
    /// Threads whose kernels hang.
    hung: Mutex<Vec<std::thread::ThreadId>>,
    /// Threads that took the place of those.
    pub(crate) spares: Mutex<Vec<std::thread::JoinHandle<()>>>,
    own: OnceLock<Weak<Runtime>>,
    /// Threads that wait for a reply wait here.
    replies: Gate,
    next_id: AtomicU64,
    pid: rustix::process::Pid,
    /// For tests: called with every command before and after it is carried out.
    pub(crate) probe: Option<Probe>,
}

/// What a test may look at, or strike at: a step of a chain, before it is carried out.
pub type Probe = fn(&Command);

/// One card in the program.
#[derive(Debug)]
pub(crate) struct CardSlot {
    pub(crate) model: Mutex<Card>,
    /// Jobs that the driver has started and no processing element has taken yet.
    pub(crate) queue: Mutex<VecDeque<Arc<Job>>>,
    /// Processing elements wait here for jobs.
    pub(crate) gate: Gate,
    /// Answers to faults, by processing element.
    answers: Vec<AnswerSlot>,
    /// Those that found the fault queue full wait here.
    pub(crate) space_in_queue: Gate,
}

#[derive(Debug, Default)]
struct AnswerSlot {
    outcome: Mutex<Option<FaultOutcome>>,
    gate: Gate,
}

/// What the lock protects.
#[derive(Debug)]
struct Core {
    driver: DriverBox,
    /// Commands for the host's processors that nobody has taken yet.
    host: VecDeque<Command>,
    /// Drains that wait for accesses in flight.
    draining: HashMap<CommandId, Epoch>,
    answered: HashMap<RequestId, Result<Outcome, RequestError>>,
    jobs: HashMap<JobId, Arc<Job>>,
    /// Jobs with a time limit.
    limits: BTreeMap<(Time, JobId), ()>,
    /// When the fault reader will look at the clock next.
    next_look: Option<Time>,
    suspects: Vec<(CardId, PageRange)>,
}

/// The driver, which has no `Debug` of its own.
struct DriverBox(Driver);

impl std::fmt::Debug for DriverBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Driver")
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while the lock was held has been reported by its thread; the tables are whole,
    // because the driver changes them only between its own asserts.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runtime {
    /// Makes the memories and the driver. No thread runs yet: see [`crate::Machine::start`].
    ///
    /// # Errors
    /// [`LiveError`] says what the machine lacks.
    pub fn new(config: RuntimeConfig, probe: Option<Probe>) -> Result<Runtime, LiveError> {
        let arena = Arena::new(config.arena_bytes)?;
        let support = arena.support();
        let mut driver = Config::embedded(arena.pages(), config.card_frames.clone());
        let cards = config.card_frames.len();
        driver.capabilities.host_read_only = support.host_read_only;
        if !config.peer {
            without_peers(&mut driver.capabilities, cards);
        }
        (config.tune)(&mut driver);
        let bounces = &driver.capabilities;
        let bounces = (0..bounces.bounce_slots)
            .map(|_| CardMemory::new(bounces.bounce_pages))
            .collect::<Result<_, _>>()?;
        let memories = config
            .card_frames
            .iter()
            .map(|&frames| CardMemory::new(frames))
            .collect::<Result<Vec<_>, _>>()?;
        if config.warm {
            for memory in &memories {
                memory.warm(farside_types::FrameNo(0), memory.frames())?;
            }
        }
        let slots = (0..cards)
            .map(|card| CardSlot::new(CardId(card as u8), &config))
            .collect::<Result<_, _>>()?;
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let bell = rustix::event::eventfd(0, flags).map_err(LiveError::Bell)?;
        let core = Core {
            driver: DriverBox(Driver::new(driver, config.placement)?),
            host: VecDeque::new(),
            draining: HashMap::new(),
            answered: HashMap::new(),
            jobs: HashMap::new(),
            limits: BTreeMap::new(),
            next_look: None,
            suspects: Vec::new(),
        };
        Ok(Runtime {
            memories: Memories::new(arena, memories, bounces),
            clock: Clock::start(),
            cards: slots,
            core: Mutex::new(core),
            times: Times::default(),
            bell,
            closing: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            hung: Mutex::new(Vec::new()),
            spares: Mutex::new(Vec::new()),
            own: OnceLock::new(),
            grace: config.grace,
            replies: Gate::new(),
            next_id: AtomicU64::new(1),
            pid: rustix::process::getpid(),
            probe,
        })
    }

    /// A number that nothing else has.
    pub(crate) fn fresh_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// A stream that nothing else uses.
    pub fn next_stream(&self) -> u32 {
        self.fresh_id() as u32
    }

    /// Whether this is the process that made the runtime.
    ///
    /// # Errors
    /// [`LiveError::WrongProcess`] in a child made by fork: the runtime's threads do not exist
    /// there, and its locks may be held by one of them for ever.
    pub fn check_process(&self) -> Result<(), LiveError> {
        if rustix::process::getpid() != self.pid {
            return Err(LiveError::WrongProcess { owner: self.pid.as_raw_nonzero().get() });
        }
        Ok(())
    }

    /// Looks at the driver.
    ///
    /// # Errors
    /// [`LiveError::WrongProcess`] after a fork.
    pub fn inspect<T>(&self, look: impl FnOnce(&Driver) -> T) -> Result<T, LiveError> {
        self.check_process()?;
        let _signals = BlockedSignals::block();
        Ok(look(&lock(&self.core).driver.0))
    }

    /// Breaks one rule of the driver on purpose: for tests that must notice.
    ///
    /// # Errors
    /// [`LiveError::WrongProcess`] after a fork.
    #[cfg(feature = "mutations")]
    pub fn mutate(&self, mutation: farside_svm::Mutation) -> Result<(), LiveError> {
        self.check_process()?;
        let _signals = BlockedSignals::block();
        lock(&self.core).driver.0.mutate(mutation);
        Ok(())
    }

    /// Asks for something and waits until it is done. The calling thread carries it out itself as
    /// far as it can.
    ///
    /// # Errors
    /// The driver's [`RequestError`]; [`LiveError::WrongProcess`] after a fork.
    pub fn request(&self, request: Request) -> Result<Outcome, LiveError> {
        self.check_process()?;
        // A signal handler may touch shared memory; on this thread it would wait for itself.
        let _signals = BlockedSignals::block();
        let id = RequestId(self.fresh_id());
        self.tell(Event::Request { id, request });
        let answer = self.replies.wait(None, || lock(&self.core).answered.remove(&id));
        Ok(answer.expect("a wait without a deadline ends with an answer")?)
    }

    /// Tells the driver and carries out what follows.
    pub(crate) fn tell(&self, event: Event<'_>) {
        let _whole = AbortOnPanic::new();
        let started = self.clock.now();
        let mut core = lock(&self.core);
        core.driver.0.handle(started, event);
        self.times.planned(self.clock.now().since(started));
        self.carry_out(core);
    }

    /// Tells the driver several things at once.
    pub(crate) fn tell_all<'a>(&self, events: impl Iterator<Item = Event<'a>>) {
        let _whole = AbortOnPanic::new();
        let now = self.clock.now();
        let mut core = lock(&self.core);
        for event in events {
            core.driver.0.handle(now, event);
        }
        self.times.planned(self.clock.now().since(now));
        self.carry_out(core);
    }

    /// Lets the driver do what is due and says when it wants to be called again.
    pub(crate) fn look_at_clock(&self) -> Option<Time> {
        let _whole = AbortOnPanic::new();
        let now = self.clock.now();
        let mut core = lock(&self.core);
        if core.limits.is_empty() && core.driver.0.poll_timeout().is_none_or(|at| at > now) {
            // The common case, on the way of every fault: nothing is due.
            core.next_look = core.driver.0.poll_timeout();
            return core.next_look;
        }
        core.driver.0.handle_timeout(now);
        let due: Vec<JobId> =
            core.limits.range(..=(now, JobId(u64::MAX))).map(|(&(_, job), ())| job).collect();
        core.limits.retain(|&(at, _), ()| at > now);
        let late: Vec<Arc<Job>> =
            due.iter().filter_map(|job| core.jobs.get(job).cloned()).collect();
        self.carry_out(core);
        for job in late {
            job.overdue(self);
        }
        let mut core = lock(&self.core);
        let limit = core.limits.keys().next().map(|&(at, _)| at);
        let next = [core.driver.0.poll_timeout(), limit].into_iter().flatten().min();
        core.next_look = next;
        next
    }

    /// Carries out commands until none is left.
    fn carry_out<'a>(&'a self, mut core: MutexGuard<'a, Core>) {
        let mut planned = None;
        loop {
            self.drain_driver(&mut core);
            let Some(command) = core.host.pop_front() else {
                break;
            };
            drop(core);
            let started = planned.unwrap_or_else(|| self.clock.now());
            let result = self.execute(&command);
            let ended = self.clock.now();
            self.times.carried_out(&command, ended.since(started));
            core = lock(&self.core);
            let Command { id, epoch, .. } = command;
            core.driver.0.handle(ended, Event::Done { command: id, epoch, result });
            let now = self.clock.now();
            self.times.planned(now.since(ended));
            planned = Some(now);
        }
        let wanted = core.driver.0.poll_timeout();
        let earlier = wanted.is_some_and(|at| core.next_look.is_none_or(|look| at < look));
        if earlier {
            core.next_look = wanted;
            self.ring_bell();
        }
    }

    /// Makes the fault reader look up.
    pub(crate) fn ring_bell(&self) {
        // Full means that it has been rung often enough.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Takes the driver's commands and replies: ring commands are carried out here, in order.
    fn drain_driver(&self, core: &mut Core) {
        loop {
            if let Some(command) = core.driver.0.poll_command() {
                match command.executor {
                    Executor::Card(card) => self.ring_command(core, card, command),
                    _ => core.host.push_back(command),
                }
            } else if let Some(reply) = core.driver.0.poll_reply() {
                self.deliver(core, reply);
            } else {
                return;
            }
        }
    }

    fn deliver(&self, core: &mut Core, reply: Reply) {
        match reply {
            Reply::Request { id, result } => {
                core.answered.insert(id, result);
                self.replies.notify();
            }
            Reply::JobDropped { job } => {
                // One that runs already ends by itself, or is given up: it stays known until then.
                if core.jobs.get(&job).is_some_and(|job| job.dropped()) {
                    core.jobs.remove(&job);
                }
            }
            Reply::CardSuspect { card, pages } => {
                tracing::error!(%card, %pages, "a card did not let pages go in time");
                core.suspects.push((card, pages));
            }
        }
    }

    /// One command of a card's ring.
    fn ring_command(&self, core: &mut Core, card: CardId, command: Command) {
        if let Some(probe) = self.probe {
            probe(&command);
        }
        let slot = &self.cards[card.0 as usize];
        let Command { id, epoch, op, .. } = command;
        let drained = match op {
            Op::CardUnmap { runs } => {
                let ranges = runs.iter().map(|run| run.pages());
                lock(&slot.model).unmap(id, ASID, ranges)
            }
            Op::CardProtect { runs, rights } => {
                let ranges = runs.iter().map(|run| run.pages());
                lock(&slot.model).protect(id, ASID, ranges, rights)
            }
            Op::CardMap { runs, memory, rights } => {
                slot.map(&runs, memory, rights);
                Drained::Now
            }
            Op::CardResume { faults } => {
                let mut model = lock(&slot.model);
                let answers: Vec<Answer> = faults.iter().flat_map(|&f| model.resume(f)).collect();
                drop(model);
                slot.answer(answers);
                Drained::Now
            }
            Op::CardCancel { faults, reason } => {
                let mut model = lock(&slot.model);
                let answers: Vec<Answer> =
                    faults.iter().flat_map(|&f| model.cancel(f, reason)).collect();
                drop(model);
                slot.answer(answers);
                Drained::Now
            }
            Op::CardLaunch { job } => {
                if let Some(job) = core.jobs.get(&job) {
                    lock(&slot.queue).push_back(Arc::clone(job));
                    slot.gate.notify();
                }
                Drained::Now
            }
            _ => Drained::Now,
        };
        if drained == Drained::Now {
            let now = self.clock.now();
            core.driver.0.handle(now, Event::Done { command: id, epoch, result: Ok(()) });
        } else {
            core.draining.insert(id, epoch);
        }
    }

    /// Drains that have completed because an access ended.
    pub(crate) fn drained(&self, commands: &[CommandId]) {
        if commands.is_empty() {
            return;
        }
        let _whole = AbortOnPanic::new();
        let now = self.clock.now();
        let mut core = lock(&self.core);
        for &command in commands {
            if let Some(epoch) = core.draining.remove(&command) {
                core.driver.0.handle(now, Event::Done { command, epoch, result: Ok(()) });
            }
        }
        self.carry_out(core);
    }

    /// Takes the faults that a card has queued to the driver.
    pub(crate) fn serve_faults(&self, card: CardId) {
        let _whole = AbortOnPanic::new();
        let slot = &self.cards[card.0 as usize];
        let started = self.clock.now();
        let mut core = lock(&self.core);
        let taken = lock(&slot.model).take_faults(256);
        if !taken.is_empty() {
            let faults: Vec<CardFault> = taken
                .into_iter()
                .map(|fault| CardFault {
                    id: fault.id,
                    need: match fault.need {
                        farside_card::Need::Page(page, access) => Need::Page(page, access),
                        farside_card::Need::Group(ranges) => Need::Group(ranges),
                    },
                })
                .collect();
            core.driver.0.handle(started, Event::CardFaults { card, faults: &faults });
            self.times.planned(self.clock.now().since(started));
        }
        let notices = lock(&slot.model).take_notices();
        for notice in notices {
            let farside_card::CounterNotice { pages, count, .. } = notice;
            core.driver.0.handle(started, Event::CounterNotice { card, pages, count });
        }
        self.carry_out(core);
    }

    /// Enters a job and tells the driver.
    ///
    /// # Errors
    /// [`LiveError::WrongProcess`] after a fork.
    pub fn launch(&self, job: Arc<Job>, stream: farside_types::StreamId) -> Result<(), LiveError> {
        self.check_process()?;
        let _signals = BlockedSignals::block();
        let _whole = AbortOnPanic::new();
        let (id, card, limit) = (job.id, job.card, job.deadline);
        let mut core = lock(&self.core);
        core.jobs.insert(id, job);
        if let Some(at) = limit {
            core.limits.insert((at, id), ());
            if core.next_look.is_none_or(|look| at < look) {
                core.next_look = Some(at);
                self.ring_bell();
            }
        }
        core.driver.0.handle(self.clock.now(), Event::Launch { job: id, card, stream });
        self.carry_out(core);
        Ok(())
    }

    /// A job has ended in whatever way and touches memory no more.
    pub(crate) fn job_done(&self, id: JobId) {
        let _whole = AbortOnPanic::new();
        let mut core = lock(&self.core);
        core.jobs.remove(&id);
        core.driver.0.handle(self.clock.now(), Event::JobDone { job: id });
        self.carry_out(core);
    }

    /// A job that waits in its stream is no longer wanted.
    pub(crate) fn job_cancel(&self, id: JobId) {
        self.tell(Event::JobCancel { job: id });
    }

    /// Looks at a job that was cancelled again at `at`.
    pub(crate) fn look_again(&self, at: Time, id: JobId) {
        let mut core = lock(&self.core);
        core.limits.insert((at, id), ());
        if core.next_look.is_none_or(|look| at < look) {
            core.next_look = Some(at);
            self.ring_bell();
        }
    }

    /// Waits for the answer to a fault of a processing element.
    pub(crate) fn await_answer(&self, card: CardId, pe: PeId) -> FaultOutcome {
        let slot = &self.cards[card.0 as usize].answers[pe.0 as usize];
        let answer = slot.gate.wait(None, || lock(&slot.outcome).take());
        answer.expect("a wait without a deadline ends with an answer")
    }

    /// The cards that did not let pages go in time, with the first pages concerned.
    ///
    /// # Errors
    /// [`LiveError::WrongProcess`] after a fork.
    pub fn suspects(&self) -> Result<Vec<(CardId, PageRange)>, LiveError> {
        self.check_process()?;
        let _signals = BlockedSignals::block();
        Ok(lock(&self.core).suspects.clone())
    }

    /// Fails a card, as if it had been pulled out: for tests and for `farside demo --fail-card`.
    ///
    /// # Errors
    /// [`LiveError::NoSuchCard`]; [`LiveError::WrongProcess`] after a fork.
    pub fn fail_card(&self, card: CardId) -> Result<(), LiveError> {
        self.check_process()?;
        let cards = self.card_count();
        let slot = self.cards.get(card.0 as usize).ok_or(LiveError::NoSuchCard { card, cards })?;
        let _signals = BlockedSignals::block();
        // First the kernels, so that each of them sees why it ends; all are marked before one of
        // them is stopped, so that none begins in its place.
        let mut jobs = self.open_jobs();
        jobs.retain(|job| job.card == card && job.mark_card_gone());
        jobs.iter().for_each(|job| job.stop_for_card(self));
        // A real card stops writing when it is gone. This one's kernels are threads: what they
        // hold is left to them until they have let it go, for as long as the grace lasts.
        let end = std::time::Instant::now() + self.grace;
        while lock(&slot.model).in_flight().accesses() > 0 && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_micros(100));
        }
        let answers = lock(&slot.model).reset();
        slot.answer(answers.answers);
        self.drained(&answers.drains);
        self.tell(Event::CardLost { card });
        // Those that were launched meanwhile. Whoever computes for ever is given up.
        let end = self.clock.now() + Span::from_nanos(self.grace.as_nanos() as u64);
        for job in self.open_jobs().iter().filter(|job| job.card == card) {
            self.look_again(end, job.id);
        }
        Ok(())
    }

    /// The first page of the arena and its length.
    pub fn arena(&self) -> PageRange {
        self.memories.arena.pages()
    }

    /// The driver's name for `addr`, for messages about wild addresses.
    pub(crate) fn nearest(&self, addr: VirtAddr) -> Option<farside_svm::Nearest> {
        let _signals = BlockedSignals::block();
        lock(&self.core).driver.0.nearest(addr)
    }

    /// Where time went so far.
    pub fn times(&self) -> TimeSpent {
        self.times.spent()
    }

    /// Whether `bytes` bytes at `addr` lie in the space.
    pub fn contains(&self, addr: VirtAddr, bytes: u64) -> bool {
        PageRange::covering(addr, bytes).is_ok_and(|range| self.arena().covers(range))
    }

    /// Number of cards.
    pub fn card_count(&self) -> usize {
        self.cards.len()
    }

    /// Counters of a card's MMU and fault queue.
    pub fn card_stats(&self, card: CardId) -> Option<farside_card::CardStats> {
        self.check_process().ok()?;
        let _signals = BlockedSignals::block();
        self.cards.get(card.0 as usize).map(|slot| lock(&slot.model).stats())
    }

    /// Lets threads that are started later share the runtime.
    pub(crate) fn share(self) -> Arc<Runtime> {
        let runtime = Arc::new(self);
        let _ = runtime.own.set(Arc::downgrade(&runtime));
        runtime
    }

    pub(crate) fn shared(&self) -> Option<Arc<Runtime>> {
        self.own.get().and_then(Weak::upgrade)
    }

    pub(crate) fn note_hung(&self, thread: std::thread::ThreadId) {
        lock(&self.hung).push(thread);
    }

    pub(crate) fn hangs(&self, thread: std::thread::ThreadId) -> bool {
        let _signals = BlockedSignals::block();
        lock(&self.hung).contains(&thread)
    }

    /// A thread that took the place of one whose kernel hangs, while there are any.
    pub(crate) fn take_spare(&self) -> Option<std::thread::JoinHandle<()>> {
        let _signals = BlockedSignals::block();
        lock(&self.spares).pop()
    }

    /// Jobs that have not ended.
    pub(crate) fn open_jobs(&self) -> Vec<Arc<Job>> {
        let _signals = BlockedSignals::block();
        lock(&self.core).jobs.values().cloned().collect()
    }
}

impl CardSlot {
    fn new(card: CardId, config: &RuntimeConfig) -> Result<CardSlot, LiveError> {
        let pes = config.pes.saturating_add(SPARE_PES);
        let geometry = Geometry { pes, ..config.geometry };
        let frames = config.card_frames[card.0 as usize];
        Ok(CardSlot {
            model: Mutex::new(Card::new(card, frames, geometry)?),
            queue: Mutex::new(VecDeque::new()),
            gate: Gate::new(),
            answers: (0..pes).map(|_| AnswerSlot::default()).collect(),
            space_in_queue: Gate::new(),
        })
    }

    fn map(&self, runs: &[farside_svm::Run], memory: farside_types::MemoryId, rights: Rights) {
        let mapped = runs.iter().map(|run| {
            let location = farside_card::Location::new(memory, run.dst);
            farside_card::MappedRun::new(run.page, run.count, location)
        });
        if let Err(error) = lock(&self.model).map(ASID, mapped, rights) {
            // The driver and the card disagree about the card's size: a bug, and without a
            // mapping the kernel faults again, a bounded number of times.
            tracing::error!(%error, "a card refused a mapping");
        }
    }

    /// Takes a job back that no processing element has taken yet.
    pub(crate) fn take_queued(&self, job: JobId) -> bool {
        let mut queue = lock(&self.queue);
        let found = queue.iter().position(|queued| queued.id == job);
        found.and_then(|at| queue.remove(at)).is_some()
    }

    /// Hands answers over to the processing elements.
    pub(crate) fn answer(&self, answers: Vec<Answer>) {
        for answer in answers {
            let slot = &self.answers[answer.pe.0 as usize];
            *lock(&slot.outcome) = Some(answer.outcome);
            slot.gate.notify();
        }
        self.space_in_queue.notify();
    }
}

/// A panic while this lives ends the process.
///
/// A thread that carries commands out owes their completion to everybody who waits for a page. If
/// it unwound, a bug of the runtime would be a hang of the program; an end with a message is not.
struct AbortOnPanic {
    unwinding: bool,
}

impl AbortOnPanic {
    fn new() -> AbortOnPanic {
        AbortOnPanic { unwinding: std::thread::panicking() }
    }
}

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.unwinding {
            let text =
                b"farside: the runtime panicked (a bug); aborting, because threads that wait \
                for its pages would hang\n";
            // Not through `eprintln`: whoever holds its lock may wait for a page.
            let _ = rustix::io::write(std::io::stderr(), text);
            std::process::abort();
        }
    }
}

/// Cards reach the host and themselves only.
fn without_peers(table: &mut Capabilities, cards: usize) {
    use farside_types::{MemoryId, MemorySet};
    for card in 0..cards {
        let own = CardId(card as u8).memory();
        table.maps[card + 1] = MemorySet::only(MemoryId::HOST).with(own);
    }
    table.bounce_between_cards = true;
}
