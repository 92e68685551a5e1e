//! `farside sim`: workloads and recorded traces in simulated time.

mod stored;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use farside::placement;
use farside_cli::own_scheme::{self, Made};
use farside_cli::sweep::{Cell, Program, run_alone};
use farside_sim::analysis::{Sharing, SharingOptions};
use farside_sim::{Comparison, Outcome, Progress, SimError, Simulation, Spec, SpecError, scheme};
use farside_workloads::{Trace, TraceError, Workload, catalog};
use serde::Serialize;

use super::log::say;
use super::output::{print, print_json};
use super::progress::bar;
use super::size::parse_size;
use super::sweep::this_program;
use super::watch::Watch;
use super::{Failure, apart};

/// Run workloads and recorded memory traces on a simulated machine, under several schemes
///
/// The machine has a host and GPUs with TLBs, page tables, links and fault buffers; where a page
/// goes is decided by the same driver that serves live programs. Time is simulated: a run repeats
/// itself to the cycle.
///
/// A workload is generated from its algorithm at any size. A trace is a file NAME.bin.zst with its
/// description NAME.json beside it. Without either, two short traces that come with the program
/// are replayed: a matrix multiplication (mm) and a stencil (st).
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Sim {
    /// Traces to replay
    #[arg(long, value_name = "PATH", num_args = 1..)]
    trace: Vec<PathBuf>,

    /// The one of the traces that come with the program to replay
    #[arg(long, value_name = "NAME", hide = true, conflicts_with_all = ["trace", "workload"])]
    bundled: Option<String>,

    /// Generated workloads to run
    #[arg(long, value_name = "NAME", num_args = 1.., conflicts_with = "trace")]
    workload: Vec<String>,

    /// Their data, as in 8MB [default: the size in the GRIT paper]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "workload")]
    bytes: Option<u64>,

    /// The machine to start from
    #[arg(long, value_name = "NAME", default_value = Spec::PRESETS[0])]
    preset: String,

    /// Schemes to compare, the first one being the measure; `all` for all. NAME, or
    /// NAME:key=value,key=value, each with +MODIFIER behind it; NAME may be a library (`farside new`)
    #[arg(long, value_name = "LIST", default_value = "on-touch,access-counter,duplication")]
    scheme: String,

    /// Change a value of the machine; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Print the machine as TOML, every key that --set knows with its value and where that is from, and do
    /// nothing else
    #[arg(long)]
    print_machine: bool,

    /// Stop the one run there is after so many accesses, and write its state to --save
    #[arg(long, value_name = "COUNT", requires = "save")]
    stop_after: Option<u64>,

    /// Where to write the state
    #[arg(long, value_name = "FILE", requires = "stop_after",
          conflicts_with_all = ["json", "sharing", "stats", "perfetto", "history", "series"])]
    save: Option<PathBuf>,

    /// Go on from a state with the same program; machine and scheme are those of the state
    #[arg(long, value_name = "FILE", conflicts_with_all = ["save", "preset", "set", "scheme",
                                "sharing", "stats", "perfetto", "history", "series"])]
    restore: Option<PathBuf>,

    /// Print who shares and who writes the pages, by the order of the accesses alone (Figures 4 to
    /// 10 of the GRIT paper), and run nothing
    #[arg(long, conflicts_with_all = ["stats", "perfetto", "history", "series"])]
    sharing: bool,

    #[command(flatten)]
    watch: Watch,

    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,

    /// No progress bar
    #[arg(long, short)]
    quiet: bool,

    /// End when this process, whose child this one is, ends
    #[arg(long, value_name = "PROCESS", hide = true)]
    end_with_parent: Option<i32>,
}

/// Steps of the progress bar for each run.
const PERMILLE: u64 = 1_000;

const EXAMPLES: &str = "\
Examples:
  farside sim                                   bundled traces, three schemes
  farside sim --scheme all --set gpu.capacity_percent=70
  farside sim --workload mm fir --bytes 8MB --scheme on-touch,grit
  farside sim --trace mm.timing.bin.zst st.timing.bin.zst --json
  farside sim --workload st --bytes 2MB --sharing
  farside sim --workload st --bytes 2MB --scheme grit --history pages.txt
  farside sim --workload st --bytes 2MB --scheme grit --perfetto st.json
  farside sim --set counter.threshold=64 --set link.pcie_gb_per_s=16
  farside sim --workload mm --scheme grit --stop-after 1000000 --save mm.state
  farside sim --workload mm --restore mm.state    goes on
  farside sim --print-machine                     every key with its value";

#[derive(Serialize)]
struct Json<'a> {
    version: &'static str,
    preset: &'a str,
    machine: &'a Spec,
    traces: Vec<Comparison>,
}

impl Sim {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if let Some(parent) = self.end_with_parent {
            apart::begin(parent)?;
        }
        let spec = machine(&self.preset, &self.set)?;
        if self.print_machine {
            let text = spec.to_toml_with_sources(&self.preset).map_err(SimError::from)?;
            return print(&text);
        }
        if let (Some(path), Some(accesses)) = (&self.save, self.stop_after) {
            return self.save(&spec, path, accesses);
        }
        if let Some(path) = &self.restore {
            let comparison = self.restore(path)?;
            return if self.json {
                print_json(&comparison)
            } else {
                print(&comparison.to_string())
            };
        }
        let schemes = self.schemes(&spec)?;
        let bundled = self.trace.is_empty() && self.workload.is_empty() && self.bundled.is_none();
        if bundled && !self.quiet {
            eprintln!(
                "farside: no --trace and no --workload given: replaying the two traces that come \
                 with the program"
            );
        }
        let programs = self.programs()?;
        if self.sharing {
            return self.sharing(&spec, &programs);
        }
        self.watch.check(programs.len() * schemes.len())?;
        let (mut comparisons, mut failed) = (Vec::new(), 0);
        for (index, program) in programs.iter().enumerate() {
            let comparison = self.compare(&spec, (index, program), &schemes, &mut failed)?;
            if !self.json && !comparison.outcomes.is_empty() {
                let gap = if comparisons.is_empty() { "" } else { "\n" };
                print(&format!("{gap}{comparison}"))?;
            }
            comparisons.push(comparison);
        }
        let written = self.watch.write_stats(comparisons.iter().flat_map(|it| &it.outcomes));
        if self.json {
            let (version, preset) = (env!("CARGO_PKG_VERSION"), self.preset.as_str());
            print_json(&Json { version, preset, machine: &spec, traces: comparisons })?;
        }
        written?;
        if failed > 0 { Err(Failure::Told) } else { Ok(()) }
    }

    /// Whether this process was started for one run.
    fn is_child(&self) -> bool {
        self.end_with_parent.is_some()
    }

    fn schemes(&self, spec: &Spec) -> Result<Vec<String>, Failure> {
        let mut schemes = Vec::new();
        for name in list(&self.scheme) {
            match name.as_str() {
                "all" => schemes.extend(placement::NAMES.map(String::from)),
                _ => schemes.push(name),
            }
        }
        // Those that do not exist are told of before the first one runs.
        schemes.iter().try_for_each(|scheme| known_scheme(scheme, spec))?;
        if !self.is_child() {
            apart::check(&schemes)?;
        }
        Ok(schemes)
    }

    fn programs(&self) -> Result<Vec<Arc<dyn Workload>>, Failure> {
        if !self.workload.is_empty() {
            return self.workload.iter().map(|name| workload(name, self.bytes)).collect();
        }
        let opened: Result<Vec<Trace>, TraceError> = match (&self.bundled, &self.trace[..]) {
            (Some(name), _) => Trace::bundled(name).map(|trace| vec![trace]),
            (None, []) => Trace::BUNDLED.iter().map(|name| Trace::bundled(name)).collect(),
            (None, paths) => paths.iter().map(|path| Trace::open(path)).collect(),
        };
        let traces = opened.map_err(SimError::from)?;
        if !self.is_child() {
            let given = self.trace.iter().zip(&traces);
            given.for_each(|(path, trace)| super::replay::tell_left_out(path, trace));
        }
        Ok(traces.into_iter().map(|trace| Arc::new(trace) as Arc<dyn Workload>).collect())
    }

    /// Who shares and who writes the pages of each program.
    fn sharing(&self, spec: &Spec, programs: &[Arc<dyn Workload>]) -> Result<(), Failure> {
        let (gpus, units) = (spec.gpu.count, spec.gpu.compute_units);
        let options = SharingOptions::default();
        let of = |program: &Arc<dyn Workload>| Sharing::of(&**program, gpus, units, &options);
        if self.json {
            return print_json(&programs.iter().map(of).collect::<Vec<_>>());
        }
        for (index, program) in programs.iter().enumerate() {
            let gap = if index == 0 { "" } else { "\n" };
            print(&format!("{gap}{}", of(program)))?;
        }
        Ok(())
    }

    /// One program under all schemes. Those of libraries run in processes of their own; one that fails is told of and
    /// counted, and the others go on.
    fn compare(
        &self,
        spec: &Spec,
        (index, program): (usize, &Arc<dyn Workload>),
        schemes: &[String],
        failed: &mut usize,
    ) -> Result<Comparison, Failure> {
        let bar = bar(PERMILLE * schemes.len() as u64, self.quiet);
        let mut outcomes = Vec::with_capacity(schemes.len());
        for (at, scheme) in schemes.iter().enumerate() {
            bar.set_message(format!("{}: {scheme}", program.name()));
            let before = PERMILLE * at as u64;
            bar.set_position(before);
            if own_scheme::library(scheme).is_some() && !self.is_child() {
                match self.run_apart(index, scheme)? {
                    Ok(outcome) => outcomes.push(outcome),
                    Err(why) => {
                        *failed += 1;
                        bar.suspend(|| {
                            say(&format!("farside: {}, {scheme}: {why}", program.name()))
                        });
                    }
                }
                continue;
            }
            let step = |now: Progress| bar.set_position(before + (now.percent() * 10.0) as u64);
            let (made, spec) = own_scheme::resolve(scheme, spec)?;
            let check = cfg!(debug_assertions);
            let simulation = Simulation::with_placement(&spec, program, made.placement, check)?;
            let watching = self.watch.start(&spec, program.name(), scheme)?;
            let outcome = watching.of(simulation, spec.page.bytes.into()).run(step)?;
            Made::check(made.complaints.as_ref())?;
            match self.watch.finish(watching) {
                // What came out is worth more than what was to be written of it.
                Err(error) if !self.is_child() => {
                    *failed += 1;
                    bar.suspend(|| say(&format!("farside: {error}")));
                }
                finished => finished?,
            }
            outcomes.push(Outcome { placement: scheme.clone(), ..outcome });
        }
        bar.finish_and_clear();
        Ok(Comparison { outcomes })
    }

    /// The run of a program under a scheme in a process of its own: what came out, or why nothing did.
    fn run_apart(&self, index: usize, scheme: &str) -> Result<Result<Outcome, String>, Failure> {
        let program = if let Some(name) = self.workload.get(index) {
            Program::Workload { name: name.clone(), bytes: self.bytes }
        } else if let Some(path) = self.trace.get(index) {
            Program::Trace(path.clone())
        } else {
            Program::Bundled(
                self.bundled.clone().unwrap_or_else(|| Trace::BUNDLED[index].to_owned()),
            )
        };
        let pairs = self.set.iter().map(|set| pair(set)).collect::<Result<Vec<_>, _>>()?;
        let set =
            pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let cell = Cell { program, scheme: scheme.to_owned(), preset: self.preset.clone(), set };
        let done = run_alone(&this_program()?, &cell, &self.watch.arguments());
        Ok(done.map_err(|failed| failed.why))
    }
}

/// Schemes between commas; commas that separate a scheme's parameters are followed by `key=`.
pub(super) fn list(text: &str) -> Vec<String> {
    let mut schemes: Vec<String> = Vec::new();
    for part in text.split(',') {
        let parameter = part.contains('=') && !part.contains(':');
        match schemes.last_mut().filter(|_| parameter) {
            Some(scheme) => *scheme += &format!(",{part}"),
            None => schemes.push(part.trim().to_owned()),
        }
    }
    schemes
}

/// The workload of this name, with so many bytes of data.
pub(super) fn workload(name: &str, bytes: Option<u64>) -> Result<Arc<dyn Workload>, Failure> {
    let refused = |error: catalog::WorkloadError| Failure::Usage(error.to_string());
    // A name that is known may have a size that cannot be.
    let others = catalog::NAMES.iter().copied().filter(|_| !catalog::NAMES.contains(&name));
    catalog::by_name(name, bytes).map_err(|error| refused(error).near(name, others))
}

/// Refuses a scheme that cannot be on this machine.
fn known_scheme(name: &str, spec: &Spec) -> Result<(), Failure> {
    if own_scheme::library(name).is_some() {
        return own_scheme::check_outside(name, spec).map_err(Failure::Usage);
    }
    let base = name.split([':', '+']).next().unwrap_or_default();
    let known = scheme::all();
    let schemes = known.iter().filter(|it| it.kind != scheme::KnownKind::Modifier);
    let names = schemes.map(|it| it.name.as_str()).filter(|it| *it != base);
    // A name that is known may have a parameter that is not: that is told of without a name.
    let unknown = !known.iter().any(|it| it.name == base);
    match scheme::resolve(name, spec) {
        Ok(_) => Ok(()),
        Err(error) if unknown => Err(Failure::from(error).near(base, names)),
        Err(error) => Err(error.into()),
    }
}

/// The machine of `--preset` with the values of `--set`.
pub(super) fn machine(preset: &str, set: &[String]) -> Result<Spec, Failure> {
    let failed = |error: SpecError| {
        let given = match &error {
            SpecError::NoSuchPreset { name } => name.clone(),
            SpecError::NoSuchKey { key } => key.clone(),
            _ => return Failure::from(SimError::from(error)),
        };
        let keys = Spec::keys();
        let known = keys.iter().map(String::as_str).chain(Spec::PRESETS.iter().copied());
        Failure::from(SimError::from(error)).near(&given, known)
    };
    let spec = Spec::preset(preset).map_err(failed)?;
    let pairs = set.iter().map(|set| pair(set)).collect::<Result<Vec<_>, _>>()?;
    // All at once: two values may only make sense together.
    spec.with_overrides(&pairs).map_err(failed)
}

/// Key and value of one `--set`.
fn pair(set: &str) -> Result<(&str, &str), Failure> {
    let parts = set.split_once('=').filter(|(key, _)| key.contains('.'));
    let (key, value) = parts.ok_or_else(|| {
        Failure::Usage(format!(
            "--set {set}: expected SECTION.KEY=VALUE such as gpu.count=2; \
             `farside sim --print-machine` lists the keys"
        ))
    })?;
    Ok((key.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_a_dotted_key_and_a_value() {
        assert!(matches!(pair(" gpu.count = 2 "), Ok(("gpu.count", "2"))));
        for wrong in ["gpu.count", "count=2", "=", ""] {
            assert!(pair(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn schemes_may_have_parameters() {
        assert_eq!(list("on-touch,grit"), ["on-touch", "grit"]);
        let two = ["grit:threshold=2,cache=false", "a:b=1"];
        assert_eq!(list(&two.join(",")), two);
        assert_eq!(list("grit:threshold=2, grit+acud"), ["grit:threshold=2", "grit+acud"]);
    }

    #[test]
    fn what_cannot_be_set_is_named() {
        for wrong in ["gpu.cuont=2", "gqu.count=2", "gpu.count=true", "gpu.count=99"] {
            let pair = pair(wrong).unwrap_or_default();
            let error = Spec::default().with_overrides(&[pair]).unwrap_err().to_string();
            assert!(error.contains(pair.0), "{error}");
        }
    }
}
