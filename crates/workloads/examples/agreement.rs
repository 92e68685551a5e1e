//! Compares the generated workloads with recorded traces of the same kernels at the same sizes,
//! with the recorded placement of work-groups:
//!
//! ```text
//! cargo run --release -p farside-workloads --example agreement -- DIRECTORY
//! ```
//!
//! DIRECTORY holds `NAME.emu.bin.zst` or `NAME.timing.bin.zst` with the JSON beside each, for the
//! names of [`CASES`]; those that are missing are skipped. Ends with an error if an agreed number
//! is missed.

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use farside_workloads::Trace;
use farside_workloads::bfs::{Bfs, Sharing};
use farside_workloads::fir::Fir;
use farside_workloads::mm::{Mm, RowsOfA};
use farside_workloads::profile::{Profile, in_shares};
use farside_workloads::st::St;
use farside_workloads::{Place, Workload};

/// A recorded trace, and the workload that must agree with it.
struct Case {
    trace: &'static str,
    /// Allocations of data; those after them are the kernels'.
    data: usize,
    build: fn() -> Arc<dyn Workload>,
    /// Whether the numbers are promised, or only shown.
    promised: bool,
}

const CASES: &[Case] = &[
    Case { trace: "fir.emu", data: 4, build: || Arc::new(Fir::new(32 << 20)), promised: true },
    Case { trace: "fir.timing", data: 4, build: || Arc::new(Fir::new(1 << 20)), promised: true },
    Case {
        trace: "mm.emu",
        data: 3,
        build: || Arc::new(Mm::new(12 << 20, RowsOfA::First)),
        promised: true,
    },
    Case {
        trace: "mm.timing",
        data: 3,
        build: || Arc::new(Mm::new(3 << 20, RowsOfA::First)),
        promised: true,
    },
    Case { trace: "st.emu", data: 2, build: || Arc::new(St::new(33_849_600, 5)), promised: true },
    Case { trace: "st.timing", data: 2, build: || Arc::new(St::new(2_171_136, 3)), promised: true },
    Case {
        trace: "bfs.emu",
        data: 4,
        build: || Arc::new(Bfs::new(12 << 20, Sharing::Levels)),
        promised: false,
    },
];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Some(directory) = std::env::args().nth(1) else {
        return Err("usage: agreement DIRECTORY, which holds the recorded traces".into());
    };
    let mut good = true;
    for case in CASES {
        let path = Path::new(&directory).join(format!("{}.bin.zst", case.trace));
        if !path.exists() {
            println!("{}: not there", case.trace);
            continue;
        }
        good &= compare(case, &path)? || !case.promised;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the comparison; whether all numbers are within what is agreed.
fn compare(case: &Case, path: &Path) -> Result<bool, Box<dyn Error>> {
    let workload = (case.build)();
    let trace = Trace::open(path)?;
    let (gpus, units) = (trace.gpus(), trace.compute_units());
    let placed = placement(&*workload, path, gpus as u8, units as u8)?;
    let recorded = Profile::of_trace(&trace, case.data);
    let generated = Profile::of_workload(&*workload, gpus, |launch, group| {
        placed[launch as usize].get(group as usize).copied().flatten()
    });
    println!("{:<30} {:>12} {:>12} {:>8}", case.trace, "recorded", "generated", "deviates");
    let mut good = true;
    let mut row = |what: &str, recorded: f64, generated: f64, deviation: f64, limit: f64| {
        let verdict = if deviation.abs() <= limit { "" } else { "  MISSED" };
        good &= verdict.is_empty();
        println!("  {what:<28} {recorded:>12.2} {generated:>12.2} {deviation:>+8.2}{verdict}");
    };
    let percent = |recorded: u64, generated: u64| {
        100.0 * (generated as f64 - recorded as f64) / (recorded.max(1) as f64)
    };
    for (gpu, (&a, &b)) in recorded.accesses.iter().zip(&generated.accesses).enumerate() {
        row(&format!("accesses of GPU {gpu}"), a as f64, b as f64, percent(a, b), 2.0);
    }
    let (a, b) = (recorded.pages_by_sharers(), generated.pages_by_sharers());
    let shared = a.iter().zip(&b).enumerate().skip(1);
    for (sharers, (&a, &b)) in shared.filter(|(_, pages)| pages != &(&0, &0)) {
        let what = format!("pages touched by {sharers} GPUs");
        row(&what, a as f64, b as f64, percent(a, b), 2.0);
    }
    let (a, b) = (recorded.write_percent(), generated.write_percent());
    row("writes in percent", a, b, b - a, 1.0);
    let (a, b) = (recorded.to_shared_percent(), generated.to_shared_percent());
    row("accesses to shared pages, %", a, b, b - a, 1.0);
    Ok(good)
}

/// Where each work-group of each launch ran: as the trace's markers say; a trace without markers
/// was recorded with equal shares of consecutive work-groups.
fn placement(
    workload: &dyn Workload,
    path: &Path,
    gpus: u8,
    units: u8,
) -> Result<Vec<Vec<Option<Place>>>, Box<dyn Error>> {
    let groups = |launch| workload.launch(launch).groups;
    let empty = |launch| vec![None; groups(launch) as usize];
    let mut placed: Vec<Vec<Option<Place>>> = (0..workload.launches()).map(empty).collect();
    let mut markers = 0;
    let mut stream = BufReader::new(zstd::Decoder::new(File::open(path)?)?);
    let mut record = [0; 16];
    while stream.read_exact(&mut record).is_ok() {
        let [word @ .., _, _, _, _, gpu, unit, flags, _] = record;
        if flags & 0x80 == 0 {
            continue;
        }
        let word = u64::from_le_bytes(word);
        let (launch, group) = (word >> 40, (word & 0xff_ffff_ffff) >> 8);
        let groups = placed.get_mut(launch as usize - 1).ok_or("a launch too many is recorded")?;
        let place = groups.get_mut(group as usize).ok_or("a work-group too many is recorded")?;
        *place = Some(Place { gpu, unit });
        markers += 1;
    }
    if markers == 0 {
        for (launch, groups) in placed.iter_mut().enumerate() {
            let count = workload.launch(launch as u32).groups;
            let place = |group| Some(in_shares(count, gpus, units, group));
            *groups = (0..count).map(place).collect();
        }
    }
    Ok(placed)
}
