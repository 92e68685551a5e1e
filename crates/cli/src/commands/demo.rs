//! `farside demo`: three workloads on a real graph, on several cards, in one address space.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use farside::{Report, Space, SpaceBuilder, Stats, placement};
use farside_cli::graph::reference::{
    BfsSource, PageRank, UNREACHED, best_source, bfs_levels, chase_checksum, chase_cycle,
    pagerank as host_pagerank,
};
use farside_cli::graph::{Graph, IndexSummary};
use farside_svm::Directions;
use indicatif::ProgressBar;
use serde::Serialize;

use super::Failure;
use super::account::account;
use super::input::{self, Input};
use super::output::{print, print_json};
use super::progress::bar;
use super::size::parse_size;
use super::which_cards::{WhichCards, parse_which};
use crate::workloads::{
    Chase, Difference, Levels, LinkedGraph, Mail, Mode, Parts, Ranks, Session, SharedCsr, bfs_csr,
    bfs_linked, chase, kernels, pagerank,
};

/// Decides the order of the chase and of nodes in memory.
const SEED: u64 = 2026;
/// A `with` of a workload takes a quarter of this, some pages per range.
const CARD_MEMORY_MIN: u64 = 256 << 10;
/// Vertices of highest rank that are listed.
const TOP: usize = 5;

/// Run breadth-first search, PageRank and a pointer chase on cards, over shared memory
///
/// The graph lies in memory that host and cards share, as nodes and edges that point to each other
/// and as compressed sparse rows (CSR). Kernels on the cards use these very pointers; pages move to
/// where they are used. Everything is done twice: on demand (pages move when they are touched) and
/// managed (the program migrates them before each launch). Every result is compared with a plain
/// run on the host, ranks bit by bit.
///
/// The graph is the package dependency graph of this machine's distribution; where there is no
/// package index, a smaller one that comes with the program; with --input any edge list, Matrix
/// Market file or Debian `Packages` file. The search goes from the package that most others need,
/// directly or not, to those who need it.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Demo {
    /// Read the graph from this file
    #[arg(long, value_name = "FILE", conflicts_with = "bundled")]
    input: Option<PathBuf>,

    /// Use the graph that comes with the program
    #[arg(long)]
    bundled: bool,

    /// How many cards, 1 to 16, which are threads of this program; or the places of cards that
    /// `farside card serve` serves, separated by commas; or a file NAME.list of such places
    #[arg(long, value_name = "CARDS", default_value = "2", value_parser = parse_which)]
    cards: WhichCards,

    /// Memory of each card in this program, 64M unless given; less than the graph needs makes pages
    /// move out again
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    card_memory: Option<u64>,

    /// Placement scheme: see `farside schemes`; or a library, which then runs in this program
    #[arg(long, visible_alias = "scheme", value_name = "SCHEME", default_value = placement::DEFAULT)]
    placement: String,

    /// Iterations of PageRank
    #[arg(long, value_name = "N", default_value_t = 20)]
    iterations: u32,

    /// Only managed: the program migrates data before each launch (UMPM)
    #[arg(long, conflicts_with = "on_demand")]
    managed: bool,

    /// Only on demand: pages move when they are touched (ODPM)
    #[arg(long)]
    on_demand: bool,

    /// Do not tell the driver that ranks are mostly read: see what that advice is worth
    #[arg(long)]
    no_advice: bool,

    /// Record what the kernels access into this Parquet file, for `farside replay` and
    /// `farside sim`; done in two modes, the mode is put before the extension
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Write all that happens to memory as an event log into this Parquet file, for
    /// `farside report`; done in two modes, the mode is put before the extension
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,

    /// Print one JSON object instead of the account
    #[arg(long)]
    json: bool,

    /// No progress bar and no account: the exit code tells, and errors are shown
    #[arg(long, short)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  farside demo                          on this machine's package index
  farside demo --bundled --cards 4      on the bundled graph, with four cards
  farside demo --cards /tmp/card0,/tmp/card1   on cards that are processes
  farside demo --card-memory 4M         more data than a card holds
  farside demo --placement duplication --on-demand --no-advice
  farside demo --managed --record demo.parquet
  farside replay --functional demo.parquet     what it recorded
  farside demo --on-demand --events log.parquet
  farside report log.parquet -o page.html      and a page that says why
  farside demo --input web.mtx --json > web.json";

/// Everything that came out.
#[derive(Serialize)]
pub(crate) struct Outcome {
    pub(crate) version: &'static str,
    pub(crate) graph: GraphFacts,
    pub(crate) cards: usize,
    /// Where they are; nothing if all are in this program.
    pub(crate) places: Vec<String>,
    /// Of the smallest.
    pub(crate) card_memory_bytes: u64,
    pub(crate) placement: String,
    pub(crate) advice: bool,
    pub(crate) iterations: u32,
    pub(crate) runs: Vec<RunOutcome>,
    /// All results equal those of the plain host run; a difference is an error instead.
    pub(crate) exact: bool,
    pub(crate) seconds: f64,
}

/// The graph and what was found in it.
#[derive(Serialize)]
pub(crate) struct GraphFacts {
    pub(crate) name: String,
    pub(crate) format: String,
    /// Why the bundled graph was used although nobody asked for it.
    pub(crate) fallback: Option<String>,
    pub(crate) vertices: u32,
    pub(crate) edges: u64,
    pub(crate) index: Option<IndexSummary>,
    pub(crate) source: String,
    pub(crate) reached: u32,
    pub(crate) levels: u32,
    pub(crate) highest: Vec<Ranked>,
}

/// A vertex of high rank.
#[derive(Serialize)]
pub(crate) struct Ranked {
    pub(crate) name: String,
    pub(crate) rank: f64,
}

/// One mode: a space of its own.
#[derive(Serialize)]
pub(crate) struct RunOutcome {
    pub(crate) mode: Mode,
    pub(crate) build_seconds: f64,
    pub(crate) workloads: Vec<WorkloadOutcome>,
    pub(crate) report: Report,
    /// Its event log and its recording, if they were asked for.
    pub(crate) events: Option<PathBuf>,
    pub(crate) recording: Option<PathBuf>,
}

/// One workload in one mode.
#[derive(Serialize)]
pub(crate) struct WorkloadOutcome {
    pub(crate) name: &'static str,
    pub(crate) seconds: f64,
    pub(crate) host_seconds: f64,
    pub(crate) pages: Directions,
    pub(crate) card_faults: u64,
    pub(crate) fault_batches: u64,
    pub(crate) host_faults: u64,
    pub(crate) exact: bool,
}

/// The cards that all modes run on.
struct Machine {
    which: WhichCards,
    count: usize,
    /// Bytes of the smallest.
    memory: u64,
}

/// What the plain host run found, and how long it took.
struct Expected {
    source: BfsSource,
    levels: Vec<u32>,
    ranks: Vec<f64>,
    next: Vec<u32>,
    plan: Chase,
    checksum: u64,
    bfs_seconds: f64,
    pagerank_seconds: f64,
    chase_seconds: f64,
}

impl Demo {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let started = Instant::now();
        let machine = self.machine()?;
        let reading = bar(100, self.quiet);
        let input = input::read(self.input.as_deref(), self.bundled, &reading);
        reading.finish_and_clear();
        let Input { loaded, fallback } = input?;
        let graph = &loaded.graph;
        if let Some(why) = fallback.as_ref().filter(|_| !self.quiet) {
            eprintln!("farside: using the bundled graph, because {why}");
        }
        let reverse = graph.reverse();
        let parameters = PageRank { iterations: self.iterations, ..PageRank::default() };
        let expected = Expected::compute(graph, &reverse, parameters).ok_or_else(|| {
            Failure::Usage(format!("{} has no vertex; give another graph", loaded.name))
        })?;
        let levels = expected.last_level() + 1;
        let per_run = 3 + 2 * u64::from(levels) + u64::from(self.iterations);
        let modes = self.modes();
        let bar = bar((per_run + expected.plan.stretches()) * modes.len() as u64, self.quiet);
        let run =
            |&mode| self.run_mode(mode, &machine, (graph, &reverse), &expected, parameters, &bar);
        let runs = modes.iter().map(run).collect::<Result<Vec<_>, Failure>>();
        bar.finish_and_clear();
        let outcome = Outcome {
            version: env!("CARGO_PKG_VERSION"),
            graph: GraphFacts {
                name: loaded.name.clone(),
                format: loaded.format.to_string(),
                fallback,
                vertices: graph.vertex_count(),
                edges: graph.edge_count(),
                index: loaded.index,
                source: graph.name(expected.source.vertex).unwrap_or_default().into_owned(),
                reached: expected.source.reached,
                levels,
                highest: highest(graph, &expected.ranks),
            },
            cards: machine.count,
            places: machine.which.places(),
            card_memory_bytes: machine.memory,
            placement: self.placement.clone(),
            advice: !self.no_advice,
            iterations: self.iterations,
            runs: runs?,
            exact: true,
            seconds: started.elapsed().as_secs_f64(),
        };
        match (self.json, self.quiet) {
            (true, _) => print_json(&outcome),
            (false, true) => Ok(()),
            (false, false) => print(&account(&outcome)),
        }
    }

    /// Looks at the cards before anything else is done.
    fn machine(&self) -> Result<Machine, Failure> {
        let which = self.cards.resolve()?;
        let space = which.apply(self.builder().without_logs(), self.card_memory)?.build()?;
        let memories = space.cards().map(|card| space.card_memory(card));
        let memory = memories.collect::<Result<Vec<_>, _>>()?.into_iter().min().unwrap_or(0);
        if memory < CARD_MEMORY_MIN {
            let why = "the demo's kernels take several pages at once: give 256K or more";
            let (what, value) = ("card memory", memory.to_string());
            return Err(farside::Error::Setting { what, value, why }.into());
        }
        Ok(Machine { which, count: space.cards().len(), memory })
    }

    fn builder(&self) -> SpaceBuilder {
        let builder = Space::builder().kernels(kernels());
        // SAFETY: whoever names a library on the command line answers for it.
        unsafe { builder.placement_or_library(&self.placement) }
    }

    fn open(
        &self,
        which: &WhichCards,
        record: Option<PathBuf>,
        events: Option<PathBuf>,
    ) -> Result<Space, Failure> {
        let mut builder = self.builder();
        if let Some(path) = record {
            builder = builder.record(path);
        }
        if let Some(path) = events {
            builder = builder.events(path);
        }
        Ok(which.apply(builder, self.card_memory)?.build()?)
    }

    /// A file that each mode has one of.
    fn file_of(&self, path: Option<&PathBuf>, mode: Mode) -> Option<PathBuf> {
        let path = path?.clone();
        if self.modes().len() == 1 {
            return Some(path);
        }
        let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        let mode = mode.name().replace(' ', "-");
        Some(path.with_extension(format!("{mode}.{extension}").trim_end_matches('.')))
    }

    fn modes(&self) -> Vec<Mode> {
        match (self.on_demand, self.managed) {
            (true, _) => vec![Mode::OnDemand],
            (_, true) => vec![Mode::Managed],
            _ => vec![Mode::OnDemand, Mode::Managed],
        }
    }

    /// Everything in one mode, in a space of its own.
    fn run_mode(
        &self,
        mode: Mode,
        machine: &Machine,
        (graph, reverse): (&Graph, &Graph),
        expected: &Expected,
        parameters: PageRank,
        bar: &ProgressBar,
    ) -> Result<RunOutcome, Failure> {
        let file = |path: &Option<PathBuf>| self.file_of(path.as_ref(), mode);
        let recording = file(&self.record);
        let space = self.open(&machine.which, recording.clone(), file(&self.events))?;
        let events = space.event_log();
        let advise = !self.no_advice;
        let session = Session { space: &space, mode, advise, card_memory: machine.memory };
        let meter = Meter { session, bar, done: RefCell::new(Vec::new()) };
        let step = || bar.inc(1);

        bar.set_message(format!("{}: building the graph in shared memory", mode.name()));
        let started = Instant::now();
        let parts = Arc::new(Parts::balanced(reverse, machine.count));
        let capacity = Mail::<u32>::capacity(reverse, &parts);
        let mut linked = LinkedGraph::new(&space, reverse, &parts, &expected.next, SEED)?;
        step();
        let csr = SharedCsr::new(&space, reverse, &parts, session.budget())?;
        let mut ranks = Ranks::new(&space, graph)?;
        step();
        let mut pointers = Mail::new(&space, "frontier pointers", &capacity)?;
        let mut vertices = Mail::new(&space, "frontier vertices", &capacity)?;
        let mut levels = Levels::new(&space, &parts)?;
        step();
        let build_seconds = started.elapsed().as_secs_f64();

        let source = expected.source.vertex;
        meter.measure("BFS, pointers", expected.bfs_seconds, || {
            let found = bfs_linked(&session, &mut linked, &mut pointers, source, &step)?;
            Ok(Difference::of_levels(graph, &found, &expected.levels))
        })?;
        meter.measure("BFS, CSR", expected.bfs_seconds, || {
            let found = bfs_csr(&session, &csr, &mut vertices, &mut levels, source, &step)?;
            Ok(Difference::of_levels(graph, &found, &expected.levels))
        })?;
        meter.measure("PageRank", expected.pagerank_seconds, || {
            let found = pagerank(&session, &csr, &mut ranks, parameters, &step)?;
            Ok(Difference::of_ranks(graph, &found, &expected.ranks))
        })?;
        meter.measure("pointer chase", expected.chase_seconds, || {
            let found = chase(&session, &linked, expected.plan, &step)?;
            Ok(Difference::of_checksums(found, expected.checksum))
        })?;
        let workloads = meter.done.into_inner();
        space.end_recording()?;
        super::events::tell_dropped(events.as_deref(), space.end_events()?);
        Ok(RunOutcome { mode, build_seconds, workloads, report: space.report(), events, recording })
    }
}

/// Measures workloads.
struct Meter<'a> {
    session: Session<'a>,
    bar: &'a ProgressBar,
    done: RefCell<Vec<WorkloadOutcome>>,
}

impl Meter<'_> {
    fn measure(
        &self,
        name: &'static str,
        host_seconds: f64,
        work: impl FnOnce() -> Result<Option<Difference>, farside::Error>,
    ) -> Result<(), Failure> {
        let mode = self.session.mode.name();
        self.bar.set_message(format!("{mode}: {name}"));
        let before = self.session.space.report().stats;
        let started = Instant::now();
        let difference = work()?;
        let seconds = started.elapsed().as_secs_f64();
        if let Some(difference) = difference {
            return Err(Failure::Differs { workload: name, mode, difference });
        }
        let after = self.session.space.report().stats;
        self.done.borrow_mut().push(WorkloadOutcome {
            name,
            seconds,
            host_seconds,
            pages: moved_between(&before, &after),
            card_faults: after.card_faults - before.card_faults,
            fault_batches: after.fault_batches - before.fault_batches,
            host_faults: after.host_faults - before.host_faults,
            exact: true,
        });
        Ok(())
    }
}

fn moved_between(before: &Stats, after: &Stats) -> Directions {
    let (before, after) = (before.by_direction(), after.by_direction());
    Directions {
        host_to_card: after.host_to_card - before.host_to_card,
        card_to_host: after.card_to_host - before.card_to_host,
        card_to_card: after.card_to_card - before.card_to_card,
        zero_filled: after.zero_filled - before.zero_filled,
    }
}

impl Expected {
    /// `None` if the graph has no vertex.
    fn compute(graph: &Graph, reverse: &Graph, parameters: PageRank) -> Option<Expected> {
        let source = best_source(reverse)?;
        let (levels, bfs_seconds) = timed(|| bfs_levels(reverse, source.vertex));
        let (ranks, pagerank_seconds) = timed(|| host_pagerank(graph, parameters));
        let next = chase_cycle(graph.vertex_count(), SEED);
        let plan = Chase::once_around(graph.vertex_count());
        let (checksum, chase_seconds) = timed(|| chase_checksum(&next, plan.start, plan.steps));
        Some(Expected {
            source,
            levels,
            ranks,
            next,
            plan,
            checksum,
            bfs_seconds,
            pagerank_seconds,
            chase_seconds,
        })
    }

    fn last_level(&self) -> u32 {
        self.levels.iter().copied().filter(|&level| level != UNREACHED).max().unwrap_or(0)
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let started = Instant::now();
    let value = work();
    (value, started.elapsed().as_secs_f64())
}

/// The vertices of highest rank, the highest first.
fn highest(graph: &Graph, ranks: &[f64]) -> Vec<Ranked> {
    let mut order: Vec<u32> = (0..graph.vertex_count()).collect();
    order.sort_by(|&a, &b| ranks[b as usize].total_cmp(&ranks[a as usize]).then(a.cmp(&b)));
    let ranked = |&vertex: &u32| Ranked {
        name: graph.name(vertex).unwrap_or_default().into_owned(),
        rank: ranks[vertex as usize],
    };
    order.iter().take(TOP).map(ranked).collect()
}
