//! Pages over time: intervals of equal numbers of accesses.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::choose::Choice;
use super::sharing::Touch;

/// The attributes of consecutive pages over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// The first page.
    pub first: u32,
    /// A row for each interval, a letter for each page: `.` not accessed in the interval, `p`
    /// private (accessed by one GPU in it) and only read, `P` private and written, `s` shared and
    /// only read, `S` shared and written.
    pub rows: Vec<String>,
}

/// One page over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageOverTime {
    /// The page.
    pub page: u32,
    /// How it was chosen.
    pub rule: String,
    /// Per interval: reads by each GPU.
    pub reads: Vec<Vec<u64>>,
    /// Per interval: writes by each GPU.
    pub writes: Vec<Vec<u64>>,
}

/// A page in an interval: who accessed it, and whether it was written.
#[derive(Clone, Copy, Default)]
struct Cell {
    gpus: u16,
    written: bool,
}

/// Reads and writes of one page: by interval, by GPU.
type Followed = Vec<Vec<[u64; 2]>>;

/// Counts intervals while the accesses come by.
pub(super) struct OverTime {
    intervals: u32,
    total: u64,
    gpus: u32,
    pages: Range<u32>,
    at: u64,
    cells: Vec<Cell>,
    followed: BTreeMap<u32, Followed>,
}

impl OverTime {
    /// For `total` accesses in so many intervals; attributes of `pages`.
    pub(super) fn new(intervals: u32, total: u64, pages: Range<u32>, gpus: u32) -> OverTime {
        let cells = vec![Cell::default(); intervals as usize * pages.len()];
        OverTime { intervals, total, gpus, pages, at: 0, cells, followed: BTreeMap::new() }
    }

    /// Counts the accesses to these pages by GPU, too.
    pub(super) fn follow(&mut self, pages: &[u32]) {
        let none = vec![vec![[0; 2]; self.gpus as usize]; self.intervals as usize];
        self.followed = pages.iter().map(|&page| (page, none.clone())).collect();
    }

    /// The next access.
    pub(super) fn add(&mut self, touch: Touch) {
        let interval = u128::from(self.at) * u128::from(self.intervals) / u128::from(self.total);
        let interval = interval.min(u128::from(self.intervals - 1)) as usize;
        self.at += 1;
        if self.pages.contains(&touch.page) {
            let column = (touch.page - self.pages.start) as usize;
            let cell = &mut self.cells[interval * self.pages.len() + column];
            cell.gpus |= 1 << (touch.gpu & 15);
            cell.written |= touch.write;
        }
        let gpus = self.followed.get_mut(&touch.page).map(|followed| &mut followed[interval]);
        if let Some(counts) = gpus.and_then(|gpus| gpus.get_mut(usize::from(touch.gpu))) {
            counts[usize::from(touch.write)] += 1;
        }
    }

    /// A followed page.
    pub(super) fn page(&self, choice: Choice) -> PageOverTime {
        let intervals = self.followed.get(&choice.page).map_or(&[][..], Vec::as_slice);
        let side = |write: usize| {
            let row = |gpus: &Vec<[u64; 2]>| gpus.iter().map(|counts| counts[write]).collect();
            intervals.iter().map(row).collect()
        };
        let rule = choice.rule.to_owned();
        PageOverTime { page: choice.page, rule, reads: side(0), writes: side(1) }
    }

    pub(super) fn attributes(&self) -> Attributes {
        let width = self.pages.len();
        let row = |interval: usize| {
            let cells = &self.cells[interval * width..(interval + 1) * width];
            cells.iter().map(Cell::letter).collect()
        };
        let rows = (0..self.intervals as usize).map(row).collect();
        Attributes { first: self.pages.start, rows }
    }
}

impl Cell {
    fn letter(&self) -> char {
        match (self.gpus.count_ones(), self.written) {
            (0, _) => '.',
            (1, false) => 'p',
            (1, true) => 'P',
            (_, false) => 's',
            (_, true) => 'S',
        }
    }
}

impl PageOverTime {
    /// Accesses in an interval by each GPU.
    #[must_use]
    pub fn by_gpu(&self, interval: usize) -> Vec<u64> {
        let both = self.reads.get(interval).zip(self.writes.get(interval));
        both.map_or_else(Vec::new, |(reads, writes)| {
            reads.iter().zip(writes).map(|(reads, writes)| reads + writes).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Touch;
    use super::*;

    #[test]
    fn intervals_have_equal_numbers_of_accesses() {
        let mut over_time = OverTime::new(4, 10, 0..1, 2);
        over_time.follow(&[0]);
        for at in 0..10u8 {
            over_time.add(Touch { gpu: at % 2, page: 0, write: at >= 8 });
        }
        let page = over_time.page(Choice { page: 0, rule: "all" });
        let sums: Vec<u64> = (0..4).map(|i| page.by_gpu(i).iter().sum()).collect();
        assert_eq!(sums, [3, 2, 3, 2]);
        assert_eq!(page.reads[3], [0, 0]);
        assert_eq!((page.writes[3].as_slice(), page.by_gpu(0)), (&[1, 1][..], vec![2, 1]));
        assert!(page.by_gpu(4).is_empty());
        assert_eq!(over_time.attributes().rows, ["s", "s", "s", "S"]);
    }

    #[test]
    fn only_the_pages_asked_for_have_attributes() {
        let mut over_time = OverTime::new(1, 3, 5..7, 2);
        for page in [4, 6, 7] {
            over_time.add(Touch { gpu: 0, page, write: true });
        }
        assert_eq!(over_time.attributes(), Attributes { first: 5, rows: vec![".P".to_owned()] });
    }
}
