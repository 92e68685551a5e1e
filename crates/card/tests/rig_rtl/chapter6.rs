//! The measurements of chapter 6 of Wijtemans's thesis (*Enabling FPGA Memory Management for Big Data Applications
//! Using Fletcher*), repeated with our VHDL: throughput against translations held (Figure 6.2), size of a page (6.3) and
//! walks under way (6.4).

use std::io::{self, Write};
use std::path::Path;

use super::netlist::Netlist;
use super::throughput::{Load, Measured, Pattern, raw, translated};

/// Beats of a request, as in the thesis's figures.
const BEATS: [u64; 4] = [1, 4, 16, 64];
/// Requests of a random load.
const REQUESTS: u64 = 10_000;
/// Bytes that a linear load goes through.
const LINEAR_BYTES: u64 = 64 << 20;

/// A memory: cycles from one read that is taken to the next, and reads of the reader under way.
struct Interconnect {
    name: &'static str,
    gap: u64,
    outstanding: usize,
}

/// One that takes a read each cycle, and the thesis's, which takes a quarter of them.
const INTERCONNECTS: [Interconnect; 2] = [
    Interconnect { name: "ideal", gap: 1, outstanding: 64 },
    Interconnect { name: "quarter", gap: 4, outstanding: 32 },
];

/// One point of a figure.
struct Point {
    figure: &'static str,
    series: String,
    x: u64,
    netlist: String,
    interconnect: &'static Interconnect,
    load: Load,
}

/// Writes all points to `path`, as CSV: a point a line, throughput in beats a cycle.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(netlists: &Path, path: &Path) -> io::Result<()> {
    let mut file = io::BufWriter::new(std::fs::File::create(path)?);
    writeln!(file, "figure,series,interconnect,beats,x,raw,translated,lines")?;
    for Point { figure, series, x, netlist, interconnect, load } in points() {
        let raw = raw(load);
        let mut netlist = Netlist::load(&netlists.join(format!("{netlist}.so")));
        let Measured { beats, lines, .. } = translated(&mut netlist, load);
        let (name, size) = (interconnect.name, load.beats);
        writeln!(file, "{figure},{series},{name},{size},{x},{raw:.5},{beats:.5},{lines}")?;
    }
    file.flush()
}

fn points() -> Vec<Point> {
    let mut points = Vec::new();
    for interconnect in &INTERCONNECTS {
        points.extend(against_entries(interconnect));
        points.extend(against_page_size(interconnect));
        points.extend(against_walks(interconnect));
    }
    points
}

/// 2 GiB in pages of 64 MiB, one walk at a time.
fn against_entries(interconnect: &'static Interconnect) -> Vec<Point> {
    let point = |entries: u64, beats| Point {
        figure: "6.2",
        series: "pages of 64 MiB".to_owned(),
        x: entries,
        netlist: format!("entries{entries}"),
        interconnect,
        load: random(interconnect, 26, 32, beats),
    };
    let of = |entries| BEATS.map(|beats| point(entries, beats));
    [1, 2, 4, 8, 16, 32].into_iter().flat_map(of).collect()
}

/// Linear, requests of 16 beats; a reader that waits for one address at a time, and one that does not.
fn against_page_size(interconnect: &'static Interconnect) -> Vec<Point> {
    let point = |depth: u64, page_bits: u32| Point {
        figure: "6.3",
        series: format!("depth {depth}"),
        x: 1 << page_bits,
        netlist: format!("pages{page_bits}depth{depth}"),
        interconnect,
        load: linear(interconnect, page_bits),
    };
    let of = |depth| [12, 14, 16, 18, 20, 22, 24].map(|page_bits| point(depth, page_bits));
    [1, 64].into_iter().flat_map(of).collect()
}

/// One translation is held: the thesis's pages, of which there are 32, and so many that none is met again.
fn against_walks(interconnect: &'static Interconnect) -> Vec<Point> {
    let point = |walks: u64, page_bits: u32, pages, series: &str, beats| Point {
        figure: "6.4",
        series: series.to_owned(),
        x: walks,
        netlist: format!("walks{walks}pages{page_bits}"),
        interconnect,
        load: random(interconnect, page_bits, pages, beats),
    };
    let of = |walks| {
        BEATS.into_iter().flat_map(move |beats| {
            [
                point(walks, 26, 32, "32 pages of 64 MiB", beats),
                point(walks, 12, 1 << 20, "2^20 pages of 4 KiB", beats),
            ]
        })
    };
    [1, 2, 4, 8, 16, 21, 32, 64].into_iter().flat_map(of).collect()
}

fn random(interconnect: &Interconnect, page_bits: u32, pages: u64, beats: u64) -> Load {
    let &Interconnect { gap, outstanding, .. } = interconnect;
    let pattern = Pattern::Random { pages };
    Load { pattern, page_bits, leaf_bits: 13, beats, requests: REQUESTS, gap, outstanding }
}

fn linear(interconnect: &Interconnect, page_bits: u32) -> Load {
    let requests = LINEAR_BYTES >> 10;
    Load { pattern: Pattern::Linear, requests, ..random(interconnect, page_bits, 0, 16) }
}
