//! Contention when reservations do not come in the order of time.
//!
//! A line's whole way is reserved when it is issued, so a resource is asked for times that lie a
//! little apart: the bank of a far GPU in a microsecond, that of a near one at once. A single
//! "free from here on" would make the near one wait behind the far one. A lane therefore remembers
//! what is taken in short pieces of time, about 16 ns each, over the next four microseconds. Asked
//! in the order of time it is exactly first come first served; asked out of order, it is wrong by
//! less than a piece.

use farside_types::{Span, Time};

use crate::state::state;

/// log2 of a piece, in picoseconds.
const SHIFT: u32 = 14;
const PIECE: u64 = 1 << SHIFT;
/// Pieces that are remembered.
const PIECES: usize = 256;

/// A resource that serves one at a time.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Per piece, how much of it is taken, from its beginning.
    taken: Box<[u16; PIECES]>,
    /// The first piece that is remembered.
    base: u64,
    /// Pieces of this range are full: where a search may go on at once.
    full: (u64, u64),
    /// End of the last reservation.
    last: Time,
    busy: Span,
}

state!(Lane {
    values: base, full, last, busy;
    fixed: taken;
});

impl Default for Lane {
    fn default() -> Lane {
        let taken = Box::new([0; PIECES]);
        Lane { taken, base: 0, full: (0, 0), last: Time::ZERO, busy: Span::ZERO }
    }
}

impl Lane {
    /// How long it has been reserved in all.
    pub fn busy(&self) -> Span {
        self.busy
    }

    /// Reserves it for `span`, from `at` on or as soon afterwards as there is room; returns when
    /// that begins.
    #[inline]
    pub fn reserve(&mut self, at: Time, span: Span) -> Time {
        self.busy += span;
        if span.0 >= PIECE {
            return self.reserve_long(at, span);
        }
        let mut piece = at.0 >> SHIFT;
        if piece < self.base {
            piece = self.base;
        }
        let from = piece;
        loop {
            if piece >= self.full.0 && piece < self.full.1 {
                piece = self.full.1;
            }
            if piece >= self.base + PIECES as u64 {
                self.slide(piece);
            }
            let taken = u64::from(self.taken[piece as usize % PIECES]);
            let start = at.0.max((piece << SHIFT) + taken);
            // A piece that is full, or whose rest lies before `at`.
            if start < (piece + 1) << SHIFT {
                if piece > from {
                    self.note_full(from, piece);
                }
                self.take(piece, start + span.0);
                return Time(start);
            }
            piece += 1;
        }
    }

    /// Pieces from `from` on and before `to` are full, as a search has found.
    #[inline]
    fn note_full(&mut self, from: u64, to: u64) {
        // It went on behind those that are known, where it came to them: what lies before them is full as well.
        let first =
            if from <= self.full.1 && self.full.1 <= to { from.min(self.full.0) } else { from };
        self.full = (first, to);
    }

    /// What takes more than a piece comes after everything else, as a page copy does.
    fn reserve_long(&mut self, at: Time, span: Span) -> Time {
        let start = at.max(self.last);
        let end = start + span;
        let piece = end.0 >> SHIFT;
        self.forget_before(piece);
        self.take(piece, end.0);
        start
    }

    /// Marks everything of `piece` before `end` as taken, and what reaches into the next one.
    fn take(&mut self, piece: u64, end: u64) {
        let start = piece << SHIFT;
        // The last picosecond of a full piece counts as taken: 16383 fits, 16384 too.
        self.taken[piece as usize % PIECES] = (end - start).min(PIECE) as u16;
        if end > start + PIECE {
            let next = piece + 1;
            if next >= self.base + PIECES as u64 {
                self.slide(next);
            }
            let over = (end - start - PIECE) as u16;
            let taken = &mut self.taken[next as usize % PIECES];
            // What was taken there already moves on by as much.
            *taken = taken.saturating_add(over).min(PIECE as u16);
        }
        self.last = self.last.max(Time(end));
    }

    /// Makes `piece` one of those remembered.
    fn slide(&mut self, piece: u64) {
        self.forget_before((piece + 1).saturating_sub(PIECES as u64 / 2));
    }

    fn forget_before(&mut self, piece: u64) {
        let base = piece.max(self.base);
        let dropped = (base - self.base).min(PIECES as u64) as usize;
        let first = self.base as usize % PIECES;
        let to_the_end = dropped.min(PIECES - first);
        self.taken[first..first + to_the_end].fill(0);
        self.taken[..dropped - to_the_end].fill(0);
        self.base = base;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_saturated_lane_carries_exactly_its_bandwidth() {
        let mut lane = Lane::default();
        let last = (0..10_000).map(|_| lane.reserve(Time(5), Span(2_000))).last();
        assert_eq!(last, Some(Time(5 + 9_999 * 2_000)));
        assert_eq!(lane.busy(), Span(10_000 * 2_000));
    }

    #[test]
    fn who_comes_early_need_not_wait_for_who_comes_late() {
        let mut lane = Lane::default();
        assert_eq!(lane.reserve(Time(1_000_000), Span(1_000)), Time(1_000_000));
        assert_eq!(lane.reserve(Time(0), Span(1_000)), Time(0));
        assert_eq!(lane.reserve(Time(0), Span(1_000)), Time(1_000));
        assert_eq!(lane.reserve(Time(1_000_000), Span(1_000)), Time(1_001_000));
    }

    #[test]
    fn what_takes_long_comes_after_everything_and_before_the_rest() {
        let mut lane = Lane::default();
        lane.reserve(Time(0), Span(10_000));
        assert_eq!(lane.reserve(Time(0), Span(1_000_000)), Time(10_000));
        assert_eq!(lane.reserve(Time(0), Span(10)), Time(1_010_000));
        assert_eq!(lane.reserve(Time(5_000_000_000), Span(10)), Time(5_000_000_000));
    }

    proptest! {
        /// Asked in the order of time, it is a queue.
        #[test]
        fn in_order_it_is_first_come_first_served(
            steps in prop::collection::vec((0u64..6_000, 1u64..16_000), 1..800),
        ) {
            let (mut lane, mut at, mut free) = (Lane::default(), 0, 0);
            for (gap, span) in steps {
                at += gap;
                let start = at.max(free);
                prop_assert_eq!(lane.reserve(Time(at), Span(span)), Time(start));
                free = start + span;
            }
        }

        /// Whatever the order, nobody begins early, and the lane never does more than it can.
        #[test]
        fn capacity_is_never_exceeded(
            steps in prop::collection::vec((0u64..400_000, 1u64..4_000), 1..300),
        ) {
            let mut lane = Lane::default();
            let mut last = 0;
            let mut work = 0;
            for (at, span) in steps {
                let start = lane.reserve(Time(at), Span(span));
                prop_assert!(start.0 >= at);
                last = last.max(start.0 + span);
                work += span;
            }
            prop_assert!(work <= last + PIECE);
        }
    }
}
