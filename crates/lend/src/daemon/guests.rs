//! How many callers of each kind there are at a time: whoever calls without end keeps nobody else out.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use farside_linux::lock::lock;

/// See the module. The kinds are those of `K`: addresses, or hosts.
#[derive(Debug)]
pub(super) struct Guests<K> {
    /// Those that are there.
    there: Mutex<HashMap<K, usize>>,
    /// Of one kind, at most.
    each_max: usize,
    /// Of all together, at most.
    all_max: usize,
}

/// The place of one; free when it is dropped.
#[derive(Debug)]
pub(super) struct Place<K: Eq + Hash> {
    guests: Arc<Guests<K>>,
    kind: K,
}

impl<K: Eq + Hash + Clone> Guests<K> {
    pub(super) fn new(each_max: usize, all_max: usize) -> Arc<Guests<K>> {
        Arc::new(Guests { there: Mutex::default(), each_max, all_max })
    }

    /// A place for one more, if there is one.
    pub(super) fn place(self: &Arc<Self>, kind: K) -> Option<Place<K>> {
        let mut there = lock(&self.there);
        let all: usize = there.values().sum();
        let of_kind = there.get(&kind).copied().unwrap_or_default();
        if of_kind >= self.each_max || all >= self.all_max {
            return None;
        }
        there.insert(kind.clone(), of_kind + 1);
        drop(there);
        Some(Place { guests: Arc::clone(self), kind })
    }
}

impl<K: Eq + Hash> Drop for Place<K> {
    fn drop(&mut self) {
        let mut there = lock(&self.guests.there);
        match there.get_mut(&self.kind) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(there.remove(&self.kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kind_fills_its_own_places_and_all_together_theirs() {
        let guests = Guests::new(2, 5);
        let a: Vec<_> = (0..3).map(|_| guests.place("a")).collect();
        assert!(a[1].is_some() && a[2].is_none(), "a has its own places");
        let _others = [guests.place("b"), guests.place("b"), guests.place("c")];
        assert!(guests.place("c").is_none(), "there are no more");
        drop(a);
        assert!(guests.place("c").is_some() && guests.place("a").is_some());
        drop(_others);
        assert!(lock(&guests.there).is_empty(), "who has gone is forgotten");
    }
}
