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
//! Lock order: the driver or `calm` of the windows, then one card's window, then one card. A thread that holds a card's lock takes no other.

mod adopt;
mod assemble;
mod audit;
mod cards;
mod carry_out;
mod direct;
pub(crate) mod far_windows;
mod files;
mod foresight;
mod give_back;
mod jobs;
mod large;
mod moves;
mod order;
mod parallel;
pub(crate) mod rings;
mod strike;
mod wakes;
mod windows;

pub use adopt::Lent;
pub use files::{FILE_MEMORY_MIN, Filed};
pub use give_back::GivenBack;
pub use moves::{Move, MoveError};
pub use order::Predecessor;
pub use parallel::{CardShare, MakePiece, Parallel, ParallelLaunch, PieceError, PieceWork};
#[cfg(feature = "mutations")]
pub use strike::{Strike, Struck};
mod soft_ring;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Waker;
use std::time::Duration;

use farside_card::{Answer, CounterNotice, Geometry};
use farside_svm::{
    CardFault, Command, Config, Driver, Event, Journal, Outcome, PlacementScheme, Request,
    RequestError, Task,
};
use farside_types::{
    Asid, CardId, CommandId, Epoch, IndexMap, JobId, PageRange, RequestId, Time, VirtAddr,
};

use crate::error::LiveError;
use crate::execute::HostWork;
use crate::memories::Memories;
use crate::ring_card::{CardPlace, Heard, RingCard};
use crate::times::{TimeSpent, Times};
use crate::traffic::{Copying, Traffic, TrafficAccount};
use crate::watchdog::Pulse;
use assemble::{Parts, assemble};
use farside_linux::clock::Clock;
use farside_linux::lock::lock;
use farside_linux::signals::BlockedSignals;
use farside_linux::wait::Gate;
use farside_softcard::Job;
use farside_softcard::Recorder;
use farside_softcard::{SoftCard, WindowMemory};

/// The one address space of a runtime on its cards.
pub(crate) const ASID: Asid = Asid(0);

/// What a runtime is made with.
#[derive(Debug)]
pub struct RuntimeConfig {
    /// Bytes of address space; a multiple of 2 MiB.
    pub arena_bytes: u64,
    /// Where each card is.
    pub cards: Vec<CardPlace>,
    /// Processing elements of each card in the program.
    pub pes: u16,
    /// The sizes of cards in the program; `pes` is set from above.
    pub geometry: Geometry,
    /// The placement scheme.
    pub placement: Box<dyn PlacementScheme>,
    /// Memories of each card in the program for its own memory, beside that which the driver
    /// places; none: it has no memory of its own.
    pub window: Vec<WindowMemory>,
    /// Changes to the driver's configuration (limits, prefetch, thrashing).
    pub tune: fn(&mut Config),
    /// Whether cards reach each other's memory; without it copies bounce through the host.
    pub peer: bool,
    /// How long a kernel that was cancelled may go on before it counts as hung.
    pub grace: Duration,
    /// Write to all card memory at the start, so that no first touch is paid for later.
    pub warm: bool,
    /// Have core dumps hold the shared memory that the program has mapped, and the cards' memories.
    pub core_dumps: bool,
    /// Is told what kernels on cards in the program access.
    pub recorder: Option<Arc<dyn Recorder>>,
    /// Takes notes of all that the driver does.
    pub journal: Option<Box<dyn Journal>>,
}

/// The runtime of one space. Shared by the program's threads, the fault reader and the cards.
#[derive(Debug)]
pub struct Runtime {
    pub(crate) memories: Memories,
    /// The threads for adopted memory, once there is some.
    pub(crate) keepers: adopt::Keepers,
    pub(crate) files: files::Files,
    pub(crate) clock: Clock,
    pub(crate) ports: Vec<Port>,
    core: Mutex<Core>,
    /// The cards' own memories.
    pub(crate) windows: windows::Windows,
    /// Whether cards reach each other's memory.
    peer: bool,
    pub(crate) times: Times,
    large: large::LargeCount,
    pub(crate) traffic: TrafficAccount,
    /// Wakes the fault reader: a timer moved, or the end.
    pub(crate) bell: rustix::fd::OwnedFd,
    /// The fault reader ends.
    pub(crate) closed: AtomicBool,
    /// A card is wanted back by whoever has lent it.
    pub(crate) recalled: AtomicBool,
    /// What the fault reader does.
    pub(crate) pulse: Pulse,
    pub(crate) grace: Duration,
    own: OnceLock<Weak<Runtime>>,
    /// Cards are taken back one at a time: each of them is told of the others' memory.
    taking_back: Mutex<()>,
    /// Has direct links made between cards of different lenders, where there may be any.
    direct: OnceLock<direct::Changes>,
    /// Threads that wait for a reply wait here.
    replies: Gate,
    /// Processing elements of each card in the program.
    pes: u16,
    porter: moves::Porter,
    /// To the thread that calls wakers, once there is one.
    caller: Mutex<Option<Sender<Waker>>>,
    next_id: AtomicU64,
    pid: rustix::process::Pid,
    /// Is told what kernels access.
    recorder: Option<Arc<dyn Recorder>>,
    /// For tests: called with every command before and after it is carried out.
    pub(crate) probe: Option<Probe>,
    #[cfg(feature = "mutations")]
    strikes: strike::Strikes,
}

/// What a test may look at, or strike at: a step of a chain, before it is carried out.
pub type Probe = fn(&Command);

/// Where a card is.
#[derive(Debug)]
pub(crate) enum Port {
    /// In the program: commands are carried out on it directly.
    InProgram(Arc<SoftCard>),
    /// Behind registers and rings.
    Ring(Arc<RingCard>),
}

/// Commands under way at once that there is room for from the start.
pub(crate) const UNDER_WAY: usize = 256;

/// A table of commands, or of what belongs to each.
pub(crate) fn for_commands<K, V>() -> IndexMap<K, V> {
    IndexMap::with_capacity_and_hasher(UNDER_WAY, Default::default())
}

/// What the lock protects.
#[derive(Debug)]
struct Core {
    driver: DriverBox,
    /// Commands for the host's processors that nobody has taken yet.
    host: VecDeque<HostWork>,
    /// Drains that wait for accesses in flight.
    draining: IndexMap<CommandId, Epoch>,
    /// Copies that cards were asked for, and which card does each.
    copying: IndexMap<CommandId, (CardId, Copying)>,
    answered: IndexMap<RequestId, Result<Outcome, RequestError>>,
    jobs: IndexMap<JobId, Arc<Job>>,
    /// Those of them that are pieces of a parallel launch.
    pieces: IndexMap<JobId, Arc<Parallel>>,
    /// Moves that nobody need wait for.
    moves: IndexMap<RequestId, Arc<Move>>,
    /// Whom jobs and moves wait for that have not begun.
    after: HashMap<Task, Vec<Predecessor>>,
    /// Jobs with a time limit.
    limits: BTreeMap<(Time, JobId), ()>,
    /// When the fault reader will look at the clock next.
    next_look: Option<Time>,
    /// The fault reader sleeps without a look for completions that interrupt nobody.
    sleeps_quietly: bool,
    suspects: Vec<(CardId, PageRange)>,
    /// Cards behind rings that did not answer in time.
    to_reset: Vec<CardId>,
    /// Cards that fail what a card cannot fail.
    broken: Vec<CardId>,
    /// What kernels on far cards need.
    foresight: foresight::Foresight,
    /// Faults and notices of a card in the program, and answers to it, on their way: empty between two
    /// calls, with the room that they had.
    faults: Vec<CardFault>,
    notices: Vec<CounterNotice>,
    answers: Vec<Answer>,
    /// What a card behind rings has said, likewise.
    heard: Heard,
}

/// The driver, which has no `Debug` of its own.
struct DriverBox(Driver);

impl std::fmt::Debug for DriverBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Driver")
    }
}

impl Runtime {
    /// Makes the memories and the driver. No thread runs yet: see [`crate::Machine::start`].
    ///
    /// # Errors
    /// [`LiveError`] says what the machine lacks.
    pub fn new(config: RuntimeConfig, probe: Option<Probe>) -> Result<Runtime, LiveError> {
        let Parts { driver, memories, ports, windows, far_windows } = assemble(&config)?;
        let windows = windows::Windows::new(windows, far_windows, &driver.limits);
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let bell = rustix::event::eventfd(0, flags).map_err(LiveError::Bell)?;
        let mut driver = Driver::new(driver, config.placement)?;
        config.journal.into_iter().for_each(|journal| driver.keep_journal(journal));
        let core = Core {
            driver: DriverBox(driver),
            host: VecDeque::with_capacity(UNDER_WAY),
            draining: for_commands(),
            copying: for_commands(),
            answered: IndexMap::default(),
            jobs: IndexMap::default(),
            pieces: IndexMap::default(),
            moves: IndexMap::default(),
            after: HashMap::new(),
            limits: BTreeMap::new(),
            next_look: None,
            sleeps_quietly: false,
            suspects: Vec::new(),
            to_reset: Vec::new(),
            broken: Vec::new(),
            foresight: foresight::Foresight::default(),
            faults: Vec::with_capacity(cards::FAULTS_AT_ONCE),
            notices: Vec::with_capacity(cards::FAULTS_AT_ONCE),
            answers: Vec::with_capacity(cards::FAULTS_AT_ONCE),
            heard: Heard::default(),
        };
        Ok(Runtime {
            memories,
            keepers: adopt::Keepers::default(),
            files: files::Files::default(),
            clock: Clock::start(),
            ports,
            core: Mutex::new(core),
            windows,
            peer: config.peer,
            times: Times::default(),
            large: large::LargeCount::default(),
            traffic: TrafficAccount::default(),
            bell,
            closed: AtomicBool::new(false),
            recalled: AtomicBool::new(false),
            pulse: Pulse::default(),
            own: OnceLock::new(),
            grace: config.grace,
            taking_back: Mutex::new(()),
            direct: OnceLock::new(),
            replies: Gate::new(),
            pes: config.pes,
            porter: moves::Porter::default(),
            caller: Mutex::new(None),
            next_id: AtomicU64::new(1),
            pid: rustix::process::getpid(),
            recorder: config.recorder,
            probe,
            #[cfg(feature = "mutations")]
            strikes: strike::Strikes::default(),
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
        self.handle(Event::Request { id, request, after: &[] });
        Ok(self.replies.wait_for(|| lock(&self.core).answered.remove(&id))?)
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

    /// What was copied so far, and how fast; nothing after a fork, where a thread that is not there may
    /// hold the account.
    pub fn traffic(&self) -> Traffic {
        if self.check_process().is_err() {
            return Traffic::default();
        }
        // A signal handler may touch shared memory, and whoever brings the page enters its copy.
        let _signals = BlockedSignals::block();
        self.traffic.sum()
    }

    /// Whether `bytes` bytes at `addr` lie in the space, adopted memory included, or in a card's own memory.
    pub fn contains(&self, addr: VirtAddr, bytes: u64) -> bool {
        PageRange::covering(addr, bytes).is_ok_and(|range| {
            let is_own = || self.windows.at(range).is_some_and(|it| it.pages().covers(range));
            self.arena().covers(range) || is_own() || self.is_adopted(range)
        })
    }

    /// Number of cards.
    pub fn card_count(&self) -> usize {
        self.ports.len()
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
}
