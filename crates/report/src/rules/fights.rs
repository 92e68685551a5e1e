//! Agents that take the same pages from each other, again and again.
//!
//! A page that is fetched, and whose last move was a fetch as well, went from one agent that touched it to another.
//! What the program asked for, a first touch and an eviction lie between two fetches.

use super::{Remedy, Rule, Seen, false_sharing, hints};
use crate::gather::name;

/// Times that each page was handed over, on average; fewer are data that are passed on.
const TIMES: u64 = 4;
/// Pages that were handed over, at least; fewer cost nothing.
const LEAST: u64 = 64;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Remedy> {
    let fought = seen.objects.iter().filter(|object| {
        let often = object.handed >= LEAST && object.handed >= TIMES * object.pages;
        often && !false_sharing::is_so(object) && !hints::is_written(object)
    });
    let remedy = |object: &crate::objects::Object| {
        let name = name(object);
        let (times, pages) = (object.handed / object.pages.max(1), object.pages);
        let most = object.takers.iter().max_by_key(|(_, pages)| **pages);
        let who = most.map_or(String::new(), |(&(loser, taker), pages)| {
            let (loser, taker) = (seen.words.agent(loser), seen.words.agent(taker));
            format!("; {pages} went from {loser} to {taker}")
        });
        Remedy {
            rule: Rule::Fight,
            evidence: format!(
                "the {pages} pages of {name} went from agent to agent {times} times each{who}"
            ),
            remedy: format!(
                "pin it where all reach it: space.pin(&{name}, MemoryId::HOST); or give each agent \
                 a part of its own"
            ),
            allocations: vec![name],
            saves: object.handed,
        }
    };
    fought.map(remedy).collect()
}
