//! Walks of many pages at a time: the root at hand, lines of the tables held.

use std::collections::{BTreeMap, VecDeque};

use super::geometry::WORD_SHIFT;
use super::line::Lines;
use super::{
    WindowFault, WindowGeometry, WindowGeometryError, WindowMapping, WindowNeed, WindowWalk,
};

/// What becomes of a walk when it is looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowLook {
    /// It needs no read of its own: the root says it all, or its line is held or on its way.
    Found,
    /// The line at this address of the card's memory is to be read for it.
    Reads(u64),
    /// It is not under way yet: the place for its line is needed by walks of before.
    Waits,
}

/// Where a walk gets its result from.
#[derive(Clone, Debug)]
enum Source {
    Root(Result<WindowMapping, WindowFault>),
    /// Word `number` of the line at this place.
    Line {
        walk: WindowWalk,
        place: usize,
        number: usize,
    },
}

/// A walker of two levels, as `rtl/walker.vhd`: the root is its own, a read brings a line of a table, and
/// lines are kept.
///
/// Walks are answered in their order. One whose line is known, held or on its way, reads nothing; where
/// walks find their line, the next line of the table may be read [ahead](WindowWalker::ahead). An
/// invalidation is of all lines: a walk that is looked up after it uses no line that was asked for before.
/// A word that is a fault is kept for nobody who comes after its response.
#[derive(Clone, Debug)]
pub struct WindowWalker {
    geometry: WindowGeometry,
    /// Words of a line, as a power of two.
    line_bits: u32,
    ahead_from: u64,
    /// Words that were written; the others are 0.
    root: BTreeMap<u64, u64>,
    lines: Lines,
    walks: VecDeque<Source>,
    /// The first page of the line that may be read ahead.
    ahead: Option<u64>,
}

impl WindowWalker {
    /// With `lines` lines of 2^`line_bits` words. A walk that finds its line, and whose word is number
    /// `ahead_from` of it or a later one, lets the next line be read ahead.
    ///
    /// # Errors
    ///
    /// [`WindowGeometryError::Walker`] unless there are two levels, and a line at least, which fits a
    /// table.
    pub fn new(
        geometry: &WindowGeometry,
        line_bits: u32,
        lines: usize,
        ahead_from: u64,
    ) -> Result<WindowWalker, WindowGeometryError> {
        if geometry.levels() != 2 || line_bits > geometry.bits_below(0) || lines == 0 {
            return Err(WindowGeometryError::Walker);
        }
        Ok(WindowWalker {
            geometry: geometry.clone(),
            line_bits,
            ahead_from,
            root: BTreeMap::new(),
            lines: Lines::new(lines),
            walks: VecDeque::new(),
            ahead: None,
        })
    }

    /// Word `index` of the root, for walks that are looked up from now on.
    pub fn write_root(&mut self, index: u64, word: u64) {
        self.root.insert(index, word);
    }

    /// Looks up a walk for `page`, counted from the window's begin.
    pub fn walk(&mut self, page: u64) -> WindowLook {
        let (walk, address) = match self.led_by_root(page) {
            Ok(needs) => needs,
            Err(result) => {
                self.walks.push_back(Source::Root(result));
                return WindowLook::Found;
            }
        };
        let tag = page >> self.line_bits;
        let found = self.lines.find(tag);
        let Some(place) = found.or_else(|| self.lines.ask(tag)) else { return WindowLook::Waits };
        self.lines.wait(place);
        let number = page & self.line_mask();
        self.walks.push_back(Source::Line { walk, place, number: number as usize });
        if found.is_none() {
            return WindowLook::Reads(address);
        }
        let next = (tag + 1) << self.line_bits;
        if number >= self.ahead_from && next & self.table_mask() != 0 {
            self.ahead = Some(next);
        }
        WindowLook::Found
    }

    /// The address of the line to be read ahead, which is asked for by this; `None` if there is none, if
    /// it is known, or if there is no place for it.
    pub fn ahead(&mut self) -> Option<u64> {
        let page = self.ahead.take()?;
        let (_, address) = self.led_by_root(page).ok()?;
        let tag = page >> self.line_bits;
        if self.lines.find(tag).is_some() {
            return None;
        }
        self.lines.ask(tag).map(|_| address)
    }

    /// The line that was asked for first, or `None` where the memory has answered with an error. Nothing
    /// happens if no line was.
    pub fn take(&mut self, words: Option<&[u64]>) {
        self.lines.come(words);
    }

    /// The result of the oldest walk, once it is known.
    pub fn respond(&mut self) -> Option<Result<WindowMapping, WindowFault>> {
        let result = match self.walks.front()? {
            Source::Root(result) => *result,
            Source::Line { walk, place, number } => {
                let mut walk = walk.clone();
                walk.take(self.lines.word(*place, *number)?);
                let WindowNeed::Nothing(result) = walk.need() else { return None };
                self.lines.done(*place, result.is_err());
                result
            }
        };
        self.walks.pop_front();
        Some(result)
    }

    /// Pages are not what they were: walks that are looked up from now on use none of the lines.
    pub fn invalidate(&mut self) {
        self.lines.drop_all();
    }

    /// Walks without a response.
    pub fn under_way(&self) -> usize {
        self.walks.len()
    }

    /// A walk as far as the root leads it: what it needs then, the line's address; or its result.
    fn led_by_root(
        &self,
        page: u64,
    ) -> Result<(WindowWalk, u64), Result<WindowMapping, WindowFault>> {
        let mut walk = WindowWalk::new(&self.geometry, 0, page);
        let index = self.geometry.offset_in_table(0, page) >> WORD_SHIFT;
        walk.take(Some(self.root.get(&index).copied().unwrap_or(0)));
        match walk.need() {
            WindowNeed::Nothing(result) => Err(result),
            WindowNeed::Word { address, .. } => {
                let line = address & !((1 << (self.line_bits + WORD_SHIFT)) - 1);
                Ok((walk, line))
            }
        }
    }

    fn line_mask(&self) -> u64 {
        (1 << self.line_bits) - 1
    }

    fn table_mask(&self) -> u64 {
        (1 << self.geometry.bits_below(0)) - 1
    }
}

#[cfg(test)]
mod tests {
    use farside_types::Rights;

    use super::*;
    use crate::tables::{Place, TableEntry};
    use WindowLook::{Found, Reads, Waits};

    /// Two words in the root, eight in a table, two in a line; word i of the root leads to table i + 1.
    fn walker(lines: usize) -> WindowWalker {
        let geometry = WindowGeometry::new(12, &[1, 3], 20).unwrap();
        let mut walker = WindowWalker::new(&geometry, 1, lines, 1).unwrap();
        for index in 0..2 {
            walker.write_root(index, TableEntry::directory(index as u32 + 1).0);
        }
        walker
    }

    fn word(frame: u32) -> u64 {
        TableEntry::leaf(Place::Own(frame), Rights::Read, false, 0).0
    }

    fn frame(walker: &mut WindowWalker) -> Option<Result<u32, WindowFault>> {
        walker.respond().map(|result| result.map(|mapping| mapping.frame))
    }

    #[test]
    fn a_line_that_is_held_or_on_its_way_is_not_read_again() {
        let mut walker = walker(4);
        assert_eq!(walker.walk(2), Reads(64 + 16));
        assert_eq!((walker.walk(3), walker.walk(2)), (Found, Found));
        assert_eq!(walker.walk(8 + 2), Reads(128 + 16), "another table");
        assert_eq!(walker.respond(), None);
        walker.take(Some(&[word(5), word(6)]));
        assert_eq!(frame(&mut walker), Some(Ok(5)));
        assert_eq!(walker.walk(3), Found);
        assert_eq!((frame(&mut walker), frame(&mut walker)), (Some(Ok(6)), Some(Ok(5))));
        assert_eq!((walker.respond(), walker.under_way()), (None, 2));
        walker.take(Some(&[word(7), word(8)]));
        assert_eq!((frame(&mut walker), frame(&mut walker)), (Some(Ok(7)), Some(Ok(6))));
    }

    #[test]
    fn no_line_of_before_an_invalidation_serves_a_walk_after_it() {
        let mut walker = walker(4);
        assert_eq!((walker.walk(0), walker.walk(2)), (Reads(64), Reads(80)));
        walker.take(Some(&[word(1), word(2)]));
        assert_eq!(frame(&mut walker), Some(Ok(1)));
        walker.invalidate();
        assert_eq!((walker.walk(1), walker.walk(3)), (Reads(64), Reads(80)), "held, on its way");
        for words in [[word(3), word(4)], [word(5), word(6)], [word(7), word(8)]] {
            walker.take(Some(&words));
        }
        // The second one asked before.
        let frames = [frame(&mut walker), frame(&mut walker), frame(&mut walker)];
        assert_eq!(frames, [Some(Ok(3)), Some(Ok(6)), Some(Ok(8))]);
    }

    #[test]
    fn a_fault_that_was_told_is_read_again() {
        let mut walker = walker(4);
        walker.walk(0);
        walker.walk(1);
        walker.take(Some(&[word(1), 0]));
        assert_eq!((frame(&mut walker), walker.walk(1)), (Some(Ok(1)), Found), "not told yet");
        for _ in 0..2 {
            assert_eq!(frame(&mut walker), Some(Err(WindowFault::NotMapped)));
        }
        assert_eq!(walker.walk(1), Reads(64));
        walker.take(None);
        assert_eq!(frame(&mut walker), Some(Err(WindowFault::BusError)));
        assert_eq!(walker.walk(0), Reads(64));
        walker.take(Some(&[word(1), word(2)]));
        assert_eq!(frame(&mut walker), Some(Ok(1)));
    }

    #[test]
    fn the_next_line_is_read_ahead_within_its_table() {
        let mut walker = walker(4);
        walker.walk(1);
        assert_eq!(walker.ahead(), None, "nothing says that somebody goes on");
        walker.walk(0);
        assert_eq!(walker.ahead(), None, "not from this word on");
        walker.walk(1);
        assert_eq!((walker.ahead(), walker.ahead()), (Some(80), None));
        walker.walk(1);
        assert_eq!((walker.ahead(), walker.walk(2)), (None, Found), "it is on its way");
        walker.walk(7);
        walker.walk(7);
        assert_eq!(walker.ahead(), None, "the last line of the table");
        // An error of it is nobody's.
        walker.take(Some(&[word(1), word(2)]));
        while walker.respond().is_some() {}
        walker.take(None);
        assert_eq!(frame(&mut walker), Some(Err(WindowFault::BusError)), "which waited for it");
        assert_eq!(walker.walk(3), Reads(80));
    }

    #[test]
    fn a_walk_waits_for_a_place_and_the_root_needs_none() {
        let mut walker = walker(1);
        walker.write_root(1, TableEntry::leaf(Place::Own(0x40), Rights::Read, false, 3).0);
        assert_eq!((walker.walk(0), walker.walk(2)), (Reads(64), Waits));
        assert_eq!(walker.walk(8 + 5), Found);
        walker.take(Some(&[word(1), word(2)]));
        assert_eq!(walker.walk(2), Waits, "its words are needed");
        assert_eq!((frame(&mut walker), walker.walk(2)), (Some(Ok(1)), Reads(80)));
        assert_eq!(frame(&mut walker), Some(Ok(0x45)));
        walker.write_root(0, 0);
        assert_eq!(walker.walk(2), Found);
        walker.take(Some(&[word(3), word(4)]));
        assert_eq!(frame(&mut walker), Some(Ok(3)));
        assert_eq!(frame(&mut walker), Some(Err(WindowFault::NotMapped)));
    }

    #[test]
    fn lines_have_to_fit() {
        let two = WindowGeometry::new(12, &[1, 3], 20).unwrap();
        let three = WindowGeometry::new(12, &[1, 3, 3], 24).unwrap();
        let new = |geometry, bits, lines| WindowWalker::new(geometry, bits, lines, 0).map(drop);
        assert_eq!(new(&two, 3, 1), Ok(()));
        for bad in [new(&two, 4, 1), new(&two, 3, 0), new(&three, 1, 1)] {
            assert_eq!(bad, Err(WindowGeometryError::Walker));
        }
    }
}
