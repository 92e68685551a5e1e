//! The machine: carries the driver's commands out in simulated time.
//!
//! What happens is split by who does it: `program.rs` asks for things, `host.rs` is the software
//! that the driver runs in, `card.rs` carries commands out in order, translates and raises faults,
//! `pe.rs` is the processing element, `transfer.rs` copies. Nothing but the driver decides where a
//! page goes.

use std::collections::BTreeMap;

use farside_card::{Geometry, Mmu};
use farside_svm::placement::OnTouch;
use farside_svm::{
    Capabilities, Config, Driver, Event, PrefetchConfig, Reply, Stats, ThrashConfig,
};
use farside_types::{
    CardId, CommandId, Epoch, FaultId, JobId, MemoryId, MemorySet, PageNo, PageRange, RequestId,
    Span, Time,
};

use super::CardsError;
use super::card::{Card, Fault};
use super::contents::Contents;
use super::host::{Host, Item};
use super::program::{JobState, Steps};
use super::spec::{CardsSpec, Transport};
use super::transfer::Transfer;
use super::wires::Wires;
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
    AccessEnd { card: CardId, access: u64 },
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
    pub(super) faults: BTreeMap<FaultId, Fault>,
    pub(super) next_fault: u64,
    pub(super) next_id: u64,
    pub(super) arena: PageRange,
    /// Where the bytes of a page came from that is not mapped yet, by page of the arena.
    pub(super) arrived: BTreeMap<u32, MemoryId>,
    pub(super) replies: BTreeMap<RequestId, (Time, Reply)>,
    pub(super) jobs: BTreeMap<JobId, JobState>,
    pub(super) steps: Steps,
    pub(super) contents: Option<Contents>,
    timer: Option<Time>,
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
        let (cards, frames) = (spec.cards(), spec.machine.memory_pages as usize);
        let bounce = (spec.driver.bounce_buffers, spec.driver.bounce_pages);
        let contents = check.then(|| Contents::new(arena.count as usize, cards, frames, bounce));
        let mmu = mmu(&spec)?;
        Ok(CardMachine {
            driver: Driver::new(config, Box::new(OnTouch))?,
            queue: Queue::new(Time::ZERO),
            cards: (0..cards).map(|_| Card::new(mmu.clone())).collect(),
            host: Host::new(spec.host.processors),
            wires: Wires::new(cards),
            transfers: BTreeMap::new(),
            faults: BTreeMap::new(),
            next_fault: 0,
            next_id: 0,
            arena,
            arrived: BTreeMap::new(),
            replies: BTreeMap::new(),
            jobs: BTreeMap::new(),
            steps: Steps::default(),
            contents,
            timer: None,
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
            SimEvent::AccessEnd { card, access } => self.access_end(card, access),
            SimEvent::Computed { card } => self.computed(card),
            SimEvent::TransferEnd { command } => self.transfer_end(command),
            SimEvent::Done { command, epoch } => {
                self.handle(Event::Done { command, epoch, result: Ok(()) })
            }
            SimEvent::JobEnd { job } => self.job_end(job),
            SimEvent::JobSeen { job } => self.job_seen(job),
            SimEvent::Timer => self.timer(),
        }
    }

    /// Tells the driver what happened; the host's software works through what it says.
    pub(super) fn handle(&mut self, event: Event<'_>) -> Result<(), CardsError> {
        self.driver.handle(self.queue.now(), event);
        self.dispatch()
    }

    /// Takes what the driver says to the host's software.
    pub(super) fn dispatch(&mut self) -> Result<(), CardsError> {
        let items = self.listen()?;
        self.submit(items)
    }

    /// What the driver says now.
    pub(super) fn listen(&mut self) -> Result<Vec<Item>, CardsError> {
        let mut items = Vec::new();
        while let Some(command) = self.driver.poll_command() {
            self.announce(&command)?;
            items.push(Item::Command(command));
        }
        while let Some(reply) = self.driver.poll_reply() {
            items.push(Item::Reply(reply));
        }
        if let Some(at) = self.driver.poll_timeout() {
            if self.timer.is_none_or(|armed| at < armed) {
                self.timer = Some(at);
                self.queue.push(at, SimEvent::Timer);
            }
        }
        Ok(items)
    }

    fn timer(&mut self) -> Result<(), CardsError> {
        let now = self.queue.now();
        // A timer that was armed for a later time than this one is still in the queue.
        if self.timer.is_some_and(|armed| armed <= now) {
            self.timer = None;
        }
        if self.driver.poll_timeout().is_some_and(|at| at <= now) {
            self.driver.handle_timeout(now);
        }
        self.dispatch()
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
        let fault = |(id, fault): (&FaultId, &Fault)| {
            let view = self.driver.page(fault.page);
            let (card, page) = (fault.card, fault.page);
            format!("  {card} stands in {id} at {page}: {:?}, owner {:?}", view.state, view.owner)
        };
        let mut lines: Vec<String> = self.faults.iter().map(fault).collect();
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
        ..ThrashConfig::default()
    };
    config.prefetch = PrefetchConfig {
        host_fault_around: farside_types::BLOCK_PAGES as u32,
        density_percent: spec.driver.density_percent,
        ..PrefetchConfig::default()
    };
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

fn mmu(spec: &CardsSpec) -> Result<Mmu, CardsError> {
    let sizes = &spec.mmu;
    let geometry = Geometry {
        pes: 1,
        l1_entries: sizes.l1_entries,
        l2_entries: sizes.l2_entries,
        l2_ways: sizes.l2_ways,
        flexible_entries: sizes.flexible_entries,
        flexible_pages_max: sizes.flexible_pages_max,
        flexible_pages_min: sizes.flexible_pages_min,
        fault_entries: sizes.fault_entries,
        ..Geometry::default()
    };
    Ok(Mmu::new(&geometry)?)
}
