//! The machine of a functional replay: the driver, and what every GPU has mapped. It does at once
//! whatever the driver orders.

use std::sync::Arc;

use farside_svm::placement::{PlacementScheme, Sample};
use farside_svm::{
    Capabilities, CardFault, Command, Config, Driver, Event, Eviction, KnownCosts, Need, Outcome,
    PrefetchConfig, Reply, Request, RingOp, Run, Stats, TransferOp,
};
use farside_types::{
    Access as Kind, BLOCK_PAGES, CancelReason, CardId, FaultId, JobId, MAX_CARDS, MemoryId, PageNo,
    PageRange, RequestId, Rights, Span, StreamId, Time,
};

use super::{Counts, Options, PageCounts, ReplayError, Report};
use crate::pump::Pump;
use farside_workloads::order::Access;
use farside_workloads::{BLOCK_LINES, Buffer, BufferKind, LINE_BYTES, Workload};

/// Where the arena starts: at 4 GiB, so that a small number is never taken for an address.
const ARENA_START: PageNo = PageNo(1 << 20);
/// Host faults that are open at a time before the first access.
const FAULTS_AT_ONCE: usize = 256;
/// Lines of a page.
const PAGE_LINES: u32 = BLOCK_LINES / BLOCK_PAGES as u32;
/// How often time is moved on for a fault that the driver keeps waiting.
const PATIENCE: u32 = 1000;

/// See the module.
#[derive(Debug)]
pub(super) struct Machine {
    driver: Driver,
    gpus: Vec<Gpu>,
    workload: String,
    /// Pages of the buffers that GPUs share.
    pages: u64,
    /// By block: how many of its pages, from the first, are of a buffer.
    allocated: Vec<u32>,
    threshold: u32,
    group_pages: u32,
    by_page: Vec<PageCounts>,
    /// Accesses so far, which is also the time in nanoseconds.
    accesses: u64,
    faults: u64,
    jobs: u64,
    /// How the fault under way ended.
    answered: Option<Result<(), CancelReason>>,
    /// The driver's last answer to the program.
    replied: Option<Reply>,
    /// Until when a fault that waits has waited; zero if none does.
    waited: Time,
    samples: Option<Samples>,
}

/// What a GPU has mapped, and what it counted.
#[derive(Debug)]
struct Gpu {
    card: CardId,
    mapped: Vec<Mapping>,
    /// Remote accesses by group.
    remote: Vec<u32>,
    counts: Counts,
    job: Option<JobId>,
}

/// A page's memory and rights: 0 is none, else the memory plus one, and bit 7 is the right to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mapping(u8);

/// Accesses by page and GPU since the last samples, for schemes that ask for them.
#[derive(Debug)]
struct Samples {
    every: Span,
    next: Time,
    /// By page, then by GPU.
    counts: Vec<u32>,
    touched: Vec<usize>,
}

impl Mapping {
    const WRITE: u8 = 0x80;

    fn new(memory: MemoryId, rights: Rights) -> Mapping {
        Mapping(memory.0 + 1).with(rights)
    }

    fn with(self, rights: Rights) -> Mapping {
        let write = if rights.allows(Kind::Write) { Mapping::WRITE } else { 0 };
        Mapping(self.0 & !Mapping::WRITE | write)
    }

    fn memory(self) -> Option<MemoryId> {
        (self.0 & !Mapping::WRITE).checked_sub(1).map(MemoryId)
    }

    fn allows(self, write: bool) -> bool {
        if write { self.0 & Mapping::WRITE != 0 } else { self.0 != 0 }
    }
}

impl Pump for Machine {
    type Error = ReplayError;

    fn driver(&mut self) -> &mut Driver {
        &mut self.driver
    }

    fn now(&self) -> Time {
        self.waited.max(Time::ZERO + Span::from_nanos(self.accesses))
    }

    /// Everything is done at once.
    fn dispatch(&mut self, command: Command) -> Result<(), ReplayError> {
        let (header, now) = (*command.header(), self.now());
        self.carry_out(command);
        self.driver.handle(now, header.done(Ok(())));
        Ok(())
    }

    fn reply(&mut self, reply: Reply) -> Result<(), ReplayError> {
        self.replied = Some(reply);
        Ok(())
    }

    /// It is asked before each access.
    fn call_at(&mut self, _: Time) {}
}

impl Machine {
    /// With every page of the workload on the host, written by the CPU.
    pub(super) fn new(
        workload: &dyn Workload,
        placement: Box<dyn PlacementScheme>,
        options: &Options,
    ) -> Result<Machine, ReplayError> {
        let gpus = check(workload, options)?;
        let buffers = workload.buffers();
        let pages = buffers
            .iter()
            .filter(|buffer| buffer.kind != BufferKind::Launch)
            .map(buffer_pages)
            .sum();
        let config = Config {
            costs: options.costs.map_or(KnownCosts::None, KnownCosts::Fixed),
            ..config(buffers, pages, gpus, options.capacity_percent)
        };
        let arena = config.arena.count as usize;
        let groups = arena / options.counter_group_pages as usize + 1;
        let driver = Driver::new(config, placement)?;
        let gpu = |gpu| Gpu {
            card: CardId(gpu),
            mapped: vec![Mapping::default(); arena],
            remote: vec![0; groups],
            counts: Counts::default(),
            job: None,
        };
        let samples = driver.sample_every().map(|every| Samples {
            every,
            next: Time::ZERO + every,
            counts: vec![0; arena * usize::from(gpus)],
            touched: Vec::new(),
        });
        let mut machine = Machine {
            driver,
            gpus: (0..gpus).map(gpu).collect(),
            workload: workload.name().to_owned(),
            pages,
            allocated: Vec::new(),
            threshold: options.counter_threshold,
            group_pages: options.counter_group_pages,
            by_page: vec![PageCounts::default(); if options.per_page { arena } else { 0 }],
            accesses: 0,
            faults: 0,
            jobs: 0,
            answered: None,
            replied: None,
            waited: Time::ZERO,
            samples,
        };
        machine.allocate(buffers)?;
        Ok(machine)
    }

    /// Allocates each buffer, in whole blocks so that it lies where the workload has it, and has
    /// the CPU write its pages, if they are shared.
    fn allocate(&mut self, buffers: &[Buffer]) -> Result<(), ReplayError> {
        for (index, buffer) in buffers.iter().enumerate() {
            let pages = buffer_pages(buffer);
            let bytes = pages.next_multiple_of(BLOCK_PAGES) * u64::from(PAGE_LINES) * LINE_BYTES;
            let request = Request::Alloc { bytes, name: Arc::from(buffer.name.as_str()) };
            self.handle(Event::Request { id: RequestId(index as u64), request, after: &[] })?;
            let range = match self.replied.take() {
                Some(Reply::Request { result: Ok(Outcome::Allocated(range)), .. }) => range,
                Some(Reply::Request { result: Err(source), .. }) => {
                    return Err(ReplayError::Buffer { index, source });
                }
                reply => return Err(self.broken(format!("alloc is answered with {reply:?}"))),
            };
            let blocks = (0..pages).step_by(BLOCK_PAGES as usize);
            self.allocated.extend(blocks.map(|first| (pages - first).min(BLOCK_PAGES) as u32));
            if buffer.kind == BufferKind::Launch {
                continue;
            }
            let written: Vec<PageNo> = PageRange::new(range.start, pages).pages().collect();
            for some in written.chunks(FAULTS_AT_ONCE) {
                for &page in some {
                    let now = self.now();
                    self.driver.handle(now, Event::HostFault { page, access: Kind::Write });
                }
                self.pump()?;
            }
            // What the program sets up counts for nobody.
            self.by_page.fill(PageCounts::default());
        }
        Ok(())
    }

    /// Ends the launch that runs, if one does, and starts the next on every GPU.
    pub(super) fn begin_launch(&mut self, launch: u64) -> Result<(), ReplayError> {
        self.end_launch()?;
        let arena = self.driver.config().arena;
        for gpu in 0..self.gpus.len() {
            let (job, card) = (JobId(self.jobs), self.gpus[gpu].card);
            self.jobs += 1;
            self.handle(Event::Launch {
                job,
                card,
                stream: StreamId(u32::from(card.0)),
                after: &[],
                writes: &[arena],
            })?;
            if self.gpus[gpu].job != Some(job) {
                return Err(self.broken(format!("launch {launch} does not start on {card}")));
            }
        }
        Ok(())
    }

    fn end_launch(&mut self) -> Result<(), ReplayError> {
        for gpu in 0..self.gpus.len() {
            if let Some(job) = self.gpus[gpu].job.take() {
                self.handle(Event::JobDone { job })?;
            }
        }
        Ok(())
    }

    /// Carries one access out, with the fault before it and the notice after it.
    pub(super) fn access(&mut self, access: Access) -> Result<(), ReplayError> {
        self.accesses += 1;
        self.wake()?;
        let gpu = usize::from(access.place.gpu);
        let page = self.page(access)?;
        let mut mapping = self.gpus[gpu].mapped[page as usize];
        if !mapping.allows(access.write) {
            self.fault(gpu, page, access.write, mapping)?;
            mapping = self.gpus[gpu].mapped[page as usize];
        }
        let state = &mut self.gpus[gpu];
        let local = mapping.memory() == Some(state.card.memory());
        state.counts.reads += u64::from(!access.write);
        state.counts.writes += u64::from(access.write);
        state.counts.local += u64::from(local);
        state.counts.remote += u64::from(!local);
        if let Some(counts) = self.by_page.get_mut(page as usize) {
            counts.gpus |= 1 << gpu;
            counts.reads += u32::from(!access.write);
            counts.writes += u32::from(access.write);
            counts.remote += u32::from(!local);
        }
        self.sample(gpu, page);
        if local { Ok(()) } else { self.count_remote(gpu, page) }
    }

    /// The page of an access, counted from the first of the arena.
    fn page(&self, access: Access) -> Result<u32, ReplayError> {
        let Access { launch, place, line, .. } = access;
        let block = self.allocated.get((line.0 / BLOCK_LINES) as usize).copied();
        if line.0 % BLOCK_LINES / PAGE_LINES < block.unwrap_or(0) {
            return Ok(line.0 / PAGE_LINES);
        }
        Err(ReplayError::Line {
            access: self.accesses - 1,
            workload: self.workload.clone(),
            launch,
            gpu: place.gpu,
            unit: place.unit,
            line: line.0,
        })
    }

    fn fault(
        &mut self,
        gpu: usize,
        page: u32,
        write: bool,
        mapping: Mapping,
    ) -> Result<(), ReplayError> {
        let id = FaultId(self.faults);
        self.faults += 1;
        let counts = &mut self.gpus[gpu].counts;
        match mapping.memory() {
            None => counts.local_faults += 1,
            Some(_) => counts.protection_faults += 1,
        }
        if let Some(counts) = self.by_page.get_mut(page as usize) {
            counts.faults += 1;
        }
        let before = Moves::of(self.driver.stats());
        let kind = if write { Kind::Write } else { Kind::Read };
        let need = Need::Page(ARENA_START.offset(u64::from(page)), kind);
        self.answered = None;
        let (card, fault) = (self.gpus[gpu].card, CardFault { id, need });
        self.handle(Event::CardFaults { card, faults: &[fault] })?;
        self.wait_for_answer()?;
        Moves::of(self.driver.stats()).since(before, &mut self.gpus[gpu].counts);
        match self.answered {
            Some(Err(reason)) => {
                let access = self.accesses - 1;
                Err(ReplayError::Cancelled { access, gpu: card.0, page, reason })
            }
            _ if self.gpus[gpu].mapped[page as usize].allows(write) => Ok(()),
            _ => Err(self.broken(format!("{card} is resumed and has not mapped page {page}"))),
        }
    }

    /// A scheme may keep a fault waiting: then time moves on to when the driver wants it to.
    fn wait_for_answer(&mut self) -> Result<(), ReplayError> {
        for _ in 0..PATIENCE {
            if self.answered.is_some() {
                break;
            }
            let Some(at) = self.driver.poll_timeout() else {
                break;
            };
            self.waited = self.now().max(at);
            self.time_out()?;
        }
        self.waited = Time::ZERO;
        match self.answered {
            Some(_) => Ok(()),
            None => Err(self.broken("a fault is not answered".to_owned())),
        }
    }

    fn count_remote(&mut self, gpu: usize, page: u32) -> Result<(), ReplayError> {
        let first = page - page % self.group_pages;
        let state = &mut self.gpus[gpu];
        let count = &mut state.remote[(page / self.group_pages) as usize];
        *count += 1;
        if *count < self.threshold {
            return Ok(());
        }
        *count = 0;
        state.counts.notices += 1;
        let before = Moves::of(self.driver.stats());
        let card = state.card;
        let start = ARENA_START.offset(u64::from(first));
        let pages = PageRange::new(start, u64::from(self.group_pages));
        self.handle(Event::CounterNotice { card, pages, count: self.threshold })?;
        Moves::of(self.driver.stats()).since(before, &mut self.gpus[gpu].counts);
        Ok(())
    }

    fn sample(&mut self, gpu: usize, page: u32) {
        let gpus = self.gpus.len();
        let Some(samples) = &mut self.samples else {
            return;
        };
        let at = page as usize * gpus + gpu;
        if samples.counts[at] == 0 {
            samples.touched.push(at);
        }
        samples.counts[at] += 1;
    }

    /// Does what has become due: the scheme's ticks and samples.
    fn wake(&mut self) -> Result<(), ReplayError> {
        let now = self.now();
        if self.driver.poll_timeout().is_some_and(|at| at <= now) {
            self.time_out()?;
        }
        let gpus = self.gpus.len();
        let due = self.samples.as_mut().filter(|samples| samples.next <= now);
        let Some(Samples { every, next, counts, touched }) = due else {
            return Ok(());
        };
        *next = now + *every;
        touched.sort_unstable();
        let taken = touched.drain(..).map(|at| Sample {
            page: ARENA_START.offset((at / gpus) as u64),
            card: CardId((at % gpus) as u8),
            accesses: std::mem::take(&mut counts[at]),
        });
        let samples: Vec<Sample> = taken.collect();
        self.handle(Event::Samples { samples: &samples })
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Ring(card, step) => self.of_ring(usize::from(card.0), &step.op),
            Command::Transfer(_, step) => self.count_copies(&step.op),
            // The program of a replay touches nothing on the CPU.
            Command::Host(_) => {}
        }
    }

    fn count_copies(&mut self, op: &TransferOp) {
        if let (TransferOp::Copy { runs, .. }, false) = (op, self.by_page.is_empty()) {
            for page in numbers(runs) {
                self.by_page[page].copies += 1;
            }
        }
    }

    /// A command of a GPU's ring.
    fn of_ring(&mut self, gpu: usize, op: &RingOp) {
        let Gpu { mapped, job: running, .. } = &mut self.gpus[gpu];
        match op {
            RingOp::Map { runs, memory, rights } => {
                numbers(runs).for_each(|page| mapped[page] = Mapping::new(*memory, *rights));
            }
            RingOp::Unmap { runs, .. } => {
                numbers(runs).for_each(|page| mapped[page] = Mapping::default());
            }
            RingOp::Protect { runs, rights } => {
                numbers(runs).for_each(|page| mapped[page] = mapped[page].with(*rights));
            }
            RingOp::Accessed { .. } => {}
            RingOp::Resume { .. } => self.answered = Some(Ok(())),
            RingOp::Cancel { reason, .. } => self.answered = Some(Err(*reason)),
            RingOp::Launch { job } => *running = Some(*job),
        }
    }

    /// After the last access: the driver's tables must be right.
    pub(super) fn finish(mut self, scheme: &str) -> Result<Report, ReplayError> {
        self.end_launch()?;
        self.driver.check().map_err(|what| self.broken(what))?;
        let gpus: Vec<Counts> = self.gpus.iter().map(|gpu| gpu.counts).collect();
        let touched = (0..).zip(&self.by_page).filter(|(_, counts)| counts.gpus != 0);
        Ok(Report {
            workload: self.workload,
            scheme: scheme.to_owned(),
            pages: self.pages,
            total: gpus.iter().fold(Counts::default(), |sum, gpu| sum.plus(gpu)),
            by_page: touched.map(|(page, counts)| (page, *counts)).collect(),
            gpus,
        })
    }

    fn broken(&self, what: String) -> ReplayError {
        ReplayError::Broken { access: self.accesses.saturating_sub(1), what }
    }
}

/// Pages moved so far, as the driver counts them.
#[derive(Clone, Copy)]
struct Moves {
    migrations: u64,
    duplications: u64,
    collapses: u64,
    remote_maps: u64,
    evictions: u64,
}

impl Moves {
    fn of(stats: &Stats) -> Moves {
        let &Stats { migrations, duplications, collapses, remote_maps, evictions, .. } = stats;
        Moves { migrations, duplications, collapses, remote_maps, evictions }
    }

    /// Adds what came since `before`.
    fn since(self, before: Moves, counts: &mut Counts) {
        counts.migrations += self.migrations - before.migrations;
        counts.duplications += self.duplications - before.duplications;
        counts.collapses += self.collapses - before.collapses;
        counts.remote_maps += self.remote_maps - before.remote_maps;
        counts.evictions += self.evictions - before.evictions;
    }
}

/// The pages of runs, counted from the first of the arena.
fn numbers(runs: &[Run]) -> impl Iterator<Item = usize> + '_ {
    runs.iter().flat_map(|run| run.pages().pages()).map(|page| (page.0 - ARENA_START.0) as usize)
}

fn buffer_pages(buffer: &Buffer) -> u64 {
    buffer.bytes.div_ceil(u64::from(PAGE_LINES) * LINE_BYTES)
}

/// The number of GPUs, if the options can be.
fn check(workload: &dyn Workload, options: &Options) -> Result<u8, ReplayError> {
    let wrong =
        |name, value: u32, why| Err(ReplayError::Option { name, value: u64::from(value), why });
    let gpus = options.gpus_for(workload);
    if gpus == 0 || gpus as usize > MAX_CARDS {
        return wrong("gpus", gpus, "it is 1 to 16");
    }
    if gpus < workload.gpus() {
        return wrong("gpus", gpus, "the trace was recorded on more GPUs");
    }
    if !(1..=256).contains(&options.units) {
        return wrong("units", options.units, "it is 1 to 256");
    }
    if options.counter_threshold == 0 {
        return wrong("counter_threshold", 0, "it is at least 1");
    }
    let group = options.counter_group_pages;
    if !group.is_power_of_two() || u64::from(group) > BLOCK_PAGES {
        return wrong("counter_group_pages", group, "it is a power of two up to 512");
    }
    match options.capacity_percent {
        Some(percent) if !(1..=1000).contains(&percent) => {
            wrong("capacity_percent", percent, "it is 1 to 1000")
        }
        _ => Ok(gpus as u8),
    }
}

fn config(buffers: &[Buffer], pages: u64, gpus: u8, percent: Option<u32>) -> Config {
    let blocks: u64 = buffers.iter().map(|buffer| buffer_pages(buffer).div_ceil(BLOCK_PAGES)).sum();
    let arena = PageRange::new(ARENA_START, blocks.max(1) * BLOCK_PAGES);
    let frames = match percent {
        Some(percent) => (pages * u64::from(percent)).div_ceil(100).max(1),
        // Everything, and a block besides: room for frames that are about to be given back.
        None => pages + BLOCK_PAGES,
    };
    let frames = vec![frames as u32; usize::from(gpus)];
    let mut config = Config::embedded(arena, frames);
    config.capabilities = Capabilities::with_dma(usize::from(gpus), true);
    // Bounces are counted to 15: no fight is ever found.
    config.thrash.throttle_after = u8::MAX;
    config.thrash.contests = false;
    config.prefetch =
        PrefetchConfig { host_fault_around: 1, density_percent: 100, ..Default::default() };
    config.eviction = Eviction::Clock;
    config.keep_clean_copies = false;
    // Everything is done at once; a limit that is over soon does not stay in the driver's tables.
    config.limits.drain = Span::from_micros(1);
    config.limits.copy = Span::from_micros(1);
    config
}
