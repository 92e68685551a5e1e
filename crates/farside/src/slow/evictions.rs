//! A working set that is larger than the cards: what was evicted comes back.
//!
//! Each page that was evicted is away until it comes back, so of all evictions of an allocation as many
//! came back as are more than it has pages.

use super::account::{Account, Object};
use super::{Remedy, Slow, name_of};
use farside_types::PAGE_SIZE;

/// Pages that came back, at least; fewer cost nothing.
const LEAST: u64 = 64;

/// The allocation of which most came back.
pub(super) fn find(account: &Account) -> Option<Slow> {
    let suffers = |object: &&Object| {
        let back = came_back(object);
        back >= LEAST && 2 * back >= object.view.range.count
    };
    let worst = account.moved.iter().filter(suffers).max_by_key(|object| came_back(object))?;
    let name = name_of(&worst.view);
    let mib = (came_back(worst) * PAGE_SIZE as u64) >> 20;
    let reason = format!("{mib} MiB of {name} left full cards and came back later");
    let bytes = account.bytes_on_cards.next_multiple_of(1 << 20);
    Some(Slow { reason, remedy: Remedy::CardMemory { bytes } })
}

fn came_back(object: &Object) -> u64 {
    object.view.pages_evicted.saturating_sub(object.view.range.count)
}
