//! `farside report`: one page that says why, from an event log.

use std::fs::File;
use std::io::BufWriter;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use farside_events::Reader;
use farside_report::{Facts, TraceError};

use super::Failure;
use super::log::say;
use super::output::{print, print_json, write_whole};

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

    /// Write a trace for <https://ui.perfetto.dev>: kernels, faults and moves of each agent, and counters
    /// of what is in each memory, of what comes over each link and of faults
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,

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
  farside report log.parquet --perfetto log.pftrace
  farside report log.parquet --json | jq .remedies";

impl Report {
    /// Refuses to write where a log or something else of this report is.
    fn check_outputs(&self) -> Result<(), Failure> {
        let mut taken: Vec<&Path> =
            std::iter::once(&self.log).chain(&self.other).map(|it| &**it).collect();
        for output in [&self.output, &self.perfetto].into_iter().flatten() {
            if taken.iter().any(|it| is_same(it, output)) {
                let path = output.display();
                return Err(Failure::Usage(format!(
                    "{path} is a log, or is written already; name another file"
                )));
            }
            taken.push(output);
        }
        Ok(())
    }

    pub(crate) fn run(&self) -> Result<(), Failure> {
        let paths = std::iter::once(&self.log).chain(&self.other);
        let logs = paths.map(|path| {
            let reader = Reader::open(path)?;
            if let Some(cut) = reader.cut() {
                let (path, bytes, rest) = (path.display(), cut.bytes, cut.left_out);
                say(&format!(
                    "farside: {path} was cut: its first {bytes} bytes are read, {rest} more are not"
                ));
            }
            Ok(reader)
        });
        let logs = logs.collect::<Result<Vec<Reader>, Failure>>()?;
        self.check_outputs()?;
        let runs = logs.iter().map(farside_report::facts).collect::<Result<Vec<Facts>, _>>()?;
        if let Some(path) = &self.output {
            write_whole(path, farside_report::page(&runs).as_bytes())?;
        }
        if let Some(path) = &self.perfetto {
            trace(&logs, path)?;
        }
        match (self.json, &runs[..]) {
            (true, [one]) => print_json(one),
            (true, runs) => print_json(&runs),
            (false, runs) => print(&farside_report::text(runs)),
        }
    }
}

/// Whether two paths are one file that there is.
fn is_same(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| path.metadata().ok().map(|it| (it.dev(), it.ino()));
    one == other || of(one).is_some_and(|one| of(other) == Some(one))
}

/// Writes a trace, and says what is not in it.
fn trace(logs: &[Reader], path: &Path) -> Result<(), Failure> {
    let failed = |source| Failure::Write { path: path.to_owned(), source };
    let out = BufWriter::new(File::create(path).map_err(failed)?);
    let traced = farside_report::perfetto(logs, out).map_err(|error| match error {
        TraceError::Read(error) => Failure::from(error),
        TraceError::Write(source) => failed(source),
    })?;
    if traced.left_out > 0 {
        let (path, most, rest) = (path.display(), traced.instants, traced.left_out);
        say(&format!(
            "farside: {path} has the first {most} faults, moves and hints, {rest} more are left out; kernels and \
             counters are of the whole run"
        ));
    }
    Ok(())
}
