//! `farside sim`: replays recorded traces in simulated time.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use farside::placement;
use farside_sim::{Comparison, SimError, Simulation, Spec, SpecError, Trace, TraceError};
use serde::Serialize;

use super::Failure;
use super::output::{print, print_json};
use super::progress::bar;

/// Two short traces that come with the program: name, description, stream.
const BUNDLED: [(&str, &str, &[u8]); 2] = [
    (
        "mm",
        include_str!("../../../sim/fixtures/mm.json"),
        include_bytes!("../../../sim/fixtures/mm.bin.zst"),
    ),
    (
        "st",
        include_str!("../../../sim/fixtures/st.json"),
        include_bytes!("../../../sim/fixtures/st.bin.zst"),
    ),
];

/// Replay recorded memory traces on a simulated machine, under several placement schemes
///
/// The machine has a host and GPUs with TLBs, page tables, links and fault buffers; where a page
/// goes is decided by the same driver that serves live programs. Time is simulated: a run repeats
/// itself to the cycle.
///
/// A trace is a file NAME.bin.zst with its description NAME.json beside it. Without --trace two
/// short ones that come with the program are replayed: a matrix multiplication (mm) and a stencil
/// (st).
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Sim {
    /// Traces to replay
    #[arg(long, value_name = "PATH", num_args = 1..)]
    trace: Vec<PathBuf>,

    /// The machine to start from
    #[arg(long, value_name = "NAME", default_value = Spec::PRESETS[0])]
    preset: String,

    /// Schemes to compare, the first one being the measure; `all` for all
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "on-touch,access-counter,duplication"
    )]
    scheme: Vec<String>,

    /// Change a value of the machine; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Print the machine as TOML, with every key that --set knows, and do nothing else
    #[arg(long)]
    print_machine: bool,

    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,

    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  farside sim                                     the bundled traces, three schemes
  farside sim --scheme all --set gpu.capacity_percent=70
  farside sim --trace mm.timing.bin.zst st.timing.bin.zst --json
  farside sim --set counter.threshold=64 --set link.pcie_gb_per_s=16
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
        let spec = self.spec()?;
        if self.print_machine {
            return print(&spec.to_toml());
        }
        let schemes = self.schemes()?;
        if self.trace.is_empty() && !self.quiet {
            eprintln!("farside: no --trace given: replaying the two that come with the program");
        }
        let mut comparisons = Vec::new();
        for trace in self.traces()? {
            let comparison = self.replay(&spec, &trace, &schemes)?;
            if !self.json {
                let gap = if comparisons.is_empty() { "" } else { "\n" };
                print(&format!("{gap}{comparison}"))?;
            }
            comparisons.push(comparison);
        }
        if self.json {
            let (version, preset) = (env!("CARGO_PKG_VERSION"), self.preset.as_str());
            print_json(&Json { version, preset, machine: &spec, traces: comparisons })?;
        }
        Ok(())
    }

    fn spec(&self) -> Result<Spec, Failure> {
        let spec = Spec::preset(&self.preset).map_err(SimError::from)?;
        let changed = self.set.iter().try_fold(spec.to_toml(), |text, set| changed(&text, set))?;
        Ok(Spec::from_toml(&changed).map_err(SimError::from)?)
    }

    fn schemes(&self) -> Result<Vec<&str>, Failure> {
        let mut schemes = Vec::new();
        for name in &self.scheme {
            match name.as_str() {
                "all" => schemes.extend(placement::NAMES),
                name if placement::NAMES.contains(&name) => schemes.push(name),
                name => {
                    return Err(SimError::NoSuchPlacement { name: name.to_owned() }.into());
                }
            }
        }
        Ok(schemes)
    }

    fn traces(&self) -> Result<Vec<Arc<Trace>>, Failure> {
        let opened: Result<Vec<Trace>, TraceError> = if self.trace.is_empty() {
            BUNDLED.iter().map(|(name, json, stream)| Trace::read(name, json, *stream)).collect()
        } else {
            self.trace.iter().map(|path| Trace::open(path)).collect()
        };
        Ok(opened.map_err(SimError::from)?.into_iter().map(Arc::new).collect())
    }

    /// One trace under all schemes.
    fn replay(
        &self,
        spec: &Spec,
        trace: &Arc<Trace>,
        schemes: &[&str],
    ) -> Result<Comparison, Failure> {
        let bar = bar(trace.accesses() * schemes.len() as u64, self.quiet);
        let mut outcomes = Vec::with_capacity(schemes.len());
        for (index, scheme) in schemes.iter().enumerate() {
            bar.set_message(format!("{}: {scheme}", trace.name()));
            let before = trace.accesses() * index as u64;
            let simulation = Simulation::new(spec, trace, scheme)?;
            outcomes.push(simulation.run(|now| bar.set_position(before + now.retired))?);
        }
        bar.finish_and_clear();
        Ok(Comparison { outcomes })
    }
}

/// A machine's TOML with one value changed by `section.key=value`.
fn changed(text: &str, set: &str) -> Result<String, Failure> {
    let malformed = || {
        Failure::Usage(format!(
            "--set {set}: expected SECTION.KEY=VALUE such as gpu.count=2; \
             `farside sim --print-machine` lists the keys"
        ))
    };
    let (path, value) = set.split_once('=').ok_or_else(malformed)?;
    let (section, key) = path.trim().split_once('.').ok_or_else(malformed)?;
    let mut machine: toml::Table = text.parse().map_err(|_| malformed())?;
    // Read as TOML of its own, so that numbers and truth values are told apart.
    let value: toml::Table =
        format!("value = {}", value.trim()).parse().map_err(|_| malformed())?;
    let value = value.get("value").ok_or_else(malformed)?;
    let section = machine
        .get_mut(section)
        .and_then(toml::Value::as_table_mut)
        .ok_or_else(|| unknown(path))?;
    section.insert(key.to_owned(), value.clone());
    let text = machine.to_string();
    match Spec::from_toml(&text) {
        Err(SpecError::Syntax(_)) => Err(unknown(path)),
        Err(error) => Err(SimError::from(error).into()),
        Ok(_) => Ok(text),
    }
}

fn unknown(path: &str) -> Failure {
    Failure::Usage(format!(
        "--set {path}: the machine has no such value, or one of another type; \
         `farside sim --print-machine` lists them"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(set: &str) -> Result<Spec, String> {
        let text = changed(&Spec::default().to_toml(), set).map_err(|error| error.to_string())?;
        Spec::from_toml(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_value_is_changed_and_the_others_stay() {
        let mut expected = Spec::default();
        expected.gpu.count = 2;
        assert_eq!(set("gpu.count=2"), Ok(expected));
        let mut expected = Spec::default();
        expected.gpu.capacity_percent = Some(70);
        assert_eq!(set(" gpu.capacity_percent = 70 "), Ok(expected), "absent in the preset");
        let mut expected = Spec::default();
        expected.driver.keep_clean_copies = true;
        assert_eq!(set("driver.keep_clean_copies=true"), Ok(expected));
    }

    #[test]
    fn what_cannot_be_set_is_named() {
        for wrong in ["gpu.cuont=2", "gqu.count=2", "gpu.count=true", "gpu.count=99"] {
            let error = set(wrong).unwrap_err();
            assert!(error.contains(wrong.split('=').next().unwrap()), "{error}");
        }
        for wrong in ["gpu.count", "count=2", "=", "", "gpu.count=2\nx=3 y"] {
            assert!(set(wrong).is_err(), "{wrong}");
        }
    }
}
