//! Agents that do not let go of a page. No agent leaves a page's directory before its unmap is
//! confirmed: what was meant to happen is no reason to believe that it did.
//!
//! | who does not let go | what follows |
//! |---|---|
//! | the CPU | the chain rolls back; the CPU stays in the directory |
//! | a card that refuses, or that may write | the same; whoever wanted the page tries again, a bounded number of times |
//! | a card that only reads and is late | the chain goes on; the card stays in the directory, and what it may still read is out of use until it is reset |
//! | a card that is late, of pages that are being freed | the same; the addresses are not given out again until the card has let go, or is reset |
//! | a card that was idle when it was told to | its frames are out of use, and the card has to be reset: it launches nothing until then |
//!
//! What a card maps of a memory that is gone is no mapping of the page, and needs no confirmation.

use farside_types::{AgentId, AgentSet, CardId, CommandId, MemoryId, MemorySet, PageNo, PageRange};
use serde::{Deserialize, Serialize};

use crate::Driver;
use crate::api::command::{Run, Runs};
use crate::api::event::{StepError, StepErrorKind};
use crate::api::reply::Reply;
use crate::migration::chain::{Chain, FailedStep, Pending, Stage};
use crate::migration::chains::ChainId;
use crate::migration::transition::End;
use crate::mutation::Mutation;
use crate::tables::page::{PageState, flag};

/// An agent that has not let go of pages of a chain's part.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Holder {
    part: u16,
    agent: AgentId,
    /// Of so many pages, in the order of the runs, it has.
    done: u64,
}

/// A command to let pages go that were freed, and nobody waits for any more.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LateStop {
    command: CommandId,
    agent: AgentId,
    runs: Runs,
}

impl Holder {
    pub(crate) fn is(&self, agent: AgentId) -> bool {
        self.agent == agent
    }
}

impl LateStop {
    pub(crate) fn is_of(&self, card: CardId) -> bool {
        self.agent == card.agent()
    }
}

impl Chain {
    /// Who is not known to have let go of pages of a part: commands that failed, and those that are
    /// not answered.
    pub(crate) fn holders(&self, part: u16) -> Vec<Holder> {
        let unanswered = self.pending.iter().filter_map(|pending| {
            Some(Holder { part: pending.part, agent: pending.stops()?, done: 0 })
        });
        let all = self.holders.iter().copied().chain(unanswered);
        all.filter(|holder| holder.part == part).collect()
    }

    /// Who was told to let go of pages of a part and was waited for in vain.
    pub(crate) fn stayed(&self, part: u16) -> AgentSet {
        let of_part = self.holders.iter().filter(|holder| holder.part == part);
        of_part.map(|holder| holder.agent).collect()
    }
}

/// Those of the holders that have not let go of page number `at`.
pub(crate) fn holding(holders: &[Holder], at: u64) -> AgentSet {
    holders.iter().filter(|holder| at >= holder.done).map(|holder| holder.agent).collect()
}

impl Driver {
    /// The same, unless the rule is broken.
    pub(crate) fn holders(&self, id: ChainId, part: u16) -> Vec<Holder> {
        if self.mutated.on(Mutation::LeaveUnconfirmed) {
            return Vec::new();
        }
        self.chains[id].holders(part)
    }

    /// An agent did not do what it was told to: it may map the pages as before.
    pub(crate) fn stop_failed(
        &mut self,
        id: ChainId,
        pending: Pending,
        agent: AgentId,
        error: StepError,
    ) {
        let Some(card) = agent.card() else {
            let done = error.pages_done;
            return self.holds_on(id, pending.part, agent, done, error.kind);
        };
        if error.kind == StepErrorKind::CardGone {
            // Its tables are gone with it.
            return;
        }
        self.suspect(id, pending.part, MemorySet::only(card.memory()));
        let chain = &mut self.chains[id];
        let part = &chain.parts[pending.part as usize];
        let (runs, end) = (part.runs.clone(), part.transition.end);
        if matches!(chain.stage, Stage::Finalize | Stage::Closing) {
            // Nobody waited, and the pages have gone on.
            chain.suspects = chain.suspects.with(card.memory());
            return self.distrust(card);
        }
        let writes = runs.iter().any(|run| {
            run.pages().pages().any(|p| self.table.get(p).directory.writers().contains(agent))
        });
        // One that did not answer has it in its ring still, and lets go before it does anything else.
        let late = error.kind == StepErrorKind::TimedOut;
        if !late || (writes && end != End::Free) {
            return self.holds_on(id, pending.part, agent, 0, error.kind);
        }
        let chain = &mut self.chains[id];
        chain.suspects = chain.suspects.with(card.memory());
        chain.holders.push(Holder { part: pending.part, agent, done: 0 });
        if end == End::Free {
            self.late_stops.push(LateStop { command: pending.command, agent, runs });
        }
    }

    /// Notes that an agent has not let go of a part's pages, `done` of them left out, and that the
    /// chain cannot go on therefore.
    fn holds_on(&mut self, id: ChainId, part: u16, agent: AgentId, done: u64, kind: StepErrorKind) {
        let chain = &mut self.chains[id];
        chain.holders.push(Holder { part, agent, done });
        let page = nth_page(&chain.parts[part as usize].runs, done);
        let page = page.unwrap_or(chain.parts[part as usize].first_page());
        chain.fail(part, FailedStep::Stop(agent), page, kind);
    }

    /// Tells the program that these cards do not answer.
    pub(crate) fn suspect(&mut self, id: ChainId, part: u16, suspects: MemorySet) {
        let part = self.chains[id].parts.get(part as usize);
        let pages =
            part.and_then(|part| part.runs.first()).map_or_else(Default::default, Run::pages);
        for card in suspects.iter().filter_map(MemoryId::card) {
            self.stuck = self.stuck.with(card.memory());
            self.replies.push_back(Reply::CardSuspect { card, pages });
        }
    }

    /// A card fails what a card cannot fail: it has to be reset, and launches nothing until then.
    pub(crate) fn distrust(&mut self, card: CardId) {
        let memory = card.memory();
        if self.is_dead(memory) || self.distrusted.contains(memory) {
            return;
        }
        self.stuck = self.stuck.with(memory);
        self.distrusted = self.distrusted.with(memory);
        self.replies.push_back(Reply::CardBroken { card });
    }

    /// A card lets pages go after all that were freed long ago: `true` if it was that.
    pub(crate) fn late_stop_done(
        &mut self,
        command: CommandId,
        result: Result<(), StepError>,
    ) -> bool {
        let Some(at) = self.late_stops.iter().position(|late| late.command == command) else {
            return false;
        };
        if result.is_ok() {
            let LateStop { agent, runs, .. } = self.late_stops.swap_remove(at);
            self.confirm(AgentSet::only(agent), runs.iter().map(Run::pages));
            self.end_lingering();
        }
        true
    }

    /// Agents have let go of pages that nobody can have got since: they are lost, or freed.
    pub(crate) fn confirm(&mut self, agents: AgentSet, ranges: impl Iterator<Item = PageRange>) {
        for range in ranges {
            self.table.for_each_known_mut(range, |entry| {
                if matches!(entry.state, PageState::Lost | PageState::Tombstone) {
                    entry.directory.unmap(agents);
                }
            });
        }
    }

    /// Whether a card may still reach a page of a freed allocation, or write its frame on the host:
    /// whoever got the addresses then could not have the page at home.
    pub(crate) fn is_held(&self, range: PageRange) -> bool {
        let held = |page| {
            let entry = self.table.get(page);
            entry.has(flag::HOST_UNSAFE) || !entry.directory.mappers().is_empty()
        };
        self.stuck != MemorySet::EMPTY
            && self.table.touched(range).into_iter().flat_map(PageRange::pages).any(held)
    }

    /// Gives the addresses of freed allocations back that nobody maps any more.
    pub(crate) fn end_lingering(&mut self) {
        let held = std::mem::take(&mut self.lingering);
        for range in held {
            if self.is_held(range) {
                self.lingering.push(range);
            } else {
                self.give_addresses_back(range);
            }
        }
    }
}

/// The page after `done` pages of the runs.
pub(crate) fn nth_page(runs: &[Run], done: u64) -> Option<PageNo> {
    let mut left = done;
    for run in runs {
        if left < u64::from(run.count) {
            return Some(run.page.offset(left));
        }
        left -= u64::from(run.count);
    }
    None
}
