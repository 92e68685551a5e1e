//! Where tables with a part for each block keep a page: the arena's pages by their distance from its
//! start, pages of adopted memory, which may be anywhere, block by block behind them.

use farside_types::{BLOCK_PAGES, PageNo, PageRange};
use serde::{Deserialize, Serialize};

use crate::tables::sorted::SortedMap;

/// Most slots: an index of a page has 32 bits.
const SLOTS_MAX: u64 = (1 << 32) / BLOCK_PAGES;

/// The blocks of the arena and of adopted memory begin at multiples of so many: the machine can tell them apart
/// by the high bits of a frame's number.
const APART: u64 = (1 << 24) / BLOCK_PAGES;

/// The blocks that tables have a slot for, by number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Layout {
    arena: PageRange,
    /// Of blocks outside the arena: number of the block → its place behind the arena's.
    adopted: SortedMap<u64, Place>,
    /// By place: the number of the block that has it.
    by_place: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Place {
    place: u32,
    /// Adopted ranges with a page in the block.
    users: u32,
}

impl Layout {
    pub(crate) fn new(arena: PageRange) -> Layout {
        Layout { arena, adopted: SortedMap::default(), by_place: Vec::new() }
    }

    /// The slot of the first block that is not the arena's. At least one slot is left out, so that no page
    /// outside the arena has the index behind that of the arena's last.
    fn first_adopted(&self) -> u64 {
        (self.arena.count.div_ceil(BLOCK_PAGES) + 1).next_multiple_of(APART)
    }

    /// Whether the tables have a place for `page`.
    #[inline]
    pub(crate) fn contains(&self, page: PageNo) -> bool {
        self.arena.contains(page) || self.adopted.contains_key(&page.block().0)
    }

    /// Whether `page` is one of the arena's.
    #[inline]
    pub(crate) fn is_arena(&self, page: PageNo) -> bool {
        self.arena.contains(page)
    }

    /// The slot of the block that holds `page`, if there is one.
    #[inline]
    pub(crate) fn slot(&self, page: PageNo) -> Option<usize> {
        let at = page.0.wrapping_sub(self.arena.start.0);
        if at < self.arena.count {
            return Some((at / BLOCK_PAGES) as usize);
        }
        self.adopted_slot(page)
    }

    #[cold]
    fn adopted_slot(&self, page: PageNo) -> Option<usize> {
        let known = self.adopted.get(&page.block().0)?;
        Some((self.first_adopted() + u64::from(known.place)) as usize)
    }

    /// The number of a page, which has a place.
    #[inline]
    pub(crate) fn index(&self, page: PageNo) -> u32 {
        let at = page.0.wrapping_sub(self.arena.start.0);
        if at < self.arena.count {
            return at as u32;
        }
        let slot = self.adopted_slot(page).expect("the page is in the arena, or adopted");
        (slot as u64 * BLOCK_PAGES + page.0 % BLOCK_PAGES) as u32
    }

    /// The page of a number.
    #[inline]
    pub(crate) fn page_at(&self, index: u32) -> PageNo {
        let index = u64::from(index);
        let Some(place) = (index / BLOCK_PAGES).checked_sub(self.first_adopted()) else {
            return self.arena.start.offset(index);
        };
        PageNo(self.by_place[place as usize] * BLOCK_PAGES + index % BLOCK_PAGES)
    }

    /// Whether a number is that of a page of the arena.
    pub(crate) fn is_arena_number(&self, index: u64) -> bool {
        index < self.arena.count
    }

    /// One above the highest slot of the blocks of `range`, which all have one.
    pub(crate) fn end_of(&self, range: PageRange) -> usize {
        if range.is_empty() {
            return 0;
        }
        let last = PageNo(range.end().0 - 1);
        if self.arena.contains(range.start) {
            return self.slot(last).map_or(0, |slot| slot + 1);
        }
        let blocks = range.start.block().0..=last.block().0;
        let slots = blocks.filter_map(|block| self.slot(PageNo(block * BLOCK_PAGES)));
        slots.max().map_or(0, |slot| slot + 1)
    }

    /// Gives the blocks of `range`, which is outside the arena, places; `false` where numbers are at
    /// an end, and then nothing has changed.
    pub(crate) fn adopt(&mut self, range: PageRange) -> bool {
        let blocks = blocks_of(range);
        let new = blocks.clone().filter(|block| !self.adopted.contains_key(block)).count();
        let idle = self
            .adopted
            .iter()
            .filter(|(block, known)| known.users == 0 && !blocks.contains(block));
        let mut idle: Vec<(u32, u64)> =
            idle.take(new).map(|(&block, known)| (known.place, block)).collect();
        let most = SLOTS_MAX.saturating_sub(self.first_adopted());
        if (self.by_place.len() + new - idle.len()) as u64 > most {
            return false;
        }
        idle.sort_unstable_by_key(|&(place, _)| std::cmp::Reverse(place));
        for block in blocks {
            if let Some(known) = self.adopted.get_mut(&block) {
                known.users += 1;
                continue;
            }
            let place = match idle.pop() {
                Some((place, before)) => {
                    self.adopted.remove(&before);
                    place
                }
                None => {
                    self.by_place.push(block);
                    self.by_place.len() as u32 - 1
                }
            };
            self.by_place[place as usize] = block;
            self.adopted.insert(block, Place { place, users: 1 });
        }
        true
    }

    /// The blocks of `range` are used no more, where no other adopted range has a page. They keep their
    /// places until others need them: something may be under way that still names a page of them.
    pub(crate) fn disown(&mut self, range: PageRange) {
        for block in blocks_of(range) {
            if let Some(known) = self.adopted.get_mut(&block) {
                known.users -= 1;
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.adopted.len() * size_of::<(u64, Place)>() + self.by_place.capacity() * size_of::<u64>()
    }
}

/// Numbers of the blocks with a page of `range`.
fn blocks_of(range: PageRange) -> std::ops::Range<u64> {
    range.start.block().0..range.end().0.div_ceil(BLOCK_PAGES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARENA: PageRange = PageRange::new(PageNo(4 * BLOCK_PAGES), 3 * BLOCK_PAGES);

    #[test]
    fn pages_of_adopted_blocks_have_numbers_of_their_own_that_lead_back() {
        let mut layout = Layout::new(ARENA);
        let far = PageRange::new(PageNo(100 * BLOCK_PAGES + 7), BLOCK_PAGES);
        let low = PageRange::new(PageNo(9), 3);
        assert!(layout.slot(far.start).is_none() && !layout.contains(low.start));
        assert!(layout.adopt(far) && layout.adopt(low));
        let all = || ARENA.pages().chain(far.pages()).chain(low.pages());
        let numbers: std::collections::BTreeSet<u32> = all().map(|p| layout.index(p)).collect();
        assert_eq!(numbers.len() as u64, ARENA.count + far.count + low.count);
        assert!(all().all(|page| layout.page_at(layout.index(page)) == page));
        assert_eq!(layout.index(ARENA.start), 0);
        let behind = u64::from(layout.index(far.start)) - ARENA.count;
        assert!(behind >= BLOCK_PAGES, "no run of numbers leads out of the arena");
    }

    #[test]
    fn a_block_of_two_ranges_has_its_place_until_both_have_left_and_then_another_gets_it() {
        let mut layout = Layout::new(ARENA);
        let one = PageRange::new(PageNo(50 * BLOCK_PAGES + 1), 10);
        let two = PageRange::new(PageNo(50 * BLOCK_PAGES + 11), BLOCK_PAGES);
        assert!(layout.adopt(one) && layout.adopt(two));
        let was = layout.index(two.start);
        layout.disown(one);
        assert_eq!(layout.index(two.start), was);
        layout.disown(two);
        assert_eq!(layout.page_at(was), two.start, "something may be under way");
        let other = PageRange::new(PageNo(70 * BLOCK_PAGES), 1);
        assert!(layout.adopt(other));
        assert_eq!(layout.end_of(other) as u64, APART + 1, "the first place that is free");
        assert!(!layout.contains(one.start) && layout.contains(PageNo(51 * BLOCK_PAGES)));
        assert!(layout.adopt(two), "its second block has its place still");
        assert_eq!(layout.by_place.len(), 3);
        assert_eq!(layout.end_of(ARENA), 3);
    }

    #[test]
    fn where_numbers_are_at_an_end_nothing_is_adopted() {
        let most = (SLOTS_MAX - APART - 1) * BLOCK_PAGES;
        let mut layout = Layout::new(PageRange::new(PageNo(0), most));
        let fits = PageRange::new(PageNo(most + BLOCK_PAGES), APART * BLOCK_PAGES);
        assert!(!layout.adopt(PageRange::new(fits.start, fits.count + 1)));
        assert!(!layout.contains(fits.start));
        assert!(layout.adopt(fits));
        assert!(layout.index(PageNo(fits.end().0 - 1)) == u32::MAX);
    }
}
