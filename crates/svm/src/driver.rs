//! The driver: the one entry for events and the one exit for commands.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use farside_types::{
    BLOCK_PAGES, FaultId, FrameNo, IndexMap, MemoryId, MemorySet, PageNo, PageRange, RequestId,
    Shelved, Span, Time,
};
use serde::{Deserialize, Serialize};

use crate::api::command::Run;
use crate::api::journal::Journal;
use crate::api::launch::Launches;
use crate::api::order::Orders;
use crate::api::requests::{OpenRequest, Pin};
use crate::faults::group::Reservation;
use crate::faults::host::Blocked;
use crate::faults::open::{FaultKey, Faults};
use crate::migration::chain::Left;
use crate::migration::chains::{ChainId, Chains};
use crate::migration::detached::Detached;
use crate::migration::prices::Prices;
use crate::mutation::Mutated;
#[cfg(feature = "mutations")]
use crate::mutation::Mutation;
use crate::placement::PlacementScheme;
use crate::scratch::Scratch;
use crate::tables::frames::Frames;
use crate::tables::history::History;
use crate::tables::layout::Layout;
use crate::tables::page_table::PageTable;
use crate::tables::residency::Residency;
use crate::tables::sorted::SortedMap;
use crate::tables::space::Space;
use crate::waiting::{Waiting, Work};
use crate::{Command, Config, ConfigError, Event, Reply, Stats};

/// Chains, and what waits for one, that there is room for from the start.
const USUAL: usize = 64;

/// One virtual address space over host memory and the memories of the cards.
///
/// See the crate's front page for how it is driven.
pub struct Driver {
    pub(crate) config: Config,
    pub(crate) placement: Box<dyn PlacementScheme>,
    pub(crate) table: PageTable,
    pub(crate) space: Space,
    pub(crate) cards: Vec<CardState>,
    /// The time of the last call.
    pub(crate) now: Time,
    /// Cards that are gone.
    pub(crate) dead: MemorySet,
    /// Cards that were reset and still have chains to end.
    pub(crate) resetting: MemorySet,
    /// Cards that did not let go of something since they were last reset.
    pub(crate) stuck: MemorySet,
    /// Cards that fail what a card cannot fail, until they are reset.
    pub(crate) distrusted: MemorySet,
    /// What cards that did not answer in time may still write.
    pub(crate) quarantine: Vec<crate::migration::lost::Quarantined>,
    pub(crate) chains: Chains,
    pub(crate) faults: Faults,
    pub(crate) requests: BTreeMap<RequestId, OpenRequest>,
    pub(crate) pins: Vec<Pin>,
    pub(crate) launches: Launches,
    pub(crate) orders: Orders,
    /// To be planned before `handle` returns.
    pub(crate) work: VecDeque<Work>,
    /// Waits for something to happen.
    pub(crate) waiting: Waiting,
    /// Commands of no chain that are not answered yet.
    pub(crate) detached: VecDeque<Detached>,
    /// Commands to let go of freed pages that nobody waits for any more.
    pub(crate) late_stops: Vec<crate::migration::stop::LateStop>,
    /// Freed allocations whose addresses are in use until all have let go.
    pub(crate) lingering: Vec<PageRange>,
    /// Pages at which threads of the program are blocked. Work for others is stale: the threads went on
    /// when the page was mapped for one of them.
    pub(crate) blocked: SortedMap<PageNo, Blocked>,
    pub(crate) bounce_free: Vec<u8>,
    pub(crate) reservations: Vec<Reservation>,
    pub(crate) timers: BinaryHeap<Reverse<Timer>>,
    pub(crate) timer_count: u64,
    pub(crate) commands: VecDeque<Command>,
    pub(crate) replies: VecDeque<Reply>,
    pub(crate) next_command: u64,
    pub(crate) next_request: u64,
    pub(crate) history: History,
    /// Takes notes of everything, if anybody wants them.
    pub(crate) journal: Option<Box<dyn Journal>>,
    pub(crate) prices: Prices,
    pub(crate) stats: Stats,
    pub(crate) mutated: Mutated,
    /// Kept to spare allocations.
    pub(crate) scratch: Scratch,
}

/// What the driver knows of one card.
#[derive(Serialize, Deserialize)]
pub(crate) struct CardState {
    pub(crate) frames: Frames,
    pub(crate) residency: Residency,
    /// Frames of copies that are not the page's main location, by page index.
    pub(crate) replicas: IndexMap<u32, FrameNo>,
    /// Jobs that were launched and have not ended.
    pub(crate) running: u32,
    /// Frames that evictions under way will free.
    pub(crate) evicting: u32,
    /// Frames that are kept for those who waited for some, and are being planned.
    pub(crate) called: u32,
    /// Translations that it failed to insert, in a row.
    pub(crate) maps_failed: u8,
}

impl CardState {
    pub(crate) fn replica(&self, page_index: u32) -> FrameNo {
        *self.replicas.get(&page_index).expect("a copy has a frame")
    }
}

/// When something has to be looked at again.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Timer {
    pub(crate) at: Time,
    pub(crate) order: u64,
    pub(crate) what: Due,
}

/// What is due.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Due {
    /// Work that was told to be patient.
    Work(Work),
    /// The time limit of a chain.
    Chain(ChainId),
    /// The end of a page's pin against thrashing.
    Unpin(PageNo),
    /// The scheme's own tick.
    Tick,
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Timer) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Timer) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Lists of runs and of faults that are under way at once, from the start. Each has room for the pages of a
/// block, of which no two are beside each other.
const LISTS: usize = 2 * USUAL;

/// Makes the lists that commands carry, once for all drivers of the process.
fn stock_shelves() {
    Run::shelf().stock(LISTS, BLOCK_PAGES as usize / 2);
    FaultId::shelf().stock(LISTS / 4, BLOCK_PAGES as usize / 2);
    Left::shelf().stock(LISTS / 4, BLOCK_PAGES as usize);
    FaultKey::shelf().stock(LISTS / 4, BLOCK_PAGES as usize / 2);
}

impl Driver {
    /// A driver over an empty space.
    ///
    /// # Errors
    /// [`ConfigError`] names the value that cannot work.
    pub fn new(config: Config, placement: Box<dyn PlacementScheme>) -> Result<Driver, ConfigError> {
        config.check()?;
        stock_shelves();
        let cards = config
            .card_frames
            .iter()
            .map(|&frames| CardState {
                frames: Frames::of_card(frames, config.eviction),
                residency: Residency::new(Layout::new(config.arena)),
                replicas: IndexMap::default(),
                running: 0,
                evicting: 0,
                called: 0,
                maps_failed: 0,
            })
            .collect();
        let mut driver = Driver {
            table: PageTable::new(config.arena),
            space: Space::new(config.arena),
            cards,
            now: Time::ZERO,
            dead: MemorySet::EMPTY,
            resetting: MemorySet::EMPTY,
            stuck: MemorySet::EMPTY,
            distrusted: MemorySet::EMPTY,
            quarantine: Vec::new(),
            chains: Chains::with_room(USUAL),
            waiting: Waiting::with_room(USUAL),
            faults: Faults::with_room(4 * USUAL),
            requests: BTreeMap::new(),
            pins: Vec::new(),
            launches: Launches::default(),
            orders: Orders::default(),
            work: VecDeque::with_capacity(config.limits.fault_batch),
            detached: VecDeque::with_capacity(config.limits.fault_batch),
            late_stops: Vec::new(),
            lingering: Vec::new(),
            blocked: SortedMap::with_room(config.limits.fault_batch),
            bounce_free: (0..config.capabilities.bounce_slots).collect(),
            reservations: Vec::new(),
            timers: BinaryHeap::with_capacity(4 * USUAL),
            timer_count: 0,
            commands: VecDeque::with_capacity(config.limits.fault_batch),
            replies: VecDeque::with_capacity(USUAL),
            next_command: 0,
            next_request: 0,
            history: History::new(config.limits.history),
            journal: None,
            prices: Prices::default(),
            stats: Stats::roomy(config.card_frames.len()),
            mutated: Mutated::default(),
            scratch: Scratch::new(&config.limits),
            config,
            placement,
        };
        driver.arm_tick();
        Ok(driver)
    }

    /// Takes note of what happened and plans what follows. Never blocks. Afterwards poll commands
    /// and replies until there are none.
    pub fn handle(&mut self, now: Time, event: Event<'_>) {
        self.now = now;
        match event {
            Event::CardFaults { card, faults } => self.take_faults(now, card, faults),
            Event::HostFault { page, access } => self.take_host_fault(page, access),
            Event::Launch { job, card, stream, after, writes } => {
                self.launch(job, (card, stream), after, writes);
            }
            Event::LaunchParts { job } => self.launch_parts(job),
            Event::JobFailed { job } => self.job_failed(job),
            Event::JobDone { job } => self.job_done(job),
            Event::JobHung { job } => self.job_hung(job),
            Event::JobCancel { job } => self.job_cancel(job),
            Event::Request { id, request, after } => self.take_request(id, request, after),
            Event::Done { command, epoch, result } => self.done(now, command, epoch, result),
            Event::Told { command, first, pages, bits } => {
                self.told(command, first, pages, bits);
            }
            Event::CounterNotice { card, pages, count } => {
                self.counter_notice(now, card, pages, count);
            }
            Event::Samples { samples } => {
                let proposals = self.placement.on_samples(now, samples);
                self.take_proposals(proposals);
            }
            Event::CardLost { card } => self.card_gone(now, card),
            Event::CardReset { card } => self.card_reset(now, card),
            Event::Link { from, to, works } => self.config.capabilities.set_link(from, to, works),
        }
        self.pump(now);
    }

    /// The next command to carry out, in order.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// The next answer for the program.
    pub fn poll_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }

    /// When [`Driver::handle_timeout`] wants to be called; `None` while nothing waits for time.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.peek().map(|Reverse(timer)| timer.at)
    }

    /// Does what has become due. Harmless when nothing has.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        while let Some(&Reverse(timer)) = self.timers.peek() {
            if timer.at > now {
                break;
            }
            self.timers.pop();
            match timer.what {
                Due::Work(work) => self.work.push_back(work),
                Due::Chain(id) => self.chain_timer(now, timer.at, id),
                Due::Unpin(page) => self.end_thrash_pin(now, page),
                Due::Tick => self.tick(now),
            }
        }
        self.pump(now);
    }

    /// Breaks one rule on purpose (feature `mutations`).
    #[cfg(feature = "mutations")]
    pub fn mutate(&mut self, mutation: Mutation) {
        self.mutated.set(mutation);
    }

    /// Accesses to the placement scheme's own tables in memory since this was last asked, so that
    /// a simulated machine can charge their time.
    pub fn take_table_accesses(&mut self) -> u32 {
        self.placement.table_accesses()
    }

    /// How often the placement scheme wants [`Event::Samples`]; `None` if never.
    pub fn sample_every(&self) -> Option<Span> {
        self.placement.sample_every()
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether nothing is open: no chain, fault, request or command, and nobody who was told to be
    /// patient.
    pub fn is_quiet(&self) -> bool {
        let patient = |timer: &Reverse<Timer>| matches!(timer.0.what, Due::Work(_));
        !self.timers.iter().any(patient)
            && self.chains.are_idle()
            && self.faults.len() == 0
            && self.requests.is_empty()
            && self.orders.held() == 0
            && self.commands.is_empty()
    }

    pub(crate) fn set_timer(&mut self, at: Time, what: Due) {
        self.timer_count += 1;
        self.timers.push(Reverse(Timer { at, order: self.timer_count, what }));
    }

    pub(crate) fn arm_tick(&mut self) {
        if let Some(at) = self.placement.next_tick() {
            self.set_timer(at, Due::Tick);
        }
    }

    pub(crate) fn is_dead(&self, memory: MemoryId) -> bool {
        self.dead.contains(memory)
    }

    /// Whether there is such a memory and it can be used. A card that was reset is usable again
    /// when the last command of its former life has been answered or given up.
    pub fn is_usable(&self, memory: MemoryId) -> bool {
        memory.0 as usize <= self.cards.len() && !self.is_dead(memory)
    }
}
