//! How a trace lies in memory: four bytes a line, one byte an instruction.
//!
//! A stream is what one compute unit did in one launch. Its instructions lie in recorded order, a
//! byte each ([`Head`]), and the lines they access beside them. A piece is a stretch of a stream
//! that one wavefront ran.

use crate::{LINES_MAX, Place};

/// The recorded work-group of what a recording names no work-group for.
pub(super) const NO_GROUP: u32 = u32::MAX;

/// What an instruction of a recording does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Load = 0,
    Store = 1,
    LoadScalar = 2,
    /// Waits for the loads before it; not recorded but put there by the reader.
    Wait = 3,
}

/// Kind and number of lines of an instruction. A wait has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head(u8);

impl Head {
    const COUNT_BITS: u32 = 6;
    pub(super) const WAIT: Head = Head((Kind::Wait as u8) << Head::COUNT_BITS);

    /// An instruction with one line.
    pub(super) const fn one(kind: Kind) -> Head {
        Head((kind as u8) << Head::COUNT_BITS)
    }

    /// With one line more, if there is room.
    pub(super) fn more(self) -> Option<Head> {
        (self.lines() < LINES_MAX).then(|| Head(self.0 + 1))
    }

    pub(super) const fn kind(self) -> Kind {
        match self.0 >> Head::COUNT_BITS {
            0 => Kind::Load,
            1 => Kind::Store,
            2 => Kind::LoadScalar,
            _ => Kind::Wait,
        }
    }

    pub(super) const fn lines(self) -> usize {
        match self.kind() {
            Kind::Wait => 0,
            _ => (self.0 & ((1 << Head::COUNT_BITS) - 1)) as usize + 1,
        }
    }
}

/// Where a wavefront, or a part of it, lies in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Position of its work-group among those of the stream; the recorded number while reading.
    pub(super) group: u32,
    pub(super) wave: u16,
    /// Its first instruction and the first line of that.
    pub(super) head: u32,
    pub(super) line: u32,
    /// Where its instructions end.
    pub(super) end: u32,
}

/// What a compute unit did in a launch.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) place: Place,
    pub(super) heads: Vec<Head>,
    pub(super) lines: Vec<u32>,
    /// By work-group and wavefront; several of one wavefront in recorded order.
    pub(super) pieces: Vec<Piece>,
}

/// A launch: its streams by GPU and compute unit, and its work-groups.
#[derive(Clone, Debug, Default)]
pub(super) struct Launch {
    pub(super) streams: Vec<Stream>,
    /// Stream and first piece of each work-group: first those that came first on their compute
    /// unit, then those that came second, and so on.
    pub(super) groups: Vec<(u32, u32)>,
    pub(super) waves: u16,
}

impl Stream {
    /// Numbers the work-groups in the order in which they began, and sorts the pieces by them.
    fn sort(&mut self) {
        let mut numbers = std::collections::BTreeMap::new();
        for piece in &mut self.pieces {
            let next = numbers.len() as u32;
            piece.group = *numbers.entry(piece.group).or_insert(next);
        }
        self.pieces.sort_by_key(|piece| (piece.group, piece.wave));
        self.heads.shrink_to_fit();
        self.lines.shrink_to_fit();
    }
}

impl Launch {
    pub(super) fn bytes(&self) -> usize {
        let streams = self.streams.iter().map(|stream| {
            size_of_val(&stream.heads[..])
                + size_of_val(&stream.lines[..])
                + size_of_val(&stream.pieces[..])
        });
        size_of_val(&self.groups[..]) + streams.sum::<usize>()
    }

    /// Puts in order what was collected.
    pub(super) fn finish(&mut self) {
        self.streams.sort_by_key(|stream| (stream.place.gpu, stream.place.unit));
        let mut ranked = Vec::new();
        for (index, stream) in self.streams.iter_mut().enumerate() {
            stream.sort();
            let mut next = 0;
            for (first, piece) in stream.pieces.iter().enumerate() {
                self.waves = self.waves.max(piece.wave + 1);
                if piece.group == next {
                    ranked.push((next, index as u32, first as u32));
                    next += 1;
                }
            }
        }
        ranked.sort_unstable();
        self.groups = ranked.into_iter().map(|(_, stream, first)| (stream, first)).collect();
        self.waves = self.waves.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_counts_to_64_lines() {
        let mut head = Head::one(Kind::LoadScalar);
        for lines in 1..LINES_MAX {
            assert_eq!((head.kind(), head.lines()), (Kind::LoadScalar, lines));
            head = head.more().unwrap();
        }
        assert_eq!((head.lines(), head.more()), (LINES_MAX, None));
        assert_eq!((Head::WAIT.kind(), Head::WAIT.lines()), (Kind::Wait, 0));
    }
}
