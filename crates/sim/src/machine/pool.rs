//! Lists of accesses that wait for the same thing, in one piece of memory.

use farside_types::Time;
use serde::{Deserialize, Serialize};

use super::access::Access;
use crate::state::state;

/// No place of the pool.
const NONE: u32 = u32::MAX;

/// The places of all lists.
#[derive(Debug)]
pub(super) struct Pool {
    places: Vec<Place>,
    free: u32,
}

state!(Pool {
    values: places, free;
});

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Place {
    since: Time,
    access: Access,
    next: u32,
}

/// A list, first come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl List {
    /// Without accesses.
    pub(super) const EMPTY: List = List { first: NONE, last: NONE };
}

impl Pool {
    pub(super) fn new() -> Pool {
        Pool { places: Vec::new(), free: NONE }
    }

    /// Adds an access that waits since `since`.
    pub(super) fn append(&mut self, list: &mut List, access: Access, since: Time) {
        let place = Place { since, access, next: NONE };
        let index = match self.free {
            NONE => {
                self.places.push(place);
                self.places.len() as u32 - 1
            }
            index => {
                self.free = self.places[index as usize].next;
                self.places[index as usize] = place;
                index
            }
        };
        match list.last {
            NONE => list.first = index,
            last => self.places[last as usize].next = index,
        }
        list.last = index;
    }

    /// Takes the first access out, with the time since which it waits.
    pub(super) fn take(&mut self, list: &mut List) -> Option<(Access, Time)> {
        if list.first == NONE {
            return None;
        }
        let index = list.first;
        let Place { since, access, next } = self.places[index as usize];
        list.first = next;
        if next == NONE {
            list.last = NONE;
        }
        self.places[index as usize].next = self.free;
        self.free = index;
        Some((access, since))
    }

    /// The accesses of a list.
    pub(super) fn iter(&self, list: List) -> impl Iterator<Item = Access> + '_ {
        let place = |index: u32| self.places.get(index as usize);
        std::iter::successors(place(list.first), move |held| place(held.next))
            .map(|held| held.access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_workloads::Line;

    #[test]
    fn lists_share_the_places_and_keep_their_order() {
        let access = |line| Access { line: Line(line), ..Access::default() };
        let (mut pool, mut a, mut b) = (Pool::new(), List::EMPTY, List::EMPTY);
        for line in 0..6 {
            let list = if line % 2 == 0 { &mut a } else { &mut b };
            pool.append(list, access(line), Time(u64::from(line)));
        }
        assert_eq!(pool.take(&mut a), Some((access(0), Time(0))));
        pool.append(&mut b, access(7), Time(7));
        let lines = |pool: &Pool, list| pool.iter(list).map(|a| a.line.0).collect::<Vec<_>>();
        assert_eq!((lines(&pool, a), lines(&pool, b)), (vec![2, 4], vec![1, 3, 5, 7]));
        assert_eq!(pool.places.len(), 6);
        while pool.take(&mut a).is_some() {}
        assert_eq!(a, List::EMPTY);
        assert_eq!(pool.take(&mut b), Some((access(1), Time(1))));
    }
}
