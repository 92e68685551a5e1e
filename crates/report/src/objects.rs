//! Allocations: where they are, what they are called, and what is counted for each.

use std::collections::{BTreeMap, HashMap};

use farside_events::{About, Event, Names};
use farside_types::{AgentId, MemoryId};

use crate::heat::{Heat, Rows};
use crate::page_state::Pages;
use crate::story::Story;
use crate::text::shown;

/// Pages that are followed one by one at a time: 256 GiB of 4 KiB pages. Those that nothing happens to take no memory.
const FOLLOWED_MOST: u64 = 1 << 26;

/// Names of memories and agents.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    memories: Vec<String>,
    agents: Vec<String>,
}

impl Words {
    pub(crate) fn new(about: &About) -> Words {
        let memories: Vec<String> = about.memories.iter().map(|it| it.name.clone()).collect();
        let mut agents = memories.clone();
        agents[0] = "host".to_owned();
        Words { memories, agents }
    }

    pub(crate) fn memory(&self, memory: MemoryId) -> &str {
        self.memories.get(usize::from(memory.0)).map_or("?", |name| name)
    }

    pub(crate) fn agent(&self, agent: AgentId) -> &str {
        self.agents.get(usize::from(agent.0)).map_or("?", |name| name)
    }
}

/// An allocation, and what was counted.
#[derive(Debug, Default)]
pub(crate) struct Object {
    pub(crate) name: String,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) pages: u64,
    /// Of these, from the first on, those that are followed one by one.
    pub(crate) followed: u64,
    pub(crate) times: u64,
    pub(crate) rows: Rows,
    pub(crate) states: Pages,
    pub(crate) faults: u64,
    pub(crate) moved: u64,
    pub(crate) evicted: u64,
    pub(crate) returned: u64,
    /// Pages that an agent took from another by faults, after another had taken them.
    pub(crate) handed: u64,
    /// The same by who had them and who took them.
    pub(crate) takers: BTreeMap<(AgentId, AgentId), u64>,
    /// Of those handed over: the loser's running kernel had been lent only other bytes of the page than the taker's.
    pub(crate) apart: u64,
    /// Who wrote which bytes, of one page that was handed over so.
    pub(crate) example: Option<Example>,
    /// Whether the program says now that it is mostly read.
    pub(crate) read_mostly: bool,
    /// Pages whose copies a write took away while the program said so.
    pub(crate) collapsed: u64,
    /// Pages that a hint brought to a memory.
    pub(crate) hinted: u64,
    /// Those that were fetched from there before any kernel there was launched to use the allocation, by where to.
    pub(crate) wasted: BTreeMap<(MemoryId, MemoryId), u64>,
    /// Cards on which a kernel was launched to use it since the last hint for that card.
    pub(crate) used_on: farside_types::AgentSet,
    /// Steps in which each card has taken it.
    pub(crate) steps: BTreeMap<AgentId, Steps>,
    /// Pages that left a full card for others of an allocation, by its number.
    pub(crate) pushed_out_by: HashMap<usize, u64>,
    /// It was on a card.
    pub(crate) on_card: bool,
    /// It is in use.
    pub(crate) live: bool,
}

/// Two kernels, or a kernel and the host, that use different bytes of one page.
#[derive(Clone, Debug)]
pub(crate) struct Example {
    /// The page in the allocation.
    pub(crate) page: u64,
    /// Who lost it, with which bytes of it: from, until, counted in the allocation.
    pub(crate) loser: (AgentId, u64, u64),
    /// Who took it; the host may use all that is not lent.
    pub(crate) taker: (AgentId, Option<(u64, u64)>),
}

/// How a card takes an allocation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Steps {
    pub(crate) fetches: u64,
    /// Those that begin where the one before has ended.
    pub(crate) in_order: u64,
    pub(crate) pages: u64,
    /// Pages of it that the fetches cover: from, until.
    pub(crate) covered: Option<(u64, u64)>,
    next: u64,
}

impl Steps {
    pub(crate) fn fetch(&mut self, first: u64, pages: u64) {
        self.fetches += 1;
        self.in_order += u64::from(first == self.next);
        self.pages += pages;
        self.next = first + pages;
        let (from, until) = self.covered.unwrap_or((first, first + pages));
        self.covered = Some((from.min(first), until.max(first + pages)));
    }
}

/// All allocations.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) list: Vec<Object>,
    /// Those in use, by their first byte.
    live: BTreeMap<u64, usize>,
    /// Those that were given back, by name, place and size: made again, they are the same.
    gone: HashMap<(String, u64, u64), usize>,
    /// What was found last: events come in runs.
    last: Option<usize>,
    pub(crate) stories: HashMap<usize, Story>,
    page_bytes: u64,
    /// Pages that can still be followed one by one.
    room: u64,
    /// Bytes of those in use that were on a card, and the most there were.
    on_cards: u64,
    pub(crate) on_cards_most: u64,
}

/// A part of an event that lies in one allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) object: usize,
    /// The first page in the allocation.
    pub(crate) first: u64,
    pub(crate) pages: u64,
}

impl Objects {
    pub(crate) fn new(page_bytes: u64) -> Objects {
        Objects {
            list: Vec::new(),
            live: BTreeMap::new(),
            gone: HashMap::new(),
            last: None,
            stories: HashMap::new(),
            page_bytes,
            room: FOLLOWED_MOST,
            on_cards: 0,
            on_cards_most: 0,
        }
    }

    /// Memory was allocated.
    pub(crate) fn alloc(&mut self, event: &Event, names: &Names, heat: &mut Heat) -> usize {
        let name = shown(names.get(event.name));
        let key = (name, event.address, event.bytes);
        let number = match self.gone.remove(&key) {
            Some(number) => number,
            None => {
                let pages = event.bytes.div_ceil(self.page_bytes);
                self.list.push(Object {
                    name: key.0,
                    address: event.address,
                    bytes: event.bytes,
                    pages,
                    rows: heat.rows_for(pages),
                    ..Object::default()
                });
                self.list.len() - 1
            }
        };
        let object = &mut self.list[number];
        object.times += 1;
        object.live = true;
        object.read_mostly = false;
        object.followed = object.pages.min(self.room);
        self.room -= object.followed;
        self.live.insert(event.address, number);
        self.last = Some(number);
        number
    }

    /// The program has given memory back: which allocation, and its pages, which are followed no more.
    pub(crate) fn free(&mut self, address: u64) -> Option<(usize, Pages)> {
        let number = self.live.remove(&address)?;
        self.last = None;
        let object = &mut self.list[number];
        self.room += std::mem::take(&mut object.followed);
        object.live = false;
        if std::mem::take(&mut object.on_card) {
            self.on_cards -= object.bytes;
        }
        let key = (object.name.clone(), object.address, object.bytes);
        self.gone.insert(key, number);
        Some((number, std::mem::take(&mut object.states)))
    }

    /// An allocation has pages on a card.
    pub(crate) fn on_card(&mut self, number: usize) {
        let object = &mut self.list[number];
        if object.live && !object.on_card {
            object.on_card = true;
            self.on_cards += object.bytes;
            self.on_cards_most = self.on_cards_most.max(self.on_cards);
        }
    }

    /// The allocation that a byte is in; one that was given back has its pages a little longer.
    pub(crate) fn at(&mut self, address: u64) -> Option<usize> {
        let holds = |object: &Object| {
            address >= object.address && address - object.address < object.pages * self.page_bytes
        };
        if let Some(last) = self.last.filter(|&last| holds(&self.list[last])) {
            return Some(last);
        }
        let found = self.live.range(..=address).next_back().map(|(_, &number)| number);
        let found = found.filter(|&number| holds(&self.list[number]))?;
        self.last = Some(found);
        Some(found)
    }

    /// The parts of an event by allocation. What is in none is left out.
    pub(crate) fn parts(&mut self, event: &Event) -> Parts {
        Parts { at: event.address, end: event.address + event.bytes }
    }
}

/// The rest of an event that was not handed out yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    at: u64,
    end: u64,
}

impl Parts {
    /// The next part.
    pub(crate) fn next(&mut self, objects: &mut Objects) -> Option<Part> {
        while self.at < self.end {
            let Some(object) = objects.at(self.at) else {
                // Between two allocations: on to the next one.
                let next = objects.live.range(self.at + 1..self.end).next();
                self.at = next.map_or(self.end, |(&address, _)| address);
                continue;
            };
            let page_bytes = objects.page_bytes;
            let it = &objects.list[object];
            let first = (self.at - it.address) / page_bytes;
            let end = self.end.min(it.address + it.pages * page_bytes);
            let pages = (end - it.address).div_ceil(page_bytes) - first;
            self.at = end;
            return Some(Part { object, first, pages });
        }
        None
    }
}
