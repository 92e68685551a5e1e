//! The machine: carries the driver's commands out in simulated time.
//!
//! What happens is split by who does it: `program.rs` asks for things, `host.rs` is the software
//! that the driver runs in, `card.rs` carries commands out in order, translates and raises faults,
//! `pe.rs` is the processing element, `transfer.rs` copies. Nothing but the driver decides where a
//! page goes.

use std::collections::BTreeMap;

use farside_svm::placement::OnTouch;
use farside_svm::{
    Capabilities, Command, Config, Driver, Event, Eviction, PrefetchConfig, Reply, Stats,
    ThrashConfig,
};
use farside_types::{
    Access, CardId, CommandId, Epoch, FrameNo, JobId, MemoryId, MemorySet, PageNo, PageRange, PeId,
    RequestId, Span, Time,
};

use super::CardsError;
use super::card::Card;
use super::host::{Host, Item};
use super::program::{JobState, Steps};
use super::spec::{CardsSpec, Transport};
use super::transfer::Transfer;
use super::wires::Wires;
use crate::coherence::Coherence;
use crate::pump::{Alarm, Pump};
use crate::time::Queue;

/// The first page of the arena. Any multiple of a block will do.
const ARENA_START: PageNo = PageNo(1 << 20);

/// Something that happens at a point in time.
#[derive(Debug)]
pub(super) enum SimEvent {
    /// The host's software has come to this command or answer.
    Reached(Item),
    /// A thread of the driver has nothing left to do.
    ThreadFree,
    /// The interrupt of a card's faults has woken the driver.
    FaultInterrupt { card: CardId },
    /// A processing element issues its next access.
    Issue { card: CardId },
    /// An access is over.
    AccessEnd { card: CardId, port: PeId },
    /// A processing element is done with what it has read.
    Computed { card: CardId },
    /// The last page of a copy or fill is in place.
    TransferEnd { command: CommandId },
    /// The driver sees a completion.
    Done { command: CommandId, epoch: Epoch },
    /// The last access of a job is over.
    JobEnd { job: JobId },
    /// The program sees the end of a job.
    JobSeen { job: JobId },
    /// The driver wants to be called.
    Timer,
}

/// A host with cards, and the driver.
pub struct CardMachine {
    pub(super) spec: CardsSpec,
    pub(super) driver: Driver,
    pub(super) queue: Queue<SimEvent>,
    pub(super) cards: Vec<Card>,
    pub(super) host: Host,
    pub(super) wires: Wires,
    pub(super) transfers: BTreeMap<CommandId, Transfer>,
    pub(super) next_id: u64,
    pub(super) arena: PageRange,
    /// Where the bytes of a page came from that is not mapped yet, by page of the arena.
    pub(super) arrived: BTreeMap<u32, MemoryId>,
    pub(super) replies: BTreeMap<RequestId, (Time, Reply)>,
    pub(super) jobs: BTreeMap<JobId, JobState>,
    pub(super) steps: Steps,
    pub(super) coherence: Option<Coherence>,
    /// What the driver has said and the host's software was not given yet.
    said: Vec<Item>,
    timer: Alarm,
}

impl Pump for CardMachine {
    type Error = CardsError;

    fn driver(&mut self) -> &mut Driver {
        &mut self.driver
    }

    fn now(&self) -> Time {
        self.queue.now()
    }

    fn dispatch(&mut self, command: Command) -> Result<(), CardsError> {
        self.announce(&command)?;
        self.said.push(Item::Command(command));
        Ok(())
    }

    fn reply(&mut self, reply: Reply) -> Result<(), CardsError> {
        self.said.push(Item::Reply(reply));
        Ok(())
    }

    fn call_at(&mut self, at: Time) {
        if self.timer.set(at) {
            self.queue.push(at, SimEvent::Timer);
        }
    }

    /// The host's software works through what the driver said.
    fn pumped(&mut self) -> Result<(), CardsError> {
        let said = std::mem::take(&mut self.said);
        self.submit(said)
    }
}

impl CardMachine {
    /// A machine with nothing allocated. The checker that the content of pages follows its copies
    /// is on in builds with debug assertions.
    ///
    /// # Errors
    /// [`CardsError`] names the key that cannot work.
    pub fn new(spec: CardsSpec) -> Result<CardMachine, CardsError> {
        CardMachine::with_checker(spec, cfg!(debug_assertions))
    }

    /// As [`CardMachine::new`], with the checker on or off. It never changes a result.
    ///
    /// # Errors
    /// As for [`CardMachine::new`].
    pub fn with_checker(spec: CardsSpec, check: bool) -> Result<CardMachine, CardsError> {
        spec.check()?;
        let config = config(&spec);
        let arena = config.arena;
        let cards = spec.cards();
        let bounce = (spec.driver.bounce_buffers, spec.driver.bounce_pages);
        let frames = vec![spec.machine.memory_pages; cards];
        let coherence = check.then(|| Coherence::new(arena.count as usize, &frames, bounce));
        let all = (0..cards).map(|card| Card::new(CardId(card as u8), &spec));
        Ok(CardMachine {
            driver: Driver::new(config, Box::new(OnTouch))?,
            queue: Queue::new(Time::ZERO),
            cards: all.collect::<Result<_, _>>()?,
            host: Host::new(spec.host.processors),
            wires: Wires::new(cards),
            transfers: BTreeMap::new(),
            next_id: 0,
            arena,
            arrived: BTreeMap::new(),
            replies: BTreeMap::new(),
            jobs: BTreeMap::new(),
            steps: Steps::default(),
            coherence,
            said: Vec::new(),
            timer: Alarm::default(),
            spec,
        })
    }

    /// The machine's specification.
    pub fn spec(&self) -> &CardsSpec {
        &self.spec
    }

    /// Now.
    pub fn now(&self) -> Time {
        self.queue.now()
    }

    /// What the driver has counted.
    pub fn driver_stats(&self) -> &Stats {
        self.driver.stats()
    }

    /// How long a card's sending engine has been busy.
    ///
    /// # Errors
    /// [`CardsError::NoSuchCard`].
    pub fn sending(&self, card: CardId) -> Result<Span, CardsError> {
        self.known(card)?;
        Ok(self.wires.sending(card))
    }

    pub(super) fn known(&self, card: CardId) -> Result<(), CardsError> {
        if usize::from(card.0) < self.cards.len() {
            return Ok(());
        }
        Err(CardsError::NoSuchCard { card, cards: self.spec.machine.cards })
    }

    /// Lets things happen until `done`; `what` says what is waited for.
    pub(super) fn run_until(
        &mut self,
        what: &'static str,
        mut done: impl FnMut(&CardMachine) -> bool,
    ) -> Result<(), CardsError> {
        while !done(self) {
            let Some(event) = self.queue.pop() else {
                return Err(self.stuck(what));
            };
            self.process(event)?;
        }
        Ok(())
    }

    fn process(&mut self, event: SimEvent) -> Result<(), CardsError> {
        match event {
            SimEvent::Reached(item) => self.reached(item),
            SimEvent::ThreadFree => self.thread_free(),
            SimEvent::FaultInterrupt { card } => self.fault_interrupt(card),
            SimEvent::Issue { card } => self.issue(card),
            SimEvent::AccessEnd { card, port } => self.access_end(card, port),
            SimEvent::Computed { card } => self.computed(card),
            SimEvent::TransferEnd { command } => self.transfer_end(command),
            SimEvent::Done { command, epoch } => {
                self.handle(Event::Done { command, epoch, result: Ok(()) })
            }
            SimEvent::JobEnd { job } => self.job_end(job),
            SimEvent::JobSeen { job } => self.job_seen(job),
            SimEvent::Timer => {
                self.timer.ring(self.queue.now());
                self.time_out()
            }
        }
    }

    /// What the driver says now, which a thread of the host has asked for.
    pub(super) fn listen(&mut self) -> Result<Vec<Item>, CardsError> {
        self.pump()?;
        Ok(std::mem::take(&mut self.said))
    }

    /// The checker looks at an access of a page that is over.
    pub(super) fn check(
        &mut self,
        page: PageNo,
        access: Access,
        memory: MemoryId,
        frame: FrameNo,
    ) -> Result<(), CardsError> {
        let index = self.index(page)?;
        let checked = match (&mut self.coherence, access) {
            (None, _) => Ok(()),
            (Some(checker), Access::Read) => checker.read(index, memory, frame),
            (Some(checker), Access::Write) => checker.write(index, memory, frame),
        };
        checked.map_err(|what| self.broken(what))
    }

    /// The page's index in the arena. Pages outside of it are a bug of the driver.
    pub(super) fn index(&self, page: PageNo) -> Result<u32, CardsError> {
        match page.0.checked_sub(self.arena.start.0) {
            Some(index) if index < self.arena.count => Ok(index as u32),
            _ => Err(self.broken(format!("a command names {page}, outside of the arena"))),
        }
    }

    pub(super) fn broken(&self, what: String) -> CardsError {
        CardsError::Broken { at: self.queue.now(), what }
    }

    fn stuck(&self, what: &'static str) -> CardsError {
        let mut lines = Vec::new();
        for (card, state) in self.cards.iter().enumerate() {
            for page in state.waiting() {
                let view = self.driver.page(page);
                let (card, state, owner) = (CardId(card as u8), view.state, view.owner);
                lines.push(format!(
                    "  {card} stands in a fault at {page}: {state:?}, owner {owner:?}"
                ));
            }
        }
        lines.push(format!(
            "  {} copies under way, driver quiet: {}",
            self.transfers.len(),
            self.driver.is_quiet()
        ));
        CardsError::Stuck { at: self.queue.now(), what, waiting: lines.join("\n") }
    }
}

/// The driver's configuration for this machine.
fn config(spec: &CardsSpec) -> Config {
    let cards = spec.cards();
    let frames = spec.machine.memory_pages;
    let arena = PageRange::new(ARENA_START, u64::from(frames) * 2);
    let mut config = Config::embedded(arena, vec![frames; cards]);
    config.capabilities = capabilities(spec);
    config.limits.fault_batch = spec.driver.fault_batch as usize;
    config.limits.chains = spec.driver.chains as usize;
    config.limits.chain_pages = spec.driver.chain_pages;
    config.thrash = ThrashConfig {
        window: Span::from_nanos(spec.driver.thrash_window_ns),
        // The first paper's driver moves what is asked for.
        contests: false,
        ..ThrashConfig::default()
    };
    config.prefetch = PrefetchConfig {
        host_fault_around: farside_types::BLOCK_PAGES as u32,
        density_percent: spec.driver.density_percent,
        ..PrefetchConfig::default()
    };
    config.eviction = Eviction::Clock;
    config.keep_clean_copies = false;
    config
}

/// Who reaches what: every agent maps its own memory only (the published driver maps nothing
/// remotely), and copies go as `machine.transport` says.
fn capabilities(spec: &CardsSpec) -> Capabilities {
    let cards = spec.cards();
    let transport = spec.machine.transport;
    let mut table = Capabilities::with_dma(cards, transport == Transport::Peer);
    let all: MemorySet = (0..cards).map(|card| CardId(card as u8).memory()).collect();
    for card in 0..cards {
        let own = CardId(card as u8).memory();
        table.maps[card + 1] = MemorySet::only(own);
        if transport == Transport::Ethernet {
            table.links[card] = all.without(own);
        }
    }
    table.bounce_slots = spec.driver.bounce_buffers;
    table.bounce_pages = spec.driver.bounce_pages;
    table
}
