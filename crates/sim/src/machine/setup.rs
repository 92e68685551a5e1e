//! Setting up: the driver's configuration, the trace's allocations, and the first contents.
//!
//! The traced program had its data on the host when the first kernel was launched. So, before
//! time starts, the CPU writes every page once: a host fault each, through the driver. The first
//! touch of a GPU is then a migration from the host, as in the GRIT paper, not a zero fill.

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_svm::placement::Placement;
use farside_svm::{
    Capabilities, Command, Config, Driver, Event, Op, Outcome, PrefetchConfig, Reply, Request,
    Stats,
};
use farside_types::{
    Access, AgentId, BLOCK_PAGES, CardId, FrameNo, MemoryId, PageNo, PageRange, RequestId, Span,
    Time,
};

use super::Machine;
use super::host::Host;
use super::ring::Ring;
use crate::coherence::Coherence;
use crate::gpu::Gpu;
use crate::links::Links;
use crate::time::Queue;
use crate::{SimError, Spec, Trace};

/// Where the arena starts: at 4 GiB, so that a small number is never taken for an address.
const ARENA_START: PageNo = PageNo(1 << 20);
/// When the first launch is made: long after the first contents, so that these do not look like
/// the beginning of a fight over the pages.
const START: Time = Time(2_000_000_000_000);
/// Host faults that are open at a time before time starts.
const FAULTS_AT_ONCE: usize = 256;

impl Machine {
    /// A machine with every page of the trace on the host.
    pub(crate) fn new(
        spec: Spec,
        trace: Arc<Trace>,
        placement: Box<dyn Placement>,
        check: bool,
    ) -> Result<Machine, SimError> {
        spec.check()?;
        fits(&spec, &trace)?;
        let config = config(&spec, &trace);
        let pages = config.arena.count as usize;
        let bounce = (config.capabilities.bounce_slots, config.capabilities.bounce_pages);
        let coherence = check.then(|| Coherence::new(pages, &config.card_frames, bounce));
        let gpus = (0..spec.gpus()).map(|gpu| CardId(gpu as u8).memory());
        let mut machine = Machine {
            gpus: gpus.map(|memory| Gpu::new(&spec, memory, pages)).collect(),
            rings: std::iter::repeat_with(Ring::default).take(spec.gpus()).collect(),
            links: Links::new(&spec),
            host: Host::default(),
            driver: Driver::new(config, placement)?,
            queue: Queue::new(START),
            transfers: BTreeMap::new(),
            faults: BTreeMap::new(),
            open: BTreeMap::new(),
            next_fault: 0,
            arena: ARENA_START,
            arena_pages: pages as u64,
            pages: Vec::new(),
            coherence,
            before: Stats::default(),
            start: START,
            launch: 0,
            jobs_left: 0,
            launches: Vec::new(),
            timer: None,
            retired: 0,
            events: 0,
            idle_events: 0,
            spec,
            trace,
        };
        machine.allocate()?;
        machine.initialise()?;
        machine.before = machine.driver.stats().clone();
        Ok(machine)
    }

    /// Makes the trace's allocations, in its order.
    fn allocate(&mut self) -> Result<(), SimError> {
        let trace = Arc::clone(&self.trace);
        for (index, allocation) in trace.allocations().iter().enumerate() {
            let name = Arc::from(format!("{}:{:#x}", trace.name(), allocation.address));
            let request = Request::Alloc { bytes: allocation.bytes, name };
            let id = RequestId(index as u64);
            self.driver.handle(Time::ZERO, Event::Request { id, request });
            self.obey()?;
            let range = match self.driver.poll_reply() {
                Some(Reply::Request { result: Ok(Outcome::Allocated(range)), .. }) => range,
                Some(Reply::Request { result: Err(source), .. }) => {
                    return Err(SimError::Allocation { index, source });
                }
                reply => return Err(self.broken(format!("alloc is answered with {reply:?}"))),
            };
            for page in range.pages() {
                let page = self.index(page)?;
                self.pages.push(page);
            }
        }
        Ok(())
    }

    /// Has the CPU write every page once.
    fn initialise(&mut self) -> Result<(), SimError> {
        let pages = self.pages.clone();
        for some in pages.chunks(FAULTS_AT_ONCE) {
            for &page in some {
                let page = self.arena.offset(u64::from(page));
                let access = Access::Write;
                self.driver.handle(Time::ZERO, Event::HostFault { page, access });
            }
            self.obey()?;
            for &page in some {
                self.written_by_cpu(page)?;
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
    fn obey(&mut self) -> Result<(), SimError> {
        while let Some(command) = self.driver.poll_command() {
            let (id, epoch) = (command.id, command.epoch);
            self.carry_out(command)?;
            self.driver.handle(Time::ZERO, Event::Done { command: id, epoch, result: Ok(()) });
        }
        Ok(())
    }

    fn carry_out(&mut self, command: Command) -> Result<(), SimError> {
        match &command.op {
            Op::Copy { .. } | Op::Fill { .. } => self.transfer_now(command),
            Op::HostUnmap { .. }
            | Op::HostProtect { .. }
            | Op::HostMap { .. }
            | Op::HostRelease { .. }
            | Op::HostPoison { .. } => self.host_operation(&command.op),
            op => Err(self.broken(format!("{} before any kernel was launched", op.name()))),
        }
    }
}

/// Whether the machine is large enough for the trace.
fn fits(spec: &Spec, trace: &Trace) -> Result<(), SimError> {
    let (gpus, units) = (trace.gpus() as u64, trace.compute_units() as u64);
    let checks = [
        ("GPUs", "gpu.count", gpus, u64::from(spec.gpu.count)),
        ("compute units", "gpu.compute_units", units, u64::from(spec.gpu.compute_units)),
    ];
    match checks.into_iter().find(|&(_, _, used, given)| used > given) {
        Some((what, key, used, given)) => Err(SimError::TooSmall { what, key, used, given }),
        None => Ok(()),
    }
}

/// Enough pages for every allocation to start at a block of its own.
fn arena_pages(trace: &Trace) -> u64 {
    let blocks = trace.allocations().iter().map(|a| a.pages().div_ceil(BLOCK_PAGES) + 1);
    (blocks.sum::<u64>() + 1) * BLOCK_PAGES
}

fn config(spec: &Spec, trace: &Trace) -> Config {
    let footprint = trace.pages();
    let frames = match spec.gpu.capacity_percent {
        Some(percent) => (footprint * u64::from(percent)).div_ceil(100),
        // Everything, and a block besides: room for frames that are about to be given back.
        None => footprint + BLOCK_PAGES,
    };
    let arena = PageRange::new(ARENA_START, arena_pages(trace));
    let mut config = Config::embedded(arena, vec![frames.max(1) as u32; spec.gpus()]);
    config.capabilities = Capabilities::with_dma(spec.gpus(), true);
    config.limits.fault_batch = spec.driver.fault_batch as usize;
    config.thrash.window = Span::from_nanos(spec.driver.thrash_window_ns);
    config.prefetch = PrefetchConfig {
        host_fault_around: 1,
        density_percent: spec.driver.density_percent,
        ..PrefetchConfig::default()
    };
    config.keep_clean_copies = spec.driver.keep_clean_copies;
    config
}
