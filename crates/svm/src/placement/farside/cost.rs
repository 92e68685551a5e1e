//! Buy or rent: to bring a page once, or to reach over to it with each access.
//!
//! Both prices are those of the machine at this time ([`Costs`]). What nobody knows is how often a page will be used.

use farside_types::{AgentId, GROUP_PAGES, Span};
use serde::{Deserialize, Serialize};

use crate::placement::Costs;

/// Accesses that a page saves which is brought, as long as nothing is known of it: one for each of its lines.
const LINES: u64 = 64;

/// Accesses that cards have under way at least while they run, all of which wait when they are stopped: one for each SIMD unit
/// of a GPU as in the GRIT paper's Table I. Assumed: nothing tells it.
const UNDER_WAY: u64 = 256;

/// Whether a page is better reached over to than brought, where so many others lose what they have of it and will
/// ask for it again.
pub(super) fn is_dear(costs: Costs, losers: u64) -> bool {
    times(costs.bring, 1 + losers) > times(costs.far, LINES)
}

/// What it costs that a group comes to who reaches over to it, in accesses to another memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Price {
    /// When no card runs a kernel.
    quiet: u64,
    /// While one does.
    running: u64,
}

impl Price {
    /// Of a group by whose coming so many others lose what they have of it: each of its pages is brought, and asked for
    /// again by each of them, one by one. While kernels run, who gets it is stopped, so it is twice as much; what was
    /// written has its users everywhere, who are stopped with all that they have under way.
    pub(super) fn of_group(costs: Costs, losers: u64, written: bool) -> Price {
        let all = times(costs.migration, GROUP_PAGES * (1 + losers));
        let quiet = all.0.checked_div(costs.far.0).unwrap_or(u64::MAX);
        Price { quiet, running: quiet.saturating_mul(if written { UNDER_WAY } else { 2 }) }
    }

    /// After so many moves, each of which has doubled it.
    fn after(self, moves: u8) -> Price {
        let doubled = |price: u64| price.saturating_mul(1 << moves.min(63));
        Price { quiet: doubled(self.quiet), running: doubled(self.running) }
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
/// It gets the group when it has paid for that by what it reached over more often than the others together: when no card runs a
/// kernel, since a move stops those that do, or before, at the price that it has then. Each
/// further move has twice the price of the one before, so a group that all use alike comes to rest, and all moves
/// together cost no more than the accesses that have paid for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    agent: AgentId,
    /// Its accesses less those of the others.
    lead: u32,
    /// Times that the group went to a claimant.
    moves: u8,
    /// What it costs to get the group, if that has been paid and waits until no card runs a kernel.
    due: Option<u64>,
}

/// What becomes of a claim by a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claimed {
    /// Nothing.
    No,
    /// It is paid, and was not before: it waits until no card runs a kernel.
    Due,
    /// What it costs while a card runs is paid: the claimant gets the group now.
    Now,
}

impl Claim {
    /// Nobody's.
    pub(super) const NONE: Claim = Claim { agent: AgentId::CPU, lead: 0, moves: 0, due: None };

    /// `agent` has reached over so many times more, where the first time that the group goes to somebody has this price.
    pub(super) fn notice(&mut self, agent: AgentId, accesses: u32, price: Price) -> Claimed {
        if self.agent == agent {
            self.lead = self.lead.saturating_add(accesses);
        } else if self.lead >= accesses {
            self.lead -= accesses;
        } else {
            (self.agent, self.lead) = (agent, accesses - self.lead);
        }
        let price = price.after(self.moves);
        let lead = u64::from(self.lead);
        if self.agent != agent || lead < price.quiet {
            return Claimed::No;
        }
        if lead < price.running {
            return if self.due.replace(price.quiet).is_none() {
                Claimed::Due
            } else {
                Claimed::No
            };
        }
        self.settle();
        Claimed::Now
    }

    /// No card runs a kernel: who gets the group, if somebody has paid.
    pub(super) fn quiet(&mut self) -> Option<AgentId> {
        let price = self.due.take()?;
        let claimant = self.agent;
        let paid = u64::from(self.lead) >= price;
        paid.then(|| {
            self.settle();
            claimant
        })
    }

    fn settle(&mut self) {
        let moves = self.moves.saturating_add(1);
        *self = Claim { agent: self.agent, lead: 0, moves, due: None };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const US: Span = Span::from_micros(1);
    const TEN: Price = Price { quiet: 10, running: 30 };

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
    fn a_group_costs_its_losers_their_faults_and_those_that_run_their_stop() {
        let costs = Costs { migration: Span(US.0 * 4), far: US, ..Costs::default() };
        let quiet = 4 * 16 * 4;
        assert_eq!(Price::of_group(costs, 3, true), Price { quiet, running: 256 * quiet });
        assert_eq!(Price::of_group(costs, 0, false), Price { quiet: 64, running: 128 });
        let free = Costs { far: Span(0), ..costs };
        let never = Price { quiet: u64::MAX, running: u64::MAX };
        assert_eq!(Price::of_group(free, 0, false), never, "no need to move");
    }

    #[test]
    fn what_is_around_a_page_comes_along_if_a_fault_less_is_worth_what_others_wait() {
        let comes = |delay, saves| {
            comes_along(Costs { delay: Span(delay), saves: Span(saves), ..Costs::default() })
        };
        assert!(comes(0, 1) && comes(99, 100));
        assert!(!comes(100, 100) && !comes(0, 0), "nobody knows, or the driver brings it anyway");
    }

    /// How often `agent` has to reach over, one access at a time, until that becomes of its claim.
    fn accesses_until(wanted: Claimed, claim: &mut Claim, agent: AgentId) -> Option<u32> {
        (1..).find(|_| claim.notice(agent, 1, TEN) == wanted)
    }

    #[test]
    fn a_group_goes_to_who_leads_and_each_move_costs_twice_the_last() {
        let (a, b) = (AgentId(1), AgentId(2));
        let mut claim = Claim::NONE;
        let moves = |claim: &mut Claim, agent| accesses_until(Claimed::Now, claim, agent);
        assert_eq!(moves(&mut claim, a), Some(30), "while a card runs");
        assert_eq!(moves(&mut claim, b), Some(60));
        assert_eq!(moves(&mut claim, a), Some(120));
        let alike = (0..10_000).map(|turn| claim.notice([a, b][turn % 2], 1, TEN));
        assert!(
            alike.into_iter().all(|claimed| claimed == Claimed::No),
            "both use it alike: it stays"
        );
    }

    #[test]
    fn what_is_paid_moves_when_no_card_runs() {
        let (a, b) = (AgentId(1), AgentId(2));
        let mut claim = Claim::NONE;
        let due = |claim: &mut Claim, agent| accesses_until(Claimed::Due, claim, agent);
        assert_eq!(claim.quiet(), None, "nobody has asked");
        assert_eq!(due(&mut claim, a), Some(10));
        assert_eq!(claim.notice(a, 1, TEN), Claimed::No, "said once");
        assert_eq!((claim.quiet(), claim.quiet()), (Some(a), None));
        assert_eq!(due(&mut claim, b), Some(20));
        assert_eq!(claim.notice(a, 1, TEN), Claimed::No);
        assert_eq!(claim.quiet(), None, "the other has used it since");
    }

    /// What the claims cost at most, where a move does `quiet` if no card runs and `running` if one does, and the accesses from
    /// elsewhere than the best place are `best`: docs/placement.md.
    fn bound(best: u64, Price { quiet, running }: Price) -> u64 {
        let ratio = running / quiet;
        (4 * ratio + 6) * best + (2 * ratio + 2) * quiet
    }

    #[test]
    fn who_always_asks_where_the_group_is_not_gains_nothing_beyond_the_bound() {
        let price = Price { quiet: 100, running: 400 };
        for users in 2..5u8 {
            let (mut claim, mut uses) = (Claim::NONE, [0u64; 4]);
            let (mut at, mut paid, mut moved) = (0, 0, 0);
            for _ in 0..200_000 {
                let user = (at + 1) % users;
                (uses[usize::from(user)], paid) = (uses[usize::from(user)] + 1, paid + 1);
                if claim.notice(AgentId(user), 1, price) == Claimed::Now {
                    (at, moved) = (user, moved + price.running);
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
            uses in proptest::collection::vec((0u8..4, 1u32..200, proptest::bool::weighted(0.1)), 1..400),
            quiet in 200u64..2000,
            ratio in 1u64..=UNDER_WAY,
        ) {
            let price = Price { quiet, running: ratio * quiet };
            let mut claim = Claim::NONE;
            let (mut at, mut paid, mut moved) = (0, 0, 0);
            for &(user, accesses, ends) in &uses {
                if user != at {
                    paid += u64::from(accesses);
                    if claim.notice(AgentId(user), accesses, price) == Claimed::Now {
                        (at, moved) = (user, moved + price.running);
                    }
                }
                if let Some(claimant) = Some(()).filter(|()| ends).and_then(|()| claim.quiet()) {
                    (at, moved) = (claimant.0, moved + price.quiet);
                }
            }
            let at_place = |place| uses.iter().filter(|(user, ..)| *user != place).map(|(_, n, _)| u64::from(*n)).sum::<u64>();
            let best = (0..4).map(at_place).min().unwrap_or(0);
            prop_assert!(moved <= paid, "moves cost {moved}, and {paid} was paid for them");
            prop_assert!(paid + moved <= bound(best, price), "{paid} and {moved} against {best}");
        }
    }
}
