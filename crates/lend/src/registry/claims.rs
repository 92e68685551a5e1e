//! The order of claims: pure.

use std::collections::{BTreeMap, BTreeSet};

/// Claims in the order in which they came. A claim has its turn when none that came earlier wants a
/// device that it wants.
#[derive(Clone, Debug)]
pub(super) struct Claims<P: Ord>(BTreeMap<P, BTreeSet<String>>);

impl<P: Ord> Default for Claims<P> {
    fn default() -> Claims<P> {
        Claims(BTreeMap::new())
    }
}

impl<P: Ord + Copy> Claims<P> {
    /// Takes a claim in at its place.
    pub(super) fn enter(&mut self, place: P, devices: BTreeSet<String>) {
        self.0.insert(place, devices);
    }

    /// Forgets it.
    pub(super) fn leave(&mut self, place: P) {
        self.0.remove(&place);
    }

    /// How many claims there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// How many are served before it; `None` if it is not there.
    pub(super) fn before(&self, place: P) -> Option<usize> {
        let own = self.0.get(&place)?;
        let earlier = self.0.range(..place);
        Some(earlier.filter(|(_, devices)| !devices.is_disjoint(own)).count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(devices: &str) -> BTreeSet<String> {
        devices.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn whoever_came_first_is_served_first_and_others_do_not_wait() {
        let mut claims = Claims::default();
        for (place, devices) in [(1, "a b"), (2, "b c"), (3, "d"), (4, "c d")] {
            claims.enter(place, set(devices));
        }
        let before = |claims: &Claims<u32>| [1, 2, 3, 4, 5].map(|place| claims.before(place));
        assert_eq!(before(&claims), [Some(0), Some(1), Some(0), Some(2), None]);
        claims.leave(1);
        assert_eq!(before(&claims), [None, Some(0), Some(0), Some(2), None]);
        claims.leave(2);
        claims.leave(3);
        assert_eq!(claims.before(4), Some(0));
        assert_eq!(claims.len(), 1);
    }
}
