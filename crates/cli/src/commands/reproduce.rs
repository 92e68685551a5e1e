//! `farside reproduce`: the papers' experiments, and what they print beside ours.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use farside_cli::reproduce::grit::{Reproduction, Scale};
use farside_cli::reproduce::tapasco;
use farside_cli::reproduce::{DRAW, Place, Report, Summary};
use farside_cli::sweep::Cell;

use super::Failure;
use super::output::print;
use super::progress::bar;
use super::sweep::{Workers, tell_failed};
use super::text::{paragraph, row, table};

/// Run the experiments of a paper: what it prints beside what comes out
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Reproduce {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Subcommand, Debug)]
enum Paper {
    Grit(Grit),
    Tapasco(Tapasco),
}

/// GRIT (Wang et al., HPCA 2024): placement schemes on four GPUs
///
/// Every experiment of the paper is a set of runs of `farside sim`. They go through the same
/// processes and the same cache as those of `farside sweep`, so nothing is run twice, and what was
/// ended goes on.
#[derive(Args, Debug)]
struct Grit {
    /// The footprints of the paper's Table II instead of a part of them
    #[arg(long)]
    full: bool,

    /// Divide the footprints of Table II by this
    #[arg(long, value_name = "N", default_value = "4", conflicts_with = "full",
          value_parser = clap::value_parser!(u64).range(1..=256))]
    divide: u64,

    /// Only these experiments, such as figure-17,figure-18,sensitivity
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,

    /// More schemes, beside those of the paper in every table and figure that compares schemes: names as
    /// `farside sim` has them, or libraries
    #[arg(long, value_name = "LIST")]
    scheme: Option<String>,

    /// Where the report goes
    #[arg(long, value_name = "FOLDER", default_value = "farside-grit")]
    out: PathBuf,

    #[command(flatten)]
    workers: Workers,
}

/// Multi-FPGA SVM (Kalkhof and Koch): pages between cards, by three transports
///
/// The experiments run in this process, on the driver of the live runtime and a simulated machine
/// whose constants are fitted to some of the paper's rows; the report says which. It takes some
/// seconds.
#[derive(Args, Debug)]
struct Tapasco {
    #[command(flatten)]
    _no_events: super::events::NoEvents,

    /// Where the report goes
    #[arg(long, value_name = "FOLDER", default_value = "farside-tapasco")]
    out: PathBuf,

    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  farside reproduce grit                        everything, smaller
  farside reproduce grit --full --jobs 16       as in the paper
  farside reproduce grit --only figure-17,figure-18 --out main-result
  farside reproduce grit --only figure-17 --scheme ./libmine.so
  farside reproduce tapasco                     multi-FPGA SVM: tables, figures

report.md, report.csv and report.json have every number that the paper prints, ours, and how far
they are from each other. The figures' data are in report.json; `python -m farside.plot FOLDER`
draws them (the Python package: `make wheel`).";

impl Reproduce {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match &self.paper {
            Paper::Grit(grit) => grit.run(),
            Paper::Tapasco(tapasco) => tapasco.run(),
        }
    }
}

impl Grit {
    fn run(&self) -> Result<(), Failure> {
        let scale = if self.full { Scale::Full } else { Scale::Divided(self.divide) };
        let mut whole = Reproduction::new(scale);
        if !self.only.is_empty() {
            whole = whole.only(&self.only).map_err(Failure::Usage)?;
        }
        let own = self.scheme.as_deref().map(super::sim::list);
        whole = whole.beside(&own.unwrap_or_default());
        let cells = whole.cells();
        cells.iter().filter(|_| self.scheme.is_some()).try_for_each(Cell::check)?;
        let done = self.workers.carry_out(&cells)?;
        let sharings = whole.sharings(self.workers.jobs());
        write_and_summarise(&whole.report(&done, &sharings), &self.out)?;
        tell_failed(&done)
    }
}

impl Tapasco {
    fn run(&self) -> Result<(), Failure> {
        // One step: how far it is cannot be told, that it runs can.
        let bar = bar(1, self.quiet);
        bar.set_message("migrations, accelerators and alternatives of the multi-FPGA SVM paper");
        let report = tapasco::report();
        bar.finish_and_clear();
        write_and_summarise(&report?, &self.out)
    }
}

/// Writes a report and prints a summary that fits a screen.
fn write_and_summarise(report: &Report, folder: &Path) -> Result<(), Failure> {
    report.write(folder)?;
    let mut text = paragraph("", &report.title);
    if let Some(summary) = Summary::of(report) {
        text += "\n";
        text += &table("lrrrl", rows(&summary));
        let without = summary.without;
        let near = "within 10: by 10 % or, of percentages, 10 points;";
        text += &paragraph("", &format!("{near} {without} rows have no number of the paper"));
    }
    let folder = folder.display();
    let files = format!(
        "{folder}: every number is in report.md, report.csv and report.json; `{DRAW} {folder}` draws the figures"
    );
    print(&(text + "\n" + &paragraph("", &files)))
}

fn rows(summary: &Summary) -> Vec<Vec<String>> {
    let place = |place: &Place| {
        let far = &place.farthest;
        let unit = if far.unit == "%" { "points" } else { "%" };
        let off = format!("{} {unit}", bounded(far.deviation().unwrap_or(0.0), true));
        let mean = bounded(place.mean, false);
        let what = shortened(&far.what, FARTHEST_MAX.saturating_sub(off.chars().count() + 2));
        let (numbers, near) = (place.numbers.to_string(), place.near.to_string());
        vec![shortened(&place.name, PLACE_MAX), numbers, near, mean, format!("{what}, {off}")]
    };
    let header = row(["in the paper", "numbers", "within 10", "mean off", "farthest"]);
    let places = summary.places.iter().chain(std::iter::once(&summary.all));
    std::iter::once(header).chain(places.map(place)).collect()
}

/// Columns of the name of a place, and of the row that is farthest: a place is one line.
const PLACE_MAX: usize = 16;
const FARTHEST_MAX: usize = 31;

/// A deviation in as many columns as there are for it: what is beyond them is far, however far.
fn bounded(value: f64, signed: bool) -> String {
    const MOST: f64 = 9999.0;
    match (value, signed) {
        (value, _) if value > MOST => format!(">{MOST}"),
        (value, _) if value < -MOST => format!("<-{MOST}"),
        (value, true) => format!("{value:+.1}"),
        (value, false) => format!("{value:.1}"),
    }
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_cli::reproduce::Row;

    #[test]
    fn a_summary_fits_a_screen_whatever_is_in_it() {
        let row = |n: usize| Row {
            what: format!("{n} of something that takes many words to say"),
            unit: if n % 2 == 0 { "%" } else { "µs" }.to_owned(),
            paper: Some(0.01),
            ours: 1234.5 * n as f64,
            source: format!("section with a long name, number {n}").replace(',', &n.to_string()),
        };
        let report = Report { rows: (0..40).map(row).collect(), ..Report::default() };
        let text = table("lrrrl", rows(&Summary::of(&report).unwrap()));
        assert!(text.lines().count() <= 24 - 6, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
