//! Where memories are on a card's bus.

use farside_card::interface::DmaAddr;
use farside_svm::Place;
use farside_types::{CardId, FrameNo, MemoryId, PAGE_SIZE};

/// First bus address in use: below it real machines have devices and interrupts.
const FIRST: u64 = 1 << 32;
/// One past the last: pages have numbers of 32 bits.
const END: u64 = 1 << 44;
/// Windows begin at multiples of a block, so that a host's IOMMU can map them by blocks.
const ALIGN: u64 = farside_types::BLOCK_SIZE as u64;

/// The windows through which the cards of a space reach its memories: the same on every card.
#[derive(Clone, Debug)]
pub(crate) struct BusMap {
    control: u64,
    host: u64,
    bounces: Vec<u64>,
    cards: Vec<u64>,
}

impl BusMap {
    /// Lays out windows for the rings of a card, the host's arena, the bounce buffers and the cards'
    /// memories, in bytes each. `None`: they are more than bus addresses reach.
    pub(crate) fn new(control: u64, host: u64, bounces: &[u64], cards: &[u64]) -> Option<BusMap> {
        let mut next = FIRST;
        let mut window = |bytes: u64| {
            let start = next;
            next = (start + bytes).next_multiple_of(ALIGN);
            start
        };
        let map = BusMap {
            control: window(control),
            host: window(host),
            bounces: bounces.iter().map(|&bytes| window(bytes)).collect(),
            cards: cards.iter().map(|&bytes| window(bytes)).collect(),
        };
        (next <= END).then_some(map)
    }

    /// Bus address of the card's own rings.
    pub(crate) fn control(&self) -> u64 {
        self.control
    }

    /// Bus address of the host's arena.
    pub(crate) fn host(&self) -> u64 {
        self.host
    }

    /// Bus address of a bounce buffer.
    pub(crate) fn bounce(&self, slot: usize) -> u64 {
        self.bounces[slot]
    }

    /// Bus address of a card's memory, as its peers see it.
    pub(crate) fn card(&self, card: CardId) -> u64 {
        self.cards[card.0 as usize]
    }

    /// A frame of a memory, as `card` names it.
    pub(crate) fn frame(&self, card: CardId, memory: MemoryId, frame: FrameNo) -> DmaAddr {
        let window = match memory.card() {
            Some(own) if own == card => return DmaAddr::Own(frame.0),
            Some(peer) => self.card(peer),
            None => self.host,
        };
        bus_page(window, frame.0)
    }

    /// One end of a copy, `done` pages into the command, as `card` names it.
    pub(crate) fn place(&self, card: CardId, place: Place, frame: FrameNo, done: u32) -> DmaAddr {
        match place {
            Place::Memory(memory) => self.frame(card, memory, frame),
            Place::Bounce(slot) => bus_page(self.bounce(slot.into()), done),
        }
    }
}

fn bus_page(window: u64, frame: u32) -> DmaAddr {
    // Windows lie below 2^44.
    DmaAddr::Bus((window / PAGE_SIZE as u64) as u32 + frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_do_not_meet_and_a_card_knows_its_own_frames_by_number() {
        let map = BusMap::new(1 << 20, 1 << 30, &[4 << 20], &[1 << 20, 3 << 20]).unwrap();
        let (a, b) = (CardId(0), CardId(1));
        assert!(map.control() + (1 << 20) <= map.host());
        assert!(map.host() + (1 << 30) <= map.bounce(0));
        assert!(map.bounce(0) + (4 << 20) <= map.card(a));
        assert!(map.card(a) + (1 << 20) <= map.card(b));
        assert_eq!(map.frame(b, b.memory(), FrameNo(7)), DmaAddr::Own(7));
        let seen_by_a = map.frame(a, b.memory(), FrameNo(7));
        assert_eq!(seen_by_a, DmaAddr::Bus((map.card(b) >> 12) as u32 + 7));
        let slot = map.place(a, Place::Bounce(0), FrameNo(99), 3);
        assert_eq!(slot, DmaAddr::Bus((map.bounce(0) >> 12) as u32 + 3));
    }

    #[test]
    fn what_bus_addresses_do_not_reach_is_refused() {
        assert!(BusMap::new(1 << 20, 1 << 43, &[], &[1 << 39, 1 << 39]).is_some());
        assert!(BusMap::new(1 << 20, 1 << 43, &[], &[1 << 43]).is_none());
    }
}
