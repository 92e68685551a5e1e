//! The driver's own audit: tables that must agree do agree. For tests, at quiet points.

use farside_types::{AgentId, CardId, MemoryId, PageNo, PageRange};

use crate::Driver;
use crate::migration::chains::ChainId;
use crate::migration::transition::location;
use crate::tables::page::{PageEntry, PageState};
use crate::waiting::Until;

impl Driver {
    /// Checks that page table, directory, residency maps and frames agree.
    ///
    /// # Errors
    /// The text names the page or frame and what is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        let mut held = vec![0; self.cards.len()];
        for object in self.space.objects() {
            // What nobody has touched is as it was allocated: nowhere.
            for page in self.table.touched(object.range).into_iter().flat_map(PageRange::pages) {
                let entry = self.table.get(page);
                self.check_page(page, entry)?;
                self.check_copies(page, entry, &mut held)?;
            }
        }
        let bring: u64 =
            self.chains.iter().filter_map(|chain| chain.brings).map(|it| it.pages).sum();
        if self.prices.under_way() != bring {
            return Err(format!(
                "chains bring {bring} pages, {} are counted",
                self.prices.under_way()
            ));
        }
        for (card, &frames) in held.iter().enumerate() {
            self.check_card(CardId(card as u8), frames)?;
        }
        Ok(())
    }

    fn check_page(&self, page: PageNo, entry: &PageEntry) -> Result<(), String> {
        let directory = entry.directory;
        let (copies, mappers, writers) =
            (directory.copies(), directory.mappers(), directory.writers());
        let fail = |what: &str| Err(format!("{page} ({:?}): {what}", entry.state));
        match entry.state {
            PageState::Unallocated => return fail("an allocation holds an unallocated page"),
            PageState::Moving => return self.check_moving(page, entry),
            PageState::Tombstone if self.lingering.iter().any(|r| r.contains(page)) => {
                return self.check_lingering(page, entry);
            }
            PageState::Tombstone => return Ok(()),
            state if state != entry.settled_state() => return fail("its copies say otherwise"),
            _ => {}
        }
        if entry.chain != ChainId::NONE {
            return fail("it names a chain");
        }
        if !writers.minus(mappers).is_empty() {
            return fail("a writer is no mapper");
        }
        if copies.len() > 1 && !writers.is_empty() {
            return fail("it has several copies and a writer");
        }
        if copies.is_empty() && !mappers.is_empty() && entry.state != PageState::Lost {
            return fail("it is mapped and has no copy");
        }
        if !copies.is_empty() && !copies.contains(entry.owner()) {
            return fail("its main location has no valid copy");
        }
        if !copies.and(self.dead).is_empty() {
            return fail("it has a copy on a card that is gone");
        }
        let stuck = |agent: &AgentId| self.stuck.contains(agent.home());
        for agent in mappers.iter().filter(|agent| !copies.is_empty() && !stuck(agent)) {
            let at = location(agent, copies, entry.owner());
            if !self.reaches_page(entry, agent, at) {
                return fail("an agent maps a memory it cannot reach");
            }
        }
        Ok(())
    }

    /// Nobody but cards that do not let go maps what was freed.
    fn check_lingering(&self, page: PageNo, entry: &PageEntry) -> Result<(), String> {
        let free = |agent: &AgentId| !self.stuck.contains(agent.home());
        match entry.directory.mappers().iter().find(free) {
            Some(agent) => Err(format!("{page} was freed, and {agent} still maps it")),
            None => Ok(()),
        }
    }

    fn check_moving(&self, page: PageNo, entry: &PageEntry) -> Result<(), String> {
        let chain = self.chains.get(entry.chain);
        let holds = |chain: &crate::migration::chain::Chain| {
            let mut runs = chain.parts.iter().flat_map(|part| part.runs.iter());
            runs.any(|run| run.pages().contains(page))
        };
        if chain.is_some_and(holds) {
            return Ok(());
        }
        Err(format!("{page} moves, but no chain holds it"))
    }

    /// Counts the frames that the page has, by card, into `held`. A frame says itself which page is
    /// in it, so no two pages can have it.
    fn check_copies(
        &self,
        page: PageNo,
        entry: &PageEntry,
        held: &mut [u32],
    ) -> Result<(), String> {
        if entry.state == PageState::Tombstone {
            return Ok(());
        }
        for (card, state) in self.cards.iter().enumerate() {
            let memory = CardId(card as u8).memory();
            let here = entry.directory.copies().contains(memory);
            let listed = state.residency.contains(page);
            if here != listed && !self.is_dead(memory) {
                return Err(format!(
                    "{page}: the directory says {here}, the residency map of {memory} {listed}"
                ));
            }
        }
        for memory in entry.directory.copies().iter() {
            let Some(card) = memory.card() else { continue };
            if self.is_dead(memory) {
                continue;
            }
            let frame = self.frame_at(page, entry, memory);
            let owner = self.cards[card.0 as usize].frames.page_in(frame);
            if owner != Some(self.table.index(page)) {
                return Err(format!("{page}: {memory} {frame:?} is not listed as its frame"));
            }
            held[card.0 as usize] += 1;
        }
        Ok(())
    }

    fn check_card(&self, card: CardId, held: u32) -> Result<(), String> {
        let memory = card.memory();
        if self.is_dead(memory) {
            return Ok(());
        }
        let state = &self.cards[card.0 as usize];
        let quiet = self.chains.are_idle();
        let used = held + state.frames.free() + state.frames.quarantined();
        if quiet && used != state.frames.total() {
            return Err(format!(
                "{memory}: {held} frames hold pages, {} are free, {} quarantined, of {}",
                state.frames.free(),
                state.frames.quarantined(),
                state.frames.total()
            ));
        }
        let first = self.waiting.first(Until::Frames(card));
        let single = first.filter(|&work| self.waiting_fault(work).is_none());
        if let (Some(work), true) = (single, quiet && state.frames.free() > 0) {
            return Err(format!("{memory}: {work:?} waits for frames, and some are free"));
        }
        if state.called > 0 {
            return Err(format!("{memory}: {} frames are kept for nobody", state.called));
        }
        if let (Some(order), true) = (&state.frames.replacement, quiet) {
            let holds = |frame| state.frames.page_in(frame).is_some();
            order.check(holds).map_err(|wrong| format!("{memory}: {wrong}"))?;
        }
        if quiet && state.residency.pages() != u64::from(held) {
            let map = state.residency.pages();
            return Err(format!("{memory}: {map} pages in the residency map, {held} in frames"));
        }
        Ok(())
    }

    /// Whether `range` lies in one memory as a whole.
    pub fn is_at(&self, range: PageRange, memory: MemoryId) -> bool {
        range.pages().all(|page| self.table.get(page).directory.copies().contains(memory))
    }
}
