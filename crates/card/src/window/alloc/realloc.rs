//! Another size: in place, or elsewhere. Words move, never data.

use farside_types::Rights;

use super::allocator::{AllocStep, Allocator, Kind, Pending};
use super::backing::{Backing, Written};
use super::bus::{TableBus, WindowPages};
use super::large::Plan;
use super::malloc::Place;
use super::mutation::AllocMutation;
use super::regions::{Large, Part, Region};
use super::status::AllocError;
use super::sweep::{Dying, Stage};
use super::tables::Table;
use super::word::{PageState, PageWord};

/// An allocation that waits for the accesses to its old place to end.
#[derive(Clone, Debug)]
pub(super) struct Move {
    old: WindowPages,
    /// Of the allocation, when it has moved.
    pages: u64,
    backing: Backing,
    target: Target,
}

#[derive(Clone, Debug)]
enum Target {
    /// Among small ones.
    Place(Place),
    /// A small one becomes large: its words go to the table of the first region.
    Large { first: u64, table: Table, plan: Plan },
    /// A large one moves by its regions.
    Regions { first: u64, plan: Plan },
}

impl Allocator {
    pub(super) fn realloc(
        &mut self,
        bus: &mut impl TableBus,
        address: u64,
        pages: u64,
        lazy: bool,
    ) -> Result<AllocStep, AllocError> {
        let found = self.locate(bus, address, true)?;
        if pages == found.pages.count {
            return Ok(AllocStep::Answer(Ok(address)));
        }
        if pages < found.pages.count {
            return self.shrink(bus, &found, pages);
        }
        let (memory, rights) = (found.memory(), found.rights());
        let backing = Backing { memory, rights, lazy, first: None, last: 0 };
        if !lazy && self.frames.available(memory) < pages - found.pages.count {
            return Err(AllocError::NoFrames);
        }
        match found.kind {
            Kind::Small { table, word } => {
                let within = self.layout.within(found.pages.first);
                let (end, extra) = (within + found.pages.count, pages - found.pages.count);
                let takes = self.mutated.on(AllocMutation::GrowthTakesWhatIsTaken);
                let fits = within + pages <= self.layout.region_pages();
                if fits && (self.places.are_free(end, extra) || takes) {
                    self.grow_small(bus, found.pages, table, word, pages, backing)
                } else {
                    self.move_small(bus, found.pages, pages, backing)
                }
            }
            Kind::Large(_) => self.grow_large(bus, found.pages, pages, backing),
        }
    }

    /// Two accesses: the words of the new pages, and the first one's count, are written together.
    fn grow_small(
        &mut self,
        bus: &mut impl TableBus,
        old: WindowPages,
        table: Table,
        word: PageWord,
        pages: u64,
        backing: Backing,
    ) -> Result<AllocStep, AllocError> {
        let extra = WindowPages::new(old.end(), pages - old.count);
        let region = self.layout.region_of(old.first);
        let within = self.layout.within(old.end());
        let place = Place { region, table, within, is_new: false };
        self.claim(place, extra.count);
        let backing = Backing { last: extra.end() - 1, ..backing };
        let written = self.back(bus, table, extra, &backing);
        let forgets = self.mutated.on(AllocMutation::GrowthForgetsCount);
        let leaves = self.mutated.on(AllocMutation::GrowthLeavesLast);
        let counted = if forgets { word } else { word.with_pages(pages) };
        let was_last = word.entry().is_last() && leaves;
        let first_address = self.word_address(table, old.first);
        bus.write(first_address, counted.bounding(true, was_last).0);
        if bus.wait().is_err() {
            bus.write(first_address, word.0);
            if bus.wait().is_ok() {
                self.unplace(bus, place, extra.count, &written);
            } else {
                // Nobody knows how many pages it has: none of them is used for anything else.
                self.counts.quarantined += extra.count;
                self.doubt(old.first);
            }
            self.touches.words_changed();
            return Err(AllocError::BusError);
        }
        if old.count > 1 && !leaves {
            self.trailing = Some(old.end() - 1);
        }
        self.touches.words_changed();
        bus.made_valid(extra);
        Ok(AllocStep::Answer(Ok(self.address_of(old.first))))
    }

    /// Finds the new place, with everything that it needs, and closes the gate to the old one.
    fn move_small(
        &mut self,
        bus: &mut impl TableBus,
        old: WindowPages,
        pages: u64,
        backing: Backing,
    ) -> Result<AllocStep, AllocError> {
        let target = if self.is_large(pages) {
            self.large_target(bus, old.count, pages, &backing)?
        } else {
            let place = self.find_place(bus, pages, true)?;
            if !backing.lazy {
                if self.frames.available(backing.memory) < pages - old.count {
                    self.abandon(place);
                    return Err(AllocError::NoFrames);
                }
                self.frames.reserve(backing.memory, pages - old.count);
            }
            self.claim(place, pages);
            Target::Place(place)
        };
        Ok(self.begin_move(Move { old, pages, backing, target }, false))
    }

    fn large_target(
        &mut self,
        bus: &mut impl TableBus,
        from: u64,
        pages: u64,
        backing: &Backing,
    ) -> Result<Target, AllocError> {
        let regions = self.regions_for(pages);
        let first = self.regions.empty_row(regions).ok_or(AllocError::NoSpace)?;
        let table = self.zeroed_table(bus)?;
        let part = |after| if after == 0 { Part::Table(table) } else { Part::Nothing };
        let plan = self.plan(bus, from, pages, backing, part).inspect_err(|_| {
            self.tables.give_back(table, true, &mut self.frames);
        })?;
        self.claim_regions(first, 0, regions);
        Ok(Target::Large { first, table, plan })
    }

    fn begin_move(&mut self, moving: Move, is_large: bool) -> AllocStep {
        let old = moving.old;
        self.dying.push_back(Dying::moved(old, is_large));
        self.pending = Some(Pending::Move(Box::new(moving)));
        AllocStep::Invalidate(old)
    }

    /// Nobody uses the old place any more.
    pub(super) fn finish_move(
        &mut self,
        bus: &mut impl TableBus,
        moving: Move,
    ) -> Result<u64, AllocError> {
        let (pages, old) = (moving.pages, moving.old);
        let moved = match moving.target {
            Target::Place(place) => self.move_to_place(bus, old, pages, moving.backing, place),
            Target::Large { first, table, plan } => {
                self.move_to_large(bus, old, pages, moving.backing, first, table, plan)
            }
            Target::Regions { first, plan } => {
                self.move_regions(bus, old, pages, moving.backing, first, plan)
            }
        };
        self.touches.words_changed();
        match moved {
            Ok(page) => {
                bus.made_valid(WindowPages::new(page, pages));
                Ok(self.address_of(page))
            }
            Err(error) => {
                // It is where it was.
                self.dying.retain(|dying| dying.stage != Stage::Draining);
                Err(error)
            }
        }
    }

    fn move_to_place(
        &mut self,
        bus: &mut impl TableBus,
        old: WindowPages,
        pages: u64,
        backing: Backing,
        place: Place,
    ) -> Result<u64, AllocError> {
        let extra = pages - old.count;
        if !backing.lazy {
            self.frames.unreserve(backing.memory, extra);
        }
        let page = self.first_page(place);
        let words = match self.words_of(bus, old, (backing.memory, backing.rights)) {
            Ok(words) => words,
            Err(error) => {
                self.unplace(bus, place, pages, &[]);
                return Err(error);
            }
        };
        let mut written = self.copy(bus, old, words, page, place.table, Some(pages));
        let backing = Backing { last: page + pages - 1, ..backing };
        let added = WindowPages::new(page + old.count, extra);
        written.extend(self.back(bus, place.table, added, &backing));
        if bus.wait().is_err() || self.link(bus, place).is_err() {
            self.unplace(bus, place, pages, &written);
            return Err(AllocError::BusError);
        }
        Ok(page)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one move")]
    fn move_to_large(
        &mut self,
        bus: &mut impl TableBus,
        old: WindowPages,
        pages: u64,
        backing: Backing,
        first: u64,
        table: Table,
        plan: Plan,
    ) -> Result<u64, AllocError> {
        let page = first << self.layout.leaf_bits;
        let regions = self.regions_for(pages);
        let words = match self.words_of(bus, old, (backing.memory, backing.rights)) {
            Ok(words) => words,
            Err(error) => {
                self.cancel(&plan, backing.memory);
                self.give_up(bus, first, regions, table, &[]);
                return Err(error);
            }
        };
        let written = self.copy(bus, old, words, page, table, None);
        let linked = bus.wait().and_then(|()| self.direct(bus, first, self.link_word(table)));
        if linked.is_err() {
            self.cancel(&plan, backing.memory);
            self.give_up(bus, first, regions, table, &written);
            return Err(AllocError::BusError);
        }
        let added = WindowPages::new(old.count, pages - old.count);
        if let Err(error) = self.carry_out(bus, first, plan, added, backing) {
            self.give_up(bus, first, regions, table, &written);
            return Err(error);
        }
        self.regions.set_part(first, Part::Table(table));
        let Backing { memory, rights, .. } = backing;
        self.regions.set_large(first, Some(Large { pages, memory, rights }));
        Ok(page)
    }

    /// Regions to which nothing moved after all. The first one is quarantined if copied words stay in its table.
    fn give_up(
        &mut self,
        bus: &mut impl TableBus,
        first: u64,
        regions: u64,
        table: Table,
        written: &[Written],
    ) {
        let is_held = !self.unwrite(bus, written).is_empty();
        if self.unlink(bus, first).is_err() || is_held {
            self.counts.quarantined += self.layout.region_pages();
            self.regions.set(first, Region::Retiring { table: None }, 0);
        } else {
            self.tables.give_back(table, false, &mut self.frames);
            self.regions.set(first, Region::Empty, 0);
        }
        self.empty_claimed(first, 1, regions);
    }

    /// Regions from the `from`th on that were claimed, and are not quarantined, are nobody's.
    pub(super) fn empty_claimed(&mut self, first: u64, from: u64, to: u64) {
        for region in first + from..first + to {
            if matches!(self.regions.state(region), Region::Large { .. }) {
                self.regions.set(region, Region::Empty, 0);
            }
        }
    }

    /// The words of a small allocation.
    fn words_of(
        &self,
        bus: &mut impl TableBus,
        pages: WindowPages,
        like: (u8, Rights),
    ) -> Result<Vec<PageWord>, AllocError> {
        let region = self.layout.region_of(pages.first);
        let table = self.regions.table(region).ok_or(AllocError::BadEntry)?;
        let range = pages.first..pages.end();
        let words: Vec<_> = range.map(|page| bus.read(self.word_address(table, page))).collect();
        bus.wait()?;
        let words: Result<Vec<u64>, _> = words.into_iter().collect();
        let words: Vec<PageWord> = words?.into_iter().map(PageWord).collect();
        let is_sound = self.are_alike(pages.first, pages.first, &words, like, false);
        if is_sound { Ok(words) } else { Err(AllocError::BadEntry) }
    }

    /// Writes words where the pages are now: of a small allocation of `count` pages, or of a large one, where
    /// pages without a frame have no word.
    fn copy(
        &mut self,
        bus: &mut impl TableBus,
        old: WindowPages,
        words: Vec<PageWord>,
        page: u64,
        table: Table,
        count: Option<u64>,
    ) -> Vec<Written> {
        // A run stays one as far as both places are aligned alike.
        let size_max = page.wrapping_sub(old.first).trailing_zeros();
        let keeps = self.mutated.on(AllocMutation::MoveKeepsSizes);
        let mut written = Vec::new();
        for (index, word) in words.into_iter().enumerate() {
            if word.state() == PageState::Reserved && count.is_none() {
                continue;
            }
            let size = word.entry().size();
            let size = if keeps { size } else { size.min(size_max) };
            let word = word.with_size(size);
            let word = word.bounding(index == 0, false);
            let word = if index == 0 { word.with_pages(count.unwrap_or(1)) } else { word };
            let page = page + index as u64;
            let address = self.word_address(table, page);
            bus.write(address, word.0);
            written.push(Written { address, page, size, frame: None });
        }
        written
    }

    fn grow_large(
        &mut self,
        bus: &mut impl TableBus,
        old: WindowPages,
        pages: u64,
        backing: Backing,
    ) -> Result<AllocStep, AllocError> {
        let first = self.layout.region_of(old.first);
        let (has, needs) = (self.regions_for(old.count), self.regions_for(pages));
        // What it has shrunk by is not swept yet, and lies where it would grow to.
        let own = WindowPages::new(old.first, has << self.layout.leaf_bits);
        if self.dying.iter().any(|dying| own.contains(dying.pages.first)) {
            return Err(AllocError::Busy);
        }
        // A word that could not be zeroed behind its end would be one of its own, with a run of whatever pages.
        if (first..first + has).any(|region| self.regions.is_tainted(region)) {
            return Err(AllocError::BusError);
        }
        let parts: Vec<Part> =
            (first..first + has).map(|region| self.regions.part(region)).collect();
        let part = |after: u64| parts.get(after as usize).copied().unwrap_or(Part::Nothing);
        let in_place = has == needs || self.regions.are_empty(first + has, needs - has);
        let target = if in_place { None } else { Some(self.regions.empty_row(needs)) };
        if target == Some(None) {
            return Err(AllocError::NoSpace);
        }
        let plan = self.plan(bus, old.count, pages, &backing, part)?;
        if let Some(Some(first)) = target {
            self.claim_regions(first, 0, needs);
            let target = Target::Regions { first, plan };
            return Ok(self.begin_move(Move { old, pages, backing, target }, true));
        }
        self.claim_regions(first, has, needs);
        let added = WindowPages::new(old.count, pages - old.count);
        self.carry_out(bus, first, plan, added, backing)?;
        self.take_last_mark(bus, old.end() - 1, &backing);
        self.set_pages(first, pages);
        self.touches.words_changed();
        bus.made_valid(WindowPages::new(old.end(), added.count));
        Ok(AllocStep::Answer(Ok(self.address_of(old.first))))
    }

    fn set_pages(&mut self, first: u64, pages: u64) {
        let large = self.regions.large(first).map(|large| Large { pages, ..large });
        self.regions.set_large(first, large);
    }

    /// A page of a large allocation is the last no more. The mark means nothing to a walk: one that stays is counted.
    fn take_last_mark(&mut self, bus: &mut impl TableBus, page: u64, backing: &Backing) {
        let region = self.layout.region_of(page);
        match self.regions.part(region) {
            Part::Nothing => {}
            Part::Table(_) => self.trailing = Some(page),
            Part::Run(frame) => {
                let word = self.run_word(region, frame, (backing.memory, backing.rights), false);
                self.counts.marks_left += u64::from(self.direct(bus, region, word).is_err());
            }
        }
    }

    fn move_regions(
        &mut self,
        bus: &mut impl TableBus,
        old: WindowPages,
        pages: u64,
        backing: Backing,
        first: u64,
        plan: Plan,
    ) -> Result<u64, AllocError> {
        let from = self.layout.region_of(old.first);
        let has = self.regions_for(old.count);
        for after in 0..has {
            let part = self.regions.part(from + after);
            self.regions.set_part(first + after, part);
            if self.regions.is_tainted(from + after) {
                self.regions.taint(first + after);
            }
            let word = match part {
                Part::Nothing => continue,
                Part::Table(table) => self.link_word(table),
                Part::Run(frame) => {
                    self.run_word(first + after, frame, (backing.memory, backing.rights), false)
                }
            };
            bus.write(self.layout.directory_word(first + after), word);
        }
        let added = WindowPages::new(old.count, pages - old.count);
        let done = match bus.wait() {
            Ok(()) => self.carry_out(bus, first, plan, added, backing),
            Err(_) => {
                self.cancel(&plan, backing.memory);
                Err(AllocError::BusError)
            }
        };
        if let Err(error) = done {
            self.undo_move_regions(bus, first, has, self.regions_for(pages));
            return Err(error);
        }
        let Backing { memory, rights, .. } = backing;
        self.regions.set_large(first, Some(Large { pages, memory, rights }));
        self.leave_regions(bus, from, has);
        let last = (first << self.layout.leaf_bits) + old.count - 1;
        if matches!(self.regions.part(self.layout.region_of(last)), Part::Table(_)) {
            self.trailing = Some(last);
        }
        Ok(first << self.layout.leaf_bits)
    }

    fn undo_move_regions(&mut self, bus: &mut impl TableBus, first: u64, has: u64, needs: u64) {
        for region in first..first + has {
            if self.unlink(bus, region).is_err() {
                self.counts.quarantined += self.layout.region_pages();
                self.regions.set(region, Region::Retiring { table: None }, 0);
            }
        }
        self.empty_claimed(first, 0, needs);
    }

    /// The old regions lead nowhere; one that cannot be told so stays out of use.
    fn leave_regions(&mut self, bus: &mut impl TableBus, from: u64, has: u64) {
        for region in from..from + has {
            let had = self.regions.part(region) != Part::Nothing;
            self.regions.set_part(region, Part::Nothing);
            if had && self.unlink(bus, region).is_err() {
                self.counts.quarantined += self.layout.region_pages();
                self.regions.taint(region);
            }
        }
    }
}
