//! The event queue: earliest first, and among equals the one that was entered first.
//!
//! That second rule makes a run repeat itself to the bit: the order never depends on the layout
//! of the heap or on addresses.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use farside_types::Time;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::state::{Reader, Refused, State, Writer};

/// What waits to happen, in (time, sequence) order. Times are integer picoseconds.
#[derive(Debug)]
pub struct Queue<T> {
    heap: BinaryHeap<Entry<T>>,
    sequence: u64,
    now: Time,
}

#[derive(Debug)]
struct Entry<T> {
    at: Time,
    sequence: u64,
    what: T,
}

impl<T> Queue<T> {
    /// An empty queue whose clock stands at `now`.
    pub fn new(now: Time) -> Queue<T> {
        Queue { heap: BinaryHeap::new(), sequence: 0, now }
    }

    /// The time of the event that was taken last.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Enters `what` for `at`. A time that has passed already counts as now.
    pub fn push(&mut self, at: Time, what: T) {
        let entry = Entry { at: at.max(self.now), sequence: self.sequence, what };
        self.sequence += 1;
        self.heap.push(entry);
    }

    /// Takes the next event and moves the clock to it.
    pub fn pop(&mut self) -> Option<T> {
        let entry = self.heap.pop()?;
        self.now = entry.at;
        Some(entry.what)
    }

    /// What waits to happen, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.heap.iter().map(|entry| &entry.what)
    }

    /// Events that wait.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

/// In the order in which it will happen, whatever the layout of the heap.
impl<T: Serialize + DeserializeOwned> State for Queue<T> {
    fn save(&self, to: &mut Writer) -> Result<(), Refused> {
        let mut entries: Vec<&Entry<T>> = self.heap.iter().collect();
        entries.sort_by_key(|entry| (entry.at, entry.sequence));
        let entries = entries.iter().map(|entry| (entry.at, entry.sequence, &entry.what));
        to.value(&(self.now, self.sequence))?;
        to.value(&entries.collect::<Vec<_>>())
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), Refused> {
        let (now, count): (Time, u64) = from.value()?;
        let entries: Vec<(Time, u64, T)> = from.value()?;
        if entries.iter().any(|&(at, sequence, _)| at < now || sequence >= count) {
            return Err(Refused::new("an event comes before the time, or after the last number"));
        }
        let entries = entries.into_iter().map(|(at, sequence, what)| Entry { at, sequence, what });
        *self = Queue { heap: entries.collect(), sequence: count, now };
        Ok(())
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Entry<T>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Entry<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    /// Reversed, because the standard heap gives the greatest first.
    fn cmp(&self, other: &Entry<T>) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_of_one_time_come_in_the_order_they_were_entered() {
        let mut queue = Queue::new(Time::ZERO);
        for name in ["a", "b", "c", "d", "e"] {
            queue.push(Time(7), name);
        }
        queue.push(Time(3), "first");
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, ["first", "a", "b", "c", "d", "e"]);
        assert_eq!(queue.now(), Time(7));
    }

    #[test]
    fn the_clock_never_goes_back() {
        let mut queue = Queue::new(Time::ZERO);
        queue.push(Time(10), 1);
        assert_eq!(queue.pop(), Some(1));
        queue.push(Time(4), 2);
        assert_eq!(queue.pop(), Some(2));
        assert_eq!(queue.now(), Time(10));
    }

    proptest! {
        #[test]
        fn order_is_that_of_a_stable_sort(times in prop::collection::vec(0u64..16, 0..200)) {
            let mut queue = Queue::new(Time::ZERO);
            for (index, &at) in times.iter().enumerate() {
                queue.push(Time(at), index);
            }
            let mut expected: Vec<usize> = (0..times.len()).collect();
            expected.sort_by_key(|&index| times[index]);
            let order: Vec<usize> = std::iter::from_fn(|| queue.pop()).collect();
            prop_assert_eq!(order, expected);
        }
    }
}
