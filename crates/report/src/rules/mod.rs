//! What to do: each rule is a file, from what was counted to at most a few remedies, with their evidence.

mod false_sharing;
mod fights;
mod hints;
mod lent;
mod piecemeal;
mod scans;
mod small_card;

use serde::Serialize;

pub(crate) use lent::Lent;

use crate::objects::{Object, Words};

/// Remedies that are named, at most.
const MOST: usize = 12;

/// What to do, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// What is wrong.
    pub rule: Rule,
    /// The allocations that it is about.
    pub allocations: Vec<String>,
    /// What was counted, in words.
    pub evidence: String,
    /// What to do, as the program would write it where it can.
    pub remedy: String,
    /// Pages that need not move, or faults that need not be, at most.
    pub saves: u64,
}

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Agents use different bytes of the same pages.
    FalseSharing,
    /// Agents take the same pages from each other.
    Fight,
    /// Data that is used once drives out what is used again.
    Scan,
    /// The program said what is not so.
    WrongHint,
    /// What is used does not fit on the card.
    SmallCard,
    /// Data that is taken in order, a few pages at a time.
    Piecemeal,
}

/// All that rules look at.
pub(crate) struct Seen<'a> {
    pub(crate) objects: &'a [Object],
    pub(crate) words: &'a Words,
    pub(crate) page_bytes: u64,
    /// Memory of the smallest card, if it is known.
    pub(crate) card_bytes: Option<u64>,
    /// The most bytes of allocations that were on cards at a time.
    pub(crate) on_cards_most: u64,
}

/// What to do, what saves most first.
pub(crate) fn remedies(seen: &Seen<'_>) -> Vec<Remedy> {
    let rules = [
        false_sharing::find,
        fights::find,
        scans::find,
        hints::find,
        small_card::find,
        piecemeal::find,
    ];
    let mut found: Vec<Remedy> = rules.iter().flat_map(|rule| rule(seen)).collect();
    found.sort_by_key(|it| std::cmp::Reverse(it.saves));
    found.truncate(MOST);
    found
}
