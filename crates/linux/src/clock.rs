//! The machine's clock: monotonic time since its start, in the driver's unit.

use std::time::Instant;

use farside_types::{Span, Time};
use rustix::time::{ClockId, clock_gettime};

/// Monotonic time since [`Clock::start`]. Copies count from the same start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    /// The same in nanoseconds of the system's clock: a fault looks at the clock ten times, and arithmetic
    /// with an [`Instant`] takes as long as the look.
    start_nanos: u64,
}

impl Clock {
    /// Starts counting.
    pub fn start() -> Clock {
        Clock { start: Instant::now(), start_nanos: monotonic_nanos() }
    }

    /// The time since the start; stays at its maximum after 213 days.
    pub fn now(&self) -> Time {
        Time::from_nanos(monotonic_nanos().saturating_sub(self.start_nanos))
    }

    /// The moment `time` as an [`Instant`], for waits with a deadline.
    pub fn instant(&self, time: Time) -> Instant {
        self.start + std::time::Duration::from_nanos(time.since(Time::ZERO).as_nanos())
    }

    /// How long from now to `time`; zero if it has passed.
    pub fn until(&self, time: Time) -> Span {
        time.since(self.now())
    }
}

/// Nanoseconds of the system's monotonic clock, which [`Instant`] reads too: 584 years fit.
fn monotonic_nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_goes_forward_from_zero() {
        let clock = Clock::start();
        let first = clock.now();
        std::thread::sleep(Duration::from_millis(2));
        let second = clock.now();
        assert!(second.since(first) >= Span::from_millis(2));
        assert!(second.since(Time::ZERO) < Span::from_millis(60_000));
        assert_eq!(clock.until(first), Span::ZERO);
        assert!(clock.until(second + Span::from_millis(60_000)) > Span::from_millis(1));
    }

    #[test]
    fn instants_and_times_agree() {
        let clock = Clock::start();
        let ahead = clock.now() + Span::from_millis(10_000);
        let left = clock.instant(ahead) - Instant::now();
        assert!(left > Duration::from_secs(5) && left <= Duration::from_secs(10));
    }
}
