//! Something small for each of many pages: a sheet for a block of neighbours is there once one of them
//! has it.

use farside_types::{BLOCK_PAGES, IndexMap, PageNo, PageRange};
use serde::{Deserialize, Serialize};

/// At most one `T` for each page. No result depends on the order of the sheets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sheets<T> {
    sheets: IndexMap<u64, Box<[Option<T>]>>,
}

/// A page's block and its place there.
fn place(page: PageNo) -> (u64, usize) {
    (page.block().0, (page.0 % BLOCK_PAGES) as usize)
}

impl<T: Copy> Sheets<T> {
    pub(super) fn new() -> Sheets<T> {
        Sheets { sheets: IndexMap::default() }
    }

    pub(super) fn get(&self, page: PageNo) -> Option<T> {
        let (sheet, at) = place(page);
        self.sheets.get(&sheet)?[at]
    }

    pub(super) fn insert(&mut self, page: PageNo, what: T) {
        let (sheet, at) = place(page);
        let sheet =
            self.sheets.entry(sheet).or_insert_with(|| vec![None; BLOCK_PAGES as usize].into());
        sheet[at] = Some(what);
    }

    /// Takes out what `page` has.
    pub(super) fn remove(&mut self, page: PageNo) -> Option<T> {
        let (sheet, at) = place(page);
        self.sheets.get_mut(&sheet)?[at].take()
    }

    /// Forgets what the pages have.
    pub(super) fn forget(&mut self, pages: PageRange) {
        self.sheets.retain(|&sheet, held| {
            let first = sheet * BLOCK_PAGES;
            for (page, place) in (first..).zip(held.iter_mut()) {
                if pages.contains(PageNo(page)) {
                    *place = None;
                }
            }
            held.iter().any(Option::is_some)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_keep_what_they_have_until_it_is_taken_or_forgotten() {
        let mut sheets = Sheets::new();
        for page in [0, 511, 512, 1 << 40] {
            sheets.insert(PageNo(page), page as u16);
        }
        assert_eq!(sheets.get(PageNo(511)), Some(511));
        assert_eq!((sheets.get(PageNo(1)), sheets.get(PageNo(4_096))), (None, None));
        assert_eq!((sheets.remove(PageNo(0)), sheets.remove(PageNo(0))), (Some(0), None));
        sheets.forget(PageRange { start: PageNo(500), count: 100 });
        let left = [511, 512, 1 << 40].map(|page| sheets.get(PageNo(page)).is_some());
        assert_eq!(left, [false, false, true]);
        assert_eq!(sheets.sheets.len(), 1, "empty sheets are given back");
    }
}
