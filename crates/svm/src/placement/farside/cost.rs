//! Buy or rent: to bring a page once, or to reach over to it with each access.
//!
//! Both prices are those of the machine at this time ([`Costs`]). What nobody knows is how often a page will be used.

use farside_types::{AgentId, GROUP_PAGES, Span};
use serde::{Deserialize, Serialize};

use crate::placement::Costs;

/// Accesses that a page saves which is brought, as long as nothing is known of it: one for each of its lines.
const LINES: u64 = 64;

/// Whether a page is better reached over to than brought, where so many others lose what they have of it and will
/// ask for it again.
pub(super) fn is_dear(costs: Costs, losers: u64) -> bool {
    times(costs.bring, 1 + losers) > times(costs.far, LINES)
}

/// What it costs that a group comes to who reaches over to it, in accesses to another memory, where so many others lose
/// what they have of it: each of its pages is brought, and asked for again by each of them, one by one.
pub(super) fn price_of_group(costs: Costs, losers: u64, held_up: HeldUp) -> u64 {
    let all = times(costs.migration, GROUP_PAGES * (1 + losers));
    let alone = all.0.checked_div(costs.far.0).unwrap_or(u64::MAX);
    alone.saturating_mul(held_up.accesses(costs.at_once))
}

/// Who waits when a group comes to somebody. An access to another memory holds up itself alone, so a move costs as many of
/// them as it holds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldUp {
    /// Who asks for a copy, which nobody loses by.
    One,
    /// Who has it alone, and finds its pages gone from where it reached over to them: something between one access and all.
    Some,
    /// All that use what was written: they are stopped with all that they have under way.
    All,
}

impl HeldUp {
    /// So many accesses, where a card has that many under way at once.
    fn accesses(self, at_once: u32) -> u64 {
        let all = u64::from(at_once.max(1));
        match self {
            HeldUp::One => 1,
            // The geometric middle, as nobody knows more.
            HeldUp::Some => all.isqrt(),
            HeldUp::All => all,
        }
    }
}

/// Whether what is around a page comes along, of which nobody knows whether it will be used. If it is, it had to come
/// anyway, and a fault is saved. If not, others have waited for nothing. So it comes where that is a gain at even odds.
pub(super) fn comes_along(costs: Costs) -> bool {
    costs.delay < costs.saves
}

fn times(span: Span, count: u64) -> Span {
    Span(span.0.saturating_mul(count))
}

/// Who reaches over to a group more than the others do.
///
/// It gets the group when it has paid for that by what it reached over more often than the others together. Each
/// further move has twice the price of the one before, so a group that all use alike comes to rest, and all moves
/// together cost no more than the accesses that have paid for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    agent: AgentId,
    /// Its accesses less those of the others.
    lead: u32,
    /// Times that the group went to a claimant.
    moves: u8,
}

impl Claim {
    /// Nobody's.
    pub(super) const NONE: Claim = Claim { agent: AgentId::CPU, lead: 0, moves: 0 };

    /// `agent` has reached over so many times more, where the first time that the group goes to somebody has this price.
    /// Gives whether it gets the group.
    pub(super) fn notice(&mut self, agent: AgentId, accesses: u32, price: u64) -> bool {
        if self.agent == agent {
            self.lead = self.lead.saturating_add(accesses);
        } else if self.lead >= accesses {
            self.lead -= accesses;
        } else {
            (self.agent, self.lead) = (agent, accesses - self.lead);
        }
        // A lead counts no further, and a group that many have had in turn is not to stay for good.
        let price = price.saturating_mul(1 << self.moves.min(63)).min(u32::MAX.into());
        let paid = self.agent == agent && u64::from(self.lead) >= price;
        if paid {
            *self = Claim { agent, lead: 0, moves: self.moves.saturating_add(1) };
        }
        paid
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const US: Span = Span::from_micros(1);

    #[test]
    fn a_page_is_dear_if_it_costs_more_than_to_reach_over_once_for_each_line() {
        let costs = |bring| Costs {
            bring: Span(US.0 * bring),
            migration: Span(US.0 * bring * 2),
            far: US,
            ..Costs::default()
        };
        assert!(!is_dear(costs(64), 0));
        assert!(is_dear(costs(65), 0));
        assert!(is_dear(costs(33), 1), "who loses it has to bring it again");
    }

    #[test]
    fn a_group_costs_its_losers_their_faults_and_those_that_wait_what_they_have_under_way() {
        let costs = Costs { migration: Span(US.0 * 4), far: US, at_once: 256, ..Costs::default() };
        assert_eq!(price_of_group(costs, 3, HeldUp::All), 256 * 4 * 16 * 4);
        assert_eq!(price_of_group(costs, 0, HeldUp::Some), 16 * 64);
        assert_eq!(price_of_group(costs, 0, HeldUp::One), 64);
        let one = Costs { at_once: 0, ..costs };
        assert_eq!(price_of_group(one, 0, HeldUp::All), 64, "one after the other");
        let free = Costs { far: Span(0), ..costs };
        assert_eq!(price_of_group(free, 0, HeldUp::One), u64::MAX, "no need to move");
    }

    #[test]
    fn what_is_around_a_page_comes_along_if_a_fault_less_is_worth_what_others_wait() {
        let comes = |delay, saves| {
            comes_along(Costs { delay: Span(delay), saves: Span(saves), ..Costs::default() })
        };
        assert!(comes(0, 1) && comes(99, 100));
        assert!(!comes(100, 100) && !comes(0, 0), "nobody knows, or the driver brings it anyway");
    }

    /// How often `agent` has to reach over, one access at a time, until it gets the group.
    fn accesses_until_moved(claim: &mut Claim, agent: AgentId, price: u64) -> Option<u32> {
        (1..).find(|_| claim.notice(agent, 1, price))
    }

    #[test]
    fn a_group_goes_to_who_leads_and_each_move_costs_twice_the_last() {
        let (a, b) = (AgentId(1), AgentId(2));
        let mut claim = Claim::NONE;
        assert_eq!(accesses_until_moved(&mut claim, a, 30), Some(30));
        assert_eq!(accesses_until_moved(&mut claim, b, 30), Some(60));
        assert_eq!(accesses_until_moved(&mut claim, a, 30), Some(120));
        let alike = (0..10_000).map(|turn| claim.notice([a, b][turn % 2], 1, 30));
        assert!(!alike.into_iter().any(|moved| moved), "both use it alike: it stays");
        for _ in 0..100 {
            claim.notice(a, u32::MAX, 30);
            claim.notice(b, u32::MAX, 30);
        }
        claim.notice(b, u32::MAX, 30);
        assert!(claim.notice(b, u32::MAX, 30), "no price is out of reach");
    }

    /// What the claims cost at most, where a move does `price`, and the accesses from elsewhere than the best place are
    /// `best`: docs/placement.md.
    fn bound(best: u64, price: u64) -> u64 {
        10 * best + 4 * price
    }

    #[test]
    fn who_always_asks_where_the_group_is_not_gains_nothing_beyond_the_bound() {
        let price = 400;
        for users in 2..5u8 {
            let (mut claim, mut uses) = (Claim::NONE, [0u64; 4]);
            let (mut at, mut paid, mut moved) = (0, 0, 0);
            for _ in 0..200_000 {
                let user = (at + 1) % users;
                (uses[usize::from(user)], paid) = (uses[usize::from(user)] + 1, paid + 1);
                if claim.notice(AgentId(user), 1, price) {
                    (at, moved) = (user, moved + price);
                }
            }
            let best = paid - uses.iter().max().unwrap();
            assert!(
                moved > 0 && paid + moved <= bound(best, price),
                "{users}: {paid}, {moved}, {best}"
            );
        }
    }

    proptest! {
        /// The bound of docs/placement.md: against the best place for all of the time, whoever asks when.
        #[test]
        fn no_place_is_much_better_than_to_follow_the_claims(
            uses in proptest::collection::vec((0u8..4, 1u32..200), 1..400),
            price in 200u64..2000,
        ) {
            let mut claim = Claim::NONE;
            let (mut at, mut paid, mut moved) = (0, 0, 0);
            for &(user, accesses) in &uses {
                if user == at {
                    continue;
                }
                paid += u64::from(accesses);
                if claim.notice(AgentId(user), accesses, price) {
                    (at, moved) = (user, moved + price);
                }
            }
            let at_place = |place| uses.iter().filter(|(user, _)| *user != place).map(|(_, n)| u64::from(*n)).sum::<u64>();
            let best = (0..4).map(at_place).min().unwrap_or(0);
            prop_assert!(moved <= paid, "moves cost {moved}, and {paid} was paid for them");
            prop_assert!(paid + moved <= bound(best, price), "{paid} and {moved} against {best}");
        }
    }
}
