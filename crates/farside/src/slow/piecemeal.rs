//! Data that a card takes in order, a few pages at a time: each fetch is a fault that is waited for.

use super::account::{Account, Object};
use super::{Remedy, Slow, name_of};
use farside_svm::Moved;
use farside_types::{CardId, PageNo, PageRange, Reason};

/// Fetches, and pages, at least; fewer cost nothing.
const LEAST: usize = 64;
/// Pages of a fetch, at most; more are a stretch.
const PAGES: u64 = 4;

/// What one card has fetched of an allocation lately.
struct Steps {
    fetches: usize,
    /// Those that begin where the one before has ended.
    in_order: usize,
    pages: u64,
    covered: PageRange,
}

/// The allocation of which most was taken in small steps.
pub(super) fn find(account: &Account) -> Option<Slow> {
    let cards = |object: &Object| {
        let mut cards: Vec<CardId> = object.latest.iter().filter_map(|m| m.to.card()).collect();
        cards.sort_unstable();
        cards.dedup();
        cards
    };
    // What is evicted does not fit, and a prefetch brings only what does.
    let fit = account.moved.iter().filter(|object| object.view.pages_evicted == 0);
    let all = fit.flat_map(|object| {
        let steps = move |card| (object, card, steps(object, card));
        cards(object).into_iter().map(steps)
    });
    let small = all.filter(|(.., steps)| steps.are_small());
    let (object, to, steps) = small.max_by_key(|(.., steps)| steps.fetches)?;
    let name = name_of(&object.view);
    let each = steps.pages as f64 / steps.fetches as f64;
    let fetches = steps.fetches;
    let reason = format!("{to} took {name} in order by {fetches} faults of {each:.1} pages each");
    let whole = steps.covered == object.view.range;
    let start = PageNo(steps.covered.start.0 - object.view.range.start.0);
    let pages = PageRange::new(start, steps.covered.count);
    Some(Slow { reason, remedy: Remedy::Prefetch { object: name, pages, whole, to } })
}

fn steps(object: &Object, card: CardId) -> Steps {
    let is_fetch = |m: &&Moved| m.to == card.memory() && m.reason == Reason::Demand;
    let fetches: Vec<&Moved> = object.latest.iter().filter(is_fetch).collect();
    let follows = |pair: &&[&Moved]| pair[0].range.end() == pair[1].range.start;
    let first = fetches.iter().map(|m| m.range.start).min().unwrap_or_default();
    let end = fetches.iter().map(|m| m.range.end()).max().unwrap_or_default();
    Steps {
        fetches: fetches.len(),
        in_order: fetches.windows(2).filter(follows).count(),
        pages: fetches.iter().map(|m| m.range.count).sum(),
        covered: PageRange::new(first, end.0 - first.0).intersection(object.view.range),
    }
}

impl Steps {
    /// Small steps in order, over pages that are taken once or twice and not fought over.
    fn are_small(&self) -> bool {
        self.fetches >= LEAST
            && self.pages <= PAGES * self.fetches as u64
            && self.covered.count >= LEAST as u64
            && self.pages <= 2 * self.covered.count
            && 4 * self.in_order >= 3 * self.fetches
    }
}
