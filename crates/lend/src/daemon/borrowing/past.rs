//! What the borrower's ends of leases have counted that are over.

use std::sync::Mutex;

use farside_linux::lock::lock;

use crate::end::Counted;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Past(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// All that are over.
    over: Counted,
    /// The most that was said.
    said: Counted,
}

impl Past {
    /// An end is gone, and has counted this.
    pub(super) fn note(&self, counted: Counted) {
        let mut known = lock(&self.0);
        known.over = known.over.plus(counted);
    }

    /// With those that run. What is never less than before: one that is just ending is neither here nor there,
    /// and for who reads that a counter which falls is one that began anew.
    pub(super) fn with(&self, running: impl FnOnce() -> Vec<Counted>) -> Counted {
        // Nobody comes to the past while they are asked: none is in both.
        let mut known = lock(&self.0);
        let all = running().into_iter().fold(known.over, Counted::plus);
        known.said = known.said.latest(all);
        known.said
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::end::Count;

    #[test]
    fn what_is_said_never_falls_and_counts_nothing_twice() {
        let past = Past::default();
        let bytes = |bytes| Counted::default().with(Count::BytesIn, bytes);
        let said = |running: &[u64]| {
            let running = running.iter().map(|&count| bytes(count)).collect();
            past.with(|| running).of(Count::BytesIn)
        };
        assert_eq!(said(&[3, 4]), 7);
        // The second is ending: it runs no more, and is not in the past yet.
        assert_eq!(said(&[3]), 7);
        past.note(bytes(6));
        assert_eq!(said(&[3]), 9);
        assert_eq!(said(&[]), 9);
        past.note(bytes(3));
        assert_eq!(said(&[]), 9);
        assert_eq!(said(&[1]), 10);
    }
}
