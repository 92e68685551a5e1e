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

mod far;
#[cfg(test)]
mod far_tests;
mod found;
mod held;
mod host;
mod mappings;
mod parts;
mod sizes;
mod turn;
mod view;

use std::collections::BTreeMap;
use std::sync::Mutex;

use farside_card::interface::AllocRequest;
use farside_card::window::{
    AllocError, AllocStep, Allocator, FreedFrames, SweepStep, TableWords, WindowFault,
    WindowMapping, WindowPages,
};
use farside_card::{Location, MappedRun, MemorySizes};
use farside_linux::lock::lock;
use farside_linux::wait::Gate;
use farside_softcard::{OwnMemory, OwnMemoryId, WindowError, WindowMemory, WindowPlan};
use farside_types::{Access, CancelReason, CardId, FrameNo, PageRange, Rights, VirtAddr};

use crate::error::LiveError;
pub(crate) use far::{FarCard, FarWindow};
pub(crate) use found::Found;
use held::AllHeld;
pub(crate) use held::Held;
pub use parts::OwnPart;
pub(crate) use parts::parts;
pub(crate) use sizes::WindowSizes;
use turn::Turn;
use view::{AllShown, View};

/// Pages that are mapped together, at most, where one of them is touched.
const AROUND: u64 = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct CardWindow {
    view: View,
    /// Where its frames begin in the card's memory.
    first_frame: u32,
    plan: WindowPlan,
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
    shown: AllShown,
    /// What kernels hold that were given up.
    held: AllHeld,
    /// What kernels known by their names have handed over and nobody has taken over: its bytes.
    made: BTreeMap<VirtAddr, u64>,
    end: Option<End>,
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
    /// The window of a card, over these memories, which lie one behind the other in the card's from `first_frame` on.
    ///
    /// # Errors
    /// There are no addresses for it, or there is no such window.
    pub(crate) fn new(
        card: CardId,
        first_frame: u32,
        memories: &[WindowMemory],
    ) -> Result<CardWindow, LiveError> {
        let refused = |why: String| LiveError::Window { card, why };
        let plan = WindowPlan::new(memories).map_err(|error| refused(error.to_string()))?;
        let view = View::reserve(card, plan.bytes() as usize)?;
        let config = plan.allocator(view.base()).map_err(|error| refused(error.to_string()))?;
        let mut allocator = Allocator::new(&config).map_err(|error| refused(error.to_string()))?;
        let mut words = TableWords::default();
        allocator.initialise(&mut words).map_err(|error| refused(error.to_string()))?;
        let tables = Tables {
            allocator,
            words,
            is_taken: false,
            shown: AllShown::new(),
            held: AllHeld::default(),
            made: BTreeMap::new(),
            end: None,
        };
        let tables = Mutex::new(tables);
        Ok(CardWindow { view, first_frame, plan, tables, turns: Gate::new() })
    }

    /// Its addresses.
    pub(crate) fn pages(&self) -> PageRange {
        self.view.pages
    }

    /// Whose it is.
    pub(crate) fn card(&self) -> CardId {
        self.view.card
    }

    /// The memories that pages come from, with what is free in them.
    pub(crate) fn memories(&self) -> Vec<OwnMemory> {
        let tables = lock(&self.tables);
        let sizes = (0..).zip(self.plan.memories()).map(|(number, memory)| MemorySizes {
            frames: memory.frames,
            // Never more than there are.
            frames_free: tables.allocator.free_frames(number) as u32,
            kind: memory.kind,
        });
        OwnMemory::all(sizes)
    }

    /// A kernel hands over an allocation of its own.
    ///
    /// # Errors
    /// [`WindowError::Gone`].
    pub(crate) fn hand_over(&self, addr: VirtAddr, bytes: u64) -> Result<(), WindowError> {
        let mut tables = lock(&self.tables);
        if let Some(End::Gone) = tables.end {
            return Err(WindowError::Gone { card: self.card() });
        }
        tables.made.insert(addr, bytes);
        Ok(())
    }

    /// What a kernel has handed over is the program's from now on, of so many bytes.
    ///
    /// # Errors
    /// [`WindowError::NotMade`], [`WindowError::Gone`].
    pub(crate) fn take_over(&self, addr: VirtAddr, bytes: u64) -> Result<(), WindowError> {
        let not_made =
            |why: &str| WindowError::NotMade { card: self.card(), addr, why: why.to_owned() };
        let mut tables = lock(&self.tables);
        if let Some(End::Gone) = tables.end {
            return Err(WindowError::Gone { card: self.card() });
        }
        match tables.made.get(&addr) {
            None => return Err(not_made("none has, or it was taken over before")),
            Some(&made) if made < bytes => return Err(not_made("it has fewer bytes")),
            // Its values are wider ones.
            Some(&made) if made > bytes => return Err(not_made("it has more bytes")),
            Some(_) => {}
        }
        tables.made.remove(&addr);
        Ok(())
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
        if !self.view.pages.covers(range) {
            return Err(CancelReason::Unallocated);
        }
        let mut tables = lock(&self.tables);
        if let Some(End::Gone) = tables.end {
            return Err(CancelReason::Lost);
        }
        let held = tables.held.rights(range, access)?;
        let (mut runs, rights) = tables.runs(self, range, access)?;
        // What follows may be held.
        if range.count == 1 && tables.held.is_empty() {
            tables.add_following(self, &mut runs, rights);
        }
        insert(&runs, held.min(rights));
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
        let refused = |error| {
            let memories = self.memories();
            WindowError::Refused { card: self.card(), request, error, memories }
        };
        if let AllocRequest::Malloc { memory, .. } = request
            && usize::from(memory) >= self.plan.memories().len()
        {
            // The allocator has one more, for its tables.
            return Err(refused(AllocError::UnknownMemory));
        }
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
        answer.map_err(refused)
    }

    fn range_of(&self, pages: WindowPages) -> PageRange {
        PageRange::new(self.view.pages.start.offset(pages.first), pages.count)
    }

    /// The memory that has a frame of the card's.
    pub(crate) fn memory_at(&self, frame: FrameNo) -> Option<u8> {
        let within = frame.0.checked_sub(self.first_frame)?;
        let numbers = 0..self.plan.memories().len() as u8;
        numbers.rev().find(|&it| self.plan.first_frame(OwnMemoryId(it)) <= within)
    }

    /// Where a frame of one of its memories is in the card's.
    fn frame(&self, memory: u8, frame: u32) -> FrameNo {
        FrameNo(self.first_frame + self.plan.first_frame(OwnMemoryId(memory)) + frame)
    }

    /// A page, counted from the window's begin, where it is.
    fn run(&self, within: u64, mapping: WindowMapping) -> MappedRun {
        let frame = self.frame(mapping.memory, mapping.frame);
        let location = Location::new(self.card().memory(), frame);
        MappedRun::new(self.view.pages.start.offset(within), 1, location)
    }
}

impl Tables {
    /// Where pages are, in as few runs as their frames allow, and what may be done with all of them.
    fn runs(
        &mut self,
        window: &CardWindow,
        range: PageRange,
        access: Access,
    ) -> Result<(Vec<MappedRun>, Rights), CancelReason> {
        let Tables { allocator, words, .. } = self;
        let (mut runs, mut rights) = (Vec::new(), Rights::ReadWrite);
        let mut failed = None;
        for index in 0..range.count {
            let within = range.start.0 + index - window.view.pages.start.0;
            let mapping = match allocator.translate(words, within, access) {
                Ok(mapping) => mapping,
                Err(fault) => {
                    failed = Some(reason(fault));
                    break;
                }
            };
            rights = rights.min(mapping.rights);
            add(&mut runs, window.run(within, mapping));
        }
        // Nobody keeps that a page was not there.
        words.take_made_valid();
        failed.map_or(Ok((runs, rights)), Err)
    }

    /// Where those of these pages are that were touched.
    fn touched(
        &mut self,
        window: &CardWindow,
        range: PageRange,
    ) -> Result<Vec<MappedRun>, CancelReason> {
        let Tables { allocator, words, .. } = self;
        let first = range.start.0 - window.view.pages.start.0;
        let mut runs: Vec<MappedRun> = Vec::new();
        for within in first..first + range.count {
            if let Some(mapping) = allocator.peek(words, within).map_err(reason)? {
                add(&mut runs, window.run(within, mapping));
            }
        }
        Ok(runs)
    }

    /// Adds what follows a page that is touched, as far as it has frames and the same rights, to the end of the aligned
    /// `AROUND` pages: whoever touches one page, mostly touches the next.
    fn add_following(&mut self, window: &CardWindow, runs: &mut Vec<MappedRun>, rights: Rights) {
        let Tables { allocator, words, .. } = self;
        let Some(touched) = runs.last().map(|run| run.page.0 - window.view.pages.start.0) else {
            return;
        };
        for within in touched + 1..(touched + 1).next_multiple_of(AROUND) {
            let found = allocator.find(words, within).filter(|found| found.rights == rights);
            let Some(mapping) = found else { return };
            add(runs, window.run(within, mapping));
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
    fn sweep(&mut self, window: &CardWindow, mut zero: impl FnMut(FrameNo, u32)) {
        // What an allocation that failed has given back was never anybody's.
        self.allocator.take_freed_frames();
        loop {
            match self.allocator.sweep(&mut self.words) {
                SweepStep::Idle => return,
                SweepStep::More => {}
                SweepStep::Invalidate(_) => self.allocator.swept(&mut self.words),
            }
            let freed = self.allocator.take_freed_frames().into_iter();
            let of_pages = |memory: u8| usize::from(memory) < window.plan.memories().len();
            let freed = freed.filter(|frames| of_pages(frames.memory));
            let place =
                |frames: FreedFrames| (window.frame(frames.memory, frames.first).0, frames.count);
            let mut freed: Vec<_> = freed.map(place).collect();
            freed.sort_unstable();
            let mut freed = freed.into_iter().peekable();
            while let Some((first, mut count)) = freed.next() {
                while let Some((_, more)) = freed.next_if(|&(next, _)| next == first + count) {
                    count += more;
                }
                zero(FrameNo(first), count);
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
        WindowFault::NoFrame => CancelReason::WindowFull,
        WindowFault::BusError | WindowFault::BadEntry => CancelReason::Lost,
    }
}
