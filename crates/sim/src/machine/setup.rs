//! Setting up: the driver's configuration, the program's buffers, and the first contents.
//!
//! A program has its data on the host when its first kernel is launched. So, before time starts,
//! the CPU writes every page once, through the driver: host faults, each of which brings what is
//! around it. The first touch of a GPU is then a migration from the host, not a zero fill: the GRIT
//! paper does not say so, but its section V-C implies it (`docs/simulator.md`).

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_svm::placement::PlacementScheme;
use farside_svm::{
    Capabilities, Command, Config, Driver, Event, Eviction, KnownCosts, Outcome, PrefetchConfig,
    Reply, Request, Stats, Step,
};
use farside_types::{
    Access, AgentId, BLOCK_PAGES, CardId, FrameNo, MemoryId, PAGE_SIZE, PageNo, PageRange,
    RequestId, Rights, Span, Time,
};

use super::copies::Copies;
use super::host::Host;
use super::moves::Moves;
use super::pool::Pool;
use super::ring::Ring;
use super::table::Table;
use super::waves::Running;
use super::{Block, Machine, Times};
use crate::coherence::Coherence;
use crate::gpu::{Gpu, Mapping};
use crate::links::Links;
use crate::pump::Alarm;
use crate::time::Queue;
use crate::{CapacityOf, Constants, SimError, Spec, StoreMode};
use farside_workloads::{BLOCK_LINES, Buffer, BufferKind, Line, Workload, first_lines};

/// Where the arena starts: at 4 GiB, so that a small number is never taken for an address.
const ARENA_START: PageNo = PageNo(1 << 20);
/// When the first launch is made: long after the first contents, so that these do not look like
/// the beginning of a fight over the pages.
const START: Time = Time(2_000_000_000_000);

impl Machine {
    /// A machine with every page of the program on the host.
    pub(crate) fn new(
        spec: Spec,
        workload: Arc<dyn Workload>,
        placement: Box<dyn PlacementScheme>,
        check: bool,
    ) -> Result<Machine, SimError> {
        let mut machine =
            Machine::empty(spec, workload, check, |config| Ok(Driver::new(config, placement)?))?;
        machine.allocate()?;
        machine.initialise()?;
        machine.before = machine.driver.stats().clone();
        machine.start_sampling();
        Ok(machine)
    }

    /// A machine without any pages, whose driver `driver` makes.
    pub(super) fn empty(
        spec: Spec,
        workload: Arc<dyn Workload>,
        check: bool,
        driver: impl FnOnce(Config) -> Result<Driver, SimError>,
    ) -> Result<Machine, SimError> {
        spec.check()?;
        let groups = fits(&spec, &*workload)?;
        let config = config(&spec, workload.buffers());
        let pages = config.arena.count as usize;
        let bounce = (config.capabilities.bounce_slots, config.capabilities.bounce_pages);
        let check = check && spec.store.mode == StoreMode::Exclusive;
        let coherence = check.then(|| Coherence::new(pages, &config.card_frames, bounce));
        let gpus = (0..spec.gpus()).map(|gpu| CardId(gpu as u8).memory());
        Ok(Machine {
            gpus: gpus.map(|memory| Gpu::new(&spec, memory, pages, check)).collect(),
            rings: std::iter::repeat_with(Ring::default).take(spec.gpus()).collect(),
            links: Links::new(&spec),
            host: Host::default(),
            moves: Moves::new(&spec),
            driver: driver(config)?,
            queue: Queue::new(START),
            transfers: BTreeMap::new(),
            faults: Table::default(),
            open: Table::default(),
            next_fault: 0,
            walks: Table::default(),
            pool: Pool::new(),
            travels: Vec::new(),
            observers: Vec::new(),
            samplings: Vec::new(),
            arena: ARENA_START,
            arena_pages: pages as u64,
            used: Vec::new(),
            blocks: Vec::new(),
            first_lines: Vec::new(),
            page_shift: spec.page_lines_shift(),
            coherence,
            copies: Copies::new(pages),
            per_gpu: Vec::new(),
            samples: None,
            before: Stats::default(),
            start: START,
            running: Running::default(),
            launches: Vec::new(),
            timer: Alarm::default(),
            accesses: 0,
            groups_done: 0,
            groups,
            events: 0,
            idle_events: 0,
            times: Times {
                cycle: spec.cycles(1),
                l1_cache: spec.cycles(spec.cache.l1_cycles),
                l2_cache: spec.cycles(spec.cache.l2_cycles),
                memory: Span::from_nanos(spec.gpu.memory_ns),
                dispatch: spec.cycles(spec.gpu.dispatch_cycles),
                run_ahead: spec.cycles(spec.engine.run_ahead_cycles),
            },
            lines: None,
            spec,
            workload,
        })
    }

    /// Allocates the program's buffers, in its order.
    fn allocate(&mut self) -> Result<(), SimError> {
        let workload = Arc::clone(&self.workload);
        let firsts = first_lines(workload.buffers());
        for (index, (buffer, first)) in workload.buffers().iter().zip(firsts).enumerate() {
            // The driver counts pages; how large one is, only the machine knows.
            let bytes = pages(&self.spec, buffer) * PAGE_SIZE as u64;
            let request = Request::Alloc { bytes, name: Arc::from(buffer.name.as_str()) };
            let id = RequestId(index as u64);
            self.driver.handle(Time::ZERO, Event::Request { id, request, after: &[] });
            self.dispatch_all()?;
            let range = match self.driver.poll_reply() {
                Some(Reply::Request { result: Ok(Outcome::Allocated(range)), .. }) => range,
                Some(Reply::Request { result: Err(source), .. }) => {
                    return Err(SimError::Allocation { index, source });
                }
                reply => return Err(self.broken(format!("alloc is answered with {reply:?}"))),
            };
            self.place(buffer, range, first)?;
        }
        Ok(())
    }

    /// Has a buffer lie in these pages.
    pub(super) fn place(
        &mut self,
        buffer: &Buffer,
        range: PageRange,
        first: Line,
    ) -> Result<(), SimError> {
        self.take_range(range, first)?;
        if is_own(&self.spec, buffer) {
            self.give_each(range)?;
        }
        Ok(())
    }

    /// Maps pages for every GPU in its own memory, once and for all.
    fn give_each(&mut self, range: PageRange) -> Result<(), SimError> {
        let start = self.index(range.start)?;
        let pages = start..start + range.count as u32;
        for gpu in &mut self.gpus {
            let mapping = Mapping { memory: gpu.memory, rights: Rights::ReadWrite };
            pages.clone().for_each(|page| gpu.table.map(page, mapping, FrameNo(0)));
        }
        self.per_gpu.push(pages);
        Ok(())
    }

    /// Notes which pages of the arena the lines from `first` on are in.
    fn take_range(&mut self, range: PageRange, first: Line) -> Result<(), SimError> {
        let start = self.index(range.start)?;
        let pages_per_block = BLOCK_LINES >> self.page_shift;
        let count = range.count as u32;
        for index in (0..count).step_by(pages_per_block as usize) {
            let pages = pages_per_block.min(count - index);
            self.blocks.push(Block { start: start + index, pages });
        }
        let place = self.first_lines.partition_point(|&(page, _)| page < start);
        self.first_lines.insert(place, (start, first));
        self.used.push(range);
        Ok(())
    }

    /// Has the CPU write every page once.
    fn initialise(&mut self) -> Result<(), SimError> {
        for range in self.used.clone() {
            for page in range.pages() {
                if self.driver.page(page).owner.is_none() {
                    let access = Access::Write;
                    self.driver.handle(Time::ZERO, Event::HostFault { page, access });
                    self.dispatch_all()?;
                }
                self.written_by_cpu(self.index(page)?)?;
            }
        }
        Ok(())
    }

    fn written_by_cpu(&mut self, page: u32) -> Result<(), SimError> {
        let view = self.driver.page(self.arena.offset(u64::from(page)));
        if view.owner != Some(MemoryId::HOST) || !view.writers.contains(AgentId::CPU) {
            return Err(self.broken(format!("a host fault leaves page {page} as {view:?}")));
        }
        let Some(checker) = &mut self.coherence else {
            return Ok(());
        };
        let frame = FrameNo(page);
        let zeroed = checker.zero(page, MemoryId::HOST, frame);
        let written = zeroed.and_then(|()| checker.write(page, MemoryId::HOST, frame));
        written.map_err(|what| self.broken(what))
    }

    /// Carries out what the driver says, at once, until it says nothing more.
    fn dispatch_all(&mut self) -> Result<(), SimError> {
        while let Some(command) = self.driver.poll_command() {
            let header = *command.header();
            self.carry_out(command)?;
            self.driver.handle(Time::ZERO, header.done(Ok(())));
        }
        Ok(())
    }

    fn carry_out(&mut self, command: Command) -> Result<(), SimError> {
        match command {
            Command::Transfer(_, step) => self.transfer_now(step),
            Command::Host(step) => self.host_operation(&step.op),
            Command::Ring(_, Step { op, .. }) => {
                Err(self.broken(format!("{} before any kernel was launched", op.name())))
            }
        }
    }
}

/// Whether the machine is large enough for the program, and how many work-groups that has.
fn fits(spec: &Spec, workload: &dyn Workload) -> Result<u64, SimError> {
    let too_small = |what, key, used, given| Err(SimError::TooSmall { what, key, used, given });
    let (used, given) = (u64::from(workload.gpus()), u64::from(spec.gpu.count));
    if used > given {
        return too_small("GPUs", "gpu.count", used, given);
    }
    let mut groups = 0;
    for launch in 0..workload.launches() {
        let launch = workload.launch(launch);
        let (used, given) = (u64::from(launch.waves), u64::from(spec.gpu.wavefronts));
        if used > given {
            return too_small("wavefronts in a work-group", "gpu.wavefronts", used, given);
        }
        groups += u64::from(launch.groups);
    }
    Ok(groups)
}

/// Whether every GPU has a copy of its own.
fn is_own(spec: &Spec, buffer: &Buffer) -> bool {
    match buffer.kind {
        BufferKind::Launch => true,
        BufferKind::Constant => spec.gpu.constants == Constants::Each,
        BufferKind::Data => false,
    }
}

/// The pages of a buffer.
pub(super) fn pages(spec: &Spec, buffer: &Buffer) -> u64 {
    buffer.bytes.div_ceil(u64::from(spec.page.bytes))
}

/// Enough pages for every buffer to start at a block of its own, and some that stay empty.
fn arena_pages(spec: &Spec, buffers: &[Buffer]) -> u64 {
    let blocks = buffers.iter().map(|buffer| pages(spec, buffer).div_ceil(BLOCK_PAGES) + 1);
    (blocks.sum::<u64>() + 1) * BLOCK_PAGES
}

fn config(spec: &Spec, buffers: &[Buffer]) -> Config {
    let shared = buffers.iter().filter(|buffer| !is_own(spec, buffer));
    let footprint: u64 = shared.map(|buffer| pages(spec, buffer)).sum();
    let frames = match spec.gpu.capacity_percent {
        Some(percent) => {
            let share = footprint * u64::from(percent);
            match spec.gpu.capacity_of {
                CapacityOf::Each => share.div_ceil(100),
                CapacityOf::Total => share.div_ceil(100 * u64::from(spec.gpu.count)),
            }
        }
        // Everything, and a block besides: room for frames that are about to be given back.
        None => footprint + BLOCK_PAGES,
    };
    let arena = PageRange::new(ARENA_START, arena_pages(spec, buffers));
    let mut config = Config::embedded(arena, vec![frames.max(1) as u32; spec.gpus()]);
    config.capabilities = Capabilities::with_dma(spec.gpus(), true);
    config.limits.fault_batch = spec.driver.fault_batch as usize;
    config.thrash.window = Span::from_nanos(spec.driver.thrash_window_ns);
    config.thrash.contests = spec.driver.contests;
    config.prefetch = PrefetchConfig {
        // The CPU faults only before time starts.
        host_fault_around: BLOCK_PAGES as u32,
        density_percent: spec.driver.density_percent,
        ..PrefetchConfig::default()
    };
    config.eviction = Eviction::Clock;
    config.keep_clean_copies = spec.driver.keep_clean_copies;
    config.costs = KnownCosts::Far(spec.far_access(), spec.gpu.at_once());
    config
}
