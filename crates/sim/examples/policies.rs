//! Compares placement schemes over generated workloads and recorded traces: times, what the driver
//! did, and the geometric mean of the speedups over the first scheme.
//!
//! ```text
//! cargo run --release -p farside-sim --example policies -- grit,farside fir:4 mm:4 gpu.capacity_percent=70
//! ```
//!
//! `NAME:MB` is a generated workload of that size, `NAME` alone one of the size in the GRIT paper's
//! Table II, `PATH.bin.zst` a recorded trace, `KEY=VALUE` changes a value of the machine, which is `grit-table-1` unless
//! `machine=NAME` is given. Schemes are separated by commas, their
//! parameters by semicolons: `grit,farside:objects=off;prefetch=off`.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use farside_sim::{Simulation, Spec};
use farside_workloads::catalog::by_name;
use farside_workloads::{Trace, Workload};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((schemes, rest)) = arguments.split_first() else {
        return Err("give the schemes, then workloads and values of the machine".into());
    };
    let schemes: Vec<String> = schemes.split(',').map(|scheme| scheme.replace(';', ",")).collect();
    let values = rest.iter().filter_map(|text| text.split_once('='));
    let (machines, changes): (Vec<_>, Vec<_>) = values.partition(|(key, _)| *key == "machine");
    let machine = machines.last().map_or("grit-table-1", |(_, name)| name);
    let spec = Spec::preset(machine)?.with_overrides(&changes)?;
    let mut logs = vec![0.0; schemes.len()];
    let mut count = 0;
    for text in rest.iter().filter(|text| !text.contains('=')) {
        let workload = program(text)?;
        let mut first = 0.0;
        for (scheme, log) in schemes.iter().zip(&mut logs) {
            let started = Instant::now();
            let outcome = Simulation::new(&spec, &workload, scheme)?.run(|_| ())?;
            let time = outcome.time.0 as f64 / 1e9;
            first = if first == 0.0 { time } else { first };
            *log += (first / time).ln();
            let driver = &outcome.driver;
            println!(
                "{text:10} {scheme:24} {time:9.3} ms {:6.3}x  faults {:8} migrated {:8} copied {:8} \
                 collapsed {:7} remote {:7} evicted {:7}  ({:.2} million lines a second)",
                first / time,
                driver.card_faults,
                driver.migrations,
                driver.duplications,
                driver.collapses,
                driver.remote_maps,
                driver.evictions,
                outcome.total.accesses() as f64 / started.elapsed().as_secs_f64() / 1e6,
            );
        }
        count += 1;
    }
    for (scheme, log) in schemes.iter().zip(&logs) {
        println!("geometric mean {scheme:24} {:6.3}x", (log / f64::from(count.max(1))).exp());
    }
    Ok(())
}

/// A recorded trace or a generated workload.
fn program(text: &str) -> Result<Arc<dyn Workload>, Box<dyn Error>> {
    if text.ends_with(".zst") {
        return Ok(Arc::new(Trace::open(Path::new(text))?));
    }
    let (name, megabytes) = text.split_once(':').unwrap_or((text, ""));
    let bytes = match megabytes {
        "" => None,
        megabytes => Some((megabytes.parse::<f64>()? * f64::from(1 << 20)) as u64),
    };
    Ok(by_name(name, bytes)?)
}
