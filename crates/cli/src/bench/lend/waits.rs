//! How long a card is waited for: when it is borrowed, and when its borrower is gone.

use std::time::{Duration, Instant};

use farside::CardId;
use farside_card::interface::register;
use farside_live::ring_card::connect;
use rustix::process::Signal;

use super::super::{BenchError, Effort, Row, Target, median};
use super::hosts::{Hosts, LIMIT};

/// A lease whose borrower falls silent.
const SHORT_LEASE: Duration = Duration::from_secs(1);
/// Borrowers that are stopped or killed, at most: each takes seconds.
const ENDS_MAX: usize = 3;

pub(super) fn run(effort: Effort, hosts: &Hosts) -> Result<Vec<Row>, BenchError> {
    hosts.await_free(Instant::now())?;
    let near = first_access(effort, hosts, "a")?;
    let far = first_access(effort, hosts, "b")?;
    let what = "from asking the daemon to the first register of the card";
    let local = format!("{what}; handed to the program");
    let millis = |seconds: f64| seconds * 1e3;
    let ends = effort.samples.min(ENDS_MAX);
    let killed = median(samples(ends, || killed(hosts))?);
    hosts.set_lease(SHORT_LEASE)?;
    let silent = median(samples(ends, || silent(hosts))?);
    let lease = SHORT_LEASE.as_secs_f64();
    Ok(vec![
        Row::new("borrow to first access, local", millis(near), Target::AtMost(20.0), "ms", local),
        Row::new(
            "borrow to first access, remote",
            millis(far),
            Target::AtMost(100.0),
            "ms",
            format!("{what}; both hosts on this machine"),
        ),
        Row::new(
            "borrower killed, until lendable",
            killed,
            Target::AtMost(1.0),
            "s",
            "reset, memory replaced".to_owned(),
        ),
        Row::new(
            "borrower silent, until lendable",
            silent,
            Target::AtMost(lease + 1.0),
            "s",
            format!("a lease of {lease:.0} s, and 1 s; counted from when it was stopped"),
        ),
    ])
}

fn samples(
    count: usize,
    mut body: impl FnMut() -> Result<f64, BenchError>,
) -> Result<Vec<f64>, BenchError> {
    (0..count).map(|_| body()).collect()
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
