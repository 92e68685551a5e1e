//! The demo's account: what happened, for people.

use std::fmt::{self, Write};

use farside::{PAGE_SIZE, Reason, Report};
use farside_types::Span;

use super::demo::{Outcome, RunOutcome};
use super::size::size;

/// Allocations listed per mode.
const BUSIEST: usize = 4;
/// Their latest moves that are listed.
const MOVES: usize = 3;

/// The whole text.
pub(crate) fn account(outcome: &Outcome) -> String {
    let mut text = String::new();
    // Writing to a string has no way to fail.
    let _ = write_account(&mut text, outcome);
    text
}

fn write_account(f: &mut String, outcome: &Outcome) -> fmt::Result {
    graph(f, outcome)?;
    workloads(f, outcome)?;
    compared(f, &outcome.runs)?;
    for run in &outcome.runs {
        busiest(f, run)?;
        trouble(f, run)?;
    }
    writeln!(
        f,
        "\nAll results equal the plain host run, ranks bit by bit. {:.1} s in all.",
        outcome.seconds
    )
}

fn graph(f: &mut String, outcome: &Outcome) -> fmt::Result {
    let graph = &outcome.graph;
    writeln!(f, "graph     {}", graph.name)?;
    writeln!(f, "          {} vertices, {} edges", graph.vertices, graph.edges)?;
    if let Some(index) = &graph.index {
        writeln!(
            f,
            "          {} packages with {} dependencies as written",
            index.packages, index.dependencies_written
        )?;
    }
    writeln!(
        f,
        "search    from {}: {} vertices lead to it, the farthest over {} edges",
        graph.source,
        graph.reached - 1,
        graph.levels - 1
    )?;
    let ranked = graph.highest.iter().map(|v| format!("{} {:.4}", v.name, v.rank));
    writeln!(f, "rank      {}", ranked.collect::<Vec<_>>().join(", "))?;
    writeln!(
        f,
        "machine   {} cards of {}, placement {}, {}",
        outcome.cards,
        size(outcome.card_memory_bytes),
        outcome.placement,
        if outcome.advice { "ranks advised as mostly read" } else { "no advice" }
    )?;
    if outcome.places.is_empty() {
        return Ok(());
    }
    writeln!(f, "          the cards are at {}", outcome.places.join(", "))
}

fn workloads(f: &mut String, outcome: &Outcome) -> fmt::Result {
    writeln!(
        f,
        "\n{:<14} {:<10} {:>9} {:>9}   {:>8} {:>8} {:>8}   {:>7} {:>7} {:>6}",
        "", "", "", "host", "pages", "pages", "pages", "card", "fault", "host"
    )?;
    writeln!(
        f,
        "{:<14} {:<10} {:>9} {:>9}   {:>8} {:>8} {:>8}   {:>7} {:>7} {:>6}  result",
        "workload",
        "pages move",
        "time",
        "alone",
        "h→c",
        "c→h",
        "c→c",
        "faults",
        "batches",
        "faults"
    )?;
    let names = outcome.runs.first().map_or(0, |run| run.workloads.len());
    for index in 0..names {
        for (row, run) in outcome.runs.iter().enumerate() {
            let w = &run.workloads[index];
            let name = if row == 0 { w.name } else { "" };
            writeln!(
                f,
                "{name:<14} {:<10} {:>9} {:>9}   {:>8} {:>8} {:>8}   {:>7} {:>7} {:>6}  {}",
                run.mode.name(),
                seconds(w.seconds),
                if row == 0 { seconds(w.host_seconds) } else { String::new() },
                w.pages.host_to_card,
                w.pages.card_to_host,
                w.pages.card_to_card,
                w.card_faults,
                w.fault_batches,
                w.host_faults,
                if w.exact { "exact" } else { "differs" },
            )?;
        }
    }
    writeln!(f, "{NOTE}")?;
    let in_program = outcome.places.is_empty();
    writeln!(f, "{}", if in_program { CARDS_HERE } else { CARDS_ELSEWHERE })
}

const NOTE: &str = "\
h host, c card. host alone: one thread on ordinary memory, CSR (PageRank: turning the edges round";

const CARDS_HERE: &str = "\
included). The cards are threads of this program: times show what moving pages costs, not what
accelerators gain.";

const CARDS_ELSEWHERE: &str = "\
included). The cards are not in this program: times show what they and the way to them cost.";

/// One value of a report, to be set beside that of the other mode.
type Row = (&'static str, fn(&Report) -> String);

const PAGES: [Row; 4] = [
    ("host → card", |r| pages(r.directions.host_to_card)),
    ("card → host", |r| pages(r.directions.card_to_host)),
    ("card → card", |r| pages(r.directions.card_to_card)),
    ("zero filled", |r| pages(r.directions.zero_filled)),
];

const EVENTS: [Row; 7] = [
    ("card faults", |r| r.stats.card_faults.to_string()),
    ("  in batches", |r| r.stats.fault_batches.to_string()),
    ("  only lacked a TLB entry", |r| r.stats.refills.to_string()),
    ("  for more rights", |r| r.stats.protection_faults.to_string()),
    ("host faults", |r| r.stats.host_faults.to_string()),
    ("migrations (chains)", |r| r.stats.chains.to_string()),
    ("round trips waited for", |r| r.stats.awaited_trips.to_string()),
];

const TIMES: [Row; 4] = [
    ("setup", |r| share(r, r.times.setup)),
    ("allocate", |r| share(r, r.times.allocate)),
    ("copy", |r| share(r, r.times.copy)),
    ("finalize", |r| share(r, r.times.finalize)),
];

/// The modes beside each other.
fn compared(f: &mut String, runs: &[RunOutcome]) -> fmt::Result {
    let title = |f: &mut String, what: &str| {
        write!(f, "\n{what:<26}")?;
        runs.iter().try_for_each(|run| write!(f, " {:>24}", run.mode.name()))?;
        writeln!(f)
    };
    title(f, "pages moved, by direction")?;
    PAGES.iter().try_for_each(|row| line(f, row.0, runs, row.1))?;
    title(f, "pages moved, by reason")?;
    for reason in Reason::ALL {
        let moved = |report: &Report| report.stats.by_reason.get(&reason).copied().unwrap_or(0);
        if runs.iter().any(|run| moved(&run.report) > 0) {
            line(f, reason.name(), runs, |report| pages(moved(report)))?;
        }
    }
    title(f, "faults and migrations")?;
    EVENTS.iter().try_for_each(|row| line(f, row.0, runs, row.1))?;
    title(f, "time in migrations")?;
    TIMES.iter().try_for_each(|row| line(f, row.0, runs, row.1))
}

fn line(
    f: &mut String,
    name: &str,
    runs: &[RunOutcome],
    value: impl Fn(&Report) -> String,
) -> fmt::Result {
    write!(f, "  {name:<24}")?;
    runs.iter().try_for_each(|run| write!(f, " {:>24}", value(&run.report)))?;
    writeln!(f)
}

fn busiest(f: &mut String, run: &RunOutcome) -> fmt::Result {
    writeln!(f, "\nmoved most, {} (times since the space was opened)", run.mode.name())?;
    for busy in run.report.busiest.iter().take(BUSIEST) {
        let object = &busy.object;
        let name = if object.name.is_empty() { "(unnamed)" } else { &object.name };
        writeln!(
            f,
            "  {name}: {} page moves in {} pages; the latest",
            object.pages_moved, object.range.count
        )?;
        for moved in busy.moves.iter().rev().take(MOVES).rev() {
            let first = moved.range.start.0.saturating_sub(object.range.start.0);
            let last = first + moved.range.count.max(1) - 1;
            let from = moved.from.map_or_else(|| "zeros".to_owned(), |from| from.to_string());
            writeln!(
                f,
                "    {:>9.3} ms  pages {first}-{last}: {from} → {} ({})",
                moved.at.0 as f64 / 1e9,
                moved.to,
                moved.reason
            )?;
        }
    }
    Ok(())
}

fn trouble(f: &mut String, run: &RunOutcome) -> fmt::Result {
    for fight in run.report.fights.iter().take(BUSIEST) {
        let name = if fight.object.is_empty() { "(unnamed)" } else { &fight.object };
        let agents: Vec<String> = fight.fight.agents.iter().map(|a| a.to_string()).collect();
        let agents = match agents.as_slice() {
            [alone] => alone.clone(),
            [first, second] => format!("{first} and {second}"),
            [first, .., last] => format!("{first} to {last} ({} agents)", agents.len()),
            [] => "nobody".to_owned(),
        };
        writeln!(
            f,
            "  fought over: {} of {name} by {}: held back {} times, pinned {} times",
            fight.fight.page, agents, fight.fight.throttles, fight.fight.pins
        )?;
    }
    for (card, pages) in &run.report.suspects {
        writeln!(f, "  {card} did not let {pages} go in time: its kernel hangs")?;
    }
    Ok(())
}

fn pages(count: u64) -> String {
    format!("{count} ({})", size(count * PAGE_SIZE as u64))
}

fn share(report: &Report, part: Span) -> String {
    let t = report.times;
    let all = (t.setup + t.allocate + t.copy + t.finalize).0.max(1);
    format!("{part} ({:>2.0} %)", 100.0 * part.0 as f64 / all as f64)
}

fn seconds(seconds: f64) -> String {
    Span::from_nanos((seconds * 1e9) as u64).to_string()
}
