//! Contention by reservation: who comes later waits until the resource is free again.

use farside_types::{Span, Time};
use serde::{Deserialize, Serialize};

/// How long `bytes` take at `gb_per_s` (10^9 bytes a second), rounded up to a picosecond.
pub const fn bytes_time(bytes: u64, gb_per_s: u64) -> Span {
    Span((bytes * 1_000).div_ceil(gb_per_s))
}

/// One direction of a link: carries one transfer at a time, in the order of the reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    free_at: Time,
    busy: Span,
}

impl Port {
    /// When it can take the next transfer.
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// How long it has been reserved in all.
    pub fn busy(&self) -> Span {
        self.busy
    }

    /// Reserves both ends of a transfer that takes `span`, as early as both are free; returns when
    /// it is over.
    pub fn reserve_pair(now: Time, from: &mut Port, to: &mut Port, span: Span) -> Time {
        let end = now.max(from.free_at).max(to.free_at) + span;
        for port in [from, to] {
            port.free_at = end;
            port.busy += span;
        }
        end
    }

    /// Reserves this port alone for `span`; returns when it is over.
    pub fn reserve(&mut self, now: Time, span: Span) -> Time {
        self.free_at = now.max(self.free_at) + span;
        self.busy += span;
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfer_time_is_bytes_over_bandwidth_rounded_up() {
        assert_eq!(bytes_time(4096, 32), Span(128_000));
        assert_eq!(bytes_time(64, 300), Span(214));
        assert_eq!(bytes_time(0, 300), Span::ZERO);
    }

    #[test]
    fn a_saturated_port_carries_exactly_its_bandwidth() {
        let mut port = Port::default();
        let line = bytes_time(64, 32);
        let last = (0..1_000).map(|_| port.reserve(Time(5), line)).last();
        assert_eq!(last, Some(Time(5 + 1_000 * line.0)));
        assert_eq!(port.busy(), Span(1_000 * line.0));
    }

    #[test]
    fn a_pair_starts_when_both_ends_are_free() {
        let (mut a, mut b) = (Port::default(), Port::default());
        a.reserve(Time(0), Span(100));
        b.reserve(Time(0), Span(300));
        assert_eq!(Port::reserve_pair(Time(50), &mut a, &mut b, Span(10)), Time(310));
        assert_eq!(a.free_at(), b.free_at());
    }
}
