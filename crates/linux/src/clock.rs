//! The machine's clock: monotonic time since its start, in the driver's unit.

use std::time::Instant;

use farside_types::{Span, Time};

/// Monotonic time since [`Clock::start`]. Copies count from the same start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts counting.
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// The time since the start; stays at its maximum after 213 days.
    pub fn now(&self) -> Time {
        let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::from_nanos(nanos)
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
