//! The paper's figures.

use farside_sim::cards::Transport;
use farside_sim::cards::paper::{self, Micros, SIZES};

use super::times::{Times, Way};
use crate::reproduce::{Axis, Bar, Drawing, Figure, Series};

pub(super) fn axis(label: &str) -> Axis {
    Axis { label: label.to_owned(), ..Axis::default() }
}

/// The sizes of buffers, as the paper writes them.
pub fn size_names() -> Vec<String> {
    SIZES.iter().map(|size| size.name.to_owned()).collect()
}

/// Bars by size of buffer, relative to something.
pub fn relative(name: &str, title: &str, y: &str, note: &str, series: Vec<Series>) -> Figure {
    Figure {
        name: name.to_owned(),
        title: title.to_owned(),
        note: Some(note.to_owned()),
        x: axis("buffer"),
        y: axis(y),
        drawing: Drawing::Bars { groups: size_names(), series, baseline: Some(1.0) },
    }
}

/// How much faster than `base`, for each size; with what the paper prints, as times as well.
fn speedups(
    label: String,
    base: &Micros,
    times: &Micros,
    paper: Option<(Micros, Micros)>,
) -> Series {
    let over = |base: &Micros, times: &Micros| {
        base.iter().zip(times).map(|(base, time)| Some(base / time)).collect()
    };
    let paper = paper.map_or(Vec::new(), |(base, times)| over(&base, &times));
    Series { label, values: over(base, times), paper }
}

/// Figure 4: speedups of the synthetic accelerator over that with pages on demand through a bounce buffer.
pub fn figure_4(times: &Times, note: &str) -> Figure {
    let base = &times.bounce.on_demand;
    let printed = paper::on_demand(Transport::Bounce);
    let on_demand = |way: &Way| {
        let paper = Some((printed, paper::on_demand(way.transport)));
        speedups(format!("ODPM ({})", way.transport.name()), base, &way.on_demand, paper)
    };
    let user_managed = |way: &Way| {
        let paper = Some((printed, paper::user_managed(way.transport)));
        speedups(format!("UMPM ({})", way.transport.name()), base, &way.user_managed, paper)
    };
    let bars = times.direct.iter().map(on_demand).chain(times.ways().map(user_managed)).collect();
    relative("figure-4", "Figure 4: the synthetic accelerator", "speedup", note, bars)
}

/// Figure 5: speedups of migrations from card to card over those of contiguous pages through a bounce buffer.
pub fn figure_5(times: &Times) -> Figure {
    let base = &times.bounce.contiguous;
    let mut bars = Vec::new();
    for way in times.ways() {
        let name = way.transport.name();
        if way.transport != Transport::Bounce {
            let paper = (paper::migration(Transport::Bounce), paper::migration(way.transport));
            bars.push(speedups(format!("{name}, contiguous"), base, &way.contiguous, Some(paper)));
        }
        bars.push(speedups(format!("{name}, scattered"), base, &way.scattered, None));
    }
    let note = "Baseline: PCIe with a bounce buffer, contiguous source pages.";
    relative("figure-5", "Figure 5: migrations from card to card", "speedup", note, bars)
}

/// Figure 6: the steps of migrations by one transport, as shares of the whole in percent.
pub fn figure_6(transport: Transport, parts: &[&str], bars: Vec<Bar>) -> Figure {
    let letter = match transport {
        Transport::Ethernet => 'a',
        Transport::Bounce => 'b',
        Transport::Peer => 'c',
    };
    let parts = parts.iter().map(|&part| part.to_owned()).collect();
    Figure {
        name: format!("figure-6{letter}"),
        title: format!("Figure 6: steps of a migration, {}", transport.name()),
        note: Some("Source pages contiguous and scattered.".to_owned()),
        x: axis("buffer"),
        y: Axis { to: Some(100.0), ..axis("share of the migration in %") },
        drawing: Drawing::Stacked { groups: size_names(), parts, bars },
    }
}

/// Figure 7: speedups of all migrations over those from the host to a card.
pub fn figure_7(times: &Times, note: &str) -> Figure {
    let base = &times.to_card;
    let bar = |way: &Way| {
        let label = format!("card to card ({})", way.transport.name());
        speedups(label, base, &way.contiguous, None)
    };
    let mut bars: Vec<Series> = times.ways().map(bar).collect();
    bars.push(speedups("card to host".to_owned(), base, &times.from_card, None));
    relative("figure-7", "Figure 7: from and to the host", "speedup", note, bars)
}
