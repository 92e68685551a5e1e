//! The machine: carries the driver's commands out in simulated time.
//!
//! One event queue drives everything. What happens is split by who does it:
//!
//! - `dispatch.rs`, `waves.rs`: work-groups get their place, wavefronts run their instructions;
//! - `access.rs`, `path.rs`: lines are translated, accessed through caches and links, or fault;
//! - `travel.rs`: the same way, event by event;
//! - `watch.rs`: what observers are told, and where the time of faults went;
//! - `pool.rs`: lists of accesses that wait for a walk or in a fault; `table.rs`: who finds them;
//! - `ring.rs`: the GPUs' command rings, in order, with shootdown, drain and replay;
//! - `host.rs`: the driver's processor: fault batches, notices, operations on the CPU's mappings;
//! - `moves.rs`: how many migrations are carried out at a time, and who stands still or waits meanwhile;
//! - `transfer.rs`: copies and zero fills;
//! - `copies.rs`: which pages were copied again after a write;
//! - `setup.rs`: allocation, and the placing of all pages on the host before time starts;
//! - `saved.rs`: its state, to be stored and to go on from;
//! - `watchdog.rs`: who waits for whom when nothing moves any more.
//!
//! It decides nothing about placement: that is the driver's, whose events and commands it passes
//! on and carries out.

mod access;
mod copies;
mod dispatch;
mod host;
mod moves;
mod path;
mod pool;
mod ring;
mod samples;
mod saved;
mod setup;
pub(crate) mod table;
mod transfer;
mod travel;
mod watch;
mod watchdog;
mod waves;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use farside_svm::{ChainKey, Command, Driver, Event, Note, Reply, Stats};
use farside_types::{
    CardId, CommandId, Epoch, FaultId, FrameNo, JobId, MemoryId, PageNo, PageRange, Span, StreamId,
    Time,
};
use serde::{Deserialize, Serialize};

use crate::coherence::Coherence;
use crate::gpu::Gpu;
use crate::links::Links;
use crate::observe::{Observation, Observer};
use crate::pump::{Alarm, Pump};
use crate::time::Queue;
use crate::{Outcome, Progress, SimError, Spec, Stop};
use copies::Copies;
use farside_workloads::{Line, Lines, Workload};
use host::Host;
use moves::Moves;
use pool::{List, Pool};
use ring::Ring;
use samples::Samples;
use table::Table;
use transfer::Transfer;
use travel::Travel;
use watch::Sampling;
use waves::Running;

/// Accesses between two calls of the progress callback.
const PROGRESS_EVERY: u64 = 1 << 14;

/// Something that happens at a point in time.
#[derive(Debug, Serialize, Deserialize)]
enum SimEvent {
    /// A wavefront goes on.
    Wave { gpu: u8, unit: u8, slot: u8 },
    /// A wavefront has ended, and so have its accesses.
    WaveEnd { gpu: u8, unit: u8, slot: u8 },
    /// A page table walk is over.
    Walked { gpu: u8, page: u32 },
    /// A line comes to the next stage of its way (`engine.mode = events`).
    Hop { travel: u32 },
    /// The coherence checker looks at an access that is over.
    Check { page: u32, frame: FrameNo, memory: u8, gpu: u8, unit: u8, write: bool },
    /// A GPU's interrupt reaches the host.
    Interrupt { gpu: u8 },
    /// The driver's processor is done with what it did.
    HostDone { work: u64 },
    /// The placement scheme is told who accessed what.
    Samples,
    /// A GPU begins with the next command of its ring.
    RingStart { gpu: u8 },
    /// A GPU is done with the command.
    RingEnd { gpu: u8 },
    /// A copy or fill is done.
    TransferEnd { command: CommandId },
    /// The driver sees a completion.
    Done { command: CommandId, epoch: Epoch },
    /// The driver sees the end of a job.
    JobDone { job: JobId },
    /// A migration begins.
    MoveBegins { chain: ChainKey, epoch: Epoch },
    /// A GPU goes on that stood still until a migration was over.
    Restart { gpu: u8 },
    /// The driver wants to be called.
    Timer,
}

/// An open fault: the GPU reports a page once, and whoever else needs it there waits along.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Fault {
    gpu: u8,
    page: u32,
    write: bool,
    since: Time,
    waiting: List,
    /// When the driver fetched it, and when it had decided.
    fetched: Time,
    served: Time,
    /// When its page was copied to the GPU.
    copy: Option<(Time, Time)>,
    /// When the driver told the GPU to map it, and to what memory.
    mapped: Option<(Time, MemoryId)>,
}

/// Spans of the specification that every access needs.
#[derive(Clone, Copy, Debug)]
struct Times {
    cycle: Span,
    l1_cache: Span,
    l2_cache: Span,
    memory: Span,
    dispatch: Span,
    run_ahead: Span,
}

/// The machine with its driver and a program to run.
pub(crate) struct Machine {
    spec: Spec,
    times: Times,
    workload: Arc<dyn Workload>,
    /// Kept to spare allocations.
    lines: Option<Box<Lines>>,
    driver: Driver,
    queue: Queue<SimEvent>,
    gpus: Vec<Gpu>,
    rings: Vec<Ring>,
    links: Links,
    host: Host,
    moves: Moves,
    transfers: BTreeMap<CommandId, Transfer>,
    faults: Table<FaultId, Fault>,
    /// The open fault of a GPU on a page, by whether it is for writing.
    open: Table<(u8, u32, bool), FaultId>,
    next_fault: u64,
    /// Walks under way, by GPU and page.
    walks: Table<(u8, u32), List>,
    pool: Pool,
    /// Lines under way from stage to stage, by number.
    travels: Vec<Option<Travel>>,
    /// Who watches.
    observers: Vec<Box<dyn Observer>>,
    /// First page of the arena; pages below are counted from it.
    arena: PageNo,
    arena_pages: u64,
    /// The arena's pages that the program uses.
    used: Vec<PageRange>,
    /// Where each block of the program's lines is in the arena.
    blocks: Vec<Block>,
    /// The first page of each of the program's buffers with its first line, in the order of pages.
    first_lines: Vec<(u32, Line)>,
    /// log2 of the lines of a page.
    page_shift: u32,
    coherence: Option<Coherence>,
    copies: Copies,
    /// Who accessed what since the scheme was last told, for schemes that ask.
    samples: Option<Samples>,
    /// Pages of which every GPU has its own copy; the driver does not know of their use.
    per_gpu: Vec<Range<u32>>,
    /// What the driver had counted when time started.
    before: Stats,
    start: Time,
    running: Running,
    launches: Vec<Span>,
    timer: Alarm,
    accesses: u64,
    groups_done: u64,
    groups: u64,
    events: u64,
    samplings: Vec<Sampling>,
    /// Events since a wavefront last went on.
    idle_events: u64,
}

/// A block of the program's lines.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Its first page in the arena.
    start: u32,
    /// Its pages that are of the buffer.
    pages: u32,
}

impl Pump for Machine {
    type Error = SimError;

    fn driver(&mut self) -> &mut Driver {
        &mut self.driver
    }

    fn now(&self) -> Time {
        self.queue.now()
    }

    fn dispatch(&mut self, command: Command) -> Result<(), SimError> {
        self.take_command(command)
    }

    fn reply(&mut self, reply: Reply) -> Result<(), SimError> {
        Err(self.broken(format!("an answer that nobody asked for: {reply:?}")))
    }

    fn call_at(&mut self, at: Time) {
        if self.timer.set(at) {
            self.queue.push(at, SimEvent::Timer);
        }
    }
}

impl Machine {
    /// Runs the program until `stop`; whether it has ended.
    pub(crate) fn run_until(
        &mut self,
        stop: Stop,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<bool, SimError> {
        let (accesses, time) = match stop {
            Stop::Accesses(accesses) => (accesses, None),
            Stop::Time(span) => (u64::MAX, Some(self.start + span)),
            Stop::End => (u64::MAX, None),
        };
        if self.running.shape.is_none() {
            self.begin_launch(0)?;
        }
        let mut next_progress = 0;
        let launches = self.workload.launches();
        while self.running.index < launches {
            if self.accesses >= accesses.min(next_progress) {
                if self.accesses >= accesses {
                    return Ok(false);
                }
                progress(self.progress());
                next_progress = self.accesses + PROGRESS_EVERY;
            }
            if time.is_some_and(|time| self.queue.now() >= time) {
                return Ok(false);
            }
            self.step()?;
        }
        Ok(true)
    }

    /// Runs the program to its end.
    pub(crate) fn run(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<Outcome, SimError> {
        self.run_until(Stop::End, progress)?;
        let time = self.elapsed();
        progress(self.progress());
        self.last_sample();
        self.settle()?;
        Ok(self.outcome(time))
    }

    /// How far it is.
    pub(crate) fn progress(&self) -> Progress {
        Progress {
            groups: self.groups_done,
            total: self.groups,
            accesses: self.accesses,
            time: self.elapsed(),
        }
    }

    /// Time since the start of the first launch.
    fn elapsed(&self) -> Span {
        self.queue.now().since(self.start)
    }

    /// Lets the next thing happen.
    fn step(&mut self) -> Result<(), SimError> {
        let Some(event) = self.queue.pop() else {
            return Err(self.stuck("nothing is left to happen"));
        };
        self.events += 1;
        self.idle_events += 1;
        if !self.samplings.is_empty() {
            self.sample_up_to(self.queue.now());
        }
        if self.idle_events > watchdog::IDLE_EVENTS_MAX {
            return Err(self.stuck("no wavefront has gone on for ten million events"));
        }
        match event {
            SimEvent::Wave { gpu, unit, slot } => self.wave(gpu, unit, slot),
            SimEvent::WaveEnd { gpu, unit, slot } => self.wave_end(gpu, unit, slot),
            SimEvent::Walked { gpu, page } => self.walked(gpu, page),
            SimEvent::Hop { travel } => self.hop(travel),
            SimEvent::Check { page, frame, memory, gpu, unit, write } => {
                // Never changes a result: not even the number of events.
                self.events -= 1;
                self.check(page, frame, MemoryId(memory), write)
                    .map_err(|what| self.broken(format!("GPU {gpu} CU {unit}: {what}")))?;
            }
            SimEvent::Interrupt { gpu } => self.interrupt(gpu),
            SimEvent::HostDone { work } => self.host_done(work)?,
            SimEvent::Samples => self.handle_samples()?,
            SimEvent::RingStart { gpu } => self.ring_start(gpu)?,
            SimEvent::RingEnd { gpu } => self.ring_end(gpu)?,
            SimEvent::TransferEnd { command } => self.transfer_end(command)?,
            SimEvent::Done { command, epoch } => {
                self.answer(command, epoch)?;
            }
            SimEvent::MoveBegins { chain, epoch } => self.move_begins((chain, epoch))?,
            SimEvent::Restart { gpu } => self.restart(gpu),
            SimEvent::JobDone { job } => self.job_done(job)?,
            SimEvent::Timer => {
                self.timer.ring(self.queue.now());
                self.time_out()?;
            }
        }
        Ok(())
    }

    /// Carries a command out.
    fn carry_on(&mut self, command: Command) -> Result<(), SimError> {
        self.note_command(&command);
        match command {
            Command::Ring(card, step) => self.submit(card, step),
            Command::Transfer(_, step) => self.transfer_start(step),
            Command::Host(step) => {
                self.host_submit(host::Work::Operation(step));
                Ok(())
            }
        }
    }

    /// One job per GPU; the next launch begins when the driver has seen the end of all.
    fn begin_launch(&mut self, launch: u32) -> Result<(), SimError> {
        if launch >= self.workload.launches() {
            self.running.index = launch;
            return Ok(());
        }
        self.prepare(launch)?;
        let arena = self.driver.config().arena;
        for gpu in 0..self.gpus.len() {
            let job = JobId(u64::from(launch) * self.gpus.len() as u64 + gpu as u64);
            let card = CardId(gpu as u8);
            if self.driver.keeps_journal() {
                let name = format!("launch {launch}");
                self.driver.note(Note::Launch { job, card, name: &name });
            }
            self.handle(Event::Launch {
                job,
                card,
                stream: StreamId(u32::from(card.0)),
                after: &[],
                writes: &[arena],
            })?;
        }
        Ok(())
    }

    fn job_done(&mut self, job: JobId) -> Result<(), SimError> {
        self.handle(Event::JobDone { job })?;
        self.running.jobs_left -= 1;
        if self.running.jobs_left == 0 {
            self.launches.push(self.elapsed());
            let launch = self.running.index;
            self.observe(|_| Observation::LaunchEnd { launch });
            self.begin_launch(self.running.index + 1)?;
        }
        Ok(())
    }

    /// Whether an access that is over found the newest version of its page.
    fn check(
        &mut self,
        page: u32,
        frame: FrameNo,
        memory: MemoryId,
        write: bool,
    ) -> Result<(), String> {
        match &mut self.coherence {
            Some(checker) if write => checker.write(page, memory, frame),
            Some(checker) => checker.read(page, memory, frame),
            None => Ok(()),
        }
    }

    /// After the last launch: everything under way ends, and the driver's tables must be right.
    fn settle(&mut self) -> Result<(), SimError> {
        while !self.driver.is_quiet() {
            self.step()?;
        }
        self.driver.check().map_err(|what| self.broken(what))?;
        if let Some(checker) = &self.coherence {
            for page in self.used.iter().flat_map(|range| range.pages()) {
                let view = self.driver.page(page);
                let found = match view.owner {
                    Some(memory) => checker.read(self.index(page)?, memory, view.frame),
                    None => Err(format!("{page} is nowhere")),
                };
                found.map_err(|what| self.broken(what))?;
            }
        }
        Ok(())
    }

    fn outcome(&self, time: Span) -> Outcome {
        let gpus: Vec<_> = self.gpus.iter().map(|gpu| gpu.counts).collect();
        let total = gpus.iter().fold(Default::default(), |sum, gpu| gpu.plus(&sum));
        let (nvlink_busy, pcie_busy) = self.links.busy();
        Outcome {
            placement: String::new(),
            trace: self.workload.name().to_owned(),
            time,
            cycles: self.spec.in_cycles(time),
            launches: self.launches.clone(),
            total,
            gpus,
            nvlink_busy,
            pcie_busy,
            host_busy: self.host.busy_for(),
            pages: self.shared_pages(),
            copied_again: self.copies.again(),
            events: self.events,
            spec: self.spec.clone(),
            driver: crate::stats::since(self.driver.stats(), &self.before),
        }
    }

    /// Pages of the program's that are in the shared address space.
    fn shared_pages(&self) -> u64 {
        let own: usize = self.per_gpu.iter().map(|pages| pages.len()).sum();
        self.used.iter().map(|range| range.count).sum::<u64>() - own as u64
    }

    /// The page's index in the arena. Pages outside of it are a bug of the driver.
    fn index(&self, page: PageNo) -> Result<u32, SimError> {
        match page.0.checked_sub(self.arena.0) {
            Some(index) if index < self.arena_pages => Ok(index as u32),
            _ => Err(self.broken(format!("a command names {page}, outside of the arena"))),
        }
    }

    fn broken(&self, what: String) -> SimError {
        SimError::Broken { at: Time(self.elapsed().0), what }
    }
}

#[cfg(test)]
mod tests;
