//! How many connections each host may have: one that makes as many as it can takes none from others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use farside_linux::lock::lock;

/// Connections of one host's daemon at a time, at most: it needs one or two.
pub(super) const OF_ONE_HOST_MAX: usize = 8;
/// Connections at a time of those who have no certificate, all together: they want to join.
pub(super) const OF_STRANGERS_MAX: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<HashMap<Option<String>, usize>>);

/// A place that is taken, until this and all its clones are gone.
#[derive(Clone, Debug)]
pub(super) struct Place(#[expect(dead_code, reason = "it is given back when dropped")] Arc<Taken>);

#[derive(Debug)]
struct Taken {
    places: Arc<Places>,
    host: Option<String>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut taken = lock(&self.places.0);
        if let Some(count) = taken.get_mut(&self.host) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.host);
            }
        }
    }
}

impl Places {
    /// A place for a host, or for somebody whom nobody knows; none if there are too many already.
    pub(super) fn take(self: &Arc<Self>, host: Option<&str>) -> Option<Place> {
        let host = host.map(str::to_owned);
        let max = if host.is_some() { OF_ONE_HOST_MAX } else { OF_STRANGERS_MAX };
        let mut taken = lock(&self.0);
        let count = taken.entry(host.clone()).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(Place(Arc::new(Taken { places: Arc::clone(self), host })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_takes_all_its_places_takes_none_of_others() {
        let places = Arc::new(Places::default());
        let taken: Vec<Place> =
            (0..OF_ONE_HOST_MAX).map(|_| places.take(Some("b")).unwrap()).collect();
        assert!(places.take(Some("b")).is_none());
        let _others = [places.take(Some("c")).unwrap(), places.take(None).unwrap()];
        let clone = taken[0].clone();
        drop(taken);
        drop(clone);
        assert_eq!(lock(&places.0).len(), 2, "what was given back is forgotten");
        assert!(places.take(Some("b")).is_some());
    }
}
