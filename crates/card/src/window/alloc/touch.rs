//! Authoritative look-up: pages get their frames when they are touched.

use std::collections::VecDeque;

use farside_types::Access;

use super::super::{WindowFault, WindowMapping, WindowNeed, WindowWalk};
use super::allocator::Allocator;
use super::bus::{TableBus, WindowPages};
use super::mutation::AllocMutation;
use super::regions::{Large, Part, Region};
use super::status::AllocError;
use super::tables::Table;
use super::word::{PageState, PageWord};

/// Touches that are remembered.
const TOUCHES: usize = 16;

/// A walk that found nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// The page, counted from the window's begin.
    pub page: u64,
    /// What for.
    pub access: Access,
    /// The word of the leaf level that the walk read, if it came so far.
    pub seen: Option<u64>,
    /// [`Allocator::ticket`] of before it read that.
    pub ticket: u64,
}

/// What has changed while walks were under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Touches {
    /// Changes so far: touches, and commands that wrote words.
    changes: u64,
    /// Of the last command.
    changed_at: u64,
    /// The last touches, with the words as they are since.
    latest: VecDeque<(u64, u64)>,
}

impl Touches {
    /// A command has written words: what walks from before have read may be old.
    pub(super) fn words_changed(&mut self) {
        self.changes += 1;
        self.changed_at = self.changes;
    }

    fn touched(&mut self, page: u64, word: u64) {
        self.changes += 1;
        self.latest.push_front((page, word));
        self.latest.truncate(TOUCHES);
    }

    /// The word of a page as it is now, if that can be said without reading it.
    fn word(&self, touch: &Touch) -> Option<u64> {
        let since = self.changes.checked_sub(touch.ticket)?;
        if touch.ticket < self.changed_at || since > self.latest.len() as u64 {
            return None;
        }
        let changed = self.latest.iter().take(since as usize).find(|(page, _)| *page == touch.page);
        changed.map(|&(_, word)| word).or(touch.seen)
    }
}

impl Allocator {
    /// For a walk that begins now.
    pub fn ticket(&self) -> u64 {
        self.touches.changes
    }

    /// Where a page is, counted from the window's begin: found by a walk, or given a frame now. For a card whose walks
    /// and commands come one after the other.
    ///
    /// # Errors
    ///
    /// Why it cannot be reached.
    pub fn translate(
        &mut self,
        bus: &mut impl TableBus,
        page: u64,
        access: Access,
    ) -> Result<WindowMapping, WindowFault> {
        let ticket = self.ticket();
        let (found, seen) = self.walk(bus, page);
        match found {
            Err(WindowFault::NotMapped) if self.has(page) && !self.is_gated(page) => {
                self.touch(bus, Touch { page, access, seen, ticket })
            }
            Ok(mapping) if !mapping.rights.allows(access) => Err(WindowFault::ReadOnly),
            other => other,
        }
    }

    /// Where a page is that has a frame and may be reached; none is given.
    pub fn find(&self, bus: &mut impl TableBus, page: u64) -> Option<WindowMapping> {
        self.walk(bus, page).0.ok()
    }

    /// Where a page is, counted from the window's begin; `None`: it is allocated, and was never touched. None is given.
    ///
    /// # Errors
    ///
    /// It is not allocated, or that cannot be read.
    pub fn peek(
        &self,
        bus: &mut impl TableBus,
        page: u64,
    ) -> Result<Option<WindowMapping>, WindowFault> {
        if let Some(found) = self.find(bus, page) {
            return Ok(Some(found));
        }
        let region = self.layout.region_of(page);
        if region >= self.layout.regions || self.is_gated(page) {
            return Err(WindowFault::NotMapped);
        }
        let is_allocated = match self.regions.state(region) {
            Region::Empty | Region::Retiring { .. } => false,
            Region::Shared { table, .. } => {
                let word = bus.read(self.word_address(table, page));
                let word = word.map_err(|_| WindowFault::BusError)?;
                PageWord(word).state() == PageState::Reserved
            }
            Region::Large { after, .. } => {
                let first = region - after;
                let index = page - (first << self.layout.leaf_bits);
                self.regions.large(first).is_some_and(|large| index < large.pages)
            }
        };
        if is_allocated { Ok(None) } else { Err(WindowFault::NotMapped) }
    }

    fn has(&self, page: u64) -> bool {
        let geometry = &self.config.geometry;
        page >> (geometry.window_bits() - geometry.page_bits()) == 0
    }

    /// What a walk finds, and the page's word, if it has come to it.
    fn walk(
        &self,
        bus: &mut impl TableBus,
        page: u64,
    ) -> (Result<WindowMapping, WindowFault>, Option<u64>) {
        if !self.has(page) {
            return (Err(WindowFault::NotMapped), None);
        }
        let geometry = &self.config.geometry;
        let mut walk = WindowWalk::new(geometry, 0, page);
        let mut seen = None;
        let found = loop {
            match walk.need() {
                WindowNeed::Nothing(found) => break found,
                WindowNeed::Word { address, level } => {
                    let word = bus.read(address).ok();
                    seen = word.filter(|_| level + 1 == geometry.levels());
                    walk.take(word);
                }
            }
        };
        let gated = self.is_gated(page);
        (if gated { Err(WindowFault::NotMapped) } else { found }, seen)
    }

    /// Where a page is that a walk did not find: where it got a frame meanwhile, or where it gets one now.
    ///
    /// # Errors
    ///
    /// Why it cannot be reached.
    pub fn touch(
        &mut self,
        bus: &mut impl TableBus,
        touch: Touch,
    ) -> Result<WindowMapping, WindowFault> {
        let result = self.look_up(bus, &touch);
        let allowed = result.and_then(|mapping| {
            let is_allowed = mapping.rights.allows(touch.access);
            if is_allowed { Ok(mapping) } else { Err(WindowFault::ReadOnly) }
        });
        self.counts.faults += u64::from(allowed.is_err());
        allowed
    }

    fn look_up(
        &mut self,
        bus: &mut impl TableBus,
        touch: &Touch,
    ) -> Result<WindowMapping, WindowFault> {
        let page = touch.page;
        let region = self.layout.region_of(page);
        if region >= self.layout.regions || self.is_gated(page) {
            return Err(WindowFault::NotMapped);
        }
        match self.regions.state(region) {
            Region::Empty | Region::Retiring { .. } => Err(WindowFault::NotMapped),
            Region::Shared { table, .. } => {
                let word = self.word_now(bus, touch, table)?;
                self.give_frame(bus, touch, table, word)
            }
            Region::Large { after, part } => {
                let first = region - after;
                let index = page - (first << self.layout.leaf_bits);
                let large = self.regions.large(first).filter(|large| index < large.pages);
                let large = large.ok_or(WindowFault::NotMapped)?;
                self.look_up_large(bus, touch, large, index, part)
            }
        }
    }

    fn word_now(
        &self,
        bus: &mut impl TableBus,
        touch: &Touch,
        table: Table,
    ) -> Result<PageWord, WindowFault> {
        let trusts = self.mutated.on(AllocMutation::TouchTrustsOldWord);
        let known = if trusts { touch.seen } else { self.touches.word(touch) };
        if let Some(word) = known {
            return Ok(PageWord(word));
        }
        let word = bus.read(self.word_address(table, touch.page));
        bus.wait().map_err(|_| WindowFault::BusError)?;
        word.map(PageWord).map_err(|_| WindowFault::BusError)
    }

    fn look_up_large(
        &mut self,
        bus: &mut impl TableBus,
        touch: &Touch,
        large: Large,
        index: u64,
        part: Part,
    ) -> Result<WindowMapping, WindowFault> {
        let Large { memory, rights, pages } = large;
        // As the page's word would be if it were written.
        let reserved = PageWord::reserved(memory, rights).bounding(index == 0, index + 1 == pages);
        match part {
            Part::Run(frame) => {
                let frame = frame + self.layout.within(touch.page) as u32;
                Ok(WindowMapping { frame, memory, rights, size: self.layout.leaf_bits })
            }
            Part::Table(table) => {
                if touch.seen.is_none() {
                    // The walk is from before, or a write of the directory has failed.
                    let region = self.layout.region_of(touch.page);
                    let linked = self.direct(bus, region, self.link_word(table));
                    linked.map_err(|_| WindowFault::BusError)?;
                }
                let word = self.word_now(bus, touch, table)?;
                let is_untouched = word.state() == PageState::Free;
                self.give_frame(bus, touch, table, if is_untouched { reserved } else { word })
            }
            Part::Nothing => self.first_of_region(bus, touch, reserved),
        }
    }

    /// The first touch in a region of a large allocation: it gets a table.
    fn first_of_region(
        &mut self,
        bus: &mut impl TableBus,
        touch: &Touch,
        word: PageWord,
    ) -> Result<WindowMapping, WindowFault> {
        if !word.entry().rights().allows(touch.access) {
            return Err(WindowFault::ReadOnly);
        }
        if self.frames.available(word.entry().memory()) == 0 {
            return Err(WindowFault::NoFrame);
        }
        let table = self.zeroed_table(bus).map_err(|error| match error {
            AllocError::NoFrames => WindowFault::NoFrame,
            _ => WindowFault::BusError,
        })?;
        let region = self.layout.region_of(touch.page);
        let given = self.give_frame(bus, touch, table, word);
        if given.is_ok() && self.direct(bus, region, self.link_word(table)).is_ok() {
            self.regions.set_part(region, Part::Table(table));
            return given;
        }
        self.forget_table(bus, touch, table, region, given.ok());
        Err(given.err().unwrap_or(WindowFault::BusError))
    }

    /// A table that could not be linked, or whose word could not be written.
    fn forget_table(
        &mut self,
        bus: &mut impl TableBus,
        touch: &Touch,
        table: Table,
        region: u64,
        given: Option<WindowMapping>,
    ) {
        let linked = given.is_some();
        if linked && self.unlink(bus, region).is_err() {
            // It may be linked: it stays, with its page, which the next look-up finds.
            self.counts.quarantined += 1;
            self.regions.set_part(region, Part::Table(table));
            return;
        }
        self.touches.words_changed();
        if let Some(mapping) = given {
            self.counts.touched -= 1;
            self.frames.give_back(mapping.memory, mapping.frame, 0);
        }
        bus.write(self.word_address(table, touch.page), 0);
        let is_zero = bus.wait().is_ok();
        self.tables.give_back(table, is_zero, &mut self.frames);
    }

    fn give_frame(
        &mut self,
        bus: &mut impl TableBus,
        touch: &Touch,
        table: Table,
        word: PageWord,
    ) -> Result<WindowMapping, WindowFault> {
        if word.is_allocated() && !self.is_sound(word) {
            return Err(WindowFault::BadEntry);
        }
        match word.state() {
            PageState::Mapped => return Ok(mapping(word)),
            PageState::Free | PageState::Freed => return Err(WindowFault::NotMapped),
            PageState::Reserved => {}
        }
        if !word.entry().rights().allows(touch.access) {
            return Err(WindowFault::ReadOnly);
        }
        let (page, memory) = (touch.page, word.entry().memory());
        let hint = self.hint_for(page, memory);
        let frame = self.frames.take(memory, 0, hint).ok_or(WindowFault::NoFrame)?;
        let new = word.with_frame(frame);
        let address = self.word_address(table, page);
        bus.write(address, new.0);
        if bus.wait().is_err() && !self.mutated.on(AllocMutation::TouchIgnoresErrors) {
            // Nobody knows what is there: it is written again, or the frame stays in use.
            bus.write(address, word.0);
            if bus.wait().is_ok() {
                self.frames.give_back(memory, frame, 0);
            } else {
                self.counts.quarantined += 1;
            }
            self.touches.words_changed();
            return Err(WindowFault::BusError);
        }
        self.note_frame(page + 1, memory, frame.wrapping_add(1));
        self.touches.touched(page, new.0);
        self.counts.touched += 1;
        bus.made_valid(WindowPages::new(page, 1));
        Ok(mapping(new))
    }
}

fn mapping(word: PageWord) -> WindowMapping {
    let entry = word.entry();
    WindowMapping {
        frame: entry.place().number(),
        memory: entry.memory(),
        rights: entry.rights(),
        size: entry.size(),
    }
}
