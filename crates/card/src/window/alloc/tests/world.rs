//! An allocator with its memory, readers that hold translations, and a map of what is allocated.

use std::collections::{BTreeMap, BTreeSet};

use farside_types::{Access, Rights};

use super::super::super::{WindowFault, WindowGeometry, WindowMapping, WindowNeed, WindowWalk};
use super::super::mutation::AllocMutation;
use super::super::word::{PageState, PageWord};
use super::super::{
    AllocError, AllocStep, Allocator, AllocatorConfig, SweepStep, Touch, WindowPages,
};
use super::bus::{Failing, TestBus};
use crate::interface::AllocRequest;

/// What went wrong.
pub(super) type Checked = Result<(), String>;

/// An allocation as it was asked for.
#[derive(Clone, Debug)]
pub(super) struct Allocation {
    pub(super) pages: u64,
    pub(super) memory: u8,
    pub(super) rights: Rights,
    /// It has regions for itself, and keeps them.
    pub(super) is_large: bool,
    /// Pages that have got a frame, and what was written there.
    touched: BTreeMap<u64, u64>,
    /// Pages that must have a frame.
    eager: BTreeSet<u64>,
}

/// A walk that has read its words, and has not ended.
#[derive(Clone, Debug)]
struct Walking {
    page: u64,
    ticket: u64,
    seen: Option<u64>,
    found: Result<WindowMapping, WindowFault>,
    /// Its result is kept for later requests.
    is_kept: bool,
}

#[derive(Clone, Debug)]
enum Waiting {
    Free(u64),
    Realloc { first: u64, pages: u64, lazy: bool },
}

pub(super) struct World {
    pub(super) allocator: Allocator,
    pub(super) bus: TestBus,
    pub(super) config: AllocatorConfig,
    /// By the first page.
    pub(super) live: BTreeMap<u64, Allocation>,
    /// Translations that somebody holds.
    held: BTreeMap<u64, WindowMapping>,
    walking: Vec<Walking>,
    waiting: Option<(Waiting, WindowPages)>,
    ending: Option<WindowPages>,
    /// What lies in frames.
    data: BTreeMap<(u8, u32), u64>,
    next_token: u64,
}

/// Whether a translation of a page, with the run that it tells of, has to do with others.
fn overlaps(page: u64, held: &WindowMapping, pages: WindowPages) -> bool {
    let begin = page >> held.size << held.size;
    begin < pages.end() && pages.first < begin + (1 << held.size)
}

pub(super) fn config(levels: &[u32], memories: &[u32]) -> AllocatorConfig {
    let geometry = WindowGeometry::new(12, levels, 28).unwrap();
    let base = 1 << (geometry.window_bits() + 1);
    AllocatorConfig { geometry, base, memories: memories.to_vec(), tables: 0, ready_tables: 2 }
}

impl World {
    pub(super) fn new(config: &AllocatorConfig) -> World {
        let mut world = World::uninitialised(config);
        world.allocator.initialise(&mut world.bus).unwrap();
        world.bus.take_cost();
        world
    }

    pub(super) fn uninitialised(config: &AllocatorConfig) -> World {
        let allocator = Allocator::new(config).unwrap();
        let mut bus = TestBus::default();
        if config.geometry.levels() > 1 {
            let begin = allocator.layout.directory;
            bus.directory = begin..begin + 8 * allocator.layout.regions;
        }
        World {
            allocator,
            bus,
            config: config.clone(),
            live: BTreeMap::new(),
            held: BTreeMap::new(),
            walking: Vec::new(),
            waiting: None,
            ending: None,
            data: BTreeMap::new(),
            next_token: 1,
        }
    }

    pub(super) fn mutate(&mut self, mutation: AllocMutation) {
        self.allocator.mutate(mutation);
    }

    pub(super) fn address(&self, page: u64) -> u64 {
        self.config.base + (page << 12)
    }

    fn page(&self, address: u64) -> Result<u64, String> {
        let offset = address.wrapping_sub(self.config.base);
        if offset % 4096 != 0 || offset >> self.config.geometry.window_bits() != 0 {
            return Err(format!("{address:#x} is no page of the window"));
        }
        Ok(offset >> 12)
    }

    /// Pages that the sweep waits for.
    pub(super) fn ending(&self) -> Option<WindowPages> {
        self.ending
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// A malloc, as far as an answer.
    pub(super) fn malloc(
        &mut self,
        pages: u64,
        memory: u8,
        rights: Rights,
        lazy: bool,
    ) -> Result<Result<u64, AllocError>, String> {
        let bytes = (pages << 12) - 7;
        let request = AllocRequest::Malloc { bytes, memory, rights, lazy };
        let AllocStep::Answer(answer) = self.allocator.handle(&mut self.bus, request) else {
            return Err("a malloc waits for nothing".into());
        };
        if let Ok(address) = answer {
            let first = self.page(address)?;
            let eager = if lazy { BTreeSet::new() } else { (0..pages).collect() };
            let (touched, is_large) = (BTreeMap::new(), self.is_large(pages));
            let allocation = Allocation { pages, memory, rights, is_large, touched, eager };
            self.add(first, allocation)?;
        }
        self.take_made_valid();
        Ok(answer)
    }

    fn add(&mut self, first: u64, allocation: Allocation) -> Checked {
        let end = first + allocation.pages;
        let overlaps =
            self.live.iter().any(|(&begin, other)| begin < end && first < begin + other.pages);
        if overlaps || end > 1 << (self.config.geometry.window_bits() - 12) {
            return Err(format!("pages {first} to {end} are not free: {:?}", self.live.keys()));
        }
        self.live.insert(first, allocation);
        Ok(())
    }

    /// A free of any address. What it must be answered is known.
    pub(super) fn free(&mut self, address: u64) -> Result<Option<Result<u64, AllocError>>, String> {
        let expected = self.expected(address);
        match self.allocator.handle(&mut self.bus, AllocRequest::Free { address }) {
            AllocStep::Answer(Ok(_)) => {
                // Only an allocator that tells nobody does this.
                let first = expected.map_err(|error| format!("freed, not {error:?}"))?;
                self.live.remove(&first);
                Ok(Some(Ok(0)))
            }
            AllocStep::Answer(Err(error)) => {
                self.check_refusal(expected, error)?;
                Ok(Some(Err(error)))
            }
            AllocStep::Invalidate(pages) => {
                let first = expected.map_err(|error| format!("freed, not {error:?}"))?;
                let allocation = &self.live[&first];
                let is_right = pages == WindowPages { first, count: allocation.pages };
                // Nobody knows how many pages its first word says.
                let is_lost = self.is_quarantining() && pages.first == first;
                if !is_right && !is_lost {
                    return Err(format!("{pages:?} are invalidated for {allocation:?}"));
                }
                self.waiting = Some((Waiting::Free(first), pages));
                Ok(None)
            }
        }
    }

    /// Whether pages stay in use because of errors of the memory.
    pub(super) fn is_quarantining(&self) -> bool {
        self.allocator.counts().quarantined != 0
    }

    fn check_refusal(&self, expected: Result<u64, AllocError>, error: AllocError) -> Checked {
        match (expected, error) {
            (_, AllocError::Busy | AllocError::BusError) if self.may_refuse(error, 1, 0, true) => {
                Ok(())
            }
            // Nobody knows what its words are.
            (Ok(_), AllocError::NotAllocated | AllocError::BadEntry) if self.is_quarantining() => {
                Ok(())
            }
            // A page that is quarantined may look as if it were in an allocation.
            (Err(AllocError::NotAllocated), AllocError::Inside) if self.is_quarantining() => Ok(()),
            (Err(expected), error) if expected == error => Ok(()),
            other => Err(format!("refused: {other:?}")),
        }
    }

    /// The allocation that begins at an address, or why there is none.
    fn expected(&self, address: u64) -> Result<u64, AllocError> {
        let offset = address.wrapping_sub(self.config.base);
        let page = offset >> 12;
        let around = self.live.range(..=page).next_back();
        match around.filter(|(first, allocation)| page < **first + allocation.pages) {
            None => Err(AllocError::NotAllocated),
            Some((&first, _)) if address == self.address(first) => Ok(first),
            Some(_) => Err(AllocError::Inside),
        }
    }

    pub(super) fn realloc(
        &mut self,
        address: u64,
        pages: u64,
        lazy: bool,
    ) -> Result<Option<Result<u64, AllocError>>, String> {
        let expected = self.expected(address);
        let request = AllocRequest::Realloc { address, bytes: pages << 12, lazy };
        match self.allocator.handle(&mut self.bus, request) {
            AllocStep::Answer(Err(error)) => {
                let is_right = match expected {
                    Ok(first) => self.may_refuse_realloc(error, first, pages, lazy),
                    Err(_) => error == AllocError::TooLarge && pages > self.pages(),
                };
                if !is_right {
                    self.check_refusal(expected, error)?;
                }
                Ok(Some(Err(error)))
            }
            AllocStep::Answer(Ok(address)) => {
                let first = expected.map_err(|error| format!("not {error:?}"))?;
                self.resized(first, address, pages, lazy)?;
                Ok(Some(Ok(address)))
            }
            AllocStep::Invalidate(invalidated) => {
                let first = expected.map_err(|error| format!("not {error:?}"))?;
                self.waiting = Some((Waiting::Realloc { first, pages, lazy }, invalidated));
                Ok(None)
            }
        }
    }

    fn resized(&mut self, first: u64, address: u64, pages: u64, lazy: bool) -> Checked {
        let new = self.page(address)?;
        let mut allocation = self.live.remove(&first).ok_or("it is gone")?;
        let old = allocation.pages;
        allocation.pages = pages;
        // A small one that fills its region stays small.
        allocation.is_large |= self.is_large(pages) && new != first;
        allocation.touched.retain(|&index, _| index < pages);
        allocation.eager.retain(|&index| index < pages);
        if !lazy {
            allocation.eager.extend(old..pages.max(old));
        }
        self.take_made_valid();
        self.add(new, allocation)
    }

    /// The invalidation that a command waits for is done: what was under way has ended.
    pub(super) fn invalidated(&mut self) -> Result<Option<Result<u64, AllocError>>, String> {
        let Some((waiting, pages)) = self.waiting.take() else { return Ok(None) };
        self.drain(pages)?;
        let AllocStep::Answer(answer) = self.allocator.invalidated(&mut self.bus) else {
            return Err("waits again".into());
        };
        match (waiting, answer) {
            (Waiting::Free(first), Ok(_)) => {
                self.live.remove(&first);
            }
            (Waiting::Realloc { first, pages, lazy }, Ok(address)) => {
                self.resized(first, address, pages, lazy)?;
            }
            (_, Err(AllocError::BusError)) if self.bus.failing != Failing::None => {}
            (_, Err(_)) if self.is_quarantining() => {}
            (waiting, Err(error)) => return Err(format!("{waiting:?} ends with {error:?}")),
        }
        Ok(Some(answer))
    }

    fn drain(&mut self, pages: WindowPages) -> Checked {
        while let Some(index) = self.walking.iter().position(|walk| pages.contains(walk.page)) {
            let walk = self.walking.remove(index);
            self.end(walk)?;
        }
        self.held.retain(|&page, held| !overlaps(page, held, pages));
        Ok(())
    }

    /// Pages that were made valid: whatever walks find that began before is kept for nobody.
    fn take_made_valid(&mut self) {
        for pages in std::mem::take(&mut self.bus.made_valid) {
            self.held.retain(|&page, held| !overlaps(page, held, pages));
            for walk in self.walking.iter_mut().filter(|walk| pages.contains(walk.page)) {
                walk.is_kept = false;
            }
        }
    }

    /// One step of the background. Returns whether there is more.
    pub(super) fn sweep(&mut self) -> bool {
        match self.allocator.sweep(&mut self.bus) {
            SweepStep::Idle => self.ending.is_some(),
            SweepStep::More => true,
            SweepStep::Invalidate(pages) => {
                self.ending = Some(pages);
                true
            }
        }
    }

    pub(super) fn swept(&mut self) -> Checked {
        let Some(pages) = self.ending.take() else { return Ok(()) };
        self.drain(pages)?;
        self.allocator.swept(&mut self.bus);
        Ok(())
    }

    /// Ends everything that is under way.
    pub(super) fn settle(&mut self) -> Checked {
        self.invalidated()?;
        for _ in 0..100_000 {
            self.swept()?;
            if !self.sweep() {
                break;
            }
        }
        while let Some(walk) = self.walking.pop() {
            self.end(walk)?;
        }
        Ok(())
    }

    fn walk(&mut self, page: u64) -> Walking {
        let ticket = self.allocator.ticket();
        let mut walk = WindowWalk::new(&self.config.geometry, 0, page);
        let mut seen = None;
        loop {
            match walk.need() {
                WindowNeed::Word { address, level } => {
                    let word = self.bus.peek(address);
                    if level + 1 == self.config.geometry.levels() {
                        seen = Some(word);
                    }
                    walk.take(Some(word));
                }
                WindowNeed::Nothing(found) => {
                    return Walking { page, ticket, seen, found, is_kept: true };
                }
            }
        }
    }

    /// What a walk of a page finds.
    pub(super) fn translation(&mut self, page: u64) -> Result<WindowMapping, WindowFault> {
        self.walk(page).found
    }

    /// A walk that ends later.
    pub(super) fn begin_walk(&mut self, page: u64) {
        let walk = self.walk(page);
        self.walking.push(walk);
    }

    pub(super) fn end_walk(&mut self) -> Checked {
        if self.walking.is_empty() {
            return Ok(());
        }
        let walk = self.walking.remove(0);
        self.end(walk)
    }

    fn end(&mut self, walk: Walking) -> Checked {
        self.finish(walk, Access::Read).map(drop)
    }

    fn finish(
        &mut self,
        walk: Walking,
        access: Access,
    ) -> Result<Result<WindowMapping, WindowFault>, String> {
        let Walking { page, ticket, seen, found, is_kept } = walk;
        let result = if self.allocator.is_gated(page) {
            Err(WindowFault::NotMapped)
        } else if found == Err(WindowFault::NotMapped) {
            self.allocator.touch(&mut self.bus, Touch { page, access, seen, ticket })
        } else {
            found
        };
        if found == Err(WindowFault::BadEntry) {
            return Err(format!("page {page}: {seen:?} makes no sense"));
        }
        self.bus.made_valid.clear();
        if let Some(mapping) = result.ok().filter(|_| is_kept) {
            self.held.insert(page, mapping);
        }
        Ok(result)
    }

    /// What somebody holds for a page: its own translation, or that of a run around it.
    fn held(&self, page: u64) -> Option<WindowMapping> {
        let around = |(at, held): &(&u64, &WindowMapping)| **at >> held.size == page >> held.size;
        let (&at, &held) = self.held.iter().find(around)?;
        let frame = (u64::from(held.frame) + page).wrapping_sub(at) as u32;
        Some(WindowMapping { frame, ..held })
    }

    /// An access to page `index` of what begins at `first`, or anywhere.
    pub(super) fn access(&mut self, page: u64, access: Access) -> Checked {
        let held = self.held(page);
        let result = match held {
            Some(mapping) => Ok(mapping),
            None => {
                let walk = self.walk(page);
                self.finish(walk, access)?
            }
        };
        let token = self.next_token;
        self.next_token += 1;
        let stays = |waiting: &Waiting| match *waiting {
            Waiting::Free(_) => false,
            Waiting::Realloc { first, pages, .. } => {
                let shrinks = self.live.get(&first).is_some_and(|of| pages < of.pages);
                shrinks && (first..first + pages).contains(&page)
            }
        };
        let waits = self.waiting.as_ref();
        let is_dying =
            waits.is_some_and(|(waiting, pages)| pages.contains(page) && !stays(waiting));
        let around = self.live.range_mut(..=page).next_back();
        let found = around.filter(|(first, allocation)| page < **first + allocation.pages);
        let Some((first, allocation)) = found.filter(|_| !is_dying) else {
            return match result {
                Err(WindowFault::NotMapped | WindowFault::BusError) => Ok(()),
                _ if self.is_quarantining() => Ok(()),
                _ if is_dying && held.is_some() => Ok(()),
                other => Err(format!("page {page} is nobody's, and is {other:?}")),
            };
        };
        let index = page - first;
        let may_write = allocation.rights == Rights::ReadWrite;
        match result {
            Err(WindowFault::NoFrame) if !allocation.eager.contains(&index) => Ok(()),
            Err(WindowFault::BusError) => Ok(()),
            Err(WindowFault::ReadOnly) if access == Access::Write && !may_write => Ok(()),
            Err(fault) => Err(format!("page {page}: {fault:?} of {allocation:?}")),
            Ok(mapping) => {
                let is_right =
                    (mapping.memory, mapping.rights) == (allocation.memory, allocation.rights);
                if !is_right {
                    return Err(format!("page {page} is {mapping:?}, not {allocation:?}"));
                }
                let at = (mapping.memory, mapping.frame);
                if access == Access::Write && may_write {
                    allocation.touched.insert(index, token);
                    self.data.insert(at, token);
                    return Ok(());
                }
                let expected = allocation.touched.get(&index);
                if expected.is_some_and(|expected| self.data.get(&at) != Some(expected)) {
                    return Err(format!("page {page}: the bytes of another"));
                }
                Ok(())
            }
        }
    }

    /// At a quiet point: the tables say what was asked for, and everything else is free.
    pub(super) fn check(&mut self) -> Checked {
        self.settle()?;
        let pages = 1 << (self.config.geometry.window_bits() - 12);
        let mut frames = BTreeSet::new();
        let live = self.live.clone();
        let mut at = live.iter();
        let mut current = at.next();
        for page in 0..pages {
            while current.is_some_and(|(first, allocation)| page >= first + allocation.pages) {
                current = at.next();
            }
            let walk = self.walk(page);
            match current.filter(|(first, _)| page >= **first) {
                None if self.is_quarantining() => {}
                None if walk.found != Err(WindowFault::NotMapped) => {
                    return Err(format!("page {page} is free, and is {:?}", walk.found));
                }
                None if walk.seen.is_some_and(|seen| seen != 0) => {
                    return Err(format!("the word of free page {page} is {:x?}", walk.seen));
                }
                None => {}
                Some((&first, allocation)) => {
                    self.check_page(first, allocation, &walk, &mut frames)?;
                }
            }
            if let Some(held) = self.held(page).filter(|&held| walk.found != Ok(held)) {
                let runs_alike = walk.found.is_ok_and(|found| found.frame == held.frame);
                let is_lost = self.is_quarantining()
                    && self.expected(self.address(page)) == Err(AllocError::NotAllocated);
                if !runs_alike && !is_lost {
                    return Err(format!("page {page}: {held:?} is stale, it is {:?}", walk.found));
                }
            }
        }
        self.check_frames(&frames)
    }

    fn check_page(
        &self,
        first: u64,
        allocation: &Allocation,
        walk: &Walking,
        frames: &mut BTreeSet<(u8, u32)>,
    ) -> Checked {
        let index = walk.page - first;
        let mapping = match walk.found {
            Ok(mapping) => mapping,
            Err(fault) => {
                let has_frame =
                    allocation.eager.contains(&index) || allocation.touched.contains_key(&index);
                if fault != WindowFault::NotMapped || has_frame {
                    return Err(format!("page {}: {fault:?}, of {allocation:?}", walk.page));
                }
                return Ok(());
            }
        };
        let is_new = frames.insert((mapping.memory, mapping.frame));
        let is_right = (mapping.memory, mapping.rights) == (allocation.memory, allocation.rights);
        let fixed = self.allocator.layout.fixed_frames;
        let is_fixed = mapping.memory == self.config.tables && u64::from(mapping.frame) < fixed;
        if !is_new || !is_right || is_fixed {
            return Err(format!(
                "page {}: {mapping:?}, new: {is_new}, of {allocation:?}",
                walk.page
            ));
        }
        self.check_marks(first, allocation, walk)?;
        self.check_run(first, allocation, walk.page, mapping)
    }

    /// First, last and the count of pages.
    fn check_marks(&self, first: u64, allocation: &Allocation, walk: &Walking) -> Checked {
        let Some(seen) = walk.seen else { return Ok(()) };
        let word = PageWord(seen);
        let (is_first, is_last) = (walk.page == first, walk.page + 1 == first + allocation.pages);
        let is_large = self.allocator.layout.levels > 1
            && matches!(
                self.allocator.regions.state(self.allocator.layout.region_of(first)),
                super::super::regions::Region::Large { .. }
            );
        // A count that could not be written again may be any that it had.
        let counts = is_large
            || self.is_quarantining()
            || !is_first
            || u64::from(word.entry().pages()) == allocation.pages;
        // A mark of the last page that could not be written is no harm.
        let is_left = self.allocator.counts().marks_left != 0;
        let any_last = is_left || self.bus.failing != Failing::None || self.is_quarantining();
        let marks =
            word.entry().is_first() == is_first && (any_last || word.entry().is_last() == is_last);
        if word.state() != PageState::Mapped || !counts || !marks {
            return Err(format!("page {}: {seen:#x}, of {allocation:?}", walk.page));
        }
        Ok(())
    }

    /// A run is aligned, in frames that are aligned alike, all of one allocation.
    fn check_run(
        &self,
        first: u64,
        allocation: &Allocation,
        page: u64,
        mapping: WindowMapping,
    ) -> Checked {
        let begin = page >> mapping.size << mapping.size;
        let frame = u64::from(mapping.frame) - (page - begin);
        let mut world = World { bus: self.bus.clone(), ..World::uninitialised(&self.config) };
        for within in 0..1 << mapping.size {
            let other = world.walk(begin + within).found;
            let is_alike = other.is_ok_and(|other| {
                let is_size = other.size == mapping.size || self.is_quarantining();
                u64::from(other.frame) == frame + within && is_size
            });
            let is_inside = (first..first + allocation.pages).contains(&(begin + within));
            if !is_alike || !is_inside || frame % (1 << mapping.size) != 0 {
                return Err(format!("page {page}: {mapping:?} is no run, at {within}: {other:?}"));
            }
        }
        Ok(())
    }

    fn check_frames(&self, mapped: &BTreeSet<(u8, u32)>) -> Checked {
        let quarantined = self.is_quarantining();
        for (memory, &all) in self.config.memories.iter().enumerate() {
            let memory = memory as u8;
            let mut used = mapped.iter().filter(|frame| frame.0 == memory).count() as u64;
            if memory == self.config.tables {
                used += self.allocator.layout.fixed_frames + self.allocator.table_frames();
            }
            let free = self.allocator.free_frames(memory);
            if used + free != u64::from(all) && !(quarantined && used + free < u64::from(all)) {
                return Err(format!("memory {memory}: {used} used and {free} free of {all}"));
            }
        }
        if self.allocator.counts().bad_words != 0 {
            return Err("words named frames that were not in use".into());
        }
        Ok(())
    }
}
