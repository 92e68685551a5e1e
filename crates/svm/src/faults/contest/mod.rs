//! Allocations that running cards fight over: seen by all of their pages, settled by one verdict
//! (driver rule 10).
//!
//! A page that an agent gets and a card that runs loses is *taken*. Data that is handed on is taken once, by
//! agents that use it one after the other. In a fight what was taken is taken back while both run; so an
//! allocation is fought over when that has happened to some of its pages, whichever they are, or when
//! cards have taken as many pages as it has. From then on a page of it that a running card has is not taken:
//! where it is only read, whoever asks gets a copy; otherwise it is mapped where all of them reach it
//! ([`ground`]): where it is, with its neighbours of the same card, so that 8192 pages do not each fight their
//! own fight, or on the host. Pages that nobody else has come as before.
//!
//! Patterns change, and the card that uses a page from afar counts its accesses. A notice copies its group
//! there once, to see: whoever only reads takes nothing from anybody, and who writes a copy has the page alone.
//! If another running card then wants a page of the allocation for itself, the fight goes on, and the next probe
//! waits twice as long; if none does, the next notices copy theirs at once. What kernels do when none has run for
//! a moment is another thing than what they fought over: the first probe need not wait then.

use farside_types::{AgentId, AgentSet, BLOCK_PAGES, PageNo, PageRange, Reason, Span, Time};
use serde::{Deserialize, Serialize};

use crate::Driver;
use crate::api::why::Contested;
use crate::migration::planner::Asker;
use crate::migration::transition::Transition;
use crate::mutation::Mutation;
use crate::placement::{Action, Decision, Scope};
use crate::tables::page::{PageEntry, flag};
use crate::waiting::Work;

mod ground;

use ground::{Ground, is_common};

/// What the program has said of a page comes first.
const TOLD: u16 = flag::PINNED | flag::HINTED | flag::READ_MOSTLY;
/// So many pages that are taken back make a fight. One may be an accident.
const TAKEN_BACK: u32 = 2;
/// How long the first probe waits.
const PROBE_AFTER: Span = Span::from_millis(50);
/// The longest that a probe waits.
const PROBE_AFTER_MOST: Span = Span::from_millis(10_000);

/// What is known of an allocation whose pages cards take from each other.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Contest {
    /// Pages taken since cards last handed a page on.
    taken: u32,
    /// Those that had been taken before.
    taken_back: u32,
    /// Few allocations have one. It lies here: whoever settles a fight serves a fault.
    settled: Option<Settled>,
}

/// A verdict, and what is done to find out whether it still holds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Settled {
    /// Those whose moves showed it.
    agents: AgentSet,
    /// Pages that they had taken until then, and those that had been taken before.
    taken: [u32; 2],
    /// How long the next probe waits.
    wait: Span,
    /// When that was decided.
    since: Time,
    /// Whom a group was copied to, and nobody has wanted anything back since.
    unopposed: Option<AgentId>,
    /// Somebody has, at some time.
    opposed: bool,
}

impl Contest {
    /// So many pages were taken, of which some had been taken before. Whether that is a fight over an
    /// allocation of `all` pages. The host may look at each page once while a kernel runs.
    fn take(&mut self, taker: AgentId, pages: u64, back: u64, all: u64) -> bool {
        let few = |pages: u64| u32::try_from(pages).unwrap_or(u32::MAX);
        if !taker.is_cpu() {
            self.taken = self.taken.saturating_add(few(pages));
        }
        self.taken_back = self.taken_back.saturating_add(few(back));
        self.taken_back >= TAKEN_BACK || u64::from(self.taken) >= all.max(4)
    }

    /// An agent got pages that no running card has lost by it.
    fn hand_on(&mut self) {
        (self.taken, self.taken_back) = (0, 0);
    }

    fn settle(&mut self, now: Time, agents: AgentSet) {
        let taken = [self.taken, self.taken_back];
        let (wait, since) = (PROBE_AFTER, now);
        let settled = Settled { agents, taken, wait, since, unopposed: None, opposed: false };
        self.settled = Some(settled);
    }

    /// The verdict, if there is one.
    pub(crate) fn settled(&self) -> Option<Contested> {
        let settled = self.settled.as_ref()?;
        let Settled { agents, taken, wait, since, .. } = *settled;
        let [taken, taken_back] = taken.map(u64::from);
        Some(Contested { agents, taken, taken_back, since, probe_after: wait })
    }

    /// An agent wants a page for itself that a card has which runs. What was copied to it, it may write.
    fn oppose(&mut self, now: Time, agent: AgentId) {
        let wants_back = |settled: &&mut Settled| settled.unopposed.is_some_and(|to| to != agent);
        if let Some(settled) = self.settled.as_mut().filter(wants_back) {
            settled.wait = Span((settled.wait.0 * 2).min(PROBE_AFTER_MOST.0));
            settled.since = now;
            (settled.unopposed, settled.opposed) = (None, true);
        }
    }

    /// Whether what a counter tells may copy its group to `agent`. No kernel ran at `quiet_at`.
    fn probe(&mut self, now: Time, quiet_at: Time, agent: AgentId) -> bool {
        let Some(settled) = &mut self.settled else { return false };
        let waited = now.since(settled.since) >= settled.wait;
        let another_phase = quiet_at > settled.since && !settled.opposed;
        let may = settled.unopposed.is_some() || waited || another_phase;
        settled.unopposed = settled.unopposed.or(may.then_some(agent));
        may
    }
}

impl Driver {
    /// Pages have got a new place by a transition that was carried out: whether it took them from cards
    /// that run, and how often that has happened, is noted for their allocation.
    pub(crate) fn note_taken(&mut self, now: Time, transition: &Transition, pages: PageRange) {
        let asked = matches!(transition.reason, Reason::Demand | Reason::Collapse)
            || transition.meets_on_host();
        let Some((taker, _)) = transition.map.filter(|_| asked) else { return };
        if taker.is_cpu() && self.mutated.on(Mutation::IgnoreTheHost) {
            return;
        }
        let losers = losers(transition, taker);
        let running = self.runs(losers);
        if running {
            self.stats.taken_from_running += pages.count;
        }
        let is_fought = self.config.thrash.contests && !self.mutated.on(Mutation::FightForever);
        if !is_fought || losers.is_empty() {
            return;
        }
        let (mut taken, mut back) = (0, 0);
        let common = running && is_common(taker, transition.owner);
        self.table.for_each_mut(pages, |_, entry| {
            if !entry.has(TOLD) {
                taken += 1;
                back += u64::from(entry.has(flag::TAKEN));
                entry.set(flag::TAKEN, running);
                entry.set(flag::COMMON, common);
            }
        });
        let Some(object) = self.space.holding_mut(pages.start) else { return };
        let contest = &mut object.contest;
        if !running {
            contest.hand_on();
        } else if contest.take(taker, taken, back, object.range.count) && contest.settled.is_none()
        {
            contest.settle(now, losers.with(taker));
            self.stats.settled_fights += 1;
            if let Some(fight) = self.history.fight(pages.start, losers.with(taker)) {
                fight.settled += 1;
            }
        }
    }

    /// What the contest over an allocation demands for one of its pages in the place of a transition
    /// that was decided on; `None`: nothing.
    pub(crate) fn settle_contest(
        &mut self,
        now: Time,
        page: PageNo,
        entry: &PageEntry,
        asker: Asker,
        decided: &Transition,
    ) -> Option<Decision> {
        let Asker { agent, access, .. } = asker;
        let losers = losers(decided, agent);
        let runs = self.runs(losers);
        if entry.has(TOLD) || !(runs || entry.has(flag::COMMON)) {
            return None;
        }
        let mutated = self.mutated;
        let object = self.space.holding_mut(page)?;
        object.contest.settled.as_ref()?;
        if mutated.on(Mutation::VerdictPerPage) && !entry.has(flag::TAKEN) {
            return None;
        }
        // The host has a page alone also to read it.
        let takes = access.is_write() || agent.is_cpu();
        if runs && takes && !mutated.on(Mutation::IgnoreObjections) {
            object.contest.oppose(now, agent);
        }
        let range = object.range;
        if agent.is_cpu() {
            return None;
        }
        let ground = self.ground(entry, asker, losers)?;
        let decision = Decision::page(ground.action(), Reason::Thrash);
        let block = PageRange::new(page.align_down(BLOCK_PAGES), BLOCK_PAGES).intersection(range);
        Some(match ground {
            _ if mutated.on(Mutation::MapPageByPage) => decision,
            Ground::Copies | Ground::ToHost => decision,
            Ground::There => decision.over(Scope::Range(block)),
            Ground::OnHost => decision.over(Scope::Range(self.common_around(page, range))),
        })
    }

    /// A counter's notice about an allocation that was fought over: its group is copied to see whether it
    /// still is. `false`: it is the scheme's to decide.
    pub(crate) fn probe_contest(&mut self, now: Time, agent: AgentId, pages: PageRange) -> bool {
        let (quiet_at, mutated) = (self.launches.quiet_at, self.mutated);
        let Some(object) = self.space.holding_mut(pages.start) else { return false };
        if object.contest.settled.is_none() {
            return false;
        }
        let may = object.contest.probe(now, quiet_at, agent) || mutated.on(Mutation::ProbeAtOnce);
        if may && !mutated.on(Mutation::NeverProbe) {
            let (action, reason) = (Action::Duplicate, Reason::Counter);
            self.work.push_back(Work::Move { range: pages, agent, action, reason });
        }
        true
    }

    /// Whether a contest may decide otherwise for a neighbour of a page, however alike they are.
    pub(crate) fn is_contested(&self, entry: &PageEntry, agent: AgentId) -> bool {
        let others: AgentSet = entry.directory.mappers().without(agent).without(AgentId::CPU);
        self.config.thrash.contests && self.runs(others)
    }
}

/// The cards that lose a page, or the right to write it, to one that gets it.
fn losers(transition: &Transition, taker: AgentId) -> AgentSet {
    transition.stop.union(transition.demote).without(taker).without(AgentId::CPU)
}

#[cfg(test)]
mod tests;
