//! The command side of the tables: which table pages are in use, and how trees grow and shrink.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farside_types::{Asid, List, MemoryId, PageNo, PageRange};

use super::arena::{Found, slot_index};
use super::entry::{Root, TableEntry};
use super::{BusPages, HEIGHT_MAX, LEVEL_BITS, RUN_PAGES, SLOTS, Tables};
use crate::Words;
use crate::mutation::CardMutation;

/// What leads to a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Parent {
    Root(Asid),
    Slot { table: u32, index: u16 },
}

impl Parent {
    fn slot(table: u32, index: usize) -> Parent {
        Parent::Slot { table, index: index as u16 }
    }
}

/// A table page in use.
#[derive(Clone, Copy, Debug)]
struct Node {
    parent: Option<Parent>,
    /// Valid entries in it.
    valid: u16,
    /// It is among those that may be empty.
    suspected: bool,
}

/// Tables that were made on the way to a page.
type Made = List<u32, 8>;

const UNLINKED: Node = Node { parent: None, valid: 0, suspected: false };

/// Table pages in use that there is room to note from the start.
const ROOM: usize = 1 << 12;

/// Changes tables. There is one for each [`Tables`].
#[derive(Debug)]
pub struct TableWriter {
    pub(super) tables: Arc<Tables>,
    /// By number, as far as table pages were ever used.
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// Tables that lost their last entry, and may have got one since.
    suspects: Vec<u32>,
    /// Tables that nothing leads to any more, and that a walk may still know.
    limbo: Vec<u32>,
    /// First and end of the pages of an address space of which some found no room, or were forgotten,
    /// and were not unmapped since.
    doubted: BTreeMap<Asid, (u64, u64)>,
    /// Who walks while the tables are changed, and may remember them. `None`: nobody does.
    users: Option<Arc<Words>>,
}

impl TableWriter {
    /// Empty tables that are walked only while nothing changes them, under the lock that the writer
    /// is under too.
    pub fn new(own: MemoryId, table_pages: u32) -> TableWriter {
        let room = (table_pages as usize).min(ROOM);
        TableWriter {
            tables: Arc::new(Tables::new(own, table_pages)),
            nodes: Vec::with_capacity(room),
            free: Vec::with_capacity(room),
            suspects: Vec::with_capacity(room),
            limbo: Vec::with_capacity(room),
            doubted: BTreeMap::new(),
            users: None,
        }
    }

    /// Breaks one rule on purpose, before the tables are shared (feature `mutations`).
    #[cfg(any(test, feature = "mutations"))]
    pub(crate) fn mutate(&mut self, mutation: CardMutation) {
        let tables = Arc::get_mut(&mut self.tables).expect("nobody shares the tables yet");
        tables.mutate(mutation);
    }

    /// Says what the numbers of bus pages stand for, before anything is mapped or shared.
    pub(crate) fn name_bus_pages(&mut self, bus: BusPages) {
        if let Some(tables) = Arc::get_mut(&mut self.tables) {
            tables.name_bus_pages(bus);
        }
    }

    /// Has the first tables ready, before they are shared.
    pub(crate) fn stock(&mut self) {
        if let Some(tables) = Arc::get_mut(&mut self.tables) {
            tables.stock();
        }
    }

    /// From now on these users walk the tables at any time, each under its mark, and may remember where
    /// tables are until they are disturbed: no table page is used again before ([`Words::renew`]).
    pub fn share(&mut self, users: Arc<Words>) -> Arc<Tables> {
        self.users = Some(users);
        Arc::clone(&self.tables)
    }

    /// The tables, to walk them.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Table pages in use, those in limbo too.
    pub fn used(&self) -> u32 {
        (self.nodes.len() - self.free.len()) as u32
    }

    /// Bytes that the command side takes beside the tables themselves.
    pub fn bytes_beside(&self) -> usize {
        let lists = [&self.free, &self.suspects, &self.limbo];
        let numbers: usize = lists.into_iter().map(Vec::len).sum();
        self.nodes.len() * size_of::<Node>() + numbers * size_of::<u32>()
    }

    /// Unlinks every table without a valid entry, and sees to it that no walk knows one of them any more.
    /// Returns whether a table page is free.
    pub fn reclaim(&mut self) -> bool {
        while let Some(table) = self.suspects.pop() {
            self.nodes[table as usize].suspected = false;
            if self.nodes[table as usize].valid == 0 {
                self.unlink(table);
            }
        }
        if !self.limbo.is_empty() {
            let early = self.tables.mutated.on(CardMutation::ReuseTablesEarly);
            if let Some(users) = self.users.as_ref().filter(|_| !early) {
                users.renew();
            }
            self.free.append(&mut self.limbo);
        }
        !self.free.is_empty()
    }

    /// Sees to it that a table page is free, if empty tables can make one so.
    fn reclaim_for_one(&mut self) {
        if self.free.is_empty() && self.nodes.len() as u32 == self.tables.capacity() {
            self.reclaim();
        }
    }

    /// These pages are not in the tables, and may be used and written all the same.
    pub(super) fn doubt(&mut self, asid: Asid, pages: PageRange) {
        if self.tables.mutated.on(CardMutation::TrustPagesWithoutRoom) {
            return;
        }
        let (first, end) = (pages.start.0, pages.end().0);
        let bounds = self.doubted.entry(asid).or_insert((first, end));
        *bounds = (bounds.0.min(first), bounds.1.max(end));
    }

    /// Whether a page of these may have been written without an entry.
    pub(super) fn doubts(&self, asid: Asid, pages: PageRange) -> bool {
        let bounds = self.doubted.get(&asid);
        bounds.is_some_and(|&(first, end)| first < pages.end().0 && pages.start.0 < end)
    }

    /// These pages are not mapped any more.
    pub(super) fn trust(&mut self, asid: Asid, pages: PageRange) {
        let Some(bounds) = self.doubted.get_mut(&asid) else { return };
        if pages.start.0 <= bounds.0 {
            bounds.0 = bounds.0.max(pages.end().0);
        }
        if pages.end().0 >= bounds.1 {
            bounds.1 = bounds.1.min(pages.start.0);
        }
        if bounds.0 >= bounds.1 {
            self.doubted.remove(&asid);
        }
    }

    /// Takes an empty table out of its tree.
    pub(super) fn unlink(&mut self, table: u32) {
        let node = &mut self.nodes[table as usize];
        debug_assert_eq!(node.valid, 0, "a table that goes is empty");
        match node.parent.take() {
            Some(Parent::Root(asid)) => {
                if let Some(root) = self.tables.root(asid) {
                    root.store(0, Ordering::Release);
                }
            }
            Some(Parent::Slot { table: above, index }) => {
                self.put(above, index.into(), TableEntry::INVALID);
            }
            None => return,
        }
        self.limbo.push(table);
    }

    /// Changes a word, and counts valid entries. Returns what was there.
    pub(super) fn update(
        &mut self,
        table: u32,
        index: usize,
        mut change: impl FnMut(TableEntry) -> TableEntry,
    ) -> TableEntry {
        let Some(word) = self.tables.word(table, index) else {
            return TableEntry::INVALID;
        };
        let mut seen = word.load(Ordering::Acquire);
        if self.tables.mutated.on(CardMutation::ChangeInTwoSteps) {
            let new = change(TableEntry(seen));
            word.store(new.0, Ordering::Release);
            self.count(table, TableEntry(seen).is_valid(), new.is_valid());
            return TableEntry(seen);
        }
        loop {
            let new = change(TableEntry(seen));
            match word.compare_exchange_weak(seen, new.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.count(table, TableEntry(seen).is_valid(), new.is_valid());
                    return TableEntry(seen);
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Puts a word in the place of another, and counts valid entries. Returns what was there, with
    /// every bit that a walk has set.
    pub(super) fn put(&mut self, table: u32, index: usize, entry: TableEntry) -> TableEntry {
        self.update(table, index, |_| entry)
    }

    fn count(&mut self, table: u32, was: bool, is: bool) {
        let node = &mut self.nodes[table as usize];
        match (was, is) {
            (false, true) => node.valid += 1,
            (true, false) => node.valid -= 1,
            _ => {}
        }
        if was && !is && node.valid == 0 {
            self.suspect(table);
        }
    }

    fn suspect(&mut self, table: u32) {
        let node = &mut self.nodes[table as usize];
        if node.parent.is_some() && node.valid == 0 && !node.suspected {
            node.suspected = true;
            self.suspects.push(table);
        }
    }

    /// A table page that nothing uses, its words all invalid.
    fn take_free(&mut self) -> Option<u32> {
        if let Some(table) = self.free.pop() {
            self.nodes[table as usize] = UNLINKED;
            return Some(table);
        }
        let table = self.nodes.len() as u32;
        if table == self.tables.capacity() {
            return None;
        }
        self.nodes.push(UNLINKED);
        Some(table)
    }

    /// The table of the leaf level for a page, made where there was none. `None`: no room.
    pub(super) fn leaf_for(&mut self, asid: Asid, page: u64) -> Option<u32> {
        match self.tables.find(asid, page) {
            Found::Leaf(table) => Some(table),
            Found::Run { table, index } => {
                self.reclaim_for_one();
                let split = self.split(table, index);
                if split.is_none() {
                    let first = page / RUN_PAGES * RUN_PAGES;
                    self.doubt(asid, PageRange::new(PageNo(first), RUN_PAGES));
                }
                split
            }
            Found::Absent(_) => self.make(asid, page, 0),
        }
    }

    /// The table one level above the leaves in which a page's 512 have their slot.
    pub(super) fn directory_for(&mut self, asid: Asid, page: u64) -> Option<u32> {
        if let Found::Run { table, .. } = self.tables.find(asid, page) {
            return Some(table);
        }
        self.make(asid, page, 1)
    }

    /// Goes down to a level, making the tables that are missing. Reclaiming may take tables of the
    /// way, so it begins again after it; what it has made itself is never reclaimed meanwhile.
    fn make(&mut self, asid: Asid, page: u64, level: u32) -> Option<u32> {
        let mut made = Made::new();
        let table = loop {
            match self.descend(asid, page, level, &mut made) {
                Some(table) => break Some(table),
                None if self.reclaim() => {}
                None => break None,
            }
        };
        if table.is_none() {
            made.iter().for_each(|&table| self.suspect(table));
        }
        table
    }

    fn descend(&mut self, asid: Asid, page: u64, level: u32, made: &mut Made) -> Option<u32> {
        let (mut table, height) = self.grown(asid, page, level, made)?;
        for above in (level + 1..height).rev() {
            let index = slot_index(page, above);
            table = match self.tables.load(table, index).table() {
                Some(next) => next,
                None => {
                    let next = self.take_free()?;
                    made.push(next);
                    self.nodes[next as usize].parent = Some(Parent::slot(table, index));
                    self.put(table, index, TableEntry::directory(next));
                    next
                }
            };
        }
        Some(table)
    }

    /// The top table of a tree that reaches a page and has a table of this level.
    fn grown(&mut self, asid: Asid, page: u64, level: u32, made: &mut Made) -> Option<(u32, u32)> {
        let reaches = |height: u32| height > level && page >> (LEVEL_BITS * height) == 0;
        let Some((mut table, mut height)) = self.tables.top(asid) else {
            let height = (1..=HEIGHT_MAX).find(|&height| reaches(height))?;
            let table = self.take_free()?;
            made.push(table);
            self.enroot(asid, table, height);
            return Some((table, height));
        };
        while !reaches(height) {
            let top = self.take_free()?;
            made.push(top);
            self.put(top, 0, TableEntry::directory(table));
            self.nodes[table as usize].parent = Some(Parent::slot(top, 0));
            (table, height) = (top, height + 1);
            self.enroot(asid, table, height);
        }
        Some((table, height))
    }

    fn enroot(&mut self, asid: Asid, table: u32, height: u32) {
        self.nodes[table as usize].parent = Some(Parent::Root(asid));
        if let Some(root) = self.tables.root(asid) {
            root.store(Root::new(table, height).0, Ordering::Release);
        }
    }

    /// Makes a table of a run's 512 entries in the place of its one. Without a table page the run is
    /// forgotten. Whatever a walk does to the one meanwhile is in the 512 too.
    fn split(&mut self, above: u32, index: usize) -> Option<u32> {
        let Some(table) = self.take_free() else {
            self.put(above, index, TableEntry::INVALID);
            return None;
        };
        // Invalid first: no walk changes the one any more while its bits are copied.
        let run = self.put(above, index, TableEntry::INVALID);
        for slot in 0..SLOTS {
            let index = match self.tables.mutated.on(CardMutation::SplitForgetsFrames) {
                true => 0,
                false => slot as u32,
            };
            self.put(table, slot, run.page_of_run(index));
        }
        self.nodes[table as usize].parent = Some(Parent::slot(above, index));
        self.put(above, index, TableEntry::directory(table));
        Some(table)
    }

    /// Forgets everything, when nobody walks and nobody remembers a table.
    pub(crate) fn clear(&mut self) {
        for table in 0..self.nodes.len() as u32 {
            for index in 0..SLOTS {
                if let Some(word) = self.tables.word(table, index) {
                    word.store(0, Ordering::Release);
                }
            }
            if let Some(Parent::Root(asid)) = self.nodes[table as usize].parent {
                if let Some(root) = self.tables.root(asid) {
                    root.store(0, Ordering::Release);
                }
            }
        }
        self.nodes.clear();
        self.free.clear();
        self.suspects.clear();
        self.limbo.clear();
        self.doubted.clear();
    }
}

impl Clone for TableWriter {
    /// Tables of their own with the same entries; nobody shares them.
    fn clone(&self) -> TableWriter {
        let free = self.free.iter().chain(&self.limbo).copied().collect();
        TableWriter {
            tables: Arc::new(self.tables.copy()),
            nodes: self.nodes.clone(),
            free,
            suspects: self.suspects.clone(),
            limbo: Vec::new(),
            doubted: self.doubted.clone(),
            users: None,
        }
    }
}
