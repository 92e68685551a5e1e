//! What is read from memory: whether the allocator can have written it.
//!
//! Nobody else writes the tables. Where a word or a bitmap is another all the same, the command that reads it is
//! refused, and nothing that is not its own is taken from anybody. What cannot be told is a word that names
//! the frame of another page of the same memory.

use farside_types::Rights;

use super::allocator::Allocator;
use super::bus::{TableBus, WindowPages};
use super::mutation::AllocMutation;
use super::status::AllocError;
use super::word::{PageState, PageWord};
use crate::tables::Place;

impl Allocator {
    /// Whether a word that is not 0 can be of a page: it names a memory that there is, and a frame of it that
    /// no table has.
    pub(super) fn is_sound(&self, word: PageWord) -> bool {
        if self.mutated.on(AllocMutation::WordsAreTrusted) {
            return true;
        }
        let entry = word.entry();
        let is_own = matches!(entry.place(), Place::Own(_)) && entry.table().is_none();
        let has_frame = |(memory, frame)| {
            self.frames.has(memory, frame) && !self.tables.has_frame(memory, frame)
        };
        is_own
            && self.frames.knows(entry.memory())
            && entry.size() <= self.layout.run_size_max()
            && word.frame().is_none_or(has_frame)
    }

    /// Whether the words of pages, one after the other from `page` on, are as those of the allocation that begins
    /// at `first`, in this memory and with these rights, must be. Of a page of a large one that nobody has touched
    /// the word may be 0.
    pub(super) fn are_alike(
        &self,
        first: u64,
        page: u64,
        words: &[PageWord],
        like: (u8, Rights),
        is_large: bool,
    ) -> bool {
        let trusts = self.mutated.on(AllocMutation::WordsAreTrusted);
        trusts
            || words.iter().zip(page..).all(|(&word, page)| {
                if word.state() == PageState::Free {
                    return is_large && word.0 == 0;
                }
                let entry = word.entry();
                word.is_allocated()
                    && self.is_sound(word)
                    && entry.is_first() == (page == first)
                    && (entry.memory(), entry.rights()) == like
            })
    }

    /// Brings the bitmap of a shared region, which must have as many pages in use as the region has. Where it has
    /// others, nothing is given out of this region any more.
    pub(super) fn open(&mut self, bus: &mut impl TableBus, region: u64) -> Result<(), AllocError> {
        self.places.open(region, &self.layout, bus)?;
        let trusts = self.mutated.on(AllocMutation::BitmapsAreTrusted);
        if trusts || self.regions.used(region) == Some(self.places.used()) {
            return Ok(());
        }
        self.places.close(region);
        self.regions.fill(region);
        Err(AllocError::BadEntry)
    }

    /// Whether all of these pages are in use, as the bitmap of their region, which is open, says.
    pub(super) fn are_taken(&self, pages: WindowPages) -> bool {
        let within = self.layout.within(pages.first);
        (within..within + pages.count).all(|page| self.places.is_taken(page))
    }
}
