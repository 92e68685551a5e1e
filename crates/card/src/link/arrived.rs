//! What of a transfer has arrived, and in which order.

use crate::interface::{LINK_RANGES_MAX, LINK_UNIT_BYTES};

/// Units of a page: a bit each in one word.
const PAGE_UNITS: usize = 4096 / LINK_UNIT_BYTES;
const _: () = assert!(PAGE_UNITS == 64, "a page's units are the bits of a word");

/// Whether bytes are here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Presence {
    /// None of them.
    Absent,
    /// Some of them.
    Some,
    /// All of them.
    All,
}

/// What a frame's sequence number says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// The next one, after this many that did not come.
    After(u32),
    /// Later ones came before.
    Late,
}

/// The units of a transfer's pages that have arrived.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    units: Box<[u64]>,
    whole: u32,
    next: u32,
}

/// The bits of a piece, or `None` if it is not whole units of one page.
pub(super) fn piece(offset: u16, length: u16) -> Option<u64> {
    let (offset, length) = (usize::from(offset), usize::from(length));
    let whole_units = offset % LINK_UNIT_BYTES == 0 && length % LINK_UNIT_BYTES == 0;
    if !whole_units || length == 0 || offset + length > 4096 {
        return None;
    }
    let bits = u64::MAX >> (PAGE_UNITS - length / LINK_UNIT_BYTES);
    Some(bits << (offset / LINK_UNIT_BYTES))
}

impl Arrived {
    /// Nothing yet.
    pub(super) fn new(pages: u32) -> Arrived {
        Arrived { units: vec![0; pages as usize].into(), whole: 0, next: 0 }
    }

    /// Whether a piece of a page is here. Pages beyond the transfer never are.
    pub(super) fn presence(&self, page: u32, piece: u64) -> Presence {
        let here = self.units.get(page as usize).map_or(0, |units| units & piece);
        match here {
            0 => Presence::Absent,
            _ if here == piece => Presence::All,
            _ => Presence::Some,
        }
    }

    /// A piece is here from now on.
    pub(super) fn insert(&mut self, page: u32, piece: u64) {
        if let Some(units) = self.units.get_mut(page as usize) {
            let before = *units;
            *units |= piece;
            if before != u64::MAX && *units == u64::MAX {
                self.whole += 1;
            }
        }
    }

    /// Pages that are whole.
    pub(super) fn whole(&self) -> u32 {
        self.whole
    }

    /// Whether every page is whole.
    pub(super) fn complete(&self) -> bool {
        self.whole as usize == self.units.len()
    }

    /// Takes the sequence number of a frame in.
    pub(super) fn order(&mut self, sequence: u32) -> Order {
        if sequence < self.next {
            return Order::Late;
        }
        let gap = sequence - self.next;
        self.next = sequence.saturating_add(1);
        Order::After(gap)
    }

    /// The sequence number that is next.
    pub(super) fn next_sequence(&self) -> u32 {
        self.next
    }

    /// Writes the ranges of pages that are not whole, first and count. If there are more than fit,
    /// the last one goes on to the last missing page: sending a page again harms nothing.
    pub(super) fn missing(&self, ranges: &mut [(u32, u32); LINK_RANGES_MAX]) -> usize {
        let mut used: usize = 0;
        for (page, _) in self.units.iter().enumerate().filter(|(_, units)| **units != u64::MAX) {
            let page = page as u32;
            match used.checked_sub(1).map(|last| ranges[last]) {
                Some((first, count)) if first + count == page || used == ranges.len() => {
                    ranges[used - 1].1 = page - first + 1;
                }
                _ => {
                    ranges[used] = (page, 1);
                    used += 1;
                }
            }
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_units_of_one_page() {
        assert_eq!(piece(0, 4096), Some(u64::MAX));
        assert_eq!(piece(0, 64), Some(1));
        assert_eq!(piece(4032, 64), Some(1 << 63));
        assert_eq!(piece(1024, 1024), Some(0xffff_0000));
        for (offset, length) in [(0, 0), (0, 65), (1, 64), (4032, 128), (4096, 64), (65472, 64)] {
            assert_eq!(piece(offset, length), None, "{length} bytes at {offset}");
        }
    }

    #[test]
    fn a_page_is_whole_when_its_last_unit_has_come_and_counts_once() {
        let mut arrived = Arrived::new(2);
        arrived.insert(1, piece(0, 4032).unwrap());
        assert_eq!((arrived.whole(), arrived.complete()), (0, false));
        assert_eq!(arrived.presence(1, piece(0, 4096).unwrap()), Presence::Some);
        arrived.insert(1, piece(4032, 64).unwrap());
        arrived.insert(1, piece(4032, 64).unwrap());
        assert_eq!((arrived.whole(), arrived.complete()), (1, false));
        arrived.insert(0, u64::MAX);
        assert!(arrived.complete());
        assert_eq!(arrived.presence(7, u64::MAX), Presence::Absent, "no such page");
    }

    #[test]
    fn gaps_and_late_frames_are_seen() {
        let mut arrived = Arrived::new(1);
        assert_eq!(arrived.order(0), Order::After(0));
        assert_eq!(arrived.order(3), Order::After(2));
        assert_eq!(arrived.order(1), Order::Late);
        assert_eq!(arrived.order(3), Order::Late);
        assert_eq!(arrived.order(u32::MAX), Order::After(u32::MAX - 4));
    }

    #[test]
    fn missing_pages_are_ranges_and_the_last_one_covers_what_does_not_fit() {
        let mut arrived = Arrived::new(1000);
        for page in (1..1000).step_by(2) {
            arrived.insert(page, u64::MAX);
        }
        let mut ranges = [(0, 0); LINK_RANGES_MAX];
        assert_eq!(arrived.missing(&mut ranges), LINK_RANGES_MAX);
        assert_eq!(ranges[1], (2, 1));
        let (first, count) = ranges[LINK_RANGES_MAX - 1];
        assert_eq!((first, first + count), (254, 999), "from the last that fits to the last");
        let whole = Arrived::new(5);
        assert_eq!(whole.missing(&mut ranges), 1);
        assert_eq!(ranges[0], (0, 5));
    }
}
