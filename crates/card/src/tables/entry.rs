//! The words of the tables, bit by bit, as section 8 of `docs/card-interface.md` lays them out.

use farside_types::{Access, Rights};

/// Bit of a valid word; the others of an invalid one mean nothing.
const VALID: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const OWN: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 3;
const DIRTY: u64 = 1 << 4;
const SIZE_SHIFT: u32 = 5;
const SIZE_MASK: u64 = 0x1f << SIZE_SHIFT;
/// Of pages of the card's window: of the first and the last page of an allocation, and the memory
/// that the frame is in.
const FIRST: u64 = 1 << 10;
const LAST: u64 = 1 << 11;
const MEMORY_SHIFT: u32 = 12;
const MEMORY_MASK: u64 = 0xf << MEMORY_SHIFT;
/// Of a table above the leaf level: the number is that of the next table.
const TABLE: u64 = 1 << 16;
/// Of the first page of an allocation of the window: its pages less one.
const PAGES_SHIFT: u32 = 17;
const PAGES_MASK: u64 = 0x7fff << PAGES_SHIFT;
const NUMBER_SHIFT: u32 = 32;
/// Of a root: where its height lies.
const HEIGHT_SHIFT: u32 = 1;
const HEIGHT_MASK: u64 = 0x7 << HEIGHT_SHIFT;

/// Where an entry says that a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A frame of the function's own memory.
    Own(u32),
    /// A page of the bus.
    Bus(u32),
}

impl Place {
    /// The place `pages` further on.
    #[must_use]
    #[inline]
    pub fn offset(self, pages: u32) -> Place {
        match self {
            Place::Own(frame) => Place::Own(frame.wrapping_add(pages)),
            Place::Bus(page) => Place::Bus(page.wrapping_add(pages)),
        }
    }

    /// Its number.
    pub fn number(self) -> u32 {
        match self {
            Place::Own(number) | Place::Bus(number) => number,
        }
    }
}

/// A word of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableEntry(pub u64);

impl TableEntry {
    /// The word that says nothing.
    pub const INVALID: TableEntry = TableEntry(0);

    /// An entry for a page, or for an aligned run of 512: part of a run of 2^`size` pages. One that
    /// is `dirty` from the beginning counts as written.
    pub fn leaf(place: Place, rights: Rights, dirty: bool, size: u32) -> TableEntry {
        let writable = if rights == Rights::ReadWrite { WRITABLE } else { 0 };
        let dirty = if dirty { DIRTY } else { 0 };
        TableEntry(VALID | writable | dirty).at(place).with_size(size)
    }

    /// An entry that leads to a table one level below.
    pub fn directory(table: u32) -> TableEntry {
        TableEntry(VALID | TABLE | u64::from(table) << NUMBER_SHIFT)
    }

    /// Whether it says anything.
    pub fn is_valid(self) -> bool {
        self.0 & VALID != 0
    }

    /// The table that a valid directory entry leads to.
    pub fn table(self) -> Option<u32> {
        (self.0 & (VALID | TABLE) == VALID | TABLE).then_some((self.0 >> NUMBER_SHIFT) as u32)
    }

    /// Where its (first) page is.
    #[inline]
    pub fn place(self) -> Place {
        let number = (self.0 >> NUMBER_SHIFT) as u32;
        if self.0 & OWN != 0 { Place::Own(number) } else { Place::Bus(number) }
    }

    /// What may be done with it.
    pub fn rights(self) -> Rights {
        if self.0 & WRITABLE != 0 { Rights::ReadWrite } else { Rights::Read }
    }

    /// What a TLB may hold of it: the right to write only where the page counts as written, so that
    /// the first write walks and sets the bit.
    pub fn rights_to_cache(self) -> Rights {
        if self.is_dirty() { self.rights() } else { Rights::Read }
    }

    /// Whether it was used.
    pub fn is_accessed(self) -> bool {
        self.0 & ACCESSED != 0
    }

    /// Whether it was written, or counts as written.
    pub fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// Where an access to page `index` of those that the entry is for goes without a walk: the entry
    /// allows it, and its bits are set already.
    #[inline]
    pub fn place_for(self, access: Access, index: u32) -> Option<Place> {
        let need = match access {
            Access::Read => VALID | ACCESSED,
            Access::Write => VALID | ACCESSED | WRITABLE | DIRTY,
        };
        (self.0 & (need | TABLE) == need).then(|| self.place().offset(index))
    }

    /// Log2 of the pages of the aligned run of which it is part.
    pub fn size(self) -> u32 {
        ((self.0 & SIZE_MASK) >> SIZE_SHIFT) as u32
    }

    /// The memory of the card that a frame of its window is in.
    pub fn memory(self) -> u8 {
        ((self.0 & MEMORY_MASK) >> MEMORY_SHIFT) as u8
    }

    /// Whether an allocation of the window begins with its page.
    pub fn is_first(self) -> bool {
        self.0 & FIRST != 0
    }

    /// Whether an allocation of the window ends with its page.
    pub fn is_last(self) -> bool {
        self.0 & LAST != 0
    }

    /// The pages of the allocation of the window that begins with its page, 1 to 32768.
    pub fn pages(self) -> u32 {
        ((self.0 & PAGES_MASK) >> PAGES_SHIFT) as u32 + 1
    }

    /// The entry of the first of `pages` pages, 1 to 32768, of an allocation of the window.
    #[must_use]
    pub fn of_pages(self, pages: u32) -> TableEntry {
        let less_one = u64::from(pages.wrapping_sub(1)) << PAGES_SHIFT & PAGES_MASK;
        TableEntry(self.0 & !PAGES_MASK | less_one)
    }

    /// The entry of a page of the window whose frame is in `memory`, 0 to 15.
    #[must_use]
    pub fn in_memory(self, memory: u8) -> TableEntry {
        TableEntry(self.0 & !MEMORY_MASK | u64::from(memory) << MEMORY_SHIFT & MEMORY_MASK)
    }

    /// The entry of a page of the window with which an allocation begins or ends.
    #[must_use]
    pub fn bounding(self, first: bool, last: bool) -> TableEntry {
        let bits = if first { FIRST } else { 0 } | if last { LAST } else { 0 };
        TableEntry(self.0 & !(FIRST | LAST) | bits)
    }

    /// The entry of a page elsewhere.
    #[must_use]
    pub fn at(self, place: Place) -> TableEntry {
        let own = if matches!(place, Place::Own(_)) { OWN } else { 0 };
        let rest = self.0 & u64::from(u32::MAX) & !OWN;
        TableEntry(rest | own | u64::from(place.number()) << NUMBER_SHIFT)
    }

    /// The entry in a run of another size.
    #[must_use]
    pub fn with_size(self, size: u32) -> TableEntry {
        TableEntry(self.0 & !SIZE_MASK | u64::from(size) << SIZE_SHIFT & SIZE_MASK)
    }

    /// The entry without the right to write.
    #[must_use]
    pub fn read_only(self) -> TableEntry {
        TableEntry(self.0 & !WRITABLE)
    }

    /// The entry after it was used.
    #[must_use]
    pub fn used(self, write: bool) -> TableEntry {
        TableEntry(self.0 | ACCESSED | if write { DIRTY } else { 0 })
    }

    /// The entry as if it had not been used.
    #[must_use]
    pub fn unused(self) -> TableEntry {
        TableEntry(self.0 & !ACCESSED)
    }

    /// The entry with the accessed and dirty bits of `old` too, if that was for the same place.
    #[must_use]
    pub fn inheriting(self, old: TableEntry) -> TableEntry {
        if old.is_valid() && old.table().is_none() && old.place() == self.place() {
            return TableEntry(self.0 | old.0 & (ACCESSED | DIRTY));
        }
        self
    }

    /// The entry of page `index` of a run of 512 whose entry this is.
    #[must_use]
    pub fn page_of_run(self, index: u32) -> TableEntry {
        self.at(self.place().offset(index))
    }
}

/// The word with which walks of an address space begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root(pub u64);

impl Root {
    /// A tree of `height` levels under `table`.
    pub fn new(table: u32, height: u32) -> Root {
        let height = u64::from(height) << HEIGHT_SHIFT & HEIGHT_MASK;
        Root(VALID | height | u64::from(table) << NUMBER_SHIFT)
    }

    /// The top table and the levels from it down, if there is a tree.
    pub fn top(self) -> Option<(u32, u32)> {
        let height = ((self.0 & HEIGHT_MASK) >> HEIGHT_SHIFT) as u32;
        (self.0 & VALID != 0 && height > 0).then_some(((self.0 >> NUMBER_SHIFT) as u32, height))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_lie_where_the_specification_says() {
        let entry = TableEntry::leaf(Place::Own(0x1234), Rights::ReadWrite, false, 9);
        assert_eq!(entry.0, 0x1234 << 32 | 9 << 5 | 0b111);
        assert_eq!(entry.used(false).0 ^ entry.0, 1 << 3);
        assert_eq!(entry.used(true).0 ^ entry.0, 0b11 << 3);
        let bus = TableEntry::leaf(Place::Bus(u32::MAX), Rights::Read, true, 0);
        assert_eq!(bus.0, 0xffff_ffff << 32 | 1 << 4 | 1);
        assert_eq!(TableEntry::directory(7).0, 7 << 32 | 1 << 16 | 1);
        assert_eq!(Root::new(7, 6).0, 7 << 32 | 6 << 1 | 1);
        let window = entry.in_memory(0xa).bounding(true, false);
        assert_eq!(window.0 ^ entry.0, 0xa << 12 | 1 << 10);
        assert_eq!((window.memory(), window.is_first(), window.is_last()), (0xa, true, false));
        assert_eq!(window.in_memory(0).bounding(false, true).0 ^ entry.0, 1 << 11);
        assert_eq!((window.pages(), window.of_pages(1)), (1, window));
        let long = window.of_pages(0x8000);
        assert_eq!((long.0 ^ window.0, long.pages()), (0x7fff << 17, 0x8000));
    }

    #[test]
    fn a_tlb_gets_the_right_to_write_only_with_the_dirty_bit() {
        let clean = TableEntry::leaf(Place::Own(1), Rights::ReadWrite, false, 0);
        assert_eq!(clean.rights_to_cache(), Rights::Read);
        assert_eq!(clean.used(true).rights_to_cache(), Rights::ReadWrite);
        assert_eq!(clean.used(true).read_only().rights_to_cache(), Rights::Read);
    }

    #[test]
    fn an_access_needs_no_walk_where_the_entry_allows_it_and_has_its_bits() {
        use Access::{Read, Write};
        let entry = TableEntry::leaf(Place::Own(7), Rights::ReadWrite, false, 0);
        assert_eq!(entry.place_for(Read, 0), None, "nothing notes that it was used");
        assert_eq!(entry.used(false).place_for(Read, 3), Some(Place::Own(10)));
        assert_eq!(entry.used(false).place_for(Write, 0), None, "nothing notes the write");
        assert_eq!(entry.used(true).place_for(Write, 0), Some(Place::Own(7)));
        assert_eq!(entry.used(true).read_only().place_for(Write, 0), None);
        assert_eq!(entry.used(true).read_only().place_for(Read, 0), Some(Place::Own(7)));
        let bus = TableEntry::leaf(Place::Bus(7), Rights::ReadWrite, true, 0).used(true);
        assert_eq!(bus.place_for(Write, 1), Some(Place::Bus(8)));
        let table = TableEntry(TableEntry::directory(7).0 | entry.used(true).0);
        assert_eq!(table.place_for(Read, 0), None, "a run that was split");
    }

    #[test]
    fn bits_are_inherited_only_from_the_same_place() {
        let old = TableEntry::leaf(Place::Own(1), Rights::Read, false, 0).used(true);
        let same = TableEntry::leaf(Place::Own(1), Rights::ReadWrite, false, 0);
        let other = TableEntry::leaf(Place::Bus(1), Rights::ReadWrite, false, 0);
        assert!(same.inheriting(old).is_dirty() && !other.inheriting(old).is_dirty());
    }
}
