//! `farside sweep`: a grid of runs, none of them twice.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use farside_cli::sweep::{self, Cache, Finished, Grid, Options, Place, Table};

use super::Failure;
use super::output::print;
use super::progress::bar;

/// Run a grid of simulations: workloads, schemes, machines, sizes
///
/// Each run is a process of its own. Results are kept under a hash of the program, the machine, the
/// scheme and the workload or trace, and no run is done twice: a sweep that was ended in any way
/// goes on where it was when it is started again.
///
/// FILE is TOML. Every combination of the lists of a [[grid]] is a run:
///
///   [[grid]]
///   workloads = ["fir", "mm"]          # or traces = ["mm.bin.zst"]
///   bytes     = ["8M", "32M"]          # left out: the size in the paper
///   schemes   = ["on-touch", "grit:threshold=2"]
///   presets   = ["grit-table-1"]       # left out: this one
///   [grid.set]                         # values of the machine, see `farside sim --print-machine`
///   "gpu.count" = [2, 4, 8]
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, verbatim_doc_comment)]
pub(crate) struct Sweep {
    /// The grid
    file: PathBuf,

    /// Where the table goes: .json, .csv or .parquet; CSV on standard output without it
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,

    #[command(flatten)]
    workers: Workers,
}

/// Where cells run, and where their results are kept.
#[derive(Args, Debug)]
pub(crate) struct Workers {
    #[command(flatten)]
    _no_events: super::events::NoEvents,

    /// Runs at a time [default: one per processor]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    /// Where the runs go: processes of this machine, or tasks of a Ray cluster
    #[arg(long, value_name = "PLACE", default_value = "local")]
    on: On,

    /// Address of the Ray cluster; `auto`: the one that this machine belongs to [default: one that
    /// is started here for the sweep]
    #[arg(long, value_name = "ADDRESS")]
    ray_address: Option<String>,

    /// Python interpreter that has the package ray
    #[arg(long, value_name = "PATH", default_value = "python3")]
    python: PathBuf,

    /// Where results are kept [default: ~/.cache/farside/cells]
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,

    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum On {
    Local,
    Ray,
}

const EXAMPLES: &str = "\
Examples:
  farside sweep grid.toml                     CSV, on every processor
  farside sweep grid.toml --out table.parquet --jobs 8
  farside sweep grid.toml --on ray --ray-address auto

Exit code 1 if a run failed; its error is in the table, and the others are done.";

impl Sweep {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let grid = Grid::open(&self.file)?;
        let done = self.workers.carry_out(&grid.cells)?;
        let table = Table::new(&done);
        match &self.out {
            Some(path) => table.write(path)?,
            None => print(&table.to_csv())?,
        }
        tell_failed(&done)
    }
}

impl Workers {
    /// Carries out cells with a progress bar.
    pub(crate) fn carry_out(&self, cells: &[sweep::Cell]) -> Result<Vec<Finished>, Failure> {
        let bar = bar(cells.len() as u64, self.quiet);
        let done = sweep::run(cells, &self.options()?, |now| {
            bar.set_position(now.done as u64);
            let failed =
                if now.failed > 0 { format!(", {} failed", now.failed) } else { String::new() };
            let (done, total, cached) = (now.done, now.total, now.cached);
            bar.set_message(format!("{done} of {total}, {cached} kept{failed}: {}", now.last));
        });
        bar.finish_and_clear();
        Ok(done?)
    }

    /// Threads for what is done in this process.
    pub(crate) fn jobs(&self) -> usize {
        let processors = std::thread::available_parallelism();
        self.jobs.or(processors.ok()).map_or(1, NonZeroUsize::get)
    }

    fn options(&self) -> Result<Options, Failure> {
        let folder = self.cache.clone().unwrap_or_else(Cache::default_folder);
        let place = match self.on {
            On::Local => Place::Local { jobs: self.jobs.map_or(0, NonZeroUsize::get) },
            On::Ray => {
                Place::Ray { address: self.ray_address.clone(), python: self.python.clone() }
            }
        };
        Ok(Options { cache: Cache::open(&folder)?, binary: this_program()?, place })
    }
}

/// The program that runs, for the processes of cells.
pub(super) fn this_program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::Usage(format!("cannot find the program's own file: {error}")))
}

/// Says which cells failed, and fails if any did.
pub(crate) fn tell_failed(done: &[Finished]) -> Result<(), Failure> {
    let mut failed = 0;
    for cell in done {
        if let Err(why) = &cell.outcome {
            failed += 1;
            eprintln!("farside: {}: {why}", cell.cell);
        }
    }
    match failed {
        0 => Ok(()),
        _ => {
            eprintln!("farside: {failed} of {} runs failed", done.len());
            Err(Failure::Told)
        }
    }
}
