//! Compares `farside` with every other scheme on access patterns that stand in no paper: [`programs`].
//!
//! ```text
//! cargo run --release -p farside-sim --example patterns                                  all of them
//! cargo run --release -p farside-sim --example patterns -- ring halos machine=grit-paper gpu.count=2 times=yes
//! ```
//!
//! A row for each pattern: the performance of `farside` over GRIT, over the twelve-line rule, and over the best of the
//! uniform schemes, which is named. `times=yes` prints what each scheme takes; other `KEY=VALUE` change the machine,
//! `grit-table-1` unless `machine=NAME` is given; `gpu.capacity_percent=25` that of every pattern.

use std::error::Error;
use std::sync::Arc;

use farside_sim::{Simulation, Spec};

mod programs;

use programs::Pattern;

/// Schemes that treat all pages alike.
const UNIFORM: [&str; 4] = ["on-touch", "first-touch", "access-counter", "duplication"];
const OTHERS: [&str; 2] = ["grit", "copy-move-map"];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (values, names): (Vec<_>, Vec<_>) = arguments.iter().partition(|text| text.contains('='));
    let values: Vec<(&str, &str)> = values.iter().filter_map(|text| text.split_once('=')).collect();
    let asked = |key| values.iter().rev().find(|(name, _)| *name == key).map(|(_, value)| *value);
    let times = asked("times") == Some("yes");
    let ours = asked("scheme").unwrap_or("farside");
    // What a GPU holds is the pattern's, unless it is said.
    let holds = asked("gpu.capacity_percent").is_some();
    let own = ["machine", "times", "scheme"];
    let changes: Vec<_> = values.iter().copied().filter(|(key, _)| !own.contains(key)).collect();
    let spec =
        Spec::preset(asked("machine").unwrap_or("grit-table-1"))?.with_overrides(&changes)?;
    let patterns = programs::all(spec.gpu.count);
    if let Some(name) = names.iter().find(|name| patterns.iter().all(|it| it.name != **name)) {
        let known: Vec<&str> = patterns.iter().map(|it| it.name).collect();
        return Err(format!("there is no pattern {name}, but {}", known.join(", ")).into());
    }
    println!("{:12} {:>7} {:>7} {:>7}  best uniform scheme", "", "grit", "twelve", "uniform");
    let mut logs = [0.0; 3];
    let asked_for = |it: &&Pattern| names.is_empty() || names.iter().any(|name| *name == it.name);
    let patterns: Vec<Pattern> = patterns.into_iter().filter(|it| asked_for(&it)).collect();
    for pattern in &patterns {
        let ratios = row(pattern, &spec, ours, (times, holds))?;
        logs.iter_mut().zip(ratios).for_each(|(log, ratio)| *log += ratio.ln());
    }
    let mean = |log: f64| (log / patterns.len() as f64).exp();
    println!(
        "{:12} {:7.2} {:7.2} {:7.2}",
        "geometric",
        mean(logs[0]),
        mean(logs[1]),
        mean(logs[2])
    );
    Ok(())
}

/// Runs a pattern under all schemes and prints its row: how many times as long as ours GRIT takes, the twelve-line rule, and the
/// best of the uniform schemes.
fn row(
    pattern: &Pattern,
    spec: &Spec,
    ours: &str,
    (times, holds): (bool, bool),
) -> Result<[f64; 3], Box<dyn Error>> {
    let mut spec = spec.clone();
    if !holds {
        spec.gpu.capacity_percent = Some(pattern.capacity_percent);
    }
    let milliseconds = |scheme: &str| -> Result<f64, Box<dyn Error>> {
        let program = Arc::new(pattern.program.clone());
        let outcome = Simulation::new(&spec, &(program as _), scheme)?.run(|_| ())?;
        Ok(outcome.time.0 as f64 / 1e9)
    };
    let own = milliseconds(ours)?;
    let uniform = UNIFORM.map(|scheme| milliseconds(scheme).map(|time| (scheme, time)));
    let uniform = uniform.into_iter().collect::<Result<Vec<_>, _>>()?;
    let others = OTHERS.map(&milliseconds).into_iter().collect::<Result<Vec<_>, _>>()?;
    let (best, least) = *uniform.iter().min_by(|a, b| a.1.total_cmp(&b.1)).ok_or("no scheme")?;
    let ratios = [others[0] / own, others[1] / own, least / own];
    println!("{:12} {:7.2} {:7.2} {:7.2}  {best}", pattern.name, ratios[0], ratios[1], ratios[2]);
    if times {
        let all = uniform.iter().map(|(scheme, time)| format!("{scheme} {time:.3}"));
        println!(
            "    ms: {ours} {own:.3}, grit {:.3}, twelve {:.3}, {}",
            others[0],
            others[1],
            all.collect::<Vec<_>>().join(", ")
        );
    }
    Ok(ratios)
}
