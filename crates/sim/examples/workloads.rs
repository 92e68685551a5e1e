//! What the generated workloads do, without a machine: footprint, launches, line accesses, share of
//! writes, pages by the number of GPUs that touch them, and the time the generator takes for a line.
//!
//! ```text
//! cargo run --release -p farside-sim --example workloads                  all, at their own sizes
//! cargo run --release -p farside-sim --example workloads -- bs=4 gemm     some; in MiB of data
//! ```
//!
//! Work-groups without a place of their own run in equal shares of consecutive ones on four GPUs.

use std::error::Error;
use std::time::Instant;

use farside_sim::workload::catalog::{NAMES, by_name};
use farside_sim::workload::profile::{Profile, in_shares};
use farside_sim::workload::{Cursor, Instruction, Lines, Workload};

/// GPUs of the machine, and compute units of each.
const GPUS: u8 = 4;
const UNITS: u8 = 64;
/// Buffers smaller than this many pages are not shown on their own.
const BUFFER_PAGES_MIN: u64 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let names = if arguments.is_empty() {
        NAMES.iter().map(|name| (*name).to_owned()).collect()
    } else {
        arguments
    };
    for name in names {
        let (name, bytes) = match name.split_once('=') {
            Some((name, megabytes)) => (name, Some(megabytes.parse::<u64>()? << 20)),
            None => (name.as_str(), None),
        };
        show(&*by_name(name, bytes)?);
    }
    Ok(())
}

fn show(workload: &dyn Workload) {
    let bytes: u64 = workload.buffers().iter().map(|buffer| buffer.bytes).sum();
    let (lines, scalar, nanoseconds) = run(workload);
    println!(
        "{:14}{:7.1} MiB, {} launches, {:.1} million lines ({:.1} % scalar), {:.1} ns a line",
        workload.name(),
        bytes as f64 / f64::from(1 << 20),
        workload.launches(),
        lines as f64 / 1e6,
        100.0 * scalar as f64 / lines as f64,
        nanoseconds as f64 / lines as f64,
    );
    let groups: Vec<u32> =
        (0..workload.launches()).map(|launch| workload.launch(launch).groups).collect();
    let profile = Profile::of_workload(workload, usize::from(GPUS), |launch, group| {
        let share = || in_shares(groups[launch as usize], GPUS, UNITS, group);
        Some(workload.place(launch, group).unwrap_or_else(share))
    });
    println!(
        "{:14}{:.1} % writes, {:.1} % to shared pages; accesses {:?}",
        "",
        profile.write_percent(),
        profile.to_shared_percent(),
        profile.accesses
    );
    println!("{:14}pages touched by 0, 1, ... GPUs: {:?}", "", profile.pages_by_sharers());
    for (buffer, sharers) in workload.buffers().iter().zip(&profile.sharers) {
        if sharers.iter().sum::<u64>() >= BUFFER_PAGES_MIN {
            println!("{:16}{:14}{sharers:?}", "", buffer.name);
        }
    }
}

/// Runs every wavefront to its end: lines, those of scalar loads, and the time it took.
fn run(workload: &dyn Workload) -> (u64, u64, u128) {
    let (mut all, mut scalar) = (0, 0);
    let mut lines = Lines::new();
    let begin = Instant::now();
    for launch in 0..workload.launches() {
        let shape = workload.launch(launch);
        for group in 0..shape.groups {
            for wave in 0..shape.waves {
                let mut at = Cursor { launch, group, wave, ..Cursor::default() };
                loop {
                    lines.clear();
                    let instruction = workload.next(&mut at, &mut lines);
                    all += lines.len() as u64;
                    match instruction {
                        Instruction::LoadScalar => scalar += lines.len() as u64,
                        Instruction::End => break,
                        _ => {}
                    }
                }
            }
        }
    }
    (all, scalar, begin.elapsed().as_nanos())
}
