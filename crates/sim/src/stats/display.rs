//! Outcomes as a table for people: a column per scheme.

use std::fmt;

use farside_types::Reason;

use super::{Comparison, Outcome};

/// One line of the table: a name and how it is read off an outcome.
type Row = (&'static str, fn(&Outcome) -> u64);

const ROWS: [Row; 21] = [
    ("accesses", |o| o.total.accesses()),
    ("  local", |o| o.total.local),
    ("  remote", |o| o.total.remote),
    ("page table walks", |o| o.total.walks),
    ("faults", |o| o.total.faults),
    ("  protection", |o| o.total.protection_faults),
    ("accesses that wait", |o| o.total.faulted_accesses),
    ("  mean wait, ns", |o| o.total.fault_wait.as_nanos() / o.total.faulted_accesses.max(1)),
    ("fault batches", |o| o.driver.fault_batches),
    ("counter notices", |o| o.total.notices),
    ("migrations", |o| o.driver.migrations),
    ("duplications", |o| o.driver.duplications),
    ("collapses", |o| o.driver.collapses),
    ("evictions", |o| o.driver.evictions),
    ("remote maps", |o| o.driver.remote_maps),
    ("pages host->card", |o| o.driver.by_direction().host_to_card),
    ("pages card->host", |o| o.driver.by_direction().card_to_host),
    ("pages card->card", |o| o.driver.by_direction().card_to_card),
    ("awaited trips", |o| o.driver.awaited_trips),
    ("driver busy, us", |o| o.host_busy.as_nanos() / 1_000),
    ("cycles", |o| o.cycles),
];

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table(f, std::slice::from_ref(self))
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table(f, &self.outcomes)?;
        write!(f, "{:<18}", "speedup")?;
        for speedup in self.speedups() {
            write!(f, " {speedup:>15.3}")?;
        }
        writeln!(f)
    }
}

fn table(f: &mut fmt::Formatter<'_>, outcomes: &[Outcome]) -> fmt::Result {
    let Some(first) = outcomes.first() else {
        return Ok(());
    };
    line(f, &first.trace, outcomes.iter().map(|outcome| outcome.placement.clone()))?;
    line(f, "time", outcomes.iter().map(|outcome| outcome.time.to_string()))?;
    for (name, read) in ROWS {
        line(f, name, outcomes.iter().map(|outcome| read(outcome).to_string()))?;
    }
    for reason in Reason::ALL {
        let moved = |outcome: &Outcome| outcome.driver.by_reason.get(&reason).copied();
        if outcomes.iter().any(|outcome| moved(outcome).is_some_and(|pages| pages > 0)) {
            let pages = outcomes.iter().map(|outcome| moved(outcome).unwrap_or(0).to_string());
            line(f, &format!("pages by {reason}"), pages)?;
        }
    }
    Ok(())
}

fn line(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    cells: impl Iterator<Item = String>,
) -> fmt::Result {
    write!(f, "{name:<18}")?;
    for cell in cells {
        write!(f, " {cell:>15}")?;
    }
    writeln!(f)
}
