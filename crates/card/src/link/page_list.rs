//! The pages of a transfer, in order.

use thiserror::Error;

use super::AnnounceError;
use crate::interface::DmaAddr;

/// Pages that follow one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRun {
    /// The first.
    pub first: DmaAddr,
    /// How many.
    pub count: u32,
}

/// How a sender gets at the bytes of its pages, as the embedder implements it.
pub trait PagesRead {
    /// Reads `bytes.len()` bytes from `offset` on of a page.
    ///
    /// # Errors
    /// [`ReadFailed`]: the transfer is given up.
    fn read(&mut self, page: DmaAddr, offset: u32, bytes: &mut [u8]) -> Result<(), ReadFailed>;
}

/// A page could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the page could not be read on the bus; map it, and send it again")]
pub struct ReadFailed;

/// A run, and the index of its first page in the transfer.
#[derive(Clone, Copy, Debug)]
struct Run {
    index: u32,
    pages: PageRun,
}

/// The pages of a transfer: index to place.
#[derive(Clone, Debug)]
pub(super) struct PageList {
    runs: Box<[Run]>,
    pages: u32,
}

impl PageList {
    pub(super) fn new(runs: &[PageRun], pages_max: u32) -> Result<PageList, AnnounceError> {
        let total: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
        if total > u64::from(pages_max) {
            return Err(AnnounceError::TooManyPages { pages: total, most: pages_max });
        }
        if runs.is_empty() || runs.iter().any(|run| run.count == 0) {
            return Err(AnnounceError::Empty);
        }
        let mut index = 0;
        let mut list = Vec::with_capacity(runs.len());
        for &pages in runs {
            let first = number(pages.first);
            if u64::from(first) + u64::from(pages.count) > 1 << 32 {
                return Err(AnnounceError::BeyondLastPage { first, count: pages.count });
            }
            list.push(Run { index, pages });
            index += pages.count;
        }
        Ok(PageList { runs: list.into(), pages: index })
    }

    /// Refuses a list that names a page twice.
    pub(super) fn check_distinct(&self) -> Result<(), AnnounceError> {
        let mut spans: Vec<(bool, u64, u64)> = self
            .runs
            .iter()
            .map(|run| {
                let first = u64::from(number(run.pages.first));
                let own = matches!(run.pages.first, DmaAddr::Own(_));
                (own, first, first + u64::from(run.pages.count))
            })
            .collect();
        spans.sort_unstable();
        let twice = spans.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[1].1 < pair[0].2);
        match twice {
            Some(pair) => Err(AnnounceError::Twice { page: pair[1].1 as u32 }),
            None => Ok(()),
        }
    }

    /// Number of pages.
    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    /// Where a page is.
    pub(super) fn place(&self, index: u32) -> Option<DmaAddr> {
        if index >= self.pages {
            return None;
        }
        let behind = self.runs.partition_point(|run| run.index <= index);
        let run = self.runs.get(behind.checked_sub(1)?)?;
        Some(offset(run.pages.first, index - run.index))
    }

    /// Where a page would be if the list went on: what a receiver that does not check would do.
    #[cfg(test)]
    pub(super) fn place_unchecked(&self, index: u32) -> Option<DmaAddr> {
        let last = self.runs.last()?;
        self.place(index).or_else(|| Some(offset(last.pages.first, index.checked_sub(last.index)?)))
    }
}

fn number(place: DmaAddr) -> u32 {
    match place {
        DmaAddr::Own(frame) => frame,
        DmaAddr::Bus(page) => page,
    }
}

/// The page `count` pages behind; it exists, as the list was checked.
fn offset(place: DmaAddr, count: u32) -> DmaAddr {
    match place {
        DmaAddr::Own(frame) => DmaAddr::Own(frame.wrapping_add(count)),
        DmaAddr::Bus(page) => DmaAddr::Bus(page.wrapping_add(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: DmaAddr, count: u32) -> PageRun {
        PageRun { first, count }
    }

    #[test]
    fn every_index_has_the_place_that_the_runs_say() {
        let runs = [run(DmaAddr::Own(10), 2), run(DmaAddr::Bus(7), 1)];
        let list = PageList::new(&runs, 3).unwrap();
        assert_eq!(list.pages(), 3);
        assert_eq!(list.place(0), Some(DmaAddr::Own(10)));
        assert_eq!(list.place(1), Some(DmaAddr::Own(11)));
        assert_eq!(list.place(2), Some(DmaAddr::Bus(7)));
        assert_eq!(list.place(3), None);
        assert_eq!(list.place(u32::MAX), None);
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        let own = DmaAddr::Own;
        let new = |runs: &[PageRun]| PageList::new(runs, 8).map(|list| list.pages());
        assert_eq!(new(&[]), Err(AnnounceError::Empty));
        assert_eq!(new(&[run(own(1), 0)]), Err(AnnounceError::Empty));
        let many = AnnounceError::TooManyPages { pages: 9, most: 8 };
        assert_eq!(new(&[run(own(1), 4), run(own(9), 5)]), Err(many));
        let beyond = AnnounceError::BeyondLastPage { first: u32::MAX, count: 2 };
        assert_eq!(new(&[run(own(u32::MAX), 2)]), Err(beyond));
        assert_eq!(new(&[run(own(u32::MAX), 1)]), Ok(1));
    }

    #[test]
    fn a_page_listed_twice_is_seen_and_an_own_frame_is_no_bus_page() {
        let list = |runs: &[PageRun]| PageList::new(runs, 99).unwrap().check_distinct();
        let (own, bus) = (DmaAddr::Own, DmaAddr::Bus);
        let twice = list(&[run(own(5), 4), run(own(1), 2), run(own(8), 1)]);
        assert_eq!(twice, Err(AnnounceError::Twice { page: 8 }));
        assert_eq!(list(&[run(own(5), 4), run(bus(5), 4), run(own(9), 1)]), Ok(()));
    }
}
