//! All placement schemes under the same programs, on two cards: the default one against the best of the
//! others.
//!
//! A program is a file, or a function of [`programs`](super::programs) at a size of its own. The schemes take
//! turns, so that what the machine does besides slows all of them; times are compared run by run, with the best of
//! the others by other runs ([`rival`]).
//!
//! Bytes are all that goes from a memory to another: pages that move or are copied, and what cards reach in
//! other memories, a line for each word and a page for each page of a `with`. Else a scheme that never moves
//! anything would win, however often it fetches the same page over the bus.

mod graph;
mod matrix;
mod mixes;
mod report;
mod rival;
mod stencil;
mod streams;

use std::borrow::Cow;

use farside::{PAGE_SIZE, Space, placement};
use serde::Serialize;

use super::counts::{Counts, Ran};
use super::programs::{join, kmeans};
use super::{BenchError, Effort, Outcome, Row, Target, median};
use crate::workloads::kernels;

const CARDS: usize = 2;
/// A word that is reached in another memory brings so many bytes over the bus, as in simulated machines.
const LINE: u64 = 64;
/// The default may take so many times what the best other one takes, and move so many times its bytes.
const MOST: f64 = 1.1;

type Run = dyn Fn(&Space) -> Result<Ran, BenchError>;

/// A program, and the cards that suit it.
struct Program {
    name: &'static str,
    /// Bytes of each card.
    card_memory: u64,
    /// Runs once in a new space, measures, and checks what comes out.
    run: Box<Run>,
}

impl Program {
    fn new(
        name: &'static str,
        card_memory: u64,
        run: impl Fn(&Space) -> Result<Ran, BenchError> + 'static,
    ) -> Program {
        Program { name, card_memory, run: Box::new(run) }
    }
}

/// The programs, with their data and what must come out.
fn programs() -> Result<Vec<Program>, BenchError> {
    let mut programs = vec![join(), kmeans()];
    programs.extend(graph::programs()?);
    programs.extend([streams::program(), stencil::program(), matrix::program()]);
    programs.extend(mixes::programs()?);
    Ok(programs)
}

/// Two cards build one table and look rows up in it: a table that they fight over, and rows that each reads
/// once. All of it fills the cards.
fn join() -> Program {
    let problem = join::Problem::new(1 << 18, 5 << 18, 1 << 19);
    Program::new("join", 8 << 20, move |space| problem.on_and_checked(space))
}

/// Five passes over half as much again as the cards hold.
fn kmeans() -> Program {
    let problem = kmeans::Problem::new(25 << 20 >> 6);
    Program::new("k-means", 8 << 20, move |space| problem.on_and_checked(space))
}

/// What a scheme did in all runs of a program.
struct Runs {
    scheme: &'static str,
    seconds: Vec<f64>,
    work: Vec<f64>,
    moved: Vec<f64>,
    bytes: Vec<f64>,
    counts: Counts,
}

/// A scheme beside the others, under one program.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Standing {
    /// Its name.
    pub(crate) scheme: &'static str,
    /// Median of its runs.
    pub(crate) seconds: f64,
    /// Its time as a multiple of the fastest one's.
    pub(crate) time: f64,
    /// Median of the processor time of its runs, in all threads, in seconds.
    pub(crate) work: f64,
    /// Median of the bytes of pages that moved or were copied.
    pub(crate) moved: f64,
    /// Median of all bytes between memories, those that cards reached from afar too.
    pub(crate) bytes: f64,
    /// Its bytes as a multiple of the least.
    pub(crate) share: f64,
    /// What was counted in its last run.
    pub(crate) counts: Counts,
}

pub(super) fn run(effort: Effort) -> Result<Outcome, BenchError> {
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    for program in programs()? {
        let runs = measure(&program, effort)?;
        let standings = standings(&runs);
        rows.extend(promises(&program, &runs, &standings));
        all.push((program.name, standings));
    }
    let report = Some(report::report(&all));
    Ok(Outcome { rows, report, ..Outcome::default() })
}

/// All schemes under a program, by turns.
fn measure(program: &Program, effort: Effort) -> Result<Vec<Runs>, BenchError> {
    let fresh = |scheme: &&'static str| {
        let none = Vec::new;
        let (seconds, work, moved, bytes) = (none(), none(), none(), none());
        Runs { scheme, seconds, work, moved, bytes, counts: Counts::default() }
    };
    let mut all: Vec<Runs> = placement::NAMES.iter().map(fresh).collect();
    for round in 0..effort.samples {
        // Nobody always goes first.
        for turn in 0..all.len() {
            let at = (round + turn) % all.len();
            let ran = run_once(program, all[at].scheme)?;
            all[at].seconds.push(ran.seconds);
            all[at].work.push(ran.work);
            all[at].moved.push((ran.counts.pages_moved() * PAGE_SIZE as u64) as f64);
            all[at].bytes.push(bytes(&ran.counts) as f64);
            all[at].counts = ran.counts;
        }
    }
    Ok(all)
}

fn run_once(program: &Program, scheme: &str) -> Result<Ran, BenchError> {
    let space = Space::builder()
        .cards(CARDS)
        .card_memory(program.card_memory)
        .processing_elements(2)
        .placement(scheme)
        .kernels(kernels())
        .warm(true)
        .build()?;
    (program.run)(&space)
}

/// The two promises of a program.
fn promises(program: &Program, all: &[Runs], standings: &[Standing]) -> [Row; 2] {
    let ours = at(all, placement::DEFAULT);
    let others = || (0..all.len()).filter(|&other| other != ours);
    let by = |key: fn(&Standing) -> f64| {
        let least = others().min_by(|&a, &b| key(&standings[a]).total_cmp(&key(&standings[b])));
        least.unwrap_or(ours)
    };
    let (fastest, least) = (by(|standing| standing.seconds), by(|standing| standing.bytes));
    let theirs: Vec<&[f64]> = others().map(|other| &all[other].seconds[..]).collect();
    let ratios = rival::ratios(&all[ours].seconds, &theirs);
    let time = median(ratios.into_iter().map(|(_, ratio)| ratio).collect());
    let share = of_bytes(standings[ours].bytes, standings[least].bytes);
    let detail = format!(
        "{:.1} ms; {} takes {:.1} ms",
        standings[ours].seconds * 1e3,
        all[fastest].scheme,
        standings[fastest].seconds * 1e3
    );
    let mib = |at: usize| standings[at].bytes / f64::from(1 << 20);
    let bytes = format!(
        "{:.2} MiB between memories; {} {:.2}, and {:.2} times the least time",
        mib(ours),
        all[least].scheme,
        mib(least),
        standings[least].time
    );
    let name = |what| Cow::from(format!("{}, {} scheme, {what}", program.name, "default"));
    let counts = standings[ours].counts.clone();
    let target = Target::AtMost(MOST);
    [
        Row::new(name("time"), time, target, "x the best other, run by run", detail)
            .counting(counts.clone())
            .beside(standings.to_vec()),
        Row::new(name("bytes"), share, target, "x the least", bytes).counting(counts),
    ]
}

fn standings(all: &[Runs]) -> Vec<Standing> {
    let medians = |of: fn(&Runs) -> &Vec<f64>| -> Vec<f64> {
        all.iter().map(|runs| median(of(runs).clone())).collect()
    };
    let (seconds, bytes) = (medians(|runs| &runs.seconds), medians(|runs| &runs.bytes));
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let (fastest, fewest) = (least(&seconds), least(&bytes));
    let standing = |(at, runs): (usize, &Runs)| Standing {
        scheme: runs.scheme,
        seconds: seconds[at],
        time: seconds[at] / fastest,
        bytes: bytes[at],
        work: median(runs.work.clone()),
        moved: median(runs.moved.clone()),
        share: of_bytes(bytes[at], fewest),
        counts: runs.counts.clone(),
    };
    all.iter().enumerate().map(standing).collect()
}

/// Bytes that went from a memory to another.
fn bytes(counts: &Counts) -> u64 {
    let pages = counts.pages_moved() + counts.get("pages_over_the_bus");
    pages * PAGE_SIZE as u64 + counts.get("words_over_the_bus") * LINE
}

/// Bytes as a multiple; a scheme that moves a page where another moves none is not infinitely worse.
fn of_bytes(bytes: f64, least: f64) -> f64 {
    bytes.max(PAGE_SIZE as f64) / least.max(PAGE_SIZE as f64)
}

/// Where the default scheme, whatever its parameters, stands in the list.
fn at(all: &[Runs], name: &str) -> usize {
    all.iter().position(|runs| runs.scheme == name).unwrap_or_default()
}
