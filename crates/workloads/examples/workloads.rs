//! Prints what the generated workloads are like, at the sizes of the GRIT paper's Table II, on four
//! GPUs that each run an equal share of consecutive work-groups:
//!
//! ```text
//! cargo run --release -p farside-workloads --example workloads [-- NAME ...]
//! ```

use std::error::Error;
use std::time::{Duration, Instant};

use farside_workloads::catalog::{NAMES, by_name};
use farside_workloads::profile::{Profile, in_shares};
use farside_workloads::{Cursor, Instruction, Lines, Workload};

/// Work-groups that are timed together, and how often: other programs on the same processor make
/// some runs longer, so the shortest counts.
const TIMED_GROUPS: u32 = 16;
const RUNS: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let names = NAMES.iter().filter(|name| asked.is_empty() || asked.iter().any(|it| it == *name));
    let head = ["workload", "MB", "launches", "groups", "lines", "writes", "to shared"];
    println!("| {} | pages touched by 0/1/2/3/4 GPUs | ns per line |", head.join(" | "));
    println!("|---|{}", "--:|".repeat(head.len() + 1));
    for name in names {
        let workload = by_name(name, None)?;
        let groups: u64 =
            (0..workload.launches()).map(|launch| u64::from(workload.launch(launch).groups)).sum();
        let profile = Profile::of_workload(&*workload, 4, |launch, group| {
            Some(in_shares(workload.launch(launch).groups, 4, 64, group))
        });
        let bytes: u64 = workload.buffers().iter().map(|buffer| buffer.bytes).sum();
        let pages: Vec<String> = profile.pages_by_sharers().iter().map(u64::to_string).collect();
        println!(
            "| `{name}` | {:.1} | {} | {groups} | {} | {:.1} % | {:.1} % | {} | {:.1} |",
            bytes as f64 / f64::from(1 << 20),
            workload.launches(),
            profile.accesses.iter().sum::<u64>(),
            profile.write_percent(),
            profile.to_shared_percent(),
            pages.join("/"),
            nanoseconds_per_line(&*workload),
        );
    }
    Ok(())
}

/// What generating a line takes, over the whole workload.
fn nanoseconds_per_line(workload: &dyn Workload) -> f64 {
    let (mut taken, mut count) = (Duration::ZERO, 0);
    for launch in 0..workload.launches() {
        let shape = workload.launch(launch);
        for first in (0..shape.groups).step_by(TIMED_GROUPS as usize) {
            let last = shape.groups.min(first + TIMED_GROUPS);
            let mut lines = 0;
            let run = |_| {
                let started = Instant::now();
                lines = (first..last).map(|group| generate(workload, launch, group)).sum();
                started.elapsed()
            };
            taken += (0..RUNS).map(run).min().unwrap_or_default();
            count += lines;
        }
    }
    taken.as_nanos() as f64 / count.max(1) as f64
}

/// Generates a work-group; the number of its lines.
fn generate(workload: &dyn Workload, launch: u32, group: u32) -> u64 {
    let (mut count, mut lines) = (0, Lines::new());
    for wave in 0..workload.launch(launch).waves {
        let mut at = Cursor { launch, group, wave, ..Cursor::default() };
        while workload.next(&mut at, &mut lines) != Instruction::End {
            count += lines.len() as u64;
            lines.clear();
        }
    }
    count
}
