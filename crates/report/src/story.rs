//! What happened to a range of pages, in words: the first and the last of it.

use std::collections::VecDeque;

use farside_events::{Event, Kind};

use crate::HistoryFacts;
use crate::objects::Words;

/// Events from the beginning that are kept, and from the end.
const FIRST: usize = 12;
const LAST: usize = 12;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    first: Vec<Told>,
    last: VecDeque<Told>,
    left_out: u64,
}

/// An event, and how many alike came directly behind it.
#[derive(Clone, Debug)]
struct Told {
    event: Event,
    more: u64,
}

impl Told {
    /// Whether another event says the same of other pages.
    fn is_like(&self, other: &Event) -> bool {
        let of = |it: &Event| (it.kind, it.agent, it.from, it.to, it.after, it.reason);
        of(&self.event) == of(other)
    }
}

impl Story {
    /// Something happened.
    pub(crate) fn add(&mut self, event: &Event) {
        let newest = self.last.back_mut().or(self.first.last_mut());
        if let Some(newest) = newest.filter(|newest| newest.is_like(event)) {
            newest.more += 1;
            return;
        }
        let told = Told { event: *event, more: 0 };
        if self.first.len() < FIRST {
            return self.first.push(told);
        }
        if self.last.len() == LAST {
            self.last.pop_front();
            self.left_out += 1;
        }
        self.last.push_back(told);
    }

    /// In words, and how much is left out.
    pub(crate) fn tell(&self, words: &Words) -> (Vec<HistoryFacts>, u64) {
        let told = self.first.iter().chain(&self.last);
        let of = |told: &Told| HistoryFacts { at: told.event.at, what: sentence(told, words) };
        (told.map(of).collect(), self.left_out)
    }
}

fn sentence(told: &Told, words: &Words) -> String {
    let Told { event, more } = told;
    let agent = event.agent.map_or("the driver", |agent| words.agent(agent));
    let why = event.reason.map_or(String::new(), |reason| format!(" ({reason})"));
    let from = event.from.map_or("zeros", |from| words.memory(from));
    let to = event.to.map_or("anywhere", |to| words.memory(to));
    let places = |set: farside_types::MemorySet| {
        let names: Vec<&str> = set.iter().map(|memory| words.memory(memory)).collect();
        if names.is_empty() { "nowhere".to_owned() } else { names.join(", ") }
    };
    let what = match event.kind {
        Kind::FaultRead => format!("{agent} faults to read"),
        Kind::FaultWrite => format!("{agent} faults to write"),
        Kind::Refill => format!("{agent} gets its translation again"),
        Kind::RemoteMap => format!("{agent} maps it in {}{why}", places(event.after)),
        Kind::Rights => format!("rights change for {agent}{why}"),
        Kind::Freed => format!("leaves {}: freed", places(event.before)),
        Kind::Lost => format!("lost with its card; left in {}", places(event.after)),
        Kind::Eviction => {
            format!("leaves {} for {}: full", places(event.before), places(event.after))
        }
        Kind::Collapse => format!("other copies go, {} is left{why}", places(event.after)),
        Kind::Duplication => format!("copied to {to}, now in {}{why}", places(event.after)),
        Kind::Migration if event.to.is_none() => {
            format!("{} → {} without a copy{why}", places(event.before), places(event.after))
        }
        Kind::Migration => format!("{from} → {to}{why}"),
        Kind::Alloc => "allocated".to_owned(),
        Kind::Free => "given back by the program".to_owned(),
        Kind::Notice => format!("{agent} reaches it from afar, often"),
        kind if kind.is_hint() && event.to.is_some() => {
            format!("the program says: {}, {to}", kind.name().trim_start_matches("hint-"))
        }
        kind if kind.is_hint() => {
            format!("the program says: {}", kind.name().trim_start_matches("hint-"))
        }
        kind => kind.name().to_owned(),
    };
    let times = if *more > 0 { format!(" ({} times)", more + 1) } else { String::new() };
    what + &times
}
