//! Bytes of a far card's memory that are asked for before anybody wants them: behind a launch, what its kernel
//! is believed to have made. They come with its completion, and whoever moves those pages then waits for
//! nothing.
//!
//! What has come is what the memory held when that launch had completed. It holds for as long as nobody writes
//! there: no other launch is under way or sent, and nothing is put there. Whoever has the driver's lock says so in
//! the order of its moves and launches. Before the driver knows that a launch has completed, nobody waits for
//! what comes behind it: its kernel may go on for ever.

use std::collections::BTreeMap;
use std::ops::Range;

use farside_link::{Frame, Tag};

/// Numbers of these requests are from here on.
pub(super) const FIRST_BEHIND: u64 = 1 << 35;

/// Bytes of the card's memory.
#[derive(Debug)]
struct Piece {
    launch: u64,
    memory: Range<u64>,
    /// Its launch has completed.
    is_due: bool,
    /// Those that have come.
    data: Vec<u8>,
    /// What was put there since, or may have been, counts; this does not.
    is_stale: bool,
    /// Who waits for it.
    wanted: Vec<Wanted>,
}

/// A part of a move: so many bytes of the card's memory, and where they go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    /// The move.
    pub(super) tag: u64,
    pub(super) bus: u64,
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

/// What is known of a part of the memory.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Known<'a> {
    /// So many bytes from there on were not asked for.
    Nothing(u64),
    /// They have come.
    Here(&'a [u8]),
    /// They will, this many.
    Coming(u64),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct BehindLaunch {
    /// By number.
    pieces: BTreeMap<u64, Piece>,
    /// The last number.
    last: u64,
}

impl BehindLaunch {
    /// Asks for parts of the memory, behind a launch.
    pub(super) fn ask(
        &mut self,
        launch: u64,
        parts: impl IntoIterator<Item = Range<u64>>,
    ) -> Vec<(Tag, Frame<Vec<u8>>)> {
        let mut ask = |memory: Range<u64>| {
            self.last += 1;
            let number = FIRST_BEHIND + self.last;
            let (offset, bytes) = (memory.start, (memory.end - memory.start) as u32);
            let piece = Piece {
                launch,
                memory,
                is_due: false,
                data: Vec::new(),
                is_stale: false,
                wanted: Vec::new(),
            };
            self.pieces.insert(number, piece);
            (Tag(number), Frame::MemoryReadBehind { command: launch, offset, bytes })
        };
        parts.into_iter().map(&mut ask).collect()
    }

    /// A launch has completed.
    pub(super) fn completed(&mut self, launch: u64) {
        let its = self.pieces.values_mut().filter(|piece| piece.launch == launch);
        its.for_each(|piece| piece.is_due = true);
    }

    /// Nothing that has come, or will, is what the memory holds: a kernel may write it.
    pub(super) fn forget(&mut self) {
        self.forget_where(|_| true);
    }

    /// Something else is put there.
    pub(super) fn forget_within(&mut self, memory: &Range<u64>) {
        self.forget_where(|piece| piece.start < memory.end && memory.start < piece.end);
    }

    fn forget_where(&mut self, is_it: impl Fn(&Range<u64>) -> bool) {
        self.pieces.retain(|_, piece| {
            piece.is_stale |= is_it(&piece.memory);
            // Those that have not come are waited for: their answers will have their numbers.
            !(piece.is_stale && piece.is_whole())
        });
    }

    /// What there is of the memory from `memory.start` on, at most to its end.
    pub(super) fn known(&self, memory: &Range<u64>) -> Known<'_> {
        let live = || self.pieces.values().filter(|piece| piece.counts());
        let Some(piece) = live().find(|piece| piece.memory.contains(&memory.start)) else {
            let next = live().map(|piece| piece.memory.start).filter(|&at| at > memory.start).min();
            let end = next.map_or(memory.end, |next| next.min(memory.end));
            return Known::Nothing(end - memory.start);
        };
        let end = piece.memory.end.min(memory.end);
        if !piece.is_whole() {
            return Known::Coming(end - memory.start);
        }
        let at = |offset: u64| (offset - piece.memory.start) as usize;
        Known::Here(&piece.data[at(memory.start)..at(end)])
    }

    /// Somebody waits for bytes that are coming.
    pub(super) fn wait(&mut self, wanted: Wanted) {
        let mut pieces = self.pieces.values_mut().filter(|piece| piece.counts());
        if let Some(piece) = pieces.find(|piece| piece.memory.contains(&wanted.offset)) {
            piece.wanted.push(wanted);
        }
    }

    /// An answer has come, or a piece of one. When it is whole: who has waited for it, with their bytes; with
    /// none if it did not come.
    pub(super) fn came(
        &mut self,
        number: u64,
        frame: &Frame<&[u8]>,
        is_last: bool,
    ) -> Vec<(Wanted, Option<Vec<u8>>)> {
        let Some(piece) = self.pieces.get_mut(&number) else { return Vec::new() };
        let is_there = match *frame {
            Frame::Data { data, .. } => {
                piece.data.extend_from_slice(data);
                true
            }
            _ => false,
        };
        if !is_last {
            return Vec::new();
        }
        let wanted = std::mem::take(&mut piece.wanted);
        let start = piece.memory.start;
        let bytes_of = |wanted: &Wanted| {
            let at = (wanted.offset - start) as usize;
            is_there.then(|| piece.data[at..at + wanted.bytes as usize].to_vec())
        };
        let answers = wanted.iter().map(|wanted| (*wanted, bytes_of(wanted))).collect();
        if piece.is_stale || !is_there {
            self.pieces.remove(&number);
        }
        answers
    }
}

impl Piece {
    /// Whether what has come, or will, is what the memory holds.
    fn counts(&self) -> bool {
        self.is_due && !self.is_stale
    }

    fn is_whole(&self) -> bool {
        self.data.len() as u64 == self.memory.end - self.memory.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAUNCH: u64 = 7;

    /// Two parts were asked for behind a launch, and the first has come.
    fn asked() -> (BehindLaunch, [u64; 2]) {
        let mut behind = BehindLaunch::default();
        let asked = behind.ask(LAUNCH, [4..8, 12..16]);
        let [(first, frame), (second, _)] = <[_; 2]>::try_from(asked).unwrap();
        assert_eq!(frame, Frame::MemoryReadBehind { command: LAUNCH, offset: 4, bytes: 4 });
        assert!(come(&mut behind, first.0, &[1, 2, 3, 4]).is_empty(), "nobody waits");
        (behind, [first.0, second.0])
    }

    fn come(behind: &mut BehindLaunch, number: u64, data: &[u8]) -> Vec<(Wanted, Option<Vec<u8>>)> {
        behind.came(number, &Frame::Data { offset: 0, last: true, data }, true)
    }

    fn wanted(offset: u64, bytes: u32) -> Wanted {
        Wanted { tag: 1, bus: 0x1000, offset, bytes }
    }

    #[test]
    fn what_came_with_a_completion_is_here_and_the_rest_is_coming_or_nothing() {
        let (mut behind, [_, second]) = asked();
        assert_eq!(behind.known(&(4..8)), Known::Nothing(4), "the launch is under way");
        behind.completed(LAUNCH + 1);
        assert_eq!(behind.known(&(4..8)), Known::Nothing(4));
        behind.completed(LAUNCH);
        assert_eq!(behind.known(&(0..20)), Known::Nothing(4));
        assert_eq!(behind.known(&(4..20)), Known::Here(&[1, 2, 3, 4]));
        assert_eq!(behind.known(&(5..7)), Known::Here(&[2, 3]));
        assert_eq!(behind.known(&(8..20)), Known::Nothing(4));
        assert_eq!(behind.known(&(13..20)), Known::Coming(3));
        assert_eq!(behind.known(&(16..20)), Known::Nothing(4));
        behind.wait(wanted(13, 2));
        assert_eq!(come(&mut behind, second, &[5, 6, 7, 8]), [(wanted(13, 2), Some(vec![6, 7]))]);
        assert_eq!(behind.known(&(12..16)), Known::Here(&[5, 6, 7, 8]));
    }

    #[test]
    fn what_does_not_come_is_told_to_who_waits() {
        let (mut behind, [_, second]) = asked();
        behind.completed(LAUNCH);
        behind.wait(wanted(12, 4));
        let failed = behind.came(second, &Frame::Failed { errno: 5 }, true);
        assert_eq!(failed, [(wanted(12, 4), None)]);
        assert_eq!(behind.known(&(12..16)), Known::Nothing(4));
    }

    #[test]
    fn a_launch_ends_what_has_come_and_what_is_coming() {
        let (mut behind, [_, second]) = asked();
        behind.completed(LAUNCH);
        behind.forget();
        assert_eq!(behind.known(&(4..16)), Known::Nothing(12));
        assert!(come(&mut behind, second, &[5, 6, 7, 8]).is_empty());
        assert_eq!(behind.known(&(4..16)), Known::Nothing(12));
    }

    /// It was wanted before that launch, when nobody could write there.
    #[test]
    fn who_waits_gets_it_also_when_a_launch_follows() {
        let (mut behind, [_, second]) = asked();
        behind.completed(LAUNCH);
        behind.wait(wanted(12, 4));
        behind.forget();
        let came = come(&mut behind, second, &[5, 6, 7, 8]);
        assert_eq!(came, [(wanted(12, 4), Some(vec![5, 6, 7, 8]))]);
    }

    #[test]
    fn what_is_put_there_ends_what_overlaps_and_no_more() {
        let (mut behind, [_, second]) = asked();
        behind.completed(LAUNCH);
        behind.forget_within(&(0..4));
        behind.forget_within(&(8..12));
        assert_eq!(behind.known(&(4..8)), Known::Here(&[1, 2, 3, 4]));
        behind.forget_within(&(7..13));
        assert_eq!(behind.known(&(4..16)), Known::Nothing(12));
        assert!(come(&mut behind, second, &[5, 6, 7, 8]).is_empty());
    }
}
