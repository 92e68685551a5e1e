//! The same as a report: rows under the names that `farside reproduce tapasco` gives the simulated ones, so
//! that they can be put beside each other, and the figures.

use farside_cli::reproduce::tapasco::figures::{figure_4, figure_5, figure_6, figure_7, relative};
use farside_cli::reproduce::tapasco::tables::{
    figure_5_rows, figure_7_rows, row, table_1, table_2, time,
};
use farside_cli::reproduce::{Bar, Figure, Report, Row, Series};
use farside_sim::cards::Transport;
use farside_sim::cards::paper::SIZES;

use super::LARGEST;
use super::samples::{Measured, Migration, times};
use super::tables::{SOFTWARE_OF_THE_PAPER, STEPS, share};

/// Rows, figures and notes.
pub(super) fn report(bounce: &Measured, peer: &Measured) -> Report {
    let both = [bounce, peer];
    let times = times(bounce, peer);
    let mut rows = table_1(&times);
    rows.extend(both.iter().flat_map(|way| more_of_table_1(way)));
    rows.extend(table_2(&times));
    rows.extend(both.iter().flat_map(|way| border_rows(way)));
    rows.extend(figure_5_rows(&times));
    rows.extend(both.iter().flat_map(|way| step_rows(way)));
    rows.extend(figure_7_rows(&times));
    let note = "Baseline: ODPM over PCIe with a bounce buffer.";
    let mut figures = vec![figure_4(&times, note), figure_5(&times)];
    figures.extend(both.map(steps));
    figures.push(figure_7(&times, "Baseline: host to card."));
    figures.push(mixed(both));
    let title =
        "Direct device-to-device page migrations (Kalkhof and Koch), live on software cards";
    Report { title: title.to_owned(), rows, figures, notes: notes() }
}

fn notes() -> Vec<String> {
    [
        "Cards are threads of one program, and their memories are its own: a copy is one memcpy by a \
         processor of the host (PCIe E2E), or two (PCIe, by a bounce buffer). There is no Ethernet between \
         them. So times say what the software costs, not how fast a link is.",
        "Every number is a median; those of a migration's steps are of the migration with the median time. \
         The kernel takes 2 MiB at a time, as kernels do that let the library cut their ranges; by 16 pages, as \
         many as the paper's accelerator faults on together, is beside it.",
        "Planning includes the paper's allocate step and part of its setup; commands are what cards are told \
         in setup and finalize; DMA is the copy; rest is what the runtime's account does not have.",
        "Scattered pages of 4 kB are a buffer across the border of two pages, as section V-B has it.",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// On demand as many pages at a time as the paper's accelerator; half of the pages migrated before, half on
/// demand.
fn more_of_table_1(way: &Measured) -> Vec<Row> {
    let name = way.transport.name();
    let mut rows = Vec::new();
    for (size, cell) in SIZES.iter().zip(&way.cells) {
        let what = format!("ODPM by 16 pages ({name}), {}", size.name);
        rows.push(time(&what, None, cell.by_sixteen, "Section V-A"));
    }
    for (size, cell) in SIZES.iter().zip(&way.cells) {
        let what = format!("half ODPM, half UMPM ({name}), {}", size.name);
        rows.extend(cell.mixed.map(|micros| time(&what, None, micros, "Section IV-A")));
    }
    rows
}

fn border_rows(way: &Measured) -> Vec<Row> {
    let (name, across, one) = (way.transport.name(), &way.border, &way.cells[0]);
    let pairs = [
        ("ODPM", across.on_demand, one.on_demand),
        ("UMPM", across.user_managed, one.user_managed),
        ("migration", across.contiguous.time, one.contiguous.time),
    ];
    let rows = pairs.map(|(what, across, one)| {
        let ratio = format!("{what} ({name}), 4 kB: across a border over one page");
        let what = format!("{what} ({name}), 4 kB across a page border");
        [
            time(&what, None, across, "Section V-B"),
            row(&ratio, "x", None, across / one, "Section V-B"),
        ]
    });
    rows.into_iter().flatten().collect()
}

fn step_rows(way: &Measured) -> Vec<Row> {
    let (name, source) = (way.transport.name(), "Section V-C, Figure 6");
    let migration = &way.cells[LARGEST].contiguous;
    // Of the direct transports the paper says how large the DMA step is at 32 MB.
    let printed = (way.transport == Transport::Peer).then_some(50.0);
    let dma = format!("DMA, {name}, 32 MB: about");
    let software = format!("software of a page of 32 MB, {name}");
    let ours = migration.steps.software() / SIZES[LARGEST].pages as f64;
    vec![
        row(&dma, "%", printed, share(migration, |it| it.steps.copy), source),
        row(&software, "µs", Some(SOFTWARE_OF_THE_PAPER), ours, source),
    ]
}

/// Figure 6 of one transport.
fn steps(way: &Measured) -> Figure {
    let bar = |group: usize, label: &str, migration: &Migration| {
        let parts = STEPS.iter().map(|step| share(migration, step.time)).collect();
        Bar { group, label: label.to_owned(), parts }
    };
    let of_size = |size: usize| {
        let contiguous = bar(size, "cont.", &way.cells[size].contiguous);
        [contiguous, bar(size, "scat.", way.scattered(size))]
    };
    let bars = (0..SIZES.len()).flat_map(of_size).collect();
    figure_6(way.transport, &STEPS.map(|step| step.name), bars)
}

/// What half of the pages on demand cost.
fn mixed(both: [&Measured; 2]) -> Figure {
    let series = both.iter().flat_map(|way| {
        let name = way.transport.name();
        let bar = |label: &str, time: fn(&super::Cell) -> Option<f64>| Series {
            label: format!("{label} ({name})"),
            values: way.cells.iter().map(|cell| Some(cell.on_demand / time(cell)?)).collect(),
            paper: Vec::new(),
        };
        [
            bar("by 16 pages", |cell| Some(cell.by_sixteen)),
            bar("half of each", |cell| cell.mixed),
            bar("UMPM", |cell| Some(cell.user_managed)),
        ]
    });
    let note = "Baseline: ODPM by the same transport. A page has no half.";
    let title = "On demand by 16 pages, half migrated before, user managed";
    relative("on-demand", title, "speedup", note, series.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::migrate::samples::tests::measured;

    fn report() -> Report {
        let (bounce, peer) = (measured(Transport::Bounce, 2.0), measured(Transport::Peer, 1.0));
        super::report(&bounce, &peer)
    }

    fn value(report: &Report, what: &str) -> f64 {
        report.rows.iter().find(|row| row.what == what).unwrap_or_else(|| panic!("{what}")).ours
    }

    #[test]
    fn rows_have_the_names_and_the_papers_values_of_the_simulated_ones() {
        let (live, simulated) =
            (report(), farside_cli::reproduce::tapasco::report().expect("it runs"));
        for table in ["Table I", "Table II", "Figure 5"] {
            let ours = || live.rows.iter().filter(|row| row.source == table);
            assert!(ours().count() >= 6, "{table}");
            for row in ours() {
                let theirs = simulated.rows.iter().find(|other| other.what == row.what);
                let theirs = theirs.unwrap_or_else(|| panic!("{} is not simulated", row.what));
                assert_eq!((theirs.paper, &theirs.unit), (row.paper, &row.unit), "{}", row.what);
            }
        }
    }

    #[test]
    fn ratios_are_of_what_they_say() {
        let report = report();
        for (what, wanted) in [
            ("PCIe E2E over PCIe, 32 MB", 2.0),
            ("scattered over contiguous, PCIe, 1 MB", 1.5),
            ("migration (PCIe), 4 kB: across a border over one page", 2.0),
            ("card to host over host to card, 4 MB", 1.25),
            ("DMA, PCIe E2E, 32 MB: about", 25.0),
            ("software of a page of 32 MB, PCIe E2E", 0.2),
            ("half ODPM, half UMPM (PCIe E2E), 32 kB", 4.8),
            ("ODPM by 16 pages (PCIe E2E), 32 kB", 16.0),
        ] {
            let value = value(&report, what);
            assert!((value - wanted).abs() < 1e-9, "{what}: {value} and not {wanted}");
        }
        assert!(report.rows.iter().all(|row| !row.what.contains("half UMPM (PCIe), 4 kB")));
    }

    #[test]
    fn every_figure_that_the_live_machine_can_show_is_drawn() {
        let report = report();
        let names: Vec<_> = report.figures.iter().map(|figure| figure.name.as_str()).collect();
        let wanted = ["figure-4", "figure-5", "figure-6b", "figure-6c", "figure-7", "on-demand"];
        assert_eq!(names, wanted);
        for figure in &report.figures {
            assert_eq!(figure.check(), Ok(()), "{}", figure.name);
        }
    }
}
