//! Which page is typical: the rules, and their choice.

use super::sharing::Seen;

/// A page, and by which rule it was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) page: u32,
    pub(super) rule: &'static str,
}

const SHARED: &str = "Of the shared pages, those with the number of sharers that has most accesses \
    (the lower number if two have as many); of these the page with the median number of accesses, \
    the lower page among equals.";

const WRITTEN: &str = "Of the pages that are read and written and shared, or of all that are read \
    and written if none is shared: the page with the median share of writes, then of accesses, the \
    lower page among equals.";

/// A typical shared page, if any page is shared.
pub(super) fn typical_shared(pages: &[Seen], gpus: u32) -> Option<Choice> {
    let of = |sharers: u32| pages.iter().filter(move |page| page.sharers() == sharers);
    let accesses = |sharers| of(sharers).map(Seen::accesses).sum::<u64>();
    let sharers = (2..=gpus).rev().max_by_key(|&sharers| accesses(sharers))?;
    let alike = numbered(pages).filter(|(_, page)| page.sharers() == sharers);
    let page = median(alike.map(|(number, page)| ((page.accesses(), 0), number)))?;
    Some(Choice { page, rule: SHARED })
}

/// A typical page that is read and written, if there is one.
pub(super) fn typical_written(pages: &[Seen]) -> Option<Choice> {
    let both = || numbered(pages).filter(|(_, page)| page.reads > 0 && page.writes > 0);
    let shared = both().any(|(_, page)| page.sharers() > 1);
    let wanted = both().filter(|(_, page)| !shared || page.sharers() > 1);
    // Share of writes in 1/2^20: exact comparisons of fractions would not say more.
    let writes = |page: &Seen| (u64::from(page.writes) << 20) / page.accesses();
    let page = median(wanted.map(|(number, page)| ((writes(page), page.accesses()), number)))?;
    Some(Choice { page, rule: WRITTEN })
}

fn numbered(pages: &[Seen]) -> impl Iterator<Item = (u32, &Seen)> {
    (0..).zip(pages)
}

fn median(pages: impl Iterator<Item = ((u64, u64), u32)>) -> Option<u32> {
    let mut list: Vec<_> = pages.collect();
    list.sort_unstable();
    let middle = list.get(list.len().saturating_sub(1) / 2)?.0;
    // The lowest page of those that are equal to the one in the middle.
    list.iter().find(|(value, _)| *value == middle).map(|&(_, page)| page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(gpus: u16, reads: u32, writes: u32) -> Seen {
        Seen { gpus, reads, writes }
    }

    #[test]
    fn the_shared_page_is_the_median_of_the_sharing_that_has_most_accesses() {
        let pages = [
            seen(0b0001, 900, 0),
            seen(0b0011, 10, 0),
            seen(0b1111, 8, 0),
            seen(0b1111, 5, 0),
            seen(0b0110, 2, 4),
            seen(0b1111, 3, 2),
        ];
        assert_eq!(typical_shared(&pages, 4).map(|choice| choice.page), Some(3));
        assert_eq!(typical_shared(&pages[..2], 4).map(|choice| choice.page), Some(1));
        assert_eq!(typical_shared(&pages[..1], 4), None);
    }

    #[test]
    fn the_written_page_is_shared_if_one_is() {
        let pages = [seen(1, 1, 9), seen(1, 5, 5), seen(1, 7, 3), seen(1, 0, 8), seen(3, 9, 0)];
        assert_eq!(typical_written(&pages).map(|choice| choice.page), Some(1));
        let shared = [pages[0], pages[1], seen(6, 9, 1)];
        assert_eq!(typical_written(&shared).map(|choice| choice.page), Some(2));
        assert_eq!(typical_written(&pages[3..]), None);
    }
}
