//! `farside replay`: recorded accesses in a fixed order, counted without time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use farside::placement;
use farside_cli::own_scheme::{self, Made, SchemeFailure};
use farside_cli::sweep::run_child;
use farside_plugin::PluginError;
use farside_sim::functional::{Options, Report, Table, replay_with};
use farside_sim::{SimError, Spec, scheme as schemes};
use farside_workloads::order::shared_accesses;
use farside_workloads::{Converted, Trace, Workload, convert, is_for_standard_output};
use serde::{Deserialize, Serialize};

use super::log::say;
use super::output::{print, print_json};
use super::progress::bar;
use super::size::parse_size;
use super::sweep::this_program;
use super::{Failure, apart};

/// Replay recorded memory accesses one at a time, without time, and count what a scheme does
///
/// Every fault is served before the next access, so the definition of a placement scheme fixes
/// every count: an oracle for other simulators and for schemes under development. `farside sim`
/// replays in simulated time. The order of the accesses and all else that is fixed is in
/// docs/workloads.md.
///
/// A trace is a recording (NAME.bin.zst with NAME.json beside it), a Parquet file that `convert`
/// or `farside demo --record` wrote, or what another tool wrote: valgrind's lackey, DynamoRIO's view,
/// gem5 (packets), Accel-Sim (.traceg, kernelslist.g), CSV or Parquet with address and write; which
/// one, its content says (docs/workloads.md). Without a trace or a workload the two excerpts that come with the program are
/// replayed.
#[derive(Args, Debug)]
#[command(
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub(crate) struct Replay {
    #[command(subcommand)]
    other: Option<Other>,

    /// Traces to replay
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// Count without time: the only kind of replay that this command does
    #[arg(long, required = true)]
    functional: bool,

    /// The one of the excerpts that come with the program to replay
    #[arg(long, value_name = "NAME", hide = true)]
    bundled: Option<String>,

    /// End when this process, whose child this one is, ends
    #[arg(long, value_name = "PROCESS", hide = true)]
    end_with_parent: Option<i32>,

    /// Replay a generated workload too
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,

    /// Its size, as in 64M; without it, the size in the GRIT paper
    #[arg(long, value_name = "N", requires = "workload", value_parser = parse_size)]
    bytes: Option<u64>,

    /// Schemes to compare, with parameters if need be, as in NAME:key=value,key=value; NAME may be a
    /// library (`farside new scheme`)
    #[arg(
        long,
        value_name = "LIST",
        default_value = "on-touch,first-touch,access-counter,duplication"
    )]
    scheme: String,

    /// Spread a program that knows no GPUs over so many: stretches of 16384 accesses in turn (valgrind),
    /// threads (DynamoRIO), shares of the grid (Accel-Sim)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    spread: u8,

    /// GPUs [default: as many as the trace was recorded on, or 4]
    #[arg(long, value_name = "N")]
    gpus: Option<u32>,

    /// Compute units of a GPU
    #[arg(long, value_name = "N", default_value_t = Options::default().units)]
    units: u32,

    /// Pages that a GPU holds, in percent of all [default: all of them]
    #[arg(long, value_name = "PERCENT")]
    capacity: Option<u32>,

    /// Remote accesses to a 64 KiB group after which the access counters give notice
    #[arg(long, value_name = "N", default_value_t = Options::default().counter_threshold)]
    threshold: u32,

    /// Count for every page as well (with --json)
    #[arg(long, requires = "json")]
    pages: bool,

    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,

    /// No progress bar
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    _no_events: super::events::NoEvents,
}

#[derive(Subcommand, Debug)]
enum Other {
    Convert(Convert),
}

/// Write a trace of any format in the compact one (Parquet)
#[derive(Args, Debug)]
struct Convert {
    /// The trace to read
    #[arg(value_name = "IN")]
    from: PathBuf,

    /// The file to write
    #[arg(value_name = "OUT")]
    to: PathBuf,

    /// Spread a program that knows no GPUs over so many: stretches of 16384 accesses in turn (valgrind),
    /// threads (DynamoRIO), shares of the grid (Accel-Sim)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    spread: u8,
}

const EXAMPLES: &str = "\
Examples:
  farside replay --functional             the bundled traces, four schemes
  farside replay --functional mm.emu.bin.zst --scheme on-touch,duplication
  farside replay --functional --workload fir --bytes 32M --json --pages
  farside replay convert mm.emu.bin.zst mm.parquet
  valgrind --tool=lackey --trace-mem=yes --log-file=ls.txt ls
  farside replay --functional --spread 4 ls.txt";

/// The schemes but this one: whose name is known is told of for what is behind it.
fn others(name: &str) -> impl Iterator<Item = &'static str> {
    placement::NAMES.into_iter().filter(move |known| *known != name)
}

/// Says what of a trace is in no count.
pub(super) fn tell_left_out(path: &Path, trace: &Trace) {
    if trace.left_out() > 0 {
        say(&format!("farside: {}: {}", path.display(), of_other_commands(trace.left_out())));
    }
}

fn of_other_commands(records: u64) -> String {
    format!(
        "{records} records of other commands than reading and writing are left out (of gem5's, ReadReq and WriteReq are taken; \
         the numbers of others differ between its versions)"
    )
}

#[derive(Deserialize)]
struct Printed {
    reports: Vec<Report>,
}

#[derive(Serialize)]
struct Json {
    version: &'static str,
    reports: Vec<Report>,
}

impl Replay {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if let Some(Other::Convert(Convert { from, to, spread })) = &self.other {
            let for_output = is_for_standard_output(to);
            let Converted { accesses, left_out } =
                convert(from, to, *spread).map_err(SimError::from)?;
            let others = match left_out {
                0 => String::new(),
                left_out => format!("; {}", of_other_commands(left_out)),
            };
            let done = format!("{}: {accesses} accesses{others}", to.display());
            if for_output {
                say(&done);
                return Ok(());
            }
            return print(&(done + "\n"));
        }
        if let Some(parent) = self.end_with_parent {
            apart::begin(parent)?;
        }
        let (mut all, mut failed) = (Vec::new(), 0);
        let schemes = self.schemes()?;
        for (index, workload) in self.workloads()?.iter().enumerate() {
            let mut reports = Vec::new();
            for scheme in &schemes {
                match self.replay_where(index, &**workload, scheme)? {
                    Ok(report) => reports.push(report),
                    Err(why) => {
                        failed += 1;
                        say(&format!("farside: {}, {scheme}: {why}", workload.name()));
                    }
                }
            }
            if !self.json && !reports.is_empty() {
                let gap = if all.is_empty() { "" } else { "\n" };
                print(&format!("{gap}{}", Table(&reports)))?;
            }
            all.extend(reports);
        }
        if self.json {
            print_json(&Json { version: env!("CARGO_PKG_VERSION"), reports: all })?;
        }
        if failed > 0 { Err(Failure::Told) } else { Ok(()) }
    }

    /// Replays here, or under a library's scheme in a process of its own: why there is no report is then
    /// no failure of the others.
    fn replay_where(
        &self,
        index: usize,
        workload: &dyn Workload,
        scheme: &str,
    ) -> Result<Result<Report, String>, Failure> {
        if own_scheme::library(scheme).is_none() || self.end_with_parent.is_some() {
            return self.replay(workload, scheme).map(Ok);
        }
        let answer = run_child(&this_program()?, &self.arguments(index, scheme), |_| ());
        let report = answer.map_err(|failed| failed.why).and_then(|answer| {
            let printed: Printed = answer.json()?;
            printed.reports.into_iter().next().ok_or_else(|| "it printed no report".to_owned())
        });
        Ok(report)
    }

    /// Those of a process that replays one of the workloads under one scheme.
    fn arguments(&self, index: usize, scheme: &str) -> Vec<String> {
        let mut given: Vec<String> =
            ["replay", "--functional", "--json", "--quiet"].map(String::from).into();
        let mut add = |name: &str, value: String| given.extend([format!("--{name}"), value]);
        add("scheme", scheme.to_owned());
        add("spread", self.spread.to_string());
        add("units", self.units.to_string());
        add("threshold", self.threshold.to_string());
        self.gpus.iter().for_each(|gpus| add("gpus", gpus.to_string()));
        self.capacity.iter().for_each(|percent| add("capacity", percent.to_string()));
        let path = self.traces.get(index);
        match (path, &self.workload) {
            (Some(_), _) => {}
            (None, Some(name)) => {
                add("workload", name.clone());
                self.bytes.iter().for_each(|bytes| add("bytes", bytes.to_string()));
            }
            (None, None) => add("bundled", Trace::BUNDLED[index].to_owned()),
        }
        given.extend(self.pages.then(|| "--pages".to_owned()));
        given.extend(path.map(|path| path.display().to_string()));
        given
    }

    /// Their names, all of which are known before the first one is replayed.
    fn schemes(&self) -> Result<Vec<String>, Failure> {
        let mut named = Vec::new();
        for name in super::sim::list(&self.scheme) {
            match name.as_str() {
                "all" => named.extend(placement::NAMES.map(String::from)),
                _ => named.push(name),
            }
        }
        for name in &named {
            if let Some(file) = farside_plugin::split(name) {
                if !file.modifiers.is_empty() {
                    let modifiers = file.modifiers.to_owned();
                    return Err(SchemeFailure::from(PluginError::Modifiers { modifiers }).into());
                }
                own_scheme::check_outside(name, &Spec::default()).map_err(Failure::Usage)?;
                continue;
            }
            let base = name.split(':').next().unwrap_or_default();
            let refused = |error| Failure::from(SimError::from(error)).near(base, others(base));
            schemes::by_name(name).map_err(refused)?;
        }
        if self.end_with_parent.is_none() {
            apart::check(&named)?;
        }
        Ok(named)
    }

    fn workloads(&self) -> Result<Vec<Arc<dyn Workload>>, Failure> {
        let mut workloads: Vec<Arc<dyn Workload>> = Vec::new();
        for path in &self.traces {
            let trace = Trace::open_spread(path, self.spread).map_err(SimError::from)?;
            if self.end_with_parent.is_none() {
                tell_left_out(path, &trace);
            }
            workloads.push(Arc::new(trace));
        }
        if let Some(name) = &self.workload {
            workloads.push(super::sim::workload(name, self.bytes)?);
        }
        if workloads.is_empty() {
            let wanted = |name: &&str| self.bundled.as_deref().is_none_or(|only| only == *name);
            for name in Trace::BUNDLED.iter().copied().filter(wanted) {
                workloads.push(Arc::new(Trace::bundled(name).map_err(SimError::from)?));
            }
        }
        Ok(workloads)
    }

    fn options(&self) -> Options {
        Options {
            gpus: self.gpus,
            units: self.units,
            capacity_percent: self.capacity,
            counter_threshold: self.threshold,
            per_page: self.pages,
            ..Options::default()
        }
    }

    fn replay(&self, workload: &dyn Workload, scheme: &str) -> Result<Report, Failure> {
        let options = self.options();
        let Made { placement, complaints } = own_scheme::by_name(scheme)?;
        let bar = bar(0, self.quiet);
        if !bar.is_hidden() {
            let gpus = options.gpus_for(workload);
            bar.set_length(shared_accesses(workload, gpus, options.units).count() as u64);
            bar.set_message(format!("{}: {scheme}", workload.name()));
        }
        let report = replay_with(workload, placement, &options, |now| bar.set_position(now));
        bar.finish_and_clear();
        // As it was asked for: the scheme's own name is the same whatever its parameters are.
        let report = Report { scheme: scheme.to_owned(), ..report? };
        Made::check(complaints.as_ref())?;
        Ok(report)
    }
}
