//! The memories of the machine as the runtime sees them: the arena's alias and the cards' files.
//!
//! Turns a location into a pointer. Owns the mappings, decides nothing.

use std::ptr::NonNull;

use farside_card::Location;
use farside_card::tables::{BusPages, STRETCH_PAGES};
use farside_svm::{Place, Run, StepError, StepErrorKind};
use farside_types::{CardId, FrameNo, MemoryId, PAGE_SIZE, PageRange};
use rustix::io::Errno;

use crate::adopted::{Adopted, Region};
use crate::arena::{Arena, ArenaError};
use farside_linux::card_memory::{CardMemory, copy_pages, zero_pages};

/// Host memory, the cards' memories and the bounce buffers.
#[derive(Debug)]
pub(crate) struct Memories {
    pub(crate) arena: Arena,
    pub(crate) adopted: Adopted,
    cards: Vec<Frames>,
    bounces: Vec<CardMemory>,
}

/// A card's memory.
#[derive(Debug)]
pub(crate) enum Frames {
    /// This process maps it.
    Mapped(CardMemory),
    /// This process does not reach it: so many frames, which only the card copies from and to.
    Beyond(u32),
}

impl Frames {
    /// Number of frames.
    pub(crate) fn count(&self) -> u32 {
        match self {
            Frames::Mapped(memory) => memory.frames(),
            Frames::Beyond(frames) => *frames,
        }
    }

    /// The memory, if it is mapped.
    pub(crate) fn mapped(&self) -> Option<&CardMemory> {
        match self {
            Frames::Mapped(memory) => Some(memory),
            Frames::Beyond(_) => None,
        }
    }
}

impl Memories {
    pub(crate) fn new(arena: Arena, cards: Vec<Frames>, bounces: Vec<CardMemory>) -> Memories {
        Memories { arena, adopted: Adopted::default(), cards, bounces }
    }

    /// A card's memory.
    pub(crate) fn card(&self, card: CardId) -> &Frames {
        &self.cards[card.0 as usize]
    }

    /// The cards' memories that this process maps.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (CardId, &CardMemory)> {
        let numbered = (0u8..).map(CardId).zip(&self.cards);
        numbered.filter_map(|(card, frames)| Some((card, frames.mapped()?)))
    }

    /// The bounce buffers.
    pub(crate) fn bounces(&self) -> &[CardMemory] {
        &self.bounces
    }

    /// Where `count` pages from `location` on are.
    ///
    /// # Panics
    /// If the location does not exist, or is beyond this process: the driver hands out none such.
    pub(crate) fn pointer(&self, location: Location, count: u32) -> NonNull<u8> {
        let found = match location.memory.card() {
            None => {
                let start = self.arena.base_page().offset(location.frame.0.into());
                let arena = self.arena.alias_ptr(PageRange::new(start, count.into())).ok();
                arena.or_else(|| self.edge(location.frame))
            }
            Some(card) => {
                let memory = self.cards.get(card.0 as usize).and_then(Frames::mapped);
                memory.and_then(|memory| memory.run_ptr(location.frame, count).ok())
            }
        };
        found.expect("the driver names frames that exist, and are reached from here")
    }

    /// Where a page of the program's own is that stays at its place.
    fn edge(&self, frame: FrameNo) -> Option<NonNull<u8>> {
        NonNull::new(self.adopted.edges.page_of(frame)?.addr().0 as *mut u8)
    }

    /// Whether a run is of adopted memory that moves, or may be.
    pub(crate) fn is_adopted(&self, run: &Run) -> bool {
        !self.arena.pages().contains(run.page)
    }

    /// Where a stretch of the bus is, as a card in the program numbers its pages.
    pub(crate) fn stretch(&self, number: u8) -> Option<NonNull<u8>> {
        let Location { memory, frame } =
            BusPages::Memories.location(u32::from(number) * STRETCH_PAGES);
        let first = match memory.card() {
            // Behind the arena is what is adopted, which is in no order.
            None if u64::from(frame.0) >= self.arena.pages().count => return None,
            None => {
                let first = PageRange::new(self.arena.base_page(), 1);
                self.arena.alias_ptr(first).ok()?
            }
            Some(card) => {
                let memory = self.cards.get(card.0 as usize).and_then(Frames::mapped)?;
                memory.run_ptr(FrameNo(0), 1).ok()?
            }
        };
        // Behind the end there is nothing that a card could map.
        NonNull::new(first.as_ptr().wrapping_add(frame.0 as usize * PAGE_SIZE))
    }

    /// Copies the pages of `runs`. The caller carries out a command of the driver, which holds
    /// the pages and has stopped everybody who could touch either end.
    ///
    /// # Errors
    /// Where bytes of adopted memory are not where they should be.
    pub(crate) fn copy(&self, from: Place, to: Place, runs: &[Run]) -> Result<(), StepError> {
        let host = Place::Memory(MemoryId::HOST);
        let mut done = 0;
        for run in runs {
            if (from == host || to == host) && self.is_adopted(run) {
                self.copy_adopted(from, to, run, done)?;
                done += run.count;
                continue;
            }
            let src = self.end(from, run, run.src, done);
            let dst = self.end(to, run, run.dst, done);
            // SAFETY: both pointers cover `count` pages of distinct memories that live as long as
            // `self`; the driver's rule 5 says that nobody writes to either end now.
            unsafe { copy_pages(src.as_ptr(), dst.as_ptr(), run.count as usize) };
            done += run.count;
        }
        Ok(())
    }

    /// The same for pages of adopted memory, one end of which is the host's.
    fn copy_adopted(&self, from: Place, to: Place, run: &Run, done: u32) -> Result<(), StepError> {
        let out = from == Place::Memory(MemoryId::HOST);
        let (place, frame) = if out { (to, run.dst) } else { (from, run.src) };
        let other = self.end(place, run, frame, done).as_ptr();
        self.adopted_run(run, u64::from(done), |region, pages| {
            let other = other.wrapping_add((pages.start.0 - run.page.0) as usize * PAGE_SIZE);
            // SAFETY: `other` is where the driver has the other end of these pages, which it holds; rule
            // 5 says that nobody else uses either end now.
            unsafe {
                match out {
                    true => region.copy_out(pages, other),
                    false => region.copy_in(pages, other),
                }
            }
        })
    }

    /// Calls `each` with the parts of a run that are of one range each.
    pub(crate) fn adopted_run(
        &self,
        run: &Run,
        done: u64,
        mut each: impl FnMut(&Region, PageRange) -> Result<(), (u64, Errno)>,
    ) -> Result<(), StepError> {
        let outcome = self.adopted.each(run.pages(), |region, pages| match region {
            Some(region) => each(region, pages),
            // It stays where it is.
            None => Err((0, Errno::BUSY)),
        });
        outcome.map_err(|(before, (within, errno))| {
            let page = run.page.offset(before + within);
            tracing::error!(%page, %errno, "a step for adopted memory failed");
            if errno == Errno::BUSY {
                self.adopted.note_pinned();
            }
            StepError {
                pages_done: done + before + within,
                kind: StepErrorKind::Os(errno.raw_os_error()),
            }
        })
    }

    fn end(
        &self,
        place: Place,
        run: &Run,
        frame: farside_types::FrameNo,
        done: u32,
    ) -> NonNull<u8> {
        match place {
            Place::Memory(memory) => self.pointer(Location::new(memory, frame), run.count),
            Place::Bounce(slot) => self.bounces[slot as usize]
                .run_ptr(farside_types::FrameNo(done), run.count)
                .expect("a bounce buffer holds what one command copies"),
        }
    }

    /// Fills the frames of `runs` with zeros. Host frames of fresh pages are holes, zero already.
    pub(crate) fn fill(&self, memory: MemoryId, runs: &[Run]) {
        if memory.is_host() {
            return;
        }
        for run in runs {
            let dst = self.pointer(Location::new(memory, run.dst), run.count);
            // SAFETY: the pointer covers `count` pages of card memory that the driver has just
            // found for these pages; nobody maps them yet.
            unsafe { zero_pages(dst.as_ptr(), run.count as usize) };
        }
    }

    /// Calls `each` for every run of the arena, and `adopted` for others, until one fails, and says how far it
    /// came.
    pub(crate) fn host_runs(
        &self,
        runs: &[Run],
        mut each: impl FnMut(PageRange) -> Result<(), ArenaError>,
        mut adopted: impl FnMut(&Region, PageRange) -> Result<(), (u64, Errno)>,
    ) -> Result<(), StepError> {
        let mut pages_done = 0;
        for run in runs {
            if self.is_adopted(run) {
                self.adopted_run(run, pages_done, &mut adopted)?;
                pages_done += u64::from(run.count);
                continue;
            }
            if let Err(error) = each(run.pages()) {
                tracing::error!(%error, pages = %run.pages(), "a paging call failed");
                let kind = StepErrorKind::Os(error.errno().raw_os_error());
                return Err(StepError { pages_done, kind });
            }
            pages_done += u64::from(run.count);
        }
        Ok(())
    }
}
