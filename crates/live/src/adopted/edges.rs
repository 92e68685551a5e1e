//! Pages at the edges of adopted ranges, which hold bytes of others as well: they stay where they are.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use farside_linux::lock::lock;
use farside_types::{FrameNo, PageNo};

/// The pages, how many ranges each is an edge of, and the frame that the driver calls it.
#[derive(Debug, Default)]
pub(crate) struct Edges {
    pages: Mutex<BTreeMap<PageNo, Edge>>,
    /// Held by who counts a range in or out until the driver has been told.
    turn: Mutex<()>,
}

#[derive(Debug)]
struct Edge {
    frame: FrameNo,
    ranges: u32,
}

impl Edges {
    /// Nobody else counts until it is given back.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
    }

    /// One more range has this page as an edge; `true` if it is the first, and the driver is to be told.
    pub(crate) fn share(&self, page: PageNo) -> bool {
        let mut pages = lock(&self.pages);
        pages.get_mut(&page).map(|edge| edge.ranges += 1).is_none()
    }

    /// The driver knows the page, as this frame.
    pub(crate) fn enter(&self, page: PageNo, frame: FrameNo) {
        lock(&self.pages).insert(page, Edge { frame, ranges: 1 });
    }

    /// Whether one range alone has it, and the driver is to be told before that leaves.
    pub(crate) fn is_last(&self, page: PageNo) -> bool {
        lock(&self.pages).get(&page).is_some_and(|edge| edge.ranges == 1)
    }

    /// One range less; if it was the last, the driver does not know the page any more.
    pub(crate) fn leave(&self, page: PageNo) {
        lock(&self.pages).retain(|known, edge| {
            edge.ranges -= u32::from(*known == page);
            edge.ranges > 0
        });
    }

    /// Whether a page is one.
    pub(crate) fn contains(&self, page: PageNo) -> bool {
        lock(&self.pages).contains_key(&page)
    }

    /// The page that the driver means by a frame.
    pub(crate) fn page_of(&self, frame: FrameNo) -> Option<PageNo> {
        let pages = lock(&self.pages);
        pages.iter().find(|(_, edge)| edge.frame == frame).map(|(&page, _)| page)
    }
}
