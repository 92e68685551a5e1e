//! What a card's processing element does: update an array, or chase pointers.

use std::sync::Arc;

use farside_types::{PageNo, PageRange};

/// The work of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Reads and updates all values of an array, page by page (section V-A): as many pages as may
    /// be read at a time are read, updated and written back, then the next ones. That batches of
    /// faults have just this size is what the paper says; that reading and writing do not overlap
    /// is assumed.
    Update {
        /// The array.
        pages: PageRange,
    },
    /// Follows a list: reads a node of each of these pages, one after the other.
    Chase {
        /// The pages, in the order of the list.
        nodes: Arc<[PageNo]>,
    },
}

impl Work {
    /// A list through `nodes` pages of `range`, in a fixed order without pattern; a page comes
    /// again only when the list has been through all of them.
    pub fn chase(range: PageRange, nodes: u64) -> Work {
        let count = range.count.max(1);
        let step = coprime_step(count);
        let page = |i: u64| range.start.offset((i % count) * step % count);
        Work::Chase { nodes: (0..nodes).map(page).collect() }
    }

    /// The pages that are accessed together after the first `done` ones; none when all is done.
    pub(super) fn window(&self, done: u64, most: u32) -> Vec<PageNo> {
        match self {
            Work::Update { pages } => {
                let count = (pages.count - done.min(pages.count)).min(u64::from(most));
                PageRange::new(pages.start.offset(done), count).pages().collect()
            }
            Work::Chase { nodes } => nodes.get(done as usize).copied().into_iter().collect(),
        }
    }

    /// Whether what was read is written back.
    pub(super) fn writes(&self) -> bool {
        matches!(self, Work::Update { .. })
    }
}

/// A step near the golden section of `count` that shares no factor with it: multiples of it visit
/// everything before they repeat, and neighbours in time are far apart.
fn coprime_step(count: u64) -> u64 {
    let start = (count * 618 / 1_000).max(1);
    let shares = |step: u64| gcd(step, count) != 1;
    (start..=count).find(|&step| !shares(step)).unwrap_or(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_an_array_once() {
        let pages = PageRange::new(PageNo(5), 40);
        let work = Work::Update { pages };
        let mut seen = Vec::new();
        loop {
            let window = work.window(seen.len() as u64, 16);
            if window.is_empty() {
                break;
            }
            seen.extend(window);
        }
        assert_eq!(seen, pages.pages().collect::<Vec<_>>());
    }

    #[test]
    fn a_list_visits_every_page_before_it_comes_again() {
        for count in [1, 2, 7, 64, 1_000] {
            let Work::Chase { nodes } = Work::chase(PageRange::new(PageNo(9), count), 2 * count)
            else {
                panic!("a chase is a chase");
            };
            let mut first: Vec<_> = nodes[..count as usize].to_vec();
            first.sort_unstable();
            assert_eq!(first, PageRange::new(PageNo(9), count).pages().collect::<Vec<_>>());
            assert_eq!(nodes[..count as usize], nodes[count as usize..]);
        }
    }
}
