//! The paper's figures.

use farside_sim::cards::paper::{self, SIZES};
use farside_sim::cards::{Migration, Transport};

use super::measured::{Measured, percent};
use crate::reproduce::{Axis, Bar, Drawing, Figure, Series};

/// All of them.
pub(super) fn all(measured: &Measured) -> Vec<Figure> {
    let mut figures = vec![figure_4(measured), figure_5(measured)];
    for (name, transport) in [
        ("figure-6a", Transport::Ethernet),
        ("figure-6b", Transport::Bounce),
        ("figure-6c", Transport::Peer),
    ] {
        figures.push(figure_6(measured, name, transport));
    }
    figures.push(figure_7(measured));
    figures
}

pub(super) fn axis(label: &str) -> Axis {
    Axis { label: label.to_owned(), ..Axis::default() }
}

pub(super) fn size_names() -> Vec<String> {
    SIZES.iter().map(|size| size.name.to_owned()).collect()
}

/// Bars by size of buffer, relative to something.
fn relative(name: &str, title: &str, y: &str, note: &str, series: Vec<Series>) -> Figure {
    Figure {
        name: name.to_owned(),
        title: title.to_owned(),
        note: Some(note.to_owned()),
        x: axis("buffer"),
        y: axis(y),
        drawing: Drawing::Bars { groups: size_names(), series, baseline: Some(1.0) },
    }
}

/// One value per size.
fn series(
    label: String,
    ours: impl Fn(usize) -> f64,
    paper: Option<&dyn Fn(usize) -> f64>,
) -> Series {
    let sizes = 0..SIZES.len();
    let paper = paper.map(|paper| sizes.clone().map(|size| Some(paper(size))).collect());
    let values = sizes.map(|size| Some(ours(size))).collect();
    Series { label, values, paper: paper.unwrap_or_default() }
}

fn figure_4(measured: &Measured) -> Figure {
    let base = |size| measured.on_demand(Transport::Bounce, size);
    let printed = |size: usize| paper::on_demand(Transport::Bounce)[size];
    let mut bars = Vec::new();
    for transport in [Transport::Peer, Transport::Ethernet] {
        let ours = |size| base(size) / measured.on_demand(transport, size);
        let theirs = |size| printed(size) / paper::on_demand(transport)[size];
        bars.push(series(format!("ODPM ({})", transport.name()), ours, Some(&theirs)));
    }
    for transport in Transport::ALL {
        let ours = |size| base(size) / measured.user_managed(transport, size);
        let theirs = |size| printed(size) / paper::user_managed(transport)[size];
        bars.push(series(format!("UMPM ({})", transport.name()), ours, Some(&theirs)));
    }
    let note = "Baseline: ODPM over PCIe with a bounce buffer. On-demand bars are predicted.";
    relative("figure-4", "Figure 4: the synthetic accelerator", "speedup", note, bars)
}

fn figure_5(measured: &Measured) -> Figure {
    let base = |size| measured.migration(Transport::Bounce, size);
    let printed = |size: usize| paper::migration(Transport::Bounce)[size];
    let mut bars = Vec::new();
    for transport in Transport::ALL {
        let name = transport.name();
        let scattered =
            |size| base(size) / measured.cell(transport, size).scattered.time.as_micros_f64();
        if transport != Transport::Bounce {
            let ours = |size| base(size) / measured.migration(transport, size);
            let theirs = |size| printed(size) / paper::migration(transport)[size];
            bars.push(series(format!("{name}, contiguous"), ours, Some(&theirs)));
        }
        bars.push(series(format!("{name}, scattered"), scattered, None));
    }
    let note = "Baseline: PCIe with a bounce buffer, contiguous source pages.";
    relative("figure-5", "Figure 5: migrations from card to card", "speedup", note, bars)
}

fn figure_6(measured: &Measured, name: &str, transport: Transport) -> Figure {
    let bar = |group: usize, label: &str, migration: &Migration| {
        let steps = migration.steps;
        let parts = [steps.setup, steps.allocate, steps.dma, steps.finalize];
        let parts = parts.iter().map(|&step| percent(step, migration)).collect();
        Bar { group, label: label.to_owned(), parts }
    };
    let mut bars = Vec::new();
    for group in 0..SIZES.len() {
        let cell = measured.cell(transport, group);
        bars.push(bar(group, "cont.", &cell.contiguous));
        bars.push(bar(group, "scat.", &cell.scattered));
    }
    let parts = ["setup", "allocate", "DMA", "finalize"].map(str::to_owned).to_vec();
    let y = Axis { to: Some(100.0), ..axis("share of the migration in %") };
    Figure {
        name: name.to_owned(),
        title: format!("Figure 6: steps of a migration, {}", transport.name()),
        note: Some("Source pages contiguous and scattered.".to_owned()),
        x: axis("buffer"),
        y,
        drawing: Drawing::Stacked { groups: size_names(), parts, bars },
    }
}

fn figure_7(measured: &Measured) -> Figure {
    let base = |size| measured.host(size).to_card.time.as_micros_f64();
    let mut bars: Vec<Series> = Transport::ALL
        .iter()
        .map(|&transport| {
            let ours = |size| base(size) / measured.migration(transport, size);
            series(format!("card to card ({})", transport.name()), ours, None)
        })
        .collect();
    let to_host = |size| base(size) / measured.host(size).from_card.time.as_micros_f64();
    bars.push(series("card to host".to_owned(), to_host, None));
    let note = "Baseline: host to card, whose constants are assumed from the paper's text.";
    relative("figure-7", "Figure 7: from and to the host", "speedup", note, bars)
}
