//! The background: what was freed is swept, and tables are made ready.

use super::allocator::Allocator;
use super::bus::{TableBus, WindowPages};
use super::mutation::AllocMutation;
use super::regions::{Part, Region};
use super::tables::Table;
use super::word::{PageWord, runs_into};

/// Words of one step.
const STEP_WORDS: u64 = 512;

/// How far a dying range is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Its invalidation is not done: accesses may be under way.
    Draining,
    /// Nobody has a translation or gets one.
    Sweeping,
    /// Its words are 0; walks from before may be under way.
    Ending,
}

/// Pages that no allocation has any more.
#[derive(Clone, Debug)]
pub(super) struct Dying {
    pub(super) pages: WindowPages,
    pub(super) stage: Stage,
    is_large: bool,
    /// Its first page begins an allocation.
    begins: bool,
    /// Its frames have moved elsewhere.
    keeps_frames: bool,
    /// The next page to sweep.
    at: u64,
    /// Pages that cannot be swept.
    held: Vec<u64>,
}

impl Dying {
    /// A whole allocation.
    pub(super) fn freed(pages: WindowPages, is_large: bool) -> Dying {
        let (stage, at) = (Stage::Draining, pages.first);
        let (begins, keeps_frames) = (true, false);
        Dying { pages, stage, is_large, begins, keeps_frames, at, held: Vec::new() }
    }

    /// One whose frames are elsewhere now.
    pub(super) fn moved(pages: WindowPages, is_large: bool) -> Dying {
        Dying { keeps_frames: true, ..Dying::freed(pages, is_large) }
    }

    /// The pages that one has lost.
    pub(super) fn cut(pages: WindowPages, is_large: bool) -> Dying {
        Dying { begins: false, ..Dying::freed(pages, is_large) }
    }

    /// A region that nobody has any more, of which only the invalidation is left.
    fn swept(pages: WindowPages) -> Dying {
        let swept = Dying::freed(pages, false);
        Dying { stage: Stage::Sweeping, at: pages.end(), ..swept }
    }
}

impl Dying {
    /// Whether a word is of another allocation: the count of pages was not that of the allocation.
    fn is_anothers(&self, page: u64, word: PageWord) -> bool {
        let begins = self.begins && page == self.pages.first;
        !self.is_large && word.entry().is_first() && !begins
    }
}

/// What came of a step of the background.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SweepStep {
    /// There was nothing to do, or nothing that can be done now.
    Idle,
    /// Something was done.
    More,
    /// These pages have to be invalidated; [`Allocator::swept`] when that is done.
    Invalidate(WindowPages),
}

impl Allocator {
    /// One step of the background: at most 512 words of what was freed, or a table that is made ready.
    pub fn sweep(&mut self, bus: &mut impl TableBus) -> SweepStep {
        match self.dying.pop_front() {
            Some(dying) if dying.stage == Stage::Sweeping => self.sweep_some(bus, dying),
            Some(dying) => {
                self.dying.push_front(dying);
                self.keep_house(bus)
            }
            None => self.keep_house(bus),
        }
    }

    fn sweep_some(&mut self, bus: &mut impl TableBus, mut dying: Dying) -> SweepStep {
        if dying.at < dying.pages.end() {
            self.sweep_words(bus, &mut dying);
            self.dying.push_front(dying);
            return SweepStep::More;
        }
        self.retire(bus, &dying);
        dying.stage = Stage::Ending;
        let pages = dying.pages;
        self.dying.push_front(dying);
        if self.mutated.on(AllocMutation::PlacesFreeEarly) {
            self.swept(bus);
            return SweepStep::More;
        }
        SweepStep::Invalidate(pages)
    }

    fn sweep_words(&mut self, bus: &mut impl TableBus, dying: &mut Dying) {
        let region = self.layout.region_of(dying.at);
        let region_end = (region + 1) << self.layout.leaf_bits;
        let end = dying.pages.end().min(region_end);
        if let Some(table) = self.regions.table(region) {
            // No run goes beyond a step.
            let count = (STEP_WORDS - dying.at % STEP_WORDS).min(end - dying.at);
            dying.at = self.sweep_table(bus, dying, table, count);
            return;
        }
        if let Part::Run(frame) = self.regions.part(region) {
            self.sweep_run(bus, dying, region, frame);
        }
        dying.at = end;
    }

    fn sweep_run(&mut self, bus: &mut impl TableBus, dying: &Dying, region: u64, frame: u32) {
        let region_pages = self.layout.region_pages();
        self.counts.swept += region_pages;
        if self.unlink(bus, region).is_err() {
            self.counts.quarantined += region_pages;
            self.regions.taint(region);
            return;
        }
        let large = self.regions.large(self.first_of(region));
        let memory = large.map(|large| large.memory);
        self.regions.set_part(region, Part::Nothing);
        let gives = !dying.keeps_frames && !self.mutated.on(AllocMutation::SweepLosesFrames);
        let Some(memory) = memory.filter(|_| gives) else { return };
        if !self.frames.give_back(memory, frame, self.layout.leaf_bits) {
            self.counts.bad_words += 1;
        }
    }

    /// The first region of the large allocation that a region belongs to.
    fn first_of(&self, region: u64) -> u64 {
        match self.regions.state(region) {
            Region::Large { after, .. } => region - after,
            _ => region,
        }
    }

    /// Returns the page to go on with.
    fn sweep_table(
        &mut self,
        bus: &mut impl TableBus,
        dying: &mut Dying,
        table: Table,
        count: u64,
    ) -> u64 {
        let pages = dying.at..dying.at + count;
        let mut next = pages.end;
        let words: Vec<_> =
            pages.map(|page| (page, bus.read(self.word_address(table, page)))).collect();
        let (mut swept, mut failed) = (Vec::new(), Vec::new());
        let was_tainted = self.regions.is_tainted(self.layout.region_of(dying.at));
        // A wait without writes cannot fail.
        let _ = bus.wait();
        let leaves = self.mutated.on(AllocMutation::SweepLeavesWords);
        let stops = !self.mutated.on(AllocMutation::SweepTakesOthers);
        for (page, word) in words {
            match word {
                Err(_) => {
                    self.hold(dying, page, true);
                    failed.push(page);
                }
                Ok(0) => {}
                Ok(word) if stops && dying.is_anothers(page, PageWord(word)) => {
                    self.counts.bad_words += 1;
                    next = dying.pages.end();
                    dying.held.extend(page..next);
                    break;
                }
                Ok(word) => {
                    if !leaves {
                        bus.write(self.word_address(table, page), 0);
                    }
                    swept.push((page, PageWord(word)));
                }
            }
        }
        if bus.wait().is_err() {
            let stays = |&(page, _): &(u64, PageWord)| !self.zero_again(bus, table, page);
            failed.extend(swept.iter().copied().filter(stays).map(|(page, _)| page));
        }
        for (page, word) in swept {
            // A walk of a page whose word stays finds its whole run: nothing of it is used again, nor, when
            // it goes, what was cut from that run and is elsewhere in the region.
            if was_tainted || runs_into(page, word.entry().size(), &failed) {
                self.hold(dying, page, failed.contains(&page));
            } else if !dying.keeps_frames || self.mutated.on(AllocMutation::SweepFreesMovedFrames) {
                self.give_frame_back(word);
            }
        }
        self.counts.swept += count;
        next
    }

    /// A page is not used again; whether its word `stays`, which may say that an allocation begins there.
    fn hold(&mut self, dying: &mut Dying, page: u64, stays: bool) {
        dying.held.push(page);
        self.regions.taint(self.layout.region_of(page));
        if stays && page == dying.pages.first {
            self.bar(page);
        }
        self.counts.quarantined += 1;
    }

    fn zero_again(&self, bus: &mut impl TableBus, table: Table, page: u64) -> bool {
        bus.write(self.word_address(table, page), 0);
        bus.wait().is_ok()
    }

    fn give_frame_back(&mut self, word: PageWord) {
        if self.mutated.on(AllocMutation::SweepLosesFrames) {
            return;
        }
        let Some((memory, frame)) = word.frame() else { return };
        let is_tables = self.tables.has_frame(memory, frame)
            && !self.mutated.on(AllocMutation::WordsFreeTables);
        if is_tables || !self.frames.give_back(memory, frame, 0) {
            self.counts.bad_words += 1;
        }
    }

    /// Unlinks regions that nobody has any more.
    fn retire(&mut self, bus: &mut impl TableBus, dying: &Dying) {
        if dying.is_large {
            for region in self.whole_regions(dying.pages) {
                self.retire_region(bus, region);
            }
            return;
        }
        let region = self.layout.region_of(dying.pages.first);
        let Region::Shared { table, used } = self.regions.state(region) else { return };
        if used != dying.pages.count || !dying.held.is_empty() || table.is_fixed() {
            return;
        }
        // The bitmap decides: a word may say more pages than the allocation has.
        if self.open(bus, region).is_ok() && self.are_taken(dying.pages) {
            self.places.close(region);
            self.retire_region(bus, region);
        }
    }

    fn retire_region(&mut self, bus: &mut impl TableBus, region: u64) {
        let table = self.regions.table(region);
        let stays = self.mutated.on(AllocMutation::EmptyTableStaysLinked);
        if table.is_some() && !stays && self.unlink(bus, region).is_err() {
            self.regions.taint(region);
            self.counts.quarantined += self.layout.region_pages();
        }
        self.regions.set(region, Region::Retiring { table }, 0);
    }

    /// Regions that a dying range of a large allocation leaves.
    fn whole_regions(&self, pages: WindowPages) -> std::ops::Range<u64> {
        let bits = self.layout.leaf_bits;
        pages.first.div_ceil(1 << bits)..pages.end().div_ceil(1 << bits)
    }

    /// The invalidation behind the sweep is done: places can be used again.
    pub fn swept(&mut self, bus: &mut impl TableBus) {
        let is_ending = self.dying.front().is_some_and(|dying| dying.stage == Stage::Ending);
        if !is_ending {
            return;
        }
        let Some(dying) = self.dying.pop_front() else { return };
        if dying.is_large {
            for region in self.whole_regions(dying.pages) {
                self.empty_region(region);
            }
            return;
        }
        let region = self.layout.region_of(dying.pages.first);
        match self.regions.state(region) {
            Region::Shared { .. } => self.free_places(bus, region, &dying),
            _ => self.empty_region(region),
        }
    }

    fn empty_region(&mut self, region: u64) {
        if self.regions.is_tainted(region) {
            return;
        }
        if let Region::Retiring { table } = self.regions.state(region) {
            if let Some(table) = table {
                self.tables.give_back(table, true, &mut self.frames);
            }
            self.regions.set(region, Region::Empty, 0);
            self.regions.set_large(region, None);
        }
    }

    fn free_places(&mut self, bus: &mut impl TableBus, region: u64, dying: &Dying) {
        if self.open(bus, region).is_err() {
            self.counts.quarantined += dying.pages.count;
            return;
        }
        let begin = region << self.layout.leaf_bits;
        let pages = dying.pages.first..dying.pages.end();
        let mut back = 0;
        for page in pages.filter(|page| !dying.held.contains(page)) {
            back += u64::from(self.places.is_taken(page - begin));
            self.places.give_back(page - begin, 1);
        }
        self.note_used(region, |used| used.saturating_sub(back));
        self.retire_unused(bus, region);
    }

    /// A shared region in which nobody has a page after all: the last to leave it did so while another
    /// was about to come, and did not.
    pub(super) fn retire_unused(&mut self, bus: &mut impl TableBus, region: u64) {
        let Region::Shared { table, used: 0 } = self.regions.state(region) else { return };
        if table.is_fixed() {
            return;
        }
        self.places.close(region);
        self.retire_region(bus, region);
        let begin = region << self.layout.leaf_bits;
        self.dying.push_back(Dying::swept(WindowPages::new(begin, self.layout.region_pages())));
    }

    /// What can wait.
    fn keep_house(&mut self, bus: &mut impl TableBus) -> SweepStep {
        if self.pending.is_some() {
            return SweepStep::Idle;
        }
        let done = if self.trailing.is_some() {
            self.take_trailing_mark(bus);
            true
        } else if self.places.is_changed() {
            self.places.write_back(&self.layout, bus).is_ok()
        } else {
            self.tables.wants_ready() && self.make_ready(bus)
        };
        if done { SweepStep::More } else { SweepStep::Idle }
    }

    fn make_ready(&mut self, bus: &mut impl TableBus) -> bool {
        let Some(table) = self.tables.take_to_zero(&mut self.frames) else { return false };
        let is_zero = self.zero(bus, table).is_ok();
        self.tables.give_back(table, is_zero, &mut self.frames);
        is_zero
    }
}
