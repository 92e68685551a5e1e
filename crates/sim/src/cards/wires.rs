//! The wires between memories, and how long copies are on them.
//!
//! A card has one engine that sends, over PCIe or Ethernet, and a port of each that receives. A copy
//! holds both of its ends while its pages are on the wire; latency is added to that and holds
//! nobody. Over PCIe it also takes its share of the root complex.

use std::collections::VecDeque;

use farside_svm::{Place, Run, TransferOp};
use farside_types::{CardId, Span, Time};

use super::spec::{CardsSpec, Topology, Transport};
use crate::time::Port;

/// Every port of the machine.
#[derive(Clone, Debug)]
pub(super) struct Wires {
    cards: Vec<Ports>,
    root: Port,
}

/// The ports of one card.
#[derive(Clone, Copy, Debug, Default)]
struct Ports {
    /// The engine that sends, by whatever wire.
    out: Port,
    pcie_in: Port,
    ethernet_in: Port,
}

/// What a copy goes over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    HostToCard(usize),
    CardToHost(usize),
    Peer(usize, usize),
    Ethernet(usize, usize),
    Fill(usize),
    /// The host's processors, within its memory.
    Host,
}

impl Wires {
    pub(super) fn new(cards: usize) -> Wires {
        Wires { cards: vec![Ports::default(); cards], root: Port::default() }
    }

    /// Reserves what a copy or fill needs from `now` on; when its last page is in place.
    pub(super) fn carry(&mut self, now: Time, spec: &CardsSpec, op: &TransferOp) -> Time {
        let way = way(spec, op);
        let span = stream(spec, op.runs(), page_time(spec, way));
        let end = match way {
            Way::Host => now,
            Way::Fill(card) | Way::HostToCard(card) => self.cards[card].pcie_in.reserve(now, span),
            Way::CardToHost(card) => self.cards[card].out.reserve(now, span),
            Way::Peer(from, to) => {
                let mut out = self.cards[from].out;
                let end = Port::reserve_pair(now, &mut out, &mut self.cards[to].pcie_in, span);
                self.cards[from].out = out;
                end
            }
            Way::Ethernet(from, _) if spec.ethernet.topology == Topology::Direct => {
                self.cards[from].out.reserve(now, span)
            }
            Way::Ethernet(from, to) => {
                let mut out = self.cards[from].out;
                let end = Port::reserve_pair(now, &mut out, &mut self.cards[to].ethernet_in, span);
                self.cards[from].out = out;
                end
            }
        };
        let over_root = matches!(way, Way::HostToCard(_) | Way::CardToHost(_) | Way::Peer(..));
        let share = Span(op.pages() * spec.pcie.root_page_ps);
        let end = if over_root { end.max(self.root.reserve(now, share)) } else { end };
        end + latency(spec, way)
    }

    /// How long a card's sending engine has been busy.
    pub(super) fn sending(&self, card: CardId) -> Span {
        self.cards[usize::from(card.0)].out.busy()
    }
}

fn way(spec: &CardsSpec, op: &TransferOp) -> Way {
    let index = |place: Place| match place {
        Place::Memory(memory) => memory.card().map(|card| usize::from(card.0)),
        Place::Bounce(_) => None,
    };
    match op {
        TransferOp::Copy { from, to, .. } => match (index(*from), index(*to)) {
            (None, None) => Way::Host,
            (None, Some(card)) => Way::HostToCard(card),
            (Some(card), None) => Way::CardToHost(card),
            (Some(from), Some(to)) if spec.machine.transport == Transport::Ethernet => {
                Way::Ethernet(from, to)
            }
            (Some(from), Some(to)) => Way::Peer(from, to),
        },
        TransferOp::Fill { memory, .. } => match memory.card() {
            Some(card) => Way::Fill(usize::from(card.0)),
            None => Way::Host,
        },
    }
}

fn page_time(spec: &CardsSpec, way: Way) -> Span {
    match way {
        Way::Host => Span::ZERO,
        Way::Fill(_) => Span(spec.dma.fill_page_ps),
        Way::HostToCard(_) | Way::CardToHost(_) => Span(spec.pcie.page_ps),
        Way::Peer(..) => Span(spec.pcie.peer_page_ps),
        Way::Ethernet(..) => spec.ethernet_page(),
    }
}

fn latency(spec: &CardsSpec, way: Way) -> Span {
    let nanos = match way {
        Way::Host => 0,
        Way::Fill(_) | Way::HostToCard(_) | Way::CardToHost(_) => spec.pcie.latency_ns,
        Way::Peer(..) => spec.pcie.peer_latency_ns,
        Way::Ethernet(..) if spec.ethernet.topology == Topology::Switch => {
            spec.ethernet.latency_ns + spec.ethernet.switch_ns
        }
        Way::Ethernet(..) => spec.ethernet.latency_ns,
    };
    Span::from_nanos(nanos)
}

/// How long the page DMA needs for `runs` from the moment its first command is there: one command
/// per piece that is contiguous at both ends, written one after the other while no more than the
/// most are outstanding, and carried out in order.
pub(super) fn stream(spec: &CardsSpec, runs: &[Run], page: Span) -> Span {
    let write = Span::from_nanos(spec.dma.command_ns);
    let most = spec.dma.pages_max;
    let outstanding_max = spec.dma.commands_max as usize;
    let mut outstanding: VecDeque<Span> = VecDeque::with_capacity(outstanding_max);
    let (mut written, mut done) = (Span::ZERO, Span::ZERO);
    for run in runs {
        let mut left = run.count;
        while left > 0 {
            let pages = left.min(most);
            if outstanding.len() == outstanding_max {
                written = written.max(outstanding.pop_front().unwrap_or_default());
            }
            done = done.max(written) + Span(u64::from(pages) * page.0);
            outstanding.push_back(done);
            written += write;
            left -= pages;
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_types::{FrameNo, PageNo};

    fn runs(count: u32, pages: u32) -> Vec<Run> {
        let run = |i: u32| Run {
            page: PageNo(u64::from(i * pages)),
            count: pages,
            src: FrameNo(2 * i * pages),
            dst: FrameNo(i * pages),
        };
        (0..count).map(run).collect()
    }

    #[test]
    fn commands_are_hidden_behind_pages_that_take_longer() {
        let spec = CardsSpec::default();
        let page = spec.ethernet_page();
        assert_eq!(page, Span(364_920), "332 ns of bytes and four gaps");
        assert_eq!(stream(&spec, &runs(1, 8_192), page), Span(8_192 * page.0));
        assert_eq!(stream(&spec, &runs(8_192, 1), page), Span(8_192 * page.0));
    }

    #[test]
    fn commands_that_take_longer_than_pages_are_what_counts() {
        let spec = CardsSpec::default();
        let page = Span(10_000);
        assert_eq!(stream(&spec, &runs(100, 1), page), Span(99 * 100_000 + 10_000));
        let slow = spec.with_overrides(&[("dma.commands_max", "1"), ("dma.command_ns", "0")]);
        assert_eq!(stream(&slow.unwrap(), &runs(100, 1), page), Span(100 * 10_000));
    }
}
