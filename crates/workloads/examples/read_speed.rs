//! How fast recorded traces are read, decompression and checks included, on one core.
//!
//! ```console
//! $ cargo run --release -p farside-workloads --example read_speed -- mm.emu.bin.zst bfs.emu.bin.zst
//! ```
//!
//! Each trace is read five times; the best and the median are printed, and the bytes that the
//! trace takes in memory.

use std::path::Path;
use std::time::{Duration, Instant};

use farside_workloads::{Trace, TraceError};

const REPEATS: usize = 5;

fn main() -> Result<(), TraceError> {
    for path in std::env::args_os().skip(1) {
        let path = Path::new(&path);
        let mut times = Vec::with_capacity(REPEATS);
        let mut trace = read(path, &mut times)?;
        while times.len() < REPEATS {
            trace = read(path, &mut times)?;
        }
        times.sort_unstable();
        let records = trace.accesses() + trace.markers();
        let speed = |time: Duration| records as f64 / time.as_secs_f64() / 1e6;
        println!(
            "{:12} {records:>10} records, {:.1} bytes each in memory, million a second: best \
             {:.1}, median {:.1}",
            trace.name(),
            trace.bytes() as f64 / records as f64,
            speed(times[0]),
            speed(times[REPEATS / 2]),
        );
    }
    Ok(())
}

fn read(path: &Path, times: &mut Vec<Duration>) -> Result<Trace, TraceError> {
    let start = Instant::now();
    let trace = Trace::open(path)?;
    times.push(start.elapsed());
    Ok(trace)
}
