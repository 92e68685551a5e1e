//! What happened to a page, when and why.

use std::collections::BTreeMap;
use std::fmt;

use farside_svm::placement::Action;
use farside_types::{Access, MemoryId, PageNo, PageRange, Reason, Time};
use serde_json::{Value, json};

use super::{action_name, memory_name};
use crate::observe::{BufferPages, Observation, Observer};

/// Most entries kept for a page: the oldest. Later ones are counted.
pub const ENTRIES_MAX: usize = 4096;
/// Candidates for the pages that moved most, for each page asked for.
const CANDIDATES: usize = 4;

/// Whose history is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pages {
    /// These.
    List(Vec<PageNo>),
    /// All of a range.
    Range(PageRange),
    /// So many, those that moved most. Counting takes about 40 bytes for each page that faults.
    MostMoved(usize),
}

/// Something that happened to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A GPU faulted on it.
    Fault {
        /// Which GPU.
        gpu: u8,
        /// For what.
        access: Access,
        /// It was mapped, with too few rights.
        protection: bool,
    },
    /// The driver decided.
    Decision {
        /// Whose fault it was; `None`: a counter or a proposal of the scheme.
        gpu: Option<u8>,
        /// What to do.
        action: Action,
        /// Why.
        reason: Reason,
    },
    /// It was copied, or filled with zeros.
    Move {
        /// Where from; `None`: zeros.
        from: Option<MemoryId>,
        /// Where to.
        to: MemoryId,
        /// What had been decided about it, if anything.
        action: Option<Action>,
        /// Why.
        reason: Reason,
        /// When the copy began.
        since: Time,
    },
}

/// Something that happened to a page, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub at: Time,
    /// What.
    pub what: Happened,
}

impl Entry {
    /// Where it is in the order of time: a move where it began.
    fn begun(&self) -> Time {
        match self.what {
            Happened::Move { since, .. } => since,
            _ => self.at,
        }
    }
}

/// The history of one page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story {
    /// What happened, in the order of time: moves by when they began, and what was decided before
    /// the moves that came of it.
    pub entries: Vec<Entry>,
    /// Moves, also those that are not among the entries.
    pub moves: u64,
    /// Entries that are not kept: beyond [`ENTRIES_MAX`], or before the page was found to be one of
    /// those that move most.
    pub left_out: u64,
}

/// What is known of every page that may come into the table.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    moves: u64,
    entries: u64,
    action: Option<Action>,
}

/// Keeps the history of chosen pages.
#[derive(Clone, Debug)]
pub struct PageHistory {
    pages: Pages,
    /// The program's buffers, in the order of their pages.
    buffers: Vec<BufferPages>,
    known: BTreeMap<PageNo, Known>,
    stories: BTreeMap<PageNo, Vec<Entry>>,
    /// No page in the table has moved less often.
    least_moves: u64,
}

impl PageHistory {
    /// An observer of these pages.
    #[must_use]
    pub fn new(mut pages: Pages) -> PageHistory {
        if let Pages::List(list) = &mut pages {
            list.sort_unstable();
            list.dedup();
        }
        PageHistory {
            pages,
            buffers: Vec::new(),
            known: BTreeMap::new(),
            stories: BTreeMap::new(),
            least_moves: 0,
        }
    }

    /// The histories: by page, or those that moved most first, the lower page first among equals.
    #[must_use]
    pub fn stories(&self) -> Vec<(PageNo, Story)> {
        let mut list: Vec<_> = self.stories.keys().map(|&page| (page, self.story(page))).collect();
        if let Pages::MostMoved(count) = self.pages {
            list.retain(|(_, story)| story.moves > 0);
            list.sort_by_key(|(page, story)| (std::cmp::Reverse(story.moves), *page));
            list.truncate(count);
        }
        list
    }

    fn story(&self, page: PageNo) -> Story {
        let known = self.known.get(&page).copied().unwrap_or_default();
        let entries = self.stories.get(&page).cloned().unwrap_or_default();
        let left_out = known.entries - entries.len() as u64;
        Story { entries, moves: known.moves, left_out }
    }

    /// The buffer that a page is of, and its number in it.
    fn buffer(&self, page: PageNo) -> Option<(&str, u64)> {
        let after = self.buffers.partition_point(|buffer| buffer.pages.start <= page);
        let buffer = self.buffers[..after].last().filter(|buffer| buffer.pages.contains(page))?;
        Some((&buffer.name, page.0 - buffer.pages.start.0))
    }

    /// As JSON: a list of `{page, buffer, page_of_buffer, moves, left_out, entries}`; times in
    /// picoseconds.
    #[must_use]
    pub fn to_json(&self) -> String {
        let story = |(page, story): (PageNo, Story)| {
            let entries: Vec<Value> = story.entries.iter().map(entry_json).collect();
            let (moves, left_out) = (story.moves, story.left_out);
            let (buffer, number) = self.buffer(page).unzip();
            json!({
                "page": page.0, "buffer": buffer, "page_of_buffer": number,
                "moves": moves, "left_out": left_out, "entries": entries,
            })
        };
        format!("{:#}\n", Value::from_iter(self.stories().into_iter().map(story)))
    }

    fn wants(&self, page: PageNo) -> bool {
        match &self.pages {
            Pages::List(list) => list.binary_search(&page).is_ok(),
            Pages::Range(range) => range.contains(page),
            Pages::MostMoved(count) => *count > 0,
        }
    }

    fn add(&mut self, at: Time, page: PageNo, what: Happened) {
        if !self.wants(page) {
            return;
        }
        let known = self.known.entry(page).or_default();
        known.entries += 1;
        known.moves += u64::from(matches!(what, Happened::Move { .. }));
        if let Happened::Decision { action, .. } = what {
            let before = self.stories.get_mut(&page).and_then(|entries| undecided(entries));
            match before {
                Some(moved) => *moved = Some(action),
                None => known.action = Some(action),
            }
        }
        let moves = known.moves;
        if self.has_place(page, moves) {
            let entries = self.stories.entry(page).or_default();
            if entries.len() < ENTRIES_MAX {
                insert(entries, Entry { at, what });
            }
        }
    }

    /// Whether the page is in the table or may enter it; makes room if it must.
    ///
    /// A page enters when it has moved more often than one that is there. So at any time every page
    /// that is not there has no more moves than any that is.
    fn has_place(&mut self, page: PageNo, moves: u64) -> bool {
        let Pages::MostMoved(count) = self.pages else {
            return true;
        };
        if self.stories.contains_key(&page) || self.stories.len() < count * CANDIDATES {
            return true;
        }
        if moves <= self.least_moves {
            return false;
        }
        let moves_of = |page: &PageNo| self.known.get(page).map_or(0, |known| known.moves);
        let least = self.stories.keys().map(|page| (moves_of(page), *page)).min();
        let Some((least_moves, least)) = least else {
            return false;
        };
        self.least_moves = least_moves;
        if moves <= least_moves {
            return false;
        }
        self.stories.remove(&least);
        true
    }
}

impl Observer for PageHistory {
    fn start(&mut self, buffers: &[BufferPages]) {
        self.buffers = buffers.to_vec();
    }

    fn observe(&mut self, now: Time, what: &Observation) {
        match *what {
            Observation::Fault { slot, page, access, protection } => {
                self.add(now, page, Happened::Fault { gpu: slot.gpu, access, protection });
            }
            Observation::Decision { page, gpu, action, reason, made } => {
                self.add(made, page, Happened::Decision { gpu, action, reason });
            }
            Observation::Transfer { page, pages, from, to, reason, since } => {
                for page in PageRange::new(page, u64::from(pages)).pages() {
                    let known = self.known.get_mut(&page);
                    let action = known.and_then(|known| known.action.take());
                    self.add(now, page, Happened::Move { from, to, action, reason, since });
                }
            }
            _ => {}
        }
    }
}

/// Puts an entry where it is in the order of time. A decision that comes of a fault is told when the
/// fault is over: it goes before the move that came of it.
fn insert(entries: &mut Vec<Entry>, entry: Entry) {
    let is_move = |entry: &Entry| matches!(entry.what, Happened::Move { .. });
    let earlier = |before: &Entry| {
        before.begun() < entry.begun() || (before.begun() == entry.begun() && !is_move(before))
    };
    let place = match is_move(&entry) {
        true => entries.iter().rposition(|before| before.begun() <= entry.begun()),
        false => entries.iter().rposition(earlier),
    };
    entries.insert(place.map_or(0, |last| last + 1), entry);
}

/// The action of the last move if that is not known: the decision about a fault may be told before
/// the move or when the fault is over.
fn undecided(entries: &mut [Entry]) -> Option<&mut Option<Action>> {
    match &mut entries.last_mut()?.what {
        Happened::Move { action, .. } if action.is_none() => Some(action),
        _ => None,
    }
}

fn entry_json(entry: &Entry) -> Value {
    let at = entry.at.0;
    match entry.what {
        Happened::Fault { gpu, access, protection } => json!({
            "at": at, "what": "fault", "gpu": gpu, "access": access_name(access),
            "protection": protection,
        }),
        Happened::Decision { gpu, action, reason } => json!({
            "at": at, "what": "decision", "gpu": gpu, "action": action_name(action),
            "reason": reason.name(),
        }),
        Happened::Move { from, to, action, reason, since } => json!({
            "at": at, "what": "move", "from": memory_name(from), "to": memory_name(Some(to)),
            "action": action.map(action_name), "reason": reason.name(), "since": since.0,
        }),
    }
}

fn access_name(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
    }
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Happened::Fault { gpu, access, protection } => {
                let why = if protection { ", mapped with too few rights" } else { "" };
                write!(f, "fault of gpu {gpu} for a {}{why}", access_name(access))
            }
            Happened::Decision { gpu, action, reason } => {
                let action = action_name(action);
                match gpu {
                    Some(gpu) => write!(f, "decision for gpu {gpu}: {action} ({reason})"),
                    None => write!(f, "decision: {action} ({reason})"),
                }
            }
            Happened::Move { from, to, action, reason, since: _ } => {
                let (from, to) = (memory_name(from), memory_name(Some(to)));
                let action = action.map_or("move", action_name);
                write!(f, "{action} from {from} to {to} ({reason})")
            }
        }
    }
}

impl fmt::Display for PageHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (page, story) in self.stories() {
            match self.buffer(page) {
                Some((buffer, number)) => write!(f, "page {number} of {buffer} ({})", page.0)?,
                None => write!(f, "page {}", page.0)?,
            }
            writeln!(f, ": {} moves", story.moves)?;
            for entry in &story.entries {
                let (begun, what) = (entry.begun(), &entry.what);
                write!(f, "  {:>12}.{:03} ns  {what}", begun.0 / 1_000, begun.0 % 1_000)?;
                let took = entry.at.since(begun).0;
                match took {
                    0 => writeln!(f)?,
                    _ => writeln!(f, ", took {}.{:03} ns", took / 1_000, took % 1_000)?,
                }
            }
            if story.left_out > 0 {
                writeln!(f, "  {} entries are not shown", story.left_out)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Slot;
    use proptest::prelude::*;

    fn moved(page: u64, pages: u32) -> Observation {
        Observation::Transfer {
            page: PageNo(page),
            pages,
            from: Some(MemoryId::HOST),
            to: MemoryId(2),
            reason: Reason::Demand,
            since: Time(5),
        }
    }

    fn told(pages: Pages, what: &[Observation]) -> PageHistory {
        let mut history = PageHistory::new(pages);
        for (at, what) in what.iter().enumerate() {
            history.observe(Time(at as u64 * 1_500), what);
        }
        history
    }

    fn life() -> [Observation; 3] {
        let slot = Slot { gpu: 1, unit: 0, slot: 3 };
        let (page, access) = (PageNo(7), Access::Write);
        let (action, reason) = (Action::Migrate, Reason::Demand);
        [
            Observation::Fault { slot, page, access, protection: true },
            Observation::Decision { page, gpu: Some(1), action, reason, made: Time(2) },
            moved(6, 2),
        ]
    }

    #[test]
    fn a_page_tells_its_fault_the_decision_and_the_move() {
        let history = told(Pages::List(vec![PageNo(7), PageNo(7)]), &life());
        let expected = "\
page 7: 1 moves
             0.000 ns  fault of gpu 1 for a write, mapped with too few rights
             0.002 ns  decision for gpu 1: migrate (demand)
             0.005 ns  migrate from host to gpu 1 (demand), took 2.995 ns
";
        assert_eq!(history.to_string(), expected);
        // Also if the decision is told when the fault is over.
        let [fault, decision, moved] = life();
        let history = told(Pages::List(vec![PageNo(7)]), &[fault, moved, decision]);
        let late = expected.replace("2.995", "1.495");
        assert_eq!(history.to_string(), late);
    }

    #[test]
    fn a_page_is_named_by_its_buffer() {
        let buffer = |name: &str, start, count| BufferPages {
            name: name.to_owned(),
            pages: PageRange::new(PageNo(start), count),
        };
        let mut history = PageHistory::new(Pages::Range(PageRange::new(PageNo(0), 100)));
        history.start(&[buffer("edges", 4, 4), buffer("ranks", 20, 2)]);
        for page in [3, 6, 8, 21] {
            history.observe(Time(9), &moved(page, 1));
        }
        let text = history.to_string();
        let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("page")).collect();
        let expected = [
            "page 3: 1 moves",
            "page 2 of edges (6): 1 moves",
            "page 8: 1 moves",
            "page 1 of ranks (21): 1 moves",
        ];
        assert_eq!(heads, expected);
        let json: Value = serde_json::from_str(&history.to_json()).unwrap();
        assert_eq!((&json[1]["buffer"], &json[1]["page_of_buffer"]), (&json!("edges"), &json!(2)));
        assert_eq!(json[0]["buffer"], Value::Null);
    }

    #[test]
    fn a_decision_that_is_told_after_the_move_belongs_to_it() {
        let [fault, decision, moved] = life();
        let history = told(Pages::List(vec![PageNo(7)]), &[fault, moved.clone(), decision, moved]);
        let (_, story) = &history.stories()[0];
        let actions: Vec<_> = story
            .entries
            .iter()
            .filter_map(|entry| match entry.what {
                Happened::Move { action, .. } => Some(action),
                _ => None,
            })
            .collect();
        assert_eq!(actions, [Some(Action::Migrate), None]);
    }

    #[test]
    fn json_says_the_same() {
        let history = told(Pages::Range(PageRange::new(PageNo(6), 2)), &life());
        let json: Value = serde_json::from_str(&history.to_json()).unwrap();
        assert_eq!(json[0]["page"], 6);
        assert_eq!(json[0]["entries"][0]["action"], Value::Null);
        let entries = json[1]["entries"].as_array().unwrap();
        assert_eq!(entries.len(), 3);
        assert_eq!(
            (&entries[0]["what"], &entries[0]["protection"]),
            (&json!("fault"), &json!(true))
        );
        let last = &entries[2];
        assert_eq!((&last["from"], &last["to"]), (&json!("host"), &json!("gpu 1")));
        assert_eq!((&last["action"], &last["reason"]), (&json!("migrate"), &json!("demand")));
        assert_eq!((&last["at"], &last["since"]), (&json!(3_000), &json!(5)));
    }

    #[test]
    fn pages_that_were_not_asked_for_take_no_room() {
        let history = told(Pages::List(vec![PageNo(9)]), &life());
        assert!(history.stories().is_empty() && history.known.is_empty());
    }

    #[test]
    fn what_is_beyond_the_bound_is_counted() {
        let many = vec![moved(3, 1); ENTRIES_MAX + 10];
        let history = told(Pages::List(vec![PageNo(3)]), &many);
        let (_, story) = &history.stories()[0];
        assert_eq!((story.entries.len(), story.left_out), (ENTRIES_MAX, 10));
        assert_eq!(story.moves, ENTRIES_MAX as u64 + 10);
        assert!(history.to_string().ends_with("  10 entries are not shown\n"));
    }

    proptest! {
        /// Whatever the order of the moves, the pages found are those that moved most, and few
        /// others are kept.
        #[test]
        fn the_pages_that_moved_most_are_found(moves in prop::collection::vec(0u64..40, 0..600)) {
            let told = told(Pages::MostMoved(3), &moves.iter().map(|&p| moved(p, 1)).collect::<Vec<_>>());
            prop_assert!(told.stories.len() <= 3 * CANDIDATES);
            let mut counts = [0u64; 40];
            moves.iter().for_each(|&page| counts[page as usize] += 1);
            counts.sort_unstable();
            let most: Vec<u64> = counts.iter().rev().copied().filter(|&n| n > 0).take(3).collect();
            let found = told.stories();
            prop_assert_eq!(found.iter().map(|(_, story)| story.moves).collect::<Vec<_>>(), most);
            for (_, story) in &found {
                prop_assert_eq!(story.entries.len() as u64 + story.left_out, story.moves);
            }
        }
    }
}
