//! Which requests of a host were answered: each is granted once, however often it comes.

use crate::ids::RequestId;

/// The highest request of a host, and which of those just below it were answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Seen {
    highest: RequestId,
    /// Bit `i`: `highest - i` was answered.
    below: u128,
}

impl Seen {
    /// Nothing at or below `floor` is new.
    pub(crate) fn all_to(floor: RequestId) -> Self {
        Self { highest: floor, below: u128::MAX }
    }

    /// Nothing was answered yet.
    pub(crate) fn nothing() -> Self {
        Self { highest: RequestId(0), below: 0 }
    }

    /// Marks a request. Says whether it is new; what lies too far below the highest is not.
    pub(crate) fn mark(&mut self, request: RequestId) -> bool {
        if let Some(step) = request.0.checked_sub(self.highest.0).filter(|step| *step > 0) {
            self.below =
                u32::try_from(step).ok().and_then(|n| self.below.checked_shl(n)).unwrap_or(0) | 1;
            self.highest = request;
            return true;
        }
        let back = self.highest.0 - request.0;
        if back >= 128 || self.below & (1 << back) != 0 {
            return false;
        }
        self.below |= 1 << back;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_new_once_in_any_order() {
        let mut seen = Seen::nothing();
        for (request, new) in [
            (5, true),
            (5, false),
            (3, true),
            (4, true),
            (3, false),
            (0, true),
            (0, false),
            (132, true),
            (4, false),
            (5, false),
            (6, true),
            (1000, true),
            (873, true),
            (872, false),
            (u64::MAX, true),
            (u64::MAX, false),
            (u64::MAX - 127, true),
            (1000, false),
        ] {
            assert_eq!(seen.mark(RequestId(request)), new, "{request}");
        }
    }

    #[test]
    fn nothing_below_a_floor_is_new() {
        let mut seen = Seen::all_to(RequestId(1000));
        assert!(
            !seen.mark(RequestId(1000)) && !seen.mark(RequestId(900)) && !seen.mark(RequestId(3))
        );
        assert!(seen.mark(RequestId(1002)) && seen.mark(RequestId(1001)));
        assert!(!seen.mark(RequestId(1000)));
    }
}
