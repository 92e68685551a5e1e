//! The facts in a few lines.

use crate::Facts;

/// The most of a name that is shown, in characters.
const NAME_MOST: usize = 200;

/// A name as it is shown: a page says it hundreds of times.
pub(crate) fn shown(name: &str) -> String {
    match name.char_indices().nth(NAME_MOST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// A time as people read it.
pub(crate) fn time(picoseconds: u64) -> String {
    let units = [("s", 1e12), ("ms", 1e9), ("µs", 1e6), ("ns", 1e3)];
    let value = picoseconds as f64;
    let unit = units.iter().find(|(_, size)| value >= *size);
    unit.map_or_else(
        || format!("{picoseconds} ps"),
        |(name, size)| format!("{:.1} {name}", value / size),
    )
}

/// What the runs were, and what to do.
pub fn text(runs: &[Facts]) -> String {
    runs.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn one(facts: &Facts) -> String {
    let (log, totals) = (&facts.log, &facts.totals);
    let mut text = String::new();
    let mut line = |words: String| text.extend([words.as_str(), "\n"]);
    line(format!(
        "{} ({}, {}): {} in {} events",
        log.program,
        log.machine,
        log.scheme,
        time(log.end),
        log.events
    ));
    if log.dropped > 0 {
        line(format!("  {} more events found no room in the log: counts are too low", log.dropped));
    }
    if totals.pages_not_followed > 0 {
        let pages = totals.pages_not_followed;
        line(format!("  {pages} pages changed that are too many to be followed one by one"));
    }
    line(format!(
        "  {} faults, {} pages moved ({} copied), {} evicted ({} came back), {} handed over",
        totals.faults,
        totals.pages_moved,
        totals.pages_copied,
        totals.pages_evicted,
        totals.pages_returned,
        totals.pages_handed
    ));
    line(format!(
        "  {} kernels, {} of them failed; {} allocations",
        totals.kernels, totals.kernels_failed, totals.allocations
    ));
    if facts.remedies.is_empty() {
        line("  nothing that is known to be slow was found".to_owned());
    }
    for (number, remedy) in facts.remedies.iter().enumerate() {
        line(format!("{}. {}", number + 1, remedy.evidence));
        line(format!("   do: {}", remedy.remedy));
    }
    text
}
