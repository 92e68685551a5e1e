//! Agents that take pages from each other, again and again.
//!
//! A page that is fetched, and whose last move was a fetch as well, went from one agent that touched it
//! to another. What the program asked for and what was evicted lies between two fetches; with that
//! taken off, what is left are at least so many pages that were handed over.

use super::account::{Account, Object};
use super::{Remedy, Slow, name_of};
use farside_types::MemoryId;

/// Times that each page was handed over, on average; fewer are data that are passed on.
const TIMES: u64 = 4;
/// Pages that were handed over, at least; fewer cost nothing.
const LEAST: u64 = 64;

/// The allocation whose pages were handed over most often.
pub(super) fn find(account: &Account) -> Option<Slow> {
    let fought = |object: &&Object| {
        let handed = handed(object);
        handed >= LEAST && handed >= TIMES * object.view.range.count
    };
    let worst = account.moved.iter().filter(fought).max_by_key(|object| handed(object))?;
    let name = name_of(&worst.view);
    let (times, pages) = (handed(worst) / worst.view.range.count, worst.view.range.count);
    let reason = format!("the {pages} pages of {name} went from agent to agent {times} times each");
    // Where a card cannot map what is on the host, a pin there would only make it refuse.
    account.host_in_reach.then(|| {
        let remedy = Remedy::Pin { object: name, at: MemoryId::HOST, unpin: false };
        Slow { reason, remedy }
    })
}

fn handed(object: &Object) -> u64 {
    let view = &object.view;
    let otherwise = view.pages_moved - view.pages_fetched;
    view.pages_fetched.saturating_sub(otherwise + view.pages_evicted)
}
