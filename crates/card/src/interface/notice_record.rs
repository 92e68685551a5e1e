//! Notices of the access counters.

use farside_types::{Asid, PageNo, PageRange};

use super::{DecodeError, Entry, PAGE_NUMBERS};

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
    ///
    /// # Errors
    /// [`DecodeError::Word`] for pages, a count or an asid that cannot be.
    pub fn from_entry(entry: &Entry) -> Result<NoticeRecord, DecodeError> {
        let wrong = |word: u8| DecodeError::Word { word, value: entry[usize::from(word)] };
        let [page, pages, count, asid, zeros @ ..] = *entry;
        // A group has pages: none, behind the last one that there can be, would have an address that cannot be.
        if pages == 0 || page.checked_add(pages).is_none_or(|end| end > PAGE_NUMBERS) {
            return Err(wrong(1));
        }
        if let Some(index) = zeros.iter().position(|&word| word != 0) {
            return Err(wrong(4 + index as u8));
        }
        Ok(NoticeRecord {
            asid: Asid(u16::try_from(asid).map_err(|_| wrong(3))?),
            pages: PageRange::new(PageNo(page), pages),
            count: u32::try_from(count).map_err(|_| wrong(2))?,
        })
    }
}
