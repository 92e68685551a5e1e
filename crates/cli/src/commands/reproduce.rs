//! `farside reproduce`: the papers' experiments, and what they print beside ours.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use farside_cli::reproduce::Report;
use farside_cli::reproduce::grit::{Reproduction, Scale};
use farside_cli::reproduce::tapasco;

use super::Failure;
use super::output::print;
use super::progress::bar;
use super::sweep::{Workers, tell_failed};

/// Run the experiments of a paper: what it prints beside what comes out, with the figures
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

    /// Where the report and the figures go
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
    /// Where the report and the figures go
    #[arg(long, value_name = "FOLDER", default_value = "farside-tapasco")]
    out: PathBuf,

    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  farside reproduce grit                        everything, with a part of each footprint
  farside reproduce grit --full --jobs 16       as in the paper
  farside reproduce grit --only figure-17,figure-18 --out main-result
  farside reproduce tapasco                     tables and figures of the multi-FPGA SVM paper

report.md, report.csv and report.json have every number that the paper prints, ours, and how far
they are from each other; the figures are beside them as PNG and SVG.";

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
        let done = self.workers.carry_out(&whole.cells())?;
        let sharings = whole.sharings(self.workers.jobs());
        tell(&whole.report(&done, &sharings), &self.out)?;
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
        tell(&report?, &self.out)
    }
}

/// Writes a report and prints its rows.
fn tell(report: &Report, folder: &std::path::Path) -> Result<(), Failure> {
    let path = report.write(folder)?;
    print(&report.to_table())?;
    print(&format!("\n{} with its figures is in {}\n", report.title, path.display()))
}
