//! The allocator's front: commands, and the look at what is allocated.

use std::collections::VecDeque;

use farside_types::Rights;

use super::super::geometry::WORD_SHIFT;
use super::bus::{TableBus, TableBusError, WindowPages};
use super::config::{AllocatorConfig, AllocatorConfigError, Layout};
use super::frames::{FrameStore, FreedFrames};
use super::mutation::{AllocMutated, AllocMutation};
use super::places::Places;
use super::realloc::Move;
use super::regions::{Large, Region, Regions};
use super::status::{AllocCounts, AllocError};
use super::sweep::{Dying, Stage};
use super::tables::{Table, TableStore};
use super::touch::Touches;
use super::word::{PageState, PageWord};
use crate::interface::AllocRequest;
use crate::tables::TableEntry;

/// First pages that may be barred, or whose count is not known.
const BARRED_MAX: usize = 16;
/// Ranges that may be dying at once.
pub(super) const DYING_MAX: usize = 4;

/// What comes of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocStep {
    /// It has ended: the address of the allocation, 0 of a free.
    Answer(Result<u64, AllocError>),
    /// These pages have to be invalidated; [`Allocator::invalidated`] when that is done.
    Invalidate(WindowPages),
}

/// A command that waits for its invalidation.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    /// The answer is known.
    Answer(u64),
    /// Words have to be moved.
    Move(Box<Move>),
}

/// The page behind the last that got a frame, and the frame behind that one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hint {
    pub(super) page: u64,
    pub(super) memory: u8,
    pub(super) frame: u32,
}

/// An allocation that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) pages: WindowPages,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Small { table: Table, word: PageWord },
    Large(Large),
}

impl Found {
    pub(super) fn memory(&self) -> u8 {
        match self.kind {
            Kind::Small { word, .. } => word.entry().memory(),
            Kind::Large(large) => large.memory,
        }
    }

    pub(super) fn rights(&self) -> Rights {
        match self.kind {
            Kind::Small { word, .. } => word.entry().rights(),
            Kind::Large(large) => large.rights,
        }
    }
}

/// The allocator of the card's window, as `docs/rtl/allocator.md` says it is. It has no memory and no clock:
/// each call is given the tables' memory.
///
/// [`Allocator::handle`] begins a command, one at a time. [`Allocator::sweep`] is one step of the
/// background, to be called again while there is anything to do. [`Allocator::touch`] is for walks that
/// found nothing, and walks of pages that [`Allocator::is_gated`] says are faults, whatever they found.
#[derive(Clone, Debug)]
pub struct Allocator {
    pub(super) config: AllocatorConfig,
    pub(super) layout: Layout,
    pub(super) frames: FrameStore,
    pub(super) tables: TableStore,
    pub(super) regions: Regions,
    pub(super) places: Places,
    pub(super) dying: VecDeque<Dying>,
    pub(super) pending: Option<Pending>,
    pub(super) touches: Touches,
    /// A page that was the last of its allocation, and still has the mark.
    pub(super) trailing: Option<u64>,
    pub(super) hint: Option<Hint>,
    pub(super) counts: AllocCounts,
    /// Pages whose words may say that an allocation begins there, because they could not be written.
    barred: Vec<u64>,
    /// First pages of allocations whose count of pages may be another than their words say.
    doubtful: Vec<u64>,
    is_initialised: bool,
    pub(super) mutated: AllocMutated,
}

impl Allocator {
    /// One that is to be initialised.
    ///
    /// # Errors
    ///
    /// There is no such allocator.
    pub fn new(config: &AllocatorConfig) -> Result<Allocator, AllocatorConfigError> {
        let layout = Layout::new(config)?;
        let mut frames = FrameStore::new(&config.memories);
        frames.take_fixed(config.tables, layout.fixed_frames);
        Ok(Allocator {
            frames,
            tables: TableStore::new(&layout, config.tables, config.ready_tables),
            regions: Regions::new(layout.regions),
            places: Places::default(),
            dying: VecDeque::new(),
            pending: None,
            touches: Touches::default(),
            trailing: None,
            hint: None,
            counts: AllocCounts::default(),
            barred: Vec::new(),
            doubtful: Vec::new(),
            is_initialised: false,
            mutated: AllocMutated::default(),
            config: config.clone(),
            layout,
        })
    }

    #[cfg(test)]
    pub(super) fn mutate(&mut self, mutation: AllocMutation) {
        self.mutated = AllocMutated::new(mutation);
        self.frames.mutated = self.mutated;
    }

    /// Writes the tables that are always there. Commands are refused before.
    ///
    /// # Errors
    ///
    /// The memory could not be written; again.
    pub fn initialise(&mut self, bus: &mut impl TableBus) -> Result<(), TableBusError> {
        let directory = self.layout.regions;
        let of_one_level = self.layout.levels == 1;
        let words = if of_one_level { self.layout.region_pages() } else { directory };
        for word in 0..words {
            bus.write(self.layout.directory_word(word), 0);
        }
        self.link_upper_tables(bus);
        bus.wait()?;
        if of_one_level {
            let state = Region::Shared { table: Table::fixed(self.layout.directory), used: 0 };
            self.regions.set(0, state, self.layout.region_pages());
            self.places.open_new(0, &self.layout);
        }
        self.is_initialised = true;
        Ok(())
    }

    /// Levels above the directory lead to all tables of the next one.
    fn link_upper_tables(&self, bus: &mut impl TableBus) {
        let geometry = &self.config.geometry;
        for (level, pair) in self.layout.upper.windows(2).enumerate() {
            let table_shift =
                geometry.bits_below(level) - geometry.bits_below(level + 1) + WORD_SHIFT;
            let tables =
                1 << (geometry.window_bits() - geometry.page_bits() - geometry.bits_below(level));
            for table in 0..tables {
                let number = (pair[1] >> table_shift) as u32 + table;
                let address = pair[0] + (u64::from(table) << WORD_SHIFT);
                bus.write(address, TableEntry::directory(number).0);
            }
        }
    }

    /// Whether a command can begin: none is under way, and the sweep has not too much to do.
    pub fn is_ready(&self) -> bool {
        self.pending.is_none() && self.dying.len() < DYING_MAX
    }

    /// Whether walks of this page must be answered with *not mapped*, whatever they found: it was freed, or
    /// its allocation moved.
    pub fn is_gated(&self, page: u64) -> bool {
        !self.mutated.on(AllocMutation::GateStaysOpen) && self.is_dying(page)
    }

    pub(super) fn is_dying(&self, page: u64) -> bool {
        self.dying.iter().any(|dying| dying.pages.contains(page))
    }

    /// Where the window begins.
    pub fn base(&self) -> u64 {
        self.config.base
    }

    /// Another begin of the window, while nothing is allocated in it. Whether it was taken: it must be a
    /// multiple of the window's size.
    pub fn set_base(&mut self, base: u64) -> bool {
        let is_unused =
            self.pending.is_none() && self.dying.is_empty() && self.regions.are_unused();
        let is_aligned = base % (1 << self.config.geometry.window_bits()) == 0;
        if is_unused && is_aligned {
            self.config.base = base;
        }
        is_unused && is_aligned
    }

    /// What it has done.
    pub fn counts(&self) -> AllocCounts {
        self.counts
    }

    /// Frames of a memory that nobody has.
    pub fn free_frames(&self, memory: u8) -> u64 {
        self.frames.free(memory)
    }

    /// Frames that tables have, beside those that are always there.
    pub fn table_frames(&self) -> u64 {
        self.tables.frames()
    }

    /// Tables of the leaf level in use, and how many of them are ready for the next region.
    pub fn leaf_tables(&self) -> (u64, u64) {
        (self.tables.tables(), self.tables.ready())
    }

    /// The frames that were given back since the last call, from the first one on: a card whose memory is to be zero
    /// for the next owner calls this before and after a step of the sweep, and nothing of them is given meanwhile.
    pub fn take_freed_frames(&mut self) -> Vec<FreedFrames> {
        self.frames.freed.replace(Vec::new()).unwrap_or_default()
    }

    /// Begins a command.
    pub fn handle(&mut self, bus: &mut impl TableBus, request: AllocRequest) -> AllocStep {
        let begun = self.begin(bus, request);
        self.answer(begun)
    }

    fn begin(
        &mut self,
        bus: &mut impl TableBus,
        request: AllocRequest,
    ) -> Result<AllocStep, AllocError> {
        if !self.is_initialised {
            return Err(AllocError::Initialising);
        }
        if !self.is_ready() {
            return Err(AllocError::Busy);
        }
        if self.barred.len() + self.doubtful.len() > BARRED_MAX {
            return Err(AllocError::BusError);
        }
        self.take_trailing_mark(bus);
        match request {
            AllocRequest::Malloc { bytes, memory, rights, lazy } => {
                let pages = self.pages_of(bytes)?;
                self.malloc(bus, pages, memory, rights, lazy)
                    .map(|address| AllocStep::Answer(Ok(address)))
            }
            AllocRequest::Realloc { address, bytes, lazy } => {
                let pages = self.pages_of(bytes)?;
                self.realloc(bus, address, pages, lazy)
            }
            AllocRequest::Free { address } => self.free(bus, address),
        }
    }

    /// The invalidation of a command is done.
    pub fn invalidated(&mut self, bus: &mut impl TableBus) -> AllocStep {
        let ended = match self.pending.take() {
            None => Err(AllocError::BadEntry),
            Some(Pending::Answer(address)) => Ok(address),
            Some(Pending::Move(moving)) => self.finish_move(bus, *moving),
        };
        let mut dying = self.dying.iter_mut();
        if let Some(dying) = dying.find(|dying| dying.stage == Stage::Draining) {
            dying.stage = Stage::Sweeping;
        }
        self.answer(ended.map(|address| AllocStep::Answer(Ok(address))))
    }

    fn answer(&mut self, step: Result<AllocStep, AllocError>) -> AllocStep {
        let step = step.unwrap_or_else(|error| AllocStep::Answer(Err(error)));
        if let AllocStep::Answer(result) = &step {
            self.counts.answer(result);
        }
        step
    }

    /// No allocation begins with this page, whatever its word says. With too many of them there are no more
    /// commands until a reset.
    pub(super) fn bar(&mut self, page: u64) {
        if self.barred.len() <= BARRED_MAX {
            self.barred.push(page);
        }
    }

    /// Nobody knows how many pages the allocation has that begins with this page: it gets no other size.
    pub(super) fn doubt(&mut self, page: u64) {
        if self.doubtful.len() <= BARRED_MAX && !self.doubtful.contains(&page) {
            self.doubtful.push(page);
        }
    }

    /// An allocation that was doubtful is no more.
    pub(super) fn forget_doubt(&mut self, page: u64) {
        self.doubtful.retain(|&doubtful| doubtful != page);
    }

    fn pages_of(&self, bytes: u64) -> Result<u64, AllocError> {
        if bytes == 0 {
            return Err(AllocError::ZeroSize);
        }
        let pages = bytes.div_ceil(1 << self.layout.page_bits);
        let most = self.layout.regions << self.layout.leaf_bits;
        if pages > most { Err(AllocError::TooLarge) } else { Ok(pages) }
    }

    /// Whether so many pages have regions for themselves.
    pub(super) fn is_large(&self, pages: u64) -> bool {
        self.layout.levels > 1 && pages >= self.layout.region_pages()
    }

    pub(super) fn address_of(&self, page: u64) -> u64 {
        self.config.base + (page << self.layout.page_bits)
    }

    pub(super) fn word_address(&self, table: Table, page: u64) -> u64 {
        table.address + (self.layout.within(page) << WORD_SHIFT)
    }

    /// The allocation that begins at `address`. One access; where `opens`, its region's bitmap comes beside it.
    pub(super) fn locate(
        &mut self,
        bus: &mut impl TableBus,
        address: u64,
        opens: bool,
    ) -> Result<Found, AllocError> {
        let offset = address.wrapping_sub(self.config.base);
        if offset >> self.config.geometry.window_bits() != 0 {
            return Err(AllocError::NotAllocated);
        }
        let page = offset >> self.layout.page_bits;
        let is_begin = offset & ((1 << self.layout.page_bits) - 1) == 0;
        let takes_freed = self.mutated.on(AllocMutation::FreeTakesFreed);
        if self.is_dying(page) && !takes_freed || self.barred.contains(&page) {
            return Err(AllocError::NotAllocated);
        }
        if opens && self.doubtful.contains(&page) {
            return Err(AllocError::BusError);
        }
        let region = self.layout.region_of(page);
        match self.regions.state(region) {
            Region::Empty | Region::Retiring { .. } => Err(AllocError::NotAllocated),
            Region::Large { after, .. } => self.locate_large(region - after, page, is_begin),
            Region::Shared { table, .. } => {
                let word = bus.read(self.word_address(table, page));
                if opens && self.places.open_region() != Some(region) {
                    self.open(bus, region)?;
                } else {
                    bus.wait()?;
                }
                let word = PageWord(word?);
                let is_freed = takes_freed && word.state() == PageState::Freed;
                if !word.is_allocated() && !is_freed {
                    return Err(AllocError::NotAllocated);
                }
                let takes_any = self.mutated.on(AllocMutation::FreeTakesAnyPage);
                if !(is_begin && word.entry().is_first() || takes_any) {
                    return Err(AllocError::Inside);
                }
                let pages = WindowPages::new(page, word.entry().pages().into());
                let fits = self.layout.region_of(pages.end() - 1) == region;
                if !fits || !self.is_sound(word) || opens && !self.are_taken(pages) {
                    return Err(AllocError::BadEntry);
                }
                Ok(Found { pages, kind: Kind::Small { table, word } })
            }
        }
    }

    fn locate_large(&self, first: u64, page: u64, is_begin: bool) -> Result<Found, AllocError> {
        let large = self.regions.large(first).ok_or(AllocError::BadEntry)?;
        let begin = first << self.layout.leaf_bits;
        if page - begin >= large.pages {
            return Err(AllocError::NotAllocated);
        }
        if page != begin || !is_begin {
            return Err(AllocError::Inside);
        }
        let pages = WindowPages::new(begin, large.pages);
        Ok(Found { pages, kind: Kind::Large(large) })
    }

    /// Takes the mark of the last page from one that is it no more. It means nothing to a walk: where it cannot be
    /// taken away it stays, and is counted.
    pub(super) fn take_trailing_mark(&mut self, bus: &mut impl TableBus) {
        let Some(page) = self.trailing.take() else { return };
        self.counts.marks_left += u64::from(self.unmark(bus, page).is_err());
        self.touches.words_changed();
    }

    fn unmark(&self, bus: &mut impl TableBus, page: u64) -> Result<(), TableBusError> {
        let Some(table) = self.regions.table(self.layout.region_of(page)) else { return Ok(()) };
        let address = self.word_address(table, page);
        let word = bus.read(address);
        bus.wait()?;
        let word = PageWord(word?);
        if word.entry().is_last() {
            bus.write(address, word.bounding(word.entry().is_first(), false).0);
            bus.wait()?;
        }
        Ok(())
    }
}

impl From<TableBusError> for AllocError {
    fn from(_: TableBusError) -> AllocError {
        AllocError::BusError
    }
}
