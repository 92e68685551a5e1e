//! Memory that the program had before: what of it is adopted, and what must be true when it is given back.
//!
//! The pages behind the arena are the program's. It reads and writes them as it likes until they are adopted, and again
//! once they are given back; then every word must be there that was written last, whoever wrote it.

use std::sync::Arc;

use farside_svm::Request;
use farside_types::{Access, AgentId, CardId, MemoryId, PageNo, PageRange, RequestId, Rights};

use crate::machine::Machine;
use crate::reference::WORDS;
use crate::violation::{Violation, ensure};

impl Machine {
    /// Pages that can be adopted.
    fn adoptable(&self) -> PageRange {
        PageRange::new(self.arena.end(), self.pages.count - self.arena.count)
    }

    /// Whether the program has a page for itself.
    pub(crate) fn is_own(&self, agent: AgentId, page: PageNo) -> bool {
        agent.is_cpu()
            && self.adoptable().contains(page)
            && self.facts.get(page).is_some_and(|facts| !facts.live)
    }

    /// Whether a page was adopted that must stay where it is.
    pub(crate) fn stays_home(&self, page: PageNo) -> bool {
        self.facts.get(page).is_some_and(|facts| facts.live && facts.stays_home)
    }

    /// Whether a page was adopted that may go to cards, which do not reach it on the host.
    pub(crate) fn moves_adopted(&self, page: PageNo) -> bool {
        let facts = self.facts.get(page).filter(|_| self.adoptable().contains(page));
        facts.is_some_and(|facts| facts.live && !facts.stays_home)
    }

    /// Whether something in the space has a page of a range.
    pub(crate) fn is_taken(&self, range: PageRange) -> bool {
        let dying = self.requests.values().filter_map(|open| open.freeing);
        let known = self.allocations.iter().copied().chain(dying).chain([self.arena]);
        known.into_iter().any(|known| known.overlaps(range))
    }

    /// Has memory adopted; now and then memory that is the space's already, or none.
    pub(crate) fn random_adoption(&mut self) -> Request {
        let all = self.adoptable();
        let start = all.start.offset(self.rng.below(all.count));
        let most = all.end().0 - start.0;
        let least = u64::from(!self.rng.chance(20));
        let count = self.rng.between(least, 40).min(most);
        let range = PageRange::new(start, count);
        let moves = self.rng.chance(800);
        if !self.is_taken(range) {
            self.write_own(range);
        }
        Request::Adopt { range, bytes: range.bytes(), name: Arc::from("adopted"), moves }
    }

    /// The program has written its pages before.
    fn write_own(&mut self, range: PageRange) {
        for page in range.pages() {
            let word = self.rng.below(WORDS as u64) as usize;
            let value = self.number() << 16;
            self.at_home(page)[word] = value;
            self.reference.write(page, word, value);
        }
    }

    /// The request that ends an allocation, or gives adopted memory back.
    pub(crate) fn end_of(&self, range: PageRange) -> Request {
        let addr = range.start.addr();
        if self.arena.covers(range) { Request::Free { addr } } else { Request::Disown { addr } }
    }

    /// Notes that a request is to end an allocation; gives its pages.
    pub(crate) fn leave(&mut self, request: &Request, stamp: u64) -> Option<PageRange> {
        let at = self.allocations.iter().position(|&range| self.end_of(range) == *request)?;
        let range = self.allocations.remove(at);
        if self.arena.covers(range) {
            self.facts.dying(range, stamp);
        } else {
            self.facts.leaving(range, stamp);
        }
        Some(range)
    }

    /// The driver has adopted a range.
    pub(crate) fn take_adopted(
        &mut self,
        id: RequestId,
        range: PageRange,
        moves: bool,
    ) -> Result<(), Violation> {
        ensure!(!range.is_empty(), "{id} adopted no page at all");
        ensure!(!self.is_taken(range), "{id} adopted {range}, which is in the space already");
        self.facts.allocated(range, self.stamp);
        self.facts.each(range, |facts| {
            facts.stays_home = !moves;
            facts.pins.extend((!moves).then_some(MemoryId::HOST));
        });
        self.cpu.mapped.extend(range.pages().map(|page| (page, Rights::ReadWrite)));
        self.allocations.push(range);
        Ok(())
    }

    /// The driver has given a range back: it is the program's alone, with every word that was written last. What was lost
    /// with a card is zero.
    pub(crate) fn take_back(&mut self, id: RequestId, range: PageRange) -> Result<(), Violation> {
        for page in range.pages() {
            self.check_home(id, page)?;
            self.cpu.mapped.remove(&page);
            self.cpu.poisoned.remove(&page);
        }
        self.facts.left(range, self.stamp, true);
        range.pages().for_each(|page| self.wake_threads(page));
        Ok(())
    }

    fn check_home(&mut self, id: RequestId, page: PageNo) -> Result<(), Violation> {
        for card in (0..self.cards.len()).map(|card| CardId(card as u8)) {
            // One that is idle is told in order, before its next job: to that nothing leads to the page.
            let is_idle = self.cards[usize::from(card.0)].running == 0;
            let reaches = self.hit(card.agent(), page, Access::Read);
            let reaches = reaches.filter(|found| found.memory.is_host() && !is_idle);
            ensure!(reaches.is_none(), "{id} gave {page} back, and {card} reaches it: {reaches:?}");
        }
        let (home, wanted) = (*self.at_home(page), *self.reference.page(page));
        let rights = self.cpu.mapped.get(&page).copied();
        // Where the last call to map it failed the machine does that in the end.
        if home == wanted {
            return Ok(());
        }
        ensure!(
            self.facts.was_lost(page) && rights.is_none(),
            "{id} gave {page} back with {home:x?} instead of {wanted:x?}, and the cpu has {rights:?}"
        );
        *self.at_home(page) = [0; WORDS];
        self.reference.clear(PageRange::page(page));
        Ok(())
    }
}
