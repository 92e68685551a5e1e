//! Time: readings of one host's CLOCK_BOOTTIME, and how each side of a lease counts its end.
//!
//! Owns the arithmetic of rule 2. Reads no clock. No reading of one host is ever compared with one of
//! another: only durations cross the network.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A reading of CLOCK_BOOTTIME of this host: nanoseconds since it started, suspended time included.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct BootTime(pub u64);

impl BootTime {
    /// The reading `span` later; at the end of time it stands still.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanoseconds(span)))
    }

    /// How long it is from here to `later`; nothing if that is in the past.
    #[must_use]
    pub fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }
}

/// A duration in nanoseconds; more than fit (584 years) is as many as fit.
pub(crate) fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// How far a clock may run away from true time, either way, in thousandths.
///
/// A duration `d` by a clock that is slow by it takes `d / (1 - drift)` at most, by one that is fast
/// `d / (1 + drift)` at least. So what the borrower counts, `d` shortened, is over after `d` of true
/// time at most, and what the lender counts, `d` lengthened, after `d` at least.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Drift {
    thousandths: u16,
}

impl Drift {
    /// What Farside allows: 1 %.
    pub const ALLOWED: Drift = Drift { thousandths: 10 };

    /// `thousandths` each way, at most half.
    #[must_use]
    pub const fn thousandths(thousandths: u16) -> Self {
        Self { thousandths: if thousandths > 500 { 500 } else { thousandths } }
    }

    /// A duration as the borrower counts it, rounded down.
    #[must_use]
    pub fn shorten(self, span: Duration) -> Duration {
        self.scale(span, 1000 - u128::from(self.thousandths), 0)
    }

    /// A duration as the lender counts it, rounded up.
    #[must_use]
    pub fn lengthen(self, span: Duration) -> Duration {
        self.scale(span, 1000 + u128::from(self.thousandths), 999)
    }

    /// The longest duration that the lender counts as at most `span`.
    #[must_use]
    pub fn fits(self, span: Duration) -> Duration {
        let fits = u128::from(nanoseconds(span)) * 1000 / (1000 + u128::from(self.thousandths));
        Duration::from_nanos(u64::try_from(fits).unwrap_or(u64::MAX))
    }

    /// Until when a borrower that asked at `asked` may use what it was given for `span`.
    #[must_use]
    pub fn borrowers_end(self, asked: BootTime, span: Duration) -> BootTime {
        asked.after(self.shorten(span))
    }

    /// Until when a lender that heard of it at `received` gives the same device to nobody else.
    #[must_use]
    pub fn lenders_end(self, received: BootTime, span: Duration) -> BootTime {
        received.after(self.lengthen(span))
    }

    fn scale(self, span: Duration, times: u128, rounding: u128) -> Duration {
        let scaled = (u128::from(nanoseconds(span)) * times + rounding) / 1000;
        Duration::from_nanos(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

impl Default for Drift {
    fn default() -> Self {
        Self::ALLOWED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_borrower_stops_first_by_the_worst_clocks_that_are_allowed() {
        let drift = Drift::ALLOWED;
        for nanos in [1, 7, 99, 100, 101, 12_345, 10_000_000_000, 59_999_999_999] {
            let span = Duration::from_nanos(nanos);
            // True time × 1000 at which the borrower's slow clock and the lender's fast clock show
            // what each of them counts.
            let borrower = u128::from(nanoseconds(drift.shorten(span))) * 1000 * 1010;
            let lender = u128::from(nanoseconds(drift.lengthen(span))) * 1000 * 990;
            assert!(borrower <= lender, "{nanos} ns");
        }
    }

    #[test]
    fn what_fits_is_counted_as_no_more_by_the_lender() {
        for nanos in (0..2000).chain([u64::MAX / 2, u64::MAX]) {
            let span = Duration::from_nanos(nanos);
            assert!(Drift::ALLOWED.lengthen(Drift::ALLOWED.fits(span)) <= span, "{nanos} ns");
        }
    }

    #[test]
    fn the_end_of_time_is_no_overflow() {
        let last = BootTime(u64::MAX);
        assert_eq!(last.after(SECOND), last);
        assert_eq!(Drift::ALLOWED.lenders_end(BootTime(1), Duration::MAX), last);
        assert_eq!(last.until(BootTime(0)), Duration::ZERO);
    }
}
