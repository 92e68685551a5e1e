//! What of a card's memory another lender's end may read: pieces that the borrower has named, each once.

use std::collections::BTreeMap;

use super::super::Refusal;

/// Pieces that are lent at a time, at most.
pub(super) const LENT_MAX: usize = 256;

/// Bytes of a card's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

/// What becomes of a wish to read a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// It is granted.
    Granted,
    /// The borrower may lend it yet: what it tells the two ends comes by two ways.
    Later,
    /// It is not lent, or not any more, or is not of that length.
    Refused,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Lent {
    open: BTreeMap<u64, Open>,
    /// The last that was lent.
    last: u64,
    is_over: bool,
    bytes_read: u64,
}

#[derive(Debug)]
struct Open {
    piece: Piece,
    is_asked: bool,
}

impl Lent {
    /// The borrower lends a piece, whose name is larger than all before.
    pub(super) fn lend(&mut self, transfer: u64, piece: Piece) -> Result<(), Refusal> {
        if transfer <= self.last || self.open.len() >= LENT_MAX {
            return Err(Refusal::Order);
        }
        self.last = transfer;
        self.open.insert(transfer, Open { piece, is_asked: false });
        Ok(())
    }

    /// The other end wants to read a piece.
    pub(super) fn ask(&mut self, transfer: u64, bytes: u32) -> Wish {
        match self.open.get_mut(&transfer) {
            _ if self.is_over => Wish::Refused,
            Some(open) if open.piece.bytes == bytes && !open.is_asked => {
                open.is_asked = true;
                Wish::Granted
            }
            None if transfer > self.last => Wish::Later,
            _ => Wish::Refused,
        }
    }

    /// A piece that is being read, if it still may be.
    pub(super) fn piece(&self, transfer: u64) -> Option<Piece> {
        self.open.get(&transfer).map(|open| open.piece)
    }

    /// All of a piece has been read.
    pub(super) fn read(&mut self, transfer: u64) {
        self.bytes_read += self.open.remove(&transfer).map_or(0, |open| open.piece.bytes.into());
    }

    /// Nothing more of a piece is read.
    pub(super) fn end(&mut self, transfer: u64) {
        self.open.remove(&transfer);
        self.last = self.last.max(transfer);
    }

    /// Nothing more of anything is read.
    pub(super) fn end_all(&mut self) {
        self.open.clear();
        self.is_over = true;
    }

    /// Whether that was said.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Bytes of pieces that were read whole.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: Piece = Piece { offset: 4096, bytes: 8192 };

    #[test]
    fn a_piece_is_read_once_as_a_whole_and_only_if_it_is_lent() {
        let mut lent = Lent::default();
        assert_eq!(lent.ask(3, 8192), Wish::Later);
        lent.lend(3, PIECE).unwrap();
        assert_eq!(lent.ask(3, 4096), Wish::Refused, "another length");
        assert_eq!(lent.ask(2, 8192), Wish::Refused, "it was never lent and will not be");
        assert_eq!(lent.ask(3, 8192), Wish::Granted);
        assert_eq!(lent.piece(3), Some(PIECE));
        assert_eq!(lent.ask(3, 8192), Wish::Refused, "a second time");
        lent.read(3);
        assert_eq!((lent.piece(3), lent.bytes_read()), (None, 8192));
        assert_eq!(lent.ask(3, 8192), Wish::Refused);
        assert_eq!(lent.ask(4, 8192), Wish::Later);
    }

    #[test]
    fn what_is_ended_is_read_no_more_also_if_it_never_began() {
        let mut lent = Lent::default();
        lent.lend(1, PIECE).unwrap();
        assert_eq!(lent.ask(1, 8192), Wish::Granted);
        lent.end(1);
        assert_eq!(lent.piece(1), None);
        lent.end(5);
        assert_eq!(lent.ask(5, 8192), Wish::Refused);
        lent.lend(6, PIECE).unwrap();
        lent.end_all();
        assert_eq!((lent.piece(6), lent.ask(7, 1)), (None, Wish::Refused));
        assert!(lent.is_over());
    }

    #[test]
    fn names_only_grow_and_not_too_many_are_open() {
        let mut lent = Lent::default();
        for transfer in 1..=LENT_MAX as u64 {
            lent.lend(transfer, PIECE).unwrap();
        }
        assert_eq!(lent.lend(1000, PIECE), Err(Refusal::Order));
        lent.end(7);
        assert_eq!(lent.lend(7, PIECE), Err(Refusal::Order));
        assert_eq!(lent.lend(1000, PIECE), Ok(()));
    }
}
