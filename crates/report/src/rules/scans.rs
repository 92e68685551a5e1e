//! Data that goes through a card once and drives out what is used again.

use super::{Remedy, Rule, Seen};
use crate::gather::name;
use crate::objects::{Object, Steps};

/// Pages that came back, at least; fewer cost nothing.
const LEAST: u64 = 64;
/// Share of what left for one other allocation, in percent.
const BY_ONE_PERCENT: u64 = 80;

/// The allocation that drives another out by going through the card in order.
pub(super) fn scanner_of<'a>(seen: &Seen<'a>, victim: &Object) -> Option<&'a Object> {
    let all: u64 = victim.pushed_out_by.values().sum();
    let (&number, &pages) = victim.pushed_out_by.iter().max_by_key(|(_, pages)| **pages)?;
    let scanner = &seen.objects[number];
    let in_order = |steps: &Steps| steps.fetches >= 8 && 4 * steps.in_order >= 3 * steps.fetches;
    let fits = seen.card_bytes.is_none_or(|bytes| victim.bytes < bytes);
    let is_other = scanner.address != victim.address;
    let so = victim.returned >= LEAST
        && fits
        && is_other
        && scanner.pages > victim.pages
        && pages * 100 >= all * BY_ONE_PERCENT
        && scanner.steps.values().any(in_order);
    so.then_some(scanner)
}

pub(super) fn find(seen: &Seen<'_>) -> Vec<Remedy> {
    let remedy = |victim: &Object| {
        let scanner = name(scanner_of(seen, victim)?);
        let victim_name = name(victim);
        let card =
            victim.steps.iter().max_by_key(|(_, steps)| steps.pages).map(|(agent, _)| *agent);
        let card = card.and_then(|agent| agent.card()).map_or(0, |card| card.0);
        let (returned, pages) = (victim.returned, victim.pages);
        Some(Remedy {
            rule: Rule::Scan,
            evidence: format!(
                "{scanner} goes through the card in order and drives out {victim_name}: of its \
                 {pages} pages {returned} came back after they had left"
            ),
            remedy: format!(
                "keep what is used again: space.pin(&{victim_name}, space.card({card})?)"
            ),
            allocations: vec![victim_name, scanner],
            saves: 2 * returned,
        })
    };
    seen.objects.iter().filter_map(remedy).collect()
}
