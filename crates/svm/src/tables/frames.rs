//! The frames of one card: allocation in physically contiguous, aligned runs, quarantine, and which
//! page is in which frame.
//!
//! A buddy allocator over bitmaps: the lowest free block of the smallest sufficient order is taken,
//! so that virtually contiguous pages get contiguous frames (driver rule 7) and memory fills from
//! one end. What cannot be had in one piece is pieced together from the largest blocks left.

use farside_types::FrameNo;
use serde::{Deserialize, Serialize};

use crate::Eviction;
use crate::tables::replacement::Replacement;

/// No page. Zero, so that frames that were never used take no memory of the process.
const FREE: u32 = 0;
/// Out of use until the cards that may still write to it are reset.
const QUARANTINED: u32 = u32::MAX;

/// Frames of one card.
#[derive(Serialize, Deserialize)]
pub(crate) struct Frames {
    total: u32,
    free: u32,
    quarantined: u32,
    /// Free blocks of 2^order frames, by order.
    orders: Vec<BitTree>,
    /// Per frame: the page's index in the arena, plus one.
    pages: Vec<u32>,
    /// Frames from here on were never used.
    untouched: u32,
    /// Where the eviction hand stands.
    hand: u32,
    /// Who stays when the card is full, where more is asked than the hand.
    pub(crate) replacement: Option<Replacement>,
}

impl Frames {
    pub(crate) fn new(total: u32) -> Frames {
        let mut frames = Frames {
            total,
            free: 0,
            quarantined: 0,
            orders: (0..=total.max(1).ilog2())
                .map(|o| BitTree::new((total >> o) as usize))
                .collect(),
            pages: vec![FREE; total as usize],
            untouched: 0,
            hand: 0,
            replacement: None,
        };
        frames.give_back(0, total);
        frames
    }

    /// Frames of a card whose pages leave in this order.
    pub(crate) fn of_card(total: u32, eviction: Eviction) -> Frames {
        let replacement = (eviction == Eviction::Lirs).then(|| Replacement::new(total));
        Frames { replacement, ..Frames::new(total) }
    }

    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    pub(crate) fn quarantined(&self) -> u32 {
        self.quarantined
    }

    /// Takes `count` frames, in as few contiguous pieces as possible; `false`, and nothing taken,
    /// if there are not as many. The caller then says which pages they hold.
    pub(crate) fn allocate(&mut self, count: u32, mut piece: impl FnMut(FrameNo, u32)) -> bool {
        if count > self.free {
            return false;
        }
        let mut left = count;
        while left > 0 {
            let wanted = left.next_power_of_two().ilog2() as usize;
            let (start, size) = self.take_block(wanted);
            let used = size.min(left);
            if size > used {
                self.give_back(start + used, size - used);
            }
            piece(FrameNo(start), used);
            left -= used;
        }
        true
    }

    /// Takes a block of `wanted` order, split from a larger one if need be; the largest there is if
    /// none is as large.
    fn take_block(&mut self, wanted: usize) -> (u32, u32) {
        let top = self.orders.len();
        let above = (wanted..top).find(|&order| self.orders[order].first().is_some());
        let below =
            || (0..wanted.min(top)).rev().find(|&order| self.orders[order].first().is_some());
        let order = above.or_else(below).expect("free frames are in some order");
        let index = self.orders[order].first().expect("the order was found to have a block");
        self.orders[order].clear(index);
        let target = order.min(wanted);
        for smaller in (target..order).rev() {
            self.orders[smaller].set((index << (order - smaller)) + 1);
        }
        let size = 1u32 << target;
        self.free -= size;
        ((index << order) as u32, size)
    }

    /// Frees frames that held pages, or that were taken and not used.
    pub(crate) fn release(&mut self, frame: FrameNo, count: u32) {
        self.left(frame, count);
        self.pages[frame.0 as usize..(frame.0 + count) as usize].fill(FREE);
        self.give_back(frame.0, count);
    }

    fn give_back(&mut self, mut start: u32, count: u32) {
        let end = start + count;
        self.free += count;
        while start < end {
            let aligned = if start == 0 { u32::BITS - 1 } else { start.trailing_zeros() };
            let order = aligned.min((end - start).ilog2());
            self.merge_in(start, order as usize);
            start += 1 << order;
        }
    }

    fn merge_in(&mut self, start: u32, mut order: usize) {
        let mut index = (start >> order) as usize;
        while order + 1 < self.orders.len() {
            let buddy = index ^ 1;
            if !self.orders[order].test(buddy) {
                break;
            }
            self.orders[order].clear(buddy);
            index >>= 1;
            order += 1;
        }
        self.orders[order].set(index);
    }

    /// Keeps frames out of use: something may still write to them.
    pub(crate) fn quarantine(&mut self, frame: FrameNo, count: u32) {
        self.left(frame, count);
        self.pages[frame.0 as usize..(frame.0 + count) as usize].fill(QUARANTINED);
        self.quarantined += count;
    }

    fn left(&mut self, frame: FrameNo, count: u32) {
        if let Some(replacement) = &mut self.replacement {
            replacement.left(frame, count);
        }
    }

    /// Frees frames that were out of use: nothing writes to them any more.
    pub(crate) fn end_quarantine(&mut self, frame: FrameNo, count: u32) {
        self.quarantined -= count;
        self.release(frame, count);
    }

    /// Notes that frames hold the pages from this index on.
    pub(crate) fn assign(&mut self, frame: FrameNo, count: u32, page_index: u32) {
        let end = frame.0 + count;
        let pages = &mut self.pages[frame.0 as usize..end as usize];
        pages.iter_mut().zip(page_index + 1..).for_each(|(page, index)| *page = index);
        self.untouched = self.untouched.max(end);
    }

    /// Index of the page in a frame; `None` for free and quarantined ones.
    #[inline]
    pub(crate) fn page_in(&self, frame: FrameNo) -> Option<u32> {
        match self.pages[frame.0 as usize] {
            FREE | QUARANTINED => None,
            index => Some(index - 1),
        }
    }

    /// The frame under the eviction hand; moves the hand on.
    pub(crate) fn advance_hand(&mut self) -> FrameNo {
        let frame = FrameNo(self.hand);
        self.hand = if self.hand + 1 < self.total { self.hand + 1 } else { 0 };
        frame
    }

    pub(crate) fn bytes(&self) -> usize {
        let order = self.replacement.as_ref().map_or(0, |order| order.bytes(self.untouched));
        self.untouched as usize * 4 + self.orders.iter().map(BitTree::bytes).sum::<usize>() + order
    }
}

/// A set of small numbers with the lowest member found in a few steps: each level has a bit per
/// non-zero word of the level below.
#[derive(Serialize, Deserialize)]
struct BitTree {
    levels: Vec<Vec<u64>>,
}

impl BitTree {
    fn new(bits: usize) -> BitTree {
        let mut levels = vec![vec![0; bits.div_ceil(64).max(1)]];
        while levels.last().is_some_and(|level| level.len() > 1) {
            let below = levels.last().map_or(1, Vec::len);
            levels.push(vec![0; below.div_ceil(64)]);
        }
        BitTree { levels }
    }

    fn set(&mut self, mut index: usize) {
        for level in &mut self.levels {
            let word = &mut level[index / 64];
            let was = *word;
            *word |= 1 << (index % 64);
            if was != 0 {
                break;
            }
            index /= 64;
        }
    }

    fn clear(&mut self, mut index: usize) {
        for level in &mut self.levels {
            let word = &mut level[index / 64];
            *word &= !(1 << (index % 64));
            if *word != 0 {
                break;
            }
            index /= 64;
        }
    }

    fn test(&self, index: usize) -> bool {
        self.levels[0].get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    fn first(&self) -> Option<usize> {
        let mut index = 0;
        for level in self.levels.iter().rev() {
            let word = level[index];
            if word == 0 {
                return None;
            }
            index = index * 64 + word.trailing_zeros() as usize;
        }
        Some(index)
    }

    fn bytes(&self) -> usize {
        self.levels.iter().map(|level| level.capacity() * 8).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn take(frames: &mut Frames, count: u32) -> Option<Vec<(u32, u32)>> {
        let mut pieces = Vec::new();
        frames.allocate(count, |frame, n| pieces.push((frame.0, n))).then_some(pieces)
    }

    #[test]
    fn contiguous_pages_get_contiguous_aligned_frames() {
        let mut frames = Frames::new(4096);
        assert_eq!(take(&mut frames, 3).unwrap(), [(0, 3)]);
        assert_eq!(take(&mut frames, 512).unwrap(), [(512, 512)]);
        assert_eq!(take(&mut frames, 1).unwrap(), [(3, 1)]);
    }

    #[test]
    fn fragmented_memory_is_pieced_together_and_not_one_frame_more() {
        let mut frames = Frames::new(64);
        assert!(take(&mut frames, 64).is_some());
        for frame in (0..64).step_by(2) {
            frames.release(FrameNo(frame), 1);
        }
        assert_eq!(take(&mut frames, 32).unwrap().len(), 32);
        assert_eq!(take(&mut frames, 1), None);
        assert_eq!(frames.free(), 0);
    }

    #[test]
    fn quarantined_frames_are_neither_free_nor_listed_as_a_page() {
        let mut frames = Frames::new(8);
        assert!(take(&mut frames, 8).is_some());
        frames.assign(FrameNo(2), 1, 7);
        frames.quarantine(FrameNo(2), 4);
        assert_eq!((frames.free(), frames.quarantined()), (0, 4));
        assert_eq!(frames.page_in(FrameNo(2)), None);
        assert_eq!(take(&mut frames, 1), None);
    }

    proptest! {
        #[test]
        fn no_frame_is_handed_out_twice_and_none_gets_lost(
            total in 1u32..300,
            steps in prop::collection::vec((any::<bool>(), 1u32..70), 1..120),
        ) {
            let mut frames = Frames::new(total);
            let mut held: Vec<(u32, u32)> = Vec::new();
            for (alloc, n) in steps {
                if alloc {
                    let before = frames.free();
                    match take(&mut frames, n) {
                        Some(pieces) => held.extend(pieces),
                        None => prop_assert!(n > before),
                    }
                } else if !held.is_empty() {
                    let (frame, count) = held.swap_remove(n as usize % held.len());
                    frames.release(FrameNo(frame), count);
                }
                let mut owned = vec![false; total as usize];
                for &(frame, count) in &held {
                    for f in frame..frame + count {
                        prop_assert!(!std::mem::replace(&mut owned[f as usize], true), "twice: {}", f);
                    }
                }
                let used = owned.iter().filter(|&&o| o).count() as u32;
                prop_assert_eq!(frames.free() + used, total);
            }
            for (frame, count) in held.drain(..) {
                frames.release(FrameNo(frame), count);
            }
            prop_assert_eq!(take(&mut frames, total).unwrap().iter().map(|p| p.1).sum::<u32>(), total);
        }
    }
}
