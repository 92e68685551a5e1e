//! Runs of pages in commands and in lists in memory.

use farside_types::{Shelf, Shelved};

use super::{DecodeError, PAGE_NUMBERS};

/// Bytes of an extent in a list.
pub const EXTENT_BYTES: u64 = 32;
/// Extents of one list.
pub const EXTENTS_MAX: u64 = 1 << 16;

/// Most pages that one command maps, or names by a list.
pub const LIST_PAGES_MAX: u64 = 1 << 26;

/// Where a run of pages lies, as the card sees it: a word in commands.
///
/// Bit 63 set: frames of the function's own memory. Clear: pages of the bus, by bus address / 4096.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DmaAddr {
    /// A frame of this function's memory.
    Own(u32),
    /// A page of the bus: bus address / 4096. Host memory, or a peer's BAR2.
    Bus(u32),
}

impl DmaAddr {
    const OWN: u64 = 1 << 63;

    /// The word.
    pub const fn to_word(self) -> u64 {
        match self {
            DmaAddr::Own(frame) => DmaAddr::OWN | frame as u64,
            DmaAddr::Bus(page) => page as u64,
        }
    }

    /// The address of a word; `None` if bits are set that must not be.
    pub const fn from_word(word: u64) -> Option<DmaAddr> {
        let number = word & !DmaAddr::OWN;
        if number > u32::MAX as u64 {
            return None;
        }
        let number = number as u32;
        Some(match word & DmaAddr::OWN {
            0 => DmaAddr::Bus(number),
            _ => DmaAddr::Own(number),
        })
    }
}

/// `count` pages that follow one another, in the address space and at both ends. Operations that
/// have no source or no destination leave its word 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Extent {
    /// First page of the address space.
    pub page: u64,
    /// Pages.
    pub count: u32,
    /// Where they come from.
    pub src: DmaAddr,
    /// Where they go, or are mapped to.
    pub dst: DmaAddr,
}

impl Default for Extent {
    /// No pages.
    fn default() -> Extent {
        Extent { page: 0, count: 0, src: DmaAddr::Bus(0), dst: DmaAddr::Bus(0) }
    }
}

impl Shelved for Extent {
    fn shelf() -> &'static Shelf<Extent> {
        static SHELF: Shelf<Extent> = Shelf::new();
        &SHELF
    }
}

impl Extent {
    /// The four words, as inline in a command and in a list.
    pub const fn to_words(self) -> [u64; 4] {
        [self.page, self.count as u64, self.src.to_word(), self.dst.to_word()]
    }

    /// The extent of four words that begin at word `first` of an entry, or of a list's record. Its
    /// pages end within the 64-bit address space.
    ///
    /// # Errors
    /// [`DecodeError::Word`].
    pub fn from_words(words: [u64; 4], first: u8) -> Result<Extent, DecodeError> {
        let wrong =
            |word: usize| DecodeError::Word { word: first + word as u8, value: words[word] };
        let count = u32::try_from(words[1]).ok().filter(|&n| n > 0).ok_or(wrong(1))?;
        if words[0].checked_add(count.into()).is_none_or(|end| end > PAGE_NUMBERS) {
            return Err(wrong(0));
        }
        let src = DmaAddr::from_word(words[2]).ok_or(wrong(2))?;
        let dst = DmaAddr::from_word(words[3]).ok_or(wrong(3))?;
        Ok(Extent { page: words[0], count, src, dst })
    }
}
