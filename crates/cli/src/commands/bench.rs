//! `farside bench`: the promised numbers.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use clap::Args;
use farside_cli::reproduce::{DRAW, Report};
use serde::Serialize;

use super::Failure;
use super::output::{print, print_json};
use super::progress::bar;
use super::sweep::this_program;
use super::text::{paragraph, table};
use crate::bench::against::{CHANCE, Compared, Comparison, Verdict, compare, pair};
use crate::bench::{ALL, Effort, Row, Standing, Target};

/// Measure every promised number beside its limit, in one run
///
/// Each time is a ratio of medians: what Farside needs against a bare userfaultfd handler, a copy of
/// the same pages, a bare call, a load that misses every cache or a plain thread, on this machine, at
/// this moment. What is counted (calls, moves, bytes) is promised as a number; --json has all counts.
/// Threads are pinned. A number that falls short is marked MISS; the command itself fails only if
/// something cannot be measured.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// Groups to measure; all of them unless named
    #[arg(value_name = "GROUP", value_parser = groups())]
    groups: Vec<String>,
    /// Samples per number; more take longer and say more
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    samples: u16,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Where the reports of `migrate` and `schemes` go, a folder each
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Compare with another `farside`, an older one for example: both measure by turns
    #[arg(long, value_name = "PROGRAM", conflicts_with = "out")]
    against: Option<PathBuf>,
    /// How many turns each of them gets
    #[arg(long, default_value = "11", requires = "against")]
    pairs: NonZeroU16,

    #[command(flatten)]
    _no_events: super::events::NoEvents,
}

#[derive(Serialize)]
struct Json {
    rows: Vec<Row>,
    /// By the name of its group: tables and figures, where a group has them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    reports: BTreeMap<&'static str, Report>,
}

fn groups() -> Vec<&'static str> {
    ALL.iter().map(|bench| bench.name).collect()
}

impl Bench {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if let Some(other) = &self.against {
            return self.compare_with(other);
        }
        let effort = Effort { samples: self.samples.into() };
        let wanted = |name: &str| self.groups.is_empty() || self.groups.iter().any(|g| g == name);
        let (mut rows, mut reports) = (Vec::new(), BTreeMap::new());
        for bench in ALL.iter().filter(|bench| wanted(bench.name)) {
            let outcome = (bench.run)(effort)?;
            if !self.json {
                for row in &outcome.rows {
                    print(&text(row))?;
                }
                print(&outcome.text)?;
            }
            if let (Some(report), Some(folder)) = (&outcome.report, &self.out) {
                report.write(&folder.join(bench.name))?;
            }
            rows.extend(outcome.rows);
            reports.extend(outcome.report.map(|report| (bench.name, report)));
        }
        if self.json {
            return print_json(&Json { rows, reports });
        }
        print(&self.files(&reports))?;
        let measured: Vec<bool> = rows.iter().filter_map(|row| row.kept).collect();
        let kept = measured.iter().filter(|&&kept| kept).count();
        let left_out = match rows.len() - measured.len() {
            0 => String::new(),
            count => format!("; {count} not measured"),
        };
        print(&format!("\n{kept} of {} promises kept in this run{left_out}\n", measured.len()))
    }
}

impl Bench {
    /// Measures by turns with another program, and says which rows differ.
    fn compare_with(&self, other: &Path) -> Result<(), Failure> {
        let this = this_program()?;
        let mut args = self.groups.clone();
        args.extend(["--samples".into(), self.samples.to_string()]);
        let turns = self.pairs.get();
        let bar = bar(turns.into(), self.json);
        let mut pairs = Vec::new();
        for turn in 0..turns {
            bar.set_message(format!("pair {} of {turns}", turn + 1));
            pairs.push(pair([&this, other], &args, turn % 2 == 1)?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        let comparison = compare(&pairs);
        if self.json {
            return print_json(&comparison);
        }
        print(&compared(&comparison, turns))
    }

    /// Where reports are and what draws their figures, or how to get them, if there are any.
    fn files(&self, reports: &BTreeMap<&'static str, Report>) -> String {
        if reports.is_empty() {
            return String::new();
        }
        let text = match &self.out {
            Some(folder) => {
                let files = "every number is in report.md, report.csv and report.json";
                let folders = reports.keys().map(|name| folder.join(name).display().to_string());
                let folders = folders.collect::<Vec<_>>().join(", ");
                format!("{folders}: {files}; `{DRAW} FOLDER` draws the figures of one")
            }
            None => {
                let figures = reports.values().map(|report| report.figures.len()).sum::<usize>();
                format!("`--out FOLDER` writes tables, and the data of {figures} figures")
            }
        };
        "\n".to_owned() + &paragraph("", &text)
    }
}

/// A promise, what was reached, and what it was compared with.
fn text(row: &Row) -> String {
    let mark = match row.kept {
        Some(true) => "ok    ",
        Some(false) => "MISS  ",
        None => "-     ",
    };
    let (sign, bound) = match row.target {
        Target::AtMost(bound) => ("≤", bound),
        Target::AtLeast(bound) => ("≥", bound),
    };
    let reached = match row.reached {
        Some(reached) => format!("{reached:.3} {} ({sign} {bound})", row.unit),
        None => format!("NOT MEASURED ({sign} {bound} {})", row.unit),
    };
    let reached = format!("{reached}: {}", row.detail);
    paragraph(mark, &row.name) + &paragraph("      ", &reached) + &beside(&row.standings)
}

/// All that took part, each a line.
fn beside(standings: &[Standing]) -> String {
    if standings.is_empty() {
        return String::new();
    }
    let header = ["scheme", "time", "x", "MiB moved", "in all", "x", "faults"].map(String::from);
    let line = |standing: &Standing| {
        let mib = |bytes: f64| format!("{:.2}", bytes / f64::from(1 << 20));
        vec![
            standing.scheme.to_owned(),
            format!("{:.1} ms", standing.seconds * 1e3),
            format!("{:.2}", standing.time),
            mib(standing.moved),
            mib(standing.bytes),
            format!("{:.2}", standing.share),
            standing.counts.get("card_faults").to_string(),
        ]
    };
    let lines = [header.to_vec()].into_iter().chain(standings.iter().map(line));
    table("lrrrrrr", lines).lines().fold(String::new(), |text, line| text + "      " + line + "\n")
}

/// What a comparison says, for people.
fn compared(comparison: &Comparison, pairs: u16) -> String {
    let mut text = String::new();
    for row in &comparison.rows {
        text += &compared_row(row);
    }
    if !comparison.not_compared.is_empty() {
        let names = comparison.not_compared.join("; ");
        text += &paragraph(
            "-     ",
            &format!("only one of the programs has, or in another unit: {names}"),
        );
    }
    let of = |verdict| comparison.rows.iter().filter(|row| row.verdict == verdict).count();
    let (worse, better, all) = (of(Verdict::Worse), of(Verdict::Better), comparison.rows.len());
    let turns = if pairs == 1 { "1 pair".to_owned() } else { format!("{pairs} pairs") };
    let summary = format!(
        "{worse} of {all} rows worse, {better} better, in {turns}. A row that is neither is called one or the \
         other by chance in at most {:.0} of 100 cases, each.",
        CHANCE * 100.0
    );
    text + "\n" + &paragraph("", &summary)
}

fn compared_row(row: &Compared) -> String {
    let mark = match row.verdict {
        Verdict::Alike => "=     ",
        Verdict::Better => "better",
        Verdict::Worse => "WORSE ",
    };
    let (least, most) = (row.factors[0], row.factors[row.factors.len() - 1]);
    let (worse_in, pairs) = (row.worse_in, row.factors.len());
    let mut text = format!(
        "{:.3} times the other's cost ({least:.3} to {most:.3}); more in {worse_in} of {pairs}",
        row.factor
    );
    for count in &row.counts {
        text += &format!("; {} {} in place of {}", count.name, count.ours, count.theirs);
    }
    paragraph(&format!("{mark} "), &row.name) + &paragraph("       ", &text)
}
