//! Sums over time.

use std::collections::BTreeMap;

use farside_events::Event;
use farside_types::{AgentId, MemoryId, Reason};

use crate::facts::{Series, SeriesFacts};
use crate::objects::Words;
use crate::{BINS, FaultFacts, MoveFacts};

/// Time in bins of the same length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bins {
    /// Picoseconds of each.
    pub(crate) width: u64,
}

impl Bins {
    /// For a run of this length.
    pub(crate) fn new(end: u64) -> Bins {
        Bins { width: (end / BINS as u64 + 1).max(1) }
    }

    /// The bin of a time.
    pub(crate) fn of(self, at: u64) -> usize {
        ((at / self.width) as usize).min(BINS - 1)
    }
}

/// Sums by time and all together.
#[derive(Debug)]
pub(crate) struct Sums {
    bins: Bins,
    links: BTreeMap<(Option<MemoryId>, MemoryId), Vec<u64>>,
    faults: BTreeMap<AgentId, Vec<u64>>,
    reasons: BTreeMap<Reason, Vec<u64>>,
    moves: BTreeMap<(Option<MemoryId>, MemoryId, Reason), u64>,
    by_agent: BTreeMap<AgentId, [u64; 3]>,
}

fn add<K: Ord>(to: &mut BTreeMap<K, Vec<u64>>, key: K, bin: usize, amount: u64) {
    let sum = &mut to.entry(key).or_insert_with(|| vec![0; BINS])[bin];
    *sum = sum.saturating_add(amount);
}

impl Sums {
    pub(crate) fn new(bins: Bins) -> Sums {
        Sums {
            bins,
            links: BTreeMap::new(),
            faults: BTreeMap::new(),
            reasons: BTreeMap::new(),
            moves: BTreeMap::new(),
            by_agent: BTreeMap::new(),
        }
    }

    /// An agent could not go on.
    pub(crate) fn fault(&mut self, event: &Event, agent: AgentId, write: bool) {
        add(&mut self.faults, agent, self.bins.of(event.at), 1);
        self.by_agent.entry(agent).or_default()[usize::from(write)] += 1;
    }

    /// One of these only lacked a translation.
    pub(crate) fn refill(&mut self, agent: AgentId) {
        self.by_agent.entry(agent).or_default()[2] += 1;
    }

    /// Bytes came. What nobody had asked for counts as brought along.
    pub(crate) fn came(&mut self, event: &Event, to: MemoryId, page_bytes: u64) {
        let bin = self.bins.of(event.at);
        add(&mut self.links, (event.from, to), bin, event.bytes);
        let reason = event.reason.unwrap_or(Reason::Demand);
        let around = event.around.min(event.bytes);
        for (reason, bytes) in [(reason, event.bytes - around), (Reason::Prefetch, around)] {
            if bytes > 0 {
                add(&mut self.reasons, reason, bin, bytes / page_bytes);
                let sum = self.moves.entry((event.from, to, reason)).or_default();
                *sum = sum.saturating_add(bytes);
            }
        }
    }

    pub(crate) fn series(&self, words: &Words) -> SeriesFacts {
        let named = |name: String, values: &Vec<u64>| Series { name, values: values.clone() };
        let link = |(&(from, to), values): (&(Option<MemoryId>, MemoryId), &Vec<u64>)| {
            let from = from.map_or("zeros", |from| words.memory(from));
            named(format!("{from} → {}", words.memory(to)), values)
        };
        let fault =
            |(&agent, values): (&AgentId, &Vec<u64>)| named(words.agent(agent).to_owned(), values);
        let reason =
            |(reason, values): (&Reason, &Vec<u64>)| named(reason.name().to_owned(), values);
        SeriesFacts {
            bin: self.bins.width,
            links: self.links.iter().map(link).collect(),
            faults: self.faults.iter().map(fault).collect(),
            reasons: self.reasons.iter().map(reason).collect(),
        }
    }

    pub(crate) fn moves(&self) -> Vec<MoveFacts> {
        let of = |(&(from, to, reason), &bytes): (&(Option<MemoryId>, MemoryId, Reason), &u64)| {
            let (from, to, reason) = (from.map(|it| it.0), to.0, reason.name());
            MoveFacts { from, to, reason, bytes }
        };
        let mut moves: Vec<_> = self.moves.iter().map(of).collect();
        moves.sort_by_key(|it| std::cmp::Reverse(it.bytes));
        moves
    }

    pub(crate) fn faults(&self) -> Vec<FaultFacts> {
        let of = |(&agent, &[reads, writes, refills]): (&AgentId, &[u64; 3])| FaultFacts {
            agent: agent.0,
            reads,
            writes,
            refills,
        };
        let mut faults: Vec<_> = self.by_agent.iter().map(of).collect();
        faults.sort_by_key(|it| std::cmp::Reverse(it.reads + it.writes));
        faults
    }
}
