//! A card's own memory in the space: a stretch of addresses whose pages the card's allocator gives frames of
//! that card, and no others.
//!
//! The driver does not know of it: its pages never migrate. Their frames lie behind those that the driver places.
//! Who allocates, waits for his turn: one command at a time, as in the card. A page that is touched is translated, and put
//! into the toucher's MMU, under the lock of the tables; a command closes the gate to what it takes away under the same
//! lock, before the pages are taken from the cards. So each translation that is in an MMU was there before the gate closed,
//! and is taken out by the drain that follows, or it was refused.
//!
//! Lock order: the driver or `calm` (see `runtime/windows.rs`), the tables of one window, one card.

mod held;
mod host;
mod turn;

use std::collections::BTreeMap;
use std::sync::Mutex;

use farside_card::interface::AllocRequest;
use farside_card::window::{
    AllocError, AllocStep, Allocator, AllocatorConfig, SweepStep, TableWords, WindowFault,
    WindowGeometry, WindowPages,
};
use farside_card::{Location, MappedRun};
use farside_linux::lock::lock;
use farside_linux::mapping::Mapping;
use farside_linux::wait::Gate;
use farside_softcard::WindowError;
use farside_types::{
    Access, CancelReason, CardId, FrameNo, PAGE_SIZE, PageRange, Rights, VirtAddr,
};

use crate::error::LiveError;
pub(crate) use held::Held;
use turn::Turn;

const PAGE_BITS: u32 = PAGE_SIZE.trailing_zeros();
/// Pages of a region, as a power of two: allocations that are larger are made of whole regions.
const REGION_BITS: u32 = 13;
/// So many times as many addresses as there is memory, as a power of two: what grows reserves twice what it has.
const SPARE_BITS: u32 = 4;
/// Pages of a window at least and at most, as powers of two: 4 GiB and 4 TiB.
const PAGES_BITS: (u32, u32) = (20, 30);
/// Frames of a card's own memory at most: there is an address for each of them.
pub const WINDOW_FRAMES_MAX: u32 = 1 << PAGES_BITS.1;
/// Frames of the tables of one region, and of what there is for each region; of the rest.
const TABLE_FRAMES: (u32, u32) = (17, 64);
/// The memory that pages come from, and the one in which the tables are, as the allocator numbers them.
const OF_PAGES: u8 = 0;
const OF_TABLES: u8 = 1;
/// Pages that are mapped together, at most, where one of them is touched.
const AROUND: u64 = 64;
/// Zeroed tables that are kept ready.
const READY_TABLES: u32 = 2;

/// See the module.
#[derive(Debug)]
pub(crate) struct CardWindow {
    card: CardId,
    pages: PageRange,
    /// Where its frames begin in the card's memory.
    first_frame: u32,
    reservation: Mapping,
    tables: Mutex<Tables>,
    /// Who waits for his turn waits here.
    turns: Gate,
}

#[derive(Debug)]
struct Tables {
    allocator: Allocator,
    words: TableWords,
    /// It is somebody's turn.
    is_taken: bool,
    /// What the program sees: the first page of each allocation, and how many.
    shown: BTreeMap<u64, Shown>,
    /// What kernels hold that were given up.
    held: Vec<Held>,
    end: Option<End>,
}

/// An allocation that is mapped in the program.
#[derive(Clone, Copy, Debug)]
struct Shown {
    pages: u64,
    mappings: usize,
}

/// Why nothing is allocated any more.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Pages are not let go: the first of them.
    Held(VirtAddr),
    /// The card is gone.
    Gone,
}

/// What a window needs of its surroundings.
pub(crate) trait Surroundings {
    /// Takes pages from all cards, and waits for who has them. Whether they are free now.
    fn take_away(&self, pages: PageRange) -> bool;

    /// Makes frames of a card zero, which nobody has. The tables' lock is held.
    fn zero(&self, card: CardId, first: FrameNo, count: u32);
}

impl CardWindow {
    /// The window of a card, over the `frames` frames of its memory from `first_frame` on.
    ///
    /// # Errors
    /// There are no addresses for it, or there is no such window.
    pub(crate) fn new(
        card: CardId,
        first_frame: u32,
        frames: u32,
    ) -> Result<CardWindow, LiveError> {
        let refused = |why: String| LiveError::Window { card, why };
        if frames > WINDOW_FRAMES_MAX {
            return Err(refused("it is at most 4 TiB".to_owned()));
        }
        let wanted = frames.next_power_of_two().trailing_zeros() + SPARE_BITS;
        let pages_bits = wanted.clamp(PAGES_BITS.0, PAGES_BITS.1);
        let bytes = 1usize << (pages_bits + PAGE_BITS);
        let reservation = Mapping::reserve_aligned("a card's window", bytes, bytes)?;
        let base = reservation.base() as u64;
        let regions = 1u32 << (pages_bits - REGION_BITS);
        let levels = [pages_bits - REGION_BITS, REGION_BITS];
        let geometry = WindowGeometry::new(PAGE_BITS, &levels, PAGE_BITS + u32::BITS);
        let config = AllocatorConfig {
            geometry: geometry.map_err(|error| refused(error.to_string()))?,
            base,
            memories: vec![frames, regions * TABLE_FRAMES.0 + TABLE_FRAMES.1],
            tables: OF_TABLES,
            ready_tables: READY_TABLES,
        };
        let mut allocator = Allocator::new(&config).map_err(|error| refused(error.to_string()))?;
        let mut words = TableWords::default();
        allocator.initialise(&mut words).map_err(|error| refused(error.to_string()))?;
        let tables = Tables {
            allocator,
            words,
            is_taken: false,
            shown: BTreeMap::new(),
            held: Vec::new(),
            end: None,
        };
        Ok(CardWindow {
            card,
            pages: PageRange::new(VirtAddr(base).page(), 1 << pages_bits),
            first_frame,
            reservation,
            tables: Mutex::new(tables),
            turns: Gate::new(),
        })
    }

    /// Its addresses.
    pub(crate) fn pages(&self) -> PageRange {
        self.pages
    }

    /// Whose it is.
    pub(crate) fn card(&self) -> CardId {
        self.card
    }

    /// Bytes of its memory that are free.
    pub(crate) fn free_bytes(&self) -> u64 {
        lock(&self.tables).free_bytes()
    }

    /// Gives nothing any more, because the card is gone.
    pub(crate) fn lose(&self) {
        lock(&self.tables).end = Some(End::Gone);
        self.turns.notify();
    }

    /// Calls `insert` with where the pages of a range are, which are given frames if they have none, and with what may be
    /// done with them, before anything of them can be taken away.
    ///
    /// # Errors
    /// Why one of them cannot be reached.
    pub(crate) fn translate(
        &self,
        range: PageRange,
        access: Access,
        insert: impl FnOnce(&[MappedRun], Rights),
    ) -> Result<(), CancelReason> {
        if !self.pages.covers(range) {
            return Err(CancelReason::Unallocated);
        }
        let mut tables = lock(&self.tables);
        if let Some(End::Gone) = tables.end {
            return Err(CancelReason::Lost);
        }
        let rights = tables.rights(range, access)?;
        let mut runs = tables.runs(self, range, access)?;
        // What follows may be held.
        if range.count == 1 && tables.held.is_empty() {
            tables.add_following(self, &mut runs);
        }
        insert(&runs, rights);
        Ok(())
    }

    /// Carries out a command, when it is its turn: an address, 0 of a free.
    ///
    /// # Errors
    /// [`WindowError`].
    pub(crate) fn allocate(
        &self,
        request: AllocRequest,
        around: &impl Surroundings,
    ) -> Result<u64, WindowError> {
        let turn = Turn::take(self)?;
        let step = turn.begin(request);
        let answer = match step {
            AllocStep::Answer(answer) => answer,
            AllocStep::Invalidate(pages) => {
                let range = self.range_of(pages);
                if !around.take_away(range) || !turn.is_let_go(range) {
                    return Err(turn.hold(range.start.addr()));
                }
                // Only what is the program's is shown, and nothing of that moves or shrinks.
                turn.hide(range);
                turn.go_on()
            }
        };
        turn.sweep(around);
        answer.map_err(|error| {
            let free = self.free_bytes();
            WindowError::Refused { card: self.card, request, error, free }
        })
    }

    fn range_of(&self, pages: WindowPages) -> PageRange {
        PageRange::new(self.pages.start.offset(pages.first), pages.count)
    }

    /// A page, counted from the window's begin, in a frame of its memory.
    fn run(&self, within: u64, frame: u32) -> MappedRun {
        let location = Location::new(self.card.memory(), FrameNo(self.first_frame + frame));
        MappedRun::new(self.pages.start.offset(within), 1, location)
    }
}

impl Tables {
    fn free_bytes(&self) -> u64 {
        self.allocator.free_frames(OF_PAGES) << PAGE_BITS
    }

    /// Where pages are, in as few runs as their frames allow.
    fn runs(
        &mut self,
        window: &CardWindow,
        range: PageRange,
        access: Access,
    ) -> Result<Vec<MappedRun>, CancelReason> {
        let Tables { allocator, words, .. } = self;
        let mut runs: Vec<MappedRun> = Vec::new();
        let mut failed = None;
        for index in 0..range.count {
            let within = range.start.0 + index - window.pages.start.0;
            let mapping = match allocator.translate(words, within, access) {
                Ok(mapping) => mapping,
                Err(fault) => {
                    failed = Some(reason(fault));
                    break;
                }
            };
            add(&mut runs, window.run(within, mapping.frame));
        }
        // Nobody keeps that a page was not there.
        words.take_made_valid();
        failed.map_or(Ok(runs), Err)
    }

    /// Adds what follows a page that is touched, as far as it has frames, to the end of the aligned `AROUND` pages: whoever
    /// touches one page, mostly touches the next.
    fn add_following(&mut self, window: &CardWindow, runs: &mut Vec<MappedRun>) {
        let Tables { allocator, words, .. } = self;
        let Some(touched) = runs.last().map(|run| run.page.0 - window.pages.start.0) else {
            return;
        };
        for within in touched + 1..(touched + 1).next_multiple_of(AROUND) {
            let Some(mapping) = allocator.find(words, within) else { return };
            add(runs, window.run(within, mapping.frame));
        }
    }

    fn handle(&mut self, request: AllocRequest) -> AllocStep {
        let step = self.allocator.handle(&mut self.words, request);
        self.words.take_made_valid();
        step
    }

    /// The pages of a command are free.
    fn invalidated(&mut self) -> Result<u64, AllocError> {
        let step = self.allocator.invalidated(&mut self.words);
        self.words.take_made_valid();
        match step {
            AllocStep::Answer(answer) => answer,
            AllocStep::Invalidate(_) => Err(AllocError::BadEntry),
        }
    }

    /// Sweeps until nothing is left, and calls `zero` with the frames that are free then, before anybody gets them. A walk
    /// is never under way meanwhile: it holds the lock.
    fn sweep(&mut self, mut zero: impl FnMut(u32, u32)) {
        // What an allocation that failed has given back was never anybody's.
        self.allocator.take_freed_frames();
        loop {
            match self.allocator.sweep(&mut self.words) {
                SweepStep::Idle => return,
                SweepStep::More => {}
                SweepStep::Invalidate(_) => self.allocator.swept(&mut self.words),
            }
            let mut freed = self.allocator.take_freed_frames();
            freed.retain(|frames| frames.memory == OF_PAGES);
            freed.sort_unstable();
            let mut freed = freed.into_iter().map(|frames| (frames.first, frames.count)).peekable();
            while let Some((first, mut count)) = freed.next() {
                while let Some((_, more)) = freed.next_if(|&(next, _)| next == first + count) {
                    count += more;
                }
                zero(first, count);
            }
        }
    }
}

/// Adds a run behind others, to the last of them if it goes on there.
fn add(runs: &mut Vec<MappedRun>, run: MappedRun) {
    match runs.last_mut().and_then(|last| Some((last.joined(&run)?, last))) {
        Some((joined, last)) => *last = joined,
        None => runs.push(run),
    }
}

fn reason(fault: WindowFault) -> CancelReason {
    match fault {
        WindowFault::NotMapped => CancelReason::Unallocated,
        WindowFault::ReadOnly => CancelReason::ReadOnly,
        WindowFault::NoFrame => CancelReason::OutOfMemory,
        WindowFault::BusError | WindowFault::BadEntry => CancelReason::Lost,
    }
}
