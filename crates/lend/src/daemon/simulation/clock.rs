//! A machine's clock: it began when the machine did, and drifts.

use std::time::Duration;

use farside_lease::BootTime;

/// True time, in nanoseconds since the simulation began.
pub(super) type TrueTime = u64;

/// Parts of a clock's rate.
const PARTS: u128 = 1_000_000;
/// What a clock shows when its machine has just started.
const FIRST: u64 = 1_000_000_000;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    began: TrueTime,
    /// Parts in a million that it shows of true time.
    rate: u128,
}

impl Clock {
    /// Of a machine that starts at that time, with a clock that is ahead by `drift` parts in a million.
    pub(super) fn starting(began: TrueTime, drift: i32) -> Clock {
        let rate = 1_000_000_i64 + i64::from(drift);
        Clock { began, rate: u128::from(rate.unsigned_abs()) }
    }

    /// What it shows.
    pub(super) fn at(&self, now: TrueTime) -> BootTime {
        let since = u128::from(now.saturating_sub(self.began));
        BootTime(FIRST + (since * self.rate / PARTS) as u64)
    }

    /// When it shows that, or a little later.
    pub(super) fn when(&self, shows: BootTime) -> TrueTime {
        let since = u128::from(shows.0.saturating_sub(FIRST));
        self.began + (since * PARTS / self.rate) as u64 + 1
    }

    /// The true time that passes while it shows `span`.
    pub(super) fn takes(&self, span: Duration) -> Duration {
        Duration::from_nanos((span.as_nanos() * PARTS / self.rate) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_clock_shows_more_than_has_passed() {
        let second = 1_000_000_000;
        let (fast, slow) = (Clock::starting(5, 9000), Clock::starting(5, -9000));
        assert_eq!(fast.at(5 + second).0 - fast.at(5).0, 1_009_000_000);
        assert_eq!(slow.at(5 + second).0 - slow.at(5).0, 991_000_000);
        for clock in [fast, slow] {
            let now = 5 + 77 * second;
            assert!(clock.when(clock.at(now)) >= now && clock.when(clock.at(now)) <= now + 3);
        }
        assert!(fast.takes(Duration::from_secs(1)) < Duration::from_secs(1));
    }
}
