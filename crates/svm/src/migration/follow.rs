//! A chain that follows another: both copy the same pages, from the same source, and it enters its copies when the
//! other has entered its own.
//!
//! Each page is held by one chain. The one that follows gets it from its leader, in the place of whoever else waits
//! for the page, when that settles; until then it goes no further than its copies. If the leader fails, so does who
//! follows: what it was to add to is not there. Nothing that becomes of who follows is felt by its leader.

use farside_types::{PageNo, PageRange, Time};

use crate::Driver;
use crate::api::event::StepErrorKind;
use crate::migration::chain::{Chain, FailedStep, Part, Purpose, Stage};
use crate::migration::chains::ChainId;
use crate::mutation::Mutation;
use crate::tables::page::PageState;
use crate::waiting::Work;

impl Driver {
    /// Begins a chain whose pages `leader` holds, which copies them.
    pub(crate) fn start_follower(
        &mut self,
        now: Time,
        leader: ChainId,
        part: Part,
        purpose: Purpose,
    ) {
        let id = self.chains.take();
        self.chains[id].follows = Some(leader);
        self.chains[leader].followers.push(id);
        self.chains[id].parts.push(part);
        self.begin_chain(now, id, purpose);
    }

    /// The chain that follows this one with a page.
    pub(crate) fn follower_with(&self, leader: ChainId, page: PageNo) -> Option<ChainId> {
        let has = |id: &&ChainId| {
            let mut runs = self.chains[**id].parts.iter().flat_map(|part| part.runs.iter());
            runs.any(|run| run.pages().contains(page))
        };
        self.chains[leader].followers.iter().find(has).copied()
    }

    /// Pages that a chain lets go are held by those that follow it.
    pub(crate) fn hand_over(&mut self, leader: ChainId, range: PageRange) {
        if self.chains[leader].followers.is_empty() {
            return;
        }
        for page in range.pages() {
            if let Some(next) = self.follower_with(leader, page) {
                let entry = self.table.get_mut(page);
                (entry.state, entry.chain) = (PageState::Moving, next);
            }
        }
    }

    /// A chain has let all its pages go: those that followed it go on, or back if it has failed.
    pub(crate) fn release_followers(&mut self, leader: ChainId, failed: Option<StepErrorKind>) {
        let failed = failed.filter(|_| !self.mutated.on(Mutation::OutliveLeader));
        let mut followers = std::mem::take(&mut self.chains[leader].followers);
        for id in followers.drain(..) {
            self.work.push_back(Work::Chain(id));
            let chain = &mut self.chains[id];
            chain.follows = None;
            if let Some(kind) = failed {
                let page = chain.parts[0].first_page();
                chain.fail(0, FailedStep::Copy, page, kind);
            }
        }
        self.chains[leader].followers = followers;
    }

    /// Whether a chain goes no further than its copies, as long as the one that it follows has not settled.
    pub(crate) fn waits_for_leader(&self, id: ChainId) -> bool {
        let Chain { stage, follows, .. } = &self.chains[id];
        let ahead = self.mutated.on(Mutation::EnterBeforeLeader);
        follows.is_some() && *stage == Stage::Copy && !ahead
    }
}

#[cfg(test)]
mod tests;
