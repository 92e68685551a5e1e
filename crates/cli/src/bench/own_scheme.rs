//! A placement scheme from a library against the same rule that is built in, in simulated time.
//!
//! The library is what `farside new scheme` writes, compiled here. Both run the same program by turns in this
//! process; the results must be the same, to the number.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use farside_cli::own_scheme::{self, Made};
use farside_sim::{Outcome, Simulation, Spec};
use farside_workloads::{Workload, catalog};

use super::{BenchError, Effort, Row, Target, median, processor_time};
use crate::commands::scheme_in_c;

/// Simulated time of the scheme in C over that of the one in Rust.
const AT_MOST: Target = Target::AtMost(1.1);
/// The rule in Rust.
const BUILT_IN: &str = "copy-move-map";
/// Programs with many faults for what they compute, and one with few.
const PROGRAMS: [(&str, u64); 3] = [("bfs", 2 << 20), ("st", 4 << 20), ("fir", 16 << 20)];

pub(super) fn run(effort: Effort) -> Result<Vec<Row>, BenchError> {
    let folder = Folder::new()?;
    let name = |program: &str| {
        format!("{program} in simulated time under a scheme in C, against the same one in Rust")
    };
    let library = match build(&folder.0) {
        Ok(library) => library,
        Err(why) => {
            let row = |(program, _): (&str, u64)| {
                Row::not_measured(name(program), AT_MOST, "x", why.clone())
            };
            return Ok(PROGRAMS.into_iter().map(row).collect());
        }
    };
    let mut rows = Vec::new();
    for (program, bytes) in PROGRAMS {
        let failed = |error: catalog::WorkloadError| BenchError::Failed(error.to_string());
        let workload = catalog::by_name(program, Some(bytes)).map_err(failed)?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..effort.samples.max(3) {
            let (seconds, outcome) = timed(&workload, &library)?;
            let (built_in, expected) = timed(&workload, BUILT_IN)?;
            if outcome != expected {
                let why = format!("{program}: the scheme in C has other results than {BUILT_IN}");
                return Err(BenchError::Failed(why));
            }
            ours.push(seconds);
            theirs.push(built_in);
        }
        let (ours, theirs) = (median(ours), median(theirs));
        let detail =
            format!("{ours:.3} s against {theirs:.3} s of processor time, the same results");
        rows.push(Row::new(name(program), ours / theirs, AT_MOST, "x", detail));
    }
    Ok(rows)
}

/// A run, in seconds of processor time.
fn timed(workload: &Arc<dyn Workload>, scheme: &str) -> Result<(f64, Outcome), BenchError> {
    let failed = |why: String| BenchError::Failed(why);
    let (made, machine) =
        own_scheme::resolve(scheme, &Spec::default()).map_err(|error| failed(error.to_string()))?;
    let simulation = Simulation::with_placement(&machine, workload, made.placement, false)
        .map_err(|error| failed(error.to_string()))?;
    let mut outcome = None;
    let seconds = processor_time(|| outcome = Some(simulation.run(|_| ())));
    let outcome = outcome.transpose().map_err(|error| failed(error.to_string()))?;
    Made::check(made.complaints.as_ref()).map_err(|error| failed(error.to_string()))?;
    let outcome = outcome.ok_or_else(|| failed("a run without an outcome".to_owned()))?;
    Ok((seconds, Outcome { placement: String::new(), ..outcome }))
}

/// Compiles the template; why that cannot be.
fn build(folder: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| error.to_string();
    for (name, text) in scheme_in_c("bench") {
        std::fs::write(folder.join(name), text).map_err(failed)?;
    }
    let made = Command::new("make").arg("-C").arg(folder).output();
    let made = made.map_err(|error| format!("there is no make: {error}"))?;
    if !made.status.success() {
        return Err(format!(
            "the scheme cannot be compiled: {}",
            String::from_utf8_lossy(&made.stderr).trim()
        ));
    }
    Ok(folder.join("libbench.so").display().to_string())
}

/// A folder that is gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder, BenchError> {
        let folder =
            std::env::temp_dir().join(format!("farside-bench-scheme-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Folder(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
