//! The numbers that the paper prints, beside ours.

use farside_sim::cards::Transport::{self, Bounce, Ethernet, Peer};
use farside_sim::cards::paper::{self, Micros, SIZES};

use super::measured::{Measured, percent};
use super::times::{Times, Way};
use crate::reproduce::Row;

/// Columns of the tables by name.
const KB_4: usize = 0;
const KB_32: usize = 1;
const MB_1: usize = 3;
const MB_4: usize = 4;
const MB_32: usize = 5;

/// All of them, in the order of the paper.
pub(super) fn rows(measured: &Measured) -> Vec<Row> {
    let times = measured.times();
    let mut rows = table_1(&times);
    rows.extend(demand_text(measured));
    rows.extend(table_2(&times));
    rows.extend(speed_text(measured));
    rows.extend(figure_5_rows(&times));
    rows.extend(step_text(measured));
    rows.extend(figure_7_rows(&times));
    rows
}

/// A row of a report.
pub fn row(what: &str, unit: &str, paper: Option<f64>, ours: f64, source: &str) -> Row {
    let (what, unit, source) = (what.to_owned(), unit.to_owned(), source.to_owned());
    Row { what, unit, paper, ours, source }
}

/// A time given in µs, in the unit that the paper would print it in.
pub fn time(what: &str, paper: Option<f64>, ours: f64, source: &str) -> Row {
    if paper.unwrap_or(ours) < 100.0 {
        return row(what, "µs", paper, ours, source);
    }
    row(what, "ms", paper.map(|micros| micros / 1e3), ours / 1e3, source)
}

fn table<'a>(
    what: &str,
    source: &str,
    ways: impl Iterator<Item = &'a Way>,
    paper: fn(Transport) -> Micros,
    ours: fn(&Way) -> &Micros,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for way in ways {
        for (column, size) in SIZES.iter().enumerate() {
            let what = format!("{what} ({}), {}", way.transport.name(), size.name);
            let printed = Some(paper(way.transport)[column]);
            rows.push(time(&what, printed, ours(way)[column], source));
        }
    }
    rows
}

/// Table I: the synthetic accelerator.
pub fn table_1(times: &Times) -> Vec<Row> {
    let mut rows = table("ODPM", "Table I", times.ways(), paper::on_demand, |way| &way.on_demand);
    let user_managed = paper::user_managed;
    rows.extend(table("UMPM", "Table I", times.ways(), user_managed, |way| &way.user_managed));
    rows
}

/// Table II: migrations from card to card.
pub fn table_2(times: &Times) -> Vec<Row> {
    table("migration", "Table II", times.ways(), paper::migration, |way| &way.contiguous)
}

fn demand_text(measured: &Measured) -> Vec<Row> {
    let report = measured.cell(Ethernet, MB_32).on_demand;
    let batch = report.faults as f64 / report.batches as f64;
    let best = measured.on_demand(Bounce, MB_4) / measured.user_managed(Ethernet, MB_4);
    let source = "Section V-A";
    vec![
        row("pages of a batch on demand", "", Some(16.0), batch, source),
        row("UMPM by Ethernet over ODPM by PCIe, 4 MB", "x", Some(3.90 / 1.86), best, source),
    ]
}

/// What the text says of Figure 5.
const FIGURE_5: &str = "Section V-B, Figure 5";

fn speed_text(measured: &Measured) -> Vec<Row> {
    let over =
        |transport, size| measured.migration(Bounce, size) / measured.migration(transport, size);
    let highest = "PCIe E2E over PCIe, 32 kB: the highest";
    let ethernet = "Ethernet over PCIe, 1 MB";
    vec![
        row(highest, "x", Some(24.6 / 16.4), over(Peer, KB_32), FIGURE_5),
        row(ethernet, "x", Some(0.31 / 0.21), over(Ethernet, MB_1), "Section VI"),
    ]
}

/// Figure 5: direct transports over the bounce buffer, scattered pages over contiguous ones.
pub fn figure_5_rows(times: &Times) -> Vec<Row> {
    let mut rows = Vec::new();
    for way in &times.direct {
        let (bounce, direct) = (paper::migration(Bounce), paper::migration(way.transport));
        for (column, size) in SIZES.iter().enumerate() {
            let printed = bounce[column] / direct[column];
            let ours = times.bounce.contiguous[column] / way.contiguous[column];
            let what = format!("{} over PCIe, {}", way.transport.name(), size.name);
            rows.push(row(&what, "x", Some(printed), ours, "Figure 5"));
        }
    }
    for way in times.ways() {
        for (column, size) in SIZES.iter().enumerate() {
            let ratio = way.scattered[column] / way.contiguous[column];
            let name = way.transport.name();
            let what = format!("scattered over contiguous, {name}, {}", size.name);
            rows.push(row(&what, "x", None, ratio, FIGURE_5));
        }
    }
    rows
}

fn step_text(measured: &Measured) -> Vec<Row> {
    let source = "Section V-C, Figure 6";
    let migration = |transport, size| &measured.cell(transport, size).contiguous;
    let setup = |transport, size| {
        let migration = migration(transport, size);
        percent(migration.steps.setup, migration)
    };
    let copy = |transport, size| {
        let migration = migration(transport, size);
        percent(migration.steps.dma, migration)
    };
    let least = Transport::ALL.iter().map(|&t| setup(t, KB_4)).fold(f64::MAX, f64::min);
    let most = Transport::ALL.iter().map(|&t| setup(t, KB_4)).fold(0.0, f64::max);
    let at_1_mb = Transport::ALL.iter().map(|&t| setup(t, MB_1)).fold(0.0, f64::max);
    let mut rows = vec![
        row("setup at 4 kB, least of the transports", "%", Some(18.0), least, source),
        row("setup at 4 kB, most of the transports", "%", Some(25.0), most, source),
        row("setup at 1 MB, most; the paper: below", "%", Some(10.0), at_1_mb, source),
    ];
    for transport in [Peer, Ethernet] {
        for (size, name, printed) in
            [(KB_4, "4 kB", 50.0), (MB_1, "1 MB", 55.0), (MB_32, "32 MB", 50.0)]
        {
            let what = format!("DMA, {}, {name}: about", transport.name());
            rows.push(row(&what, "%", Some(printed), copy(transport, size), source));
        }
    }
    let bounce: Vec<f64> = (0..SIZES.len()).map(|size| copy(Bounce, size)).collect();
    let ends = (
        bounce.iter().copied().fold(f64::MAX, f64::min),
        bounce.iter().copied().fold(0.0, f64::max),
    );
    rows.push(row("DMA, PCIe, least of the sizes", "%", Some(60.0), ends.0, source));
    rows.push(row("DMA, PCIe, most of the sizes", "%", Some(75.0), ends.1, source));
    for transport in Transport::ALL {
        let migration = migration(transport, MB_32);
        let ours = percent(migration.steps.finalize, migration);
        let what = format!("finalize, {}, 32 MB", transport.name());
        rows.push(row(&what, "%", Some(paper::finalize_percent(transport)), ours, source));
    }
    rows
}

/// Figure 7: migrations over those from the host to a card.
pub fn figure_7_rows(times: &Times) -> Vec<Row> {
    let source = "Section V-D, Figure 7";
    let mut rows = Vec::new();
    for way in times.ways() {
        for (column, size) in SIZES.iter().enumerate() {
            let ours = times.to_card[column] / way.contiguous[column];
            // "A maximum observed speedup of almost 1.4x for 32 MB and Ethernet transfers."
            let printed = (way.transport == Ethernet && column == MB_32).then_some(1.4);
            let what = format!("{} over host to card, {}", way.transport.name(), size.name);
            rows.push(row(&what, "x", printed, ours, source));
        }
    }
    for (column, size) in SIZES.iter().enumerate() {
        let ours = times.to_card[column] / times.from_card[column];
        let what = format!("card to host over host to card, {}", size.name);
        rows.push(row(&what, "x", None, ours, source));
    }
    rows
}
