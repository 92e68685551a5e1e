//! Which agent can map which memory, and which executor can copy between which memories.

use farside_types::{AgentId, CardId, MAX_CARDS, MemoryId, MemorySet};

use crate::{Mover, Place, TransferOp};

/// The table of what the machine can do. The planner asks it; nothing else does.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// Per agent: the memories it can map. An agent always maps its home.
    pub maps: [MemorySet; MAX_CARDS + 1],
    /// Memories that host processors can read and write through mappings of their own.
    pub cpu_reaches: MemorySet,
    /// Per card: the memories its page DMA reaches. Empty: it has no page DMA.
    pub dma_reaches: [MemorySet; MAX_CARDS],
    /// Copies of at least this many pages go to a page DMA that reaches both ends, smaller ones to
    /// the CPU if it reaches both.
    pub dma_from_pages: u32,
    /// Per card: the peers it reaches by a link of its own.
    pub links: [MemorySet; MAX_CARDS],
    /// Copies between cards go through a bounce buffer even where somebody reaches both (the
    /// two-step transport of the multi-FPGA SVM paper, section IV-B2a).
    pub bounce_between_cards: bool,
    /// Whether the host can map a page read only and notice writes (write-protect faults).
    pub host_read_only: bool,
    /// Memories at the other end of a link between hosts. Moves into them are posted: nobody waits for the
    /// way there. Each move out of them costs a round trip however small it is, so more is brought along.
    pub far: MemorySet,
    /// Pages that a fault brings along at least, where a far memory is one end, if they are in the same
    /// situation: a power of two up to a block.
    pub far_window_pages: u32,
    /// Memories whose cards tell which of their pages were used ([`crate::RingOp::Accessed`]), and written
    /// ([`crate::RingOp::Unmap`]).
    pub tells: MemorySet,
    /// Bounce buffers in host memory.
    pub bounce_slots: u8,
    /// Pages of one bounce buffer (1024 in the paper's driver).
    pub bounce_pages: u32,
}

/// How bytes get from one memory to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One executor reaches both ends.
    Direct(Mover),
    /// Through a bounce buffer in host memory: out by the first, in by the second.
    Bounce(Mover, Mover),
}

impl Capabilities {
    /// Cards in the program: the CPU reaches everything, and every card maps every memory.
    pub fn embedded(cards: usize) -> Capabilities {
        let all: MemorySet = (0..=cards).map(|m| MemoryId(m as u8)).collect();
        let mut maps = [MemorySet::EMPTY; MAX_CARDS + 1];
        maps[0] = MemorySet::only(MemoryId::HOST);
        maps[1..=cards].fill(all);
        Capabilities {
            maps,
            cpu_reaches: all,
            dma_reaches: [MemorySet::EMPTY; MAX_CARDS],
            dma_from_pages: u32::MAX,
            links: [MemorySet::EMPTY; MAX_CARDS],
            bounce_between_cards: false,
            host_read_only: true,
            far: MemorySet::EMPTY,
            far_window_pages: 256,
            tells: MemorySet::EMPTY,
            bounce_slots: 2,
            bounce_pages: 1024,
        }
    }

    /// Cards with page DMA to the host and, if `peer`, to each other's memory; the CPU reaches
    /// only its own.
    pub fn with_dma(cards: usize, peer: bool) -> Capabilities {
        let mut table = Capabilities::embedded(cards);
        table.cpu_reaches = MemorySet::only(MemoryId::HOST);
        table.dma_from_pages = 1;
        for card in 0..cards {
            let own = CardId(card as u8).memory();
            table.dma_reaches[card] =
                if peer { table.maps[card + 1] } else { MemorySet::only(MemoryId::HOST).with(own) };
            if !peer {
                table.maps[card + 1] = MemorySet::only(MemoryId::HOST).with(own);
            }
        }
        table
    }

    /// Makes a card one that shares no memory: only its page DMA reaches its memory, from and to the
    /// host's; it maps nothing but its own, and nobody maps that. Copies from and to other cards bounce.
    pub fn seclude(&mut self, card: CardId) {
        let (own, index) = (card.memory(), card.0 as usize);
        let others = |set: MemorySet| set.iter().filter(|&memory| memory != own).collect();
        self.maps.iter_mut().chain(&mut self.dma_reaches).for_each(|set| *set = others(*set));
        self.links.iter_mut().for_each(|set| *set = others(*set));
        self.cpu_reaches = others(self.cpu_reaches);
        self.maps[index + 1] = MemorySet::only(own);
        self.dma_reaches[index] = MemorySet::only(MemoryId::HOST).with(own);
        self.links[index] = MemorySet::EMPTY;
    }

    /// Makes a card one at the other end of a link: as [`Capabilities::seclude`], and its page DMA is the
    /// link's bulk transfers.
    pub fn put_behind_link(&mut self, card: CardId) {
        self.seclude(card);
        self.far = self.far.with(card.memory());
    }

    /// A direct link from one card to another works, or does not.
    pub fn set_link(&mut self, from: CardId, to: CardId, works: bool) {
        let Some(links) = self.links.get_mut(from.0 as usize) else { return };
        *links = if works { links.with(to.memory()) } else { links.without(to.memory()) };
    }

    /// Whether a transfer is on its way as soon as it is sent, in front of every later command: its
    /// completion costs no round trip.
    pub fn posts(&self, by: Mover, op: &TransferOp) -> bool {
        let into = match op {
            TransferOp::Copy { to, .. } => *to,
            TransferOp::Fill { memory, .. } => Place::Memory(*memory),
        };
        let Mover::CardDma(card) = by else { return false };
        self.far.contains(card.memory()) && into == Place::Memory(card.memory())
    }

    /// Pages of the aligned window that a fault brings along when bytes go from `from` to `at`; `usual`
    /// where neither is far.
    pub fn window(&self, from: MemoryId, at: MemoryId, usual: u32) -> u32 {
        if self.is_far(from, at) { usual.max(self.far_window_pages) } else { usual }
    }

    /// Whether one of two memories is at the other end of a link between hosts.
    pub fn is_far(&self, from: MemoryId, at: MemoryId) -> bool {
        self.far.contains(from) || self.far.contains(at)
    }

    /// Whether `agent` can map frames of `memory`.
    pub fn can_map(&self, agent: AgentId, memory: MemoryId) -> bool {
        agent.home() == memory || self.maps[agent.0 as usize].contains(memory)
    }

    /// How `pages` pages get from `from` to `to`.
    pub fn transport(&self, from: MemoryId, to: MemoryId, pages: u32) -> Transport {
        if self.bounce_between_cards && !from.is_host() && !to.is_host() {
            return self.bounce(from, to);
        }
        let cpu = self.cpu_reaches.contains(from) && self.cpu_reaches.contains(to);
        if cpu && pages < self.dma_from_pages {
            return Transport::Direct(Mover::HostCpu);
        }
        let dma = [from.card(), to.card()].into_iter().flatten().find(|card| {
            let reaches = self.dma_reaches[card.0 as usize];
            reaches.contains(from) && reaches.contains(to)
        });
        if let Some(card) = dma {
            return Transport::Direct(Mover::CardDma(card));
        }
        if let (Some(a), Some(b)) = (from.card(), to.card()) {
            if self.links[a.0 as usize].contains(to) {
                return Transport::Direct(Mover::Link(a, b));
            }
        }
        if cpu {
            return Transport::Direct(Mover::HostCpu);
        }
        self.bounce(from, to)
    }

    fn bounce(&self, from: MemoryId, to: MemoryId) -> Transport {
        let (out, into) = self.hops(from, to);
        Transport::Bounce(out, into)
    }

    /// Who gets pages of `from` through a bounce buffer into `to`: the first out, the second in.
    pub fn hops(&self, from: MemoryId, to: MemoryId) -> (Mover, Mover) {
        (self.host_hop(from), self.host_hop(to))
    }

    /// Who can fill frames of `memory` with zeros.
    pub fn filler(&self, memory: MemoryId) -> Mover {
        self.host_hop(memory)
    }

    /// Who moves bytes between host memory and `memory`.
    fn host_hop(&self, memory: MemoryId) -> Mover {
        match memory.card() {
            Some(card) if !self.cpu_reaches.contains(memory) => Mover::CardDma(card),
            _ => Mover::HostCpu,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_shares_no_memory_is_reached_by_its_own_page_dma_alone() {
        let (plain, secluded, dma) = (CardId(0), CardId(1), CardId(2));
        let mut table = Capabilities::embedded(3);
        table.dma_reaches[2] = table.maps[3];
        table.dma_from_pages = 64;
        table.seclude(secluded);
        let (host, own) = (MemoryId::HOST, secluded.memory());
        for pages in [1, 64, 1000] {
            let way = |from: MemoryId, to: MemoryId| table.transport(from, to, pages);
            let by_itself = Transport::Direct(Mover::CardDma(secluded));
            assert_eq!((way(host, own), way(own, host)), (by_itself, by_itself));
            let (out, into) = (Mover::CardDma(secluded), Mover::HostCpu);
            assert_eq!(way(own, plain.memory()), Transport::Bounce(out, into));
            assert_eq!(way(dma.memory(), own), Transport::Bounce(into, out));
            // The others are as they were.
            let others = way(host, plain.memory());
            assert_eq!(others, Transport::Direct(Mover::HostCpu));
        }
        assert_eq!(table.filler(own), Mover::CardDma(secluded));
        for memory in [host, plain.memory(), dma.memory()] {
            assert!(!table.can_map(secluded.agent(), memory));
        }
        for agent in [AgentId::CPU, plain.agent(), dma.agent()] {
            assert!(!table.can_map(agent, own));
        }
        assert!(table.can_map(secluded.agent(), own));
        assert!(table.can_map(plain.agent(), dma.memory()));
    }

    #[test]
    fn cards_with_a_direct_link_copy_by_it_in_its_direction_as_long_as_it_works() {
        let [a, b] = [CardId(0), CardId(1)];
        let mut table = Capabilities::embedded(2);
        table.put_behind_link(a);
        table.put_behind_link(b);
        let around = Transport::Bounce(Mover::CardDma(a), Mover::CardDma(b));
        assert_eq!(table.transport(a.memory(), b.memory(), 8), around);
        table.set_link(a, b, true);
        let direct = Transport::Direct(Mover::Link(a, b));
        assert_eq!(table.transport(a.memory(), b.memory(), 8), direct);
        let back = Transport::Bounce(Mover::CardDma(b), Mover::CardDma(a));
        assert_eq!(table.transport(b.memory(), a.memory(), 8), back);
        table.set_link(a, b, false);
        assert_eq!(table.transport(a.memory(), b.memory(), 8), around);
    }

    #[test]
    fn only_moves_into_a_far_memory_by_its_link_are_posted() {
        let (near, far) = (CardId(0), CardId(1));
        let mut table = Capabilities::embedded(2);
        table.put_behind_link(far);
        let copy = |from, to| TransferOp::Copy {
            from: Place::Memory(from),
            to: Place::Memory(to),
            runs: [].into(),
        };
        let fill = |memory| TransferOp::Fill { memory, runs: [].into() };
        let (host, link) = (MemoryId::HOST, Mover::CardDma(far));
        assert!(table.posts(link, &copy(host, far.memory())));
        assert!(table.posts(link, &fill(far.memory())));
        assert!(!table.posts(link, &copy(far.memory(), host)));
        let out = TransferOp::Copy {
            from: Place::Memory(far.memory()),
            to: Place::Bounce(0),
            runs: [].into(),
        };
        assert!(!table.posts(link, &out));
        assert!(!table.posts(Mover::CardDma(near), &fill(near.memory())));
        assert!(!table.posts(Mover::HostCpu, &copy(host, near.memory())));
        assert_eq!(table.window(far.memory(), host, 16), 256);
        assert_eq!(table.window(host, far.memory(), 512), 512);
        assert_eq!(table.window(near.memory(), host, 16), 16);
    }
}
