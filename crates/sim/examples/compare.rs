//! Replays recorded traces under every placement scheme and prints them side by side.
//!
//! ```text
//! cargo run --release -p farside-sim --example compare                       bundled excerpts
//! cargo run --release -p farside-sim --example compare -- mm.timing.bin.zst gpu.capacity_percent=70
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use farside_sim::{SCHEMES, SimError, Spec, compare};
use farside_workloads::Trace;
use farside_workloads::Workload;

fn main() -> Result<(), SimError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let overrides: Vec<(&str, &str)> =
        arguments.iter().filter_map(|argument| argument.split_once('=')).collect();
    let paths = arguments.iter().filter(|argument| !argument.contains('='));
    let spec = Spec::preset("grit-table-1")?.with_overrides(&overrides)?;
    let mut traces =
        paths.map(|path| Trace::open(Path::new(path))).collect::<Result<Vec<_>, _>>()?;
    if traces.is_empty() {
        for name in Trace::BUNDLED {
            traces.push(Trace::bundled(name)?);
        }
    }
    for trace in traces {
        let records = trace.accesses();
        let trace: Arc<dyn Workload> = Arc::new(trace);
        let started = Instant::now();
        let comparison = compare(&spec, &trace, SCHEMES, |scheme, progress| {
            eprint!("\r{} {scheme}: {:.0} %   ", trace.name(), progress.percent());
        })?;
        let accesses = records as f64 * SCHEMES.len() as f64;
        let rate = accesses / started.elapsed().as_secs_f64() / 1e6;
        eprintln!("\r{}: {rate:.2} million accesses a second", trace.name());
        println!("{comparison}");
    }
    Ok(())
}
