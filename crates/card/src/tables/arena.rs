//! The shared side of the tables: the words, and the walk that reads them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use farside_types::{Access, Asid, FrameNo, MemoryId, PageNo, Rights};

use super::bus::BusPages;
use super::entry::{Place, Root, TableEntry};
use super::{HEIGHT_MAX, LEVEL_BITS, SLOTS};
use crate::mutation::{CardMutation, Mutated};
use crate::{Location, PAGES_MAX};

/// The words of one table page. It takes memory when it is used for the first time.
type Page = OnceLock<Box<[AtomicU64; SLOTS]>>;

fn fresh() -> Box<[AtomicU64; SLOTS]> {
    Box::new([const { AtomicU64::new(0) }; SLOTS])
}

fn pages(count: usize) -> Box<[Page]> {
    (0..count).map(|_| Page::new()).collect()
}

/// Most pages of which the words are ready: 64 MiB of addresses.
const READY: usize = 32;

/// Root words, as many as there are address-space ids, in pages of their own.
const ROOT_PAGES: usize = (1 << 16) / SLOTS;

/// The tables of a card, as those read them who walk them. Whoever changes them holds the
/// [`super::TableWriter`].
#[derive(Debug)]
pub struct Tables {
    own: MemoryId,
    bus: BusPages,
    roots: Box<[Page]>,
    pages: Box<[Page]>,
    /// Words of pages to come.
    ready: Mutex<Vec<Box<[AtomicU64; SLOTS]>>>,
    pub(crate) mutated: Mutated,
}

/// The word that decides about a page.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    /// The word.
    pub word: &'a AtomicU64,
    /// Pages from the first one that the word is for to the page: 0 where it is for one alone.
    pub skipped: u32,
    /// Pages that the word is for: 1, or 512.
    pub pages: u32,
}

/// The words of 512 aligned pages.
#[derive(Clone, Copy, Debug)]
pub enum Near<'a> {
    /// One for each.
    Leaf(&'a [AtomicU64; SLOTS]),
    /// One for all of them, unless they have got a table since.
    Run(&'a AtomicU64),
}

/// A page that a walk found. Its bits are set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walked {
    /// Where it is.
    pub location: Location,
    /// The same, as the entry says it.
    pub place: Place,
    /// What a TLB may hold: the right to write only where the page counts as written.
    pub rights: Rights,
    /// Pages from it on that the same word is for.
    pub pages: u32,
}

/// What a walk comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Walk {
    /// The access may go on.
    Found(Walked),
    /// The page may be read, and the access is a write.
    InsufficientRights,
    /// The tables do not have the page.
    Missing,
}

/// Where a page's word is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// In a table of the leaf level.
    Leaf(u32),
    /// It would be in a slot one level above, which is for 512 pages.
    Run { table: u32, index: usize },
    /// Nowhere, nor is any page's before this one.
    Absent(u64),
}

/// Slot of a page in a table `level` levels above the leaves.
pub(super) fn slot_index(page: u64, level: u32) -> usize {
    (page >> (LEVEL_BITS * level)) as usize % SLOTS
}

impl Tables {
    /// No tables yet, in `table_pages` pages. `own` is the memory of the card itself.
    pub fn new(own: MemoryId, table_pages: u32) -> Tables {
        Tables {
            own,
            bus: BusPages::Bus,
            roots: pages(ROOT_PAGES),
            pages: pages(table_pages as usize),
            ready: Mutex::new(Vec::new()),
            mutated: Mutated::default(),
        }
    }

    #[cfg(any(test, feature = "mutations"))]
    pub(super) fn mutate(&mut self, mutation: CardMutation) {
        self.mutated.set(mutation);
    }

    /// Says what bus pages stand for, before there are any.
    pub(super) fn name_bus_pages(&mut self, bus: BusPages) {
        self.bus = bus;
    }

    /// Has the words of the first pages ready: whoever uses them first need not allocate them.
    pub(super) fn stock(&mut self) {
        let pages = self.pages.len().min(READY) + 1;
        let ready = self.ready.get_mut().unwrap_or_else(PoisonError::into_inner);
        ready.resize_with(pages, fresh);
    }

    fn words<'a>(&self, page: &'a Page) -> &'a [AtomicU64; SLOTS] {
        let ready = || self.ready.lock().unwrap_or_else(PoisonError::into_inner).pop();
        page.get_or_init(|| ready().unwrap_or_else(fresh))
    }

    /// Table pages that there are.
    pub fn capacity(&self) -> u32 {
        self.pages.len() as u32
    }

    /// The memory of the card itself.
    pub fn own(&self) -> MemoryId {
        self.own
    }

    /// Bytes that the words take which were in use at any time.
    pub fn bytes(&self) -> usize {
        let touched = self.roots.iter().chain(&self.pages).filter(|page| page.get().is_some());
        touched.count() * SLOTS * size_of::<u64>()
            + (self.roots.len() + self.pages.len()) * size_of::<Page>()
    }

    pub(super) fn root(&self, asid: Asid) -> Option<&AtomicU64> {
        let asid = if self.mutated.on(CardMutation::SpacesShareTables) { Asid(0) } else { asid };
        let page = self.roots.get(usize::from(asid.0) / SLOTS)?;
        self.words(page).get(usize::from(asid.0) % SLOTS)
    }

    pub(super) fn word(&self, table: u32, index: usize) -> Option<&AtomicU64> {
        self.words(self.pages.get(table as usize)?).get(index)
    }

    pub(super) fn load(&self, table: u32, index: usize) -> TableEntry {
        let word = self.word(table, index);
        word.map_or(TableEntry::INVALID, |word| TableEntry(word.load(Ordering::Acquire)))
    }

    pub(super) fn top(&self, asid: Asid) -> Option<(u32, u32)> {
        let asid = if self.mutated.on(CardMutation::SpacesShareTables) { Asid(0) } else { asid };
        let page = self.roots.get(usize::from(asid.0) / SLOTS)?.get()?;
        let word = page.get(usize::from(asid.0) % SLOTS)?;
        Root(word.load(Ordering::Acquire)).top()
    }

    /// Goes down from the root to where a page's word is.
    pub(super) fn find(&self, asid: Asid, page: u64) -> Found {
        let Some((mut table, height)) = self.top(asid) else {
            return Found::Absent(PAGES_MAX);
        };
        if height > HEIGHT_MAX || page >> (LEVEL_BITS * height) != 0 {
            return Found::Absent(PAGES_MAX);
        }
        for level in (1..height).rev() {
            let index = slot_index(page, level);
            let entry = self.load(table, index);
            match entry.table() {
                Some(next) => table = next,
                None if level == 1 && entry.is_valid() => return Found::Run { table, index },
                None => {
                    let span = LEVEL_BITS * level;
                    return Found::Absent(((page >> span) + 1) << span);
                }
            }
        }
        Found::Leaf(table)
    }

    /// Where the words of a page and its neighbours are, for whoever remembers it: a walk cache, by
    /// address space and page / 512. They may be read until the writer's owner says that table pages
    /// are reused. An entry found this way that is not valid, or a directory entry, says nothing: the
    /// walk is to be made again from the root.
    pub fn near(&self, asid: Asid, page: PageNo) -> Option<Near<'_>> {
        match self.find(asid, page.0) {
            Found::Leaf(table) => Some(Near::Leaf(self.words(self.pages.get(table as usize)?))),
            Found::Run { table, index } => Some(Near::Run(self.word(table, index)?)),
            Found::Absent(_) => None,
        }
    }

    /// Reads of table pages that a walk makes for a page, one after the other: a word of each table on the
    /// way, as far as there are tables. The root word is not one of them.
    pub fn reads(&self, asid: Asid, page: PageNo) -> u32 {
        let Some((mut table, height)) = self.top(asid) else { return 0 };
        if height > HEIGHT_MAX || page.0 >> (LEVEL_BITS * height) != 0 {
            return 0;
        }
        for level in (1..height).rev() {
            match self.load(table, slot_index(page.0, level)).table() {
                Some(next) => table = next,
                None => return height - level,
            }
        }
        height
    }

    /// The word that decides about a page. It need not be valid.
    pub fn entry(&self, asid: Asid, page: PageNo) -> Option<Slot<'_>> {
        let (table, index, level) = match self.find(asid, page.0) {
            Found::Leaf(table) => (table, slot_index(page.0, 0), 0),
            Found::Run { table, index } => (table, index, 1),
            Found::Absent(_) => return None,
        };
        let pages = 1 << (LEVEL_BITS * level);
        let skipped = (page.0 % u64::from(pages)) as u32;
        Some(Slot { word: self.word(table, index)?, skipped, pages })
    }

    /// Walks: what the tables say about an access to a page. If it may go on, its bits are set before
    /// this returns, in the same atomic operation that finds the entry still valid.
    pub fn walk(&self, asid: Asid, page: PageNo, access: Access) -> Walk {
        if page.0 >= PAGES_MAX {
            return Walk::Missing;
        }
        self.entry(asid, page).map_or(Walk::Missing, |slot| self.take(slot, access))
    }

    /// The end of a walk: sets the bits of a word for an access, if it is valid and allows it.
    pub fn take(&self, slot: Slot<'_>, access: Access) -> Walk {
        let mut seen = slot.word.load(Ordering::Acquire);
        loop {
            let entry = TableEntry(seen);
            if !entry.is_valid() || entry.table().is_some() {
                return Walk::Missing;
            }
            if !entry.rights().allows(access) && !self.mutated.on(CardMutation::WalkIgnoresRights) {
                return Walk::InsufficientRights;
            }
            let used = self.used(entry, access);
            if used == entry {
                return Walk::Found(self.walked(used, slot));
            }
            if self.mutated.on(CardMutation::WalkSetsBitsBlindly) {
                slot.word.fetch_or(used.0 & !seen, Ordering::AcqRel);
                return Walk::Found(self.walked(used, slot));
            }
            match slot.word.compare_exchange_weak(seen, used.0, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Walk::Found(self.walked(used, slot)),
                Err(now) => seen = now,
            }
        }
    }

    /// An entry after an access.
    fn used(&self, entry: TableEntry, access: Access) -> TableEntry {
        let used = entry.used(access.is_write() && !self.mutated.on(CardMutation::DirtyNotSet));
        match self.mutated.on(CardMutation::AccessedNotSet) && !entry.is_accessed() {
            true => used.unused(),
            false => used,
        }
    }

    fn walked(&self, entry: TableEntry, slot: Slot<'_>) -> Walked {
        let place = entry.place().offset(slot.skipped);
        let rights = match self.mutated.on(CardMutation::TlbWritesUnseen) {
            true => entry.rights(),
            false => entry.rights_to_cache(),
        };
        let location = self.location(place);
        Walked { location, place, rights, pages: slot.pages - slot.skipped }
    }

    pub(super) fn location(&self, place: Place) -> Location {
        match place {
            Place::Own(frame) => Location::new(self.own, FrameNo(frame)),
            Place::Bus(page) => self.bus.location(page),
        }
    }

    /// The place of a location, unless it is where the words have no number for.
    pub(super) fn place(&self, location: Location) -> Option<Place> {
        if location.memory == self.own {
            return Some(Place::Own(location.frame.0));
        }
        self.bus.page(location).map(Place::Bus)
    }

    /// The same words once more, shared with nobody.
    pub(super) fn copy(&self) -> Tables {
        let mut copy = Tables::new(self.own, self.capacity());
        copy.name_bus_pages(self.bus);
        copy.mutated = self.mutated;
        let pairs = self.roots.iter().zip(&copy.roots).chain(self.pages.iter().zip(&copy.pages));
        for (from, to) in pairs {
            let Some(from) = from.get() else { continue };
            for (from, to) in from.iter().zip(copy.words(to)) {
                to.store(from.load(Ordering::Acquire), Ordering::Relaxed);
            }
        }
        copy
    }
}
