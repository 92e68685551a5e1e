//! What it costs to bring pages here, as the chains show it that are under way and that have ended.

use farside_types::{Span, Time};
use serde::{Deserialize, Serialize};

/// A new value has a sixteenth of the weight.
const WEIGHT: u64 = 16;

/// How long chains take that copy or fill.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Prices {
    /// Those that have begun and not ended.
    under_way: u32,
    /// Between the ends of two of them, while some are under way.
    pace: Option<Span>,
    /// From the beginning to the end of one that begins while no other is under way.
    alone: Option<Span>,
    /// When the last one ended.
    ended: Time,
}

impl Prices {
    /// A chain begins; whether it is the only one.
    pub(crate) fn begin(&mut self) -> bool {
        self.under_way += 1;
        self.under_way == 1
    }

    /// One that began at `begun`, `alone` or not, ends.
    pub(crate) fn end(&mut self, now: Time, begun: Time, alone: bool) {
        self.give_up();
        // The first of those that began together has also taken what one takes alone.
        if self.ended > begun {
            learn(&mut self.pace, now.since(self.ended));
        }
        if alone {
            learn(&mut self.alone, now.since(begun));
        }
        self.ended = now;
    }

    /// One that has begun fails.
    pub(crate) fn give_up(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// How many have begun and not ended.
    pub(crate) fn under_way(&self) -> u32 {
        self.under_way
    }

    /// What one that begins now will take: what it takes alone, or its turn behind those that are under way.
    pub(crate) fn next(&self) -> Option<Span> {
        let turns = u64::from(self.under_way) + 1;
        let turn = self.pace.map(|pace| Span(pace.0.saturating_mul(turns)));
        self.alone.max(turn)
    }
}

fn learn(known: &mut Option<Span>, seen: Span) {
    let old = known.get_or_insert(seen);
    *old = Span((old.0 * (WEIGHT - 1) + seen.0) / WEIGHT);
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Span = Span::from_micros(1);

    fn at(micros: u64) -> Time {
        Time::ZERO + Span(US.0 * micros)
    }

    #[test]
    fn one_alone_costs_what_it_takes() {
        let mut prices = Prices::default();
        assert_eq!(prices.next(), None, "nothing is known");
        assert!(prices.begin());
        assert_eq!(prices.next(), None);
        prices.end(at(5), at(0), true);
        assert_eq!(prices.next(), Some(Span(5 * US.0)));
    }

    #[test]
    fn one_behind_a_queue_waits_for_it_and_one_beside_others_does_not() {
        let mut serial = Prices::default();
        (0..10).for_each(|_| _ = serial.begin());
        (1..=4).for_each(|turn| serial.end(at(5 * turn), at(0), turn == 1));
        assert_eq!(serial.next(), Some(Span(7 * 5 * US.0)), "six are under way");
        let mut parallel = Prices::default();
        for start in 0..40 {
            let alone = parallel.begin();
            if start >= 10 {
                parallel.end(at(start), at(start - 10), alone);
            }
        }
        let next = parallel.next().unwrap();
        assert!(
            (9 * US.0..=12 * US.0).contains(&next.0),
            "one ends each us, ten are under way: {next:?}"
        );
    }

    #[test]
    fn what_was_dear_is_not_dear_for_good() {
        let mut prices = Prices::default();
        (0..100).for_each(|_| _ = prices.begin());
        assert!(prices.next().is_none());
        (1..=100).for_each(|turn| prices.end(at(turn), at(0), turn == 1));
        assert_eq!(prices.next(), Some(US), "nothing is under way any more");
    }
}
