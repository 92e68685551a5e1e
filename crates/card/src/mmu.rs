//! The memory management unit: three TLBs that agree, above the tables of the card where it has some.
//!
//! A TLB is a cache of translations that the driver gave and takes away again; it may forget any of
//! them, never remember one that was taken away. Without tables that is all the card knows. With
//! tables a miss walks them, and a TLB holds the right to write only for pages that count as written:
//! the first write to a page comes by the tables and sets its bit there. Pages that found no room in
//! the tables are in the TLBs alone, as on a card without.

use farside_types::{Access, Asid, List, MemoryId, PageNo, PageRange, PeId, Rights};

use crate::flexible::Flexible;
use crate::geometry::{Geometry, GeometryError};
use crate::key::{Key, KeyRange, clamp};
use crate::l1::L1;
use crate::l2::L2;
use crate::mutation::CardMutation;
use crate::stats::CardStats;
use crate::tables::{TableWriter, Walk, Walked};
use crate::{Location, MapError, MappedRun, PAGES_MAX, Translation};

/// Which TLB answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// The processing element's own.
    L1,
    /// The card's set-associative one.
    L2,
    /// An entry of flexible length.
    Flexible,
    /// None did; the tables had it.
    Table,
}

/// What the MMU says about one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The access can go on.
    Hit {
        /// Where the page is.
        location: Location,
        /// What the card may do with it.
        rights: Rights,
        /// Which TLB knew it.
        level: Level,
    },
    /// No TLB knows the page.
    Miss,
    /// The page may be read, and the access is a write.
    InsufficientRights,
}

/// What the MMU says about a page and those behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunHit {
    /// Where the first page is.
    pub location: Location,
    /// Pages from it on that one entry maps, the first included.
    pub count: u32,
    /// What the card may do with them.
    pub rights: Rights,
    /// Which TLB knew it.
    pub level: Level,
}

/// The TLBs of a card.
#[derive(Clone, Debug)]
pub struct Mmu {
    /// One for each processing element, or one for all of them.
    l1: Vec<L1>,
    pes: u16,
    l2: L2,
    flexible: Flexible,
    flexible_pages_min: u32,
    flexible_pages_max: u32,
    tables: Option<TableWriter>,
    l1_hits: u64,
    l2_hits: u64,
    flexible_hits: u64,
    misses: u64,
    rights_misses: u64,
    walks: u64,
    table_full: u64,
}

impl Mmu {
    /// Empty TLBs of these sizes, and tables where they have pages for them. `own` is the memory of
    /// the card.
    ///
    /// # Errors
    /// [`GeometryError`] if the sizes make no card.
    pub fn with_tables(geometry: &Geometry, own: MemoryId) -> Result<Mmu, GeometryError> {
        let mut mmu = Mmu::new(geometry)?;
        let pages = geometry.table_pages_for(0);
        mmu.tables = (pages > 0).then(|| TableWriter::new(own, pages));
        Ok(mmu)
    }

    /// Empty TLBs of these sizes, without tables.
    ///
    /// # Errors
    /// [`GeometryError`] if the sizes make no card.
    pub fn new(geometry: &Geometry) -> Result<Mmu, GeometryError> {
        geometry.validate()?;
        let l1 = L1::new(geometry.l1_entries as usize);
        let flexible_entries = geometry.flexible_entries as usize;
        Ok(Mmu {
            l1: vec![l1; if geometry.l1_shared { 1 } else { usize::from(geometry.pes) }],
            pes: geometry.pes,
            l2: L2::new(geometry.l2_entries as usize, geometry.l2_ways as usize),
            flexible: Flexible::new(flexible_entries, geometry.flexible_pages_max),
            flexible_pages_min: geometry.flexible_pages_min,
            flexible_pages_max: geometry.flexible_pages_max,
            tables: None,
            l1_hits: 0,
            l2_hits: 0,
            flexible_hits: 0,
            misses: 0,
            rights_misses: 0,
            walks: 0,
            table_full: 0,
        })
    }

    /// The tables, if the card has some.
    pub fn tables(&self) -> Option<&TableWriter> {
        self.tables.as_ref()
    }

    /// [`Mmu::tables`], to share them.
    pub fn tables_mut(&mut self) -> Option<&mut TableWriter> {
        self.tables.as_mut()
    }

    /// Takes translations in, in the place of what was known of these pages: into the tables; what
    /// finds no room there, into the TLBs.
    ///
    /// # Errors
    /// [`MapError`] if the run is empty or has pages or frames that cannot be.
    pub fn insert(&mut self, asid: Asid, run: MappedRun, rights: Rights) -> Result<(), MapError> {
        self.insert_as(asid, run, rights, false)
    }

    /// [`Mmu::insert`] of pages that may count as written from the beginning.
    pub(crate) fn insert_as(
        &mut self,
        asid: Asid,
        run: MappedRun,
        rights: Rights,
        written: bool,
    ) -> Result<(), MapError> {
        check(&run)?;
        let mut without_room = Vec::new();
        match &mut self.tables {
            Some(tables) => {
                tables.map(asid, &run, rights, written, |part| without_room.push(part));
                let pages = without_room.iter().map(|part: &MappedRun| u64::from(part.count));
                self.table_full += pages.sum::<u64>();
            }
            None => without_room.push(run),
        }
        self.remove(KeyRange::new(asid, run.pages()));
        for part in without_room {
            self.cache(asid, part, rights);
        }
        Ok(())
    }

    /// Whether a rule of the tables is broken on purpose.
    pub(crate) fn is_mutated(&self, mutation: CardMutation) -> bool {
        self.tables.as_ref().is_some_and(|tables| tables.tables().mutated.on(mutation))
    }

    /// Counts walks that others have made.
    pub(crate) fn count_walks(&mut self, walks: u64) {
        self.walks += walks;
    }

    /// Takes translations into the TLBs, which know nothing of these pages. Long runs go to flexible
    /// entries, short ones page by page to the L2.
    fn cache(&mut self, asid: Asid, run: MappedRun, rights: Rights) {
        let mut rest = run.pages();
        while !rest.is_empty() {
            let count = rest.count.min(u64::from(self.flexible_pages_max)) as u32;
            let skipped = (rest.start.0 - run.page.0) as u32;
            let part = MappedRun::new(rest.start, count, run.location.offset(skipped));
            if self.flexible.entries() > 0 && count >= self.flexible_pages_min {
                let translation = Translation { location: part.location, rights };
                let keys = KeyRange::new(asid, part.pages());
                self.flexible.insert(keys, translation);
            } else {
                self.insert_pages(asid, &part, rights);
            }
            rest = PageRange::new(rest.start.offset(count.into()), rest.count - u64::from(count));
        }
    }

    /// Inserts page by page; of a run longer than the L2 only as many pages as it could keep.
    fn insert_pages(&mut self, asid: Asid, run: &MappedRun, rights: Rights) {
        let count = (run.count as usize).min(self.l2.entries()) as u32;
        for index in 0..count {
            let location = run.location.offset(index);
            if let Some(key) = Key::new(asid, run.page.offset(index.into())) {
                self.l2.insert(key, Translation { location, rights });
            }
        }
    }

    /// Lowers the rights of every known page of a range. Rights never grow this way.
    pub fn protect(&mut self, asid: Asid, range: PageRange, rights: Rights) {
        let keys = KeyRange::new(asid, range);
        let leaves = self.is_mutated(CardMutation::ProtectLeavesTable);
        if let Some(tables) = self.tables.as_mut().filter(|_| rights == Rights::Read && !leaves) {
            tables.protect(asid, range);
        }
        if self.is_mutated(CardMutation::ProtectLeavesTlbs) {
            return;
        }
        for l1 in &mut self.l1 {
            l1.protect(keys, rights);
        }
        self.l2.protect(keys, rights);
        self.flexible.protect(keys, rights);
    }

    /// Forgets every page of a range. Afterwards none of them hits, however long the range is.
    pub fn invalidate(&mut self, asid: Asid, range: PageRange) {
        self.invalidate_telling(asid, range, |_, _| {});
    }

    /// [`Mmu::invalidate`], which tells of the pages that had an entry in the tables whether they
    /// count as written.
    pub(crate) fn invalidate_telling(
        &mut self,
        asid: Asid,
        range: PageRange,
        mut each: impl FnMut(PageRange, bool),
    ) {
        let leaves = self.is_mutated(CardMutation::UnmapLeavesTable);
        if let Some(tables) = self.tables.as_mut().filter(|_| !leaves) {
            tables.unmap(asid, range, |pages, entry| each(pages, entry.is_dirty()));
        }
        if !self.is_mutated(CardMutation::UnmapLeavesTlbs) {
            self.remove(KeyRange::new(asid, range));
        }
    }

    /// Forgets every page of an address space.
    pub fn invalidate_all(&mut self, asid: Asid) {
        self.invalidate(asid, PageRange::new(PageNo(0), PAGES_MAX));
    }

    /// Reads and clears accessed bits, and tells of the pages that have an entry in the tables
    /// whether they were used. The TLBs forget those that were, so that the next use sets the bit
    /// again.
    pub(crate) fn take_accessed(
        &mut self,
        asid: Asid,
        range: PageRange,
        mut each: impl FnMut(PageRange, bool),
    ) {
        let Some(tables) = &mut self.tables else { return };
        let mut used: List<PageRange> = List::new();
        tables.take_accessed(asid, range, |pages, accessed| {
            each(pages, accessed);
            match used.last_mut().filter(|last| last.end() == pages.start) {
                _ if !accessed => {}
                Some(last) => last.count += pages.count,
                None => used.push(pages),
            }
        });
        if self.is_mutated(CardMutation::AccessedLeavesTlbs) {
            return;
        }
        for &pages in &used {
            self.remove(KeyRange::new(asid, pages));
        }
    }

    /// Sets the bits of pages that are used by other ways than the TLBs.
    pub(crate) fn touch(&mut self, asid: Asid, pages: PageRange, access: Access) {
        if self.is_mutated(CardMutation::ResumeSetsNoBits) {
            return;
        }
        let Some(tables) = &self.tables else { return };
        for page in pages.pages() {
            let _ = tables.tables().walk(asid, page, access);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        if let Some(tables) = &mut self.tables {
            tables.clear();
        }
        self.remove(KeyRange { start: 0, end: Key::NONE.0 });
    }

    fn remove(&mut self, keys: KeyRange) {
        if keys.is_empty() {
            return;
        }
        for l1 in &mut self.l1 {
            l1.remove(keys);
        }
        self.l2.remove(keys);
        self.flexible.remove(keys);
    }

    /// Translates one page for a processing element. A hit below the L1 is kept there. A processing
    /// element that the card does not have misses.
    #[inline]
    pub fn lookup(&mut self, pe: PeId, asid: Asid, page: PageNo, access: Access) -> Lookup {
        let Some(key) = Key::new(asid, page) else {
            return self.miss();
        };
        let found = self.l1_of(pe).and_then(|index| self.l1[index].lookup(key));
        match found {
            Some(found) if found.rights.allows(access) => {
                self.l1_hits += 1;
                Lookup::Hit { location: found.location, rights: found.rights, level: Level::L1 }
            }
            Some(_) => self.walk(pe, key, access, true),
            None => self.lookup_below(pe, key, access),
        }
    }

    #[inline(never)]
    fn lookup_below(&mut self, pe: PeId, key: Key, access: Access) -> Lookup {
        let Some(l1) = self.l1_of(pe) else {
            return self.miss();
        };
        let (found, level) = match self.l2.lookup(key) {
            Some(found) => (found, Level::L2),
            None => match self.flexible.lookup(key) {
                Some((found, _)) => (found, Level::Flexible),
                None => return self.walk(pe, key, access, false),
            },
        };
        self.l1[l1].insert(key, found);
        if !found.rights.allows(access) {
            return self.walk(pe, key, access, true);
        }
        self.count_hit(level);
        Lookup::Hit { location: found.location, rights: found.rights, level }
    }

    /// The tables are asked, because no TLB knows the page, or (`known`) not with these rights.
    fn walk(&mut self, pe: PeId, key: Key, access: Access, known: bool) -> Lookup {
        let walk = match &self.tables {
            Some(tables) => tables.tables().walk(key.asid(), key.page(), access),
            None => Walk::Missing,
        };
        match walk {
            Walk::Found(Walked { location, rights, pages, .. }) => {
                self.keep(key, pages, Translation { location, rights });
                if let Some(l1) = self.l1_of(pe) {
                    self.l1[l1].insert(key, Translation { location, rights });
                }
                self.count_hit(Level::Table);
                Lookup::Hit { location, rights, level: Level::Table }
            }
            Walk::Missing if !known => self.miss(),
            Walk::Missing | Walk::InsufficientRights => {
                self.rights_misses += 1;
                Lookup::InsufficientRights
            }
        }
    }

    /// Keeps what a walk found below the L1 TLBs, in the place of what was there.
    fn keep(&mut self, key: Key, pages: u32, translation: Translation) {
        let pages = pages.min(self.flexible_pages_max);
        let keys = KeyRange { start: key.0, end: key.0 + u64::from(pages) };
        if self.flexible.entries() > 0 && pages >= self.flexible_pages_min {
            self.flexible.remove(keys);
            self.flexible.insert(keys, translation);
            return;
        }
        for index in 0..pages.min(self.l2.entries() as u32) {
            let location = translation.location.offset(index);
            let page = Key(key.0 + u64::from(index));
            self.l2.insert(page, Translation { location, ..translation });
        }
    }

    /// [`Mmu::walk`] of a page and those behind it, of which all are going to be used.
    fn walk_run(&mut self, key: Key, access: Access, pages_max: u64) -> Option<RunHit> {
        let tables = self.tables.as_ref()?.tables();
        let walk =
            |skipped: u32| match tables.walk(key.asid(), key.page().offset(skipped.into()), access)
            {
                Walk::Found(walked) => Some(walked),
                _ => None,
            };
        let Walked { location, mut rights, pages: mut count, .. } = walk(0)?;
        let most = pages_max.min(self.flexible_pages_max.into()) as u32;
        while count < most {
            let next = walk(count).filter(|next| location.is_followed_by(count, next.location));
            let Some(next) = next else { break };
            count += next.pages;
            rights = rights.min(next.rights);
        }
        let count = count.min(most);
        self.keep(key, count, Translation { location, rights });
        Some(RunHit { location, count, rights, level: Level::Table })
    }

    /// Translates a page and as many of the `pages_max` pages from it on as one entry maps; `None`
    /// if the page is unknown or its rights do not serve the access. Counts as one lookup.
    pub fn lookup_run(
        &mut self,
        pe: PeId,
        asid: Asid,
        page: PageNo,
        access: Access,
        pages_max: u64,
    ) -> Option<RunHit> {
        let key = Key::new(asid, page);
        let found = key.and_then(|key| self.find_run(pe, key));
        let hit = match found {
            Some((found, count, level)) if found.rights.allows(access) => Some(RunHit {
                location: found.location,
                count: u64::from(count).min(pages_max) as u32,
                rights: found.rights,
                level,
            }),
            _ => key.and_then(|key| self.walk_run(key, access, pages_max)),
        };
        match (hit, found) {
            (Some(hit), _) => self.count_hit(hit.level),
            (None, Some(_)) => self.rights_misses += 1,
            (None, None) => self.misses += 1,
        }
        hit
    }

    /// The longest entry first.
    fn find_run(&mut self, pe: PeId, key: Key) -> Option<(Translation, u32, Level)> {
        if let Some((found, count)) = self.flexible.lookup(key) {
            return Some((found, count, Level::Flexible));
        }
        if let Some(found) = self.l2.lookup(key) {
            return Some((found, 1, Level::L2));
        }
        let l1 = self.l1_of(pe)?;
        let found = self.l1[l1].lookup(key)?;
        Some((found, 1, Level::L1))
    }

    /// Which L1 TLB a processing element has.
    #[inline]
    fn l1_of(&self, pe: PeId) -> Option<usize> {
        let index = if self.l1.len() == 1 { 0 } else { usize::from(pe.0) };
        (pe.0 < self.pes).then_some(index)
    }

    fn miss(&mut self) -> Lookup {
        self.misses += 1;
        Lookup::Miss
    }

    fn count_hit(&mut self, level: Level) {
        match level {
            Level::L1 => self.l1_hits += 1,
            Level::L2 => self.l2_hits += 1,
            Level::Flexible => self.flexible_hits += 1,
            Level::Table => self.walks += 1,
        }
    }

    pub(crate) fn count_into(&self, stats: &mut CardStats) {
        stats.l1_hits = self.l1_hits;
        stats.l2_hits = self.l2_hits;
        stats.flexible_hits = self.flexible_hits;
        stats.misses = self.misses;
        stats.rights_misses = self.rights_misses;
        stats.walks = self.walks;
        stats.table_full = self.table_full;
        stats.l2_evictions = self.l2.evictions();
        stats.flexible_evictions = self.flexible.evictions();
    }
}

/// Checks that the pages and frames of a run exist at all.
pub(crate) fn check(run: &MappedRun) -> Result<(), MapError> {
    let &MappedRun { page, count, location } = run;
    if count == 0 {
        return Err(MapError::Empty { page });
    }
    if page.0 >= PAGES_MAX || clamp(run.pages()).count != u64::from(count) {
        return Err(MapError::BeyondAddressSpace { page, count });
    }
    check_frames(location, count, 1 << 32)
}

/// Checks that a memory of `frames` frames has these.
pub(crate) fn check_frames(location: Location, count: u32, frames: u64) -> Result<(), MapError> {
    if u64::from(location.frame.0) + u64::from(count) > frames {
        return Err(MapError::BeyondMemory {
            memory: location.memory,
            frame: location.frame,
            count,
            frames,
        });
    }
    Ok(())
}
