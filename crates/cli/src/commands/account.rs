//! The demo's account: what happened, for people.

use std::fmt::{self, Write};
use std::path::PathBuf;

use farside::{CardAccount, Flow, PAGE_SIZE, Reason, Report};
use farside_types::Span;

use super::demo::{Outcome, RunOutcome};
use super::size::size;
use super::text::{paragraph, row, table};

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
    files(f, &outcome.runs)?;
    writeln!(
        f,
        "\nAll results equal the plain host run, ranks bit by bit. {:.1} s in all.",
        outcome.seconds
    )
}

fn graph(f: &mut String, outcome: &Outcome) -> fmt::Result {
    let graph = &outcome.graph;
    f.push_str(&paragraph("graph     ", &graph.name));
    writeln!(f, "          {} vertices, {} edges", graph.vertices, graph.edges)?;
    if let Some(index) = &graph.index {
        writeln!(
            f,
            "          {} packages with {} dependencies as written",
            index.packages, index.dependencies_written
        )?;
    }
    let search = format!(
        "from {}: {} vertices lead to it, the farthest over {} edges",
        graph.source,
        graph.reached - 1,
        graph.levels - 1
    );
    f.push_str(&paragraph("search    ", &search));
    let ranked = graph.highest.iter().map(|v| format!("{} {:.4}", v.name, v.rank));
    f.push_str(&paragraph("rank      ", &ranked.collect::<Vec<_>>().join(", ")));
    let advice = if outcome.advice { "ranks advised as mostly read" } else { "no advice" };
    let memory = size(outcome.card_memory_bytes);
    let machine =
        format!("{} cards of {memory}, placement {}, {advice}", outcome.cards, outcome.placement);
    f.push_str(&paragraph("machine   ", &machine));
    outcome.places.iter().try_for_each(|place| writeln!(f, "          at {place}"))
}

fn workloads(f: &mut String, outcome: &Outcome) -> fmt::Result {
    let mut rows = vec![
        row(["", "", "", "host", "", "", "", "card", "host"]),
        row(["workload", "mode", "time", "alone", "h→c", "c→h", "c→c", "faults", "faults"]),
    ];
    let names = outcome.runs.first().map_or(0, |run| run.workloads.len());
    for index in 0..names {
        for (number, run) in outcome.runs.iter().enumerate() {
            let w = &run.workloads[index];
            let first = number == 0;
            rows.push(vec![
                if first { w.name.to_owned() } else { String::new() },
                run.mode.name().to_owned(),
                seconds(w.seconds),
                if first { seconds(w.host_seconds) } else { String::new() },
                w.pages.host_to_card.to_string(),
                w.pages.card_to_host.to_string(),
                w.pages.card_to_card.to_string(),
                w.card_faults.to_string(),
                w.host_faults.to_string(),
            ]);
        }
    }
    write!(f, "\n{}", table("llrrrrrrr", rows))?;
    let cards = if outcome.places.is_empty() { CARDS_HERE } else { CARDS_ELSEWHERE };
    f.push_str(&paragraph("", &format!("{NOTE} {cards}")));
    Ok(())
}

const NOTE: &str = "Pages moved: h host, c card. Host alone: one thread on ordinary memory, CSR (PageRank: \
    turning the edges round included).";

const CARDS_HERE: &str = "The cards are threads of this program: times show what moving pages \
    costs, not what accelerators gain.";

const CARDS_ELSEWHERE: &str =
    "The cards are not in this program: times show what they and the way to them cost.";

/// One value of a report, to be set beside that of the other mode.
type Row = (&'static str, fn(&Report) -> String);

const PAGES: [Row; 4] = [
    ("host → card", |r| pages(r.directions.host_to_card)),
    ("card → host", |r| pages(r.directions.card_to_host)),
    ("card → card", |r| pages(r.directions.card_to_card)),
    ("zero filled", |r| pages(r.directions.zero_filled)),
];

const SPEEDS: [Row; 3] = [
    ("host → card", |r| speed(r.traffic.host_to_card)),
    ("card → host", |r| speed(r.traffic.card_to_host)),
    ("card → card", |r| speed(r.traffic.card_to_card)),
];

const EVENTS: [Row; 17] = [
    ("card faults", |r| r.stats.card_faults.to_string()),
    ("  in batches", |r| r.stats.fault_batches.to_string()),
    ("  only lacked a TLB entry", |r| r.stats.refills.to_string()),
    ("  for more rights", |r| r.stats.protection_faults.to_string()),
    ("host faults", |r| r.stats.host_faults.to_string()),
    ("migrations (chains)", |r| r.stats.chains.to_string()),
    ("round trips waited for", |r| r.stats.awaited_trips.to_string()),
    ("pages evicted", |r| r.stats.evictions.to_string()),
    ("  without a copy", |r| r.stats.clean_departures.to_string()),
    ("  that spared others", |r| r.stats.spared.to_string()),
    ("pages lent", |r| r.stats.lent.to_string()),
    ("  written without a fault", |r| r.stats.lent_written.to_string()),
    ("  back without a copy", |r| r.stats.lent_clean.to_string()),
    ("fights settled", |r| r.stats.settled_fights.to_string()),
    ("pages taken from running cards", |r| r.stats.taken_from_running.to_string()),
    ("walks of cards' tables", |r| of_cards(r, |card| card.walks)),
    ("accesses over the bus", |r| of_cards(r, |card| card.remote_accesses)),
];

const TIMES: [Row; 5] = [
    ("planning", |r| share(r, r.times.plan)),
    ("commands to cards", |r| share(r, r.times.command)),
    ("setup", |r| share(r, r.times.setup)),
    ("copy", |r| share(r, r.times.copy)),
    ("finalize", |r| share(r, r.times.finalize)),
];

/// The modes beside each other.
fn compared(f: &mut String, runs: &[RunOutcome]) -> fmt::Result {
    let line = |name: &str, value: &dyn Fn(&Report) -> String| {
        let values = runs.iter().map(|run| value(&run.report));
        std::iter::once(format!("  {name}")).chain(values).collect::<Vec<_>>()
    };
    let fixed = |rows: &[Row]| rows.iter().map(|(name, value)| line(name, value)).collect();
    let moved = |report: &Report, reason| report.stats.by_reason.get(&reason).copied().unwrap_or(0);
    let some = |reason: &Reason| runs.iter().any(|run| moved(&run.report, *reason) > 0);
    let reasons = Reason::ALL.into_iter().filter(some);
    let reasons = reasons.map(|it| line(it.name(), &|report| pages(moved(report, it)))).collect();
    let parts: [(&str, Vec<Vec<String>>); 5] = [
        ("pages moved, by direction", fixed(&PAGES)),
        ("pages moved, by reason", reasons),
        ("speed while copied", fixed(&SPEEDS)),
        ("faults and migrations", fixed(&EVENTS)),
        ("time in migrations", fixed(&TIMES)),
    ];
    let kinds = "l".to_owned() + &"r".repeat(runs.len());
    let mut rows = Vec::new();
    for (title, part) in parts {
        let modes = runs.iter().map(|run| run.mode.name().to_owned());
        rows.push(Vec::new());
        rows.push(std::iter::once(title.to_owned()).chain(modes).collect());
        rows.extend(part);
    }
    f.push_str(&table(&kinds, rows));
    Ok(())
}

fn busiest(f: &mut String, run: &RunOutcome) -> fmt::Result {
    writeln!(f, "\nmoved most, {} (times since the space was opened)", run.mode.name())?;
    for busy in run.report.busiest.iter().take(BUSIEST) {
        let object = &busy.object;
        let name = if object.name.is_empty() { "(unnamed)" } else { &object.name };
        let moves = format!("{} page moves in {} pages", object.pages_moved, object.range.count);
        f.push_str(&paragraph("  ", &format!("{name}: {moves}; the latest")));
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
    for slow in &run.report.slow {
        f.push_str(&paragraph("  slow: ", &slow.reason));
        f.push_str(&paragraph("    do: ", &slow.remedy.to_string()));
    }
    for fight in run.report.fights.iter().take(BUSIEST) {
        f.push_str(&paragraph("  fought over: ", &fight.to_string()));
    }
    for (card, pages) in &run.report.suspects {
        writeln!(f, "  {card} did not let {pages} go in time: its kernel hangs")?;
    }
    Ok(())
}

/// What was written, and who reads it.
fn files(f: &mut String, runs: &[RunOutcome]) -> fmt::Result {
    type File = fn(&RunOutcome) -> Option<&PathBuf>;
    let kinds: [(&str, File, &str); 2] = [
        (
            "event log",
            |run| run.events.as_ref(),
            "`farside report FILE -o page.html` makes a page of one",
        ),
        (
            "recording",
            |run| run.recording.as_ref(),
            "`farside replay --functional FILE` and `farside sim --trace FILE` run one",
        ),
    ];
    for (kind, file, readers) in kinds {
        let files = runs.iter().filter_map(|run| Some((run.mode.name(), file(run)?)));
        let files: Vec<_> = files.collect();
        if files.is_empty() {
            continue;
        }
        writeln!(f)?;
        for (mode, file) in files {
            writeln!(f, "{kind} {mode}: {}", file.display())?;
        }
        f.push_str(&paragraph("  ", readers));
    }
    Ok(())
}

fn pages(count: u64) -> String {
    format!("{count} ({})", size(count * PAGE_SIZE as u64))
}

fn speed(flow: Flow) -> String {
    flow.bandwidth().map_or_else(|| "–".to_owned(), |speed| format!("{:.2} GB/s", speed / 1e9))
}

/// A counter of the cards in this program; those of others are in their registers.
fn of_cards(report: &Report, counter: fn(&CardAccount) -> u64) -> String {
    match report.cards.is_empty() {
        true => "–".to_owned(),
        false => report.cards.iter().map(counter).sum::<u64>().to_string(),
    }
}

fn share(report: &Report, part: Span) -> String {
    let t = report.times;
    let all = (t.plan + t.command + t.setup + t.copy + t.finalize).0.max(1);
    format!("{part} ({:>2.0} %)", 100.0 * part.0 as f64 / all as f64)
}

fn seconds(seconds: f64) -> String {
    Span::from_nanos((seconds * 1e9) as u64).to_string()
}
