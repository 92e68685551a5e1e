//! `farside bench migrate`: the tables and figures of the multi-FPGA SVM paper (Kalkhof and Koch), on the
//! live machine.
//!
//! Two cards in the program, an array on one of them, and the paper's synthetic accelerator, which updates it
//! on the other: pages go there on demand, user managed, or half of them in either way; by a bounce buffer on the
//! host (the paper's PCIe) or directly (PCIe E2E); from contiguous frames and from scattered ones. The live
//! machine has no Ethernet between cards. What of it is promised are three ratios, of which two are against
//! UMap's design (`umap`).

mod faults;
mod machine;
mod report;
mod samples;
mod tables;
mod umap;

use farside_sim::cards::paper::{self, SIZES};
use farside_sim::cards::{Layout, Transport};
use indicatif::ProgressBar;

use super::{BenchError, Effort, Outcome, Row, Target, pin, two_cpus};
use crate::commands::bar;
use machine::{Array, Batch, Machine};
use samples::{Cell, Measured, Samples};

/// The largest of the sizes: 32 MB.
const LARGEST: usize = SIZES.len() - 1;
/// Pages that a number is measured with at least for each sample asked for: small moves are repeated.
const PAGES_PER_SAMPLE: u64 = 4096;
/// Repetitions of a sample, at most.
const REPEATED_MAX: u64 = 64;

pub(crate) fn run(effort: Effort) -> Result<Outcome, BenchError> {
    let (program, server) = two_cpus();
    let transports = [Transport::Bounce, Transport::Peer];
    let machines = transports.map(|transport| Machine::new(transport, server));
    let [bounce, peer] = machines;
    let machines = [bounce?, peer?];
    let rounds: usize = SIZES.iter().map(|size| 1 + rounds(effort, size.pages)).sum();
    let progress = bar(rounds as u64 + 1, false);
    let [bounce, peer] = {
        let _pinned = pin(program);
        measure(&machines, effort, &progress)?
    };
    drop(machines);
    progress.set_message("faults against UMap's design");
    let mut rows: Vec<Row> = [&bounce, &peer].map(promised).into();
    rows.extend(faults::run(effort)?);
    progress.finish_and_clear();
    let text = tables::text(&bounce, &peer);
    Ok(Outcome { rows, text, report: Some(report::report(&bounce, &peer)) })
}

/// How often an array of so many pages is measured.
fn rounds(effort: Effort, pages: u64) -> usize {
    effort.samples * (PAGES_PER_SAMPLE / pages).clamp(1, REPEATED_MAX) as usize
}

/// On demand against user managed.
fn promised(measured: &Measured) -> Row {
    let Cell { on_demand, by_sixteen, user_managed, counts, .. } = &measured.cells[LARGEST];
    let transport = measured.transport;
    let printed = paper::on_demand(transport)[LARGEST] / paper::user_managed(transport)[LARGEST];
    let detail = format!(
        "{:.1} ms, {} faults; user managed {:.1} ms; on demand by 16 pages, as in the paper, {:.1} ms, \
         {:.2}x; the paper {printed:.1}x",
        on_demand / 1e3,
        counts.get("card_faults"),
        user_managed / 1e3,
        by_sixteen / 1e3,
        by_sixteen / user_managed,
    );
    let way = if transport == Transport::Bounce { "by a bounce buffer" } else { "peer to peer" };
    let name = format!("on demand against user managed, 32 MB, card → card, {way}");
    let row = Row::new(name, on_demand / user_managed, Target::AtMost(1.3), "x managed", detail);
    row.counting(counts.clone())
}

/// All experiments.
fn measure(
    machines: &[Machine; 2],
    effort: Effort,
    progress: &ProgressBar,
) -> Result<[Measured; 2], BenchError> {
    let mut measured = machines.each_ref().map(|machine| Measured::new(machine.transport));
    for (index, size) in SIZES.iter().enumerate() {
        progress.set_message(format!("migrations of {}", size.name));
        let mut arrays = Vec::new();
        for machine in machines {
            arrays.push((machine, Array::aligned(machine, size.pages as usize)?));
        }
        // 4 kB across a page border are compared with those on a page.
        if index == 0 {
            for machine in machines {
                arrays.push((machine, Array::across_a_border(machine)?));
            }
        }
        let mut cells = by_turns(&mut arrays, rounds(effort, size.pages), progress)?.into_iter();
        measured.iter_mut().zip(cells.by_ref()).for_each(|(into, cell)| into.cells[index] = cell);
        measured.iter_mut().zip(cells).for_each(|(into, cell)| into.border = cell);
    }
    Ok(measured)
}

/// The experiments on each of some arrays, in turns, `rounds` times.
fn by_turns(
    arrays: &mut [(&Machine, Array)],
    rounds: usize,
    progress: &ProgressBar,
) -> Result<Vec<Cell>, BenchError> {
    let mut samples: Vec<Samples> = arrays.iter().map(|_| Samples::default()).collect();
    for round in 0..=rounds {
        for ((machine, array), samples) in arrays.iter_mut().zip(&mut samples) {
            if round == 0 {
                // What is used for the first time costs more; and things have to be where they should.
                check_layouts(machine, array)?;
                one_round(machine, array, &mut Samples::default(), round)?;
            } else {
                one_round(machine, array, samples, round)?;
            }
        }
        progress.inc(1);
    }
    arrays.iter().try_for_each(|(machine, array)| array.check(machine))?;
    Ok(samples.into_iter().map(Samples::medians).collect())
}

fn check_layouts(machine: &Machine, array: &Array) -> Result<(), BenchError> {
    for layout in [Layout::Contiguous, Layout::Scattered] {
        machine.place(array, layout)?;
        machine.check_layout(array, layout)?;
    }
    Ok(())
}

/// Every experiment once. Those of the accelerator begin with another one in each round: who comes first finds
/// processors and caches that have done something else.
fn one_round(
    machine: &Machine,
    array: &mut Array,
    samples: &mut Samples,
    round: usize,
) -> Result<(), BenchError> {
    let pages = array.pages();
    for step in 0..4 {
        machine.place(array, Layout::Contiguous)?;
        match (round + step) % 4 {
            0 => {
                let before = machine.counts();
                samples.on_demand.push(machine.accelerate(array, 0, Batch::Piece)?);
                samples.counts = machine.counts().since(&before);
            }
            1 => samples.by_sixteen.push(machine.accelerate(array, 0, Batch::Sixteen)?),
            2 => samples.user_managed.push(machine.accelerate(array, pages, Batch::Piece)?),
            _ if pages > 1 => {
                samples.mixed.push(machine.accelerate(array, pages / 2, Batch::Piece)?);
            }
            _ => {}
        }
    }
    machine.place(array, Layout::Contiguous)?;
    samples.contiguous.push(machine.source_to_target(array)?);
    machine.place(array, Layout::Scattered)?;
    samples.scattered.push(machine.source_to_target(array)?);
    samples.to_host.push(machine.target_to_host(array)?);
    samples.from_host.push(machine.host_to_source(array)?);
    Ok(())
}
