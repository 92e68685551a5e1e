//! `farside probe`: what the simulated machine's parameters say, against what it does.

use clap::Args;
use farside_sim::Spec;
use farside_sim::theory::{self, Curve, Probe as Value};
use serde::Serialize;

use super::Failure;
use super::output::{print, print_json};
use super::text::paragraph;

/// Compare the simulated machine with theory: latencies, faults, bandwidths, Little's law
///
/// Small programs run on two GPUs of the machine. Alone, an access costs the sum of the parameters
/// on its way, to the picosecond; each bank, channel and link carries its bandwidth and no more.
/// With --load, more and more wavefronts load from the same place: offered load in GB/s against
/// throughput and latency.
///
/// Exit code 1: a value differs.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Probe {
    /// The machine to start from
    #[arg(long, value_name = "NAME", default_value = Spec::PRESETS[0])]
    preset: String,

    /// Change a value of the machine; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Which values of the machine each one is the sum of
    #[arg(long, conflicts_with = "json")]
    sums: bool,

    /// Latency and throughput against offered load as well
    #[arg(long)]
    load: bool,

    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  farside probe                                   the machine of the GRIT paper
  farside probe --set link.nvlink_gb_per_s=600 --load
  farside probe --load --json                     for a plot";

#[derive(Serialize)]
struct Json {
    version: &'static str,
    machine: Spec,
    probes: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    curves: Vec<Curve>,
}

impl Probe {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let machine = super::sim::machine(&self.preset, &self.set)?;
        let probes = theory::probes(&machine)?;
        let curves = if self.load { theory::curves(&machine)? } else { Vec::new() };
        let different = probes.iter().filter(|probe| !probe.holds()).count();
        if self.json {
            let version = env!("CARGO_PKG_VERSION");
            print_json(&Json { version, machine, probes, curves })?;
        } else {
            print(&theory::table(&probes))?;
            if self.sums {
                print(&sums(&probes))?;
            }
            for curve in &curves {
                print(&format!("\n{curve}"))?;
            }
        }
        if different == 0 {
            return Ok(());
        }
        eprintln!(
            "farside: {different} values are not what the machine's parameters say; please report \
             it with the output of `farside probe --json`"
        );
        Err(Failure::Told)
    }
}

/// How theory gets at each value.
fn sums(probes: &[Value]) -> String {
    let sum = |probe: &Value| format!("\n{}\n{}", probe.name, paragraph("  ", &probe.sum));
    probes.iter().map(sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_sim::SimError;

    #[test]
    fn a_machine_that_cannot_be_is_refused_with_its_key() {
        let probe = Probe {
            preset: Spec::PRESETS[0].to_owned(),
            set: vec!["gpu.count=99".to_owned()],
            sums: false,
            load: false,
            json: false,
        };
        let Err(Failure::Sim(SimError::Spec(error))) = probe.run() else {
            panic!("must be refused");
        };
        assert!(error.to_string().contains("gpu.count is 99"), "{error}");
    }
}
