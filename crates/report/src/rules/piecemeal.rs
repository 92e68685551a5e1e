//! Data that a card takes in order, a few pages at a time: each fetch is a fault that is waited for.

use farside_types::AgentId;

use super::{Remedy, Rule, Seen};
use crate::gather::name;
use crate::objects::{Object, Steps};

/// Fetches, and pages, at least; fewer cost nothing.
const LEAST: u64 = 64;
/// Pages of a fetch, at most; more are a stretch.
const PAGES: u64 = 4;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Remedy> {
    // What is evicted does not fit, and a prefetch brings only what does.
    let fit = seen.objects.iter().filter(|object| object.evicted == 0);
    let all =
        fit.flat_map(|object| object.steps.iter().map(move |(&card, it)| (object, card, *it)));
    all.filter(|(.., steps)| are_small(steps))
        .map(|(object, card, it)| remedy(seen, object, card, it))
        .collect()
}

/// Small steps in order, over pages that are taken once or twice and not fought over.
fn are_small(steps: &Steps) -> bool {
    let covered = steps.covered.map_or(0, |(from, until)| until - from);
    steps.fetches >= LEAST
        && steps.pages <= PAGES * steps.fetches
        && covered >= LEAST
        && steps.pages <= 2 * covered
        && 4 * steps.in_order >= 3 * steps.fetches
}

fn remedy(seen: &Seen<'_>, object: &Object, card: AgentId, steps: Steps) -> Remedy {
    let name = name(object);
    let (fetches, each) = (steps.fetches, steps.pages as f64 / steps.fetches as f64);
    let (from, until) = steps.covered.unwrap_or_default();
    let to = card.card().map_or(0, |card| card.0);
    let what = match (from, until) == (0, object.pages) {
        true => format!("space.prefetch(&{name}, space.card({to})?)"),
        false => format!("`prefetch` pages {from}-{} of {name} to card {to}", until - 1),
    };
    Remedy {
        rule: Rule::Piecemeal,
        evidence: format!(
            "{} took {name} in order by {fetches} faults of {each:.1} pages each",
            seen.words.agent(card)
        ),
        remedy: format!("bring it before the launch: {what}"),
        allocations: vec![name],
        saves: fetches,
    }
}
