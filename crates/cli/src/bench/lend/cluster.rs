//! Many hosts: their daemons' own code in one process, by a clock and a network that are simulated.

use std::path::Path;
use std::time::Instant;

use farside_lend::daemon::simulation::{Outcome, Plan, run as simulate};

use super::super::Target::AtMost;
use super::super::{BenchError, Effort, Row};

/// What was promised.
const PROMISED: Plan =
    Plan { hosts: 100, devices: 10, borrows: 10_000, seed: 11, forgets_ledgers: false };
/// Where a look must do.
const LOOK: Plan = Plan { hosts: 10, borrows: 300, ..PROMISED };
/// Samples from which on it is more than a look.
const SAMPLES_MIN: usize = 3;

pub(super) fn run(effort: Effort, folder: &Path) -> Result<Vec<Row>, BenchError> {
    let plan = if effort.samples < SAMPLES_MIN { LOOK } else { PROMISED };
    let (began, before) = (Instant::now(), resident_bytes()?);
    let outcome = simulate(&plan, folder)?;
    let took = began.elapsed().as_secs();
    let each = resident_peak_bytes()?.saturating_sub(before) as f64 / plan.hosts as f64;
    if let Some(twice) = outcome.held_twice.first() {
        return Err(BenchError::Failed(format!("a device was held twice: {twice}")));
    }
    if let Some(not) = outcome.not_lendable.first() {
        return Err(BenchError::Failed(format!("nobody can borrow {not}")));
    }
    Ok(vec![
        Row::new(
            "100 hosts, 1,000 devices, 10,000 borrows: view converges",
            outcome.converged.as_secs_f64(),
            AtMost(2.0),
            "s",
            described(&plan, &outcome, took),
        ),
        Row::new(
            "the same: memory of a daemon",
            each / f64::from(1 << 20),
            AtMost(64.0),
            "MiB",
            "what the process grew by, at most, divided by the hosts".to_owned(),
        ),
    ])
}

fn described(plan: &Plan, outcome: &Outcome, took: u64) -> String {
    format!(
        "{} hosts of {} devices, {} borrows and returns of {} leases, {} refused, {} lost; {} daemons \
         and {} machines crashed, {} cuts; none held twice; {} s simulated in {took} s",
        plan.hosts,
        plan.devices,
        outcome.borrows,
        outcome.leases,
        outcome.refused,
        outcome.lost,
        outcome.crashes,
        outcome.machines,
        outcome.cuts,
        outcome.simulated.as_secs(),
    )
}

fn resident_bytes() -> Result<u64, BenchError> {
    status_bytes("VmRSS:")
}

fn resident_peak_bytes() -> Result<u64, BenchError> {
    status_bytes("VmHWM:")
}

/// A number of kilobytes that the kernel says of this process.
fn status_bytes(name: &str) -> Result<u64, BenchError> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let missing = || BenchError::Failed(format!("the kernel does not say {name}"));
    Ok(kilobytes.ok_or_else(missing)? << 10)
}
