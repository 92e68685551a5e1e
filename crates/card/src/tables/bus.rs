//! What the numbers of bus pages stand for, and in which stretches of the bus they lie.

use farside_types::{FrameNo, MemoryId};

use crate::Location;

/// Pages of a stretch: 64 GiB. The bus of 2^32 pages has 256 of them.
pub const STRETCH_PAGES: u32 = 1 << 24;
/// Where the host's memory begins, as a card in the program has it: in the middle of the bus.
const HOST_PAGES: u32 = 1 << 31;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BusPages {
    /// A bus: what is not the card's own memory has the page's number, as a frame of the host's.
    Bus,
    /// A card in the program, which reaches every memory without a bus: frame f of the host is bus page
    /// 2^31 + f, frame f of memory m is m 2^24 + f. Frames beyond that have no entries.
    Memories,
}

impl BusPages {
    /// What a bus page stands for.
    pub fn location(self, page: u32) -> Location {
        match self {
            BusPages::Bus => Location::new(MemoryId::HOST, FrameNo(page)),
            BusPages::Memories if page >= HOST_PAGES => {
                Location::new(MemoryId::HOST, FrameNo(page - HOST_PAGES))
            }
            BusPages::Memories => {
                let memory = MemoryId((page / STRETCH_PAGES) as u8);
                Location::new(memory, FrameNo(page % STRETCH_PAGES))
            }
        }
    }

    /// The bus page that stands for a location, if one does.
    pub fn page(self, Location { memory, frame }: Location) -> Option<u32> {
        match self {
            BusPages::Bus => memory.is_host().then_some(frame.0),
            BusPages::Memories if memory.is_host() => {
                (frame.0 < HOST_PAGES).then(|| HOST_PAGES + frame.0)
            }
            BusPages::Memories => {
                let named =
                    frame.0 < STRETCH_PAGES && u32::from(memory.0) < HOST_PAGES / STRETCH_PAGES;
                named.then(|| u32::from(memory.0) * STRETCH_PAGES + frame.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_bus_page_comes_back_from_it_and_nothing_else_does() {
        let at = |memory, frame| Location::new(MemoryId(memory), FrameNo(frame));
        let last = STRETCH_PAGES - 1;
        for bus in [BusPages::Bus, BusPages::Memories] {
            for location in [at(0, 0), at(0, 7), at(0, HOST_PAGES - 1)] {
                assert_eq!(bus.location(bus.page(location).unwrap()), location, "{bus:?}");
            }
        }
        for location in [at(1, 0), at(1, last), at(2, 0), at(16, last), at(127, last)] {
            let page = BusPages::Memories.page(location).unwrap();
            assert_eq!(BusPages::Memories.location(page), location);
            assert_eq!(BusPages::Bus.page(location), None, "a peer is no page of a bus");
        }
        for beyond in [at(0, HOST_PAGES), at(1, STRETCH_PAGES), at(128, 0)] {
            assert_eq!(BusPages::Memories.page(beyond), None, "{beyond:?}");
        }
        assert_eq!(BusPages::Bus.page(at(0, u32::MAX)), Some(u32::MAX));
    }
}
