//! What is counted from one start of the daemon to its end.

use std::collections::BTreeMap;
use std::time::Duration;

/// Upper bounds of the waits for a grant, in seconds.
pub(super) const WAIT_BOUNDS_S: [f64; 9] =
    [0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 6.0 * 3600.0, 24.0 * 3600.0];

/// A count for each of a few reasons, which the program knows beforehand.
pub(super) type ByReason = BTreeMap<&'static str, u64>;

/// See the module.
#[derive(Debug, Default)]
pub(in super::super) struct Counts {
    pub(super) granted: u64,
    pub(super) ends: ByReason,
    pub(super) refusals: ByReason,
    pub(super) cleanings: ByReason,
    pub(super) hooks_failed: ByReason,
    pub(super) callers_refused: ByReason,
    pub(super) recalls: u64,
    pub(super) joined: u64,
    pub(super) waits: Waits,
}

/// A histogram of waits.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// By the first bound that a wait is within.
    pub(super) within: [u64; WAIT_BOUNDS_S.len()],
    pub(super) count: u64,
    pub(super) sum: Duration,
}

impl Counts {
    pub(in super::super) fn granted(&mut self, leases: usize, waited: Duration) {
        self.granted += leases as u64;
        let seconds = waited.as_secs_f64();
        if let Some(at) = WAIT_BOUNDS_S.iter().position(|&bound| seconds <= bound) {
            self.waits.within[at] += 1;
        }
        self.waits.count += 1;
        self.waits.sum = self.waits.sum.saturating_add(waited);
    }

    pub(in super::super) fn ended(&mut self, reason: &'static str) {
        *self.ends.entry(reason).or_default() += 1;
    }

    pub(in super::super) fn refused(&mut self, reason: &'static str) {
        *self.refusals.entry(reason).or_default() += 1;
    }

    pub(in super::super) fn cleaned(&mut self, outcome: &'static str) {
        *self.cleanings.entry(outcome).or_default() += 1;
    }

    pub(in super::super) fn hook_failed(&mut self, on: &'static str) {
        *self.hooks_failed.entry(on).or_default() += 1;
    }

    pub(in super::super) fn caller_refused(&mut self, reason: &'static str) {
        *self.callers_refused.entry(reason).or_default() += 1;
    }

    pub(in super::super) fn recalled(&mut self) {
        self.recalls += 1;
    }

    pub(in super::super) fn joined(&mut self) {
        self.joined += 1;
    }
}
