//! What a library's scheme has learnt, as bytes: its notes, and what it writes itself.
//!
//! Numbers of 64 bits, the lowest byte first: 1 if the library stores its state, else 0; the number of
//! allocations; of each its first page, its pages, the number of notes that are not zero, and these as place and
//! word; then the library's bytes.

use farside_types::{PageNo, PageRange};

use crate::notes::Notes;

/// Most pages of an allocation (4 TiB), so that a damaged state asks for no more.
const PAGES_MAX: u64 = 1 << 30;
/// The first page beyond 57 bits of addresses.
const PAGES_END: u64 = 1 << 45;

/// A state that was read.
pub(crate) struct Saved<'a> {
    pub(crate) notes: Notes,
    /// The library's bytes; `None` if it does not store its state.
    pub(crate) own: Option<&'a [u8]>,
}

pub(crate) fn write(notes: &Notes, own: Option<&[u8]>) -> Vec<u8> {
    let allocations: Vec<_> = notes.written().collect();
    let mut words = vec![u64::from(own.is_some()), allocations.len() as u64];
    for (pages, written) in allocations {
        words.extend([pages.start.0, pages.count, written.len() as u64]);
        words.extend(written.into_iter().flat_map(|(place, word)| [place, word]));
    }
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    bytes.extend_from_slice(own.unwrap_or_default());
    bytes
}

pub(crate) fn read(mut bytes: &[u8], kept: bool) -> Result<Saved<'_>, String> {
    let mut next = || {
        let (word, rest) = bytes.split_first_chunk().ok_or("the scheme's state is cut")?;
        bytes = rest;
        Ok::<u64, String>(u64::from_le_bytes(*word))
    };
    let (stores, allocations) = (next()? != 0, next()?);
    let mut notes = Notes::new(kept);
    for _ in 0..allocations {
        let (pages, written) = (PageRange::new(PageNo(next()?), next()?), next()?);
        if pages.count > PAGES_MAX || pages.start.0 > PAGES_END {
            return Err(format!("the scheme's state has an allocation of {} pages", pages.count));
        }
        notes.add(pages);
        for _ in 0..written {
            let (place, word) = (next()?, next()?);
            let page = PageRange::page(PageNo(pages.start.0.saturating_add(place)));
            let inside = place < pages.count;
            let at = notes.words(page).filter(|_| inside);
            at.ok_or("the scheme's state has a note about a page that there is not")?[0] = word;
        }
    }
    Ok(Saved { notes, own: stores.then_some(bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_damage_is_named() {
        let mut notes = Notes::new(true);
        let pages = PageRange::new(PageNo(100), 8);
        notes.add(pages);
        notes.add(PageRange::new(PageNo(200), 1));
        notes.words(pages).unwrap()[3] = 77;
        let bytes = write(&notes, Some(b"own"));
        let read_again = read(&bytes, true).unwrap();
        assert_eq!(read_again.own, Some(&b"own"[..]));
        assert_eq!(read_again.notes.look(PageNo(103)), 77);
        assert_eq!(read_again.notes.allocation(PageRange::page(PageNo(200))).unwrap().count, 1);
        for cut in [0, 7, 20, bytes.len() - 12] {
            assert!(read(&bytes[..cut], true).is_err(), "{cut}");
        }
        assert!(read(&write(&notes, None), true).unwrap().own.is_none());
        let mut huge = bytes;
        huge[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(read(&huge, true).is_err_and(|why| why.contains("pages")));
    }
}
