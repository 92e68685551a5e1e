//! Where agents that fight over a page can both reach it: the rule that ends a fight (driver rule 10).
//!
//! | who fights | where the page stays |
//! |---|---|
//! | cards that reach each other's memory | on the card that has it |
//! | cards that do not, but reach the host's | on the host |
//! | the host, which maps no card's memory, and cards that reach the host's | on the host |
//! | readers only | everywhere: each gets a copy |
//!
//! Where there is no such place, every use of the page needs it to move, and the minimum residency is what lets
//! each of them get something done (`faults/thrash.rs`).

use farside_types::{AgentId, AgentSet, BLOCK_PAGES, MemoryId, PageNo, PageRange};

use crate::Driver;
use crate::migration::planner::Asker;
use crate::mutation::Mutation;
use crate::placement::Action;
use crate::tables::page::{PageEntry, flag};

/// What is done with a page that is fought over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ground {
    /// Who asks gets a copy: nobody writes it.
    Copies,
    /// It stays on the card that has it.
    There,
    /// It goes to the host.
    ToHost,
    /// It stays on the host, with those beside it that were put there for the same reason.
    OnHost,
}

impl Ground {
    pub(super) fn action(self) -> Action {
        match self {
            Ground::Copies => Action::Duplicate,
            Ground::There | Ground::OnHost => Action::MapRemote,
            Ground::ToHost => Action::MapOnHost,
        }
    }
}

impl Driver {
    /// Where a page of a settled allocation is reached by the card that asks and by `losers`, the cards that
    /// would lose it; `None` where it comes as before.
    pub(super) fn ground(
        &self,
        entry: &PageEntry,
        Asker { agent, access, .. }: Asker,
        losers: AgentSet,
    ) -> Option<Ground> {
        let (owner, mutated) = (entry.owner(), self.mutated);
        let on_host = owner.is_host();
        let runs = self.runs(losers);
        let reads = !access.is_write() && entry.directory.writers().is_empty();
        if reads && runs && !mutated.on(Mutation::ReadersShareOneCopy) {
            return Some(Ground::Copies);
        }
        if entry.has(flag::COMMON) && !mutated.on(Mutation::LeaveCommonGround) {
            // Who got a copy by a probe may have the page for itself.
            let probed = on_host && entry.directory.copies().contains(agent.home());
            let ground = if on_host { Ground::OnHost } else { Ground::ToHost };
            let meet = !probed && self.meet_on_host(entry, losers.with(agent));
            return meet.then_some(ground);
        }
        // A page that is on the host moves once more, and stays where it then is.
        if !runs || on_host {
            return None;
        }
        if self.reaches_page(entry, agent, owner) {
            return Some(Ground::There);
        }
        let meets = self.meet_on_host(entry, losers.with(agent).with(owner.agent()));
        (meets && !mutated.on(Mutation::FightWithoutPeers)).then_some(Ground::ToHost)
    }

    /// Whether all of these agents can have a page where the host has it.
    fn meet_on_host(&self, entry: &PageEntry, agents: AgentSet) -> bool {
        let mut agents = agents.iter();
        let reach = agents.all(|agent| self.reaches_page(entry, agent, MemoryId::HOST));
        reach && !entry.has(flag::HOST_UNSAFE)
    }

    /// The pages beside one on the host, within its block and allocation, that were put there as it was.
    pub(super) fn common_around(&self, page: PageNo, object: PageRange) -> PageRange {
        let block = PageRange::new(page.align_down(BLOCK_PAGES), BLOCK_PAGES).intersection(object);
        let is_common = |other: &PageNo| {
            let entry = self.table.get(*other);
            entry.has(flag::COMMON) && entry.owner().is_host()
        };
        let before = PageRange::new(block.start, page.0 - block.start.0).pages().rev();
        let behind = PageRange::new(page.offset(1), block.end().0 - page.0 - 1).pages();
        let first = before.take_while(is_common).last().unwrap_or(page);
        let last = behind.take_while(is_common).last().unwrap_or(page);
        PageRange::new(first, last.0 - first.0 + 1)
    }
}

/// Whether what `taker` took from a running card, so that it is at `owner`, is to be used on the host.
pub(super) fn is_common(taker: AgentId, owner: MemoryId) -> bool {
    taker.is_cpu() || owner.is_host()
}

#[cfg(test)]
pub(super) mod tests;
