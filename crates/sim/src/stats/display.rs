//! Outcomes as a table for people: a column per scheme.

use std::fmt;

use farside_types::Reason;

use super::{Comparison, Outcome};
use crate::screen::side_by_side;

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
        let (names, columns) = columns(std::slice::from_ref(self));
        f.write_str(&side_by_side(&names, &columns))
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut names, mut columns) = columns(&self.outcomes);
        names.push("speedup".to_owned());
        for (column, speedup) in columns.iter_mut().zip(self.speedups()) {
            column.push(format!("{speedup:.3}"));
        }
        f.write_str(&side_by_side(&names, &columns))
    }
}

/// The names of the rows, and a column per outcome.
fn columns(outcomes: &[Outcome]) -> (Vec<String>, Vec<Vec<String>>) {
    let moved =
        |outcome: &Outcome, reason| outcome.driver.by_reason.get(&reason).copied().unwrap_or(0);
    let some = |reason: &Reason| outcomes.iter().any(|outcome| moved(outcome, *reason) > 0);
    let reasons: Vec<Reason> = Reason::ALL.into_iter().filter(some).collect();
    let workload = outcomes.first().map_or("", |outcome| &outcome.trace);
    let mut names = vec![workload.to_owned(), "time".to_owned()];
    names.extend(ROWS.iter().map(|(name, _)| (*name).to_owned()));
    names.extend(reasons.iter().map(|reason| format!("pages by {reason}")));
    let column = |outcome: &Outcome| {
        let mut cells = vec![outcome.placement.clone(), outcome.time.to_string()];
        cells.extend(ROWS.iter().map(|(_, read)| read(outcome).to_string()));
        cells.extend(reasons.iter().map(|reason| moved(outcome, *reason).to_string()));
        cells
    };
    (names, outcomes.iter().map(column).collect())
}
