//! Why a page is placed as it is: what will be done about who asks for it, who decides that, and what that was
//! learnt from.

use std::fmt;

use farside_types::{
    AgentSet, MemoryId, MemorySet, PageNo, PageRange, Reason, Span, Time, VirtAddr,
};
use serde::{Deserialize, Serialize};

use crate::api::query::{Moved, ObjectId, ObjectView};
use crate::placement::{PageMode, PlacedView};
use crate::tables::page::{PageEntry, flag};
use crate::{Driver, PageState};

/// The answer for one page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// The page.
    pub page: PageNo,
    /// Its allocation.
    pub object: ObjectView,
    /// What is known of where it is: nothing is anywhere for a fresh or lost page.
    pub state: PageState,
    /// Its main location.
    pub owner: Option<MemoryId>,
    /// Memories with a valid copy.
    pub copies: MemorySet,
    /// Agents that have it mapped, there or from afar.
    pub mappers: AgentSet,
    /// The scheme of the space, by name.
    pub scheme: String,
    /// What is done about who asks for it next.
    pub verdict: Verdict,
    /// Who decides that.
    pub by: Judge,
    /// What it was decided from, the most important first.
    pub evidence: Vec<Evidence>,
    /// The latest move that brought it, as far back as the history reaches.
    pub came: Option<Moved>,
}

/// What is done about a card that asks for a page that it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It moves there.
    Moves,
    /// Who reads gets a copy; a write takes the other copies away.
    Copies,
    /// It stays, and is reached from afar.
    Stays,
}

/// Who decides about a page: the first of these that has something to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judge {
    /// The program, by a pin or advice.
    Program,
    /// The driver, as agents fight over it.
    Driver,
    /// The placement scheme.
    Scheme,
}

/// Something that a decision was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// The program pinned it.
    Pinned {
        /// Where.
        at: MemoryId,
    },
    /// The program said that its allocation is mostly read.
    ReadMostly,
    /// The program said where it should be.
    Preferred {
        /// Where.
        at: MemoryId,
    },
    /// It moved so often in so short a time that it is held where it is for a while.
    Thrashed {
        /// Moves in a row, counted up to 15.
        moves: u8,
    },
    /// Agents fought over its allocation while cards ran.
    Contested(Contested),
    /// What the scheme knows of its 64 KiB group.
    Group(GroupFacts),
    /// What the scheme knows of its allocation, and all groups that nobody else has had inherit.
    Object(ObjectFacts),
}

/// A fight that was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contested {
    /// Those whose moves showed it.
    pub agents: AgentSet,
    /// Pages that cards took from cards that ran.
    pub taken: u64,
    /// Those of them that had been taken before.
    pub taken_back: u64,
    /// When it was settled, or when it last showed that it goes on.
    pub since: Time,
    /// How long after that an access counter may move a group again, to see.
    pub probe_after: Span,
}

/// A group of pages as a scheme knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupFacts {
    /// Its pages.
    pub pages: PageRange,
    /// Those whose faults brought pages of it to them.
    pub had: AgentSet,
    /// A card has written it.
    pub written: bool,
    /// Times in a row that it was taken before it had rested.
    pub fights: u8,
    /// When it was last taken from somebody.
    pub taken_at: Option<Time>,
}

/// An allocation as a scheme knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectFacts {
    /// Faults that brought pages to their first card, for reading.
    pub read_first: u32,
    /// Faults of their only reader that then wrote them.
    pub written_by_reader: u32,
}

impl From<PageMode> for Verdict {
    fn from(mode: PageMode) -> Verdict {
        match mode {
            PageMode::OnTouch => Verdict::Moves,
            PageMode::AccessCounter => Verdict::Stays,
            PageMode::Duplication => Verdict::Copies,
        }
    }
}

impl Driver {
    /// Why the page at `addr` is placed as it is; `None` for an address that is in no allocation.
    pub fn why(&self, addr: VirtAddr) -> Option<Why> {
        let page = addr.page();
        let object = self.space.holding(page)?;
        let entry = self.table.get(page);
        if matches!(entry.state, PageState::Unallocated | PageState::Tombstone) {
            return None;
        }
        let (verdict, by, evidence) = self.judge(page, entry);
        let view = self.page(page);
        Some(Why {
            page,
            object: object.view(),
            state: view.state,
            owner: view.owner,
            copies: view.copies,
            mappers: view.mappers,
            scheme: self.placement.name().to_owned(),
            verdict,
            by,
            evidence,
            came: self.history.of(PageRange::page(page)).next_back().copied(),
        })
    }

    /// In the order in which a fault asks them (`migration/planner.rs`).
    fn judge(&self, page: PageNo, entry: &PageEntry) -> (Verdict, Judge, Vec<Evidence>) {
        let object = self.space.holding(page);
        if entry.has(flag::THRASH_PINNED) {
            let moves = entry.directory.bounces();
            return (Verdict::Stays, Judge::Driver, vec![Evidence::Thrashed { moves }]);
        }
        if let Some(at) = self.pinned_at(page).filter(|_| entry.has(flag::PINNED)) {
            return (Verdict::Stays, Judge::Program, vec![Evidence::Pinned { at }]);
        }
        if entry.has(flag::READ_MOSTLY) {
            return (Verdict::Copies, Judge::Program, vec![Evidence::ReadMostly]);
        }
        let hint = object.and_then(|object| object.hint(page)).filter(|_| entry.has(flag::HINTED));
        if let Some(at) = hint.and_then(|hint| hint.preferred) {
            return (Verdict::Stays, Judge::Program, vec![Evidence::Preferred { at }]);
        }
        let copies = entry.directory.copies();
        let placed = PlacedView {
            page,
            object: object.map_or(ObjectId::default(), |object| object.id),
            owner: (!copies.is_empty()).then(|| entry.owner()),
            copies,
        };
        let (mode, mut evidence) = self.placement.explain(&placed);
        let settled = object.and_then(|object| object.contest.settled());
        let Some(contested) = settled.filter(|_| self.config.thrash.contests) else {
            return (mode.into(), Judge::Scheme, evidence);
        };
        evidence.insert(0, Evidence::Contested(contested));
        // As `Driver::settle_contest` does; what no card has comes as before.
        let held = placed.is_on_card();
        match (entry.directory.writers().is_empty(), entry.owner().is_host()) {
            (_, true) if entry.has(flag::COMMON) => (Verdict::Stays, Judge::Driver, evidence),
            (true, _) if held => (Verdict::Copies, Judge::Driver, evidence),
            (false, false) if held => (Verdict::Stays, Judge::Driver, evidence),
            _ => (mode.into(), Judge::Scheme, evidence),
        }
    }
}

impl fmt::Display for Why {
    /// Where it is, what is done about who asks, what from, and how it came: a line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.object.name.is_empty() { "(unnamed)" } else { &self.object.name };
        let number = self.page.0 - self.object.range.start.0;
        write!(f, "page {number} of {name}, which has {}: ", self.object.range.count)?;
        match self.owner {
            Some(owner) if self.copies.len() > 1 => {
                let others = names(self.copies.without(owner).iter());
                write!(f, "on {owner}, with copies on {others}")?;
            }
            Some(owner) => write!(f, "on {owner}")?,
            None => write!(f, "{}", nowhere(self.state))?,
        }
        if !self.mappers.is_empty() {
            write!(f, ", mapped by {}", names(self.mappers.iter()))?;
        }
        write!(f, "\nnext:  {} ({})", self.verdict, self.by_name())?;
        for evidence in &self.evidence {
            write!(f, "\nas:    {evidence}")?;
        }
        match &self.came {
            Some(moved) => write!(f, "\ncame:  {}", Came(self, moved)),
            None => Ok(()),
        }
    }
}

impl Why {
    fn by_name(&self) -> String {
        match self.by {
            Judge::Program => "the program's word".to_owned(),
            Judge::Driver => {
                format!("the driver settles fights, whatever the scheme; {}", self.scheme)
            }
            Judge::Scheme => format!("scheme {}", self.scheme),
        }
    }
}

/// "card 0, card 1 and card 2".
fn names<T: fmt::Display>(items: impl Iterator<Item = T>) -> String {
    let mut names: Vec<String> = items.map(|item| item.to_string()).collect();
    match (names.pop(), names.is_empty()) {
        (None, _) => "nobody".to_owned(),
        (Some(alone), true) => alone,
        (Some(last), false) => format!("{} and {last}", names.join(", ")),
    }
}

fn nowhere(state: PageState) -> &'static str {
    match state {
        PageState::Fresh => "never written, nowhere yet",
        PageState::Lost => "lost with its card",
        _ => "on its way",
    }
}

/// A move as the page sees it: with its neighbours, or alone.
struct Came<'a>(&'a Why, &'a Moved);

impl fmt::Display for Came<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Came(why, moved) = self;
        match moved.from {
            Some(from) => write!(f, "from {from} to {}", moved.to)?,
            None => write!(f, "as zeros to {}", moved.to)?,
        }
        if moved.range.count > 1 {
            let first = moved.range.start.0.saturating_sub(why.object.range.start.0);
            write!(f, " with its range, pages {first} to {}", first + moved.range.count - 1)?;
        }
        match moved.reason {
            Reason::Prefetch => f.write_str(", prefetched: a neighbour was asked for")?,
            reason => write!(f, ", by {reason}")?,
        }
        write!(f, ", at {}", Span(moved.at.0))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Moves => "it moves to the card that asks",
            Verdict::Copies => "who reads gets a copy; a write takes the others away",
            Verdict::Stays => "it stays, and is reached from afar",
        })
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Evidence::Pinned { at } => write!(f, "it is pinned at {at}"),
            Evidence::ReadMostly => f.write_str("it was advised as mostly read"),
            Evidence::Preferred { at } => write!(f, "its preferred place is {at}"),
            Evidence::Thrashed { moves } => write!(f, "it moved {moves} times in a row"),
            Evidence::Contested(contested) => contested.fmt(f),
            Evidence::Group(group) => group.fmt(f),
            Evidence::Object(object) => object.fmt(f),
        }
    }
}

impl fmt::Display for Contested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Contested { agents, taken, taken_back, since, probe_after } = self;
        let agents = names(agents.iter());
        write!(
            f,
            "{agents} took {taken} pages of it from each other while they ran, {taken_back} of them again; \
             settled at {}, probed {probe_after} later",
            Span(since.0)
        )
    }
}

impl fmt::Display for GroupFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let use_ = if self.written { "written" } else { "only read" };
        let had = names(self.had.iter());
        write!(f, "its group of {} pages was brought to {had}, {use_}", self.pages.count)?;
        match (self.taken_at, self.fights) {
            (None, _) => f.write_str(", and never taken from anybody"),
            (Some(at), 0) => write!(f, ", and taken when it had rested, at {}", Span(at.0)),
            (Some(at), fights) => {
                write!(
                    f,
                    ", and taken {fights} times in a row before it had rested, at {}",
                    Span(at.0)
                )
            }
        }
    }
}

impl fmt::Display for ObjectFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "of its allocation {} pages were read first, and {} of them written by their reader",
            self.read_first, self.written_by_reader
        )
    }
}

#[cfg(test)]
mod tests;
