//! The model of the window and its VHDL in lockstep: the same requests, invalidations and words of the
//! tables go into both, and every read and every answer is compared.
//!
//! Then what a reader gets through them, and what is promised of that.
//!
//! `scripts/rtl/test.sh` and `scripts/rtl/report.sh` make the netlists that this loads, and run it: it is
//! ignored otherwise. `FARSIDE_RTL_CYCLES` says how many cycles each netlist runs in lockstep,
//! `FARSIDE_RTL_NETLIST`, if it is set, which one does, and `FARSIDE_RTL_SEED` the first of the four seeds.

mod random;
mod rig_rtl;

use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;

use farside_card::window::WindowGeometry;
use rig_rtl::chapter6;
use rig_rtl::netlist::Netlist;
use rig_rtl::throughput::{LATENCY, Load, Measured, Pattern, raw, translated};
use rig_rtl::whole::Whole;
use rig_rtl::{Counts, Lockstep, Shape};

/// Sizes of each netlist, as `scripts/rtl/netlists.sh` makes them.
fn shapes() -> Vec<Shape> {
    let geometry =
        |page, levels: &[u32], physical| WindowGeometry::new(page, levels, physical).unwrap();
    let entries = |number| NonZeroUsize::new(number).expect("some");
    vec![
        Shape {
            name: "default",
            geometry: geometry(12, &[13, 13], 40),
            address_bits: 64,
            root_bits: 13,
            tag_bits: 8,
            set_bits: 8,
            ways: 4,
            epoch_bits: 16,
            line_bits: 3,
            lines: 32,
            ahead_from: 4,
            entries: entries(8),
            requests: 33,
        },
        Shape {
            name: "small",
            geometry: geometry(12, &[2, 3], 20),
            address_bits: 32,
            root_bits: 2,
            tag_bits: 3,
            set_bits: 0,
            ways: 0,
            epoch_bits: 16,
            line_bits: 1,
            lines: 3,
            ahead_from: 1,
            entries: entries(3),
            requests: 4,
        },
        Shape {
            name: "one",
            geometry: geometry(18, &[3, 4], 36),
            // No bit of an address is above those of a place in memory.
            address_bits: 36,
            root_bits: 3,
            tag_bits: 1,
            set_bits: 1,
            ways: 1,
            epoch_bits: 1,
            line_bits: 0,
            lines: 1,
            ahead_from: 0,
            entries: entries(1),
            requests: 2,
        },
        Shape {
            name: "odd",
            geometry: geometry(14, &[3, 4], 30),
            address_bits: 40,
            root_bits: 3,
            tag_bits: 4,
            set_bits: 2,
            ways: 3,
            epoch_bits: 3,
            line_bits: 2,
            lines: 5,
            ahead_from: 2,
            entries: entries(5),
            requests: 8,
        },
    ]
}

fn netlists() -> PathBuf {
    PathBuf::from(std::env::var_os("FARSIDE_RTL_NETLISTS").expect("the netlists' folder"))
}

/// Cycles that each netlist runs.
fn cycles() -> u64 {
    std::env::var("FARSIDE_RTL_CYCLES").map_or(100_000, |text| text.parse().expect("a number"))
}

/// The seeds that each netlist runs with.
fn seeds() -> Range<u64> {
    let first = std::env::var("FARSIDE_RTL_SEED").map_or(0, |text| text.parse().expect("a number"));
    first..first + 4
}

/// Whether the netlist of this name runs.
fn is_asked_for(name: &str) -> bool {
    std::env::var("FARSIDE_RTL_NETLIST").map_or(true, |asked| asked == name)
}

#[test]
#[ignore = "scripts/rtl/test.sh makes the netlists for it"]
fn model_and_vhdl_answer_the_same() {
    let (folder, cycles) = (netlists(), cycles());
    let mut shapes = shapes();
    shapes.retain(|shape| is_asked_for(shape.name));
    assert!(
        !shapes.is_empty() || is_asked_for("mmu"),
        "FARSIDE_RTL_NETLIST is the name of no netlist"
    );
    for shape in shapes {
        for seed in seeds() {
            let mut lockstep = Lockstep::new(&folder, &shape, seed);
            lockstep.run(cycles / 8);
            lockstep.reset();
            lockstep.run(cycles / 8);
            let counts = lockstep.finish();
            println!("{} seed {seed}: {counts:?}", shape.name);
            let Counts { answers, faults, held, drains, ahead, .. } = counts;
            assert!(
                answers > cycles / 2000 && faults > answers / 100 && drains > cycles / 4000,
                "{counts:?}"
            );
            assert_eq!(held > 0, shape.ways > 0, "{counts:?}");
            assert_eq!(ahead > 0, shape.ahead_from < 1 << shape.line_bits, "{counts:?}");
        }
    }
}

#[test]
#[ignore = "scripts/rtl/test.sh makes the netlists for it"]
fn model_and_vhdl_answer_the_same_to_readers_and_writers() {
    if !is_asked_for("mmu") {
        return;
    }
    let (folder, cycles) = (netlists(), cycles());
    let mut often = [0; 6];
    for seed in seeds() {
        let seen = Whole::new(&folder, seed).run(cycles / 4);
        println!("mmu seed {seed}: {seen:?}");
        assert!(seen.bursts > cycles / 400, "{seen:?}");
        let [not_mapped, read_only, bus_error, bad_entry, no_frame] = seen.faults;
        assert_eq!(no_frame, 0, "there is no allocator");
        let kinds = [not_mapped, read_only, bus_error, bad_entry, seen.of_runs, seen.untranslated];
        often = std::array::from_fn(|kind| often[kind] + kinds[kind]);
    }
    assert!(often.iter().all(|&times| times > cycles / 20_000), "{often:?}");
}

/// A row of the report: what it is, a netlist, a load, and the least beats a cycle that are promised.
struct Row {
    what: &'static str,
    netlist: &'static str,
    load: Load,
    least: f64,
}

/// Random requests to 2^20 pages of 4 KiB.
fn random(beats: u64, gap: u64) -> Load {
    let pattern = Pattern::Random { pages: 1 << 20 };
    Load { pattern, page_bits: 12, leaf_bits: 13, beats, requests: 40_000, gap, outstanding: 64 }
}

fn linear(page_bits: u32, bytes: u64, outstanding: usize) -> Load {
    let requests = bytes >> 10;
    Load { pattern: Pattern::Linear, page_bits, requests, outstanding, ..random(16, 1) }
}

/// What docs/rtl/performance.md has, in its order.
fn rows() -> Vec<Row> {
    let row = |what, netlist, load, least| Row { what, netlist, load, least };
    let in_32_pages = Load { pattern: Pattern::Random { pages: 32 }, ..random(16, 1) };
    vec![
        row("linear, 4 KiB pages, 8 MiB", "walks32", linear(12, 8 << 20, 64), 0.99),
        row("the same, nothing read ahead", "noahead", linear(12, 8 << 20, 64), 0.0),
        row("linear, depth 1", "depth1", linear(12, 8 << 20, 64), 0.99),
        row("the same, nothing read ahead", "noahead1", linear(12, 8 << 20, 64), 0.0),
        row("the same, lines of one word", "narrow1", linear(12, 8 << 20, 64), 0.0),
        row("linear, depth 1, 8 reads outstanding", "depth1", linear(12, 8 << 20, 8), 0.99),
        row("the same, nothing read ahead", "noahead1", linear(12, 8 << 20, 8), 0.0),
        row("linear, 4 MiB pages, 64 MiB", "pages4m", linear(22, 64 << 20, 64), 0.999),
        row("random, 1 beat, 21 walks", "walks21", random(1, 1), 0.0),
        row("random, 1 beat, 32 walks", "walks32", random(1, 1), 0.38),
        row("random, 1 beat, 64 walks", "walks64", random(1, 1), 0.46),
        row("random, 4 beats, 32 walks", "walks32", random(4, 1), 0.0),
        row("random, 16 beats, 32 walks", "walks32", random(16, 1), 0.92),
        row("random, 64 beats, 32 walks", "walks32", random(64, 1), 0.0),
        row("random, 1 beat, 21 walks, a read in 4 cycles", "walks21", random(1, 4), 0.0),
        row("random, 4 beats, 21 walks, a read in 4 cycles", "walks21", random(4, 4), 0.0),
        row("random, 16 beats, 21 walks, a read in 4 cycles", "walks21", random(16, 4), 0.0),
        row("random in 32 pages, 16 beats, 21 walks", "walks21", in_32_pages, 0.99),
        row("the same, 32 translations", "entries32", in_32_pages, 0.99),
    ]
}

#[test]
#[ignore = "scripts/rtl/report.sh makes the netlists for it"]
fn a_reader_gets_what_is_promised() {
    let folder = netlists();
    let new = |name: &str| Netlist::load(&folder.join(format!("{name}.so")));
    println!("| load | raw | translated | lines read |");
    println!("|---|---|---|---|");
    let mut short = Vec::new();
    for Row { what, netlist, load, least } in rows() {
        let raw = raw(load);
        let Measured { beats, lines, .. } = translated(&mut new(netlist), load);
        println!("| {what} | {raw:.4} | {beats:.4} | {lines} |");
        if beats < least {
            short.push(what);
        }
    }
    let once = Load { requests: 1, ..random(16, 1) };
    let Measured { place, data, .. } = translated(&mut new("walks32"), once);
    println!(
        "a miss of an idle translator, L2 TLB and walker: {place} cycles to its place, {data} to data"
    );
    assert!(place <= LATENCY + 8 && data <= 2 * LATENCY + 8, "a miss: {place}, {data}");
    assert!(short.is_empty(), "less than is promised: {short:?}");
}

#[test]
#[ignore = "scripts/rtl/report.sh makes the netlists for it, and says where the points go"]
fn chapter_6_again() {
    let path = std::env::var_os("FARSIDE_RTL_POINTS").expect("a file for the points");
    chapter6::write(&netlists(), path.as_ref()).expect("the points can be written");
}
