//! The links: who carries bytes from one memory to another, how fast, and what is in the way.
//!
//! Every GPU has a port per direction to its peers and one per direction to the host. A transfer
//! holds the ports at both ends for bytes / bandwidth; latency is added to that and holds nobody.
//! Ports are reserved when a transfer is asked for, in the order of asking.

use farside_types::{MemoryId, Span, Time};

use crate::Spec;
use crate::time::{Port, bytes_time};

/// Every port of the machine.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    gpus: Vec<Ports>,
    nvlink: Wire,
    pcie: Wire,
}

/// The ports of one GPU.
#[derive(Clone, Copy, Debug, Default)]
struct Ports {
    to_peers: Port,
    from_peers: Port,
    to_host: Port,
    from_host: Port,
}

#[derive(Clone, Copy, Debug)]
struct Wire {
    gb_per_s: u64,
    latency: Span,
}

impl Links {
    pub(crate) fn new(spec: &Spec) -> Links {
        let wire = |gb_per_s, ns| Wire { gb_per_s, latency: Span::from_nanos(ns) };
        Links {
            gpus: vec![Ports::default(); spec.gpus()],
            nvlink: wire(spec.link.nvlink_gb_per_s, spec.link.nvlink_ns),
            pcie: wire(spec.link.pcie_gb_per_s, spec.link.pcie_ns),
        }
    }

    /// One way between two memories.
    pub(crate) fn latency(&self, from: MemoryId, to: MemoryId) -> Span {
        self.wire(from, to).map_or(Span::ZERO, |wire| wire.latency)
    }

    /// Carries `bytes` from one memory to another: when the last of them has left the wire,
    /// latency not counted. Within one memory that is at once.
    pub(crate) fn carry(&mut self, now: Time, from: MemoryId, to: MemoryId, bytes: u64) -> Time {
        let Some(wire) = self.wire(from, to) else {
            return now;
        };
        let span = bytes_time(bytes, wire.gb_per_s);
        match (from.card(), to.card()) {
            (Some(a), Some(b)) => {
                let (a, b) = (usize::from(a.0), usize::from(b.0));
                let mut out = self.gpus[a].to_peers;
                let end = Port::reserve_pair(now, &mut out, &mut self.gpus[b].from_peers, span);
                self.gpus[a].to_peers = out;
                end
            }
            (Some(a), None) => self.gpus[usize::from(a.0)].to_host.reserve(now, span),
            (None, Some(b)) => self.gpus[usize::from(b.0)].from_host.reserve(now, span),
            (None, None) => now,
        }
    }

    /// How long all ports were busy, peers and host.
    pub(crate) fn busy(&self) -> (Span, Span) {
        let sum = |pick: fn(&Ports) -> [&Port; 2]| {
            let ports = self.gpus.iter().flat_map(pick);
            ports.fold(Span::ZERO, |sum, port| sum + port.busy())
        };
        (sum(|p| [&p.to_peers, &p.from_peers]), sum(|p| [&p.to_host, &p.from_host]))
    }

    fn wire(&self, from: MemoryId, to: MemoryId) -> Option<Wire> {
        match (from == to, from.is_host() || to.is_host()) {
            (true, _) => None,
            (false, true) => Some(self.pcie),
            (false, false) => Some(self.nvlink),
        }
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
        let page_by_nvlink = Time(bytes_time(4096, 300).0);
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
        assert!((298.0..=300.0).contains(&gb_per_s), "{gb_per_s} GB/s");
        let port = bytes_time(64, 300).0 * lines;
        assert_eq!(links.busy(), (Span(2 * port), Span::ZERO));
    }
}
