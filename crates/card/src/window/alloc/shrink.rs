//! Fewer pages: those behind die as if they had been freed.

use farside_types::Rights;

use super::allocator::{AllocStep, Allocator, Found, Kind, Pending};
use super::bus::{TableBus, TableBusError, WindowPages};
use super::mutation::AllocMutation;
use super::regions::{Large, Part};
use super::status::AllocError;
use super::sweep::Dying;
use super::tables::Table;
use super::word::{PageState, PageWord, RUN_SIZE_MAX, size_before};

impl Allocator {
    pub(super) fn shrink(
        &mut self,
        bus: &mut impl TableBus,
        found: &Found,
        pages: u64,
    ) -> Result<AllocStep, AllocError> {
        let first = found.pages.first;
        let cut = first + pages;
        let begin = match found.kind {
            Kind::Small { table, word } => {
                let counted = (word, word.with_pages(pages));
                let like = (found.memory(), found.rights());
                self.cut_words(bus, table, first, cut, like, Some(counted))?
            }
            Kind::Large(large) => {
                let begin = self.cut_large(bus, large, first, cut)?;
                let region = self.layout.region_of(first);
                self.regions.set_large(region, Some(Large { pages, ..large }));
                begin
            }
        };
        self.touches.words_changed();
        let behind = WindowPages::new(cut, found.pages.count - pages);
        let is_large = matches!(found.kind, Kind::Large(_));
        self.dying.push_back(Dying::cut(behind, is_large));
        self.pending = Some(Pending::Answer(self.address_of(first)));
        // Of a run that was cut all pages: a walk of one that stays may have found all of it.
        let tells_behind = self.mutated.on(AllocMutation::CutTellsBehindOnly);
        let begin = if tells_behind { cut } else { begin };
        Ok(AllocStep::Invalidate(WindowPages::new(begin, behind.end() - begin)))
    }

    /// The words before `cut`: the last one is marked, and runs that go on behind it end there. Where
    /// `counted`, the first word of the allocation changes from one to the other. Returns the first page of the
    /// run that is cut, or `cut`.
    fn cut_words(
        &mut self,
        bus: &mut impl TableBus,
        table: Table,
        first: u64,
        cut: u64,
        like: (u8, Rights),
        counted: Option<(PageWord, PageWord)>,
    ) -> Result<u64, AllocError> {
        let block = (cut - 1) >> RUN_SIZE_MAX << RUN_SIZE_MAX;
        let pages =
            first.max(block).max((cut - 1) >> self.layout.leaf_bits << self.layout.leaf_bits)..cut;
        let begin = pages.start;
        // Of a small one also the first word behind, which would tell that its count is wrong.
        let read_end = cut + u64::from(counted.is_some());
        let read: Vec<_> =
            (begin..read_end).map(|page| bus.read(self.word_address(table, page))).collect();
        bus.wait()?;
        let words: Result<Vec<u64>, _> = read.into_iter().collect();
        let words: Vec<PageWord> = words?.into_iter().map(PageWord).collect();
        if !self.are_alike(first, begin, &words, like, counted.is_none()) {
            return Err(AllocError::BadEntry);
        }
        let mut changes: Vec<(u64, u64, u64)> = Vec::new();
        if let Some((old, new)) = counted.filter(|_| begin != first) {
            changes.push((self.word_address(table, first), old.0, new.0));
        }
        let mut cut_from = cut;
        for (page, old) in pages.zip(words) {
            let counts = counted.filter(|_| page == first).map(|(_, new)| new);
            let new = self.cut_word(page, cut, old, counts);
            if new.entry().size() != old.entry().size() {
                cut_from = cut_from.min(page);
            }
            if new != old {
                changes.push((self.word_address(table, page), old.0, new.0));
            }
        }
        changes.iter().for_each(|&(address, _, new)| bus.write(address, new));
        if bus.wait().is_ok() {
            return Ok(cut_from);
        }
        changes.iter().for_each(|&(address, old, _)| bus.write(address, old));
        if bus.wait().is_err() {
            // It may have fewer pages now than it takes up: those stay in use.
            self.counts.quarantined += 1;
            if counted.is_some() {
                self.doubt(first);
            }
        }
        self.touches.words_changed();
        Err(AllocError::BusError)
    }

    fn cut_word(&self, page: u64, cut: u64, old: PageWord, counted: Option<PageWord>) -> PageWord {
        let word = counted.unwrap_or(old);
        if word.state() == PageState::Free {
            return word;
        }
        let keeps = self.mutated.on(AllocMutation::CutKeepsSizes);
        let size = word.entry().size();
        let size = if keeps { size } else { size_before(page, size, cut) };
        word.with_size(size).bounding(word.entry().is_first(), page + 1 == cut)
    }

    fn cut_large(
        &mut self,
        bus: &mut impl TableBus,
        large: Large,
        first: u64,
        cut: u64,
    ) -> Result<u64, AllocError> {
        let region = self.layout.region_of(cut - 1);
        let is_whole = self.layout.within(cut) == 0;
        match self.regions.part(region) {
            Part::Nothing => Ok(cut),
            Part::Table(table) => {
                self.cut_words(bus, table, first, cut, (large.memory, large.rights), None)
            }
            Part::Run(frame) if is_whole => {
                let of = (large.memory, large.rights);
                let marked = [false, true].map(|is_last| self.run_word(region, frame, of, is_last));
                self.redirect(bus, region, marked[0], marked[1])?;
                Ok(cut)
            }
            Part::Run(frame) => {
                self.split(bus, large, first, cut, frame)?;
                Ok(region << self.layout.leaf_bits)
            }
        }
    }

    /// Another word of the directory, or the old one.
    fn redirect(
        &mut self,
        bus: &mut impl TableBus,
        region: u64,
        old: u64,
        new: u64,
    ) -> Result<(), AllocError> {
        self.direct(bus, region, new).map_err(|error| {
            if self.direct(bus, region, old).is_err() {
                self.counts.quarantined += 1;
            }
            error.into()
        })
    }

    /// A run of the directory gets a table, so that a part of it can go.
    fn split(
        &mut self,
        bus: &mut impl TableBus,
        large: Large,
        first: u64,
        cut: u64,
        frame: u32,
    ) -> Result<(), AllocError> {
        let region = self.layout.region_of(cut);
        let begin = region << self.layout.leaf_bits;
        let (table, _) = self.tables.take_any(&mut self.frames).ok_or(AllocError::NoFrames)?;
        if self.write_split(bus, table, begin, first, cut, large, frame).is_err() {
            self.tables.give_back(table, false, &mut self.frames);
            return Err(AllocError::BusError);
        }
        let old = self.run_word(region, frame, (large.memory, large.rights), false);
        if self.direct(bus, region, self.link_word(table)).is_err() {
            // Both say the same of every page. The table is free only if nothing leads to it.
            if self.direct(bus, region, old).is_ok() {
                self.tables.give_back(table, false, &mut self.frames);
            } else {
                self.counts.quarantined += 1;
            }
            return Err(AllocError::BusError);
        }
        self.regions.set_part(region, Part::Table(table));
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "what the words of a run say")]
    fn write_split(
        &self,
        bus: &mut impl TableBus,
        table: Table,
        begin: u64,
        first: u64,
        cut: u64,
        large: Large,
        frame: u32,
    ) -> Result<(), TableBusError> {
        let forgets = self.mutated.on(AllocMutation::SplitForgetsFrames);
        let Large { memory, rights, .. } = large;
        for within in 0..self.layout.region_pages() {
            let page = begin + within;
            let longest = self.layout.run_size_max();
            let size = if page < cut { size_before(page, longest, cut) } else { 0 };
            let frame = if forgets { frame } else { frame + within as u32 };
            let word = PageWord::mapped(memory, frame, rights, size);
            bus.write(
                self.word_address(table, page),
                word.bounding(page == first, page + 1 == cut).0,
            );
        }
        bus.wait()
    }
}
