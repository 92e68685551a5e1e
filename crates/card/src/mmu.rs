//! The memory management unit: three TLBs that agree.
//!
//! It is a cache of translations that the driver gave and takes away again; it may forget any of
//! them, never remember one that was taken away. It owns no page table and walks none.

use farside_types::{Access, Asid, PageNo, PageRange, PeId, Rights};

use crate::flexible::Flexible;
use crate::geometry::{Geometry, GeometryError};
use crate::key::{Key, KeyRange, clamp};
use crate::l1::L1;
use crate::l2::L2;
use crate::stats::CardStats;
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
    l1_hits: u64,
    l2_hits: u64,
    flexible_hits: u64,
    misses: u64,
    rights_misses: u64,
}

impl Mmu {
    /// Empty TLBs of these sizes.
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
            l1_hits: 0,
            l2_hits: 0,
            flexible_hits: 0,
            misses: 0,
            rights_misses: 0,
        })
    }

    /// Takes translations in, in the place of what was known of these pages. Long runs go to
    /// flexible entries, short ones page by page to the L2.
    ///
    /// # Errors
    /// [`MapError`] if the run is empty or has pages or frames that cannot be.
    pub fn insert(&mut self, asid: Asid, run: MappedRun, rights: Rights) -> Result<(), MapError> {
        check(&run)?;
        self.remove(KeyRange::new(asid, run.pages()));
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
        Ok(())
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
        for l1 in &mut self.l1 {
            l1.protect(keys, rights);
        }
        self.l2.protect(keys, rights);
        self.flexible.protect(keys, rights);
    }

    /// Forgets every page of a range. Afterwards none of them hits, however long the range is.
    pub fn invalidate(&mut self, asid: Asid, range: PageRange) {
        self.remove(KeyRange::new(asid, range));
    }

    /// Forgets every page of an address space.
    pub fn invalidate_all(&mut self, asid: Asid) {
        self.remove(KeyRange::whole(asid));
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
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
            Some(_) => {
                self.rights_misses += 1;
                Lookup::InsufficientRights
            }
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
                None => return self.miss(),
            },
        };
        self.l1[l1].insert(key, found);
        if !found.rights.allows(access) {
            self.rights_misses += 1;
            return Lookup::InsufficientRights;
        }
        self.count_hit(level);
        Lookup::Hit { location: found.location, rights: found.rights, level }
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
        let found = Key::new(asid, page).and_then(|key| self.find_run(pe, key));
        let Some((found, count, level)) = found else {
            self.misses += 1;
            return None;
        };
        if !found.rights.allows(access) {
            self.rights_misses += 1;
            return None;
        }
        self.count_hit(level);
        Some(RunHit {
            location: found.location,
            count: u64::from(count).min(pages_max) as u32,
            rights: found.rights,
            level,
        })
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
        }
    }

    pub(crate) fn count_into(&self, stats: &mut CardStats) {
        stats.l1_hits = self.l1_hits;
        stats.l2_hits = self.l2_hits;
        stats.flexible_hits = self.flexible_hits;
        stats.misses = self.misses;
        stats.rights_misses = self.rights_misses;
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
