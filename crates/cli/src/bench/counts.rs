//! What happened while a row was measured: counts, which no load of the machine changes.

use std::collections::BTreeMap;

use farside::{CardAccount, Space};
use serde::Serialize;

use super::{BenchError, processor_time, timed};

/// Counters of a space's driver, by name.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    /// All that was counted so far.
    pub(crate) fn of(space: &Space) -> Counts {
        let report = space.report();
        let stats = report.stats;
        let of_cards = |of: fn(&CardAccount) -> u64| report.cards.iter().map(of).sum();
        let moved = stats.by_direction();
        let named = [
            ("card_faults", stats.card_faults),
            ("host_faults", stats.host_faults),
            ("refills", stats.refills),
            ("pages_host_to_card", moved.host_to_card),
            ("pages_card_to_host", moved.card_to_host),
            ("pages_card_to_card", moved.card_to_card),
            ("pages_zero_filled", moved.zero_filled),
            ("pages_mapped_remotely", stats.remote_maps),
            ("pages_evicted", stats.evictions),
            ("pages_evicted_without_a_copy", stats.clean_departures),
            ("pages_evicted_that_spared_others", stats.spared),
            ("pages_taken_from_running", stats.taken_from_running),
            ("words_over_the_bus", of_cards(|card| card.remote_accesses - card.remote_pages)),
            ("pages_over_the_bus", of_cards(|card| card.remote_pages)),
            ("faults_for_rights", stats.protection_faults),
            ("pages_lent", stats.lent),
            ("pages_lent_and_written", stats.lent_written),
            ("pages_lent_and_back_without_a_copy", stats.lent_clean),
            ("fights_settled", stats.settled_fights),
            ("chains", stats.chains),
            ("awaited_trips", stats.awaited_trips),
        ];
        Counts(named.into())
    }

    /// What was counted since.
    pub(crate) fn since(self, before: &Counts) -> Counts {
        let since = |(name, count)| (name, count - before.get(name));
        Counts(self.0.into_iter().map(since).collect())
    }

    /// One of them; 0 if there is none of that name.
    pub(crate) fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Pages that went from a memory to another.
    pub(crate) fn pages_moved(&self) -> u64 {
        ["pages_host_to_card", "pages_card_to_host", "pages_card_to_card"]
            .iter()
            .map(|name| self.get(name))
            .sum()
    }
}

/// One run of a program on cards.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) seconds: f64,
    /// Of processors, in all threads of the program and its cards.
    pub(crate) work: f64,
    pub(crate) counts: Counts,
}

impl Ran {
    /// Measures `body`; gives its value too.
    ///
    /// # Errors
    /// Those of `body`.
    pub(crate) fn measure<T, E>(
        space: &Space,
        body: impl FnOnce() -> Result<T, E>,
    ) -> Result<(Ran, T), E> {
        let before = Counts::of(space);
        let mut value = None;
        let mut seconds = 0.0;
        let work = processor_time(|| seconds = timed(|| value = Some(body())));
        let counts = Counts::of(space).since(&before);
        let value = value.expect("what was timed has run")?;
        Ok((Ran { seconds, work, counts }, value))
    }

    /// The run, if what came out is right.
    ///
    /// # Errors
    /// [`BenchError::Failed`].
    pub(crate) fn checked(self, program: &str, right: bool) -> Result<Ran, BenchError> {
        let wrong = || BenchError::Failed(format!("{program} on cards gave a wrong result"));
        right.then_some(self).ok_or_else(wrong)
    }

    /// This run, and another one behind it.
    pub(crate) fn then(mut self, next: Ran) -> Ran {
        self.seconds += next.seconds;
        self.work += next.work;
        for (name, count) in next.counts.0 {
            *self.counts.0.entry(name).or_default() += count;
        }
        self
    }
}
