//! What an access needs before it can go on.

use std::sync::Arc;

use farside_types::{Access, PageNo, PageRange};
use thiserror::Error;

/// What an access needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Need {
    /// One page.
    Page(PageNo, Access),
    /// All of these at the same instant: a kernel's `with`.
    Group(Arc<[(PageRange, Access)]>),
}

/// Why a need makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum NeedError {
    /// It asks for nothing.
    #[error("the access asks for no page; ask for at least one, in ranges that are not empty")]
    Empty,
    /// A range wraps around the address space.
    #[error("{count} pages from {page} on end beyond the address space; ask for a shorter range")]
    Overflow {
        /// First page.
        page: PageNo,
        /// Number of pages.
        count: u64,
    },
    /// Too many ranges.
    #[error("the access asks for {ranges} ranges together, the card takes {most}; ask for fewer")]
    TooManyRanges {
        /// How many it asks for.
        ranges: usize,
        /// The most there may be.
        most: u32,
    },
}

impl Need {
    /// The ranges, in the order of the need.
    pub fn ranges(&self) -> impl Iterator<Item = (PageRange, Access)> {
        let count = match self {
            Need::Page(..) => 1,
            Need::Group(ranges) => ranges.len(),
        };
        (0..count).map(move |index| match self {
            &Need::Page(page, access) => (PageRange::page(page), access),
            Need::Group(ranges) => ranges[index],
        })
    }

    /// The first page, by which errors name it; one that asks for nothing, which no card takes, has none.
    pub fn first_page(&self) -> Option<PageNo> {
        self.ranges().next().map(|(range, _)| range.start)
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`NeedError`] if a range is empty or wraps, or if there are more than `ranges_max`.
    pub fn validate(&self, ranges_max: u32) -> Result<(), NeedError> {
        match self {
            Need::Page(..) => Ok(()),
            Need::Group(ranges) => validate_ranges(ranges, ranges_max),
        }
    }
}

pub(crate) fn validate_ranges(
    ranges: &[(PageRange, Access)],
    ranges_max: u32,
) -> Result<(), NeedError> {
    if ranges.len() > ranges_max as usize {
        return Err(NeedError::TooManyRanges { ranges: ranges.len(), most: ranges_max });
    }
    if ranges.is_empty() || ranges.iter().any(|(range, _)| range.is_empty()) {
        return Err(NeedError::Empty);
    }
    let wraps = |range: &PageRange| range.start.0.checked_add(range.count).is_none();
    match ranges.iter().find(|(range, _)| wraps(range)) {
        Some(&(range, _)) => Err(NeedError::Overflow { page: range.start, count: range.count }),
        None => Ok(()),
    }
}
