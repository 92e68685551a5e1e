//! What it costs to bring pages here, as the chains show it that are under way and that have ended.

use farside_types::{Span, Time};
use serde::{Deserialize, Serialize};

use crate::placement::Costs;

/// A new value has a sixteenth of the weight.
const WEIGHT: u64 = 16;

/// How long it takes to bring something: chains that copy or fill, and each of their pages, since what is brought
/// together shares its beginning and end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Prices {
    chain: Price,
    page: Price,
    /// When the last chain ended.
    ended: Time,
    /// Faults that were open when a chain last answered some. Those that are open while one is decided are fewer: the
    /// others of its burst have not been seen.
    waiting: u64,
}

/// A chain that brings pages, from its beginning on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bringing {
    begun: Time,
    /// No other was under way.
    alone: bool,
    pub(crate) pages: u64,
}

/// What one of several costs that are brought.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Price {
    /// Those that have begun and not ended.
    under_way: u64,
    /// For each, between the ends of two chains, while some are under way.
    pace: Option<Span>,
    /// For each, from the beginning to the end of a chain that begins while no other is under way.
    alone: Option<Span>,
}

impl Price {
    fn end(&mut self, ended: Option<Span>, alone: Option<Span>, count: u64) {
        let each = |span: Span| Span(span.0 / count.max(1));
        ended.into_iter().for_each(|span| learn(&mut self.pace, each(span)));
        alone.into_iter().for_each(|span| learn(&mut self.alone, each(span)));
    }

    /// What one takes that is asked for now: what it takes alone, or its turn behind those that are under way.
    fn next(&self) -> Option<Span> {
        let turn = self.pace.map(|pace| Span(pace.0.saturating_mul(self.under_way + 1)));
        self.alone.max(turn)
    }
}

impl Prices {
    /// A chain begins that brings so many pages.
    pub(crate) fn begin(&mut self, begun: Time, pages: u64) -> Bringing {
        let alone = self.chain.under_way == 0;
        self.chain.under_way += 1;
        self.page.under_way += pages;
        Bringing { begun, alone, pages }
    }

    /// It ends.
    pub(crate) fn end(&mut self, now: Time, brought: Bringing) {
        self.give_up(brought);
        // The first of those that began together has also taken what one takes alone.
        let ended = (self.ended > brought.begun).then(|| now.since(self.ended));
        let alone = brought.alone.then(|| now.since(brought.begun));
        self.chain.end(ended, alone, 1);
        self.page.end(ended, alone, brought.pages);
        self.ended = now;
    }

    /// It fails.
    pub(crate) fn give_up(&mut self, brought: Bringing) {
        self.chain.under_way = self.chain.under_way.saturating_sub(1);
        self.page.under_way = self.page.under_way.saturating_sub(brought.pages);
    }

    /// Pages of those that have begun and not ended.
    pub(crate) fn under_way(&self) -> u64 {
        self.page.under_way
    }

    /// A chain has answered faults, and so many are open still.
    pub(crate) fn answered(&mut self, waiting: u64) {
        self.waiting = waiting;
    }

    /// What things cost now, where an access to another memory takes so long, and where the driver brings
    /// neighbours of what is asked for or does not.
    pub(crate) fn costs(&self, far: Span, neighbours: bool) -> Option<Costs> {
        let (bring, migration) = (self.page.next()?, self.chain.next()?);
        let turn = self.page.pace.or(self.page.alone)?;
        let delay = Span(turn.0.saturating_mul(self.waiting));
        let saves = self.chain.alone.filter(|_| !neighbours).unwrap_or_default();
        Some(Costs { bring, migration, far, delay, saves, ..Costs::default() })
    }
}

fn learn(known: &mut Option<Span>, seen: Span) {
    let old = known.get_or_insert(seen);
    *old = Span((old.0 * (WEIGHT - 1) + seen.0) / WEIGHT);
}

#[cfg(test)]
mod tests {
    use farside_types::{Access, CardId, FaultId};

    use super::*;
    use crate::placement::fixture::Fixture;
    use crate::{CardFault, Event, Need};

    const US: Span = Span::from_micros(1);

    fn page(prices: &Prices) -> Option<Span> {
        prices.costs(US, false).map(|costs| costs.bring)
    }

    fn at(micros: u64) -> Time {
        Time::ZERO + Span(US.0 * micros)
    }

    #[test]
    fn one_alone_costs_what_it_takes() {
        let mut prices = Prices::default();
        assert_eq!(page(&prices), None, "nothing is known");
        let only = prices.begin(at(0), 1);
        assert_eq!(page(&prices), None);
        prices.end(at(5), only);
        assert_eq!(page(&prices), Some(Span(5 * US.0)));
    }

    #[test]
    fn one_behind_a_queue_waits_for_it_and_one_beside_others_does_not() {
        let mut serial = Prices::default();
        let begun: Vec<_> = (0..10).map(|_| serial.begin(at(0), 1)).collect();
        (1..=4).zip(&begun).for_each(|(turn, one)| serial.end(at(5 * turn), *one));
        assert_eq!(page(&serial), Some(Span(7 * 5 * US.0)), "six are under way");
        let mut parallel = Prices::default();
        let begun: Vec<_> = (0..40)
            .scan(Vec::new(), |before, start: u64| {
                let old = before.get(start.wrapping_sub(10) as usize).copied();
                before.push(parallel.begin(at(start), 1));
                old.into_iter().for_each(|one| parallel.end(at(start), one));
                Some(())
            })
            .collect();
        assert_eq!(begun.len(), 40);
        let next = page(&parallel).unwrap();
        assert!(
            (9 * US.0..=12 * US.0).contains(&next.0),
            "one ends each us, ten are under way: {next:?}"
        );
    }

    #[test]
    fn what_is_brought_together_shares_what_it_takes() {
        let mut prices = Prices::default();
        let group = prices.begin(at(0), 16);
        let single = prices.begin(at(0), 1);
        prices.end(at(32), group);
        assert_eq!(page(&prices), Some(Span(2 * US.0)), "a sixteenth of the group's");
        assert_eq!(
            prices.costs(US, false).map(|costs| costs.migration),
            Some(Span(32 * US.0)),
            "all of it"
        );
        prices.end(at(34), single);
        assert_eq!(prices.under_way(), 0);
        let groups: Vec<_> = (0..2).map(|_| prices.begin(at(40), 16)).collect();
        assert_eq!(page(&prices), Some(Span(33 * 2 * US.0)), "behind 32 pages");
        groups.into_iter().for_each(|one| prices.give_up(one));
        assert_eq!(page(&prices), Some(Span(2 * US.0)));
    }

    #[test]
    fn what_leaves_a_full_card_is_not_in_the_queue_of_what_is_brought() {
        let mut fixture = Fixture::new("on-touch", 1, 16, 64);
        (0..16).for_each(|index| fixture.write(0, fixture.page(index)));
        let fault = CardFault { id: FaultId(1), need: Need::Page(fixture.page(32), Access::Read) };
        let event = Event::CardFaults { card: CardId(0), faults: &[fault] };
        let now = at(1_000_000_000);
        fixture.driver.handle(now, event);
        let mut seen = Vec::new();
        while let Some(command) = fixture.driver.poll_command() {
            seen.push((fixture.driver.stats.evictions > 0, fixture.driver.prices.under_way()));
            fixture.driver.handle(now, command.header().done(Ok(())));
        }
        assert_eq!(seen.first(), Some(&(false, 0)), "what makes room is under way: {seen:?}");
        assert!(seen.contains(&(true, 1)), "then the page: {seen:?}");
    }

    #[test]
    fn a_page_more_delays_each_fault_that_was_open_when_some_were_answered() {
        let mut prices = Prices::default();
        prices.answered(7);
        assert_eq!(prices.costs(US, false), None, "nothing is known");
        let begun: Vec<_> = (0..3).map(|_| prices.begin(at(0), 1)).collect();
        (1..).zip(begun).for_each(|(turn, one)| prices.end(at(5 + turn), one));
        let of = |prices: &Prices, neighbours| {
            prices.costs(US, neighbours).map(|costs| (costs.delay, costs.saves))
        };
        assert_eq!(of(&prices, false), Some((Span(7 * US.0), Span(6 * US.0))), "its turn is 1 us");
        assert_eq!(of(&prices, true), Some((Span(7 * US.0), Span(0))));
        prices.answered(0);
        assert_eq!(of(&prices, false), Some((Span(0), Span(6 * US.0))));
    }

    #[test]
    fn the_driver_says_how_many_faults_are_open_when_it_answers_some() {
        let mut fixture = Fixture::new("on-touch", 1, 64, 64);
        let pages = [0, 32].map(|index| fixture.page(index));
        for (id, page) in (1..).map(FaultId).zip(pages) {
            let faults = [CardFault { id, need: Need::Page(page, Access::Read) }];
            let event = Event::CardFaults { card: CardId(0), faults: &faults };
            fixture.driver.handle(at(1_000_000_000), event);
        }
        let mut seen = vec![fixture.driver.prices.waiting];
        while let Some(command) = fixture.driver.poll_command() {
            fixture.driver.handle(at(1_000_000_000), command.header().done(Ok(())));
            seen.push(fixture.driver.prices.waiting);
        }
        seen.dedup();
        assert_eq!(seen, [0, 1, 0], "the other one, then none");
    }

    #[test]
    fn what_was_dear_is_not_dear_for_good() {
        let mut prices = Prices::default();
        let begun: Vec<_> = (0..100).map(|_| prices.begin(at(0), 1)).collect();
        assert!(page(&prices).is_none());
        (1..).zip(begun).for_each(|(turn, one)| prices.end(at(turn), one));
        assert_eq!(page(&prices), Some(US), "nothing is under way any more");
    }
}
