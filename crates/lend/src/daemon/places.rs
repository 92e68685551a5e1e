//! How many connections each host may have, and each address before it is known who calls from there: who
//! makes as many as it can takes none from others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use farside_linux::lock::lock;

/// Connections of one host's daemon at a time, at most: it needs one or two.
pub(super) const OF_ONE_HOST_MAX: usize = 8;
/// Connections at a time of those who have no certificate, all together: they want to join.
pub(super) const OF_STRANGERS_MAX: usize = 16;
/// Connections from one address at a time, at most, of whose callers nothing is known yet.
pub(super) const OF_ONE_ADDRESS_MAX: usize = 32;

/// Whose a connection is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Whose {
    /// Of a host that has shown its certificate.
    Host(String),
    /// Of somebody who has none.
    Strangers,
    /// Of somebody who has not said anything yet.
    Address(IpAddr),
}

impl Whose {
    /// Of a host, if it has shown who it is.
    pub(super) fn of(host: Option<&str>) -> Whose {
        host.map_or(Whose::Strangers, |host| Whose::Host(host.to_owned()))
    }

    fn max(&self) -> usize {
        match self {
            Whose::Host(_) => OF_ONE_HOST_MAX,
            Whose::Strangers => OF_STRANGERS_MAX,
            Whose::Address(_) => OF_ONE_ADDRESS_MAX,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<HashMap<Whose, usize>>);

/// A place that is taken, until this and all its clones are gone.
#[derive(Clone, Debug)]
pub(super) struct Place(#[expect(dead_code, reason = "it is given back when dropped")] Arc<Taken>);

#[derive(Debug)]
struct Taken {
    places: Arc<Places>,
    whose: Whose,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut taken = lock(&self.places.0);
        if let Some(count) = taken.get_mut(&self.whose) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.whose);
            }
        }
    }
}

impl Places {
    /// A place; none if there are too many of the same already.
    pub(super) fn take(self: &Arc<Self>, whose: Whose) -> Option<Place> {
        let mut taken = lock(&self.0);
        let count = taken.get(&whose).copied().unwrap_or_default();
        if count >= whose.max() {
            return None;
        }
        taken.insert(whose.clone(), count + 1);
        Some(Place(Arc::new(Taken { places: Arc::clone(self), whose })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_takes_all_its_places_takes_none_of_others() {
        let places = Arc::new(Places::default());
        let b = || Whose::of(Some("b"));
        let taken: Vec<Place> = (0..OF_ONE_HOST_MAX).map(|_| places.take(b()).unwrap()).collect();
        assert!(places.take(b()).is_none());
        let _others =
            [Whose::of(Some("c")), Whose::of(None)].map(|whose| places.take(whose).unwrap());
        let clone = taken[0].clone();
        drop(taken);
        drop(clone);
        assert_eq!(lock(&places.0).len(), 2, "what was given back is forgotten");
        assert!(places.take(b()).is_some());
    }
}
