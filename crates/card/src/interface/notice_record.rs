//! Notices of the access counters.

use farside_types::{Asid, PageNo, PageRange};

use super::Entry;

/// A group of pages whose remote accesses reached the threshold: words first page, pages, count,
/// asid, 0, 0, 0, 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoticeRecord {
    /// Address space.
    pub asid: Asid,
    /// The group.
    pub pages: PageRange,
    /// Accesses counted.
    pub count: u32,
}

impl NoticeRecord {
    /// The entry.
    pub fn to_entry(self) -> Entry {
        let NoticeRecord { asid, pages, count } = self;
        [pages.start.0, pages.count, count.into(), asid.0.into(), 0, 0, 0, 0]
    }

    /// The notice of an entry.
    pub fn from_entry(entry: &Entry) -> NoticeRecord {
        let pages = PageRange::new(PageNo(entry[0]), entry[1]);
        NoticeRecord { asid: Asid(entry[3] as u16), pages, count: entry[2] as u32 }
    }
}
