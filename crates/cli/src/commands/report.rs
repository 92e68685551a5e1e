//! `farside report`: one page that says why, from an event log.

use std::path::PathBuf;

use clap::Args;
use farside_events::Reader;
use farside_report::Facts;

use super::Failure;
use super::log::say;
use super::output::{print, print_json};

/// Say where a run's time went, from its event log: one page to look at, with remedies
///
/// A log is what `farside demo --events FILE`, `farside sim --events FILE`, or any program with
/// FARSIDE_EVENTS=FILE has written. The page shows which memory had which pages when, who faulted,
/// what moved and why, what each allocation and kernel cost, and what to do about it. Two logs are
/// shown side by side.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Report {
    /// The log
    #[arg(value_name = "LOG")]
    log: PathBuf,

    /// Another one to compare it with
    #[arg(value_name = "LOG2")]
    other: Option<PathBuf>,

    /// Write a page, with all that it needs, for a browser
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print the same facts as JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  farside demo --on-demand --events log.parquet
  farside report log.parquet                    what was slow, in words
  farside report log.parquet -o page.html       and a page to look at
  farside report before.parquet after.parquet -o both.html
  farside report log.parquet --json | jq .remedies";

impl Report {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let paths = std::iter::once(&self.log).chain(&self.other);
        let runs = paths.map(|path| {
            let reader = Reader::open(path)?;
            if let Some(cut) = reader.cut() {
                let (path, bytes, rest) = (path.display(), cut.bytes, cut.left_out);
                say(&format!(
                    "farside: {path} was cut: its first {bytes} bytes are read, {rest} more are not"
                ));
            }
            Ok(farside_report::facts(&reader)?)
        });
        let runs = runs.collect::<Result<Vec<Facts>, Failure>>()?;
        if let Some(path) = &self.output {
            let failed = |source| Failure::Write { path: path.clone(), source };
            std::fs::write(path, farside_report::page(&runs)).map_err(failed)?;
        }
        match (self.json, &runs[..]) {
            (true, [one]) => print_json(one),
            (true, runs) => print_json(&runs),
            (false, runs) => print(&farside_report::text(runs)),
        }
    }
}
