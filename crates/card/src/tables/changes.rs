//! What commands do to the entries of an address space.

use farside_types::{Asid, PageNo, PageRange, Rights};

use super::arena::{Found, slot_index};
use super::entry::{Place, TableEntry};
use super::{LEVEL_BITS, RUN_PAGES, SLOTS, TableWriter};
use crate::MappedRun;
use crate::key::clamp;
use crate::mutation::CardMutation;

/// Pages within 512 aligned ones, and where their words are.
#[derive(Clone, Copy)]
struct Part {
    found: Found,
    pages: PageRange,
}

impl Part {
    fn is_whole_run(&self) -> bool {
        self.pages.count == RUN_PAGES
    }

    /// The slots in a table of the leaf level.
    fn slots(&self) -> std::ops::Range<usize> {
        let first = slot_index(self.pages.start.0, 0);
        first..first + self.pages.count as usize
    }
}

/// A right that is lowered, or bits that are read: what is done to each entry.
type Change = fn(TableEntry) -> TableEntry;

impl TableWriter {
    /// Writes entries for a run in the place of what was there. An entry for the place where a page
    /// was before keeps its accessed and dirty bits. `written`: the pages count as written from the
    /// beginning. Those that found no room before count as written and as used: they may have been while
    /// they had no entry. `without_room` is told what finds none.
    pub fn map(
        &mut self,
        asid: Asid,
        run: &MappedRun,
        rights: Rights,
        written: bool,
        mut without_room: impl FnMut(MappedRun),
    ) {
        let pages = clamp(run.pages());
        let mut at = pages.start.0;
        while at < pages.end().0 {
            let end = pages.end().0.min((at / RUN_PAGES + 1) * RUN_PAGES);
            let Some(part) = run.clip(PageRange::new(PageNo(at), end - at)) else { return };
            let doubted = self.doubts(asid, part.pages());
            let entry = TableEntry::leaf(Place::Own(0), rights, written || doubted, 0);
            let entry = if doubted { entry.used(true) } else { entry };
            if !self.map_part(asid, &part, entry) {
                if !self.tables.mutated.on(CardMutation::FullTableKeepsOld) {
                    self.unmap(asid, part.pages(), |_, _| {});
                }
                self.doubt(asid, part.pages());
                without_room(part);
            }
            at = end;
        }
    }

    /// [`TableWriter::map`] of pages of the same 512, whose entries are as `entry`, but for place and size.
    /// Returns whether there was room.
    fn map_part(&mut self, asid: Asid, run: &MappedRun, entry: TableEntry) -> bool {
        let Some(place) = self.tables().place(run.location) else {
            return false;
        };
        let whole = u64::from(run.count) == RUN_PAGES && place.number() as usize % SLOTS == 0;
        let hides = self.tables.mutated.on(CardMutation::RunHidesBits);
        let as_one = whole && (entry.is_dirty() || entry.rights() == Rights::Read || hides);
        if as_one && self.map_run(asid, run.page.0, entry.at(place).with_size(LEVEL_BITS)) {
            return true;
        }
        let Some(table) = self.leaf_for(asid, run.page.0) else {
            return false;
        };
        let first = slot_index(run.page.0, 0);
        let end = first + run.count as usize;
        self.unjoin(table, first..end);
        for index in first..end {
            let place = place.offset((index - first) as u32);
            let size = size_at(index, first..end, place);
            self.inherit(table, index, entry.at(place).with_size(size));
        }
        true
    }

    /// Writes an entry in the place of another, of which it keeps the bits if the page stays in its place.
    fn inherit(&mut self, table: u32, index: usize, entry: TableEntry) {
        let forgets = self.tables.mutated.on(CardMutation::MapForgetsBits);
        self.update(table, index, |old| if forgets { entry } else { entry.inheriting(old) });
    }

    /// One entry above the leaf level. Returns whether there was room, and whether none of the pages
    /// has bits of its own that one entry could not keep.
    fn map_run(&mut self, asid: Asid, page: u64, mut entry: TableEntry) -> bool {
        if let Found::Leaf(table) = self.tables.find(asid, page) {
            let each =
                |slot| entry.page_of_run(slot as u32).inheriting(self.tables.load(table, slot));
            // Read-only pages may have been written before.
            if !entry.is_dirty() && (0..SLOTS).any(|slot| each(slot).is_dirty()) {
                return false;
            }
            if (0..SLOTS).any(|slot| each(slot).is_accessed()) {
                entry = entry.used(false);
            }
        }
        let Some(above) = self.directory_for(asid, page) else {
            return false;
        };
        let index = slot_index(page, 1);
        if let Some(table) = self.tables.load(above, index).table() {
            for slot in 0..SLOTS {
                self.put(table, slot, TableEntry::INVALID);
            }
            self.unlink(table);
        }
        self.inherit(above, index, entry);
        true
    }

    /// Takes entries away. `each` is told the pages that had one, and it.
    pub fn unmap(
        &mut self,
        asid: Asid,
        range: PageRange,
        mut each: impl FnMut(PageRange, TableEntry),
    ) {
        self.visit(asid, range, &mut |writer, part| match part.found {
            Found::Leaf(table) => {
                writer.unjoin(table, part.slots());
                for (index, page) in part.slots().zip(part.pages.start.0..) {
                    let old = writer.put(table, index, TableEntry::INVALID);
                    if old.is_valid() {
                        each(PageRange::page(PageNo(page)), old);
                    }
                }
            }
            Found::Run { table, index } if part.is_whole_run() => {
                each(part.pages, writer.put(table, index, TableEntry::INVALID));
            }
            Found::Run { table, index } => {
                let run = writer.tables.load(table, index);
                match writer.leaf_for(asid, part.pages.start.0) {
                    Some(leaf) => {
                        writer.unjoin(leaf, part.slots());
                        for (index, page) in part.slots().zip(part.pages.start.0..) {
                            let old = writer.put(leaf, index, TableEntry::INVALID);
                            each(PageRange::page(PageNo(page)), old);
                        }
                    }
                    // The whole run is forgotten. Its dirty bit does not change any more: it is set
                    // from the beginning, or nobody may write.
                    None => each(part.pages, run),
                }
            }
            Found::Absent(_) => {}
        });
        self.trust(asid, clamp(range));
    }

    /// Takes the right to write away.
    pub fn protect(&mut self, asid: Asid, range: PageRange) {
        self.visit(asid, range, &mut |writer, part| match part.found {
            Found::Leaf(table) => {
                writer.unjoin(table, part.slots());
                writer.change(table, part.slots(), TableEntry::read_only);
            }
            Found::Run { table, index } if part.is_whole_run() => {
                writer.change(table, index..index + 1, TableEntry::read_only);
            }
            Found::Run { .. } => {
                if let Some(leaf) = writer.leaf_for(asid, part.pages.start.0) {
                    writer.unjoin(leaf, part.slots());
                    writer.change(leaf, part.slots(), TableEntry::read_only);
                }
            }
            Found::Absent(_) => {}
        });
    }

    /// Reads and clears accessed bits. `each` is told the pages that have an entry, and whether it
    /// was used; an entry for 512 pages is told, and cleared, as a whole.
    pub fn take_accessed(
        &mut self,
        asid: Asid,
        range: PageRange,
        mut each: impl FnMut(PageRange, bool),
    ) {
        self.visit(asid, range, &mut |writer, part| match part.found {
            Found::Leaf(table) => {
                for (index, page) in part.slots().zip(part.pages.start.0..) {
                    let old = writer.update(table, index, unused);
                    if old.is_valid() {
                        each(PageRange::page(PageNo(page)), old.is_accessed());
                    }
                }
            }
            Found::Run { table, index } => {
                let start = part.pages.start.0 / RUN_PAGES * RUN_PAGES;
                let old = writer.update(table, index, unused);
                each(PageRange::new(PageNo(start), RUN_PAGES), old.is_accessed());
            }
            Found::Absent(_) => {}
        });
    }

    fn change(&mut self, table: u32, slots: std::ops::Range<usize>, change: Change) {
        for index in slots {
            self.update(table, index, |old| if old.is_valid() { change(old) } else { old });
        }
    }

    /// Calls `visit` for every part of a range that has words.
    fn visit(
        &mut self,
        asid: Asid,
        range: PageRange,
        visit: &mut impl FnMut(&mut TableWriter, Part),
    ) {
        let range = clamp(range);
        let mut at = range.start.0;
        while at < range.end().0 {
            let found = self.tables.find(asid, at);
            let end = match found {
                Found::Absent(until) => until,
                _ => (at / RUN_PAGES + 1) * RUN_PAGES,
            };
            let end = end.min(range.end().0);
            visit(self, Part { found, pages: PageRange::new(PageNo(at), end - at) });
            at = end;
        }
    }

    /// Entries outside of `slots` that are in a run with one inside are in no run any more: what is
    /// inside is about to change.
    fn unjoin(&mut self, table: u32, slots: std::ops::Range<usize>) {
        if self.tables.mutated.on(CardMutation::PartOfRunKeepsSize) {
            return;
        }
        let edges = [slots.start, slots.end - 1];
        for edge in edges {
            let entry = self.tables.load(table, edge);
            if !entry.is_valid() || entry.size() == 0 || entry.size() > LEVEL_BITS {
                continue;
            }
            let pages = 1 << entry.size();
            let base = edge / pages * pages;
            if slots.start <= base && base + pages <= slots.end {
                continue;
            }
            for index in base..(base + pages).min(SLOTS) {
                self.update(table, index, |old| old.with_size(0));
            }
        }
    }
}

fn unused(entry: TableEntry) -> TableEntry {
    if entry.is_valid() { entry.unused() } else { entry }
}

/// Log2 of the longest run that is aligned in its table and its frames, lies within `slots` and
/// holds slot `index`, whose page is at `place`.
fn size_at(index: usize, slots: std::ops::Range<usize>, place: Place) -> u32 {
    let fits = |size: u32| {
        let pages = 1usize << size;
        let base = index / pages * pages;
        let number = place.number() as usize;
        slots.start <= base && base + pages <= slots.end && number % pages == index % pages
    };
    (0..=LEVEL_BITS).rev().find(|&size| fits(size)).unwrap_or(0)
}
