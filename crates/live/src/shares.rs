//! How the pieces of a parallel launch are handed out: each card has a run of them, takes them one by one
//! from its near end, and takes from the far end of who has most left when it has none. So pages stay
//! where they are used for as long as that holds nobody up. Pure.

use std::ops::Range;

/// What a card has of the pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Share {
    /// Pieces that it has not begun.
    left: Range<u64>,
    /// What of it others had before.
    taken: Range<u64>,
}

/// The pieces that are not handed out yet.
#[derive(Clone, Debug)]
pub(crate) struct Shares(Vec<Share>);

/// A piece for a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handed {
    /// Its number.
    pub(crate) piece: u64,
    /// It was another card's share.
    pub(crate) stolen: bool,
}

impl Shares {
    /// Runs of pieces 0 to `pieces`, as long as the cards are strong (`weights`).
    pub(crate) fn new(pieces: u64, weights: &[u32]) -> Shares {
        let all: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
        let mut before = 0u128;
        let mut cut = 0;
        let share = |&weight: &u32| {
            before += u128::from(weight);
            let end = (u128::from(pieces) * before).checked_div(all).unwrap_or(0) as u64;
            let left = cut..end;
            cut = end;
            Share { left, taken: 0..0 }
        };
        Shares(weights.iter().map(share).collect())
    }

    /// The next piece for card number `card` of the list.
    pub(crate) fn next(&mut self, card: usize) -> Option<Handed> {
        if self.0[card].left.is_empty() {
            self.take_from_richest(card);
        }
        let share = &mut self.0[card];
        let piece = share.left.next()?;
        Some(Handed { piece, stolen: share.taken.contains(&piece) })
    }

    /// Takes the far half of what the card has that has most left; all of a single piece.
    fn take_from_richest(&mut self, card: usize) {
        let length = |share: &Share| share.left.end - share.left.start;
        let Some(richest) = self.0.iter_mut().rev().max_by_key(|share| length(share)) else {
            return;
        };
        let end = richest.left.end;
        richest.left.end -= length(richest).div_ceil(2);
        let taken = richest.left.end..end;
        self.0[card] = Share { left: taken.clone(), taken };
    }

    /// Nothing more is handed out.
    pub(crate) fn stop(&mut self) {
        self.0.iter_mut().for_each(|share| share.left = 0..0);
    }

    /// Whether all are handed out.
    pub(crate) fn are_empty(&self) -> bool {
        self.0.iter().all(|share| share.left.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_follow_one_another_by_strength() {
        let runs = |pieces, weights: &[u32]| {
            let shares = Shares::new(pieces, weights);
            shares.0.into_iter().map(|share| share.left).collect::<Vec<_>>()
        };
        assert_eq!(runs(10, &[1, 1]), [0..5, 5..10]);
        assert_eq!(runs(8, &[1, 2, 1]), [0..2, 2..6, 6..8]);
        assert_eq!(runs(1, &[1, 1]), [0..0, 0..1]);
        assert_eq!(runs(0, &[4, 4]), [0..0, 0..0]);
        assert_eq!(runs(u64::MAX, &[1]), [0..u64::MAX; 1]);
    }

    #[test]
    fn an_idle_card_takes_the_far_half_of_the_richest() {
        let mut shares = Shares::new(16, &[1, 1]);
        let next = |shares: &mut Shares, card| shares.next(card).map(|h| (h.piece, h.stolen));
        assert_eq!(next(&mut shares, 0), Some((0, false)));
        let own: Vec<_> = (0..8).map(|_| next(&mut shares, 1).unwrap()).collect();
        assert_eq!(own, (8..16).map(|piece| (piece, false)).collect::<Vec<_>>());
        // Seven are left of the first: four, two and one of them go.
        let stolen: Vec<_> = (0..7).map(|_| next(&mut shares, 1).unwrap().0).collect();
        assert_eq!(stolen, [4, 5, 6, 7, 2, 3, 1]);
        assert_eq!((next(&mut shares, 0), next(&mut shares, 1)), (None, None));
        assert!(shares.are_empty());
    }

    proptest! {
        #[test]
        fn every_piece_is_handed_out_once_whoever_asks(
            pieces in 0u64..200,
            weights in proptest::collection::vec(1u32..5, 1..5),
            asks in proptest::collection::vec(0usize..5, 0..400),
        ) {
            let mut shares = Shares::new(pieces, &weights);
            let cards = weights.len();
            let asked = asks.into_iter().map(|ask| ask % cards);
            let rest = std::iter::repeat_n(0, 201);
            let mut handed: Vec<u64> =
                asked.chain(rest).filter_map(|card| shares.next(card)).map(|h| h.piece).collect();
            handed.sort_unstable();
            prop_assert_eq!(handed, (0..pieces).collect::<Vec<_>>());
            prop_assert!(shares.are_empty());
        }
    }
}
