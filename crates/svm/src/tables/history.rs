//! What moved lately, and who fought: bounded records for reports.

use std::collections::VecDeque;

use farside_types::{AgentSet, PageNo, PageRange};
use serde::{Deserialize, Serialize};

use super::sorted::SortedMap;
use crate::api::query::{Fight, Moved};

/// Most pages whose fights are remembered.
const FIGHTS_MAX: usize = 1024;

/// The latest moves of the whole space, and the fights.
#[derive(Serialize, Deserialize)]
pub(crate) struct History {
    records: VecDeque<Moved>,
    limit: usize,
    fights: SortedMap<PageNo, Fight>,
}

impl History {
    pub(crate) fn new(limit: usize) -> History {
        let (records, fights) = (VecDeque::with_capacity(limit), SortedMap::with_room(FIGHTS_MAX));
        History { records, limit, fights }
    }

    /// Adds a record; one that continues the newest is merged into it.
    pub(crate) fn push(&mut self, moved: Moved) {
        if self.limit == 0 {
            return;
        }
        if let Some(last) = self.records.back_mut() {
            let same = (last.from, last.to, last.reason) == (moved.from, moved.to, moved.reason);
            if same && last.at == moved.at && last.range.end() == moved.range.start {
                last.range.count += moved.range.count;
                return;
            }
        }
        if self.records.len() == self.limit {
            self.records.pop_front();
        }
        self.records.push_back(moved);
    }

    /// Records that touch `range`, oldest first.
    pub(crate) fn of(&self, range: PageRange) -> impl DoubleEndedIterator<Item = &Moved> {
        self.records.iter().filter(move |moved| moved.range.overlaps(range))
    }

    /// The fight over `page`; `None` if too many are remembered already.
    pub(crate) fn fight(&mut self, page: PageNo, agents: AgentSet) -> Option<&mut Fight> {
        if self.fights.len() >= FIGHTS_MAX && !self.fights.contains_key(&page) {
            return None;
        }
        let fight = self.fights.get_or_insert_with(page, || Fight {
            page,
            agents: AgentSet::EMPTY,
            throttles: 0,
            pins: 0,
            settled: 0,
        });
        fight.agents = fight.agents.union(agents);
        Some(fight)
    }

    /// Fights, worst first.
    pub(crate) fn fights(&self) -> Vec<Fight> {
        let mut list: Vec<Fight> = self.fights.values().cloned().collect();
        list.sort_by_key(|fight| std::cmp::Reverse((fight.settled, fight.pins, fight.throttles)));
        list
    }

    pub(crate) fn bytes(&self) -> usize {
        self.records.len() * size_of::<Moved>() + self.fights.len() * size_of::<Fight>()
    }
}
