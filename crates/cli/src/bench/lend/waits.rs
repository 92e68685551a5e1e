//! How long a card is waited for, in starts of a program and in leases: when it is borrowed, and when its
//! borrower is gone.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use farside::CardId;
use farside_card::interface::register;
use farside_live::ring_card::connect;
use rustix::process::Signal;

use super::super::{BenchError, Effort, Row, Target, median, timed};
use super::hosts::{Hosts, LIMIT};

/// A lease whose borrower falls silent.
const SHORT_LEASE: Duration = Duration::from_secs(1);
/// Borrowers that are stopped or killed, at most: each takes seconds.
const ENDS_MAX: usize = 3;

pub(super) fn run(effort: Effort, hosts: &Hosts) -> Result<Vec<Row>, BenchError> {
    hosts.await_free(Instant::now())?;
    let near = first_access(effort, hosts, "a")?;
    let far = first_access(effort, hosts, "b")?;
    let start = program_start(effort)?;
    let what = "from asking the daemon to the first register of the card";
    let row = |name: &'static str, seconds: f64, most, what: &str| {
        let millis = |seconds: f64| seconds * 1e3;
        let detail = format!(
            "{:.1} ms {what}; to start and end a program {:.1} ms",
            millis(seconds),
            millis(start)
        );
        Row::new(name, seconds / start, Target::AtMost(most), "x program start", detail)
    };
    let ends = effort.samples.min(ENDS_MAX);
    let killed = median(samples(ends, || killed(hosts))?);
    hosts.set_lease(SHORT_LEASE)?;
    let silent = median(samples(ends, || silent(hosts))?);
    let lease = SHORT_LEASE.as_secs_f64();
    Ok(vec![
        row("borrow to first access, local", near, 10.0, what),
        row("borrow to first access, remote", far, 50.0, &format!("{what}, over the loopback")),
        row("borrower killed, until lendable", killed, 10.0, "to reset it and replace its memory"),
        Row::new(
            "borrower silent, until lendable",
            silent / lease,
            Target::AtMost(2.0),
            "x lease",
            format!("{silent:.3} s from when it was stopped; a lease of {lease:.0} s"),
        ),
    ])
}

fn samples(
    count: usize,
    mut body: impl FnMut() -> Result<f64, BenchError>,
) -> Result<Vec<f64>, BenchError> {
    (0..count).map(|_| body()).collect()
}

/// Seconds to start this program with nothing to do, and to wait for its end.
fn program_start(effort: Effort) -> Result<f64, BenchError> {
    let program = std::env::current_exe()?;
    let one = || {
        let mut command = Command::new(&program);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null());
        let mut ended = Ok(());
        let seconds = timed(|| ended = command.status().map(drop));
        ended?;
        Ok(seconds)
    };
    Ok(median(samples(4 * effort.samples, one)?))
}

/// Seconds from asking to the first register.
fn first_access(effort: Effort, hosts: &Hosts, host: &str) -> Result<f64, BenchError> {
    let one = || {
        let begun = Instant::now();
        let (borrowing, place) = hosts.borrow(host)?;
        let (card, _) = connect(CardId(0), &place, LIMIT)?;
        card.read(register::FRAMES, &mut [0; 4])?;
        let seconds = begun.elapsed().as_secs_f64();
        drop((card, borrowing));
        hosts.await_free(Instant::now())?;
        Ok(seconds)
    };
    Ok(median(samples(effort.samples, one)?))
}

/// Seconds from when a borrower was killed.
fn killed(hosts: &Hosts) -> Result<f64, BenchError> {
    let command = hosts.hold()?;
    let begun = Instant::now();
    hosts.kill(command);
    Ok(hosts.await_free(begun)?.as_secs_f64())
}

/// Seconds from when a borrower and its host fell silent.
fn silent(hosts: &Hosts) -> Result<f64, BenchError> {
    let command = hosts.hold()?;
    let begun = Instant::now();
    hosts.signal_borrower(command, Signal::STOP);
    let free = hosts.await_free(begun);
    hosts.signal_borrower(command, Signal::CONT);
    hosts.kill(command);
    Ok(free?.as_secs_f64())
}
