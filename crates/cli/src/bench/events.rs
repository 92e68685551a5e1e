//! What an event log costs who is logged, and how long a report of a long one takes.
//!
//! Live: a card reads pages one at a time and the host takes them back, which is nothing but faults and moves: no program
//! has more events in its time. Simulated: programs with many faults, by the time of the thread that simulates: the log's own
//! thread takes what is beside it, on another processor where there is one. On and off by turns, in one process.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use farside::{KernelContext, Read, ReadSpan, ReadView, Space};
use farside_events::{About, Event, EventLog, Full, Kind, LogWriter, Name, Names, Reader};
use farside_sim::{Outcome, Simulation, Spec, scheme};
use farside_types::{AgentId, AgentSet, MemoryId, MemorySet, Reason};
use farside_workloads::{Workload, catalog};

use super::{BenchError, Effort, Row, Target, median, pin, processor_time, timed, two_cpus};

/// With a log against without, live and simulated.
const LIVE: Target = Target::AtMost(1.05);
const SIMULATED: Target = Target::AtMost(1.02);
/// Seconds and bytes of a report.
const SECONDS: Target = Target::AtMost(10.0);
const MIB: Target = Target::AtMost(5.0);
/// Events of the long log.
const MANY: u64 = 10_000_000;
/// Pages that go to the card and back.
const PAGES: usize = 2048;
/// Words of a page.
const PAGE: usize = 512;
const PROGRAMS: [(&str, u64); 2] = [("st", 4 << 20), ("bfs", 2 << 20)];

pub(super) fn run(effort: Effort) -> Result<Vec<Row>, BenchError> {
    let scratch = Scratch::new()?;
    let mut rows = vec![live(effort, &scratch.file("live.parquet"))?];
    for program in PROGRAMS {
        rows.push(simulated(effort, program, &scratch.file("simulated.parquet"))?);
    }
    rows.extend(report(&scratch.file("long.parquet"), &scratch.file("page.html"))?);
    Ok(rows)
}

/// Faults of a card and of the host.
fn live(effort: Effort, file: &Path) -> Result<Row, BenchError> {
    let name =
        "a fault of a card and one of the host on each page, with an event log against without";
    let _pinned = pin(two_cpus().0);
    let open = || Space::builder().cards(1).card_memory(64 << 20).warm(true).placement("on-touch");
    let (off, on) = (open().build()?, open().events(file).build()?);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    // A hundredth of a second each.
    for _ in 0..8 * effort.samples.max(5) {
        without.push(round(&off)?);
        with.push(round(&on)?);
    }
    let written = on.end_events()?;
    if written.dropped > 0 {
        return Err(BenchError::Failed(format!("{} events found no room", written.dropped)));
    }
    let (without, with) = (median(without), median(with));
    let each = |seconds: f64| 1e6 * seconds / PAGES as f64;
    let (bytes, events) = (written.bytes as f64 / written.events as f64, written.events);
    let detail = format!(
        "{:.2} µs against {:.2} µs a page; {events} events of {bytes:.1} bytes each",
        each(with),
        each(without)
    );
    Ok(Row::new(name, with / without, LIVE, "x", detail))
}

/// Every page to the card, one fault each, and back; in seconds.
fn round(space: &Space) -> Result<f64, BenchError> {
    let mut words = space.alloc_named::<u64>(PAGES * PAGE, "pages")?;
    words.fill(1);
    let started = Instant::now();
    let touch = |k: &mut KernelContext, words: ReadSpan<u64>| {
        let mut sum = 0;
        for at in (0..words.len()).step_by(PAGE) {
            sum += k.with(words.slice(at..at + 1), |words: ReadView<u64>| words[0])?;
        }
        Ok(sum)
    };
    let found = space.kernel("touch").run(Read(&words), touch)?;
    words.iter_mut().step_by(PAGE).for_each(|word| *word += 1);
    let seconds = started.elapsed().as_secs_f64();
    match found == PAGES as u64 {
        true => Ok(seconds),
        false => Err(BenchError::Failed(format!("{found} for {PAGES}"))),
    }
}

/// A simulated program.
fn simulated(
    effort: Effort,
    (program, bytes): (&'static str, u64),
    file: &Path,
) -> Result<Row, BenchError> {
    let failed = |error: catalog::WorkloadError| BenchError::Failed(error.to_string());
    let workload = catalog::by_name(program, Some(bytes)).map_err(failed)?;
    let (mut off, mut on) = (Sides::default(), Sides::default());
    let mut events = 0;
    for _ in 0..effort.samples.max(5) {
        let expected = off.run(|| simulate(&workload, None))?;
        let outcome = on.run(|| {
            let log = EventLog::create(file, &about(4096), || ())?;
            let outcome = simulate(&workload, Some(&log))?;
            events = log.finish()?.events;
            Ok(outcome)
        })?;
        if outcome != expected {
            return Err(BenchError::Failed(format!("{program}: a log changes the results")));
        }
    }
    let name = format!("{program} in simulated time, with an event log against without");
    let (on, off) = (on.medians(), off.medians());
    let [thread, elapsed, process] = [0, 1, 2].map(|which| (on[which], off[which]));
    let detail = format!(
        "{:.3} s against {:.3} s of its thread, {events} events; {:.2}x elapsed, {:.2}x with the log's thread",
        thread.0,
        thread.1,
        elapsed.0 / elapsed.1,
        process.0 / process.1
    );
    Ok(Row::new(name, thread.0 / thread.1, SIMULATED, "x", detail))
}

/// Times of one side.
#[derive(Default)]
struct Sides {
    thread: Vec<f64>,
    elapsed: Vec<f64>,
    process: Vec<f64>,
}

impl Sides {
    fn run<T>(&mut self, body: impl FnOnce() -> Result<T, BenchError>) -> Result<T, BenchError> {
        let mut done = None;
        let (mut elapsed, mut thread) = (0.0, 0.0);
        self.process.push(processor_time(|| {
            let before = thread_clock();
            elapsed = timed(|| done = Some(body()));
            thread = thread_clock() - before;
        }));
        self.elapsed.push(elapsed);
        self.thread.push(thread);
        done.unwrap_or_else(|| Err(BenchError::Failed("nothing was run".to_owned())))
    }

    fn medians(self) -> [f64; 3] {
        [median(self.thread), median(self.elapsed), median(self.process)]
    }
}

/// Seconds of processor time of this thread.
fn thread_clock() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn simulate(workload: &Arc<dyn Workload>, log: Option<&EventLog>) -> Result<Outcome, BenchError> {
    let failed = |error: farside_sim::SimError| BenchError::Failed(error.to_string());
    let (placement, machine) = scheme::resolve("on-touch", &Spec::default()).map_err(failed)?;
    let mut simulation =
        Simulation::with_placement(&machine, workload, placement, false).map_err(failed)?;
    if let Some(log) = log {
        let journal = log.journal(simulation.start(), machine.page.bytes.into(), Full::Wait);
        simulation = simulation.keep_journal(journal);
    }
    simulation.run(|_| ()).map_err(failed)
}

fn about(page_bytes: u64) -> About {
    let memories = About::memories("card", [Some(1 << 30), Some(1 << 30)]);
    let word = |word: &str| word.to_owned();
    About {
        program: word("bench"),
        machine: word("made"),
        scheme: word("none"),
        page_bytes,
        memories,
    }
}

/// The report of a long log.
fn report(file: &Path, page: &Path) -> Result<[Row; 2], BenchError> {
    let bytes = long_log(file).map_err(|error| BenchError::Failed(error.to_string()))?;
    let mut facts = None;
    let seconds = timed(|| facts = Some(facts_of(file, page)));
    let facts = facts.transpose()?.ok_or_else(|| BenchError::Failed("no report".to_owned()))?;
    if facts.log.events != MANY || facts.totals.faults < MANY / 4 {
        return Err(BenchError::Failed(format!("{} events were read", facts.log.events)));
    }
    let size = std::fs::metadata(page)?.len() as f64 / f64::from(1 << 20);
    let detail = format!("a log of {} MiB, read and drawn into a page", bytes >> 20);
    let size_of = format!("of it Apache ECharts {:.1}", 1_034_102.0 / f64::from(1 << 20));
    Ok([
        Row::new("the report of 10^7 events, in seconds", seconds, SECONDS, "s", detail),
        Row::new("the page of 10^7 events, in MiB", size, MIB, "MiB", size_of),
    ])
}

fn facts_of(file: &Path, page: &Path) -> Result<farside_report::Facts, BenchError> {
    let facts = farside_report::facts(&Reader::open(file)?)?;
    std::fs::write(page, farside_report::page(std::slice::from_ref(&facts)))?;
    Ok(facts)
}

/// 200 allocations of a MiB, whose pages two cards and the host take by turns, some of them with many at a time.
fn long_log(file: &Path) -> Result<u64, parquet::errors::ParquetError> {
    const OBJECTS: u64 = 200;
    const BYTES: u64 = 1 << 20;
    let mut names = Names::default();
    let mut writer = LogWriter::new(File::create(file)?, &about(4096))?;
    let mut events = Vec::with_capacity(1 << 16);
    for object in 0..OBJECTS {
        let name = names.number(&format!("array {object}"));
        let made =
            Event { address: object * BYTES, bytes: BYTES, name, ..Event::new(0, Kind::Alloc) };
        events.push(made);
    }
    let mut state = 2026u64;
    let mut places = vec![0u8; (OBJECTS * BYTES / 4096) as usize];
    for number in OBJECTS / 2..MANY / 2 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let pages = if state >> 61 == 0 { 16 } else { 1 };
        let page = (state >> 33) % (places.len() as u64 - pages);
        let agent = (state >> 20) as u8 % 3;
        let from = std::mem::replace(&mut places[page as usize], agent);
        let (address, bytes) = (page * 4096, pages * 4096);
        let fault = Event {
            agent: Some(AgentId(agent)),
            address,
            bytes: 4096,
            name: Name::NONE,
            ..Event::new(number * 100_000, Kind::FaultWrite)
        };
        let moved = Event {
            kind: Kind::Migration,
            reason: Some(Reason::Demand),
            bytes,
            from: Some(MemoryId(from)),
            to: Some(MemoryId(agent)),
            before: MemorySet::only(MemoryId(from)),
            after: MemorySet::only(MemoryId(agent)),
            stopped: AgentSet::only(AgentId(from)),
            ..fault
        };
        events.extend([fault, moved]);
        if events.len() >= 1 << 15 {
            writer.push(&events, &names)?;
            events.clear();
        }
    }
    writer.push(&events, &names)?;
    Ok(writer.finish()?.metadata()?.len())
}

/// A folder that is gone at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, BenchError> {
        let folder =
            std::env::temp_dir().join(format!("farside-bench-events-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Scratch(folder))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
