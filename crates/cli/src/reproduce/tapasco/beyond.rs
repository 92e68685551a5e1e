//! Past the paper: what this project's driver gives on the same hardware, larger batches, larger
//! pages, pointer chasing, and up to 16 cards.

use farside_sim::cards::measure::{self, Exchange};
use farside_sim::cards::paper::SIZES;
use farside_sim::cards::{CardsError, CardsSpec, Topology, Transport};

use super::figures::{axis, size_names};
use super::measured::Measured;
use super::tables::{row, time};
use crate::reproduce::{Axis, Drawing, Figure, Line, Row, Series};

/// Pages of an array in the exchanges between all cards: 2 MiB.
const EXCHANGED: u64 = 512;
/// Pages of the list: 4 MB.
const LIST: u64 = 1_024;
const LARGEST: usize = SIZES.len() - 1;

/// Rows and figures.
#[derive(Default)]
pub(super) struct Beyond {
    pub(super) rows: Vec<Row>,
    pub(super) figures: Vec<Figure>,
}

pub(super) fn run(theirs: &Measured, ours: &Measured) -> Result<Beyond, CardsError> {
    let mut beyond = Beyond::default();
    beyond.driver(theirs, ours);
    beyond.batches(&theirs.spec)?;
    beyond.chunks(&ours.spec)?;
    beyond.entries(&theirs.spec)?;
    beyond.chase(&theirs.spec, &ours.spec)?;
    beyond.cards(&theirs.spec)?;
    Ok(beyond)
}

impl Beyond {
    /// The better driver on the same hardware.
    fn driver(&mut self, theirs: &Measured, ours: &Measured) {
        let source = "beyond: Farside's driver";
        for transport in Transport::ALL {
            let name = transport.name();
            let (before, after) =
                (theirs.on_demand(transport, LARGEST), ours.on_demand(transport, LARGEST));
            self.rows.push(time(&format!("Farside: ODPM ({name}), 32 MB"), None, after, source));
            let what = format!("Farside: ODPM ({name}), 32 MB, speedup");
            self.rows.push(row(&what, "x", None, before / after, source));
            let (before, after) =
                (theirs.migration(transport, LARGEST), ours.migration(transport, LARGEST));
            self.rows.push(time(
                &format!("Farside: migration ({name}), 32 MB"),
                None,
                after,
                source,
            ));
            let what = format!("Farside: migration ({name}), 32 MB, speedup");
            self.rows.push(row(&what, "x", None, before / after, source));
        }
        let report = ours.cell(Transport::Ethernet, LARGEST).on_demand;
        let batch = SIZES[LARGEST].pages as f64 / report.batches as f64;
        self.rows.push(row(
            "Farside: pages moved for a batch of faults, mean",
            "",
            None,
            batch,
            source,
        ));
        self.figures.push(driver_figure(theirs, ours));
    }

    /// Larger batches of faults: more reads in flight.
    fn batches(&mut self, spec: &CardsSpec) -> Result<(), CardsError> {
        let mut points = Vec::new();
        for batch in ["16", "32", "64", "128", "256", "512"] {
            let values = [
                ("mmu.reads_in_flight", batch),
                ("mmu.fault_entries", "512"),
                ("driver.fault_batch", "512"),
                ("pe.page_ns", "0"),
            ];
            let spec = spec.with_transport(Transport::Ethernet).with_overrides(&values)?;
            let report = measure::update_on_demand(&spec, SIZES[LARGEST].pages)?;
            let micros = report.time.as_micros_f64();
            let what =
                format!("ODPM (Ethernet), 32 MB, {batch} reads in flight, no work on the data");
            self.rows.push(time(&what, None, micros, "beyond: batches"));
            points.push((batch.parse().unwrap_or_default(), micros / 1e3));
        }
        let line = Line { label: "on demand".to_owned(), points, paper: false };
        self.figures.push(Figure {
            name: "batches".to_owned(),
            title: "32 MB over Ethernet on demand, by the size of batches".to_owned(),
            note: Some(
                "The accelerator only reads and writes; it does no work on the data.".into(),
            ),
            x: Axis { log: true, ..axis("pages of a batch") },
            y: Axis { from: Some(0.0), ..axis("ms") },
            drawing: Drawing::Lines(vec![line]),
        });
        Ok(())
    }

    /// Chunks of 4 MB: the software of one works while another is copied.
    fn chunks(&mut self, spec: &CardsSpec) -> Result<(), CardsError> {
        for transport in Transport::ALL {
            let values = [("driver.chain_pages", "1024")];
            let spec = spec.with_transport(transport).with_overrides(&values)?;
            let layout = farside_sim::cards::Layout::Contiguous;
            let migration = measure::card_to_card(&spec, SIZES[LARGEST].pages, layout)?;
            let what =
                format!("Farside: migration ({}), 32 MB in chunks of 4 MB", transport.name());
            let micros = migration.time.as_micros_f64();
            self.rows.push(time(&what, None, micros, "beyond: chunks"));
        }
        Ok(())
    }

    /// Entries of the page table that map 2 MiB, and nobody who sleeps.
    fn entries(&mut self, spec: &CardsSpec) -> Result<(), CardsError> {
        let values = [("host.entry_pages", "512"), ("host.poll_below_pages", "1000000")];
        for transport in Transport::ALL {
            let spec = spec.with_transport(transport).with_overrides(&values)?;
            let layout = farside_sim::cards::Layout::Contiguous;
            let migration = measure::card_to_card(&spec, SIZES[LARGEST].pages, layout)?;
            let what =
                format!("migration ({}), 32 MB, 2 MiB entries, polled for", transport.name());
            let micros = migration.time.as_micros_f64();
            self.rows.push(time(&what, None, micros, "beyond: 2 MiB entries"));
        }
        Ok(())
    }

    /// A list of 4 MB, of which some nodes are visited.
    fn chase(&mut self, theirs: &CardsSpec, ours: &CardsSpec) -> Result<(), CardsError> {
        let visits = [1, 4, 16, 64, 256, 1_024, 4_096];
        let mut lines = Vec::new();
        for (label, spec) in [("as published", theirs), ("Farside", ours)] {
            let spec = spec.with_transport(Transport::Ethernet);
            let mut points = Vec::new();
            for nodes in visits {
                let report = measure::chase_on_demand(&spec, LIST, nodes)?;
                let micros = report.time.as_micros_f64();
                let what = format!("chase on demand, {label}, 4 MB list, nodes visited: {nodes}");
                self.rows.push(time(&what, None, micros, "beyond: pointer chase"));
                points.push((nodes as f64, micros / 1e3));
            }
            lines.push(Line { label: format!("on demand, {label}"), points, paper: false });
        }
        let spec = theirs.with_transport(Transport::Ethernet);
        let mut points = Vec::new();
        for nodes in visits {
            let report = measure::chase_user_managed(&spec, LIST, nodes)?;
            let micros = report.time.as_micros_f64();
            let what = format!("chase user-managed, 4 MB list, nodes visited: {nodes}");
            self.rows.push(time(&what, None, micros, "beyond: pointer chase"));
            points.push((nodes as f64, micros / 1e3));
        }
        lines.push(Line { label: "user-managed".to_owned(), points, paper: false });
        self.figures.push(Figure {
            name: "chase".to_owned(),
            title: "Pointer chase through a list of 4 MB on another card, over Ethernet".to_owned(),
            note: Some(
                "On demand pays for the pages that are visited, one fault at a time.".into(),
            ),
            x: Axis { log: true, ..axis("nodes visited") },
            y: Axis { log: true, ..axis("ms") },
            drawing: Drawing::Lines(lines),
        });
        Ok(())
    }

    /// Every card sends to every other.
    fn cards(&mut self, spec: &CardsSpec) -> Result<(), CardsError> {
        let mut lines = Vec::new();
        let ways = [
            ("Ethernet, direct", Transport::Ethernet, Topology::Direct),
            ("Ethernet, switched", Transport::Ethernet, Topology::Switch),
            ("PCIe E2E", Transport::Peer, Topology::Direct),
            ("PCIe", Transport::Bounce, Topology::Direct),
        ];
        for (label, transport, topology) in ways {
            let mut points = Vec::new();
            for cards in [2, 4, 8, 16] {
                let spec = joined(spec, cards, transport, topology);
                let all: Exchange = measure::all_to_all(&spec, EXCHANGED)?;
                let what = format!("all to all, {label}, {cards} cards");
                self.rows.push(row(&what, "GB/s", None, all.gb_per_s(), "beyond: cards"));
                points.push((f64::from(cards), all.gb_per_s()));
            }
            lines.push(Line { label: label.to_owned(), points, paper: false });
        }
        for topology in [Topology::Direct, Topology::Switch] {
            let spec = joined(spec, 8, Transport::Ethernet, topology);
            let one = measure::all_to_one(&spec, EXCHANGED)?;
            let what = format!("all to one, Ethernet, {topology:?}, 8 cards").to_lowercase();
            self.rows.push(row(&what, "GB/s", None, one.gb_per_s(), "beyond: cards"));
        }
        let note = "2 MiB from every card to every other, as published. The root complex (64 GB/s) and \
                    a cable between each two cards are assumed.";
        self.figures.push(Figure {
            name: "cards".to_owned(),
            title: "All cards send to all others".to_owned(),
            note: Some(note.to_owned()),
            x: axis("cards"),
            y: Axis { log: true, ..axis("GB/s, all cards together") },
            drawing: Drawing::Lines(lines),
        });
        Ok(())
    }
}

fn joined(spec: &CardsSpec, cards: u32, transport: Transport, topology: Topology) -> CardsSpec {
    let mut spec = spec.with_transport(transport);
    spec.machine.cards = cards;
    spec.machine.memory_pages = 1 << 16;
    spec.ethernet.topology = topology;
    spec
}

/// The synthetic accelerator over Ethernet, as published and by our driver.
fn driver_figure(theirs: &Measured, ours: &Measured) -> Figure {
    let ethernet = Transport::Ethernet;
    let base = |size| theirs.on_demand(ethernet, size);
    let bar = |label: &str, time: &dyn Fn(usize) -> f64| Series {
        label: label.to_owned(),
        values: (0..SIZES.len()).map(|size| Some(base(size) / time(size))).collect(),
        paper: Vec::new(),
    };
    let series = vec![
        bar("ODPM, Farside", &|size| ours.on_demand(ethernet, size)),
        bar("UMPM, as published", &|size| theirs.user_managed(ethernet, size)),
        bar("UMPM, Farside", &|size| ours.user_managed(ethernet, size)),
    ];
    Figure {
        name: "driver".to_owned(),
        title: "The synthetic accelerator over Ethernet with Farside's driver".to_owned(),
        note: Some("Baseline: ODPM over Ethernet as published. Same hardware, same kernel.".into()),
        x: axis("buffer"),
        y: axis("speedup"),
        drawing: Drawing::Bars { groups: size_names(), series, baseline: Some(1.0) },
    }
}
