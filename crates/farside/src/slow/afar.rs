//! Pinned data that one card reaches from afar, word by word.

use super::account::{Account, Afar};
use super::{Remedy, Slow, name_of};
use farside_types::CardId;

/// Accesses from afar, at least; fewer cost nothing.
const LEAST: u64 = 10_000;
/// Accesses for each page; fewer are cheaper than to bring the page.
const FOR_EACH_PAGE: u64 = 16;

/// The largest allocation that one card, and no other, reaches from afar.
pub(super) fn find(account: &Account) -> Option<Slow> {
    let dear = |afar: &&Afar| match afar.users[..] {
        [user] => {
            account.remote_accesses(user) >= LEAST.max(FOR_EACH_PAGE * pages_of(account, user))
        }
        // It would be worse for the others.
        _ => false,
    };
    let worst = account.afar.iter().filter(dear).max_by_key(|afar| afar.view.range.count)?;
    let user = worst.users[0];
    let name = name_of(&worst.view);
    let accesses = account.remote_accesses(user);
    let at = worst.at;
    let reason =
        format!("{user} reached {name}, pinned to {at}, over the bus: {accesses} accesses");
    let remedy = Remedy::Pin { object: name, at: user.memory(), unpin: true };
    Some(Slow { reason, remedy })
}

/// Pages that a card reaches from afar.
fn pages_of(account: &Account, user: CardId) -> u64 {
    let its = account.afar.iter().filter(|afar| afar.users.contains(&user));
    its.map(|afar| afar.view.range.count).sum()
}

impl Account {
    fn remote_accesses(&self, user: CardId) -> u64 {
        let mut cards = self.cards.iter().filter(|card| card.card == user);
        cards.next().map_or(0, |card| card.remote_accesses)
    }
}
