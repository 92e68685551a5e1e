//! Where pages were over time: for each range of pages, how long they were in which memory in which bin.

use farside_types::MemorySet;

use crate::BINS;
use crate::series::Bins;

/// Rows that an allocation gets, at most.
const ROWS_OF_OBJECT: u64 = 64;
/// Rows that all of them get; allocations behind these get few, and then none.
const ROWS: usize = 2048;
/// Rows of those that get few.
const FEW: u64 = 4;
/// Share of the time of a cell that counts as being somewhere, in percent.
const SOMEWHERE_PERCENT: u128 = 5;

/// The rows of one allocation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rows {
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// Pages of each but the last.
    pub(crate) pages_each: u64,
}

impl Rows {
    /// The row of a page, if it has one.
    pub(crate) fn of(&self, page: u64) -> Option<usize> {
        let row = (page / self.pages_each.max(1)) as usize;
        (row < self.count).then(|| self.first + row)
    }
}

/// All rows.
#[derive(Debug)]
pub(crate) struct Heat {
    bins: Bins,
    memories: usize,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    /// Page-time by memory and bin where a stay begins or ends.
    parts: Vec<u64>,
    /// Pages that begin to be somewhere for whole bins, less those that cease to, by memory and bin.
    whole: Vec<i64>,
    moves: Vec<u64>,
}

impl Heat {
    pub(crate) fn new(bins: Bins, memories: usize) -> Heat {
        Heat { bins, memories, rows: Vec::new() }
    }

    /// Rows for an allocation of so many pages.
    pub(crate) fn rows_for(&mut self, pages: u64) -> Rows {
        let most = match self.rows.len() {
            0..ROWS => ROWS_OF_OBJECT,
            taken if taken < 2 * ROWS => FEW,
            _ => return Rows::default(),
        };
        let pages_each = pages.div_ceil(most).max(1);
        let (first, count) = (self.rows.len(), pages.div_ceil(pages_each) as usize);
        let cells = self.memories * BINS;
        let row = || Row { parts: vec![0; cells], whole: vec![0; cells], moves: vec![0; BINS] };
        self.rows.extend(std::iter::repeat_with(row).take(count));
        Rows { first, count, pages_each }
    }

    /// A page of a row came to a memory.
    pub(crate) fn moved(&mut self, row: usize, at: u64) {
        self.rows[row].moves[self.bins.of(at)] += 1;
    }

    /// A page of a row was in these memories for a time.
    pub(crate) fn stayed(&mut self, row: usize, copies: MemorySet, from: u64, until: u64) {
        if copies.is_empty() || until <= from {
            return;
        }
        let (width, first, last) = (self.bins.width, self.bins.of(from), self.bins.of(until));
        let row = &mut self.rows[row];
        for memory in copies.iter().filter(|memory| usize::from(memory.0) < self.memories) {
            let base = usize::from(memory.0) * BINS;
            if first == last {
                add(&mut row.parts[base + first], until - from);
                continue;
            }
            add(&mut row.parts[base + first], ((first as u64 + 1) * width).saturating_sub(from));
            add(&mut row.parts[base + last], until - last as u64 * width);
            row.whole[base + first + 1] += 1;
            row.whole[base + last] -= 1;
        }
    }

    /// A character for each bin of a row of so many pages.
    pub(crate) fn places(&self, row: usize, pages: u64) -> String {
        let row = &self.rows[row];
        let shares: Vec<Vec<u64>> =
            (0..self.memories).map(|memory| self.shares(row, memory)).collect();
        let full = self.bins.width.saturating_mul(pages).max(1);
        let place = |bin: usize| {
            let most = (0..self.memories).max_by_key(|&memory| (shares[memory][bin], !memory));
            let most = most.unwrap_or(0);
            let there = |memory: usize| shares[memory][bin].saturating_mul(2) > full;
            match (0..self.memories).filter(|&memory| there(memory)).count() {
                2.. => '*',
                _ if u128::from(shares[most][bin]) * 100 < u128::from(full) * SOMEWHERE_PERCENT => {
                    '.'
                }
                _ => char::from(b'a' + most as u8),
            }
        };
        (0..BINS).map(place).collect()
    }

    /// Page-time of a memory in a row, by bin.
    fn shares(&self, row: &Row, memory: usize) -> Vec<u64> {
        let mut there = 0i64;
        let cells = memory * BINS..(memory + 1) * BINS;
        let both = row.parts[cells.clone()].iter().zip(&row.whole[cells]);
        both.map(|(&part, &change)| {
            there += change;
            part.saturating_add((there.max(0) as u64).saturating_mul(self.bins.width))
        })
        .collect()
    }

    /// Bins of a row in which pages came, and how many.
    pub(crate) fn moves(&self, row: usize) -> Vec<(usize, u64)> {
        let moves = self.rows[row].moves.iter().copied().enumerate();
        moves.filter(|&(_, pages)| pages > 0).collect()
    }
}

/// Sums of times that cannot be, in a log that is not true, stay sums.
fn add(sum: &mut u64, time: u64) {
    *sum = sum.saturating_add(time);
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_types::MemoryId;

    #[test]
    fn a_page_is_shown_where_it_was_most_of_the_time() {
        let bins = Bins { width: 10 };
        let mut heat = Heat::new(bins, 3);
        let rows = heat.rows_for(2);
        assert_eq!((rows.count, rows.of(1), rows.of(2)), (2, Some(1), None));
        let only = |memory| MemorySet::only(MemoryId(memory));
        heat.stayed(0, only(0), 5, 34);
        heat.stayed(0, only(1), 34, 50);
        heat.stayed(0, only(1).with(MemoryId(2)), 50, 60);
        let places = heat.places(0, 1);
        assert_eq!(&places[..8], "aaabb*..");
        assert_eq!(heat.places(1, 1), ".".repeat(BINS));
        heat.moved(0, 34);
        assert_eq!(heat.moves(0), [(3, 1)]);
    }
}
