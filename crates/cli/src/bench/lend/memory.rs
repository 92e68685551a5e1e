//! How much memory a daemon takes.

use std::time::{Duration, Instant};

use super::super::Target::AtMost;
use super::super::{BenchError, Effort, Row};
use super::hosts::{Hosts, failed};

/// What was promised, in MiB.
const PROMISED: f64 = 64.0;
/// Borrows and returns, and how many are a look.
const BORROWS: usize = 1_000;
const LOOK: usize = 50;
/// Samples from which on it is more than a look.
const SAMPLES_MIN: usize = 3;
/// Hosts that a daemon knows, of which none answers.
const PEERS: usize = 100;
/// How long it tries them.
const TRYING: Duration = Duration::from_secs(5);

pub(super) fn run(effort: Effort, hosts: &Hosts) -> Result<Vec<Row>, BenchError> {
    let idle = mib(hosts.start_daemon("idle", 0)?)?;
    let knowing = hosts.start_daemon("knowing", PEERS)?;
    let began = Instant::now();
    let borrows = if effort.samples < SAMPLES_MIN { LOOK } else { BORROWS };
    for _ in 0..borrows {
        drop(hosts.borrow("b")?);
        hosts.await_free(Instant::now())?;
    }
    let took = began.elapsed();
    let [lender, borrower] = hosts.daemons().map(mib);
    let (lender, borrower) = (lender?, borrower?);
    std::thread::sleep(TRYING.saturating_sub(took));
    let row = |name: String, reached, detail: String| {
        Row::new(name, reached, AtMost(PROMISED), "MiB", detail)
    };
    Ok(vec![
        row("memory of a daemon, idle".to_owned(), idle, "resident, just started".to_owned()),
        row(
            format!("memory of a daemon after {borrows} borrows and returns"),
            lender.max(borrower),
            format!(
                "resident: the lender's {lender:.1}, the borrower's {borrower:.1} MiB, after all \
                 measurements before too; {:.1} s for these borrows",
                took.as_secs_f64()
            ),
        ),
        row(
            format!("memory of a daemon that knows {PEERS} hosts"),
            mib(knowing)?,
            "resident; it calls them, and none answers".to_owned(),
        ),
    ])
}

/// What is resident of a process, in MiB.
fn mib(pid: u32) -> Result<f64, BenchError> {
    Ok(of_process(&pid.to_string(), "VmRSS:")? as f64 / f64::from(1 << 20))
}

/// Bytes that the kernel says of a process.
pub(super) fn of_process(process: &str, name: &str) -> Result<u64, BenchError> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kilobytes.ok_or_else(|| failed(&format!("the kernel does not say {name}")))? << 10)
}
