//! Which bytes running kernels were lent for writing.

use std::collections::HashMap;

use farside_events::{Event, Kind};
use farside_types::AgentId;

use crate::objects::Example;

/// Ranges of a launch that are kept, at most.
const RANGES: usize = 64;

/// Bytes: from, until.
type Bytes = (u64, u64);

/// What launches that have not ended were lent.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    jobs: HashMap<u64, (AgentId, Vec<Bytes>)>,
    /// What the last kernel of each agent that has ended was lent.
    before: HashMap<AgentId, Vec<Bytes>>,
}

impl Lent {
    pub(crate) fn launch(&mut self, event: &Event) {
        if let Some(agent) = event.agent {
            self.jobs.insert(event.number, (agent, Vec::new()));
        }
    }

    /// Notes what a launch is lent; gives whose launch it is.
    pub(crate) fn lend(&mut self, event: &Event) -> Option<AgentId> {
        let (agent, ranges) = self.jobs.get_mut(&event.number)?;
        if event.kind == Kind::LentWrite && ranges.len() < RANGES {
            ranges.push((event.address, event.address + event.bytes));
        }
        Some(*agent)
    }

    pub(crate) fn end(&mut self, job: u64) {
        if let Some((agent, ranges)) = self.jobs.remove(&job) {
            self.before.insert(agent, ranges);
        }
    }

    /// What an agent's kernels may write of the bytes; of those that run, or else of the last one.
    fn written(&self, agent: AgentId, of: Bytes) -> Option<Bytes> {
        let running = self.jobs.values().filter(|(at, _)| *at == agent).map(|(_, ranges)| ranges);
        let find = |ranges: &Vec<Bytes>| ranges.iter().find_map(|&range| common(range, of));
        let mut running = running;
        running.find_map(find).or_else(|| self.before.get(&agent).and_then(find))
    }

    /// Whether one agent took a page from another of which they use different bytes: both, or the one that is a card,
    /// were lent a part of it, and these parts have nothing in common. What a running kernel was lent for writing nobody
    /// else uses, so a host that takes the page uses the rest.
    pub(crate) fn apart(
        &self,
        object: u64,
        page: u64,
        page_bytes: u64,
        loser: AgentId,
        taker: AgentId,
    ) -> Option<Example> {
        let start = object + page * page_bytes;
        let all = (start, start + page_bytes);
        let within = |(from, until): Bytes| (from - object, until - object);
        let (card, other) = if loser.is_cpu() { (taker, loser) } else { (loser, taker) };
        let own = self.written(card, all)?;
        let theirs = match other.is_cpu() {
            true => None,
            false => Some(self.written(other, all)?),
        };
        let apart = match theirs {
            Some(theirs) => common(own, theirs).is_none(),
            None => own != all && self.runs(card),
        };
        let (from, until) = within(own);
        apart.then(|| Example {
            page,
            loser: (card, from, until),
            taker: (other, theirs.map(within)),
        })
    }

    fn runs(&self, agent: AgentId) -> bool {
        self.jobs.values().any(|(at, _)| *at == agent)
    }
}

/// What two ranges have in common.
fn common(a: Bytes, b: Bytes) -> Option<Bytes> {
    let both = (a.0.max(b.0), a.1.min(b.1));
    (both.0 < both.1).then_some(both)
}
