//! A plan: pages by what has to happen to them. The planner makes it, the migrator takes it.

use farside_types::{Access, PageNo};

use crate::api::command::{Run, Runs};
use crate::api::event::Need;
use crate::faults::open::{FaultKey, FaultKeys, Faults};
use crate::migration::chain::{cut_runs, push_run};
use crate::migration::chains::ChainId;
use crate::migration::planner::Reach;
use crate::migration::transition::Transition;
use crate::placement::Scope;
use crate::scratch::Reused;

/// Parts under construction: pages by transition.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) parts: Vec<OpenPart>,
    /// Copies beside those that chains are making.
    pub(crate) followers: Vec<Follower>,
    /// Decisions that reach further than their page.
    pub(crate) wider: Vec<Wider>,
}

/// A decision that reaches further than its page.
pub(crate) struct Wider {
    pub(crate) page: PageNo,
    pub(crate) access: Access,
    pub(crate) transition: Transition,
    pub(crate) reach: Reach,
}

/// Pages that a chain is copying to another card, for a chain that follows it.
pub(crate) struct Follower {
    pub(crate) leader: ChainId,
    pub(crate) part: OpenPart,
}

/// Pages with one transition, and what waits for them.
pub(crate) struct OpenPart {
    pub(crate) transition: Transition,
    pub(crate) runs: Runs,
    pub(crate) pages: u32,
    pub(crate) faults: FaultKeys,
    /// Pages that nobody asked for.
    pub(crate) prefetched: u32,
}

impl Reused for Plan {
    fn empty(&mut self) {
        self.parts.clear();
        self.followers.clear();
        self.wider.clear();
    }

    fn with_room(parts: usize) -> Plan {
        let followers = Vec::with_capacity(parts);
        Plan { parts: Vec::with_capacity(parts), followers, wider: Vec::with_capacity(parts) }
    }
}

impl Plan {
    /// Adds pages that are mapped where they are.
    pub(crate) fn add_run(&mut self, transition: Transition, run: Run) {
        let at = self.part_of(transition);
        let part = &mut self.parts[at];
        // Another fault of the batch may have brought the same run.
        if !part.runs.iter().any(|known| known.pages().overlaps(run.pages())) {
            part.runs.push(run);
            part.pages += run.count;
        }
    }

    /// All that is to be brought or mapped.
    pub(crate) fn open_parts(&self) -> impl Iterator<Item = &OpenPart> {
        self.parts.iter().chain(self.followers.iter().map(|it| &it.part))
    }

    /// The number of the part with this transition.
    fn part_of(&mut self, transition: Transition) -> usize {
        let known = self.parts.iter().rposition(|part| part.transition == transition);
        known.unwrap_or_else(|| {
            self.parts.push(OpenPart::new(transition));
            self.parts.len() - 1
        })
    }

    /// Adds pages that nothing has entered yet. Gives the part's number.
    pub(crate) fn add(&mut self, transition: Transition, run: Run) -> usize {
        let at = self.part_of(transition);
        self.add_to(at, run);
        at
    }

    /// Adds pages to part number `at`.
    pub(crate) fn add_to(&mut self, at: usize, run: Run) {
        self.parts[at].add(run);
    }
}

impl OpenPart {
    /// Without pages.
    pub(crate) fn new(transition: Transition) -> OpenPart {
        let (runs, faults) = (Runs::new(), FaultKeys::new());
        OpenPart { transition, runs, pages: 0, faults, prefetched: 0 }
    }

    /// Adds pages that nothing has entered yet.
    pub(crate) fn add(&mut self, run: Run) {
        push_run(&mut self.runs, run);
        self.pages += run.count;
    }
}

/// Notes a decision that reaches further than its page, once for pages beside each other.
pub(crate) fn widen(decisions: &mut Vec<Wider>, wider: Wider) {
    let says_the_same = |last: &Wider| {
        let Wider { access, transition, reach, .. } = last;
        matches!(reach.scope, Scope::Range(_))
            && (*access, *transition, *reach) == (wider.access, wider.transition, wider.reach)
    };
    if !decisions.last().is_some_and(says_the_same) {
        decisions.push(wider);
    }
}

/// Cuts a part after `most` pages and gives what is behind, each with the faults for its pages.
pub(crate) fn cut_part(part: &mut OpenPart, most: u32, open: &Faults) -> OpenPart {
    let behind = cut_runs(&mut part.runs, most);
    let late = behind.first().map_or(PageNo(u64::MAX), |run| run.page);
    let is_behind = |&key: &FaultKey| match open.get(key).map(|fault| &fault.need) {
        Some(Need::Page(page, _)) => *page >= late,
        _ => false,
    };
    let after: FaultKeys = part.faults.iter().copied().filter(is_behind).collect();
    // Where a card is full everything is behind.
    part.faults = if after.len() == part.faults.len() {
        FaultKeys::new()
    } else {
        part.faults.iter().copied().filter(|key| !is_behind(key)).collect()
    };
    let pages = part.pages.saturating_sub(most);
    part.pages -= pages;
    OpenPart { transition: part.transition, runs: behind, pages, faults: after, prefetched: 0 }
}
