//! What accesses and copies wait for: banks of the L2 caches, channels of the memories, and the
//! ports of the links.
//!
//! Every GPU has a port per direction to its peers and one per direction to the host. A transfer
//! holds the ports at both ends for bytes / bandwidth; latency is added to that and holds nobody.

use farside_types::{MemoryId, Span, Time};
use serde::{Deserialize, Serialize};

use crate::Spec;
use crate::state::state;
use crate::time::{Lane, bytes_time};
use farside_workloads::{LINE_BYTES, Line};

/// One of the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resource(u32);

/// Every bank, channel and port of the machine.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    /// Per GPU: ports, banks, channels.
    lanes: Vec<Lane>,
    per_gpu: u32,
    banks: u32,
    channels: u32,
    /// How long a line occupies a bank, and a channel.
    bank_span: Span,
    channel_span: Span,
    memory_gb_per_s: u64,
    nvlink: Wire,
    pcie: Wire,
}

state!(Links {
    parts: lanes;
    made: per_gpu, banks, channels, bank_span, channel_span, memory_gb_per_s, nvlink, pcie;
});

/// A port of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortKind {
    ToPeers,
    FromPeers,
    ToHost,
    FromHost,
}

const PORTS: [PortKind; 4] =
    [PortKind::ToPeers, PortKind::FromPeers, PortKind::ToHost, PortKind::FromHost];

/// A kind of link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    pub(crate) gb_per_s: u64,
    /// One way.
    pub(crate) latency: Span,
    /// How long a line takes at the bandwidth.
    pub(crate) line: Span,
}

impl Links {
    pub(crate) fn new(spec: &Spec) -> Links {
        let wire = |gb_per_s, ns| Wire {
            gb_per_s,
            latency: Span::from_nanos(ns),
            line: bytes_time(LINE_BYTES, gb_per_s),
        };
        let (banks, channels) = (spec.cache.l2_banks, spec.gpu.memory_channels);
        let per_gpu = PORTS.len() as u32 + banks + channels;
        Links {
            lanes: vec![Lane::default(); per_gpu as usize * spec.gpus()],
            per_gpu,
            banks,
            channels,
            bank_span: spec.cycles(1),
            channel_span: bytes_time(LINE_BYTES * u64::from(channels), spec.gpu.memory_gb_per_s),
            memory_gb_per_s: spec.gpu.memory_gb_per_s,
            nvlink: wire(spec.link.nvlink_gb_per_s, spec.link.nvlink_ns),
            pcie: wire(spec.link.pcie_gb_per_s, spec.link.pcie_ns),
        }
    }

    /// A port of a GPU.
    pub(crate) fn port(&self, gpu: usize, kind: PortKind) -> Resource {
        Resource(gpu as u32 * self.per_gpu + kind as u32)
    }

    /// The bank of a GPU's L2 cache that `line` is in, and how long it takes.
    pub(crate) fn bank(&self, gpu: usize, line: Line) -> (Resource, Span) {
        let bank = (line.0 ^ (line.0 >> 6)) & (self.banks - 1);
        (Resource(gpu as u32 * self.per_gpu + PORTS.len() as u32 + bank), self.bank_span)
    }

    /// The memory channel of a GPU that `line` is in, and how long it takes.
    pub(crate) fn channel(&self, gpu: usize, line: Line) -> (Resource, Span) {
        let channel = (line.0 ^ (line.0 >> 6)) & (self.channels - 1);
        let first = gpu as u32 * self.per_gpu + PORTS.len() as u32 + self.banks;
        (Resource(first + channel), self.channel_span)
    }

    /// How long the write-back of so many lines takes, over all channels.
    pub(crate) fn write_back(&self, lines: u32) -> Span {
        bytes_time(u64::from(lines) * LINE_BYTES, self.memory_gb_per_s)
    }

    /// Reserves a resource; when its turn comes.
    #[inline]
    pub(crate) fn reserve(&mut self, resource: Resource, at: Time, span: Span) -> Time {
        self.lanes[resource.0 as usize].reserve(at, span)
    }

    /// Between GPUs.
    pub(crate) fn nvlink(&self) -> Wire {
        self.nvlink
    }

    /// Between host and GPU.
    pub(crate) fn pcie(&self) -> Wire {
        self.pcie
    }

    /// Carries `bytes` from one memory to another: when the last of them has left the wire,
    /// latency not counted. Within one memory that is at once.
    pub(crate) fn carry(&mut self, now: Time, from: MemoryId, to: MemoryId, bytes: u64) -> Time {
        let card = |memory: MemoryId| memory.card().map(|card| usize::from(card.0));
        match (card(from), card(to)) {
            (Some(a), Some(b)) if a != b => {
                let span = bytes_time(bytes, self.nvlink.gb_per_s);
                let out = self.reserve(self.port(a, PortKind::ToPeers), now, span);
                self.reserve(self.port(b, PortKind::FromPeers), out, span) + span
            }
            (Some(a), None) => self.carry_by_pcie(now, self.port(a, PortKind::ToHost), bytes),
            (None, Some(b)) => self.carry_by_pcie(now, self.port(b, PortKind::FromHost), bytes),
            _ => now,
        }
    }

    fn carry_by_pcie(&mut self, now: Time, port: Resource, bytes: u64) -> Time {
        let span = bytes_time(bytes, self.pcie.gb_per_s);
        self.reserve(port, now, span) + span
    }

    /// How long all ports were busy, peers and host.
    pub(crate) fn busy(&self) -> (Span, Span) {
        let gpus = self.lanes.len() / self.per_gpu as usize;
        let sum = |kinds: [PortKind; 2]| {
            let ports = (0..gpus).flat_map(|gpu| kinds.map(|kind| self.port(gpu, kind)));
            ports.fold(Span::ZERO, |sum, port| sum + self.lanes[port.0 as usize].busy())
        };
        (sum([PortKind::ToPeers, PortKind::FromPeers]), sum([PortKind::ToHost, PortKind::FromHost]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_carries_its_own_bandwidth() {
        let mut links = Links::new(&Spec::default());
        let (host, a, b) = (MemoryId::HOST, MemoryId(1), MemoryId(2));
        let page_by_pcie = Time(bytes_time(4096, 32).0);
        let page_by_nvlink = Time(bytes_time(4096, 150).0);
        assert_eq!(links.carry(Time::ZERO, host, a, 4096), page_by_pcie);
        assert_eq!(links.carry(Time::ZERO, a, host, 4096), page_by_pcie, "other direction");
        assert_eq!(links.carry(Time::ZERO, host, b, 4096), page_by_pcie, "other GPU");
        assert_eq!(links.carry(Time::ZERO, host, a, 4096).0, 2 * page_by_pcie.0);
        assert_eq!(links.carry(Time::ZERO, a, b, 4096), page_by_nvlink);
        assert_eq!(links.carry(Time::ZERO, a, MemoryId(3), 4096).0, 2 * page_by_nvlink.0);
        assert_eq!(links.carry(Time(7), a, a, 4096), Time(7), "within a memory");
    }

    #[test]
    fn a_saturated_link_reaches_its_bandwidth_and_no_more() {
        let mut links = Links::new(&Spec::default());
        let lines = 100_000u64;
        let end = (0..lines).map(|_| links.carry(Time::ZERO, MemoryId(1), MemoryId(2), 64)).last();
        let gb_per_s = lines as f64 * 64.0 * 1_000.0 / end.unwrap().0 as f64;
        assert!((149.0..=150.0).contains(&gb_per_s), "{gb_per_s} GB/s");
        let port = bytes_time(64, 150).0 * lines;
        assert_eq!(links.busy(), (Span(2 * port), Span::ZERO));
    }

    #[test]
    fn neighbouring_lines_are_in_different_banks_and_channels() {
        let links = Links::new(&Spec::default());
        let all: std::collections::BTreeSet<_> = (0..16)
            .flat_map(|line| [links.bank(1, Line(line)).0.0, links.channel(1, Line(line)).0.0])
            .collect();
        assert_eq!(all.len(), 32);
        assert!(!all.contains(&links.port(1, PortKind::FromHost).0));
        assert!(!all.contains(&links.port(2, PortKind::ToPeers).0));
    }
}
