//! Many hosts: their daemons' own code in one process, by a clock and a network that are simulated.

use std::path::Path;
use std::time::Instant;

use farside_lend::daemon::simulation::{Outcome, Plan, run as simulate};

use super::super::Target::AtMost;
use super::super::{BenchError, Effort, Row};
use super::memory::of_process;

/// What was promised.
const PROMISED: Plan =
    Plan { hosts: 100, devices: 10, borrows: 10_000, seed: 11, forgets_ledgers: false };
/// Where a look must do.
const LOOK: Plan = Plan { hosts: 10, borrows: 300, ..PROMISED };
/// Samples from which on it is more than a look.
const SAMPLES_MIN: usize = 3;

pub(super) fn run(effort: Effort, folder: &Path) -> Result<Vec<Row>, BenchError> {
    let plan = if effort.samples < SAMPLES_MIN { LOOK } else { PROMISED };
    let (began, before) = (Instant::now(), of_process("self", "VmRSS:")?);
    let outcome = simulate(&plan, folder)?;
    let took = began.elapsed().as_secs();
    let grown = of_process("self", "VmHWM:")?.saturating_sub(before);
    if let Some(twice) = outcome.held_twice.first() {
        return Err(BenchError::Failed(format!("a device was held twice: {twice}")));
    }
    if let Some(not) = outcome.not_lendable.first() {
        return Err(BenchError::Failed(format!("nobody can borrow {not}")));
    }
    Ok(vec![
        Row::new(
            format!("{}: view converges", named(&plan)),
            outcome.converged.as_secs_f64(),
            AtMost(2.0),
            "simulated s",
            described(&plan, &outcome, took),
        ),
        Row::new(
            format!("{}: memory of a simulated daemon", named(&plan)),
            grown as f64 / plan.hosts as f64 / f64::from(1 << 20),
            AtMost(64.0),
            "MiB",
            format!("what the process grew by, at most, {grown} bytes, divided by the hosts"),
        ),
    ])
}

/// What is run, in a few words.
fn named(plan: &Plan) -> String {
    let Plan { hosts, devices, borrows, .. } = plan;
    format!("{hosts} hosts, {} devices, {borrows} borrows and returns", hosts * devices)
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
